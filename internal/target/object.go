package target

import (
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// object is a synchronisation object as its events tell it, in whatever order init and in-block come. One that was destroyed or whose
// memory was freed is kept until the address is used again, since a finding may still tell about it.
type object struct {
	kind        wire.Object
	initialised uint32 // stack id
	block       uint64 // heap block it lies in, 0: none that is known
	size        uint64
	allocated   uint32 // stack id
	reused      bool   // which may be that of another caller
	gone        bool   // destroyed, or its memory was freed
}

const pageShift = 12

// maxGone is how many objects that are gone are kept.
const maxGone = 1 << 16

func (p *process) putObject(addr uint64, o *object) {
	if p.objects[addr] == nil {
		p.pages[addr>>pageShift] = append(p.pages[addr>>pageShift], addr)
	}
	p.objects[addr] = o
	if o.gone {
		p.gone++
	}
}

// object returns the living object at addr, a new one if there is none.
func (p *process) object(addr uint64) *object {
	o := p.objects[addr]
	if o == nil {
		o = &object{}
		p.putObject(addr, o)
	} else if o.gone {
		*o = object{}
		p.gone--
	}
	return o
}

func (p *process) objectEvent(e *wire.Event) {
	switch e.Type {
	case wire.TypeInit:
		d := wire.DecodeInit(e.Words)
		o := p.object(d.Obj)
		if d.Flags&wire.ObjFlagStatic != 0 && o.kind == d.Kind {
			return // the news that it is used for the first time may come late
		}
		o.kind, o.initialised = d.Kind, d.Stack
	case wire.TypeDestroy:
		if d := wire.DecodeDestroy(e.Words); d.Result == 0 {
			p.rangeGone(d.Obj, 1)
		}
	case wire.TypeInBlock:
		d := wire.DecodeInBlock(e.Words)
		o := p.object(d.Obj)
		o.block, o.size, o.allocated, o.reused = d.Block, d.Size, d.Stack, d.Site != 0
	case wire.TypeBlockGone:
		d := wire.DecodeBlockGone(e.Words)
		p.rangeGone(d.Block, d.Size)
	}
}

// rangeGone marks the objects in [lo,lo+size) as gone.
func (p *process) rangeGone(lo, size uint64) {
	if size == 0 {
		return
	}
	hi := lo + size
	if hi < lo {
		hi = ^uint64(0)
	}
	first, last := lo>>pageShift, (hi-1)>>pageShift
	if last-first < uint64(len(p.pages)) {
		for page := first; page <= last; page++ {
			p.markGone(p.pages[page], lo, hi)
		}
	} else {
		for page, addrs := range p.pages {
			if first <= page && page <= last {
				p.markGone(addrs, lo, hi)
			}
		}
	}
	if p.gone > maxGone {
		p.dropGone()
	}
}

func (p *process) markGone(addrs []uint64, lo, hi uint64) {
	for _, a := range addrs {
		if o := p.objects[a]; lo <= a && a < hi && !o.gone {
			o.gone = true
			p.gone++
		}
	}
}

func (p *process) dropGone() {
	for page, addrs := range p.pages {
		addrs = slices.DeleteFunc(addrs, func(a uint64) bool {
			if !p.objects[a].gone {
				return false
			}
			delete(p.objects, a)
			return true
		})
		if p.pages[page] = addrs; len(addrs) == 0 {
			delete(p.pages, page)
		}
	}
	p.gone = 0
}

// block is a heap block. A freed one is kept until its address is handed out again, for findings about frees.
type block struct {
	size  uint64
	stack uint32 // where allocated
	freed bool
}

// largeBlock divides blocks for the search by an address within: a small one's beginning is looked for, large ones are few.
const (
	largeBlock = 1 << 15
	blockAlign = 16
)

func (p *process) memoryEvent(e *wire.Event) {
	switch e.Type {
	case wire.TypeAlloc:
		d := wire.DecodeAlloc(e.Words)
		if p.blocks[d.Addr].size >= largeBlock {
			delete(p.large, d.Addr)
		}
		p.blocks[d.Addr] = block{d.Size, d.Stack, false}
		if d.Size >= largeBlock {
			p.large[d.Addr] = struct{}{}
		}
	case wire.TypeFree:
		d := wire.DecodeFree(e.Words)
		if b, ok := p.blocks[d.Addr]; ok {
			b.freed = true
			p.blocks[d.Addr] = b
		}
	case wire.TypeMmap:
		d := wire.DecodeMmap(e.Words)
		p.mappings.add(d.Addr, d.Addr+d.Len)
	case wire.TypeMunmap:
		d := wire.DecodeMunmap(e.Words)
		p.mappings.remove(d.Addr, d.Addr+d.Len)
	case wire.TypeMremap:
		d := wire.DecodeMremap(e.Words)
		p.mappings.remove(d.Old, d.Old+d.OldLen)
		p.mappings.add(d.Addr, d.Addr+d.Len)
	}
}

// blockAt is the heap block that holds addr: a living one, or a freed one that begins there.
func (p *process) blockAt(addr uint64) (start uint64, b block, ok bool) {
	if b, ok := p.blocks[addr]; ok {
		return addr, b, true
	}
	for start := range p.large {
		if b := p.blocks[start]; !b.freed && addr-start < b.size {
			return start, b, true
		}
	}
	if len(p.blocks) == len(p.large) {
		return 0, block{}, false
	}
	for start := addr &^ (blockAlign - 1); addr-start < largeBlock; start -= blockAlign {
		if b, ok := p.blocks[start]; ok {
			return start, b, !b.freed && addr-start < b.size
		}
		if start < blockAlign {
			break
		}
	}
	return 0, block{}, false
}

// intervals is a sorted list of disjoint address ranges.
type intervals []interval

type interval struct{ lo, hi uint64 }

// overlap gives the indices [i,j) of those that share an address with [lo,hi).
func (v intervals) overlap(lo, hi uint64) (i, j int) {
	i = sort.Search(len(v), func(i int) bool { return v[i].hi > lo })
	for j = i; j < len(v) && v[j].lo < hi; j++ {
	}
	return i, j
}

func (v *intervals) add(lo, hi uint64) {
	if lo >= hi {
		return
	}
	v.remove(lo, hi)
	i, _ := v.overlap(lo, hi)
	*v = slices.Insert(*v, i, interval{lo, hi})
}

func (v *intervals) remove(lo, hi uint64) {
	if lo >= hi {
		return
	}
	i, j := v.overlap(lo, hi)
	if i == j {
		return
	}
	var rest []interval
	if l := (*v)[i].lo; l < lo {
		rest = append(rest, interval{l, lo})
	}
	if h := (*v)[j-1].hi; h > hi {
		rest = append(rest, interval{hi, h})
	}
	*v = slices.Replace(*v, i, j, rest...)
}

func (v intervals) has(addr uint64) bool {
	i, j := v.overlap(addr, addr+1)
	return i < j
}

// KindName is what a programmer calls an object of that kind.
func KindName(kind wire.Object) string {
	switch kind {
	case wire.ObjectMutex:
		return "mutex"
	case wire.ObjectRwlock:
		return "rwlock"
	case wire.ObjectSpin:
		return "spin lock"
	case wire.ObjectCond:
		return "condition variable"
	case wire.ObjectBarrier:
		return "barrier"
	case wire.ObjectSem:
		return "semaphore"
	case wire.ObjectOnce:
		return "once control"
	case wire.ObjectGuard:
		return "static initialiser"
	case wire.ObjectThread:
		return "thread"
	case wire.ObjectKey:
		return "key"
	case wire.ObjectFutex:
		return "futex"
	case wire.ObjectFd:
		return "file descriptor"
	case wire.ObjectHeap:
		return "heap block"
	}
	return "object"
}

// Object describes the object at addr, by the memory it lies in now. Its symbol is left to Symbolize.
func (s *Set) Object(process, addr uint64, kind wire.Object) finding.Object {
	out := finding.Object{Kind: KindName(kind), Addr: addr}
	p := s.procs[process]
	if p == nil {
		return out
	}
	if fd, ok := wire.FdAt(addr); ok && kind == wire.ObjectFd {
		out.Addr, out.Where, out.Initialised = uint64(fd), finding.Descriptor, p.frames(p.opened[fd])
		return out
	}
	o := p.objects[addr]
	if o != nil && o.kind == kind && o.initialised != 0 {
		out.Initialised = p.frames(o.initialised)
	}
	if m := p.moduleAt(addr, mapped); m != nil && (o == nil || o.block == 0 || o.gone) {
		out.Where, out.Module, out.BuildID, out.SymOffset = finding.Global, m.Path, m.BuildID, addr-m.Bias
		return out
	}
	if o != nil && o.block != 0 {
		out.Where, out.Block, out.Size, out.Allocated = finding.Heap, o.block, o.size, p.frames(o.allocated)
		out.Reused = o.reused
		return out
	}
	if start, b, ok := p.blockAt(addr); ok {
		out.Where, out.Block, out.Size, out.Allocated = finding.Heap, start, b.size, p.frames(b.stack)
		return out
	}
	out.BelowThread, out.Below = p.belowPointer(addr)
	if t, ok := p.stackOwner(addr); ok {
		out.Where, out.OwnerThread = finding.OnStack, t
		if f, ok := p.racing[addr]; ok {
			out.Frame, out.FrameOffset = p.frame(f.pc, false, mapped), int64(addr-f.cfa)
		}
	} else if p.mappings.has(addr) {
		out.Where = finding.Mapping
	}
	if out.Below != 0 {
		for i := range p.modules {
			if m := &p.modules[i]; m.Path == p.exe && m.to == mapped {
				out.Module, out.BuildID = m.Path, m.BuildID
			}
		}
	}
	return out
}
