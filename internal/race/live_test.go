package race

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/truth"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
	"github.com/ripstop/ripstop/test/stated"
)

// Programs of testdata are stepped, so that all their accesses are known, and merged with the events of the same recording. What they state in comments is
// what must be found: a line with `race NAME`, `race-mov NAME` or `uaf NAME` has one of the two places of a finding of that name; `race-any NAME`: of whichever rule, since that depends on who comes
// first; `missed NAME`: it is not found, which docs/races-coverage.md explains.

// build compiles a program, bound at its start: so what it calls in the C library is entered from its own code.
func build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if strings.HasSuffix(source, ".cc") {
		compiler = "g++"
	}
	return buildBy(t, compiler, source, flags...)
}

func buildBy(t testing.TB, compiler, source string, flags ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "prog")
	args := append([]string{"-g", "-pthread", "-Wall", "-Wextra", "-Wl,-z,now", "-o", exe, source}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// record steps a program; its output must be that of a plain run.
func record(t testing.TB, runner, exe string) (dir string) { return recordBy(t, "step", runner, exe) }

// recordBy runs a program and has its accesses recorded; its output must be that of a plain run.
func recordBy(t testing.TB, mode, runner, exe string) (dir string) {
	t.Helper()
	native, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatalf("natively: %v", err)
	}
	dir = filepath.Join(t.TempDir(), "trace")
	o, _ := json.Marshal(map[string]any{"Dir": dir, "Follow": true, "StackDepth": 24, "Sampling": map[string]any{"Mode": mode, "Period": 1, "Entry": mode == "step"}})
	cmd := exec.Command(runner, string(o), "record", exe)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || string(out) != string(native) {
		t.Fatalf("%v: %q, natively %q\n%s", err, out, native, errs.String())
	}
	return dir
}

// recording is a stepped program as it was written.
type recording struct {
	trace    *trace.Reader
	accesses []Access
	stacks   [][]uint64 // of accesses, by id − firstStack
	sym      *image.Symbolizer
}

const firstStack = 1 << 31

