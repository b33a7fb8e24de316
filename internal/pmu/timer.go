package pmu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/block"
	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/tsc"
)

// TimerOptions say how mode timer samples.
type TimerOptions struct {
	Dir     string  // of the trace
	Budget  float64 // the share of the program's CPU time that sampling may take; 0: no limit
	Follow  bool    // sample child processes, too
	Seed    uint64
	Why     string // why this mode was chosen
	Command []string
	Version string
	Warn    func(string)
}

// A Timer samples a program by a clock and breakpoints.
type Timer struct {
	o     TimerOptions
	costs costs
	attrs []perf.Event
	freq  uint64
	ours  bool // the clock is compared with the TSC by us

	clocks, tasks, sides []event
	cpus                 []int
	buffers              []event        // of each processor, of ours: the one whose ring the others write to
	rings                []*ring        // those
	running              bool           // events count from their opening on, not from exec
	ids                  map[uint64]int // number in attrs of an event's id
	out                  *sample.Writer
	info                 sample.Info
	begin                pair
	told                 pair // the conversion that was written last holds here
	purse                purse
	paused               bool
	watch                *watchpoints
	stop                 *os.File // a pipe that is closed to end the draining
	stopped              *os.File
	fds                  []unix.PollFd // what is waited for: the end of that pipe, and the buffers; in the heap, see block.Syscall
	done                 chan error
	body                 []byte // of a record
	pid                  int
	processes            map[int]bool // that are sampled
	cpuTime              float64      // of the draining thread, as accounted
	meter                meter
	reached              float64 // CPU time of ours in which the program's threads were interrupted; since the last account
	starts               int     // threads that inherited; since the last account
	resting              rest
	away                 *absence // nil: attached
	absences             int
	absent               float64 // CPU time of the program in them, seconds
	leaving, coming      float64 // what it took the last time, seconds
	stay                 float64 // what was spent until it began; behind it, what it took
	refused              error   // to come back
}

// Numbers of the events.
const (
	eventSide = iota
	eventClock
	eventWatchAll
	eventWatchWrites
)

const (
	userRegisters = 1<<perf.RegAX | 1<<perf.RegBX | 1<<perf.RegCX | 1<<perf.RegDX | 1<<perf.RegSI | 1<<perf.RegDI | 1<<perf.RegBP | 1<<perf.RegSP |
		1<<perf.RegIP | 1<<perf.RegFlags | 0xff<<perf.RegR8
	stackBytes   = 256 // of a sample: the frame and its caller's
	ringPages    = 32  // of each processor: less than an ordinary user may lock
	slowest      = 20  // Hz of CPU time
	fastest      = 1_000
	unlimited    = 1000 // without a budget
	aim          = 0.7  // of the budget is what the account may come to: of what it estimates, two computing threads lost 1.3 times as much on an AMD EPYC in a virtual machine
	clockShare   = 0.25 // of that is the clock's; the rest is for breakpoints, which tell accesses, and for what is written
	movingShare  = 0.25 // of what is left, for setting more than one at a time
	tick         = 20   // ms between two looks at the buffers
	idleTick     = 100  // when nothing comes, or the budget is spent
	conversionNs = 1_000_000_000
)

const identity = perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime

// timerEvents gives the events of the mode; their ids are those in the file, which stand for those of all events of a kind.
func timerEvents(period uint64, ours bool) []perf.Event {
	base := perf.Attr{Type: typeSoftware, SampleType: identity, Flags: perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagSampleIDAll | perf.FlagDisabled}
	if ours {
		base.Flags |= perf.FlagUseClockID
		base.ClockID = clockID
	}
	side, clock := base, base
	side.Config = dummy
	side.Flags |= perf.FlagInherit | perf.FlagEnableOnExec | perf.FlagMmap | perf.FlagMmap2 | perf.FlagComm | perf.FlagCommExec | perf.FlagTask |
		perf.FlagBuildID | perf.FlagWatermark
	side.WakeupEvents = uint32(ringPages * unix.Getpagesize() / 4)
	clock.Config, clock.SamplePeriod = cpuClock, period
	clock.Flags |= perf.FlagInherit | perf.FlagEnableOnExec
	clock.SampleType |= perf.SampleRegsUser | perf.SampleStackUser
	clock.SampleRegsUser, clock.SampleStackUser = userRegisters, stackBytes
	return []perf.Event{
		{Attr: side, IDs: []uint64{1}, Name: "dummy:u"},
		{Attr: clock, IDs: []uint64{2}, Name: "cpu-clock:u"},
		{Attr: watchAttr(0, watchAll, &clock), IDs: []uint64{3}, Name: "mem:watched:rw:u"},
		{Attr: watchAttr(0, watchWrites, &clock), IDs: []uint64{4}, Name: "mem:watched:w:u"},
	}
}

