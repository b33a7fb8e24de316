package pmu

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tsc"
)

// A timedRun is one that was sampled by a clock.
type timedRun struct {
	dir, exe   string
	array      uint64  // its address
	cpu        float64 // seconds
	begin, end uint64  // TSC
	unwatched  bool    // the machine has no breakpoints
	info       sample.Info
}

// attached is what samples a program.
type attached interface {
	Attach(pid int) error
	Close() error
}

// sampledRun runs testdata/watched.c in mode timer.
func sampledRun(t *testing.T, o TimerOptions) *timedRun {
	t.Helper()
	unwatched := false
	r := sampledBy(t, func(dir string) (attached, error) {
		o.Dir, o.Seed = dir, 3
		o.Warn = func(s string) {
			if strings.HasPrefix(s, "no breakpoints on this machine") {
				unwatched = true // as doctor says of such a machine
				return
			}
			if o.Budget > 0 && strings.HasPrefix(s, "samples were taken in") {
				return
			}
			t.Errorf("warned: %s", s)
		}
		return NewTimer(o)
	})
	r.unwatched = unwatched
	if r.info.Mode != sample.Timer {
		t.Fatalf("%+v", r.info)
	}
	return r
}

// sampledBy runs testdata/watched.c with what begin gives attached to it.
func sampledBy(t *testing.T, begin func(dir string) (attached, error)) *timedRun {
	t.Helper()
	r := &timedRun{dir: t.TempDir(), exe: filepath.Join(t.TempDir(), "watched")}
	if out, err := exec.Command("gcc", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", r.exe, "testdata/watched.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tm, err := begin(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(r.dir, "output")
	prog, err := agent.Resolve([]string{"/bin/sh", "-c", `exec "$0" >"$1"`, r.exe, out}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.begin = tsc.Now()
	target, err := agent.StartHeld(prog, []string{"PATH=/usr/bin:/bin"}, tm.Attach)
	if err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	var usage syscall.Rusage
	for {
		if _, err := syscall.Wait4(target.PID, &ws, 0, &usage); err != unix.EINTR {
			break
		}
	}
	target.Release()
	if err := tm.Close(); err != nil {
		t.Fatal(err)
	}
	r.end = tsc.Now()
	if !ws.Exited() || ws.ExitStatus() != 5 {
		t.Fatalf("status %#x", ws)
	}
	r.cpu = float64(usage.Utime.Nano()+usage.Stime.Nano()) * 1e-9
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(b), "0x%x", &r.array); err != nil {
		t.Fatal(err)
	}
	if r.info, err = sample.ReadInfo(r.dir); err != nil || !r.info.Complete {
		t.Fatalf("%+v, %v", r.info, err)
	}
	return r
}

// A clock of CPU time samples every thread, from its start, of children too; breakpoints are hit in the data that the threads share, by the code that works on
// it; times are TSC. CPU time is what is counted, so that a busy machine changes nothing.
func TestTimer(t *testing.T) {
	r := sampledRun(t, TimerOptions{Follow: true})
	s, err := sample.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Damage) > 0 {
		t.Fatal(s.Damage)
	}
	var clocks, hits, elsewhere, inWork int
	busy := map[int32]int{}
	for _, th := range s.Threads {
		last := uint64(0)
		inside := func(ip uint64) bool {
			for _, e := range s.Epochs(th.PID) {
				for _, m := range e.Mappings {
					if m.Path == r.exe && m.Start <= ip && ip < m.End {
						return true
					}
				}
			}
			return false
		}
		for _, sm := range th.Samples {
			if sm.TSC < last || sm.TSC < r.begin || sm.TSC > r.end {
				t.Fatalf("a sample at %d, after %d, in a run from %d to %d", sm.TSC, last, r.begin, r.end)
			}
			last = sm.TSC
			if sm.Has != 1<<18-1 {
				t.Fatalf("registers are missing: %#x", sm.Has)
			}
			switch sm.Kind {
			case sample.ClockEvent:
				clocks++
				busy[th.TID]++
				if inside(sm.IP) {
					inWork++
				}
				if stack, err := s.Stack(&sm); sm.IP != sm.Regs[sample.RIP] || err != nil || len(stack) != stackBytes {
					t.Fatalf("%+v", sm)
				}
			case sample.WatchEvent:
				hits++
				if sm.Addr-r.array >= 16*8 || !inside(sm.IP) {
					elsewhere++
				}
			default:
				t.Fatalf("%+v", sm)
			}
		}
	}
	want := r.cpu * float64(r.info.Frequency)
	t.Logf("%d samples in %.2f s of CPU time at %d Hz, %d in the program; %d hits, %d elsewhere", clocks, r.cpu, r.info.Frequency, inWork, hits, elsewhere)
	if float64(clocks) < want/2 || float64(clocks) > want*1.2 || inWork < clocks*8/10 {
		t.Errorf("%d samples, %d of them in the program, at %d Hz in %v s", clocks, inWork, r.info.Frequency, r.cpu)
	}
	// Two threads and a child with the same work. The child, which shares no cache line, may need a tenth of a thread's time, but not less than a cycle
	// for each of its 150 million rounds: 30 ms.
	many := 0
	for _, n := range busy {
		if uint64(n) > 30*r.info.Frequency/1000 {
			many++
		}
	}
	if many != 3 {
		t.Errorf("%d threads have many samples: %v", many, busy)
	}
	if (hits == 0) != r.unwatched || elsewhere > hits/10 || uint64(hits) != r.info.Hits || uint64(hits+clocks) != r.info.Samples {
		t.Errorf("%d hits, %d elsewhere; the recorder counted %d", hits, elsewhere, r.info.Hits)
	}
	out, err := exec.Command("perf", "report", "-f", "-i", filepath.Join(r.dir, sample.PerfFile), "--stdio", "--sort", "sym").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "cpu-clock:u") || strings.Contains(string(out), "mem:watched") == r.unwatched || !strings.Contains(string(out), "work") {
		t.Errorf("perf: %v\n%s", err, out)
	}
}