// open reads the recording in dir.
func open(t testing.TB, dir string) *recording {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	r := &recording{trace: tr, sym: image.NewSymbolizer()}
	t.Cleanup(r.sym.Close)
	samples, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	f, err := os.Open(filepath.Join(dir, sample.TruthFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := truth.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r.read(t, in, samples)
	return r
}

// stepped is a thread as its steps are read.
type stepped struct {
	process       uint64
	number        uint32
	loads, stores []sample.Sample
	where         code
	depth         int // of calls inside the runtime; 0: in a function that the program called
	stack         []uint64
	tsc           uint64 // of the last access
}

type code uint8

const (
	inProgram code = iota
	inRuntime
	inLoader
	inAgent
)

func (r *recording) read(t testing.TB, in *truth.Reader, samples *sample.Recording) {
	numbers := map[[2]uint32][2]uint64{} // pid and tid → process, thread
	pids := map[uint64]uint32{}
	err := r.trace.Events(func(process uint64, e *wire.Event) error {
		switch e.Type {
		case wire.TypeProcess:
			ev := wire.DecodeProcess(e.Words)
			pids[process] = ev.PID
			if ev.Start == wire.StartFork {
				numbers[[2]uint32{ev.PID, ev.PID}] = [2]uint64{process, uint64(ev.ParentThread)}
			}
		case wire.TypeThreadStart:
			ev := wire.DecodeThreadStart(e.Words)
			numbers[[2]uint32{pids[process], ev.TID}] = [2]uint64{process, uint64(ev.Self)}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	threads := map[[2]uint32]*stepped{}
	codes := newCodes(samples)
	used := map[int]bool{}
	var s truth.Step
	for {
		if err = in.Next(&s); err != nil {
			break
		}
		id := [2]uint32{s.PID, s.TID}
		th := threads[id]
		switch s.Kind {
		case truth.Start:
			th = &stepped{process: numbers[id][0], number: uint32(numbers[id][1])}
			threads[id] = th
			for i, o := range samples.Threads {
				if o.PID == int32(s.PID) && o.TID == int32(s.TID) && !used[i] {
					used[i] = true
					for _, sm := range o.Samples {
						if sm.Kind == sample.LoadEvent {
							th.loads = append(th.loads, sm)
						} else if sm.Kind == sample.StoreEvent {
							th.stores = append(th.stores, sm)
						}
					}
					break
				}
			}
			continue
		case truth.Ran:
		case truth.Handler:
			th.stack = nil
			continue
		default:
			continue
		}
		in := codes.at(int32(s.PID), s.IP)
		counts := th.enter(codes.where(int32(s.PID), s.IP), s.IP)
		for _, side := range []struct {
			flag truth.Flags
			list *[]sample.Sample
		}{{truth.Write, &th.stores}, {truth.Read, &th.loads}} {
			if slices.ContainsFunc(s.Accesses, func(a truth.Access) bool { return a.Flags&side.flag != 0 }) {
				if len(*side.list) == 0 || (*side.list)[0].IP != s.IP {
					t.Fatalf("step %d at %#x has no sample", s.Order, s.IP)
				}
				th.tsc = (*side.list)[0].TSC
				*side.list = (*side.list)[1:]
			}
		}
		if counts && th.number != 0 {
			r.add(th, &s, in)
		}
		th.call(in, s.IP)
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	slices.SortStableFunc(r.accesses, func(a, b Access) int { return int(int64(a.Time - b.Time)) })
}

// enter notes whose code runs now and reports whether its accesses are the program's.
func (th *stepped) enter(where code, ip uint64) bool {
	if where == inLoader { // on its way from one to the other
		return false
	}
	if where == inRuntime && th.where != inRuntime {
		th.depth = 0
		if th.where == inAgent {
			th.depth = 1
		}
	}
	if where == inProgram && th.where != inProgram { // perhaps back from a call
		for i := len(th.stack) - 1; i >= 0; i-- {
			if th.stack[i] == ip {
				th.stack = th.stack[:i]
				break
			}
		}
	}
	th.where = where
	return where == inProgram || where == inRuntime && th.depth == 0
}

// call keeps the stack of calls of the program's own code.
func (th *stepped) call(in *x86.Inst, ip uint64) {
	if in == nil {
		return
	}
	switch {
	case th.where == inRuntime && (in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall):
		th.depth++
	case th.where == inRuntime && in.Flow == x86.FlowRet:
		th.depth--
	case th.where == inProgram && (in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall):
		th.stack = append(slices.Clip(th.stack), ip+uint64(in.Len))
	case th.where == inProgram && in.Flow == x86.FlowRet && len(th.stack) > 0:
		th.stack = th.stack[:len(th.stack)-1]
	}
}

func (r *recording) add(th *stepped, s *truth.Step, in *x86.Inst) {
	base := Access{Process: th.process, Thread: th.number, Time: th.tsc, PC: s.IP}
	if in != nil && (in.Op == "mfence" || in.Op == "lock or" && len(s.Accesses) > 0 && s.Accesses[0].Flags&truth.Stack != 0) {
		base.Kind = Fence
		r.accesses = append(r.accesses, base)
		return
	}
	r.stacks = append(r.stacks, append([]uint64{s.IP}, reversed(th.stack)...))
	for _, a := range s.Accesses {
		x := base
		x.Addr, x.Size, x.Kind, x.Stack = a.Addr, a.Size, Kind(a.Flags&(truth.Read|truth.Write)), firstStack+uint32(len(r.stacks)-1)
		if a.Flags&truth.Locked != 0 {
			x.Kind |= Locked
		}
		if a.Flags&truth.AtMost == 0 {
			r.accesses = append(r.accesses, x)
		}
	}
}

func reversed(s []uint64) []uint64 {
	out := slices.Clone(s)
	slices.Reverse(out)
	return out
}

// codes reads instructions from the files that were mapped.
type codes struct {
	r      *sample.Recording
	epochs map[int32][]sample.Epoch
	images map[int32]*sample.Image
	insts  map[[2]uint64]*x86.Inst
}

func newCodes(r *sample.Recording) *codes {
	return &codes{r, map[int32][]sample.Epoch{}, map[int32]*sample.Image{}, map[[2]uint64]*x86.Inst{}}
}

// epoch is the last of the process: no program here replaces code.
func (c *codes) epoch(pid int32) *sample.Epoch {
	if c.epochs[pid] == nil {
		c.epochs[pid] = c.r.Epochs(pid)
		if n := len(c.epochs[pid]); n > 0 {
			c.images[pid], _ = c.r.Image(&c.epochs[pid][n-1])
		}
	}
	if n := len(c.epochs[pid]); n > 0 {
		return &c.epochs[pid][n-1]
	}
	return nil
}

func (c *codes) at(pid int32, ip uint64) *x86.Inst {
	key := [2]uint64{uint64(pid), ip}
	in, ok := c.insts[key]
	if !ok {
		if c.epoch(pid) != nil {
			if got, err := x86.Decode(c.images[pid].Code(ip)); err == nil {
				in = &got
			}
		}
		c.insts[key] = in
	}
	return in
}

func (c *codes) where(pid int32, ip uint64) code {
	e := c.epoch(pid)
	if e == nil {
		return inAgent
	}
	for _, m := range e.Mappings {
		if m.Start <= ip && ip < m.End {
			return codeOfModule(m.Path)
		}
	}
	return inAgent
}

func codeOfModule(path string) code {
	switch base := filepath.Base(path); {
	case strings.HasPrefix(base, "libripstop"):
		return inAgent
	case strings.HasPrefix(base, "ld-linux"):
		return inLoader
	case strings.HasPrefix(base, "libc.so"), strings.HasPrefix(base, "libgcc_s"), base == "[vdso]":
		return inRuntime
	}
	return inProgram
}

// world is the model of the recorded processes, with the stacks of accesses.
type world struct {
	*target.Set
	r *recording
}

func (w world) Stack(process uint64, id uint32) finding.Stack {
	if id < firstStack {
		return w.Set.Stack(process, id)
	}
	var out finding.Stack
	for i, pc := range w.r.stacks[id-firstStack] {
		out = append(out, w.Frame(process, pc, i > 0))
	}
	return out
}

func (w world) Code(process, pc uint64) Code {
	if codeOfModule(w.Frame(process, pc, false).Module) == inProgram {
		return Program
	}
	return Runtime
}

// Counts: only what the program called is among the accesses; memory of the runtime's own is in its modules.
func (w world) Counts(a *Access) bool {
	o := w.Object(a.Process, a.Addr, 0)
	return o.Where != finding.Unknown && (o.Where != finding.Global || codeOfModule(o.Module) == inProgram)
}

func (r *recording) run(t testing.TB, cfg Config) Result {
	t.Helper()
	in := Input{Events: r.trace.Events, Accesses: Accesses(r.accesses)}
	res, err := Run(in, func() World { return world{target.New(r.sym), r} }, cfg)
	if err != nil {
		t.Fatal(err)
	}
	set := target.New(r.sym)
	for i := range res.Findings {
		set.Symbolize(&res.Findings[i])
	}
	return res
}

// missed is the rule of races that are known not to be seen: one that is found must be stated as what it is.
const missed = "missed"

// statement is what the lines of a source say.
type statement struct {
	rule  string
	lines []int
}

func statements(t testing.TB, source string) map[string]*statement {
	t.Helper()
	races, err := stated.Races(source)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*statement{}
	for name, r := range races {
		out[name] = &statement{map[string]string{"race": "data-race", "race-mov": "data-race-mov", "race-any": "", "uaf": "use-after-free-access", "missed": missed}[r.Kind], r.Lines}
	}
	return out
}

// lineOf is the line of the innermost frame that lies in source.
func lineOf(s finding.Stack, source string) int {
	for _, f := range s {
		if filepath.Base(f.File) == filepath.Base(source) {
			return f.Line
		}
	}
	return 0
}

// judge compares findings with what a source says of them; those of unseen need not be there.
func judge(t *testing.T, source string, findings []finding.Finding, hide bool, unseen ...string) {
	t.Helper()
	want := statements(t, source)
	seen := map[string]bool{}
	for _, f := range findings {
		a, b := lineOf(f.Parts[0].Stack, source), lineOf(f.Parts[1].Stack, source)
		name := ""
		for n, s := range want {
			if slices.Contains(s.lines, a) && slices.Contains(s.lines, b) {
				name = n
			}
		}
		switch {
		case name == "":
			t.Errorf("%s: lines %d and %d: %s, which the source does not state: %s\n%v\n%v", source, a, b, f.Rule, f.Message, f.Parts[0], f.Parts[1])
		case want[name].rule != "" && want[name].rule != string(f.Rule):
			t.Errorf("%s: %s is told as %s: %s\n%v", source, name, f.Rule, f.Message, f.Notes)
		}
		seen[name] = true
	}
	for name, s := range want {
		if !seen[name] && s.rule != missed && !slices.Contains(unseen, name) && (!hide || s.rule != "data-race-mov" && s.rule != "") {
			t.Errorf("%s: %s (lines %d) is not found", source, name, s.lines)
		}
	}
}

func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestAgainstReference runs the same code, with several goroutines")
	}
	runner, sources := runnerAndSources(t)
	for _, source := range sources {
		// Stepped, each takes a minute or more of a processor; TestProgramsTold and TestProgramsFull run them all.
		if filepath.Base(source) != "atomics.c" && os.Getenv("RIPSTOP_SOAK") == "" {
			continue
		}
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			exe := build(t, source, "-O1")
			r := open(t, record(t, runner, exe))
			judge(t, source, r.run(t, Config{}).Findings, false)
			judge(t, source, r.run(t, Config{MovAtomics: Hide, Shards: 2}).Findings, true)
		})
	}
}

// toldWorld is world for accesses with stacks of events.
type toldWorld struct{ *target.Set }

func (w toldWorld) Code(process, pc uint64) Code {
	if codeOfModule(w.Frame(process, pc, false).Module) == inProgram {
		return Program
	}
	return Runtime
}

func (w toldWorld) Counts(*Access) bool { return false }

// The same programs at full speed, many times, with accesses told by the code that makes them: each race is found each time, and no other.
func TestProgramsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestAgainstReference runs the same code")
	}
	runner, sources := runnerAndSources(t)
	for _, source := range append(sources, calledSources(t)...) {
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			exe := build(t, source, "-O1")
			for range rounds {
				dir := recordBy(t, "full", runner, exe)
				judgeTold(t, source, dir)
				os.RemoveAll(filepath.Dir(dir))
			}
		})
	}
}

