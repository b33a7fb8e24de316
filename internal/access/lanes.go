package access

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/x86"
)

// Accesses whose bytes the registers decide, or the memory: the agent (lanes.c) finds them at the site. What it is told of an instruction are the bits of data below lanes; the sizes and directions
// are in the recipe's context.
const (
	lanes = 1 << 63 // says that it is so

	laneBase   = 32 // a general register; noBase, ripBase. Below it 32 bits of displacement.
	laneIndex  = 37 // a general or vector register; noIndex
	laneScale  = 43
	laneFS     = 1 << 45
	laneWhat   = 46
	laneBy     = 50 // the register that holds the mask or the bit's number; of a state which
	laneElem   = 55 // log2 of an element's size
	laneWidth  = 57 // log2 of the vector's bytes / 8; of gathers of the number of elements / 2
	laneWide   = 1 << 59
	laneSingle = 1 << 60

	noBase, ripBase, noIndex = 16, 17, 63
)

// What an instruction is (lanes.c).
const (
	laneSigns     = iota // elements by the sign bits of a vector register
	laneOpmask           // by a mask register; laneSingle: one element, if any bit is set, as many as width has elements
	lanePacked           // as many as a mask register has bits, one after the other
	laneGather           // an address for each element, by sign bits; laneWide: indices of 8 bytes
	laneGatherBy         // by a mask register
	laneBit              // the bit that a register tells
	laneTable            // xlat
	laneStrings          // repeated cmps (laneWide) and scas; laneSingle: repne
	laneState            // of the processor
	laneCondition        // cmov: a read if the condition holds, which by is. Else the processor reads and the program does not: compilers make one of `if (mine) x = shared`
	laneStored           // a store, of which what stays as it is is read: elem are the words of eight bytes (bit 0, bit 1) that are so; laneSingle: of a general register, or (laneWide) of the number in the displacement's place (vptr.go)
)

// conditions are those of cmov, as its opcode numbers them.
var conditions = []string{"o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"}

// states are the instructions of laneState.
var states = []string{"fxsave", "fxrstor", "xsave", "xsaveopt", "xsavec", "xrstor"}

// elementwise are the beginnings of names of operations whose memory operand, under a mask, is accessed element by element of the destination.
var elementwise = []string{"vmov", "vadd", "vsub", "vmul", "vdiv", "vmin", "vmax", "vsqrt", "vand", "vor", "vxor", "vfm", "vfnm", "vpadd", "vpsub", "vpmul", "vpmin", "vpmax", "vpand", "vpor", "vpxor", "vpabs", "vblendm", "vpblendm", "vcmp", "vpcmp", "vptestm", "vptestnm"}

// lanesOf gives what the agent is told of such an instruction; false: it is not one, or one of which nothing can be told.
func lanesOf(in *x86.Inst) (data uint64, ok bool) {
	if len(in.Mems()) == 0 {
		return 0, false
	}
	m := &in.Mems()[0]
	for _, m := range in.Mems() {
		if m.Seg == x86.GS || m.Base != x86.NoReg && m.Base != x86.RIP && m.Base.Size() != 8 {
			return 0, false
		}
	}
	what, by, elem, width, more := uint64(0), 0, 1, 16, uint64(0)
	switch {
	case in.Op == "xlat":
		what = laneTable
	case strings.HasPrefix(in.Op, "cmov"):
		what, by = laneCondition, slices.Index(conditions, strings.TrimPrefix(in.Op, "cmov"))
		if by < 0 {
			return 0, false
		}
	case m.Kind&x86.MemString != 0 && (in.Rep || in.Repne) && stops(in.Op):
		what = laneStrings
		if len(in.Mems()) == 2 {
			more |= laneWide
		}
		if in.Repne {
			more |= laneSingle
		}
	case m.Kind&x86.MemBit != 0:
		if len(in.Args()) < 2 || in.Args()[1].Kind != x86.ArgReg {
			return 0, false
		}
		what, by = laneBit, in.Args()[1].Reg.Num()
	case m.Kind&x86.MemState != 0:
		what, by = laneState, slices.Index(states, strings.TrimSuffix(in.Op, "64"))
		if by < 0 {
			return 0, false
		}
	case m.Kind&(x86.MemGather|x86.MemScatter) != 0:
		return gatherOf(in)
	case m.Kind&x86.MemMasked == 0:
		return 0, false
	case in.Mask != x86.NoReg:
		what, by = laneOpmask, in.Mask.Num()
		if elem, width, more, ok = masked(in); !ok {
			return 0, false
		}
		if strings.HasPrefix(in.Op, "vcompress") || strings.HasPrefix(in.Op, "vpcompress") || strings.HasPrefix(in.Op, "vexpand") || strings.HasPrefix(in.Op, "vpexpand") {
			what = lanePacked
		}
	default: // maskmovdqu, vmaskmov
		mask := in.Args()[1].Reg
		what, by, elem, width = laneSigns, mask.Num(), elementSize(in.Op), mask.Size()
		if strings.Contains(in.Op, "maskmovdqu") || strings.Contains(in.Op, "maskmovq") && mask.Class() == x86.ClassMMX {
			elem = 1
		}
		if elem == 0 {
			return 0, false
		}
	}
	return address(m) | more | what<<laneWhat | uint64(by)<<laneBy | log(elem)<<laneElem | log(width/8)<<laneWidth | lanes, true
}

