package hook

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

const recipeAt, siteAt, nextAt, hookAt, fsBase, saves = 0x7f0012340000, 0x7f0011110000, 0x7f0011110004, 0x7f0013330000, 0x7f0066660000, -128

// A machine runs a recipe's code, and at each instruction looks whether the program's registers are where the states say.
type machine struct {
	x86.Emulator
	t      *testing.T
	code   []byte
	states []patch.State
	before x86.State    // the program's at the site
	after  x86.State    // and behind it
	writes map[int]bool // registers that the site's instruction only writes: until it is over they need not be in place
}

func newMachine(t *testing.T, r patch.Recipe) *machine {
	code, states, err := r.Append([]byte{0x90}, recipeAt)
	if err != nil {
		t.Fatal(err)
	}
	if len(code)-1 > r.Size() {
		t.Fatalf("%d bytes, at most %d said", len(code)-1, r.Size())
	}
	m := &machine{t: t, code: code[1:], states: states}
	m.Mem = x86.NewSparseMemory()
	for i := range m.GPR {
		m.GPR[i] = x86.Exactly(rand.Uint64())
	}
	m.GPR[x86.RSP.Num()] = x86.Exactly(0x7ffc00000000 + 8*rand.Uint64N(1<<20))
	m.FS, m.FlagsKnown = x86.Exactly(fsBase), x86.FlagsArith
	return m
}

// shown gives a register of the program as whoever takes the thread out of the trampoline finds it.
func (m *machine) shown(s *patch.State, reg int) x86.Value {
	for _, v := range s.Moves {
		if int(v.Reg) != reg {
			continue
		}
		switch v.From {
		case patch.FromSlot:
			return m.Mem.Load(uint64(fsBase+saves+8*int64(v.N)), 8)
		case patch.FromStack:
			return m.Mem.Load(m.GPR[x86.RSP.Num()].Bits+uint64(int64(v.N)), 8)
		case patch.FromSum:
			return x86.Exactly(m.GPR[reg].Bits + uint64(int64(v.N)))
		default:
			m.t.Fatalf("a move %+v", v)
		}
	}
	return m.GPR[reg]
}

// run executes all, with special in place of the call or the system call.
func (m *machine) run(special func(in *x86.Inst)) {
	trampoline := patch.Trampoline{At: recipeAt, Code: m.code, States: m.states}
	for off := 0; off < len(m.code); {
		in, err := x86.Decode(m.code[off:])
		if err != nil {
			m.t.Fatal(err)
		}
		s := trampoline.StateAt(off)
		want := &m.before
		if s.For == nextAt {
			want = &m.after
		} else if s.For != siteAt {
			m.t.Fatalf("at %d it is for %#x", off, s.For)
		}
		for reg := range m.GPR {
			if got := m.shown(&s, reg); got != want.GPR[reg] && !(m.writes[reg] && s.For == siteAt) {
				m.t.Fatalf("at %d (%s), for %#x, register %d is %x, not %x", off, in.Op, s.For, reg, got, want.GPR[reg])
			}
		}
		if in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall || in.Flow == x86.FlowSyscall {
			special(&in)
			off += in.Len
			continue
		}
		next, known := m.Exec(x86.Bind(&in), recipeAt+uint64(off))
		if !known {
			m.t.Fatalf("where %s goes is not known", in.Op)
		}
		off = int(next - recipeAt)
	}
}

// words are operands that libc's code has.
func words() []x86.Mem {
	return []x86.Mem{{Base: x86.RDI, Scale: 1, Size: 4}, {Base: x86.RBX, Scale: 1, Disp: 0x88, Size: 4}, {Base: x86.RSP, Scale: 1, Disp: 0x20, Size: 4}, {Base: x86.RSP, Index: x86.RSI, Scale: 4, Disp: -64, Size: 4},
		{Base: x86.RAX + 12, Scale: 1, Size: 4}, x86.Abs(siteAt+0x1000, 4), {Base: x86.RCX, Index: x86.RDI, Scale: 8, Disp: 4, Size: 4}}
}

func (m *machine) address(mem x86.Mem) uint64 {
	a := uint64(mem.Disp)
	if mem.Base != x86.NoReg {
		a += m.GPR[mem.Base.Num()].Bits
	}
	if mem.Index != x86.NoReg {
		a += m.GPR[mem.Index.Num()].Bits * uint64(mem.Scale)
	}
	return a
}

