package race

import (
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/wire"
)

// memory is what is known of a process's memory without its accesses: heap blocks, shared mappings, atomic locations.
type memory struct {
	blocks map[uint64]*block
	pages  map[uint64][]*block // by each page that a block touches; not of huge ones
	huge   []*block
	gone   []*block // freed ones, oldest first, some of them reused since
	shared spans
	atoms  atoms
}

// block is a heap block that lives, or was freed and not handed out again.
type block struct {
	addr, size uint64
	stack      uint32 // where allocated
	born       uint64 // seq
	thread     uint32 // that allocated it

	freed      bool
	freeStack  uint32
	freeKind   wire.Alloc
	freeThread uint32
	freeSeq    uint64
}

const (
	pageSize   = 4096
	hugePages  = 64
	unmapsFrom = 128 << 10 // M_MMAP_THRESHOLD (mallopt(3)): free may unmap such a block, and another thing be mapped there unseen
)

func newMemory() *memory {
	return &memory{blocks: map[uint64]*block{}, pages: map[uint64][]*block{}, atoms: atoms{cells: map[uint64][]*location{}}}
}

func (b *block) end() uint64 {
	if e := b.addr + b.size; e >= b.addr {
		return e
	}
	return ^uint64(0)
}

func pagesOf(lo, hi uint64) (first, last uint64) { return lo / pageSize, (hi - 1) / pageSize }

func (m *memory) add(b *block) {
	m.blocks[b.addr] = b
	if b.size == 0 {
		return
	}
	first, last := pagesOf(b.addr, b.end())
	if last-first >= hugePages {
		m.huge = append(m.huge, b)
		return
	}
	for page := first; page <= last; page++ {
		m.pages[page] = append(m.pages[page], b)
	}
}

func (m *memory) drop(b *block) {
	if m.blocks[b.addr] == b {
		delete(m.blocks, b.addr)
	}
	if b.size == 0 {
		return
	}
	without := func(list []*block) []*block {
		if i := slices.Index(list, b); i >= 0 {
			list = slices.Delete(list, i, i+1)
		}
		return list
	}
	first, last := pagesOf(b.addr, b.end())
	if last-first >= hugePages {
		m.huge = without(m.huge)
		return
	}
	for page := first; page <= last; page++ {
		if list := without(m.pages[page]); len(list) == 0 {
			delete(m.pages, page)
		} else {
			m.pages[page] = list
		}
	}
}

