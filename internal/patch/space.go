package patch

import (
	"fmt"
	"math/bits"
)

// PageSize is the unit in which memory for trampolines is mapped.
const PageSize = 4096

// A Range is the addresses [Lo, Hi).
type Range struct{ Lo, Hi uint64 }

// A Space says which addresses are free for trampolines and which have them. It gives memory in pages that are in use already, where there is a choice.
type Space struct {
	avail   rangeSet           // what nobody else has mapped, in whole pages: free, or with trampolines
	regions map[uint64]*region // by number: those with pages in use
	pages   int                // in use
	near    uint64             // where memory without further wishes was given last
	fresh   []uint64           // pages that have come into use since Frames was called

	frames frames
}

// NewSpace makes a space of ranges in which nothing is mapped. They are cut to whole pages.
func NewSpace(free []Range) *Space {
	s := &Space{regions: map[uint64]*region{}}
	for _, r := range free {
		s.Unmapped(r)
	}
	return s
}

// Unmapped says that a mapping that was not ours has gone. What is taken in it stays taken.
func (s *Space) Unmapped(r Range) {
	r.Lo, r.Hi = (r.Lo+PageSize-1)&^(PageSize-1), r.Hi&^(PageSize-1)
	if r.Lo < r.Hi {
		s.avail.add(r.Lo, r.Hi)
	}
}

// Mapped says that somebody else has mapped a range: nothing is given there from now on. The error says that trampolines lie there.
func (s *Space) Mapped(r Range) error {
	r.Lo, r.Hi = r.Lo&^(PageSize-1), (r.Hi+PageSize-1)&^(PageSize-1)
	if a, ok := s.nextUsed(r.Lo, r.Hi); ok {
		return fmt.Errorf("mapping %#x-%#x lies over trampolines at page %#x: read the process map again", r.Lo, r.Hi, a)
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

// nextMatch gives the least v >= u with v&mask == bits.
func nextMatch(u, mask, bits uint32) (uint32, bool) {
	diff := (u ^ bits) & mask
	if diff == 0 {
		return u, true
	}
	top := uint32(1) << 31
	for diff&top == 0 {
		top >>= 1
	}
	if bits&top == 0 { // u is too big there: a free bit above must grow
		for top <<= 1; ; top <<= 1 {
			if top == 0 {
				return 0, false
			}
			if mask&top == 0 && u&top == 0 {
				break
			}
		}
	}
	return u&^(top<<1-1) | top | bits&(top-1), true
}

// looks is how many pages in use are looked at before a fresh one is begun.
const looks = 64

// find looks for size free bytes at an address that is wanted.
func (s *Space) find(w want, size int) (uint64, bool) {
	if w.mask == 0 {
		from := w
		if from.lo = max(w.lo, s.near); s.near == 0 {
			from.lo = max(w.lo, w.base)
		}
		for _, w := range []*want{&from, &w} {
			a, ok := s.inUse(w, size)
			if !ok {
				a, ok = s.unused(w, size)
			}
			if ok {
				s.near = a
				return a, true
			}
		}
		return s.least(&w, size)
	}
	a, ok := s.available(&w, 0)
	if !ok {
		return 0, false
	}
	w.lo = a
	if w.mask < 0xffffff00 { // otherwise there is hardly a choice of pages
		if a, ok := s.inUse(&w, size); ok {
			return a, true
		}
		if a, ok := s.unused(&w, size); ok {
			return a, true
		}
	}
	return s.least(&w, size)
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

// inPage looks for wanted free bytes that begin in a page in use; if across, they may end behind it.
func (s *Space) inPage(w *want, page uint64, f *frame, size int, across bool) (uint64, bool) {
	if int(f.room) < size && !across {
		return 0, false
	}
	for a, ok := w.next(page); ok && a < page+PageSize; {
		end := min(w.run(a), page+PageSize-1)
		at, found := f.hole(int(a-page), int(end-page), size)
		if found && (at+size <= PageSize || across && s.clear(page+PageSize, at+size-PageSize)) {
			return page + uint64(at), true
		}
		a, ok = w.next(end + 1)
	}
	return 0, false
}

// clear says whether n bytes from a page's first on are free.
func (s *Space) clear(page uint64, n int) bool {
	for ; n > 0; n -= PageSize {
		if f := s.frameAt(page); f != nil {
			if _, ok := f.hole(0, 0, min(n, PageSize)); !ok {
				return false
			}
		} else if r, ok := s.avail.seek(page); !ok || r.Lo > page {
			return false
		}
		page += PageSize
	}
	return true
}

// inUse looks in pages in use, from the first on, but not everywhere.
func (s *Space) inUse(w *want, size int) (uint64, bool) {
	tries := looks
	a, ok := w.next(0)
	for ok && tries > 0 {
		tries--
		r := s.regions[a/regionSize]
		if r == nil { // one that is not there costs little, and many are not
			a, ok = w.next(a&^(regionSize-1) + regionSize)
			continue
		}
		next := a&^(regionSize-1) + regionSize
		for i := r.nextRoomy(int(a % regionSize / PageSize)); i < regionPages && tries > 0; i = r.nextRoomy(i + 1) {
			page := a&^(regionSize-1) + uint64(i)*PageSize
			f := r.list[r.rank(i)].frame
			if f.room < smallHole {
				r.roomy[i/64] &^= 1 << (i % 64)
				continue
			}
			tries--
			if at, found := s.inPage(w, page, f, size, false); found {
				return at, true
			}
		}
		a, ok = w.next(next)
	}
	return 0, false
}

// unused looks for the first page that is not in use in which the bytes may begin.
func (s *Space) unused(w *want, size int) (uint64, bool) {
	a, ok := s.available(w, 0)
	for ok {
		page := a &^ (PageSize - 1)
		if next, used := s.nextUsed(page, page+1); used {
			a, ok = s.available(w, next+PageSize)
			continue
		}
		if over := int(a-page) + size - PageSize; over <= 0 || s.clear(page+PageSize, over) {
			return a, true
		}
		a, ok = s.available(w, min(w.run(a), page+PageSize-1)+1)
	}
	return 0, false
}

// least gives the least address that will do.
func (s *Space) least(w *want, size int) (uint64, bool) {
	a, ok := s.available(w, 0)
	for ok {
		page := a &^ (PageSize - 1)
		if f := s.frameAt(page); f != nil {
			if at, found := s.inPage(w, page, f, size, true); found {
				return at, true
			}
			a, ok = s.available(w, page+PageSize)
			continue
		}
		if over := int(a-page) + size - PageSize; over <= 0 || s.clear(page+PageSize, over) {
			return a, true
		}
		a, ok = s.available(w, a+1)
	}
	return 0, false
}

// apart is find for memory beside [a, a+n), which another one is to get: also where a page of its shows the same frame.
func (s *Space) apart(w want, size int, a uint64, n int) (uint64, bool) {
	s.take(a, a+uint64(n))
	b, ok := s.find(w, size)
	s.give(a, a+uint64(n))
	return b, ok
}
