package recipe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// view gives what the program is to see of a thread in the trampoline, and its state there.
func (t *trial) view(r unix.PtraceRegs) (unix.PtraceRegs, patch.State) {
	s := t.plan.StateAt(int(r.Rip - t.at))
	v := r
	g := gprs(&v)
	for _, m := range s.Moves {
		var value uint64
		word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(t.w.bytes(at, 8)) }
		if m.Reg == patch.Extended {
			continue // t.extended
		}
		switch m.From {
		case patch.FromReg:
			value = *gprs(&r)[m.N]
		case patch.FromSlot:
			value = word(r.Fs_base + uint64(int64(t.w.env.Save)+8*int64(m.N)))
		case patch.FromStack:
			value = word(r.Rsp + uint64(int64(m.N)))
		case patch.FromSum:
			value = *gprs(&r)[m.Reg] + uint64(int64(m.N))
		case patch.FromFor:
			value = s.For
		}
		switch m.Reg {
		case patch.FlagsAH:
			const low = uint64(x86.SF | x86.ZF | x86.AF | x86.PF | x86.CF)
			v.Eflags = v.Eflags&^uint64(x86.FlagsArith) | value>>8&low
			if value&1 != 0 {
				v.Eflags |= uint64(x86.OF)
			}
		case patch.FlagsAll:
			v.Eflags = value
		default:
			*g[m.Reg] = value
		}
	}
	v.Rip = s.For
	v.Eflags &^= uint64(x86.TF) // which pushf saw while we stepped
	// A context of this recipe's is no more.
	if p := t.w.bytes(r.Fs_base+uint64(int64(t.w.env.Context)), 8); binary.LittleEndian.Uint64(p) == r.Rsp {
		copy(p, t.w.bytes(r.Rsp+ctxOuter, 8))
	}
	return v, s
}

// extended puts in place what the state says of the extended state.
func (t *trial) extended(r unix.PtraceRegs, x []byte) {
	s := t.plan.StateAt(int(r.Rip - t.at))
	i := slices.IndexFunc(s.Moves, func(m patch.Move) bool { return m.Reg == patch.Extended })
	if i < 0 {
		return
	}
	w := t.w
	area := w.bytes(r.Rsp+uint64(s.Moves[i].N), int(w.xsave.Size))
	le := binary.LittleEndian
	bv := le.Uint64(area[512:])
	if bv&1 != 0 {
		copy(x[:24], area[:24])
		copy(x[32:160], area[32:160])
	}
	if bv&2 != 0 {
		copy(x[24:32], area[24:32])
		copy(x[160:416], area[160:416])
	}
	from := 576
	for i, c := range w.components {
		if w.xsave.Mask>>i&1 == 0 || i < 2 {
			continue
		}
		if !w.xsave.Compact {
			from = c.offset
		} else {
			from = (from + c.align - 1) &^ (c.align - 1)
		}
		if bv>>i&1 != 0 {
			copy(x[c.offset:c.offset+c.size], area[from:])
		}
		from += c.size
	}
	le.PutUint64(x[512:], le.Uint64(x[512:])&^w.xsave.Mask|bv&w.xsave.Mask)
}

// stepTo runs the trampoline until it is for the n-th time between two of its own instructions, and gives the registers there; false: it ends before.
func (t *trial) stepTo(tb testing.TB, n int) (unix.PtraceRegs, bool) {
	w := t.w
	w.restore()
	w.regset(tb, unix.PTRACE_SETREGSET, t.x)
	r := t.regs
	r.Rip = t.at
	for {
		inside := r.Rip >= t.at && r.Rip < t.at+uint64(len(t.tramp))-1
		if inside {
			if n == 0 {
				return r, true
			}
			n--
		} else if r.Rip == t.at+uint64(len(t.tramp))-1 {
			return r, false
		}
		at := r.Rip
		if sig := w.step(tb, &r); sig != unix.SIGTRAP {
			return r, false
		}
		if !inside { // the function: to its return
			continue
		}
		if in, err := x86.Decode(w.bytes(at, x86.MaxLen)); err != nil {
			tb.Fatalf("%v: % x in the trampoline", t, w.bytes(at, x86.MaxLen))
		} else if in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall {
			back := w.bytes(at+uint64(in.Len), 1)
			was := back[0]
			back[0] = int3
			if sig := w.run(tb, &r); sig != unix.SIGTRAP || r.Rip != at+uint64(in.Len)+1 {
				tb.Fatalf("%v: the function ends at %#x (%v)", t, r.Rip, sig)
			}
			back[0] = was
			r.Rip--
		}
	}
}