// watchAttr is a breakpoint on eight bytes, with the clock of another event.
func watchAttr(addr uint64, kind uint32, like *perf.Attr) perf.Attr {
	return perf.Attr{
		Type: typeBreakpoint, BPType: kind, Config1: addr, Config2: 8, SamplePeriod: 1, SampleType: identity | perf.SampleAddr | perf.SampleRegsUser,
		SampleRegsUser: userRegisters, ClockID: like.ClockID,
		Flags: perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagSampleIDAll | perf.FlagDisabled | like.Flags&perf.FlagUseClockID,
	}
}

// NewTimer finds out what sampling costs here, and fails where it is refused.
func NewTimer(o TimerOptions) (*Timer, error) {
	t := &Timer{o: o, done: make(chan error, 1), ids: map[uint64]int{}, processes: map[int]bool{}}
	defer t.before()()
	if err := t.probe(); err != nil {
		return nil, err
	}
	attrs := timerEvents(1, t.ours)
	if t.costs = measure(&attrs[eventClock].Attr); t.costs.unwatched != "" && o.Warn != nil {
		o.Warn("no breakpoints on this machine (" + t.costs.unwatched + "): sampled by the clock alone; see ripstop doctor")
	}
	t.freq = unlimited
	if o.Budget > 0 {
		t.freq = min(max(uint64(o.Budget*aim*clockShare/t.costs.sample), slowest), fastest)
	}
	t.attrs = timerEvents(1_000_000_000/t.freq, t.ours)
	t.purse.share, t.purse.keep = o.Budget*aim, o.Budget*aim
	t.paused = o.Budget > 0 // nothing has been earned
	begins := "the clock misses nothing; "
	if t.paused {
		begins = "sampling begins when its cost has been earned; "
	}
	t.info = sample.Info{
		Mode: sample.Timer, Why: o.Why, Seed: o.Seed, Frequency: t.freq, Hz: tsc.Frequency(), Budget: o.Budget,
		MissedStart: fmt.Sprintf("%sbreakpoints are set on a thread up to %d ms after its start, and on at most %d threads", begins, idleTick, mostWatched),
	}
	if t.costs.unwatched != "" {
		t.info.MissedStart = begins + "there are no breakpoints: " + t.costs.unwatched
	}
	return t, sample.WriteInfo(o.Dir, t.info)
}

// before counts, until what it returns is called, what sampling takes while the program does not run.
func (t *Timer) before() (end func()) {
	runtime.LockOSThread()
	begin := threadTime()
	return func() {
		t.purse.owe(threadTime() - begin)
		runtime.UnlockOSThread()
	}
}

// probe opens the clock on the calling thread.
func (t *Timer) probe() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := timerEvents(1_000_000, false)[eventClock].Attr
	a.Flags &^= perf.FlagInherit | perf.FlagEnableOnExec
	e, err := open(&a, 0, -1)
	if err != nil {
		return refused("sampling by a clock (--sample=timer)", err)
	}
	defer e.close()
	r, err := mapRing(e, 1)
	if err != nil {
		return err
	}
	defer r.close()
	_, known := r.clock()
	t.ours = !known
	return nil
}

