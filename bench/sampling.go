package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/test/real/drive"
)

//go:embed testdata/sampled.c
var sampledSource []byte

// sampledPrograms are those that mode timer is measured on.
var sampledPrograms = []string{"pigz", "pbzip2", "memcached", "redis", "sqlite-threads"}

// sampledLoops are loops of one kind each, of a second or two: what their names say, two threads that compute, one beside 64 that wait, starts of threads.
var sampledLoops = []struct {
	kind string
	n    int
}{{"switches", 800_000}, {"calls", 12_000_000}, {"two", 120_000_000}, {"idle", 240_000_000}, {"starts", 100_000}}

// samplingBudget is what record has by default.
const samplingBudget = 0.02

// A sampledLoad is something that is recorded with and without samples: it gives the CPU time of the program and of ripstop, seconds.
type sampledLoad struct {
	name  string
	spins bool
	run   func(ctx context.Context, dir, trace string, flags []string) (cpu float64, err error)
}

// sampling measures what mode timer costs above record alone, in CPU time of the program and of ripstop, and how much it gives.
func (b *bench) sampling(ctx context.Context) error {
	only := func(name string) bool { return b.only.MatchString("sampling") || b.only.MatchString("sampling/"+name) }
	var loads []sampledLoad
	for _, l := range sampledLoops {
		if only(l.kind) {
			loads = append(loads, sampledLoad{name: l.kind, run: b.loop(l.kind, l.n)})
		}
	}
	for _, p := range drive.Programs() {
		if slices.Contains(sampledPrograms, p.Name) && only(p.Name) {
			loads = append(loads, sampledLoad{name: p.Name, spins: spins(p.Name), run: b.driven(p)})
		}
	}
	if len(loads) == 0 {
		return nil
	}
	fmt.Printf("\n%-16s %-28s %-10s %-8s %-22s %s\n", "mode timer", "CPU above record (quartiles)", "estimated", "let go", "accesses a CPU second", "clock samples a CPU second")
	for _, l := range loads {
		var cpu [2][]float64
		var cost, gone, hits, clocks []float64
		if _, _, err := b.sampledOnce(ctx, l, false); err != nil { // makes the inputs, which the two would make at the same time
			return fmt.Errorf("%s: %w", l.name, err)
		}
		for round := range max(b.rounds, 3) {
			took, info, err := b.sampledPair(ctx, l, round%2)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			for i := range cpu {
				cpu[i] = append(cpu[i], took[i])
			}
			cost, gone = append(cost, info.Cost), append(gone, info.Unattached)
			hits = append(hits, float64(info.Hits)/took[1])
			clocks = append(clocks, float64(info.Samples-info.Hits)/took[1])
		}
		above := ratios(cpu[1], cpu[0])
		fmt.Printf("%-16s %-28s %-10s %-8s %-22.0f %.0f\n", l.name, quartiles(above)+" "+b.verdict(median(above), 1+samplingBudget),
			fmt.Sprintf("%.2f%%", 100*median(cost)), fmt.Sprintf("%.0f%%", 100*median(gone)), median(hits), median(clocks))
	}
	return nil
}

// sampledPair runs a load without samples and with, beginning with first: at the same time. What neighbours of the machine take, both lose: of pbzip2 one after the other the quartiles of ratios
// were 5 to 9% apart, and side by side 0.6 to 0.9%. What spins goes one after the other.
func (b *bench) sampledPair(ctx context.Context, l sampledLoad, first int) (cpu [2]float64, info sample.Info, err error) {
	var infos [2]sample.Info
	var errs [2]error
	b.inTurn(first, 2, !l.spins, func(i int) { cpu[i], infos[i], errs[i] = b.sampledOnce(ctx, l, i == 1) })
	return cpu, infos[1], errors.Join(errs[:]...)
}

func (b *bench) sampledOnce(ctx context.Context, l sampledLoad, sampled bool) (cpu float64, info sample.Info, err error) {
	dir, err := os.MkdirTemp("/tmp", "rsbench")
	if err != nil {
		return 0, info, err
	}
	defer os.RemoveAll(dir)
	trace := filepath.Join(dir, "trace")
	var flags []string
	if sampled {
		flags = []string{"--sample=timer"}
	}
	if cpu, err = l.run(ctx, dir, trace, flags); err == nil && sampled {
		info, err = sample.ReadInfo(trace)
	}
	return cpu, info, err
}

// driven is a real program under its load.
func (b *bench) driven(p drive.Program) func(ctx context.Context, dir, trace string, flags []string) (float64, error) {
	return func(ctx context.Context, dir, _ string, flags []string) (float64, error) {
		job := drive.Job{Mode: drive.Record, Size: drive.Timed, Ripstop: b.ripstop, Shared: b.shared, Dir: dir, Limit: 5 * time.Minute, Flags: flags}
		out, err := p.Run(ctx, &job)
		if err == nil && out.Exit != 0 {
			err = fmt.Errorf("exit status %d\n%s", out.Exit, out.Stderr)
		}
		return out.CPU.Seconds(), err
	}
}

// loop is one kind of testdata/sampled.c.
func (b *bench) loop(kind string, n int) func(ctx context.Context, dir, trace string, flags []string) (float64, error) {
	return func(ctx context.Context, _, trace string, flags []string) (float64, error) {
		prog := filepath.Join(b.shared, "sampled")
		if _, err := os.Stat(prog); err != nil {
			if prog, err = b.compile("sampled", sampledSource); err != nil {
				return 0, err
			}
		}
		args := append(append([]string{"record", "-o", trace}, flags...), "--", prog, kind, strconv.Itoa(n))
		cmd := exec.CommandContext(ctx, b.ripstop, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, out)
		}
		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
	}
}

// quartiles prints the median and the quartiles.
func quartiles(v []float64) string {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return fmt.Sprintf("%.3f× (%.3f–%.3f)", median(s), s[n/4], s[n-1-n/4])
}
