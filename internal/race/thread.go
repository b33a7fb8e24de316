package race

import (
	"cmp"
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// process is what the detector knows of one process.
type process struct {
	d      *Detector
	id     uint64
	pid    uint32
	ended  bool
	stamps stamp // of its ended threads

	replaced uint64 // how often memory other than blocks became other memory

	threads map[uint32]*thread
	recent  *thread // of the last access or event
	objs    map[uint64]*object
	keyed   map[keyedBy]stamp // keys, exit handlers, futexes, pids
	mem     *memory
	unseen  bool // blocks may be handed out unseen: what was freed is not known to be free
	shadow  shadow
}

type keyedBy struct {
	what uint8
	id   uint64
}

const (
	byKey uint8 = iota
	byHandler
	byFutex
)

func newProcess(d *Detector, id uint64) *process {
	p := &process{
		d: d, id: id, threads: map[uint32]*thread{}, objs: map[uint64]*object{}, keyed: map[keyedBy]stamp{},
		mem: newMemory(), shadow: shadow{d: d, pages: map[uint64]*page{}},
	}
	if d.atomics != nil {
		p.mem.atoms.fixed = true
		if m := d.atomics.procs[id]; m != nil {
			p.mem.atoms = m.atoms.clone()
		}
	}
	return p
}

// thread is one thread, or one after another that had the same number.
type thread struct {
	p      *process
	number uint32
	slot   slot
	at     uint64 // its time
	v      vector // what it knows of others

	created, started, ended bool
	held                    []heldLock
	heldID                  uint32
	heldOld                 bool // heldID is not that of held
	phase                   *phase
	store                   lastStore
	sites                   [64]siteEntry
	taken                   [lastTaken]takenAt // where it took locks, the newest at takes-1
	takes                   int
}

// heldLock is a lock that a thread holds.
type heldLock struct {
	obj   uint64
	stack uint32
	kind  wire.Object
	mode  wire.Mode
	depth uint32
}

type slotState struct {
	at uint64 // time that was given out last
}

// maxSlots bounds vector clocks: beyond it a new thread follows one that ended, though nothing orders them.
const maxSlots = 4096

// newThread begins a thread that knows v.
func (p *process) newThread(number uint32, v vector) *thread {
	d := p.d
	if old := p.threads[number]; old != nil && !old.ended {
		p.endThread(old)
	}
	t := &thread{p: p, number: number, v: v}
	p.threads[number], p.recent = t, nil
	for i := len(d.idle) - 1; i >= 0 && i >= len(d.idle)-64; i-- {
		if s := d.idle[i]; v.at(s) >= d.slots[s].at {
			d.idle = slices.Delete(d.idle, i, i+1)
			t.slot = s
			t.at = d.slots[s].at + 1
			return t
		}
	}
	if len(d.slots) >= maxSlots && len(d.idle) > 0 {
		d.note("more than 4096 threads that nothing orders: some are taken to begin after others that had ended, and races between them are not seen")
		s := d.idle[0]
		d.idle = slices.Delete(d.idle, 0, 1)
		t.slot, t.at = s, d.slots[s].at+1
		t.v = v.join(stamp{nil, s, d.slots[s].at})
		return t
	}
	d.slots = append(d.slots, slotState{})
	t.slot, t.at = slot(len(d.slots)-1), 1
	return t
}

func (t *thread) now() stamp { return stamp{t.v, t.slot, t.at} }

func (t *thread) epoch() epoch { return makeEpoch(t.slot, t.at) }

// release tells what t did up to here, and begins a time.
func (t *thread) release() stamp {
	s := t.now()
	t.at++
	return s
}

func (t *thread) acquire(s stamp) {
	if s.at != 0 {
		t.v = t.v.join(s)
	}
}

// acquireAll makes all that was done in the process up to here come before.
func (t *thread) acquireAll() {
	t.acquire(t.p.stamps)
	for _, o := range sorted(t.p.threads) {
		if o != t && !o.ended {
			t.acquire(o.release())
		}
	}
}

func sorted(threads map[uint32]*thread) []*thread {
	out := make([]*thread, 0, len(threads))
	for _, t := range threads {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *thread) int { return cmp.Compare(a.number, b.number) })
	return out
}

// knows reports whether what was done at e comes before what t does now.
func (t *thread) knows(e epoch) bool { return e.slot() == t.slot || e.time() <= t.v.at(e.slot()) }

// endThread makes t one that does nothing more.
func (p *process) endThread(t *thread) {
	if t.ended {
		return
	}
	t.ended = true
	t.held, t.heldOld = nil, true
	p.stamps = merge(p.stamps, t.now())
	p.d.slots[t.slot].at = t.at
	p.d.idle = append(p.d.idle, t.slot)
}

// self is the thread of a number; nil where none is known or it has ended.
func (p *process) self(number uint32) *thread {
	if number == 0 {
		return nil
	}
	if t := p.recent; t != nil && t.number == number && !t.ended {
		return t
	}
	t := p.threads[number]
	if t == nil {
		if p.ended {
			return nil
		}
		t = p.newThread(number, nil)
		t.acquireAll()
	}
	if t.ended {
		return nil
	}
	p.recent = t
	return t
}

