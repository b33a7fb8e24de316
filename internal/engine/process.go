package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// A Process is an address space whose code is patched. Its methods are for the calls of Client.
type Process struct {
	ID  uint64 // in the session
	PID int

	e       *Engine
	fds     [2]int
	pageMem []byte
	page    *wire.PatchPage
	asked   uint32         // value of page.Asked that was seen last
	last    []wire.PatchOp // what the asker does when it is answered
	stored  int            // bytes of page.Bytes that it stores then
	polls   int            // without success, in a row; below 0: how often it is left
	closed  atomic.Bool
	hook    func(wire.PatchOp) unix.Errno // of tests: before each write and each operation, which fails by what it gives
	mem     *os.File                      // /proc/PID/mem; nil: refused
	tasks   *os.File                      // /proc/PID/task; nil: not opened yet

	shared []byte
	used   int // of shared

	mods     []*Module
	traced   bool       // from its start
	brk      uint64     // where the heap begins; 0: not known yet
	top      uint64     // from where on all is left to the first thread's stack, which grows; likewise
	accepted []accepted // instructions that are to be patched, of which the threads that asked were told so
	space    *patch.Space
	ownPages bool          // no more pages get frames
	leftOut  bool          // a module was left out: it has been said
	framed   []patch.Range // what shows frames
	others   []patch.Range // what is mapped that is not ours, as the space knows it
	blocks   []patch.Range // what we have mapped for trampolines

	runs   []*run
	arenas []*arena       // in which they lie
	dead   map[uint64]int // trampolines freed: in how many runs they may be

	left     map[string]bool // files of modules that have gone
	unmapped bool            // something is, since the file's memory was last given back

	described    bool     // debuggers are told of all blocks
	descriptions [2]arena // the last ones, the newer behind the older
	rules        []byte   // that they have in common

	old       uint64  // bytes of trampolines that nothing leads to any more
	graves    []grave // of them, what may be used again
	buried    uint64  // bytes of those
	reclaimAt uint64  // bytes of them from which on it is looked whether they may
	reused    uint64  // bytes that may
	reclaimed time.Time

	patched         [patch.Tiers]int64
	displaced, code int64
	held            int64 // sites that are patched
	tables          uint64
	gone            Stats         // of modules that are gone
	avoid           []patch.Range // lookAhead's
	of              *Process      // of a whole patch: whose
	late            atomic.Bool   // of a whole patch: it takes too long
	firstRun        int           // of a whole patch: the place in the agent's table of runs from which on it has some
	said            Stats         // under e.mu
	saidAt          time.Time
}

// Modules lists what is loaded.
func (p *Process) Modules() []*Module { return p.mods }

// Module gives the module whose code an address lies in, nil if there is none.
func (p *Process) Module(at uint64) *Module { return p.at(at) }

// Share takes n bytes of the memory that the process shares with us: zero, aligned to 64 bytes, at an address below 2 GiB, so that every instruction reaches it
// by a 32-bit displacement (x86.Abs). A forked child shares it with its parent. It stays valid until Engine.Close.
func (p *Process) Share(n int) (addr uint64, mem []byte, err error) {
	if p.page.SharedAt == 0 {
		return 0, nil, errors.New("the process could not map memory to share below 2 GiB")
	}
	at := (p.used + 63) &^ 63
	if n < 0 || n > len(p.shared)-at {
		return 0, nil, fmt.Errorf("%d bytes of shared memory are left, not %d", len(p.shared)-at, n)
	}
	p.used = at + n
	return p.page.SharedAt + uint64(at), p.shared[at : at+n : at+n], nil
}

// Env is what each thread has for recipes.
func (p *Process) Env() recipe.Env {
	return recipe.Env{
		Save: p.SaveOffset(), Slots: wire.PatchSaves, Cells: p.ThreadOffset(wire.PatchThreadCells), Context: p.ThreadOffset(wire.PatchThreadContext),
		XSave: recipe.XSave{Mask: p.page.XsaveMask, Size: p.page.XsaveSize, Compact: p.page.XsaveCompact != 0},
	}
}

