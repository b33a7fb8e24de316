package patch

import (
	"encoding/binary"
	"fmt"

	"github.com/ripstop/ripstop/internal/x86"
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
	op   uint64 // where its first byte lies
	room uint64 // from where on bytes are given
	l    *layout
	size int
}

func (j *jump) end() uint64 { return j.op + jumpLen }

// want gives what the jump asks of its target: the bytes that given knows stay.
func (j *jump) want(given func(addr uint64) (byte, bool)) want {
	w := want{base: j.end(), lo: j.l.lo, hi: j.l.hi}
	for i := range 4 {
		if b, ok := given(j.op + 1 + uint64(i)); ok {
			w.mask |= 0xff << (8 * i)
			w.bits |= uint32(b) << (8 * i)
		}
	}
	return w
}

// beyond gives the bytes of the text from an address on, as planned: nothing is known before it.
func (p *Planner) beyond(room uint64) func(uint64) (byte, bool) {
	return func(a uint64) (byte, bool) {
		if a < room {
			return 0, false
		}
		return p.text.now[a-p.text.at], true
	}
}

// place patches the instruction, by the first tier that works. What follows it must have been placed.
func (p *Planner) place(at uint64) error {
	in, _, ok := p.text.inst(at)
	switch {
	case !ok:
		return ErrNoInstruction
	case p.text.shared(at):
		return ErrShared
	}
	room := p.text.room(at, &in)
	tiers := []func(uint64, *x86.Inst, int) (bool, error){p.direct, p.successor, p.neighbour, p.trap}
	for _, try := range tiers {
		p.tries = triesSite
		if ok, err := try(at, &in, room); ok || err != nil {
			return err
		}
	}
	return ErrSpace
}

// direct places a jump, punned and padded as need be.
func (p *Planner) direct(at uint64, in *x86.Inst, room int) (bool, error) {
	for pads := range room {
		j := jump{op: at + uint64(pads), room: at + uint64(room)}
		if j.end() > p.text.end() {
			break
		}
		l, err := p.layout(at, j.end())
		if err != nil {
			return false, err
		}
		j.l = &l
		tier := TierPun
		switch {
		case pads > 0:
			tier = TierPadded
		case room >= jumpLen:
			tier = TierJump
		}
		if a, ok := p.space.find(j.want(p.beyond(j.room)), l.size); ok {
			if x := p.make(at, tier, &l, a); x != nil {
				p.install(p.jumpBytes(x, pads, room, ownPads(pads)))
				return true, nil
			}
		}
		if room >= jumpLen {
			break
		}
	}
	return false, nil
}

// ownPads are so many prefixes.
func ownPads(pads int) []byte {
	b := make([]byte, pads)
	for i := range b {
		b[i] = pad
	}
	return b
}

// trap places an int3, from which the agent's handler sends the thread to the trampoline.
func (p *Planner) trap(at uint64, _ *x86.Inst, _ int) (bool, error) {
	l, err := p.layout(at, at+1)
	if err != nil {
		return false, err
	}
	a, ok := p.space.find(want{base: at, lo: l.lo, hi: l.hi}, l.size)
	if !ok {
		return false, ErrSpace
	}
	x := p.make(at, TierTrap, &l, a)
	if x == nil {
		_, err = l.build(a, p.Calls)
		return false, fmt.Errorf("trampoline at %#x: %w", a, err)
	}
	x.Bytes = []byte{opTrap}
	p.install(x)
	return true, nil
}

// make makes the patch of an instruction with its trampoline, whose memory is taken; nil if it cannot lie there.
func (p *Planner) make(at uint64, tier Tier, l *layout, a uint64) *Patch {
	t, err := l.build(a, p.Calls)
	if err != nil {
		return nil
	}
	p.space.take(t.At, t.End())
	x := &Patch{At: at, Tier: tier, Trampoline: t}
	x.deps = p.known(nil, at+1, l.back)
	return x
}

// known appends the known instructions that begin in [lo, hi).
func (p *Planner) known(list []uint64, lo, hi uint64) []uint64 {
	for a := p.text.next(lo, hi); a < hi; a = p.text.next(a+1, hi) {
		list = append(list, a)
	}
	return list
}

// jumpBytes gives the patch its jump behind the prefixes; what lies beyond room must be in the text already.
func (p *Planner) jumpBytes(x *Patch, pads, room int, prefixes []byte) *Patch {
	end := x.At + uint64(pads) + jumpLen
	b := binary.LittleEndian.AppendUint32(append(append([]byte(nil), prefixes...), opJump), uint32(x.Trampoline.At-end))
	for i := room; i < len(b); i++ {
		if p.text.now[x.At+uint64(i)-p.text.at] != b[i] {
			panic(fmt.Sprintf("BUG: patch: the jump at %#x changes bytes behind its instruction", x.At))
		}
	}
	x.Bytes = b[:min(room, len(b))]
	x.lean(p.known(nil, x.At+1, end))
	return x
}

// lean notes instructions whose bytes the patch needs as they are now.
func (x *Patch) lean(on []uint64) {
	x.puns = append(x.puns, on...)
next:
	for _, a := range on {
		for _, d := range x.deps {
			if d == a {
				continue next
			}
		}
		x.deps = append(x.deps, a)
	}
}

// install makes the patch part of the plan.
func (p *Planner) install(x *Patch) {
	copy(p.text.Bytes(x.At, x.At+uint64(len(x.Bytes))), x.Bytes)
	p.patches[x.At] = x
	for _, d := range x.deps {
		p.deps[d] = append(p.deps[d], x.At)
	}
	if p.pending != nil {
		p.pending.New = append(p.pending.New, x)
	}
}

// uninstall takes it out again. Its memory stays taken.
func (p *Planner) uninstall(x *Patch) {
	p.text.restore(x.At, x.At+uint64(len(x.Bytes)))
	delete(p.patches, x.At)
	for _, d := range x.deps {
		list := p.deps[d]
		for i, a := range list {
			if a == x.At {
				list[i] = list[len(list)-1]
				list = list[:len(list)-1]
				break
			}
		}
		if p.deps[d] = list; len(list) == 0 {
			delete(p.deps, d)
		}
	}
}