// online gives the processors that threads may run on.
func online() (cpus []int, err error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// parseCPUs reads a list such as 0-3,8.
func parseCPUs(s string) (cpus []int, err error) {
	for _, part := range strings.Split(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseUint(lo, 10, 16)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(hi, 10, 16)
		}
		if err != nil || last < first {
			return nil, fmt.Errorf("%q is no list of processors", s)
		}
		for ; first <= last; first++ {
			cpus = append(cpus, int(first))
		}
	}
	return cpus, nil
}

// Attach opens the events on a process that is about to execute the program; they count from its first instruction on.
func (t *Timer) Attach(pid int) error {
	if err := t.attach(pid); err != nil {
		return err
	}
	go t.run()
	return nil
}

func (t *Timer) attach(pid int) error {
	defer t.before()()
	cpus, err := online()
	if err != nil {
		return err
	}
	t.pid = pid
	t.processes[pid] = true
	t.meter.byClocks(t.processes) // what it had before
	if err = t.openBuffers(cpus); err == nil {
		err = t.openThread(pid)
	}
	if err != nil {
		t.closeAll()
		return err
	}
	return t.start(false)
}

// AttachRunning opens the events on all threads of a process that runs already, and on those that they will make. Close leaves it as it was.
func (t *Timer) AttachRunning(pid int) error {
	if err := t.attachRunning(pid); err != nil {
		return err
	}
	go t.run()
	return nil
}

func (t *Timer) attachRunning(pid int) error {
	cpus, err := online()
	if err != nil {
		return err
	}
	t.pid, t.info.Attached, t.running = pid, true, true
	t.processes[pid] = true
	for i := range t.attrs {
		t.attrs[i].Attr.Flags &^= perf.FlagEnableOnExec
	}
	if err = t.openBuffers(cpus); err == nil {
		err = t.openThreads(pid)
	}
	if err == nil && len(t.tasks) == 0 {
		err = fmt.Errorf("process %d: %w", pid, tracee.ErrGone)
	}
	if err != nil {
		t.closeAll()
		return err
	}
	return t.start(true)
}

// start begins the file, and makes all ready for run.
func (t *Timer) start(running bool) (err error) {
	t.begin = moment()
	clock, known := t.rings[0].clock()
	if !known {
		unix.Nanosleep(&unix.Timespec{Nsec: 5_000_000}, nil) // long enough to tell the clock's speed to some parts in a million
		t.told = moment()
		clock = conversion(t.begin, t.told)
	}
	if t.out, err = sample.Create(t.o.Dir, sample.WriterOptions{
		Events: t.attrs, PMUs: []perf.PMU{{Type: typeSoftware, Name: "software"}, {Type: typeBreakpoint, Name: "breakpoint"}}, Clock: clock, PT: -1,
		Command: t.o.Command, Version: t.o.Version,
	}); err != nil {
		t.closeAll()
		return err
	}
	var tids []int
	if running {
		if tids, err = begin(t.out, t.pid); err != nil {
			t.closeAll()
			_ = t.out.Close()
			return err
		}
	}
	t.watch = newWatchpoints(&t.attrs[eventWatchAll].Attr, rand.New(rand.NewPCG(t.o.Seed, 0x7173)))
	if t.costs.unwatched != "" {
		t.watch.free = 0
	}
	for _, tid := range tids {
		if !t.watch.know(t.pid, tid) {
			t.watch.unknown++
		}
	}
	if err := dumpVDSO(t.o.Dir); err != nil && t.o.Warn != nil {
		t.o.Warn("the code of [vdso] is not in the recording: " + err.Error())
	}
	if t.stopped, t.stop, err = os.Pipe(); err != nil {
		t.closeAll()
		return err
	}
	return nil
}

// Close takes what is left in the buffers and completes the files.
func (t *Timer) Close() error {
	if t.stop == nil { // nothing was attached
		return nil
	}
	t.stop.Close()
	err := <-t.done
	t.stopped.Close()
	t.stop = nil
	t.closeAll()
	if e := t.out.Close(); err == nil {
		err = e
	}
	t.info.Complete, t.info.Samples, t.info.Cost = true, t.out.Samples, t.purse.cost()
	if t.absences > 0 && t.purse.time > 0 {
		t.info.Unattached = math.Round(t.absent/t.purse.time*1e4) / 1e4
		t.info.MissedStart = "while the program was let go nothing was sampled"
		if t.o.Warn != nil {
			t.o.Warn(fmt.Sprintf("samples were taken in %.1f%% of the program's CPU time: switching between its threads, or starting them, costs more than the budget of %g%% while they are sampled",
				100-100*t.info.Unattached, 100*t.o.Budget))
		}
	}
	if e := sample.WriteInfo(t.o.Dir, t.info); err == nil {
		err = e
	}
	return err
}