// SaveOffset is where, from the base of fs, each thread has wire.PatchSaves slots of 8 bytes for trampolines to save registers in.
func (p *Process) SaveOffset() int32 { return p.page.SaveOffset }

// ThreadOffset is where, from the base of fs, each thread has the pointer w. It is set by the agent (internal/agent/c/patch.c).
func (p *Process) ThreadOffset(w wire.PatchThread) int32 { return p.page.ThreadOffset + 8*int32(w) }

// Func is the address of a function of the agent.
func (p *Process) Func(f wire.PatchFunc) uint64 { return p.page.Function[f] }

// Why tells why a site that Sites asked for is not patched, "" if it is.
func (p *Process) Why(at uint64) Why {
	if m := p.at(at); m != nil {
		return m.why[at]
	}
	return ""
}

func (p *Process) warn(format string, args ...any) {
	if p.e.opts.Warn != nil {
		p.e.opts.Warn(fmt.Sprintf("process %d: ", p.PID) + fmt.Sprintf(format, args...))
	}
}

func (p *Process) close() {
	p.closed.Store(true)
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.page != nil {
		wake(&p.page.Asked)
	}
}

// release gives up the page, the trampolines' file and what else is of no use when nobody serves the process any more. Forked children have mappings of their own.
func (p *Process) release() {
	p.e.mu.Lock()
	page := p.pageMem
	p.page, p.pageMem = nil, nil
	p.e.mu.Unlock()
	if page == nil {
		return
	}
	unix.Munmap(page)
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	if p.mem != nil {
		p.mem.Close()
		p.mem = nil
	}
	if p.tasks != nil {
		p.tasks.Close()
		p.tasks = nil
	}
}

// free takes back what the process shared with us. Nobody serves it any more.
func (p *Process) free() {
	p.release()
	unix.Munmap(p.shared)
	for _, m := range p.mods {
		m.close()
	}
}

// serve answers the process until it is gone.
func (p *Process) serve() {
	defer p.e.serve.Done()
	started := false
	soon, answered := false, time.Now()
	for {
		ask, err := p.await(soon)
		if err != nil {
			break
		}
		began := time.Now()
		soon = began.Sub(answered) < working // who asks often is answered sooner
		switch {
		case ask == wire.PatchAskStart && !started:
			started = true
			err = p.partly(p.start())
		case ask == wire.PatchAskModules && started:
			err = p.partly(p.modules(false))
		case ask == wire.PatchAskLoading && started:
			if err = p.modules(true); !errors.Is(err, errLater) {
				err = p.partly(err)
			}
		case ask == wire.PatchAskSite && started:
			err = p.site(p.page.Address)
		case ask == wire.PatchAskSoon && started:
			err = p.accept(p.page.Address)
		case ask == wire.PatchAskSurvey && started:
			err = p.lookAhead(p.page.Address)
		case ask == wire.PatchAskWhole && started:
			err = p.whole()
		case ask == wire.PatchAskCovered && started:
			err = p.reached(p.page.Address)
		case ask == wire.PatchAskTest && started:
			err = unix.ENOSYS
			if t, ok := p.e.opts.Client.(Tester); ok {
				err = t.Test(p, p.page.Address)
			}
		default:
			err = unix.EINVAL
		}
		if errors.Is(err, errGone) {
			break
		}
		var result unix.Errno
		if err != nil && !errors.As(err, &result) {
			result = unix.EINVAL
		}
		if err != nil && ask != wire.PatchAskTest && ask != wire.PatchAskSoon && result != unix.ECANCELED && result != errLater { // nobody waits for it any more
			p.warn("%v", err)
		}
		if derr := p.describe(); errors.Is(derr, errGone) {
			break
		} else if derr != nil {
			p.warn("debuggers are not told of trampolines: %v", derr)
		}
		answered = time.Now()
		if ask != wire.PatchAskSite && ask != wire.PatchAskCovered && ask != wire.PatchAskTest && ask != wire.PatchAskSoon || answered.Sub(p.saidAt) > sayEvery {
			p.say()
			p.saidAt = answered
		}
		due := result != unix.EINPROGRESS && p.buried > max(reclaimFrom, p.reclaimAt, uint64(p.code))
		if due && errors.Is(p.do(), errGone) { // other threads have seen the text as it is, before it is looked where they stand
			break
		}
		p.finish(result)
		if int(ask) < requests {
			p.e.served(ask, answered.Sub(began))
		}
		if due {
			p.reclaim()
		}
		if p.unmapped {
			p.punch()
		}
		p.consider()
	}
	p.say()
	p.e.opts.Client.End(p)
	p.release()
	p.e.over(p)
}

