package count

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Selection says what is counted.
type Selection struct {
	// Modules are patterns (path.Match) of file names or whole paths; empty: all.
	Modules []string
	// Libc counts libc's instructions too.
	Libc bool
	// Stack counts stack traffic too: push, pop, ret, leave, enter.
	Stack bool
}

// why says why nothing of a module is counted, "" if it is.
func (s *Selection) why(m *engine.Module) string {
	switch m.Kind {
	case engine.Agent:
		return "ripstop's own"
	case engine.Loader:
		return "the loader, which is never changed"
	case engine.VDSO:
		return "the kernel's own"
	case engine.Libc:
		if !s.Libc {
			return "libc: --libc counts it"
		}
	}
	if len(s.Modules) == 0 {
		return ""
	}
	if slices.ContainsFunc(s.Modules, func(pattern string) bool { return fits(pattern, m.Path) }) {
		return ""
	}
	return "left out by --modules"
}

// fits says whether a module's name or path is one of those that a pattern stands for.
func fits(pattern, file string) bool {
	name, _ := path.Match(pattern, path.Base(file))
	whole, _ := path.Match(pattern, file)
	return name || whole
}

// A counter puts a cell in front of each memory instruction and reads the cells when a process has ended. It is the engine's client.
type counter struct {
	sel Selection

	mu      sync.Mutex
	profile Profile
	procs   map[*engine.Process]*counted
}

// counted is a process.
type counted struct {
	mods map[*engine.Module]*cells
}

// cells are the counts of a module in a process.
type cells struct {
	bias    uint64
	addr    uint64 // of the cells in the process
	mem     []byte // the same here
	insts   []Inst // that were asked for; cell i counts insts[i]
	patched []bool
	forms   []form
	states  []patch.State // of the site whose code was made last
	missed  []Missed
}

func newCounter(sel Selection) *counter {
	return &counter{sel: sel, procs: map[*engine.Process]*counted{}}
}

