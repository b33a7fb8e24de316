package verdict

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	root     = "../.."
	programs = root + "/testdata/prog"
)

// usualRuns is how often a program is run in each variant, if it does not ask for more itself.
func usualRuns() int {
	if os.Getenv("RIPSTOP_SOAK") != "" {
		return 24
	}
	return 1
}

// ripstop copies bin/ripstop, so that a build beside the test changes nothing.
func ripstop(t *testing.T) string {
	t.Helper()
	from, err := os.Open(filepath.Join(root, "bin/ripstop"))
	if err != nil {
		t.Fatalf("%v; run make first", err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "ripstop")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// processors are those that we may run on.
func processors(t *testing.T) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func compilable(t *testing.T, p *Program) {
	if p.Compiler() == "rustc" && exec.Command("rustc", "--version").Run() != nil {
		t.Skip("no Rust compiler here: a Rust program is tested where there is one")
	}
}

// TestPrograms: in every program of testdata/prog, however it is built and whatever the schedule, run finds, and report finds in what
// record has written, exactly what the program states. Its output and status are those that it has natively; where there is
// nothing to report, not a word is added to its standard error.
func TestPrograms(t *testing.T) {
	all, err := ReadPrograms(programs)
	if err != nil {
		t.Fatal(err)
	}
	bench := &bench{ripstop: ripstop(t), schedules: Schedules(processors(t)), runs: usualRuns()}
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			compilable(t, p)
			for i, v := range Variants {
				if v.Stripped && p.Symbols {
					continue
				}
				t.Run(v.Name, func(t *testing.T) { bench.variant(t, p, v, i) })
			}
		})
	}
}

// TestEpochs: likewise under guard with epochs, as far as that judges locks and threads: deadlocks are told while it records, and what an object's own words prove.
func TestEpochs(t *testing.T) {
	all, err := ReadPrograms(programs)
	if err != nil {
		t.Fatal(err)
	}
	bench := &bench{ripstop: ripstop(t), schedules: Schedules(processors(t)), runs: usualRuns()}
	for n, p := range all {
		// Of those of which nothing is to be told a quarter, where a gate has minutes for it.
		if p.Alone || len(p.Epochs) == 0 && n%4 != 0 && os.Getenv("RIPSTOP_SOAK") == "" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			compilable(t, p)
			tr := &trial{bench: bench, Program: p, variant: Variants[n%2], dir: t.TempDir()}
			exe, err := p.Compile(tr.variant, tr.dir)
			if err != nil {
				t.Fatal(err)
			}
			tr.exe = exe
			if !p.Hangs {
				if err := tr.runNatively(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range (bench.runs + 1) / 2 {
				s := bench.schedules[(n+i)%len(bench.schedules)]
				// Short epochs end while threads wait.
				if err := tr.with(s, func() error {
					return tr.under(s, i%2 == 1, p.Epochs, "guard", "--epochs", []string{"10s", "100ms"}[(n+i)%2])
				}); err != nil {
					t.Errorf("run %d (%s): %v", i+1, s.Name, err)
				}
			}
		})
	}
}

// bench is what all programs are tested with.
type bench struct {
	ripstop   string
	schedules []Schedule
	runs      int
}

// trial is one program, built, with its native outcome.
type trial struct {
	*bench
	*Program
	variant Variant
	dir     string
	exe     string
	native  Outcome
}

func (b *bench) variant(t *testing.T, p *Program, v Variant, number int) {
	tr := &trial{bench: b, Program: p, variant: v, dir: t.TempDir()}
	exe, err := p.Compile(v, tr.dir)
	if err != nil {
		t.Fatal(err)
	}
	tr.exe = exe
	if !p.Hangs {
		if err := tr.runNatively(); err != nil {
			t.Fatal(err)
		}
	}
	runs := b.runs
	if !testing.Short() {
		runs = max(runs, p.Runs)
	}
	if v.Stripped {
		runs = (runs + 3) / 4 // stripping changes names, not threads
	}
	for i := range runs {
		s := b.schedules[(i+2*number)%len(b.schedules)]
		if err := tr.with(s, func() error { return tr.watched(s, (i+number)%2 == 1) }); err != nil {
			t.Errorf("run %d (%s): %v", i+1, s.Name, err)
		}
	}
	for i := range max(runs/2, 1) {
		s := b.schedules[(2*i+number)%len(b.schedules)]
		if err := tr.with(s, func() error { return tr.recorded(s) }); err != nil {
			t.Errorf("recording %d (%s): %v", i+1, s.Name, err)
		}
	}
}

