package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/detect"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// ReportOptions is what the flags of `ripstop report` say.
type ReportOptions struct {
	Dir      string
	Report   report.Options
	ExitCode int // exit status when something was found
}

// Report judges a trace as a run would have been, and reports the findings. The exit status is ExitCode if there are any, else 0.
func Report(o ReportOptions) (exit int, err error) {
	tr, err := trace.Open(o.Dir)
	if err != nil {
		return agent.ExitOurs, err
	}
	defer tr.Close()
	o.Report.Command = tr.Meta().Command
	rep, err := report.New(o.Report)
	if err != nil {
		return agent.ExitOurs, err
	}
	sym := image.NewSymbolizer()
	defer sym.Close()
	j := run.NewJudge(detect.Config{}, sym, rep)
	var processes []uint64
	seen := map[uint64]bool{}
	threads := false
	err = tr.Events(func(process uint64, e *wire.Event) error {
		threads = threads || e.Type == wire.TypeThreadCreate
		if !seen[process] {
			seen[process] = true
			processes = append(processes, process)
		}
		j.Event(process, e)
		return nil
	})
	if err == nil {
		slices.Sort(processes)
		for _, p := range processes {
			if tr.Gone(p) {
				j.End(p)
			}
		}
	}
	j.Finish()
	s := report.Summary{NotSeen: j.NotSeen(o.Report.Verbose)}
	if why := tr.Truncated(); why != "" {
		s.NotSeen = append(s.NotSeen, fmt.Sprintf("the trace is cut off: %s; %d events at its end were left out", why, tr.LeftOut()))
	}
	if threads {
		s.Unasked = []string{run.NoRaces}
		if _, err := sample.ReadInfo(o.Dir); !errors.Is(err, sample.ErrNoSamples) || tr.Meta().Config.Accesses {
			s.Unasked = []string{"data races ('ripstop analyze' looks for them)"}
		}
	}
	if r := tr.Meta().Result; r != nil {
		s.Exited, s.ExitCode = r.Signal == 0, r.Exit
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

// Filter says which events Dump prints. Zero values stand for all.
type Filter struct {
	Process uint64
	Thread  uint32
	Types   []string // names of the event table
}

// Dump prints the events of a trace as text, one line each.
func Dump(dir string, f Filter, w io.Writer) (exit int, err error) {
	var types [256]bool
	for _, name := range f.Types {
		i := slices.IndexFunc(wire.Events, func(s wire.Spec) bool { return s.Name == name })
		if i < 0 {
			return agent.ExitOurs, fmt.Errorf("there is no type of event called %q; docs/formats.md lists them", name)
		}
		types[wire.Events[i].ID] = true
	}
	tr, err := trace.Open(dir)
	if err != nil {
		return agent.ExitOurs, err
	}
	defer tr.Close()
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	err = tr.Events(func(process uint64, e *wire.Event) error {
		if f.Process != 0 && process != f.Process || f.Thread != 0 && e.Thread != f.Thread || len(f.Types) > 0 && !types[e.Type] {
			return nil
		}
		var err error
		if line, err = trace.AppendText(line[:0], process, e); err != nil {
			return err
		}
		_, err = out.Write(append(line, '\n'))
		return err
	})
	if e := out.Flush(); err == nil {
		err = e
	}
	if err != nil {
		return agent.ExitOurs, err
	}
	if why := tr.Truncated(); why != "" {
		return agent.ExitOurs, fmt.Errorf("the trace is cut off: %s; %d events at its end were left out", why, tr.LeftOut())
	}
	return 0, nil
}
