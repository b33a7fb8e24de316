package fault

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An injector sees, by a seccomp filter with a user-space listener, each system call that the agent makes in a process started under it
// and in all its descendants, and says how each is to end. Other than ptrace it is not in the way of what the processes do among
// themselves, and sees tasks that no tracer may follow.

// call is one system call of the agent.
type call struct {
	nr   int32
	site uint64 // offset in the agent's file of the instruction behind it
	k    int    // how many calls of the agent's that may fail there were before, in all processes
}

// chooser returns the errno with which c fails, 0 to let it be made. Called from one goroutine.
type chooser func(c call) unix.Errno

// Of linux/seccomp.h.
const (
	seccompSetModeFilter  = 1
	filterFlagNewListener = 1 << 3
	retUserNotif          = 0x7fc00000
	retAllow              = 0x7fff0000
	notifContinue         = 1
	notifRecv             = 0xc0502100
	notifSend             = 0xc0182101

	futexWake = 1 // of linux/futex.h
)

type notif struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type notifResp struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// cannotFail lists what the kernel never refuses, what a sandbox cannot refuse without breaking glibc itself, and what the agent does
// in the program's stead, where a failure is the program's: exec and its kin.
var cannotFail = map[int32]bool{
	unix.SYS_RT_SIGPROCMASK: true, unix.SYS_RT_SIGRETURN: true, unix.SYS_GETPID: true, unix.SYS_GETTID: true, unix.SYS_GETPPID: true,
	unix.SYS_GETUID: true, unix.SYS_GETEUID: true, unix.SYS_GETGID: true, unix.SYS_GETEGID: true, unix.SYS_EXIT: true, unix.SYS_EXIT_GROUP: true,
	unix.SYS_CLOSE: true, unix.SYS_CLOCK_GETTIME: true, unix.SYS_VFORK: true, unix.SYS_EXECVE: true, unix.SYS_EXECVEAT: true,
}

// agentSites are the offsets of what follows the agent's syscall instructions.
func agentSites(t *testing.T) []uint64 {
	t.Helper()
	f, err := elf.Open("../../internal/agent/lib/libripstop.so")
	if lib := os.Getenv("RIPSTOP_AGENT"); lib != "" {
		f, err = elf.Open(lib)
	}
	if err != nil {
		t.Fatalf("%v; run make first", err)
	}
	defer f.Close()
	s := f.Section(".text")
	text, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	var sites []uint64
	for i := 0; ; {
		j := bytes.Index(text[i:], []byte{0x0f, 0x05})
		if j < 0 {
			break
		}
		i += j + 2
		sites = append(sites, s.Offset+uint64(i))
	}
	if len(sites) < 50 {
		t.Fatalf("%d system calls found in the agent; there are many more", len(sites))
	}
	return sites
}

// filter passes on execve, which changes what lies where, and calls from above 0x7e00_0000_0000, where shared objects are, whose
// place in the page is that of one of sites.
func filter(sites []uint64) []unix.SockFilter {
	var offsets [4096]bool
	for _, s := range sites {
		offsets[s&0xfff] = true
	}
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret  = unix.BPF_RET | unix.BPF_K
	)
	p := []unix.SockFilter{
		{Code: load, K: 4},
		{Code: jeq, Jt: 1, K: unix.AUDIT_ARCH_X86_64},
		{Code: ret, K: retAllow},
		{Code: load, K: 12}, // the high half of the instruction pointer
		{Code: jge, Jt: 1, K: 0x7e00},
		{Code: ret, K: retAllow},
		{Code: load, K: 0},
		{Code: jeq, Jf: 1, K: unix.SYS_EXECVE},
		{Code: ret, K: retUserNotif},
		{Code: jeq, Jf: 1, K: unix.SYS_RT_SIGRETURN},
		{Code: ret, K: retAllow},
		{Code: load, K: 8},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xfff},
	}
	for off, is := range offsets {
		if is {
			p = append(p, unix.SockFilter{Code: jeq, Jf: 1, K: uint32(off)}, unix.SockFilter{Code: ret, K: retUserNotif})
		}
	}
	return append(p, unix.SockFilter{Code: ret, K: retAllow})
}

type injector struct {
	sites  map[uint64]bool
	choose chooser
	k      int
	calls  []call
	failed int
	agents map[uint32]segment // by tid
}

