package access

import (
	"math/bits"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// Reads before a write of the same bytes. Where nothing comes between the two but what registers alone have to do with, and other reads, the read need not be told: the write is told, and what races with the read races with it. But a read may
// be an atomic's, and what it acquires comes before all that follows. So it is put off (recipe.Defer), not left out: who is told next, and finds anything that the detector must look at, has it told first (full.c). Only where everything up to the write
// is found to be nothing new, or new without anything that races or orders, is it dropped.
//
// What is put off is in one place, so there is one at a time; a thread that never comes to the write (a handler leaves by a jump, the write is not patched) has it told by what it does next.

// pairs goes through instructions in order, and has reads put off.
type pairs struct {
	next  uint64 // where the instruction must be that what is known holds for
	known [16]value
	fresh int
	reads []earlier
}

// A value is a register's: a number that nothing is known of, and what was added to it.
type value struct {
	of  int
	add int64
}

// A place is where an access is to.
type place struct {
	base, index value
	scale       uint8
	size        uint16
}

// earlier is a read since the last write, or whatever else ends what can be put off.
type earlier struct {
	s *site
	place
}

// mostPassed is how many reads may come before the write, behind the one that is put off.
const mostPassed = 4

// take takes the next instruction; s: its site, nil: it has none.
func (p *pairs) take(i *engine.Insn, s *site) {
	in := &i.Inst
	if i.At != p.next || in.Flow != x86.FlowNone {
		p.forget()
	}
	p.next = i.At + uint64(in.Len)
	if at, kind := p.access(in, s); kind == read {
		p.reads = append(p.reads, earlier{s, at})
	} else if kind == write {
		p.write(s, at)
		p.reads = p.reads[:0]
	} else if s != nil || touches(in) {
		p.reads = p.reads[:0]
	}
	p.follow(i)
}

func (p *pairs) forget() {
	p.reads = p.reads[:0]
	for r := range p.known {
		p.known[r] = p.unknown()
	}
}

func (p *pairs) unknown() value {
	p.fresh++
	return value{of: p.fresh}
}

// touches says whether an instruction accesses memory.
func touches(in *x86.Inst) bool {
	for k := range in.Mems() {
		if in.Mems()[k].Kind&(x86.MemAddress|x86.MemHint) == 0 {
			return true
		}
	}
	return false
}

// access gives the one access of an instruction, if it is read or written alone, by a Tell, and found by registers other than those of the stack.
func (p *pairs) access(in *x86.Inst, s *site) (at place, kind uint64) {
	if s == nil || s.data != judged|read && s.data != judged|write || len(in.Mems()) != 1 {
		return at, 0
	}
	m := &in.Mems()[0]
	if m.Kind != 0 || m.Seg != x86.NoReg || m.Bias != 0 || m.Size > 8 || bits.OnesCount16(m.Size) != 1 || isNum(m.Base, regRSP) || isNum(m.Base, regRBP) || s.size == 0 {
		return at, 0
	}
	of := func(r x86.Reg) (value, bool) {
		if r == x86.NoReg {
			return value{}, true
		}
		return p.known[r.Num()&15], r.Class() == x86.ClassGPR && r.Size() == 8
	}
	var ok [2]bool
	if m.Base.Class() == x86.ClassIP {
		at.base, ok[0] = value{add: int64(p.next)}, m.Base == x86.RIP
	} else {
		at.base, ok[0] = of(m.Base)
	}
	at.index, ok[1] = of(m.Index)
	at.base.add += m.Disp
	at.scale, at.size = uint8(m.Scale), m.Size
	if !ok[0] || !ok[1] {
		return at, 0
	}
	return at, s.data &^ judged
}

// write takes a write, and has the read before it put off.
func (p *pairs) write(s *site, at place) {
	for n := len(p.reads) - 1; n >= 0 && len(p.reads)-n <= mostPassed+1; n-- {
		if p.reads[n].place != at {
			continue
		}
		first := p.reads[n].s
		first.deferred = true
		first.size += recipe.DeferSize
		for _, r := range p.reads[n+1:] {
			r.s.passes = true
		}
		s.passes, s.clears = true, true
		s.size += recipe.ClearSize
		return
	}
}

// follow has registers hold what the instruction leaves in them.
func (p *pairs) follow(i *engine.Insn) {
	in := &i.Inst
	args := in.Args()
	reg := func(n int) (int, bool) {
		if n < len(args) && args[n].Kind == x86.ArgReg && args[n].Reg.Class() == x86.ClassGPR && args[n].Reg.Size() == 8 {
			return args[n].Reg.Num(), true
		}
		return 0, false
	}
	into, ok := reg(0)
	var v value
	if ok {
		v = p.known[into]
	}
	switch {
	case !ok:
	case in.Op == "mov":
		var from int
		if from, ok = reg(1); ok {
			v = p.known[from]
		}
	case (in.Op == "add" || in.Op == "sub") && len(args) == 2 && args[1].Kind == x86.ArgImm:
		if in.Op == "add" {
			v.add += args[1].Imm
		} else {
			v.add -= args[1].Imm
		}
	case in.Op == "inc":
		v.add++
	case in.Op == "dec":
		v.add--
	case in.Op == "lea" && in.Mems()[0].Index == x86.NoReg && in.Mems()[0].Base.Class() == x86.ClassGPR && in.Mems()[0].Base.Size() == 8 && in.Mems()[0].Seg == x86.NoReg:
		v = p.known[in.Mems()[0].Base.Num()]
		v.add += in.Mems()[0].Disp
	default:
		ok = false
	}
	stack := in.Writes&(x86.RSP.Set()|x86.RBP.Set()) != 0
	for r := range p.known {
		if in.Writes.Has(x86.RAX + x86.Reg(r)) {
			p.known[r] = p.unknown()
		}
	}
	if ok {
		p.known[into] = v
	}
	if stack {
		p.reads = p.reads[:0]
	}
}
