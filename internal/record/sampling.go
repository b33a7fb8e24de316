package record

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/pmu"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/step"
	"github.com/ripstop/ripstop/internal/tracee"
)

// Sampling is what the flags of a recording say of samples of memory accesses. The zero value takes none.
type Sampling struct {
	Mode   sample.Mode
	Period uint64   // accesses of a thread from one sample to the next; 0: DefaultPeriod
	Filter []string // files in which control flow is traced: "main", base names; "all" is everywhere; none: "main"
	Steps  uint64   // of mode step: instructions after which the program is let go; 0: none
	Entry  bool     // of mode step: step.Options.Entry
	Seed   uint64   // of what is random; 0: any
	Budget float64  // of mode timer: the share of the program's CPU time that sampling may take; 0: no limit

	why    string // the mode was chosen
	chosen bool   // by us
	plan   *pmu.Plan
}

// SampleMode says where samples come from.
type SampleMode = sample.Mode

// DefaultPeriod is ProRace's (ASPLOS'17, section 7).
const DefaultPeriod = 10_000

// FilterAll stands for every file.
const FilterAll = "all"

// choose fills in what is left open. code gives the ranges of files in which control flow is to be traced.
func (s *Sampling) choose(code func(names []string) ([]pmu.Range, error)) error {
	if s.Period == 0 {
		s.Period = DefaultPeriod
	}
	for s.Seed == 0 {
		s.Seed = rand.Uint64() >> 12 // JSON's numbers have 53 bits
	}
	if len(s.Filter) == 0 {
		s.Filter = []string{step.FilterMain}
	}
	for _, f := range s.Filter {
		if f == FilterAll {
			s.Filter = nil
			break
		}
	}
	switch s.Mode {
	case sample.None, sample.Step, sample.Full:
	case sample.Timer:
		s.why = "it was asked for"
	case sample.PMU:
		s.why = "it was asked for"
		return s.planned(code)
	case sample.Auto:
		s.chosen = true
		switch err := s.planned(code); {
		case err == nil:
			s.Mode, s.why = sample.PMU, "the processor has PEBS and Intel PT"
		case errors.Is(err, pmu.ErrNoPMU):
			s.Mode, s.why = sample.Timer, err.Error()
		default:
			return err
		}
	default:
		return fmt.Errorf("there is no mode %q of sampling", s.Mode)
	}
	return nil
}

// planned makes the plan of mode pmu.
func (s *Sampling) planned(code func(names []string) ([]pmu.Range, error)) (err error) {
	if _, err := pmu.Here(s.Period, nil); err != nil {
		return err // whatever the files are
	}
	var ranges []pmu.Range
	if len(s.Filter) > 0 {
		if ranges, err = code(s.Filter); err != nil {
			return err
		}
	}
	s.plan, err = pmu.Here(s.Period, ranges)
	return err
}

// told says at the end what was chosen and what is missing, where the user must know; "" if nothing.
func (s *Sampling) told(dir string) string {
	if s.Mode == sample.None || s.Mode == sample.Full {
		return ""
	}
	i, err := sample.ReadInfo(dir)
	if err != nil {
		return err.Error()
	}
	text := ""
	if s.chosen {
		text = fmt.Sprintf("sampled by %s: %s", i.Mode, i.Why)
	}
	if i.Lost > 0 || i.Throttled > 0 {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("%d records of samples were lost and sampling was throttled %d times by the kernel", i.Lost, i.Throttled)
	}
	return text
}

// A sampler samples the program of a recording.
type sampler interface {
	launch(sess *agent.Session, prog *agent.Program, env []string, wait run.WaitFor, quit func()) (agent.Status, error)
	Close() error
}

func (o *Options) sampler(warn func(string)) (sampler, error) {
	s := &o.Sampling
	switch s.Mode {
	case sample.Step:
		st, err := step.New(step.Options{
			Dir: o.Dir, Period: s.Period, Seed: s.Seed, Filter: s.Filter, Limit: s.Steps, Entry: s.Entry, Follow: o.Follow, Command: o.Program, Version: o.Version, Warn: warn,
		})
		return sampled{st, st.Wait}, err
	case sample.Timer:
		if b, err := run.AgentLibrary(); err != nil {
			return nil, err
		} else if err := os.WriteFile(filepath.Join(o.Dir, sample.AgentFile), b, 0o666); err != nil {
			return nil, fmt.Errorf("samples: %w", err)
		}
		t, err := pmu.NewTimer(pmu.TimerOptions{
			Dir: o.Dir, Budget: s.Budget, Follow: o.Follow, Seed: s.Seed, Why: s.why, Command: o.Program, Version: o.Version, Warn: warn,
		})
		return sampled{t, nil}, err
	case sample.PMU:
		if b, err := run.AgentLibrary(); err != nil {
			return nil, err
		} else if err := os.WriteFile(filepath.Join(o.Dir, sample.AgentFile), b, 0o666); err != nil {
			return nil, fmt.Errorf("samples: %w", err)
		}
		r, err := pmu.NewRecorder(s.recorder(o, warn))
		return sampled{r, nil}, err
	}
	return unsampled{}, nil
}

// recorder gives the options of mode pmu, and tells what the hardware's filters leave out.
func (s *Sampling) recorder(o *Options, warn func(string)) pmu.RecorderOptions {
	filter := s.Filter
	if s.plan.Filter == "" {
		filter = nil // everywhere
	} else if left := s.plan.NoRanges(); left != "" {
		warn("the processor has no more filters for control flow: nothing is traced in " + left)
	}
	return pmu.RecorderOptions{
		Dir: o.Dir, Plan: s.plan, Period: s.Period, Filter: filter, Follow: o.Follow, Seed: s.Seed, Why: s.why, Command: o.Program, Version: o.Version, Warn: warn,
	}
}

type unsampled struct{}

func (unsampled) launch(sess *agent.Session, prog *agent.Program, env []string, wait run.WaitFor, quit func()) (agent.Status, error) {
	return run.Launch(sess, prog, env, wait, quit)
}

func (unsampled) Close() error { return nil }

// sampled is a program that something is attached to before it begins.
type sampled struct {
	attached interface {
		Attach(pid int) error
		Close() error
	}
	wait func() (unix.WaitStatus, error) // nil: as without
}

func (s sampled) Close() error { return s.attached.Close() }

// launch is run.Launch with that.
func (s sampled) launch(sess *agent.Session, prog *agent.Program, env []string, wait run.WaitFor, quit func()) (agent.Status, error) {
	signals, err := agent.CatchSignals()
	if err != nil {
		return agent.Status{}, err
	}
	defer signals.Stop()
	t, err := agent.StartHeld(prog, sess.Environ(env), s.attached.Attach)
	if err != nil {
		return agent.Status{}, err
	}
	defer t.Release()
	status := t.Supervise(signals, agent.Hooks{Quit: quit, OurStop: tracee.TracerStop, Wait: s.wait})
	if wait == run.All {
		sess.AwaitAll(signals, quit)
	}
	return status, nil
}
