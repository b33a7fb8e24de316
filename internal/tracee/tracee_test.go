package tracee

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// program is a running testdata/threads.c.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	pid    int
	marker Addr
}

func start(t *testing.T) *program {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "threads")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", exe, "testdata/threads.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc is needed: %v\n%s", err, out)
	}
	p := &program{t: t, cmd: exec.Command(exe)}
	p.in, _ = p.cmd.StdinPipe()
	out, _ := p.cmd.StdoutPipe()
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
	})
	var marker uint64
	if _, err := fmt.Fscanf(p.out, "%d 0x%x\n", &p.pid, &marker); err != nil {
		t.Fatal(err)
	}
	p.marker = Addr(marker)
	p.waitThreads(3)
	return p
}

func (p *program) waitThreads(n int) []int {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		tids, err := Threads(p.pid)
		if err != nil {
			p.t.Fatal(err)
		}
		if len(tids) == n {
			return tids
		}
		if time.Now().After(end) {
			p.t.Fatalf("threads %v, expected %d", tids, n)
		}
	}
}

// counts asks the program for its count and the number of SIGUSR1.
func (p *program) counts() (n, usr1 uint64) {
	p.t.Helper()
	if _, err := p.in.Write([]byte("c")); err != nil {
		p.t.Fatal(err)
	}
	if _, err := fmt.Fscanf(p.out, "%d %d\n", &n, &usr1); err != nil {
		p.t.Fatal(err)
	}
	return n, usr1
}

// finish checks that the program still comes to its normal end.
func (p *program) finish() {
	p.t.Helper()
	if _, err := p.in.Write([]byte("q")); err != nil {
		p.t.Fatal(err)
	}
	err := p.cmd.Wait()
	var xe *exec.ExitError
	if !errors.As(err, &xe) || xe.ExitCode() != 42 {
		p.t.Fatalf("the program ended with %v, not with status 42", err)
	}
}

// Proves: threads that run, that sleep in a futex and that wait in read can be stopped again and again, their registers point into
// code and stack, they run on afterwards, and the program ends as it would have.
func TestStopAndGo(t *testing.T) {
	p := start(t)
	maps, err := Maps(p.pid)
	if err != nil {
		t.Fatal(err)
	}
	in := func(a uint64, exec bool) bool {
		for _, m := range maps {
			if Addr(a) >= m.Start && Addr(a) < m.End {
				return m.Exec == exec
			}
		}
		return false
	}
	before, _ := p.counts()
	for i := 0; i < 50; i++ {
		for _, tid := range p.waitThreads(3) {
			err := Stop(tid, func(s *Stopped) error {
				if state(tid) != 't' {
					return fmt.Errorf("its state is %c", state(tid))
				}
				if !in(s.Regs[16], true) || !in(s.Regs[7], false) {
					return fmt.Errorf("rip %#x, rsp %#x", s.Regs[16], s.Regs[7])
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if s := state(tid); s == 't' || s == 'T' {
				t.Fatalf("thread %d stands still, state %c", tid, s)
			}
		}
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if now, _ := p.counts(); now > before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the counting thread does not run on")
		}
	}
	p.finish()
}

// Proves: while all threads are held none runs, whatever they did; an error comes back; and then they all go on.
func TestHold(t *testing.T) {
	p := start(t)
	tids := p.waitThreads(3)
	before, _ := p.counts()
	want := errors.New("no")
	for range 20 {
		err := Hold(append([]int{1 << 30}, tids...), func(list []Stopped) error {
			if len(list) != 3 {
				return fmt.Errorf("%d threads are held", len(list))
			}
			for i, s := range list {
				if s.Tid != tids[i] || s.Regs[16] == 0 || state(s.Tid) != 't' {
					return fmt.Errorf("thread %d, rip %#x, state %c", s.Tid, s.Regs[16], state(s.Tid))
				}
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
		for _, tid := range tids {
			if s := state(tid); s == 't' || s == 'T' {
				t.Fatalf("thread %d stands still, state %c", tid, s)
			}
		}
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if now, _ := p.counts(); now > before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the counting thread does not run on")
		}
	}
	p.finish()
}

// Proves: a function that fails or panics does not leave the thread stopped, and its error comes back.
func TestStopLetsGoOnEveryPath(t *testing.T) {
	p := start(t)
	want := errors.New("no")
	if err := Stop(p.pid, func(*Stopped) error { return want }); !errors.Is(err, want) {
		t.Errorf("the error is %v", err)
	}
	if s := state(p.pid); s == 't' {
		t.Errorf("state %c after an error", s)
	}
	p.finish()
}

// Proves: a signal that arrives while a thread is stopped is handled exactly once afterwards.
func TestSignalsArrive(t *testing.T) {
	p := start(t)
	const n = 20
	for i := 1; i <= n; i++ {
		err := Stop(p.pid, func(s *Stopped) error { return unix.Tgkill(p.pid, p.pid, unix.SIGUSR1) })
		if err != nil {
			t.Fatal(err)
		}
		// Stop again at once: often the thread then stands for the delivery of the signal.
		if err := Stop(p.pid, func(s *Stopped) error { return nil }); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			_, got := p.counts()
			if got == uint64(i) {
				break
			}
			if got > uint64(i) || time.Now().After(end) {
				t.Fatalf("%d signals handled, %d sent", got, i)
			}
		}
	}
	p.finish()
}

// Proves: a process stopped by job control can be looked at, stays stopped, and continues by SIGCONT.
func TestStoppedProcessStaysStopped(t *testing.T) {
	p := start(t)
	syscall.Kill(p.pid, syscall.SIGSTOP)
	waitState(t, p.pid, 'T')
	for i := 0; i < 5; i++ {
		if err := Stop(p.pid, func(s *Stopped) error { return nil }); err != nil {
			t.Fatal(err)
		}
		waitState(t, p.pid, 'T')
	}
	syscall.Kill(p.pid, syscall.SIGCONT)
	p.counts()
	p.finish()
}

func waitState(t *testing.T, pid int, want byte) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); state(pid) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("state %c, expected %c", state(pid), want)
		}
	}
}

