package pmu

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
)

// openBuffers maps a buffer for each processor. Events of ours hold them, which count nothing, so that they stay while those of the program come and go.
func (t *Timer) openBuffers(cpus []int) error {
	a := t.attrs[eventSide].Attr
	a.Flags &= perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagSampleIDAll | perf.FlagDisabled | perf.FlagUseClockID | perf.FlagWatermark
	t.cpus = cpus
	for _, cpu := range cpus {
		e, err := open(&a, 0, cpu)
		if err != nil {
			return refused("sampling by a clock", err)
		}
		t.buffers = append(t.buffers, e)
		r, err := mapRing(e, ringPages)
		if err != nil {
			return err
		}
		t.rings = append(t.rings, r)
	}
	return nil
}

// openThread opens the events of a thread on all processors; where it does not begin with exec, they count at once.
func (t *Timer) openThread(tid int) error {
	from := len(t.sides)
	for i := range t.cpus {
		if err := t.openOn(tid, i); err != nil {
			return err
		}
	}
	counter := perf.Attr{Type: typeSoftware, Config: taskClock, Flags: perf.FlagDisabled | perf.FlagInherit | perf.FlagExcludeKernel | perf.FlagExcludeHV}
	if !t.running {
		counter.Flags |= perf.FlagEnableOnExec
	}
	e, err := open(&counter, tid, -1)
	if err != nil {
		return refused("counting the program's CPU time", err)
	}
	t.tasks = append(t.tasks, e)
	if t.running {
		for i := range t.sides[from:] {
			t.sides[from+i].enable(true)
			if !t.paused {
				t.clocks[from+i].enable(true)
			}
		}
		e.enable(true)
	}
	return nil
}

// openThreads opens the events of all threads of a process that runs.
func (t *Timer) openThreads(pid int) error {
	return everyThread(pid, func() []*ring { return t.rings }, func(tid int) error {
		err := t.openThread(tid)
		if errors.Is(err, unix.ESRCH) {
			return nil // it has ended
		}
		return err
	})
}

// openOn opens what a thread has on one processor, by its place among them.
func (t *Timer) openOn(tid, at int) error {
	for _, k := range []struct {
		n    int
		list *[]event
	}{{eventSide, &t.sides}, {eventClock, &t.clocks}} {
		a := t.attrs[k.n].Attr
		if t.running || k.n == eventClock && t.paused {
			a.Flags &^= perf.FlagEnableOnExec
		}
		e, err := open(&a, tid, t.cpus[at])
		if err != nil {
			return refused("sampling by a clock", err)
		}
		*k.list = append(*k.list, e)
		if err := e.ioctl(unix.PERF_EVENT_IOC_SET_OUTPUT, uintptr(t.buffers[at])); err != nil {
			return fmt.Errorf("sampling by a clock: joining two events: %w", err)
		}
		id, err := e.id()
		if err != nil {
			return err
		}
		t.ids[id] = k.n
	}
	return nil
}

// closeEvents closes what the program's threads have. What is in the buffers stays there.
func (t *Timer) closeEvents() {
	for _, list := range [][]event{t.clocks, t.sides, t.tasks} {
		for _, e := range list {
			e.close()
		}
	}
	if t.watch != nil {
		t.watch.close()
	}
	t.clocks, t.sides, t.tasks = nil, nil, nil
}

func (t *Timer) closeAll() {
	t.closeEvents()
	t.closeBuffers()
}

func (t *Timer) closeBuffers() {
	for _, r := range t.rings {
		r.close()
	}
	for _, e := range t.buffers {
		e.close()
	}
	t.rings, t.buffers = nil, nil
}
