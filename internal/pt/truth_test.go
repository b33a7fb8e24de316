package pt

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/ripstop/ripstop/internal/tracee"
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

// A run is the truth about a thread of a program, or about its beginning.
type run struct {
	code  pages
	deeds []deed
	ips   []uint64 // of the instructions that ran, each repetition of one with a rep prefix once
	ended bool     // by itself, with a system call

	ip  uint64 // of the next instruction
	sig int    // to be delivered before it

	padding tracee.Padding
}

// step runs a program instruction by instruction, most of them if it runs that long. It gives the main thread first.
func step(t testing.TB, most int, argv ...string) []*run {
	t.Helper()
	s := &stepper{code: pages{}, threads: map[int]*run{}}
	// ptrace requests must come from the thread that is the tracer.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- s.run(most, argv)
	}()
	if err := <-done; err != nil {
		t.Fatalf("stepping %q: %v", argv, err)
	}
	if len(s.order[0].ips) < 1000 {
		t.Fatalf("stepping %q: only %d instructions", argv, len(s.order[0].ips))
	}
	return s.order
}

// A stepper steps the threads of one process.
type stepper struct {
	code    pages
	mem     *os.File
	threads map[int]*run
	order   []*run
	left    int
}

func (s *stepper) run(most int, argv []string) error {
	s.left = most
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
	if s.mem, err = os.Open(filepath.Join("/proc", strconv.Itoa(pid), "mem")); err != nil {
		return err
	}
	defer s.mem.Close()
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE); err != nil {
		return err
	}
	if err := s.begin(pid); err != nil {
		return err
	}
	for s.left > 0 && len(s.threads) > 0 {
		const noThread = 0x20000000 // __WNOTHREAD: not the children of other tests
		tid, err := syscall.Wait4(-1, &ws, syscall.WALL|noThread, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == nil {
			err = s.stopped(tid, ws)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin takes in a thread that stands still, and lets it make its first step.
func (s *stepper) begin(tid int) error {
	r := &run{code: s.code}
	s.threads[tid], s.order = r, append(s.order, r)
	ip, err := s.where(tid)
	if err != nil {
		return err
	}
	r.ip = ip
	return s.resume(tid, 0)
}

func (s *stepper) resume(tid, sig int) error {
	if r := s.threads[tid]; r != nil && sig == 0 && tracee.IsCPUID(s.code.Code(r.ip)) {
		r.padding.PutNop(tid, r.ip+2)
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_SINGLESTEP, uintptr(tid), 0, uintptr(sig), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// where gives the address of a thread's next instruction, and keeps the code there.
func (s *stepper) where(tid int) (uint64, error) {
	var regs syscall.PtraceRegs
	err := syscall.PtraceGetRegs(tid, &regs)
	for _, a := range []uint64{regs.Rip &^ (testPage - 1), (regs.Rip + 15) &^ (testPage - 1)} {
		if s.code[a] == nil {
			page := new([testPage]byte)
			if _, err := s.mem.ReadAt(page[:], int64(a)); err == nil {
				s.code[a] = page
			}
		}
	}
	return regs.Rip, err
}

// stopped takes note of what a thread did, and lets it go on.
func (s *stepper) stopped(tid int, ws syscall.WaitStatus) error {
	r := s.threads[tid]
	switch {
	case r == nil && ws.Stopped():
		return s.begin(tid)
	case ws.Exited() || ws.Signaled():
		if r != nil {
			s.ran(r)
			r.ended = true
			delete(s.threads, tid)
		}
		return nil
	case ws.StopSignal() == syscall.SIGTRAP && ws.TrapCause() == syscall.PTRACE_EVENT_CLONE:
		return s.resume(tid, 0) // in the middle of the system call
	}
	if err := r.padding.Take(tid); err != nil {
		return err
	}
	now, err := s.where(tid)
	if err != nil {
		return err
	}
	switch {
	case r.sig != 0: // the handler's first instruction is next, and ours did not run
		r.deeds = append(r.deeds, deed{r.ip, true})
	case ws.StopSignal() == syscall.SIGTRAP || now != r.ip:
		s.ran(r)
	}
	r.ip, r.sig = now, 0
	if sig := ws.StopSignal(); sig != syscall.SIGTRAP {
		r.sig = int(sig)
	}
	return s.resume(tid, r.sig)
}

func (s *stepper) ran(r *run) {
	s.left--
	last := deed{r.ip, false}
	again := len(r.deeds) > 0 && r.deeds[len(r.deeds)-1] == last && repeats(r.code.Code(r.ip))
	r.deeds = append(r.deeds, last)
	if !again {
		r.ips = append(r.ips, r.ip)
	}
}

// repeats says whether the prefixes have a rep; the tests' programs have it only on string instructions and where it does nothing.
func repeats(code []byte) bool { return len(code) > 0 && (code[0] == 0xf3 || code[0] == 0xf2) }

// build compiles a program of testdata.
func build(t testing.TB, name string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("gcc", "-O2", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/"+name+".c").CombinedOutput(); err != nil {
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
			text = append(text, strconv.Itoa(i*i%977)...)
			text = append(text, '\n')
		}
		if err := os.WriteFile(gz, text, 0o600); err != nil {
			t.Fatal(err)
		}
		runs.byName = map[string]*run{
			"walk":    step(t, 400_000, build(t, "walk"))[0],
			"gzip":    step(t, rounds(150_000), "gzip", "-c", gz)[0],
			"sort":    step(t, rounds(120_000), "sort", gz)[0],
			"python3": step(t, rounds(120_000), "/usr/bin/python3", "-S", "-c", "pass")[0],
		}
		threads := step(t, 400_000, build(t, "threads"))
		if len(threads) != 4 {
			t.Fatalf("threads.c had %d threads", len(threads))
		}
		for i, r := range threads {
			runs.byName["thread "+strconv.Itoa(i)] = r
			if !r.ended {
				t.Fatalf("thread %d of threads.c did not end", i)
			}
		}
		walk, signals := runs.byName["walk"], 0
		for _, d := range walk.deeds {
			if d.left {
				signals++
			}
		}
		if !walk.ended || signals < 3 {
			t.Fatalf("walk.c: ended %t, %d signals", walk.ended, signals)
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
func flowSteps(t testing.TB, trace []byte, s Segment, cf Config, c *Cache) (steps []Step, errs []error) {
	f := NewFlow(trace, s, cf, c)
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
