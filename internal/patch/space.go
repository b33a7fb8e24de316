package patch

import (
	"fmt"
	"math/bits"
	"slices"
)

// PageSize is the unit in which memory for trampolines is mapped.
const PageSize = 4096

// A Range is the addresses [Lo, Hi).
type Range struct{ Lo, Hi uint64 }

// A Space says which addresses are free for trampolines and which have them, and what memory they show there (frame.go).
//
// Most jumps may lead anywhere, and their trampolines lie one behind the other in chunks of their own. The others, which are punned, lie where the program's bytes say, spread over all
// addresses within reach.
type Space struct {
	avail    rangeSet // what nobody else has mapped, in whole pages: free, or with trampolines
	chunks   chunks   // those that have trampolines, or had, or whose memory Frames has told of
	slots    []*slot  // nil: nothing was ever taken there
	grid     grid
	dense    map[uint64]*dense // by zone of the jump
	expected map[uint64]int    // by zone: bytes of trampolines that are to lie in more of them
	none     map[uint64]bool   // chunks from which no other is in reach
	fresh    map[uint64]bool   // chunks with trampolines in pages that Frames has not told of
	told     []Mapping         // by Frames
	emptied  map[uint64]bool   // groups of chunks of which one has lost its last trampoline
	vacated  map[int]bool      // frames that have
	pages    int               // with trampolines
	frames   int               // likewise
	lost     uint64            // bytes
	turn     uint64
}

// denseZone is so small that what one jump reaches another one most likely reaches, too.
const denseZone = 1 << 30

// A dense is chunks for what may lie anywhere within reach of a zone: those that are not full. What is emptied another one finds again.
type dense struct{ chunks []uint64 }

// NewSpace makes a space of ranges in which nothing is mapped. They are cut to whole pages.
func NewSpace(free []Range) *Space {
	s := &Space{chunks: chunks{regions: map[uint64]*region{}}, fresh: map[uint64]bool{}, emptied: map[uint64]bool{}, vacated: map[int]bool{}, dense: map[uint64]*dense{}, expected: map[uint64]int{}}
	s.newGrid(0)
	for _, r := range free {
		s.Unmapped(r)
	}
	return s
}

// Unmapped says that a mapping that was not ours has gone. What is taken in it stays taken.
func (s *Space) Unmapped(r Range) {
	r.Lo, r.Hi = (r.Lo+PageSize-1)&^(PageSize-1), r.Hi&^(PageSize-1)
	if r.Lo < r.Hi {
		s.none = nil
		s.avail.add(r.Lo, r.Hi)
	}
}

// Mapped says that somebody else has mapped a range: nothing is given there from now on. The error says that trampolines lie there.
func (s *Space) Mapped(r Range) error {
	r.Lo, r.Hi = r.Lo&^(PageSize-1), (r.Hi+PageSize-1)&^(PageSize-1)
	for n, c := range s.chunks.within(r.Lo/chunkSize, (r.Hi+chunkSize-1)/chunkSize) {
		if c.taken == 0 {
			continue
		}
		for i, bytes := range c.bytes {
			if a := n*chunkSize + uint64(i)*PageSize; bytes > 0 && a >= r.Lo && a < r.Hi {
				return fmt.Errorf("mapping %#x-%#x lies over trampolines at page %#x: read the process map again", r.Lo, r.Hi, a)
			}
		}
	}
	s.avail.remove(r.Lo, r.Hi)
	return nil
}

// A want is what a jump asks of its trampoline's address: that the distance from base has certain bits, and that it is in [lo, hi].
type want struct {
	base       uint64
	mask, bits uint32
	lo, hi     uint64
}

// next gives the least address at or above a that is wanted.
func (w *want) next(a uint64) (uint64, bool) {
	low := w.base - 1<<31
	if w.base < 1<<31 {
		low = 0
	}
	a = max(a, w.lo, low)
	if a > w.hi || a >= w.base+1<<31 {
		return 0, false
	}
	u, ok := nextMatch(uint32(a-w.base)^1<<31, w.mask, w.bits^w.mask&(1<<31))
	if !ok {
		return 0, false
	}
	a = w.base + uint64(int64(int32(u^1<<31)))
	return a, a <= w.hi
}

// nextMatch gives the least v >= u with v&mask == low, which has no other bits.
func nextMatch(u, mask, low uint32) (uint32, bool) {
	diff := (u ^ low) & mask
	if diff == 0 {
		return u, true
	}
	below := uint32(1)<<(bits.Len32(diff)-1) - 1 // what lies below the highest bit that differs
	if low&(below+1) == 0 {                      // u is too big there: a free bit above must grow
		free := ^(mask | u) &^ (below<<1 | 1)
		if free == 0 {
			return 0, false
		}
		grown := free & -free
		return u&^(grown<<1-1) | grown | low&(grown-1), true
	}
	return u&^(below<<1|1) | low&(below<<1|1), true
}

