package access

import (
	"fmt"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
)

// The Teller is an engine.Coverer where all accesses are told: what a program never runs tells nothing.

// Covers is the engine.Coverer's. Which instructions are sites depends on the code and on what the module is; what is told of them, on debug information as well, which may come and go.
func (t *Teller) Covers(p *engine.Process, m *engine.Module) (name string, ok bool) {
	if t.table(p) != 0 || m.Kind != engine.Program && m.Kind != engine.Library || t.foreign(m) {
		return "", false
	}
	s := scopeOf(m)
	return fmt.Sprintf("heads-%t-%t", s.left, s.sync), true
}

// Covered is the engine.Coverer's.
func (t *Teller) Covered(_ *engine.Process, m *engine.Module) {
	t.notePlain(m)
	t.noteOpaque(m)
}

// SitesIn is the engine.Coverer's.
func (t *Teller) SitesIn(p *engine.Process, m *engine.Module, lo, hi uint64) []patch.Site {
	sites, _ := t.plain(p, m, lo, func(f func(*engine.Insn) bool) { m.InstructionsIn(lo, hi, nil, f) })
	return sites
}

// PatchedIn is the engine.Coverer's: it counts what is not told.
func (t *Teller) PatchedIn(_ *engine.Process, m *engine.Module, lo, hi uint64, at func(addr uint64) *patch.Patch) {
	n, loose, scope := 0, 0, t.tablesOf(m).scope
	m.InstructionsIn(lo, hi, func(a uint64) bool { return at(a) != nil }, func(i *engine.Insn) bool {
		if data, unseen := scope.of(&i.Inst); data != 0 || unseen {
			n++
			if orders(&i.Inst, data) {
				loose++
			}
		}
		return true
	})
	t.miss(m.Path, n, loose)
}
