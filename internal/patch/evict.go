package patch

import "slices"

// Bounds of the search for bytes that suit two jumps, in looks at the space: for one pair of places, and for a site's successor or neighbours.
const (
	triesPair = 300
	triesSite = 4000
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

// A byteChoice is a byte that is not known, and what it may be.
type byteChoice struct {
	at   uint64
	from []byte
}

// A pair is two jumps that share bytes, and what is known of them.
type pair struct {
	x, y    jump
	k       known
	choices []byteChoice
	ax, ay  uint64 // their targets, when they are found
}

// within says whether a byte is one of the jump's distance.
func (j *jump) within(a uint64) bool { return a > j.op && a < j.end() }

// both looks for targets of two jumps. It tries the last choices first: they weigh most in the distance; and goes on only where both reach memory that is ours as far as is chosen.
func (p *Planner) both(c *pair) bool {
	left := min(triesPair, p.tries)
	defer func(had int) { p.tries -= had - left }(left)
	reach := func(j *jump) bool {
		left--
		w := j.want(&c.k)
		_, ok := p.space.available(&w, 0)
		return ok
	}
	var rec func(n int) bool
	rec = func(n int) (ok bool) {
		if n == 0 {
			if left--; left < 0 {
				return false
			}
			if c.ax, ok = p.space.find(c.x.want(&c.k), c.x.l.size); ok {
				c.ay, ok = p.space.apart(c.y.want(&c.k), c.y.l.size, c.ax, c.x.l.size)
			}
			return ok
		}
		b := c.choices[n-1]
		turn := int(p.space.turn >> 16 % uint64(len(b.from))) // all of the space is used alike
		for i := range b.from {
			if left <= 0 {
				break
			}
			c.k.set(b.at, b.from[(i+turn)%len(b.from)])
			ok = true
			if c.x.within(b.at) && n > 1 {
				ok = reach(&c.x)
			}
			if ok && c.y.within(b.at) && n > 1 {
				ok = reach(&c.y)
			}
			if ok && rec(n-1) {
				return true
			}
		}
		c.k.unset(b.at)
		return false
	}
	return reach(&c.x) && reach(&c.y) && rec(len(c.choices))
}

// A host is an instruction behind a site that lends it bytes: one that is displaced for that, or a site that gets another jump.
type host struct {
	at   uint64
	room int    // how many of its bytes may be overwritten
	old  *Patch // what is there, of a site
}

// host says whether an instruction may be one. A site may if this transaction has placed it and nothing rests on where its jump leads.
func (p *Planner) host(at uint64) (h host, ok bool) {
	h = host{at: at}
	if !p.text.Begins(at) || p.text.shared(at) || p.records.leant(at-p.text.at) {
		return h, false
	}
	h.room = p.text.room(at)
	r := p.records.at(at - p.text.at)
	switch {
	case r == nil || r.recipe == nil && !r.patched():
		in, _, ok := p.text.inst(at)
		return h, ok && movable(in)
	case r.recipe == nil || !r.patched() || r.tier > TierPadded:
		return h, false
	}
	list := p.pending.New
	for i := len(list) - 1; i >= 0 && i >= len(list)-hostLooks; i-- {
		if list[i].At == at {
			h.old = list[i]
			return h, true
		}
	}
	return h, false
}

// exactBytes is how long a trampoline may be that is to find room at one of a few places.
const exactBytes = 96

// hostLooks is how many patches that were placed last are looked at for a host's own: all that lie within reach of a short jump.
const hostLooks = 160

// hostLayout lays out the trampoline of a host whose jump ends at end. That of a site holds the chain that begins there, as it did.
func (p *Planner) hostLayout(l *layout, h *host, end uint64) error {
	if h.old != nil && h.room >= chainRoom {
		end = max(end, p.chain(h.at))
	}
	return p.layout(l, h.at, end)
}

// pair makes the patches of a site and its host, for jumps that have found their targets; nil if one of the trampolines cannot lie there.
func (p *Planner) pair(at uint64, tier Tier, h *host, c *pair) (here, there *Patch) {
	theirs := tier
	if h.old != nil {
		if theirs = TierJump; c.y.op > h.at {
			theirs = TierPadded
		} else if h.room < jumpLen {
			theirs = TierPun
		}
	}
	if there = p.make(h.at, theirs, c.y.l, c.ay); there == nil {
		return nil, nil
	}
	if here = p.make(at, tier, c.x.l, c.ax); here == nil {
		p.free(&there.Trampoline)
		return nil, nil
	}
	if h.old == nil {
		there.For = at
		return here, there
	}
	p.uninstall(uint32(h.at - p.text.at))
	p.free(&h.old.Trampoline)
	i := len(p.pending.New) - 1
	for p.pending.New[i] != h.old {
		i--
	}
	p.pending.New = slices.Delete(p.pending.New, i, i+1)
	return here, there
}

// successor gives the successor a jump, or another one, whose bytes are chosen so that the jump here can be made of them.
func (p *Planner) successor(at uint64, room int) (bool, error) {
	next := at + uint64(p.text.Len(at))
	h, ok := p.host(next)
	if !ok {
		return false, nil
	}
	for padsThere := range min(h.room, 3) {
		c := pair{y: jump{op: next + uint64(padsThere)}}
		if c.y.end() > p.text.end() {
			break
		}
		lx, ly := &p.layouts[0], &p.layouts[1]
		if p.hostLayout(ly, &h, c.y.end()) != nil {
			break
		}
		c.y.l, c.x.l = ly, lx
		for pads := range room {
			c.x.op = at + uint64(pads)
			if c.x.end() <= next {
				continue
			}
			if err := p.layout(lx, at, c.x.end()); err != nil {
				return false, err
			}
			c.k = known{at: at}
			c.k.text(p.text, at+uint64(room), next)
			c.k.text(p.text, next+uint64(h.room), max(c.x.end(), c.y.end()))
			c.k.set(c.y.op, opJump)
			c.choices = c.choices[:0]
			for a := next; a < c.x.end() && a < next+uint64(h.room); a++ {
				switch {
				case a+1 < c.y.op:
					c.choices = append(c.choices, byteChoice{a, idle})
				case a < c.y.op:
					c.choices = append(c.choices, byteChoice{a, idleLast})
				case a > c.y.op && a < c.y.end():
					c.choices = append(c.choices, byteChoice{a, anyByte})
				case a >= c.y.end():
					c.choices = append(c.choices, byteChoice{a, p.text.orig[a-p.text.at:][:1]})
				}
			}
			if !p.both(&c) {
				continue
			}
			prefixes := p.slabs.bytes(padsThere)
			for i := range prefixes {
				prefixes[i] = pad
				if a := next + uint64(i) - at; c.k.is[a] {
					prefixes[i] = c.k.value[a]
				}
			}
			here, there := p.pair(at, TierSuccessor, &h, &c)
			if here == nil {
				continue
			}
			p.jump(there, padsThere, h.room, prefixes)
			p.install(there, ly, padsThere+jumpLen)
			p.jump(here, pads, room, ownPads(pads))
			p.install(here, lx, pads+jumpLen).evicts = uint8(next - at)
			return true, nil
		}
	}
	return false, nil
}

// neighbour gives an instruction further on a jump, or another one, that has the first bytes of a second jump among its own; to that a short jump leads. Hosts in which both
// jumps have room to choose come first, and last those whose trampolines are long.
func (p *Planner) neighbour(at uint64, room int) (bool, error) {
	if room < 2 {
		return false, nil
	}
	lx, ly := &p.layouts[0], &p.layouts[1]
	if err := p.layout(lx, at, at+2); err != nil {
		return false, err
	}
	last := at + 2 + 127
	for pass := range 3 {
		for v := p.text.Next(at+uint64(p.text.Len(at)), last); v < last; v = p.text.Next(v+1, last) {
			n := p.text.Len(v)
			if n < 3 || pass == 0 && n <= jumpLen || pass == 1 && n > jumpLen {
				continue
			}
			h, ok := p.host(v)
			if !ok || h.room < 3 {
				continue
			}
			c := pair{x: jump{l: lx}, y: jump{op: v, l: ly}}
			if c.y.end() > p.text.end() || p.hostLayout(ly, &h, c.y.end()) != nil || (ly.size > exactBytes) != (pass == 2) {
				continue
			}
			for n := 1; n < h.room; n++ {
				k := h.room - n
				if h.room > jumpLen {
					k = n
				}
				c.x.op = v + uint64(k)
				if c.x.op > last || c.x.end() > p.text.end() {
					continue
				}
				if site, ok := p.vias[c.x.op]; ok && site != at {
					continue // a thread that was interrupted there goes on at the site, however late its handler asks which
				}
				if p.meet(at, &h, &c) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// meet makes the patches of neighbour if both jumps find a target.
func (p *Planner) meet(at uint64, h *host, c *pair) bool {
	x, y, v, room := &c.x, &c.y, h.at, h.at+uint64(h.room)
	c.k = known{at: v}
	c.k.text(p.text, room, max(x.end(), y.end()))
	c.k.set(x.op, opJump)
	c.choices = c.choices[:0]
	for a := x.op + 1; a < y.end() && a < room; a++ {
		c.choices = append(c.choices, byteChoice{a, anyByte})
	}
	if !p.both(c) {
		return false
	}
	here, there := p.pair(at, TierNeighbour, h, c)
	if here == nil {
		return false
	}
	// The bytes of the inner jump belong to the patch of the instruction that they lie in.
	inner := (&Patch{At: x.op, Trampoline: here.Trampoline})
	p.jump(inner, 0, int(room-x.op), nil)
	whole := p.text.Bytes(v, room)
	copy(whole[x.op-v:], inner.Bytes)
	p.text.set(v, whole) // for jump to compare with
	p.jump(there, 0, min(h.room, int(x.op-v)), nil)
	copy(whole, there.Bytes)
	there.Bytes = whole[:max(len(there.Bytes), int(x.op-v)+len(inner.Bytes), min(h.room, jumpLen))]
	p.install(there, y.l, jumpLen)
	p.vias[x.op] = at
	here.Via, here.Bytes = x.op, []byte{opShort, byte(x.op - at - 2)}
	r := p.install(here, x.l, int(x.end()-at))
	r.via, r.evicts = uint8(x.op-at), uint8(v-at)
	return true
}
