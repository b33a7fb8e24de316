package detect

import (
	"cmp"
	"slices"
)

// clock says, of each thread that it knows, up to which segment that thread's doings come before: a vector clock over creation, end, join
// and barriers only. Orders by locks, conditions or semaphores are left out on purpose: another schedule may turn them round.
//
// A clock is sorted by thread and never changed once made, so that many may share it. A thread stands in it only once it has nested
// locks (thread.marked): of the others nobody will ask. That keeps clocks short in programs with many short threads.
type clock []tick

type tick struct {
	thread  uint32 // thread.serial
	segment uint32
}

func (c clock) at(serial uint32) (segment uint32, ok bool) {
	i, ok := slices.BinarySearchFunc(c, serial, func(t tick, s uint32) int { return cmp.Compare(t.thread, s) })
	if !ok {
		return 0, false
	}
	return c[i].segment, true
}

// join is the union, of each thread the later segment. It may return a or b itself.
func join(a, b clock) clock {
	if covers(a, b) {
		return a
	}
	if covers(b, a) {
		return b
	}
	out := make(clock, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].thread < b[0].thread:
			out, a = append(out, a[0]), a[1:]
		case a[0].thread > b[0].thread:
			out, b = append(out, b[0]), b[1:]
		default:
			out = append(out, tick{a[0].thread, max(a[0].segment, b[0].segment)})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// covers reports whether a knows all that b knows.
func covers(a, b clock) bool {
	if len(b) == 0 || len(a) == len(b) && &a[0] == &b[0] {
		return true
	}
	for _, t := range b {
		for len(a) > 0 && a[0].thread < t.thread {
			a = a[1:]
		}
		if len(a) == 0 || a[0].thread != t.thread || a[0].segment < t.segment {
			return false
		}
	}
	return true
}

// now is what t tells a thread that comes after it: its own clock and its own segment.
func (t *thread) now() clock {
	if !t.marked {
		return t.clock
	}
	return join(t.clock, clock{{t.serial, t.segment}})
}

// learn makes what c knows come before all that t does from here on, and begins a segment.
func (t *thread) learn(c clock) {
	t.clock = join(t.clock, c)
	t.newSegment()
}

// newSegment separates what t did from what it will do.
func (t *thread) newSegment() {
	t.segment++
	t.recent = nil
}
