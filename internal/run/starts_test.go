package run

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A program does most of what ends epochs when it begins (a user's rights, extended maps, descriptors closed); the next end was to be had no sooner than twenty times as long as the last one took, which is longer than short programs live, so who wrote behind a block was not told. The first ends of a process are had at once, as long as
// they take 5 ms in all.
func TestCauseOfShortPrograms(t *testing.T) {
	ofAgent(t)
	const credit = 4 * time.Millisecond
	native := finish(t, exec.Command(path("starts")))
	r := finish(t, command(t, map[string]any{"Stats": true, "ExitCode": 0, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("starts")))
	if native.code != 3 || r.code != 3 {
		t.Fatalf("%+v\nnatively %+v", r, native)
	}
	if strings.Contains(r.stderr, "\n  Written here") && strings.Contains(r.stderr, "// written here\n") {
		return
	}
	// By the clock, so a busy machine uses it up.
	m := regexp.MustCompile(`guard, time at their ends +(\S+)\n`).FindStringSubmatch(r.stderr)
	if m == nil {
		t.Fatalf("nothing is said of its ends: %s", r.stderr)
	}
	if took, err := time.ParseDuration(m[1]); err == nil && took > credit {
		t.Skipf("its ends took %s", m[1])
	}
	t.Errorf("%s", r.stderr)
}
