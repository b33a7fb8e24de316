package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/test/real/drive"
)

// sampledPrograms are those that mode timer is measured on.
var sampledPrograms = []string{"pigz", "pbzip2", "memcached", "redis", "sqlite-threads"}

// samplingBudget is what record has by default.
const samplingBudget = 0.02

// sampling measures what mode timer costs above record alone, in CPU time of the program and of ripstop, and how much it gives.
func (b *bench) sampling(ctx context.Context) error {
	only := func(p drive.Program) bool {
		return slices.Contains(sampledPrograms, p.Name) && (b.only.MatchString("sampling") || b.only.MatchString("sampling/"+p.Name))
	}
	if !slices.ContainsFunc(drive.Programs(), only) {
		return nil
	}
	fmt.Printf("\n%-16s %-28s %-10s %-22s %s\n", "mode timer", "CPU above record (quartiles)", "estimated", "accesses a CPU second", "clock samples a CPU second")
	for _, p := range drive.Programs() {
		if !only(p) {
			continue
		}
		var cpu [2][]float64
		var cost, hits, clocks []float64
		for round := range max(b.rounds, 3) {
			for i := range 2 {
				sampled := (i + round) % 2
				dir, err := os.MkdirTemp("/tmp", "rsbench")
				if err != nil {
					return err
				}
				job := drive.Job{Mode: drive.Record, Size: drive.Timed, Ripstop: b.ripstop, Shared: b.shared, Dir: dir, Limit: 5 * time.Minute}
				if sampled == 1 {
					job.Flags = []string{"--sample=timer"}
				}
				out, err := p.Run(ctx, &job)
				var info sample.Info
				if err == nil && sampled == 1 {
					info, err = sample.ReadInfo(job.Trace())
				}
				_ = os.RemoveAll(dir)
				if err != nil {
					return err
				}
				if out.Exit != 0 {
					return fmt.Errorf("%s: exit status %d\n%s", p.Name, out.Exit, out.Stderr)
				}
				cpu[sampled] = append(cpu[sampled], out.CPU.Seconds())
				if sampled == 1 {
					cost = append(cost, info.Cost)
					hits = append(hits, float64(info.Hits)/out.CPU.Seconds())
					clocks = append(clocks, float64(info.Samples-info.Hits)/out.CPU.Seconds())
				}
			}
		}
		above := ratios(cpu[1], cpu[0])
		fmt.Printf("%-16s %-28s %-10s %-22.0f %.0f\n", p.Name, quartiles(above)+" "+b.verdict(median(above), 1+samplingBudget), fmt.Sprintf("%.2f%%", 100*median(cost)), median(hits), median(clocks))
	}
	return nil
}

// quartiles prints the median and the quartiles.
func quartiles(v []float64) string {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return fmt.Sprintf("%.3f× (%.3f–%.3f)", median(s), s[n/4], s[n-1-n/4])
}
