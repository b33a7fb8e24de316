package pmu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/tsc"
)

// An event costs at each switch of threads even while it is off, and at each start of a thread that inherits it. Where that alone would be a good part of the budget,
// nothing stays attached while sampling pauses: the program is let go, and attached to again when enough has been earned. Our own events go, too: as long as there is
// any on the machine, threads that ever had one pay something for it (the kernel's perf_sched_events).

const (
	// A program is let go where being attached costs more than this part of the budget while sampling pauses, and that has come to as much as this part of a second's.
	mostAtRest  = 0.25
	leastAtRest = 0.05
	restSeen    = 0.05 // CPU seconds of a pause after which it is looked at less often
	// Coming back pays if there is this part of a second's budget to spend, several times what coming back takes, and as much as it cost to stay the last time.
	leastToSpend = 0.25
	timesComing  = 8
	briefTick    = 5 // ms between two looks while what was let go is sampled, which is not for long
)

// rest is what being attached costs while sampling pauses.
type rest struct{ cost, time float64 } // seconds

// An absence is a time in which nothing is attached.
type absence struct {
	since     uint64               // TSC
	processes map[int]*leftProcess // that were there at its beginning
	time      float64              // their CPU time when it was looked at last, seconds
}

// A leftProcess is one as it was when it was let go.
type leftProcess struct {
	parent  int // 0: it was there when the absence began
	threads map[int]bool
	code    []tracee.Mapping
}

// leave lets go of the program.
func (t *Timer) leave() {
	a := &absence{since: tsc.Now(), processes: map[int]*leftProcess{}}
	for pid := range t.processes {
		tids, err := tracee.Threads(pid)
		if err != nil || len(tids) == 0 {
			delete(t.processes, pid) // it has ended
			continue
		}
		p := &leftProcess{threads: map[int]bool{}}
		for _, tid := range tids {
			p.threads[tid] = true
		}
		p.code, _ = codeMapped(pid) // none, if it ends just now
		a.processes[pid] = p
	}
	t.leaving = t.reach(t.closeEvents)
	a.time = a.cpuTime()
	t.away, t.paused = a, true
	if t.absences++; t.absences > 1 {
		t.stay = t.purse.spent - t.stay
	} else { // as it costs at rest, with the clock on, for two looks
		t.stay = t.resting.cost / t.resting.time * t.costs.clocked / t.costs.idle * 2 * briefTick / 1000
	}
	t.purse.keep = max(t.purse.share, 2*t.enough())
}

// enough is what there must be in the purse to come back.
func (t *Timer) enough() float64 {
	return max(t.purse.share*leastToSpend, (t.leaving+t.coming)*timesComing, t.stay)
}

// cpuTime is the CPU time of the processes that were let go, seconds.
func (a *absence) cpuTime() (sum float64) {
	for pid := range a.processes {
		now, _ := processTime(pid)
		sum += now
	}
	return sum
}

// earned is the CPU time since it was asked last; a process that ended takes its last with it.
func (a *absence) earned() float64 {
	now := a.cpuTime()
	d := max(now-a.time, 0)
	a.time = now
	return d
}

// comeBack attaches to what there is by now, and writes what has changed.
func (t *Timer) comeBack() error {
	a := t.away
	begin := tsc.Now()
	clear(t.ids) // the buffers have been drained
	clear(t.watch.ids)
	t.watch.stale, t.watch.unknown = nil, 0
	t.running, t.paused, t.stay = true, false, t.purse.spent
	found := t.living(a)
	var failed error
	t.coming = t.reach(func() {
		if failed = t.openBuffers(t.cpus); failed != nil {
			return
		}
		for pid := range found {
			if err := t.openThreads(pid); err != nil && !errors.Is(err, tracee.ErrGone) && failed == nil {
				failed = err
			}
		}
	})
	if failed != nil { // out of descriptors, or not allowed any longer
		if t.o.Warn != nil && t.refused == nil {
			t.o.Warn("sampling ended before the program did: " + failed.Error())
		}
		t.refused, t.paused = failed, true
		t.reach(t.closeAll)
		return nil
	}
	t.away, t.meter, t.resting = nil, meter{}, rest{}
	for pid, p := range found {
		if err := t.changed(a, pid, p, begin); err != nil {
			return err
		}
	}
	for pid, p := range a.processes {
		if err := t.ended(pid, p, found[pid], begin); err != nil {
			return err
		}
	}
	return nil
}

