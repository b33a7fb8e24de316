package patch

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Pages share frames and their trampolines do not meet there, whatever comes and goes; a page keeps its frame as long as it is in use; nothing is refused that
// would do; and when all is gone all memory is free.
func TestFrames(t *testing.T) {
	const pages, base = 40, 1 << 32
	rnd := rand.New(rand.NewPCG(6, 6))
	shared := 0
	for round := range 20 {
		s := NewSpace([]Range{{base, base + pages*PageSize}})
		var given []Range
		of := map[uint64]int{}
		for n := range 400 {
			if k := len(given); k > 0 && (rnd.IntN(3) == 0 || n > 330) {
				i := rnd.IntN(k)
				s.give(given[i].Lo, given[i].Hi)
				given = slices.Delete(given, i, i+1)
			} else {
				size := 1 + rnd.IntN(150)
				page := base + rnd.Uint64N(pages)*PageSize
				w := want{base: page, lo: page, hi: page + PageSize - uint64(size)}
				if rnd.IntN(2) == 0 {
					w.mask = 0xff
					w.bits = rnd.Uint32() & 0xff
				}
				suits := func(a uint64) bool {
					r := Range{a, a + uint64(size)}
					if a < w.lo || a > w.hi || uint32(a-w.base)&w.mask != w.bits {
						return false
					}
					return !slices.ContainsFunc(given, func(g Range) bool { return meet(s, r, g) })
				}
				a, ok := s.find(w, size)
				if ok {
					if !suits(a) {
						t.Fatalf("round %d: %#x+%d does not suit", round, a, size)
					}
					s.take(a, a+uint64(size))
					given = append(given, Range{a, a + uint64(size)})
				}
				for a := w.lo; !ok && a <= w.hi; a++ {
					if suits(a) {
						t.Fatalf("round %d: %d bytes with %+v are refused, %#x is free", round, size, w, a)
					}
				}
			}
			for page := range of {
				if s.page(page) == nil {
					delete(of, page)
				}
			}
			if rnd.IntN(8) == 0 {
				for _, m := range s.Frames() {
					if _, ok := of[m.Page]; ok || s.page(m.Page) == nil {
						t.Fatalf("page %#x gets a frame again, or is not in use", m.Page)
					}
					of[m.Page] = m.Frame
				}
				if len(of) != s.InUse() {
					t.Fatalf("%d pages of %d have frames", len(of), s.InUse())
				}
				list := map[int]bool{}
				for _, f := range of {
					list[f] = true
				}
				shared = max(shared, len(of)-len(list))
			}
			for page, f := range of {
				if now, ok := s.Frame(page + 5); !ok || now != f {
					t.Fatalf("page %#x has frame %d, %v, not %d", page, now, ok, f)
				}
			}
			for i, g := range given {
				if n%8 > 0 {
					break
				}
				for _, h := range given[:i] {
					if meet(s, g, h) {
						t.Fatalf("round %d: %#x and %#x lie in the same bytes of a frame", round, g, h)
					}
				}
			}
		}
		for _, g := range given {
			s.give(g.Lo, g.Hi)
		}
		if n := s.total(); n != pages*PageSize || s.InUse() != 0 || len(s.frames.open) != 0 || len(s.frames.idle) != s.FrameCount() {
			t.Fatalf("round %d: %d bytes are free in the end, %d pages in use; %+v", round, n, s.InUse(), s.frames)
		}
	}
	if shared < 10 {
		t.Errorf("at most %d pages were in a frame with others", shared)
	}
}

// The two trampolines of an eviction are looked for together. They once lay in different pages and in the same bytes of the frame that both pages showed, if the pages
// had their frame before: one was written over the other.
func TestFrameOfTwo(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base, base + 2*PageSize}})
	s.take(base+10, base+20)
	s.take(base+PageSize+30, base+PageSize+40)
	if s.Frames(); s.FrameCount() != 1 {
		t.Fatalf("%d frames for two pages that do not clash", s.FrameCount())
	}
	before := s.total()
	exactly := func(a uint64) want {
		return want{base: base, mask: ^uint32(0), bits: uint32(a - base), lo: base, hi: base + 2*PageSize}
	}
	const x = base + 100
	for _, c := range []struct {
		at uint64
		ok bool
	}{{x, false}, {x + 19, false}, {x + 20, true}, {x + PageSize, false}, {x + PageSize + 19, false}, {x + PageSize - 20, true}, {x + PageSize + 20, true}, {base + PageSize + 10, false}} {
		if _, ok := s.apart(exactly(c.at), 20, x, 20); ok != c.ok {
			t.Errorf("beside %#x, %#x: %v", x, c.at, ok)
		}
	}
	if s.total() != before {
		t.Error("it took memory to look for some")
	}
}

// meet says whether two ranges need the same byte of memory.
func meet(s *Space, x, y Range) bool {
	if d := (y.Lo - x.Lo) % PageSize; d >= x.Hi-x.Lo && PageSize-d >= y.Hi-y.Lo {
		return false
	}
	for a := x.Lo; a < x.Hi; a++ {
		for b := y.Lo; b < y.Hi; {
			if a == b {
				return true
			}
			if a%PageSize == b%PageSize {
				f, ok := s.Frame(a)
				if g, also := s.Frame(b); ok && also && f == g {
					return true
				}
			}
			// the next byte of y that can meet a
			d := (a - b) % PageSize
			if d == 0 {
				d = PageSize
			}
			b += d
		}
	}
	return false
}
