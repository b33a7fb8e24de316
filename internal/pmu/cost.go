package pmu

import (
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
)

// costs are estimates of what is taken from a program, in seconds.
type costs struct {
	sample, hit float64
	clocked     float64 // a switch to a thread whose clock is on
	watched     float64 // what each breakpoint of the thread adds to that
	idle        float64 // a switch to a thread whose events are off
	fault       float64 // what breakpoints add to each page fault of a process that has some
	start       float64 // of a thread that inherits
	unwatched   string  // why there are no breakpoints; empty: there are
}

const (
	// A sample that comes once in a millisecond finds the kernel's code and data out of the caches, and puts the program's out; those that are timed come
	// so often that they do not. pigz and loops over 256 KiB lost about twice as much for each.
	coldness = 2
	// A switch with all events off, as a part of turning one that does nothing on and off by two calls. Threads whose events are not alike, as breakpoints make
	// them, took 0.5 µs more for each switch here, and those calls 1.0 µs.
	idlePart = 0.5
	// To inherit an event and end it, as a part of opening and closing it: there is no descriptor. Of five events it took 7 to 12 µs, and opening and closing one 5 µs.
	inheritPart = 0.5
)

// measure finds on the calling thread what a sample of the clock and a hit of a breakpoint cost here: work on memory is timed with and without, by the thread's own
// CPU time, several times, and the medians are compared. What turning an event on and off takes beyond the call
// is what a switch of threads does. It takes three to four milliseconds.
func measure(clock *perf.Attr) costs {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := costs{sample: 20e-6, hit: 20e-6, clocked: 5e-6, watched: 1e-6, idle: 1e-6, fault: 1e-6, start: 20e-6} // where nothing can be measured: on the high side
	nothing := 0.0                                                                                             // what it takes to turn an event on and off that does nothing
	inert := perf.Attr{Type: typeSoftware, Config: dummy, Flags: perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagDisabled}
	if e, err := open(&inert, 0, -1); err == nil {
		nothing = turning(e)
		e.close()
		c.idle = coldness * nothing * idlePart
		cpus, _ := online()
		each := opening(&inert)
		c.start = each * inheritPart * float64(1+2*max(len(cpus), 1))
	}
	fast := *clock
	// Nanoseconds. Much shorter, and on virtual machines, where setting a timer leaves to the hypervisor, the clock runs all the time: a sample takes 18 µs there, and with 20 µs between two
	// 34 were measured, a switch took 95 µs for 16, and all of it 30 ms of CPU time that the budget owed.
	const interval, rounds = 100_000, 5
	fast.SamplePeriod, fast.Flags = interval, fast.Flags&^(perf.FlagInherit|perf.FlagEnableOnExec)|perf.FlagDisabled
	if e, err := open(&fast, 0, -1); err == nil {
		if r, err := mapRing(e, 32); err == nil {
			wander() // the table comes into the caches
			with, without := medians(rounds, e, wander)
			n := 0
			_ = r.drain(func(t perf.Type, _ perf.Misc, _ []byte) error {
				if t == perf.TypeSample {
					n++
				}
				return nil
			})
			if n > rounds && with > without {
				c.sample = max(coldness*(with-without)/(float64(n)/rounds), 1e-6)
			}
			r.close()
		}
		e.close()
	}
	slow := fast
	slow.SamplePeriod = 1_000_000_000
	if e, err := open(&slow, 0, -1); err == nil {
		c.clocked = c.idle + coldness*max(turning(e)-nothing, 0.5e-6)
		e.close()
	}
	watch := watchAttr(uint64(uintptr(unsafe.Pointer(&touched))), watchAll, clock)
	e, err := open(&watch, 0, -1)
	if err != nil {
		c.unwatched = err.Error()
		return c
	}
	defer e.close()
	with, without := medians(rounds, e, touch)
	if with > without {
		c.hit = max(coldness*(with-without)/touches, 1e-6)
	}
	if e.count() == 0 {
		c.unwatched = "they can be set, but an access does not hit them"
	}
	c.watched = max(coldness*(turning(e)-nothing), c.idle)
	c.fault = faulting(clock)
	return c
}

