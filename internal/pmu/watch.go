package pmu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
)

const (
	slots       = 4  // debug registers of a thread
	mostWatched = 64 // threads
	mostTaken   = 1 << 14
	mostHits    = 4 // of a breakpoint on a thread before it is disabled: a hot address must not stop the program
	tries       = 4 // samples of a pass that are looked at for an address
)

// watchpoints are the breakpoints of all threads: slot by slot the same address on each thread of a process.
type watchpoints struct {
	attr    perf.Attr
	random  *rand.Rand
	threads map[int]*watched // by thread id
	ids     map[uint64]int   // of open events, and of those below
	stale   []uint64         // of events closed since the last move: their hits may still be in a buffer
	slots   [slots]place
	next    int            // slot to move
	set     int            // slots that have been set since the last rest
	free    int            // slots that the machine has; found out
	unknown int            // threads beyond mostWatched
	looks   int            // for switches
	faulted map[int]uint64 // page faults, when they were looked at last, of processes that have breakpoints
	looked  int            // since then
	seen    int            // samples of this pass
	tries   []state
	ahead   ahead
	taken   map[place]uint32 // how often what an instruction accesses was watched
	one     float64          // what it took to set one slot, about; seconds
}

// A place is an address in a process.
type place struct {
	pid  int
	addr uint64
}

// A watched thread has its breakpoints and their buffer, which an event of its own holds.
type watched struct {
	pid    int
	holder event
	ring   *ring
	events [slots]event // -1: none
	ids    [slots]uint64
	failed bool
	stat   int    // its schedstat file; -1: none
	ran    uint64 // how often it was switched to, as the file said last
}

func newWatchpoints(attr *perf.Attr, random *rand.Rand) *watchpoints {
	return &watchpoints{attr: *attr, random: random, threads: map[int]*watched{}, ids: map[uint64]int{}, free: slots, ahead: newAhead(random), taken: map[place]uint32{},
		faulted: map[int]uint64{}}
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
	if kind == perf.TypeExit && w.threads[tid] == nil && w.unknown > 0 {
		w.unknown--
	}
	w.forget(tid)
	if kind == perf.TypeFork && !w.know(pid, tid) {
		w.unknown++
	}
}

// know takes in a thread; false if there is no room.
func (w *watchpoints) know(pid, tid int) bool {
	if len(w.threads) >= mostWatched {
		return false
	}
	t := &watched{pid: pid, holder: -1, events: [slots]event{-1, -1, -1, -1}}
	if fd, err := unix.Open(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		t.stat = fd
		t.ran, _ = t.slices()
	} else {
		t.stat = -1 // it has ended, or the kernel does not tell (CONFIG_SCHED_INFO)
	}
	w.threads[tid] = t
	return true
}

// slices tells how often a thread was switched to: the third number of proc_pid_schedstat.
func (t *watched) slices() (n uint64, ok bool) {
	var buf [80]byte
	size, err := unix.Pread(t.stat, buf[:], 0)
	if err != nil || size <= 0 {
		return 0, false
	}
	f := bytes.Fields(buf[:size])
	if len(f) != 3 {
		return 0, false
	}
	n, err = strconv.ParseUint(string(f[2]), 10, 64)
	return n, err == nil
}

// switches tells how often threads were switched to since it told last. The more there are, the rarer it looks.
func (w *watchpoints) switches() (n uint64) {
	const atOnce = 8 // threads for each call
	if w.looks++; w.looks*atOnce < len(w.threads) {
		return 0
	}
	w.looks = 0
	for _, t := range w.threads {
		if now, ok := t.slices(); ok && now > t.ran {
			n += now - t.ran
			t.ran = now
		}
	}
	if len(w.threads) > 0 {
		n += n * uint64(w.unknown) / uint64(len(w.threads)) // as those that are known
	}
	return n
}

