package agent

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/wire"
)

// Do runs f on the goroutine that calls the Handler, between two passes over the rings, and returns when it has run; false: the session
// is over, f was not run.
func (s *Session) Do(f func()) bool { return s.do(f) }

// Kill sends sig to a traced process.
func (s *Session) Kill(process uint64, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[process]
	switch {
	case p == nil:
		return fmt.Errorf("process %d of the session is gone", process)
	case p.pidfd >= 0:
		return unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	case p.pid > 0:
		return unix.Kill(p.pid, sig)
	}
	return fmt.Errorf("process %d of the session cannot be seen from here", process)
}

// ThreadState is what a thread's slot says at this moment.
type ThreadState struct {
	Number, TID uint32
	WaitKind    wire.Object // 0: not in a wait that the agent knows of
	WaitObj     uint64
	WaitStack   uint32
	Held        []wire.Held // the oldest wire.HeldInSlot of them
	HeldCount   uint32
	Moments     uint64 // address in the process of the moments of those Held whose stack is wire.StackLater
}

// Threads gives the states of the threads of a process. To be called from the Handler's methods or Do.
func (s *Session) Threads(process uint64) []ThreadState {
	p := s.lookup(process)
	if p == nil || p.broken {
		return nil
	}
	var list []ThreadState
	for _, r := range p.seen {
		for i := range r.slots {
			sl := r.slots[i].shared
			if !r.slots[i].inUse || atomic.LoadUint32(&sl.State) != slotLive {
				continue
			}
			number := r.slots[i].thread
			if atomic.LoadUint32(&sl.Number) != number {
				number = 0 // a new thread, whose first event is still to be read
			}
			t := ThreadState{
				Number: number, TID: atomic.LoadUint32(&sl.Tid),
				WaitKind: wire.Object(atomic.LoadUint32(&sl.WaitKind)), WaitObj: atomic.LoadUint64(&sl.WaitObj), WaitStack: atomic.LoadUint32(&sl.WaitStack),
				HeldCount: atomic.LoadUint32(&sl.HeldCount), Moments: atomic.LoadUint64(&sl.Moments),
			}
			for j := 0; j < int(min(t.HeldCount, wire.HeldInSlot)); j++ {
				h := &sl.Held[j]
				t.Held = append(t.Held, wire.UnpackHeld([]uint64{atomic.LoadUint64(&h.Obj), atomic.LoadUint64(&h.Info)}))
			}
			list = append(list, t)
		}
	}
	return list
}

// AllBlocked tells whether the threads are all that the process has, each in the wait that its last handed-out event announced (see
// Blocked), asleep in the kernel, and with no signal pending that the program handles. Who waits for a spin lock is awake: it may be in a signal's
// handler, unless the program has none. To be called from the Handler's methods or Do.
func (s *Session) AllBlocked(process uint64, threads []uint32) bool {
	p := s.lookup(process)
	if p == nil || p.pid <= 0 || !s.Blocked(process, threads) {
		return false
	}
	waits := map[int]wire.Object{} // by tid
	for _, t := range threads {
		sl := p.threads[t]
		if sl == nil {
			return false
		}
		waits[int(atomic.LoadUint32(&sl.shared.Tid))] = wire.Object(atomic.LoadUint32(&sl.shared.WaitKind))
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
	if err != nil || len(waits) != len(threads) {
		return false
	}
	busy, coordinator := s.busy(p), s.coordinator(p)
	living := 0
	for _, task := range tasks {
		st, err := taskStatus(filepath.Join("/proc", strconv.Itoa(p.pid), "task", task.Name()))
		// In another pid namespace the agent's tids are others; the innermost one is its own.
		if err == nil && !st.counts(coordinator) {
			continue
		}
		if err != nil || waits[st.tid] == 0 || st.pending&st.caught&^st.blocked != 0 {
			return false
		}
		const ofLibc = 1<<(32-1) | 1<<(33-1) // SIGCANCEL and SIGSETXID: nptl/descr.h, internal-signals.h
		spins := st.state == 'R' && waits[st.tid] == wire.ObjectSpin && st.caught&^ofLibc == 0
		if st.state != 'S' && !spins {
			return false
		}
		living++
	}
	if living != len(threads) {
		return false
	}
	// Nothing has changed while we looked.
	return s.Blocked(process, threads) && s.busy(p) == busy
}

// busy is odd while the threads of a process whose epochs are recorded may stand or do again what they did, and another number each time. 0: it has none.
func (s *Session) busy(p *process) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, o := p.outside(); o != nil {
		return atomic.LoadUint32(&o.Busy)
	}
	return 0
}

