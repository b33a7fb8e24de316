package patch

import (
	"math"

	"github.com/ripstop/ripstop/internal/x86"
)

// A copied instruction is one that a trampoline holds.
type copied struct {
	at     uint64
	in     x86.Inst
	code   []byte
	recipe Recipe // nil if it is no site
}

func (c *copied) replaced() bool { return c.recipe != nil && c.recipe.Replaces() }

// A layout is a trampoline before it is known where it lies.
type layout struct {
	insts  []copied
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
func (p *Planner) layout(at, end uint64) (l layout, err error) {
	l = layout{back: at, goesOn: true, hi: math.MaxInt64}
	for l.goesOn && (l.back < end || len(l.insts) == 0) {
		in, code, ok := p.text.inst(l.back)
		first := len(l.insts) == 0
		if !first && (!ok || !movable(&in)) {
			break
		}
		c := copied{l.back, in, code, p.sites[l.back]}
		size := 0
		if !c.replaced() {
			size, err = relocatedSize(&c, p.Calls)
			if err != nil {
				if first {
					return l, err
				}
				return l, nil
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
		l.insts = append(l.insts, c)
		l.size += size
		l.back += uint64(in.Len)
		l.goesOn = !leaves(&in)
	}
	if l.goesOn {
		l.size += 5
		l.reach(l.back)
	}
	if l.hi < uint64(l.size) {
		return l, ErrSpace
	}
	l.hi -= uint64(l.size)
	return l, nil
}

// reach narrows the addresses to those from all bytes of which a 32-bit distance leads to target.
func (l *layout) reach(target uint64) {
	if target > 1<<31 {
		l.lo = max(l.lo, target-(1<<31-1))
	}
	l.hi = min(l.hi, target+(1<<31-1))
}

// relocatedSize gives the most bytes that the instruction takes anywhere.
func relocatedSize(c *copied, calls x86.Calls) (int, error) {
	var buf [x86.MaxRelocated]byte
	code, err := x86.Relocate(buf[:0], &c.in, c.code, c.at, c.at, calls)
	if c.in.Op == "lea" && len(c.in.Mems()) > 0 && c.in.Mems()[0].RIPRelative() {
		return max(len(code), 10), err // mov r64, imm64
	}
	return len(code), err
}

// states appends the states of the copy of an instruction, which is code[start:].
func (c *copied) states(list []State, code []byte, start int) []State {
	s := State{Off: start, For: c.at, Resume: Restart}
	if c.recipe != nil {
		s.Resume = start
	}
	list = append(list, s)
	switch target, _ := c.in.Target(c.at); {
	case c.in.Flow == x86.FlowLoop: // loop +2; jmp +5; jmp target: behind the loop it is done
		list = append(list, State{Off: len(code) - 7, For: c.at + uint64(c.in.Len), Resume: Restart}, State{Off: len(code) - 5, For: target, Resume: Restart})
	case c.in.Flow == x86.FlowCall, c.in.Flow == x86.FlowIndirectCall: // push; mov to the stack, perhaps; jmp: nothing is done up to the jump
		s.Off += pushLen
		s.Moves = []Move{{uint8(x86.RSP.Num()), FromSum, 8}}
		list = append(list, s)
	}
	return list
}

// pushLen is the length of the push of a call that was moved (x86.PushReturn).
const pushLen = 5

// build makes the trampoline for an address.
func (l *layout) build(at uint64, calls x86.Calls) (t Trampoline, err error) {
	t.At, t.Code = at, make([]byte, 0, l.size)
	pc := func() uint64 { return at + uint64(len(t.Code)) }
	for i := range l.insts {
		c := &l.insts[i]
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
		if t.Code, err = x86.Relocate(t.Code, &c.in, c.code, c.at, pc(), calls); err != nil {
			return t, err
		}
		t.States = c.states(t.States, t.Code, start)
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
	return t, err
}
