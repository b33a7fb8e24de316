package count

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/x86"
)

// Stepped runs the program one instruction after the other and gives what ran. It takes ten microseconds an instruction.
func Stepped(ctx context.Context, p *Program, dir string) (x Executions, err error) {
	cmd, done, err := p.command(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer done()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
	}()
	s := stepper{pid: cmd.Process.Pid, counts: map[uint64]uint64{}, kinds: map[uint64]kind{}}
	if err := s.wait(); err != nil {
		return nil, err
	}
	if err := unix.PtraceSetOptions(s.pid, unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_EXITKILL); err != nil {
		return nil, err
	}
	return s.run(ctx)
}

type kind struct {
	one   bool // twice in a row it is the same execution
	cpuid bool
}

type stepper struct {
	pid    int
	status unix.WaitStatus
	counts map[uint64]uint64
	kinds  map[uint64]kind // of the instructions at addresses
}

// wait waits for the next stop.
func (s *stepper) wait() error {
	for {
		_, err := unix.Wait4(s.pid, &s.status, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// rip reads where the program stands.
func (s *stepper) rip() (pc uint64, err error) {
	const offset = 16 * 8 // of rip in struct user (sys/user.h)
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(s.pid), offset, uintptr(unsafe.Pointer(&pc)), 0, 0); e != 0 {
		return 0, e
	}
	return pc, nil
}

func (s *stepper) run(ctx context.Context) (Executions, error) {
	last := uint64(0)
	for ctx.Err() == nil {
		pc, err := s.rip()
		if err != nil {
			return nil, err
		}
		// The trap flag traps behind each iteration (Intel SDM vol. 3, 18.3.1.4), with rip at the instruction until it is done; and no other instruction that does not jump comes twice in a row.
		if pc != last || !s.is(pc).one {
			s.counts[pc]++
		}
		last = pc
		signal := 0
		var padding tracee.Padding
		if s.is(pc).cpuid {
			padding.PutNop(s.pid, pc+2)
		}
		for {
			if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(s.pid), 0, uintptr(signal), 0, 0); e != 0 {
				return nil, e
			}
			if err := s.wait(); err != nil {
				return nil, err
			}
			if !s.status.Stopped() {
				return nil, fmt.Errorf("the program ended without a word: %v", s.status)
			}
			if err := padding.Take(s.pid); err != nil {
				return nil, err
			}
			if s.status.StopSignal() == unix.SIGTRAP {
				break
			}
			signal = int(s.status.StopSignal())
		}
		if s.status.TrapCause() == unix.PTRACE_EVENT_EXIT {
			return s.ended()
		}
	}
	return nil, context.Cause(ctx)
}

// ended reads the maps of the process, which stands at its end, and lets it end.
func (s *stepper) ended() (Executions, error) {
	code, err := unix.PtraceGetEventMsg(s.pid)
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, fmt.Errorf("the program ended with wait status %#x", code)
	}
	mappings, err := tracee.Maps(s.pid)
	if err != nil {
		return nil, err
	}
	if err := unix.PtraceDetach(s.pid); err != nil {
		return nil, err
	}
	return byModule(mappings, s.counts)
}

// is says what matters here of the instruction at an address.
func (s *stepper) is(pc uint64) kind {
	k, known := s.kinds[pc]
	if !known {
		var code [x86.MaxLen]byte
		n, _ := tracee.Memory(s.pid).ReadAt(code[:], int64(pc))
		in, err := x86.Decode(code[:n])
		k = kind{one: err == nil && (in.Rep || in.Repne || in.Flow == x86.FlowNone), cpuid: tracee.IsCPUID(code[:n])}
		s.kinds[pc] = k
	}
	return k
}
