package step

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/truth"
	"github.com/ripstop/ripstop/internal/x86"
)

// What a thread is at.
type state uint8

const (
	inKernel state = iota // or it has not stopped for the first time
	ready                 // it stands, and can be stepped
	running               // it makes a step
	held                  // it is stopped by job control
)

// A thread is one that is traced.
type thread struct {
	tid   int
	p     *process // nil: the program is not executed yet
	state state
	born  bool // it has stopped for the first time
	regs  registers
	sig   int // to be delivered by the next step

	// The step under way.
	in       *instruction
	ip       uint64
	tsc      uint64
	accesses []truth.Access
	syscall  bool // the instruction is a system call, which may take long
	inside   bool // and has begun
	nr       uint64
	restart  bool // the kernel may run the system call before ip again
	execed   bool // the system call was an execve that succeeded
	enters   bool // and the thread runs up to where the program begins
	padding  tracee.Padding

	rep   repetition
	flow  flow
	index uint32 // of its control flow trace
	left  [2]uint64
}

// A repetition is an instruction with a rep prefix under way.
type repetition struct {
	on       bool
	count    uint64 // rcx before
	runs     bool   // it is not stepped, but runs up to a breakpoint behind it
	down     bool
	accesses []truth.Access // of the first
}

// restarts says whether the registers are those of a system call that the kernel will run again unless a handler comes first.
func restarts(r *registers) bool {
	const sys, noIntr, noHandler, block = 512, 513, 514, 516
	switch -int64(r.Rax) {
	case sys, noIntr, noHandler, block:
		return int64(r.Orig_rax) >= 0
	}
	return false
}

// prepare notes what a thread is about to do.
func (s *Stepper) prepare(t *thread) {
	t.ip, t.tsc, t.accesses = t.regs.Rip, s.now, t.accesses[:0]
	t.syscall, t.inside, t.restart, t.execed = false, false, false, false
	if restarts(&t.regs) {
		t.in, t.nr, t.syscall, t.restart = t.p.at(t.ip-2), t.regs.Orig_rax, true, true
		return
	}
	if t.in = t.p.at(t.ip); t.in == nil {
		return
	}
	if t.in.Flow == x86.FlowSyscall {
		t.syscall, t.nr = true, t.regs.Rax
	}
	if t.in.touches && !t.rep.on {
		t.accesses = t.in.accesses(t.accesses, &t.regs, t.ip, func() vectorState {
			v, _ := vector(t.tid, s.xstate)
			return v
		})
		if t.in.repeats {
			t.rep = repetition{on: true, count: t.regs.Rcx, down: t.regs.Eflags&directionFlag != 0, accesses: append(t.rep.accesses[:0], t.accesses...)}
			if len(t.in.Mems()) > 0 && countRegister(&t.in.Mems()[0]).Size() == 4 {
				t.rep.count = uint64(uint32(t.rep.count))
			}
		}
	}
}

// ran tells that the instruction of the step ran, and left the registers now.
func (s *Stepper) ran(t *thread, now *registers) error {
	ip := t.ip
	if t.restart {
		ip -= 2
	}
	if t.in != nil && t.in.repeats {
		if now.Rip == ip { // more to come
			t.regs = *now
			return nil
		}
		s.endRepetition(t, now)
	}
	s.steps++
	t.flow.ran(ip, t.tsc)
	s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.Ran, IP: ip, Accesses: t.accesses})
	s.sample(t, now)
	if t.in != nil && t.in.pushes {
		s.hideTrapFlag(t, now)
	}
	return nil
}

// endRepetition makes one access each of those of all repetitions.
func (s *Stepper) endRepetition(t *thread, now *registers) {
	if !t.rep.on {
		return
	}
	left := now.Rcx
	if len(t.in.Mems()) > 0 && countRegister(&t.in.Mems()[0]).Size() == 4 {
		left = uint64(uint32(left))
	}
	t.accesses = append(t.accesses[:0], t.in.repetitions(t.rep.accesses, t.rep.count-left, t.rep.down)...)
	t.rep.on = false
}

// interruptRepetition tells of the repetitions so far, when a signal comes between two.
func (s *Stepper) interruptRepetition(t *thread) {
	if !t.rep.on {
		return
	}
	done := t.rep.count != t.regs.Rcx
	s.endRepetition(t, &t.regs)
	if done {
		s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.Ran, IP: t.ip, Accesses: t.accesses})
		t.flow.ran(t.ip, t.tsc)
	}
}

