package patch

import (
	"math/bits"
	"slices"

	"github.com/ripstop/ripstop/internal/x86"
)

// A Text is executable memory of one module: its bytes and where instructions are known to begin. Bytes that are in no known instruction are never changed.
type Text struct {
	// Entered says whether code may jump to an address inside an instruction, as behind its lock prefix. Nil: nothing is known; then code
	// may jump behind lock prefixes. Where known instructions overlap both are taken to be run, whatever it says.
	Entered func(addr uint64) bool

	at        uint64
	orig, now []byte
	starts    []uint64 // a bit for each address
	kept      []Range
}

// NewText makes a text of code that lies at an address, in the lower half of the address space. The code is not copied and must not change.
func NewText(at uint64, code []byte) *Text {
	return &Text{at: at, orig: code, now: append([]byte(nil), code...), starts: make([]uint64, len(code)/64+1)}
}

// Keep says that nothing in [lo, hi) may be changed, nor run elsewhere, though instructions are known there: a restartable sequence, which the kernel aborts only if
// it finds the thread between the sequence's ends (rseq(2)). It must be called before the instructions become known.
func (t *Text) Keep(lo, hi uint64) { t.kept = append(t.kept, Range{lo, hi}) }

func (t *Text) keeps(addr uint64) bool {
	return slices.ContainsFunc(t.kept, func(r Range) bool { return addr >= r.Lo && addr < r.Hi })
}

// AddFunction makes known that instructions follow each other in [lo, hi). It gives the address up to which they could be decoded.
func (t *Text) AddFunction(lo, hi uint64) uint64 {
	hi = min(hi, t.end())
	for lo >= t.at && lo < hi {
		in, err := x86.Decode(t.orig[lo-t.at : hi-t.at])
		if err != nil {
			break
		}
		if !t.keeps(lo) {
			t.starts[(lo-t.at)/64] |= 1 << ((lo - t.at) % 64)
		}
		lo += uint64(in.Len)
	}
	return lo
}

func (t *Text) end() uint64 { return t.at + uint64(len(t.orig)) }

// Begins says whether an instruction is known to begin at an address.
func (t *Text) Begins(addr uint64) bool {
	i := addr - t.at
	return i < uint64(len(t.orig)) && t.starts[i/64]&(1<<(i%64)) != 0
}

// next gives the first known beginning at or behind an address, or hi.
func (t *Text) next(addr, hi uint64) uint64 {
	for addr < min(hi, t.end()) {
		i := addr - t.at
		if w := t.starts[i/64] >> (i % 64); w != 0 {
			return min(addr+uint64(bits.TrailingZeros64(w)), hi)
		}
		addr += 64 - i%64
	}
	return hi
}

// inst gives the original instruction that begins at an address.
func (t *Text) inst(addr uint64) (in x86.Inst, code []byte, ok bool) {
	if !t.Begins(addr) {
		return in, nil, false
	}
	code = t.orig[addr-t.at:]
	in, err := x86.Decode(code)
	if err != nil {
		return in, nil, false
	}
	return in, code[:in.Len], true
}

// room gives how many of an instruction's first bytes may be overwritten: up to the first that is jumped to.
func (t *Text) room(addr uint64, in *x86.Inst) int {
	for k := 1; k < in.Len; k++ {
		a := addr + uint64(k)
		switch {
		case t.Begins(a), t.Entered != nil && t.Entered(a):
			return k
		case t.Entered == nil && in.Lock && k <= int(in.PrefixLen) && t.orig[a-1-t.at] == 0xf0:
			return k
		}
	}
	return in.Len
}

// shared says whether the instruction at an address lies inside another known one.
func (t *Text) shared(addr uint64) bool {
	for a := t.next(addr-min(addr-t.at, x86.MaxLen-1), addr); a < addr; a = t.next(a+1, addr) {
		if in, _, ok := t.inst(a); ok && a+uint64(in.Len) > addr {
			return true
		}
	}
	return false
}

// Bytes gives the bytes at [lo, hi) as planned so far. They are part of the text, not a copy.
func (t *Text) Bytes(lo, hi uint64) []byte { return t.now[lo-t.at : hi-t.at] }

// restore makes the bytes at [lo, hi) the original ones.
func (t *Text) restore(lo, hi uint64) { copy(t.Bytes(lo, hi), t.orig[lo-t.at:hi-t.at]) }
