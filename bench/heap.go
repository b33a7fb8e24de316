package main

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata/heap.c
var heapSource []byte

//go:embed testdata/cost.c
var costSource []byte

// goalHeap is what the agent's own heap may take more than glibc's, in CPU time and in peak memory (issue 4).
const goalHeap = 1.15

// heapPrograms allocate much: kernels of testdata/heap.c, and programs of others. {work} is the kernels' program, {c} a C file of many functions.
var heapPrograms = []struct {
	name string
	argv []string
}{
	{"churn", []string{"{work}", "churn", "3"}},
	{"trees", []string{"{work}", "trees", "5"}},
	{"growth", []string{"{work}", "growth", "5"}},
	{"remote", []string{"{work}", "remote", "2"}},
	{"threads", []string{"{work}", "threads", "3"}},
	{"births", []string{"{work}", "births", "1"}},
	{"large", []string{"{work}", "large", "3"}},
	{"python3", []string{"python3", "-c", `import json
d = [{"a": i, "b": str(i), "c": [i, i + 1]} for i in range(60000)]
assert json.loads(json.dumps(d)) == d`}},
	{"sqlite3", []string{"sqlite3", ":memory:", `create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) insert into t select i, hex(i * 7919), i / 3.0 from n;
create index u on t(b); select count(*), sum(length(b)) from t where b like '3%'; select b, c from t order by b limit 10;`}},
	{"cc1", []string{"{cc1}", "-quiet", "-O2", "{c}", "-o", "/dev/null"}},
}

// heap measures programs that allocate much with the agent's own heap against glibc's, both under run, in turn, and natively.
func (b *bench) heap(ctx context.Context) error {
	if !b.only.MatchString("heap") {
		return nil
	}
	work, err := b.compile("heap", heapSource)
	if err != nil {
		return err
	}
	cost, err := b.compile("cost", costSource)
	if err != nil {
		return err
	}
	cc1, err := exec.CommandContext(ctx, "gcc", "-print-prog-name=cc1").Output()
	if err != nil {
		return err
	}
	file := filepath.Join(b.shared, "many.c")
	var c strings.Builder
	for i := range 400 {
		fmt.Fprintf(&c, "int f%d(int *p, int n) { int s = %d; for (int i = 0; i < n; i++) { if (p[i] > s) s += p[i] * %d; else p[i] = s %% (i + 2); } return s; }\n", i, i, i+1)
	}
	if err := os.WriteFile(file, []byte(c.String()), 0o644); err != nil {
		return err
	}
	replace := strings.NewReplacer("{work}", work, "{c}", file, "{cc1}", strings.TrimSpace(string(cc1)))
	fmt.Printf("\n%-14s %-24s %-24s %-14s %s\n", "heap", "own CPU / glibc's, run", "peak memory", "CPU / native", "peak / native")
	var logs [2]float64
	for _, p := range heapPrograms {
		argv := []string{cost, filepath.Join(b.shared, "heap.cost")}
		for _, a := range p.argv {
			argv = append(argv, replace.Replace(a))
		}
		var cpu, peak [3][]float64
		for range b.rounds {
			for i, way := range [][]string{nil, {b.ripstop, "run", "--exit-code", "0", "--heap=libc", "--"}, {b.ripstop, "run", "--exit-code", "0", "--heap=own", "--"}} {
				all := append(way, argv...)
				if out, err := exec.CommandContext(ctx, all[0], all[1:]...).CombinedOutput(); err != nil {
					return fmt.Errorf("%v: %w\n%s", all, err, out)
				}
				text, err := os.ReadFile(argv[1])
				if err != nil {
					return err
				}
				var us, kib float64
				if _, err := fmt.Sscan(string(text), &us, &kib); err != nil {
					return fmt.Errorf("%v: %w", all, err)
				}
				cpu[i], peak[i] = append(cpu[i], us), append(peak[i], kib)
			}
		}
		c, m := ratios(cpu[2], cpu[1]), ratios(peak[2], peak[1])
		logs[0] += math.Log(median(c))
		logs[1] += math.Log(median(m))
		fmt.Printf("%-14s %-24s %-24s %-14.2f %.2f\n", p.name, spread(c)+" "+b.verdict(median(c), goalHeap), spread(m)+" "+b.verdict(median(m), goalHeap),
			median(ratios(cpu[2], cpu[0])), median(ratios(peak[2], peak[0])))
	}
	n := float64(len(heapPrograms))
	fmt.Printf("%-14s %-24.2f %.2f\n", "geometric mean", math.Exp(logs[0]/n), math.Exp(logs[1]/n))
	return nil
}
