package patch

import (
	"maps"
	"slices"
)

// Trampolines of punned jumps lie where the program's bytes say, a page of the address space each in the worst case, and use a few dozen bytes of it. So addresses share
// memory: chunks of 64 KiB show slots of a file (a memfd), each slot at many addresses, where the trampolines at one leave free what those at the others use. Chunks beside each
// other show slots beside each other, so that the kernel has few areas of memory to keep.

// A Mapping says which frames, pages of the file counted from 0, pages of the address space are to show, one after the other.
type Mapping struct {
	Page         uint64
	Frame, Pages int
}

// shownTogether is how many chunks Frames tells of at once if one of them is needed, to have few areas.
const shownTogether = leastSlots

// Frames says what is to be mapped, in place of what Frames said before if a page comes again, until Shown says that it is: when a plan is made, before its trampolines are written.
func (s *Space) Frames() []Mapping {
	groups := map[uint64]bool{}
	for n := range s.fresh {
		groups[n/shownTogether] = true
	}
	s.told = nil
	var more []chunk // of which some are to be known
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		if !s.inhabited(g*shownTogether, (g+1)*shownTogether) { // what was planned there was taken back
			continue
		}
		for n := g * shownTogether; n < (g+1)*shownTogether; n++ {
			c := s.chunk(n)
			if c != nil && c.shown != 0 && !s.fresh[n] {
				continue
			}
			known := c != nil
			if !known {
				c = &cut(&more, 1, shownTogether)[0]
				c.slot = s.slotNumber(n)
			}
			told := s.tellAll(n, c)
			if told && !known {
				s.chunks.set(n, c)
			}
		}
	}
	return s.told
}

// tellAll tells of the pages of a chunk that are not shown and where nobody else has mapped anything, and says whether there are some.
func (s *Space) tellAll(n uint64, c *chunk) (told bool) {
	if c.shown == 0 && s.whole(n*chunkSize, chunkSize) {
		s.tell(n*chunkSize, c.slot*chunkPages, chunkPages)
		return true
	}
	for i := range chunkPages {
		page := n*chunkSize + uint64(i)*PageSize
		if c.shown>>i&1 == 0 && s.whole(page, PageSize) {
			s.tell(page, c.slot*chunkPages+i, 1)
			told = true
		}
	}
	return told
}

func (s *Space) tell(page uint64, frame, pages int) {
	if n := len(s.told); n > 0 {
		if m := &s.told[n-1]; m.Page+uint64(m.Pages)*PageSize == page && m.Frame+m.Pages == frame {
			m.Pages += pages
			return
		}
	}
	s.told = append(s.told, Mapping{page, frame, pages})
}

// Shown says that what Frames gave is mapped.
func (s *Space) Shown() {
	for _, m := range s.told {
		for a, end := m.Page, m.Page+uint64(m.Pages)*PageSize; a < end; {
			from := a % chunkSize / PageSize
			n := min(chunkPages-from, (end-a)/PageSize)
			s.chunk(a / chunkSize).shown |= (1<<n - 1) << from
			a += n * PageSize
		}
	}
	s.told = nil
	clear(s.fresh)
}

// Frame gives the frame of a page, which holds trampolines or may.
func (s *Space) Frame(page uint64) int {
	return s.slotNumber(page/chunkSize)*chunkPages + int(page%chunkSize/PageSize)
}

// FrameCount is how many frames have trampolines. Those that were lost are none.
func (s *Space) FrameCount() int { return s.frames }

// Areas gives how many areas of memory the kernel keeps for what Shown was told of: of those beside each other it makes one where their frames are beside each other too. A
// process may have vm.max_map_count of them, 65,530 if nobody has changed it.
func (s *Space) Areas() int {
	areas, before, last := 0, uint64(0), -1
	for n, c := range s.chunks.within(0, 1<<48/chunkSize) {
		for i := range chunkPages {
			if c.shown>>i&1 == 0 {
				continue
			}
			page, f := n*chunkSize+uint64(i)*PageSize, c.slot*chunkPages+i
			if last < 0 || page != before+PageSize || f != last+1 {
				areas++
			}
			before, last = page, f
		}
	}
	return areas
}