// Info says how the sampling went; after Close.
func (t *Timer) Info() sample.Info { return t.info }

// run looks at the buffers until it is stopped.
func (t *Timer) run() {
	runtime.LockOSThread() // its CPU time is part of the cost
	defer runtime.UnlockOSThread()
	t.cpuTime = threadTime()
	stop := unix.PollFd{Fd: int32(t.stopped.Fd()), Events: unix.POLLIN}
	wait, idle := tick, 0
	for {
		if len(t.fds) != 1+len(t.buffers) { // none while the program is let go
			t.fds = append(t.fds[:0], stop)
			for _, e := range t.buffers {
				t.fds = append(t.fds, unix.PollFd{Fd: int32(e), Events: unix.POLLIN})
			}
		}
		_, errno := block.Syscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&t.fds[0])), uintptr(len(t.fds)), uintptr(wait), 0, 0, 0)
		if errno != 0 && errno != unix.EINTR {
			t.done <- fmt.Errorf("waiting for samples: %w", errno)
			return
		}
		last := t.fds[0].Revents != 0
		for i := range t.fds[1:] {
			if t.fds[1+i].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
				t.fds[1+i].Fd = -1 // the thread of ours that opened it has ended
			}
		}
		n, err := t.pass()
		if last || err != nil {
			t.done <- err
			return
		}
		if idle++; n > 0 {
			idle = 0
		}
		switch {
		case t.paused && t.away == nil && t.resting.time < restSeen: // to be attached may cost too much
			wait = tick
		case idle > 10 || t.paused: // looking costs by the clock on the wall, and the program may get little of the processor
			wait = idleTick
		case t.absences > 0 || t.purse.rich():
			wait = briefTick
		default:
			wait = tick
		}
	}
}

// pass drains all buffers, moves breakpoints, and keeps the budget. It tells how many records there were.
func (t *Timer) pass() (records int, err error) {
	samples, hits := 0, 0
	each := func(kind perf.Type, misc perf.Misc, body []byte) error {
		records++
		return t.record(kind, misc, body, &samples, &hits)
	}
	for _, r := range t.rings {
		if err := r.drain(each); err != nil {
			return records, err
		}
	}
	for _, w := range t.watch.threads {
		if w.ring == nil {
			continue
		}
		if err := w.ring.drain(each); err != nil {
			return records, err
		}
	}
	if t.away != nil {
		t.closeBuffers() // what was in them when the program was let go has been taken
	}
	if records > 0 {
		t.out.Round()
	}
	if t.ours {
		if now := moment(); now.ns-t.told.ns > conversionNs {
			t.out.Reclock(conversion(t.begin, now))
			t.told = now
		}
	}
	t.info.Hits += uint64(hits)
	if err := t.account(samples, hits); err != nil {
		return records, err
	}
	if !t.paused {
		spend := math.Inf(1)
		if t.purse.share > 0 {
			spend = t.purse.left / 2 * movingShare // what is reached pays twice
		}
		t.reach(func() { t.watch.move(spend) })
	}
	return records, nil
}

// reach does what interrupts the program's threads, each for about as long as we wait for it. It gives what that took of them and of us.
func (t *Timer) reach(do func()) float64 {
	begin := threadTime()
	do()
	took := threadTime() - begin
	t.reached += took
	return 2 * took
}

