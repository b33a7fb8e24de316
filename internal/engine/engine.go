// Package engine patches code of processes while they run: it plans with package patch and has the agent in the process do what only the process can do.
//
// All that happens in a process happens because one of its threads asks and waits: in the agent's constructor, before the program runs; after dlopen and dlclose; at an
// instruction that is to be patched now. It asks in a page of shared memory (wire.PatchPage) and does what is answered; text, trampolines and tables are
// written by Go through /proc/PID/mem, or by the asking thread where that is refused. All three are private memory of the process, as its text always was: so a
// forked child has what its parent had at that moment, whatever the parent changes later.
package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// A Client says what is patched and with what. All calls about one process come from one goroutine, and the thread that asked waits for them; those about
// different processes may come at the same time.
type Client interface {
	// Start is called when a process (from its exec on) asks for the first time, before Sites. An error leaves the process as it is, and is told by Options.Warn.
	Start(p *Process) error
	// Sites gives what is to be patched in a module that has come: at the start, all that the program is linked with; then what dlopen brings. It is asked of every
	// module but the agent; libc, ld.so and the vdso are for the client to leave out. Sites that cannot be patched are left out and counted; p.Why tells afterwards.
	Sites(p *Process, m *Module) []patch.Site
	// Patched is called when the sites of a module, if there are some, are in place. at gives how an instruction was patched, nil: it was not.
	Patched(p *Process, m *Module, at func(addr uint64) *patch.Patch)
	// Site gives the recipe for one instruction that a thread asks for (PatchAskSite; by PatchAskSoon it may have gone on meanwhile), and false if it stays as it is.
	Site(p *Process, m *Module, at uint64) (patch.Recipe, bool)
	// End is called when the process has ended, or has become another program. Its memory is gone; what it shared is still there. Its modules' images are closed when End has returned.
	End(p *Process)
}

// An Unasked is a Client of which no single instruction is asked: what it wants of a module it says when the module comes. The code of those of which it wants nothing, and knows nothing, is not read.
type Unasked interface {
	Unasked()
}

// An AtOnce is a Client whose Sites may be called for several modules of a process at once.
type AtOnce interface {
	SitesAtOnce()
}

// An Idler is an Unasked of which it is known of files, too, that it wants nothing of them, so that they are not opened where they come again.
type Idler interface {
	Unasked
	// Idle says of a library of which Sites wanted nothing that it never will, nor has to say anything about it, as long as its file is the same.
	Idle(m *Module) bool
}

// A Tester is a Client that also gets PatchAskTest: what tests have a process ask.
type Tester interface {
	Test(p *Process, at uint64) error
}

// Options of an engine.
type Options struct {
	Client Client
	// Whole says what is patched while all threads stand, for a while (PatchAskWhole); nil: nothing is.
	Whole Client
	// Calls says what becomes of sites that are calls: refused, or moved with their return address kept.
	Calls x86.Calls
	// Orders says that what orders threads is of interest in modules of which the client wants nothing, too: system calls of their own.
	Orders bool
	// SharedBytes is how much each process may share by Process.Share; at most 1 GiB. It costs memory as far as it is used.
	SharedBytes uint64
	// CodeBytes is how large the file that trampolines lie in may become, at least 64 MiB; less where limits leave less. It costs address space of ours for each process, and memory as far as it is used.
	CodeBytes uint64
	// Warn is told what could not be done. May be called from several goroutines. May be nil.
	Warn func(text string)
	// NoFrames has each page of trampolines have memory of its own.
	NoFrames bool
	// NoMemory has the processes write to their memory by themselves, as where /proc/PID/mem is refused; for tests.
	NoMemory bool
	// MostLost and MostAreas are bounds beyond which no more modules are patched that are loaded: bytes of trampolines that stay for forked children, and areas of a process's memory; MostCode is the
	// size of the file. For tests; 0: 256 MiB, half of vm.max_map_count, and what CodeBytes says.
	MostLost, MostCode uint64
	MostAreas          int
	// AtOnce has all sites of a Coverer's patched when their modules come.
	AtOnce bool
	// NoCache has nothing kept on disk of the code of modules, nor what was kept used.
	NoCache bool
}

