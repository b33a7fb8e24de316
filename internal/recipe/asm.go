package recipe

import (
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// An assembler writes the code of a recipe and keeps track of where the program's registers are. Each instruction is written by op().…; what it changes is said
// behind it.
type assembler struct {
	x86.Code
	of *Code
	track
	states []patch.State
	resume []*int       // of each state
	moved  []patch.Move // of all states
	end    x86.Label
	plain  x86.Label // the displaced instruction, for a recipe that replaces it
	jumps  int       // to plain
	copyAt uint64    // where copies are taken to lie; 0: where they do

	effects bool // there is one
	err     error
}

// track is where things are. The zero value: everything is in place.
type track struct {
	away   [patch.Extended + 1]bool
	moves  [patch.Extended + 1]patch.Move
	held   x86.RegSet // scratch in use
	slots  uint32     // in use
	forAt  uint64
	resume *int // nil: restart
	bound  bool // resume is known
}

// assemblers are those that nobody uses, for their memory: a module has hundreds of thousands of sites.
var assemblers = sync.Pool{New: func() any { return new(assembler) }}

func newAssembler(c *Code, at uint64) *assembler {
	a := assemblers.Get().(*assembler)
	*a = assembler{Code: x86.Code{At: at, Bytes: a.Bytes[:0]}, of: c, states: a.states[:0], resume: a.resume[:0], moved: a.moved[:0]}
	a.forAt = c.site.At
	return a
}

// free ends its use, and that of its bytes.
func (a *assembler) free() {
	a.of = nil
	assemblers.Put(a)
}

func (a *assembler) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// op notes the state before an instruction that is to be written.
func (a *assembler) op() *x86.Code {
	s := patch.State{Off: len(a.Bytes), For: a.forAt}
	from := len(a.moved)
	for r := range a.moves {
		if a.away[r] {
			a.moved = append(a.moved, a.moves[r])
		}
	}
	s.Moves = a.moved[from:len(a.moved):len(a.moved)]
	a.states = append(a.states, s)
	a.resume = append(a.resume, a.track.resume)
	return &a.Code
}

// settled gives the states, those that say the same as the one before left out. They are the caller's.
func (a *assembler) settled() []patch.State {
	list, moves := a.states[:0], 0
	for i, s := range a.states {
		if s.Resume = patch.Restart; a.resume[i] != nil {
			s.Resume = *a.resume[i]
		}
		if n := len(list); n > 0 && same(&list[n-1], &s) {
			continue
		}
		list = append(list, s)
		moves += len(s.Moves)
	}
	list = slices.Clone(list)
	all := make([]patch.Move, 0, moves)
	for i := range list {
		if s := &list[i]; len(s.Moves) > 0 {
			from := len(all)
			all = append(all, s.Moves...)
			s.Moves = all[from:len(all):len(all)]
		} else {
			s.Moves = nil
		}
	}
	return list
}

func same(a, b *patch.State) bool {
	if a.For != b.For || a.Resume != b.Resume || len(a.Moves) != len(b.Moves) {
		return false
	}
	for i := range a.Moves {
		if a.Moves[i] != b.Moves[i] {
			return false
		}
	}
	return true
}

// effect says that the instruction just written has done what must not be done twice.
func (a *assembler) effect() { a.track.resume, a.bound, a.effects = new(int), false, true }

// here says that everything is in place: from here on what was done is done.
func (a *assembler) here() {
	if a.track.resume != nil && !a.bound {
		*a.track.resume, a.bound = len(a.Bytes), true
	}
}

func (a *assembler) move(r int, from patch.Source, n int) {
	a.away[r], a.moves[r] = true, patch.Move{Reg: uint8(r), From: from, N: int32(n)}
}

func (a *assembler) back(r int) { a.away[r], a.moves[r] = false, patch.Move{} }

// fs is 8 bytes of the thread's.
func fs(off int32) x86.Mem { return x86.Mem{Seg: x86.FS, Scale: 1, Disp: int64(off), Size: 8} }

func (a *assembler) slot(n int) x86.Mem { return fs(a.of.env.Save + 8*int32(n)) }

// at is 8 bytes at a register + n.
func at(r x86.Reg, n int) x86.Mem { return x86.Mem{Base: r, Scale: 1, Disp: int64(n), Size: 8} }

// save puts a register of the program into a slot.
func (a *assembler) save(r x86.Reg) {
	n := 0
	for a.slots>>n&1 != 0 {
		n++
	}
	if n >= a.of.env.Slots {
		a.fail(ErrEnv)
		return
	}
	a.op().Store(a.slot(n), r)
	a.slots |= 1 << n
	a.move(r.Num(), patch.FromSlot, n)
}

// take gives a register to write to: a dead one, one that is saved already, or one that it saves. It leaves alone what the instruction's addresses are made of,
// and rax if that is wanted for flags.
func (a *assembler) take() x86.Reg {
	never := a.of.site.addressed() | x86.RSP.Set() | a.held
	if a.of.live.Flags&x86.FlagsArith != 0 {
		never |= x86.RAX.Set()
	}
	try := func(ok func(x86.Reg) bool) (x86.Reg, bool) {
		for r := x86.RAX; r < x86.RAX+16; r++ {
			if never&r.Set() == 0 && ok(r) {
				a.held |= r.Set()
				return r, true
			}
		}
		return x86.NoReg, false
	}
	if r, ok := try(func(r x86.Reg) bool { return !a.of.live.Regs.Has(r) }); ok {
		return r
	}
	if r, ok := try(func(r x86.Reg) bool { return a.away[r.Num()] }); ok {
		return r
	}
	r, ok := try(func(r x86.Reg) bool { return true })
	if !ok {
		panic("BUG: recipe: no register is left")
	}
	a.save(r)
	return r
}

func (a *assembler) release(list ...x86.Reg) {
	for _, r := range list {
		a.held &^= r.Set()
	}
}

// spareFlags says whether flags may be overwritten as they are.
func (a *assembler) spareFlags(f x86.Flags) bool {
	return a.of.live.Flags&f == 0 || a.away[patch.FlagsAH]
}

// saveFlags makes that flags may be overwritten: they go to rax.
func (a *assembler) saveFlags(f x86.Flags) {
	if a.spareFlags(f) {
		return
	}
	if a.of.live.Regs.Has(x86.RAX) && !a.away[0] {
		a.save(x86.RAX)
	}
	a.held |= x86.RAX.Set()
	a.op().Lahf()
	if a.of.live.Flags&x86.OF != 0 {
		a.op().Set(x86.CondO, x86.AL)
	}
	a.move(patch.FlagsAH, patch.FromReg, x86.RAX.Num())
}

// identity puts everything in place.
func (a *assembler) identity() {
	if a.away[patch.FlagsAH] {
		if a.of.live.Flags&x86.OF != 0 {
			a.op().ArithImm(x86.Cmp, x86.AL, -127) // overflows with 1, not with 0
		}
		a.op().Sahf()
		a.back(patch.FlagsAH)
		a.release(x86.RAX)
	}
	for r := range 16 {
		if a.away[r] {
			n := int(a.moves[r].N)
			a.op().Load(x86.RAX+x86.Reg(r), a.slot(n))
			a.slots &^= 1 << n
			a.back(r)
		}
	}
	a.here()
}

// near says whether a 32-bit distance surely leads from here to an address.
func (a *assembler) near(addr uint64) bool {
	d := int64(addr - a.PC())
	return d > -(1<<31-64) && d < 1<<31-64
}

// constant sets a register to an address.
func (a *assembler) constant(r x86.Reg, v uint64) {
	if v>>32 != 0 && a.near(v) {
		a.op().Lea(r, x86.Mem{Base: x86.RIP, Scale: 1, Disp: int64(v - a.PC() - 7)})
		return
	}
	a.op().MovImm(r, v)
}

// addressed are the registers that addresses of the instruction's accesses are made of.
func (s *Site) addressed() (set x86.RegSet) {
	for _, m := range s.Inst.Mems() {
		set |= m.Base.Set() | m.Index.Set()
	}
	return set
}

// tells says whether address can compute the address of an access.
func tells(m *x86.Mem) bool {
	const strange = x86.MemGather | x86.MemScatter | x86.MemBit | x86.MemAddress
	return m.Kind&strange == 0 && m.Seg != x86.GS && (m.Index == x86.NoReg || m.Index.Class() == x86.ClassGPR && m.Index.Size() >= 4) &&
		m.Disp+int64(m.Bias) == int64(int32(m.Disp+int64(m.Bias))) || m.Kind&strange == 0 && m.Seg != x86.GS && m.Base == x86.NoReg && m.Index == x86.NoReg
}

// fixed gives the address of an access that is no matter of registers.
func (s *Site) fixed(m *x86.Mem) (addr uint64, ok bool) {
	switch {
	case m.Index != x86.NoReg || m.Seg != x86.NoReg:
		return 0, false
	case m.Base == x86.RIP:
		return s.At + uint64(s.Inst.Len) + uint64(m.Disp), true
	case m.Base == x86.EIP:
		return uint64(uint32(s.At + uint64(s.Inst.Len) + uint64(m.Disp))), true
	case m.Base == x86.NoReg:
		return uint64(m.Disp), true
	}
	return 0, false
}

// address computes the address of an access into t, and overwrites u where two of its registers are not in place. The base of FS is to be added: more says so.
func (a *assembler) address(t, u x86.Reg, m *x86.Mem) (more bool) {
	if v, ok := a.of.site.fixed(m); ok {
		a.constant(t, v)
		return false
	}
	x := x86.Mem{Base: m.Base, Index: m.Index, Scale: m.Scale, Disp: m.Disp + int64(m.Bias), Size: 8}
	if x.Base == x86.NoReg && x.Index == x86.NoReg { // fs:number
		a.constant(t, uint64(x.Disp))
		return true
	}
	get := func(r, into x86.Reg) x86.Reg {
		if r == x86.NoReg || !a.away[r.Num()] {
			return r
		}
		switch w := a.moves[r.Num()]; w.From {
		case patch.FromSlot:
			a.op().Load(into, a.slot(int(w.N)))
		case patch.FromStack:
			a.op().Load(into, at(x86.RSP, int(w.N)))
		default:
			panic("BUG: recipe: a register is nowhere")
		}
		return r - x86.Reg(r.Num()) + x86.Reg(into.Num())
	}
	x.Base = get(m.Base, t)
	switch {
	case m.Index == m.Base:
		x.Index = x.Base
	case m.Base != x86.NoReg && a.away[m.Base.Num()]:
		x.Index = get(m.Index, u)
	default:
		x.Index = get(m.Index, t)
	}
	a.op().Lea(t, x)
	return m.Seg == x86.FS
}
