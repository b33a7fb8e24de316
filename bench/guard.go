package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ripstop/ripstop/test/real/drive"
)

// The goals of issue 5, ratios to native: what looks at blocks, with what is recorded and without, in the median over the programs; what is recorded alone in the median, in the worst but one, and in a program that does little but lock.
const (
	goalGuard         = 1.05
	goalRecording     = 1.03
	goalRecordingBad  = 1.10
	goalRecordingLock = 1.5
)

// guardWays are how programs are measured; the last is native, built with gcc's AddressSanitizer, for those of ours.
var guardWays = []struct {
	name string
	argv []string
}{
	{"native", nil},
	{"run", []string{"run", "--exit-code", "0", "--"}},
	{"recording", []string{"guard", "--exit-code", "0", "--guard-bytes", "0", "--quarantine", "0", "--epochs", "1h", "--"}},
	{"guard", []string{"guard", "--exit-code", "0", "--epochs", "0", "--"}},
	{"both", []string{"guard", "--exit-code", "0", "--epochs", "1h", "--"}},
	{"ASan", nil},
}

const (
	recordingWay = 2
	asanWay      = 5
)

// What a program is counted as. Those that do little but allocate are none of those that the goals are about: they are shown, and not counted.
const (
	usual = iota
	locks
	allocates
)

type guardProgram struct {
	name string
	in   bool // from standard input
	argv []string
	n    int // {n} of argv; as many times more where runs are to be long
	kind int
}

// guardLong is how many times more all programs have to do where runs are to be long.
const guardLong = 5

// guardPrograms end by themselves, after half a second of CPU time natively and more: a start, of 55 ms, is taken from each, and is not the same each time. {heap} and {kernels} are programs of ours, which are measured with AddressSanitizer, too.
var guardPrograms = []guardProgram{
	{name: "start", argv: []string{"/bin/true"}},
	{name: "gzip", in: true, argv: []string{"gzip", "-c"}},
	{name: "xz", in: true, argv: []string{"xz", "-1", "-T2", "--block-size=1MiB", "-c"}},
	{name: "pigz", in: true, argv: []string{"pigz", "-p", "2", "-n", "-c"}},
	{name: "pbzip2", in: true, argv: []string{"pbzip2", "-p2", "-c", "-q", "-z"}},
	{name: "sqlite3", argv: []string{"sqlite3", ":memory:", `create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {n}) insert into t select i, hex(i * 7919), i / 3.0 from n;
create index u on t(b); select count(*), sum(length(b)) from t where b like '3%'; select b, c from t order by b limit 10;`}, n: 600_000},
	{name: "python3", argv: []string{"/usr/bin/python3", "-c", `import json
d = [{"a": i, "b": str(i), "c": [i, i + 1]} for i in range({n})]
assert json.loads(json.dumps(d)) == d`}, n: 300_000},
	{name: "nbody", argv: []string{"{kernels}", "nbody", "2", "{n}"}, n: 120},
	{name: "lu", argv: []string{"{kernels}", "lu", "2", "{n}"}, n: 500},
	{name: "fft", argv: []string{"{kernels}", "fft", "2", "{n}"}, n: 2000},
	{name: "radix", argv: []string{"{kernels}", "radix", "2", "{n}"}, n: 800},
	{name: "stencil", argv: []string{"{kernels}", "stencil", "2", "{n}"}, n: 900},
	{name: "montecarlo", argv: []string{"{kernels}", "montecarlo", "2", "{n}"}, n: 400},
	{name: "kmeans", argv: []string{"{kernels}", "kmeans", "2", "{n}"}, n: 1000},
	{name: "wordcount", argv: []string{"{kernels}", "wordcount", "2", "{n}"}, n: 1500},
	{name: "pipeline", argv: []string{"{kernels}", "pipeline", "2", "{n}"}, n: 500},
	{name: "hashtable", argv: []string{"{kernels}", "hashtable", "2", "{n}"}, n: 150, kind: locks},
	{name: "churn", argv: []string{"{heap}", "churn", "{n}"}, n: 2, kind: allocates},
	{name: "trees", argv: []string{"{heap}", "trees", "{n}"}, n: 2, kind: allocates},
	{name: "remote", argv: []string{"{heap}", "remote", "{n}"}, n: 1, kind: allocates},
}

// guardLoops are of testdata/micro.c: ns an operation.
var guardLoops = []struct{ kind, n string }{{"lock", "1000000"}, {"lock-single", "1000000"}, {"malloc", "500000"}, {"contended", "50000"}}

