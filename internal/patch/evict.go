package patch

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

// both looks for targets of two jumps. It tries the last choices first: they weigh most in the distance; and goes on only where both have a target as far as is chosen.
func (p *Planner) both(c *pair) bool {
	left := min(triesPair, p.tries)
	defer func(had int) { p.tries -= had - left }(left)
	find := func(j *jump) (uint64, bool) {
		left--
		return p.space.find(j.want(&c.k), j.l.size)
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
		for _, v := range b.from {
			if left <= 0 {
				break
			}
			c.k.set(b.at, v)
			ok = true
			if c.x.within(b.at) && n > 1 {
				_, ok = find(&c.x)
			}
			if ok && c.y.within(b.at) && n > 1 {
				_, ok = find(&c.y)
			}
			if ok && rec(n-1) {
				return true
			}
		}
		c.k.unset(b.at)
		return false
	}
	if _, ok := find(&c.x); !ok {
		return false
	}
	if _, ok := find(&c.y); !ok {
		return false
	}
	return rec(len(c.choices))
}

// evictable says whether an instruction may be displaced on another one's behalf, and how many of its bytes may be overwritten.
func (p *Planner) evictable(at uint64) (room int, ok bool) {
	if !p.text.Begins(at) || p.text.shared(at) {
		return 0, false
	}
	if r := p.records.at(at - p.text.at); r != nil && (r.recipe != nil || r.patched()) || p.records.leant(at-p.text.at) {
		return 0, false
	}
	if in, _, ok := p.text.inst(at); !ok || !movable(in) {
		return 0, false
	}
	return p.text.room(at), true
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
func (p *Planner) successor(at uint64, room int) (bool, error) {
	next := at + uint64(p.text.Len(at))
	roomThere, ok := p.evictable(next)
	if !ok {
		return false, nil
	}
	for padsThere := range min(roomThere, 3) {
		c := pair{y: jump{op: next + uint64(padsThere)}}
		if c.y.end() > p.text.end() {
			break
		}
		lx, ly := &p.layouts[0], &p.layouts[1]
		if p.layout(ly, next, c.y.end()) != nil {
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
			c.k.text(p.text, next+uint64(roomThere), max(c.x.end(), c.y.end()))
			c.k.set(c.y.op, opJump)
			c.choices = c.choices[:0]
			for a := next; a < c.x.end() && a < next+uint64(roomThere); a++ {
				switch {
				case a+1 < c.y.op:
					c.choices = append(c.choices, byteChoice{a, idle})
				case a < c.y.op:
					c.choices = append(c.choices, byteChoice{a, idleLast})
				case a > c.y.op && a < c.y.end():
					c.choices = append(c.choices, byteChoice{a, anyByte})
				case a >= c.y.end():
					c.choices = append(c.choices, byteChoice{a, p.text.now[a-p.text.at:][:1]})
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
			there := p.evict(next, at, TierSuccessor, ly, c.ay)
			if there == nil {
				continue
			}
			p.jump(there, padsThere, roomThere, prefixes)
			p.install(there, ly, padsThere+jumpLen)
			here := p.make(at, TierSuccessor, lx, c.ax)
			if here == nil {
				p.drop(there)
				continue
			}
			p.jump(here, pads, room, ownPads(pads))
			p.install(here, lx, pads+jumpLen).evicts = uint8(next - at)
			return true, nil
		}
	}
	return false, nil
}

// drop takes back the patch that was installed last.
func (p *Planner) drop(x *Patch) {
	off := uint32(x.At - p.text.at)
	p.uninstall(off)
	p.records.drop(off)
	p.free(&x.Trampoline)
	p.pending.New = p.pending.New[:len(p.pending.New)-1]
}

// neighbour displaces an instruction further on, which has room for its own jump's first bytes and, among them, for those of another jump, to which a short jump leads.
func (p *Planner) neighbour(at uint64, room int) (bool, error) {
	if room < 2 {
		return false, nil
	}
	lx, ly := &p.layouts[0], &p.layouts[1]
	if err := p.layout(lx, at, at+2); err != nil {
		return false, err
	}
	last := at + 2 + 127
	for v := p.text.Next(at+uint64(p.text.Len(at)), last); v < last; v = p.text.Next(v+1, last) {
		if p.text.Len(v) < 3 {
			continue
		}
		roomThere, ok := p.evictable(v)
		if !ok || roomThere < 3 {
			continue
		}
		c := pair{x: jump{l: lx}, y: jump{op: v, l: ly}}
		if c.y.end() > p.text.end() || p.layout(ly, v, c.y.end()) != nil {
			continue
		}
		for k := roomThere - 1; k > 0; k-- {
			c.x.op = v + uint64(k)
			if c.x.op > last || c.x.end() > p.text.end() {
				continue
			}
			if site, ok := p.vias[c.x.op]; ok && site != at {
				continue // a thread that was interrupted there goes on at the site, however late its handler asks which
			}
			if p.meet(at, v, &c, roomThere) {
				return true, nil
			}
		}
	}
	return false, nil
}

// meet makes the patches of neighbour if both jumps find a target.
func (p *Planner) meet(at, v uint64, c *pair, roomThere int) bool {
	x, y, room := &c.x, &c.y, v+uint64(roomThere)
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
	there := p.evict(v, at, TierNeighbour, y.l, c.ay)
	if there == nil {
		return false
	}
	here := p.make(at, TierNeighbour, x.l, c.ax)
	if here == nil {
		p.free(&there.Trampoline)
		return false
	}
	// The bytes of the inner jump belong to the patch of the instruction that they lie in.
	inner := (&Patch{At: x.op, Trampoline: here.Trampoline})
	p.jump(inner, 0, int(room-x.op), nil)
	whole := append([]byte(nil), p.text.Bytes(v, room)...)
	copy(whole[x.op-v:], inner.Bytes)
	copy(p.text.Bytes(v, room), whole) // for jump to compare with
	p.jump(there, 0, min(roomThere, int(x.op-v)), nil)
	copy(whole, there.Bytes)
	there.Bytes = whole[:max(len(there.Bytes), int(x.op-v)+len(inner.Bytes), min(roomThere, jumpLen))]
	p.install(there, y.l, jumpLen)
	p.vias[x.op] = at
	here.Via, here.Bytes = x.op, []byte{opShort, byte(x.op - at - 2)}
	r := p.install(here, x.l, int(x.end()-at))
	r.via, r.evicts = uint8(x.op-at), uint8(v-at)
	return true
}
