package patch

import (
	"errors"
	"fmt"
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
	// Left are the sites that PlanSome could not plan.
	Left []*SiteError

	before []record // the sites that it changes, as they were, in the order of the changes
	old    []record // the patches that are no more
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
	return p.plan(add, remove, func(uint64) bool { return false })
}

// PlanSome is Plan for those of the sites that can be planned; the others are in the transaction's Left. Its error is of a site that was there before.
func (p *Planner) PlanSome(add []Site) (*Transaction, error) {
	var added map[uint64]bool
	return p.plan(add, nil, func(at uint64) bool {
		if added == nil {
			added = make(map[uint64]bool, len(add))
			for _, s := range add {
				added[s.At] = true
			}
		}
		return added[at]
	})
}

// plan plans. A new site that cannot be planned is left out if leave says so.
func (p *Planner) plan(add []Site, remove []uint64, leave func(at uint64) bool) (*Transaction, error) {
	if p.pending != nil {
		return nil, ErrPending
	}
	tx := &Transaction{before: make([]record, 0, len(add)+len(remove))}
	p.pending = tx
	p.text.remember()
	if len(add) > slabItems { // otherwise more may follow
		defer p.text.forget()
	}
	defer func() { p.slabs = slabs{} }()
	fail := func(at uint64, err error) (*Transaction, error) {
		p.Abort(tx)
		return nil, &SiteError{at, err}
	}
	left := func(at uint64, err error) bool {
		if !leave(at) {
			return false
		}
		tx.Left = append(tx.Left, &SiteError{at, err})
		return true
	}
	for _, a := range remove {
		if r := p.records.at(a - p.text.at); r == nil || r.recipe == nil {
			return fail(a, ErrNoSite)
		}
		p.setSite(a, nil)
	}
	if slices.IsSortedFunc(add, func(x, y Site) int { return compare(x.At, y.At) }) && len(add) > 0 && add[0].At >= p.text.at {
		p.records.room(add, p.text.at)
	}
	for _, s := range add {
		if r := p.records.at(s.At - p.text.at); r != nil && r.recipe != nil {
			return fail(s.At, ErrSite)
		}
		if err := p.check(s.At, s.Recipe.Replaces()); err != nil {
			if !left(s.At, err) {
				return fail(s.At, err)
			}
			continue
		}
		p.setSite(s.At, s.Recipe)
	}
	todo := p.affected()
	p.slabs.many = min(2*len(todo)+4, slabItems)
	slices.Sort(todo)
	for _, off := range todo {
		if r := p.records.at(uint64(off)); r.patched() {
			x := p.view(r)
			tx.Old = append(tx.Old, x)
			tx.old = append(tx.old, *r)
			if x.Via != 0 {
				tx.Vacate = append(tx.Vacate, x.Via)
			}
		}
	}
	for i := range tx.old {
		p.uninstall(tx.old[i].off)
	}
	slices.Sort(tx.Vacate)
	tx.New = make([]*Patch, 0, len(todo)+len(todo)/64)
	for _, off := range todo {
		if at := p.text.at + uint64(off); p.records.at(uint64(off)).recipe != nil && p.text.fixed(at) {
			if _, err := p.direct(at, 1); err != nil {
				if !left(at, err) {
					return fail(at, err)
				}
				p.records.at(uint64(off)).recipe = nil
			}
		}
	}
	// What comes before a site may run it in its own trampoline, and is placed later: so a site that is left out is none for it.
	for _, off := range slices.Backward(todo) {
		if r := p.records.at(uint64(off)); r.recipe == nil || r.patched() {
			continue
		}
		if err := p.place(p.text.at + uint64(off)); err != nil {
			if !left(p.text.at+uint64(off), err) {
				return fail(p.text.at+uint64(off), err)
			}
			p.records.at(uint64(off)).recipe = nil
		}
	}
	slices.SortFunc(tx.New, func(x, y *Patch) int { return compare(x.At, y.At) })
	p.edits(tx)
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
	switch {
	case !p.text.Begins(at):
		return ErrNoInstruction
	case p.text.shared(at):
		return ErrShared
	case replaced || !p.text.mayCall(at):
		return nil
	}
	in, code, ok := p.text.inst(at)
	if !ok {
		return ErrNoInstruction
	}
	_, err := x86.Relocate(nil, in, code, at, at, p.Calls)
	return err
}

