package detect

import (
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// want is what a blocked thread waits for.
type want struct {
	obj    uint64
	kind   wire.Object
	mode   wire.Mode
	timed  bool
	stack  uint32
	target uint32
	value  uint32
	held   []wire.Held
	posted uint64 // object.posted when the wait began
	sees   bool   // a full trace: every signal of the condition is seen
	late   bool   // it was told late: late.go
	since  uint64 // when it was told first
	told   uint64 // when it was told last

	reported bool // it is in a deadlock that was reported
}

func (p *process) wantEvent(t *thread, ev wire.EvWant, ts uint64) {
	if t == nil {
		return
	}
	since := ts
	if p.d.cfg.Epochs {
		if !(*lateWant)(&ev).judged() {
			p.running(t)
			return
		}
		ev.Held = nil
		if w := t.want; w != nil && w.late && w.obj == ev.Obj && w.kind == ev.Kind {
			since = w.since
		}
	}
	reported := t.want != nil && t.want.reported && since != ts
	t.want = &want{obj: ev.Obj, kind: ev.Kind, mode: ev.Mode, timed: ev.How == wire.HowTimed || ev.How == wire.HowTry, stack: ev.Stack,
		target: ev.Target, value: ev.Value, held: ev.Held, late: ev.How == wire.HowLate, since: since, told: ts, reported: reported}
	if o := p.objs.byAddr[ev.Obj]; o != nil && o.kind == ev.Kind {
		t.want.posted = o.posted
	}
	if ev.Kind == wire.ObjectSem && (t.find(ev.Obj) >= 0 || slices.ContainsFunc(ev.Held, func(h wire.Held) bool { return h.Obj == ev.Obj })) {
		if o := p.object(ev.Obj, ev.Kind); o != nil {
			o.doubt = true
		}
	}
	t.want.sees = t.condWait == ev.Obj && ev.Kind == wire.ObjectCond
	p.touch()
}

func (p *process) wantEnd(t *thread, ev wire.EvWantEnd) {
	if t == nil {
		return
	}
	if r := t.relock; r != nil && r.ev.Obj == ev.Obj {
		t.relock = nil
		if ev.Result != 0 && t.want != nil {
			p.sayRelock(t, r) // it gave up, or was cancelled
		}
	}
	p.running(t)
}

// running is called for what only a thread that is not blocked can do. (Not for sem-post: a signal handler may post while the thread
// that it interrupted stays blocked.)
func (p *process) running(t *thread) {
	if t.want != nil {
		t.want = nil
		p.touch()
	}
}

// phase is one filling of a barrier.
type phase struct {
	arrived uint32
	clock   clock // of all that arrived
}

func (p *process) syncEvent(t *thread, e *wire.Event) {
	if t == nil {
		return
	}
	w := e.Words
	if e.Type != wire.TypeSemPost && e.Type != wire.TypeCondSignal {
		p.running(t)
	}
	switch e.Type {
	case wire.TypeSemPost:
		p.semPost(t, wire.DecodeSemPost(w))
	case wire.TypeSemWait:
		ev := wire.DecodeSemWait(w)
		if o := p.object(ev.Obj, wire.ObjectSem); o != nil && o.exclusive() {
			if o.owner != nil {
				p.handOver(ev.Obj, wire.ObjectSem) // it got what nobody gave back: not all of its posts are seen
				return
			}
			o.owner = t
			p.take(t, heldLock{obj: ev.Obj, kind: wire.ObjectSem, stack: ev.Stack, depth: 1}, ev.How)
		}
	case wire.TypeCondSignal:
		if o := p.object(wire.DecodeCondSignal(w).Cond, wire.ObjectCond); o != nil {
			o.posted++
			p.touch()
		}
	case wire.TypeCondWait:
		t.condWait = wire.DecodeCondWait(w).Cond
	case wire.TypeBarrierArrive:
		p.arrive(t, wire.DecodeBarrierArrive(w))
	case wire.TypeBarrierLeave:
		if t.phase != nil {
			t.learn(t.phase.clock)
			t.phase = nil
		}
	case wire.TypeOnceBegin:
		ev := wire.DecodeOnceBegin(w)
		if o := p.object(ev.Obj, ev.Kind); o != nil {
			o.owner = t
			if p.full {
				p.take(t, heldLock{obj: ev.Obj, kind: ev.Kind, depth: 1}, wire.HowTry)
			}
		}
	case wire.TypeOnceEnd:
		ev := wire.DecodeOnceEnd(w)
		if o := p.object(ev.Obj, ev.Kind); o != nil {
			o.owner = nil
		}
		p.give(t, ev.Obj)
	}
}

// semPost: in a filtered trace only a post by a thread that does not hold the semaphore is told, in a full one every post.
func (p *process) semPost(t *thread, ev wire.EvSemPost) {
	o := p.object(ev.Obj, wire.ObjectSem)
	if o == nil {
		return
	}
	o.posted++
	p.touch()
	if o.owner == t && !o.handed {
		o.owner = nil
		o.own++
		p.give(t, ev.Obj)
		return
	}
	p.handOver(ev.Obj, wire.ObjectSem)
}

func (p *process) arrive(t *thread, ev wire.EvBarrierArrive) {
	o := p.object(ev.Obj, wire.ObjectBarrier)
	if o == nil {
		return
	}
	count := ev.Count
	if count == 0 {
		count = o.value
	}
	if o.phase == nil || count != 0 && o.phase.arrived >= count {
		o.phase = new(phase)
	}
	o.phase.arrived++
	o.phase.clock = join(o.phase.clock, t.now())
	t.phase = o.phase
	p.touch()
}
