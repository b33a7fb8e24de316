package patch

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Chunks share slots and their trampolines do not meet there, whatever comes and goes; what has trampolines shows what it showed, and whatever has some is told of; nothing is
// refused that would do; and when all is gone all memory is free.
func TestFrames(t *testing.T) {
	const chunks, base = 5, 1 << 32
	rnd := rand.New(rand.NewPCG(6, 6))
	shared := 0
	for round := range 12 {
		lo := base + rnd.Uint64N(chunkPages)*PageSize
		s := NewSpace([]Range{{lo, base + chunks*chunkSize}})
		s.grid.n = 1 + round%2 // most show the same
		whole := s.total()
		var given []Range
		shows := map[uint64]int{}
		for n := range 500 {
			if k := len(given); k > 0 && (rnd.IntN(3) == 0 || n > 430) {
				i := rnd.IntN(k)
				s.give(given[i].Lo, given[i].Hi)
				given = slices.Delete(given, i, i+1)
			} else {
				size := 1 + rnd.IntN(150)
				page := base + rnd.Uint64N(chunks*chunkPages)*PageSize
				w := want{base: page, lo: page, hi: page + PageSize - uint64(size), mask: 0x80000000}
				if rnd.IntN(2) == 0 {
					w.mask |= 0xff
					w.bits = rnd.Uint32() & 0xff
				}
				if rnd.IntN(8) == 0 {
					w = want{base: page, lo: lo, hi: base + chunks*chunkSize - uint64(size)}
				}
				suits := func(a uint64) bool {
					r := Range{a, a + uint64(size)}
					if a < max(w.lo, lo) || a > w.hi || uint32(a-w.base)&w.mask != w.bits {
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
				for a := w.lo; !ok && w.mask != 0 && a <= w.hi; a++ {
					if suits(a) {
						t.Fatalf("round %d: %d bytes with %+v are refused, %#x is free", round, size, w, a)
					}
				}
			}
			if rnd.IntN(50) == 0 {
				s.Expect(Expected{base, rnd.Uint64N(1 << 20)}) // another grid
			}
			if rnd.IntN(8) > 0 {
				continue
			}
			if rnd.IntN(4) == 0 {
				s.Frames() // could not be mapped
			}
			for _, m := range s.Frames() {
				for i := range m.Pages {
					page := m.Page + uint64(i)*PageSize
					if f, ok := shows[page]; ok && f != m.Frame+i && slices.ContainsFunc(given, func(g Range) bool { return g.Lo < page && g.Hi > page }) {
						t.Fatalf("page %#x has trampolines and showed frame %d, now %d", page, f, m.Frame+i)
					}
					shows[page] = m.Frame + i
				}
			}
			s.Shown()
			frames := map[int]bool{}
			pages := map[uint64]bool{}
			for _, g := range given {
				for a := g.Lo &^ (PageSize - 1); a < g.Hi; a += PageSize {
					if f, ok := shows[a]; !ok || f != s.Frame(a) {
						t.Fatalf("page %#x is to show frame %d and shows %d, %v", a, s.Frame(a), f, ok)
					}
					pages[a], frames[s.Frame(a)] = true, true
				}
			}
			if len(pages) != s.InUse() || len(frames) != s.FrameCount() {
				t.Fatalf("%d pages in use, %d frames, want %d, %d", s.InUse(), s.FrameCount(), len(pages), len(frames))
			}
			shared = max(shared, len(pages)-len(frames))
			for i, g := range given {
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
		if n := s.total(); n != whole || s.InUse() != 0 || s.FrameCount() != 0 {
			t.Fatalf("round %d: %d bytes of %d are free in the end, %d pages in use", round, n, whole, s.InUse())
		}
		for i, x := range s.slots {
			if x != nil && (x.taken != [chunkSize / 64]uint64{} || x.bytes != [chunkPages]uint16{}) {
				t.Fatalf("round %d: slot %d is not free in the end", round, i)
			}
		}
	}
	if shared < 10 {
		t.Errorf("at most %d pages were in a frame with others", shared)
	}
}

// The two trampolines of an eviction are looked for together. They once lay in different pages and in the same bytes of the frame that both pages showed: one was written over the
// other.
func TestFrameOfTwo(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base, base + 2*chunkSize}})
	s.grid.n = 1
	s.take(base+10, base+20)
	s.take(base+chunkSize+30, base+chunkSize+40)
	if s.FrameCount() != 1 {
		t.Fatalf("%d frames for two pages that show the same", s.FrameCount())
	}
	before := s.total()
	exactly := func(a uint64) want {
		return want{base: base, mask: ^uint32(0), bits: uint32(a - base), lo: base, hi: base + 2*chunkSize}
	}
	const x = base + 100
	for _, c := range []struct {
		at uint64
		ok bool
	}{{x, false}, {x + 19, false}, {x + 20, true}, {x + chunkSize, false}, {x + chunkSize + 19, false}, {x + chunkSize - 20, true}, {x + chunkSize + 20, true}, {base + chunkSize + 10, false}} {
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
	for a := x.Lo; a < x.Hi; {
		n := min(x.Hi, a|(PageSize-1)+1) - a
		for b := y.Lo; b < y.Hi; {
			k := min(y.Hi, b|(PageSize-1)+1) - b
			p, q := a%PageSize, b%PageSize
			if s.Frame(a) == s.Frame(b) && p < q+k && q < p+n {
				return true
			}
			b += k
		}
		a += n
	}
	return false
}
