package detect

import (
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Deadlocks. A thread is *stuck* if nothing that the other threads still can do lets it go on. The stuck threads are the largest set of
// blocked threads in which each waits for something that only the set could give:
//
//   - a mutex, spin lock or rwlock: one whose hold conflicts with the wait is stuck, or has ended without releasing it, or existed only in
//     the process that this one was forked from. A reader of a rwlock that prefers writers (and lets no reader recurse) also waits for a
//     writer that waits, while a stuck thread reads.
//   - a once or a static variable's guard: the thread that runs the initialiser is stuck.
//   - a join: the thread joined is stuck.
//   - a semaphore: it is used as a lock (private, began with 1, each post by the thread that waited last), its owner is stuck, and every other
//     thread is stuck too, so that nobody could post. While others run, any of them may hand back a permit that its taker passed on, as
//     it may be with the first one after many that were given back by their takers: then it counts only if the owner is another
//     thread and no thread ever waited for what it had taken (which is how one waits for another's post), and after surePosts posts
//     by takers, or after provenPosts when the process ended in it.
//   - a barrier: it still lacks arrivals, and every thread of the process that could arrive is stuck.
//   - a semaphore that is no lock, a condition variable: every thread of the process is stuck, the object is the process's own, no signal
//     has a handler, and no wake-up is on its way.
//
// A timed wait is never stuck, nor is a wait that a pending cancellation ends. What blocks in the kernel (read, poll, sleep, sigwait) is not
// announced by `want`: that thread counts as running. Objects that were released by a thread that did not hold them prove nothing.
//
// Why the events suffice for locks: each `want` lists what its thread holds from then to the end of the wait. If one of a circle of waits
// had in truth ended, its thread would have got a lock that the next one holds: after the next one's wait had ended. Around the circle,
// each before itself.
type stuckState struct {
	dirty    bool // something happened since findStuck looked
	allStuck bool
	atEnd    bool                // the process is gone: nobody will ever wake its threads
	gone     map[uint64]goneHold // locks held by threads that ended
}

// How often a semaphore must have been posted by the thread that waited for it, before it counts as a lock while other threads still run, and when
// they did so to the end.
const (
	surePosts   = 100
	provenPosts = 2
)

// goneHold is a lock whose holder ended.
type goneHold struct {
	thread uint32
	tid    uint32
	kind   wire.Object
	stack  uint32
}

// holds reports whether g may still keep w waiting: as far as is known, the lock does not name another owner.
func (g *goneHold) holds(w *want) bool {
	return g.kind == w.kind && (g.tid == 0 || w.value == 0 || g.tid == w.value)
}

func (p *process) touch() { p.dirty = true }

// hold is a thread's hold of an object.
type hold struct {
	t     *thread
	mode  wire.Mode
	stack uint32
}

// blocker is one reason why a thread is stuck.
type blocker struct {
	t     *thread // who would have to go on; nil: see the rest
	gone  *goneHold
	ghost bool // held by a thread of the parent that does not exist here
	queue bool // t is a writer before this reader, not a holder
	stack uint32
}

// stuckSet is one look at a process.
type stuckSet struct {
	p       *process
	threads []*thread // in it, by number
	in      map[*thread]bool
	holders map[uint64][]hold
	writers map[uint64][]*thread // who waits for a rwlock exclusively
	alone   bool                 // every thread of the process is in it
}

// findStuck looks for deadlocks if anything happened since the last look, and tells those that are new.
func (p *process) findStuck() {
	if !p.dirty {
		return
	}
	p.dirty, p.allStuck = false, false
	if !p.tells(finding.RuleDeadlock) {
		return
	}
	s := p.newStuckSet()
	if len(s.threads) == 0 {
		return
	}
	for s.shrink() {
	}
	if len(s.threads) > 0 {
		s.judge()
	}
}

func (p *process) newStuckSet() *stuckSet {
	s := &stuckSet{p: p, in: map[*thread]bool{}, holders: map[uint64][]hold{}, writers: map[uint64][]*thread{}}
	for _, t := range p.threads {
		if w := t.want; w != nil && !w.timed && !(t.cancelled && cancellable(w.kind)) {
			s.threads = append(s.threads, t)
			s.in[t] = true
		}
	}
	slices.SortFunc(s.threads, func(a, b *thread) int { return int(a.number) - int(b.number) })
	for _, t := range s.threads {
		for _, h := range t.want.held {
			s.hold(h.Obj, hold{t, wire.Mode(h.Mode), h.Stack})
		}
		for i := range t.held {
			if h := &t.held[i]; h.kind == wire.ObjectSem || h.kind == wire.ObjectOnce || h.kind == wire.ObjectGuard {
				s.hold(h.obj, hold{t, wire.ModeExclusive, h.stack})
			}
		}
		if r := t.relock; r != nil && r.ev.Obj == t.want.obj {
			mode := wire.ModeExclusive
			if t.want.kind == wire.ObjectRwlock {
				mode = wire.ModeShared // whoever holds it for writing is refused and does not wait
			}
			s.hold(r.ev.Obj, hold{t, mode, r.ev.Stack2})
		}
		if t.want.kind == wire.ObjectRwlock && t.want.mode == wire.ModeExclusive {
			s.writers[t.want.obj] = append(s.writers[t.want.obj], t)
		}
		if k := t.want.kind; k == wire.ObjectOnce || k == wire.ObjectGuard {
			if o := p.objs.byAddr[t.want.obj]; o != nil && o.kind == k && o.owner != nil && s.in[o.owner] {
				s.hold(t.want.obj, hold{t: o.owner})
			}
		}
	}
	s.alone = len(s.threads) == p.live && !p.unseen
	return s
}

// cancellable reports whether a wait for an object of that kind is a cancellation point.
func cancellable(kind wire.Object) bool {
	return kind == wire.ObjectCond || kind == wire.ObjectSem || kind == wire.ObjectThread
}

// hold adds a hold, once for each thread.
func (s *stuckSet) hold(obj uint64, h hold) {
	list := s.holders[obj]
	for i := range list {
		if list[i].t == h.t {
			list[i].mode = min(list[i].mode, h.mode)
			if list[i].stack == 0 {
				list[i].stack = h.stack
			}
			return
		}
	}
	s.holders[obj] = append(list, h)
}

// shrink takes out of the set whom something could let go on; it reports whether there was one.
func (s *stuckSet) shrink() bool {
	before := len(s.threads)
	s.threads = slices.DeleteFunc(s.threads, func(t *thread) bool {
		blockers, closed := s.why(t)
		if len(blockers) > 0 || closed {
			return false
		}
		delete(s.in, t)
		s.alone = false
		return true
	})
	return len(s.threads) < before
}

// why says who keeps t from going on; closed: all other threads together do, because none could do what t waits for. Neither: t may go on.
func (s *stuckSet) why(t *thread) (blockers []blocker, closed bool) {
	w := t.want
	o := s.p.lookup(w.obj, w.kind)
	if w.late && w.kind != wire.ObjectOnce && w.kind != wire.ObjectGuard {
		return s.lateWhy(t, o)
	}
	switch w.kind {
	case wire.ObjectThread:
		if target := s.p.threads[w.target]; target != nil && target != t && s.in[target] {
			return []blocker{{t: target}}, false
		}
		return nil, false
	case wire.ObjectMutex, wire.ObjectSpin, wire.ObjectRwlock, wire.ObjectOnce, wire.ObjectGuard:
		if o != nil && o.handed {
			return nil, false
		}
		return s.whyLock(t, o), false
	case wire.ObjectSem:
		return s.whySem(t, o)
	case wire.ObjectBarrier:
		return nil, s.whyBarrier(t, o)
	case wire.ObjectCond:
		return nil, s.closed(o) && (!w.sees || o.posted == w.posted)
	}
	return nil, false
}

// closed reports whether nobody outside of the set could wake a waiter of o.
func (s *stuckSet) closed(o *object) bool {
	return s.alone && o.private() && len(s.p.handlers) == 0
}

func (s *stuckSet) whyLock(t *thread, o *object) (out []blocker) {
	w := t.want
	exclusive := 0
	for _, h := range s.holders[w.obj] {
		if h.mode == wire.ModeExclusive {
			exclusive++
		}
	}
	if exclusive > 1 || exclusive == 1 && len(s.holders[w.obj]) > 1 {
		return nil // they cannot all hold it: it is not used as a lock
	}
	reading := false
	for _, h := range s.holders[w.obj] {
		if h.t == t && w.kind == wire.ObjectMutex && o != nil && o.flags&(wire.ObjFlagRecursive|wire.ObjFlagErrorcheck) != 0 {
			return nil // it may lock it again, or is refused
		}
		reading = reading || h.mode == wire.ModeShared && s.in[h.t]
		if conflict(w.mode, h.mode) && s.in[h.t] {
			out = append(out, blocker{t: h.t, stack: h.stack})
		}
	}
	if len(out) > 0 {
		return out
	}
	if g, ok := s.p.gone[w.obj]; ok && g.holds(w) && len(s.holders[w.obj]) == 0 {
		return []blocker{{gone: &g}}
	}
	if reading && w.mode == wire.ModeShared && o != nil && o.known && o.value == rwlockWritersFirst {
		for _, writer := range s.writers[w.obj] {
			if s.in[writer] {
				out = append(out, blocker{t: writer, queue: true})
			}
		}
		return out
	}
	if s.ghost(t, o) {
		return []blocker{{ghost: true}}
	}
	return nil
}

// rwlockWritersFirst is the value of a rwlock of kind PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, the only one in glibc whose readers
// wait behind a waiting writer (PTHREAD_RWLOCK_PREFER_WRITER_NP is treated as if it preferred readers).
const rwlockWritersFirst = 2

// ghost reports whether t waits for a lock whose owner is a thread of the parent process, other than the one that forked.
func (s *stuckSet) ghost(t *thread, o *object) bool {
	p, w := s.p, t.want
	if !p.forked || w.value == 0 || p.forkTid == 0 || w.value == p.forkTid || p.tids[w.value] || p.unseen || !o.private() {
		return false
	}
	if w.kind != wire.ObjectMutex && w.kind != wire.ObjectRwlock || o.flags&wire.ObjFlagRobust != 0 {
		return false
	}
	for _, other := range p.threads {
		if !other.ended && other.tid == 0 {
			return false // its tid is not known: the owner may be that one
		}
	}
	return true
}

func (s *stuckSet) whySem(t *thread, o *object) (out []blocker, closed bool) {
	if !o.private() || o.kind != wire.ObjectSem {
		return nil, false
	}
	w := t.want
	if o.lockLike() {
		hs := s.holders[w.obj]
		if len(hs) == 1 && s.in[hs[0].t] && (hs[0].t != t && s.provenLock(t, o) || s.closed(o)) {
			return []blocker{{t: hs[0].t, stack: hs[0].stack}}, false
		}
	}
	// In a filtered trace further posts are not told: see certain.
	return nil, s.closed(o) && o.posted == w.posted
}

// provenLock reports whether the semaphore that t waits for counts as a lock while other threads could post it.
func (s *stuckSet) provenLock(t *thread, o *object) bool {
	posts := max(t.want.value, o.own)
	return !o.doubt && (posts >= surePosts || s.p.atEnd && posts >= provenPosts)
}

func (s *stuckSet) whyBarrier(t *thread, o *object) bool {
	if !o.private() || !s.alone || t.phase == nil {
		return false
	}
	count := t.want.value
	if count == 0 {
		count = o.value
	}
	return t.phase == o.phase && t.phase.arrived < count
}

// certain reports whether the events alone prove that the wait of t, which is closed, is not about to end: all that could end it is told.
func (s *stuckSet) certain(t *thread) bool {
	switch t.want.kind {
	case wire.ObjectBarrier:
		return true
	case wire.ObjectSem:
		return s.p.full
	case wire.ObjectCond:
		return t.want.sees
	}
	return false
}
