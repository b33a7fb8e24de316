package record

import (
	"fmt"
	"math/rand/v2"

	"github.com/ripstop/ripstop/internal/agent"
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
	Seed   uint64   // of what is random; 0: any
}

// SampleMode says where samples come from.
type SampleMode = sample.Mode

// DefaultPeriod is ProRace's (ASPLOS'17, section 7).
const DefaultPeriod = 10_000

// FilterAll stands for every file.
const FilterAll = "all"

// choose fills in what is left open.
func (s *Sampling) choose() error {
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
	case sample.None, sample.Step:
		return nil
	}
	return fmt.Errorf("--sample=%s is not there yet", s.Mode)
}

// A sampler samples the program of a recording.
type sampler interface {
	launch(sess *agent.Session, prog *agent.Program, env []string, wait run.WaitFor, quit func()) (agent.Status, error)
	Close() error
}

func (o *Options) sampler(warn func(string)) (sampler, error) {
	s := &o.Sampling
	if s.Mode == sample.Step {
		st, err := step.New(step.Options{
			Dir: o.Dir, Period: s.Period, Seed: s.Seed, Filter: s.Filter, Limit: s.Steps, Follow: o.Follow, Command: o.Program, Version: o.Version, Warn: warn,
		})
		return stepped{st}, err
	}
	return unsampled{}, nil
}

type unsampled struct{}

func (unsampled) launch(sess *agent.Session, prog *agent.Program, env []string, wait run.WaitFor, quit func()) (agent.Status, error) {
	return run.Launch(sess, prog, env, wait, quit)
}

func (unsampled) Close() error { return nil }

type stepped struct{ *step.Stepper }

// launch is run.Launch for a program whose changes its tracer is told.
func (s stepped) launch(sess *agent.Session, prog *agent.Program, env []string, wait run.WaitFor, quit func()) (agent.Status, error) {
	signals, err := agent.CatchSignals()
	if err != nil {
		return agent.Status{}, err
	}
	defer signals.Stop()
	t, err := agent.StartHeld(prog, sess.Environ(env), s.Attach)
	if err != nil {
		return agent.Status{}, err
	}
	defer t.Release()
	status := t.Supervise(signals, agent.Hooks{Quit: quit, OurStop: tracee.TracerStop, Wait: s.Wait})
	if wait == run.All {
		sess.AwaitAll(signals, quit)
	}
	return status, nil
}
