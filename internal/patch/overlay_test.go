package patch

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// An overlay is at all times what a copy would be, and its base stays as it was.
func TestOverlay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, cell - 1, cell, cell + 1, 5*cell + 17} {
		base := make([]byte, size)
		for i := range base {
			base[i] = byte(r.Uint32())
		}
		was, o := bytes.Clone(base), NewOverlay(base)
		now := bytes.Clone(base)
		for range 300 {
			lo := r.IntN(size + 1)
			b := make([]byte, r.IntN(min(size-lo, 3*cell)+1))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			if r.IntN(4) == 0 {
				copy(b, base[lo:])
			}
			copy(now[lo:], b)
			o.Set(uint64(lo), b)
			lo = r.IntN(size + 1)
			hi := lo + r.IntN(size-lo+1)
			if got := o.Copy(uint64(lo), uint64(hi)); !bytes.Equal(got, now[lo:hi]) {
				t.Fatalf("%d bytes, [%d, %d): % x, not % x", size, lo, hi, got, now[lo:hi])
			}
			if lo < size && o.At(uint64(lo)) != now[lo] {
				t.Fatalf("%d bytes, byte %d: %x, not %x", size, lo, o.At(uint64(lo)), now[lo])
			}
		}
		if !bytes.Equal(base, was) {
			t.Fatalf("%d bytes: the base has changed", size)
		}
	}
}

// planned gives a copy of all of the text.
func (t *Text) planned() []byte { return t.Bytes(t.at, t.end()) }