// sayEvery is how often a process that has single instructions patched says so: counting takes longer than to patch one.
const sayEvery = 10 * time.Millisecond

// say makes the figures known to Stats.
func (p *Process) say() {
	s := Stats{Unpatched: maps.Clone(p.gone.Unpatched), Sites: p.gone.Sites, Undecoded: p.gone.Undecoded, Modules: p.gone.Modules, Kept: p.gone.Kept, Covered: p.gone.Covered, Held: uint64(max(0, p.held)), Displaced: uint64(p.displaced), Code: uint64(p.code), Old: p.old, Reused: p.reused, Tables: p.tables}
	for i, n := range p.patched {
		s.Patched[i] = uint64(n)
	}
	for _, m := range p.mods {
		s.Sites += m.sites
		s.Undecoded += m.undecoded
		m.countKept(&s)
		m.countCovered(&s)
		for _, w := range m.why {
			s.Unpatched[w]++
		}
	}
	if p.space != nil {
		pages := p.space.FrameCount()
		if len(p.framed) == 0 || p.ownPages {
			pages = p.space.InUse()
		}
		s.Pages = uint64(pages) * patch.PageSize
		s.Lost, _ = p.space.Lost(0)
	}
	p.e.mu.Lock()
	p.said = s
	p.e.mu.Unlock()
}

// partly takes note of an error that left out modules, or parts of them. It is the error's.
func (p *Process) partly(err error) error {
	if err != nil && !errors.Is(err, errGone) {
		p.e.mu.Lock()
		p.e.partly[p.ID] = true
		p.e.mu.Unlock()
	}
	return err
}

// start patches what the client wants before the program runs.
func (p *Process) start() error {
	if !p.e.opts.NoMemory {
		p.openMemory()
	}
	p.traced = isTraced(p.PID)
	if err := p.e.opts.Client.Start(p); err != nil {
		return err
	}
	// From now on SIGTRAP is never blocked: later there may be other threads, and it is too late.
	if err := p.do(op(wire.PatchDoHandler, 0, 0)); err != nil {
		return err
	}
	if err := p.modules(false); err != nil {
		return err
	}
	return p.hookLoader()
}

// wanted asks the client what it wants of modules, and says how many bytes the trampolines of each take at most.
func (p *Process) wanted(come []*Module) (sites [][]patch.Site, bytes []uint64) {
	sites, bytes = make([][]patch.Site, len(come)), make([]uint64, len(come))
	ask := func(i int) {
		m := come[i]
		switch {
		case m.Kind == Agent || m.Image == nil || p.closed.Load():
		case p.covers(m):
			bytes[i] = headBytes * uint64(len(m.cover.heads))
		default:
			m.cover = nil
			sites[i] = p.e.opts.Client.Sites(p, m)
			for _, s := range sites[i] {
				bytes[i] += uint64(s.Recipe.Size()) + copyBytes
			}
		}
	}
	if _, ok := p.e.opts.Client.(AtOnce); !ok || len(come) < 2 {
		for i := range come {
			ask(i)
		}
		return sites, bytes
	}
	var all sync.WaitGroup
	next := atomic.Int64{}
	for range min(len(come), runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(come)); i = next.Add(1) - 1 {
				ask(int(i))
			}
		})
	}
	all.Wait()
	return sites, bytes
}

