package patch

import (
	"fmt"
	"slices"
)

// PageSize is the unit in which memory for trampolines is mapped.
const PageSize = 4096

// A Range is the addresses [Lo, Hi).
type Range struct{ Lo, Hi uint64 }

// A Space says which addresses are free for trampolines and which have them. It gives memory in pages that are in use already, where there is a choice.
type Space struct {
	free rangeSet // all that is free
	part rangeSet // of it, what lies in pages in use and is worth looking at
	used map[uint64]int
	near uint64 // where memory without further wishes was given last

	frames frames
}

// smallHole is the least that is looked at in pages in use.
const smallHole = 24

// NewSpace makes a space of ranges in which nothing is mapped. They are cut to whole pages.
func NewSpace(free []Range) *Space {
	s := &Space{used: map[uint64]int{}}
	for _, r := range free {
		s.Unmapped(r)
	}
	return s
}

// Unmapped says that a mapping that was not ours has gone.
func (s *Space) Unmapped(r Range) {
	r.Lo, r.Hi = (r.Lo+PageSize-1)&^(PageSize-1), r.Hi&^(PageSize-1)
	if r.Lo >= r.Hi {
		return
	}
	for a := r.Lo; a < r.Hi; {
		// what is taken in it stays taken
		next := r.Hi
		if len(s.used) > 0 {
			if s.used[a] > 0 {
				a += PageSize
				continue
			}
			next = s.nextUsed(a, r.Hi)
		}
		s.free.add(a, next)
		a = next
	}
}

func (s *Space) nextUsed(a, hi uint64) uint64 {
	least := hi
	for page, n := range s.used {
		if n > 0 && page >= a && page < least {
			least = page
		}
	}
	return least
}

// Mapped says that somebody else has mapped a range: nothing is given there from now on. The error says that trampolines lie there.
func (s *Space) Mapped(r Range) error {
	r.Lo, r.Hi = r.Lo&^(PageSize-1), (r.Hi+PageSize-1)&^(PageSize-1)
	if a := s.nextUsed(r.Lo, r.Hi); a < r.Hi {
		return fmt.Errorf("mapping %#x-%#x lies over trampolines at page %#x: read the process map again", r.Lo, r.Hi, a)
	}
	s.free.remove(r.Lo, r.Hi)
	s.part.remove(r.Lo, r.Hi)
	return nil
}

// Pages gives the addresses of the pages in use, in order.
func (s *Space) Pages() []uint64 {
	pages := make([]uint64, 0, len(s.used))
	for page := range s.used {
		pages = append(pages, page)
	}
	slices.Sort(pages)
	return pages
}

// A want is what a jump asks of its trampoline's address: that the distance from base has certain bits, and that it is in [lo, hi].
type want struct {
	base       uint64
	mask, bits uint32
	lo, hi     uint64
}

// anywhere is a want without fixed bits.
func (w *want) anywhere() bool { return w.mask == 0 }

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

// find looks for size free bytes at an address that is wanted.
func (s *Space) find(w want, size int) (uint64, bool) {
	if w.anywhere() {
		from := w
		if from.lo = max(w.lo, s.near); s.near == 0 {
			from.lo = max(w.lo, w.base)
		}
		for _, w := range []want{from, w} {
			for _, set := range []*rangeSet{&s.part, &s.free} {
				if a, ok := set.find(&w, uint64(size), 1<<6); ok {
					s.near = a
					return a, true
				}
			}
		}
	}
	if a, ok := s.part.find(&w, uint64(size), 1<<6); ok {
		return a, true
	}
	return s.free.find(&w, uint64(size), 1<<30)
}

// apart is find for memory beside [a, a+n), which another one is to get.
func (s *Space) apart(w want, size int, a uint64, n int) (uint64, bool) {
	b, ok := s.find(w, size)
	if !ok || b+uint64(size) <= a || a+uint64(n) <= b {
		return b, ok
	}
	below, above := w, w
	below.hi, above.lo = min(w.hi, a-uint64(size)), max(w.lo, a+uint64(n))
	if b, ok = s.find(below, size); ok {
		return b, ok
	}
	return s.find(above, size)
}

// take takes [lo, hi), which find gave.
func (s *Space) take(lo, hi uint64) {
	s.free.remove(lo, hi)
	s.part.remove(lo, hi)
	for page := lo &^ (PageSize - 1); page < hi; page += PageSize {
		n := s.used[page]
		from, to := max(lo, page), min(hi, page+PageSize)
		s.used[page] = n + int(to-from)
		if n == 0 {
			s.holes(page)
		}
		s.shared(page, int(from-page), int(to-page), true)
	}
}