// faulting is what breakpoints add to each page fault of the calling thread. On hardware that is nothing, and on some virtual machines a fault is an exit, at which the
// hypervisor exchanges the debug registers, if they are in use: 1.1 to 1.5 µs on one where a fault took 1.7.
func faulting(clock *perf.Attr) float64 {
	const pages, rounds = 32, 5
	m, err := unix.Mmap(-1, 0, pages*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Munmap(m) }()
	work := func() {
		for i := 0; i < len(m); i += unix.Getpagesize() {
			m[i] = 1
		}
	}
	var with, without []float64
	for range rounds {
		_ = unix.Madvise(m, unix.MADV_DONTNEED)
		without = append(without, timed(work))
		_ = unix.Madvise(m, unix.MADV_DONTNEED)
		var set []event
		for i := range bystanders {
			a := watchAttr(uint64(uintptr(unsafe.Pointer(&bystanders[i]))), watchAll, clock)
			a.Flags &^= perf.FlagDisabled
			if e, err := open(&a, 0, -1); err == nil { // fewer where somebody else has the others
				set = append(set, e)
			}
		}
		with = append(with, timed(work))
		for _, e := range set {
			e.close()
		}
	}
	slices.Sort(with)
	slices.Sort(without)
	return max(with[rounds/2]-without[rounds/2], 0) / pages
}

// turning is what turning an event of the calling thread on and off takes.
func turning(e event) float64 {
	const times, rounds = 4, 5
	var all []float64
	for range rounds {
		all = append(all, timed(func() {
			for range times {
				e.enable(true)
				e.enable(false)
			}
		})/times)
	}
	slices.Sort(all)
	return all[rounds/2]
}

// opening is what opening and closing an event of the calling thread takes.
func opening(a *perf.Attr) float64 {
	const times = 16
	return timed(func() {
		for range times {
			if e, err := open(a, 0, -1); err == nil {
				e.close()
			}
		}
	}) / times
}

// medians times work with the event on and off.
func medians(rounds int, e event, work func()) (with, without float64) {
	var on, off []float64
	for range rounds {
		e.enable(true)
		on = append(on, timed(work))
		e.enable(false)
		off = append(off, timed(work))
	}
	slices.Sort(on)
	slices.Sort(off)
	return on[rounds/2], off[rounds/2]
}

func timed(work func()) float64 {
	begin := threadTime()
	work()
	return threadTime() - begin
}

// threadTime is the CPU time of the calling thread, in seconds.
func threadTime() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return float64(t.Nano()) * 1e-9
}

const touches = 8

var touched uint64

var bystanders [slots]uint64 // nobody accesses them

//go:noinline
func touch() {
	for range touches {
		touchOnce()
	}
}

//go:noinline
func touchOnce() { touched++ }

// wandered is 128 KiB: more than the innermost cache holds, as the data of programs are.
var wandered [1 << 15]uint32

//go:noinline
func wander() {
	x := uint32(1)
	for i := range uint32(30_000) {
		p := &wandered[x%uint32(len(wandered))]
		if x = x*1664525 + *p + i; x>>7&1 != 0 {
			*p ^= x
		}
	}
	touched += uint64(x)
}

// A purse holds the CPU time that sampling may still take.
type purse struct {
	share float64 // of the program's CPU time; 0: no limit
	keep  float64 // the most that is kept, seconds; not less than a second's share
	left  float64 // seconds
	debt  float64 // what was taken before the program began
	spent float64 // in all
	time  float64 // CPU time of the program so far
}

// owe notes what was taken while the program did not run. It is paid off by half of what is earned, so that short programs are sampled too.
func (p *purse) owe(cost float64) {
	p.debt += cost
	p.spent += cost
}

// earn adds the share of CPU time that the program had since the last time. Of what is not spent no more than keep stays.
func (p *purse) earn(cpu float64) {
	d := cpu * p.share
	pay := min(p.debt, d/2)
	p.debt -= pay
	p.left = min(p.left+d-pay, max(p.share, p.keep))
	p.time += cpu
}

// spend takes what sampling took.
func (p *purse) spend(cost float64) {
	p.spent += cost
	p.left -= cost
}

// full says whether there is enough to go on, or, if sampling pauses, to begin again: for a twentieth of a second, since beginning costs something, too.
func (p *purse) full(pausing bool) bool {
	if pausing {
		return p.share == 0 || p.left > p.share/20
	}
	return p.share == 0 || p.left > 0
}

// rich says whether more is left than half a second's earnings: it is not spent as fast as it comes.
func (p *purse) rich() bool { return p.left > p.share/2 }

// cost is the share of the program's CPU time that was spent.
func (p *purse) cost() float64 {
	if p.time == 0 {
		return 0
	}
	return math.Round(p.spent/p.time*1e4) / 1e4
}