// modules patches modules that have come, and forgets those that are gone. loading: ld.so has not relocated yet what has come last; errLater is of those that cannot be patched before.
func (p *Process) modules(loading bool) error {
	mapped, err := p.survey()
	if err != nil {
		return err
	}
	come, gone := p.find(mapped)
	for _, m := range gone {
		if err := p.forget(m); err != nil {
			return err
		}
	}
	if unmapped, err := p.clear(gone, mapped); err != nil {
		return err
	} else if unmapped && len(come) > 0 {
		if mapped, err = p.survey(); err != nil {
			return err
		}
	}
	found := len(come)
	if loading {
		come = unready(come)
	}
	for _, m := range come {
		m.again = p.left[m.Path]
	}
	p.mods = append(p.mods, come...)
	wanted, sizes := p.wanted(come)
	bytes, near := uint64(0), false
	expected := make([]patch.Expected, len(come))
	for i, m := range come {
		if m.Kind == Agent {
			m.close()
		}
		bytes += sizes[i]
		if expected[i] = (patch.Expected{At: m.Bias, Bytes: sizes[i]}); len(m.texts) > 0 {
			expected[i].At = m.texts[0].at
		}
		near = near || (m.cover != nil || len(wanted[i]) > 0) && m.Bias < heapLow
	}
	if p.closed.Load() { // they may be a part
		return errGone
	}
	if near {
		if err := p.moveHeap(); err != nil {
			return err
		}
	}
	full := p.full(len(mapped), bytes)
	if full == "" {
		p.space.Expect(expected...)
	}
	for i, m := range come {
		if m.cover != nil {
			if full == "" && p.coverNow(m, &err) {
				continue
			}
			if err != nil {
				return err
			}
			m.cover = nil
			wanted[i] = p.e.opts.Client.Sites(p, m)
		}
		sites := wanted[i]
		wanted[i] = nil
		all := sites
		if full != "" && len(sites) > 0 {
			p.leaveOut(m, sites, full)
			all = nil
		} else if more := p.guards(m, sites); len(more) > 0 {
			all = slices.Concat(sites, more)
			slices.SortFunc(all, func(a, b patch.Site) int { return cmp.Compare(a.At, b.At) })
		}
		if err := p.install(m, all); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		if len(sites) > 0 {
			p.e.opts.Client.Patched(p, m, m.patch)
		}
		for _, s := range sites {
			if _, spare := s.Recipe.(Spare); !spare && !m.patched(s.At) {
				p.page.Unpatched++
			}
		}
	}
	p.noteIdle(come)
	if len(come) < found {
		return errLater
	}
	return nil
}

// Lack says that the process is not patched as its client wants (wire.PatchPage.Unpatched), for what is no site.
func (p *Process) Lack() { p.page.Unpatched++ }

// mostLost bounds the memory that modules leave behind that go after a fork (shares).
const mostLost = 256 << 20

// maxAreas is how many areas of memory a process may have.
var maxAreas = sync.OnceValue(func() int {
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	n, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil {
		n = 65530
	}
	return n
})

// mostAreas is how many areas of memory a process may have when another module is patched.
func (p *Process) mostAreas() int { return cmp.Or(p.e.opts.MostAreas, maxAreas()/2) }

// full says why no module is patched any more that comes, "" if there is room for so many bytes. A process with so many areas has so many, its own and ours.
func (p *Process) full(areas int, bytes uint64) Why {
	if lost, frames := p.space.Lost(bytes); lost > 0 && (lost+bytes > cmp.Or(p.e.opts.MostLost, mostLost) || frames > uint64(p.page.Frames) || p.ownPages) {
		return WhyLost
	}
	if len(p.blocks) > 0 && areas > p.mostAreas() {
		return WhyAreas
	}
	return ""
}