// A small budget is kept by sampling less. Children are left out if they are not followed.
func TestBudget(t *testing.T) {
	r := sampledRun(t, TimerOptions{})
	s, err := sample.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, th := range s.Threads {
		if th.PID != s.Threads[0].PID && len(th.Samples) > 0 {
			t.Errorf("%d samples of process %d", len(th.Samples), th.PID)
		}
	}
	r = sampledRun(t, TimerOptions{Budget: 1e-5})
	if want := r.cpu * float64(r.info.Frequency); float64(r.info.Samples) > want/2 {
		t.Errorf("%d samples, without a budget there would be %.0f", r.info.Samples, want)
	}
	t.Logf("%d samples of %.0f, cost %v", r.info.Samples, r.cpu*float64(r.info.Frequency), r.info.Cost)
}

// Switches to known threads are counted, and those to threads beyond are taken to be as many. A program of nothing but switches cost 1.6 times its CPU time with a
// budget of 2%, since turning the clock on at each of them was paid by nobody.
func TestSwitches(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := newWatchpoints(&timerEvents(1, false)[eventWatchAll].Attr, nil)
	defer w.close()
	fork := func(kind perf.Type, tid int) { // pid, ppid, tid, ptid, time
		body := make([]byte, 24)
		binary.LittleEndian.PutUint32(body, uint32(os.Getpid()))
		binary.LittleEndian.PutUint32(body[8:], uint32(tid))
		w.task(kind, 0, body)
	}
	fork(perf.TypeFork, unix.Gettid())
	const sleeps = 20
	rest := func() uint64 {
		for range sleeps {
			unix.Nanosleep(&unix.Timespec{Nsec: 1_000_000}, nil)
		}
		return w.switches()
	}
	n := rest()
	if n < sleeps {
		t.Errorf("%d switches in %d sleeps", n, sleeps)
	}
	if again := w.switches(); again > n/2 { // there was hardly time for any
		t.Errorf("%d were counted twice", again)
	}
	for tid := range mostWatched + 1 {
		fork(perf.TypeFork, -1-tid) // no thread has such a number
	}
	if w.unknown != 2 {
		t.Fatalf("%d threads are unknown", w.unknown)
	}
	fork(perf.TypeExit, -1-mostWatched)
	if w.unknown != 1 || len(w.threads) != mostWatched {
		t.Errorf("%d threads are unknown, %d known", w.unknown, len(w.threads))
	}
	for range mostWatched/8 - 1 {
		if n := w.switches(); n != 0 {
			t.Errorf("with many threads they are looked at at each call: %d", n)
		}
	}
	if n := rest(); n < sleeps {
		t.Errorf("%d switches in %d sleeps, in a crowd", n, sleeps)
	}
}

