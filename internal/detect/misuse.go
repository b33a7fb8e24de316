package detect

import (
	"fmt"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Misuse. The agent states facts; here it is decided which of them are errors in their context:
//
//   - unlock-not-owner, unlock-not-locked, relock, cond-wait-unlocked of an errorcheck mutex: none. The program asked for the answer and got it.
//   - unlock-not-owner in a forked child of a lock whose owner is no thread of the child: none. Handlers of pthread_atfork take locks before
//     the fork and release them after it in the child, where the thread has another tid.
//   - relock: the thread deadlocks with itself, and that is told once, as a deadlock (see stuck.go). If the wait gave up, it is told here. If
//     it got the mutex after all, somebody else unlocked it, which is told as that.
//   - exit-holding-lock: none for a robust mutex, whose next owner is told; none once the process ends, which takes all threads with it.
//   - free-locked: none once the process ends.
//   - owner-died: none by itself, robust mutexes are made for it. Only if the mutex was left unrecoverable (result ENOTRECOVERABLE).
//   - unlock-read-write and unlock-not-owner of a rwlock: rwlock-unlock-not-held.
//   - thread-leak: seen here. A joinable thread that has ended and was neither joined nor detached when the process ended by exit. Not one
//     that still runs: daemon threads are no error. Not one that another thread waits to join.
//
// A misuse is told once for each rule, place in the code and, where no stack was taken, object.

// errno values that the facts carry.
const enotrecoverable = 131

// misuseRule is how a fact is told: its rule and the words for Parts[0] (with %s for the object) and for the stack of the earlier event.
type misuseRule struct {
	rule           finding.Rule
	message        string // %s: the object
	here, earlier  string
	earlierByOther bool // the earlier event was done by `other`
}

var misuseRules = map[wire.Misuse]misuseRule{
	wire.MisuseUnlockNotOwner:      {finding.RuleUnlockNotOwner, "Unlock of %s by a thread that does not hold it", "Unlocked here", "Locked here", true},
	wire.MisuseUnlockNotLocked:     {finding.RuleUnlockNotLocked, "Unlock of %s, which is not locked", "Unlocked here", "Unlocked before here", true},
	wire.MisuseRelock:              {finding.RuleSelfDeadlock, "Lock of %s by the thread that holds it", "Locked again here", "Locked first here", false},
	wire.MisuseDestroyLocked:       {finding.RuleDestroyLocked, "Destroy of %s while it is locked", "Destroyed here", "Locked here", true},
	wire.MisuseDestroyWaited:       {finding.RuleDestroyWaited, "Destroy of %s while threads wait for it", "Destroyed here", "Waited for here", true},
	wire.MisuseUseAfterDestroy:     {finding.RuleUseAfterDestroy, "Use of %s after it was destroyed", "Used here", "Destroyed here", true},
	wire.MisuseUseBeforeInit:       {finding.RuleUseBeforeInit, "Use of %s, which was never initialised", "Used here", "", false},
	wire.MisuseReinitLocked:        {finding.RuleReinitLocked, "Initialisation of %s while it is in use", "Initialised here", "Locked here", true},
	wire.MisuseFreeLocked:          {finding.RuleFreeLocked, "Free of memory that holds %s, which is locked", "Freed here", "Locked here", true},
	wire.MisuseRecursionOverflow:   {finding.RuleRecursion, "Recursive lock of %s failed: its counter is full", "Locked here", "Locked first here", false},
	wire.MisuseOwnerDied:           {finding.RuleOwnerDied, "Robust %s is unusable: it was unlocked without being made consistent after its owner died", "Unlocked here", "Locked after its owner's death here", false},
	wire.MisuseCondTwoMutexes:      {finding.RuleCondTwoMutexes, "Threads wait for %s with different mutexes", "Waits here", "Another thread waits here", true},
	wire.MisuseCondWaitUnlocked:    {finding.RuleCondUnlocked, "Condition wait with %s, which the thread does not hold", "Waits here", "", true},
	wire.MisuseBarrierBadCount:     {finding.RuleBarrierBadCount, "Initialisation of %s with an impossible count", "Initialised here", "", false},
	wire.MisuseBarrierDestroyInUse: {finding.RuleBarrierInUse, "Destroy of %s while threads use it", "Destroyed here", "Waited at here", true},
	wire.MisuseSemBadCount:         {finding.RuleSemBadCount, "Impossible count of %s", "Set or posted here", "", false},
	wire.MisuseExitHoldingLock:     {finding.RuleExitHoldingLock, "Thread ends while it holds %s", "Still held at its end", "Locked here", false},
	wire.MisuseUnlockReadWrite:     {finding.RuleRwlockUnlock, "Unlock of %s by a thread that does not hold it", "Unlocked here", "Locked here", true},
	wire.MisuseDoubleJoin:          {finding.RuleDoubleJoin, "Join of %s, which was joined already", "Joined here", "Joined first here", false},
	wire.MisuseJoinDetached:        {finding.RuleJoinDetached, "Join of %s, which is detached", "Joined here", "Detached here", false},
	wire.MisuseJoinSelf:            {finding.RuleJoinSelf, "Thread joins itself", "Joins itself here", "", false},
	wire.MisuseDoubleDetach:        {finding.RuleDoubleDetach, "Detach of %s, which was detached or joined already", "Detached here", "Detached or joined before here", false},
	wire.MisuseInvalidFree:         {finding.RuleInvalidFree, "Free of an address that was not allocated", "Freed here", "The block around it was freed before here", true},
	wire.MisuseDoubleFree:          {finding.RuleDoubleFree, "Free of %s, which was freed already", "Freed here", "Freed first here", true},
}

// relock is a mutex locked by the thread that holds it, of which it is not known yet how it ended.
type relock struct {
	ev wire.EvMisuse
}

func (p *process) misuse(t *thread, ev wire.EvMisuse) {
	if t == nil {
		return
	}
	if !p.lateOwner(&ev) {
		return
	}
	o := p.lookup(ev.Obj, ev.Kind)
	errorcheck := o != nil && o.flags&wire.ObjFlagErrorcheck != 0
	switch ev.What {
	case wire.MisuseUnlockNotOwner, wire.MisuseUnlockReadWrite:
		if errorcheck || p.forked && ev.Other == 0 && ev.Stack2 == 0 {
			return
		}
		p.handOver(ev.Obj, ev.Kind)
		if ev.Kind == wire.ObjectRwlock {
			ev.What = wire.MisuseUnlockReadWrite
		}
	case wire.MisuseUnlockNotLocked:
		if errorcheck {
			return
		}
		if ev.Kind == wire.ObjectRwlock {
			ev.What = wire.MisuseUnlockReadWrite
		}
	case wire.MisuseRelock:
		if !errorcheck {
			t.relock = &relock{ev: ev}
			p.touch()
		}
		return
	case wire.MisuseCondWaitUnlocked:
		if m := p.lookup(ev.Aux, wire.ObjectMutex); errorcheck || m != nil && m.flags&wire.ObjFlagErrorcheck != 0 {
			return
		}
	case wire.MisuseExitHoldingLock:
		if p.ending || o != nil && o.flags&wire.ObjFlagRobust != 0 {
			return
		}
		if p.gone == nil {
			p.gone = map[uint64]goneHold{}
		}
		if len(p.gone) < maxObjects && (o == nil || !o.handed) {
			p.gone[ev.Obj] = goneHold{thread: t.number, tid: t.tid, kind: ev.Kind, stack: ev.Stack2}
		}
		p.touch()
	case wire.MisuseFreeLocked:
		if p.ending {
			return
		}
	case wire.MisuseOwnerDied:
		if ev.Result != enotrecoverable {
			return
		}
	case wire.MisuseDoubleJoin, wire.MisuseDoubleDetach, wire.MisuseJoinDetached:
		if p.bypassed {
			return
		}
	case wire.MisuseThreadLeak:
		return // judged at the end, by leaks
	}
	p.sayMisuse(t, ev)
}

// sayRelock tells a relock that did not end in a deadlock: the wait was timed or cancelled.
func (p *process) sayRelock(t *thread, r *relock) { p.sayMisuse(t, r.ev) }

// endRelocks tells the relocks whose fate was never seen.
func (p *process) endRelocks() {
	for _, t := range sortedThreads(p.threads) {
		if r := t.relock; r != nil {
			t.relock = nil
			p.sayRelock(t, r)
		}
	}
}

func (p *process) sayMisuse(t *thread, ev wire.EvMisuse) {
	m, ok := misuseRules[ev.What]
	if !ok {
		return // of a newer agent: a fact that we have no words for
	}
	first, second := ev.Stack, ev.Stack2
	if ev.What == wire.MisuseCondTwoMutexes { // each of the two may say so of the other
		first, second = min(first, second), max(first, second)
	}
	key := fmt.Sprintf("misuse %d %d %d %d", ev.What, ev.Kind, first, second)
	if ev.Stack == 0 {
		class := fmt.Sprintf("%x", ev.Obj)
		if o := p.lookup(ev.Obj, ev.Kind); o != nil {
			class = o.class()
		}
		key += " " + class
	}
	if s := p.said[key]; s != nil {
		s.again++
		return
	}
	b := p.newTeller(m.rule)
	name := "an object"
	switch {
	case ev.Kind == wire.ObjectThread && ev.Other != 0:
		name = b.thread(ev.Other)
	case ev.Kind == wire.ObjectThread:
		name = "a thread"
	case ev.Kind != 0:
		name = b.named(ev.Obj, ev.Kind)
	}
	if ev.What == wire.MisuseCondWaitUnlocked && ev.Kind == wire.ObjectCond && ev.Aux != 0 {
		name = b.named(ev.Aux, wire.ObjectMutex) // what the thread does not hold; name was the condition
	}
	b.f.Message = m.message
	if strings.Contains(m.message, "%s") {
		b.f.Message = fmt.Sprintf(m.message, name)
	}
	b.part(finding.Part{Text: m.here, Thread: t.number, Stack: b.stack(ev.Stack)})
	if ev.What == wire.MisuseInvalidFree {
		b.filling(wire.CrashFlag(ev.Result))
	}
	if ev.Stack2 != 0 && m.earlier != "" {
		part := finding.Part{Text: m.earlier, Stack: b.stack(ev.Stack2)}
		switch {
		case !m.earlierByOther:
			if ev.Kind != wire.ObjectThread {
				part.Thread = t.number
			}
		case ev.Other != 0:
			part.Thread = ev.Other
		}
		if ev.What == wire.MisuseDoubleFree && ev.Result == 1 && len(part.Stack) > 1 {
			part.Text += " (frames behind the first are of an earlier free from the same call, which may have had another caller)"
		}
		b.part(part)
	}
	p.say(key, b.f)
}

// leaks tells the threads that ended without anybody having taken note.
func (p *process) leaks() {
	if p.bypassed {
		return
	}
	awaited := map[uint32]bool{}
	for _, t := range p.threads {
		if t.want != nil && t.want.kind == wire.ObjectThread {
			awaited[t.want.target] = true
		}
	}
	for _, t := range sortedThreads(p.threads) {
		if !t.ended || t.joined || t.detached || !t.created || awaited[t.number] {
			continue
		}
		key := fmt.Sprintf("leak %d", t.createStack)
		if t.createStack == 0 {
			key = fmt.Sprintf("leak of T%d", t.number)
		}
		if s := p.said[key]; s != nil {
			s.again++
			continue
		}
		b := p.newTeller(finding.RuleThreadLeak)
		b.f.Message = upper(b.thread(t.number)) + " has ended but was neither joined nor detached"
		creator := uint32(0)
		if len(b.f.Threads) > 0 {
			creator = b.f.Threads[0].Creator
		}
		b.part(finding.Part{Text: upper(threadWord(t.number)) + " created here", Thread: creator, Stack: b.stack(t.createStack)})
		p.say(key, b.f)
	}
}