// living gives what there is of the processes that were let go, and of those that they made.
func (t *Timer) living(a *absence) map[int]*leftProcess {
	found := map[int]*leftProcess{}
	var look func(pid, parent int)
	look = func(pid, parent int) {
		tids, err := tracee.Threads(pid)
		if err != nil || found[pid] != nil {
			return
		}
		found[pid] = &leftProcess{parent: parent}
		if !t.o.Follow {
			return
		}
		for _, tid := range tids {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, tid)) // a kernel without it (CONFIG_PROC_CHILDREN) does not tell
			for _, f := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(f); err == nil && a.processes[child] == nil {
					look(child, pid)
				}
			}
		}
	}
	for pid := range a.processes {
		if start, ok := startOf(pid, pid); ok && start <= a.since { // else another process has its number by now
			look(pid, 0)
		}
	}
	return found
}

// changed writes what is new of a process that is attached to again. Times are those of the change where the kernel tells, else of coming back.
func (t *Timer) changed(a *absence, pid int, p *leftProcess, now uint64) error {
	before := a.processes[pid]
	tids, err := tracee.Threads(pid)
	if err != nil {
		return nil // it ended just now, which the buffers tell
	}
	p.threads = map[int]bool{}
	t.processes[pid] = true
	for i, tid := range tids {
		start, ok := startOf(pid, tid)
		if !ok {
			continue
		}
		p.threads[tid] = true
		if !t.watch.know(pid, tid) {
			t.watch.unknown++
		}
		if before != nil && before.threads[tid] && start <= a.since {
			continue
		}
		maker, of := pid, pid
		if before == nil && i == 0 {
			maker, of = p.parent, p.parent
		}
		start = min(max(start, a.since), now)
		if err := t.out.Fork(int32(pid), int32(tid), int32(of), int32(maker), start); err != nil {
			return err
		}
		if err := t.out.Comm(int32(pid), int32(tid), nameOf(pid, tid), false, start); err != nil {
			return err
		}
	}
	code, err := codeMapped(pid)
	if err != nil || before != nil && sameCode(code, before.code) {
		return nil
	}
	if err := t.out.Comm(int32(pid), int32(pid), nameOf(pid, pid), true, now); err != nil { // what was mapped before is forgotten
		return err
	}
	return writeCode(t.out, pid, code, now)
}

// ended writes which threads of a process that was let go are there no longer.
func (t *Timer) ended(pid int, before, after *leftProcess, now uint64) error {
	for tid := range before.threads {
		if after != nil && after.threads[tid] {
			continue
		}
		if err := t.out.Exit(int32(pid), int32(tid), now); err != nil {
			return err
		}
	}
	if after == nil {
		delete(t.processes, pid)
	}
	return nil
}

func sameCode(a, b []tracee.Mapping) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// startOf gives when a thread started, as a TSC, up to a hundredth of a second too early: the kernel tells it in ticks since boot (proc_pid_stat(5), starttime).
func startOf(pid, tid int) (at uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return 0, false
	}
	const startAt, ticks = 22 - 3, 100 // its field behind the name, which is in parentheses and may have any; USER_HZ
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) <= startAt {
		return 0, false
	}
	n, err := strconv.ParseUint(string(f[startAt]), 10, 64)
	if err != nil {
		return 0, false
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0, false
	}
	age := float64(now.Nano())*1e-9 - float64(n)/ticks
	return tsc.Now() - uint64(max(age, 0)*float64(tsc.Frequency())), true
}
