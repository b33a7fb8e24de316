package calls

import (
	"debug/elf"
	"slices"
	"strings"
	"sync"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/syscalls"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// A counter has the sites of libc, ld.so and the vdso patched. It is the engine's client.
type counter struct {
	mu    sync.Mutex
	sites map[string]*syscalls.Sites // by module: what became of them, in all processes
	asked map[*engine.Module][]asked
}

// asked is an instruction that is to be patched, or is left alone for a reason.
type asked struct {
	at   uint64
	left string
}

func newCounter() *counter {
	return &counter{sites: map[string]*syscalls.Sites{}, asked: map[*engine.Module][]asked{}}
}

// Start needs nothing.
func (c *counter) Start(*engine.Process) error { return nil }

// Sites gives the sites of a module.
func (c *counter) Sites(p *engine.Process, m *engine.Module) (sites []patch.Site) {
	var list []asked
	switch m.Kind {
	case engine.Libc, engine.Loader, engine.VDSO:
	default:
		return nil
	}
	found := syscalls.Find(func(yield func(uint64, *x86.Inst) bool) { near(m, yield) })
	for _, s := range found {
		list = append(list, asked{s.At, string(s.Left)})
		if s.Left == "" {
			sites = append(sites, patch.Site{At: s.At, Recipe: syscalls.Recipe{Next: s.At + uint64(s.Len), Hook: p.Func(wire.PatchFuncSyscallHook)}})
		}
	}
	if m.Kind == engine.VDSO {
		for row, at := range entries(m) {
			list = append(list, asked{at, ""})
			sites = append(sites, patch.Site{At: at, Recipe: syscalls.EntryRecipe{Entry: at, Hook: p.Func(wire.PatchFuncVdsoHook), Offset: uint32(row * wire.SizeCallCount)}})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[m] = list
	return sites
}

// window is how far before a site its number is looked for.
const window = 24

// near calls yield for the known instructions up to each that may be a site, by address. To decode all of libc takes longer than all else.
func near(m *engine.Module, yield func(uint64, *x86.Inst) bool) {
	for _, s := range m.Image.Segments() {
		if s.Flags&elf.PF_X == 0 {
			continue
		}
		code := m.Image.Bytes(s.Addr, s.FileSize)
		next := uint64(0) // the first address that was not looked at
		for i := 0; i+1 < len(code); i++ {
			if !syscalls.MayBegin(code[i:]) {
				continue
			}
			at := s.Addr + m.Bias + uint64(i)
			for a := max(next, at-min(window, uint64(i))); a <= at; next = a {
				in, ok := m.Instruction(a)
				if !ok {
					a++
					continue
				}
				if !yield(a, &in.Inst) {
					return
				}
				a += uint64(in.Inst.Len)
			}
		}
	}
}

// entries gives the addresses of the vdso's functions, by row.
func entries(m *engine.Module) map[int]uint64 {
	list := map[int]uint64{}
	for _, f := range m.Image.Functions() {
		s, ok := m.Image.Symbol(f[0])
		row, known := syscalls.VDSO[strings.TrimPrefix(s.Name, "__vdso_")]
		if ok && known && s.Addr == f[0] {
			list[row] = f[0] + m.Bias
		}
	}
	return list
}

// Patched takes note of what was patched, and of what was not.
func (c *counter) Patched(p *engine.Process, m *engine.Module, at func(addr uint64) *patch.Patch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.asked[m]
	delete(c.asked, m)
	if len(list) == 0 {
		return
	}
	s := c.sites[m.Path]
	if s == nil {
		s = &syscalls.Sites{Module: m.Path, Patched: map[string]int{}, Left: map[string]int{}}
		c.sites[m.Path] = s
	}
	for _, a := range list {
		s.Found++
		why := a.left
		if x := at(a.at); why == "" && x != nil {
			s.Patched[x.Tier.String()]++
			continue
		}
		if why == "" {
			why = string(p.Why(a.at))
		}
		if why == "" {
			why = "it was not patched"
		}
		s.Left[why]++
	}
}

// Site refuses: nothing is patched on request.
func (c *counter) Site(*engine.Process, *engine.Module, uint64) (patch.Recipe, bool) {
	return nil, false
}

// End does nothing: the counts are the session's.
func (c *counter) End(*engine.Process) {}

// profile makes a profile of what the processes counted.
func (c *counter) profile(list []agent.ProcessCalls) *syscalls.Profile {
	p := &syscalls.Profile{Processes: []syscalls.Process{}, Sites: []syscalls.Sites{}, NotCounted: []string{}}
	for i := range list {
		from := &list[i]
		q := syscalls.Process{PID: from.PID, Exe: from.Exe, Counts: syscalls.Counts{}, Threads: []syscalls.Thread{}}
		for _, t := range from.Threads {
			th := syscalls.Thread{Number: int(t.Number), TID: int(t.Tid), Counts: syscalls.Counts{}}
			for _, r := range t.Counts {
				th.Counts.Add(r.Row, r.CallCount)
			}
			q.Counts.AddAll(th.Counts)
			q.Threads = append(q.Threads, th)
		}
		for _, r := range from.Rest {
			q.Counts.Add(r.Row, r.CallCount)
		}
		slices.SortFunc(q.Threads, func(a, b syscalls.Thread) int { return a.Number - b.Number })
		p.Processes = append(p.Processes, q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sites {
		p.Sites = append(p.Sites, *s)
		for why, n := range s.Left {
			if why != string(syscalls.LeftSigreturn) && why != string(syscalls.LeftExit) {
				p.NotCounted = append(p.NotCounted, syscalls.LeftText(s.Module, n, why))
			}
		}
	}
	slices.SortFunc(p.Sites, func(a, b syscalls.Sites) int { return strings.Compare(a.Module, b.Module) })
	slices.Sort(p.NotCounted)
	return p
}
