package step

import (
	"math/bits"
	"strings"

	"github.com/ripstop/ripstop/internal/truth"
	"github.com/ripstop/ripstop/internal/x86"
)

// An instruction is one that is stepped, with what must be known of it at each step.
type instruction struct {
	x86.Inst
	touches bool // it accesses memory
	vector  bool // which memory, vector or mask registers say
	repeats bool // a string instruction with a rep prefix: one step does one repetition
	pushes  bool // pushf: the trap flag shows
	padded  bool // CPUID: stepped with a nop behind it (tracee.Padding)
	element int  // bytes of the elements that a mask lets through; 0: not known
}

// newInstruction notes of a decoded instruction what is needed.
func newInstruction(in x86.Inst) *instruction {
	c := &instruction{Inst: in, pushes: strings.HasPrefix(in.Op, "pushf"), padded: in.Op == "cpuid"}
	for _, m := range in.Mems() {
		if !accessed(&m) {
			continue
		}
		c.touches = true
		c.vector = c.vector || m.Kind&(x86.MemMasked|x86.MemGather|x86.MemScatter) != 0
		c.repeats = c.repeats || m.Kind&x86.MemString != 0 && (in.Rep || in.Repne)
	}
	if c.vector {
		c.element = elementOf(in.Op)
	}
	return c
}

func accessed(m *x86.Mem) bool {
	return m.Access != x86.None && m.Kind&(x86.MemHint|x86.MemAddress) == 0
}

// elementOf gives the bytes of an element of a masked operation's memory, by its name; 0 where the name does not tell.
func elementOf(op string) int {
	for _, p := range []string{"vcvt", "vpmovzx", "vpmovsx", "vbroadcast", "vpbroadcast"} {
		if strings.HasPrefix(op, p) {
			return 0
		}
	}
	if strings.HasPrefix(op, "maskmov") || strings.HasPrefix(op, "vmaskmovdqu") {
		return 1
	}
	if strings.HasPrefix(op, "vp") && !strings.HasSuffix(op, "ps") && !strings.HasSuffix(op, "pd") { // vpcompressd is no scalar
		op = op[len(op)-1:]
	}
	for _, e := range []struct {
		suffix string
		size   int
	}{{"u8", 1}, {"16", 2}, {"32", 4}, {"64", 8}, {"ps", 4}, {"pd", 8}, {"ss", 4}, {"sd", 8}, {"b", 1}, {"w", 2}, {"d", 4}, {"q", 8}} {
		if strings.HasSuffix(op, e.suffix) {
			return e.size
		}
	}
	return 0
}

func flagsOf(m *x86.Mem) (f truth.Flags) {
	if m.Access&x86.Read != 0 {
		f |= truth.Read
	}
	if m.Access&x86.Write != 0 {
		f |= truth.Write
	}
	if m.Kind&x86.MemLocked != 0 {
		f |= truth.Locked
	}
	if m.Kind&x86.MemStack != 0 {
		f |= truth.Stack
	}
	return f
}

// value gives what a register contributes to an address.
func (r *registers) value(reg x86.Reg, next uint64) uint64 {
	switch {
	case reg == x86.NoReg:
		return 0
	case reg == x86.RIP:
		return next
	case reg == x86.EIP:
		return uint64(uint32(next))
	case reg.Class() != x86.ClassGPR:
		return 0 // an index of vectors
	case reg.Size() == 4:
		return uint64(uint32(r.general(reg.Num())))
	}
	return r.general(reg.Num())
}

// address gives the address of an access without a vector index.
func (r *registers) address(m *x86.Mem, next uint64) uint64 {
	a := r.value(m.Base, next) + r.value(m.Index, next)*uint64(m.Scale) + uint64(m.Disp) + uint64(int64(m.Bias))
	if m.Base.Class() == x86.ClassGPR && m.Base.Size() == 4 || m.Index.Class() == x86.ClassGPR && m.Index.Size() == 4 || m.Base == x86.EIP {
		a = uint64(uint32(a))
	}
	switch m.Seg {
	case x86.FS:
		a += r.Fs_base
	case x86.GS:
		a += r.Gs_base
	}
	return a
}

