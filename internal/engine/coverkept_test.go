package engine

import (
	"slices"
	"testing"
)

// Whatever bytes were kept, what is believed to be sites lies in the module, and is told again as it was.
func FuzzHeads(f *testing.F) {
	m := moduleOf(f, "/bin/true", 0x7f0000000000, nil)
	m.learn()
	lo := uint32(m.texts[0].at - m.Bias)
	m.cover = newCover([]uint32{lo, lo + 4, lo + 300})
	f.Add(m.appendHeads(nil))
	f.Add([]byte{0})
	f.Add([]byte{5, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		m.cover = nil
		if m.parseHeads(b) != nil {
			if m.cover != nil {
				t.Error("a module that knows nothing is covered")
			}
			return
		}
		list := m.cover.heads
		if !slices.IsSorted(list) || len(list) > 0 && (m.text(uint64(list[0])+m.Bias) == nil || m.text(uint64(list[len(list)-1])+m.Bias) == nil) {
			t.Errorf("%#x", list)
		}
		undecoded := m.undecoded
		if err := m.parseHeads(m.appendHeads(nil)); err != nil || !slices.Equal(m.cover.heads, list) || m.undecoded != undecoded {
			t.Errorf("%#x, told again %#x, %v", list, m.cover.heads, err)
		}
	})
}

// Regions are all of a module's code, one behind the other; none begins in the middle of an instruction, and none is short but at an end.
func TestRegions(t *testing.T) {
	m := moduleOf(t, "/lib/x86_64-linux-gnu/libc.so.6", 0x7f0000000000, nil)
	m.learn()
	m.cover = newCover(nil)
	m.cut()
	c := m.cover
	if len(c.cuts) < 200 {
		t.Fatalf("%d regions", len(c.cuts))
	}
	end := m.texts[0].at
	for i, at := range c.cuts {
		if n := m.region(at); n != i || at != end && i > 0 && m.text(at).at != at {
			t.Fatalf("region %d begins at %#x, behind %#x, and is found as %d", i, at, end, n)
		} else {
			end = m.regionEnd(i)
		}
		if n := m.region(end - 1); n != i {
			t.Errorf("the last byte of region %d is of region %d", i, n)
		}
		if x := m.text(at); at != x.at && (!x.plan.Begins(at) || x.plan.Inside(at)) || end-at < regionBytes && end != x.end() {
			t.Errorf("region %d: [%#x, %#x)", i, at, end)
		}
	}
	if end != m.texts[len(m.texts)-1].end() {
		t.Errorf("the last ends at %#x", end)
	}
}
