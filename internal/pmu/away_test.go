package pmu

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/tsc"
)

// A changing is testdata/changes.c.
type changing struct {
	t    *testing.T
	cmd  *exec.Cmd
	exe  string
	tell func(string)
	said *bufio.Reader
}

func startChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{t: t, exe: filepath.Join(t.TempDir(), "changes")}
	if out, err := exec.Command("gcc", "-O1", "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", c.exe, "testdata/changes.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.cmd = exec.Command(c.exe)
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.said = bufio.NewReader(out)
	c.tell = func(s string) {
		if _, err := in.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("the program: %v", err)
		}
	})
	return c
}

// do lets the program change, and gives the thread id that it answers with.
func (c *changing) do(what string) (tid int) {
	c.t.Helper()
	c.tell(what)
	line, err := c.said.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &tid)
	}
	if err != nil {
		c.t.Fatalf("%s: %v, %q", what, err, line)
	}
	return tid
}

// A program whose switches alone would cost the budget is let go and attached to again. What it did meanwhile stands in the recording: threads that ended and began, a child, a program that was
// executed; and what it does then is told by the kernel again. What did not change is not told twice.
func TestAway(t *testing.T) {
	c := startChanging(t)
	pid := c.cmd.Process.Pid
	one, two := c.do("t"), c.do("t")
	dir := t.TempDir()
	tm, err := NewTimer(TimerOptions{Dir: dir, Budget: 0.02, Follow: true, Seed: 1})
	if err == nil {
		err = tm.attachRunning(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	pass := func() {
		t.Helper()
		if _, err := tm.pass(); err != nil {
			t.Fatal(err)
		}
	}
	away := func(do func()) (from, to uint64) {
		t.Helper()
		from = tsc.Now()
		tm.leave()
		if len(tm.tasks)+len(tm.sides)+len(tm.clocks) > 0 || len(tm.watch.threads) > 0 {
			t.Fatal("something is attached")
		}
		pass()
		if len(tm.rings)+len(tm.buffers) > 0 {
			t.Fatal("events of ours are there")
		}
		do()
		pass()
		if tm.away == nil {
			t.Fatal("it came back with nothing in the purse")
		}
		to = tsc.Now()
		if err := tm.comeBack(); err != nil {
			t.Fatal(err)
		}
		pass()
		return from, to
	}
	away(func() {})
	var three, child int
	from, to := away(func() {
		c.do("e")
		three, child = c.do("t"), c.do("f")
	})
	four := c.do("t")
	pass()
	begun, _ := away(func() { c.do("x") })
	code, err := codeMapped(pid)
	if err != nil {
		t.Fatal(err)
	}
	tm.closeAll()
	if err := tm.out.Close(); err != nil {
		t.Fatal(err)
	}
	if tm.absences != 3 || tm.refused != nil {
		t.Errorf("%d absences, %v", tm.absences, tm.refused)
	}

	s, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	type life struct{ starts, ends bool } // between from and to
	want := map[int]life{pid: {}, one: {ends: true}, two: {}, three: {starts: true}, child: {starts: true}, four: {}}
	for _, th := range s.Threads {
		w, ok := want[int(th.TID)]
		delete(want, int(th.TID))
		in := func(at uint64) bool { return at >= from && at <= to }
		if !ok || in(th.Start) != w.starts || w.ends && th.End < from {
			t.Errorf("thread %d of %d, from %d to %d (away from %d to %d): it is unknown, told twice, or has another life", th.TID, th.PID, th.Start, th.End, from, to)
		}
		if gone := int(th.TID) != pid && int(th.TID) != child; gone != (th.End != 0) { // what executes ends all others
			t.Errorf("thread %d ends at %d", th.TID, th.End)
		}
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
	for _, p := range []int{pid, child} {
		all := s.Epochs(int32(p))
		if !slices.ContainsFunc(all, func(e sample.Epoch) bool {
			return slices.ContainsFunc(e.Mappings, func(m sample.Mapping) bool { return m.Path == c.exe })
		}) {
			t.Errorf("process %d has no code: %+v", p, all)
		}
	}
	all := s.Epochs(int32(pid))
	if last := all[len(all)-1]; last.From < begun || !slices.EqualFunc(last.Mappings, code, func(a sample.Mapping, b tracee.Mapping) bool {
		return a.Start == uint64(b.Start) && a.Offset == b.Offset
	}) {
		t.Errorf("the program that was executed since %d has %+v, want %+v", begun, last, code)
	}
	if len(all) != 2 {
		t.Errorf("%d address spaces, executed once", len(all))
	}
}

// A process that has the number of one that was let go is another one, and is left alone.
func TestAnother(t *testing.T) {
	before := tsc.Now() - tsc.Frequency() // of a second ago, as starts of processes are known to a hundredth
	c := startChanging(t)
	pid := c.cmd.Process.Pid
	c.do("t")
	tm := &Timer{o: TimerOptions{Follow: true}}
	for _, w := range []struct {
		since uint64
		found int
	}{{tsc.Now(), 1}, {before, 0}} {
		found := tm.living(&absence{since: w.since, processes: map[int]*leftProcess{pid: {}}})
		if len(found) != w.found {
			t.Errorf("since %d: %v", w.since, found)
		}
	}
}

// A program is let go when being attached costs a good part of the budget while sampling pauses, and only then.
func TestLeave(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, idle := range []float64{1e-3, 0} { // what a switch costs at rest
		e, err := open(&perf.Attr{Type: typeSoftware, Config: taskClock, Flags: perf.FlagExcludeHV}, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		tm := &Timer{
			costs: costs{idle: idle, clocked: 2 * idle}, tasks: []event{e}, paused: true, processes: map[int]bool{os.Getpid(): true},
			watch: newWatchpoints(&timerEvents(1, false)[eventWatchAll].Attr, nil),
		}
		tm.purse = purse{share: 0.02, keep: 0.02, left: -1}
		tm.watch.know(os.Getpid(), unix.Gettid())
		tm.meter.byClocks(tm.processes)
		for range 20 {
			unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil)
		}
		tm.cpuTime = threadTime()
		if err := tm.account(0, 0); err != nil {
			t.Fatal(err)
		}
		if (tm.away != nil) != (idle > 0) {
			t.Errorf("%v a switch: away is %v, rest %+v", idle, tm.away, tm.resting)
		}
		if tm.away != nil && (tm.stay == 0 || tm.away.processes[os.Getpid()] == nil || tm.enough() < tm.purse.share*leastToSpend) {
			t.Errorf("%+v, %v", tm.away, tm.stay)
		}
		tm.closeAll()
	}
}
