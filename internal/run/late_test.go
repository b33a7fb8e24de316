package run

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// While epochs are recorded a deadlock is told as it happens, and the program is ended or goes on as --on-deadlock says. Before, whoever had a deadlock under `guard --epochs` waited for ever.
func TestEpochsDeadlock(t *testing.T) {
	ofAgent(t)
	for name, how := range map[string]map[string]any{
		"as it is used":                {"On": true, "Most": 10 * time.Second},
		"across ends":                  {"On": true, "Most": 50 * time.Millisecond},
		"each epoch is executed again": {"On": true, "Every": true, "Most": 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := finish(t, command(t, map[string]any{"Epochs": how}, path("deadlock")))
			if r.code != 66 || !slices.Equal(summaries(r.stderr), []string{"deadlock"}) {
				t.Fatalf("status %d, %s", r.code, r.stderr)
			}
			for _, want := range []string{"held by T2", "held by T3", "#0 one ", "#0 other ", "Where the locks were taken is not known", "all threads of process"} {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("no %q in\n%s", want, r.stderr)
				}
			}
		})
	}
	on := map[string]any{"On": true, "Most": 10 * time.Second}
	cmd := command(t, map[string]any{"OnDeadlock": "abort", "ExitCode": 0, "Epochs": on}, path("deadlock"))
	cmd.Dir = t.TempDir()
	if r := finish(t, cmd); r.signal != syscall.SIGABRT || !slices.Contains(summaries(r.stderr), "deadlock") {
		t.Errorf("abort: exit %d, signal %v\n%s", r.code, r.signal, r.stderr)
	}
	p := startProgram(t, command(t, map[string]any{"OnDeadlock": "continue", "Epochs": on}, path("deadlock")))
	p.expectError("SUMMARY: ripstop: deadlock")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 66 {
		t.Errorf("continue: exit %d", code)
	}
	// Not all threads are stuck: the program goes on.
	p = startProgram(t, command(t, map[string]any{"Epochs": on}, path("deadlock"), "x"))
	p.expectError("SUMMARY: ripstop: deadlock")
	p.in.Close()
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 66 {
		t.Errorf("part: exit %d", code)
	}
}

// Waits that last and end well are no deadlocks, whatever was told of them, and an epoch in which they were told comes out the same.
func TestEpochsOfLastingWaits(t *testing.T) {
	for _, program := range [][]string{{path("lasting")}, {path("lasting"), "jump"}} {
		for _, how := range []map[string]any{{"On": true}, {"On": true, "Most": 20 * time.Millisecond}, {"On": true, "Every": true, "Most": 20 * time.Millisecond}} {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				r, counts := epochsBy(t, how, program...)
				if r != (result{code: 3, stdout: "over\n"}) {
					t.Errorf("%v, %v: %+v", program, how, r)
				}
				t.Log(counts)
				noOther(t, counts)
			})
		}
	}
}
