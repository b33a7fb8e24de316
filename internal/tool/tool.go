// Package tool is for analyses of what threads share that need nothing of the engine or the agent: it runs a program, has each of its accesses counted by cache line, instruction and thread
// in the process itself (lines.c), and gives the counts to an Analysis, which knows what lies where and who is who by its World.
package tool

import (
	"io"
	"os"
	"sync"

	"github.com/ripstop/ripstop/internal/access"
	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// LineBytes is the size of a cache line.
const LineBytes = 64

// A Use is what an instruction of a thread did to a cache line in some time; of the same three there may be several. Counts are exact, but of signal handlers that interrupted the counting itself.
type Use struct {
	Process       uint64
	Thread        uint32
	Line, PC      uint64 // addresses
	Read, Written uint64 // bytes: bit 0 is the line's first
	Reads, Writes uint64
	Moved         uint64 // how often the line was not the thread's then, in a directory of caches without bounds
	First, Last   uint64 // ticks
}

// World is what an Analysis may ask, of the moment.
type World interface {
	// Process gives the pid and the path of the executable.
	Process(process uint64) (pid uint32, exe string, args []string)
	Thread(process uint64, number uint32) finding.Thread
	// Object describes what lies at addr, without names.
	Object(process, addr uint64, kind wire.Object) finding.Object
	Frame(process, pc uint64, ret bool) finding.Frame
	// Symbolize puts names in. It takes milliseconds, and belongs in Finish.
	Symbolize(f *finding.Finding)
}

// An Analysis is given a program's uses of memory. Its methods are called by one goroutine.
type Analysis interface {
	// Use is called for each use, while the world is as it was when the use was told: when its thread ends, the process does, or there is no more room.
	Use(w World, u *Use)
	// End says that a process has ended and that no more is told of it.
	End(w World, process uint64)
}

// Options is how a program is run.
type Options struct {
	Program    []string // and its arguments
	Follow     bool
	WaitFor    run.WaitFor
	StackDepth int
	Messages   io.Writer // what ripstop itself has to say; nil: standard error
}

// handler gives events to the model of the target, and uses to the analysis.
type handler struct {
	set *target.Set
	a   Analysis
}

func (h *handler) Event(process uint64, e *wire.Event) {
	h.set.Event(process, e)
	if e.Type != wire.TypeLine {
		return
	}
	ev := wire.DecodeLine(e.Words)
	h.a.Use(h.set, &Use{Process: process, Thread: ev.By, Line: ev.Line, PC: ev.Pc, Read: ev.Read, Written: ev.Written, Reads: ev.Reads, Writes: ev.Writes, Moved: ev.Moved, First: ev.First, Last: ev.Last})
}

func (h *handler) Batch() {}

func (h *handler) End(process uint64) {
	h.a.End(h.set, process)
	h.set.Forget(process)
}

// notes keeps what is not seen, each once.
type notes struct {
	mu    sync.Mutex
	texts []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.texts {
		if t == text {
			return
		}
	}
	n.texts = append(n.texts, text)
}

// Run runs the program and gives its status, and what was not seen. An error says why it was not started.
func Run(o Options, a Analysis) (status agent.Status, notSeen []string, err error) {
	if o.Messages == nil {
		o.Messages = os.Stderr
	}
	if err := agent.RaiseFileLimits(); err != nil {
		return status, nil, err
	}
	env := agent.OwnEnviron()
	prog, err := agent.Resolve(o.Program, env)
	if err != nil {
		return status, nil, err
	}
	sym := image.NewSymbolizer()
	defer sym.Close()
	seen := &notes{}
	teller := access.New(false)
	teller.Together = true
	eng := engine.New(engine.Options{Client: teller, Calls: x86.PushReturn, CodeBytes: engine.Whole, Warn: seen.add})
	defer eng.Close()
	cfg := wire.Config{All: 1, Heap: 1, Lines: 1, StackDepth: uint32(o.StackDepth), AllocDepth: agent.DefaultAllocDepth}
	if o.StackDepth == 0 {
		cfg.Heap, cfg.AllocDepth = 0, 0
	}
	if o.Follow {
		cfg.Follow = 1
	}
	h := &handler{set: target.New(sym), a: a}
	sess, err := agent.New(agent.Options{Config: cfg, Handler: h, Warn: seen.add, Patcher: eng})
	if err != nil {
		return status, nil, err
	}
	status, err = run.Launch(sess, prog, env, o.WaitFor, func() {
		_, _ = io.WriteString(o.Messages, "ripstop: SIGQUIT: what was counted is shown when the program has ended; 'ripstop run' shows all threads\n")
	})
	left, closeErr := sess.Close()
	if err != nil {
		return status, nil, err
	}
	if closeErr != nil {
		seen.add(closeErr.Error())
	}
	if text := run.LetGo(left); text != "" {
		seen.add(text)
	}
	if !status.Exited {
		seen.add("a process that a signal ends tells nothing of the threads that lived then")
	}
	return status, append(seen.texts, teller.NotSeen()...), nil
}
