// Package calls is what `ripstop syscalls` means: which system calls a program made, how often, with how many errors, and how long they took. The engine puts a jump to the
// agent's hook in place of the instructions by which libc and ld.so make them, and before the functions of the vdso; the hook counts in memory shared with us
// (wire.Calls), so that the counts are there however the program ends.
//
// What is counted is the program's: the agent makes its own calls by instructions of its own, which nobody patches.
package calls

import (
	"fmt"
	"io"
	"os"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/syscalls"
	"github.com/ripstop/ripstop/internal/tsc"
	"github.com/ripstop/ripstop/internal/wire"
)

// Formats are those that the profile may have.
var Formats = []string{"text", "json"}

// Options is what the flags say.
type Options struct {
	Program  []string // and its arguments
	Version  string   // of ripstop
	Format   string   // one of Formats; "": text
	Output   string   // file; "": standard error; "-": standard output
	Order    syscalls.Order
	Detail   syscalls.Detail
	Follow   bool
	WaitFor  run.WaitFor
	Stats    bool
	Messages io.Writer // what ripstop itself has to say; nil: standard error
	Stdout   io.Writer // nil: standard output
}

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Messages, "ripstop: %s\n", fmt.Sprintf(format, args...))
}

// laneBytes is the size of a thread's ring: few events are sent.
const laneBytes = 16 << 10

// Count runs the program and writes what it called when it has ended. It returns the program's exit status; an error says why the program was not started or the counts
// could not be written. If the program died by a signal, Count ends this process by the same signal and does not return.
func Count(o Options) (exit int, err error) {
	if o.Messages == nil {
		o.Messages = os.Stderr
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if err := agent.RaiseFileLimits(); err != nil {
		return run.Code(err), err
	}
	env := agent.OwnEnviron()
	prog, err := agent.Resolve(o.Program, env)
	if err != nil {
		return run.Code(err), err
	}
	out, name := o.Messages, "standard error"
	switch o.Output {
	case "":
	case "-":
		out, name = o.Stdout, "standard output"
	default:
		f, err := os.Create(o.Output) // before the program runs: a run whose outcome cannot be kept is not begun
		if err != nil {
			return agent.ExitOurs, err
		}
		defer f.Close()
		out, name = f, o.Output
	}
	c := newCounter()
	notes := &notes{}
	eng := engine.New(engine.Options{Client: c, Warn: notes.add})
	cfg := wire.Config{Calls: 1, LaneBytes: laneBytes}
	if o.Follow {
		cfg.Follow = 1
	}
	sess, err := agent.New(agent.Options{Config: cfg, Handler: listener{notes}, Warn: notes.add, Patcher: eng})
	if err != nil {
		return agent.ExitOurs, err
	}
	status, err := run.Launch(sess, prog, env, o.WaitFor, func() {
		o.say("SIGQUIT: 'ripstop syscalls' shows what it counted when the program has ended; 'ripstop run' shows all threads")
	})
	left, closeErr := sess.Close()
	eng.Stop()
	if err != nil {
		return run.Code(err), err
	}
	p := c.profile(sess.Calls())
	stats := eng.Stats()
	eng.Close()
	p.Ripstop, p.Command, p.Ended = o.Version, o.Program, status.String()
	if closeErr != nil {
		notes.add(closeErr.Error())
	}
	if len(p.Processes) == 0 {
		notes.add("the program did not load the agent, or could not be patched: nothing was counted")
	}
	if text := run.LetGo(left); text != "" {
		notes.add(text)
	}
	p.NotCounted = append(p.NotCounted, notes.list()...)
	p.Finish(tsc.Frequency(), o.Order)
	if o.Format == "json" {
		err = p.WriteJSON(out)
	} else {
		err = p.WriteText(out, o.Detail)
	}
	if f, ok := out.(*os.File); ok && o.Output != "" && o.Output != "-" && err == nil {
		err = f.Close()
	}
	if o.Stats {
		o.stats(p, stats, sess.Stats())
	}
	if err != nil {
		// The program ran to its end all the same; its status is said, since it cannot be given.
		return agent.ExitOurs, fmt.Errorf("the counts could not be written to %s: %w (the program ended with %v)", name, err, status)
	}
	return run.End(status), nil
}

// stats says what became of the sites, and what it cost.
func (o *Options) stats(p *syscalls.Profile, e engine.Stats, a agent.Stats) {
	say := func(name, format string, args ...any) { o.say("stats: %-29s  %s", name, fmt.Sprintf(format, args...)) }
	for i := range p.Sites {
		say("sites", "%s", p.Sites[i].String())
	}
	say("instructions displaced", "%d", e.Displaced)
	say("trampolines", "%d KiB of code in %d KiB of memory", e.Code>>10, e.Pages>>10)
	for _, s := range run.Stats(a) {
		say(s.Name, "%s", s.Value)
	}
}
