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
	unwatched   string // why there are no breakpoints; empty: there are
}

// measure finds on the calling thread what a sample of the clock and a hit of a breakpoint cost here: work is timed with and without, by the thread's own
// CPU time, several times, and the medians are compared. It takes some twenty milliseconds.
func measure(clock *perf.Attr) costs {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := costs{sample: 20e-6, hit: 20e-6} // where nothing can be measured: on the high side
	fast := *clock
	const interval, rounds = 100_000, 9 // ns
	fast.SamplePeriod, fast.Flags = interval, fast.Flags&^(perf.FlagInherit|perf.FlagEnableOnExec)|perf.FlagDisabled
	if e, err := open(&fast, 0, -1); err == nil {
		if r, err := mapRing(e, 16); err == nil {
			with, without := medians(rounds, e, spin)
			n := 0
			_ = r.drain(func(t perf.Type, _ perf.Misc, _ []byte) error {
				if t == perf.TypeSample {
					n++
				}
				return nil
			})
			if n > rounds && with > without {
				c.sample = max((with-without)/(float64(n)/rounds), 1e-6)
			}
			r.close()
		}
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
		c.hit = max((with-without)/touches, 1e-6)
	}
	if e.count() == 0 {
		c.unwatched = "they can be set, but an access does not hit them"
	}
	return c
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

const touches = 64

var touched, spun uint64

//go:noinline
func touch() {
	for range touches {
		touchOnce()
	}
}

//go:noinline
func touchOnce() { touched++ }

//go:noinline
func spin() {
	x := spun
	for i := range uint64(1_000_000) {
		x = x*6364136223846793005 + i
	}
	spun = x
}

// A purse holds the CPU time that sampling may still take.
type purse struct {
	share float64 // of the program's CPU time; 0: no limit
	left  float64 // seconds
	spent float64 // in all
	time  float64 // CPU time of the program so far
}

// earn adds the share of the program's CPU time since the last time. What is not spent is kept for a second of CPU time, not longer.
func (p *purse) earn(total float64) {
	if d := total - p.time; d > 0 {
		p.left = min(p.left+d*p.share, p.share)
		p.time = total
	}
}

// spend takes what sampling took; it says whether there is something left.
func (p *purse) spend(cost float64) bool {
	p.spent += cost
	p.left -= cost
	return p.share == 0 || p.left > 0
}

// cost is the share of the program's CPU time that was spent.
func (p *purse) cost() float64 {
	if p.time == 0 {
		return 0
	}
	return math.Round(p.spent/p.time*1e4) / 1e4
}
