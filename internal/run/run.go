// Package run is what `ripstop run` means: a program is started under the agent, its events are judged as they come, findings are
// reported when they are made, and the exit status says whether there were any.
//
// How events get here is package agent's business, what is wrong is package detect's, how it reads is package report's. What belongs
// here is how they are put together, and the policy of a run: what happens at a deadlock or a hang, which exit status.
package run

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/ripstop/ripstop/internal/access"
	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/hook"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// OnDeadlock is what happens when every thread of a process is stuck.
type OnDeadlock string

const (
	Exit     OnDeadlock = "exit"     // the process is ended: SIGTERM, and SIGKILL if that does not help
	Continue OnDeadlock = "continue" // nothing
	Abort    OnDeadlock = "abort"    // SIGABRT, for a core dump
)

// WaitFor is whose end is the end of a run.
type WaitFor string

const (
	Main WaitFor = "main" // the program that was started; what it leaves behind is let go
	All  WaitFor = "all"  // the last process that is watched
)

// Heap is whose malloc the program has.
type Heap string

// LibcHeap is the C library's, or what the program has in its place; OwnHeap is the agent's (internal/agent/c/alloc.h) in place of the C library's.
const (
	LibcHeap Heap = "libc"
	OwnHeap  Heap = "own"
)

// Guard is how the heap is guarded. With neither nothing is looked at, and it costs no more than `run`'s heap: for who wants crashes and what is recorded alone.
type Guard struct {
	Bytes      int // behind each block at least; with a quarantine never less than DefaultGuardBytes
	Quarantine int // KiB of freed blocks that each heap keeps back; a thread has one
}

// Limits and defaults of Guard. Units are those of wire.Config.Allocator.
const (
	DefaultGuardBytes = 16
	MaxGuardBytes     = 255 * guardUnit
	DefaultQuarantine = 1 << 10
	MaxQuarantine     = (1<<16 - 1) * quarantineUnit

	guardUnit      = 8
	quarantineUnit = 64 // KiB
)

// word is Config.Allocator.
func (g *Guard) word() uint32 {
	up := func(n, unit, most int) uint32 { return uint32(min((max(n, 0)+unit-1)/unit, most)) }
	if g.Bytes <= 0 && g.Quarantine <= 0 {
		return uint32(wire.AllocatorFreer)
	}
	return uint32(wire.AllocatorFreer) | up(max(g.Bytes, DefaultGuardBytes), guardUnit, 1<<8-1)<<8 | up(g.Quarantine, quarantineUnit, 1<<16-1)<<16
}

// DefaultEpoch is the longest epoch of `guard` unless it is told another.
const DefaultEpoch = 10 * time.Second

// Epochs is what `guard` records of a run, so that its last epoch can be executed again in place.
type Epochs struct {
	On        bool
	Late      bool          // of a process from its second thread on
	Every     bool          // each epoch is executed again and compared (tests)
	Most      time.Duration // after which an epoch ends; 0: as long as is usual
	Races     bool          // what is executed again is so once more with all accesses judged
	Queues    bool          // order in queues of atomics is recorded, as far as it costs little
	AllQueues bool          // with Queues: whatever it costs (tests)
}

// Options is what the flags of a run say.
type Options struct {
	Program     []string // and its arguments
	Report      report.Options
	ExitCode    int             // exit status when something was found; 0: the program's own
	Follow      bool            // watch child processes too
	OnDeadlock  OnDeadlock      // "" is Exit
	HangTimeout time.Duration   // show all threads when nothing has happened for so long; 0: never
	StackDepth  int             // frames of a stack; 0: no stacks
	WaitFor     WaitFor         // "" is Main
	Full        bool            // look for data races, too, by checking all memory accesses
	Late        bool            // with Full, but for Shared: check the accesses of a process from its second thread on
	Shared      bool            // with Full: check accesses to what threads share alone, as protection keys find it
	MovAtomics  race.MovAtomics // of Full; "": race.DefaultMovAtomics
	Heap        Heap            // whose heap the program has; empty: libc's
	Guard       *Guard          // guard bytes and quarantine; nil: none. Then Heap is not looked at
	MemoryLimit int             // of Full: MiB for what the detector of races remembers of a process's memory; 0: as much as is usual
	Epochs      Epochs          // what is recorded so that it can be executed again
	HaltOnFirst bool            // end the program when something is reported that counts
	Stats       bool            // say at the end what the watching cost
	Messages    io.Writer       // what ripstop itself has to say; nil: standard error
}