// setSite makes an instruction a site, or none, and remembers what it was.
func (p *Planner) setSite(a uint64, recipe Recipe) {
	r := p.records.add(uint32(a - p.text.at))
	p.pending.before = append(p.pending.before, record{off: r.off, recipe: r.recipe})
	r.recipe = recipe
}

// affected gives the instructions whose patches must be planned anew: those that have changed, those that these are part of, and those that were patched together.
func (p *Planner) affected() (list []uint32) {
	mark := func(r *record) {
		if !r.marked {
			r.marked = true
			list = append(list, r.off)
		}
	}
	for i := range p.pending.before {
		mark(p.records.at(uint64(p.pending.before[i].off)))
	}
	for i := 0; i < len(list) && p.records.patched > 0; i++ {
		off := uint64(list[i])
		p.records.each(off-min(off, reach), off, func(r *record) bool {
			if r.leans(off) || r.holds(off) {
				mark(r)
			}
			return true
		})
		r := p.records.at(off)
		if r.patched() && r.before != 0 {
			mark(p.records.at(off - uint64(r.before)))
		}
		if r.patched() && r.evicts != 0 {
			mark(p.records.at(off + uint64(r.evicts)))
		}
	}
	for _, off := range list {
		p.records.at(uint64(off)).marked = false
	}
	return list
}

// edits compares the old patches with the new ones.
func (p *Planner) edits(tx *Transaction) {
	t := p.text
	tx.Edits = make([]Edit, 0, len(tx.New))
	for i, k := 0, 0; i < len(tx.Old) || k < len(tx.New); {
		var sides [2]*Patch
		switch {
		case k == len(tx.New) || i < len(tx.Old) && tx.Old[i].At < tx.New[k].At:
			sides[0] = tx.Old[i]
		case i == len(tx.Old) || tx.New[k].At < tx.Old[i].At:
			sides[1] = tx.New[k]
		default:
			sides = [2]*Patch{tx.Old[i], tx.New[k]}
		}
		var e Edit
		n := 0
		for s, x := range sides {
			if x != nil {
				e.At, e.To = x.At, x.Trampoline.At
				n = max(n, len(x.Bytes))
				if s == 0 {
					i++
				} else {
					k++
				}
			}
		}
		b := p.slabs.bytes(2 * n)
		e.Old, e.New = b[:n:n], b[n:2*n:2*n]
		for s, side := range [2][]byte{e.Old, e.New} {
			copy(side, t.orig[e.At-t.at:])
			if x := sides[s]; x != nil {
				copy(side, x.Bytes)
			}
		}
		tx.Edits = append(tx.Edits, e)
	}
	// The heads that a jump is made of come before it.
	old := len(tx.old)
	for i := len(tx.Edits) - 1; i >= 0; i-- {
		e := &tx.Edits[i]
		lean := func(r *record) {
			for k := i + 1; k < len(tx.Edits); k++ {
				f := &tx.Edits[k]
				off := f.At - t.at
				if off >= r.from() {
					break
				}
				if r.leans(off) {
					e.Rank = max(e.Rank, f.Rank+1)
				}
			}
		}
		if old > 0 && tx.Old[old-1].At == e.At {
			old--
			lean(&tx.old[old])
		}
		if r := p.records.at(e.At - t.at); r != nil && r.patched() {
			lean(r)
		}
	}
}

// Steps gives the writes in their order; behind each step all processors must have seen it before the next. At first every head becomes int3, those before whose bytes
// they are made of; then all other bytes change; then the heads, in the opposite order. Before each step from the second up to that of the other bytes no thread may stand at
// Vacate: a jump there is made of heads as well. While this goes on a thread that traps at
// an edit goes on at its To.
func (tx *Transaction) Steps() (steps [][]Write) {
	var count []int // edits by rank
	tails := 0
	for i := range tx.Edits {
		e := &tx.Edits[i]
		for e.Rank >= len(count) {
			count = append(count, 0)
		}
		count[e.Rank]++
		if len(e.New) > 1 {
			tails++
		}
	}
	ranks := len(count)
	n := 2 * ranks
	if tails > 0 {
		n++
	}
	steps = make([][]Write, n)
	for r, k := range count {
		steps[ranks-1-r], steps[n-ranks+r] = make([]Write, 0, k), make([]Write, 0, k)
	}
	if tails > 0 {
		steps[ranks] = make([]Write, 0, tails)
	}
	for i := range tx.Edits {
		e := &tx.Edits[i]
		first, last := &steps[ranks-1-e.Rank], &steps[n-ranks+e.Rank]
		*first, *last = append(*first, Write{e.At, trapByte}), append(*last, Write{e.At, e.New[:1]})
		if len(e.New) > 1 {
			steps[ranks] = append(steps[ranks], Write{e.At + 1, e.New[1:]})
		}
	}
	return steps
}