// runNatively runs the program twice, and wants what is stated, and twice the same.
func (tr *trial) runNatively() error {
	for i := range 2 {
		o, err := Do(tr.dir, append([]string{tr.exe}, tr.fill(tr.Args)...))
		if err != nil {
			return fmt.Errorf("natively: %w", err)
		}
		if o.Code != tr.Exit || o.Signal != tr.Signal {
			return fmt.Errorf("natively it ends with %s, and states another end\n%s", o.Status(), clip(o.Stderr))
		}
		if i > 0 && o != tr.native {
			return fmt.Errorf("it is not a test program: two native runs differ\n%+v\n%+v", tr.native, o)
		}
		tr.native = o
	}
	return nil
}

// with runs f while the schedule's busy process runs.
func (tr *trial) with(s Schedule, f func() error) error {
	if s.Spinner >= 0 {
		spinner := exec.Command("taskset", "-c", fmt.Sprint(s.Spinner), "sh", "-c", "while :; do :; done")
		spinner.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := spinner.Start(); err != nil {
			return err
		}
		defer spinner.Wait()
		defer spinner.Process.Kill()
	}
	return f()
}

// fill puts paths for the names that statements know.
func (tr *trial) fill(words []string) []string {
	paths := strings.NewReplacer("{exe}", tr.exe, "{lib}", tr.exe+".so", "{src}", filepath.Dir(tr.Path), "{ripstop}", tr.ripstop)
	filled := make([]string, len(words))
	for i, w := range words {
		filled[i] = paths.Replace(w)
	}
	return filled
}

// command is ripstop's command line under the schedule.
func (tr *trial) command(s Schedule, flags ...string) []string {
	return slices.Concat(s.Outer, []string{tr.ripstop}, flags, []string{"--"}, s.Inner, []string{tr.exe}, tr.fill(tr.Args))
}

// watched runs the program under `ripstop run` and judges. Quiet: text is not asked for and the exit status is to be the program's, so that
// nothing at all may differ from the native run.
func (tr *trial) watched(s Schedule, quiet bool) error {
	return tr.under(s, quiet, tr.Want, "run")
}

// under is watched under a command of ripstop's, which is to find what is wanted.
func (tr *trial) under(s Schedule, quiet bool, want []Verdict, command ...string) error {
	file := filepath.Join(tr.dir, "report.json")
	os.Remove(file)
	flags := append(slices.Clone(command), "--format", "text,json="+file)
	quiet = quiet && !tr.Hangs
	if quiet {
		flags = append(slices.Clone(command), "--exit-code", "0", "--format", "json="+file)
	}
	args := tr.command(s, append(flags, tr.fill(tr.Flags)...)...)
	o, err := Do(tr.dir, args)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(args, " "))
	}
	wrong := tr.judge(file, want)
	if !tr.Hangs {
		wrong = append(wrong, differ("standard output", tr.native.Stdout, o.Stdout))
	}
	if len(want) == 0 || quiet {
		own := o.Stderr
		if len(want) > 0 {
			own = reported.ReplaceAllString(own, "")
		} else if slices.Contains(tr.Flags, "--suppressions") {
			own = suppressed.ReplaceAllString(own, "")
		}
		wrong = append(wrong, differ("status", tr.native.Status(), o.Status()), differ("standard error", tr.native.Stderr, own))
	} else {
		if o.Code != 66 {
			wrong = append(wrong, "it ends with "+o.Status()+", not 66")
		}
		for _, v := range want {
			if !strings.Contains(o.Stderr, "SUMMARY: ripstop: "+string(v.Rule)+" ") {
				wrong = append(wrong, fmt.Sprintf("no SUMMARY of %s on standard error", v.Rule))
			}
		}
	}
	return deviation(wrong, args, o)
}

// What ripstop itself says at the end: where a report is, and which suppressions were used.
var (
	reported   = regexp.MustCompile(`ripstop: reported \d+ findings?(, .*)?, see .*\n$`)
	suppressed = regexp.MustCompile(`ripstop: \d+ suppressed(, see .*)?\n(ripstop: suppressions that matched:\n( .*\n)+)?$`)
)

