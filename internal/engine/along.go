package engine

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/patch"
)

// An Along is a Client that wants others of a function's instructions with the one that a thread asks for (PatchAskSite), so that they need not be asked for one by one.
type Along interface {
	// Along is called behind Site, with that one's function [lo, hi) as far as it is known. What it gives is patched in the same transaction if a jump leads there: an int3 costs the process at each execution,
	// which only what was asked for is worth. It is not told what was not.
	Along(p *Process, m *Module, at, lo, hi uint64) []patch.Site
}

// along patches what the client wants with an instruction, and that one as well; if it is not patched afterwards, without an error, it is to be patched alone.
func (p *Process) along(m *Module, s patch.Site) error {
	c, ok := p.e.opts.Client.(Along)
	if !ok {
		return nil
	}
	lo, hi, ok := m.function(s.At)
	if !ok {
		return nil
	}
	t := m.text(s.At)
	usable := func(x *patch.Site) bool {
		return m.text(x.At) == t && m.patch(x.At) == nil && m.why[x.At] == "" && check(t, x) == ""
	}
	if !usable(&s) {
		return nil
	}
	add := []patch.Site{s}
	for _, x := range c.Along(p, m, s.At, lo, hi) {
		if x.At != s.At && usable(&x) {
			add = append(add, x)
		}
	}
	if len(add) == 1 {
		return nil
	}
	slices.SortFunc(add, func(a, b patch.Site) int { return cmp.Compare(a.At, b.At) })
	all := slices.Clone(add) // applyRest removes some
	was := t.planner.NoTraps
	t.planner.NoTraps = true
	err := p.applyRest([]*change{{t: t, m: m, some: true, add: add}})
	t.planner.NoTraps = was
	for _, x := range all {
		delete(m.why, x.At) // applyRest's: it is patched yet if a thread asks for it
		if m.patch(x.At) != nil {
			m.sites++
		}
	}
	if errors.Is(err, errGone) {
		return err
	}
	return nil
}

// function gives the function that an address lies in, by symbols or frames: the one that begins last.
func (m *Module) function(at uint64) (lo, hi uint64, ok bool) {
	if m.bounds == nil {
		m.bounds = m.functions()
	}
	for i := sort.Search(len(m.bounds), func(i int) bool { return m.bounds[i][0]+m.Bias > at }) - 1; i >= 0; i-- {
		if f := m.bounds[i]; at < f[1]+m.Bias {
			return f[0] + m.Bias, f[1] + m.Bias, true
		} else if m.bounds[i][0]+m.Bias+farthest < at {
			break
		}
	}
	return 0, 0, false
}

// farthest is how far before an address its function's beginning is looked for.
const farthest = 1 << 20
