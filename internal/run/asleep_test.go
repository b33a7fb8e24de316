package run

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program whose threads waited for each other in anything but the C library's locks (std::latch, std::promise, an own lock on a futex) hung for ever under `run` and `guard`, and not a word was said.
// Later one whose first thread had been seen awake, and then ended, was taken for awake for good.
func TestSleepsForGood(t *testing.T) {
	for kind, want := range map[string][]string{
		"latch":     {"T2 at futex F1 (gate), the main thread for the end of another thread", "std::latch::wait", "global 'gate' in sleeping", "Waits for the end of another thread in main thread"},
		"heap":      {"heap block of size 4", "allocated by:", "sleeping.cc:"},
		"semaphore": {"std::counting_semaphore<4l>::acquire", "on the stack of main thread"},
		"barrier":   {"std::barrier"},
		"promise":   {"the main thread at futex F1", "std::future<int>::get"},
		"atomic":    {"global 'word' in sleeping"},
		"lock":      {"global 'own' in sleeping", "own_lock::lock"},
		"first":     {"global 'gate' in sleeping"},
		"mixed":     {"global 'gate' in sleeping", "Waits for condition variable"},
	} {
		for how, options := range map[string]map[string]any{"run": nil, "guard": {"Epochs": map[string]any{"On": true, "Most": 10 * time.Second}, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 10}}} {
			t.Run(how+"/"+kind, func(t *testing.T) {
				t.Parallel()
				r := finish(t, command(t, options, path("sleeping"), kind))
				if r.code != 66 || r.stdout != "" || !slices.Equal(summaries(r.stderr), []string{"hang"}) || !strings.Contains(r.stderr, "all threads of process") || strings.Contains(r.stderr, "no stack was taken") {
					t.Fatalf("status %d, %q, %s", r.code, r.stdout, r.stderr)
				}
				for _, w := range want {
					if how == "guard" && kind == "heap" && w != "sleeping.cc:" {
						continue // while epochs are recorded nobody asks for the block
					}
					if !strings.Contains(r.stderr, w) {
						t.Errorf("no %q in\n%s", w, r.stderr)
					}
				}
			})
		}
	}
	t.Run("abort", func(t *testing.T) {
		t.Parallel()
		cmd := command(t, map[string]any{"OnDeadlock": "abort", "ExitCode": 0}, path("sleeping"), "latch")
		cmd.Dir = t.TempDir()
		if r := finish(t, cmd); r.signal != syscall.SIGABRT || !slices.Equal(summaries(r.stderr), []string{"hang"}) {
			t.Errorf("exit %d, signal %v\n%s", r.code, r.signal, r.stderr)
		}
	})
	t.Run("continue", func(t *testing.T) {
		t.Parallel()
		p := startProgram(t, command(t, map[string]any{"OnDeadlock": "continue"}, path("sleeping"), "latch"))
		p.expectError("SUMMARY: ripstop: hang")
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.wait()
		if code := p.cmd.ProcessState.ExitCode(); code != 66 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("rust", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("rustc"); err != nil {
			t.Skip("there is no rustc")
		}
		exe := path("sleepingrs")
		if out, err := exec.Command("rustc", "-g", "-o", exe, "testdata/sleeping.rs").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		r := finish(t, command(t, nil, exe))
		if r.code != 66 || !slices.Equal(summaries(r.stderr), []string{"hang"}) || !strings.Contains(r.stderr, "sleeping::takes") || !strings.Contains(r.stderr, "allocated by") {
			t.Errorf("%+v", r)
		}
	})
}

// Who sleeps for longer than a hang takes to be believed, and is woken then: by a timeout, another thread, a signal, a timer, another process.
func TestSleepsAndWakes(t *testing.T) {
	for _, kind := range []string{"timeout", "sleeps", "handler", "timer", "sent", "shared", "memory", "handed"} {
		for how, options := range map[string]map[string]any{"run": nil, "guard": {"Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}} {
			t.Run(how+"/"+kind, func(t *testing.T) {
				t.Parallel()
				if r := finish(t, command(t, options, path("sleeping"), kind)); r.code != 3 || r.stdout != "over\n" || len(summaries(r.stderr)) != 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}
