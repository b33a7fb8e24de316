package analyze

import (
	"fmt"
	"runtime"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// full judges a trace whose events tell all accesses (record --sample=full).
func full(o Options, tr *trace.Reader, begin time.Time) (exit int, err error) {
	o.Report.Command = tr.Meta().Command
	rep, err := report.New(o.Report)
	if err != nil {
		return agent.ExitOurs, err
	}
	sym := image.NewSymbolizer()
	defer sym.Close()
	a := &analysis{o: o, trace: tr, rep: rep, sym: sym}
	jobs := o.Jobs
	if jobs == 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	told := uint64(0) // accesses, in each pass
	in := race.Told(func(fn func(process uint64, e *wire.Event) error) error {
		told = 0
		return tr.Events(func(process uint64, e *wire.Event) error {
			if e.Type == wire.TypeAccess {
				told++
			}
			return fn(process, e)
		})
	})
	var s report.Summary
	a.found, err = race.Run(in, func() race.World { return toldWorld{target.New(sym)} },
		race.Config{MovAtomics: o.MovAtomics, MaxCells: maxCells, Shards: 1, Jobs: jobs})
	if err == nil {
		a.report(target.New(sym), a.found.Findings)
		s.NotSeen = append(s.NotSeen, "accesses inside libm, libgcc, libstdc++ (streams and the like) and libraries that define malloc are not seen, nor are those of the rarer functions of libc (most of those of wide strings)")
		if r := tr.Meta().Result; r != nil {
			s.Exited, s.ExitCode = r.Signal == 0, r.Exit
			s.NotSeen = append(s.NotSeen, r.NotSeen...)
		}
		if why := tr.Truncated(); why != "" {
			s.NotSeen = append(s.NotSeen, fmt.Sprintf("the trace is cut off: %s; %d events at its end were left out", why, tr.LeftOut()))
		}
		s.NotSeen = append(s.NotSeen, a.found.Notes...)
		if o.Stats {
			s.Stats = append(s.Stats, report.Stat{Name: "accesses", Value: fmt.Sprint(told)})
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

// A toldWorld is the model of the recorded processes, whose accesses have stacks that events define.
type toldWorld struct{ *target.Set }

// Code is race.World's.
func (w toldWorld) Code(process, pc uint64) race.Code {
	if m := w.Frame(process, pc, false).Module; m != "" {
		return codeOf(m)
	}
	return race.Program
}

// Counts is race.World's: code of the runtime tells nothing.
func (w toldWorld) Counts(*race.Access) bool { return false }
