package analyze

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/recover"
)

// The table of detection in docs/recovery.md (ProRace's table 2), measured anew with RIPSTOP_SOAK=1. The programs are stepped once with a sample of each access; a trace is
// what is left of the samples when one of so many is kept, from a random one on in each thread. For the longer periods they run longer: else most threads would have no sample.
func TestTable(t *testing.T) {
	if os.Getenv("RIPSTOP_SOAK") != "1" {
		t.Skip("RIPSTOP_SOAK=1 measures the table of detection in docs/recovery.md anew")
	}
	sources := racePrograms(t)
	lines := stated(t, sources)
	of := [2]*recording{open(t, races(t, false)), open(t, racesMade(t, "LONG"))}
	const traces = 100
	periods := []int{100, 1000, 10000, 100000}
	ways := []recover.Reach{recover.Block, recover.Both}
	found := map[string][8]int{} // by program; of each way, of each period
	for k, period := range periods {
		r := of[k/2]
		for trace := range uint64(traces) {
			r.thin(period, 1000+trace)
			for w, reach := range ways {
				a := r.analyze(t, Options{Reach: reach})
				for file := range judge(t, a, lines) {
					counts := found[file]
					counts[w*len(periods)+k]++
					found[file] = counts
				}
				a.close()
			}
		}
	}
	kind := regexp.MustCompile(`(?m)^// (Relative to the program counter|Register indirect|Memory indirect)`)
	var table strings.Builder
	table.WriteString("| program | access |")
	for _, name := range []string{"block", "ours"} {
		for _, p := range periods {
			fmt.Fprintf(&table, " %s, %d |", name, p)
		}
	}
	table.WriteString("\n|---|---|" + strings.Repeat("--:|", 8) + "\n")
	var sums [8]int
	programs := 0
	for _, want := range []string{"Relative to the program counter", "Register indirect", "Memory indirect"} {
		for _, source := range sources {
			b, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if m := kind.FindSubmatch(b); m == nil || string(m[1]) != want {
				continue
			}
			name := filepath.Base(source)
			fmt.Fprintf(&table, "| `%s` | %s |", strings.TrimSuffix(name, ".c"), strings.ToLower(want))
			for i, n := range found[name] {
				sums[i] += n
				fmt.Fprintf(&table, " %d |", n)
			}
			for k := range periods {
				if block, ours := found[name][k], found[name][len(periods)+k]; ours < block || ours == block && ours < traces && (ours > 0 || periods[k] < 100000) {
					t.Errorf("%s, period %d: %d within blocks, %d beyond", name, periods[k], block, ours)
				}
			}
			table.WriteString("\n")
			programs++
		}
	}
	if programs != len(sources)-1 {
		t.Errorf("%d of %d programs say of what kind they are", programs, len(sources)-1)
	}
	table.WriteString("| average | |")
	for _, n := range sums {
		fmt.Fprintf(&table, " %.1f |", float64(n)/float64(programs))
	}
	table.WriteString("\n")
	t.Log("\n" + table.String())
	const doc, begin, end = "../../docs/recovery.md", "<!-- detection -->\n", "<!-- end of detection -->"
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
