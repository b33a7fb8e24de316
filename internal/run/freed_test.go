package run

import (
	"strings"
	"testing"
)

// After four frees of a call in a wrapper most are given the stack of an earlier one of that depth: a double free was reported as freed first by another caller of the wrapper,
// and the report said nothing of it. It says now from which frame on that may be so; of a stack that is the free's own it says nothing.
func TestFreedFirst(t *testing.T) {
	const doubt = "may have had another caller"
	for _, c := range []struct {
		args  []string
		doubt bool
	}{{nil, true}, {[]string{"alone"}, false}} {
		r := finish(t, command(t, nil, append([]string{path("freed")}, c.args...)...))
		_, first, ok := strings.Cut(r.stderr, "Freed first here")
		if !ok || !strings.Contains(first, "drop ") || strings.Contains(first, doubt) != c.doubt || !c.doubt && !strings.Contains(first, "second_drops ") {
			t.Errorf("%v: %s", c.args, r.stderr)
		}
	}
}