func (p *process) threadEvent(e *wire.Event) {
	switch e.Type {
	case wire.TypeThreadCreate:
		t, ev := p.self(e.Thread), wire.DecodeThreadCreate(e.Words)
		if t == nil || ev.Child == 0 || ev.Child == t.number {
			return
		}
		child := p.newThread(ev.Child, t.v.join(t.release()))
		child.created = true
	case wire.TypeThreadCreateFailed:
		if c := p.threads[wire.DecodeThreadCreateFailed(e.Words).Child]; c != nil && !c.started && !c.ended {
			p.endThread(c)
			delete(p.threads, c.number)
		}
	case wire.TypeThreadStart:
		ev := wire.DecodeThreadStart(e.Words)
		t := p.threads[ev.Self]
		if t == nil || t.ended {
			if ev.Self == 0 {
				return
			}
			t = p.newThread(ev.Self, nil)
			t.acquireAll()
		}
		t.started = true
		if t.number != 1 && ev.StackHi > ev.StackLo {
			p.replaced++
			p.forgetRange(ev.StackLo, ev.StackHi-ev.StackLo)
		}
	case wire.TypeThreadExit:
		if t := p.self(e.Thread); t != nil {
			p.endThread(t)
		}
	case wire.TypeThreadJoin:
		t, ev := p.self(e.Thread), wire.DecodeThreadJoin(e.Words)
		if o := p.threads[ev.Target]; t != nil && o != nil && o != t && ev.Result == 0 {
			p.endThread(o)
			t.acquire(o.now())
		}
	case wire.TypeThreadCancel:
		t, ev := p.self(e.Thread), wire.DecodeThreadCancel(e.Words)
		if o := p.threads[ev.Target]; t != nil && o != nil && o != t && !o.ended && ev.Result == 0 {
			o.acquire(t.release())
		}
	}
}

func (p *process) processEvent(e *wire.Event) {
	d := p.d
	switch e.Type {
	case wire.TypeProcess:
		ev := wire.DecodeProcess(e.Words)
		p.pid = ev.PID
		var from stamp
		if ev.Start == wire.StartFork {
			forked, known := d.forks[ev.PID]
			delete(d.forks, ev.PID)
			from = forked
			if parent := d.procs[ev.ParentID]; parent != nil && parent != p {
				switch t := parent.threads[ev.ParentThread]; {
				case known: // the thread has gone on since, of which the child knows nothing
				case t != nil && !t.ended:
					from = t.release()
				default:
					from = parent.everything()
				}
				p.inherit(parent)
			}
		} else {
			for _, o := range d.ordered() {
				if o != p && (o.pid == ev.PID || o.pid == ev.Ppid) {
					from = merge(from, o.everything())
				}
				if o != p && o.pid == ev.PID {
					o.ended = true
				}
			}
		}
		number := max(ev.ParentThread, e.Thread)
		if ev.Start != wire.StartFork || number == 0 {
			number = max(e.Thread, 1)
		}
		if t := p.threads[number]; t == nil {
			t = p.newThread(number, nil)
			t.acquire(from)
		}
	case wire.TypeProcessEnd:
		p.ended = wire.DecodeProcessEnd(e.Words).End != wire.EndExec
	case wire.TypeFork:
		if t := p.self(e.Thread); t != nil {
			if len(d.forks) > 4096 {
				clear(d.forks) // those are children that are not followed
			}
			s := t.release()
			if pid := wire.DecodeFork(e.Words).ChildPID; d.byPID(pid) == nil {
				d.forks[pid] = s
			}
		}
	case wire.TypeWait:
		t := p.self(e.Thread)
		if t == nil {
			return
		}
		pid := wire.DecodeWait(e.Words).PID
		if o := d.byPID(pid); o != nil && o != p {
			t.acquire(o.everything())
			o.ended = true
		}
		t.acquire(d.forks[pid]) // of a child that is not followed
		for sig := uint32(1); sig <= 64; sig++ {
			t.acquire(d.signals[signalKey{pid: pid, sig: sig}]) // one of them may have ended it
		}
	}
}

func (d *Detector) ordered() []*process {
	out := make([]*process, 0, len(d.procs))
	for _, p := range d.procs {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *process) int { return cmp.Compare(a.id, b.id) })
	return out
}

// byPID is the newest process of a pid.
func (d *Detector) byPID(pid uint32) (found *process) {
	for _, p := range d.procs {
		if p.pid == pid && pid != 0 && (found == nil || p.id > found.id) {
			found = p
		}
	}
	return found
}

// everything is all that was done in the process.
func (p *process) everything() stamp {
	s := p.stamps
	for _, t := range sorted(p.threads) {
		if !t.ended {
			s = merge(s, t.release())
		}
	}
	return s
}

// inherit gives a forked child what its parent had of memory: blocks, not who accessed what, since nobody of them is in the child.
func (p *process) inherit(parent *process) {
	p.mem.inherit(parent.mem)
	p.unseen = parent.unseen
	for addr, o := range parent.objs {
		if o.shared || o.count != 0 {
			p.objs[addr] = &object{kind: o.kind, shared: o.shared, count: o.count}
		}
	}
	p.shadow.freed(p.mem)
}
