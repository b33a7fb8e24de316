package patch

import (
	"math/rand/v2"
	"testing"
)

// comesAndGoes plans trampolines as of one module, again and again; back is called for each at the module's end. It gives the areas after each round.
func comesAndGoes(t *testing.T, s *Space, base uint64, back func(r Range), told func(r Range)) (areas []int) {
	t.Helper()
	for round := range 40 {
		rnd := rand.New(rand.NewPCG(7, 7)) // the same module
		s.Expect(1000 * 60)
		var given []Range
		for i := range uint64(1000) {
			w := want{base: base + 10*i, hi: base + 1<<31}
			if i%2 == 0 {
				w.mask, w.bits = 0xff000000, uint32(rnd.IntN(128))<<24
			}
			a, ok := s.find(w, 60)
			if !ok {
				t.Fatalf("round %d: nothing found for %+v", round, w)
			}
			s.take(a, a+60)
			given = append(given, Range{a, a + 60})
		}
		s.Frames()
		s.Shown()
		for _, r := range given {
			told(r)
		}
		for _, r := range given {
			back(r)
		}
		areas = append(areas, s.Areas())
	}
	return areas
}

// After a fork what a module had was kept for good, addresses too: a program that loaded a library for the 27th time waited 20 seconds for a planner that looked through full memory. Now only
// the bytes of the file are kept, which a child may run: nobody gets them again, the addresses are free, and what lives beside them shows what it showed.
func TestLost(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base, base + 1<<31}})
	lives, ok := s.find(want{base: base, hi: base + 1<<31}, 60)
	if !ok {
		t.Fatal("nothing found")
	}
	s.take(lives, lives+60)
	s.Frames()
	s.Shown()
	frame := s.Frame(lives &^ (PageSize - 1))
	gone := make([]bool, 64<<20)
	comesAndGoes(t, s, base, func(r Range) { s.lose(r.Lo, r.Hi) }, func(r Range) {
		for a := r.Lo; a < r.Hi; a++ {
			at := uint64(s.Frame(a&^(PageSize-1)))*PageSize + a%PageSize
			if gone[at] {
				t.Fatalf("byte %#x of the file is used again, at %#x", at, a)
			}
			gone[at] = true
		}
	})
	if f := s.Frame(lives &^ (PageSize - 1)); f != frame || s.InUse() != 1 {
		t.Errorf("frame %d in place of %d, %d pages in use", f, frame, s.InUse())
	}
	lost, frames := s.Lost(0)
	if lost != 40*1000*60 || frames > 16*lost/PageSize {
		t.Errorf("%d bytes lost, %d frames", lost, frames)
	}
	for zone, d := range s.dense {
		if len(d.chunks) > 2*openDense {
			t.Errorf("zone %#x: %d chunks are looked at", zone, len(d.chunks))
		}
	}
}

// A library that was loaded again and again lay elsewhere each time, until the process had half of the areas of memory that it may have.
func TestAreasStay(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base, base + 1<<31}})
	areas := comesAndGoes(t, s, base, func(r Range) { s.give(r.Lo, r.Hi) }, func(Range) {})
	if last := areas[len(areas)-1]; last > areas[2]+areas[2]/8 {
		t.Errorf("areas by round: %v", areas)
	}
}