// leaveOut has sites of a module not patched.
func (p *Process) leaveOut(m *Module, sites []patch.Site, why Why) {
	m.sites += uint64(len(sites))
	for _, s := range sites {
		m.why[s.At] = why
	}
	p.partly(errFull)
	if !p.leftOut {
		p.leftOut = true
		p.warn("%s and what is loaded after it is not patched: %s", m.Path, why)
	}
}

var errFull = errors.New("no more modules are patched")

// copyBytes is about what a trampoline has besides its recipe: the instruction, perhaps its successor, the jump back; and what is displaced on behalf of it.
const copyBytes = 20

// patched says whether there is one.
func (m *Module) patched(at uint64) bool {
	t := m.held(at)
	return t != nil && t.planner != nil && t.planner.Patched(at)
}

// patch gives the patch of an instruction that is a site.
func (m *Module) patch(at uint64) *patch.Patch {
	t := m.held(at)
	if t == nil || t.planner == nil {
		return nil
	}
	if !t.planner.Patched(at) {
		return nil
	}
	return t.planner.At(at)
}

// forget lets a module go that is unmapped, with its trampolines: no thread is in them, since none is in the module.
func (p *Process) forget(m *Module) error {
	p.mods = slices.DeleteFunc(slices.Clone(p.mods), func(x *Module) bool { return x == m })
	p.accepted = slices.DeleteFunc(p.accepted, func(a accepted) bool { return a.m == m })
	m.close()
	if len(p.left) == mostLeft {
		clear(p.left)
	}
	p.left[m.Path] = true
	p.gone.Sites += m.sites
	p.gone.Undecoded += m.undecoded
	m.countKept(&p.gone)
	m.countCovered(&p.gone)
	for _, w := range m.why {
		p.gone.Unpatched[w]++
	}
	var ops []wire.PatchOp
	planned := m.planned()
	for _, t := range planned {
		t.planner.Patches(p.bury)
		// An int3 there will be somebody else's.
		for off := range t.traps.all {
			ops = append(ops, op(wire.PatchDoTrap, t.at+off, 0))
		}
	}
	for _, t := range m.texts {
		if err := p.unindex(t); err != nil {
			return err
		}
		if m.cover != nil {
			ops = append(ops, op(wire.PatchDoCover, t.at, 0))
		}
	}
	// What the agent remembers of trampolines is void.
	if err := p.do(append(ops, op(wire.PatchDoFreed, 0, 0))...); err != nil {
		return err
	}
	shares := p.shares()
	for _, t := range planned {
		t.planner.Patches(func(x *patch.Patch) {
			p.code -= int64(x.Trampoline.Len())
			if x.For == 0 {
				p.held--
			}
			if shares {
				p.old += uint64(x.Trampoline.Len())
			}
		})
		if shares {
			t.planner.CloseShared()
		} else {
			t.planner.Close()
		}
		p.graves = slices.DeleteFunc(p.graves, func(g grave) bool {
			switch {
			case g.t != t:
			case shares:
				p.space.Lose(g.at, g.n)
				p.dead[g.at] = len(p.runs)
				p.buried -= uint64(g.n)
			default:
				p.unbury(&g)
			}
			return g.t == t
		})
	}
	return nil
}

// shares says whether a forked child may be in trampolines whose memory we have: then it is never used for others, but what showed it here may show other memory. A child has its text
// as it was at the fork, and what was dead by then it does not know.
func (p *Process) shares() bool { return len(p.framed) > 0 && atomic.LoadUint32(&p.page.Forks) != 0 }

// batch is how many sites are planned at once: a plan takes a kilobyte for each until it is carried out.
const batch = 1 << 15

