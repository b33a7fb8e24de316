package main

import (
	"io"
	"time"

	"github.com/ripstop/ripstop/internal/analyze"
	"github.com/ripstop/ripstop/internal/calls"
	"github.com/ripstop/ripstop/internal/count"
	"github.com/ripstop/ripstop/internal/ctl"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/record"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/run"
)

// flags is what the flags of run, record and report say.
type flags struct {
	program     []string
	report      report.Options
	exitCode    int
	follow      bool
	onDeadlock  string
	hangTimeout time.Duration
	epochs      time.Duration
	full        bool
	races       string
	epochRaces  string
	queues      string
	tool        string
	memoryLimit int
	fullFrom    string
	epochsFrom  string
	heap        string
	haltOnFirst bool
	movAtomics  string
	waitFor     string
	stackDepth  int
	stats       bool
	dir         string // the trace
	sample      string
	period      int
	filter      []string
	steps       int
	budget      float64
	pid         int
	guardBytes  int
	quarantine  int // KiB
}

// dumpFlags choose what dump prints.
type dumpFlags struct {
	process, thread int
	types           []string
}

// jobTable is the one call that each command makes. Tests put their own in jobs.
type jobTable struct {
	run, guard, record, report func(*flags) (exit int, err error)
	dump                       func(dir string, o *dumpFlags, w io.Writer) (exit int, err error)
	count                      func(*count.Options) (exit int, err error)
	syscalls                   func(*calls.Options) (exit int, err error)
	analyze                    func(*analyze.Options) (exit int, err error)
	ctl                        func(ctl.Question) ctl.Answer
}

var jobs = jobTable{
	run: func(o *flags) (int, error) {
		if o.tool == toolSharing {
			return runSharing(o)
		}
		return run.Run(run.Options{
			Program: o.program, Report: o.report, ExitCode: o.exitCode, Follow: o.follow, OnDeadlock: run.OnDeadlock(o.onDeadlock),
			HangTimeout: o.hangTimeout, StackDepth: o.stackDepth, Stats: o.stats, WaitFor: run.WaitFor(o.waitFor),
			Full: o.full || o.races == racesShared, Shared: o.races == racesShared, Late: o.fullFrom == fromThread, MovAtomics: race.MovAtomics(o.movAtomics), MemoryLimit: o.memoryLimit, HaltOnFirst: o.haltOnFirst, Heap: run.Heap(o.heap),
		})
	},
	guard: func(o *flags) (int, error) {
		return run.Run(run.Options{
			Program: o.program, Report: o.report, ExitCode: o.exitCode, Follow: o.follow, OnDeadlock: run.OnDeadlock(o.onDeadlock), HangTimeout: o.hangTimeout, StackDepth: o.stackDepth, Stats: o.stats,
			WaitFor: run.WaitFor(o.waitFor), HaltOnFirst: o.haltOnFirst, Guard: &run.Guard{Bytes: o.guardBytes, Quarantine: o.quarantine},
			Epochs: run.Epochs{On: o.epochs > 0, Most: o.epochs, Late: o.epochsFrom == fromThread, Races: o.epochRaces == "on", Queues: o.queues == "on"},
		})
	},
	record: func(o *flags) (int, error) {
		r := record.Options{
			Program: o.program, Dir: o.dir, Version: versionString(), Follow: o.follow, StackDepth: o.stackDepth, Stats: o.stats,
			WaitFor:  run.WaitFor(o.waitFor),
			Sampling: record.Sampling{Mode: record.SampleMode(o.sample), Period: uint64(o.period), Filter: o.filter, Steps: uint64(o.steps), Budget: o.budget},
		}
		if o.pid != 0 {
			return record.Attach(r, o.pid)
		}
		return record.Record(r)
	},
	report: func(o *flags) (int, error) {
		return record.Report(record.ReportOptions{Dir: o.dir, Report: o.report, ExitCode: o.exitCode})
	},
	dump: func(dir string, o *dumpFlags, w io.Writer) (int, error) {
		return record.Dump(dir, record.Filter{Process: uint64(o.process), Thread: uint32(o.thread), Types: o.types}, w)
	},
	count:    func(o *count.Options) (int, error) { return count.Count(*o) },
	analyze:  func(o *analyze.Options) (int, error) { return analyze.Analyze(*o) },
	ctl:      ctl.Ask,
	syscalls: func(o *calls.Options) (int, error) { return calls.Count(*o) },
}
