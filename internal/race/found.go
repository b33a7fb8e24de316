package race

import (
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Found puts into words what the agent's detector found in a process, as of the last event that w was given. What was held then is not known.
func Found(w Names, process uint64, ev wire.EvRace) finding.Finding {
	x := &site{t: &thread{number: ev.By}, pc: ev.Pc, size: ev.Size, stack: ev.Stack, kind: Kind(ev.Kind), atomic: Kind(ev.Kind)&Locked != 0}
	s := &site{} // not remembered
	if ev.Pc2 != 0 || ev.Stack2 != 0 {
		s = &site{t: &thread{number: ev.By2}, pc: ev.Pc2, size: ev.Size2, stack: ev.Stack2, kind: Kind(ev.Kind2), atomic: Kind(ev.Kind2)&Locked != 0}
	}
	q := &point{addr: ev.Addr2}
	r := Race{Mov: ev.Rule == wire.RaceRuleDataRaceMov || ev.Rule == wire.RaceRuleFreeMov}
	b := newTeller(w, make([][]heldLock, 1), process, finding.RuleDataRace)
	switch ev.Rule {
	case wire.RaceRuleFree, wire.RaceRuleFreeMov:
		b.freed("free", x, ev.Addr, q, s)
	case wire.RaceRuleUseAfterFree:
		b.f.Rule = finding.RuleUseAfterFree
		b.usedAfter(x, ev.Addr, ev.Addr2, "free", ev.By2, ev.Stack2)
	default:
		b.unordered(x, ev.Addr, q, s)
	}
	b.f.Count = max(int(ev.Count), 1)
	r.Finding = b.f
	r.classify()
	return r.Finding
}
