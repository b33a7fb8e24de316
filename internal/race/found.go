package race

import (
	"encoding/binary"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// LiveNames are Names that also know what a thread held where it took a stack.
type LiveNames interface {
	Names
	Held(process uint64, stack uint32) []wire.Held
}

// Live puts into words what the agent's detector finds. It is for one goroutine.
type Live struct {
	w       LiveNames
	pending map[uint64]map[wire.EvRace]Race // by process: what was found and is not decided, as its world was then
	told    map[uint64]map[wire.EvRace]bool // by process: what was decided, with its rule
	before  map[beforeKey][]byte            // what was there when a thread was about to make the later access
}

type beforeKey struct {
	process  uint64
	thread   uint32
	addr, pc uint64
}

// maxBefore bounds Live.before.
const maxBefore = 1 << 14

// NewLive makes one. w must be up to date at each call of Found.
func NewLive(w LiveNames) *Live {
	return &Live{w, map[uint64]map[wire.EvRace]Race{}, map[uint64]map[wire.EvRace]bool{}, map[beforeKey][]byte{}}
}

// Frame takes what a thread says before a race that it meets.
func (l *Live) Frame(process uint64, thread uint32, ev wire.EvFrame) {
	if ev.Known == 0 {
		return
	}
	if len(l.before) >= maxBefore {
		clear(l.before)
	}
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, ev.Lo), ev.Hi)
	l.before[beforeKey{process, thread, ev.Addr, ev.Pc}] = b[:min(int(ev.Known), len(b))]
}

// Found takes an event of a process; ok: it is a race that is decided, and to be told.
func (l *Live) Found(process uint64, ev wire.EvRace) (f finding.Finding, ok bool) {
	key := ev
	key.Rule, key.Count = 0, 0
	if ev.Rule == wire.RaceRulePendingRace || ev.Rule == wire.RaceRulePendingFree {
		if l.pending[process] == nil {
			l.pending[process] = map[wire.EvRace]Race{}
		}
		l.pending[process][key] = l.words(process, &ev)
		return finding.Finding{}, false
	}
	r, pending := l.pending[process][key]
	if pending {
		delete(l.pending[process], key)
	}
	// An access may be found twice, for two reasons to wait. The second is decided later, when the memory may be gone.
	decided := key
	decided.Rule = ev.Rule
	if l.told[process][decided] {
		return finding.Finding{}, false
	}
	if l.told[process] == nil {
		l.told[process] = map[wire.EvRace]bool{}
	}
	l.told[process][decided] = true
	if !pending {
		r = l.words(process, &ev)
	}
	r.Finding.Count = max(int(ev.Count), 1)
	r.Ordered = ev.Rule == wire.RaceRuleDataRaceOrdered
	r.Mov = ev.Rule == wire.RaceRuleDataRaceMov || ev.Rule == wire.RaceRuleFreeMov || r.Ordered
	r.classify()
	return r.Finding, !r.inner
}

// End says that a process is gone.
func (l *Live) End(process uint64) {
	delete(l.pending, process)
	delete(l.told, process)
}

// words gives the race, of the rule that it has if it rests on nothing.
func (l *Live) words(process uint64, ev *wire.EvRace) (r Race) {
	x := &site{t: &thread{number: ev.By}, pc: ev.Pc, size: ev.Size, stack: ev.Stack, kind: kindOf(ev.Kind), atomic: Kind(ev.Kind)&Locked != 0}
	s := &site{} // not remembered
	if ev.Pc2 != 0 || ev.Stack2 != 0 {
		s = &site{t: &thread{number: ev.By2}, pc: ev.Pc2, size: ev.Size2, stack: ev.Stack2, kind: kindOf(ev.Kind2), atomic: Kind(ev.Kind2)&Locked != 0}
	}
	q := &point{addr: ev.Addr2}
	held := [][]heldLock{nil, l.held(process, ev.Stack), l.held(process, ev.Stack2)} // by site.held
	x.held, s.held = 1, 2
	b := newTeller(l.w, held, process, finding.RuleDataRace)
	switch ev.Rule {
	case wire.RaceRuleFree, wire.RaceRuleFreeMov, wire.RaceRulePendingFree:
		b.freed("free", x, ev.Addr, q, s)
		r.inner = b.inner(freedBy)
	case wire.RaceRuleUseAfterFree:
		b.f.Rule = finding.RuleUseAfterFree
		b.usedAfter(x, ev.Addr, ev.Addr2, "free", ev.By2, ev.Stack2)
		r.inner = b.inner(usedBy)
	default:
		b.unordered(x, ev.Addr, q, s)
	}
	if before := l.before[beforeKey{process, ev.By, ev.Addr, ev.Pc}]; before != nil && x.pc != 0 {
		b.f.Parts[0].Before = before // of x
	}
	r.Finding = b.f
	return r
}

func (l *Live) held(process uint64, stack uint32) (list []heldLock) {
	for _, h := range l.w.Held(process, stack) {
		list = append(list, heldLock{obj: h.Obj, stack: h.Stack, kind: wire.Object(h.Kind), mode: wire.Mode(h.Mode)})
	}
	return list
}
