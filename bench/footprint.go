package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
)

// goalFootprint is what `guard` may take of memory, as a ratio to native, the recording's logs not counted (issue 5).
const goalFootprint = 2

// footprintEpochs is how long epochs are at most: the programs' last for seconds, and what a checkpoint keeps of a process that lives long is to be seen.
const footprintEpochs = "200ms"

// footprintEvery is how often memory is asked for: a peak that lasts less may be missed.
const footprintEvery = 5 * time.Millisecond

// footprint is the most that processes had at one time: the program's with all its children, and KiB of ripstop's own. The program's most is that of what counts: all but the logs, which may be more at another time.
type footprint struct {
	program agent.Footprint
	logs    int64
	ours    int64
}

// counts is what the goal is about.
func counts(f agent.Footprint) int64 { return f.All - f.Logs }

// watchFootprint looks at all descendants of this process, or those of one name, and ripstop, until it is told to stop.
func watchFootprint(name string) (stop func() footprint) {
	var f footprint
	var wait sync.WaitGroup
	end := make(chan struct{})
	wait.Go(func() {
		tick := time.NewTicker(footprintEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				now := descendants(os.Getpid(), name)
				if counts(now.program) > counts(f.program) {
					f.program = now.program
				}
				f.logs = max(f.logs, now.program.Logs)
				f.ours = max(f.ours, now.ours)
			}
		}
	})
	return func() footprint {
		close(end)
		wait.Wait()
		return f
	}
}

// descendants sums the memory of what descends from a process. Who ends meanwhile counts nothing.
func descendants(of int, name string) footprint {
	type process struct {
		parent int
		name   string
	}
	all := map[int]process{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		open, closed := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if err != nil || open < 0 || closed < open {
			continue
		}
		fields := strings.Fields(string(stat[closed+1:]))
		if len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		all[pid] = process{parent, string(stat[open+1 : closed])}
	}
	var f footprint
	for pid, p := range all {
		above := p.parent
		for above != of && above > 1 {
			above = all[above].parent
		}
		if above != of || p.name == "ripstop-signals" { // which has ripstop's memory, and no other
			continue
		}
		one, err := agent.ReadFootprint(pid)
		if err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(p.name, "ripstop"):
			f.ours += one.All
		case name == "" || p.name == name:
			f.program.All += one.All
			f.program.Own += one.Own
			f.program.Logs += one.Logs
			f.program.Kept += one.Kept
			f.program.Arena += one.Arena
		}
	}
	return f
}

func mib(kib int64) float64 { return float64(kib) / 1024 }

// serverNames are the processes of drive's programs whose memory counts: beside them their clients run.
var serverNames = map[string]string{"x264": "x264", "memcached": "memcached", "redis": "redis-server", "apache2": "apache2", "mariadb": "mariadbd"}

// guardFootprint measures what `guard` takes of memory: the most that a program had at one time, in each way over native. In runs of their own, as who is asked for its memory so often is slowed down.
func (b *bench) guardFootprint(ctx context.Context) error {
	if !b.only.MatchString("footprint") {
		return nil
	}
	g, err := b.guardRows(ctx)
	if err != nil {
		return err
	}
	b.epochs = footprintEpochs
	defer func() { b.epochs = "" }()
	fmt.Printf("\n%-14s %-12s", "footprint", "native")
	for _, w := range guardWays[1:] {
		fmt.Printf(" %-26s", w.name)
	}
	fmt.Println("peak of Pss over native but for logs; MiB of that kept for the checkpoint, and of logs; ripstop's own MiB")
	var all [asanWay + 1][]float64
	for k := range g.len() {
		var native float64
		for i := range guardWays {
			if !b.way(i) {
				continue
			}
			var peaks, kept, logs, ours []float64
			for range b.rounds {
				stop := watchFootprint(serverNames[g.name(k)])
				_, _, ok, err := b.guardRun(ctx, g, k, i)
				f := stop()
				if err != nil {
					return err
				}
				if ok {
					peaks, kept = append(peaks, mib(counts(f.program))), append(kept, mib(f.program.Own+f.program.Kept))
					logs, ours = append(logs, mib(f.logs)), append(ours, mib(f.ours))
				}
			}
			peak := median(peaks)
			switch {
			case i == 0:
				native = peak
				fmt.Printf("%-14s %-12s", g.name(k), fmt.Sprintf("%.1f MiB", peak))
			case peak == 0:
				fmt.Printf(" %-26s", "")
			default:
				if g.name(k) != "start" && g.kind(k) != allocates {
					all[i] = append(all[i], peak/native)
				}
				fmt.Printf(" %-26s", fmt.Sprintf("%.2f; %.1f %.1f; %.0f", peak/native, median(kept), median(logs), median(ours)))
			}
		}
		fmt.Println()
	}
	for i, w := range guardWays {
		if len(all[i]) > 0 {
			goal := 0.0
			if i >= recordingWay && i < asanWay {
				goal = goalFootprint
			}
			fmt.Printf("%-14s median of %d %.2f× %s\n", w.name, len(all[i]), median(all[i]), b.verdict(median(all[i]), goal))
		}
	}
	return nil
}
