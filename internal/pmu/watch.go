package pmu

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/x86"
)

const (
	slots       = 4  // debug registers of a thread
	mostWatched = 64 // threads
	mostHits    = 4  // of a breakpoint on a thread before it is disabled: a hot address must not stop the program
	tries       = 8  // samples of a pass that are looked at for an address
	lookahead   = 8  // instructions behind a sample
	stackAbove  = 64 << 10
)

// watchpoints are the breakpoints of all threads: slot by slot the same address on each thread of a process.
type watchpoints struct {
	attr    perf.Attr
	random  *rand.Rand
	threads map[int]*watched // by thread id
	ids     map[uint64]int   // of open events, and of those below
	stale   []uint64         // of events closed since the last move: their hits may still be in a buffer
	slots   [slots]place
	next    int // slot to move
	free    int // slots that the machine has; found out
	seen    int // samples of this pass
	tries   []state
}

// A place is an address in a process.
type place struct {
	pid  int
	addr uint64
}

// A state is what a sample of the clock says of a thread.
type state struct {
	pid  int
	ip   uint64
	regs [16]uint64 // by number in instructions
}

// A watched thread has its breakpoints and their buffer, which an event of its own holds.
type watched struct {
	pid    int
	holder event
	ring   *ring
	events [slots]event // -1: none
	ids    [slots]uint64
	failed bool
}

func newWatchpoints(attr *perf.Attr, random *rand.Rand) *watchpoints {
	return &watchpoints{attr: *attr, random: random, threads: map[int]*watched{}, ids: map[uint64]int{}, free: slots}
}

// task follows threads: FORK and EXIT begin with pid, ppid, tid, ptid, COMM with pid, tid.
func (w *watchpoints) task(kind perf.Type, misc perf.Misc, body []byte) {
	le := binary.LittleEndian
	if kind == perf.TypeComm {
		pid, tid := int(le.Uint32(body)), int(le.Uint32(body[4:]))
		if misc&perf.MiscCommExec != 0 || w.threads[tid] == nil {
			w.forget(tid)
			w.know(pid, tid)
		}
		return
	}
	pid, tid := int(le.Uint32(body)), int(le.Uint32(body[8:]))
	w.forget(tid)
	if kind == perf.TypeFork {
		w.know(pid, tid)
	}
}

func (w *watchpoints) know(pid, tid int) {
	if len(w.threads) < mostWatched {
		w.threads[tid] = &watched{pid: pid, holder: -1, events: [slots]event{-1, -1, -1, -1}}
	}
}

func (w *watchpoints) forget(tid int) {
	if t := w.threads[tid]; t != nil {
		w.shut(t)
		delete(w.threads, tid)
	}
}

// shut closes a thread's breakpoints. What is in its buffer is lost: a few hits.
func (w *watchpoints) shut(t *watched) {
	for i := range t.events {
		w.drop(t, i)
	}
	t.ring.close()
	t.ring = nil
	t.holder.close()
	t.holder = -1
}

// drop closes the breakpoint of a slot. It is not enabled again: once its hits are used up, Linux 6.18 leaves it stopped but armed, so that each access
// traps for nothing (hw_breakpoint_add keeps hw.state).
func (w *watchpoints) drop(t *watched, slot int) {
	if e := t.events[slot]; e >= 0 {
		e.close()
		t.events[slot] = -1
		w.stale = append(w.stale, t.ids[slot])
	}
}

func (w *watchpoints) close() {
	for tid := range w.threads {
		w.forget(tid)
	}
}

// consider keeps some of a pass's samples, each as likely as any other.
func (w *watchpoints) consider(body []byte) {
	w.seen++
	at := w.random.IntN(w.seen)
	if len(w.tries) < tries {
		at = len(w.tries)
		w.tries = append(w.tries, state{})
	}
	if at >= tries {
		return
	}
	// identifier, ip, pid, tid, time, abi, registers by perf's numbers
	le := binary.LittleEndian
	const abiAt, registersAt = 32, 40
	if len(body) < registersAt+18*8 || le.Uint64(body[abiAt:]) != perf.Regs64 {
		w.tries[at] = state{}
		return
	}
	s := state{pid: int(le.Uint32(body[16:])), ip: le.Uint64(body[8:])}
	for i, n := range []int{0, 3, 1, 2, 6, 7, 5, 4, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15} { // ax bx cx dx si di bp sp ip flags r8 … r15
		if n >= 0 {
			s.regs[n] = le.Uint64(body[registersAt+8*i:])
		}
	}
	w.tries[at] = s
}

