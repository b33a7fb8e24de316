package pmu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/tsc"
)

// RecorderOptions say how mode pmu samples.
type RecorderOptions struct {
	Dir     string // of the trace
	Plan    *Plan
	Period  uint64
	Filter  []string // what the plan's filter means: base names of files; none: everywhere
	Follow  bool     // sample child processes, too
	Seed    uint64
	Why     string // why this mode was chosen
	Command []string
	Version string
	Warn    func(string)
}

// A Recorder samples a program by the processor.
//
// Control flow and side-band are inherited, with one event for each processor: no thread's is missed, not even its first instruction (flow tells whose a part is).
// Loads and stores are each thread's own: what is inherited has no period but its maker's, and all threads would be sampled at the same places of the same code. They are
// opened when a thread's FORK record comes, with a first period by chance.
type Recorder struct {
	o     RecorderOptions
	attrs []perf.Event // side-band, then the plan's
	ours  bool         // the clock is compared with the TSC by us

	cpus    map[int]*processor
	threads map[int]*sampledThread
	ids     map[uint64]int // number in attrs of an event's id
	out     *sample.Writer
	flow    *flow
	clock   perf.TimeConv
	begin   pair
	told    pair
	last    uint64 // time before which all buffers have been drained
	info    sample.Info
	late    late
	random  *rand.Rand
	pid     int
	running bool // it ran when it was attached to
	body    []byte
	refused error // of a thread's events; told once

	epoll         int
	stop, stopped *os.File
	done          chan error
}

// A processor has two buffers: records that are rare and told at once, and control flow with its own.
type processor struct {
	sides, flows []event // the first of each has the buffer
	side, trace  *ring
	aux          *auxRing
}

// A sampledThread has its loads and stores, and their buffer.
type sampledThread struct {
	pid    int
	ring   *ring
	events []event
	ids    []uint64
	first  []firstPeriod
}

// A firstPeriod is what an event has not come to the end of yet.
type firstPeriod struct {
	length uint64 // 0: it has
	once   bool   // the event stops by itself behind it
	again  uint8  // how often it is to be enabled yet, as that may come late
}

// agains is that number, one a pass.
const agains = 32

// late counts what threads did before their events were there.
type late struct {
	threads int
	most    time.Duration
}

// Places in Recorder.attrs.
const (
	recSide = iota
	recFlow
	recFirst // loads and stores from here on
)

const (
	sidePages   = 8       // of each processor
	tracePages  = 16      // of each processor, for AUX records
	auxBytes    = 4 << 20 // of each processor
	threadPages = 64      // of a thread: 1,300 samples
	hasty       = 8       // a first period shorter than this part of the period ends by itself, or its samples would come too fast
)

// NewRecorder prepares for sampling as the plan says, and fails where that is refused.
func NewRecorder(o RecorderOptions) (*Recorder, error) {
	r := &Recorder{
		o: o, cpus: map[int]*processor{}, threads: map[int]*sampledThread{}, ids: map[uint64]int{}, done: make(chan error, 1), epoll: -1,
		random: rand.New(rand.NewPCG(o.Seed, 0x706d75)),
	}
	if err := r.events(); err != nil {
		return nil, err
	}
	r.info = sample.Info{Mode: sample.PMU, Why: o.Why, Period: o.Period, Seed: o.Seed, Hz: tsc.Frequency(), Filter: o.Filter}
	return r, sample.WriteInfo(o.Dir, r.info)
}