// recorded runs the program under `ripstop record`, and judges what `ripstop report` makes of that. A program that hangs hangs here as well: it
// is ended once the trace shows it.
func (tr *trial) recorded(s Schedule) error {
	file, trace := filepath.Join(tr.dir, "report.json"), filepath.Join(tr.dir, "trace")
	if err := os.RemoveAll(trace); err != nil {
		return err
	}
	args := tr.command(s, slices.Concat([]string{"record", "-o", trace}, tr.flags(true))...)
	r, err := Start(tr.dir, args)
	if err != nil {
		return err
	}
	if tr.Hangs {
		err = endWhenStuck(r, trace)
	}
	o, waitErr := r.Wait()
	if err == nil {
		err = waitErr
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(args, " "))
	}
	var wrong []string
	if !tr.Hangs {
		wrong = append(wrong, differ("standard output", tr.native.Stdout, o.Stdout), differ("status", tr.native.Status(), o.Status()),
			differ("standard error", tr.native.Stderr, o.Stderr))
	}
	found, err := tr.report(trace, file)
	if err != nil {
		return err
	}
	want := 0
	if len(tr.Want) > 0 {
		want = 66
	}
	if found.Code != want || found.Signal != 0 {
		wrong = append(wrong, fmt.Sprintf("report ends with %s, not %d:\n%s", found.Status(), want, clip(found.Stderr)))
	}
	return deviation(append(wrong, tr.judge(file, tr.Want)...), args, o)
}

// flags are those of the program's that record has, about what is watched, or those that report has.
func (tr *trial) flags(record bool) (flags []string) {
	for _, f := range tr.fill(tr.Flags) {
		if (strings.HasPrefix(f, "--follow=") || strings.HasPrefix(f, "--wait-for=")) == record {
			flags = append(flags, f)
		}
	}
	return flags
}

func (tr *trial) report(trace, file string) (Outcome, error) {
	os.Remove(file)
	return Do(tr.dir, slices.Concat([]string{tr.ripstop, "report", "--format", "json=" + file}, tr.flags(false), []string{trace}))
}

// endWhenStuck ends a recording when its trace has shown for a while a process all of whose threads wait. Not at once: a thread that a barrier has let go
// waits by its events until it gets a processor, and if the next one waits by then, all seem to: with two processors and eleven who wanted them for a quarter of a second once.
// So where a thread has a processor or wants one, as those do that wait by spinning, the while is ten times as long.
func endWhenStuck(r *Running, dir string) error {
	const enough = 120
	var err error
	looks := 0
	for begin := time.Now(); time.Since(begin) < patience/2; time.Sleep(20 * time.Millisecond) {
		var stuck bool
		if stuck, err = Stuck(dir); !stuck { // an error: the trace has hardly begun
			looks = 0
			continue
		}
		runs, wrong := r.Runs()
		if wrong != nil {
			r.Kill()
			return wrong
		}
		if looks++; !runs {
			looks += 9
		}
		if looks >= enough {
			return r.Terminate()
		}
	}
	r.Kill()
	return fmt.Errorf("the trace of the hanging program does not come to show that all its threads wait (%v)", err)
}

func (tr *trial) judge(file string, want []Verdict) []string {
	rep, err := ReadReport(file)
	if err != nil {
		return []string{err.Error()}
	}
	wrong := []string{Judge(want, rep.Findings, !tr.variant.Stripped)}
	if !tr.Hangs && tr.Signal == 0 && (rep.Exit == nil || *rep.Exit != tr.Exit) {
		wrong = append(wrong, fmt.Sprintf("the report does not say that the program exited with %d", tr.Exit))
	}
	for _, text := range rep.NotSeen {
		wrong = append(wrong, "not seen: "+text)
	}
	return wrong
}

// deviation is the error that tells all that is wrong, nil if nothing is.
func deviation(wrong, args []string, o Outcome) error {
	wrong = slices.DeleteFunc(wrong, func(s string) bool { return s == "" })
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("not as stated:\n%s\ncommand: %s\nended with %s; standard error:\n%s", strings.Join(wrong, "\n"),
		strings.Join(args, " "), o.Status(), indent(clip(o.Stderr)))
}
