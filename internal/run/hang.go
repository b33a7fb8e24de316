package run

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// hang notices that nothing happens any more.
type hang struct {
	since  time.Time // of the last progress
	events uint64
	ticks  uint64 // processor time of all processes, in clock ticks
	shown  bool   // for this standstill
}

// idlePart: a process that uses less than this part of a processor while no event comes is not getting on: its timers tick, no more.
const idlePart = 0.01

// userHz is the unit of processor time in /proc, which is fixed for user space.
const userHz = 100

// checkHang shows all threads when for HangTimeout no event has come and next to no processor time was used.
func (w *watch) checkHang() {
	h := &w.hang
	now := time.Now()
	if h.since.IsZero() || w.events != h.events {
		*h = hang{since: now, events: w.events, ticks: w.ticks()}
		return
	}
	stands := now.Sub(h.since)
	if h.shown || stands < w.opts.HangTimeout {
		return
	}
	ticks := w.ticks()
	if float64(ticks-min(ticks, h.ticks))/userHz > idlePart*stands.Seconds() {
		*h = hang{since: now, events: w.events, ticks: ticks}
		return
	}
	h.shown = true
	w.showThreads(fmt.Sprintf("nothing has happened for %v (--hang-timeout)", w.opts.HangTimeout))
}

// ticks is the processor time that the traced processes have used.
func (w *watch) ticks() (sum uint64) {
	for _, p := range w.sess.Processes() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		i := bytes.LastIndexByte(b, ')')
		if err != nil || i < 0 {
			continue
		}
		// Behind the name: state is field 0, utime 11, stime 12.
		f := bytes.Fields(b[i+1:])
		if len(f) > 12 {
			u, _ := strconv.ParseUint(string(f[11]), 10, 64)
			s, _ := strconv.ParseUint(string(f[12]), 10, 64)
			sum += u + s
		}
	}
	return sum
}
