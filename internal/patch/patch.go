// Package patch plans how code of ours comes in front of instructions of a program that is running: which bytes change, what the trampolines hold and where
// they lie. It plans only; no process is touched.
//
// A patch replaces an instruction's first bytes by a jump to a trampoline: the recipe's code, the displaced instruction, a jump back. Most instructions are
// shorter than a jump of five bytes; then the last bytes of the jump's distance are the first bytes of what follows, which stay as they are (instruction
// punning: Chamith et al., PLDI 2017), and the trampoline must lie where they say. If nothing is free there, prefixes that mean nothing move the jump
// over other bytes, or the successor or another neighbour is displaced too, to have other bytes (Duck et al., E9Patch, PLDI 2020). What is left gets int3.
//
// Every boundary between instructions stays valid at all times, whether or not a jump to it is known: a thread may stand at any of them.
package patch

import (
	"errors"

	"github.com/ripstop/ripstop/internal/x86"
)

// Errors of sites. Plan wraps them with the address.
var (
	ErrNoInstruction = errors.New("no known instruction begins here")
	ErrShared        = errors.New("other code runs through the bytes of the instruction: a patch would change it")
	ErrTrap          = errors.New("nothing but int3 would lead to its trampoline") // where there may be none: NoTraps
	ErrSpace         = errors.New("no free memory for a trampoline within reach")
	ErrSite          = errors.New("there is a site already")
	ErrNoSite        = errors.New("there is no site")
)

// A Recipe is what is done in front of an instruction: code that falls through its end and leaves everything that matters as it was. Or it is done instead of
// it.
type Recipe interface {
	// Size is the most bytes that Append appends, whatever the address.
	Size() int
	// Replaces says that the code stands for the instruction: the trampoline holds no copy of it, and the end of the code is where its successor goes on.
	Replaces() bool
	// Append appends the code as it is to lie at an address, and gives the states of each of its instructions; their Off and Resume count from the
	// code's own start; they are the caller's until Append is called again, for this recipe or another one. Nothing may depend on when it is called: code is made more
	// than once.
	Append(dst []byte, at uint64) ([]byte, []State, error)
}

// A Site is an instruction that is to have a recipe.
type Site struct {
	At     uint64
	Recipe Recipe
}

// A Tier says how an instruction was patched, from the cheapest to the dearest.
type Tier uint8

// Tiers.
const (
	TierJump      Tier = iota // the instruction has room for a jump
	TierPun                   // the jump ends in the bytes of the successors, which the trampoline holds too
	TierPadded                // likewise, behind prefixes
	TierSuccessor             // likewise, and the successor was displaced to have other bytes
	TierNeighbour             // a short jump to a jump inside a displaced instruction
	TierTrap                  // int3
	Tiers
)

var tierNames = [Tiers]string{"jump", "pun", "padded", "evicted successor", "evicted neighbour", "int3"}

// String gives the tier's name.
func (t Tier) String() string {
	if t < Tiers {
		return tierNames[t]
	}
	return "?"
}

// A Patch is one instruction patched. It does not change.
type Patch struct {
	At    uint64
	Tier  Tier
	Bytes []byte // what lies there instead of the instruction's own first bytes, never beyond its end
	// Trampoline has its place and its length always, its code, parts and states only in Transaction.New.
	Trampoline Trampoline
	// For is the site on whose behalf the instruction was displaced; 0 if it is a site itself.
	For uint64
	// Via is the place of the jump inside a displaced neighbour, 0 if there is none. No other site of the planner ever has its jump there.
	Via uint64
}

// A Trampoline is code outside the program's.
type Trampoline struct {
	At     uint64
	Code   []byte
	Parts  []Part
	States []State // of all of it, by Off, the first at 0

	size int // if there is no code
}

// Len gives its length in bytes.
func (t *Trampoline) Len() int { return max(t.size, len(t.Code)) }

// End gives the address behind the trampoline.
func (t *Trampoline) End() uint64 { return t.At + uint64(t.Len()) }

// A Part is a piece of a trampoline: a recipe, a copy of an instruction, or, last, the jump back. A thread that is stopped in a part is, as far as the program
// is concerned, about to run the instruction at For, unless States says that it has run it.
type Part struct {
	Off    int // of its first byte
	For    uint64
	Recipe bool
}

// A Planner knows the patches of one text. It is not for several goroutines at once.
type Planner struct {
	// Calls says what becomes of a site that is a call: refused, or moved with its return address kept. Calls that are no sites always stay in place.
	Calls x86.Calls
	// NoTraps says that no site is given int3, as threads may run the text with SIGTRAP blocked.
	NoTraps bool

	text    *Text
	space   *Space
	records records
	vias    map[uint64]uint64 // by the place of each jump inside a displaced neighbour that there ever was: its site
	pending *Transaction
	tries   int // that the search for a tier has left
	slabs   slabs
	layouts [2]layout // that are worked on
}

// NewPlanner makes a planner for a text that is as it was. Several planners may share a space.
func NewPlanner(text *Text, space *Space) *Planner {
	return &Planner{text: text, space: space, vias: map[uint64]uint64{}, records: records{blocks: make([][]record, (len(text.orig)+blockBytes-1)/blockBytes)}}
}

// At gives the patch of an instruction, nil if there is none.
func (p *Planner) At(addr uint64) *Patch {
	if r := p.records.at(addr - p.text.at); r != nil && r.patched() {
		return p.view(r)
	}
	return nil
}

// Patched says whether an instruction is patched, and is a site.
func (p *Planner) Patched(addr uint64) bool {
	r := p.records.at(addr - p.text.at)
	return r != nil && r.patched() && r.before == 0
}

// Patches calls back for each patch, by address.
func (p *Planner) Patches(f func(*Patch)) {
	p.records.each(0, uint64(len(p.text.orig)), func(r *record) bool {
		if r.patched() {
			f(p.view(r))
		}
		return true
	})
}

// view gives what a record says of a patch.
func (p *Planner) view(r *record) *Patch {
	at := p.text.at + uint64(r.off)
	x := &Patch{At: at, Tier: r.tier, Bytes: p.text.Bytes(at, at+uint64(r.bytes))}
	x.Trampoline.At, x.Trampoline.size = p.trampoline(r), int(r.size)
	if r.before != 0 {
		x.For = at - uint64(r.before)
	}
	if r.via != 0 {
		x.Via = at + uint64(r.via)
	}
	return x
}

// trampoline gives where a patch's trampoline lies.
func (p *Planner) trampoline(r *record) uint64 { return p.text.at + r.from() + uint64(int64(r.dist)) }

// free gives a patch's trampoline back to the space.
func (p *Planner) free(t *Trampoline) { p.space.give(t.At, t.End()) }

// Close forgets the text, which is unmapped, and frees its trampolines, but for those that Free was not yet told of.
func (p *Planner) Close() { p.close((*Space).give) }

// CloseShared is Close where another process may be in the trampolines, which has their memory in common with this one: only their addresses are used again.
func (p *Planner) CloseShared() { p.close((*Space).lose) }

func (p *Planner) close(back func(s *Space, lo, hi uint64)) {
	if p.pending != nil {
		p.Abort(p.pending)
	}
	p.Patches(func(x *Patch) { back(p.space, x.Trampoline.At, x.Trampoline.End()) })
	calls := p.Calls
	*p = *NewPlanner(p.text, p.space)
	p.Calls = calls
}