// events completes the plan's attributes and tries whether the kernel takes them.
func (r *Recorder) events() error {
	base := r.o.Plan.Events[0].Attr
	side := perf.Attr{
		Type: typeSoftware, Config: dummy, SampleType: base.SampleType, WakeupEvents: 1,
		Flags: base.Flags | perf.FlagInherit | perf.FlagEnableOnExec | perf.FlagMmap | perf.FlagMmap2 | perf.FlagComm | perf.FlagCommExec | perf.FlagTask |
			perf.FlagBuildID | perf.FlagWatermark, // at the first byte
	}
	r.attrs = append([]perf.Event{{Attr: side, Name: "dummy:u"}}, r.o.Plan.Events...)
	page := unix.Getpagesize()
	flow := &r.attrs[recFlow].Attr
	flow.Flags |= perf.FlagInherit | perf.FlagEnableOnExec | perf.FlagWatermark
	flow.WakeupEvents = uint32(tracePages * page / 4)
	if r.traces() {
		flow.AuxWatermark = auxBytes / 4
	}
	if !r.o.Follow {
		r.attrs[recSide].Attr.Flags |= perf.FlagInheritThread
		flow.Flags |= perf.FlagInheritThread
	}
	for i := range r.attrs[recFirst:] {
		a := &r.attrs[recFirst+i].Attr
		a.Flags |= perf.FlagWatermark // not so many events: that would be an interrupt for each
		a.WakeupEvents = uint32(threadPages * page / 4)
	}
	known, err := r.try()
	if err != nil {
		return err
	}
	if r.ours = !known; r.ours {
		for i := range r.attrs {
			r.attrs[i].Attr.Flags |= perf.FlagUseClockID
			r.attrs[i].Attr.ClockID = clockID
		}
	}
	for i := range r.attrs {
		r.attrs[i].IDs = []uint64{uint64(i + 1)}
	}
	return nil
}

// try opens each event on the calling thread; known says whether the kernel tells how its time is converted.
func (r *Recorder) try() (known bool, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range r.attrs {
		a := r.attrs[i].Attr
		a.Flags &^= perf.FlagInherit | perf.FlagEnableOnExec | perf.FlagInheritThread
		e, err := open(&a, 0, -1)
		if err != nil {
			return false, refused("sampling by the processor (--sample=pmu), "+r.attrs[i].Name, err)
		}
		if i == recSide {
			var m *ring
			if m, err = mapRing(e, 1); err == nil {
				_, known = m.clock()
				m.close()
			}
		}
		e.close()
		if err != nil {
			return false, err
		}
	}
	return known, nil
}

// traces says whether there is control flow; tests have none.
func (r *Recorder) traces() bool { return r.attrs[recFlow].Attr.Type != typeSoftware }

// Attach opens the events on a process that is about to execute the program; they count from its first instruction on.
func (r *Recorder) Attach(pid int) error {
	r.pid = pid
	err := r.attach(func(cpus []int) error {
		if err := r.openFlow(pid, cpus); err != nil {
			return err
		}
		return r.openThread(pid, pid)
	})
	if err == nil {
		err = r.start()
	}
	return err
}

// AttachRunning opens the events on all threads of a process that runs already, and on those that they will make. Close leaves it as it was.
func (r *Recorder) AttachRunning(pid int) error {
	r.pid, r.running, r.info.Attached = pid, true, true
	for i := range r.attrs {
		r.attrs[i].Attr.Flags &^= perf.FlagEnableOnExec
	}
	err := r.attach(func(cpus []int) error {
		return everyThread(pid, r.sides, func(tid int) error {
			err := r.openFlow(tid, cpus)
			if errors.Is(err, unix.ESRCH) {
				return nil // it has ended
			}
			return err
		})
	})
	if err == nil && len(r.sides()) == 0 {
		err = fmt.Errorf("process %d: %w", pid, tracee.ErrGone)
	}
	if err == nil {
		err = r.start()
	}
	return err
}

func (r *Recorder) sides() (all []*ring) {
	for _, p := range r.cpus {
		if p.side != nil {
			all = append(all, p.side)
		}
	}
	return all
}

func (r *Recorder) attach(open func(cpus []int) error) error {
	cpus, err := online()
	if err != nil {
		return err
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		r.stopped, r.stop, err = os.Pipe()
	}
	if err == nil {
		err = r.wakeBy(int(r.stopped.Fd()))
	}
	if err == nil {
		err = open(cpus)
	}
	if err != nil {
		r.closeAll()
	}
	return err
}

