package agent

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent/origin"
)

// OwnEnviron is the environment that ripstop was given, string for string where that can be told.
func OwnEnviron() []string {
	if env := origin.Environ(); env != nil {
		return env
	}
	if b, err := os.ReadFile("/proc/self/environ"); err == nil {
		var env []string
		for _, e := range bytes.Split(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
			env = append(env, string(e))
		}
		return env
	}
	return os.Environ()
}

// fewestFiles is how many open files a session needs at the least: with less, Go's runtime itself ends in a fatal error.
const fewestFiles, enoughFiles = 64, 4096

// fewestBytes is how large the files of a session must be allowed to be: the agent's library, and the shared memory of one thread.
const fewestBytes = 4 << 20

// RaiseFileLimits makes room for our own descriptors where the limit of open files is low, and fails where too few of them or only too small files are
// allowed. The target gets the limits that we had.
func RaiseFileLimits() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err == nil && l.Cur < fewestBytes {
		return refuse(ExitOurs, "the limit on file size is %d KiB (ulimit -f), which shared memory is subject to; ripstop needs %d", l.Cur>>10, fewestBytes>>10)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur >= enoughFiles {
		return nil
	}
	more := unix.Rlimit{Cur: enoughFiles, Max: max(l.Max, enoughFiles)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &more) == nil || l.Cur >= fewestFiles {
		return nil
	}
	return refuse(ExitOurs, "the limit of open files is %d (ulimit -n); ripstop needs %d", l.Max, fewestFiles)
}

// Target is a program started by us.
type Target struct {
	PID   int
	pidfd int // -1: none
}

// Start starts p with the environment env, and otherwise as whoever started ripstop would have: process group, descriptors, working
// directory, limits, signal mask and ignored signals. package os cannot do that: with it the child has what Go made of them.
func Start(p *Program, env []string) (*Target, error) { return StartHeld(p, env, nil) }

// StartHeld is Start, but when the new process is about to execute the program it waits until held has returned, which gets its pid. An error of held
// ends the process and is returned.
func StartHeld(p *Program, env []string, held func(pid int) error) (*Target, error) {
	path, err := syscall.BytePtrFromString(p.Path)
	if err != nil {
		return nil, refuse(ExitNotFound, "%q: no such file", p.Path)
	}
	argv, err := syscall.SlicePtrFromStrings(p.Args)
	if err != nil {
		return nil, refuse(ExitOurs, "an argument holds a NUL byte")
	}
	envp, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return nil, refuse(ExitOurs, "the environment holds a NUL byte")
	}
	c := &child{path: path, argv: &argv[0], envp: &envp[0]}
	if p.Shell {
		c.shell, _ = syscall.BytePtrFromString("/bin/sh")
		sh := append([]*byte{c.shell, path}, argv[1:]...)
		c.shellArgv = &sh[0]
	}
	if origin.Known() {
		c.ignored, c.mask, c.setMask = origin.Ignored(), origin.Mask(), true
		for fd := range c.closed {
			c.closed[fd] = origin.Closed(fd)
		}
		c.limits = origin.Limits()
	} else {
		// Built without the linker flag: Go has kept these two as they were, of the others nothing is known.
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
			if ignoredByGo(sig) {
				c.ignored |= 1 << (sig - 1)
			}
		}
	}
	c.nofile.Cur, c.nofile.Max = origin.OpenFiles()

	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, refuse(ExitOurs, "cannot start %s: pipe: %v", p.Path, err)
	}
	// Where 0 to 2 were closed Go has put /dev/null, so that the pipe is none of those that the child closes.
	c.report = pipe[1]
	c.gate = [2]int{-1, -1}
	if held != nil {
		if err := unix.Pipe2(c.gate[:], unix.O_CLOEXEC); err != nil {
			unix.Close(pipe[0])
			unix.Close(pipe[1])
			return nil, refuse(ExitOurs, "cannot start %s: pipe: %v", p.Path, err)
		}
	}
	syscall.ForkLock.Lock()
	pid, errno := fork(c)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(argv)
	runtime.KeepAlive(envp)
	unix.Close(pipe[1])
	defer unix.Close(pipe[0])
	if errno != 0 {
		if held != nil {
			unix.Close(c.gate[0])
			unix.Close(c.gate[1])
		}
		return nil, refuse(ExitOurs, "cannot start %s: fork: %v", p.Path, errno)
	}
	if held != nil {
		unix.Close(c.gate[0])
		err := held(int(pid))
		if err != nil {
			_ = unix.Kill(int(pid), unix.SIGKILL)
		}
		unix.Close(c.gate[1]) // its end is what the process waits for
		if err != nil {
			reap(int(pid))
			return nil, err
		}
	}
	var b [4]byte
	n := 0
	for {
		n, err = unix.Read(pipe[0], b[:])
		if err != unix.EINTR {
			break
		}
	}
	if n == len(b) {
		reap(int(pid))
		return nil, execError(p, syscall.Errno(*(*uint32)(unsafe.Pointer(&b))))
	}
	t := &Target{PID: int(pid), pidfd: -1}
	if fd, err := unix.PidfdOpen(t.PID, 0); err == nil {
		t.pidfd = fd
	}
	return t, nil
}

