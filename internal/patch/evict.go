package patch

import "github.com/ripstop/ripstop/internal/x86"

// Bounds of the search for bytes that suit two jumps, in looks at the space: for one pair of places, and for a site's successor or neighbours.
const (
	triesPair = 3000
	triesSite = 12000
)

// Prefixes without meaning before a near jump; REX only as the last one.
var (
	idle     = []byte{0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65}
	idleLast = append(append([]byte(nil), idle...), 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f)
	anyByte  = func() (b []byte) {
		for i := range 256 {
			b = append(b, byte(i))
		}
		return b
	}()
)

// A byteChoice is a byte that is not given, and what it may be.
type byteChoice struct {
	at   uint64
	from []byte
}

// both looks for targets of two jumps that share the bytes of choices; given are those that are settled. It tries the last choices first: they weigh most in the distance.
func (p *Planner) both(x, y *jump, given func(uint64) (byte, bool), choices []byteChoice) (chosen map[uint64]byte, ax, ay uint64, ok bool) {
	chosen = map[uint64]byte{}
	left := min(triesPair, p.tries)
	defer func(had int) { p.tries -= had - left }(left)
	now := func(a uint64) (byte, bool) {
		if b, ok := chosen[a]; ok {
			return b, true
		}
		return given(a)
	}
	var rec func(n int) bool
	rec = func(n int) bool {
		if left <= 0 {
			return false
		}
		left--
		a, found := p.space.find(x.want(now), x.size)
		if !found {
			return false
		}
		if n == 0 {
			b, found := p.space.apart(y.want(now), y.size, a, x.size)
			ax, ay = a, b
			return found
		}
		c := choices[n-1]
		for _, b := range c.from {
			chosen[c.at] = b
			if rec(n - 1) {
				return true
			}
		}
		delete(chosen, c.at)
		return false
	}
	ok = rec(len(choices))
	return chosen, ax, ay, ok
}

// evictable says whether an instruction may be displaced on another one's behalf, and how many of its bytes may be overwritten.
func (p *Planner) evictable(at uint64) (in x86.Inst, room int, ok bool) {
	in, _, ok = p.text.inst(at)
	if !ok || !movable(&in) || p.patches[at] != nil || p.sites[at] != nil || len(p.deps[at]) > 0 || p.text.shared(at) {
		return in, 0, false
	}
	return in, p.text.room(at, &in), true
}

// evict makes the patch of a displaced instruction.
func (p *Planner) evict(at, forSite uint64, tier Tier, l *layout, a uint64) *Patch {
	x := p.make(at, tier, l, a)
	if x != nil {
		x.For = forSite
	}
	return x
}

// successor displaces the successor by a jump of its own, whose bytes are chosen so that the jump here can be made of them.
func (p *Planner) successor(at uint64, in *x86.Inst, room int) (bool, error) {
	next := at + uint64(in.Len)
	_, roomThere, ok := p.evictable(next)
	if !ok {
		return false, nil
	}
	for padsThere := range min(roomThere, 3) {
		y := jump{op: next + uint64(padsThere), room: next + uint64(roomThere)}
		if y.end() > p.text.end() {
			break
		}
		ly, err := p.layout(next, y.end())
		if err != nil {
			break
		}
		y.l, y.size = &ly, ly.size
		for pads := range room {
			x := jump{op: at + uint64(pads), room: at + uint64(room)}
			if x.end() <= next {
				continue
			}
			lx, err := p.layout(at, x.end())
			if err != nil {
				return false, err
			}
			x.l, x.size = &lx, lx.size
			given := func(a uint64) (byte, bool) {
				switch {
				case a == y.op:
					return opJump, true
				case a < x.room, a >= next && a < y.room:
					return 0, false
				}
				return p.text.now[a-p.text.at], true
			}
			var choices []byteChoice
			for a := next; a < x.end() && a < y.room; a++ {
				switch {
				case a+1 < y.op:
					choices = append(choices, byteChoice{a, idle})
				case a < y.op:
					choices = append(choices, byteChoice{a, idleLast})
				case a > y.op && a < y.end():
					choices = append(choices, byteChoice{a, anyByte})
				case a >= y.end():
					choices = append(choices, byteChoice{a, p.text.now[a-p.text.at:][:1]})
				}
			}
			chosen, ax, ay, ok := p.both(&x, &y, given, choices)
			if !ok {
				continue
			}
			prefixes := ownPads(padsThere)
			for i := range prefixes {
				if b, ok := chosen[next+uint64(i)]; ok {
					prefixes[i] = b
				}
			}
			there := p.evict(next, at, TierSuccessor, &ly, ay)
			if there == nil {
				continue
			}
			p.install(p.jumpBytes(there, padsThere, roomThere, prefixes))
			here := p.make(at, TierSuccessor, &lx, ax)
			if here == nil {
				p.drop(there)
				continue
			}
			here.evicts = []uint64{next}
			p.install(p.jumpBytes(here, pads, room, ownPads(pads)))
			return true, nil
		}
	}
	return false, nil
}

