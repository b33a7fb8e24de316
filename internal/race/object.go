package race

import "github.com/ripstop/ripstop/internal/wire"

// Objects of synchronisation are memory: to initialise or destroy one is a write to it, every other call reads it. So a mutex that one thread locks while another initialises or destroys it is a race, as is one in a
// block that is freed; two that lock it are none. What orders the two calls is what orders all else, the object's own releases included: who unlocks is told to have read it before that, who
// locks before he acquires.
//
// A wait that was woken is none: to destroy a condition or a barrier as soon as all are woken is allowed (POSIX, pthread_cond_destroy), though they have not returned yet.

// objectBytes stand for an object: every kind begins with the word that its calls change.
const objectBytes = 4

// objectPC is the place of a call that is known by its stack alone.
func objectPC(stack uint32) uint64 { return 1<<63 | uint64(stack) }

// lastTaken bounds how many locks a thread is known to have taken where; the place of an unlock is that of its lock.
const lastTaken = 16

type takenAt struct {
	obj   uint64
	stack uint32
}

func (t *thread) took(obj uint64, stack uint32) {
	t.taken[t.takes%lastTaken] = takenAt{obj, stack}
	t.takes++
}

func (t *thread) tookAt(obj uint64) uint32 {
	for i := range min(t.takes, lastTaken) {
		if k := &t.taken[(t.takes-1-i)%lastTaken]; k.obj == obj {
			return k.stack
		}
	}
	return 0
}

// touch is the access of a call to the object at addr. Calls whose place is not known (stack 0) are left out, and objects that processes share: what orders them may be elsewhere.
func (p *process) touch(t *thread, addr uint64, kind wire.Object, stack uint32, how Kind) {
	if stack == 0 || kind == 0 || kind > wire.ObjectSem || addr+objectBytes < addr || p.mem.shared.has(addr) {
		return
	}
	if o := p.objs[addr]; o != nil && o.kind == kind && o.shared {
		return
	}
	x := access{Access: &Access{Process: p.id, Thread: t.number, Addr: addr, Size: objectBytes, PC: objectPC(stack), Stack: stack, Kind: how | Called | Object}, t: t, p: p}
	p.d.cells(&x, addr, addr+objectBytes, nil)
}

// objectAccess tells the access of an event, before what the event orders.
func (p *process) objectAccess(t *thread, e *wire.Event) {
	w := e.Words
	switch e.Type {
	case wire.TypeInit:
		if ev := wire.DecodeInit(w); ev.Flags&(sharedFlags|wire.ObjFlagStatic|wire.ObjFlagLate) == 0 {
			p.touch(t, ev.Obj, ev.Kind, ev.Stack, Write)
		}
	case wire.TypeDestroy:
		if ev := wire.DecodeDestroy(w); ev.Result == 0 {
			p.touch(t, ev.Obj, ev.Kind, ev.Stack, Write)
		}
	case wire.TypeAcquire:
		ev := wire.DecodeAcquire(w)
		p.touch(t, ev.Obj, ev.Kind, ev.Stack, Read)
		t.took(ev.Obj, ev.Stack)
	case wire.TypeRelease:
		ev := wire.DecodeRelease(w)
		p.touch(t, ev.Obj, ev.Kind, t.tookAt(ev.Obj), Read)
	case wire.TypeCondSignal:
		ev := wire.DecodeCondSignal(w)
		p.touch(t, ev.Cond, wire.ObjectCond, ev.Stack, Read)
	case wire.TypeCondWait:
		ev := wire.DecodeCondWait(w)
		p.touch(t, ev.Cond, wire.ObjectCond, ev.Stack, Read)
	case wire.TypeSemPost:
		ev := wire.DecodeSemPost(w)
		p.touch(t, ev.Obj, wire.ObjectSem, ev.Stack, Read)
	case wire.TypeSemWait:
		ev := wire.DecodeSemWait(w)
		p.touch(t, ev.Obj, wire.ObjectSem, ev.Stack, Read)
	case wire.TypeBarrierArrive:
		ev := wire.DecodeBarrierArrive(w)
		p.touch(t, ev.Obj, wire.ObjectBarrier, ev.Stack, Read)
	}
}