// Proves: what has ended, and what is traced already, gives a clear error.
func TestStopErrors(t *testing.T) {
	p := start(t)
	err := Stop(p.pid, func(*Stopped) error {
		return Stop(p.pid, func(*Stopped) error { return nil })
	})
	if !errors.Is(err, ErrNotAllowed) {
		t.Errorf("traced twice: %v", err)
	}
	p.finish()
	if err := Stop(p.pid, func(*Stopped) error { return nil }); !errors.Is(err, ErrGone) {
		t.Errorf("ended: %v", err)
	}
	if _, err := Threads(p.pid); !errors.Is(err, ErrGone) {
		t.Errorf("ended: %v", err)
	}
	if _, err := Maps(p.pid); !errors.Is(err, ErrGone) {
		t.Errorf("ended: %v", err)
	}
}

// Proves: a thread killed while it stands gives no error of the tracer's and no hang, and the waiter gets the true status.
func TestKilledWhileStopped(t *testing.T) {
	p := start(t)
	if err := Stop(p.pid, func(s *Stopped) error { return syscall.Kill(p.pid, syscall.SIGKILL) }); err != nil && !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	p.cmd.Wait()
	if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("status %#x", ws)
	}
}

func peekUser(tid int, at uintptr) (v uint64, err error) {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(tid), at, uintptr(unsafe.Pointer(&v)), 0, 0); e != 0 {
		return 0, e
	}
	return v, nil
}