// guard measures what `guard` costs: what is recorded, what looks at blocks, and both, beside run, native runs and AddressSanitizer.
func (b *bench) guard(ctx context.Context) error {
	if !b.only.MatchString("guard") {
		return nil
	}
	began := time.Now()
	g, err := b.guardRows(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-14s", "guard, ns")
	for _, w := range guardWays {
		fmt.Printf(" %-22s", w.name)
	}
	fmt.Println()
	for _, l := range guardLoops {
		if !b.rows.MatchString(l.kind) {
			continue
		}
		var ns [asanWay + 1][]float64
		for range b.rounds {
			for i := range guardWays {
				if !b.way(i) {
					continue
				}
				prog := g.plain[1]
				if i == asanWay {
					prog = g.asan[1]
				}
				value, err := microOnce(ctx, append(b.guardWay(i), prog, l.kind, l.n))
				if err != nil {
					return err
				}
				ns[i] = append(ns[i], value)
			}
		}
		fmt.Printf("%-14s", l.kind)
		for i := range ns {
			if ns[i] == nil {
				fmt.Printf(" %-22s", "")
				continue
			}
			fmt.Printf(" %-22s", fmt.Sprintf("%.1f (%.2f×)", median(ns[i]), median(ns[i])/median(ns[0])))
		}
		fmt.Println()
	}
	return b.guardTable(ctx, began, g)
}

// guardRows are the programs that are measured, those that end by themselves and behind them servers, and what they need.
type guardRows struct {
	plain, asan []string // programs of ours: heap, micro, kernels
	in          string
	programs    []guardProgram
	servers     []drive.Program
}

func (b *bench) guardRows(ctx context.Context) (*guardRows, error) {
	g := &guardRows{in: filepath.Join(b.shared, "guard.txt")}
	for _, p := range []string{"heap", "micro", "kernels"} {
		for _, into := range []*[]string{&g.plain, &g.asan} {
			out := filepath.Join(b.shared, "guard-"+p)
			args := []string{"-O2", "-g", "-pthread"}
			if into == &g.asan {
				out += "-asan"
				args = append(args, "-fsanitize=address")
			}
			args = append(args, "-o", out, filepath.Join("bench/testdata", p+".c"), "-lm")
			if text, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("gcc %v: %w\n%s", args, err, text)
			}
			*into = append(*into, out)
		}
	}
	for _, p := range drive.Programs() {
		if slices.Contains([]string{"x264", "memcached", "redis", "apache2", "mariadb"}, p.Name) && b.rows.MatchString(p.Name) {
			g.servers = append(g.servers, p)
		}
	}
	g.programs = slices.DeleteFunc(slices.Clone(guardPrograms), func(p guardProgram) bool { return p.name != "start" && !b.rows.MatchString(p.name) })
	return g, os.WriteFile(g.in, guardText(b.times()*16<<20), 0o644)
}

func (g *guardRows) len() int { return len(g.programs) + len(g.servers) }

func (g *guardRows) name(k int) string {
	if k >= len(g.programs) {
		return g.servers[k-len(g.programs)].Name
	}
	return g.programs[k].name
}

func (g *guardRows) kind(k int) int {
	if k >= len(g.programs) {
		return usual
	}
	return g.programs[k].kind
}

// guardRun runs a row in one way; false: it is not run in that.
func (b *bench) guardRun(ctx context.Context, g *guardRows, k, i int) (cpu, took time.Duration, ok bool, err error) {
	if k >= len(g.programs) {
		if i == asanWay {
			return 0, 0, false, nil
		}
		cpu, took, err = b.guardServer(ctx, g.servers[k-len(g.programs)], i)
		return cpu, took, true, err
	}
	p := g.programs[k]
	progs := g.plain
	if i == asanWay {
		progs = g.asan
		if !strings.HasPrefix(p.argv[0], "{") {
			return 0, 0, false, nil
		}
	}
	argv := b.guardWay(i)
	for _, a := range p.argv {
		argv = append(argv, strings.NewReplacer("{heap}", progs[0], "{kernels}", progs[2], "{n}", strconv.Itoa(p.n*b.times())).Replace(a))
	}
	file := ""
	if p.in {
		file = g.in
	}
	cpu, took, err = guardOnce(ctx, argv, file)
	return cpu, took, true, err
}

// way tells whether programs are to be measured in it. Natively they always are.
func (b *bench) way(i int) bool { return i == 0 || b.ways.MatchString(guardWays[i].name) }

func (b *bench) times() int {
	if b.long {
		return guardLong
	}
	return 1
}

func (b *bench) guardWay(i int) []string {
	if guardWays[i].argv == nil {
		return nil
	}
	return append([]string{b.ripstop}, b.guardFlags(i)...)
}

// guardFlags are the command and its flags, up to the program's own arguments.
func (b *bench) guardFlags(i int) []string {
	argv := slices.Clone(guardWays[i].argv)
	if at := slices.Index(argv, "--epochs"); at >= 0 && argv[at+1] != "0" && b.epochs != "" {
		argv[at+1] = b.epochs
	}
	return argv
}

