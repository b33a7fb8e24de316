package patch

import (
	"iter"
	"maps"
	"math/bits"
	"slices"
)

// Addresses get memory by chunks.
const (
	chunkSize  = 64 << 10
	chunkPages = chunkSize / PageSize
)

// A chunk is so many addresses and the memory that they show.
type chunk struct {
	slot  int    // of the file
	bound bool   // it keeps the slot, whether or not it has trampolines
	dense bool   // nobody else shows it
	shown uint16 // a bit for each page that Shown was told of
	taken int
	lost  int                // bytes of the slot that nobody gets again, if it is dense
	bytes [chunkPages]uint16 // of trampolines, by page
}

// A slot is memory for a chunk: a piece of the file that several may show. What lies in it is taken in all of them.
type slot struct {
	taken [chunkSize / 64]uint64
	bytes [chunkPages]uint16
	lost  [chunkPages]uint16 // of those bytes, what nobody gets again
	room  [chunkPages]uint16 // no hole that begins in the page is larger
}

// A grid says which slot a chunk shows: they take turns.
type grid struct {
	first, n       int
	bytes, planned uint64 // of trampolines: what there are, and for how many it was made
}

const (
	leastSlots = 15
	// gridFill is how full of trampolines slots get that several chunks show. The fuller the fewer places has a jump with little choice.
	gridFill = chunkSize * 2 / 5
	// gridShare is the part of all trampolines that lie there: 1/gridShare.
	gridShare = 2
)

// An Expected is how many bytes of trampolines code at an address is going to have, more or less.
type Expected struct{ At, Bytes uint64 }

// Expect says what is going to be planned; what was expected before, and did not come, does not count any more. It costs nothing if there is less. What was planned before and has been given back is planned
// again at the same addresses, so that a module that comes and goes needs no more areas each time.
func (s *Space) Expect(list ...Expected) {
	s.turn = 0
	clear(s.expected)
	bytes := uint64(0)
	for _, e := range list {
		s.expected[e.At/denseZone] += int(e.Bytes)
		bytes += e.Bytes
	}
	if bytes /= gridShare; s.grid.bytes+bytes > s.grid.planned {
		s.newGrid(bytes)
	}
}

// newGrid makes a grid for those chunks that have no trampolines yet.
func (s *Space) newGrid(bytes uint64) {
	n := max(leastSlots, int(bytes/gridFill)) | 1 // odd: the distances of jumps have powers of two in them
	s.grid = grid{first: len(s.slots), n: n, planned: uint64(n) * gridFill}
	s.slots = append(s.slots, make([]*slot, n)...)
}

func newSlot() *slot {
	t := &slot{}
	t.forget()
	return t
}

// forget makes room in all pages possible.
func (t *slot) forget() {
	for i := range t.room {
		t.room[i] = ^uint16(0)
	}
}

// slotNumber gives the slot that a chunk shows, or would show.
func (s *Space) slotNumber(n uint64) int {
	if c := s.chunk(n); c != nil && (c.taken > 0 || c.bound) {
		return c.slot
	}
	return s.grid.first + int(n%uint64(s.grid.n))
}

// Chunks are found by number, a few times for each address that the search looks at: so those of a region lie in a table, and the regions that were looked at last are at hand.
type chunks struct {
	regions map[uint64]*region // by number / regionChunks
	recent  [16]struct {
		n uint64 // number + 1; 0: none
		r *region
	}
}

const regionChunks = 4096

// A region is the chunks of 256 MiB; nil: nothing is known of it.
type region [regionChunks]*chunk

func (s *chunks) region(n uint64) *region {
	e := &s.recent[n%uint64(len(s.recent))]
	if e.n != n+1 {
		e.n, e.r = n+1, s.regions[n]
	}
	return e.r
}

