package agent

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A waker is a process that looks at the stopped target while we are stopped with it, who see nothing: when the target goes on alone, as whoever sent SIGCONT to it and not to us wants, or ends, it sends
// SIGCONT to us, again and again until we end it. It is in a process group of its own, so that what stops or ends ours does not stop it, and it ends by itself when we are gone.
//
// It is a fork of us on which no Go runs but wake: raw system calls, with what was made ready before. A target whose first thread has ended while others live does not wake us (/proc shows the state of the first).
type waker struct {
	pid  int
	stat *os.File // /proc/PID/stat
}

// WakerName is what ps calls the waker.
const WakerName = "ripstop-waker"

// wakerState is all that wake touches.
type wakerState struct {
	stat, self int
	pidfd      [1]unix.PollFd // -1: none
	tick       unix.Timespec
	name       [16]byte
	text       [512]byte
}

// newWaker returns nil where there can be none: then we go on when somebody tells us to.
func newWaker(target, pidfd int) *waker {
	stat, err := os.Open("/proc/" + strconv.Itoa(target) + "/stat")
	if err != nil {
		return nil
	}
	s := &wakerState{stat: int(stat.Fd()), self: os.Getpid(), pidfd: [1]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, tick: unix.Timespec{Nsec: 10e6}}
	copy(s.name[:], WakerName)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, old := ^uint64(0), uint64(0)
	const sigSetmask = 2
	syscall.ForkLock.Lock() // no descriptor that is not yet close-on-exec
	sigprocmask(sigSetmask, &all, &old)
	pid, errno := forkWaker(s)
	sigprocmask(sigSetmask, &old, nil)
	syscall.ForkLock.Unlock()
	if errno != 0 {
		stat.Close()
		return nil
	}
	return &waker{pid, stat}
}

// No signal of its end: nobody is to be told of it but who ends it.
//
//go:norace
//go:noinline
func forkWaker(s *wakerState) (int, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		wake(s)
	}
	return int(pid), errno
}

// wake is the waker. There is no stack to grow here, and nobody who would schedule.
//
//go:norace
//go:nosplit
func wake(s *wakerState) {
	syscall.RawSyscall(syscall.SYS_SETPGID, 0, 0, 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&s.name)), 0)
	for {
		if parent, _, _ := syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0); int(parent) != s.self {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
		ended, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&s.pidfd)), 1, uintptr(unsafe.Pointer(&s.tick)), 0, 0, 0)
		if on := errno == 0 && ended > 0; on || hasGoneOn(s) {
			syscall.RawSyscall(syscall.SYS_KILL, uintptr(s.self), uintptr(syscall.SIGCONT), 0)
			if on { // ppoll does not wait any more
				syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&s.tick)), 0, 0)
			}
		}
	}
}

// hasGoneOn reads the state that stands behind the command's name, which may have any character in it.
//
//go:norace
//go:nosplit
func hasGoneOn(s *wakerState) bool {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(s.stat), uintptr(unsafe.Pointer(&s.text)), uintptr(len(s.text)), 0, 0, 0)
	if errno != 0 {
		return true // it was reaped
	}
	for i := int(n) - 3; i >= 0 && i < len(s.text)-2; i-- {
		if s.text[i] == ')' {
			state := s.text[i+2]
			return state != 'T' && state != 't' && (state != 'Z' || s.pidfd[0].Fd < 0)
		}
	}
	return false
}

// end ends the waker.
func (w *waker) end() {
	if w == nil {
		return
	}
	unix.Kill(w.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(w.pid, nil, unix.WALL, nil); err != unix.EINTR {
			break
		}
	}
	w.stat.Close()
}
