package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/block"
	"github.com/ripstop/ripstop/internal/wire"
)

// EpochState says whether epochs of a process are recorded.
type EpochState uint32

// As in wire.GuardOutside.State.
const (
	NoEpochs   EpochState = 0 // or not yet
	EpochsOn   EpochState = 1
	EpochsOver EpochState = 2 // or they could not begin
)

// Epochs is what a process says of its epochs without being asked.
type Epochs struct {
	State    EpochState
	Stats    GuardStats
	LastLost wire.GuardLost // of the last epoch that was lost; 0: none was
	Age      time.Duration  // of the present one
}

// EpochAnswer is what came of a question to the coordinator of a process's epochs.
type EpochAnswer struct {
	Verdict  wire.GuardVerdict // of a rollback, if Error is 0
	Error    unix.Errno        // EBUSY: not all threads came to an end in time; ENOTSUP: the epoch was lost; ENOSYS: no epochs are recorded any more
	Lost     wire.GuardLost    // of the epoch that it was about; 0: it could be executed again
	Tries    int
	Took     time.Duration
	Events   uint64
	LogBytes uint64
	Differs  [5]uint64 // of a rollback that was not identical: event, address, what was there or was done, what is, thread
	Ended    uint64    // epochs, of all time
}

// Why a question has no answer.
var (
	ErrGone   = errors.New("the process has ended or become another program")
	ErrEpochs = errors.New("no epochs are recorded")
)

// outside is where the process is asked; nil: nowhere. s.mu is held.
func (p *process) outside() (*wire.Region, *wire.GuardOutside) {
	for _, r := range p.regions {
		if o := &r.head.Guard[0]; atomic.LoadUint32(&o.State) != uint32(NoEpochs) {
			return r.head, o
		}
	}
	return nil, nil
}

// Epochs gives what is known of a process's epochs; false: it is gone.
func (s *Session) Epochs(process uint64) (e Epochs, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[process]
	if p == nil || p.ended {
		return e, false
	}
	h, o := p.outside()
	if o == nil {
		return e, true
	}
	e.State, e.LastLost = EpochState(atomic.LoadUint32(&o.State)), wire.GuardLost(atomic.LoadUint32(&o.LastLost))
	e.Stats.add(h)
	var now unix.Timespec
	if begun := atomic.LoadUint64(&o.BegunNs); unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil && begun != 0 {
		e.Age = time.Duration(max(now.Nano()-int64(begun), 0))
	}
	return e, true
}

// askEvery is how often it is looked whether who is asked still lives.
const askEvery = 20 * time.Millisecond

// AskEpochs has the coordinator of a process's epochs do what is wanted and waits for its answer, as long as ctx lasts: then the question is withdrawn, as far as it was not taken up yet. Of
// several questions one is asked after another.
func (s *Session) AskEpochs(ctx context.Context, process uint64, want wire.GuardWant) (a EpochAnswer, err error) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return a, err
	}
	s.asked = (s.asked + 1) & (1<<24 - 1)
	ask := s.asked<<8 | uint32(want)
	for first := true; ; first = false {
		s.mu.Lock()
		p := s.processes[process]
		if p == nil || p.ended || !p.alive() {
			s.mu.Unlock()
			return a, ErrGone
		}
		h, o := p.outside()
		if o == nil {
			s.mu.Unlock()
			return a, ErrEpochs
		}
		if first {
			atomic.StoreUint32(&o.Ask, ask)
			// Else it looks there anyway, after what it is about to do.
			atomic.CompareAndSwapUint32(&o.Request, 0, wire.GuardLook)
			futexWakeAll(&o.Request)
		}
		word := &o.Answered
		said := atomic.LoadUint32(word)
		if said == ask {
			a = answerOf(h, o)
			s.mu.Unlock()
			return a, nil
		}
		if err := ctx.Err(); err != nil {
			atomic.CompareAndSwapUint32(&o.Ask, ask, 0)
			s.mu.Unlock()
			return a, err
		}
		s.mu.Unlock()
		// The region may be unmapped meanwhile: then the kernel says so.
		_, _ = block.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(said), uintptr(unsafe.Pointer(&s.look)), 0, 0)
	}
}

func answerOf(h *wire.Region, o *wire.GuardOutside) EpochAnswer {
	a := EpochAnswer{
		Lost: wire.GuardLost(atomic.LoadUint32(&o.Lost)), Tries: int(atomic.LoadUint32(&o.Tries)), Took: time.Duration(atomic.LoadUint64(&o.TookNs)),
		Events: atomic.LoadUint64(&o.Events), LogBytes: atomic.LoadUint64(&o.LogBytes), Ended: atomic.LoadUint64(&h.GuardEpochs),
	}
	for i := range a.Differs {
		a.Differs[i] = atomic.LoadUint64(&o.Differs[i])
	}
	if r := atomic.LoadInt32(&o.Result); r < 0 {
		a.Error = unix.Errno(-int64(r))
	} else {
		a.Verdict = wire.GuardVerdict(r)
	}
	return a
}

// Tasks says how many tasks a process has, and whether a signal has stopped it.
func Tasks(pid int) (n int, stopped bool, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	names, err := filepath.Glob(filepath.Join(dir, "task", "[0-9]*"))
	if err != nil {
		return 0, false, err
	}
	for _, name := range names {
		st, err := taskStatus(name)
		if err != nil || st.state == 'Z' || st.state == 'X' {
			continue
		}
		n++
		stopped = stopped || st.state == 'T'
	}
	if n == 0 {
		return 0, false, fmt.Errorf("process %d has no threads", pid)
	}
	return n, stopped, nil
}
