package detect

import (
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// A full trace has every acquire and release instead of `order` events: here they become held sets, and a nesting that is new to the
// thread's segment becomes what an `order` event would say. Holding one lock at a time costs no more than the list itself.

// heldLock is one lock that a thread holds.
type heldLock struct {
	obj   uint64
	kind  wire.Object
	mode  wire.Mode
	stack uint32
	depth uint32 // how often it took it
}

// recent remembers which nestings the thread has shown in this segment, by hash: the newest of each slot.
type recent struct {
	seen [256]uint64
}

// find is the index of obj in t.held, −1 if t does not hold it. The newest first: most locks are released in reverse order.
func (t *thread) find(obj uint64) int {
	for i := len(t.held) - 1; i >= 0; i-- {
		if t.held[i].obj == obj {
			return i
		}
	}
	return -1
}

func (p *process) acquire(t *thread, ev wire.EvAcquire) {
	if t == nil {
		return
	}
	p.running(t)
	p.take(t, heldLock{obj: ev.Obj, kind: ev.Kind, mode: ev.Mode, stack: ev.Stack, depth: 1}, ev.How)
}

// take adds a lock to what t holds.
func (p *process) take(t *thread, l heldLock, how wire.How) {
	if i := t.find(l.obj); i >= 0 {
		if how == wire.HowRecursive || l.kind == wire.ObjectSem {
			t.held[i].depth++
			return
		}
		// Taken anew without having been given back: another lock, which a frame that was left by longjmp had at this address.
		t.held = append(t.held[:i], t.held[i+1:]...)
	}
	if len(p.gone) > 0 {
		delete(p.gone, l.obj)
	}
	if len(t.held) > 0 && how != wire.HowRecursive {
		p.nested(t, l, how)
	}
	t.held = append(t.held, l)
	p.full = true
}

func (p *process) release(t *thread, ev wire.EvRelease) {
	if t == nil {
		return
	}
	p.running(t)
	if p.give(t, ev.Obj) {
		return
	}
	// Somebody else's, or taken before we saw: it is not held the way a lock is.
	for _, other := range p.threads {
		if other != t && other.find(ev.Obj) >= 0 {
			p.handOver(ev.Obj, ev.Kind)
			return
		}
	}
}

// give takes a lock off what t holds; false if t does not hold it.
func (p *process) give(t *thread, obj uint64) bool {
	i := t.find(obj)
	if i < 0 {
		return false
	}
	if t.held[i].depth > 1 {
		t.held[i].depth--
		return true
	}
	t.held = append(t.held[:i], t.held[i+1:]...)
	return true
}

// dropHeld takes an object that is no more off what any thread holds.
func (p *process) dropHeld(obj uint64) { p.dropHeldIn(obj, obj+1) }

// dropHeldIn takes all objects in [lo, hi) off what any thread holds.
func (p *process) dropHeldIn(lo, hi uint64) {
	if !p.full {
		return
	}
	for _, t := range p.threads {
		if len(t.held) > 0 {
			t.held = slices.DeleteFunc(t.held, func(l heldLock) bool { return lo <= l.obj && l.obj < hi })
		}
	}
}

// nested is reached when t takes l while it holds others.
func (p *process) nested(t *thread, l heldLock, how wire.How) {
	h := mix(l.obj, uint64(l.mode)<<8|uint64(how), p.objs.deaths)
	for i := range t.held {
		h = mix(h, t.held[i].obj, uint64(t.held[i].mode))
	}
	if t.recent == nil {
		t.recent = new(recent)
	}
	slot := &t.recent.seen[h%uint64(len(t.recent.seen))]
	if *slot == h {
		return
	}
	held := make([]wire.Held, len(t.held))
	for i, x := range t.held {
		held[i] = wire.Held{Obj: x.obj, Stack: x.stack, Mode: uint8(x.mode), Kind: uint8(x.kind)}
	}
	p.order.add(t, l.obj, l.kind, l.mode, how, l.stack, held)
	t.recent.seen[h%uint64(len(t.recent.seen))] = h
}

// mix folds b and c into the hash a (the finaliser of MurmurHash3 over their sum).
func mix(a, b, c uint64) uint64 {
	h := a*0x9e3779b97f4a7c15 + b
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= c + h>>29
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>32
}

func (p *process) orderEvent(t *thread, ev wire.EvOrder) {
	if t == nil {
		return
	}
	p.running(t)
	if len(p.gone) > 0 {
		delete(p.gone, ev.Obj)
		for _, h := range ev.Held {
			delete(p.gone, h.Obj)
		}
	}
	if ev.How == wire.HowRecursive {
		return
	}
	p.order.add(t, ev.Obj, ev.Kind, ev.Mode, ev.How, ev.Stack, ev.Held)
}
