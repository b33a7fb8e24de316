package x86

import "errors"

// ErrNoGS says that no access of an instruction can be redirected by a gs prefix, or that it has no room for one more prefix.
var ErrNoGS = errors.New("x86: no memory operand that a gs prefix redirects")

// TakesGS says whether a gs prefix redirects access i of Mems. It does so for what ModRM names (also vectors of addresses), for absolute addresses, and
// for sources of string instructions, xlat and the masked moves to [rdi]; not for the stack, what goes by ES, and what has a segment already.
func (in *Inst) TakesGS(i int) bool {
	m := in.mems[:in.nmems][i]
	return m.Seg == NoReg && m.Kind&(MemStack|MemES|MemAddress) == 0
}

// WithGS appends to dst code that does at address to what the instruction, whose bytes are code, does at address from, with the base of GS added to the
// addresses of those of its accesses for which TakesGS. The error is ErrNoGS, ErrCall or ErrReach. Some accesses may be left that it does not redirect: the
// stack's of push, the destination of movs.
func WithGS(dst []byte, in *Inst, code []byte, from, to uint64) ([]byte, error) {
	takes := false
	for i := range in.Mems() {
		takes = takes || in.TakesGS(i)
	}
	if !takes || in.Len == MaxLen {
		return dst, ErrNoGS
	}
	var buf [MaxLen]byte
	buf[0] = 0x65
	copy(buf[1:], code[:in.Len])
	g, err := Decode(buf[:in.Len+1])
	if err != nil {
		return dst, ErrNoGS
	}
	return Relocate(dst, &g, buf[:], from-1, to, RefuseCalls) // which ends where the instruction does, so that RIP-relative means the same
}