type segment struct{ lo, hi, offset uint64 }

// inject runs cmd and lets choose say how the agent's calls end. It returns the calls there were and how many failed.
func inject(t *testing.T, sites []uint64, cmd *exec.Cmd, choose chooser) (result, []call, int) {
	t.Helper()
	in := &injector{sites: map[uint64]bool{}, choose: choose, agents: map[uint32]segment{}}
	for _, s := range sites {
		in.sites[s] = true
	}
	type begun struct {
		fd   int
		wait func() result
		err  error
	}
	ch := make(chan begun, 1)
	var once sync.Once
	go func() {
		// The thread keeps its filter, and is not given back.
		runtime.LockOSThread()
		defer once.Do(func() { ch <- begun{err: errors.New("cannot start the program")} })
		prog := filter(sites)
		fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
		install := func() (uintptr, error) {
			fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, seccompSetModeFilter, filterFlagNewListener, uintptr(unsafe.Pointer(&fprog)))
			if errno != 0 {
				return 0, fmt.Errorf("seccomp: %w", errno)
			}
			return fd, nil
		}
		fd, err := install()
		if errors.Is(err, unix.EACCES) { // no CAP_SYS_ADMIN: not root, or root of a container
			if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
				fd, err = install()
			}
		}
		if err != nil {
			once.Do(func() { ch <- begun{err: err} })
			return
		}
		unix.CloseOnExec(int(fd))
		wait := start(t, cmd)
		once.Do(func() { ch <- begun{fd: int(fd), wait: wait} })
	}()
	b := <-ch
	if b.err != nil {
		t.Fatal(b.err)
	}
	var stop [2]int
	if err := unix.Pipe2(stop[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- in.serve(b.fd, stop[0]) }()
	r := b.wait()
	unix.Close(stop[1])
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	unix.Close(stop[0])
	unix.Close(b.fd)
	return r, in.calls, in.failed
}

func ioctl(fd int, req uintptr, p unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(p))
	return errno
}

func (in *injector) serve(fd, stop int) error {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if err == unix.EINTR {
				continue
			}
			return err
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			if fds[0].Revents != 0 || fds[1].Revents != 0 {
				return nil
			}
			continue
		}
		var n notif
		switch errno := ioctl(fd, notifRecv, unsafe.Pointer(&n)); errno {
		case 0:
		case unix.ENOENT, unix.EINTR:
			continue // a signal came first, or its death
		default:
			return fmt.Errorf("receiving a notification: %w", errno)
		}
		r := notifResp{id: n.id, flags: notifContinue}
		if e := in.judge(&n); e != 0 {
			r = notifResp{id: n.id, err: -int32(e)}
			in.failed++
		}
		if errno := ioctl(fd, notifSend, unsafe.Pointer(&r)); errno != 0 && errno != unix.ENOENT {
			return fmt.Errorf("answering a notification: %w", errno)
		}
	}
}

func (in *injector) judge(n *notif) unix.Errno {
	if n.nr == unix.SYS_EXECVE {
		clear(in.agents)
		return 0
	}
	s, ok := in.agents[n.pid]
	if !ok {
		if s, ok = agentIn(n.pid); !ok {
			return 0
		}
		in.agents[n.pid] = s
	}
	if n.ip < s.lo || n.ip >= s.hi || !in.sites[n.ip-s.lo+s.offset] || cannotFail[n.nr] ||
		n.nr == unix.SYS_FUTEX && n.args[1]&0x7f == futexWake {
		return 0
	}
	c := call{n.nr, n.ip - s.lo + s.offset, in.k}
	in.k++
	in.calls = append(in.calls, c)
	return in.choose(c)
}

// agentIn finds the agent's code in a process.
func agentIn(pid uint32) (s segment, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return s, false
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		var perms, dev, path string
		var inode uint64
		if !bytes.Contains(line, []byte("libripstop.so")) {
			continue
		}
		if n, _ := fmt.Sscanf(string(line), "%x-%x %s %x %s %d %s", &s.lo, &s.hi, &perms, &s.offset, &dev, &inode, &path); n == 7 &&
			perms[2] == 'x' && filepath.Base(path) == "libripstop.so" {
			return s, true
		}
	}
	return s, false
}
