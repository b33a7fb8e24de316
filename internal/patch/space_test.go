package patch

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// nextMatch gives what trying each number gives, of eight bits spread over the 32.
func TestNextMatch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		mask := rnd.Uint32() & rnd.Uint32() & 0xff
		bits, u := rnd.Uint32()&mask, rnd.Uint32N(256)
		want, ok := uint32(0), false
		for v := u; v < 256 && !ok; v++ {
			if v&mask == bits {
				want, ok = v, true
			}
		}
		for shift := 0; shift <= 24; shift += 24 {
			m, b, x := mask<<shift, bits<<shift, u<<shift
			if shift == 0 { // what lies above must stay as it is
				m |= 0xffffff00
			}
			got, found := nextMatch(x, m, b)
			if found != ok || ok && got != want<<shift {
				t.Fatalf("from %#x, mask %#x, bits %#x: %#x %v, want %#x %v", x, m, b, got, found, want<<shift, ok)
			}
		}
	}
}

// A Space does what a map of bytes does: what it gives is free, as wanted, and given once; it refuses only if there is nothing; what is given back is free again.
func TestSpace(t *testing.T) {
	const pages, base = 12, 1 << 32
	rnd := rand.New(rand.NewPCG(2, 3))
	for round := range 200 {
		free := make([]bool, pages*PageSize)
		var ranges []Range
		for page := range uint64(pages) {
			if rnd.IntN(3) > 0 {
				ranges = append(ranges, Range{base + page*PageSize, base + (page+1)*PageSize})
				for i := range uint64(PageSize) {
					free[page*PageSize+i] = true
				}
			}
		}
		rnd.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		s := NewSpace(ranges)
		set := func(r Range, to bool) {
			for a := r.Lo; a < r.Hi; a++ {
				if free[a-base] == to {
					t.Fatalf("round %d: %#x is twice what it is", round, a)
				}
				free[a-base] = to
			}
		}
		var given []Range
		for range 300 {
			if n := len(given); n > 0 && rnd.IntN(3) == 0 {
				i := rnd.IntN(n)
				s.give(given[i].Lo, given[i].Hi)
				set(given[i], true)
				given = slices.Delete(given, i, i+1)
				continue
			}
			w := want{base: base + rnd.Uint64N(pages*PageSize), lo: base + rnd.Uint64N(PageSize), hi: base + (pages-1)*PageSize + rnd.Uint64N(PageSize)}
			var d [4]byte
			binary.LittleEndian.PutUint32(d[:], uint32(int32(base+rnd.Uint64N(pages*PageSize)-w.base)))
			for i := range d {
				if rnd.IntN(2) == 0 {
					w.mask |= 0xff << (8 * i)
					w.bits |= uint32(d[i]) << (8 * i)
				}
			}
			size := 1 + rnd.IntN(200)
			suits := func(a uint64) bool {
				return a >= w.lo && a <= w.hi && uint32(a-w.base)&w.mask == w.bits && a-base+uint64(size) <= uint64(len(free)) &&
					!slices.Contains(free[a-base:a-base+uint64(size)], false)
			}
			a, ok := s.find(w, size)
			if ok {
				if !suits(a) {
					t.Fatalf("round %d: %#x+%d does not suit %+v", round, a, size, w)
				}
				r := Range{a, a + uint64(size)}
				s.take(r.Lo, r.Hi)
				set(r, false)
				given = append(given, r)
				continue
			}
			for a := w.lo; a < base+pages*PageSize; a++ {
				if suits(a) {
					t.Fatalf("round %d: nothing found for %+v, %d bytes, but %#x is free", round, w, size, a)
				}
			}
		}
		inUse := map[uint64]bool{}
		for _, r := range given {
			for a := r.Lo; a < r.Hi; a++ {
				inUse[a&^(PageSize-1)] = true
			}
		}
		if s.InUse() != len(inUse) || s.FrameCount() != len(inUse) {
			t.Fatalf("round %d: %d pages in use, %d frames, want %d", round, s.InUse(), s.FrameCount(), len(inUse))
		}
		for page := range uint64(pages) {
			a := base + page*PageSize
			if err := s.Mapped(Range{a + 1, a + 2}); (err != nil) != inUse[a] {
				t.Fatalf("round %d: mapping page %#x: %v, in use: %v", round, a, err, inUse[a])
			}
		}
		for _, r := range given {
			s.give(r.Lo, r.Hi)
		}
		if s.InUse() != 0 || s.FrameCount() != 0 {
			t.Fatalf("round %d: %d pages are in use, %d frames, and nothing is given", round, s.InUse(), s.FrameCount())
		}
	}
}