// account pays for what was sampled since the last time; sampling pauses while the purse is empty.
func (t *Timer) account(samples, hits int) error {
	cpu := threadTime()
	cost := cpu - t.cpuTime + t.reached + float64(hits)*t.costs.hit
	t.cpuTime, t.reached = cpu, 0
	if t.away != nil {
		d := t.away.earned()
		t.absent += d
		t.purse.earn(d)
		t.purse.spend(cost)
		if t.purse.left > t.enough() && t.refused == nil {
			return t.comeBack()
		}
		return nil
	}
	d := t.meter.earned(t.processes, t.tasks)
	attached, ticks := t.costs.idle, float64(samples)
	if !t.paused {
		attached = t.costs.clocked + float64(t.watch.set)*t.costs.watched
		ticks = max(ticks, d*float64(t.freq)) // the clock interrupts the kernel as well, of which there are no samples
	}
	attached = float64(t.watch.switches())*attached + float64(t.starts)*t.costs.start
	t.starts = 0
	cost += ticks*t.costs.sample + float64(t.watch.faults(false))*t.costs.fault
	t.purse.earn(d)
	t.purse.spend(cost + attached)
	if t.paused {
		t.resting.cost += attached
		t.resting.time += d
		if r := t.resting; r.time > 0 && r.cost > t.purse.share*max(leastAtRest, r.time*mostAtRest) {
			t.leave()
			return nil
		}
	}
	if ok := t.purse.full(t.paused); ok == t.paused {
		t.paused, t.resting = !ok, rest{}
		t.reach(func() {
			for _, e := range t.clocks {
				e.enable(ok)
			}
			if t.paused {
				t.purse.spend(float64(t.watch.faults(true)) * t.costs.fault)
				t.watch.rest()
			}
		})
	}
	return nil
}

// task follows starts of threads and processes: FORK and EXIT begin with pid, ppid, tid.
func (t *Timer) task(kind perf.Type, body []byte) {
	le := binary.LittleEndian
	if kind == perf.TypeComm {
		return
	}
	pid, parent, tid := int(le.Uint32(body)), int(le.Uint32(body[4:])), int(le.Uint32(body[8:]))
	switch {
	case kind == perf.TypeFork:
		t.starts++
		if pid != parent && t.o.Follow {
			t.processes[pid] = true
			t.meter.began(pid)
		}
	case pid == tid:
		t.meter.gone(pid)
		if pid != t.pid {
			delete(t.processes, pid)
		}
	}
}

// record takes a record out of a buffer and writes it, with the id of its kind of event.
func (t *Timer) record(kind perf.Type, misc perf.Misc, body []byte, samples, hits *int) error {
	le := binary.LittleEndian
	if len(body) < 8 {
		return fmt.Errorf("BUG: a record %v of %d bytes", kind, len(body))
	}
	at := len(body) - 8
	if kind == perf.TypeSample {
		at = 0
	}
	n, known := t.ids[le.Uint64(body[at:])]
	if !known {
		n, known = t.watch.ids[le.Uint64(body[at:])]
	}
	if !known {
		return nil // of an event that was closed
	}
	const pidAt = 16 // of a sample, behind identifier and ip
	if kind == perf.TypeSample && !t.o.Follow && int(le.Uint32(body[pidAt:])) != t.pid {
		return nil
	}
	t.body = append(t.body[:0], body...) // the kernel lets nobody write to the buffer
	body = t.body
	id := t.attrs[n].IDs[0]
	le.PutUint64(body[at:], id)
	time := uint64(0)
	switch kind {
	case perf.TypeSample:
		const timeAt = 24 // behind identifier, ip, pid and tid
		time = le.Uint64(body[timeAt:])
		if n == eventClock {
			*samples++
			t.watch.consider(body)
		} else {
			*hits++
		}
	case perf.TypeLost: // id, count
		le.PutUint64(body, id)
		t.info.Lost += le.Uint64(body[8:])
	case perf.TypeThrottle, perf.TypeUnthrottle: // time, id, stream id
		le.PutUint64(body[8:], id)
		le.PutUint64(body[16:], id)
		if kind == perf.TypeThrottle {
			t.info.Throttled++
		}
	case perf.TypeFork, perf.TypeComm, perf.TypeExit:
		t.task(kind, body)
		t.watch.task(kind, misc, body)
	}
	return t.out.Raw(n, misc, kind, body, time)
}
