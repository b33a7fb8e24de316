package patch

import "github.com/ripstop/ripstop/internal/x86"

// Sites that run one after the other cost two jumps each, into the trampoline and back, if each has its own. So the trampoline of the first goes on through the others to the
// last: it holds the chain. The others have their jumps and trampolines all the same, for threads that stand there and jumps that nobody knows. A chain ends at an
// instruction to which a known branch leads, which begins another one, at one that cannot be moved, and at fixed addresses: so what is a chain does not depend on what
// is far away. Only in loops: elsewhere what it saves is not worth the memory, a fourth more.

// chainBytes is the distance of the addresses at which chains end.
const chainBytes = 128

// chainRoom is the least room of an instruction that a chain may begin at: with less there are but 256 places for the trampoline, which others may need.
const chainRoom = 3

// passes says whether control passes the instruction at an address, moved, to its successor.
func (p *Planner) passes(at uint64) bool {
	if !x86.MayBranch(p.text.orig[at-p.text.at:]) {
		return true
	}
	in, _, ok := p.text.inst(at)
	return ok && movable(in) && !leaves(in)
}

func (p *Planner) isSite(at uint64) bool {
	r := p.records.at(at - p.text.at)
	return r != nil && r.recipe != nil
}

// chain gives the end of the last site of the chain that begins with a site; 0 if it begins none, or is alone.
func (p *Planner) chain(at uint64) (end uint64) {
	if !p.text.loop(at) {
		return 0
	}
	lo := at &^ (chainBytes - 1)
	for a := at; !p.text.target(a); {
		before := p.text.before(a)
		if before < lo || before == 0 || !p.passes(before) {
			break
		}
		if p.isSite(before) {
			return 0
		}
		a = before
	}
	for a := at; p.passes(a); {
		a += uint64(p.text.Len(a))
		if a >= lo+chainBytes || p.text.target(a) || !p.text.Begins(a) {
			break
		}
		if p.isSite(a) {
			end = a + uint64(p.text.Len(a))
		}
	}
	return end
}