// Proves: debug registers that were set stay when the threads are let go, and their traps are the program's own; cleared, they do nothing any more.
func TestSetDebug(t *testing.T) {
	p := start(t)
	traps := func() (n int) {
		if _, err := p.in.Write([]byte("m")); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanf(p.out, "%d\n", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tids := p.waitThreads(3)
	held := func(want uint64) {
		err := Hold(tids, func(list []Stopped) error {
			for _, s := range list {
				if v, err := peekUser(s.Tid, debugRegister7); err != nil || v&0xff != want {
					t.Errorf("thread %d: register 7 is %#x, %v; not %#x", s.Tid, v, err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const write8 = 1 | 1<<16 | 2<<18 // register 0: on, of writes, 8 bytes
	// Where the registers are the host's they are as they were set, and nothing comes of it.
	hit, known := BreakpointsHit()
	for i, want := range []int{1, 2} {
		if !hit && known {
			want = 0
		}
		if err := SetDebug(append(tids, 1<<22-1), DebugRegisters{Address: [4]uint64{uint64(p.marker) + 24}, Control: write8}); err != nil {
			t.Fatal(err)
		}
		held(1)
		if n := traps(); n != want {
			t.Errorf("set: %d traps, not %d", n, want)
		}
		if err := SetDebug(tids, DebugRegisters{}); err != nil {
			t.Fatal(err)
		}
		held(0)
		if n := traps(); n != want {
			t.Errorf("cleared for the %d. time: %d traps, not %d", i+1, n, want)
		}
	}
	p.finish()
	if err := SetDebug(tids, DebugRegisters{}); err != nil {
		t.Errorf("of threads that have ended: %v", err)
	}
}

// Proves: a wait for the process that runs meanwhile can tell Stop's stops from job control and still gets the exit status.
func TestWaiterSeesTracerStops(t *testing.T) {
	p := start(t)
	pid := p.pid
	var seen atomic.Int32
	end := make(chan unix.WaitStatus)
	go func() {
		for {
			var ws unix.WaitStatus
			if _, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil); errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil {
				t.Errorf("wait4: %v", err)
			}
			if ws.Stopped() {
				if !TracerStop(pid, ws) {
					t.Errorf("status %#x taken for job control", ws)
				}
				seen.Add(1)
				continue
			}
			end <- ws
			return
		}
	}()
	for i := 0; i < 100; i++ {
		if err := Stop(pid, func(s *Stopped) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	p.in.Write([]byte("q"))
	if ws := <-end; !ws.Exited() || ws.ExitStatus() != 42 {
		t.Errorf("status %#x, expected exit 42", ws)
	}
	t.Logf("the waiter saw %d of 100 stops", seen.Load())
	p.cmd.Wait() // its process is gone already; this closes the pipes
	syscall.Kill(pid, 0)
}

// Proves: if the tracing process is killed while a thread stands, the thread goes on.
func TestTracerKilled(t *testing.T) {
	if tid, _ := strconv.Atoi(os.Getenv("TRACEE_TEST_HOLD")); tid != 0 {
		err := Stop(tid, func(*Stopped) error {
			fmt.Println("held")
			os.Stdin.Read(make([]byte, 1)) // until killed. In select {} Go found a deadlock and ended, sometimes before we had looked.
			return nil
		})
		fmt.Println(err)
		os.Exit(1)
	}
	p := start(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestTracerKilled$")
	cmd.Env = append(os.Environ(), "TRACEE_TEST_HOLD="+strconv.Itoa(p.pid))
	out, _ := cmd.StdoutPipe()
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Errorf("the other tracer says %q", line)
	}
	if s := state(p.pid); s != 't' {
		t.Errorf("state %c, expected t", s)
	}
	cmd.Process.Kill()
	cmd.Wait()
	p.counts()
	p.finish()
}

// Proves: memory is read at the process's addresses, a read over the end of a mapping returns what is there, and bad addresses fail.
func TestMemory(t *testing.T) {
	p := start(t)
	mem := Memory(p.pid)
	b := make([]byte, 32)
	if n, err := mem.ReadAt(b, int64(p.marker)); n != 32 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []uint64{0x1122334455667788, 2, 3, 4} {
		if got := binary.LittleEndian.Uint64(b[8*i:]); got != want {
			t.Errorf("word %d is %#x, expected %#x", i, got, want)
		}
	}
	maps, err := Maps(p.pid)
	if err != nil {
		t.Fatal(err)
	}
	checked := false
	for i, m := range maps[:len(maps)-1] {
		if m.Path == "[heap]" && maps[i+1].Start > m.End {
			checked = true
			n, err := mem.ReadAt(b, int64(m.End)-8)
			if n != 8 || err == nil {
				t.Errorf("read over the end of %v: %d, %v", m, n, err)
			}
		}
	}
	if !checked {
		t.Error("there is no [heap] with a hole behind it")
	}
	for _, off := range []int64{0, -1, 1 << 47} {
		if n, err := mem.ReadAt(b, off); n != 0 || err == nil {
			t.Errorf("at %#x: %d, %v", off, n, err)
		}
	}
	if n, err := mem.ReadAt(nil, int64(p.marker)); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	p.finish()
}
