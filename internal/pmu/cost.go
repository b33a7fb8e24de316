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
	unwatched   string  // why there are no breakpoints; empty: there are
}

const (
	// A sample that comes once in a millisecond finds the kernel's code and data out of the caches, and puts the program's out; those that are timed come
	// so often that they do not. pigz and loops over 256 KiB lost about twice as much for each.
	coldness = 2
	// A switch with all events off, as a part of one with a clock on: no timer is set, but the events are looked at.
	idlePart = 0.0625
)

// measure finds on the calling thread what a sample of the clock and a hit of a breakpoint cost here: work on memory is timed with and without, by the thread's own
// CPU time, several times, and the medians are compared. What turning an event on and off takes beyond the call
// is what a switch of threads does. It takes some milliseconds.
func measure(clock *perf.Attr) costs {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := costs{sample: 20e-6, hit: 20e-6, clocked: 3e-6, watched: 2e-6} // where nothing can be measured: on the high side
	nothing := 0.0                                                      // what it takes to turn an event on and off that does nothing
	inert := perf.Attr{Type: typeSoftware, Config: dummy, Flags: perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagDisabled}
	if e, err := open(&inert, 0, -1); err == nil {
		nothing = turning(e)
		e.close()
	}
	fast := *clock
	const interval, rounds = 20_000, 5 // ns
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
			c.clocked = max(turning(e)-nothing, 0.5e-6)
			r.close()
		}
		e.close()
	}
	c.idle = c.clocked * idlePart
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
	c.watched = max(turning(e)-nothing, 0.1e-6)
	return c
}

// turning is what turning an event of the calling thread on and off takes.
func turning(e event) float64 {
	const times = 32
	return timed(func() {
		for range times {
			e.enable(true)
			e.enable(false)
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

const touches = 16

var touched uint64

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

// earn adds the share of the program's CPU time since the last time. What is not spent is kept for a second of CPU time, not longer.
func (p *purse) earn(total float64) {
	if total > p.time {
		d := (total - p.time) * p.share
		pay := min(p.debt, d/2)
		p.debt -= pay
		p.left = min(p.left+d-pay, p.share)
		p.time = total
	}
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

// cost is the share of the program's CPU time that was spent.
func (p *purse) cost() float64 {
	if p.time == 0 {
		return 0
	}
	return math.Round(p.spent/p.time*1e4) / 1e4
}
