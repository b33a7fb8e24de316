package pmu

import "golang.org/x/sys/unix"

// A meter tells how much CPU time the program has had. Counting events tell it exactly, with children that have ended, but to read one whose thread runs interrupts that thread's processor
// (perf_event_read), which nobody pays for, and on virtual machines an interrupt is dear. The clocks of processes interrupt nobody
// (posix_cpu_clock_get takes the lock of a run queue), but take what an ended process had last with them. So the clocks are asked each time, and the events after processes have ended, and now and then.
type meter struct {
	clocks  map[int]float64 // of processes, as they were last; of one that is not here what it had before is not the program's
	counted float64         // of what the events say this has been told
	ended   bool            // a process has, since the events were asked
	looks   int             // since then
}

// Looks after which the events are asked.
const (
	looksEnded = 5
	looksAll   = 100
)

// began takes in a process of which nothing has been counted yet.
func (m *meter) began(pid int) {
	if m.clocks == nil {
		m.clocks = map[int]float64{}
	}
	m.clocks[pid] = 0
}

func (m *meter) gone(pid int) {
	delete(m.clocks, pid)
	m.ended = true
}

// earned is the CPU time since it was asked last, seconds.
func (m *meter) earned(processes map[int]bool, events []event) (d float64) {
	if m.looks++; len(processes) == 0 || m.looks >= looksAll || m.ended && m.looks >= looksEnded {
		m.looks, m.ended = 0, false
		total := 0.0
		for _, e := range events {
			total += float64(e.count()) * 1e-9
		}
		m.byClocks(processes)
		d = max(total-m.counted, 0)
	} else {
		d = m.byClocks(processes)
	}
	m.counted += d
	return d
}

func (m *meter) byClocks(processes map[int]bool) (d float64) {
	if m.clocks == nil {
		m.clocks = map[int]float64{}
	}
	for pid := range processes {
		now, ok := processTime(pid)
		if !ok {
			continue
		}
		if before, known := m.clocks[pid]; known {
			d += max(now-before, 0)
		}
		m.clocks[pid] = now
	}
	return d
}

// processTime is the CPU time of a process, seconds; false if it has ended.
func processTime(pid int) (float64, bool) {
	const sched = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h: of the process whose number is inverted in the other bits
	var now unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|sched), &now) != nil {
		return 0, false
	}
	return float64(now.Nano()) * 1e-9, true
}
