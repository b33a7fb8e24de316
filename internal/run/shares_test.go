package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Threads that take their work by a count (`next.fetch_add(8)`, OpenMP's dynamic schedules) got other parts of it in each re-execution: of five epochs of such programs four ended with other memory, or other calls.
func TestEpochsOfShares(t *testing.T) {
	ofAgent(t)
	for _, kind := range []string{"loop", "looks", "omp"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			native := finish(t, exec.Command(path("shares"), kind))
			all := 0
			for range 4 {
				r, counts := epochsOf(t, 20*time.Millisecond, path("shares"), kind)
				if r != native {
					t.Errorf("%+v, natively %+v", r, native)
				}
				t.Log(counts)
				noOther(t, counts)
				for name, n := range counts {
					if strings.HasPrefix(name, "executed again: ") {
						all += n
					}
				}
			}
			if all < 4 {
				t.Errorf("%d epochs were executed again", all)
			}
		})
	}
}
