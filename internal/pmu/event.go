package pmu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
)

// Types and configs of events of the kernel's own (perf_event.h).
const (
	typeSoftware   = 1
	typeRaw        = 4
	typeBreakpoint = 5
	cpuClock       = 0
	taskClock      = 1
	dummy          = 9
	watchWrites    = 2 // HW_BREAKPOINT_W
	watchAll       = 3 // HW_BREAKPOINT_RW
)

// kernelAttr gives an attribute as the kernel takes it; perf.AttrFlags have the bits of its bit fields.
func kernelAttr(a *perf.Attr) unix.PerfEventAttr {
	return unix.PerfEventAttr{
		Type: a.Type, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: a.Config, Sample: a.SamplePeriod, Sample_type: uint64(a.SampleType),
		Read_format: uint64(a.ReadFormat), Bits: uint64(a.Flags), Wakeup: a.WakeupEvents, Bp_type: a.BPType, Ext1: a.Config1, Ext2: a.Config2,
		Sample_regs_user: a.SampleRegsUser, Sample_stack_user: a.SampleStackUser, Clockid: a.ClockID, Sample_regs_intr: a.SampleRegsIntr,
		Aux_watermark: a.AuxWatermark,
	}
}

// An event is one that is open.
type event int

// open opens an event of a thread (and, if inherited, of those that it makes) on a processor, -1: on any.
func open(a *perf.Attr, tid, cpu int) (event, error) {
	k := kernelAttr(a)
	fd, err := unix.PerfEventOpen(&k, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	return event(fd), nil
}

func (e event) close() {
	if e >= 0 {
		_ = unix.Close(int(e))
	}
}

//go:uintptrescapes
func (e event) ioctl(request uint, arg uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e), uintptr(request), arg)
	if errno != 0 {
		return errno
	}
	return nil
}

// filter sets the address filter of an event (perf_event_open(2), PERF_EVENT_IOC_SET_FILTER).
func (e event) filter(text string) error {
	b := append([]byte(text), 0)
	err := e.ioctl(unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(&b[0])))
	runtime.KeepAlive(b)
	return err
}

// setPeriod begins a period of another length.
func (e event) setPeriod(n uint64) error {
	err := e.ioctl(unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&n)))
	runtime.KeepAlive(&n)
	return err
}

// enable lets an event and those inherited from it count, or not.
func (e event) enable(on bool) {
	request := uint(unix.PERF_EVENT_IOC_DISABLE)
	if on {
		request = unix.PERF_EVENT_IOC_ENABLE
	}
	_ = e.ioctl(request, 0) // the thread is gone, else
}

// count reads a counter.
func (e event) count() (n uint64) {
	if got, err := unix.Read(int(e), unsafe.Slice((*byte)(unsafe.Pointer(&n)), 8)); err != nil || got != 8 {
		return 0
	}
	return n
}

func (e event) id() (id uint64, err error) {
	if err := e.ioctl(unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&id))); err != nil {
		return 0, fmt.Errorf("the id of an event: %w", err)
	}
	return id, nil
}

// refused explains an error of perf_event_open.
func refused(what string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		hint = "; it is forbidden here"
		if b, e := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); e == nil {
			hint = fmt.Sprintf("; perf_event_paranoid is %s, and must be 2 or less unless you are root (in a container seccomp may forbid it, too)", strings.TrimSpace(string(b)))
		}
	case errors.Is(err, unix.EMFILE):
		hint = "; raise ulimit -n"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		hint = "; the processor has none, or the hypervisor does not pass it on"
	}
	return fmt.Errorf("%s: perf_event_open: %w%s", what, err, hint)
}
