package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Each sched_yield was an event: how often a thread yields until another has done something is chance, so of loops that look and yield most epochs went another way (call-number, event), and nobody was named who wrote behind a block in one. A yield
// is none now, but a place at which an epoch may end: in most of these ends somebody yields.
func TestEpochsOfYields(t *testing.T) {
	ofAgent(t)
	for _, how := range []string{"meets", "looks", "hands", "executes", "told"} {
		for _, prog := range []string{"yields-O0", "yields-O2"} {
			t.Run(how+"/"+prog, func(t *testing.T) {
				native := finish(t, exec.Command(path(prog), how))
				r, counts := epochsOf(t, 10*time.Millisecond, path(prog), how)
				if r != native {
					t.Errorf("%+v\nnatively %+v", r, native)
				}
				t.Log(counts)
				if counts["executed again: identical"]+counts["executed again: stack"] < 3 {
					t.Errorf("%v", counts)
				}
				noOther(t, counts)
			})
		}
	}
}

// The epoch of a program with std::stop_token went another way in each run, by tens of thousands of yields, and who wrote was never named.
func TestCauseAmongYields(t *testing.T) {
	ofAgent(t)
	r, counts := countsOf(t, map[string]any{"Stats": true, "ExitCode": 0, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 20}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("stops"))
	if !strings.Contains(r.stderr, "\n  Written here in thread T4") || !strings.Contains(r.stderr, "// written here\n") || counts["executed again: identical"] != 1 {
		t.Errorf("%v\n%s", counts, r.stderr)
	}
}

// A crash among threads that wait for each other by yields: re-executions went another way by the number of yields; and once yields were no events, threads waited, each behind its last one, for the crash's thread to pass, and that for them at the barrier: 40 waits in vain, a fifth of a second each.
func TestCrashAmongYields(t *testing.T) {
	ofAgent(t)
	r, counts := countsOf(t, map[string]any{"Stats": true, "ExitCode": 66, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 20}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("lookers"))
	t.Log(counts, strings.Contains(r.stderr, "was written here"))
	if r.code != 66 || counts["executed again: identical"] != 1 || counts["waits in vain"] > 20 || !strings.Contains(r.stderr, "Note: The crash was reproduced") {
		t.Errorf("status %d, %v\n%s", r.code, counts, r.stderr)
	}
}
