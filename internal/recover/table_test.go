package recover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/step"
)

// The table and the figure of docs/recovery.md (ProRace's figure 11), measured anew: with RIPSTOP_SOAK=1, for it takes minutes. RIPSTOP_PROGRAM measures the rows of
// one program alone.
func TestTable(t *testing.T) {
	if !soak {
		t.Skip("RIPSTOP_SOAK=1 measures the table of docs/recovery.md anew")
	}
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	var b []byte
	for i := range 120 {
		b = fmt.Appendf(b, "%d of %d, which is %d\n", i*i%97, i, i*7919%1009)
	}
	small := filepath.Join(dir, "small")
	for name, content := range map[string][]byte{text: b, small: b[:1500]} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	programs := []struct {
		name  string
		limit uint64 // instructions that are stepped; 0: all
		argv  []string
	}{
		{"gzip", 0, []string{"/usr/bin/gzip", "-c", text}},
		{"sort", 0, []string{"/usr/bin/sort", "-n", text}},
		{"sqlite3", 0, []string{"/usr/bin/sqlite3", ":memory:", "create table t(a,b); insert into t values(1,2),(3,4),(5,6); select sum(a*b) from t group by b;"}},
		{"python3", 1_200_000, []string{"/usr/bin/python3", "-c", "print(sum(i * i for i in range(100)))"}},
		{"kernel", 0, []string{build(t, "kernel"), "15"}},
		{"queue", 0, []string{build(t, "queue")}},
		{"races", 0, []string{build(t, "races"), "120"}},
		{"pigz", 0, []string{"/usr/bin/pigz", "-p", "3", "-b", "128", "-c", text}},
		{"pbzip2", 0, []string{"/usr/bin/pbzip2", "-p3", "-c", small}},
	}
	const doc, begin, end = "../../docs/recovery.md", "<!-- table -->\n", "<!-- end of table -->"
	old, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	measured, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", doc)
	}
	periods := []int{100, 1000, 10000, 100000}
	ways := []struct {
		name string
		o    Options
	}{
		{"block", Options{Reach: Block}}, {"forward", Options{Reach: ForwardOnly}}, {"both", Options{}}, {"both, no memory", Options{Memory: None}},
		{"both, memory assumed", Options{Memory: Assumed}},
	}
	var table strings.Builder
	table.WriteString("| program | threads | instructions | accesses | period |")
	for _, w := range ways {
		table.WriteString(" " + w.name + " |")
	}
	table.WriteString(" wrong | wrong, assumed |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	var f figure
	for _, p := range programs {
		if only := os.Getenv("RIPSTOP_PROGRAM"); only != "" && only != p.name {
			for line := range strings.Lines(string(measured)) {
				if strings.HasPrefix(line, "| "+p.name+" |") {
					table.WriteString(line)
					f.read(t, line)
				}
			}
			continue
		}
		rec := recordBy(t, step.Options{Period: 100, Limit: p.limit}, p.argv...)
		all := did(t, rec)
		for _, period := range periods {
			r := open(t, rec, period/100)
			in := prepared(t, r, segmentBytes, shardSegments)
			var row strings.Builder
			wrong, assumed := 0, 0
			for i, w := range ways {
				s := against(t, r, in, all, w.o)
				if i == 0 {
					fmt.Fprintf(&row, "| %s | %d | %d | %d | %d |", p.name, len(all), s.counts.Instructions, s.all, period)
				}
				fmt.Fprintf(&row, " %.1f%% |", s.percent())
				if w.o.Memory == Assumed {
					assumed = s.wrong
				} else {
					wrong += s.wrong
				}
			}
			fmt.Fprintf(&row, " %d | %d |\n", wrong, assumed)
			table.WriteString(row.String())
			f.read(t, row.String())
			t.Log(row.String())
		}
	}
	if err := os.WriteFile(doc, fmt.Appendf(nil, "%s%s%s%s%s", before, begin, table.String(), end, after), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../../docs/recovery.svg", f.svg(periods), 0o666); err != nil {
		t.Fatal(err)
	}
}

// A figure is bars in percent: of each period, three for each program.
type figure struct {
	names []string
	bars  [4][]float64
}

// read takes a row of the table.
func (f *figure) read(t *testing.T, row string) {
	t.Helper()
	c := strings.Split(row, " | ")
	if len(c) < 8 {
		t.Fatalf("a row of the table: %q", row)
	}
	if name := strings.TrimPrefix(c[0], "| "); len(f.names) == 0 || f.names[len(f.names)-1] != name {
		f.names = append(f.names, name)
	}
	k := 0
	for k < len(f.bars)-1 && len(f.bars[k]) == 3*len(f.names) {
		k++
	}
	for _, s := range c[5:8] {
		v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
		if err != nil {
			t.Fatalf("a row of the table: %q: %v", row, err)
		}
		f.bars[k] = append(f.bars[k], v)
	}
}

func (f *figure) svg(periods []int) []byte {
	const bar, gap, high, left, panel = 9, 14, 120, 40, 170
	wide := left + len(f.names)*(3*bar+gap) + gap
	b := fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">`+"\n", wide, panel*len(periods)+30)
	colours := []string{"#bbbbbb", "#6699cc", "#224477"}
	for i, name := range []string{"basic block", "forward", "forward and backward"} {
		b = fmt.Appendf(b, `<rect x="%d" y="6" width="9" height="9" fill="%s"/><text x="%d" y="14">%s</text>`+"\n", left+i*100, colours[i], left+12+i*100, name)
	}
	for k, period := range periods {
		base := 30 + k*panel + high + 10
		b = fmt.Appendf(b, `<text x="%d" y="%d" font-weight="bold">period %d</text>`+"\n", left, base-high-2, period)
		for _, pc := range []int{0, 25, 50, 75, 100} {
			y := base - pc*high/100
			b = fmt.Appendf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#dddddd"/><text x="%d" y="%d" text-anchor="end">%d%%</text>`+"\n", left, y, wide, y, left-3, y+3, pc)
		}
		for i, name := range f.names {
			x := left + gap/2 + i*(3*bar+gap)
			for j := range 3 {
				h := f.bars[k][3*i+j] * high / 100
				b = fmt.Appendf(b, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"/>`+"\n", x+j*bar, float64(base)-h, bar, h, colours[j])
			}
			b = fmt.Appendf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x+3*bar/2, base+12, name)
		}
	}
	return append(b, "</svg>\n"...)
}
