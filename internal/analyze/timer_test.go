package analyze

import (
	"bytes"
	"encoding/json"
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

// The table of mode timer in docs/recovery.md, measured anew with RIPSTOP_SOAK=1: each of the racy programs, made to run for some tenths of a second, is recorded on this machine
// RIPSTOP_RUNS times (100). None may ever give a race that its source does not state, and made right none at all.
func TestTimerTable(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestWatched runs the same code")
	}
	soak, runs := os.Getenv("RIPSTOP_SOAK") == "1", 1
	if soak {
		runs = 100
		if n, err := strconv.Atoi(os.Getenv("RIPSTOP_RUNS")); err == nil && n > 0 {
			runs = n
		}
	}
	budgets := []float64{0.02, 0.2}
	sources := racePrograms(t)
	lines := stated(t, sources)
	racy := build(t, "racy", sources, "-DTIMED")
	clean := build(t, "clean", sources, "-DTIMED", "-DCLEAN")
	var table strings.Builder
	fmt.Fprintf(&table, "| program | budget 2%%: found in %d | hits a run | budget 20%%: found in %d | hits a run |\n|---|--:|--:|--:|--:|\n", runs, runs)
	hits := uint64(0)
	for i, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".c")
		if name == "main" || !soak && i%12 != 3 {
			continue
		}
		row := fmt.Sprintf("| `%s` |", name)
		for _, budget := range budgets {
			found, all := 0, uint64(0)
			for range runs {
				r := open(t, clocked(t, racy, budget, name))
				if r.rec.Info.Mode != sample.Timer {
					t.Fatalf("%+v", r.rec.Info)
				}
				a := r.analyze(t, Options{})
				if judge(t, a, lines)[filepath.Base(source)] {
					found++
				}
				all += r.rec.Info.Hits
				a.close()
			}
			hits += all
			row += fmt.Sprintf(" %d | %d |", found, all/uint64(runs))
		}
		for range (runs + 9) / 10 {
			judge(t, open(t, clocked(t, clean, 0.2, name)).analyze(t, Options{}), nil)
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