// coordinator is the id of the task that records a process's epochs, as the process sees it; 0: there is none.
func (s *Session) coordinator(p *process) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, o := p.outside(); o != nil {
		return int(atomic.LoadUint32(&o.Coordinator))
	}
	return 0
}

// sleep tells whether those of the threads whose wait is guard's own sleep in it: in the kernel, on the word that their slot names. A wait that was left by a jump has no end of which the slot would know.
func (p *process) sleep(threads []uint32) bool {
	words := map[int]uint64{} // by tid
	for _, t := range threads {
		if w := atomic.LoadUint64(&p.threads[t].shared.WaitWord); w != 0 {
			words[int(atomic.LoadUint32(&p.threads[t].shared.Tid))] = w
		}
	}
	if len(words) == 0 {
		return true
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
	if err != nil || p.pid <= 0 {
		return false
	}
	for _, task := range tasks {
		dir := filepath.Join("/proc", strconv.Itoa(p.pid), "task", task.Name())
		st, err := taskStatus(dir)
		if err != nil {
			continue
		}
		word := words[st.tid]
		if word == 0 {
			continue
		}
		if st.state != 'S' || !sleepsOn(dir, word) {
			return false
		}
		delete(words, st.tid)
	}
	return len(words) == 0
}

// sleepsOn tells whether a task that sleeps does so in the futex at that address. Where that must not be known, it is believed.
func sleepsOn(dir string, word uint64) bool {
	b, err := os.ReadFile(filepath.Join(dir, "syscall"))
	if err != nil {
		return true
	}
	var number int
	var address uint64
	n, _ := fmt.Sscanf(string(b), "%d 0x%x", &number, &address)
	return n == 2 && number == unix.SYS_FUTEX && address == word
}

type status struct {
	state                    byte
	tid                      int // as the thread itself sees it
	pending, caught, blocked uint64
	switches                 uint64 // how often it has been switched out
}

func taskStatus(dir string) (st status, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return st, err
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(value)
		if !ok || len(fields) == 0 {
			continue
		}
		hex := func() uint64 { v, _ := strconv.ParseUint(string(fields[0]), 16, 64); return v }
		switch string(key) {
		case "State":
			st.state = fields[0][0]
		case "NSpid":
			st.tid, _ = strconv.Atoi(string(fields[len(fields)-1]))
		case "SigPnd", "ShdPnd":
			st.pending |= hex()
		case "SigBlk":
			st.blocked = hex()
		case "SigCgt":
			st.caught = hex()
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			v, _ := strconv.ParseUint(string(fields[0]), 10, 64)
			st.switches += v
		}
	}
	if st.state == 0 || st.tid == 0 {
		return st, fmt.Errorf("%s/status: no State or NSpid", dir)
	}
	return st, nil
}

// Module says which module of a process an unwind table is wanted for.
type Module struct {
	Path    string
	BuildID string // hexadecimal
	Base    uint64
}

// Table gives the unwind table of a module of a process, the same as agents get.
func (s *Session) Table(pid int, m Module) (*unwind.Table, error) {
	var r wire.ModuleRequest
	id, err := hex.DecodeString(m.BuildID)
	if err != nil || len(id) > len(r.BuildID) {
		return nil, fmt.Errorf("%s: build-id %q", m.Path, m.BuildID)
	}
	path := m.Path
	if len(path) == 0 || path[0] != '/' {
		path = "" // the vdso
	}
	if len(path) >= len(r.Path) {
		return nil, fmt.Errorf("%s: the name is too long", m.Path)
	}
	r.BuildIDLen = uint32(copy(r.BuildID[:], id))
	copy(r.Path[:], path)
	r.Base = m.Base
	e := s.tables.entries([]wire.ModuleRequest{r}, pid)[0]
	if e.fd < 0 {
		return nil, fmt.Errorf("%s: it has no unwind table", m.Path)
	}
	b := make([]byte, e.size)
	if n, err := unix.Pread(e.fd, b, 0); err != nil || n != len(b) {
		return nil, fmt.Errorf("%s: unwind table: %d of %d bytes, %v", m.Path, n, len(b), err)
	}
	return unwind.Decode(b)
}
