package patch

import (
	"encoding/binary"
	"fmt"
)

const (
	opJump  = 0xe9
	opShort = 0xeb
	opTrap  = 0xcc
	jumpLen = 5
	// pad is a prefix without meaning before a jump: cs, as before code is said to cost least.
	pad = 0x2e
)

// A jump is one of five bytes that is being planned.
type jump struct {
	op uint64 // where its first byte lies
	l  *layout
}

func (j *jump) end() uint64 { return j.op + jumpLen }

// want gives what the jump asks of its target: the bytes of its distance that are known stay.
func (j *jump) want(k *known) want {
	w := want{base: j.end(), lo: j.l.lo, hi: j.l.hi}
	for i := range 4 {
		if a := j.op + 1 + uint64(i) - k.at; k.is[a] {
			w.mask |= 0xff << (8 * i)
			w.bits |= uint32(k.value[a]) << (8 * i)
		}
	}
	return w
}

// Known bytes from an address on; the others are to be chosen.
type known struct {
	at    uint64
	is    [knownBytes]bool
	value [knownBytes]byte
}

// knownBytes is how far two jumps reach, the second of which lies in the instruction behind that of the first.
const knownBytes = 56

func (k *known) set(a uint64, b byte) { k.is[a-k.at], k.value[a-k.at] = true, b }
func (k *known) unset(a uint64)       { k.is[a-k.at] = false }

// text makes the bytes in [lo, hi) known as they are planned.
func (k *known) text(t *Text, lo, hi uint64) {
	for a := lo; a < min(hi, t.end()); a++ {
		k.set(a, t.now.At(a-t.at))
	}
}

// place patches the instruction, by the first tier that works. What follows it must have been placed.
func (p *Planner) place(at uint64) error {
	switch {
	case !p.text.Begins(at):
		return ErrNoInstruction
	case p.text.shared(at):
		return ErrShared
	}
	room := p.text.room(at)
	for _, try := range []func(*Planner, uint64, int) (bool, error){(*Planner).direct, (*Planner).successor, (*Planner).neighbour, (*Planner).trap} {
		p.tries = triesSite
		if ok, err := try(p, at, room); ok || err != nil {
			return err
		}
	}
	return ErrSpace
}

// direct places a jump, punned and padded as need be. Its trampoline holds the chain that begins there, if there is room for so much.
func (p *Planner) direct(at uint64, room int) (bool, error) {
	if chain := p.chain(at); chain > 0 && room >= chainRoom {
		if ok, err := p.directTo(at, room, 1, chain); ok || err != nil {
			return ok, err
		}
	}
	return p.directTo(at, room, room, 0)
}

func (p *Planner) directTo(at uint64, room, maxPads int, chain uint64) (bool, error) {
	for pads := range maxPads {
		j := jump{op: at + uint64(pads)}
		if j.end() > p.text.end() {
			break
		}
		l := &p.layouts[0]
		if err := p.layout(l, at, max(j.end(), chain)); err != nil {
			return false, err
		}
		j.l = l
		tier := TierPun
		switch {
		case pads > 0:
			tier = TierPadded
		case room >= jumpLen:
			tier = TierJump
		}
		k := known{at: at}
		k.text(p.text, at+uint64(room), j.end())
		if a, ok := p.space.find(j.want(&k), l.size); ok {
			if x := p.make(at, tier, l, a); x != nil {
				p.jump(x, pads, room, ownPads(pads))
				p.install(x, l, pads+jumpLen)
				return true, nil
			}
		}
		if room >= jumpLen {
			break
		}
	}
	return false, nil
}

var pads = [16]byte{pad, pad, pad, pad, pad, pad, pad, pad, pad, pad, pad, pad, pad, pad, pad, pad}

// ownPads are so many prefixes.
func ownPads(n int) []byte { return pads[:n:n] }

