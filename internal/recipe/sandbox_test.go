package recipe

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/x86"
)

const pageSize = 4096

// An area is memory of the sandbox that is ours too.
type area struct {
	at   uint64
	size int
	prot uint64
	mem  []byte
}

func (a *area) end() uint64 { return a.at + uint64(a.size) }

// A sandbox is a process that runs code of ours in memory that it shares with us. It may make no system call; nothing but its areas is mapped.
type sandbox struct {
	pid    int
	areas  []*area
	regs   unix.PtraceRegs // as it had them at first
	xstate []byte          // likewise
	xsave  XSave           // how this processor saves it

	components [8]component
}

// A component of the extended state (CPUID leaf 0xd): where it lies in the standard form, and how it is aligned in the compact one.
type component struct{ offset, size, align int }

const (
	rw = unix.PROT_READ | unix.PROT_WRITE
	rx = unix.PROT_READ | unix.PROT_EXEC
)

// newSandbox starts one. The test's goroutine stays on its thread, since a tracer is a thread.
func newSandbox(tb testing.TB, areas []*area) *sandbox {
	tb.Helper()
	runtime.LockOSThread()
	le := binary.LittleEndian
	const base, entry = 0x400000, 0x400000 + 64 + 56
	elf := append(make([]byte, 0, 256), 0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	elf = le.AppendUint32(elf, 62<<16|2)
	elf = le.AppendUint32(elf, 1)
	for _, v := range []uint64{entry, 64, 0} {
		elf = le.AppendUint64(elf, v)
	}
	for _, v := range []uint32{0, 56<<16 | 64, 1, 0, 1, 5} {
		elf = le.AppendUint32(elf, v)
	}
	for _, v := range []uint64{0, base, base, 256, 256, pageSize} {
		elf = le.AppendUint64(elf, v)
	}
	elf = append(elf, 0x0f, 0x05, 0x0f, 0xa2, 0xcc) // syscall; cpuid; int3
	elf = append(elf, make([]byte, 256-len(elf))...)
	name := filepath.Join(tb.TempDir(), "sandbox")
	if err := os.WriteFile(name, elf, 0o755); err != nil {
		tb.Fatal(err)
	}
	s := &sandbox{areas: areas}
	total := 0
	for _, a := range areas {
		total += a.size
	}
	fd, err := unix.MemfdCreate("recipe-sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "memfd")
	defer memory.Close()
	if err := unix.Ftruncate(fd, int64(total)); err != nil {
		tb.Fatal(err)
	}
	ours, err := unix.Mmap(fd, 0, total, rw, unix.MAP_SHARED)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := os.StartProcess(name, []string{name}, &os.ProcAttr{Env: []string{}, Files: []*os.File{memory},
		Sys: &unix.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}})
	if err != nil {
		tb.Fatalf("starting the sandbox: %v", err)
	}
	s.pid = p.Pid
	tb.Cleanup(func() {
		unix.Kill(s.pid, unix.SIGKILL)
		p.Wait()
		unix.Munmap(ours)
		runtime.UnlockOSThread()
	})
	if ws := s.wait(tb); !ws.Stopped() {
		tb.Fatalf("the sandbox did not stop at its start: %#x", int(ws))
	}
	if err := unix.PtraceSetOptions(s.pid, unix.PTRACE_O_EXITKILL); err != nil {
		tb.Fatal(err)
	}
	// What loops forever ends in SIGXCPU. The time is the process's own, not the clock's.
	if err := unix.Prlimit(s.pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: 200, Max: 300}, nil); err != nil {
		tb.Fatal(err)
	}
	if err := unix.PtraceGetRegs(s.pid, &s.regs); err != nil {
		tb.Fatal(err)
	}
	s.regs.Orig_rax = ^uint64(0)
	call := func(nr uint64, args ...uint64) {
		var a [6]uint64
		copy(a[:], args)
		r := s.regs
		r.Rip, r.Rax = entry, nr
		r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9 = a[0], a[1], a[2], a[3], a[4], a[5]
		if sig := s.step(tb, &r); sig != unix.SIGTRAP || int64(r.Rax) < 0 && int64(r.Rax) > -4096 {
			tb.Fatalf("system call %d%#x in the sandbox: %d (%v)", nr, args, int64(r.Rax), sig)
		}
	}
	at := 0
	for _, a := range areas {
		n := a.size
		a.mem = ours[at : at+n]
		call(unix.SYS_MMAP, a.at, uint64(n), a.prot, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, 0, uint64(at))
		at += n
	}
	call(unix.SYS_CLOSE, 0)
	cpuid := func(leaf, sub uint64) unix.PtraceRegs {
		r := s.regs
		r.Rip, r.Rax, r.Rcx = entry+2, leaf, sub
		if sig := s.step(tb, &r); sig != unix.SIGTRAP {
			tb.Fatalf("cpuid in the sandbox: %v", sig)
		}
		return r
	}
	features := cpuid(0xd, 0)
	s.xsave = XSave{Mask: features.Rax & 0xe7, Size: 512 + 64, Compact: cpuid(0xd, 1).Rax&2 != 0}
	for i := uint64(2); i < 8; i++ {
		if s.xsave.Mask>>i&1 == 0 {
			continue
		}
		r := cpuid(0xd, i)
		c := component{int(r.Rbx), int(r.Rax), 1}
		if r.Rcx&2 != 0 {
			c.align = 64
		}
		s.components[i] = c
		if s.xsave.Compact {
			s.xsave.Size = (s.xsave.Size+uint32(c.align)-1)&^(uint32(c.align)-1) + uint32(c.size)
		} else {
			s.xsave.Size = max(s.xsave.Size, uint32(c.offset+c.size))
		}
	}
	call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, 1)
	s.xstate = make([]byte, 16384)
	s.xstate = s.xstate[:s.regset(tb, unix.PTRACE_GETREGSET, s.xstate)]
	return s
}

