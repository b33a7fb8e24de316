package pmu

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/tsc"
)

// standIn is a plan for a server with other events in place of the processor's, which every machine has: clocks, with periods in nanoseconds of CPU time, for loads and
// stores, and nothing for control flow. Whatever opens, drains and writes is the same.
func standIn(t *testing.T, period uint64) *Plan {
	t.Helper()
	p, err := MakePlan(server, devices(t, nil), period, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, config := range []uint64{dummy, cpuClock, taskClock} {
		p.Events[i].Attr.Type, p.Events[i].Attr.Config = typeSoftware, config
	}
	p.PMUs = nil
	return p
}

const standInPeriod = 1_000_000

// The recorder gives each thread its own events from its start, the first period by chance, and leaves a file that perf and we read, in the order of time, in which nothing
// is twice. With an event inherited, as in mode timer, all threads would have the first sample at the same place.
func TestRecorder(t *testing.T) {
	o := RecorderOptions{Plan: standIn(t, standInPeriod), Period: standInPeriod, Follow: true, Seed: 3}
	firsts := map[uint64]bool{} // first periods, to a tenth of the period
	for o.Seed = 1; o.Seed <= 2; o.Seed++ {
		var r *Recorder
		run := sampledBy(t, func(dir string) (attached, error) {
			o.Dir = dir
			o.Warn = func(s string) { t.Errorf("warned: %s", s) }
			var err error
			r, err = NewRecorder(o)
			return r, err
		})
		s := opened(t, run.dir)
		if s.Info.Mode != sample.PMU || !s.Info.Complete || !strings.Contains(s.Info.MissedStart, "after a thread's start (3 threads)") {
			t.Errorf("%+v", s.Info)
		}
		busy := 0
		for _, th := range s.Threads {
			var at [2][]uint64 // TSC of loads and stores
			for _, sm := range th.Samples {
				switch {
				case sm.Kind != sample.LoadEvent && sm.Kind != sample.StoreEvent:
					t.Fatalf("%+v", sm)
				case sm.Has != 1<<18-1 || sm.TSC < run.begin || sm.TSC > run.end || sm.TSC < th.Start || th.End != 0 && sm.TSC > th.End:
					t.Fatalf("thread %d, from %d to %d: %+v", th.TID, th.Start, th.End, sm)
				}
				k := sm.Kind - sample.LoadEvent
				if n := len(at[k]); n > 0 && at[k][n-1] >= sm.TSC {
					t.Fatalf("thread %d: a sample at %d behind one at %d", th.TID, sm.TSC, at[k][n-1])
				}
				at[k] = append(at[k], sm.TSC)
			}
			if len(at[0]) < 30 {
				continue
			}
			busy++
			if len(at[1]) < len(at[0])/2 || len(at[1]) > len(at[0])*2 {
				t.Errorf("thread %d: %d loads, %d stores", th.TID, len(at[0]), len(at[1]))
			}
			firsts[(at[0][0]-th.Start)*10_000/s.Info.Hz] = true
		}
		if busy != 3 {
			t.Errorf("%d threads have samples", busy)
		}
		out, err := exec.Command("perf", "report", "-f", "-i", filepath.Join(run.dir, sample.PerfFile), "--stdio", "--sort", "sym").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "cpu/mem_inst_retired.all_loads/uppp") || !strings.Contains(string(out), "work") {
			t.Errorf("perf: %v\n%s", err, out)
		}
	}
	if len(firsts) < 2 { // of six
		t.Errorf("all threads begin with the same period: %v", firsts)
	}
}