// Whole is the CodeBytes of who patches nearly every instruction: some 40 bytes each, of which a large program has millions.
const Whole = 1 << 30

// An Engine patches the processes of a session. It is the session's agent.Patcher.
type Engine struct {
	opts    Options
	cache   *cache.Dir
	idle    idle
	recalls recalls
	mu      sync.Mutex
	procs   map[uint64]*Process
	all     []*Process
	// processes that Partly names
	partly map[uint64]bool
	stats  Stats
	times  [requests][]time.Duration
	serve  sync.WaitGroup
	alien  sync.Once // warnOfAlien
}

// Stats of an engine, over all processes.
type Stats struct {
	Sites     uint64                  // asked for
	Patched   [patch.Tiers]uint64     // of them, by tier
	Covered   uint64                  // sites in code that was never run, so that nothing was patched (Coverer); not among Sites
	Held      uint64                  // sites that are patched now: not those of modules that have gone
	Displaced uint64                  // instructions displaced on behalf of a site
	Unpatched map[Why]uint64          // of them, not patched
	Modules   uint64                  // of which it was to be known where instructions begin
	Kept      uint64                  // of them, those of which it was known from earlier processes
	Undecoded uint64                  // bytes of functions that are no instructions as far as is known: sites in them are not known
	Code      uint64                  // bytes of trampolines
	Old       uint64                  // bytes of trampolines that nothing leads to any more
	Reused    uint64                  // bytes of such whose memory was free again
	Pages     uint64                  // bytes of the pages that they lie in
	Lost      uint64                  // bytes of trampolines of modules that have gone, whose memory stays for forked children
	Tables    uint64                  // bytes of tables in the processes
	Requests  [requests]uint64        // by wire.PatchAsk
	Median    [requests]time.Duration // from when Go saw a request to its answer
}

// Partly says whether some of what was to be patched in a process is not, for want of memory or because of an error, beyond instructions that cannot be patched one by one.
func (e *Engine) Partly(process uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.partly[process]
}

const requests = int(wire.PatchAskLoading) + 1

// A Why says why a site was not patched.
type Why string

// Reasons.
const (
	WhyUnknown Why = "no known instruction"
	WhyShared  Why = "other code runs through its bytes"
	WhyMoved   Why = "an instruction that cannot be moved"
	WhySpace   Why = "no memory for a trampoline within reach"
	WhyTrap    Why = "needs int3 where signals may be blocked" // in libc and ld.so
	WhyRecipe  Why = "the recipe could not be made"
	WhyLost    Why = "after a fork the memory of trampolines stays taken when libraries are unloaded, and there is no more of it"
	WhyAreas   Why = "the process has half of the areas of memory that it may have (vm.max_map_count)"
	WhyRefused Why = "the process's memory could not be changed"
)

// Spare is what recipes have without which a process is still patched as its client wants (wire.PatchPage.Unpatched).
type Spare interface{ Spare() }

// New makes an engine.
func New(o Options) *Engine {
	if o.Client == nil {
		panic("BUG: an engine without Client")
	}
	e := &Engine{opts: o, procs: map[uint64]*Process{}, partly: map[uint64]bool{}}
	if !o.NoCache {
		e.cache = openCache()
	}
	return e
}

// memoryName is the name of the page and of trampolines in the list of a process's mappings.
const memoryName = "ripstop-patch"

// sharedMemory makes a memfd of size bytes that cannot be shrunk, and maps it.
func sharedMemory(name string, size int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, fmt.Errorf("cannot make shared memory (memfd_create): %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("cannot make shared memory of %d bytes: %w", size, err)
	}
	return fd, mem, nil
}

