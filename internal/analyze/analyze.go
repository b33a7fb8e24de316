// Package analyze is what `ripstop analyze` means: it looks for data races in a sampled recording. The accesses that were not sampled are recovered (package
// recover), put in order with the spine's events, and judged (package race).
//
// Memory is bounded whatever the length of a trace, but for what is said here: control flow and samples are mapped from files, accesses wait in temporary files, and the
// history of accesses has a bound of its own (race.Config.MaxCells). In memory are an index of control flow (0.5% of it), and what recovery holds of 4 shards a worker.
package analyze

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/trace"
)

// Options is what the flags of `ripstop analyze` say.
type Options struct {
	Dir        string
	Report     report.Options
	ExitCode   int             // exit status when something was found
	Jobs       int             // goroutines that recover and judge; 0: one for each processor
	MovAtomics race.MovAtomics // "": race.DefaultMovAtomics
	Memory     recover.Memory  // what is believed of memory that the replay wrote
	Reach      recover.Reach   // how far from samples accesses are recovered
	Stats      bool
}

// What race detection is divided into, whatever the number of workers: where a bound is hit the result depends on it.
const (
	shards   = 4
	maxCells = 1 << 21 // of a shard: some 160 MB
)

// maxRounds bounds how often accesses are recovered anew.
const maxRounds = 10

// Analyze looks for races in a recording and reports them. The exit status is ExitCode if there are any, else 0.
func Analyze(o Options) (exit int, err error) {
	begin := time.Now()
	tr, err := trace.Open(o.Dir)
	if err != nil {
		return agent.ExitOurs, err
	}
	defer tr.Close()
	if tr.Meta().Config.Accesses {
		return full(o, tr, begin)
	}
	rec, err := sample.Open(o.Dir)
	if err != nil {
		return agent.ExitOurs, err
	}
	defer rec.Close()
	if rec.Info.Attached {
		return agent.ExitOurs, fmt.Errorf("%s: it is of a process that ran when it was attached to (--pid): its locks are not known, and without them every access would race; "+
			"start the program under ripstop record --sample", o.Dir)
	}
	o.Report.Command = tr.Meta().Command
	rep, err := report.New(o.Report)
	if err != nil {
		return agent.ExitOurs, err
	}
	a := &analysis{o: o, trace: tr, rec: rec, rep: rep, sym: image.NewSymbolizer()}
	defer a.sym.Close()
	defer a.close()
	var s report.Summary
	if err = a.run(context.Background()); err == nil {
		set := target.New(a.sym)
		a.report(set, a.found.Findings)
		s.NotSeen = a.notSeen()
		if o.Stats {
			s.Stats = a.stats()
		}
		if r := tr.Meta().Result; r != nil {
			s.Exited, s.ExitCode = r.Signal == 0, r.Exit
		}
		s.DurationMS = time.Since(begin).Milliseconds()
	}
	res, closeErr := rep.Close(s)
	switch {
	case err != nil:
		return agent.ExitOurs, err
	case closeErr != nil:
		return agent.ExitOurs, closeErr
	case res.New > 0:
		return o.ExitCode, nil
	}
	return 0, nil
}

// An analysis is one call of Analyze.
type analysis struct {
	o      Options
	trace  *trace.Reader
	rec    *sample.Recording
	rep    *report.Reporter
	sym    *image.Symbolizer
	owners *owners
	in     *recover.Input

	drop       []recover.Range // memory that is not believed, since it is raced on
	rounds     int
	unsettled  bool // maxRounds were not enough
	single     bool // one round only, for tests
	whole      bool // all shards in each round, for tests
	again      int  // shards that were recovered again
	collection *collection
	placer     *placer
	placed     *runs
	found      race.Result
}

func (a *analysis) close() {
	if a.placed != nil {
		_ = a.placed.Close()
	}
	a.placed = nil
	if a.collection != nil {
		_ = a.collection.found.Close()
	}
	a.collection = nil
}

func (a *analysis) jobs() int {
	if a.o.Jobs > 0 {
		return a.o.Jobs
	}
	return runtime.GOMAXPROCS(0)
}

// run recovers and judges, and does so again without believing the memory that turned out to be raced on, until there is no more of that (ProRace, section 5.1). Only
// those shards are recovered again that believed such memory.
func (a *analysis) run(ctx context.Context) (err error) {
	if a.owners, err = readOwners(a.trace, a.rec.Threads); err != nil {
		return err
	}
	if a.in, err = recover.Prepare(a.rec); err != nil {
		return err
	}
	for i := range a.in.Images {
		x := &a.in.Images[i]
		for _, m := range x.Mappings {
			if codeOf(m.Path) != race.Program {
				x.Outside = append(x.Outside, recover.Range{Start: m.Start, End: m.End})
			}
		}
	}
	if a.collection, err = newCollection(a.rec, a.in); err != nil {
		return err
	}
	all := make([]int, len(a.in.Shards))
	for i := range all {
		all[i] = i
	}
	for which := all; ; {
		a.rounds++
		if err := a.round(ctx, which); err != nil {
			return err
		}
		var more []recover.Range
		if which, more, err = a.emulated(); err != nil {
			return err
		}
		if len(more) == 0 || a.single {
			return nil
		}
		if a.rounds == maxRounds {
			a.unsettled = true
			return nil
		}
		a.drop = append(a.drop, more...)
		if a.whole {
			which = all
		}
		a.again += len(which)
	}
}

func (a *analysis) round(ctx context.Context, which []int) (err error) {
	o := recover.Options{Reach: a.o.Reach, Memory: a.o.Memory, Drop: a.drop}
	if err = a.collection.collect(ctx, a.rec, a.in, o, a.jobs(), which); err != nil {
		return err
	}
	if a.placed != nil {
		_ = a.placed.Close()
	}
	if a.placed, err = newRuns(2 * len(a.rec.Threads)); err != nil {
		return err
	}
	if a.placer, err = place(a.trace.Events, a.owners, a.collection, a.placed); err != nil {
		return err
	}
	in := race.Input{Events: a.trace.Events, Accesses: a.source()}
	newWorld := func() race.World { return world{target.New(a.sym), a.collection.stacks} }
	cfg := race.Config{MovAtomics: a.o.MovAtomics, MaxCells: maxCells, Shards: shards, Jobs: a.jobs(), Partial: a.partial()}
	a.found, err = race.Run(in, newWorld, cfg)
	return err
}

// partial says whether accesses are missing that could order threads.
func (a *analysis) partial() bool {
	c := &a.collection.counts
	return a.collection.sampled || len(a.rec.Info.Filter) > 0 || c.By[recover.Unknown] > 0 || c.Gaps > uint64(len(a.rec.Threads)) || !a.rec.Info.Complete
}

// emulated gives the cells that were believed although threads race on them, and the shards that believed them.
func (a *analysis) emulated() (which []int, more []recover.Range, err error) {
	dropped := map[uint64]bool{}
	for _, r := range a.drop {
		dropped[r.Start/8] = true
	}
	racy := map[uint64]bool{}
	for _, c := range a.found.Racy {
		if !dropped[c.Number] {
			racy[c.Number] = true
		}
	}
	if len(racy) == 0 || a.o.Memory == recover.None {
		return nil, nil, nil
	}
	which, believed, err := a.collection.believing(racy)
	for _, c := range a.found.Racy {
		if believed[c.Number] && !dropped[c.Number] {
			dropped[c.Number] = true
			more = append(more, recover.Range{Start: c.Number * 8, End: c.Number*8 + 8})
		}
	}
	return which, more, err
}