// Bounds of the search.
const (
	fullPage   = PageSize * 5 / 8 // from where on a frame is left to those that have no choice of pages
	pageLooks  = 64               // how many others are looked at for those that have
	anyTries   = 8                // how often others are looked for where a jump may lead anywhere
	openDense  = 8                // chunks that are looked at for what may lie anywhere
	smallCode  = 64               // bytes of a trampoline: where it finds no room nearly none does
	leastLooks = 1024             // at most, when none of those has room
	slotLooks  = 12               // slots that are looked at for a chunk that has no trampolines yet, where a jump has but a few places
)

// find looks for size free bytes at an address that is wanted.
func (s *Space) find(w want, size int) (uint64, bool) {
	if w.mask == 0 {
		if a, ok := s.anywhere(&w, size); ok {
			return a, true
		}
	}
	first, ok := s.available(&w, 0)
	if !ok {
		return 0, false
	}
	tries := 1
	if w.mask == 0 {
		tries = anyTries
	}
	for range tries {
		if a, ok := s.chance(&w); ok {
			if a, ok := s.spread(&w, size, a); ok {
				return a, true
			}
		}
	}
	if a, ok := s.least(&w, size, first); ok {
		return a, true
	}
	return s.elsewhere(&w, size, first)
}

// anywhere looks in the chunks that are for it, and makes another one.
func (s *Space) anywhere(w *want, size int) (uint64, bool) {
	d := s.dense[w.base/denseZone]
	if d == nil {
		d = &dense{}
		s.dense[w.base/denseZone] = d
	}
	for i, looks := 0, 0; i < len(d.chunks) && looks < openDense; i++ {
		at := d.chunks[i] * chunkSize
		c := s.chunk(d.chunks[i])
		reached := false
		for a, ok := w.next(at); ok && a < at+chunkSize; a, ok = w.next(a&^(PageSize-1) + PageSize) {
			reached = true
			end := min(w.run(a), a|(PageSize-1), at+chunkSize-uint64(size))
			if got, ok := s.slots[c.slot].hole(a-at, end-at, size); ok && s.whole(at+got, size) {
				return at + got, true
			}
		}
		used := c.taken + c.lost
		full := used > chunkSize-PageSize && (size <= smallCode || used > chunkSize-PageSize/4)
		switch {
		case reached && (full || !s.whole(at, chunkSize)): // somebody else may have mapped something there
			d.chunks = slices.Delete(d.chunks, i, i+1)
			i--
		case reached:
			looks++
		}
	}
	return s.another(w)
}

// another begins another chunk of those.
func (s *Space) another(w *want) (uint64, bool) {
	if s.none[w.base/chunkSize] {
		return 0, false
	}
	// Further down only what the whole zone reaches, if there is such: the next jump wants some, too.
	end := (w.base/denseZone + 1) * denseZone
	for _, from := range []uint64{w.base, end - min(1<<31, end), 0} {
		for a, ok := s.available(w, from); ok; a, ok = s.available(w, a) {
			if a = (a + chunkSize - 1) &^ (chunkSize - 1); a > w.run(a) || !s.whole(a, chunkSize) {
				a += PageSize
				continue
			}
			if c := s.chunk(a / chunkSize); c == nil || c.taken == 0 && (!c.bound || c.dense) {
				s.keep(w.base/denseZone, a/chunkSize)
				return a, a <= w.hi
			}
			a += chunkSize
		}
	}
	if s.none == nil {
		s.none = map[uint64]bool{}
	}
	s.none[w.base/chunkSize] = true
	return 0, false
}

// keep has as many chunks from one on as the zone expects for what may lie anywhere: later, jumps with less choice would have begun all of them.
func (s *Space) keep(zone, at uint64) {
	d, n := s.dense[zone], max(1, s.expected[zone]/chunkSize)
	for k := at; n > 0 && k < at+1<<15 && s.whole(k*chunkSize, chunkSize); k++ {
		c := s.chunk(k)
		if c != nil && c.bound && !c.dense {
			continue
		}
		if c == nil || !c.dense {
			s.slots = append(s.slots, nil)
			s.bind(k, len(s.slots)-1).dense = true
		}
		d.chunks = append(d.chunks, k)
		s.expected[zone] = max(0, s.expected[zone]-chunkSize)
		n--
	}
}

// whole says whether nobody else has mapped anything there.
func (s *Space) whole(a uint64, size int) bool {
	r, ok := s.avail.seek(a)
	return ok && r.Lo <= a && a+uint64(size) <= r.Hi
}

// run gives the last address up to which all are wanted from a, which is.
func (w *want) run(a uint64) uint64 {
	if w.mask == 0 {
		return min(w.base+1<<31-1, w.hi)
	}
	return min(w.base+((a-w.base)|(1<<bits.TrailingZeros32(w.mask)-1)), w.hi)
}

// available gives the first wanted address at or above a that nobody else has mapped.
func (s *Space) available(w *want, a uint64) (uint64, bool) {
	a, ok := w.next(a)
	for ok {
		r, found := s.avail.seek(a)
		if !found {
			return 0, false
		}
		if a >= r.Lo {
			return a, true
		}
		a, ok = w.next(r.Lo)
	}
	return 0, false
}