// holes adds what is free in a page to the holes in pages in use.
func (s *Space) holes(page uint64) {
	for a := page; ; {
		r, ok := s.free.seek(a)
		if !ok || r.Lo >= page+PageSize {
			return
		}
		lo, hi := max(r.Lo, page), min(r.Hi, page+PageSize)
		if hi-lo >= smallHole {
			s.part.add(lo, hi)
		}
		a = hi
		if a >= page+PageSize {
			return
		}
	}
}

// give gives [lo, hi) back.
func (s *Space) give(lo, hi uint64) {
	if lo >= hi {
		return
	}
	s.free.add(lo, hi)
	for page := lo &^ (PageSize - 1); page < hi; page += PageSize {
		from, to := max(lo, page), min(hi, page+PageSize)
		s.used[page] -= int(to - from)
		s.shared(page, int(from-page), int(to-page), false)
		switch {
		case s.used[page] < 0:
			panic("BUG: patch: memory given back twice")
		case s.used[page] == 0:
			delete(s.used, page)
			s.part.remove(page, page+PageSize)
			s.leave(page)
		default:
			s.part.remove(page, page+PageSize)
			s.holes(page)
		}
	}
}

// A rangeSet is a set of addresses as ranges that do not touch, in order, in blocks of limited size.
type rangeSet struct{ blocks [][]Range }

const blockLen = 256

// pos gives the place of the first range that ends behind an address.
func (s *rangeSet) pos(a uint64) (b, i int) {
	b, _ = slices.BinarySearchFunc(s.blocks, a, func(x []Range, a uint64) int {
		if x[len(x)-1].Hi > a {
			return 1
		}
		return -1
	})
	if b == len(s.blocks) {
		return b, 0
	}
	i, _ = slices.BinarySearchFunc(s.blocks[b], a, func(x Range, a uint64) int {
		if x.Hi > a {
			return 1
		}
		return -1
	})
	return b, i
}

// seek gives the first range that ends behind an address.
func (s *rangeSet) seek(a uint64) (Range, bool) {
	b, i := s.pos(a)
	if b == len(s.blocks) {
		return Range{}, false
	}
	return s.blocks[b][i], true
}

func (s *rangeSet) delete(b, i int) {
	if s.blocks[b] = slices.Delete(s.blocks[b], i, i+1); len(s.blocks[b]) == 0 {
		s.blocks = slices.Delete(s.blocks, b, b+1)
	}
}

// insert puts in a range that touches no other.
func (s *rangeSet) insert(r Range) {
	b, i := s.pos(r.Lo)
	if b == len(s.blocks) {
		if b == 0 {
			s.blocks = [][]Range{{r}}
			return
		}
		b--
		i = len(s.blocks[b])
	}
	x := slices.Insert(s.blocks[b], i, r)
	if s.blocks[b] = x; len(x) > blockLen {
		s.blocks[b] = slices.Clone(x[:len(x)/2])
		s.blocks = slices.Insert(s.blocks, b+1, slices.Clone(x[len(x)/2:]))
	}
}

func (s *rangeSet) add(lo, hi uint64) {
	for {
		b, i := s.pos(max(lo, 1) - 1)
		if b == len(s.blocks) || s.blocks[b][i].Lo > hi {
			break
		}
		lo, hi = min(lo, s.blocks[b][i].Lo), max(hi, s.blocks[b][i].Hi)
		s.delete(b, i)
	}
	s.insert(Range{lo, hi})
}

func (s *rangeSet) remove(lo, hi uint64) {
	for {
		b, i := s.pos(lo)
		if b == len(s.blocks) || s.blocks[b][i].Lo >= hi {
			return
		}
		r := s.blocks[b][i]
		s.delete(b, i)
		if r.Lo < lo {
			s.insert(Range{r.Lo, lo})
		}
		if r.Hi > hi {
			s.insert(Range{hi, r.Hi})
		}
	}
}

// find gives the least wanted address with size bytes in one range, looking at no more than limit ranges.
func (s *rangeSet) find(w *want, size uint64, limit int) (uint64, bool) {
	a, ok := w.next(0)
	for ; ok && limit > 0; limit-- {
		r, found := s.seek(a)
		switch {
		case !found:
			return 0, false
		case a < r.Lo:
			a, ok = w.next(r.Lo)
			if ok && a >= r.Lo && a+size <= r.Hi {
				return a, true
			}
			if ok && a < r.Hi {
				a, ok = w.next(r.Hi)
			}
		case a+size <= r.Hi:
			return a, true
		default:
			a, ok = w.next(r.Hi)
		}
	}
	return 0, false
}

// InUse gives the number of pages in use.
func (s *Space) InUse() int { return len(s.used) }
