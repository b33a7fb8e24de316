package patch

import "slices"

// Trampolines of punned jumps lie where the program's bytes say, a page of the address space each in the worst case, and use a few dozen bytes of it. So pages
// share frames: a frame is a page of a file (a memfd) that is mapped at several addresses, where the trampolines at one leave free what those at the others
// use. A page keeps its frame as long as it is in use; what lies in the frame is taken in all its pages.

// A Mapping says which frame a page of the address space is to show.
type Mapping struct {
	Page  uint64
	Frame int // the page of the file, from 0
}

// A frame is what is known of one.
type frame struct {
	pages []uint64
	taken [PageSize / 64]uint64 // a bit for each byte
	bytes int
}

// frames are those of a space.
type frames struct {
	list []*frame
	of   map[uint64]int // by page
	open []int          // where others may still go
	idle []int          // without pages
}

const (
	openFrames = 256          // that are looked at for a page
	fullFrame  = PageSize / 2 // from where on nothing is put into a frame, or a page into one that has others
)

// Frames gives each page in use that has none a frame, and tells which these are: they are to be mapped, in place of what Frames said before, if a page comes
// twice. It must be called when a plan is made, before its trampolines are written; what is planned later keeps to the frames.
func (s *Space) Frames() (fresh []Mapping) {
	for page := range s.used {
		if _, ok := s.frames.of[page]; !ok {
			fresh = append(fresh, Mapping{Page: page})
		}
	}
	slices.SortFunc(fresh, func(a, b Mapping) int { return compare(a.Page, b.Page) })
	for i := range fresh {
		fresh[i].Frame = s.assign(fresh[i].Page)
	}
	return fresh
}

// Frame gives the frame of a page, and false if it has none.
func (s *Space) Frame(page uint64) (int, bool) {
	n, ok := s.frames.of[page&^(PageSize-1)]
	return n, ok
}

// FrameCount is how many frames there are: the length of the file in pages.
func (s *Space) FrameCount() int { return len(s.frames.list) }

// Areas gives how many areas of memory the kernel keeps for the pages: of those beside each other it makes one where their frames are beside each other too. A
// process may have vm.max_map_count of them, 65,530 if nobody has changed it.
func (s *Space) Areas() int {
	n := 0
	for page, f := range s.frames.of {
		if before, ok := s.frames.of[page-PageSize]; !ok || before+1 != f {
			n++
		}
	}
	return n
}

// assign gives a page a frame.
func (s *Space) assign(page uint64) int {
	var bits frame
	for a := page; a < page+PageSize; {
		lo := a // what is neither free nor anybody else's in the page is ours
		r, ok := s.free.seek(a)
		if !ok || r.Lo >= page+PageSize {
			a = page + PageSize
		} else {
			a = max(a, r.Lo)
		}
		bits.set(int(lo-page), int(a-page), true)
		if ok && r.Lo < page+PageSize {
			a = min(r.Hi, page+PageSize)
		}
	}
	n := -1
	if bits.bytes < fullFrame {
		for _, k := range s.frames.open {
			if !s.frames.list[k].clashes(&bits) {
				n = k
				break
			}
		}
	}
	switch {
	case n >= 0:
	case len(s.frames.idle) > 0:
		n = s.frames.idle[len(s.frames.idle)-1]
		s.frames.idle = s.frames.idle[:len(s.frames.idle)-1]
		s.frames.open = append(s.frames.open, n)
	default:
		n = len(s.frames.list)
		s.frames.list = append(s.frames.list, &frame{})
		s.frames.open = append(s.frames.open, n)
	}
	f := s.frames.list[n]
	for _, other := range f.pages { // what either uses is taken in both
		bits.each(func(lo, hi int) { s.forbid(other+uint64(lo), other+uint64(hi)) })
	}
	f.each(func(lo, hi int) { s.forbid(page+uint64(lo), page+uint64(hi)) })
	bits.each(func(lo, hi int) { f.set(lo, hi, true) })
	f.pages = append(f.pages, page)
	if s.frames.of == nil {
		s.frames.of = map[uint64]int{}
	}
	s.frames.of[page] = n
	if open := s.frames.open; f.bytes >= fullFrame || len(open) > openFrames {
		i := slices.Index(open, n)
		if f.bytes < fullFrame {
			i = 0
		}
		if i >= 0 {
			s.frames.open = slices.Delete(open, i, i+1)
		}
	}
	return n
}

// forbid makes that nothing is given in a range that is free, and permit undoes it.
func (s *Space) forbid(lo, hi uint64) {
	s.free.remove(lo, hi)
	s.part.remove(lo, hi)
}

func (s *Space) permit(lo, hi uint64) {
	s.free.add(lo, hi)
	page := lo &^ (PageSize - 1)
	s.part.remove(page, page+PageSize)
	s.holes(page)
}

// shared says to the other pages of a page's frame that a part of it is taken, or no longer.
func (s *Space) shared(page uint64, lo, hi int, taken bool) {
	n, ok := s.frames.of[page]
	if !ok {
		return
	}
	f := s.frames.list[n]
	f.set(lo, hi, taken)
	for _, other := range f.pages {
		switch {
		case other == page:
		case taken:
			s.forbid(other+uint64(lo), other+uint64(hi))
		default:
			s.permit(other+uint64(lo), other+uint64(hi))
		}
	}
}

// leave takes a page that is no longer in use out of its frame.
func (s *Space) leave(page uint64) {
	n, ok := s.frames.of[page]
	if !ok {
		return
	}
	f := s.frames.list[n]
	delete(s.frames.of, page)
	f.pages = slices.DeleteFunc(f.pages, func(p uint64) bool { return p == page })
	f.each(func(lo, hi int) { s.free.add(page+uint64(lo), page+uint64(hi)) })
	if len(f.pages) == 0 {
		if i := slices.Index(s.frames.open, n); i >= 0 {
			s.frames.open = slices.Delete(s.frames.open, i, i+1)
		}
		s.frames.idle = append(s.frames.idle, n)
	}
}

func (f *frame) set(lo, hi int, taken bool) {
	for i := lo; i < hi; i++ {
		if bit := uint64(1) << (i % 64); (f.taken[i/64]&bit != 0) != taken {
			f.taken[i/64] ^= bit
			if f.bytes++; !taken {
				f.bytes -= 2
			}
		}
	}
}

func (f *frame) clashes(g *frame) bool {
	for i := range f.taken {
		if f.taken[i]&g.taken[i] != 0 {
			return true
		}
	}
	return false
}

// each calls back for each run of bytes that are taken.
func (f *frame) each(run func(lo, hi int)) {
	for i := 0; i < PageSize; i++ {
		if f.taken[i/64] == 0 {
			i |= 63
			continue
		}
		lo := i
		for i < PageSize && f.taken[i/64]>>(i%64)&1 != 0 {
			i++
		}
		if i > lo {
			run(lo, i)
		}
	}
}