// Attach is called when a process asks for the first time, and gives two descriptors for it: the PatchPage and the memory to share. They stay ours. It fails if the
// process cannot be patched.
func (e *Engine) Attach(process uint64, pid int) (fds [2]int, err error) {
	if pid <= 0 {
		return fds, fmt.Errorf("it cannot be seen from here (another pid namespace)")
	}
	p := &Process{ID: process, PID: pid, e: e, dead: map[uint64]int{}, left: map[string]bool{}, gone: Stats{Unpatched: map[Why]uint64{}}}
	code := frameBytes(&e.opts, pid)
	fds[0], p.pageMem, err = sharedMemory(memoryName, wire.SizePatchPage+int(code))
	if err != nil && code > leastFrames { // our own limit of address space
		fds[0], p.pageMem, err = sharedMemory(memoryName, wire.SizePatchPage+leastFrames)
	}
	if err != nil {
		return fds, err
	}
	size := max(e.opts.SharedBytes, patch.PageSize)
	if fds[1], p.shared, err = sharedMemory("ripstop-shared", int((size+patch.PageSize-1)&^(patch.PageSize-1))); err != nil {
		unix.Close(fds[0])
		unix.Munmap(p.pageMem)
		return fds, err
	}
	p.fds = fds
	p.page = (*wire.PatchPage)(unsafe.Pointer(&p.pageMem[0]))
	p.page.Magic, p.page.Version = wire.Magic, wire.Version
	e.mu.Lock()
	again := e.procs[process] != nil
	if !again {
		e.procs[process] = p
		e.all = append(e.all, p)
		e.serve.Add(1)
		go p.serve()
	}
	e.mu.Unlock()
	if again {
		p.free()
		return fds, fmt.Errorf("it asks again")
	}
	return fds, nil
}

// Gone says that a process has ended or has become another program.
func (e *Engine) Gone(process uint64) {
	e.mu.Lock()
	p := e.procs[process]
	delete(e.procs, process)
	e.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// over gives up what is not needed of a process that nobody serves any more: all but its figures, and what it shared with us, which forked children may have yet. A run may have many thousands of processes.
func (e *Engine) over(p *Process) {
	for _, m := range p.mods {
		m.close()
	}
	p.mods, p.space, p.runs, p.arenas, p.dead, p.graves, p.left = nil, nil, nil, nil, nil, nil, nil
	p.accepted, p.framed, p.others, p.blocks, p.avoid, p.rules = nil, nil, nil, nil, nil, nil
	if p.used > 0 {
		return
	}
	unix.Munmap(p.shared)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.add(&p.said)
	e.all = slices.DeleteFunc(e.all, func(q *Process) bool { return q == p })
}

// Stop ends the service of all processes: when it returns no call of the client is under way, and there will be none. What is patched stays patched, what was shared stays shared.
func (e *Engine) Stop() {
	e.mu.Lock()
	all := slices.Clone(e.all) // over takes out of it
	e.procs = map[uint64]*Process{}
	e.mu.Unlock()
	for _, p := range all {
		p.close()
	}
	e.serve.Wait()
}

// Close is Stop, and takes back what the processes shared with us.
func (e *Engine) Close() {
	e.Stop()
	e.mu.Lock()
	all := e.all
	e.all = nil
	e.mu.Unlock()
	for _, p := range all {
		p.free()
	}
}

// Stats are the figures so far.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.stats
	st.Unpatched = maps.Clone(st.Unpatched)
	for _, p := range e.all {
		st.add(&p.said)
	}
	for i, list := range e.times {
		if len(list) > 0 {
			list = slices.Clone(list)
			slices.Sort(list)
			st.Median[i] = list[len(list)/2]
		}
	}
	return st
}

// add adds the figures of a process.
func (st *Stats) add(s *Stats) {
	st.Sites += s.Sites
	for i, n := range s.Patched {
		st.Patched[i] += n
	}
	if st.Unpatched == nil {
		st.Unpatched = map[Why]uint64{}
	}
	for w, n := range s.Unpatched {
		st.Unpatched[w] += n
	}
	st.Held += s.Held
	st.Covered += s.Covered
	st.Displaced += s.Displaced
	st.Undecoded += s.Undecoded
	st.Modules += s.Modules
	st.Kept += s.Kept
	st.Code += s.Code
	st.Old += s.Old
	st.Reused += s.Reused
	st.Pages += s.Pages
	st.Lost += s.Lost
	st.Tables += s.Tables
}

// maxTimes bounds the times that are kept for a median; when there are more the older half goes.
const maxTimes = 1 << 14

// served notes a request.
func (e *Engine) served(ask wire.PatchAsk, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Requests[ask]++
	list := append(e.times[ask], d)
	if len(list) > maxTimes {
		list = slices.Delete(list, 0, maxTimes/2)
	}
	e.times[ask] = list
}