// move sets one slot's breakpoints to an address of this pass's samples.
func (w *watchpoints) move() {
	defer func() { w.seen, w.tries = 0, w.tries[:0] }()
	for _, id := range w.stale { // the buffers have just been drained
		delete(w.ids, id)
	}
	w.stale = w.stale[:0]
	if w.free == 0 {
		return
	}
	for _, s := range w.tries {
		if s.pid == 0 {
			continue
		}
		addr, ok := s.nextAccess()
		if !ok || w.has(place{s.pid, addr &^ 7}) {
			continue
		}
		slot := w.next % w.free
		w.next++
		w.slots[slot] = place{s.pid, addr &^ 7}
		for tid, t := range w.threads {
			w.set(tid, t, slot)
		}
		return
	}
}

func (w *watchpoints) has(p place) bool {
	for _, s := range w.slots {
		if s == p {
			return true
		}
	}
	return false
}

// set makes a thread's breakpoint of a slot what the slot says; those of other processes have none there.
func (w *watchpoints) set(tid int, t *watched, slot int) {
	w.drop(t, slot)
	p := w.slots[slot]
	if t.pid != p.pid || t.failed || t.ring == nil && !w.hold(tid, t) {
		return
	}
	a := w.attr
	a.Config1 = p.addr
	e, err := open(&a, tid, -1)
	if errors.Is(err, unix.ENOSPC) && slot < w.free { // somebody else has the others
		w.free = slot
	}
	if err != nil {
		return // the thread has ended, or the address is none
	}
	t.events[slot] = e
	id, err := e.id()
	if err == nil {
		err = e.ioctl(unix.PERF_EVENT_IOC_SET_OUTPUT, uintptr(t.holder))
	}
	if err == nil {
		w.ids[id], t.ids[slot] = eventWatchAll, id
		err = e.ioctl(unix.PERF_EVENT_IOC_REFRESH, mostHits)
	}
	if err != nil {
		w.drop(t, slot)
	}
}

// hold opens what holds a thread's buffer.
func (w *watchpoints) hold(tid int, t *watched) bool {
	a := w.attr
	a.Type, a.Config, a.BPType, a.Config1, a.Config2 = typeSoftware, dummy, 0, 0, 0
	e, err := open(&a, tid, -1)
	if err != nil {
		t.failed = true
		return false
	}
	if t.ring, err = mapRing(e, 1); err != nil {
		e.close()
		t.failed = true
		return false
	}
	t.holder = e
	return true
}

// rest drops all, for as long as the budget is spent.
func (w *watchpoints) rest() {
	for _, t := range w.threads {
		for i := range t.events {
			w.drop(t, i)
		}
	}
	w.slots = [slots]place{}
}

// nextAccess gives an address that the thread is about to access or did a moment ago, as the code behind the sample says: of the next instructions that run one
// after another, the first that accesses memory, other than the stack, at an address that the sample's registers give.
func (s *state) nextAccess() (uint64, bool) {
	var code [lookahead * x86.MaxLen]byte
	n, _ := tracee.Memory(s.pid).ReadAt(code[:], int64(s.ip))
	at, written := 0, x86.RegSet(0)
	for _, in := range x86.Block(code[:n], lookahead) {
		next := s.ip + uint64(at+in.Len)
		at += in.Len
		for _, m := range in.Mems() {
			const strange = x86.MemStack | x86.MemGather | x86.MemScatter | x86.MemMasked | x86.MemState | x86.MemHint | x86.MemAddress | x86.MemBit
			if m.Access == x86.None || m.Kind&strange != 0 || m.Seg != x86.NoReg || m.Base == x86.RSP {
				continue
			}
			if addr, ok := s.address(&m, next, written); ok && addr>>47 == 0 && addr >= 1<<16 && (addr < s.regs[4]-128 || addr > s.regs[4]+stackAbove) {
				return addr, true
			}
		}
		written |= in.Writes
	}
	return 0, false
}

func (s *state) address(m *x86.Mem, next uint64, written x86.RegSet) (uint64, bool) {
	value := func(r x86.Reg) (uint64, bool) {
		switch {
		case r == x86.NoReg:
			return 0, true
		case r == x86.RIP:
			return next, true
		case r.Class() == x86.ClassGPR && r.Size() == 8 && !written.Has(r):
			return s.regs[r.Num()], true
		}
		return 0, false
	}
	base, ok1 := value(m.Base)
	index, ok2 := value(m.Index)
	return base + index*uint64(m.Scale) + uint64(m.Disp) + uint64(int64(m.Bias)), ok1 && ok2
}