// A very short first period ends by itself, or its samples would stop the program until somebody looks; behind it comes the period that was asked for. The kernel may stop the event when it was enabled again already: one thread
// of a run on a busy machine had 263 loads and one store.
func TestFirstPeriod(t *testing.T) {
	const period = 1_000_000 // ns
	runtime.LockOSThread()   // whose events these are
	defer runtime.UnlockOSThread()
	r := &Recorder{attrs: make([]perf.Event, recFirst+1), ids: map[uint64]int{}}
	r.attrs[recFirst].Attr = standIn(t, period).Events[1].Attr
	e, err := r.open(recFirst, period/50, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	th := &sampledThread{events: []event{e}, first: []firstPeriod{{length: period / 50, once: true}}}
	defer r.closeThread(th)
	if th.ring, err = mapRing(e, 16); err != nil {
		t.Fatal(err)
	}
	samples := func(seconds float64) (n int) {
		for begin := threadTime(); threadTime() < begin+seconds; {
			wander()
		}
		if err := th.ring.drain(func(k perf.Type, _ perf.Misc, _ []byte) error {
			if k == perf.TypeSample {
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := e.ioctl(unix.PERF_EVENT_IOC_REFRESH, 1); err != nil {
		t.Fatal(err)
	}
	if n := samples(0.05); n != 1 {
		t.Errorf("%d samples of a first period", n)
	}
	th.sampled(0, period)
	if n := samples(0.1); n < 10 || n > 200 {
		t.Errorf("%d samples in 100 ms with a period of 1 ms", n)
	}
	if th.first[0] != (firstPeriod{again: agains}) {
		t.Errorf("%+v", th.first[0])
	}
	e.enable(false)
	th.enableAgain()
	if n := samples(0.1); n < 10 || n > 200 {
		t.Errorf("%d samples in 100 ms behind a late stop", n)
	}
	th.sampled(0, period)
	if th.first[0] != (firstPeriod{}) {
		t.Errorf("behind another sample: %+v", th.first[0])
	}
}

// A process that runs is attached to in both modes: threads that it has and those that it makes later are sampled, and when the recorder leaves, it is as it was.
func TestAttachRunning(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "running")
	if out, err := exec.Command("gcc", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/running.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	type running interface {
		AttachRunning(pid int) error
		Close() error
	}
	for _, mode := range []sample.Mode{sample.Timer, sample.PMU} {
		t.Run(string(mode), func(t *testing.T) {
			cmd := exec.Command(exe)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			out := bufio.NewReader(pipe)
			expect := func(want string) {
				t.Helper()
				if line, err := out.ReadString('\n'); err != nil || line != want+"\n" {
					t.Fatalf("it says %q, %v; want %q", line, err, want)
				}
			}
			expect("ready")
			before := statuses(t, cmd.Process.Pid)
			dir := t.TempDir()
			warn := func(s string) {
				if !strings.HasPrefix(s, "no breakpoints on this machine") {
					t.Errorf("warned: %s", s)
				}
			}
			var r running
			if mode == sample.Timer {
				r, err = NewTimer(TimerOptions{Dir: dir, Seed: 1, Warn: warn})
			} else {
				r, err = NewRecorder(RecorderOptions{Dir: dir, Plan: standIn(t, standInPeriod), Period: standInPeriod, Seed: 1, Warn: warn})
			}
			if err != nil {
				t.Fatal(err)
			}
			begin := tsc.Now()
			if err := r.AttachRunning(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			old, err := tracee.Threads(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(in, "more")
			expect("more")
			all, err := tracee.Threads(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			// Until each thread has worked for a while: what is waited for is CPU time.
			for _, tid := range all[1:] {
				waitCPU(t, cmd.Process.Pid, tid, 0.1)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			end := tsc.Now()
			if after := statuses(t, cmd.Process.Pid); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			for _, tid := range all[1:] { // and it goes on
				waitCPU(t, cmd.Process.Pid, tid, 0.02)
			}
			fmt.Fprintln(in, "end")
			expect("counts add up")
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("exit: %v", err)
			}
			s := opened(t, dir)
			if len(old) != 3 || len(all) != 5 || len(s.Threads) != 5 {
				t.Fatalf("%d threads, then %d; recorded %d", len(old), len(all), len(s.Threads))
			}
			inside := 0
			var tids []int
			for _, th := range s.Threads {
				tids = append(tids, int(th.TID))
				if len(th.Samples) == 0 && int(th.TID) != cmd.Process.Pid || th.Comm != "running" {
					t.Errorf("thread %d, %q, has %d samples", th.TID, th.Comm, len(th.Samples))
				}
				for _, sm := range th.Samples {
					if sm.TSC < begin || sm.TSC > end {
						t.Fatalf("a sample at %d, not in %d to %d", sm.TSC, begin, end)
					}
					for _, m := range s.Epochs(th.PID)[0].Mappings {
						if m.Path == exe && m.BuildID != "" && m.Start <= sm.IP && sm.IP < m.End {
							inside++
						}
					}
				}
			}
			slices.Sort(tids)
			if !slices.Equal(tids, all) || inside < 20 {
				t.Errorf("threads %v, recorded %v; %d samples in the program", all, tids, inside)
			}
			text, err := exec.Command("perf", "report", "-f", "-i", filepath.Join(dir, sample.PerfFile), "--stdio", "--sort", "sym").CombinedOutput()
			if err != nil || !strings.Contains(string(text), "work") {
				t.Errorf("perf: %v\n%s", err, text)
			}
		})
	}
	if err := (&Recorder{o: RecorderOptions{Plan: standIn(t, 1)}, cpus: map[int]*processor{}, epoll: -1}).AttachRunning(1 << 22); !errors.Is(err, tracee.ErrGone) {
		t.Errorf("a process that is none: %v", err)
	}
}

// statuses gives what the kernel tells of a process that a debugger or a signal would change: of the threads that it had at first.
func statuses(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(line, "State:") && !strings.Contains(line, "T (stopped)") && !strings.Contains(line, "t (tracing stop)") {
			line = "State: it runs or sleeps"
		}
		for _, name := range []string{"Name", "State", "TracerPid", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Seccomp"} {
			if strings.HasPrefix(line, name+":") {
				kept = append(kept, line)
			}
		}
	}
	return strings.Join(kept, "\n")
}

// waitCPU waits until a thread has used so much more CPU time, in seconds.
func waitCPU(t *testing.T, pid, tid int, more float64) {
	t.Helper()
	used := func() float64 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
		var ns float64
		if err == nil {
			_, err = fmt.Sscan(string(b), &ns)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ns * 1e-9
	}
	for begin := used(); used() < begin+more; {
		time.Sleep(5 * time.Millisecond)
	}
}

func opened(t *testing.T, dir string) *sample.Recording {
	t.Helper()
	s, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if len(s.Damage) > 0 {
		t.Fatal(s.Damage)
	}
	return s
}
