package pmu

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"unsafe"

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
	ids     map[uint64]int   // of open events
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

// A watched thread has its breakpoints and their buffer.
type watched struct {
	pid    int
	events [slots]event
	open   int
	left   [slots]int // hits until the kernel disables it
	at     [slots]uint64
	ring   *ring
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
		w.threads[tid] = &watched{pid: pid}
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
	for i := range t.open {
		if id, err := t.events[i].id(); err == nil {
			delete(w.ids, id)
		}
		t.events[i].close()
	}
	t.open = 0
	t.ring.close()
	t.ring = nil
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

// hit notes that a breakpoint of a thread was hit.
func (w *watchpoints) hit(tid int, addr uint64) {
	if t := w.threads[tid]; t != nil {
		for i := range t.open {
			if t.at[i] == addr&^7 && t.left[i] > 0 {
				t.left[i]--
				return
			}
		}
	}
}

// move sets one slot's breakpoints to an address of this pass's samples.
func (w *watchpoints) move() {
	defer func() { w.seen, w.tries = 0, w.tries[:0] }()
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

// set makes a thread's breakpoint of a slot what the slot says; those of other processes rest.
func (w *watchpoints) set(tid int, t *watched, slot int) {
	p := w.slots[slot]
	if t.pid != p.pid {
		if slot < t.open {
			t.events[slot].enable(false)
		}
		return
	}
	if t.open == 0 && !t.failed {
		w.openAll(tid, t, p.addr)
	}
	if slot >= t.open {
		return
	}
	a := w.attr
	a.Config1 = p.addr
	k := kernelAttr(&a)
	e := t.events[slot]
	e.enable(false)
	if e.ioctl(ioctlModify, uintptr(unsafe.Pointer(&k))) != nil {
		return // the thread has ended, or the address is none
	}
	t.at[slot] = p.addr
	if more := mostHits - t.left[slot]; more > 0 {
		if e.ioctl(unix.PERF_EVENT_IOC_REFRESH, uintptr(more)) == nil {
			t.left[slot] = mostHits
		}
		return
	}
	e.enable(true)
}

// openAll opens a thread's breakpoints, disabled, as many as there are.
func (w *watchpoints) openAll(tid int, t *watched, addr uint64) {
	a := w.attr
	a.Config1 = addr
	for i := range w.free {
		e, err := open(&a, tid, -1)
		if errors.Is(err, unix.ENOSPC) { // somebody else has them
			w.free = i
			break
		}
		if err != nil {
			break
		}
		if i == 0 {
			if t.ring, err = mapRing(e, 1); err != nil {
				e.close()
				break
			}
		} else if err := e.ioctl(unix.PERF_EVENT_IOC_SET_OUTPUT, uintptr(t.events[0])); err != nil {
			e.close()
			break
		}
		id, err := e.id()
		if err != nil {
			e.close()
			break
		}
		w.ids[id] = eventWatchAll
		t.events[i] = e
		t.open++
	}
	if t.failed = t.open == 0; t.failed {
		t.ring.close()
		t.ring = nil
	}
}

// rest disables all, for as long as the budget is spent.
func (w *watchpoints) rest() {
	for _, t := range w.threads {
		for i := range t.open {
			t.events[i].enable(false)
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
