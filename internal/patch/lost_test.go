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
		s.Expect(Expected{base, 1000 * 60})
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

// What was expected of one module and was not needed was expected of the next one, too: in the end a zone that got its first trampoline kept hundreds of chunks, each with memory of its own.
func TestExpect(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base, base + 1<<34}})
	place := func(base uint64) Range {
		a, ok := s.find(want{base: base, hi: base + 1<<31}, 60)
		if !ok {
			t.Fatal("nothing found")
		}
		s.take(a, a+60)
		return Range{a, a + 60}
	}
	for range 100 {
		s.Expect(Expected{base, 1000 * 60})
		r := place(base)
		s.give(r.Lo, r.Hi)
	}
	slots := len(s.slots)
	if place(base + 1<<33); len(s.slots)-slots > 2 {
		t.Errorf("%d slots for one trampoline", len(s.slots)-slots)
	}
}

// What has no trampolines any more is idle by whole groups of chunks, and told of again when some come; frames are vacant when nothing lies there at any address, and not when what lay there is lost.
func TestIdle(t *testing.T) {
	const base = 1 << 32
	for name, back := range map[string]func(s *Space, lo, hi uint64){"given": (*Space).give, "lost": (*Space).lose} {
		s := NewSpace([]Range{{base, base + 1<<31}})
		shown, idle := rangeSet{}, uint64(0)
		show := func() {
			for _, m := range s.Frames() {
				lo, hi := m.Page, m.Page+uint64(m.Pages)*PageSize
				shown.remove(lo, hi)
				shown.add(lo, hi)
			}
			s.Shown()
		}
		rnd := rand.New(rand.NewPCG(1, 1))
		lives := map[Range]bool{}
		for range 4000 {
			switch {
			case rnd.IntN(2) == 0 && len(lives) < 200:
				w := want{base: base, hi: base + 1<<31, mask: 0xffff0000, bits: uint32(rnd.IntN(0x7fff)) << 16}
				if rnd.IntN(2) == 0 {
					w.mask, w.bits = 0, 0
				}
				if a, ok := s.find(w, 60); ok {
					s.take(a, a+60)
					lives[Range{a, a + 60}] = true
				}
				show()
			default:
				for r := range lives {
					back(s, r.Lo, r.Hi)
					delete(lives, r)
					break
				}
			}
			if rnd.IntN(8) > 0 {
				continue
			}
			for _, r := range s.Idle() {
				if x, ok := shown.seek(r.Lo); !ok || x.Lo > r.Lo || x.Hi < r.Hi {
					t.Fatalf("%s: %x was never shown", name, r)
				}
				shown.remove(r.Lo, r.Hi)
				s.Hidden(r)
				idle += r.Hi - r.Lo
			}
			for r := range lives {
				if x, ok := shown.seek(r.Lo); !ok || x.Lo > r.Lo || x.Hi < r.Hi {
					t.Fatalf("%s: a trampoline lies at %x, where nothing is shown", name, r)
				}
			}
			for _, v := range s.Vacant() {
				for f := v.First; f < v.First+v.Frames; f++ {
					if s.slots[f/chunkPages].bytes[f%chunkPages] > 0 {
						t.Fatalf("%s: frame %d is not vacant", name, f)
					}
				}
				if name == "lost" {
					t.Fatalf("frame %d may be a child's", v.First)
				}
			}
		}
		for r := range lives {
			back(s, r.Lo, r.Hi)
		}
		for _, r := range s.Idle() {
			s.Hidden(r)
		}
		if left := s.Idle(); len(left) > 0 || s.Areas() > 0 || idle == 0 || s.FrameCount() > 0 || s.InUse() > 0 {
			t.Errorf("%s: %x idle, %d areas, %d frames, %d pages; %d bytes were idle before", name, left, s.Areas(), s.FrameCount(), s.InUse(), idle)
		}
	}
}