// Start takes note of a process.
func (c *counter) Start(p *engine.Process) error {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil && len(p.Modules()) > 0 {
		exe = p.Modules()[0].Path
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.procs[p] = &counted{mods: map[*engine.Module]*cells{}}
	c.profile.Processes = append(c.profile.Processes, Process{p.PID, exe})
	return nil
}

// Sites gives the memory instructions of a module.
func (c *counter) Sites(p *engine.Process, m *engine.Module) (sites []patch.Site) {
	k := &cells{}
	var why string
	if why = c.sel.why(m); why == "" {
		var err error
		if sites, err = c.sites(p, m, k); err != nil {
			why, sites = err.Error(), nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pm := c.profile.module(m.Path, m.BuildID)
	pm.Why = why
	pm.describe(m)
	if why == "" {
		pm.Undecoded = m.Undecoded()
		c.procs[p].mods[m] = k
	}
	return sites
}

// sites makes a cell and a recipe for each memory instruction.
func (c *counter) sites(p *engine.Process, m *engine.Module, k *cells) (sites []patch.Site, err error) {
	f := c.find(m)
	if len(f.insts) == 0 {
		return nil, nil
	}
	env := p.Env()
	none := map[uint32]error{}
	for i, x := range f.forms {
		var made form
		in, ok := m.Instruction(x.at + m.Bias)
		if !ok {
			return nil, fmt.Errorf("BUG: no instruction at %#x, which was one", x.at)
		}
		if made, err = makeForm(&in, x.live, env); err != nil {
			none[uint32(i)] = err
		}
		k.forms = append(k.forms, made)
	}
	k.insts = f.insts
	if k.addr, k.mem, err = p.Share(8 * len(k.insts)); err != nil {
		return nil, fmt.Errorf("no memory for %d counts: %w", len(k.insts), err)
	}
	k.bias, k.patched = m.Bias, make([]bool, len(k.insts))
	sites = make([]patch.Site, 0, len(k.insts))
	recipes := make([]site, len(k.insts))
	for n, f := range f.formOf {
		in := &k.insts[n]
		if err := none[f]; err != nil {
			k.missed = append(k.missed, Missed{in.Addr, in.Op, in.Access, err.Error()})
			continue
		}
		recipes[n] = site{k, uint32(n), f}
		sites = append(sites, patch.Site{At: in.Addr + m.Bias, Recipe: &recipes[n]})
	}
	return sites, nil
}

// find finds the memory instructions of a module, and what their forms are to be made for; or knows them from another process.
func (c *counter) find(m *engine.Module) *found {
	name := "count"
	if c.sel.Stack {
		name = "count-stack"
	}
	if b, ok := m.Kept(name); ok {
		if f, err := parseFound(b); err == nil {
			return f
		}
	}
	f := &found{}
	known := map[need]uint32{}
	w := window{assume: m.Assume(), ready: func(i *engine.Insn, live x86.Live) {
		a, ok := Classify(&i.Inst)
		if !ok || a.Kind == Stack && !c.sel.Stack {
			return
		}
		n := needOf(&i.Inst, live)
		x, ok := known[n]
		if !ok {
			x = uint32(len(f.forms))
			known[n] = x
			f.forms = append(f.forms, example{i.At - m.Bias, live})
		}
		f.insts = append(f.insts, Inst{Addr: i.At - m.Bias, Op: i.Inst.Op, Access: a})
		f.formOf = append(f.formOf, x)
	}}
	m.Instructions(func(i *engine.Insn) bool {
		w.add(i)
		return true
	})
	w.flush(len(w.insns))
	f.insts = slices.Clip(f.insts)
	m.Keep(name, f.append(nil))
	return f
}

// Patched takes note of what was patched, and of what was not.
func (c *counter) Patched(p *engine.Process, m *engine.Module, at func(addr uint64) *patch.Patch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.procs[p].mods[m]
	if k == nil {
		return
	}
	unmade := map[uint64]bool{}
	for _, x := range k.missed {
		unmade[x.Addr] = true
	}
	for i := range k.insts {
		in := &k.insts[i]
		if unmade[in.Addr] {
			continue
		}
		if x := at(in.Addr + m.Bias); x != nil {
			in.Tier, k.patched[i] = x.Tier, true
			continue
		}
		why := string(p.Why(in.Addr + m.Bias))
		if why == "" {
			why = "it was not patched"
		}
		k.missed = append(k.missed, Missed{in.Addr, in.Op, in.Access, why})
	}
}

// Site refuses: nothing is patched on request.
func (c *counter) Site(*engine.Process, *engine.Module, uint64) (patch.Recipe, bool) {
	return nil, false
}

// End does nothing: children that the process forked may live on, and count in its cells.
func (c *counter) End(*engine.Process) {}

// take adds the counts of a process to the profile.
func (c *counter) take(q *counted) {
	for m, k := range q.mods {
		pm := c.profile.module(m.Path, m.BuildID)
		list := make([]Inst, 0, len(k.insts))
		for i := range k.insts {
			if k.patched[i] {
				in := k.insts[i]
				in.Count = atomic.LoadUint64((*uint64)(unsafe.Pointer(&k.mem[8*i])))
				list = append(list, in)
			}
		}
		pm.add(list)
		pm.Missed = append(pm.Missed, k.missed...)
	}
}

// finish gives the profile, of processes that live on as far as they have come.
func (c *counter) finish() *Profile {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, q := range c.procs {
		c.take(q)
		delete(c.procs, p)
	}
	c.profile.sort()
	return &c.profile
}

// describe takes from a loaded module what a profile says of it.
func (m *Module) describe(from *engine.Module) {
	if from.Image == nil || m.end != 0 {
		return
	}
	for _, s := range from.Image.Segments() {
		if s.Flags&elf.PF_X != 0 {
			m.start, m.end, m.off = s.Addr, s.Addr+s.Size, s.Offset
			return
		}
	}
}