// install patches sites of a module, as many as can be.
func (p *Process) install(m *Module, sites []patch.Site) error {
	if len(sites) == 0 {
		return nil
	}
	m.learn()
	m.sites += uint64(len(sites))
	for _, t := range m.texts {
		c := &change{t: t}
		for _, s := range sites {
			if s.At < t.at || s.At >= t.end() {
				continue
			}
			if why := check(t, &s); why != "" {
				m.why[s.At] = why
				continue
			}
			c.add = append(c.add, s)
		}
		// From behind to the front, as the planner goes: so little of what it makes is thrown away.
		for hi := len(c.add); hi > 0; {
			if p.ends() {
				return errGone
			}
			if p.late.Load() {
				return errLate
			}
			lo := max(0, hi-batch)
			if err := p.try(m, &change{t: t, add: c.add[lo:hi:hi]}); err != nil {
				return err
			}
			hi = lo
		}
	}
	for _, s := range sites {
		if m.text(s.At) == nil {
			m.why[s.At] = WhyUnknown
		}
	}
	return nil
}

func check(t *text, s *patch.Site) Why {
	switch err := t.planner.Check(s.At); {
	case err == nil:
		return ""
	case errors.Is(err, patch.ErrNoInstruction):
		return WhyUnknown
	case errors.Is(err, patch.ErrShared):
		return WhyShared
	case s.Recipe.Replaces():
		return ""
	}
	return WhyMoved
}

// whyLeft says why PlanSome has left out a site.
func whyLeft(err error) Why {
	switch {
	case errors.Is(err, patch.ErrTrap):
		return WhyTrap
	case errors.Is(err, patch.ErrSpace), errors.Is(err, x86.ErrReach):
		return WhySpace
	}
	return WhyRecipe
}

// try applies a change without the sites that cannot be planned.
func (p *Process) try(m *Module, c *change) error {
	c.m, c.some = m, true
	if err := p.applyRest([]*change{c}); err != nil {
		return err
	}
	for _, bad := range c.tx.Left {
		m.why[bad.At] = whyLeft(bad)
	}
	return nil
}

// applyRest is apply where sites that cannot be planned are left out, and those, too, that would leave nothing but int3 to one that was there before, where there may be none.
func (p *Process) applyRest(list []*change) error {
	for {
		err := p.apply(list)
		var bad *patch.SiteError
		if !errors.Is(err, patch.ErrTrap) || !errors.As(err, &bad) {
			return err
		}
		for near, left := uint64(64), false; !left; near *= 2 { // patches lean on each other in chains
			if near == 0 {
				return err
			}
			for _, c := range list {
				c.add = slices.DeleteFunc(c.add, func(s patch.Site) bool {
					if max(s.At, bad.At)-min(s.At, bad.At) > near {
						return false
					}
					c.m.why[s.At], left = WhyTrap, true
					return true
				})
			}
		}
	}
}

// site patches one instruction.
func (p *Process) site(at uint64) error {
	m := p.at(at)
	if m == nil || m.inherited || m.text(at) == nil {
		return unix.ENOENT
	}
	m.learn()
	if m.patch(at) != nil {
		return nil
	}
	r, ok := p.e.opts.Client.Site(p, m, at)
	if !ok {
		return unix.ENOENT
	}
	s := patch.Site{At: at, Recipe: r}
	if err := p.along(m, s); err != nil || m.patch(at) != nil {
		return err
	}
	return p.Change(m, []patch.Site{s}, nil)
}

// Change patches instructions of a module, and takes the patches of others away: all or nothing. A site in both is given the new recipe.
func (p *Process) Change(m *Module, add []patch.Site, remove []uint64) error {
	m.learn()
	var list []*change
	for _, t := range m.texts {
		c := &change{t: t}
		for _, s := range add {
			if s.At >= t.at && s.At < t.end() {
				c.add = append(c.add, s)
			}
		}
		for _, a := range remove {
			if a >= t.at && a < t.end() {
				c.remove = append(c.remove, a)
			}
		}
		if len(c.add)+len(c.remove) > 0 {
			list = append(list, c)
		}
	}
	err := p.apply(list)
	if errors.Is(err, patch.ErrSpace) && p.buried > 0 && time.Since(p.reclaimed) > reclaimAgain && p.reclaim() == nil {
		err = p.apply(list)
	}
	if err != nil {
		return err
	}
	m.sites += uint64(len(add)) - uint64(len(remove))
	return nil
}
