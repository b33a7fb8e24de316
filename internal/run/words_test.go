package run

import (
	"os/exec"
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

// A handler that the kernel begins between the two hooks of a word changes words itself: where one of them shares the other's object its thread waited for itself, for two seconds each time, and all others with it: 20 s in place of one.
func TestWordsInHandlers(t *testing.T) {
	ofAgent(t)
	begun := time.Now()
	native := finish(t, exec.Command(path("interrupted")))
	took := time.Since(begun)
	begun = time.Now()
	r := finish(t, command(t, map[string]any{"ExitCode": 66, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 20}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("interrupted")))
	if r != native || native.code != 3 {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
	if under := time.Since(begun); under > 3*took+2*time.Second {
		t.Errorf("%v, natively %v", under, took)
	}
}
