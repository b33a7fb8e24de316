package race

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
)

// A stack is remembered by the frame that its function was called from, and what of it was told before is recognised by words of the stack. Each instruction had walked for itself before, of which a start of node took a fifth.
func TestFullWays(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/ways/ways.c"
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, name := range []string{"right", "far"} {
		before, _, ok := strings.Cut(string(text), "// way: "+name)
		if !ok {
			t.Fatal(name)
		}
		lines[name] = 1 + strings.Count(before, "\n")
	}
	for _, level := range []string{"-O0", "-O1", "-O2"} {
		exe := build(t, source, level, "-fno-inline", "-fno-optimize-sibling-calls")
		for range 2 {
			found := runFull(t, runner, exe)
			if len(found) == 0 {
				t.Fatalf("%s: nothing is found", level)
			}
			for _, f := range found {
				seen := false
				for _, p := range f.Parts {
					if s := p.Stack; len(s) > 2 && s[1].Line == lines["right"] && s[2].Line == lines["far"] {
						seen = true
					}
				}
				if !seen {
					t.Errorf("%s: %s: not by lines %d and %d: %v", level, f.Message, lines["right"], lines["far"], f.Parts)
				}
			}
		}
	}
}

// A pipe was remembered for good: 140 bytes each, up to two million of them, in lists of a hundred by then.
func TestFullManyPipes(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	exe := build(t, "testdata/ways/many.c", "-O1")
	found := runFull(t, runner, exe)
	for _, f := range found {
		if len(f.Objects) != 1 || f.Objects[0].Symbol != "raced" {
			t.Errorf("%+v", f)
		}
	}
	if len(found) != 1 {
		t.Errorf("%d races, want that of raced", len(found))
	}
}

// What an access is told with is remembered by the locks that were held, of more than two by a sum of all; nothing showed that a report has the locks of the access that raced, and not those that the same instruction was told with before.
func TestFullHeld(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	want := map[string]string{"0": "a b c", "1": "d b c", "2": "a d c", "3": "b a c", "4": "d a b c", "5": "a again c", "6": "a b d", "7": "a c", "8": "b c"}
	for _, level := range []string{"-O0", "-O2"} {
		exe := build(t, "testdata/ways/held.c", level, "-D_GNU_SOURCE")
		got := map[string]string{}
		for _, f := range runFull(t, runner, exe) {
			symbol := map[string]string{}
			for _, o := range f.Objects {
				symbol[o.ID] = o.Symbol
			}
			_, way, _ := strings.Cut(f.Message, "places[")
			way, _, _ = strings.Cut(way, "]")
			for _, p := range f.Parts {
				if strings.Contains(p.Text, "rite of") {
					got[way] = strings.Join(heldBy(p, symbol), " ")
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", level, got, want)
		}
	}
}

func heldBy(p finding.Part, symbol map[string]string) (names []string) {
	for _, h := range p.Held {
		names = append(names, symbol[h.Object])
	}
	return names
}

// A site has one number for as long as the process lives, however many there are: here a fifth of a million of two threads. And no time of a thread begins with a lock that it gives back as long as it is the only one there ever
// was: each would make all that it accesses new.
func TestAgentSites(t *testing.T) {
	if out, err := exec.Command(driverOf(t, "race_sites")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