// Where a lock is taken the hook is given the word's address and what is to be stored, below the red zone, and behind it all registers are the program's.
func TestTaking(t *testing.T) {
	for _, mem := range words() {
		for reg := x86.EAX + 1; reg < x86.EAX+32; reg++ { // once more where the hook is far away
			hook := uint64(hookAt)
			if reg >= x86.EAX+16 {
				hook = 0x550013330000
			}
			reg := x86.EAX + x86.Reg(reg.Num())
			if reg.Num() == x86.RSP.Num() || reg == x86.EAX {
				continue
			}
			m := newMachine(t, &taking{lock{siteAt, nextAt, mem, reg}, hook, saves})
			rsp := m.GPR[x86.RSP.Num()].Bits
			word := m.address(mem)
			m.before, m.after = m.State, m.State
			called := 0
			m.run(func(in *x86.Inst) {
				called++
				sp := m.GPR[x86.RSP.Num()].Bits
				if got := m.GPR[x86.RDI.Num()].Bits; got != word {
					t.Fatalf("%+v: the word is at %#x, not %#x", mem, got, word)
				}
				if sp > rsp-128 {
					t.Fatalf("the stack pointer is %d below", rsp-sp)
				}
				if rdi, stored := m.Mem.Load(sp, 8), m.Mem.Load(sp+8, 8); rdi != m.before.GPR[x86.RDI.Num()] || stored != m.before.GPR[reg.Num()] {
					t.Fatalf("on the stack are %x and %x", rdi, stored)
				}
			})
			if called != 1 || m.GPR != m.after.GPR {
				t.Fatalf("%d calls, then %x, not %x", called, m.GPR, m.after.GPR)
			}
		}
	}
}

// Where one is given back who waits is woken, if the word was 2: then 1 is found, and all other registers, and all of the stack, are as if it had been 1.
func TestGiving(t *testing.T) {
	for _, mem := range words() {
		for reg := x86.EAX; reg < x86.EAX+16; reg++ {
			if n := reg.Num(); n == x86.RSP.Num() || n == mem.Base.Num() || mem.Index != x86.NoReg && n == mem.Index.Num() {
				continue
			}
			for was := range uint64(4) {
				m := newMachine(t, &giving{lock{siteAt, nextAt, mem, reg}, saves})
				word := m.address(mem)
				m.Mem.Store(word, 4, x86.Exactly(was))
				given := m.GPR[reg.Num()].Bits & 0xffffffff
				m.before, m.after = m.State, m.State
				m.after.GPR[reg.Num()] = x86.Exactly(was)
				woken := 0
				m.run(func(in *x86.Inst) {
					woken++
					for n, want := range map[x86.Reg]uint64{x86.RAX: 202, x86.RDI: word, x86.RSI: 129, x86.RDX: 1} {
						if got := m.GPR[n.Num()].Bits; got != want {
							t.Fatalf("%+v: %v is %#x in the call, not %#x", mem, n, got, want)
						}
					}
					for _, n := range []x86.Reg{x86.RAX, x86.RCX, x86.R11} {
						m.GPR[n.Num()] = x86.Exactly(rand.Uint64())
					}
				})
				if was == 2 {
					m.after.GPR[reg.Num()] = x86.Exactly(1)
				}
				if woken != 0 != (was == 2) || m.GPR != m.after.GPR {
					t.Fatalf("%d: %d calls, then %x, not %x", was, woken, m.GPR, m.after.GPR)
				}
				if got := m.Mem.Load(word, 4).Bits; got != given {
					t.Fatalf("the word is %#x, not %#x", got, given)
				}
			}
		}
	}
}

// What is put together of parts that are made once is what is made anew, wherever it lies and whatever lies before it.
func TestGivingOfParts(t *testing.T) {
	for _, mem := range words() {
		for reg := x86.EAX; reg < x86.EAX+16; reg++ {
			for _, save := range []int32{saves, -0x100} {
				for _, at := range []uint64{recipeAt, recipeAt + 0x12345} {
					r := &giving{lock{siteAt, nextAt, mem, reg}, save}
					before := bytes.Repeat([]byte{0x90}, int(at%3))
					want, wantStates, wantErr := r.make(slices.Clone(before), at)
					got, states, err := r.Append(slices.Clone(before), at)
					if err != nil || wantErr != nil || !bytes.Equal(got, want) || !reflect.DeepEqual(states, wantStates) {
						t.Fatalf("%+v, register %d at %#x: % x (%v), not % x (%v)\n%v\n%v", mem, reg.Num(), at, got, err, want, wantErr, states, wantStates)
					}
				}
			}
		}
	}
}

// Of places that could not be patched it is said how many they are, once.
func TestLeft(t *testing.T) {
	m, p := &engine.Module{Path: "libc"}, &engine.Process{PID: 7}
	var said []string
	c := &Locking{Left: func(text string) { said = append(said, text) }, taken: map[*engine.Module]wanted{m: {locks: []uint64{1, 2, 3}}}}
	at := func(a uint64) *patch.Patch {
		if a == 2 {
			return nil
		}
		return &patch.Patch{}
	}
	c.Patched(p, m, at)
	c.Patched(p, m, at)
	if len(said) != 1 || said[0] != "process 7: libc takes its own locks in 3 places, of which 1 could not be patched: their order is not recorded" {
		t.Errorf("%q", said)
	}
}
