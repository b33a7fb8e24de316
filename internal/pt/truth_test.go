package pt

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
)

const testPage = 4096

// pages is an Image of whole pages.
type pages map[uint64]*[testPage]byte

func (p pages) Code(addr uint64) []byte {
	page := p[addr&^(testPage-1)]
	if page == nil {
		return nil
	}
	return page[addr%testPage:]
}

// oracleImage gives the pages as the oracle takes them.
func (p pages) oracleImage() (b []byte) {
	var addrs []uint64
	for a := range p {
		addrs = append(addrs, a)
	}
	slices.Sort(addrs)
	for _, a := range addrs {
		b = binary.LittleEndian.AppendUint64(b, a)
		b = append(b, p[a][:]...)
	}
	return b
}

// A deed is something that a stepped program did.
type deed struct {
	ip   uint64
	left bool // a signal came before the instruction at ip ran; else it ran
}

// A run is the truth about a run of a program, or of its beginning.
type run struct {
	code  pages
	deeds []deed
	ips   []uint64 // of the instructions that ran, each repetition of one with a rep prefix once
	ended bool     // by itself
}

// step runs a program instruction by instruction, most of them if it runs that long.
func step(t testing.TB, most int, argv ...string) *run {
	t.Helper()
	r := &run{code: pages{}}
	// ptrace requests must come from the thread that is the tracer.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- r.step(most, argv)
	}()
	if err := <-done; err != nil {
		t.Fatalf("stepping %q: %v", argv, err)
	}
	if len(r.ips) < 1000 {
		t.Fatalf("stepping %q: only %d instructions", argv, len(r.ips))
	}
	return r
}

func (r *run) step(most int, argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	defer cmd.Wait()
	defer syscall.Kill(pid, syscall.SIGKILL)
	mem, err := os.Open(filepath.Join("/proc", itoa(pid), "mem"))
	if err != nil {
		return err
	}
	defer mem.Close()
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return err
	}
	where := func() (uint64, error) {
		var regs syscall.PtraceRegs
		err := syscall.PtraceGetRegs(pid, &regs)
		for _, a := range []uint64{regs.Rip &^ (testPage - 1), (regs.Rip + 15) &^ (testPage - 1)} {
			if r.code[a] == nil {
				page := new([testPage]byte)
				if _, err := mem.ReadAt(page[:], int64(a)); err == nil {
					r.code[a] = page
				}
			}
		}
		return regs.Rip, err
	}
	ip, err := where()
	if err != nil {
		return err
	}
	sig := 0
	for len(r.deeds) < most {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_SINGLESTEP, uintptr(pid), 0, uintptr(sig), 0, 0); errno != 0 {
			return errno
		}
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
			return err
		}
		if ws.Exited() || ws.Signaled() {
			r.ran(ip)
			r.ended = true
			return nil
		}
		now, err := where()
		if err != nil {
			return err
		}
		switch {
		case sig != 0: // the handler's first instruction is next, and ours did not run
			r.deeds = append(r.deeds, deed{ip, true})
		case ws.StopSignal() == syscall.SIGTRAP || now != ip:
			r.ran(ip)
		}
		ip, sig = now, 0
		if s := ws.StopSignal(); s != syscall.SIGTRAP {
			sig = int(s)
		}
	}
	return nil
}

func (r *run) ran(ip uint64) {
	again := len(r.deeds) > 0 && r.deeds[len(r.deeds)-1] == deed{ip, false} && repeats(r.code.Code(ip))
	r.deeds = append(r.deeds, deed{ip, false})
	if !again {
		r.ips = append(r.ips, ip)
	}
}

// repeats says whether the prefixes have a rep; the tests' programs have it only on string instructions and where it does nothing.
func repeats(code []byte) bool { return len(code) > 0 && (code[0] == 0xf3 || code[0] == 0xf2) }

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// walkProgram builds testdata/walk.c.
func walkProgram(t testing.TB) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "walk")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/walk.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

var runs struct {
	sync.Once
	byName map[string]*run
}

// truths gives what some programs did. They are stepped once for all tests.
func truths(t testing.TB) map[string]*run {
	t.Helper()
	runs.Do(func() {
		gz := filepath.Join(t.TempDir(), "text")
		text := make([]byte, 0, 1<<14)
		for i := range 1200 {
			text = append(text, itoa(i*i%977)...)
			text = append(text, '\n')
		}
		if err := os.WriteFile(gz, text, 0o600); err != nil {
			t.Fatal(err)
		}
		runs.byName = map[string]*run{
			"walk":    step(t, 400_000, walkProgram(t)),
			"gzip":    step(t, 150_000, "gzip", "-c", gz),
			"sort":    step(t, 120_000, "sort", gz),
			"python3": step(t, 120_000, "/usr/bin/python3", "-S", "-c", "pass"),
		}
		if !runs.byName["walk"].ended {
			t.Fatal("walk.c did not end")
		}
	})
	return runs.byName
}

// encode gives the trace of a run. The time of the n-th deed is at(n).
func encode(t testing.TB, r *run, opt EncoderOptions, at func(n int) uint64) []byte {
	t.Helper()
	e, err := NewFlowEncoder(r.code, opt)
	if err != nil {
		t.Fatal(err)
	}
	for n, d := range r.deeds {
		if at != nil {
			e.Tick(at(n))
		}
		if d.left {
			err = e.Leave(d.ip)
		} else {
			err = e.Execute(d.ip)
		}
		if err != nil {
			t.Fatalf("deed %d: %v", n, err)
		}
	}
	if r.ended {
		if err := e.Leave(r.deeds[len(r.deeds)-1].ip + 2); err != nil { // behind the last system call
			t.Fatal(err)
		}
	}
	e.Flush()
	return e.Bytes()
}

// flowSteps gives all steps of a segment, and its errors.
func flowSteps(t testing.TB, trace []byte, s Segment, tm Timing, c *Cache) (steps []Step, errs []error) {
	f := NewFlow(trace, s, tm, c)
	for {
		var buf [100]Step
		n, err := f.Read(buf[:])
		steps = append(steps, buf[:n]...)
		if err == nil {
			continue
		}
		if _, ok := err.(*Error); !ok {
			return steps, errs
		}
		errs = append(errs, err)
	}
}

// instructions gives the addresses of the instructions in steps.
func instructions(t testing.TB, c *Cache, steps []Step) (ips []uint64) {
	for _, s := range steps {
		if s.Kind != StepRun {
			continue
		}
		at := s.From
		for range s.Count {
			b := c.at(at)
			if len(b.lens) == 0 {
				t.Fatalf("%v: no code at %#x", s, at)
			}
			ips = append(ips, at)
			at += uint64(b.lens[0])
		}
		if at != s.To {
			t.Fatalf("%v: ends at %#x", s, at)
		}
	}
	return ips
}
