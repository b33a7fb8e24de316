// Package record is what `ripstop record`, `ripstop report` and `ripstop dump` mean: a program's events are kept in a trace directory, and
// looked at afterwards as a run would have. What a trace looks like is package trace's business.
package record

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/access"
	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/pmu"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/step"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/tsc"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Options is what the flags of a recording say.
type Options struct {
	Program    []string // and its arguments
	Dir        string   // the trace; must not exist, be empty, or be an older trace
	Version    string   // of ripstop
	Follow     bool     // watch child processes too
	WaitFor    run.WaitFor
	StackDepth int  // frames of a stack; 0: no stacks
	Stats      bool // say at the end what the recording cost
	Sampling   Sampling
	Messages   io.Writer
}

// Record runs the program and writes all events of its threads to a trace. It returns the program's exit status; an error says why the
// program was not started or the trace is not complete. If the program died by a signal, Record ends this process by the same
// signal and does not return.
func Record(o Options) (exit int, err error) {
	if o.Messages == nil {
		o.Messages = os.Stderr
	}
	if err := agent.RaiseFileLimits(); err != nil {
		return run.Code(err), err
	}
	env := agent.OwnEnviron()
	prog, err := agent.Resolve(o.Program, env)
	if err != nil {
		return run.Code(err), err
	}
	cfg := wire.Config{All: 1, Heap: 1, Misuse: 1, StackDepth: uint32(o.StackDepth), AllocDepth: agent.DefaultAllocDepth, LaneBytes: laneBytes}
	if o.StackDepth == 0 {
		cfg.AllocDepth = 0
	}
	if o.Follow {
		cfg.Follow = 1
	}
	code := func(names []string) ([]pmu.Range, error) { return pmu.CodeFor(prog.Exec, step.FilterMain, names, env) }
	if err := o.Sampling.choose(code); err != nil {
		return agent.ExitOurs, err
	}
	out, err := trace.Create(o.Dir, meta(&o, cfg), sample.Files()...)
	if err != nil {
		return agent.ExitOurs, err
	}
	w := &warnings{}
	sampler, err := o.sampler(w.add)
	if err != nil {
		out.Close()
		return agent.ExitOurs, err
	}
	with := agent.Options{Config: cfg, Recorder: out, Warn: w.add}
	var teller *access.Teller
	if o.Sampling.Mode == sample.Full {
		teller = access.New(false)
		eng := engine.New(engine.Options{Client: teller, Calls: x86.PushReturn, CodeBytes: engine.Whole, Warn: w.add})
		defer eng.Close()
		with.Patcher = eng
	}
	sess, err := agent.New(with)
	if err != nil {
		out.Close()
		sampler.Close()
		return agent.ExitOurs, err
	}
	status, err := sampler.launch(sess, prog, env, o.WaitFor, func() {
		o.say("SIGQUIT: while recording there is nothing to show; 'ripstop run' shows all threads")
	})
	sampleErr := sampler.Close()
	left, traceErr := sess.Close()
	if traceErr == nil {
		traceErr = sampleErr
	}
	if err != nil {
		out.Close()
		return run.Code(err), err
	}
	res := trace.Result{Exit: status.Code, Signal: int(status.Signal), Ended: time.Now().Format(time.RFC3339)}
	if teller != nil {
		res.NotSeen = teller.NotSeen()
	}
	if e := out.SetResult(res); traceErr == nil {
		traceErr = e
	}
	if e := out.Close(); traceErr == nil {
		traceErr = e
	}
	for _, text := range w.list() {
		o.say("not seen: %s", text)
	}
	if text := o.Sampling.told(o.Dir); text != "" {
		o.say("%s", text)
	}
	stats := sess.Stats()
	if stats.Processes == 0 {
		o.say("not seen: the program did not load the agent (it clears LD_PRELOAD, or ended before the C library had started): the trace is empty")
	}
	if text := run.LetGo(left); text != "" {
		o.say("not seen: %s", text)
	}
	if o.Stats {
		for _, s := range run.Stats(stats) {
			o.say("stats: %-29s  %s", s.Name, s.Value)
		}
	}
	if traceErr != nil {
		// The program ran to its end all the same; its status is said, since it cannot be given.
		return agent.ExitOurs, fmt.Errorf("%w (the trace is not complete; the program ended with %v)", traceErr, status)
	}
	return run.End(status), nil
}

// laneBytes is the size of a thread's ring: recording is bursts.
const laneBytes = 256 << 10

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Messages, "ripstop: %s\n", fmt.Sprintf(format, args...))
}

func meta(o *Options, c wire.Config) trace.Meta {
	dir, _ := os.Getwd()
	now := time.Now()
	m := trace.Meta{
		Ripstop: o.Version, Command: o.Program, Directory: dir, Started: now.Format(time.RFC3339),
		Clock: trace.Clock{Hz: tsc.Frequency(), TSC: tsc.Now(), UnixNano: time.Now().UnixNano()},
		Host:  trace.Host{CPUs: runtime.NumCPU(), CPU: cpuModel()},
		Config: trace.Config{All: c.All != 0, Follow: c.Follow != 0, Heap: c.Heap != 0, Misuse: c.Misuse != 0,
			Accesses: o.Sampling.Mode == sample.Full, StackDepth: c.StackDepth, AllocDepth: c.AllocDepth},
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Host.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(b), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// warnings keeps what the session has to say until the program has ended.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.texts
}
