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