// judgeTold is judge of the recording in dir, whose events tell the accesses.
func judgeTold(t *testing.T, source, dir string, unseen ...string) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	sym := image.NewSymbolizer()
	defer sym.Close()
	res, err := Run(Told(tr.Events), func() World { return toldWorld{target.New(sym)} }, Config{})
	if err != nil {
		t.Fatal(err)
	}
	set := target.New(sym)
	for i := range res.Findings {
		set.Symbolize(&res.Findings[i])
	}
	judge(t, source, res.Findings, false, unseen...)
}

// rounds is how often each program is run; RIPSTOP_SOAK=1 does it a hundred times.
var rounds = map[bool]int{false: 2, true: 100}[os.Getenv("RIPSTOP_SOAK") == "1"]

func runnerAndSources(t *testing.T) (runner string, sources []string) {
	t.Helper()
	if runner = os.Getenv("RIPSTOP_RUNNER"); runner == "" { // test/keys builds it outside of its machine, where that is quick
		runner = filepath.Join(t.TempDir(), "runner")
		cmd := exec.Command("go", "build", "-ldflags", "-E ripstop_entry", "-o", runner, "../run/testdata/runner")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sources, err := filepath.Glob("testdata/*.c*")
	if err != nil || len(sources) < 2 {
		t.Fatal(sources, err)
	}
	return runner, sources
}

// calledSources are programs whose races are what functions of the C library and the kernel access for their callers, which a stepped recording does not have as such, and those that take too long to step.
func calledSources(t *testing.T) []string {
	t.Helper()
	var sources []string
	for _, dir := range []string{"called", "unstepped"} {
		found, err := filepath.Glob("testdata/" + dir + "/*.c*")
		if err != nil || len(found) < 3 {
			t.Fatal(found, err)
		}
		sources = append(sources, found...)
	}
	return sources
}