// drop takes back the patch that was installed last.
func (p *Planner) drop(x *Patch) {
	p.uninstall(x)
	p.space.give(x.Trampoline.At, x.Trampoline.End())
	p.pending.New = p.pending.New[:len(p.pending.New)-1]
}

// neighbour displaces an instruction further on, which has room for its own jump's first bytes and, among them, for those of another jump, to which a short jump leads.
func (p *Planner) neighbour(at uint64, in *x86.Inst, room int) (bool, error) {
	if room < 2 {
		return false, nil
	}
	lx, err := p.layout(at, at+2)
	if err != nil {
		return false, err
	}
	last := at + 2 + 127
	for v := p.text.next(at+uint64(in.Len), last); v < last; v = p.text.next(v+1, last) {
		_, roomThere, ok := p.evictable(v)
		if !ok || roomThere < 3 {
			continue
		}
		y := jump{op: v, room: v + uint64(roomThere)}
		ly, err := p.layout(v, y.end())
		if err != nil || y.end() > p.text.end() {
			continue
		}
		y.l, y.size = &ly, ly.size
		for k := roomThere - 1; k > 0; k-- {
			x := jump{op: v + uint64(k), room: y.room, l: &lx, size: lx.size}
			if x.op > last || x.end() > p.text.end() {
				continue
			}
			if p.meet(at, v, &x, &y, roomThere) {
				return true, nil
			}
		}
	}
	return false, nil
}

// meet makes the patches of neighbour if both jumps find a target.
func (p *Planner) meet(at, v uint64, x, y *jump, roomThere int) bool {
	given := func(a uint64) (byte, bool) {
		switch {
		case a == x.op:
			return opJump, true
		case a < y.room:
			return 0, false
		}
		return p.text.now[a-p.text.at], true
	}
	var choices []byteChoice
	for a := x.op + 1; a < y.end() && a < y.room; a++ {
		choices = append(choices, byteChoice{a, anyByte})
	}
	_, ax, ay, ok := p.both(x, y, given, choices)
	if !ok {
		return false
	}
	there := p.evict(v, at, TierNeighbour, y.l, ay)
	if there == nil {
		return false
	}
	here := p.make(at, TierNeighbour, x.l, ax)
	if here == nil {
		p.space.give(there.Trampoline.At, there.Trampoline.End())
		return false
	}
	// The bytes of the inner jump belong to the patch of the instruction that they lie in.
	inner := (&Patch{At: x.op, Trampoline: here.Trampoline})
	p.jumpBytes(inner, 0, int(y.room-x.op), nil)
	whole := append([]byte(nil), p.text.Bytes(v, v+uint64(roomThere))...)
	copy(whole[x.op-v:], inner.Bytes)
	copy(p.text.Bytes(v, v+uint64(roomThere)), whole) // for jumpBytes to compare with
	own := p.jumpBytes(there, 0, min(roomThere, int(x.op-v)), nil)
	copy(whole, own.Bytes)
	there.Bytes = whole[:max(len(own.Bytes), int(x.op-v)+len(inner.Bytes), min(roomThere, jumpLen))]
	p.install(there)
	here.Via, here.evicts = x.op, []uint64{v}
	here.Bytes = []byte{opShort, byte(x.op - at - 2)}
	here.lean(append([]uint64{v}, inner.puns...))
	p.install(here)
	return true
}
