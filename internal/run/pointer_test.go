package run

import (
	"strings"
	"testing"
	"time"
)

// A crash's report says who wrote the pointer that the instruction used, the last write first: its epoch was executed again with the place watched that the pointer was read from.
func TestPointerOfCrash(t *testing.T) {
	for _, args := range [][]string{{path("pointer")}, {path("pointer"), "null"}} {
		r := finish(t, command(t, map[string]any{"ExitCode": 66, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, args...))
		if r.stdout != "begun\n" || r.code != 66 || strings.Count(r.stderr, "WARNING:") != 1 {
			t.Errorf("status %d, %q", r.code, r.stdout)
		}
		_, written, _ := strings.Cut(r.stderr, "was written here in main thread:")
		last, before, _ := strings.Cut(written, "Before that, 0x")
		want := "#0 spoil "
		if len(args) > 1 {
			want = "#0 main "
		}
		if !strings.HasPrefix(strings.TrimSpace(last), want) || (len(args) == 1) != strings.Contains(before, "was written to the same place here in main thread:\n    #0 main ") {
			t.Errorf("%s", r.stderr)
		}
	}
}
