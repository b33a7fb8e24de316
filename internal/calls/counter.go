package calls

import (
	"slices"
	"strings"
	"sync"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/hook"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/syscalls"
)

// A counter has the sites of libc, ld.so and the vdso patched. It is the engine's client.
type counter struct {
	mu    sync.Mutex
	sites map[string]*syscalls.Sites // by module: what became of them, in all processes
	asked map[*engine.Module][]hook.Asked
}

func newCounter() *counter {
	return &counter{sites: map[string]*syscalls.Sites{}, asked: map[*engine.Module][]hook.Asked{}}
}

// Start needs nothing.
func (c *counter) Start(*engine.Process) error { return nil }

// Sites gives the sites of a module.
func (c *counter) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	sites, list := hook.Sites(p, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[m] = list
	return sites
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
		why := a.Left
		if x := at(a.At); why == "" && x != nil {
			s.Patched[x.Tier.String()]++
			continue
		}
		if why == "" {
			why = string(p.Why(a.At))
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