// gatherOf is lanesOf for gathers and scatters.
func gatherOf(in *x86.Inst) (data uint64, ok bool) {
	m := &in.Mems()[0]
	op := strings.TrimLeft(in.Op, "vp")
	op = strings.TrimPrefix(strings.TrimPrefix(op, "gather"), "scatter")
	if m.Index.Class() != x86.ClassVec || m.Size != 4 && m.Size != 8 || len(op) < 2 {
		return 0, false
	}
	what, by := uint64(laneGatherBy), in.Mask
	vector := x86.NoReg // what is gathered
	for _, a := range in.Args() {
		if a.Kind == x86.ArgReg && a.Reg.Class() == x86.ClassVec && vector == x86.NoReg {
			vector = a.Reg
		}
	}
	if by == x86.NoReg {
		if len(in.Args()) != 3 {
			return 0, false
		}
		what, by = laneGather, in.Args()[2].Reg
	}
	index, more := 4, uint64(0)
	if op[0] == 'q' {
		index, more = 8, laneWide
	}
	n := min(vector.Size()/int(m.Size), m.Index.Size()/index)
	if n < 2 || n > 16 {
		return 0, false
	}
	return address(m) | more | what<<laneWhat | uint64(by.Num())<<laneBy | log(int(m.Size))<<laneElem | log(n/2)<<laneWidth | lanes, true
}

// masked gives the elements of a memory operand under a mask register: their size, and the bytes of the vector that they are of.
func masked(in *x86.Inst) (elem, width int, more uint64, ok bool) {
	m := &in.Mems()[0]
	elem, width = elementSize(in.Op), int(m.Size)
	scalar := !strings.HasPrefix(in.Op, "vp") && (strings.HasSuffix(in.Op, "ss") || strings.HasSuffix(in.Op, "sd"))
	named := slices.ContainsFunc([]string{"vcompress", "vexpand", "vpcompress", "vpexpand"}, func(s string) bool { return strings.HasPrefix(in.Op, s) })
	for _, s := range elementwise {
		named = named || strings.HasPrefix(in.Op, s)
	}
	vector := 0
	for _, a := range in.Args() {
		if a.Kind == x86.ArgReg && a.Reg.Class() == x86.ClassVec {
			vector = max(vector, a.Reg.Size())
		}
	}
	switch {
	case !named || elem == 0 || vector == 0:
	case m.Kind&x86.MemBroadcast != 0:
		return elem, vector, laneSingle, int(m.Size) == elem
	case scalar: // one element, by the mask's first bit
		return 8, 8, laneSingle, int(m.Size) == elem
	case width == vector: // not so of what widens or narrows, and of vmovddup
		return elem, width, 0, true
	}
	return 0, 0, 0, false
}

// elementSize gives an element's size by the operation's name; 0: it does not say.
func elementSize(op string) int {
	integers := strings.HasPrefix(op, "vp") // vpminsd has elements of four bytes
	for _, s := range []struct {
		end  string
		size int
	}{{"ps", 4}, {"pd", 8}, {"ss", 4}, {"sd", 8}, {"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}, {"b", 1}, {"w", 2}, {"d", 4}, {"q", 8}} {
		if strings.HasSuffix(op, s.end) && (!integers || s.end != "ss" && s.end != "sd") {
			return s.size
		}
	}
	return 0
}

// address says how the address of the first element is made, for gathers, bits and tables; that of others is in the context.
func address(m *x86.Mem) uint64 {
	base, index := uint64(noBase), uint64(noIndex)
	switch {
	case m.Base == x86.RIP:
		base = ripBase
	case m.Base != x86.NoReg:
		base = uint64(m.Base.Num())
	}
	if m.Index != x86.NoReg {
		index = uint64(m.Index.Num())
	}
	data := uint64(uint32(m.Disp)) | base<<laneBase | index<<laneIndex | log(int(max(m.Scale, 1)))<<laneScale
	if m.Seg == x86.FS {
		data |= laneFS
	}
	return data
}

func log(n int) uint64 { return uint64(bits.TrailingZeros(uint(n))) }
