// Package engine patches code of processes while they run: it plans with package patch and has the agent in the process do what only the process can do.
//
// All that happens in a process happens because one of its threads asks and waits: in the agent's constructor, before the program runs; after dlopen and dlclose; at an
// instruction that is to be patched now. It asks in a page of shared memory (wire.PatchPage) and does what is answered; text, trampolines and tables are
// written by Go through /proc/PID/mem, or by the asking thread where that is refused.
package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// A Client says what is patched and with what. All calls about one process come from one goroutine, and the thread that asked waits for them; those about
// different processes may come at the same time.
type Client interface {
	// Start is called when a process (from its exec on) asks for the first time, before Sites. What it allocates by p.Share stays valid as long as the engine.
	// An error leaves the process as it is, and is told by Options.Warn.
	Start(p *Process) error
	// Sites gives what is to be patched in a module that has come: at the start, all that the program is linked with; then what dlopen brings. Sites that cannot be
	// patched are left out and counted; p.Why tells afterwards.
	Sites(p *Process, m *Module) []patch.Site
	// Patched is called when the sites of a module are in place. at gives how an instruction was patched, nil: it was not.
	Patched(p *Process, m *Module, at func(addr uint64) *patch.Patch)
	// Site gives the recipe for one instruction that a thread asks for (RS_PATCH_ASK_SITE), and false if it stays as it is.
	Site(p *Process, m *Module, at uint64) (patch.Recipe, bool)
	// End is called when the process has ended, or has become another program. Its memory is gone; what it shared is still there.
	End(p *Process)
}

// Options of an engine.
type Options struct {
	Client Client
	// SharedBytes is how much each process may share by Process.Share; at most 1 GiB. It costs memory as far as it is used.
	SharedBytes uint64
	// Warn is told what could not be done. May be called from several goroutines.
	Warn func(text string)
}

// An Engine patches the processes of a session. It is the session's agent.Patcher.
type Engine struct {
	opts  Options
	mu    sync.Mutex
	procs map[uint64]*Process
	ended []*Process
	stats Stats
	serve sync.WaitGroup
}

// Stats of an engine, over all processes.
type Stats struct {
	Sites     uint64                  // asked for
	Patched   [patch.Tiers]uint64     // of them, by tier; as of each process's end
	Displaced uint64                  // instructions displaced on behalf of a site
	Unpatched map[Why]uint64          // of them, not patched
	Undecoded uint64                  // bytes of functions that are no instructions as far as is known: sites in them are not known
	Code      uint64                  // bytes of trampolines
	Pages     uint64                  // bytes of the memory that they lie in
	Tables    uint64                  // bytes of tables in the processes
	Requests  [requests]uint64        // by wire.PatchAsk
	Median    [requests]time.Duration // from when Go saw a request to its answer
}

const requests = int(wire.PatchAskMore) + 1

// A Why says why a site was not patched.
type Why string

// Reasons.
const (
	WhyUnknown Why = "no known instruction"
	WhyShared  Why = "other code runs through its bytes"
	WhyCall    Why = "a call"
	WhySpace   Why = "no memory for a trampoline within reach"
	WhyTrap    Why = "needs int3 where signals may be blocked" // in libc
	WhyRefused Why = "the process's memory could not be changed"
	WhyRecipe  Why = "the recipe could not be made"
)

// Kind says what a module is to the engine.
type Kind uint8

// Kinds of modules.
const (
	Program Kind = iota
	Library
	Libc   // libc.so.6, and what else of glibc runs with all signals blocked
	Loader // ld.so: never patched
	VDSO   // patched only by its entries
	Agent  // never patched
)

// A Module is an ELF object in a process.
type Module struct {
	Path    string // as the process has it mapped; "[vdso]"
	BuildID string // hexadecimal, "" if it has none
	Kind    Kind
	Base    uint64 // of the lowest mapping
	End     uint64
	Bias    uint64 // address in the process less link-time address
	Image   *image.Image

	texts []*text
}

// A text is one executable segment.
type text struct {
	at      uint64
	code    []byte // as it was when the process began
	planner *patch.Planner
	plan    *patch.Text
}

// An Insn is an instruction that is known to begin at At.
type Insn struct {
	At   uint64
	Inst x86.Inst
	Code []byte // its bytes and what follows it in the segment: for x86.Block
}

// Instructions calls f for every known instruction, by address, until f returns false. The Insn is the callee's only until it returns.
func (m *Module) Instructions(f func(*Insn) bool) {}

// A Process is an address space whose code is patched.
type Process struct {
	ID  uint64 // in the session
	PID int

	page *wire.PatchPage
	mods []*Module
}

// Modules lists what is loaded.
func (p *Process) Modules() []*Module { return p.mods }

// Share takes n bytes of the memory that the process shares with us: zero, aligned to 64 bytes, at an address below 2 GiB, so that every instruction reaches it
// by a 32-bit displacement (x86.Abs). A forked child shares it with its parent.
func (p *Process) Share(n int) (addr uint64, mem []byte, err error) {
	return 0, nil, errors.New("engine: not made yet")
}

// SaveOffset is where, from the base of fs, each thread has wire.PatchSaves slots of 8 bytes for trampolines to save registers in.
func (p *Process) SaveOffset() int32 { return p.page.SaveOffset }

// ThreadOffset is where, from the base of fs, each thread has the pointer w. It is set by the agent (internal/agent/c/patch.c) when the thread starts.
func (p *Process) ThreadOffset(w wire.PatchThread) int32 { return p.page.ThreadOffset + 8*int32(w) }

// Func is the address of a function of the agent.
func (p *Process) Func(f wire.PatchFunc) uint64 { return p.page.Function[f] }

// Why tells why a site that Sites asked for is not patched, "" if it is.
func (p *Process) Why(at uint64) Why { return "" }

// New makes an engine.
func New(o Options) *Engine { return &Engine{opts: o, procs: map[uint64]*Process{}} }

// Attach is called when a process asks for the first time, and gives two descriptors for it: the PatchPage and the memory to share. They stay ours. It fails if the
// process is not to be patched.
func (e *Engine) Attach(process uint64, pid int) (fds [2]int, err error) {
	return fds, errors.New("engine: not made yet")
}

// Gone says that a process has ended or has become another program.
func (e *Engine) Gone(process uint64) {}

// Close ends the service of all processes. What is patched stays patched.
func (e *Engine) Close() {}

// Stats are the figures so far.
func (e *Engine) Stats() Stats { return Stats{} }
