package count

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
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
		return "it is ripstop's own"
	case engine.Loader:
		return "the loader is never changed"
	case engine.VDSO:
		return "the kernel's"
	case engine.Libc:
		if !s.Libc {
			return "of libc: --libc counts it"
		}
	}
	if len(s.Modules) == 0 {
		return ""
	}
	for _, p := range s.Modules {
		for _, name := range []string{m.Path, path.Base(m.Path)} {
			if ok, _ := path.Match(p, name); ok {
				return ""
			}
		}
	}
	return "--modules leaves it out"
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
	mem    []byte
	insts  []Inst // that were asked for; cell i counts insts[i]
	tiers  []bool // whether insts[i] is patched
	missed []Missed
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
		c.procs[p].mods[m] = k
	}
	return sites
}

// sites makes a cell and a recipe for each memory instruction.
func (c *counter) sites(p *engine.Process, m *engine.Module, k *cells) ([]patch.Site, error) {
	type found struct {
		at   uint64
		in   x86.Inst
		code []byte
	}
	var list []found
	m.Instructions(func(i *engine.Insn) bool {
		a, ok := Classify(&i.Inst)
		if !ok || a.Kind == Stack && !c.sel.Stack {
			return true
		}
		list = append(list, found{i.At, i.Inst, i.Code})
		k.insts = append(k.insts, Inst{Addr: i.At - m.Bias, Op: i.Inst.Op, Access: a})
		return true
	})
	if len(list) == 0 {
		return nil, nil
	}
	at, mem, err := p.Share(8 * len(list))
	if err != nil {
		return nil, fmt.Errorf("no memory for %d counts: %w", len(list), err)
	}
	k.mem, k.tiers = mem, make([]bool, len(list))
	sites := make([]patch.Site, 0, len(list))
	env := p.Env()
	for i := range list {
		f := &list[i]
		ops := []recipe.Op{recipe.Count{Cell: at + 8*uint64(i), Of: recipe.Shared}}
		r, err := recipe.Compile(ops, recipe.Site{At: f.at, Inst: f.in, Code: f.code}, recipe.Live(f.code, assume), env)
		if err != nil {
			k.missed = append(k.missed, Missed{f.at - m.Bias, f.in.Op, k.insts[i].Access, err.Error()})
			continue
		}
		sites = append(sites, patch.Site{At: f.at, Recipe: r})
	}
	return sites, nil
}

// assume is what liveness may take for granted; see docs/decisions.md on recipes.
const assume = 0

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
			in.Tier, k.tiers[i] = x.Tier, true
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
		for i := range k.insts {
			if k.tiers[i] {
				in := k.insts[i]
				in.Count = atomic.LoadUint64((*uint64)(unsafe.Pointer(&k.mem[8*i])))
				pm.add(in)
			}
		}
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
