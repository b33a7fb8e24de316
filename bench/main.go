// Command bench prints what ripstop costs: real programs, small loops and memory, as ratios to native figures measured in the same
// run, interleaved, so that a machine that is slower for a while is so for all of them. See docs/bench.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ripstop/ripstop/test/real/drive"
)

type bench struct {
	ripstop string
	shared  string // inputs and compiled programs
	stepped string // a recording; empty: none is there
	budget  time.Duration
	rounds  int
	only    *regexp.Regexp
	rows    *regexp.Regexp // of guard
	ways    *regexp.Regexp // of guard
	long    bool           // of guard
	epochs  string         // of guard: how long, if otherwise than each way has it
	modes   []drive.Mode   // of programs; native is the first
	beside  bool           // modes of a program run at the same time
	missed  int
}

func main() {
	ripstop := flag.String("ripstop", "bin/ripstop", "the binary to measure")
	budget := flag.Duration("budget", 9*time.Minute, "about how long to measure")
	rounds := flag.Int("rounds", 5, "at most so many rounds")
	only := flag.String("only", "", "measure only what matches this regular expression")
	programs := flag.String("programs", "", "for guard: only the rows that match this regular expression")
	ways := flag.String("ways", "", "for guard: only the columns that match this regular expression, and native")
	long := flag.Bool("long", false, "for guard: runs of five times the work, of which starts are less")
	record := flag.Bool("record", true, "measure programs under record, too")
	beside := flag.Bool("beside", false, "run the modes of a program at the same time: neighbours of the machine take the same of each, so that CPU time tells half a percent and elapsed time of what computes nothing; the median is of CPU time then, and of elapsed time where a program mostly sleeps or spins")
	stepped := flag.String("stepped", "", "for pt: a recording of --sample=step --period=1000 --filter=all to measure on; none: one is made, which takes minutes")
	flag.Parse()
	if err := run(*ripstop, *budget, *rounds, *only, *programs, *ways, *long, *record, *beside, *stepped); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ripstop string, budget time.Duration, rounds int, only, rows, ways string, long, record, beside bool, stepped string) error {
	path, err := filepath.Abs(ripstop)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w; run make first", err)
	}
	re, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	reRows, err := regexp.Compile(rows)
	if err != nil {
		return err
	}
	reWays, err := regexp.Compile(ways)
	if err != nil {
		return err
	}
	shared, err := os.MkdirTemp("/tmp", "rsbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(shared)
	if err := os.Chmod(shared, 0o755); err != nil {
		return err
	}
	b := &bench{ripstop: path, shared: shared, budget: budget, rounds: rounds, only: re, rows: reRows, ways: reWays, long: long, stepped: stepped, beside: beside, modes: []drive.Mode{drive.Native, drive.Run}}
	if record {
		b.modes = append(b.modes, drive.Record)
	}
	// A bench that is told to end takes its servers with it, and shows the rounds that it has.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, part := range []func(context.Context) error{b.micro, b.memory, b.calls, b.patches, b.requests, b.pt, b.sampling, b.full, b.races, b.heap, b.checkpoint, b.guard, b.guardFootprint, b.programs} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if b.missed > 0 {
		fmt.Printf("\n%d goals missed. On a busy machine figures of programs mean little: measure again on an idle one.\n", b.missed)
	}
	return nil
}

// verdict marks a figure that has a goal.
func (b *bench) verdict(value, goal float64) string {
	switch {
	case goal == 0:
		return ""
	case value <= goal:
		return "ok"
	}
	b.missed++
	return "MISSED"
}

// figures are the measurements of one program in one mode.
type figures struct{ time, cpu []float64 }

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// ratios divides each figure by the native one of the same round.
func ratios(v, native []float64) []float64 {
	r := make([]float64, min(len(v), len(native)))
	for i := range r {
		r[i] = v[i] / native[i]
	}
	return r
}

const goalProgram = 1.03

// sleeperRounds is how often programs are measured that mostly sleep. Once is too little: natively they differ by 4% from run to run.
const sleeperRounds = 3

