package analyze

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// build compiles sources; those of C++ end in .cc.
func build(t testing.TB, name string, sources []string, flags ...string) string {
	t.Helper()
	return buildIn(t, t.TempDir(), name, sources, flags...)
}

func buildIn(t testing.TB, dir, name string, sources []string, flags ...string) string {
	t.Helper()
	exe := filepath.Join(dir, name)
	compiler := "gcc"
	if strings.HasSuffix(sources[0], ".cc") {
		compiler = "g++"
	}
	args := slices.Concat([]string{"-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Wl,-z,now", "-o", exe}, sources, flags)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

var runner = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ripstop-analyze-test-*")
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "runner")
	cmd := exec.Command("go", "build", "-ldflags", "-E ripstop_entry", "-o", exe, "../run/testdata/runner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return exe, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv(boundOf) != "" {
		os.Exit(code)
	}
	if exe, err := runner(); err == nil {
		_ = os.RemoveAll(filepath.Dir(exe))
	}
	os.Exit(code)
}

// stepped steps a program, with a sample of each access.
func stepped(t testing.TB, exe string, args ...string) (dir string) {
	t.Helper()
	run, err := runner()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "trace")
	o, _ := json.Marshal(map[string]any{"Dir": dir, "Follow": true, "StackDepth": 24, "Sampling": map[string]any{"Mode": "step", "Period": 1, "Seed": 1, "Entry": true}})
	if out, err := exec.Command(run, slices.Concat([]string{string(o), "record", exe}, args)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

var kept struct {
	sync.Mutex
	dirs map[string]string
}

// races is the one recording of the programs of testdata/races; nobody may change it.
func races(t testing.TB, clean bool) string {
	t.Helper()
	if clean {
		return racesMade(t, "CLEAN")
	}
	return racesMade(t, "SHORT")
}

// racesMade is the one recording of those programs made with a macro of race.h.
func racesMade(t testing.TB, macro string) string {
	t.Helper()
	kept.Lock()
	defer kept.Unlock()
	if kept.dirs[macro] == "" {
		run, err := runner()
		if err != nil {
			t.Fatal(err)
		}
		from := stepped(t, buildIn(t, filepath.Dir(run), macro, racePrograms(t), "-D"+macro)) // the program must stay, for its code
		dir := filepath.Join(filepath.Dir(run), macro+".trace")
		if err := os.Rename(from, dir); err != nil {
			t.Fatal(err)
		}
		if kept.dirs == nil {
			kept.dirs = map[string]string{}
		}
		kept.dirs[macro] = dir
	}
	return kept.dirs[macro]
}

// A recording is one that is analyzed several times, each time with other samples of those that it has.
type recording struct {
	trace *trace.Reader
	rec   *sample.Recording
	all   [][]sample.Sample
	sym   *image.Symbolizer
}

func open(t testing.TB, dir string) *recording {
	t.Helper()
	r := &recording{sym: image.NewSymbolizer()}
	t.Cleanup(r.sym.Close)
	var err error
	if r.trace, err = trace.Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.trace.Close() })
	if r.rec, err = sample.Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.rec.Close() })
	for _, th := range r.rec.Threads {
		r.all = append(r.all, th.Samples)
	}
	return r
}

// thin keeps of the loads and of the stores of each thread one of so many, from a random one on.
func (r *recording) thin(period int, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, uint64(period)))
	r.rec.Info.Period = uint64(period)
	for i, th := range r.rec.Threads {
		var next [8]int
		for k := range next {
			next[k] = rnd.IntN(period)
		}
		th.Samples = nil
		for _, s := range r.all[i] {
			if next[s.Kind]--; next[s.Kind] < 0 {
				next[s.Kind] = period - 1
				th.Samples = append(th.Samples, s)
			}
		}
	}
}

func (r *recording) analyze(t testing.TB, o Options) *analysis {
	t.Helper()
	return r.done(t, &analysis{o: o})
}

// done carries out an analysis of the recording.
func (r *recording) done(t testing.TB, a *analysis) *analysis {
	t.Helper()
	a.trace, a.rec, a.sym = r.trace, r.rec, r.sym
	t.Cleanup(a.close)
	if err := a.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	set := target.New(r.sym)
	for i := range a.found.Findings {
		set.Symbolize(&a.found.Findings[i])
	}
	return a
}

// placeOf is where the innermost frame is whose source is no header.
func placeOf(s finding.Stack) string {
	for _, f := range s {
		if f.File != "" && filepath.Ext(f.File) != ".h" {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
	return "?"
}

var states = regexp.MustCompile(`(//|/\*) (race|race-mov|uaf)( [a-z0-9_]+)?( \*/|$)`)

// stated gives the lines that sources state to have an access of a race.
func stated(t testing.TB, sources []string) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	for _, source := range sources {
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(b), "\n") {
			if states.MatchString(line) {
				lines[fmt.Sprintf("%s:%d", filepath.Base(source), n+1)] = true
			}
		}
	}
	return lines
}

