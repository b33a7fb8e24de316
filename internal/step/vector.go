package step

import (
	"encoding/binary"
	"sync"

	"github.com/ripstop/ripstop/internal/x86"
)

// cpuid executes CPUID.
func cpuid(leaf, sub uint32) (a, b, c, d uint32)

// xsaveLayout is where the parts of an XSAVE image in the standard form lie (Intel SDM volume 1, 13.4; CPUID leaf 0DH).
type xsaveLayout struct {
	size                               int // bytes of the largest image
	upper128, masks, upper256, upper16 int // YMM_Hi128, opmask, ZMM_Hi256, Hi16_ZMM; 0: there is none
}

var xsave = sync.OnceValue(func() (l xsaveLayout) {
	_, b, c, _ := cpuid(0xd, 0)
	l.size = int(max(b, c, 576))
	at := func(component uint32) int {
		_, b, _, _ := cpuid(0xd, component)
		return int(b)
	}
	l.upper128, l.masks, l.upper256, l.upper16 = at(2), at(5), at(6), at(7)
	return l
})

// A vectorState is the XSAVE image of a thread.
type vectorState []byte

// part gives n bytes of the image at an offset, zeros where it has none or the component is in its initial state.
func (v vectorState) part(component, offset, n int) []byte {
	const xstateBV = 512
	if offset == 0 || offset+n > len(v) || len(v) < xstateBV+8 || binary.LittleEndian.Uint64(v[xstateBV:])>>component&1 == 0 {
		return make([]byte, n)
	}
	return v[offset : offset+n]
}

// register gives the contents of xmm, ymm or zmm register n: 64 bytes.
func (v vectorState) register(n int) []byte {
	l := xsave()
	if n >= 16 {
		return v.part(7, l.upper16+64*(n-16), 64)
	}
	const xmm0 = 160
	b := append([]byte(nil), v.part(1, xmm0+16*n, 16)...)
	b = append(b, v.part(2, l.upper128+16*n, 16)...)
	return append(b, v.part(6, l.upper256+32*n, 32)...)
}

func (v vectorState) mask(n int) uint64 {
	return binary.LittleEndian.Uint64(v.part(5, xsave().masks+8*n, 8))
}

// signs gives the highest bit of each of n elements of size bytes of a register.
func (v vectorState) signs(r x86.Reg, size, n int) (bits uint64) {
	b := v.register(r.Num())
	if r.Class() == x86.ClassMMX {
		const st0 = 32
		b = v.part(0, st0+16*r.Num(), 8)
	}
	for i := range min(n, len(b)/size) {
		bits |= uint64(b[(i+1)*size-1]>>7) << i
	}
	return bits
}

// index gives element i of an index register, sign-extended.
func (v vectorState) index(r x86.Reg, size, i int) uint64 {
	b := v.register(r.Num())[i*size:]
	if size == 4 {
		return uint64(int64(int32(binary.LittleEndian.Uint32(b))))
	}
	return binary.LittleEndian.Uint64(b)
}
