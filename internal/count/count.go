// Package count is what `ripstop count` means: how often each memory instruction of a program ran, by function and source line. The engine puts a recipe in front
// of each that adds 1 to a cell in memory that the program shares with us, so that the counts are there however the program ends.
//
// What is counted is that an instruction begins: one that faults counts, and a string instruction counts once, however many elements it has. Forked children count in the
// cells of their parent; a program that was executed anew has cells of its own. A profile is the sum over all of them, by module and link-time address.
package count

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Formats are the names that an Output may have.
var Formats = []string{"text", "json", "pprof"}

// An Output is one form of the profile and where it goes.
type Output struct {
	Format string
	File   string // "": standard error; "-": standard output
}

// ParseOutputs reads FORMAT[=FILE],… as given by --format, and the file of --output for the one that names none. With nothing given it is text.
func ParseOutputs(formats, file string) (list []Output, err error) {
	if formats == "" {
		formats = "text"
	}
	bare := 0
	for _, f := range strings.Split(formats, ",") {
		name, to, named := strings.Cut(f, "=")
		o := Output{name, to}
		known := false
		for _, k := range Formats {
			known = known || k == name
		}
		switch {
		case !known:
			return nil, fmt.Errorf("--format: %q is none of %s", name, strings.Join(Formats, ", "))
		case named && to == "":
			return nil, fmt.Errorf("--format: %s= names no file", name)
		case !named:
			bare++
			o.File = file
		}
		if o.Format == "pprof" && o.File == "" {
			return nil, errors.New("a pprof profile is bytes and no text: name a file for it, as in --format pprof -o profile.pb.gz")
		}
		list = append(list, o)
	}
	if file != "" && bare != 1 {
		return nil, fmt.Errorf("-o %s is for the one format that names no file, and %d do", file, bare)
	}
	return list, nil
}

// sharedBytes bounds the cells of a process: six million instructions. What they take below 2 GiB is lost for the trampolines of a program that is not position-independent: with 256 MiB
// more than 1% of python3's instructions needed int3, with 64 MiB 0.07%.
const sharedBytes = 48 << 20

// Options is what the flags say.
type Options struct {
	Program  []string // and its arguments
	Version  string   // of ripstop
	Select   Selection
	Outputs  []Output
	Top      int // functions and lines that the text shows; 0: all
	Follow   bool
	WaitFor  run.WaitFor
	Stats    bool
	Messages io.Writer // what ripstop itself has to say; nil: standard error
	Stdout   io.Writer // nil: standard output
}

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Messages, "ripstop: %s\n", fmt.Sprintf(format, args...))
}

// Count runs the program and writes the profile when it has ended. It returns the program's exit status; an error says why the program was not started or the profile
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
	files, err := o.open()
	if err != nil {
		return agent.ExitOurs, err
	}
	c := newCounter(o.Select)
	notes := &notes{}
	eng := engine.New(engine.Options{Client: c, Calls: x86.PushReturn, SharedBytes: sharedBytes, Warn: notes.add})
	cfg := wire.Config{}
	if o.Follow {
		cfg.Follow = 1
	}
	sess, err := agent.New(agent.Options{Config: cfg, Handler: deaf{}, Warn: notes.add, Patcher: eng})
	if err != nil {
		closeAll(files)
		return agent.ExitOurs, err
	}
	status, err := run.Launch(sess, prog, env, o.WaitFor, func() {
		o.say("SIGQUIT: 'ripstop count' shows what it counted when the program has ended; 'ripstop run' shows all threads")
	})
	left, closeErr := sess.Close()
	eng.Stop() // it may be planning for a process that was killed
	if err != nil {
		closeAll(files)
		return run.Code(err), err
	}
	p, engineStats := c.finish(), eng.Stats()
	eng.Close()
	p.Command, p.Version, p.Ended = o.Program, o.Version, status.String()
	if closeErr != nil {
		notes.add(closeErr.Error())
	}
	if len(p.Processes) == 0 {
		notes.add("the program did not load the agent, or could not be patched: nothing was counted")
	}
	for _, pattern := range o.Select.Modules {
		if !slices.ContainsFunc(p.Modules, func(m *Module) bool { return fits(pattern, m.Path) }) {
			notes.add(fmt.Sprintf("--modules %s: nothing that was loaded fits that", pattern))
		}
	}
	if text := run.LetGo(left); text != "" {
		notes.add(text)
	}
	p.NotCounted = append(p.NotCounted, notes.list()...)
	err = o.write(p, files)
	if o.Stats {
		o.stats(p, engineStats, sess.Stats())
	}
	if err != nil {
		// The program ran to its end all the same; its status is said, since it cannot be given.
		return agent.ExitOurs, fmt.Errorf("%w (the program ended with %v)", err, status)
	}
	return run.End(status), nil
}

// open opens the files before the program runs: a run whose outcome cannot be kept is not begun. Nil: the stream is no file of ours.
func (o *Options) open() (files []*os.File, err error) {
	for _, x := range o.Outputs {
		var f *os.File
		if x.File != "" && x.File != "-" {
			if f, err = os.Create(x.File); err != nil {
				closeAll(files)
				return nil, err
			}
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func (o *Options) write(p *Profile, files []*os.File) error {
	sym := image.NewSymbolizer()
	defer sym.Close()
	var errs []error
	for i, x := range o.Outputs {
		var w io.Writer = files[i]
		name := x.File
		switch x.File {
		case "":
			w, name = o.Messages, "standard error"
		case "-":
			w, name = o.Stdout, "standard output"
		}
		var err error
		switch x.Format {
		case "json":
			err = p.WriteJSON(w, sym)
		case "pprof":
			err = p.WritePprof(w, sym)
		default:
			err = p.WriteText(w, sym, o.Top)
		}
		if files[i] != nil {
			err = errors.Join(err, files[i].Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the profile could not be written to %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// stats says what counting cost.
func (o *Options) stats(p *Profile, e engine.Stats, a agent.Stats) {
	say := func(name, format string, args ...any) { o.say("stats: %-29s  %s", name, fmt.Sprintf(format, args...)) }
	for _, line := range p.tierLines() {
		say("patched by", "%s", line)
	}
	say("instructions displaced", "%d", e.Displaced)
	say("trampolines", "%d KiB of code in %d KiB of memory", e.Code>>10, e.Pages>>10)
	say("modules", "%d, of %d of them the instructions were known from before", e.Modules, e.Kept)
	say("tables", "%d KiB", e.Tables>>10)
	if e.Lost > 0 {
		say("kept for forked children", "%d KiB of trampolines of modules that have gone", e.Lost>>10)
	}
	if sites := e.Held; sites > 0 { // memory and sites of modules that are there at the end
		say("memory a site", "%d bytes: %d of trampolines, %d of tables", (e.Pages+e.Tables)/sites, e.Pages/sites, e.Tables/sites)
	}
	for _, s := range run.Stats(a) {
		say(s.Name, "%s", s.Value)
	}
}
