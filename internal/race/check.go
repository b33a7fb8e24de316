package race

import (
	"fmt"
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// site is all that is the same in many accesses: kept once, for the report.
type site struct {
	t          *thread
	pc, size   uint64
	provenance string
	stack      uint32
	held       uint32
	kind       Kind
	atomic     bool
}

type siteEntry struct {
	s  site
	id uint32
}

// maxSites bounds the table of sites. Beyond it accesses are told without where they were.
const maxSites = 1 << 23

func (d *Detector) site(t *thread, a *Access, atomic bool) uint32 {
	s := site{t: t, pc: a.PC, stack: a.Stack, kind: a.Kind, size: a.Size, provenance: a.Provenance, held: t.heldNow(), atomic: atomic}
	e := &t.sites[(a.PC^a.PC>>6)%uint64(len(t.sites))]
	if e.id != 0 && e.s == s {
		return e.id
	}
	id, ok := d.siteIDs[s]
	if !ok {
		if len(d.sites) >= maxSites {
			d.note("more places of accesses than are remembered: some races are told without the earlier access's place")
			return 0
		}
		id = uint32(len(d.sites))
		d.sites = append(d.sites, s)
		d.siteIDs[s] = id
	}
	*e = siteEntry{s, id}
	return id
}

// heldNow is the number of the set of locks that t holds.
func (t *thread) heldNow() uint32 {
	if !t.heldOld {
		return t.heldID
	}
	d := t.p.d
	key := make([]byte, 0, 64)
	for _, h := range t.held {
		key = fmt.Appendf(key, "%x %x %d %d,", h.obj, h.stack, h.kind, h.mode)
	}
	id, ok := d.heldIDs[string(key)]
	if !ok {
		id = uint32(len(d.held))
		d.held = append(d.held, t.held)
		d.heldIDs[string(key)] = id
	}
	t.heldID, t.heldOld = id, false
	return id
}

// knownCode keeps what the world said of code.
type knownCode struct {
	all    map[codeKey]Code
	recent [1024]struct {
		codeKey
		code Code
	}
}

type codeKey struct{ process, pc uint64 }

func (cs *knownCode) of(w World, a *Access) Code {
	if w == nil {
		return Program
	}
	k := codeKey{a.Process, a.PC}
	r := &cs.recent[(a.PC^a.PC>>10)%uint64(len(cs.recent))]
	c := r.code
	if r.codeKey != k {
		ok := false
		if c, ok = cs.all[k]; !ok {
			c = w.Code(a.Process, a.PC)
			if cs.all == nil {
				cs.all = map[codeKey]Code{}
			}
			cs.all[k] = c
		}
		r.codeKey, r.code = k, c
	}
	if c == Runtime && a.Kind&(Locked|Fence) == 0 && w.Counts(a) {
		return Program
	}
	return c
}

// access is one access on its way through the cells.
type access struct {
	*Access
	t      *thread
	p      *process
	mov    bool
	site   uint32
	asAtom uint32 // site of it as an access to an atomic
}

// Access takes the next access of a thread.
func (d *Detector) Access(a *Access) {
	d.seq++
	if d.codes.of(d.w, a) != Program {
		return
	}
	p := d.process(a.Process)
	t := p.self(a.Thread)
	if t == nil {
		return
	}
	if a.Kind&Order != 0 {
		t.store = lastStore{}
		if a.Kind&Locked != 0 && a.fits() {
			p.mem.atoms.learn(a.Addr, a.Addr+a.Size, d.seq, p.mem.at(a.Addr))
		}
		for _, o := range d.ordered() {
			t.acquire(o.everything())
		}
		return
	}
	if a.Kind&Done != 0 {
		if a.fits() {
			for cell := a.Addr / 8; cell <= (a.Addr+a.Size-1)/8; cell++ {
				p.mem.atoms.in(cell, maskOf(cell, a.Addr, a.Addr+a.Size), d.seq, func(l *location, _ uint8) { t.acquire(l.clock) })
			}
		}
		return
	}
	made := t.store.follow(a)
	if made.size != 0 {
		p.mem.atoms.learn(made.addr, made.addr+made.size, d.seq, p.mem.at(made.addr))
	}
	if a.Kind&Fence != 0 || a.Size == 0 || a.Kind&(Read|Write) == 0 {
		return
	}
	lo, hi := a.Addr, a.Addr+a.Size
	if hi < lo || a.Size > maxAccess {
		d.note("accesses of more than 256 MiB by one instruction: only their first part was looked at")
		hi = min(lo, ^uint64(0)-maxAccess) + maxAccess
	}
	x := access{Access: a, t: t, p: p, mov: a.movLike()}
	locked := a.Kind&Locked != 0 && a.fits()
	if locked {
		p.mem.atoms.learn(lo, hi, d.seq, p.mem.at(lo))
	}
	var touched [4]*location
	locs := touched[:0]
	if (locked || x.mov) && p.mem.atoms.pages[lo/pageSize] || locked {
		for cell := lo / 8; cell <= (hi-1)/8; cell++ {
			p.mem.atoms.in(cell, maskOf(cell, lo, hi), d.seq, func(l *location, _ uint8) {
				if !slices.Contains(locs, l) {
					locs = append(locs, l)
				}
			})
		}
	}
	if a.Kind&Read != 0 {
		for _, l := range locs {
			t.acquire(l.clock)
		}
	}
	d.cells(&x, lo, hi, locs)
	if a.Kind&Write != 0 && len(locs) > 0 {
		s := t.release()
		for _, l := range locs {
			l.clock = merge(l.clock, s)
		}
	}
	if d.segments.used > d.cfg.MaxCells {
		d.evict()
	}
}

// cells takes x through the cells of [lo,hi); locs are the atomic locations that it accesses as such.
func (d *Detector) cells(x *access, lo, hi uint64, locs []*location) {
	for cell := lo / 8; cell <= (hi-1)/8; cell++ {
		if !d.mine(cell * 8) {
			cell |= 1<<(shardShift-3) - 1 // to the end of the piece
			continue
		}
		mask, atomic := maskOf(cell, lo, hi), uint8(0)
		for _, l := range locs {
			if l.lo < cell*8+8 && cell*8 < l.hi {
				atomic |= maskOf(cell, l.lo, l.hi) & mask
			}
		}
		g := x.p.shadow.page(cell * 8 / pageSize)
		g.touched = d.seq
		if i := int(cell % cellsInPage); g.freedAt(i, mask) {
			d.freedAccess(x, cell, mask)
		} else {
			if plain := mask &^ atomic; plain != 0 {
				d.cell(x, g, i, plain, false)
			}
			if atomic != 0 {
				d.cell(x, g, i, atomic, true)
			}
		}
	}
}

func (d *Detector) siteOf(x *access, atomic bool) uint32 {
	if atomic {
		if x.asAtom == 0 {
			x.asAtom = d.site(x.t, x.Access, true)
		}
		return x.asAtom
	}
	if x.site == 0 {
		x.site = d.site(x.t, x.Access, false)
	}
	return x.site
}

// cell checks and notes an access to bytes of one cell.
func (d *Detector) cell(x *access, g *page, cell int, mask uint8, atomic bool) {
	slab := &d.segments
	e := x.t.epoch()
	write := x.Kind&Write != 0
	rest := mask // bytes that no segment has
	same := uint32(0)
	for i := g.cells[cell]; i != 0; {
		s := slab.at(i)
		next := s.next
		m := s.mask & mask
		rest &^= m
		switch {
		case m == 0:
		case !atomic && s.w.e == e && s.more == nil && (s.r.e == 0 || s.r.e == e):
			// Nothing but this thread, in this time, since it wrote: no more can be learned.
		case !atomic && !write && s.r.e == e:
		default:
			if m != s.mask {
				i = d.split(g, cell, i, m)
				s = slab.at(i)
			}
			d.against(x, s, write, atomic)
			d.update(x, s, e, write, atomic)
			if write && !atomic { // all bytes written are the same from here on
				if same == 0 {
					same = i
				} else {
					slab.at(same).mask |= s.mask
					s.mask = 0
				}
			}
		}
		i = next
	}
	if same != 0 {
		d.sweep(g, cell)
	}
	if rest != 0 {
		i := slab.get()
		s := slab.at(i)
		s.mask, s.next = rest, g.cells[cell]
		g.cells[cell] = i
		g.live++
		d.update(x, s, e, write, atomic)
	}
}

// split takes bytes out of a segment into one of their own.
func (d *Detector) split(g *page, cell int, i uint32, mask uint8) uint32 {
	slab := &d.segments
	n := slab.get()
	s, old := slab.at(n), slab.at(i)
	*s = *old
	if old.more != nil {
		s.more = &more{slices.Clone(old.more.reads), slices.Clone(old.more.atomicWrites), slices.Clone(old.more.atomicReads)}
	}
	s.mask, s.next = mask, g.cells[cell]
	old.mask &^= mask
	g.cells[cell] = n
	g.live++
	return n
}

// sweep drops segments without bytes.
func (d *Detector) sweep(g *page, cell int) {
	for link := &g.cells[cell]; *link != 0; {
		i := *link
		s := d.segments.at(i)
		if s.mask != 0 {
			link = &s.next
			continue
		}
		*link = s.next
		d.segments.put(i)
		g.live--
	}
}

// against reports the accesses in s that the access races with.
func (d *Detector) against(x *access, s *segment, write, atomic bool) {
	see := func(q *point, kind Kind) {
		if q.e != 0 && !x.t.knows(q.e) {
			d.race(x, q, s.mask, kind, atomic)
		}
	}
	see(&s.w, Write)
	if write {
		see(&s.r, Read)
	}
	if s.more == nil {
		return
	}
	all := func(list []point, kind Kind) {
		for i := range list {
			see(&list[i], kind)
		}
	}
	if write {
		all(s.more.reads, Read)
	}
	if atomic {
		return
	}
	all(s.more.atomicWrites, Write|Locked)
	if write {
		all(s.more.atomicReads, Read|Locked)
	}
}

// update is FastTrack's: a write stands for all before it, a read for the reads that it follows.
func (d *Detector) update(x *access, s *segment, e epoch, write, atomic bool) {
	q := point{e, x.Addr, d.siteOf(x, atomic)}
	switch {
	case write && !atomic:
		s.w, s.r, s.more = q, point{}, nil
	case atomic:
		if s.more == nil {
			s.more = &more{}
		}
		s.more.atomicReads = x.t.without(s.more.atomicReads)
		if write {
			s.more.atomicWrites = append(x.t.without(s.more.atomicWrites), q)
		} else {
			s.more.atomicReads = append(s.more.atomicReads, q)
		}
	case s.more != nil && len(s.more.reads) > 0:
		s.more.reads = append(x.t.without(s.more.reads), q)
		if len(s.more.reads) == 1 {
			s.r, s.more.reads = q, nil
		}
	case s.r.e == 0 || x.t.knows(s.r.e):
		s.r = q
	default:
		if s.more == nil {
			s.more = &more{}
		}
		s.more.reads = []point{s.r, q}
		s.r = point{}
	}
}

// without drops the points that t follows.
func (t *thread) without(list []point) []point {
	return slices.DeleteFunc(list, func(q point) bool { return t.knows(q.e) })
}

// checkFree reports the accesses to a block that the free of it does not follow.
func (p *process) checkFree(t *thread, b *block, ev wire.EvFree) {
	d := p.d
	x := access{Access: &Access{Process: p.id, Thread: t.number, Addr: b.addr, Size: b.size, Stack: ev.Stack, Kind: Write}, t: t, p: p}
	p.shadow.eachPage(b.addr, b.end(), func(g *page, lo, hi uint64) {
		if g.live == 0 {
			return
		}
		for cell := lo / 8; cell <= (hi-1)/8; cell++ {
			if !d.mine(cell * 8) {
				continue
			}
			for i := g.cells[cell%cellsInPage]; i != 0; {
				s := d.segments.at(i)
				if s.mask&maskOf(cell, lo, hi) != 0 {
					d.freeing(&x, s, b, ev)
				}
				i = s.next
			}
		}
	})
}

// freeing is against for a free, which an atomic does not excuse.
func (d *Detector) freeing(x *access, s *segment, b *block, ev wire.EvFree) {
	see := func(q *point, kind Kind) {
		if q.e != 0 && !x.t.knows(q.e) {
			d.freeRace(x, q, b, ev, kind)
		}
	}
	see(&s.w, Write)
	see(&s.r, Read)
	if m := s.more; m != nil {
		for i := range m.reads {
			see(&m.reads[i], Read)
		}
		for i := range m.atomicWrites {
			see(&m.atomicWrites[i], Write|Locked)
		}
		for i := range m.atomicReads {
			see(&m.atomicReads[i], Read|Locked)
		}
	}
}
