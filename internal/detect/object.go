package detect

import (
	"github.com/ripstop/ripstop/internal/wire"
)

// objects are the synchronisation objects of a process by address. A new object at the address of a former one is another object.
type objects struct {
	byAddr map[uint64]*object
	pages  map[uint64][]*object // by address/pageSize; gone ones are taken out
	deaths uint64               // how many ended: nestings remembered before may mean other objects
}

const pageSize = 4096

// maxObjects bounds the table; objects beyond it take no part in lock orders, and what needs their attributes is not claimed.
const maxObjects = 1 << 21

// object is one of them, from its first mention to its end.
type object struct {
	addr  uint64
	kind  wire.Object // 0: only its block is known
	known bool        // its initialisation was seen: flags and value are valid
	flags wire.ObjFlag
	value uint32

	initStack  uint32
	allocStack uint32 // of the heap block it lies in
	allocAt    uint64 // offset in that block

	// handed: a thread that did not hold it released it. It serves to hand something over, not as a lock, and who "holds" it says nothing.
	handed bool
	gone   bool
	node   *lockNode // in the order graph

	owner  *thread // semaphore, full trace: who waited and has not posted; once, guard: who runs the initialiser
	own    uint32  // semaphore, full trace: posts by the thread that waited last
	doubt  bool    // semaphore: a thread that had taken it waited for it again, as one does for another thread's post
	posted uint64  // semaphore, condition: number of the last post or signal, full trace only
	phase  *phase  // barrier
}

func (o *objects) init() {
	o.byAddr, o.pages = map[uint64]*object{}, map[uint64][]*object{}
}

// private reports whether the object is known to be used by this process alone. Semaphores and barriers have no static initialiser, and their bytes
// do not say whether they are shared: one whose initialisation was not seen may be in memory that another process made.
func (o *object) private() bool {
	if o == nil || !o.known || o.flags&(wire.ObjFlagPshared|wire.ObjFlagNamed) != 0 {
		return false
	}
	return o.flags&wire.ObjFlagStatic == 0 || o.kind != wire.ObjectSem && o.kind != wire.ObjectBarrier
}

// lockLike reports whether a semaphore has been used as a lock only, as far as is known.
func (o *object) lockLike() bool { return o.private() && o.exclusive() }

// exclusive reports whether a semaphore has been used as a lock only in this process. Others may use it as well: it is a gate, and no more.
func (o *object) exclusive() bool {
	return o.kind == wire.ObjectSem && o.known && o.value == 1 && !o.handed
}

// object returns the object of that kind at addr; it is new if there was none or one of another kind. Nil: the table is full.
func (p *process) object(addr uint64, kind wire.Object) *object {
	if o := p.objs.byAddr[addr]; o != nil {
		if o.kind == 0 {
			o.kind = kind
		}
		if o.kind == kind {
			return o
		}
		p.objectGone(addr)
	}
	if len(p.objs.byAddr) >= maxObjects {
		p.d.note("more than 2097152 synchronisation objects in one process: orders of the later ones were not checked")
		return nil
	}
	o := &object{addr: addr, kind: kind}
	p.objs.byAddr[addr] = o
	page := addr / pageSize
	p.objs.pages[page] = append(p.objs.pages[page], o)
	return o
}

// lookup is what is known of the object of that kind at addr, in a forked child perhaps by its parent; nil if it was never mentioned.
func (p *process) lookup(addr uint64, kind wire.Object) *object {
	q := p
	for range 8 { // forks of forks; a hostile trace could close the chain to a ring
		if o := q.objs.byAddr[addr]; o != nil && o.kind != 0 {
			if o.kind != kind {
				return nil
			}
			if o.known {
				return o
			}
		}
		if q = q.parent; q == nil {
			break
		}
	}
	if o := p.objs.byAddr[addr]; o != nil && o.kind == kind {
		return o
	}
	return nil
}

func (p *process) initEvent(ev wire.EvInit) {
	static := ev.Flags&wire.ObjFlagStatic != 0
	late := ev.Flags&wire.ObjFlagLate != 0 // it is the object that events speak of, perhaps already: what was there before is known to be gone
	ev.Flags &^= wire.ObjFlagLate
	var stack uint32
	var at uint64
	if o := p.objs.byAddr[ev.Obj]; o != nil {
		stack, at = o.allocStack, o.allocAt // what is known of its block stays true
	}
	if !static && !late {
		p.objectGone(ev.Obj)
	}
	o := p.object(ev.Obj, ev.Kind)
	if o == nil {
		return
	}
	o.allocStack, o.allocAt = stack, at
	o.known, o.flags, o.value, o.initStack = true, ev.Flags, ev.Value, ev.Stack
	p.touch()
}

// inBlock may come before the first event that uses the object: then its kind is not known yet.
func (o *objects) inBlock(ev wire.EvInBlock, p *process) {
	if obj := o.byAddr[ev.Obj]; obj != nil {
		obj.allocStack, obj.allocAt = ev.Stack, ev.Obj-ev.Block
	} else if obj := p.object(ev.Obj, 0); obj != nil {
		obj.allocStack, obj.allocAt = ev.Stack, ev.Obj-ev.Block
	}
}

// objectGone ends the object at addr, if there is one.
func (p *process) objectGone(addr uint64) {
	o := p.objs.byAddr[addr]
	if o == nil {
		delete(p.gone, addr)
		p.dropHeld(addr)
		return
	}
	page := addr / pageSize
	list := p.objs.pages[page]
	for i := range list {
		if list[i] == o {
			list[i] = list[len(list)-1]
			list[len(list)-1] = nil
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(p.objs.pages, page)
	} else {
		p.objs.pages[page] = list
	}
	p.drop(o)
}

// rangeGone ends all objects in [lo, lo+size).
func (p *process) rangeGone(lo, size uint64) {
	if size == 0 {
		return
	}
	hi := lo + size
	if hi < lo {
		hi = ^uint64(0)
	}
	p.dropHeldIn(lo, hi)
	for addr := range p.gone {
		if lo <= addr && addr < hi {
			delete(p.gone, addr)
		}
	}
	if len(p.objs.pages) == 0 {
		return
	}
	first, last := lo/pageSize, (hi-1)/pageSize
	if last-first >= uint64(len(p.objs.pages)) {
		for page := range p.objs.pages {
			if first <= page && page <= last {
				p.pageGone(page, lo, hi)
			}
		}
	} else {
		for page := first; page <= last; page++ {
			p.pageGone(page, lo, hi)
		}
	}
}

func (p *process) pageGone(page, lo, hi uint64) {
	list := p.objs.pages[page]
	kept := list[:0]
	for _, o := range list {
		if lo <= o.addr && o.addr < hi {
			p.drop(o)
		} else {
			kept = append(kept, o)
		}
	}
	clear(list[len(kept):])
	if len(kept) == 0 {
		delete(p.objs.pages, page)
	} else {
		p.objs.pages[page] = kept
	}
}

// drop forgets o in all places but the page list.
func (p *process) drop(o *object) {
	o.gone = true
	p.objs.deaths++
	delete(p.objs.byAddr, o.addr)
	delete(p.gone, o.addr)
	p.order.remove(o)
	p.dropHeld(o.addr)
	p.sayLate(o)
	p.touch()
}

// handOver makes o an object that is no lock: nothing follows from who holds it.
func (p *process) handOver(addr uint64, kind wire.Object) {
	o := p.object(addr, kind)
	delete(p.gone, addr)
	if o == nil || o.handed {
		return
	}
	o.handed = true
	o.owner = nil
	p.objs.deaths++
	p.order.remove(o)
	p.dropHeld(addr)
	p.touch()
}