// interrupt checks what the program is to see at the n-th boundary, and goes on from there as after a handler: with anything in the save slots, in dead
// registers and below the red zone. False: there is no such boundary.
func (t *trial) interrupt(tb testing.TB, n int, want result, m *model, rnd *rand.Rand) (bool, error) {
	w := t.w
	r, ok := t.stepTo(tb, n)
	if !ok {
		return false, nil
	}
	off := r.Rip - t.at
	bad := func(err error) (bool, error) {
		return true, fmt.Errorf("interrupted at +%#x: %w", off, err)
	}
	x := make([]byte, 16384)
	x = x[:w.regset(tb, unix.PTRACE_GETREGSET, x)]
	t.extended(r, x)
	v, s := t.view(r)
	in, err := x86.Decode(w.bytes(r.Rip, x86.MaxLen))
	rounds := err == nil && (in.Rep || in.Repne) // of which some may be done, as in place
	switch s.For {
	case t.site.At:
		if d := differ(&t.regs, &v, t.code.live.Regs, t.code.live.Flags&(x86.FlagsArith|x86.DF)); d != "" && !rounds {
			return bad(errors.New(d))
		}
	case t.site.At + uint64(t.site.Inst.Len):
		regs, flags := t.after(m.done)
		if d := differ(&want.regs, &v, regs, flags); d != "" {
			return bad(errors.New(d))
		}
	default:
		return bad(fmt.Errorf("the program is at %#x", s.For))
	}
	for _, a := range []*area{w.data, w.stack} {
		for i := range a.mem {
			at := a.at + uint64(i)
			if s.For == t.site.At && a.mem[i] != w.was[a][i] && (a == w.data || at >= t.regs.Rsp-128) && !t.site.Inst.Rep && !t.site.Inst.Repne {
				return bad(fmt.Errorf("memory at %#x has changed", at))
			}
		}
	}
	// What handlers may do.
	junk := w.randomRegs(rnd)
	g, j := gprs(&v), gprs(&junk)
	for i := range g {
		if s.For == t.site.At && !t.code.live.Regs.Has(x86.RAX+x86.Reg(i)) {
			*g[i] = *j[i]
		}
	}
	if s.For == t.site.At {
		free := uint64(x86.FlagsArith &^ t.code.live.Flags)
		v.Eflags = v.Eflags&^free | junk.Eflags&free
	}
	slots := w.bytes(v.Fs_base+uint64(int64(w.env.Save)), 8*MaxSlots)
	for i := range slots {
		slots[i] = byte(rnd.Uint32())
	}
	if v.Rsp >= w.stack.at+4096 && v.Rsp < w.stack.end() { // what the instruction makes of rsp may be anything
		for i := range w.bytes(v.Rsp-3000, 3000-256) {
			w.bytes(v.Rsp-3000, 3000)[i] = byte(rnd.Uint32())
		}
	}
	to := t.at + uint64(s.Resume)
	if s.Resume == patch.Restart {
		to = t.at
		if s.For != t.site.At {
			to = t.at + uint64(len(t.tramp)) - 1
		}
	}
	got := w.runAt(tb, to, v, x)
	if err := t.judge(want, m, got); err != nil {
		return bad(fmt.Errorf("seen at %#x, gone on at %+#x: %w", s.For, to-t.at, err))
	}
	return true, nil
}

// Wherever in a recipe's code a thread is interrupted, the program sees the registers that it would have before the instruction, or behind it; and when the
// thread goes on as the state says, everything ends as without, and every effect is there once.
func TestStates(t *testing.T) {
	n := 50
	if soak {
		n = 3000
	}
	ran, points, bad := 0, 0, 0
	trials(t, n, 2, func(x *trial, rnd *rand.Rand) {
		want, m := x.expected(t)
		ran++
		for k := 0; bad < 10; k++ {
			ok, err := x.interrupt(t, k, want, m, rnd)
			if err != nil {
				bad++
				t.Errorf("%v\n%v", x, err)
				break
			}
			if !ok {
				break
			}
			points++
		}
	})
	t.Logf("%d recipes ran, interrupted at %d places", ran, points)
	if points < 10*ran {
		t.Errorf("only %d places in %d recipes", points, ran)
	}
}

// The test above sees wrong states: a register that is said to be in place and is not, one that is said to be elsewhere, an effect that is forgotten or done twice.
func TestStatesSeesMutations(t *testing.T) {
	mutations := map[string]func(s *patch.State) bool{
		"a register left out": func(s *patch.State) bool {
			if len(s.Moves) > 0 {
				s.Moves = s.Moves[1:]
				return true
			}
			return false
		},
		"another slot": func(s *patch.State) bool {
			s.Moves = slices.Clone(s.Moves)
			for i := range s.Moves {
				if m := &s.Moves[i]; m.From == patch.FromSlot || m.From == patch.FromStack {
					m.N ^= 1
					return true
				}
			}
			return false
		},
		"an effect done twice": func(s *patch.State) bool {
			was := s.Resume
			s.Resume = patch.Restart
			return was != patch.Restart
		},
		"an effect left out": func(s *patch.State) bool {
			if s.Resume != patch.Restart || s.Off > 0 {
				return false
			}
			s.Resume = -2 // the instruction, below
			return true
		},
	}
	tried, seen := map[string]int{}, map[string]int{}
	trials(t, 25, 3, func(x *trial, rnd *rand.Rand) {
		if len(x.ops) == 0 || x.code.Replaces() {
			return
		}
		if _, ok := x.ops[0].(Count); !ok {
			return
		}
		want, m := x.expected(t)
		right := x.plan.States
		for name, mutate := range mutations {
			for i := range right {
				if right[i].For != x.site.At {
					continue
				}
				x.plan.States = slices.Clone(right)
				s := &x.plan.States[i]
				if !mutate(s) {
					continue
				}
				if s.Resume == -2 {
					s.Resume = right[len(right)-2].Off
				}
				tried[name]++
				for k := 0; ; k++ {
					if ok, err := x.interrupt(t, k, want, m, rnd); err != nil {
						seen[name]++
						break
					} else if !ok {
						break
					}
				}
				break
			}
		}
		x.plan.States = right
	})
	t.Logf("tried %v, seen %v", tried, seen)
	for name := range mutations {
		if tried[name] == 0 || seen[name]*2 < tried[name] { // what is said to be elsewhere may still be in place as well
			t.Errorf("%s: of %d seen %d", name, tried[name], seen[name])
		}
	}
}
