package patch

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ripstop/ripstop/internal/x86"
)

// A Transaction is what is to be done to the text at once: wholly or, if that fails, not at all.
type Transaction struct {
	Edits []Edit // by address
	// New are the patches whose trampolines must be in place before the first byte is changed.
	New []*Patch
	// Old are the patches that are no more. Their trampolines stay valid until no thread is in them; then Free takes their memory.
	Old []*Patch
	// Vacate are addresses inside instructions where a thread may stand in the jump of an old patch; none may while Steps change its bytes.
	Vacate []uint64

	before map[uint64]Recipe // the sites that it changes, as they were; nil: it was none
	done   bool
}

// An Edit is the change of one instruction's first bytes. Old and New have the same length.
type Edit struct {
	At       uint64
	Old, New []byte
	// To is where a thread goes on that finds int3 at At while the edit is under way.
	To uint64
	// Rank orders the edits: a jump is made of bytes of edits of lower rank.
	Rank int
}

// A Write is bytes to be written.
type Write struct {
	At    uint64
	Bytes []byte
}

// ErrPending says that another transaction is neither committed nor aborted.
var ErrPending = errors.New("a transaction is under way")

// A SiteError says which site could not be planned.
type SiteError struct {
	At  uint64
	Err error
}

func (e *SiteError) Error() string { return fmt.Sprintf("site %#x: %v", e.At, e.Err) }

// Unwrap gives the reason.
func (e *SiteError) Unwrap() error { return e.Err }

// Plan plans to put recipes in front of instructions and to take others away, and anew all patches that these overlap. Its changes count as made for what Bytes and At
// give; Commit makes them so, Abort takes them back. On an error, a SiteError or ErrPending, nothing has changed. A site both removed and added gets the new recipe.
func (p *Planner) Plan(add []Site, remove []uint64) (*Transaction, error) {
	if p.pending != nil {
		return nil, ErrPending
	}
	tx := &Transaction{before: map[uint64]Recipe{}}
	p.pending = tx
	fail := func(at uint64, err error) (*Transaction, error) {
		p.Abort(tx)
		return nil, &SiteError{at, err}
	}
	for _, a := range remove {
		if p.sites[a] == nil {
			return fail(a, ErrNoSite)
		}
		p.setSite(a, nil)
	}
	for _, s := range add {
		if p.sites[s.At] != nil {
			return fail(s.At, ErrSite)
		}
		if err := p.check(s.At, s.Recipe.Replaces()); err != nil {
			return fail(s.At, err)
		}
		p.setSite(s.At, s.Recipe)
	}
	var todo []uint64
	for a := range p.affected(maps.Keys(tx.before)) {
		if x := p.patches[a]; x != nil {
			tx.Old = append(tx.Old, x)
			if x.Via != 0 {
				tx.Vacate = append(tx.Vacate, x.Via)
			}
		}
		if p.sites[a] != nil {
			todo = append(todo, a)
		}
	}
	for _, x := range tx.Old {
		p.uninstall(x)
	}
	slices.Sort(todo)
	slices.SortFunc(tx.Old, func(x, y *Patch) int { return compare(x.At, y.At) })
	slices.Sort(tx.Vacate)
	for _, a := range slices.Backward(todo) {
		if err := p.place(a); err != nil {
			return fail(a, err)
		}
	}
	slices.SortFunc(tx.New, func(x, y *Patch) int { return compare(x.At, y.At) })
	tx.edits(p.text)
	return tx, nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Check says what keeps an instruction from being a site, whatever the others and with a recipe that does not replace it: ErrNoInstruction, ErrShared, x86.ErrCall.
func (p *Planner) Check(at uint64) error { return p.check(at, false) }

func (p *Planner) check(at uint64, replaced bool) error {
	in, code, ok := p.text.inst(at)
	switch {
	case !ok:
		return ErrNoInstruction
	case p.text.shared(at):
		return ErrShared
	case replaced:
		return nil
	}
	_, err := x86.Relocate(nil, &in, code, at, at, p.Calls)
	return err
}

// setSite makes an instruction a site, or none, and remembers what it was.
func (p *Planner) setSite(a uint64, r Recipe) {
	if _, ok := p.pending.before[a]; !ok {
		p.pending.before[a] = p.sites[a]
	}
	if r == nil {
		delete(p.sites, a)
	} else {
		p.sites[a] = r
	}
}

// affected gives the instructions whose patches must be planned anew when some change: those that their bytes are part of, and those that were patched together.
func (p *Planner) affected(seeds func(func(uint64) bool)) map[uint64]bool {
	set := map[uint64]bool{}
	var list []uint64
	reach := func(a uint64) {
		if !set[a] {
			set[a] = true
			list = append(list, a)
		}
	}
	for a := range seeds {
		reach(a)
	}
	for len(list) > 0 {
		a := list[len(list)-1]
		list = list[:len(list)-1]
		for _, d := range p.deps[a] {
			reach(d)
		}
		if x := p.patches[a]; x != nil {
			if x.For != 0 {
				reach(x.For)
			}
			for _, v := range x.evicts {
				reach(v)
			}
		}
	}
	return set
}

// edits compares the old patches with the new ones.
func (tx *Transaction) edits(t *Text) {
	type change struct{ old, new *Patch }
	changes := map[uint64]change{}
	for _, x := range tx.Old {
		changes[x.At] = change{old: x}
	}
	for _, x := range tx.New {
		changes[x.At] = change{changes[x.At].old, x}
	}
	rank := map[uint64]int{}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(changes))) {
		c := changes[at]
		e := Edit{At: at}
		n := 0
		for _, x := range []*Patch{c.old, c.new} {
			if x == nil {
				continue
			}
			n = max(n, len(x.Bytes))
			e.To = x.Trampoline.At
			for _, a := range x.puns {
				if _, ok := changes[a]; ok {
					e.Rank = max(e.Rank, rank[a]+1)
				}
			}
		}
		side := func(x *Patch) []byte {
			b := slices.Clone(t.orig[at-t.at:][:n])
			if x != nil {
				copy(b, x.Bytes)
			}
			return b
		}
		e.Old, e.New = side(c.old), side(c.new)
		rank[at] = e.Rank
		tx.Edits = append(tx.Edits, e)
	}
	slices.Reverse(tx.Edits)
}