// inPage looks for wanted free bytes that begin in [a, end] of one page.
func (s *Space) inPage(a, end uint64, size int) (uint64, bool) {
	at := a &^ (chunkSize - 1)
	t := s.slotOf(a / chunkSize)
	got, ok := t.hole(a-at, end-at, size)
	for ok {
		over := int(got) + size - chunkSize
		if inside := min(size, chunkSize-int(got)); s.whole(at+got, inside) && (over <= 0 || s.clear(at+chunkSize, over)) {
			return at + got, true
		}
		if got++; got > end-at {
			break
		}
		got, ok = t.hole(got, end-at, size)
	}
	return 0, false
}

// clear says whether n bytes from a chunk's first on are free.
func (s *Space) clear(at uint64, n int) bool {
	for ; n > 0; at, n = at+chunkSize, n-chunkSize {
		k := min(n, chunkSize)
		if got, ok := s.slotOf(at/chunkSize).hole(0, 0, k); !ok || got != 0 || !s.whole(at, k) {
			return false
		}
	}
	return true
}

// chance gives a page from which on to look, another one each time, where there are some to choose from: so all memory gets equally full.
func (s *Space) chance(w *want) (uint64, bool) {
	if w.mask|(PageSize-1) == ^uint32(0) {
		return 0, false
	}
	for range 4 {
		s.turn += 0x9e3779b97f4a7c15
		d := uint32(s.turn>>32)&^w.mask | w.bits
		if a := w.base + uint64(int64(int32(d))); a >= w.lo && a <= w.hi {
			return a &^ (PageSize - 1), true
		}
	}
	// Half of all distances lead out of the address space where code is near its beginning, and more where it is near the end of what is wanted.
	lo, hi := w.lo, min(w.hi, w.base+1<<31-1)
	if w.base > 1<<31 {
		lo = max(lo, w.base-1<<31)
	}
	if lo > hi {
		return 0, false
	}
	s.turn += 0x9e3779b97f4a7c15
	part, _ := bits.Mul64(s.turn, hi-lo+1)
	return (lo + part) &^ (PageSize - 1), true
}

// spread looks in pages that are not full, from an address on.
func (s *Space) spread(w *want, size int, from uint64) (uint64, bool) {
	a, ok := s.available(w, from)
	for tries := 0; ok && tries < pageLooks; tries++ {
		end := min(w.run(a), a|(PageSize-1))
		if t := s.slotOf(a / chunkSize); t == nil || t.bytes[a%chunkSize/PageSize] < fullPage {
			if at, ok := s.inPage(a, end, size); ok {
				return at, true
			}
		}
		a, ok = s.available(w, end+1)
	}
	return 0, false
}

// least gives the least address from a on that will do, if it is not far.
func (s *Space) least(w *want, size int, a uint64) (uint64, bool) {
	ok := true
	for looks := 0; ok && looks < leastLooks; looks++ {
		end := min(w.run(a), a|(PageSize-1))
		if at, found := s.inPage(a, end, size); found {
			return at, true
		}
		a, ok = s.available(w, end+1)
	}
	return 0, false
}

// elsewhere looks at the only page that is wanted with other memory than it would show.
func (s *Space) elsewhere(w *want, size int, a uint64) (uint64, bool) {
	n := a / chunkSize
	end := w.run(a)
	if c := s.chunk(n); end&^(PageSize-1) != a&^(PageSize-1) || c != nil && (c.taken > 0 || c.bound) {
		return 0, false
	}
	if _, more := s.available(w, end+1); more {
		return 0, false
	}
	for k := 1; k < min(slotLooks, s.grid.n); k++ {
		i := s.grid.first + int((n+uint64(k))%uint64(s.grid.n))
		if at, ok := s.slots[i].hole(a%chunkSize, end%chunkSize, size); ok && int(at)+size <= chunkSize && s.whole(n*chunkSize+at, size) {
			s.bind(n, i)
			return n*chunkSize + at, true
		}
	}
	return 0, false
}

// apart is find for memory beside [a, a+n), which another one is to get: also where a page of its shows the same frame.
func (s *Space) apart(w want, size int, a uint64, n int) (uint64, bool) {
	pieces(a, a+uint64(n), func(n uint64, _ int, _, _ uint64) { s.bind(n, s.slotNumber(n)) })
	s.mark(a, a+uint64(n), true)
	var rooms [3][chunkPages]uint16 // in their slots: what is learnt of them meanwhile is not so afterwards
	first, last := a/chunkSize, (a+uint64(n)-1)/chunkSize
	for k := first; k <= last; k++ {
		rooms[k-first] = s.slotOf(k).room
	}
	b, ok := s.find(w, size)
	s.mark(a, a+uint64(n), false)
	for k := first; k <= last; k++ {
		s.slotOf(k).room = rooms[k-first]
	}
	return b, ok
}