// judge says of which files races were found, and fails if a place of one is not stated.
func judge(t *testing.T, a *analysis, lines map[string]bool) (files map[string]bool) {
	t.Helper()
	files = map[string]bool{}
	for _, f := range a.found.Findings {
		for _, p := range f.Parts[:2] {
			at := placeOf(p.Stack)
			if !lines[at] {
				t.Errorf("%s (%s), period %d, which the source does not state: %s; the other place is %s (%s), %s", at, p.Provenance, a.rec.Info.Period, f.Message,
					placeOf(f.Parts[0].Stack), f.Parts[0].Provenance, placeOf(f.Parts[1].Stack))
			}
			file, _, _ := strings.Cut(at, ":")
			files[file] = true
		}
	}
	return files
}

func racePrograms(t testing.TB) (sources []string) {
	t.Helper()
	sources, err := filepath.Glob("testdata/races/*.c")
	if err != nil || len(sources) < 13 {
		t.Fatal(sources, err)
	}
	return sources
}

// With a sample of a hundred accesses each program's race is found; nothing that is none is, in these or in the same programs made right.
func TestRaces(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestJobs runs the same code, with several workers")
	}
	sources := racePrograms(t)
	lines := stated(t, sources)
	for _, clean := range []bool{false, true} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			r := open(t, races(t, clean))
			found := map[string]bool{}
			for seed := range uint64(8) {
				for _, period := range []int{100, 1000} {
					if seed > 0 && (period != 100 || clean) || clean && period != 100 && os.Getenv("RIPSTOP_SOAK") == "" {
						continue
					}
					r.thin(period, seed)
					a := r.analyze(t, Options{})
					if clean {
						judge(t, a, nil)
						continue
					}
					got := judge(t, a, lines)
					if period == 100 {
						maps.Copy(found, got)
					}
					if a.placer.left.Misfit > 0 {
						t.Errorf("period %d: %+v", period, a.placer.left)
					}
				}
			}
			for _, source := range sources {
				if name := filepath.Base(source); !clean && name != "main.c" && !found[name] {
					t.Errorf("the race of %s is not found", name)
				}
			}
		})
	}
}

// The result does not depend on the number of workers, and every race says how its accesses are known.
func TestJobs(t *testing.T) {
	r := open(t, races(t, false))
	r.thin(100, 7)
	one := r.analyze(t, Options{Jobs: 1})
	if len(one.found.Findings) < 12 {
		t.Fatalf("%d findings", len(one.found.Findings))
	}
	for _, jobs := range []int{2, 7} {
		if n := r.analyze(t, Options{Jobs: jobs}); !reflect.DeepEqual(n.found, one.found) || !reflect.DeepEqual(n.notSeen(), one.notSeen()) || !reflect.DeepEqual(n.stats(), one.stats()) {
			t.Errorf("%d workers: %d findings, %q\none: %d findings, %q", jobs, len(n.found.Findings), n.stats(), len(one.found.Findings), one.stats())
		}
	}
	known := map[string]bool{}
	for _, f := range one.found.Findings {
		for _, p := range f.Parts[:2] {
			known[p.Provenance] = true
		}
	}
	if !known["sampled"] || !known["path"] || !known["forward"] && !known["backward"] && !known["combined"] || known[""] {
		t.Errorf("accesses are known by %v", known)
	}
	r.rec.Info.Mode = sample.PMU // what a processor samples is in the same files
	if p := r.analyze(t, Options{}); !reflect.DeepEqual(p.found, one.found) || !strings.Contains(p.notSeen()[0], "mode pmu") {
		t.Errorf("of mode pmu: %d findings, %q", len(p.found.Findings), p.notSeen())
	}
	for _, f := range r.analyze(t, Options{MovAtomics: race.Hide}).found.Findings {
		t.Errorf("though what atomics may order is hidden: %s", f.Message)
	}
}

// Programs that state what races they have, all kinds of order among them; with samples some are not found, and no other ever is.
func TestOthersPrograms(t *testing.T) {
	sources, err := filepath.Glob("../race/testdata/*.c*")
	if err != nil || len(sources) < 8 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			if name := filepath.Base(source); os.Getenv("RIPSTOP_SOAK") != "1" && (testing.Short() || name != "locks.c") {
				t.Skip("RIPSTOP_SOAK=1 does them all")
			}
			r := open(t, stepped(t, build(t, "prog", []string{source})))
			lines := stated(t, []string{source})
			for _, period := range []int{1, 30, 1000} {
				r.thin(period, 3)
				judge(t, r.analyze(t, Options{}), lines)
			}
		})
	}
}

