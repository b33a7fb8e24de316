package hook

import (
	"bytes"
	"slices"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Shares: threads that divide work among themselves do it by a count that each raises at once, and takes what was there for its share: `next.fetch_add(1)` in a loop, OpenMP's dynamic schedules, ring buffers' tickets. Who gets which decides all that they do from then on.
//
// These are xadd with a lock whose result is used as a number. Counts of references are compared with 0, 1 or -1, and nothing else; they are left alone, as are counts of whose result nothing is used (compilers make an add of these).

// lookShares finds them, but for those that are known as something else.
func lookShares(p *engine.Process, m *engine.Module, locks []made, known ...[]uint64) (list []uint64) {
	if m.Kind != engine.Program && m.Kind != engine.Library || p.Func(wire.PatchFuncFutexHook) == 0 {
		return nil
	}
	b, ok := m.Hinted(sharesHint)
	places, err := parseList(b)
	if !ok || err != nil {
		places = nil
		found := newShareFinder(moduleFinder(p, m)).find()
		if len(found) > mostQueues {
			found = nil
		}
		for _, at := range found {
			places = append(places, at-m.Bias)
		}
		m.Hint(sharesHint, appendList(nil, places))
	}
	for _, at := range places {
		at += m.Bias
		if !slices.ContainsFunc(known, func(l []uint64) bool { return slices.Contains(l, at) }) && !slices.ContainsFunc(locks, func(l made) bool { return l.at == at }) {
			list = append(list, at)
		}
	}
	return list
}

const sharesHint = "shares"

// A shareFinder looks at a module's code.
type shareFinder struct {
	queueFinder
	left int             // instructions that uses looks at yet
	seen map[uint64]bool // those that it has
}

func newShareFinder(f *wordFinder) *shareFinder {
	return &shareFinder{queueFinder: queueFinder{wordFinder: f}}
}

// find gives the addresses of such instructions, ascending.
func (f *shareFinder) find() (list []uint64) {
	opcode := []byte{0x0f, 0xc1} // xadd of 4 or 8 bytes
	functions := map[uint64]uint64{}
	for _, s := range f.segments {
		for i := 0; ; i += len(opcode) {
			n := bytes.Index(s.code[i:], opcode)
			if n < 0 {
				break
			}
			i += n
			at := i
			if at > 0 && s.code[at-1]&0xf0 == 0x40 { // REX
				at--
			}
			if at == 0 || s.code[at-1] != 0xf0 {
				continue
			}
			at--
			if lo, hi, ok := f.function(s.at + uint64(at)); ok && f.isShare(s.at+uint64(at)) {
				functions[lo] = hi
			}
		}
	}
	if len(functions) > mostQueues { // so many are of something else
		return nil
	}
	for lo, hi := range functions {
		list = append(list, f.of(lo, hi)...)
	}
	slices.Sort(list)
	return list
}

// of gives a function's shares, and what else it does to where these are; of an array of them, as where who has no work left looks for the one that has most, to all that has an address made of the array's, and their size.
func (f *shareFinder) of(lo, hi uint64) (list []uint64) {
	p := &part{made: map[int32][2]int32{}}
	code, _ := f.code(lo, hi)
	f.follow(p, lo, hi, code)
	type array struct {
		begin int32
		size  uint16
	}
	keys, arrays := map[value]bool{}, map[array]bool{}
	for _, a := range p.accesses {
		if a.kind != counts || !f.isShare(a.at) {
			continue
		}
		keys[a.key] = true
		in, _ := f.insn(a.at)
		if begin := p.begin(a.root); begin >= others && (begin != a.root || in.Mems()[0].Index != x86.NoReg) {
			arrays[array{begin, a.field.size}] = true
		}
	}
	for _, a := range p.accesses {
		if keys[a.key] || arrays[array{p.begin(a.root), a.field.size}] {
			list = append(list, a.at)
		}
	}
	return list
}

// mostUses is how many instructions behind one are looked at.
const mostUses = 48

// isShare says whether an xadd's result is used as a number.
func (f *shareFinder) isShare(at uint64) bool {
	in, ok := f.insn(at)
	a := in.Args()
	if !ok || in.Op != "xadd" || accessOf(&in.Inst) != counts || len(a) != 2 || a[1].Kind != x86.ArgReg {
		return false
	}
	f.left, f.seen = mostUses, map[uint64]bool{}
	return f.uses(in.next(), held{all: a[1].Reg.Set()})
}

// held are registers that hold the result, or what it was made by adding a constant; given: those of them that it was put in on purpose. compared: with 0, 1 or -1, as references are. Then what holds it by chance is no use any more: who counts references goes on with the result where it lies.
type held struct {
	all, given x86.RegSet
	compared   bool
}

// passes says whether a register holds the result for who is called, or has called.
func (h *held) passes(r x86.Reg) bool { return h.given.Has(r) || !h.compared && h.all.Has(r) }

// uses says whether code uses the result otherwise than to compare it with a constant.
func (f *shareFinder) uses(at uint64, h held) bool {
	for ; f.left > 0 && h.all != 0 && !f.seen[at]; f.left-- {
		f.seen[at] = true
		in, ok := f.insn(at)
		if !ok {
			return false
		}
		a := in.Args()
		var copies, given x86.RegSet
		if in.Reads&h.all != 0 {
			reg := func(n int) bool { return n < len(a) && a[n].Kind == x86.ArgReg }
			imm := func(n int) bool { return n < len(a) && a[n].Kind == x86.ArgImm }
			switch {
			case in.Op == "cmp" && imm(1):
				h.compared = h.compared || a[1].Imm >= -1 && a[1].Imm <= 1
			case in.Op == "test" && (imm(1) || reg(0) && a[0] == a[1]):
				h.compared = true
			case reg(0) && (in.Op == "inc" || in.Op == "dec" || (in.Op == "add" || in.Op == "sub") && imm(1)):
				copies, given = in.Writes&h.all, in.Writes&h.given
			case reg(0) && reg(1) && (in.Op == "mov" || in.Op == "movsxd"), in.Op == "lea" && in.Mems()[0].Index == x86.NoReg:
				copies, given = a[0].Reg.Set(), a[0].Reg.Set()
			case in.Op == "xor" && reg(0) && reg(1) && a[0] == a[1]:
			default:
				return true
			}
		}
		over := in.Writes &^ in.Kept
		switch in.Flow {
		case x86.FlowCall, x86.FlowIndirectCall:
			for _, r := range arguments {
				if h.passes(r) {
					return true
				}
			}
			for n := range x86.Reg(16) {
				if isScratch(x86.RAX + n) {
					over |= (x86.RAX + n).Set()
				}
			}
		case x86.FlowRet:
			return h.passes(x86.RAX)
		case x86.FlowCond:
			if to, ok := in.Target(at); ok && f.uses(to, h) {
				return true
			}
		case x86.FlowJump:
			to, ok := in.Target(at)
			if !ok {
				return false
			}
			at = to
			continue
		case x86.FlowNone:
		default:
			return false
		}
		h.all, h.given = h.all&^over|copies, h.given&^over|given
		at = in.next()
	}
	return false
}

var arguments = [...]x86.Reg{rdi, rsi, x86.RDX, x86.RCX, x86.RAX + 8, x86.RAX + 9}

// begin is the oldest of what an address was made of by additions: an array's, and not a place in it.
func (p *part) begin(sym int32) int32 {
	for {
		of, ok := p.made[sym]
		if !ok {
			return sym
		}
		sym = min(of[0], of[1])
	}
}