// within lists the blocks that share a byte with [lo,hi), by address.
func (m *memory) within(lo, hi uint64) (out []*block) {
	if lo >= hi {
		return nil
	}
	see := func(list []*block) {
		for _, b := range list {
			if b.addr < hi && lo < b.end() && !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	see(m.huge)
	first, last := pagesOf(lo, hi)
	if last-first < uint64(len(m.pages)) {
		for page := first; page <= last; page++ {
			see(m.pages[page])
		}
	} else {
		for page, list := range m.pages {
			if first <= page && page <= last {
				see(list)
			}
		}
	}
	if b := m.blocks[lo]; b != nil && b.size == 0 {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b *block) int { return int(int64(a.addr - b.addr)) })
	return out
}

// at is the block that holds the byte; nil: none.
func (m *memory) at(addr uint64) *block {
	if got := m.within(addr, addr+1); len(got) > 0 {
		return got[0]
	}
	return nil
}

func (m *memory) inherit(parent *memory) {
	for _, b := range parent.blocks {
		c := *b
		m.add(&c)
	}
	m.shared = slices.Clone(parent.shared)
	m.atoms.inherit(&parent.atoms)
}

// spans is a sorted list of disjoint address ranges.
type spans []span

type span struct{ lo, hi uint64 }

func (v spans) overlap(lo, hi uint64) (i, j int) {
	i = sort.Search(len(v), func(i int) bool { return v[i].hi > lo })
	for j = i; j < len(v) && v[j].lo < hi; j++ {
	}
	return i, j
}

func (v spans) has(addr uint64) bool {
	i, j := v.overlap(addr, addr+1)
	return i < j
}

func (v *spans) remove(lo, hi uint64) {
	i, j := v.overlap(lo, hi)
	if lo >= hi || i == j {
		return
	}
	var rest []span
	if l := (*v)[i].lo; l < lo {
		rest = append(rest, span{l, lo})
	}
	if h := (*v)[j-1].hi; h > hi {
		rest = append(rest, span{hi, h})
	}
	*v = slices.Replace(*v, i, j, rest...)
}

func (v *spans) add(lo, hi uint64) {
	if lo >= hi {
		return
	}
	v.remove(lo, hi)
	i, _ := v.overlap(lo, hi)
	*v = slices.Insert(*v, i, span{lo, hi})
}

// change is what an event says of memory: what ends and what begins. Both passes of Run read it so.
type change struct {
	lo, size uint64
	what     changeKind
}

type changeKind uint8

const (
	none       changeKind = iota
	allocates             // a heap block begins
	frees                 // the block at lo ends
	replaces              // the bytes are other memory from here on
	mapsShared            // … shared with other processes
	guards                // the byte is one of a guard of a static variable
)

// changeOf reads an event.
func changeOf(e *wire.Event) (c change) {
	w := e.Words
	switch e.Type {
	case wire.TypeAlloc:
		ev := wire.DecodeAlloc(w)
		c = change{ev.Addr, ev.Size, allocates}
	case wire.TypeFree:
		c = change{wire.DecodeFree(w).Addr, 0, frees}
	case wire.TypeMmap:
		const mapShared, mapType = 1, 0xf
		ev := wire.DecodeMmap(w)
		if c = (change{ev.Addr, ev.Len, replaces}); ev.Mflags&mapType&^2 == mapShared {
			c.what = mapsShared
		}
	case wire.TypeMunmap:
		ev := wire.DecodeMunmap(w)
		c = change{ev.Addr, ev.Len, replaces}
	case wire.TypeFdOpen:
		c = change{wire.FdPlace + 8*uint64(uint32(wire.DecodeFdOpen(w).Fd)), 8, replaces}
	case wire.TypeMremap:
		ev := wire.DecodeMremap(w)
		if ev.Addr != ev.Old {
			c = change{ev.Old, ev.OldLen, replaces}
		}
	case wire.TypeModule:
		ev := wire.DecodeModule(w)
		c = change{ev.Base, ev.End - ev.Base, replaces}
		if ev.End < ev.Base {
			c.size = 0
		}
	case wire.TypeOnceEnd:
		// Compiled code looks at the first byte itself, and calls only if that is not set (Itanium C++ ABI 3.3.3): an acquire.
		if ev := wire.DecodeOnceEnd(w); ev.Kind == wire.ObjectGuard {
			c = change{ev.Obj, 1, guards}
		}
	case wire.TypeThreadStart:
		if ev := wire.DecodeThreadStart(w); ev.Self != 1 && ev.StackHi > ev.StackLo {
			c = change{ev.StackLo, ev.StackHi - ev.StackLo, replaces}
		}
	}
	if c.lo+c.size < c.lo {
		c.size = -c.lo
	}
	return c
}

func (p *process) memoryEvent(t *thread, e *wire.Event) {
	c := changeOf(e)
	switch {
	case e.Type == wire.TypeAlloc:
		ev := wire.DecodeAlloc(e.Words)
		p.forgetRange(c.lo, c.size)
		p.mem.add(&block{addr: c.lo, size: c.size, stack: ev.Stack, born: p.d.seq, thread: t.number})
	case e.Type == wire.TypeFree:
		p.free(t, wire.DecodeFree(e.Words))
	case c.what == replaces || c.what == mapsShared:
		p.replaced++
		p.forgetRange(c.lo, c.size)
		p.mem.shared.remove(c.lo, c.lo+c.size)
		if c.what == mapsShared {
			p.mem.shared.add(c.lo, c.lo+c.size)
		}
		if e.Type == wire.TypeModule {
			s := t.release()
			for _, o := range sorted(p.threads) {
				if o != t && !o.ended {
					o.acquire(s)
				}
			}
		}
	}
}

// forgetRange drops what is known of bytes that are other memory from here on.
func (p *process) forgetRange(lo, size uint64) {
	if size == 0 {
		return
	}
	hi := lo + size
	if hi < lo {
		hi = ^uint64(0)
	}
	for _, b := range p.mem.within(lo, hi) {
		p.shadow.setFreed(b.addr, b.end(), false)
		p.mem.drop(b)
	}
	p.shadow.forget(lo, hi)
	p.mem.atoms.close(lo, hi, p.d.seq)
	p.dropObjects(lo, hi)
}

// blocksUnseen is told of by a notice: from here on no memory is known to be free.
func (p *process) blocksUnseen() {
	p.unseen = true
	for _, b := range p.mem.gone {
		if p.mem.blocks[b.addr] == b {
			p.shadow.setFreed(b.addr, b.end(), false)
			p.mem.drop(b)
		}
	}
	p.mem.gone = nil
}

// free ends a block. It is a write to all of it: whoever accessed it must come before.
func (p *process) free(t *thread, ev wire.EvFree) {
	b := p.mem.blocks[ev.Addr]
	if b == nil || b.freed || ev.Addr == 0 {
		return
	}
	p.checkFree(t, b, ev)
	lo, hi := b.addr, b.end()
	p.shadow.forget(lo, hi)
	p.mem.atoms.close(lo, hi, p.d.seq)
	p.dropObjects(lo, hi)
	if p.unseen {
		p.mem.drop(b)
		return
	}
	b.freed, b.freeStack, b.freeKind, b.freeThread, b.freeSeq = true, ev.Stack, ev.Kind, t.number, p.d.seq
	if b.size < unmapsFrom {
		p.shadow.setFreed(lo, hi, true)
	}
	p.mem.gone = append(p.mem.gone, b)
	if len(p.mem.gone) > p.d.cfg.MaxFreed {
		p.d.note("more freed blocks than are remembered: accesses to those freed long ago are not seen")
		n := len(p.mem.gone) / 4
		for _, o := range p.mem.gone[:n] {
			if p.mem.blocks[o.addr] == o {
				p.shadow.setFreed(o.addr, o.end(), false)
				p.mem.drop(o)
			}
		}
		p.mem.gone = slices.Delete(p.mem.gone, 0, n)
	}
}

// dropObjects ends the synchronisation objects in [lo,hi).
func (p *process) dropObjects(lo, hi uint64) {
	if hi-lo < uint64(len(p.objs)) {
		for a := lo; a < hi; a++ {
			delete(p.objs, a)
		}
		return
	}
	for a := range p.objs {
		if lo <= a && a < hi {
			delete(p.objs, a)
		}
	}
}