// Two threads allocate in turns from one arena, and so get the same memory again and again: it is another block each time. Without the allocations' events the test's
// own accesses race.
func TestLives(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: stepping takes its time")
	}
	sources := []string{"testdata/lives.c"}
	r := open(t, stepped(t, build(t, "lives", sources)))
	lines := stated(t, sources)
	r.thin(100, 1)
	a := r.analyze(t, Options{})
	judge(t, a, lines)
	events := func(fn func(uint64, *wire.Event) error) error {
		return r.trace.Events(func(process uint64, e *wire.Event) error {
			if e.Type == wire.TypeAlloc || e.Type == wire.TypeFree {
				return nil
			}
			return fn(process, e)
		})
	}
	res, err := race.Run(race.Input{Events: events, Accesses: a.source()}, func() race.World { return world{target.New(r.sym), a.collection.stacks} }, race.Config{})
	set := target.New(r.sym)
	others := 0
	for i := range res.Findings {
		set.Symbolize(&res.Findings[i])
		if !lines[placeOf(res.Findings[i].Parts[0].Stack)] {
			others++
		}
	}
	if err != nil || others == 0 {
		t.Errorf("without allocations: %d findings, %v: the program does not show what it is for", len(res.Findings), err)
	}
}

// Memory that the replay wrote is believed, as ProRace does it, and so it goes on with a pointer that another thread has changed: an access to an object that the
// thread never touched, and a race that is none. The pointer itself is raced on, is dropped for that, and the accesses are recovered again.
func TestEmulatedRace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestJobs runs the same code, with several workers")
	}
	sources := []string{"testdata/swapped.c"}
	r := open(t, stepped(t, build(t, "swapped", sources)))
	lines := stated(t, sources)
	wrong := func(a *analysis) (n int) {
		for _, f := range a.found.Findings {
			for _, p := range f.Parts[:2] {
				if !lines[placeOf(p.Stack)] {
					n++
				}
			}
		}
		return n
	}
	var seen bool
	// A sample of the register that holds the true pointer shows that what was believed is wrong, and then nothing is; so there are also few samples, and none.
	for seed, period := range []int{100, 100, 1000, 1 << 30} {
		r.thin(period, uint64(seed))
		a := r.done(t, &analysis{o: Options{Memory: recover.Assumed}, single: true})
		if seen = wrong(a) > 0; period == 1<<30 && !seen {
			t.Error("nothing was believed wrongly in the first round: the program does not show what it is for")
		}
		for _, memory := range []recover.Memory{recover.Assumed, recover.Proved} {
			b := r.analyze(t, Options{Memory: memory})
			if wrong(b) > 0 || memory == recover.Assumed && (seen && (b.rounds < 2 || len(b.drop) == 0) || b.unsettled) {
				t.Errorf("seed %d, memory %d: %d places that are not stated, %d rounds, dropped %v", seed, memory, wrong(b), b.rounds, b.drop)
			}
			// Only what believed the memory is recovered again, with the result of recovering all.
			whole := r.done(t, &analysis{o: Options{Memory: memory}, whole: true})
			if !reflect.DeepEqual(b.found, whole.found) || !reflect.DeepEqual(b.notSeen(), whole.notSeen()) || !reflect.DeepEqual(b.drop, whole.drop) ||
				b.collection.counts != whole.collection.counts || b.placer.given != whole.placer.given {
				t.Errorf("seed %d, memory %d: %d findings, %q\nall again: %d findings, %q", seed, memory, len(b.found.Findings), b.stats(), len(whole.found.Findings), whole.stats())
			}
			if n := len(b.in.Shards) * (b.rounds - 1); n > 0 && (b.again == 0 || b.again >= n || whole.again != n) {
				t.Errorf("seed %d, memory %d: %d and %d of %d shards again", seed, memory, b.again, whole.again, n)
			}
		}
	}
}

// What the C library copies is its caller's access: at the line of the call, with the whole length.
func TestCopied(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestJobs runs the same code, with several workers")
	}
	sources := []string{"testdata/copied.c"}
	lines := stated(t, sources)
	for _, clean := range []bool{false, true} {
		flags := []string{"-fno-builtin"}
		if clean {
			flags = append(flags, "-DCLEAN")
		}
		r := open(t, stepped(t, build(t, "copied", sources, flags...)))
		for _, period := range []int{1, 100} {
			r.thin(period, 1)
			a := r.analyze(t, Options{})
			if a.collection.counts.Told == 0 && period == 1 {
				t.Errorf("period %d: %+v", period, a.collection.counts)
			}
			if clean {
				judge(t, a, nil)
			} else if judge(t, a, lines); len(a.found.Findings) == 0 && period == 1 {
				t.Errorf("period %d: the race is not found; %+v", period, a.collection.counts)
			}
		}
	}
}