func (r *Recorder) wakeBy(fd int) error {
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("waiting for samples: %w", err)
	}
	return nil
}

// openFlow opens what a thread and those that it makes have on each processor.
func (r *Recorder) openFlow(tid int, cpus []int) error {
	var opened []event
	for _, cpu := range cpus {
		p := r.cpus[cpu]
		if p == nil {
			p = &processor{}
			r.cpus[cpu] = p
		}
		for _, k := range []struct {
			n     int
			list  *[]event
			ring  **ring
			pages int
		}{{recSide, &p.sides, &p.side, sidePages}, {recFlow, &p.flows, &p.trace, tracePages}} {
			e, err := r.open(k.n, 0, tid, cpu)
			if err != nil {
				return err
			}
			*k.list = append(*k.list, e)
			opened = append(opened, e)
			if *k.ring != nil {
				if err := e.ioctl(unix.PERF_EVENT_IOC_SET_OUTPUT, uintptr((*k.list)[0])); err != nil {
					return fmt.Errorf("%s: joining two events: %w", r.attrs[k.n].Name, err)
				}
			} else {
				if *k.ring, err = mapRing(e, k.pages); err != nil {
					return err
				}
				if k.n == recFlow && r.traces() {
					if p.aux, err = mapAux(e, p.trace, auxBytes); err != nil {
						return err
					}
				}
				if err := r.wakeBy(int(e)); err != nil {
					return err
				}
			}
			if k.n == recFlow && r.o.Plan.Filter != "" && r.traces() {
				if err := e.filter(r.o.Plan.Filter); err != nil {
					return fmt.Errorf("%s: the filter %q: %w", r.attrs[k.n].Name, r.o.Plan.Filter, err)
				}
			}
		}
	}
	if r.running {
		for _, e := range opened {
			e.enable(true)
		}
	}
	return nil
}

// open opens an event, with another period if it is not 0.
func (r *Recorder) open(n int, period uint64, tid, cpu int) (event, error) {
	a := r.attrs[n].Attr
	if period != 0 {
		a.SamplePeriod = period
	}
	e, err := open(&a, tid, cpu)
	if err != nil {
		return -1, refused("sampling by the processor, "+r.attrs[n].Name, err)
	}
	id, err := e.id()
	if err != nil {
		e.close()
		return -1, err
	}
	r.ids[id] = n
	return e, nil
}

// openThread opens a thread's loads and stores. They count at once, or from exec on.
func (r *Recorder) openThread(pid, tid int) (err error) {
	if r.threads[tid] != nil || len(r.attrs) == recFirst {
		return nil
	}
	t := &sampledThread{pid: pid}
	defer func() {
		if err != nil {
			r.closeThread(t)
		}
	}()
	atExec := r.out == nil && !r.running
	for n := recFirst; n < len(r.attrs); n++ {
		period := r.attrs[n].Attr.SamplePeriod
		first := firstPeriod{length: 1 + r.random.Uint64N(period)}
		first.once = first.length < period/hasty && !atExec
		if first.length < period/hasty && atExec { // no such count can be set for later
			first.length += period / hasty
		}
		if !atExec {
			r.attrs[n].Attr.Flags &^= perf.FlagEnableOnExec
		} else {
			r.attrs[n].Attr.Flags |= perf.FlagEnableOnExec
		}
		e, err := r.open(n, first.length, tid, -1)
		if err != nil {
			return err
		}
		t.events, t.first = append(t.events, e), append(t.first, first)
		if id, err := e.id(); err == nil {
			t.ids = append(t.ids, id)
		}
		if len(t.events) == 1 {
			if t.ring, err = mapThread(e); err != nil {
				return err
			}
			if err := r.wakeBy(int(e)); err != nil {
				return err
			}
		} else if err := e.ioctl(unix.PERF_EVENT_IOC_SET_OUTPUT, uintptr(t.events[0])); err != nil {
			return fmt.Errorf("%s: joining two events: %w", r.attrs[n].Name, err)
		}
	}
	for i, e := range t.events {
		switch {
		case atExec:
		case t.first[i].once:
			err = e.ioctl(unix.PERF_EVENT_IOC_REFRESH, 1)
		default:
			e.enable(true)
		}
		if err != nil {
			return err
		}
	}
	r.threads[tid] = t
	return nil
}