// Steps gives the writes in their order; behind each step all processors must have seen it before the next. At first every head becomes int3, those before whose bytes
// they are made of; then all other bytes change; then the heads, in the opposite order. Before each step from the second up to that of the other bytes no thread may stand at
// Vacate: a jump there is made of heads as well. While this goes on a thread that traps at
// an edit goes on at its To.
func (tx *Transaction) Steps() (steps [][]Write) {
	ranks := 0
	for _, e := range tx.Edits {
		ranks = max(ranks, e.Rank+1)
	}
	of := func(rank int, b func(*Edit) Write) (step []Write) {
		for i := range tx.Edits {
			if e := &tx.Edits[i]; rank < 0 || e.Rank == rank {
				if w := b(e); len(w.Bytes) > 0 {
					step = append(step, w)
				}
			}
		}
		return step
	}
	for r := ranks - 1; r >= 0; r-- {
		steps = append(steps, of(r, func(e *Edit) Write { return Write{e.At, []byte{opTrap}} }))
	}
	if tails := of(-1, func(e *Edit) Write { return Write{e.At + 1, e.New[1:]} }); len(tails) > 0 {
		steps = append(steps, tails)
	}
	for r := range ranks {
		steps = append(steps, of(r, func(e *Edit) Write { return Write{e.At, e.New[:1]} }))
	}
	return steps
}

func (p *Planner) finish(tx *Transaction) {
	if tx.done || p.pending != tx {
		panic("BUG: patch: a transaction is ended that is not under way")
	}
	tx.done, p.pending = true, nil
}

// Commit says that the transaction was applied.
func (p *Planner) Commit(tx *Transaction) { p.finish(tx) }

// Abort takes a transaction back that was not applied.
func (p *Planner) Abort(tx *Transaction) {
	p.finish(tx)
	for _, x := range tx.New {
		p.uninstall(x)
		p.space.give(x.Trampoline.At, x.Trampoline.End())
	}
	for _, x := range tx.Old {
		if p.patches[x.At] == nil {
			p.install(x)
		}
	}
	for a, r := range tx.before {
		if r == nil {
			delete(p.sites, a)
		} else {
			p.sites[a] = r
		}
	}
	tx.New = nil
}

// Free takes back the memory of the old trampolines of a committed transaction. No thread may be in them any more.
func (p *Planner) Free(tx *Transaction) {
	if p.pending == tx {
		panic("BUG: patch: the trampolines of a transaction under way are freed")
	}
	for _, x := range tx.Old {
		p.space.give(x.Trampoline.At, x.Trampoline.End())
	}
	tx.Old = nil
}
