package detect

import (
	"cmp"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// process is what the detectors know of one process.
type process struct {
	d  *Detector
	id uint64

	threads  map[uint32]*thread
	recent   *thread // of the last event
	serial   uint32  // serial of the newest thread
	live     int     // threads created and not ended
	full     bool    // held sets are kept here: the trace has all events
	unseen   bool    // it has threads that send no events
	bypassed bool    // threads may be joined and detached by a library whose calls are not seen
	tids     map[uint32]bool
	ended    map[uint32]ended // with Config.Epochs: threads that have ended, by what the kernel called them
	now      uint64           // time of the last event

	objs  objects
	order *orderGraph

	dying   finding.Crash                   // what is known by now of the crash that comes
	sources []wire.EvCrashSource            // of the crash that comes
	writers map[uint32][]wire.EvGuardWriter // by the number of the evidence, which comes after them

	handlers map[uint32]bool // signals that have a handler
	ending   bool            // process-end was seen

	forked     bool
	parent     *process              // of a forked child: for the flags of objects that it inherited
	forkTid    uint32                // tid that the forking thread had in the parent, 0: not known
	childHolds map[uint32][]heldLock // by pid of a child whose first event has not come: what the forking thread held

	stuckState
	said map[string]*said
	late []lateFinding // inversions that a semaphore takes part in: certain only if it is used as a lock to the end
}

// said is a finding that went to the sink.
type said struct {
	f     finding.Finding
	again int
}

// lateFinding is a finding that the further behaviour of objects may still refute.
type lateFinding struct {
	key  string
	f    finding.Finding
	objs []*object
}

func newProcess(d *Detector, id uint64) *process {
	p := &process{d: d, id: id, threads: map[uint32]*thread{}, tids: map[uint32]bool{}, handlers: map[uint32]bool{}, said: map[string]*said{}}
	p.objs.init()
	p.order = newOrderGraph(d, p)
	return p
}

// ended is a thread that is no more.
type ended struct {
	number uint32
	at     uint64
}

// thread is what the detectors know of one thread.
type thread struct {
	number uint32
	serial uint32 // unique in the process, where a number may come again
	tid    uint32

	ended, joined, detached bool
	created                 bool   // thread-create was seen in this process
	createStack             uint32 // where
	stackLo, stackHi        uint64

	clock   clock
	segment uint32
	marked  bool // has nested locks since it began: stands in clocks

	want      *want   // what it is blocked on
	relock    *relock // it asked for a mutex that it holds; its fate is open
	cancelled bool    // pthread_cancel was called on it

	held   []heldLock // in a full trace: what it holds, oldest first
	recent *recent    // in a full trace: nestings seen in this segment

	phase    *phase // barrier phase it arrived in
	condWait uint64 // full trace: condition of its last cond-wait
}

func (p *process) event(e *wire.Event) {
	w := e.Words
	p.now = e.TS
	switch e.Type {
	case wire.TypeAcquire:
		p.acquire(p.self(e), wire.DecodeAcquire(w))
	case wire.TypeRelease:
		p.release(p.self(e), wire.DecodeRelease(w))
	case wire.TypeOrder:
		p.orderEvent(p.self(e), wire.DecodeOrder(w))
	case wire.TypeWant:
		p.wantEvent(p.self(e), wire.DecodeWant(w), e.TS)
	case wire.TypeWantEnd:
		p.wantEnd(p.self(e), wire.DecodeWantEnd(w))
	case wire.TypeInit:
		p.initEvent(wire.DecodeInit(w))
	case wire.TypeDestroy:
		if ev := wire.DecodeDestroy(w); ev.Result == 0 {
			p.objectGone(ev.Obj)
		}
	case wire.TypeInBlock:
		p.objs.inBlock(wire.DecodeInBlock(w), p)
	case wire.TypeBlockGone:
		ev := wire.DecodeBlockGone(w)
		p.rangeGone(ev.Block, ev.Size)
	case wire.TypeMunmap:
		ev := wire.DecodeMunmap(w)
		p.rangeGone(ev.Addr, ev.Len)
	case wire.TypeMremap:
		if ev := wire.DecodeMremap(w); ev.Addr != ev.Old {
			p.rangeGone(ev.Old, ev.OldLen)
		}
	case wire.TypeEvidence:
		p.evidence(p.self(e), wire.DecodeEvidence(w))
	case wire.TypeCrash:
		p.crash(p.self(e), wire.DecodeCrash(w))
	case wire.TypeCrashText:
		p.crashText(wire.DecodeCrashText(w))
	case wire.TypeCrashAgain:
		p.crashAgain(wire.DecodeCrashAgain(w))
	case wire.TypeCrashSource:
		p.crashSource(wire.DecodeCrashSource(w))
	case wire.TypeGuardWriter:
		p.guardWriter(wire.DecodeGuardWriter(w))
	case wire.TypeMisuse:
		p.misuse(p.self(e), wire.DecodeMisuse(w))
	case wire.TypeSemPost, wire.TypeSemWait, wire.TypeBarrierArrive, wire.TypeBarrierLeave, wire.TypeOnceBegin, wire.TypeOnceEnd,
		wire.TypeCondSignal, wire.TypeCondWait:
		p.syncEvent(p.self(e), e)
	case wire.TypeThreadCreate, wire.TypeThreadCreateFailed, wire.TypeThreadStart, wire.TypeThreadExit, wire.TypeThreadJoin,
		wire.TypeThreadDetach, wire.TypeThreadCancel:
		p.threadEvent(e)
	case wire.TypeProcess:
		p.begin(e, wire.DecodeProcess(w))
	case wire.TypeProcessEnd:
		p.ending = true
		if ev := wire.DecodeProcessEnd(w); ev.End == wire.EndExit {
			p.leaks()
		}
	case wire.TypeFork:
		p.forkReturned(p.self(e), wire.DecodeFork(w))
	case wire.TypeSigaction:
		if ev := wire.DecodeSigaction(w); ev.Handler > 1 {
			p.handlers[ev.Sig] = true
		} else {
			delete(p.handlers, ev.Sig)
		}
	case wire.TypeNotice:
		switch wire.DecodeNotice(w).What {
		case wire.NoticeThreadUnseen, wire.NoticeTooManyThreads, wire.NoticeNoMemory, wire.NoticeAgentLate, wire.NoticeNamespace:
			p.unseen = true
		case wire.NoticeDeepbind:
			p.unseen, p.bypassed = true, true
		}
	}
}

// self is the thread of e; nil where none is known or it has ended already.
func (p *process) self(e *wire.Event) *thread {
	if p.recent != nil && p.recent.number == e.Thread && !p.recent.ended {
		return p.recent
	}
	if e.Thread == 0 {
		return nil
	}
	t := p.threads[e.Thread]
	if t == nil {
		t = p.addThread(e.Thread)
	}
	if t.ended {
		return nil
	}
	p.recent = t
	return t
}

// addThread begins a thread; one of the same number before it is forgotten.
func (p *process) addThread(number uint32) *thread {
	if old := p.threads[number]; old != nil {
		p.endThread(old)
	}
	p.serial++
	t := &thread{number: number, serial: p.serial, segment: 1}
	p.threads[number] = t
	p.live++
	p.touch()
	return t
}

func (p *process) threadEvent(e *wire.Event) {
	w := e.Words
	if e.Type == wire.TypeThreadStart {
		p.threadStart(wire.DecodeThreadStart(w))
		return
	}
	t := p.self(e)
	if t == nil {
		return
	}
	switch e.Type {
	case wire.TypeThreadCreate:
		ev := wire.DecodeThreadCreate(w)
		if ev.Child == 0 || ev.Child == t.number {
			return
		}
		child := p.addThread(ev.Child)
		child.created, child.createStack, child.detached = true, ev.Stack, ev.Detached != 0
		child.clock = t.now()
		t.newSegment()
		p.running(t)
	case wire.TypeThreadCreateFailed:
		if c := p.threads[wire.DecodeThreadCreateFailed(w).Child]; c != nil && c != t && !c.ended {
			p.endThread(c)
			delete(p.threads, c.number)
		}
	case wire.TypeThreadExit:
		p.endThread(t)
	case wire.TypeThreadJoin:
		ev := wire.DecodeThreadJoin(w)
		p.running(t)
		if target := p.threads[ev.Target]; target != nil && target != t && ev.Result == 0 {
			target.joined = true
			t.learn(target.now())
			p.forget(target)
		}
	case wire.TypeThreadDetach:
		ev := wire.DecodeThreadDetach(w)
		if target := p.threads[ev.Target]; target != nil && ev.Result == 0 {
			target.detached = true
			p.forget(target)
		}
	case wire.TypeThreadCancel:
		ev := wire.DecodeThreadCancel(w)
		if target := p.threads[ev.Target]; target != nil && ev.Result == 0 {
			target.cancelled = true
			p.touch()
		}
	}
}

func (p *process) threadStart(ev wire.EvThreadStart) {
	if ev.Self == 0 {
		return
	}
	t := p.threads[ev.Self]
	if t == nil || t.ended {
		t = p.addThread(ev.Self)
	}
	t.tid, t.stackLo, t.stackHi = ev.TID, ev.StackLo, ev.StackHi
	delete(p.ended, ev.TID)
	if ev.TID != 0 {
		p.tids[ev.TID] = true
	}
}

// maxEnded bounds how many threads that have ended are remembered by their number in the kernel.
const maxEnded = 1 << 14

// endThread makes t one that can do nothing more.
func (p *process) endThread(t *thread) {
	if t.ended {
		return
	}
	t.ended = true
	t.want, t.relock, t.held, t.recent, t.phase = nil, nil, nil, nil, nil
	p.live--
	if p.d.cfg.Epochs && t.tid != 0 {
		if p.ended == nil || len(p.ended) >= maxEnded {
			p.ended = map[uint32]ended{}
		}
		p.ended[t.tid] = ended{t.number, p.now}
	}
	if p.recent == t {
		p.recent = nil
	}
	if t.number != 1 && t.stackHi > t.stackLo {
		p.rangeGone(t.stackLo, t.stackHi-t.stackLo)
	}
	p.touch()
	p.forget(t)
}

// forget drops a thread of which nothing can be asked any more.
func (p *process) forget(t *thread) {
	if t.ended && (t.joined || t.detached) && p.threads[t.number] == t {
		delete(p.threads, t.number)
	}
}

// begin takes the first event of a process.
func (p *process) begin(e *wire.Event, ev wire.EvProcess) {
	if ev.Start != wire.StartFork {
		return
	}
	p.forked = true
	number := ev.ParentThread
	if number == 0 {
		number = e.Thread
	}
	var self *thread
	if number != 0 {
		if self = p.threads[number]; self == nil || self.ended {
			self = p.addThread(number)
		}
		self.detached = true // nobody in the child can join it
	}
	parent := p.d.procs[ev.ParentID]
	if parent == nil || parent == p {
		return
	}
	p.parent = parent
	for sig := range parent.handlers {
		p.handlers[sig] = true
	}
	held, known := parent.childHolds[ev.PID]
	delete(parent.childHolds, ev.PID)
	if forker := parent.threads[number]; forker != nil && self != nil {
		p.forkTid = forker.tid
		if !known {
			held = forker.held
		}
	}
	if self != nil {
		for _, h := range held {
			if self.find(h.obj) < 0 {
				self.held = append(self.held, h)
			}
		}
	}
}

// maxChildren bounds how many forks may wait for their child's first event.
const maxChildren = 1024

// forkReturned keeps what the forking thread held, for the child whose first event may come later than what this thread does next.
func (p *process) forkReturned(t *thread, ev wire.EvFork) {
	if t == nil {
		return
	}
	if p.childHolds == nil || len(p.childHolds) >= maxChildren {
		p.childHolds = map[uint32][]heldLock{} // those are children that are not followed
	}
	p.childHolds[ev.ChildPID] = append([]heldLock(nil), t.held...)
}

func (p *process) end() {
	p.atEnd, p.dirty = true, true
	p.findStuck()
	p.endRelocks()
	p.finish()
}

// finish says what could only be said at the end.
func (p *process) finish() {
	p.sayLate(nil)
	p.sayAgain()
	for _, q := range p.d.sorted() {
		if q.parent == p {
			q.inherit()
		}
	}
}

// inherit takes over what only the parent, which ends, knows of the objects that both have.
func (p *process) inherit() {
	for addr, o := range p.parent.objs.byAddr {
		if !o.known || o.kind == 0 {
			continue
		}
		if own := p.objs.byAddr[addr]; own != nil && (own.known || own.kind != 0 && own.kind != o.kind) {
			continue
		}
		own := p.object(addr, o.kind)
		if own == nil {
			break
		}
		own.known, own.flags, own.value, own.initStack = true, o.flags, o.value, o.initStack
	}
	p.parent = p.parent.parent
	p.touch()
}

// sortedThreads is for whatever must come out the same each time.
func sortedThreads(threads map[uint32]*thread) []*thread {
	out := make([]*thread, 0, len(threads))
	for _, t := range threads {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *thread) int { return cmp.Compare(a.number, b.number) })
	return out
}