// set makes a chunk known.
func (s *chunks) set(n uint64, c *chunk) {
	r := s.region(n / regionChunks)
	if r == nil {
		r = &region{}
		s.regions[n/regionChunks] = r
		s.recent[n/regionChunks%uint64(len(s.recent))].r = r
	}
	r[n%regionChunks] = c
}

// within gives the chunks that are known with numbers in [lo, hi), in order.
func (s *chunks) within(lo, hi uint64) iter.Seq2[uint64, *chunk] {
	return func(yield func(uint64, *chunk) bool) {
		for _, k := range slices.Sorted(maps.Keys(s.regions)) {
			for n := max(lo, k*regionChunks); n < min(hi, (k+1)*regionChunks); n++ {
				if c := s.regions[k][n%regionChunks]; c != nil && !yield(n, c) {
					return
				}
			}
		}
	}
}

// chunk gives a chunk by its number, nil if nothing is known of it.
func (s *Space) chunk(n uint64) *chunk {
	if r := s.chunks.region(n / regionChunks); r != nil {
		return r[n%regionChunks]
	}
	return nil
}

// bind has a chunk show a slot from now on. It must have no trampolines.
func (s *Space) bind(n uint64, k int) *chunk {
	c := s.chunk(n)
	if c == nil {
		c = &chunk{}
		s.chunks.set(n, c)
	} else if c.slot != k {
		c.shown, c.lost = 0, 0
	}
	c.slot, c.bound = k, true
	return c
}

// slotOf is nil if nothing was ever taken there.
func (s *Space) slotOf(n uint64) *slot { return s.slots[s.slotNumber(n)] }

// set takes bytes that are free, or frees them.
func (t *slot) set(lo, hi uint64, taken bool) {
	for i := lo; i < hi; {
		n := min(64-i%64, hi-i)
		mask := (uint64(1)<<n - 1) << (i % 64)
		switch w := &t.taken[i/64]; {
		case taken && *w&mask == 0, !taken && *w&mask == mask:
			*w ^= mask
		default:
			panic("BUG: patch: memory is given twice, or given back twice")
		}
		i += n
	}
}

// hole looks for the first place in [lo, hi], which are in one page, from which size bytes are free, or all to the end.
func (t *slot) hole(lo, hi uint64, size int) (at uint64, ok bool) {
	if t == nil {
		return lo, lo <= hi
	}
	page := lo / PageSize
	if lo > hi || int(t.room[page]) < size {
		return 0, false
	}
	for at = nextClear(t.taken[:], lo, hi+1); at <= hi; {
		end := nextSet(t.taken[:], at, at+uint64(size))
		if end-at >= uint64(size) || end == chunkSize {
			return at, true
		}
		at = nextClear(t.taken[:], end, hi+1)
	}
	if lo%PageSize == 0 && hi%PageSize == PageSize-1 {
		t.room[page] = uint16(min(int(t.room[page]), size-1))
	}
	return 0, false
}

// nextSet gives the first bit in [i, end) that is set, or end, or how many there are.
func nextSet(set []uint64, i, end uint64) uint64 {
	for end = min(end, uint64(64*len(set))); i < end; i = (i | 63) + 1 {
		if w := set[i/64] >> (i % 64); w != 0 {
			return min(i+uint64(bits.TrailingZeros64(w)), end)
		}
	}
	return end
}

// nextClear gives the first bit in [i, end) that is clear, or end or a later one; end is at most how many there are.
func nextClear(set []uint64, i, end uint64) uint64 {
	for ; i < end; i = (i | 63) + 1 {
		if w := ^set[i/64] >> (i % 64); w != 0 {
			return i + uint64(bits.TrailingZeros64(w))
		}
	}
	return i
}

// pieces cuts [lo, hi) at the ends of pages: for each its chunk, the page there, and the bytes in the chunk.
func pieces(lo, hi uint64, f func(n uint64, page int, from, to uint64)) {
	for lo < hi {
		end := min(hi, lo|(PageSize-1)+1)
		from := lo % chunkSize
		f(lo/chunkSize, int(from/PageSize), from, from+end-lo)
		lo = end
	}
}

