package recover

import (
	"slices"
	"testing"
)

// Calls, returns, recursion, a call whose function is not traced, a jump out of several frames, and what a gap makes unknown.
func TestCalls(t *testing.T) {
	call := func(pc uint64) *inst { return &inst{pc: pc, length: 5, traits: isBranch | isCall} }
	plain := func(pc uint64) *inst { return &inst{pc: pc, length: 3} }
	c := newCalling()
	for i, s := range []struct {
		in   *inst
		want []uint64 // returns, the innermost first
	}{
		{plain(0x100), nil},
		{call(0x103), nil}, // of 0x200
		{plain(0x200), []uint64{0x108}},
		{call(0x203), []uint64{0x108}}, // of itself
		{plain(0x200), []uint64{0x208, 0x108}},
		{call(0x203), []uint64{0x208, 0x108}},
		{plain(0x200), []uint64{0x208, 0x208, 0x108}},
		{plain(0x208), []uint64{0x208, 0x108}},
		{plain(0x208), []uint64{0x108}},
		{plain(0x108), nil},
		{call(0x10b), nil}, // of what is not traced
		{plain(0x110), nil},
		{call(0x113), nil},                    // of 0x300
		{call(0x300), []uint64{0x118}},        // of 0x400
		{call(0x400), []uint64{0x305, 0x118}}, // of 0x500
		{plain(0x500), []uint64{0x405, 0x305, 0x118}},
		{plain(0x118), nil}, // longjmp
		{call(0x11b), nil},
		{plain(0x600), []uint64{0x120}},
		{nil, nil},
		{plain(0x604), nil},
		{plain(0x120), nil},
	} {
		if s.in == nil {
			c.lost()
			continue
		}
		c.at(s.in)
		var got []uint64
		for n := c.now; n != 0; n = c.all[n].Outer {
			got = append(got, c.all[n].Return)
		}
		if !slices.Equal(got, s.want) || c.depth != len(got) {
			t.Fatalf("%d: at %#x the calls are %#x, depth %d, want %#x", i, s.in.pc, got, c.depth, s.want)
		}
	}
	for i := range uint64(1000) {
		c.at(call(0x1000 + 0x10*i))
	}
	if c.depth != maxCallDepth {
		t.Errorf("depth %d", c.depth)
	}
}
