package engine

import (
	"slices"
	"testing"
)

// What was put in comes out, once and in order.
func TestBitmap(t *testing.T) {
	var b bitmap
	if n := slices.Collect(b.all); len(n) > 0 {
		t.Error(n)
	}
	for _, i := range []uint64{64, 0, 63, 64, 999, 128} {
		b.set(i, 1000)
	}
	if got, want := slices.Collect(b.all), []uint64{0, 63, 64, 128, 999}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
