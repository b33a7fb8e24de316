package detect

import (
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// While epochs are recorded no thread keeps a list of the locks that it holds. A wait is told when it has lasted for about a second (`want` with how=late), and names
// the owner by the object's own word, as of the event. What is claimed of such waits:
//
//   - Of two waits the second's thread keeps the first one waiting if the first has named it as the owner since the second wait began: who waits gives
//     nothing up meanwhile. An owner that was named before then may have given it up since. (The agent tells again when the owner has begun another wait.)
//   - A lock whose owner is not known, as readers are not, is given up by nobody if every thread of the process waits. So are conditions, semaphores and barriers.
//   - A lock whose owner had ended when it was named is given up by nobody if every thread waits. (While others run one of them may be its owner yet, in the destructor of another key.)
//
// Joins and initialisers are told when they begin, as always, and what they wait for is known by events.

// judged reports whether a wait of a process that records epochs is one of which something may be claimed. Others are announced with a list of what is held, which is not whole.
func (ev *lateWant) judged() bool {
	return ev.How == wire.HowLate || ev.Kind == wire.ObjectThread || ev.Kind == wire.ObjectOnce || ev.Kind == wire.ObjectGuard
}

type lateWant wire.EvWant

// lateWhy is `why` of a wait that was told late, but for initialisers.
func (s *stuckSet) lateWhy(t *thread, o *object) (blockers []blocker, closed bool) {
	w := t.want
	switch w.kind {
	case wire.ObjectMutex, wire.ObjectRwlock:
	case wire.ObjectCond, wire.ObjectSem, wire.ObjectBarrier:
		return nil, s.closed(o)
	default:
		return nil, false
	}
	if o == nil || o.handed {
		return nil, false
	}
	if w.value == 0 {
		return nil, s.closed(o)
	}
	if o.flags&(wire.ObjFlagPshared|wire.ObjFlagRobust) != 0 {
		return nil, false // another process's thread may have that number, or the lock has another way out
	}
	owner := s.p.byTid(w.value)
	switch {
	case owner == nil:
		if e, ok := s.p.ended[w.value]; ok && w.told > e.at && s.closed(o) {
			return []blocker{{gone: &goneHold{thread: e.number, tid: w.value, kind: w.kind}}}, false
		}
	case owner == t && o.flags&(wire.ObjFlagRecursive|wire.ObjFlagErrorcheck) != 0:
	case owner == t, s.in[owner] && w.told > owner.want.since:
		return []blocker{{t: owner}}, false
	}
	return nil, false
}

// byTid is the living thread that the kernel calls so, nil if none is known.
func (p *process) byTid(tid uint32) *thread {
	if tid == 0 || p.unseen {
		return nil
	}
	for _, t := range p.threads {
		if t.tid == tid && !t.ended {
			return t
		}
	}
	return nil
}

// lateRules are the findings about locks and threads that hold while epochs are recorded.
var lateRules = map[finding.Rule]bool{
	finding.RuleDeadlock: true, finding.RuleSelfDeadlock: true, finding.RuleHang: true,
	finding.RuleUnlockNotOwner: true, finding.RuleUnlockNotLocked: true, finding.RuleRwlockUnlock: true, finding.RuleDestroyLocked: true,
	finding.RuleUseAfterDestroy: true, finding.RuleUseBeforeInit: true, finding.RuleRecursion: true, finding.RuleCondUnlocked: true,
	finding.RuleBarrierBadCount: true, finding.RuleSemBadCount: true,
	finding.RuleDoubleJoin: true, finding.RuleJoinDetached: true, finding.RuleJoinSelf: true, finding.RuleDoubleDetach: true,
}

// tells reports whether a finding of p is told: not one about locks and threads that rests on what a process that records epochs does not know.
func (p *process) tells(rule finding.Rule) bool {
	info, _ := finding.RuleOf(rule)
	if !p.d.cfg.Epochs || info.Class == finding.ClassHeap || info.Class == finding.ClassCrash || info.Class == finding.ClassRace {
		return true
	}
	return !p.forked && lateRules[rule]
}

// lateOwner names the thread that a misuse of a process that records epochs tells of by its number in the kernel; false: it is none that lives.
func (p *process) lateOwner(ev *wire.EvMisuse) bool {
	if !p.d.cfg.Epochs || ev.Other != 0 || !slices.Contains([]wire.Misuse{wire.MisuseUnlockNotOwner, wire.MisuseUnlockReadWrite, wire.MisuseDestroyLocked}, ev.What) {
		return true
	}
	t := p.byTid(uint32(ev.Aux))
	if t == nil {
		return false
	}
	ev.Other = t.number
	return true
}

// lateNote says what is not known of a finding's locks.
func (s *stuckSet) lateNote(b *teller, threads []*thread) {
	if slices.ContainsFunc(threads, func(t *thread) bool {
		return t.want.late && (t.want.kind == wire.ObjectMutex || t.want.kind == wire.ObjectRwlock)
	}) {
		b.f.Notes = append(b.f.Notes, "Where the locks were taken is not known: while epochs are recorded no list of what is held is kept. Who has them, they say themselves.")
	}
}