// sample counts the accesses of an instruction that ran, and writes a sample where a period ends.
func (s *Stepper) sample(t *thread, now *registers) {
	for i, f := range []truth.Flags{truth.Read, truth.Write} {
		for _, a := range t.accesses {
			if a.Flags&f == 0 {
				continue
			}
			if t.left[i]--; t.left[i] == 0 {
				t.left[i] = s.o.Period
				sm := sample.Sample{TSC: t.tsc, IP: t.ip, Addr: a.Addr}
				for n := range 16 {
					sm.Regs[n] = now.general(n)
				}
				const exact = 1 << 3 // PERF_EFLAGS_EXACT
				sm.Regs[sample.RIP], sm.Regs[sample.RFLAGS] = t.ip, now.Eflags|exact
				_ = s.out.Sample(eventLoads+i, int32(t.p.pid), int32(t.tid), &sm) // a failure comes again at the end
			}
			break // an instruction counts once
		}
	}
}

// hideTrapFlag takes the trap flag out of what pushf wrote.
func (s *Stepper) hideTrapFlag(t *thread, now *registers) {
	var b [2]byte
	if _, err := t.p.mem.ReadAt(b[:], int64(now.Rsp)); err != nil {
		return
	}
	v := binary.LittleEndian.Uint16(b[:]) &^ trapFlag
	binary.LittleEndian.PutUint16(b[:], v)
	local, remote := unix.Iovec{Base: &b[0], Len: 2}, unix.RemoteIovec{Base: uintptr(now.Rsp), Len: 2}
	_, _ = unix.ProcessVMWritev(t.p.pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
}

// returned handles a system call that is over: t.regs are the registers behind it.
func (s *Stepper) returned(t *thread) error {
	t.flow.left(t.ip)
	t.syscall = false
	s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.Resumed, IP: t.regs.Rip, Value: t.regs.Rax})
	switch t.nr {
	case unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_SHMAT, unix.SYS_SHMDT, unix.SYS_PKEY_MPROTECT, unix.SYS_REMAP_FILE_PAGES:
		return s.remap(t)
	case unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND, unix.SYS_PSELECT6, unix.SYS_PPOLL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
		unix.SYS_EXECVE, unix.SYS_EXECVEAT:
		unblockTrap(t.tid)
	case unix.SYS_PRCTL:
		return s.out.Comm(int32(t.p.pid), int32(t.tid), comm(t.tid), false, s.now)
	}
	return nil
}

// remap looks at the mappings of a thread's process, and begins the control flow anew where code or filter changed.
func (s *Stepper) remap(t *thread) error {
	added, changed, err := t.p.remap(s.now, s.buildID)
	if err != nil {
		return nil // it has ended meanwhile
	}
	for i := range added {
		if added[i].Path == "[vdso]" && !s.vdso {
			s.vdso = t.p.dumpVDSO(&added[i], s.o.Dir) == nil
		}
		added[i].Path = s.kept(added[i].Path)
		if err := s.out.Map(added[i], int32(t.tid)); err != nil {
			return err
		}
	}
	if t.p.setFilter(s.o.Filter) || changed {
		for _, o := range s.order {
			if o.p == t.p {
				o.flow.left(o.regs.Rip)
				o.flow.begin(o.p)
			}
		}
	}
	return nil
}

// kept gives the name of a mapped file for the recording: of the agent's, which goes with its session, that of a copy beside the trace.
func (s *Stepper) kept(path string) string {
	if filepath.Base(path) != sample.AgentFile {
		return path
	}
	dir, err := filepath.Abs(s.o.Dir)
	if err != nil {
		return path
	}
	to := filepath.Join(dir, sample.AgentFile)
	if !s.agent {
		b, err := os.ReadFile(path)
		if err != nil || os.WriteFile(to, b, 0o666) != nil {
			return path
		}
		s.agent = true
	}
	return to
}

// comm gives the name of a thread.
func comm(tid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// group gives the process of a thread, 0 if it has ended.
func group(tid int) (pid int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("\nTgid:\t"))
	_, _ = fmt.Sscanf(string(rest), "%d", &pid)
	return pid
}
