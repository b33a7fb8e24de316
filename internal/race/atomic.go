package race

import (
	"math/bits"
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// location is an atomic location: bytes that are accessed by locked instructions, for a time.
type location struct {
	lo, hi   uint64
	from, to uint64 // seq; to is not in it
	clock    stamp
}

const forever = ^uint64(0)

// atoms are the atomic locations of a process.
type atoms struct {
	cells map[uint64][]*location // by cell of eight bytes, those of all times
	pages map[uint64]bool        // pages with any
	fixed bool                   // they were learned before
}

// learn makes [lo,hi) a part of an atomic location, from the birth of its block on, or from when the bytes last became other memory.
func (a *atoms) learn(lo, hi, seq uint64, b *block) {
	if a.fixed {
		return
	}
	from := uint64(0)
	if b != nil && !b.freed && b.addr <= lo && hi <= b.end() {
		from = b.born
	}
	var found []*location
	for cell := lo / 8; cell <= (hi-1)/8; cell++ {
		for _, l := range a.cells[cell] {
			switch {
			case l.lo >= hi || lo >= l.hi:
			case l.to <= seq:
				from = max(from, l.to)
			case l.from <= seq && !slices.Contains(found, l):
				found = append(found, l)
			}
		}
	}
	if len(found) == 1 && found[0].lo <= lo && hi <= found[0].hi {
		return
	}
	n := &location{lo: lo, hi: hi, from: from, to: forever}
	for _, l := range found {
		n.lo, n.hi, n.from = min(n.lo, l.lo), max(n.hi, l.hi), min(n.from, l.from)
		n.clock = merge(n.clock, l.clock)
		for cell := l.lo / 8; cell <= (l.hi-1)/8; cell++ {
			a.cells[cell] = slices.DeleteFunc(a.cells[cell], func(o *location) bool { return o == l })
		}
	}
	for cell := n.lo / 8; cell <= (n.hi-1)/8; cell++ {
		a.cells[cell] = append(a.cells[cell], n)
		if page := cell * 8 / pageSize; !a.pages[page] {
			if a.pages == nil {
				a.pages = map[uint64]bool{}
			}
			a.pages[page] = true
		}
	}
}

// in calls do for each location of the time seq in the cell that shares a byte with mask.
func (a *atoms) in(cell uint64, mask uint8, seq uint64, do func(l *location, mask uint8)) {
	for _, l := range a.cells[cell] {
		if l.from <= seq && seq < l.to {
			if m := maskOf(cell, l.lo, l.hi) & mask; m != 0 {
				do(l, m)
			}
		}
	}
}

// maskOf is the set of bytes of the cell that lie in [lo,hi), which must touch it.
func maskOf(cell, lo, hi uint64) uint8 {
	first, last := uint64(0), uint64(7)
	if lo > cell*8 {
		first = lo - cell*8
	}
	if hi-1 < cell*8+7 {
		last = hi - 1 - cell*8
	}
	if first > 7 || last > 7 {
		return 0
	}
	return uint8(0xff<<first) & uint8(0xff>>(7-last))
}

// close ends the locations in [lo,hi), which are other memory from seq on.
func (a *atoms) close(lo, hi, seq uint64) {
	if a.fixed || len(a.cells) == 0 || lo >= hi {
		return
	}
	end := func(list []*location) {
		for _, l := range list {
			if l.to == forever && l.lo < hi && lo < l.hi && l.from < seq {
				l.to = seq
			}
		}
	}
	if (hi-lo)/8 < uint64(len(a.cells)) {
		for cell := lo / 8; cell <= (hi-1)/8; cell++ {
			end(a.cells[cell])
		}
		return
	}
	for _, list := range a.cells {
		end(list)
	}
}

// inherit gives a forked child the locations of its parent.
func (a *atoms) inherit(parent *atoms) {
	if a.fixed {
		return
	}
	copies := map[*location]*location{}
	for cell, list := range parent.cells {
		for _, l := range list {
			if l.to != forever {
				continue
			}
			c := copies[l]
			if c == nil {
				c = &location{lo: l.lo, hi: l.hi, from: 0, to: forever}
				copies[l] = c
			}
			a.cells[cell] = append(a.cells[cell], c)
			if a.pages == nil {
				a.pages = map[uint64]bool{}
			}
			a.pages[cell*8/pageSize] = true
		}
	}
}

// clone copies a, without clocks: they are of one pass.
func (a *atoms) clone() atoms {
	out := atoms{cells: make(map[uint64][]*location, len(a.cells)), pages: a.pages, fixed: true}
	copies := map[*location]*location{}
	for cell, list := range a.cells {
		for _, l := range list {
			if copies[l] == nil {
				copies[l] = &location{lo: l.lo, hi: l.hi, from: l.from, to: l.to}
			}
			out.cells[cell] = append(out.cells[cell], copies[l])
		}
	}
	return out
}

// movLike reports whether an access could be a load or a store of an atomic by its size and place: one plain read or write of 1, 2, 4 or 8 aligned bytes.
func (a *Access) movLike() bool {
	return (a.Kind == Read || a.Kind == Write) && a.Size <= 8 && a.Size != 0 && bits.OnesCount64(a.Size) == 1 && a.Addr%a.Size == 0
}

// lastStore is a plain store of a thread after which it did nothing else yet.
type lastStore struct {
	addr, size uint64
}

// follow keeps s up to date and gives what a fence makes atomic.
func (s *lastStore) follow(a *Access) (made lastStore) {
	switch {
	case a.Kind&Fence != 0:
		made, *s = *s, lastStore{}
	case a.movLike() && a.Kind == Write:
		*s = lastStore{a.Addr, a.Size}
	default:
		*s = lastStore{}
	}
	return made
}

// Atomics are the atomic locations of a whole recording.
type Atomics struct {
	procs map[uint64]*memory
}

// A Suspect is a location that only movs accessed, and that they raced for.
type Suspect struct {
	Process, Addr, Size, Seq uint64
}

// learner is the first pass: what is atomic is so for all of its life, also before the first locked instruction.
type learner struct {
	w        World
	codes    knownCode
	procs    map[uint64]*memory
	stores   map[[2]uint64]*lastStore
	suspects []Suspect // by Seq
	seq      uint64
}

func (l *learner) memory(process uint64) *memory {
	m := l.procs[process]
	if m == nil {
		m = newMemory()
		l.procs[process] = m
	}
	return m
}

func (l *learner) suspected() {
	for len(l.suspects) > 0 && l.suspects[0].Seq <= l.seq {
		s := l.suspects[0]
		l.suspects = l.suspects[1:]
		m := l.memory(s.Process)
		m.atoms.learn(s.Addr, s.Addr+s.Size, l.seq, m.at(s.Addr))
	}
}

func (l *learner) event(process uint64, e *wire.Event) {
	l.seq++
	m := l.memory(process)
	delete(l.stores, [2]uint64{process, uint64(e.Thread)})
	if e.Type == wire.TypeProcess {
		if ev := wire.DecodeProcess(e.Words); ev.Start == wire.StartFork && ev.ParentID != process {
			if parent := l.procs[ev.ParentID]; parent != nil && len(m.blocks) == 0 {
				m.inherit(parent)
			}
		}
		return
	}
	switch c := changeOf(e); c.what {
	case allocates:
		for _, b := range m.within(c.lo, max(c.lo+c.size, c.lo+1)) {
			m.drop(b)
		}
		m.atoms.close(c.lo, c.lo+c.size, l.seq)
		m.add(&block{addr: c.lo, size: c.size, born: l.seq})
	case frees:
		if b := m.blocks[c.lo]; b != nil {
			m.atoms.close(b.addr, b.end(), l.seq)
			m.drop(b)
		}
	case guards:
		m.atoms.learn(c.lo, c.lo+c.size, l.seq, m.at(c.lo))
	case replaces, mapsShared:
		for _, b := range m.within(c.lo, c.lo+c.size) {
			m.drop(b)
		}
		m.atoms.close(c.lo, c.lo+c.size, l.seq)
	}
	l.suspected()
}

func (l *learner) access(a *Access) {
	l.seq++
	defer l.suspected()
	if l.codes.of(l.w, a) != Program {
		return
	}
	m := l.memory(a.Process)
	if a.Kind&Order != 0 {
		if a.Kind&Locked != 0 && a.fits() {
			m.atoms.learn(a.Addr, a.Addr+a.Size, l.seq, m.at(a.Addr))
		}
		return
	}
	if a.Kind&Done != 0 {
		return
	}
	k := [2]uint64{a.Process, uint64(a.Thread)}
	s := l.stores[k]
	if s == nil {
		s = new(lastStore)
		l.stores[k] = s
	}
	made := s.follow(a)
	if a.Kind&Locked != 0 && a.fits() {
		made = lastStore{a.Addr, a.Size}
	}
	if made.size != 0 {
		m.atoms.learn(made.addr, made.addr+made.size, l.seq, m.at(made.addr))
	}
}

// fits reports whether the access has bytes, and no more than one locked instruction can have.
func (a *Access) fits() bool { return a.Size != 0 && a.Size <= 64 && a.Addr+a.Size > a.Addr }
