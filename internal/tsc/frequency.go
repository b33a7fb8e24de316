package tsc

import (
	"sync"
	"time"
)

// calibration is for how long the counter is compared with the clock.
const calibration = 2 * time.Millisecond

var frequency = sync.OnceValue(func() uint64 {
	// Each reading of the clock is put between two of the counter, and the narrowest of several is taken: being interrupted in
	// between does no harm.
	read := func() (ticks uint64, at time.Time) {
		narrowest := ^uint64(0)
		for i := 0; i < 16; i++ {
			a := Now()
			t := time.Now()
			b := Now()
			if b-a < narrowest {
				narrowest, ticks, at = b-a, a+(b-a)/2, t
			}
		}
		return ticks, at
	}
	c0, t0 := read()
	time.Sleep(calibration)
	c1, t1 := read()
	d := t1.Sub(t0)
	if d <= 0 || c1 <= c0 {
		return 1e9 // a clock that stands still; anything will do
	}
	return uint64(float64(c1-c0) / d.Seconds())
})

// Frequency is the counter's speed in ticks a second, measured once against the monotonic clock, to about a thousandth.
func Frequency() uint64 { return frequency() }