// programs measures the real programs, a round at a time, until the budget is spent.
func (b *bench) programs(ctx context.Context) error {
	var list []drive.Program
	for _, p := range drive.Programs() {
		if b.only.MatchString(p.Name) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil
	}
	all := map[string]*[3]figures{}
	start := time.Now()
	var longest time.Duration // of a round, without what is not measured again
rounds:
	for round := 0; round < b.rounds && (round == 0 || time.Since(start)+longest < b.budget); round++ {
		var took time.Duration
		for _, p := range list {
			if p.Sleeps && round >= sleeperRounds && !b.beside {
				continue // it takes as long as all others
			}
			if all[p.Name] == nil {
				all[p.Name] = &[3]figures{}
				// Inputs are made and files read once, out of the measurement.
				if _, err := b.once(ctx, p, drive.Native); err != nil {
					return err
				}
			}
			began := time.Now()
			outs, errs := make([]drive.Outcome, len(b.modes)), make([]error, len(b.modes))
			b.inTurn(round, len(b.modes), b.beside && !spins(p.Name), func(i int) { outs[i], errs[i] = b.once(ctx, p, b.modes[i]) })
			switch {
			case ctx.Err() != nil && round > 0:
				break rounds
			case ctx.Err() != nil:
				return errors.New("told to end in the first round, of which nothing is shown")
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			for i, mode := range b.modes {
				f := &all[p.Name][mode]
				f.time = append(f.time, outs[i].Time.Seconds())
				f.cpu = append(f.cpu, outs[i].CPU.Seconds())
			}
			if !p.Sleeps {
				took += time.Since(began)
			}
		}
		longest = max(longest, took)
	}
	fmt.Printf("\n%-16s %9s  %-22s %-22s %-22s %s\n", "program", "native", "run (min–max)", "record (min–max)", "CPU run (min–max)", "CPU record")
	var costs []float64
	for _, p := range list {
		m := all[p.Name]
		native := m[drive.Native]
		inRun, recorded := ratios(m[drive.Run].time, native.time), ratios(m[drive.Record].time, native.time)
		cpu := ratios(m[drive.Run].cpu, native.cpu)
		if b.beside && !p.Sleeps && !spins(p.Name) {
			costs = append(costs, median(cpu))
		} else {
			costs = append(costs, median(inRun))
		}
		fmt.Printf("%-16s %7.2f s  %-22s %-22s %-22s %.3f\n", p.Name, median(native.time), spread(inRun), spread(recorded), spread(cpu), median(ratios(m[drive.Record].cpu, native.cpu)))
	}
	if len(list) > 1 {
		fmt.Printf("%-16s %9s  %.3f× %s\n", "median of all", "", median(costs), b.verdict(median(costs), goalProgram))
	}
	return nil
}

// spins tells whether a program's threads wait for each other without sleeping: several at once take each other's time.
func spins(name string) bool { return name == "redis" }

// inTurn does n things, beginning with another one each round, or all at once.
func (b *bench) inTurn(round, n int, atOnce bool, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do((i + round) % n) })
		if !atOnce {
			wg.Wait()
		}
	}
	wg.Wait()
}

func spread(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f× (%.2f–%.2f)", median(v), slices.Min(v), slices.Max(v))
}

func (b *bench) once(ctx context.Context, p drive.Program, mode drive.Mode) (drive.Outcome, error) {
	dir, err := os.MkdirTemp("/tmp", "rsbench")
	if err != nil {
		return drive.Outcome{}, err
	}
	defer os.RemoveAll(dir)
	job := drive.Job{Mode: mode, Size: drive.Timed, Ripstop: b.ripstop, Shared: b.shared, Dir: dir, Limit: 5 * time.Minute}
	if mode == drive.Run {
		job.Flags = []string{"--exit-code", "0"}
	}
	out, err := p.Run(ctx, &job)
	if err == nil && out.Exit != 0 {
		err = fmt.Errorf("%s %v: exit status %d\n%s", p.Name, mode, out.Exit, out.Stderr)
	}
	return out, err
}
