package access

import (
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// Functions that keep to themselves where their frames are. Nobody can be told the address of a variable of such a one: if it is computed at all it is in registers alone, which memory is accessed by and which are compared, and in none that
// a function that is called may take. What the thread does there, by rsp or by rbp where that points into the frame, races with nothing as long as no other thread has a pointer to something that lay there before, which the agent sees
// when it is used.
//
// That it is so is seen where all the function's code is: it is one entry of .eh_frame, which is entered by calls and has no handlers of exceptions, it jumps to its own instructions and to where other functions begin, or are reached, and all
// its bytes are known as instructions. Registers are followed in the order in which the code lies; where a jump leads there must be taken to have it all registers that have it where the jump is.

// frames goes through a module's instructions, in order, and marks the sites of accesses to such frames.
type frames struct {
	*frameTables
	list [][2]uint64 // functions that are to come
	frame
}

// frameTables are a module's.
type frameTables struct {
	all   [][2]uint64 // functions
	parts bool        // some code belongs to functions that lie elsewhere: an indirect jump may lead there
	stubs [][2]uint64 // what calls functions of other modules
}

// A frame is what is known of one function's, up to an instruction.
type frame struct {
	in      bool
	lo, hi  uint64
	next    uint64     // where the next instruction must be
	leaks   bool       // others may know where the frame is
	pointed bool       // rbp points into it
	used    bool       // rbp was something else
	holds   x86.RegSet // general registers that may point into it, besides rsp and such an rbp
	sites   []*site
	at      []uint64     // the instructions
	held    []x86.RegSet // by which of them, before each
	jumps   []jump
	wait    []waiting // sites behind which it is not known yet whether flags that they have are read
}

// A waiting site: of the arithmetic flags before it these were neither read nor overwritten by what follows.
type waiting struct {
	s     *site
	flags x86.Flags
}

type jump struct {
	to   uint64
	held x86.RegSet
}

// clobbered are registers that functions which are called may take, or change.
var clobbered = x86.RDI.Set() | x86.RSI.Set() | x86.RDX.Set() | x86.RCX.Set() | x86.RAX.Set() | (x86.RAX + 8).Set() | (x86.RAX + 9).Set() | (x86.RAX + 10).Set() | (x86.RAX + 11).Set()

// frameTablesOf makes them.
func frameTablesOf(m *engine.Module) *frameTables {
	f := &frameTables{}
	f.all, f.parts = m.WholeFunctions()
	for _, name := range []string{".plt", ".plt.sec", ".plt.got"} {
		if b, addr, ok := m.Image.Section(name); ok {
			f.stubs = append(f.stubs, [2]uint64{addr + m.Bias, addr + m.Bias + uint64(len(b))})
		}
	}
	return f
}

// from gives what marks them from an address on, where a function begins; none where there are no tables.
func (f *frameTables) from(at uint64) *frames {
	if f == nil {
		return &frames{}
	}
	return &frames{frameTables: f, list: f.all[sort.Search(len(f.all), func(i int) bool { return f.all[i][0] >= at }):]}
}

// begins says whether one of them begins at an address.
func (f *frameTables) begins(at uint64) bool {
	i := sort.Search(len(f.all), func(i int) bool { return f.all[i][0] >= at })
	return i < len(f.all) && f.all[i][0] == at
}

// take takes the next instruction. What it accesses is taken by site, behind it.
func (f *frames) take(i *engine.Insn) {
	if f.in && i.At >= f.hi {
		f.close()
	}
	if !f.in {
		for len(f.list) > 0 && f.list[0][1] <= i.At {
			f.list = f.list[1:]
		}
		if len(f.list) == 0 || i.At < f.list[0][0] {
			return
		}
		r := f.list[0]
		f.list = f.list[1:]
		f.frame = frame{in: true, lo: r[0], hi: r[1], next: r[0], sites: f.sites[:0], at: f.at[:0], held: f.held[:0], jumps: f.jumps[:0], wait: f.wait[:0]}
	}
	if f.leaks = f.leaks || i.At != f.next; f.leaks {
		return
	}
	f.next = i.At + uint64(i.Inst.Len)
	f.at, f.held = append(f.at, i.At), append(f.held, f.holds)
	f.follow(&i.Inst)
	f.leaks = f.moves(&i.Inst) || f.leaves(i)
}

// follow looks what the next instruction does to flags. Where it is not followed they may be read: so may they by a function that is called, or by who is returned to.
func (f *frame) follow(in *x86.Inst) {
	list := f.wait[:0]
	for _, w := range f.wait {
		if in.FlagsRead&w.flags != 0 {
			continue
		}
		if w.flags &^= in.FlagsWritten &^ in.FlagsKept; w.flags == 0 {
			w.s.gate = true
		} else if in.Flow == x86.FlowNone {
			list = append(list, w)
		}
	}
	f.wait = list
}

// leaves says whether the function may go on, with the address, where it is not followed.
func (f *frames) leaves(i *engine.Insn) bool {
	switch i.Inst.Flow {
	case x86.FlowNone, x86.FlowTrap, x86.FlowHalt, x86.FlowRet: // who is returned it has the address of what is no frame any more
		return false
	case x86.FlowCall, x86.FlowIndirectCall, x86.FlowSyscall:
		return f.holds&clobbered != 0 // also what no function is told by: gcc lets a function of the same file keep it (-fipa-ra)
	case x86.FlowJump, x86.FlowCond, x86.FlowLoop:
		to, ok := i.Inst.Target(i.At)
		if ok && to >= f.lo && to < f.hi {
			f.jumps = append(f.jumps, jump{to, f.holds})
			return false
		}
		return !ok || f.holds != 0 || !f.begins(to) && !slices.ContainsFunc(f.stubs, func(r [2]uint64) bool { return to >= r[0] && to < r[1] })
	case x86.FlowIndirectJump:
		return f.parts || f.holds != 0
	}
	return true
}

const (
	regRSP = 4
	regRBP = 5
)

func isNum(r x86.Reg, n int) bool { return r.Class() == x86.ClassGPR && r.Num() == n }

// points says whether a register may point into the frame.
func (f *frame) points(r x86.Reg) bool {
	return r.Class() == x86.ClassGPR && (r.Num() == regRSP || f.pointed && r.Num() == regRBP || f.holds&r.Set() != 0)
}

// moves follows the address through an instruction; true: it may be where others find it.
func (f *frame) moves(in *x86.Inst) (leak bool) {
	args, mems := in.Args(), in.Mems()
	reg := func(n int) x86.Reg {
		if n < len(args) && args[n].Kind == x86.ArgReg {
			return args[n].Reg
		}
		return x86.NoReg
	}
	into, from := reg(0), reg(1)
	immediate := len(args) == 2 && args[1].Kind == x86.ArgImm
	f.used = f.used || !f.pointed && in.Reads&x86.RBP.Set() != 0 && in.Op != "push" && in.Op != "leave"
	was := f.holds
	held := false // the first operand points into the frame afterwards
	switch {
	case (in.Op == "xor" || in.Op == "sub") && into != x86.NoReg && into == from && !isNum(into, regRSP): // a zero
	case in.Op == "lea":
		m := &mems[0]
		held = f.points(m.Base)
		leak = f.points(m.Index) || held && (into.Size() != 8 || m.Base.Size() != 8)
	case in.Op == "mov" && from != x86.NoReg && into != x86.NoReg && f.points(from):
		held = true
		leak = into.Size() != 8
	case (in.Op == "add" || in.Op == "sub") && into != x86.NoReg && (f.points(into) || f.points(from)), in.Op == "and" && immediate && f.points(into), in.Op == "inc" && f.points(into), in.Op == "dec" && f.points(into):
		held = true
		leak = into.Size() != 8 || isNum(into, regRSP) && !immediate
	case in.Op == "cmp", in.Op == "test", in.Op == "nop", in.Op == "leave", in.Op == "pop":
	case in.Op == "enter":
		leak = true
	default:
		for n := range args {
			leak = leak || args[n].Kind == x86.ArgReg && args[n].Access&x86.Read != 0 && f.points(args[n].Reg)
		}
		rest := in.Reads & was // those that no operand names
		for n := range args {
			if args[n].Kind == x86.ArgReg {
				rest &^= args[n].Reg.Set()
			}
		}
		for k := range mems {
			rest &^= mems[k].Base.Set()
		}
		leak = leak || rest != 0
	}
	gone := in.Writes
	for k := range mems {
		m := &mems[k]
		if m.Kind&(x86.MemAddress|x86.MemStack) != 0 {
			continue
		}
		leak = leak || f.points(m.Index) || f.points(m.Base) && m.Base.Size() != 8
		if m.Kind&x86.MemString != 0 { // it is moved
			gone &^= m.Base.Set()
		}
	}
	leak = leak || in.Kept&was != 0 && !held
	f.holds &^= gone
	switch {
	case in.Op == "mov" && isNum(into, regRBP) && isNum(from, regRSP):
		f.pointed = true
	case held && !isNum(into, regRSP) && !(f.pointed && isNum(into, regRBP)):
		f.holds |= into.Set()
	case f.pointed && isNum(into, regRBP) && in.Op != "pop" && args[0].Access&x86.Write != 0:
		leak = true // of what points there by now nothing is known
	}
	return leak || f.pointed && f.used
}

// site takes the site of the instruction that take had last.
func (f *frames) site(i *engine.Insn, s *site) {
	if !f.in || f.leaks || s.data&lanes != 0 {
		return
	}
	told := 0
	for k := range i.Inst.Mems() {
		m := &i.Inst.Mems()[k]
		if m.Access == x86.None || m.Kind&(x86.MemAddress|x86.MemHint|x86.MemStack) != 0 {
			continue
		}
		if m.Seg != x86.NoReg || !isNum(m.Base, regRSP) && !(f.pointed && isNum(m.Base, regRBP)) {
			return
		}
		told++
	}
	if told == 1 {
		f.sites = append(f.sites, s)
		own := len(f.wait)
		f.wait = append(f.wait, waiting{s, x86.FlagsArith})
		one := frame{wait: f.wait[own:]}
		one.follow(&i.Inst)
		f.wait = f.wait[:own+len(one.wait)]
	}
}

// close ends the function.
func (f *frames) close() {
	f.leaks = f.leaks || f.next != f.hi
	for _, j := range f.jumps {
		n, ok := slices.BinarySearch(f.at, j.to)
		f.leaks = f.leaks || !ok || j.held&^f.held[n] != 0
	}
	for _, s := range f.sites {
		s.own = !f.leaks
		s.gate = s.gate && s.own
		if s.gate && s.size != 0 {
			s.size += int32(recipe.GateSize * len(parts(s.data&^judged)))
		}
	}
	f.in, f.sites = false, f.sites[:0]
}
