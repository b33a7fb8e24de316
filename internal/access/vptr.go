package access

import (
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/x86"
)

// Every destructor stores its class's vptr first, though it is there already unless a derived class's destructor ran before; so does who constructs in place again. Such a store changes nothing, and another thread may
// call virtual functions meanwhile (a destructor whose body joins the thread that does). By the bytes alone it is a race, and no compiler would let one write it: so what a store of a vptr leaves as it is counts as read
// (lanes.c). Where it stores another class's vptr it is a write like others.
//
// Which stores these are is told by what they store: an address that is a vptr (image.Vtables), followed from where the code has it, through registers, in the order in which the code lies. What another path has in
// the register then does not matter: the agent compares what is there.

// A held is what is known of eight bytes of a register.
type held struct {
	p  image.Pointer
	is bool
}

// A vptrs follows vptrs through the registers of a module's code.
type vptrs struct {
	tables  func() *image.Vtables
	is      map[image.Pointer]bool // what was asked before
	bias    uint64
	general [16]held
	vector  [16][2]held
	any     bool // something is known
}

func newVptrs(m *image.Image, bias uint64) *vptrs {
	return &vptrs{tables: m.Vtables, is: map[image.Pointer]bool{}, bias: bias}
}

func (v *vptrs) known(h held) bool {
	if !h.is {
		return false
	}
	is, asked := v.is[h.p]
	if !asked {
		is = v.tables().Is(h.p)
		v.is[h.p] = is
	}
	return is
}

// calleeSaved has the registers that a call leaves as they are (System V psABI, 3.2.1).
func calleeSaved(r int) bool {
	return r == x86.RBX.Num() || r == x86.RBP.Num() || r >= 12
}

// low is a vector register that has at most 16 bytes of the first 16, as an index; false: another operand.
func low(a x86.Arg) (int, bool) {
	return a.Reg.Num(), a.Kind == x86.ArgReg && a.Reg.Class() == x86.ClassVec && a.Reg.Size() == 16 && a.Reg.Num() < 16
}

// whole is a general register of 8 bytes, or (short) of 4, as an index.
func whole(a x86.Arg, short bool) (int, bool) {
	return a.Reg.Num(), a.Kind == x86.ArgReg && a.Reg.Class() == x86.ClassGPR && (a.Reg.Size() == 8 || short && a.Reg.Size() == 4)
}

// fixed gives the link-time address of a memory operand that no register but rip has a part in.
func (v *vptrs) fixed(in *x86.Inst, at uint64) (uint64, bool) {
	if len(in.Mems()) != 1 {
		return 0, false
	}
	switch m := &in.Mems()[0]; {
	case m.Seg != x86.NoReg || m.Index != x86.NoReg:
	case m.Base == x86.RIP:
		return at + uint64(in.Len) + uint64(m.Disp) - v.bias, true
	case m.Base == x86.NoReg && v.bias == 0:
		return uint64(m.Disp), true
	}
	return 0, false
}

// load gives the pointer of a memory operand that is fixed, n words behind it.
func (v *vptrs) load(in *x86.Inst, at uint64, n uint64) (h held) {
	if a, ok := v.fixed(in, at); ok && in.Mems()[0].Access == x86.Read {
		h.p, h.is = v.tables().Load(a + 8*n)
	}
	return h
}

// stores gives what the agent is told of a store of vptrs; 0: it is none, as far as is known.
func (v *vptrs) stores(in *x86.Inst, data uint64) uint64 {
	args := in.Args()
	if data != write || len(args) != 2 || args[0].Kind != x86.ArgMem || in.Mems()[0].Kind&^x86.MemNonTemporal != 0 || in.Mask != x86.NoReg {
		return 0
	}
	const stored = lanes | laneStored<<laneWhat
	size := in.Mems()[0].Size
	if in.Op == "mov" && size == 8 {
		if r, ok := whole(args[1], false); ok && v.known(v.general[r]) {
			return stored | laneSingle | uint64(r)<<laneBy | 1<<laneElem
		}
		if args[1].Kind == x86.ArgImm && v.bias == 0 && v.known(held{image.Pointer{Addr: uint64(args[1].Imm)}, true}) {
			return stored | laneSingle | laneWide | 1<<laneElem | uint64(uint32(args[1].Imm))
		}
		return 0
	}
	r, ok := low(args[1])
	if !ok || !moves(in.Op) && !lowMoves(in.Op) || size != 8 && size != 16 || size == 8 && !lowMoves(in.Op) {
		return 0
	}
	mask := uint64(0)
	for i := range int(size / 8) {
		if v.known(v.vector[r][i]) {
			mask |= 1 << i
		}
	}
	if mask == 0 {
		return 0
	}
	return stored | uint64(r)<<laneBy | mask<<laneElem
}

// moves says whether an operation moves all of a vector register of 16 bytes.
func moves(op string) bool {
	switch op {
	case "movups", "movaps", "movupd", "movapd", "movdqu", "movdqa", "vmovups", "vmovaps", "vmovupd", "vmovapd", "vmovdqu", "vmovdqa", "vmovdqu64", "vmovdqa64", "movntps", "movntpd", "movntdq":
		return true
	}
	return false
}

// lowMoves says whether it moves the lower eight bytes.
func lowMoves(op string) bool {
	switch op {
	case "movq", "vmovq", "movlps", "movlpd", "vmovlps", "vmovlpd", "movsd", "vmovsd":
		return true
	}
	return false
}

