package race

import (
	"cmp"
	"slices"
)

// The history of a process's memory, kept by cells of eight bytes. A cell's bytes are divided into segments as accesses divide them; a segment has FastTrack's
// state: the last plain write, the plain reads since then, as one epoch while each follows the one before, else one for each thread; and, of atomic
// locations, the accesses as such, which race with plain ones only.

// point is an access in the history.
type point struct {
	e    epoch
	addr uint64
	site uint32
}

type segment struct {
	w, r point // no r and more.reads at once
	more *more
	next uint32
	mask uint8
}

type more struct {
	reads, atomicWrites, atomicReads []point // of different slots
}

// slab holds segments by number; 0 is none.
type slab struct {
	chunks [][]segment
	free   uint32
	used   int
}

const chunkSize = 1 << 12

func (s *slab) at(i uint32) *segment { return &s.chunks[i/chunkSize][i%chunkSize] }

func (s *slab) get() uint32 {
	if s.free == 0 {
		base := uint32(len(s.chunks) * chunkSize)
		s.chunks = append(s.chunks, make([]segment, chunkSize))
		for i := uint32(chunkSize); i > 0; i-- {
			if n := base + i - 1; n != 0 {
				s.at(n).next = s.free
				s.free = n
			}
		}
	}
	i := s.free
	g := s.at(i)
	s.free = g.next
	*g = segment{}
	s.used++
	return i
}

func (s *slab) put(i uint32) {
	*s.at(i) = segment{next: s.free}
	s.free = i
	s.used--
}

const cellsInPage = pageSize / 8

// page is the history of a page.
type page struct {
	number  uint64
	cells   [cellsInPage]uint32
	live    int    // segments
	touched uint64 // seq of the last access
	freed   *[pageSize / 64]uint64
}

type shadow struct {
	d     *Detector
	pages map[uint64]*page
	last  *page
}

// page gives a page, new if need be.
func (s *shadow) page(number uint64) *page {
	if s.last != nil && s.last.number == number {
		return s.last
	}
	p := s.pages[number]
	if p == nil {
		p = &page{number: number}
		s.pages[number] = p
	}
	s.last = p
	return p
}

// eachPage calls do for the existing pages that share a byte with [lo,hi), with the part of each.
func (s *shadow) eachPage(lo, hi uint64, do func(p *page, lo, hi uint64)) {
	if lo >= hi {
		return
	}
	see := func(p *page) { do(p, max(lo, p.number*pageSize), min(hi, p.number*pageSize+pageSize-1+1)) }
	first, last := pagesOf(lo, hi)
	if last-first < uint64(len(s.pages)) {
		for n := first; n <= last; n++ {
			if p := s.pages[n]; p != nil {
				see(p)
			}
		}
		return
	}
	for n, p := range s.pages {
		if first <= n && n <= last {
			see(p)
		}
	}
}

// forget drops the history of [lo,hi).
func (s *shadow) forget(lo, hi uint64) {
	s.eachPage(lo, hi, func(p *page, lo, hi uint64) {
		if p.live == 0 {
			return
		}
		for cell := lo / 8; cell <= (hi-1)/8; cell++ {
			s.forgetBytes(p, int(cell%cellsInPage), maskOf(cell, lo, hi))
		}
	})
}

func (s *shadow) forgetBytes(p *page, cell int, mask uint8) {
	slab := &s.d.segments
	link := &p.cells[cell]
	for *link != 0 {
		i := *link
		g := slab.at(i)
		if g.mask &^= mask; g.mask != 0 {
			link = &g.next
			continue
		}
		*link = g.next
		slab.put(i)
		p.live--
	}
}

// setFreed notes that the bytes are of a freed block, or of none any more.
func (s *shadow) setFreed(lo, hi uint64, freed bool) {
	set := func(p *page, lo, hi uint64) {
		if p.freed == nil {
			if !freed {
				return
			}
			p.freed = new([pageSize / 64]uint64)
		}
		for a := lo; a < hi; {
			n := min(64-a%64, hi-a)
			bits := ^uint64(0) >> (64 - n) << (a % 64)
			if w := &p.freed[a%pageSize/64]; freed {
				*w |= bits
			} else {
				*w &^= bits
			}
			a += n
		}
	}
	if !freed {
		s.eachPage(lo, hi, set)
		return
	}
	for a := lo; a < hi; {
		end := min(hi, a&^(pageSize-1)+pageSize)
		set(s.page(a/pageSize), a, end)
		a = end
	}
}

// freed marks the freed blocks of m.
func (s *shadow) freed(m *memory) {
	for _, b := range m.blocks {
		if b.freed {
			s.setFreed(b.addr, b.end(), true)
		}
	}
}

// freedAt reports whether a byte of the cell is of a freed block.
func (p *page) freedAt(cell int, mask uint8) bool {
	return p.freed != nil && uint8(p.freed[cell/8]>>(cell%8*8))&mask != 0
}

// evict drops the history of the pages that were not accessed for longest, a quarter of all.
func (d *Detector) evict() {
	d.note("the history of accesses outgrew its bound: what was not accessed for longest was dropped, and races with that are not seen")
	type old struct {
		p *page
		s *shadow
	}
	var all []old
	for _, p := range d.procs {
		for _, g := range p.shadow.pages {
			if g.live > 0 {
				all = append(all, old{g, &p.shadow})
			}
		}
	}
	slices.SortFunc(all, func(a, b old) int { return cmp.Compare(a.p.touched, b.p.touched) })
	for _, o := range all {
		if d.segments.used <= d.cfg.MaxCells/4*3 {
			break
		}
		for cell := range o.p.cells {
			o.s.forgetBytes(o.p, cell, 0xff)
		}
		if o.p.freed == nil {
			delete(o.s.pages, o.p.number)
			if o.s.last == o.p {
				o.s.last = nil
			}
		}
	}
}
