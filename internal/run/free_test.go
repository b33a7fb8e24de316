package run

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rustOf builds testdata/free.rs, where there is a compiler.
func rustOf(t *testing.T) string {
	t.Helper()
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	exe := filepath.Join(t.TempDir(), "free")
	if out, err := exec.Command(rustc, "--edition=2021", "-O", "-g", "-o", exe, "testdata/free.rs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// The order of what threads do to queues without a lock was nowhere in the log: of the epochs of mpsc channels, of std's Barrier, and of a queue of many producers and consumers, hardly one was the same where it was executed again. Nearly all are, as what is loaded there is in order, too.
func TestEpochsOfAtomicQueues(t *testing.T) {
	ofAgent(t)
	same := func(program ...string) {
		t.Run(filepath.Base(program[0])+" "+program[1], func(t *testing.T) {
			native := finish(t, exec.Command(program[0], program[1:]...))
			same, all, events := 0, 0, 0
			for range 6 {
				r, counts := epochsBy(t, map[string]any{"On": true, "Every": true, "Queues": true, "AllQueues": true, "Most": 20 * time.Millisecond}, program...)
				if r != native {
					t.Errorf("%+v, natively %+v", r, native)
				}
				t.Log(counts)
				same += counts["executed again: identical"] + counts["executed again: stack"]
				events += counts["events executed again"]
				for name, n := range counts {
					if strings.HasPrefix(name, "executed again: ") {
						all += n
					}
				}
				if all >= 8 {
					break
				}
			}
			if all < 3 || same*3 < all || events < 2000 {
				t.Errorf("%d of %d the same, %d events", same, all, events)
			}
		})
	}
	same(path("free-O0"), "counts", "20000")
	exe := rustOf(t)
	same(exe, "unbounded", "20000")
	same(exe, "bounded", "10000")
	same(exe, "zero", "4000")
	same(exe, "barrier", "4000")
}

// Who sent a bad pointer by a channel of Rust's was named in about half of the runs: whoever got it in a re-execution was another thread, or nobody.
func TestCauseAmongQueues(t *testing.T) {
	ofAgent(t)
	const runs, least = 5, 3
	named := func(by *regexp.Regexp, program ...string) {
		n := 0
		for range runs {
			r := finish(t, command(t, map[string]any{"ExitCode": 66, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 20}, "Epochs": map[string]any{"On": true, "Queues": true, "AllQueues": true, "Most": 10 * time.Second}}, program...))
			if r.code != 66 {
				t.Fatalf("%+v", r)
			}
			if by.MatchString(r.stderr) {
				n++
			} else {
				t.Logf("%s", r.stderr)
			}
		}
		if n < least {
			t.Errorf("%s: named in %d of %d", program[0], n, runs)
		}
	}
	named(regexp.MustCompile(`The pointer 0x7d0 that it used, read from 0x[0-9a-f]+, was written here in thread T4`), rustOf(t), "spoils")
}

// To order such a queue costs some 12 ns for each load and store, which made two million messages take a second in place of a tenth. Where that is more than a fiftieth of the threads' time it is left out for a while; where it is not, or a test wants it, it is not.
func TestBoundOfAtomicQueues(t *testing.T) {
	ofAgent(t)
	const without = "epochs without the order in queues of atomics"
	for _, c := range []struct {
		queues bool
		args   []string
		passed bool
	}{{false, []string{"counts", "300000"}, true}, {true, []string{"counts", "300000"}, false}, {false, []string{"calms", "2000"}, false}} {
		program := append([]string{path("free-O2")}, c.args...)
		native := finish(t, exec.Command(program[0], program[1:]...))
		r, counts := epochsBy(t, map[string]any{"On": true, "Queues": true, "AllQueues": c.queues, "Most": 100 * time.Millisecond}, program...)
		if r != native {
			t.Errorf("%v: %+v, natively %+v", c, r, native)
		}
		if passed := counts[without]; (passed > 0) != c.passed {
			t.Errorf("%v: %v", c, counts)
		}
	}
}
