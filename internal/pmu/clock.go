package pmu

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/tsc"
)

// clockID is the clock of events where the kernel does not say how its own is converted to the TSC (as in a virtual machine with kvm-clock): it runs evenly
// with the TSC, and is compared with it.
const clockID = unix.CLOCK_MONOTONIC_RAW

// A pair is one moment on both clocks.
type pair struct{ tsc, ns uint64 }

// moment reads both clocks as close together as several tries give.
func moment() (best pair) {
	narrowest := ^uint64(0)
	for range 32 {
		var t unix.Timespec
		a := tsc.Now()
		_ = unix.ClockGettime(clockID, &t)
		b := tsc.Now()
		if b-a < narrowest {
			narrowest, best = b-a, pair{a + (b-a)/2, uint64(t.Nano())}
		}
	}
	return best
}

// conversion gives the conversion that holds at both moments. perf's formula is time = zero + tsc·mult >> shift.
func conversion(a, b pair) perf.TimeConv {
	const shift = 31
	c := perf.TimeConv{Shift: shift, CapTimeZero: true, Mult: 1 << shift / 2}
	if b.tsc > a.tsc && b.ns > a.ns {
		hi, lo := bits.Mul64(b.ns-a.ns, 1<<shift)
		if hi < b.tsc-a.tsc {
			c.Mult, _ = bits.Div64(hi, lo, b.tsc-a.tsc)
		}
	}
	c.Zero = b.ns - c.Time(b.tsc) // Zero is 0 so far
	return c
}
