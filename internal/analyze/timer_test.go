package analyze

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/sample"
)

// clocked records a program in mode timer, with a seed of its own.
func clocked(t testing.TB, exe string, budget float64, args ...string) (dir string) {
	t.Helper()
	run, err := runner()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "trace")
	o, _ := json.Marshal(map[string]any{"Dir": dir, "Follow": true, "StackDepth": 24, "Sampling": map[string]any{"Mode": "timer", "Budget": budget}})
	if out, err := exec.Command(run, append([]string{string(o), "record", exe}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// A timedResult is what came of some runs of a program in mode timer.
type timedResult struct {
	runs, found int
	hits        uint64
}

type timedCell struct {
	program string
	budget  float64
}

// timedResults reads what earlier runs left in a file, a line each: program, budget, found (0 or 1), hits.
func timedResults(t *testing.T, path string) map[timedCell]timedResult {
	t.Helper()
	all := map[timedCell]timedResult{}
	b, err := os.ReadFile(path)
	if path == "" || errors.Is(err, os.ErrNotExist) {
		return all
	}
	for line := range strings.Lines(string(b)) {
		var c timedCell
		var found int
		var hits uint64
		if _, e := fmt.Sscan(line, &c.program, &c.budget, &found, &hits); err != nil || e != nil {
			t.Fatalf("%s: %q: %v", path, line, errors.Join(err, e))
		}
		r := all[c]
		all[c] = timedResult{r.runs + 1, r.found + found, r.hits + hits}
	}
	return all
}

func keepTimed(t *testing.T, path, line string) {
	t.Helper()
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The table of mode timer in docs/recovery.md, measured anew with RIPSTOP_SOAK=1: each of the racy programs, made to run for about a second of CPU time, is recorded on this machine
// RIPSTOP_RUNS times (100). None may ever give a race that its source does not state, and made right none at all. All programs take turns, and RIPSTOP_RESULTS names a file that keeps
// each run, so that what was stopped goes on from there.
func TestTimerTable(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestWatched runs the same code")
	}
	soak, runs, kept := os.Getenv("RIPSTOP_SOAK") == "1", 1, ""
	if soak {
		runs, kept = 100, os.Getenv("RIPSTOP_RESULTS")
		if n, err := strconv.Atoi(os.Getenv("RIPSTOP_RUNS")); err == nil && n > 0 {
			runs = n
		}
	}
	budgets := []float64{0.02, 0.2}
	sources := racePrograms(t)
	lines := stated(t, sources)
	racy := build(t, "racy", sources, "-DTIMED")
	clean := build(t, "clean", sources, "-DTIMED", "-DCLEAN")
	var names []string
	for i, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".c")
		if name != "main" && (soak || i%12 == 3) {
			names = append(names, name)
		}
	}
	results := timedResults(t, kept)
	for run := range runs {
		for _, name := range names {
			for _, budget := range budgets {
				c := timedCell{name, budget}
				if results[c].runs > run {
					continue
				}
				t.Run(fmt.Sprintf("%s-%g-%d", name, budget, run), func(t *testing.T) { // what it opened is closed behind it
					a := open(t, clocked(t, racy, budget, name)).analyze(t, Options{})
					if a.rec.Info.Mode != sample.Timer {
						t.Fatalf("%+v", a.rec.Info)
					}
					found := 0
					if judge(t, a, lines)[name+".c"] {
						found = 1
					}
					r := results[c]
					results[c] = timedResult{r.runs + 1, r.found + found, r.hits + a.rec.Info.Hits}
					keepTimed(t, kept, fmt.Sprintf("%s %g %d %d\n", name, budget, found, a.rec.Info.Hits))
					if run%10 == 0 && budget == budgets[1] {
						judge(t, open(t, clocked(t, clean, budget, name)).analyze(t, Options{}), nil)
					}
				})
				if t.Failed() {
					t.FailNow()
				}
			}
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| program | budget 2%%: found in %d | hits a run | budget 20%%: found in %d | hits a run |\n|---|--:|--:|--:|--:|\n", runs, runs)
	hits := uint64(0)
	for _, name := range names {
		row := fmt.Sprintf("| `%s` |", name)
		for _, budget := range budgets {
			r := results[timedCell{name, budget}]
			hits += r.hits
			row += fmt.Sprintf(" %d | %.1f |", r.found, float64(r.hits)/float64(r.runs))
		}
		table.WriteString(row + "\n")
		t.Log(row)
	}
	if hits == 0 {
		t.Log("no breakpoint was hit: this machine has none (ripstop doctor says so)")
	}
	if !soak {
		return
	}
	const doc, begin, end = "../../docs/recovery.md", "<!-- timer -->\n", "<!-- end of timer -->"
	old, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", doc)
	}
	if err := os.WriteFile(doc, fmt.Appendf(nil, "%s%s%s%s%s", before, begin, table.String(), end, after), 0o666); err != nil {
		t.Fatal(err)
	}
}