func (s *sandbox) wait(tb testing.TB) (ws unix.WaitStatus) {
	tb.Helper()
	for {
		switch _, err := unix.Wait4(s.pid, &ws, unix.WALL, nil); err {
		case nil:
			return ws
		case unix.EINTR:
		default:
			tb.Fatalf("waiting for the sandbox: %v", err)
		}
	}
}

// regset reads or writes the extended state, and gives its size.
func (s *sandbox) regset(tb testing.TB, request int, buf []byte) int {
	tb.Helper()
	iov := unix.Iovec{Base: &buf[0], Len: uint64(len(buf))}
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(s.pid), 0x202, uintptr(unsafe.Pointer(&iov)), 0, 0); e != 0 {
		tb.Fatalf("ptrace of the extended state, %d bytes: %v", len(buf), e)
	}
	return int(iov.Len)
}

// resumed runs from these registers until the process stops, leaves there what they are then, and gives the signal.
func (s *sandbox) resumed(tb testing.TB, r *unix.PtraceRegs, how func(int) error) unix.Signal {
	tb.Helper()
	if err := unix.PtraceSetRegs(s.pid, r); err != nil {
		tb.Fatalf("setting registers %+v: %v", *r, err)
	}
	from := r.Rip
	defer func() { r.Eflags &^= uint64(x86.TF) }() // which pushf and popf saw while we stepped
	if err := how(s.pid); err != nil {
		tb.Fatal(err)
	}
	ws := s.wait(tb)
	if !ws.Stopped() {
		tb.Fatalf("the sandbox ended, status %#x, from %#x", int(ws), from)
	}
	if err := unix.PtraceGetRegs(s.pid, r); err != nil {
		tb.Fatal(err)
	}
	return ws.StopSignal()
}

// step runs one instruction, or one round of a repeated one.
func (s *sandbox) step(tb testing.TB, r *unix.PtraceRegs) unix.Signal {
	tb.Helper()
	return s.resumed(tb, r, unix.PtraceSingleStep)
}

// run runs until a signal comes.
func (s *sandbox) run(tb testing.TB, r *unix.PtraceRegs) unix.Signal {
	tb.Helper()
	return s.resumed(tb, r, func(pid int) error { return unix.PtraceCont(pid, 0) })
}

// bytes gives memory of the sandbox.
func (s *sandbox) bytes(at uint64, n int) []byte {
	for _, a := range s.areas {
		if at >= a.at && at+uint64(n) <= a.end() {
			return a.mem[at-a.at:][:n]
		}
	}
	panic(fmt.Sprintf("BUG: %d bytes at %#x are not the sandbox's", n, at))
}

// gprs gives the registers of ptrace's structure by number.
func gprs(r *unix.PtraceRegs) [16]*uint64 {
	return [16]*uint64{&r.Rax, &r.Rcx, &r.Rdx, &r.Rbx, &r.Rsp, &r.Rbp, &r.Rsi, &r.Rdi, &r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15}
}

// differ compares registers, and flags, as far as they are in a set.
func differ(want, got *unix.PtraceRegs, regs x86.RegSet, flags x86.Flags) string {
	w, g := gprs(want), gprs(got)
	for i := range w {
		if r := x86.RAX + x86.Reg(i); regs.Has(r) && *w[i] != *g[i] {
			return fmt.Sprintf("%v is %#x, not %#x", r, *g[i], *w[i])
		}
	}
	if d := (want.Eflags ^ got.Eflags) & uint64(flags); d != 0 {
		return fmt.Sprintf("flags are %#x, not %#x", got.Eflags, want.Eflags)
	}
	return ""
}
