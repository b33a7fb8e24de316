package run

import (
	"regexp"
	"testing"
	"time"
)

// Who put a bad pointer into a queue was named in two of eight runs where threads wait for that queue by C++20's semaphores: their order was nowhere, and whoever got that pointer in a re-execution was another thread at another time. It is named in all.
func TestCauseAmongWords(t *testing.T) {
	ofAgent(t)
	const runs, least = 6, 5
	by := regexp.MustCompile(`(?s)  The pointer 0x7d0 that it used, read from 0x[0-9a-f]+, L1 \(queue\[\d\]\), was written here in thread T5[^:]*:\n    #0 spoils`)
	named := 0
	for range runs {
		r := finish(t, command(t, map[string]any{"ExitCode": 66, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 20}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("handed")))
		if r.code != 66 {
			t.Fatalf("%+v", r)
		}
		if by.MatchString(r.stderr) {
			named++
		} else {
			t.Logf("%s", r.stderr)
		}
	}
	if named < least {
		t.Errorf("named in %d of %d", named, runs)
	}
}
