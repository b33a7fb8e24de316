package agent

import (
	"fmt"
	"sort"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// process is one traced process: one address space from exec or fork to exec or end.
type process struct {
	id      uint64
	pid     int    // as we see it; 0 when it is not visible to us
	exe     string // where calls are counted
	pidfd   int    // -1: none
	regions []*region
	ended   bool // superseded by an exec: to be finished by the next pass

	// Of the drain loop.
	seen    []*region // regions as of the pass
	over    bool      // ended as of the pass
	threads map[uint32]*slot
	merger  *trace.Merger
	clock   *trace.Lane // a lane without events: bounds threads that are about to appear
	parent  uint64      // from its first event
	began   uint64      // timestamp of its first event
	bound   uint64      // all events before it have been handed out
	newest  uint64      // the greatest timestamp of an event taken from a ring
	broken  bool        // what it wrote makes no sense: it is not read any more
}

// clockKey is the key of process.clock.
var clockKey = trace.LaneKey{Region: ^uint32(0)}

// maxProcesses bounds the processes of a session that live at the same time, maxRegions the regions of one.
const (
	maxProcesses = 10_000
	maxRegions   = 1024
)

// addRegion maps fd as a region of the process that the peer pid says it is.
func (s *Session) addRegion(fd int, pid int, id uint64) error {
	if id == 0 || id >= atomic.LoadUint64(&s.ctl.page.NextProcess) {
		return fmt.Errorf("process id %d was not handed out", id)
	}
	s.mu.Lock()
	p := s.processes[id]
	var n int
	if p != nil {
		n = len(p.regions)
	}
	s.mu.Unlock()
	if n >= maxRegions {
		return fmt.Errorf("process %d has %d regions", id, n)
	}
	// The pid is the peer's, who is waiting for our answer: it cannot have been given to another process.
	pidfd := -1
	if p == nil && pid > 0 {
		if f, err := unix.PidfdOpen(pid, 0); err == nil {
			pidfd = f
		}
	}
	r, err := mapRegion(fd, uint32(n))
	if err == nil {
		if said := r.head.Process; said != id {
			r.unmap()
			err = fmt.Errorf("its head says process %d, the message %d", said, id)
		}
	}
	if err != nil {
		if pidfd >= 0 {
			unix.Close(pidfd)
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = nil
	switch q := s.processes[id]; {
	case s.closed:
		err = fmt.Errorf("the session is over")
	case q != p || q != nil && len(q.regions) != n:
		err = fmt.Errorf("process %d sent two regions at once", id)
	case q != nil && q.pid != pid:
		err = fmt.Errorf("process %d is pid %d, not %d", id, q.pid, pid)
	case q == nil && len(s.processes) >= maxProcesses:
		err = fmt.Errorf("there are %d processes already", maxProcesses)
	}
	if err != nil {
		r.unmap()
		if pidfd >= 0 {
			unix.Close(pidfd)
		}
		return err
	}
	if p != nil {
		p.regions = append(p.regions, r)
		return nil
	}
	p = &process{id: id, pid: pid, pidfd: pidfd, regions: []*region{r}, threads: map[uint32]*slot{}}
	if s.opts.Config.Calls != 0 {
		p.exe = exeOf(pid)
	}
	if s.opts.Handler != nil {
		p.merger = trace.NewMerger(func(e *wire.Event) { s.hand(p, e) })
		p.clock = p.merger.Lane(clockKey)
	}
	for _, q := range s.order {
		if q.pid == pid && pid > 0 {
			q.ended = true // it has become p by exec
		}
	}
	s.processes[id] = p
	s.order = append(s.order, p)
	sort.Slice(s.order, func(i, j int) bool { return s.order[i].id < s.order[j].id })
	return nil
}

// alive tells whether the process still runs its program.
func (p *process) alive() bool {
	if p.pidfd >= 0 {
		fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err != nil || n == 0
	}
	if p.pid > 0 {
		return unix.Kill(p.pid, 0) != unix.ESRCH
	}
	return true
}

// Info is what is known of a traced process.
type Info struct {
	Process uint64 // 0: it has not said anything yet
	PID     int
	Exe     string // "" if it cannot be told
}

// Processes lists the processes that are being traced.
func (s *Session) Processes() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Info
	for _, p := range s.order {
		if p.ended || !p.alive() {
			continue
		}
		list = append(list, Info{p.id, p.pid, exeOf(p.pid)})
	}
	return list
}

// Stats are counters over all processes of a session.
type Stats struct {
	Processes, Threads, Regions     uint64
	Events, Words                   uint64 // taken out of rings
	AgentBytes, RegionBytes         uint64 // the largest sum over one process: private memory of the agent, and shared
	Stacks, StackDrops              uint64
	RingWaits, LocksTaken, Late     uint64
	Tables, TablesCached, NoTables  uint64 // unwind tables compiled, found in the cache, modules without
	Passes                          uint64
	DetachedProcesses, BadProcesses uint64

	RaceAmnesties, RaceEvicted, RaceUnsaid uint64 // as in wire.Region
	SharePardons, ShareKeysTaken           uint64 // likewise
	SharePages, ShareLent, ShareRests      uint64 // likewise
	ShareFaults, ShareSteps                uint64 // likewise

	Guard GuardStats
}

// GuardStats are of the epochs of `guard`, as in wire.Region.
type GuardStats struct {
	Epochs, Events, Busy, StopNs uint64
	Idle                         uint64     // waits of re-executions that ended as nobody moved
	Queues                       uint64     // epochs without the order in queues of atomics
	Lost, Verdicts               [16]uint64 // by wire.GuardLost, wire.GuardVerdict
	Tries                        [16]uint64 // crashes by the re-execution that came to them; 0: none did
	Same                         [16]uint64 // epochs that came out the same by the re-execution that did; 0: none did
	Judged                       [4]uint64  // re-executions with all accesses judged, by wire.GuardJudged
	Differs                      [9]uint64  // of one process
}

func (st *GuardStats) add(h *wire.Region) {
	st.Epochs += atomic.LoadUint64(&h.GuardEpochs)
	st.Events += atomic.LoadUint64(&h.GuardEvents)
	st.Busy += atomic.LoadUint64(&h.GuardBusy)
	st.StopNs += atomic.LoadUint64(&h.GuardStopNs)
	st.Idle += atomic.LoadUint64(&h.GuardIdle)
	st.Queues += atomic.LoadUint64(&h.GuardQueues)
	for i := range st.Lost {
		st.Lost[i] += atomic.LoadUint64(&h.GuardLost[i])
		st.Verdicts[i] += atomic.LoadUint64(&h.GuardVerdicts[i])
		st.Tries[i] += atomic.LoadUint64(&h.GuardTries[i])
		st.Same[i] += atomic.LoadUint64(&h.GuardSame[i])
	}
	for i := range st.Judged {
		st.Judged[i] += atomic.LoadUint64(&h.GuardJudged[i])
	}
	for i := range st.Differs {
		if v := atomic.LoadUint64(&h.GuardDiffers[i]); v != 0 {
			st.Differs[i] = v
		}
	}
}

// add adds what the regions of p say.
func (st *Stats) add(p *process) {
	st.Processes++
	var private, shared uint64
	for _, r := range p.regions {
		st.Regions++
		shared += uint64(len(r.mem))
		private = max(private, atomic.LoadUint64(&r.head.AgentBytes))
		st.Stacks += atomic.LoadUint64(&r.head.Stacks)
		st.StackDrops += atomic.LoadUint64(&r.head.StackDrops)
		st.RingWaits += atomic.LoadUint64(&r.head.RingWaits)
		st.LocksTaken += atomic.LoadUint64(&r.head.LocksTaken)
		st.RaceAmnesties += atomic.LoadUint64(&r.head.RaceAmnesties)
		st.RaceEvicted += atomic.LoadUint64(&r.head.RaceEvicted)
		st.RaceUnsaid += atomic.LoadUint64(&r.head.RaceUnsaid)
		st.SharePardons += atomic.LoadUint64(&r.head.SharePardons)
		st.ShareKeysTaken += atomic.LoadUint64(&r.head.ShareKeysTaken)
		st.SharePages += atomic.LoadUint64(&r.head.SharePages)
		st.ShareLent += atomic.LoadUint64(&r.head.ShareLent)
		st.ShareRests += atomic.LoadUint64(&r.head.ShareRests)
		st.ShareFaults += atomic.LoadUint64(&r.head.ShareFaults)
		st.ShareSteps += atomic.LoadUint64(&r.head.ShareSteps)
		st.Guard.add(r.head)
		for i := range r.slots {
			st.LocksTaken += atomic.LoadUint64(&r.slots[i].shared.LocksTaken)
		}
		if atomic.LoadUint32(&r.head.Detached) != 0 {
			st.DetachedProcesses++
		}
	}
	st.AgentBytes = max(st.AgentBytes, private)
	st.RegionBytes = max(st.RegionBytes, shared)
	if p.merger != nil {
		st.Late += p.merger.Late()
	}
	if p.broken {
		st.BadProcesses++
	}
}

// Stats are the counters so far, of processes gone and living.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	for _, p := range s.order {
		st.add(p)
	}
	st.Tables, st.TablesCached, st.NoTables = s.tables.counts()
	return st
}

func (p *process) free() {
	for _, r := range p.regions {
		r.unmap()
	}
	p.regions, p.seen, p.threads = nil, nil, nil
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
}