// Run runs the program and returns the exit status for ripstop: ExitCode if something was found, else the program's. An error says why
// the program was not started, or that a report could not be written; then the status is that of ripstop's own failures. If the
// program died by a signal and nothing was found, Run ends this process by the same signal and does not return.
func Run(o Options) (exit int, err error) {
	if o.Messages == nil {
		o.Messages = os.Stderr
	}
	if err := agent.RaiseFileLimits(); err != nil {
		return Code(err), err
	}
	env := agent.OwnEnviron()
	prog, err := agent.Resolve(o.Program, env)
	runtime := ""
	if in := (*agent.Instrumented)(nil); errors.As(err, &in) && o.tellsItself() {
		o.Full, runtime, err = true, in.Runtime, nil
	}
	if err != nil {
		return Code(err), err
	}
	rep, err := report.New(o.Report)
	if err != nil {
		return agent.ExitOurs, err
	}
	sym := image.NewSymbolizer()
	defer sym.Close()
	w := newWatch(&o, rep, sym)
	with := agent.Options{Config: config(&o), Handler: w, Warn: w.Warn, Runtime: runtime}
	if o.Full {
		w.accesses = access.New(true)
		if o.Shared {
			w.accesses = access.NewShared()
		}
		eng := engine.New(engine.Options{Client: w.accesses, Calls: x86.PushReturn, CodeBytes: engine.Whole, Orders: true, Warn: w.Warn})
		defer eng.Close()
		with.Patcher, w.partly, w.patched = eng, eng.Partly, eng.Stats
	}
	if o.Epochs.On {
		opts := engine.Options{Client: &hook.Locking{Code: !o.Epochs.Races /* which needs it as its file has it */, Queue: o.Epochs.Queues, Left: w.Warn}, Warn: w.Warn}
		if o.Epochs.Races {
			opts.Whole, opts.Calls = access.New(true), x86.PushReturn
		}
		eng := engine.New(opts)
		defer eng.Close()
		with.Patcher = eng
	}
	sess, err := agent.New(with)
	if err != nil {
		w.Finish()
		rep.Close(report.Summary{})
		return agent.ExitOurs, err
	}
	// The loop calls w from now on, but there is no process yet, and Do is a barrier.
	sess.Do(func() { w.sess = sess })
	begin := time.Now()
	unlisten := w.listen(sess, begin)
	status, err := Launch(sess, prog, env, o.WaitFor, func() { sess.Do(func() { w.showThreads("SIGQUIT") }) })
	unlisten()
	left, closeErr := sess.Close()
	w.Finish()
	if err != nil {
		rep.Close(report.Summary{})
		return Code(err), err
	}
	if closeErr != nil {
		w.Warn(closeErr.Error())
	}
	w.ended(status)
	res, err := rep.Close(w.summary(status, sess.Stats(), left, time.Since(begin)))
	if err != nil {
		return agent.ExitOurs, err
	}
	if res.New > 0 && o.ExitCode != 0 {
		return o.ExitCode, nil
	}
	return End(status), nil
}

// tellsItself says whether the job can be done on a program that a compiler has made tell its accesses: where all of them are judged.
func (o *Options) tellsItself() bool { return o.Guard == nil && !o.Epochs.On && !o.Shared }

// Launch runs the program in the session, from its start to its end; with All until no watched process lives any more, or SIGINT, SIGTERM or SIGHUP
// comes in the meantime. On SIGQUIT it calls quit. The status is the program's own.
func Launch(sess *agent.Session, prog *agent.Program, env []string, wait WaitFor, quit func()) (agent.Status, error) {
	signals, err := agent.CatchSignals()
	if err != nil {
		return agent.Status{}, err
	}
	defer signals.Stop()
	t, err := agent.Start(prog, sess.Environ(env))
	if err != nil {
		return agent.Status{}, err
	}
	defer t.Release()
	status := t.Supervise(signals, agent.Hooks{Quit: quit, OurStop: tracee.TracerStop})
	if wait == All {
		sess.AwaitAll(signals, quit)
	}
	return status, nil
}

// End is the exit status that says how the program ended. If that was by a signal this process ends by it too.
func End(s agent.Status) int {
	if s.Exited {
		return s.Code
	}
	agent.DieLike(s.Signal)
	return 128 + int(s.Signal) // a signal that does not kill us
}

// Code is the exit status for a program that could not be started because of err.
func Code(err error) int {
	var r *agent.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return agent.ExitOurs
}

// AgentLibrary is the agent that is built in.
func AgentLibrary() ([]byte, error) { return agent.Library() }

// historyOfPage is what the agent's detector takes for each page of the program's that it remembers, in bytes, with what lies beside it (internal/agent/c/race_core.h).
const historyOfPage = 17 << 10

// Config.Races.
const (
	racesFull   = 1
	racesShared = 2
)

const patchLate = 2 // what Config.Patch says

func config(o *Options) wire.Config {
	c := wire.Config{Heap: 1, Misuse: 1, StackDepth: uint32(o.StackDepth), AllocDepth: agent.DefaultAllocDepth}
	if o.StackDepth == 0 {
		c.Heap, c.AllocDepth = 0, 0
	}
	if o.Follow {
		c.Follow = 1
	}
	if o.Heap == OwnHeap {
		c.Allocator = uint32(wire.AllocatorOwner)
	}
	if o.Guard != nil {
		c.Allocator = o.Guard.word()
	}
	if o.Epochs.On {
		c.Guard = 1 | uint32(min(max(o.Epochs.Most.Milliseconds(), 0), 1<<24-1))<<8
		if o.Epochs.Every {
			c.Guard |= 2
		}
		if o.Epochs.Races {
			c.Guard |= 4
		}
		if o.Epochs.AllQueues {
			c.Guard |= 8
		}
		if o.Epochs.Late {
			c.Patch = patchLate
		}
		c.Calls = 1
		c.Allocator = c.Allocator&^0xff | uint32(wire.AllocatorFreer)
	}
	if o.Full {
		c.All, c.Races = 1, racesFull
		if o.Shared {
			c.Races = racesShared
		}
		c.RacePages = uint32(o.MemoryLimit << 20 / historyOfPage)
		if o.Late && !o.Shared {
			c.Patch = patchLate
		}
	}
	return c
}
