package step

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Registers of a thread as ptrace has them, and by number.
type registers struct{ unix.PtraceRegs }

// general gives a general register by its number in instructions.
func (r *registers) general(n int) uint64 {
	switch n {
	case 0:
		return r.Rax
	case 1:
		return r.Rcx
	case 2:
		return r.Rdx
	case 3:
		return r.Rbx
	case 4:
		return r.Rsp
	case 5:
		return r.Rbp
	case 6:
		return r.Rsi
	case 7:
		return r.Rdi
	case 8:
		return r.R8
	case 9:
		return r.R9
	case 10:
		return r.R10
	case 11:
		return r.R11
	case 12:
		return r.R12
	case 13:
		return r.R13
	case 14:
		return r.R14
	}
	return r.R15
}

const (
	trapFlag      = 1 << 8
	directionFlag = 1 << 10
)

// Stops that tracers of seized threads see (ptrace(2)).
const (
	eventStop = 128                      // PTRACE_EVENT_STOP
	callStop  = int(unix.SIGTRAP) | 0x80 // PTRACE_O_TRACESYSGOOD: a system call begins or is over
	options   = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESYSGOOD
	following = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
)

// si_code of SIGTRAP.
const (
	trapNotify = 5    // ptrace_notify: a handler was set up
	trapBrkpt  = 1    // a step over a system call, which is stepped only to deliver a signal before it
	trapTrace  = 2    // a step
	trapInt3   = 0x80 // SI_KERNEL
)

// ptrace makes a request; tracers are threads, so all come from the one that seized. What addr and data point to must not move while it is called, as what lies on a growing stack does.
//
//go:uintptrescapes
func ptrace(request int, tid int, addr, data uintptr) error {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

func getRegisters(tid int, r *registers) error {
	return ptrace(unix.PTRACE_GETREGS, tid, 0, uintptr(unsafe.Pointer(&r.PtraceRegs)))
}

// vector reads the XSAVE image of a thread, in the standard form; less than buf if the machine has less.
func vector(tid int, buf []byte) ([]byte, error) {
	const ntXstate = 0x202
	v := unix.Iovec{Base: &buf[0], Len: uint64(len(buf))}
	if err := ptrace(unix.PTRACE_GETREGSET, tid, ntXstate, uintptr(unsafe.Pointer(&v))); err != nil {
		return nil, fmt.Errorf("thread %d: reading its vector registers: %w", tid, err)
	}
	return buf[:v.Len], nil
}

// unblockTrap takes SIGTRAP out of a thread's mask: the kernel forces the signal of a step on a thread that blocks it, and takes away the program's handler
// for it.
func unblockTrap(tid int) {
	const getMask, setMask = 0x420a, 0x420b
	const trap = 1 << (unix.SIGTRAP - 1)
	var mask uint64
	if ptrace(getMask, tid, 8, uintptr(unsafe.Pointer(&mask))) == nil && mask&trap != 0 {
		mask &^= trap
		_ = ptrace(setMask, tid, 8, uintptr(unsafe.Pointer(&mask))) // it was killed, else
	}
}

// signalCode gives si_code of the signal for which a thread stands; 0 if it does not stand for one.
func signalCode(tid int) int32 {
	var info struct {
		signo, errno, code int32
		_                  [128 - 12]byte
	}
	if ptrace(unix.PTRACE_GETSIGINFO, tid, 0, uintptr(unsafe.Pointer(&info))) != nil {
		return 0
	}
	return info.code
}

func eventMessage(tid int) int {
	var msg uint64
	if ptrace(unix.PTRACE_GETEVENTMSG, tid, 0, uintptr(unsafe.Pointer(&msg))) != nil {
		return 0
	}
	return int(msg)
}

// wait4 waits for any thread that the calling one traces, and for its own children. Not by RawSyscall: the Go scheduler must know that it may take long.
func wait4(ws *unix.WaitStatus) (tid int, err error) {
	const noThread = 0x20000000 // __WNOTHREAD
	for {
		r, _, e := unix.Syscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(ws)), unix.WALL|noThread, 0, 0, 0)
		switch e {
		case 0:
			return int(r), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// quietly lets the kernel send no SIGCHLD for stops: it would wake another of our threads at each step. It returns what undoes that.
func quietly() (undo func()) {
	type sigaction struct{ handler, flags, restorer, mask uintptr }
	const noCldStop = 1
	act := func(set, old *sigaction) {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	}
	var was sigaction
	act(nil, &was)
	now := was
	now.flags |= noCldStop
	act(&now, nil)
	return func() { act(&was, nil) }
}
