package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process or thread has ended.
var ErrGone = errors.New("it has ended")

// ErrNotAllowed says that the kernel does not let us trace it: somebody else's process, Yama's ptrace_scope, a security module, or
// another debugger is attached.
var ErrNotAllowed = errors.New("the kernel does not allow it (another debugger is attached, or see kernel.yama.ptrace_scope)")

func gone(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return err
}

// Threads lists the thread ids of a process in ascending order. Others may start and end meanwhile.
func Threads(pid int) ([]int, error) {
	ents, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, gone(pid, err)
	}
	var out []int
	for _, e := range ents {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return out, nil
}

// Regs are the registers of a thread that belong to the psABI's DWARF numbering: rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 rip.
type Regs [17]uint64

// stopTimeout bounds the wait for a thread to stop; one that sleeps uninterruptibly (NFS, a dying disk) does not.
const stopTimeout = 2 * time.Second

// Stopped is a thread that stands still for as long as the function given to Stop runs.
type Stopped struct {
	Tid  int
	Regs Regs
}

// Stop stops one thread, calls look, and lets the thread go on. No signal is sent: the thread notices nothing but the time, except that
// the few system calls that Linux never restarts (epoll_wait, semop, …; see signal(7)) return EINTR. A signal or a group stop that
// arrives meanwhile takes its normal way afterwards.
//
// No wait status is consumed, so a wait for the process elsewhere in this program keeps its exit status. But such a wait sees the
// stop, by the kernel's rules for tracers even without WUNTRACED: it must take statuses for which TracerStop is true as no news.
func Stop(tid int, look func(*Stopped) error) error {
	return onThread(func() (bool, error) { return stop(tid, look) })
}

// TracerStop tells whether a stop that a wait for process pid returned is one by Stop, over by now or not, and not by job control.
func TracerStop(pid int, ws unix.WaitStatus) bool {
	if !ws.Stopped() {
		return false
	}
	if int(ws)>>16 != 0 {
		return true
	}
	switch ws.StopSignal() {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return state(pid) != 'T'
	}
	return true
}

// onThread runs f on an OS thread of its own: a tracer is a thread, not a process. When f says that its tracee could not be let go, the
// OS thread ends, and with it the kernel lets go of all that it traced.
func onThread(f func() (clean bool, err error)) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends. While it is locked here another one serves.
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		clean, err := f()
		if clean {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// stop says whether nothing of the tracing is left.
func stop(tid int, look func(*Stopped) error) (clean bool, err error) {
	if err := seize(tid); err != nil {
		return true, err
	}
	s := &Stopped{Tid: tid}
	if err := interrupt(tid); err != nil {
		return false, err
	}
	if s.Regs, err = registers(tid, time.Now().Add(stopTimeout)); err != nil {
		return false, err
	}
	defer func() { // also when look panics
		err2 := detach(tid)
		clean = err2 == nil
		if err == nil && !errors.Is(err2, ErrGone) {
			err = err2
		}
	}()
	return false, look(s)
}

func seize(tid int) error {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0)
	switch e {
	case 0:
		return nil
	case unix.ESRCH:
		return fmt.Errorf("thread %d: %w", tid, ErrGone)
	case unix.EPERM:
		if ended(tid) { // such a thread cannot be traced either
			return fmt.Errorf("thread %d: %w", tid, ErrGone)
		}
		return fmt.Errorf("thread %d: ptrace: %w", tid, ErrNotAllowed)
	}
	return fmt.Errorf("thread %d: ptrace: %w", tid, e)
}

// interrupt has the thread stop, soon.
func interrupt(tid int) error {
	err := unix.PtraceInterrupt(tid)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("thread %d: %w", tid, ErrGone)
	}
	return fmt.Errorf("thread %d: interrupting it: %w", tid, err)
}

// registers reads the registers of a thread that was interrupted, which works as soon as it stands.
func registers(tid int, deadline time.Time) (Regs, error) {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		var r unix.PtraceRegs
		err := unix.PtraceGetRegs(tid, &r)
		switch {
		case err == nil:
			return Regs{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rip}, nil
		case !errors.Is(err, unix.ESRCH):
			return Regs{}, fmt.Errorf("thread %d: reading its registers: %w", tid, err)
		case ended(tid):
			return Regs{}, fmt.Errorf("thread %d: %w", tid, ErrGone)
		case time.Now().After(deadline):
			return Regs{}, fmt.Errorf("thread %d: it did not stop in time; it sleeps in the kernel uninterruptibly, or gets no processor", tid)
		}
		time.Sleep(pause)
	}
}

// ptraceEventStop is what si_code holds above bit 8 when a thread stands because of us or of a group stop, and not to get a signal.
const ptraceEventStop = 128

// detach lets the thread go, with the signal for whose delivery it happens to stand, if any.
func detach(tid int) error {
	var info struct {
		signo, errno, code int32
		_                  [128 - 12]byte
	}
	sig := uintptr(0)
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if e == 0 && info.code>>8 != ptraceEventStop {
		sig = uintptr(info.signo)
	}
	_, _, e = unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, sig, 0, 0)
	switch e {
	case 0:
		return nil
	case unix.ESRCH:
		return fmt.Errorf("thread %d: %w", tid, ErrGone) // killed meanwhile
	}
	return fmt.Errorf("thread %d: letting it go: %w", tid, e)
}

func ended(tid int) bool {
	s := state(tid)
	return s == 0 || s == 'Z' || s == 'X'
}

// state is the letter in /proc/TID/stat, 0 if there is no such thread.
func state(tid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold anything.
	if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) {
		return b[i+2]
	}
	return 0
}