// guardTable measures the programs, a round of all of them at a time, until the budget is spent.
func (b *bench) guardTable(ctx context.Context, began time.Time, g *guardRows) error {
	rows := make([]struct{ cpu, t [asanWay + 1][]float64 }, g.len())
	// What is found out once about each file, and kept, is no part of what a run costs.
	for k := range rows {
		if _, _, _, err := b.guardRun(ctx, g, k, recordingWay); err != nil {
			return err
		}
	}
	var longest time.Duration
	rounds := 0
	for ; rounds < b.rounds && (rounds == 0 || time.Since(began)+longest < b.budget); rounds++ {
		start := time.Now()
		for k := range rows {
			r := &rows[k]
			for j := range guardWays {
				i := (j + rounds) % len(guardWays) // none is always the first
				if !b.way(i) {
					continue
				}
				cpu, took, ok, err := b.guardRun(ctx, g, k, i)
				if err != nil {
					return err
				}
				if ok {
					r.cpu[i], r.t[i] = append(r.cpu[i], cpu.Seconds()), append(r.t[i], took.Seconds())
				}
			}
		}
		longest = max(longest, time.Since(start))
	}
	fmt.Printf("\n%-14s %-9s", fmt.Sprintf("%d rounds", rounds), "native")
	for _, w := range guardWays[1:] {
		fmt.Printf(" %-32s", w.name)
	}
	fmt.Println("CPU but for the start over native (min–max), elapsed with it")
	var all [asanWay + 1][]float64 // without what allocates, and without what locks where it is recorded, which has a goal of its own
	var locked []float64
	var start [asanWay + 1]float64 // CPU time of a start more than natively, which is said once, and taken from all others
	for k := range rows {
		r := &rows[k]
		fmt.Printf("%-14s %6.3f s ", g.name(k), median(r.cpu[0]))
		for i := 1; i <= asanWay; i++ {
			if r.cpu[i] == nil {
				fmt.Printf(" %-32s", "")
				continue
			}
			if k == 0 {
				start[i] = median(r.cpu[i]) - median(r.cpu[0])
				fmt.Printf(" %-32s", fmt.Sprintf("%+.1f ms, %+.1f", 1e3*start[i], 1e3*(median(r.t[i])-median(r.t[0]))))
				continue
			}
			without := make([]float64, len(r.cpu[i]))
			for j, c := range r.cpu[i] {
				without[j] = c - start[i]
			}
			c := ratios(without, r.cpu[0])
			if g.kind(k) == locks && i == recordingWay {
				locked = append(locked, median(c))
			} else if g.kind(k) != allocates || i == asanWay {
				all[i] = append(all[i], median(c))
			}
			fmt.Printf(" %-32s", spread(c)+" "+strconv.FormatFloat(median(ratios(r.t[i], r.t[0])), 'f', 2, 64))
		}
		fmt.Println()
	}
	for i, goal := range []float64{0, 0, goalRecording, goalGuard, goalGuard, 0} {
		sorted := slices.Sorted(slices.Values(all[i]))
		if i == 0 || len(sorted) < 2 {
			continue
		}
		bad := sorted[len(sorted)-2]
		fmt.Printf("%-14s median of %d %.3f× %s, worst but one %.2f×", guardWays[i].name, len(sorted), median(sorted), b.verdict(median(sorted), goal), bad)
		if i == recordingWay {
			fmt.Printf(" %s", b.verdict(bad, goalRecordingBad))
			if len(locked) > 0 {
				fmt.Printf(", locks %.2f× %s", slices.Max(locked), b.verdict(slices.Max(locked), goalRecordingLock))
			}
		}
		fmt.Println()
	}
	return nil
}

func guardOnce(ctx context.Context, argv []string, in string) (cpu, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0", "RIPSTOP_OPTIONS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if in != "" {
		f, err := os.Open(in)
		if err != nil {
			return 0, 0, err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%v: %w\n%s", argv, err, stderr.String())
	}
	took = time.Since(start)
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), took, nil
}

func (b *bench) guardServer(ctx context.Context, p drive.Program, way int) (cpu, took time.Duration, err error) {
	dir, err := os.MkdirTemp("/tmp", "rsbench")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	job := drive.Job{Mode: []drive.Mode{drive.Native, drive.Run, drive.Guard, drive.Guard, drive.Guard}[way], Size: map[bool]drive.Size{false: drive.Short, true: drive.Timed}[b.long], Ripstop: b.ripstop, Shared: b.shared, Dir: dir, Limit: 5 * time.Minute}
	if argv := b.guardFlags(way); argv != nil {
		job.Flags = argv[1 : len(argv)-1]
	}
	out, err := p.Run(ctx, &job)
	if err == nil && out.Exit != 0 {
		err = errors.New("exit status " + strconv.Itoa(out.Exit))
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s, %s: %w\n%s", p.Name, guardWays[way].name, err, out.Stderr)
	}
	return out.CPU, out.Time, nil
}

// guardText is words that compress about as prose does.
func guardText(n int) []byte {
	text := make([]byte, 0, n+16)
	for s := uint64(88172645463325252); len(text) < n; {
		s ^= s << 13
		s ^= s >> 7
		s ^= s << 17
		text = strconv.AppendUint(text, s%5000*s%5000, 36)
		text = append(text, " \n"[s>>63])
	}
	return text
}