// The clock interrupts system calls, too, though it gives no samples of them. A program of little else was interrupted four times as often as was paid for.
func TestInterrupts(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := perf.Attr{Type: typeSoftware, Config: taskClock, Flags: perf.FlagExcludeHV}
	e, err := open(&a, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	tm := &Timer{freq: 1000, costs: costs{sample: 1}, tasks: []event{e}, watch: newWatchpoints(&timerEvents(1, false)[eventWatchAll].Attr, nil)}
	defer tm.watch.close()
	tm.cpuTime = threadTime()
	begin := threadTime()
	for threadTime() < begin+0.02 { // a system call
	}
	end := threadTime()
	if err := tm.account(1, 0); err != nil {
		t.Fatal(err)
	}
	if least := (end - begin) * 1000; tm.purse.spent < least*0.9 {
		t.Errorf("spent %v for %v interrupts", tm.purse.spent, least)
	}
}

// A page fault costs more while breakpoints are set, where it is an exit to a hypervisor. pbzip2 lost 4% with a budget of 2%, since nobody paid for that. Faults without breakpoints cost nothing.
func TestFaults(t *testing.T) {
	const pages = 100
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := perf.Attr{Type: typeSoftware, Config: taskClock, Flags: perf.FlagExcludeHV}
	e, err := open(&a, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	// Our own time counts from here on: a thread of the tests before, which under the race detector had run for more than a second, was told as a fault.
	tm := &Timer{costs: costs{fault: 1}, cpuTime: threadTime(), tasks: []event{e}, watch: newWatchpoints(&timerEvents(1, false)[eventWatchAll].Attr, nil)}
	defer tm.watch.close()
	faults := func() (paid float64) {
		before := tm.purse.spent
		m, err := unix.Mmap(-1, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Madvise(m, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // a kernel without huge pages
			t.Fatal(err)
		}
		for i := 0; i < len(m); i += os.Getpagesize() {
			m[i] = 1
		}
		if err := unix.Munmap(m); err != nil {
			t.Fatal(err)
		}
		for range looksFaults {
			if err := tm.account(0, 0); err != nil {
				t.Fatal(err)
			}
		}
		return tm.purse.spent - before
	}
	if paid := faults(); paid >= 1 {
		t.Errorf("%v faults without breakpoints", paid)
	}
	at := place{os.Getpid(), uint64(uintptr(unsafe.Pointer(&bystanders[0])))}
	tm.watch.watch(0, at)
	if paid := faults(); paid < pages {
		t.Errorf("paid for %v of %d faults", paid, pages)
	}
	tm.watch.watch(0, place{}) // ours is told a last time, and no more
	faults()
	if paid := faults(); paid >= pages {
		t.Errorf("%v faults of a process that has no breakpoints now", paid)
	}
	tm.watch.watch(0, at)
	tm.watch.rest()
	if paid := faults(); paid >= 1 {
		t.Errorf("%v faults while sampling rests", paid)
	}
}

// What the conversion says of two moments is what was read there, and between them it is even.
func TestConversion(t *testing.T) {
	a := pair{1_000_000_000_000, 5_000_000_000}
	b := pair{a.tsc + 27_000_000, a.ns + 10_000_000} // 2.7 GHz
	c := conversion(a, b)
	for _, p := range []pair{a, b, {a.tsc + 13_500_000, a.ns + 5_000_000}} {
		if d := int64(c.Time(p.tsc) - p.ns); d < -2 || d > 2 {
			t.Errorf("TSC %d is %d, want %d", p.tsc, c.Time(p.tsc), p.ns)
		}
		if d := int64(c.TSC(p.ns) - p.tsc); d < -8 || d > 8 {
			t.Errorf("time %d is TSC %d, want %d", p.ns, c.TSC(p.ns), p.tsc)
		}
	}
	conversion(a, a) // two moments that are one give no division by zero
}
