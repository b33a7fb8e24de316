package race

import (
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// object is a synchronisation object: what came before its release.
type object struct {
	kind   wire.Object
	shared bool // other processes use it too
	count  uint32
	w, r   stamp // releases; of rwlocks those by readers apart
	phase  *phase
}

// phase is one filling of a barrier.
type phase struct {
	arrived uint32
	clock   stamp
}

// maxObjects bounds the table of a process. Beyond it the shared clock serves, which orders too much.
const maxObjects = 1 << 21

// object gives the object at addr; nil: it is one that processes share.
func (p *process) object(addr uint64, kind wire.Object) *object {
	o := p.objs[addr]
	if o == nil || o.kind != kind {
		if len(p.objs) >= maxObjects {
			p.d.note("more than 2097152 synchronisation objects in one process: the later ones count as one, and races that they hide are not seen")
			return nil
		}
		o = &object{kind: kind, shared: p.mem.shared.has(addr)}
		p.objs[addr] = o
	}
	if o.shared {
		return nil
	}
	return o
}

// give makes what t did come before whoever takes the object.
func (p *process) give(t *thread, addr uint64, kind wire.Object, mode wire.Mode) {
	o := p.object(addr, kind)
	s := t.release()
	switch {
	case o == nil:
		p.d.shared = merge(p.d.shared, s)
	case mode == wire.ModeShared:
		o.r = merge(o.r, s)
	default:
		o.w = merge(o.w, s)
	}
}

// take makes what was done before it was given come before what t does.
func (p *process) take(t *thread, addr uint64, kind wire.Object, mode wire.Mode) {
	o := p.object(addr, kind)
	if o == nil {
		t.acquire(p.d.shared)
		return
	}
	t.acquire(o.w)
	if mode != wire.ModeShared {
		t.acquire(o.r)
	}
}

// Event takes the next event of a process. e.Words must be one whole record, as wire.RecordWords confirms.
func (d *Detector) Event(process uint64, e *wire.Event) {
	d.seq++
	p := d.process(process)
	switch e.Type {
	case wire.TypeThreadCreate, wire.TypeThreadCreateFailed, wire.TypeThreadStart, wire.TypeThreadExit, wire.TypeThreadJoin, wire.TypeThreadCancel:
		p.threadEvent(e)
		return
	case wire.TypeProcess, wire.TypeProcessEnd, wire.TypeFork, wire.TypeWait:
		p.processEvent(e)
		return
	case wire.TypeNotice:
		if n := wire.DecodeNotice(e.Words).What; n == wire.NoticeOtherAllocations || n == wire.NoticeDeepbind {
			p.blocksUnseen()
		}
		return
	case wire.TypeInit:
		if t := p.self(e.Thread); t != nil {
			p.objectAccess(t, e)
		}
		p.initEvent(wire.DecodeInit(e.Words))
		return
	case wire.TypeDestroy:
		if t := p.self(e.Thread); t != nil {
			p.objectAccess(t, e)
		}
		if ev := wire.DecodeDestroy(e.Words); ev.Result == 0 {
			delete(p.objs, ev.Obj)
		}
		return
	}
	if t := p.self(e.Thread); t != nil {
		t.store = lastStore{}
		p.objectAccess(t, e)
		p.threadsEvent(t, e)
	}
}

// threadsEvent takes an event that only a living thread has.
func (p *process) threadsEvent(t *thread, e *wire.Event) {
	w := e.Words
	switch e.Type {
	case wire.TypeAcquire:
		if ev := wire.DecodeAcquire(w); ev.How != wire.HowRecursive {
			p.take(t, ev.Obj, ev.Kind, ev.Mode)
			t.hold(heldLock{ev.Obj, ev.Stack, ev.Kind, ev.Mode, 1})
		} else {
			t.hold(heldLock{ev.Obj, ev.Stack, ev.Kind, ev.Mode, 0})
		}
	case wire.TypeRelease:
		if ev := wire.DecodeRelease(w); ev.How != wire.HowRecursive {
			p.give(t, ev.Obj, ev.Kind, ev.Mode)
			t.leave(ev.Obj)
		}
	case wire.TypeCondSignal:
		p.give(t, wire.DecodeCondSignal(w).Cond, wire.ObjectCond, wire.ModeExclusive)
	case wire.TypeCondWoken:
		if ev := wire.DecodeCondWoken(w); ev.Result == 0 {
			p.take(t, ev.Cond, wire.ObjectCond, wire.ModeExclusive)
		}
	case wire.TypeBarrierArrive:
		p.arrive(t, wire.DecodeBarrierArrive(w))
	case wire.TypeBarrierLeave:
		if t.phase != nil {
			t.acquire(t.phase.clock)
			t.phase = nil
		} else {
			t.acquire(p.d.shared)
		}
	case wire.TypeSemPost:
		p.give(t, wire.DecodeSemPost(w).Obj, wire.ObjectSem, wire.ModeExclusive)
	case wire.TypeSemWait:
		p.take(t, wire.DecodeSemWait(w).Obj, wire.ObjectSem, wire.ModeExclusive)
	case wire.TypeOnceBegin:
		ev := wire.DecodeOnceBegin(w)
		p.take(t, ev.Obj, ev.Kind, wire.ModeExclusive)
	case wire.TypeOnceEnd:
		ev := wire.DecodeOnceEnd(w)
		if c := changeOf(e); c.what == guards && c.size > 0 {
			p.mem.atoms.learn(c.lo, c.lo+c.size, p.d.seq, p.mem.at(c.lo))
			p.mem.atoms.in(c.lo/8, maskOf(c.lo/8, c.lo, c.lo+c.size), p.d.seq, func(l *location, _ uint8) { l.clock = merge(l.clock, t.now()) })
		}
		p.give(t, ev.Obj, ev.Kind, wire.ModeExclusive)
	case wire.TypeOnceSeen:
		ev := wire.DecodeOnceSeen(w)
		p.take(t, ev.Obj, ev.Kind, wire.ModeExclusive)
	case wire.TypeFutexWake:
		p.giveKey(t, byFutex, wire.DecodeFutexWake(w).Obj)
	case wire.TypeFutexWait:
		if ev := wire.DecodeFutexWait(w); ev.Result == 0 {
			p.takeKey(t, byFutex, ev.Obj)
		}
	case wire.TypeChannelRelease:
		ch := wire.DecodeChannelRelease(w).Channel
		p.d.channels[ch] = merge(p.d.channels[ch], t.release())
	case wire.TypeChannelAcquire:
		t.acquire(p.d.channels[wire.DecodeChannelAcquire(w).Channel])
	case wire.TypeKeyCreate:
		p.giveKey(t, byKey, uint64(wire.DecodeKeyCreate(w).Key))
	case wire.TypeKeyDestructor:
		p.takeKey(t, byKey, uint64(wire.DecodeKeyDestructor(w).Key))
	case wire.TypeAtexitAdd:
		p.giveKey(t, byHandler, wire.DecodeAtexitAdd(w).Fn)
	case wire.TypeAtexitRun:
		p.takeKey(t, byHandler, wire.DecodeAtexitRun(w).Fn)
	case wire.TypeSigaction, wire.TypeSignalSend, wire.TypeSignalEnter, wire.TypeSignalTaken:
		p.signalEvent(t, e)
	default:
		p.memoryEvent(t, e)
	}
}

func (p *process) giveKey(t *thread, what uint8, id uint64) {
	k := keyedBy{what, id}
	p.keyed[k] = merge(p.keyed[k], t.release())
}

func (p *process) takeKey(t *thread, what uint8, id uint64) { t.acquire(p.keyed[keyedBy{what, id}]) }

const sharedFlags = wire.ObjFlagPshared | wire.ObjFlagNamed

func (p *process) initEvent(ev wire.EvInit) {
	o := p.objs[ev.Obj]
	if o == nil || o.kind != ev.Kind || ev.Flags&wire.ObjFlagStatic == 0 {
		if len(p.objs) >= maxObjects {
			return
		}
		o = &object{kind: ev.Kind, shared: p.mem.shared.has(ev.Obj)}
		p.objs[ev.Obj] = o
	}
	o.shared = o.shared || ev.Flags&sharedFlags != 0
	if ev.Kind == wire.ObjectBarrier {
		o.count = ev.Value
	}
}

func (p *process) arrive(t *thread, ev wire.EvBarrierArrive) {
	s := t.release()
	o := p.object(ev.Obj, wire.ObjectBarrier)
	t.phase = nil
	if o == nil {
		p.d.shared = merge(p.d.shared, s)
		return
	}
	count := ev.Count
	if count == 0 {
		count = o.count
	}
	if o.phase == nil || count != 0 && o.phase.arrived >= count {
		o.phase = new(phase)
	}
	o.phase.arrived++
	o.phase.clock = merge(o.phase.clock, s)
	t.phase = o.phase
}

// Values of si_code (sigaction(2)) and signals that an instruction of the thread itself causes.
const (
	siUser  = 0
	siQueue = -1
	siTkill = -6
)

var faults = []uint32{4, 5, 7, 8, 11} // SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV

func (p *process) signalEvent(t *thread, e *wire.Event) {
	d := p.d
	send := func(k signalKey) { d.signals[k] = merge(d.signals[k], t.release()) }
	taken := func(sig uint32, code int32) {
		t.acquire(d.signals[signalKey{process: p.id, thread: t.number, sig: sig}])
		t.acquire(d.signals[signalKey{pid: p.pid, sig: sig}])
		if code != siUser && code != siQueue && code != siTkill && !slices.Contains(faults, sig) {
			t.acquireAll() // a timer, a child, input: who asked for it is not told
		}
	}
	switch e.Type {
	case wire.TypeSigaction:
		send(signalKey{process: p.id, sig: wire.DecodeSigaction(e.Words).Sig})
	case wire.TypeSignalSend:
		ev := wire.DecodeSignalSend(e.Words)
		if ev.Target != 0 {
			send(signalKey{process: p.id, thread: ev.Target, sig: ev.Sig})
		} else {
			send(signalKey{pid: ev.PID, sig: ev.Sig})
		}
	case wire.TypeSignalEnter:
		ev := wire.DecodeSignalEnter(e.Words)
		t.acquire(d.signals[signalKey{process: p.id, sig: ev.Sig}])
		taken(ev.Sig, ev.Code)
	case wire.TypeSignalTaken:
		ev := wire.DecodeSignalTaken(e.Words)
		taken(ev.Sig, ev.Code)
	}
}

// hold adds a lock to what t holds; depth 0: taken again.
func (t *thread) hold(l heldLock) {
	t.heldOld = true
	held := make([]heldLock, 0, len(t.held)+1)
	for _, h := range t.held {
		if h.obj == l.obj {
			if l.depth == 0 || h.mode == l.mode && h.kind == wire.ObjectRwlock {
				h.depth++
				l.obj = 0
			} else {
				continue
			}
		}
		held = append(held, h)
	}
	if l.obj != 0 {
		l.depth = 1
		held = append(held, l)
	}
	t.held = held
}

// leave takes a lock off what t holds.
func (t *thread) leave(obj uint64) {
	i := slices.IndexFunc(t.held, func(h heldLock) bool { return h.obj == obj })
	if i < 0 {
		return
	}
	t.heldOld = true
	t.held = slices.Clone(t.held)
	if h := &t.held[i]; h.kind == wire.ObjectRwlock && h.depth > 1 {
		h.depth--
		return
	}
	t.held = slices.Delete(t.held, i, i+1)
}