// mapThread maps a thread's buffer, a smaller one where many threads have used up what may be locked.
func mapThread(e event) (m *ring, err error) {
	for pages := threadPages; pages > 0; pages /= 2 {
		if m, err = mapRing(e, pages); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			break
		}
	}
	return m, err
}

func (r *Recorder) closeThread(t *sampledThread) {
	t.ring.close()
	for _, e := range t.events {
		e.close()
	}
	for _, id := range t.ids {
		delete(r.ids, id)
	}
}

// start begins the file and the draining.
func (r *Recorder) start() (err error) {
	defer func() {
		if err != nil {
			r.closeAll()
			if r.out != nil {
				_ = r.out.Close()
			}
		}
	}()
	r.begin = moment()
	var known bool
	if r.clock, known = r.sides()[0].clock(); r.ours || !known {
		unix.Nanosleep(&unix.Timespec{Nsec: 5_000_000}, nil) // long enough to tell the clock's speed to some parts in a million
		r.told = moment()
		r.clock = conversion(r.begin, r.told)
	}
	o := sample.WriterOptions{
		Events: r.attrs, PMUs: append([]perf.PMU{{Type: typeSoftware, Name: "software"}}, r.o.Plan.PMUs...), Clock: r.clock, PT: -1, Command: r.o.Command, Version: r.o.Version,
	}
	if r.traces() {
		o.PT, o.Timing, o.Filter = recFlow, r.o.Plan.Timing, r.o.Plan.Filter
	}
	if r.out, err = sample.Create(r.o.Dir, o); err != nil {
		return err
	}
	r.flow = newFlow(r.out, func(t uint64) uint64 { return r.clock.TSC(t) })
	if r.running {
		tids, err := begin(r.out, r.pid)
		if err != nil {
			return err
		}
		for _, tid := range tids {
			r.threadStarts(r.pid, tid)
		}
	}
	if err := dumpVDSO(r.o.Dir); err != nil && r.o.Warn != nil {
		r.o.Warn("the code of [vdso] is not in the recording: " + err.Error())
	}
	go r.run()
	return nil
}

// threadStarts samples a thread from now on.
func (r *Recorder) threadStarts(pid, tid int) {
	err := r.openThread(pid, tid)
	if err == nil || errors.Is(err, unix.ESRCH) || r.refused != nil {
		return
	}
	r.refused = err
	if r.o.Warn != nil {
		r.o.Warn("loads and stores of some threads are not sampled: " + err.Error())
	}
}

func (r *Recorder) closeAll() {
	for _, t := range r.threads {
		r.closeThread(t)
	}
	for _, p := range r.cpus {
		p.aux.close()
		p.side.close()
		p.trace.close()
		for _, e := range append(p.sides, p.flows...) {
			e.close()
		}
	}
	if r.epoll >= 0 {
		_ = unix.Close(r.epoll)
	}
	r.threads, r.cpus, r.epoll = nil, nil, -1
}

// Close takes what is left in the buffers and completes the files.
func (r *Recorder) Close() error {
	if r.out == nil { // nothing was attached
		return nil
	}
	r.stop.Close()
	err := <-r.done
	r.stopped.Close()
	r.closeAll()
	if e := r.out.Close(); err == nil {
		err = e
	}
	i := &r.info
	i.Complete, i.Samples, i.Truncated = true, r.out.Samples, r.flow.cut
	i.MissedStart = "control flow misses nothing"
	if r.running {
		i.MissedStart = "it ran when it was attached to"
	}
	if r.late.threads > 0 {
		i.MissedStart += fmt.Sprintf("; loads and stores are counted from up to %s after a thread's start (%d threads)", r.late.most.Round(time.Microsecond), r.late.threads)
	}
	if e := sample.WriteInfo(r.o.Dir, *i); err == nil {
		err = e
	}
	r.out = nil
	return err
}

