package patch

import (
	"math/bits"
	"slices"
)

// Pages in use are kept by region, so that one is found by its address without a look at the others.
const (
	regionSize  = 2 << 20
	regionPages = regionSize / PageSize
)

// A region is the pages in use in 2 MiB of addresses.
type region struct {
	used  [regionPages / 64]uint64 // a bit for each page
	roomy [regionPages / 64]uint64 // of them, those in which there may be a hole worth looking at
	list  []usedPage               // one for each bit of used, in order
}

// A usedPage has trampolines.
type usedPage struct {
	frame *frame
	bytes int // of trampolines in this page
}

// smallHole is the least that is looked at in pages in use.
const smallHole = 24

func (r *region) has(i int) bool { return r.used[i/64]>>(i%64)&1 != 0 }

// rank gives the place of page i in the list.
func (r *region) rank(i int) int {
	n := bits.OnesCount64(r.used[i/64] & (1<<(i%64) - 1))
	for _, w := range r.used[:i/64] {
		n += bits.OnesCount64(w)
	}
	return n
}

// nextRoomy gives the first roomy page from i on, or regionPages.
func (r *region) nextRoomy(i int) int { return nextSet(r.roomy[:], i) }

// nextSet gives the first bit from i on that is set, or how many there are.
func nextSet(set []uint64, i int) int {
	for ; i < 64*len(set); i = (i | 63) + 1 {
		if w := set[i/64] >> (i % 64); w != 0 {
			return i + bits.TrailingZeros64(w)
		}
	}
	return 64 * len(set)
}

// nextClear gives the first that is clear.
func nextClear(set []uint64, i int) int {
	for ; i < 64*len(set); i = (i | 63) + 1 {
		if w := ^set[i/64] >> (i % 64); w != 0 {
			return i + bits.TrailingZeros64(w)
		}
	}
	return 64 * len(set)
}

// page gives a page in use, nil if it is not.
func (s *Space) page(at uint64) *usedPage {
	r := s.regions[at/regionSize]
	if r == nil {
		return nil
	}
	i := int(at % regionSize / PageSize)
	if !r.has(i) {
		return nil
	}
	return &r.list[r.rank(i)]
}

// frameAt gives the frame of a page in use, nil if it is not.
func (s *Space) frameAt(at uint64) *frame {
	if u := s.page(at); u != nil {
		return u.frame
	}
	return nil
}

// nextUsed gives the first page in use in [lo, hi).
func (s *Space) nextUsed(lo, hi uint64) (page uint64, ok bool) {
	if hi-lo > regionSize*uint64(len(s.regions)+1) { // more regions than there are
		page = hi
		for n, r := range s.regions {
			from := n * regionSize
			if from+regionSize <= lo || from >= page {
				continue
			}
			i := 0
			if from < lo {
				i = int((lo - from) / PageSize)
			}
			if a := from + uint64(nextSet(r.used[:], i))*PageSize; a < from+regionSize {
				page = min(page, a)
			}
		}
		return page, page < hi
	}
	for a := lo &^ (PageSize - 1); a < hi; a = a&^(regionSize-1) + regionSize {
		r := s.regions[a/regionSize]
		if r == nil {
			continue
		}
		if i := nextSet(r.used[:], int(a%regionSize/PageSize)); i < regionPages {
			page = a&^(regionSize-1) + uint64(i)*PageSize
			return page, page < hi
		}
	}
	return 0, false
}

// use makes a page one in use, if it is not.
func (s *Space) use(page uint64) *usedPage {
	r := s.regions[page/regionSize]
	if r == nil {
		r = &region{}
		s.regions[page/regionSize] = r
	}
	i := int(page % regionSize / PageSize)
	k := r.rank(i)
	if r.has(i) {
		return &r.list[k]
	}
	r.used[i/64] |= 1 << (i % 64)
	r.roomy[i/64] |= 1 << (i % 64)
	r.list = slices.Insert(r.list, k, usedPage{frame: s.frames.private(page)})
	s.pages++
	s.fresh = append(s.fresh, page)
	return &r.list[k]
}

// unuse makes it one that is not in use again.
func (s *Space) unuse(page uint64) {
	r := s.regions[page/regionSize]
	i := int(page % regionSize / PageSize)
	k := r.rank(i)
	s.leave(page, r.list[k].frame)
	r.list = slices.Delete(r.list, k, k+1)
	r.used[i/64] &^= 1 << (i % 64)
	r.roomy[i/64] &^= 1 << (i % 64)
	if s.pages--; len(r.list) == 0 {
		delete(s.regions, page/regionSize)
	}
}

// take takes [lo, hi), which find gave.
func (s *Space) take(lo, hi uint64) {
	for page := lo &^ (PageSize - 1); page < hi; page += PageSize {
		from, to := max(lo, page), min(hi, page+PageSize)
		u := s.use(page)
		u.bytes += int(to - from)
		u.frame.set(int(from-page), int(to-page), true)
	}
}

// give gives [lo, hi) back.
func (s *Space) give(lo, hi uint64) {
	for page := lo &^ (PageSize - 1); page < hi; page += PageSize {
		from, to := max(lo, page), min(hi, page+PageSize)
		u := s.page(page)
		if u == nil || u.bytes < int(to-from) {
			panic("BUG: patch: memory given back twice")
		}
		u.bytes -= int(to - from)
		u.frame.set(int(from-page), int(to-page), false)
		for _, a := range u.frame.pages {
			i := a % regionSize / PageSize
			s.regions[a/regionSize].roomy[i/64] |= 1 << (i % 64)
		}
		if u.bytes == 0 {
			s.unuse(page)
		}
	}
}

// Pages gives the addresses of the pages in use, in order.
func (s *Space) Pages() []uint64 {
	pages := make([]uint64, 0, s.pages)
	for n, r := range s.regions {
		for i := nextSet(r.used[:], 0); i < regionPages; i = nextSet(r.used[:], i+1) {
			pages = append(pages, n*regionSize+uint64(i)*PageSize)
		}
	}
	slices.Sort(pages)
	return pages
}

// InUse gives the number of pages in use.
func (s *Space) InUse() int { return s.pages }
