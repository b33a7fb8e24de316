package access

import (
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Bounds of Along: a fault waits for it.
const (
	alongWindow = 2 << 10 // bytes before and behind the instruction
	alongMost   = 64
)

// Along is engine.Along's: those instructions around the one that touched what is shared that access memory by the same register, as far as nothing in between writes to it: they access the same object, so they would fault next. All that may
// access shared memory was measured, too: it asks less often, and makes the checks of private memory three times as many (docs/decisions.md, 36).
func (t *Teller) Along(p *engine.Process, m *engine.Module, at, lo, hi uint64) (sites []patch.Site) {
	in, ok := m.Instruction(at)
	base, goes := mirroredBy(&in.Inst)
	if t.table(p) == 0 || !ok || !goes {
		return nil
	}
	lo, hi = max(lo, at-alongWindow), min(hi, at+alongWindow)
	var same []uint64
	m.InstructionsIn(lo, hi, nil, func(i *engine.Insn) bool {
		if b, ok := mirroredBy(&i.Inst); ok && b == base && i.At != at {
			same = append(same, i.At)
		}
		switch {
		case !changes(&i.Inst, base):
		case i.At >= at:
			return false
		default:
			same = same[:0]
		}
		return true
	})
	for len(same) > alongMost {
		if last := len(same) - 1; at > same[0] && at-same[0] > same[last]-at {
			same = same[1:]
		} else {
			same = same[:last]
		}
	}
	for _, a := range same {
		if r, ok := t.sharedOne(p, m, a); ok {
			sites = append(sites, patch.Site{At: a, Recipe: r})
		}
	}
	return sites
}

// mirroredBy gives the register that an instruction finds memory by, if that goes by the mirror and may be another's: others fault each time, patched or not.
func mirroredBy(in *x86.Inst) (x86.Reg, bool) {
	list, mirror, ok := shareable(in)
	if !ok || !mirror || len(list) != 1 {
		return x86.NoReg, false
	}
	base := in.Mems()[list[0]].Base
	return base, base.Class() == x86.ClassGPR && base != x86.RSP
}

// changes says whether a register has another value behind an instruction, where a function goes on with it: what a function gives back to its caller it has to the end, or does not need any more.
func changes(in *x86.Inst, r x86.Reg) bool {
	if in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall {
		return r != x86.RBX && r != x86.RBP && r.Num() < 12
	}
	return in.Writes&r.Set() != 0 && in.Op != "pop"
}