// mark takes bytes, or frees them, of what the addresses show or would show.
func (s *Space) mark(lo, hi uint64, taken bool) {
	pieces(lo, hi, func(n uint64, _ int, from, to uint64) {
		k := s.slotNumber(n)
		if s.slots[k] == nil {
			s.slots[k] = newSlot()
		}
		s.slots[k].set(from, to, taken)
	})
}

// take takes [lo, hi), which find gave.
func (s *Space) take(lo, hi uint64) {
	s.mark(lo, hi, true)
	pieces(lo, hi, func(n uint64, page int, from, to uint64) {
		k, bytes := s.slotNumber(n), uint16(to-from)
		c := s.bind(n, k)
		t := s.slots[k]
		if c.bytes[page] == 0 {
			s.pages++
		}
		if t.bytes[page] == t.lost[page] {
			s.frames++
		}
		c.bytes[page] += bytes
		t.bytes[page] += bytes
		c.taken += int(bytes)
		if c.shown>>page&1 == 0 {
			s.fresh[n] = true
		}
		if !c.dense && k >= s.grid.first {
			s.grid.bytes += uint64(bytes)
		}
	})
	if g := &s.grid; g.bytes > g.planned {
		s.newGrid(2 * g.planned)
	}
}

// give gives [lo, hi) back.
func (s *Space) give(lo, hi uint64) {
	s.mark(lo, hi, false)
	pieces(lo, hi, func(n uint64, page int, from, to uint64) {
		c, bytes := s.chunk(n), uint16(to-from)
		if c == nil || c.bytes[page] < bytes {
			panic("BUG: patch: memory given back twice")
		}
		t := s.slots[c.slot]
		t.forget()
		c.bytes[page] -= bytes
		t.bytes[page] -= bytes
		if c.taken -= int(bytes); c.taken == 0 {
			c.bound, s.none = c.dense, nil
			s.emptied[n/shownTogether] = true
		}
		if c.bytes[page] == 0 {
			s.pages--
		}
		if t.bytes[page] == t.lost[page] {
			s.frames--
			s.vacated[c.slot*chunkPages+page] = true
		}
		if !c.dense && c.slot >= s.grid.first && s.grid.bytes >= uint64(bytes) {
			s.grid.bytes -= uint64(bytes)
		}
	})
}

// lose gives the addresses [lo, hi) back, but not the memory that they show: another process that shows it, too, may be there. A chunk of which nothing is left shows another slot
// when trampolines come to lie there again.
func (s *Space) lose(lo, hi uint64) {
	pieces(lo, hi, func(n uint64, page int, from, to uint64) {
		c, bytes := s.chunk(n), uint16(to-from)
		if c == nil || c.bytes[page] < bytes {
			panic("BUG: patch: memory given back twice")
		}
		c.bytes[page] -= bytes
		if c.bytes[page] == 0 {
			s.pages--
		}
		t := s.slots[c.slot]
		if t.lost[page] += bytes; t.lost[page] == t.bytes[page] {
			s.frames--
		}
		if c.dense {
			c.lost += int(bytes)
		}
		if c.taken -= int(bytes); c.taken == 0 {
			if c.dense {
				for _, d := range s.dense {
					d.chunks = slices.DeleteFunc(d.chunks, func(k uint64) bool { return k == n })
				}
			}
			c.bound, c.dense, s.none = false, false, nil
			s.emptied[n/shownTogether] = true
		}
	})
	s.lost += hi - lo
}

// Lost gives how many bytes of memory were lost, and how many frames the file would have, about, with trampolines of so many bytes more.
func (s *Space) Lost(more uint64) (bytes, frames uint64) {
	return s.lost, (uint64(len(s.slots)) + leastSlots + 2*more/gridFill + 1) * chunkPages
}

// InUse gives the number of pages with trampolines.
func (s *Space) InUse() int { return s.pages }