func (w *watchpoints) forget(tid int) {
	if t := w.threads[tid]; t != nil {
		w.shut(t)
		if t.stat >= 0 {
			_ = unix.Close(t.stat)
		}
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
	w.slots, w.set = [slots]place{}, 0
	clear(w.faulted)
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
	s := state{pid: int(le.Uint32(body[16:])), ip: le.Uint64(body[8:]), flags: le.Uint64(body[registersAt+8*9:])}
	for i, n := range []int{0, 3, 1, 2, 6, 7, 5, 4, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15} { // ax bx cx dx si di bp sp ip flags r8 … r15
		if n >= 0 {
			s.regs[n] = le.Uint64(body[registersAt+8*i:])
		}
	}
	// how many bytes of the stack follow, they, and how many of them are right
	const stackAt = registersAt + 18*8
	if rest := body[stackAt:]; len(rest) >= 8 {
		if n := le.Uint64(rest); n <= stackBytes && uint64(len(rest)) >= 16+n {
			s.stack = min(n, le.Uint64(rest[8+n:]))
			copy(s.bytes[:s.stack], rest[8:])
		}
	}
	w.tries[at] = s
}

// move sets slots' breakpoints to addresses of this pass's samples: one slot, and others as long as they take no more than may be spent, in seconds.
func (w *watchpoints) move(spend float64) {
	defer func() { w.seen, w.tries = 0, w.tries[:0] }()
	for _, id := range w.stale { // the buffers have just been drained
		delete(w.ids, id)
	}
	w.stale = w.stale[:0]
	if w.free == 0 {
		return
	}
	if len(w.taken) > mostTaken {
		clear(w.taken)
	}
	begin, moved, again := threadTime(), 0, -1
	for i := range w.tries {
		s := &w.tries[i]
		if s.pid == 0 {
			continue
		}
		a, ok := w.choose(w.ahead.look(s), s.pid)
		if !ok {
			continue
		}
		w.taken[place{s.pid, a.pc}]++
		at := place{s.pid, a.addr &^ 7}
		if slot := w.has(at); slot >= 0 {
			again = slot
			continue
		}
		w.watch(w.next%w.free, at)
		w.next++
		if moved++; float64(moved+1)*w.one > spend {
			break
		}
	}
	switch {
	case moved > 0:
		w.one += ((threadTime()-begin)/float64(moved) - w.one) / 4
	case again >= 0: // nothing else is accessed: what is watched has had its hits, perhaps, and gets new ones
		w.watch(again, w.slots[again])
	}
}

// choose takes the access whose instruction was chosen least so far: code that seldom runs is where races are left (LiteRace, PLDI 2009), and loops would take all
// breakpoints otherwise. Of equals each is as likely as any other.
func (w *watchpoints) choose(all []access, pid int) (best access, ok bool) {
	least, equals := uint32(0), 0
	for _, a := range all {
		n := w.taken[place{pid, a.pc}]
		if ok && n > least {
			continue
		}
		if !ok || n < least {
			least, equals = n, 0
		}
		if equals++; w.random.IntN(equals) == 0 {
			best = a
		}
		ok = true
	}
	return best, ok
}

// Passes after which page faults are counted: to read how many takes some ten microseconds.
const looksFaults = 5

// faults tells how many page faults processes had with breakpoints set, since it told last. It looks now and then, or at once.
func (w *watchpoints) faults(now bool) (n uint64) {
	if w.looked++; len(w.faulted) == 0 || !now && w.looked < looksFaults {
		return 0
	}
	w.looked = 0
	var has [slots]int
	for i, s := range w.slots {
		has[i] = s.pid
	}
	for pid, before := range w.faulted {
		if all, ok := pageFaults(pid); ok && all > before {
			n += all - before
			w.faulted[pid] = all
		}
		if !slices.Contains(has[:], pid) {
			delete(w.faulted, pid)
		}
	}
	return n
}

// pageFaults tells how many a process has had: minflt and majflt of proc_pid_stat(5).
func pageFaults(pid int) (n uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	const minor, major = 10 - 3, 12 - 3 // fields behind the name, which is in parentheses and may have any
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) <= major {
		return 0, false
	}
	for _, field := range []int{minor, major} {
		v, err := strconv.ParseUint(string(f[field]), 10, 64)
		if err != nil {
			return 0, false
		}
		n += v
	}
	return n, true
}

// watch sets a slot's breakpoints.
func (w *watchpoints) watch(slot int, at place) {
	w.slots[slot] = at
	if _, ok := w.faulted[at.pid]; !ok {
		if n, ok := pageFaults(at.pid); ok {
			w.faulted[at.pid] = n
		}
	}
	w.set = 0
	for _, s := range w.slots {
		if s != (place{}) {
			w.set++
		}
	}
	for tid, t := range w.threads {
		w.put(tid, t, slot)
	}
}

// has gives the slot that watches a place; -1: none.
func (w *watchpoints) has(p place) int {
	for i, s := range w.slots {
		if s == p {
			return i
		}
	}
	return -1
}

// put makes a thread's breakpoint of a slot what the slot says; those of other processes have none there.
func (w *watchpoints) put(tid int, t *watched, slot int) {
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
	w.slots, w.set = [slots]place{}, 0
	clear(w.faulted)
}