// reap takes the status of a child that has ended or will at once.
func reap(pid int) {
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			return
		}
	}
}

func execError(p *Program, errno syscall.Errno) error {
	switch {
	case errno == syscall.ENOENT:
		return refuse(ExitNotFound, "%s: no such file", p.Path)
	case errno == syscall.E2BIG:
		return refuse(ExitNotExecutable, "%s: the arguments and the environment are too long", p.Path)
	}
	return refuse(ExitNotExecutable, "%s: cannot be executed: %v", p.Path, errno)
}

// ignoredByGo tells whether Go left sig ignored. Valid for SIGHUP and SIGINT, before anybody asks for their notification.
func ignoredByGo(sig syscall.Signal) bool {
	var old sigaction
	if err := rtSigaction(sig, nil, &old); err != 0 {
		return false
	}
	return old.handler == sigIgn
}

// sigaction is the kernel's.
type sigaction struct {
	handler, flags, restorer, mask uintptr
}

const (
	sigDfl = 0
	sigIgn = 1
)

//go:norace
//go:nosplit
func rtSigaction(sig syscall.Signal, act, old *sigaction) syscall.Errno {
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return e
}

// child is what the new process does before it executes the program.
type child struct {
	path          *byte
	argv, envp    **byte
	shell         *byte // what to execute when the kernel does not know the format; nil: nothing
	shellArgv     **byte
	ignored, mask uint64
	setMask       bool
	closed        [3]bool
	nofile        syscall.Rlimit
	limits        []origin.Limit
	report        int    // gets the errno if nothing could be executed
	gate          [2]int // a pipe whose end is awaited before the program is executed; -1: none
	scratch       byte
	action        sigaction // scratch of the new process
	failure       uint32    // likewise
}

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// fork makes the process. The new one has a copy of memory and one thread: until it executes the program it may do nothing but
// system calls, not grow the stack, not allocate.
//
//go:norace
//go:noinline
func fork(c *child) (pid uintptr, errno syscall.Errno) {
	beforeFork()
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	afterForkInChild() // sets all of Go's handlers to default, and the mask to what it was
	inChild(c)
	return 0, 0
}

//go:norace
//go:nosplit
func inChild(c *child) {
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		c.action.handler = sigDfl
		if c.ignored>>(sig-1)&1 != 0 {
			c.action.handler = sigIgn
		}
		rtSigaction(sig, &c.action, nil) // fails for SIGKILL and SIGSTOP
	}
	if c.nofile.Max != 0 {
		syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&c.nofile)), 0, 0, 0)
	}
	for i := 0; i < len(c.limits); i++ {
		l := &c.limits[i]
		syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(l.Resource), uintptr(unsafe.Pointer(&l.Soft)), 0, 0, 0)
	}
	for fd := 0; fd < len(c.closed); fd++ {
		if c.closed[fd] {
			syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0)
		}
	}
	if c.setMask {
		const sigSetmask = 2
		syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&c.mask)), 0, 8, 0, 0)
	}
	if c.gate[0] >= 0 {
		syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(c.gate[1]), 0, 0)
		for {
			_, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(c.gate[0]), uintptr(unsafe.Pointer(&c.scratch)), 1)
			if e != syscall.EINTR {
				break
			}
		}
		syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(c.gate[0]), 0, 0)
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(c.path)), uintptr(unsafe.Pointer(c.argv)), uintptr(unsafe.Pointer(c.envp)))
	if e == syscall.ENOEXEC && c.shell != nil {
		_, _, e = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(c.shell)), uintptr(unsafe.Pointer(c.shellArgv)), uintptr(unsafe.Pointer(c.envp)))
	}
	c.failure = uint32(e)
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&c.failure)), 4)
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, ExitOurs, 0, 0)
	}
}

// Signal sends sig to the target's process, never to another that got its pid.
func (t *Target) Signal(sig syscall.Signal) error {
	if t.pidfd >= 0 {
		return unix.PidfdSendSignal(t.pidfd, sig, nil, 0)
	}
	return unix.Kill(t.PID, sig)
}

// Status is how the target ended.
type Status struct {
	Exited bool
	Code   int            // if Exited
	Signal syscall.Signal // else
	Core   bool           // else: it left a core dump
}

func (s Status) String() string {
	if s.Exited {
		return fmt.Sprintf("exit status %d", s.Code)
	}
	return fmt.Sprintf("signal %d (%v)", int(s.Signal), s.Signal)
}
