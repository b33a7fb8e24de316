package engine

import "math/bits"

// A bitmap is a set of small numbers.
type bitmap []uint64

// set puts in a number less than n, the most that there may be.
func (b *bitmap) set(i uint64, n int) {
	if *b == nil {
		*b = make(bitmap, n/64+1)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

// all calls back for each number, in order, until it is told to stop.
func (b bitmap) all(f func(uint64) bool) {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			if !f(uint64(i)*64 + uint64(bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}
