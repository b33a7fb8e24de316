package recover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table and the figure of docs/recovery.md (ProRace's figure 11), measured anew: with RIPSTOP_SOAK=1, for it takes minutes.
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
		name string
		argv []string
	}{
		{"gzip", []string{"/usr/bin/gzip", "-c", text}},
		{"sort", []string{"/usr/bin/sort", "-n", text}},
		{"sqlite3", []string{"/usr/bin/sqlite3", ":memory:", "create table t(a,b); insert into t values(1,2),(3,4),(5,6); select sum(a*b) from t group by b;"}},
		{"kernel", []string{build(t, "kernel"), "15"}},
		{"queue", []string{build(t, "queue")}},
		{"races", []string{build(t, "races"), "120"}},
		{"pigz", []string{"/usr/bin/pigz", "-p", "3", "-b", "128", "-c", text}},
		{"pbzip2", []string{"/usr/bin/pbzip2", "-p3", "-c", small}},
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
		rec := record(t, 100, p.argv...)
		all := did(t, rec)
		f.names = append(f.names, p.name)
		for k, period := range periods {
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
				if i < 3 {
					f.bars[k] = append(f.bars[k], s.percent())
				}
			}
			fmt.Fprintf(&row, " %d | %d |\n", wrong, assumed)
			table.WriteString(row.String())
			t.Log(row.String())
		}
	}
	const doc, begin, end = "../../docs/recovery.md", "<!-- table -->\n", "<!-- end of table -->"
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
	if err := os.WriteFile("../../docs/recovery.svg", f.svg(periods), 0o666); err != nil {
		t.Fatal(err)
	}
}

// A figure is bars in percent: of each period, three for each program.
type figure struct {
	names []string
	bars  [4][]float64
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
