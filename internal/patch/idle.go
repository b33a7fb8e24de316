package patch

import (
	"cmp"
	"maps"
	"slices"
)

// What has no trampolines any more goes back to the process, and the file's memory to the system. Memory is shown by groups of chunks (shownTogether), and so it goes: a piece out of the middle of
// what is mapped would make two areas of one.

// Idle gives the addresses, in order, that Shown was told of and where no trampolines lie any more. They stay what they are until Hidden.
func (s *Space) Idle() (list []Range) {
	for _, g := range slices.Sorted(maps.Keys(s.emptied)) {
		lo, hi := g*shownTogether, (g+1)*shownTogether
		if s.inhabited(lo, hi) {
			delete(s.emptied, g) // until a chunk of it is emptied again
			continue
		}
		shown := false
		for n := lo; n < hi; n++ {
			c := s.chunk(n)
			if c == nil {
				continue
			}
			shown = shown || c.shown != 0
			for i := range uint64(chunkPages) {
				if c.shown>>i&1 == 0 {
					continue
				}
				a := n*chunkSize + i*PageSize
				if k := len(list); k > 0 && list[k-1].Hi == a {
					list[k-1].Hi += PageSize
				} else {
					list = append(list, Range{a, a + PageSize})
				}
			}
		}
		if !shown {
			delete(s.emptied, g)
		}
	}
	return list
}

// inhabited says whether trampolines lie in some of the chunks [lo, hi).
func (s *Space) inhabited(lo, hi uint64) bool {
	for n := lo; n < hi; n++ {
		if c := s.chunk(n); c != nil && c.taken > 0 {
			return true
		}
	}
	return false
}

// Hidden says that nothing is mapped any more where Idle said: Frames tells of it again when trampolines come to lie there.
func (s *Space) Hidden(r Range) {
	for a := r.Lo; a < r.Hi; a += PageSize {
		n := a / chunkSize
		c := s.chunk(n)
		if c == nil {
			continue
		}
		if c.shown &^= 1 << (a % chunkSize / PageSize); c.shown == 0 && !c.bound {
			s.chunks.set(n, nil)
		}
	}
}

// A Run is so many frames one after the other.
type Run struct{ First, Frames int }

// Vacant gives the frames, in order, that had trampolines, and have none any more, each once.
func (s *Space) Vacant() (list []Run) {
	for _, f := range slices.SortedFunc(maps.Keys(s.vacated), cmp.Compare[int]) {
		if t := s.slots[f/chunkPages]; t.bytes[f%chunkPages] > 0 {
			continue
		}
		if k := len(list); k > 0 && list[k-1].First+list[k-1].Frames == f {
			list[k-1].Frames++
		} else {
			list = append(list, Run{f, 1})
		}
	}
	clear(s.vacated)
	return list
}