// Info says how the sampling went; after Close.
func (r *Recorder) Info() sample.Info { return r.info }

// run looks at the buffers until it is stopped.
func (r *Recorder) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wait, idle := tick, 0
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(r.epoll, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			r.done <- fmt.Errorf("waiting for samples: %w", err)
			return
		}
		last := false
		for _, e := range events[:max(n, 0)] {
			if e.Fd == int32(r.stopped.Fd()) {
				last = true
			} else if e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 { // all that it was for have ended
				_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, int(e.Fd), nil)
			}
		}
		got, err := r.pass(last)
		if last || err != nil {
			r.done <- err
			return
		}
		if idle++; got > 0 {
			idle = 0
		}
		if wait = tick; idle > 10 {
			wait = idleTick
		}
	}
}

// pass drains all buffers. It tells how many records there were.
func (r *Recorder) pass(last bool) (records int, err error) {
	now := r.now()
	for _, p := range r.cpus { // first: threads that have begun are not sampled yet
		if err := r.drain(p.side, nil, nil, &records); err != nil {
			return records, err
		}
	}
	for _, p := range r.cpus {
		if err := r.drain(p.trace, p.aux, nil, &records); err != nil {
			return records, err
		}
	}
	for _, t := range r.threads {
		if err := r.drain(t.ring, nil, t, &records); err != nil {
			return records, err
		}
		t.enableAgain()
	}
	until := r.last
	if r.last = now; last {
		until = ^uint64(0)
	}
	had := len(r.flow.waiting)
	if err := r.flow.step(until); err != nil {
		return records, err
	}
	for _, p := range r.cpus {
		if p.aux != nil && p.aux.freed { // a full buffer stopped the event; there is room now
			p.aux.freed = false
			for _, e := range p.flows {
				e.enable(true)
			}
		}
	}
	if records > 0 || had != len(r.flow.waiting) {
		r.out.Round()
	}
	if r.ours {
		if now := moment(); now.ns-r.told.ns > conversionNs {
			r.clock = conversion(r.begin, now)
			r.out.Reclock(r.clock)
			r.told = now
		}
	}
	return records, nil
}

// now is the time of the events' clock.
func (r *Recorder) now() uint64 {
	if r.ours {
		var t unix.Timespec
		_ = unix.ClockGettime(clockID, &t)
		return uint64(t.Nano())
	}
	return r.clock.Time(tsc.Now())
}

func (r *Recorder) drain(from *ring, aux *auxRing, t *sampledThread, records *int) error {
	return from.drain(func(kind perf.Type, misc perf.Misc, body []byte) error {
		*records++
		return r.record(kind, misc, body, aux, t)
	})
}