// trap places an int3, from which the agent's handler sends the thread to the trampoline.
func (p *Planner) trap(at uint64, _ int) (bool, error) {
	l := &p.layouts[0]
	if err := p.layout(l, at, at+1); err != nil {
		return false, err
	}
	a, ok := p.space.find(want{base: at, lo: l.lo, hi: l.hi}, l.size)
	if !ok {
		return false, ErrSpace
	}
	if p.NoTraps {
		return false, ErrTrap
	}
	x := p.make(at, TierTrap, l, a)
	if x == nil {
		_, err := p.build(l, a)
		return false, fmt.Errorf("trampoline at %#x: %w", a, err)
	}
	x.Bytes = append(p.slabs.bytes(1)[:0], opTrap)
	p.install(x, l, 0)
	return true, nil
}

// make makes the patch of an instruction with its trampoline, whose memory is taken; nil if it cannot lie there.
func (p *Planner) make(at uint64, tier Tier, l *layout, a uint64) *Patch {
	t, err := p.build(l, a)
	if err != nil {
		return nil
	}
	p.space.take(t.At, t.End())
	x := p.slabs.patch()
	*x = Patch{At: at, Tier: tier, Trampoline: t}
	return x
}

// jump gives the patch its jump behind the prefixes; what lies beyond room must be in the text already.
func (p *Planner) jump(x *Patch, pads, room int, prefixes []byte) {
	end := x.At + uint64(pads) + jumpLen
	b := append(append(p.slabs.bytes(pads + jumpLen)[:0], prefixes...), opJump)
	b = binary.LittleEndian.AppendUint32(b, uint32(x.Trampoline.At-end))
	for i := room; i < len(b); i++ {
		if p.text.now.At(x.At+uint64(i)-p.text.at) != b[i] {
			panic(fmt.Sprintf("BUG: patch: the jump at %#x changes bytes behind its instruction", x.At))
		}
	}
	x.Bytes = b[:min(room, len(b))]
}

// install makes the patch part of the plan. Its jump ends so far behind its instruction's beginning.
func (p *Planner) install(x *Patch, l *layout, end int) *record {
	p.text.set(x.At, x.Bytes)
	r := p.records.add(uint32(x.At - p.text.at))
	r.tier, r.bytes, r.end, r.size, r.copies = x.Tier, uint8(len(x.Bytes)), uint8(end), uint16(x.Trampoline.Len()), uint16(l.back-x.At)
	r.before, r.evicts, r.via = 0, 0, 0
	if x.For != 0 {
		r.before = uint8(x.At - x.For)
	}
	r.dist = int32(x.Trampoline.At - p.text.at - r.from())
	if p.trampoline(r) != x.Trampoline.At {
		panic(fmt.Sprintf("BUG: patch: the trampoline of %#x is out of reach at %#x", x.At, x.Trampoline.At))
	}
	p.records.patched++
	p.pending.New = append(p.pending.New, x)
	return r
}

// reinstall makes an old patch part of it again.
func (p *Planner) reinstall(r, old *record, bytes []byte) {
	recipe := r.recipe
	*r = *old
	r.recipe, r.marked = recipe, false
	at := p.text.at + uint64(r.off)
	p.text.set(at, bytes[:r.bytes])
	p.records.patched++
}

// uninstall takes a patch out of it. Its memory stays taken.
func (p *Planner) uninstall(off uint32) {
	r := p.records.at(uint64(off))
	at := p.text.at + uint64(off)
	p.text.restore(at, at+uint64(r.bytes))
	*r = record{off: off, recipe: r.recipe, marked: r.marked}
	p.records.patched--
}

// slabs are pieces of memory of which a transaction's small parts are cut, since there are millions.
type slabs struct {
	many    int // how many items a slab has
	b       []byte
	patches []Patch
	parts   []Part
	states  []State
}

// slabItems is the most.
const slabItems = 1 << 9

// bytes gives n bytes.
func (s *slabs) bytes(n int) []byte { return cut(&s.b, n, 64*s.many) }

func (s *slabs) patch() *Patch { return &cut(&s.patches, 1, s.many)[0] }

// cut cuts n items off a slab, or off a new one.
func cut[T any](slab *[]T, n, size int) []T {
	if n > len(*slab) {
		*slab = make([]T, max(n, size))
	}
	list := (*slab)[:n:n]
	*slab = (*slab)[n:]
	return list
}