// follow takes the instruction that comes next.
func (v *vptrs) follow(in *x86.Inst, at uint64) {
	switch in.Flow {
	case x86.FlowNone, x86.FlowCond, x86.FlowLoop, x86.FlowSyscall:
	case x86.FlowCall, x86.FlowIndirectCall:
		for i := range v.general {
			if !calleeSaved(i) {
				v.general[i] = held{}
			}
		}
		v.vector = [16][2]held{}
		return
	default: // what comes next is reached from elsewhere
		v.forget()
		return
	}
	general, vector, which := v.made(in, at)
	if !v.any && !general.is && !vector[0].is && !vector[1].is {
		return
	}
	for i := range 16 {
		if in.Writes.Has(x86.RAX + x86.Reg(i)) {
			v.general[i] = held{}
		}
		if in.Writes.Has(x86.XMM0 + x86.Reg(i)) {
			v.vector[i] = [2]held{}
		}
	}
	if general.is {
		v.general[which] = general
	} else if vector[0].is || vector[1].is {
		v.vector[which] = vector
	}
	v.any = v.any || general.is || vector[0].is || vector[1].is
}

func (v *vptrs) forget() {
	if v.any {
		v.general, v.vector, v.any = [16]held{}, [16][2]held{}, false
	}
}

// made gives what an instruction leaves in the register `which` that it writes.
func (v *vptrs) made(in *x86.Inst, at uint64) (general held, vector [2]held, which int) {
	args := in.Args()
	if len(args) < 2 || in.Mask != x86.NoReg {
		return general, vector, 0
	}
	if r, ok := whole(args[0], true); ok {
		return v.general1(in, at, args[0].Reg.Size() == 8), vector, r
	}
	r, ok := low(args[0])
	if !ok {
		return general, vector, 0
	}
	return general, v.vector1(in, at), r
}

// general1 gives what is in a general register afterwards; wide: it has 8 bytes.
func (v *vptrs) general1(in *x86.Inst, at uint64, wide bool) (h held) {
	args := in.Args()
	from := args[1]
	switch in.Op {
	case "mov":
		if from.Kind == x86.ArgImm {
			addr := uint64(from.Imm)
			if !wide {
				addr = uint64(uint32(from.Imm))
			}
			return held{image.Pointer{Addr: addr}, v.bias == 0}
		}
		if r, ok := whole(from, false); ok {
			return v.general[r]
		}
		if from.Kind == x86.ArgMem && wide {
			return v.load(in, at, 0)
		}
	case "lea":
		if a, ok := v.fixed(in, at); ok && wide {
			return held{image.Pointer{Addr: a}, true}
		}
		if m := &in.Mems()[0]; wide && m.Index == x86.NoReg && m.Seg == x86.NoReg && m.Base.Class() == x86.ClassGPR && m.Base.Size() == 8 {
			h = v.general[m.Base.Num()]
			h.p.Addr += uint64(m.Disp)
		}
	case "add":
		if from.Kind == x86.ArgImm && wide {
			h = v.general[args[0].Reg.Num()]
			h.p.Addr += uint64(from.Imm)
		}
	}
	return h
}

// vector1 gives what is in the first 16 bytes of a vector register afterwards.
func (v *vptrs) vector1(in *x86.Inst, at uint64) (h [2]held) {
	args := in.Args()
	from, into := args[len(args)-1], args[0]
	if len(args) == 3 {
		into = args[1]
	}
	old, ok := low(into)
	if ok {
		h = v.vector[old]
	}
	other, isVector := low(from)
	switch in.Op {
	case "movq", "vmovq", "movsd", "vmovsd":
		if len(args) != 2 {
			return [2]held{}
		}
		if r, ok := whole(from, false); ok {
			return [2]held{v.general[r]}
		}
		if isVector {
			return [2]held{v.vector[other][0]}
		}
		return [2]held{v.load(in, at, 0)}
	case "movhps", "movhpd", "vmovhps", "vmovhpd":
		h[1] = v.load(in, at, 0)
		return h
	case "punpcklqdq", "vpunpcklqdq", "unpcklpd", "vunpcklpd", "movlhps", "vmovlhps":
		if isVector {
			h[1] = v.vector[other][0]
		} else {
			h[1] = v.load(in, at, 0)
		}
		return h
	case "pinsrq", "vpinsrq":
		n := len(args) - 1
		if args[n].Kind != x86.ArgImm || n == 3 && !ok {
			return [2]held{}
		}
		if n == 3 {
			old, _ = low(args[1])
		} else {
			old, _ = low(args[0])
		}
		h = v.vector[old]
		word := held{}
		if r, ok := whole(args[n-1], false); ok {
			word = v.general[r]
		} else {
			word = v.load(in, at, 0)
		}
		h[args[n].Imm&1] = word
		return h
	case "movddup", "vmovddup":
		if isVector {
			return [2]held{v.vector[other][0], v.vector[other][0]}
		}
		one := v.load(in, at, 0)
		return [2]held{one, one}
	}
	if moves(in.Op) && len(args) == 2 {
		if isVector {
			return v.vector[other]
		}
		return [2]held{v.load(in, at, 0), v.load(in, at, 1)}
	}
	return [2]held{}
}
