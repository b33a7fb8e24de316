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

// A frame is what is known of one, or of a page that has none yet.
type frame struct {
	number int      // -1: it is none
	pages  []uint64 // that show it
	taken  [PageSize / 64]uint64
	bytes  int
	room   int // no hole is larger
}

// frames are those of a space.
type frames struct {
	list []*frame
	open []int    // where others may still go
	idle []int    // without pages
	pool []*frame // of pages that have got others
}

const (
	openFrames = 256          // that are looked at for a page
	fullFrame  = PageSize / 2 // from where on nothing is put into a frame, or a page into one that has others
)

// private gives what is known of a page that has no frame yet.
func (s *frames) private(page uint64) (f *frame) {
	if n := len(s.pool); n > 0 {
		f, s.pool = s.pool[n-1], s.pool[:n-1]
		*f = frame{pages: f.pages[:0]}
	} else {
		f = &frame{}
	}
	f.number, f.room = -1, PageSize
	f.pages = append(f.pages, page)
	return f
}

// Frames gives each page in use that has none a frame, and tells which these are: they are to be mapped, in place of what Frames said before, if a page comes
// twice. It must be called when a plan is made, before its trampolines are written; what is planned later keeps to the frames.
func (s *Space) Frames() (fresh []Mapping) {
	slices.Sort(s.fresh)
	for _, page := range slices.Compact(s.fresh) {
		if u := s.page(page); u != nil && u.frame.number < 0 {
			u.frame = s.assign(page, u.frame)
			fresh = append(fresh, Mapping{page, u.frame.number})
		}
	}
	s.fresh, s.frames.pool = nil, nil
	return fresh
}

// Frame gives the frame of a page, and false if it has none.
func (s *Space) Frame(page uint64) (int, bool) {
	f := s.frameAt(page)
	if f == nil || f.number < 0 {
		return 0, false
	}
	return f.number, true
}

// FrameCount is how many frames there are: the length of the file in pages.
func (s *Space) FrameCount() int { return len(s.frames.list) }

// Areas gives how many areas of memory the kernel keeps for the pages: of those beside each other it makes one where their frames are beside each other too. A
// process may have vm.max_map_count of them, 65,530 if nobody has changed it.
func (s *Space) Areas() int {
	n, before, last := 0, uint64(0), -1
	for _, page := range s.Pages() {
		f, ok := s.Frame(page)
		if !ok {
			continue
		}
		if last < 0 || page != before+PageSize || f != last+1 {
			n++
		}
		before, last = page, f
	}
	return n
}

// assign gives a page a frame in place of its private one: what either uses is taken in both.
func (s *Space) assign(page uint64, own *frame) *frame {
	n := -1
	if own.bytes < fullFrame {
		for _, k := range s.frames.open {
			if !s.frames.list[k].clashes(own) {
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
		s.frames.list = append(s.frames.list, &frame{number: n, room: PageSize})
		s.frames.open = append(s.frames.open, n)
	}
	f := s.frames.list[n]
	for i, w := range own.taken {
		f.taken[i] |= w
	}
	f.bytes += own.bytes
	f.room = min(f.room, own.room)
	f.pages = append(f.pages, page)
	if open := s.frames.open; f.bytes >= fullFrame || len(open) > openFrames {
		i := slices.Index(open, n)
		if f.bytes < fullFrame {
			i = 0
		}
		if i >= 0 {
			s.frames.open = slices.Delete(open, i, i+1)
		}
	}
	s.frames.pool = append(s.frames.pool, own)
	return f
}

// leave takes a page that is no longer in use out of its frame.
func (s *Space) leave(page uint64, f *frame) {
	f.pages = slices.DeleteFunc(f.pages, func(p uint64) bool { return p == page })
	if f.number < 0 || len(f.pages) > 0 {
		return
	}
	if i := slices.Index(s.frames.open, f.number); i >= 0 {
		s.frames.open = slices.Delete(s.frames.open, i, i+1)
	}
	s.frames.idle = append(s.frames.idle, f.number)
}

// set takes bytes that are free, or frees them.
func (f *frame) set(lo, hi int, taken bool) {
	for i := lo; i < hi; {
		n := min(64-i%64, hi-i)
		mask := (uint64(1)<<n - 1) << (i % 64)
		switch w := &f.taken[i/64]; {
		case taken && *w&mask == 0, !taken && *w&mask == mask:
			*w ^= mask
		default:
			panic("BUG: patch: memory is given twice, or given back twice")
		}
		i += n
	}
	if f.bytes += hi - lo; !taken {
		f.bytes -= 2 * (hi - lo)
		f.room = PageSize
	}
}

// hole looks for the first place in [lo, hi] from which size bytes are free, or all to the frame's end.
func (f *frame) hole(lo, hi, size int) (at int, ok bool) {
	whole := lo == 0 && hi >= PageSize-1
	for at = nextClear(f.taken[:], lo); at <= hi; {
		end := nextSet(f.taken[:], at)
		if end-at >= size || end == PageSize {
			if whole && end == PageSize && end-at < size {
				f.room = min(f.room, size-1)
			}
			return at, at < PageSize
		}
		at = nextClear(f.taken[:], end)
	}
	if whole {
		f.room = min(f.room, size-1)
	}
	return 0, false
}

func (f *frame) clashes(g *frame) bool {
	for i := range f.taken {
		if f.taken[i]&g.taken[i] != 0 {
			return true
		}
	}
	return false
}
