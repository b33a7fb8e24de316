package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressOf is the address of v for a system call; see system.call.
func addressOf[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

const perfFlagCloexec = 8

// perfOpen opens an event on the calling thread, user mode only.
func (s *system) perfOpen(attr *unix.PerfEventAttr) (uintptr, unix.Errno) {
	attr.Size = uint32(unsafe.Sizeof(*attr))
	attr.Bits |= unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
	self, anyCPU, noGroup := uintptr(0), ^uintptr(0), ^uintptr(0)
	return s.call(unix.SYS_PERF_EVENT_OPEN, addressOf(attr), self, anyCPU, noGroup, perfFlagCloexec)
}

// perfCount reads a counting event.
func (s *system) perfCount(fd uintptr) (n uint64, e unix.Errno) {
	got, e := s.call(unix.SYS_READ, fd, addressOf(&n), 8)
	if e == 0 && got != 8 {
		e = unix.EIO
	}
	return n, e
}

func (s *system) paranoid() Answer {
	data, err := s.readFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return notThere(err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(data)))
	switch {
	case err != nil:
		return unknown(err.Error())
	case v > 2 && !s.privileged():
		return no(fmt.Sprintf("it is %d: only root may measure; sysctl kernel.perf_event_paranoid=2 allows it", v)).with(strconv.Itoa(v))
	}
	return yes(strconv.Itoa(v))
}

// privileged says whether CAP_SYS_ADMIN or CAP_PERFMON is in force.
func (s *system) privileged() bool {
	v, err := s.status("CapEff")
	if err != nil {
		return false
	}
	caps, err := strconv.ParseUint(v, 16, 64)
	return err == nil && caps&(1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_PERFMON) != 0
}

// perfRefused explains what perf_event_open says.
func (s *system) perfRefused(what string, e unix.Errno) Answer {
	switch e {
	case unix.ENOENT, unix.EOPNOTSUPP, unix.ENODEV:
		return no(what + ": " + e.Error() + " (the CPU has none, or the hypervisor does not pass it on)")
	case unix.EACCES, unix.EPERM:
		if a := s.paranoid(); a.Status == No {
			return no(what + ": " + e.Error() + " (perf_event_paranoid is " + a.Value + ")")
		}
	}
	return s.refused(what, e)
}

func (s *system) pmu() Answer {
	fd, e := s.perfOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES})
	if e != 0 {
		return s.perfRefused("perf_event_open(cycles)", e)
	}
	defer s.close(fd)
	work := uint64(1)
	for i := uint64(0); i < 1_000_000; i++ {
		work = work*6364136223846793005 + i
	}
	n, e := s.perfCount(fd)
	switch {
	case e != 0:
		return unknown("reading the counter: " + e.Error())
	case n == 0 && work != 0:
		return no("the counter opened but does not count")
	}
	return yes("")
}

func (s *system) pebs() Answer {
	fd, e := s.perfOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Sample: 100_003,
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_ADDR | unix.PERF_SAMPLE_REGS_INTR,
		Bits:        unix.PerfBitDisabled | unix.PerfBitPreciseIPBit2, Sample_regs_intr: 1 << 8,
	})
	if e != 0 {
		return s.perfRefused("perf_event_open(cycles, precise)", e)
	}
	s.close(fd)
	return yes("")
}

func (s *system) intelPT() Answer {
	const dir = "/sys/bus/event_source/devices/intel_pt"
	data, err := s.readFile(dir + "/type")
	if err != nil {
		a := notThere(err)
		if a.Status == No {
			a.Why = "no " + dir + ": the CPU has none, or the hypervisor does not pass it on"
		}
		return a
	}
	typ, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return unknown(dir + "/type: " + err.Error())
	}
	fd, e := s.perfOpen(&unix.PerfEventAttr{Type: uint32(typ), Config: 1 << 10, Bits: unix.PerfBitDisabled})
	if e != 0 {
		return s.perfRefused("perf_event_open(intel_pt)", e)
	}
	s.close(fd)
	return yes("")
}

func (s *system) cpuClock() Answer {
	fd, e := s.perfOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: 1000, Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_REGS_USER,
		Sample_regs_user: 1 << 8, Bits: unix.PerfBitDisabled | unix.PerfBitFreq,
	})
	if e != 0 {
		return s.perfRefused("perf_event_open(cpu-clock)", e)
	}
	s.close(fd)
	return yes("")
}

// maxBreakpoints bounds the search for how many there are: x86 has four.
const maxBreakpoints = 8

func breakpointOn(v *uint64) *unix.PerfEventAttr {
	const onWrite, eightBytes = 2, 8
	return &unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Sample: 1, Bp_type: onWrite, Ext1: uint64(addressOf(v)), Ext2: eightBytes,
	}
}

// watched are what breakpoints are set on: not on a stack that may move.
var watched [maxBreakpoints]uint64

func (s *system) breakpoints() Answer {
	var fds []uintptr
	defer func() {
		for _, fd := range fds {
			s.close(fd)
		}
	}()
	for len(fds) < maxBreakpoints {
		fd, e := s.perfOpen(breakpointOn(&watched[len(fds)]))
		if e != 0 {
			if len(fds) == 0 {
				return s.perfRefused("perf_event_open(breakpoint)", e)
			}
			break
		}
		fds = append(fds, fd)
	}
	touch(&watched[0])
	n, e := s.perfCount(fds[0])
	switch {
	case e != 0:
		return unknown("reading the count of hits: " + e.Error())
	case n == 0:
		return no("a breakpoint can be set but a write to its address does not hit it")
	}
	return yes(fmt.Sprintf("%d of them", len(fds)))
}

//go:noinline
func touch(v *uint64) { *v++ }

// Bits of perf_event_attr that x/sys/unix does not name.
const (
	perfBitRemoveOnExec = 1 << 36
	perfBitSigtrap      = 1 << 37
)

func (s *system) sigtrap() Answer {
	attr := breakpointOn(&watched[0])
	attr.Bits = unix.PerfBitDisabled | perfBitRemoveOnExec | perfBitSigtrap
	fd, e := s.perfOpen(attr)
	if e != 0 {
		return s.perfRefused("perf_event_open(breakpoint, sigtrap)", e)
	}
	s.close(fd)
	return yes("")
}