// record takes a record out of a buffer. Samples are written at once, all others in the order of time.
func (r *Recorder) record(kind perf.Type, misc perf.Misc, body []byte, aux *auxRing, t *sampledThread) error {
	le := binary.LittleEndian
	if len(body) < 24 { // the identity: pid, tid, time, id
		return fmt.Errorf("BUG: a record %v of %d bytes", kind, len(body))
	}
	idAt, who := len(body)-8, len(body)-24
	if kind == perf.TypeSample {
		idAt, who = 0, 16 // identifier, ip, pid, tid, time
	}
	n, known := r.ids[le.Uint64(body[idAt:])]
	if !known || len(body) < who+16 {
		return fmt.Errorf("BUG: a record %v of no event", kind)
	}
	id := r.attrs[n].IDs[0]
	pid, tid, time := int(int32(le.Uint32(body[who:]))), int(int32(le.Uint32(body[who+4:]))), le.Uint64(body[who+8:])
	r.body = append(r.body[:0], body...) // the kernel lets nobody write to the buffer
	body = r.body
	le.PutUint64(body[idAt:], id)
	switch kind {
	case perf.TypeSample:
		if t != nil {
			t.sampled(n-recFirst, r.attrs[n].Attr.SamplePeriod)
		}
		return r.out.Raw(n, misc, kind, body, time)
	case perf.TypeLost: // id, count
		le.PutUint64(body, id)
		r.info.Lost += le.Uint64(body[8:])
	case perf.TypeLostSamples: // count
		r.info.Lost += le.Uint64(body)
	case perf.TypeThrottle, perf.TypeUnthrottle: // time, id, stream id
		le.PutUint64(body[8:], id)
		le.PutUint64(body[16:], id)
		if kind == perf.TypeThrottle {
			r.info.Throttled++
		}
	case perf.TypeFork, perf.TypeExit, perf.TypeComm:
		var err error
		if pid, tid, err = r.task(kind, misc, body, time); err != nil {
			return err
		}
	}
	r.flow.waiting = append(r.flow.waiting, pending{time, kind, misc, n, append([]byte(nil), body...), pid, tid, aux})
	return nil
}

// task follows threads: FORK and EXIT begin with pid, ppid, tid, ptid, COMM with pid, tid. It gives whom the record is about.
func (r *Recorder) task(kind perf.Type, misc perf.Misc, body []byte, time uint64) (pid, tid int, err error) {
	le := binary.LittleEndian
	pid, tid = int(int32(le.Uint32(body))), int(int32(le.Uint32(body[8:])))
	switch {
	case kind == perf.TypeComm:
		tid = int(int32(le.Uint32(body[4:])))
		if misc&perf.MiscCommExec == 0 {
			return pid, tid, nil
		}
		for old, t := range r.threads { // the others have ended, and the one that executes has the process's id now
			if t.pid == pid && old != tid {
				err = errors.Join(err, r.threadEnds(old))
			}
		}
		if err == nil {
			r.threadStarts(pid, tid)
		}
	case pid != r.pid && !r.o.Follow:
	case kind == perf.TypeFork:
		if err = r.threadEnds(tid); err == nil { // whose end was lost
			r.threadStarts(pid, tid)
			r.late.note(r.now(), time)
		}
	default:
		err = r.threadEnds(tid)
	}
	return pid, tid, err
}

func (l *late) note(now, start uint64) {
	l.threads++
	if now > start {
		l.most = max(l.most, time.Duration(now-start))
	}
}

// threadEnds takes what a thread has left.
func (r *Recorder) threadEnds(tid int) error {
	t := r.threads[tid]
	if t == nil {
		return nil
	}
	delete(r.threads, tid)
	defer r.closeThread(t)
	n := 0
	return r.drain(t.ring, nil, t, &n)
}

// sampled ends an event's first period.
func (t *sampledThread) sampled(i int, period uint64) {
	f := &t.first[i]
	if f.length == 0 {
		f.again = 0
		return
	}
	e := t.events[i]
	_ = e.setPeriod(period) // it fails where the thread is gone
	once := f.once
	if *f = (firstPeriod{}); once {
		e.enable(true)
		f.again = agains
	}
}

// enableAgain is for events whose first period has just ended by itself: the kernel writes the sample, and stops the event somewhat later (perf_pending_disable), which then may have been enabled already. One that has another sample is on.
func (t *sampledThread) enableAgain() {
	for i := range t.first {
		if t.first[i].again > 0 {
			t.first[i].again--
			t.events[i].enable(true)
		}
	}
}

// NoRanges says of files that the hardware has no filters for; "" if there are none.
func (p *Plan) NoRanges() string {
	var names []string
	for _, r := range p.Left {
		names = append(names, r.Path)
	}
	return strings.Join(names, ", ")
}