// accesses appends what an instruction at ip is about to access, from the registers before it; of a string instruction, one element. vec gives the
// vector registers, and is asked only if in.vector.
func (in *instruction) accesses(dst []truth.Access, r *registers, ip uint64, vec func() vectorState) []truth.Access {
	next := ip + uint64(in.Len)
	mems := in.Mems()
	for i := range mems {
		m := &mems[i]
		if !accessed(m) {
			continue
		}
		a := truth.Access{Addr: r.address(m, next), Size: uint64(m.Size), Flags: flagsOf(m)}
		switch {
		case m.Kind&(x86.MemGather|x86.MemScatter) != 0:
			dst = in.gather(dst, a, m, vec())
			continue
		case m.Kind&x86.MemMasked != 0:
			dst = in.masked(dst, a, m, vec())
			continue
		case m.Kind&x86.MemBit != 0:
			a.Addr += in.bitOffset(r, int64(m.Size))
		case m.Kind&x86.MemState != 0 && m.Size == 0:
			a.Size = uint64(xsave().size)
			a.Flags |= truth.AtMost
		case in.repeats && m.Kind&x86.MemString != 0 && r.value(countRegister(m), next) == 0:
			continue
		}
		if a.Size > 0 {
			dst = append(dst, a)
		}
	}
	return dst
}

// countRegister is rcx, or ecx with an address-size prefix.
func countRegister(m *x86.Mem) x86.Reg {
	if m.Base.Size() == 4 {
		return x86.EAX + 1
	}
	return x86.RCX
}

// bitOffset is how far from its address bt and its kin access the word with the bit that a register names (Intel SDM volume 2, 'Bit(BitBase, BitOffset)').
func (in *instruction) bitOffset(r *registers, size int64) uint64 {
	for _, a := range in.Args() {
		if a.Kind != x86.ArgReg {
			continue
		}
		v := int64(r.general(a.Reg.Num()))
		switch size {
		case 2:
			v = int64(int16(v))
		case 4:
			v = int64(int32(v))
		}
		return uint64(v >> (3 + bits.TrailingZeros64(uint64(size))) * size)
	}
	return 0
}

// masked appends what a mask lets through of an access.
func (in *instruction) masked(dst []truth.Access, a truth.Access, m *x86.Mem, v vectorState) []truth.Access {
	size := in.element
	if m.Kind&x86.MemBroadcast != 0 {
		if v.mask(in.Mask.Num()) != 0 {
			dst = append(dst, a)
		}
		return dst
	}
	if size == 0 || int(m.Size)%size != 0 {
		a.Flags |= truth.AtMost
		return append(dst, a)
	}
	n := int(m.Size) / size
	if n > 64 { // no register has as many
		return append(dst, a)
	}
	var mask uint64
	switch {
	case in.Mask != x86.NoReg:
		mask = v.mask(in.Mask.Num())
	case size == 1: // maskmovq xmm, mask
		mask = v.signs(in.Args()[1].Reg, 1, n)
	default: // vmaskmov xmm, mask, m and m, mask, xmm
		mask = v.signs(in.Args()[1].Reg, size, n)
	}
	if n < 64 {
		mask &= 1<<n - 1
	}
	if strings.Contains(in.Op, "compress") || strings.Contains(in.Op, "expand") {
		mask = 1<<bits.OnesCount64(mask) - 1 // as many from the address on; 64 wraps to all ones
	}
	for mask != 0 {
		first := bits.TrailingZeros64(mask)
		run := bits.TrailingZeros64(^(mask >> first))
		dst = append(dst, truth.Access{Addr: a.Addr + uint64(first*size), Size: uint64(run * size), Flags: a.Flags})
		if first+run >= 64 {
			break
		}
		mask = mask >> (first + run) << (first + run)
	}
	return dst
}

// gather appends the elements of a gather or scatter.
func (in *instruction) gather(dst []truth.Access, a truth.Access, m *x86.Mem, v vectorState) []truth.Access {
	indexSize := 4
	if strings.Contains(in.Op, "gatherq") || strings.Contains(in.Op, "scatterq") {
		indexSize = 8
	}
	data, mask := x86.NoReg, uint64(0)
	for _, arg := range in.Args() {
		if arg.Kind == x86.ArgReg && arg.Reg.Class() == x86.ClassVec && data == x86.NoReg {
			data = arg.Reg
		}
	}
	n := min(m.Index.Size()/indexSize, data.Size()/int(m.Size))
	if in.Mask != x86.NoReg {
		mask = v.mask(in.Mask.Num())
	} else {
		mask = v.signs(in.Args()[2].Reg, int(m.Size), n)
	}
	for i := range n {
		if mask>>i&1 != 0 {
			a.Addr += v.index(m.Index, indexSize, i) * uint64(m.Scale)
			dst = append(dst, a)
			a.Addr -= v.index(m.Index, indexSize, i) * uint64(m.Scale)
		}
	}
	return dst
}

// repetitions makes of the accesses of the first of n repetitions those of all.
func (in *instruction) repetitions(accesses []truth.Access, n uint64, down bool) []truth.Access {
	if n == 0 {
		return accesses[:0]
	}
	for i := range accesses {
		a := &accesses[i]
		if down {
			a.Addr -= (n - 1) * a.Size
		}
		a.Size *= n
	}
	return accesses
}
