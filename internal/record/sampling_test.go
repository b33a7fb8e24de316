package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// locked builds testdata/locked.c and gives the address of its counter.
func locked(t *testing.T) (exe string, counter uint64) {
	t.Helper()
	exe = filepath.Join(t.TempDir(), "locked")
	if out, err := exec.Command("gcc", "-g", "-O1", "-no-pie", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/locked.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("nm", exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^([0-9a-f]+) . counter$`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no counter in\n%s", out)
	}
	counter, _ = strconv.ParseUint(string(m[1]), 16, 64)
	return exe, counter
}

// A section is a time in which a thread held the lock.
type section struct{ from, to uint64 }

// sections gives those of a trace, by thread id.
func sections(t *testing.T, dir string) map[int32][]section {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	all, tids := map[int32][]section{}, map[uint32]int32{}
	err = tr.Events(func(_ uint64, e *wire.Event) error {
		switch e.Type {
		case wire.TypeThreadStart:
			tids[e.Thread] = int32(wire.DecodeThreadStart(e.Words).TID)
		case wire.TypeAcquire:
			all[tids[e.Thread]] = append(all[tids[e.Thread]], section{e.TS, 0})
		case wire.TypeRelease:
			list := all[tids[e.Thread]]
			if len(list) == 0 || list[len(list)-1].to != 0 {
				t.Fatalf("thread %d releases what it has not", e.Thread)
			}
			list[len(list)-1].to = e.TS
		}
		return nil
	})
	if err != nil || tr.Truncated() != "" {
		t.Fatal(err, tr.Truncated())
	}
	return all
}

// What a stepped program accesses lies in time between the events of its locks as in its code: samples and the spine's trace have one clock.
func TestSampledStep(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: what records is another process, built without the race detector")
	}
	exe, counter := locked(t)
	dir := filepath.Join(t.TempDir(), "trace")
	o := Options{Dir: dir, Follow: true, StackDepth: 4, Sampling: Sampling{Mode: sample.Step, Period: 1, Seed: 5}}
	code, stdout, stderr := runner(t, "record", o, exe)
	if code != 3 || stdout != "80\n" || stderr != "" {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	held := sections(t, dir)
	s, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stores := 0
	for _, th := range s.Threads {
		for _, sm := range th.Samples {
			if sm.Kind != sample.StoreEvent || sm.Addr != counter {
				continue
			}
			stores++
			inside := 0
			for _, c := range held[th.TID] {
				if c.from < sm.TSC && sm.TSC < c.to {
					inside++
				}
			}
			if inside != 1 {
				t.Errorf("thread %d: the store at %d is in %d of its critical sections %v", th.TID, sm.TSC, inside, held[th.TID])
			}
			for tid, list := range held {
				for _, c := range list {
					if tid != th.TID && c.from < sm.TSC && sm.TSC < c.to {
						t.Errorf("thread %d: the store at %d is in a critical section of thread %d", th.TID, sm.TSC, tid)
					}
				}
			}
		}
	}
	if stores != 80 {
		t.Errorf("%d stores, want 80", stores)
	}
	// Who reads it is told of what looks for races in it, and behind a recording without samples of another.
	looks := func() string {
		_, _, stderr := runner(t, "report", ReportOptions{Dir: dir, Report: report.Options{Verbose: true}})
		return stderr
	}
	if said := looks(); !strings.Contains(said, "'ripstop analyze' looks for them") {
		t.Errorf("%q", said)
	}
	// A second recording takes its place.
	if code, _, stderr := runner(t, "record", Options{Dir: dir, Follow: true}, exe); code != 3 {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, sample.PerfFile)); !os.IsNotExist(err) {
		t.Errorf("the older samples are still there: %v", err)
	}
	if said := looks(); !strings.Contains(said, "'ripstop run --full'") {
		t.Errorf("%q", said)
	}
}

// Without a PMU, asking for one is an error of one line, before anything was made; auto says what it takes instead, and why.
func TestSampledWithoutPMU(t *testing.T) {
	if _, err := os.Stat("/sys/bus/event_source/devices/cpu"); err == nil {
		t.Skip("this machine has a PMU")
	}
	exe, _ := locked(t)
	dir := filepath.Join(t.TempDir(), "trace")
	code, stdout, stderr := runner(t, "record", Options{Dir: dir, Sampling: Sampling{Mode: sample.PMU}}, exe)
	if code != 125 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "--sample=pmu") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
	code, stdout, stderr = runner(t, "record", Options{Dir: dir, Follow: true, Sampling: Sampling{Mode: sample.Auto, Budget: 0.02}}, exe)
	lines := 1
	if hit, known := tracee.BreakpointsHit(); known && !hit {
		lines++ // that they are not is said
	}
	if code != 3 || stdout != "80\n" || strings.Count(stderr, "\n") != lines || !strings.Contains(stderr, "sampled by timer") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if i, err := sample.ReadInfo(dir); err != nil || i.Mode != sample.Timer || !i.Complete || !strings.Contains(i.Why, "PMU") {
		t.Errorf("%+v, %v", i, err)
	}
}