var trapByte = []byte{opTrap}

// Back gives what takes the transaction back that was begun and not done: of its Steps the last n undo the first n of this one's, of which the last may have been written in part, from that one to the
// first. So they keep to the same order, with their own Vacate: the jumps inside neighbours of new patches. While they are written a thread that traps goes on where it did before, in a new trampoline; To
// is where it is to go on from then on: in an old one, or (0) nowhere else, since int3 is gone. It is not the planner's: Undo ends this one.
func (tx *Transaction) Back() *Transaction {
	back := &Transaction{Edits: make([]Edit, len(tx.Edits))}
	old := 0
	for i := range tx.Edits {
		e := &tx.Edits[i]
		back.Edits[i] = Edit{At: e.At, Old: e.New, New: e.Old, Rank: e.Rank}
		if old < len(tx.Old) && tx.Old[old].At == e.At {
			back.Edits[i].To = tx.Old[old].Trampoline.At
			old++
		}
	}
	for _, x := range tx.New {
		if x.Via != 0 {
			back.Vacate = append(back.Vacate, x.Via)
		}
	}
	slices.Sort(back.Vacate)
	return back
}

func (p *Planner) finish(tx *Transaction) {
	if tx.done || p.pending != tx {
		panic("BUG: patch: a transaction is ended that is not under way")
	}
	tx.done, p.pending = true, nil
}

// Commit says that the transaction was applied.
func (p *Planner) Commit(tx *Transaction) {
	p.finish(tx)
	p.tidy(tx)
}

// Abort takes a transaction back that was not applied.
func (p *Planner) Abort(tx *Transaction) {
	p.undo(tx)
	for _, x := range tx.New {
		p.free(&x.Trampoline)
	}
	tx.New = nil
}

// Undo is Abort for a transaction whose steps were begun and have been taken back: the memory of New stays taken until Space.Free is told that no thread is there any more.
func (p *Planner) Undo(tx *Transaction) { p.undo(tx) }

func (p *Planner) undo(tx *Transaction) {
	p.finish(tx)
	for _, x := range tx.New {
		p.uninstall(uint32(x.At - p.text.at))
	}
	for i, old := range tx.old {
		if r := p.records.add(old.off); !r.patched() {
			p.reinstall(r, &old, tx.Old[i].Bytes)
		}
	}
	for i := len(tx.before) - 1; i >= 0; i-- {
		p.records.add(tx.before[i].off).recipe = tx.before[i].recipe
	}
	p.tidy(tx)
}

// tidy removes the records that say nothing any more.
func (p *Planner) tidy(tx *Transaction) {
	for _, list := range [][]record{tx.before, tx.old} {
		for i := range list {
			p.records.drop(list[i].off)
		}
	}
	for _, x := range tx.New {
		p.records.drop(uint32(x.At - p.text.at))
	}
	tx.before, tx.old = nil, nil
}

// Free takes back the memory of the old trampolines of a committed transaction. No thread may be in them any more.
func (p *Planner) Free(tx *Transaction) {
	if p.pending == tx {
		panic("BUG: patch: the trampolines of a transaction under way are freed")
	}
	for _, x := range tx.Old {
		p.free(&x.Trampoline)
	}
	tx.Old = nil
}

// Lose is Free where another process may be in the trampoline, which has its memory in common with this one: only the address is used again.
func (s *Space) Lose(at uint64, n int) { s.lose(at, at+uint64(n)) }

// Free takes back the memory of one old trampoline of a committed transaction, of n bytes. No thread may be in it any more.
func (s *Space) Free(at uint64, n int) { s.give(at, at+uint64(n)) }
