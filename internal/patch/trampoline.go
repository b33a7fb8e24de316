package patch

import (
	"math"

	"github.com/ripstop/ripstop/internal/x86"
)

// A copied instruction is one that a trampoline holds.
type copied struct {
	at     uint64
	recipe Recipe // nil if it is no site
}

func (c *copied) replaced() bool { return c.recipe != nil && c.recipe.Replaces() }

// maxInsts is the most instructions that a trampoline holds, and maxCopies the most bytes of them: those of a chain, and those that the jump overlaps.
const (
	maxInsts  = chainBytes
	maxCopies = chainBytes + 3*x86.MaxLen
)

// A layout is a trampoline before it is known where it lies.
type layout struct {
	list   []copied
	back   uint64 // where the jump at its end leads, if goesOn
	goesOn bool
	size   int    // at most
	lo, hi uint64 // addresses from which everything that it refers to is in reach
}

// movable says whether an instruction that is no site may run in a trampoline without anybody's seeing it: not what tells the kernel or a handler its place.
func movable(in *x86.Inst) bool {
	switch in.Flow {
	case x86.FlowNone, x86.FlowJump, x86.FlowCond, x86.FlowLoop, x86.FlowRet, x86.FlowIndirectJump:
		return true
	}
	return false
}

// leaves says whether control never comes to the end of the instruction's copy.
func leaves(in *x86.Inst) bool {
	switch in.Flow {
	case x86.FlowJump, x86.FlowRet, x86.FlowIndirectJump, x86.FlowCall, x86.FlowIndirectCall:
		return true
	}
	return false
}

// layout lays out the trampoline of the instruction at an address whose jump ends at end: it goes on with the successors that the jump overlaps, since to return into
// the bytes of a jump costs ten times as much as to return behind them.
func (p *Planner) layout(l *layout, at, end uint64) error {
	*l = layout{list: l.list[:0], back: at, goesOn: true, hi: math.MaxInt64}
	for l.goesOn && (l.back < end || len(l.list) == 0) && len(l.list) < maxInsts {
		in, code, ok := p.text.inst(l.back)
		first := len(l.list) == 0
		if !ok && first {
			return ErrNoInstruction
		}
		if !first && (!ok || !movable(in)) {
			break
		}
		c := copied{at: l.back}
		if r := p.records.at(l.back - p.text.at); r != nil {
			c.recipe = r.recipe
		}
		size := 0
		if !c.replaced() {
			var err error
			if size, err = relocatedSize(in, code, c.at, p.Calls); err != nil {
				if first {
					return err
				}
				break
			}
		}
		if c.recipe != nil {
			size += c.recipe.Size()
		}
		if target, ok := in.Target(c.at); ok {
			l.reach(target)
		} else if m := in.Mems(); len(m) > 0 && m[0].Base == x86.RIP && in.Op != "lea" {
			l.reach(c.at + uint64(in.Len) + uint64(m[0].Disp))
		}
		l.list = append(l.list, c)
		l.size += size
		l.back += uint64(in.Len)
		l.goesOn = !leaves(in)
	}
	if l.goesOn {
		l.size += 5
		l.reach(l.back)
	}
	if l.hi < uint64(l.size) || l.size > maxTrampoline {
		return ErrSpace
	}
	l.hi -= uint64(l.size)
	return nil
}

// maxTrampoline is the most bytes that one has: the process's index counts in 16 bits.
const maxTrampoline = 1<<16 - 1

// reach narrows the addresses to those from all bytes of which a 32-bit distance leads to target.
func (l *layout) reach(target uint64) {
	if target > 1<<31 {
		l.lo = max(l.lo, target-(1<<31-1))
	}
	l.hi = min(l.hi, target+(1<<31-1))
}

// relocatedSize gives the most bytes that the instruction takes anywhere.
func relocatedSize(in *x86.Inst, code []byte, at uint64, calls x86.Calls) (int, error) {
	mems := in.Mems()
	relative := len(mems) > 0 && mems[0].RIPRelative()
	if in.Flow == x86.FlowNone && !relative {
		return in.Len, nil
	}
	var buf [x86.MaxRelocated]byte
	moved, err := x86.Relocate(buf[:0], in, code, at, at, calls)
	if in.Op == "lea" && relative {
		return max(len(moved), 10), err // mov r64, imm64
	}
	return len(moved), err
}

// copyStates appends the states of the copy of an instruction, which is code[start:].
func (c *copied) copyStates(list []State, in *x86.Inst, code []byte, start int) []State {
	s := State{Off: start, For: c.at, Resume: Restart}
	if c.recipe != nil {
		s.Resume = start
	}
	list = append(list, s)
	switch target, _ := in.Target(c.at); {
	case in.Flow == x86.FlowLoop: // loop +2; jmp +5; jmp target: behind the loop it is done
		list = append(list, State{Off: len(code) - 7, For: c.at + uint64(in.Len), Resume: Restart}, State{Off: len(code) - 5, For: target, Resume: Restart})
	case in.Flow == x86.FlowCall, in.Flow == x86.FlowIndirectCall: // push; mov to the stack, perhaps; jmp: nothing is done up to the jump
		s.Off += pushLen
		s.Moves = []Move{{uint8(x86.RSP.Num()), FromSum, 8}}
		list = append(list, s)
	}
	return list
}

// pushLen is the length of the push of a call that was moved (x86.PushReturn).
const pushLen = 5

// build makes the trampoline for an address. Its memory is the transaction's.
func (p *Planner) build(l *layout, at uint64) (t Trampoline, err error) {
	t.At, t.Code = at, p.slabs.bytes(l.size)[:0]
	t.Parts = cut(&p.slabs.parts, 2*len(l.list)+1, p.slabs.many)[:0]
	if len(p.slabs.states) < 4*len(l.list) {
		p.slabs.states = make([]State, max(4*len(l.list), p.slabs.many))
	}
	t.States = p.slabs.states[:0]
	pc := func() uint64 { return at + uint64(len(t.Code)) }
	for i := range l.list {
		c := &l.list[i]
		if c.recipe != nil {
			start := len(t.Code)
			t.Parts = append(t.Parts, Part{start, c.at, true})
			var states []State
			if t.Code, states, err = c.recipe.Append(t.Code, pc()); err != nil {
				return t, err
			}
			for _, s := range states {
				s.Off += start
				if s.Resume != Restart {
					s.Resume += start
				}
				t.States = append(t.States, s)
			}
			if c.replaced() {
				continue
			}
		}
		start := len(t.Code)
		t.Parts = append(t.Parts, Part{start, c.at, false})
		in, code, _ := p.text.inst(c.at)
		if t.Code, err = x86.Relocate(t.Code, in, code, c.at, pc(), p.Calls); err != nil {
			return t, err
		}
		t.States = c.copyStates(t.States, in, t.Code, start)
	}
	if l.goesOn {
		t.Parts = append(t.Parts, Part{len(t.Code), l.back, false})
		t.States = append(t.States, State{Off: len(t.Code), For: l.back, Resume: Restart})
		c := x86.Code{At: at, Bytes: t.Code}
		c.Jmp(l.back)
		t.Code, err = c.Bytes, c.Err()
	}
	if len(t.Code) > l.size {
		panic("BUG: patch: a trampoline is longer than was said: a recipe's Size is too small")
	}
	if n := len(t.States); n <= len(p.slabs.states) && n > 0 && &t.States[0] == &p.slabs.states[0] { // they grew in place
		t.States, p.slabs.states = t.States[:n:n], p.slabs.states[n:]
	}
	return t, err
}