// A page that somebody else maps gives nothing any more, until it is unmapped; unmapping what has trampolines does not free them.
func TestSpaceMapped(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base + 1, base + 4*PageSize}}) // the first page is not whole
	a, ok := s.find(want{base: base, hi: base + 1<<20}, 100)
	if !ok || a < base+PageSize {
		t.Fatalf("%#x %v", a, ok)
	}
	s.take(a, a+100)
	s.Unmapped(Range{base, base + 4*PageSize})
	if err := s.Mapped(Range{base + 2*PageSize, base + 4*PageSize}); err != nil {
		t.Fatal(err)
	}
	if n := s.total(); n != 2*PageSize-100 {
		t.Errorf("%d bytes free", n)
	}
	if b, ok := s.find(want{base: base, lo: base + 2*PageSize, hi: base + 1<<20}, 1); ok {
		t.Errorf("gave %#x, which is mapped", b)
	}
	s.Unmapped(Range{base + 3*PageSize, base + 4*PageSize})
	if b, ok := s.find(want{base: base, lo: base + 2*PageSize, hi: base + 1<<20}, 1); !ok || b != base+3*PageSize {
		t.Errorf("gave %#x %v after it was unmapped", b, ok)
	}
}

// Another thread of the program mapped what had been kept for trampolines, and from then on each jump that may lead anywhere began a chunk of its own: the first chunks of the list
// had no room and were never left out. One module in two processes of pbzip2 had no trampolines for want of memory in their file.
func TestSpaceKeptIsLost(t *testing.T) {
	const base = 1 << 32
	s := NewSpace([]Range{{base, base + 1<<30}})
	s.Expect(Expected{base, 64 * chunkSize})
	w := want{base: base, hi: base + 1<<30}
	find := func() uint64 {
		t.Helper()
		a, ok := s.find(w, 100)
		if !ok {
			t.Fatal("nothing found")
		}
		s.take(a, a+100)
		return a
	}
	first := find()
	if err := s.Mapped(Range{first + 2*PageSize, first + 40*chunkSize}); err != nil {
		t.Fatal(err)
	}
	slots := len(s.slots)
	const n = 10000
	for range n {
		find()
	}
	if more := len(s.slots) - slots; more > 2*n*100/chunkSize {
		t.Errorf("%d more slots for %d trampolines of 100 bytes", more, n)
	}
}

// Of node's 1.8 million sites 1,862 of those that were run stayed as they were for want of memory, of which two thirds were free: half of the addresses that were drawn lay below the first there is, and where none of four did nobody looked but at the
// lowest pages, which were full. Among them were locked instructions, so counts of references ordered nothing, and what they guard was told as races.
func TestSpaceAnywhereLow(t *testing.T) {
	const lowest, full = 1 << 20, 64
	s := NewSpace([]Range{{lowest, 1 << 31}})
	s.Expect(Expected{1 << 40, 2 * 200 * gridFill})                       // another zone's, but slots are all zones'
	for n := uint64(lowest / chunkSize); n < lowest/chunkSize+full; n++ { // what is looked at last
		s.take(n*chunkSize, n*chunkSize+chunkSize)
	}
	for n := uint64(lowest/chunkSize + full); n < 1<<31/chunkSize; n++ { // all are others' that are punned, so no chunk is left for what may lie anywhere
		s.bind(n, s.slotNumber(n))
	}
	for i := range uint64(1000) {
		base := 0x1a0d6cf + 32*i
		a, ok := s.find(want{base: base, hi: base + 1<<31 - 39}, 38)
		if !ok {
			t.Fatalf("the jump number %d that may lead anywhere finds nothing", i)
		}
		s.take(a, a+38)
	}
}

// The first zone that had a trampoline, of libraries, kept all chunks that were expected; where the program lies others began all there are, one by one, and then none was left for what may lie anywhere.
func TestExpectByZone(t *testing.T) {
	const far = 1 << 40
	s := NewSpace([]Range{{1 << 20, 1 << 31}, {far, far + 1<<31}})
	s.Expect(Expected{far, 10 * chunkSize}, Expected{1 << 22, 500 * chunkSize})
	for _, base := range []uint64{far, 1 << 22} {
		a, ok := s.find(want{base: base, hi: base + 1<<31 - 101}, 100)
		if !ok {
			t.Fatalf("nothing found for %#x", base)
		}
		s.take(a, a+100)
	}
	for zone, want := range map[uint64]int{far / denseZone: 10, 0: 500} {
		if got := len(s.dense[zone].chunks); got != want {
			t.Errorf("zone %d keeps %d chunks, not %d", zone, got, want)
		}
	}
}
