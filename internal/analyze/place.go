package analyze

import (
	"slices"

	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/wire"
)

// Recovered accesses are known to lie between two packets of control flow, and where the thread was outside of its own code. Its events happen outside, so
// which of two a thread did first, an access or an event, is known by their order on the path, as long as the event can only belong to one such time.
// An access is given the earliest time it can have: then every order that it really has is one that the detector sees, provided that it is on the right side
// of what its own thread acquires. An atomic instruction comes at the latest: it takes all that anybody did before. What cannot be put so is left out.
//
// Accesses to what atomic instructions access too are atomic, whatever they are made by. A load there is like an atomic instruction; a store need not be told, since
// whoever sees it takes all that was done before.

// left counts the accesses that are left out, by reason.
type left struct {
	Order   uint64 // before or behind an event of its own thread
	Atomic  uint64 // likewise of an atomic instruction, or of a gap in the trace
	Life    uint64 // of which block: memory was given to another in the time in which it was
	Unknown uint64 // of a thread that no event names
	Misfit  uint64 // its times contradict the events'
	Cut     uint64 // the events of its process end before it
	Stores  uint64 // it is a plain store to an atomic location
}

// A placer gives records their places in time. Both runs have two lists for each thread of the recording: what lies on its path, and samples that have no place on it.
type placer struct {
	owners  *owners
	coll    *collection
	in      *merge
	out     *runs
	left    left
	given   uint64
	threads []placing // by list
	busy    []int     // lists whose queue is not empty
	events  int
}

// A placing is a list on its way.
type placing struct {
	queue []item
	busy  bool
	last  uint64 // the thread's last event before the head of the queue
	floor uint64 // the latest time of an atomic instruction before the head
	final uint64 // the last time given
}

type item struct {
	record
	drop *uint64 // counter of why it is left out
	// Of isOut: the first of the thread's events that are not before it, and the last of those that are not behind it. Of isAccess: the first and the last time at
	// which its memory was given to another. 0: none.
	first, latest uint64
	also          []uint64 // of isOrder: events of the thread that may be before it or behind it
}

func (i *item) notBefore(ts uint64) {
	if i.first == 0 || ts < i.first {
		i.first = ts
	}
}

func (i *item) notBehind(ts uint64) { i.latest = max(i.latest, ts) }

// place reads c.found, and writes out, which is ascending by From in each list. events are trace.Reader's.
func place(events func(func(process uint64, e *wire.Event) error) error, o *owners, c *collection, out *runs) (*placer, error) {
	in := c.found
	m, err := in.merge()
	if err != nil {
		return nil, err
	}
	p := &placer{owners: o, coll: c, in: m, out: out, threads: make([]placing, 2*c.threads)}
	if err := events(p.event); err != nil {
		return nil, err
	}
	if err := p.admit(forever); err != nil {
		return nil, err
	}
	if err := p.retire(forever, true); err != nil {
		return nil, err
	}
	return p, out.finish()
}

const forever = ^uint64(0)

// orders says of each type of event whether it may order its thread's accesses with others'.
var orders = func() (o [256]bool) {
	for i := range o {
		o[i] = true
	}
	for _, t := range []wire.Type{
		wire.TypePad, wire.TypeUnfollowed, wire.TypeModuleGone, wire.TypeStack, wire.TypeStackHolding, wire.TypeNotice, wire.TypeThreadName, wire.TypeWant, wire.TypeWantEnd,
		wire.TypeMisuse, wire.TypeInBlock, wire.TypeBlockGone, wire.TypeHolds, wire.TypeOrder, wire.TypeBrk, wire.TypeSignalLeave, wire.TypeSigmask,
	} {
		o[t] = false
	}
	return o
}()

func (p *placer) event(process uint64, e *wire.Event) error {
	if err := p.admit(e.TS); err != nil {
		return err
	}
	if lo, hi := ends(e); lo < hi {
		p.gone(process, e.TS, lo, hi)
	}
	if orders[e.Type] {
		if n, ok := p.owners.index[owner{process, e.Thread}]; ok {
			p.own(n, e.TS)
		}
	}
	if p.events++; p.events%32 == 0 {
		return p.retire(e.TS, false)
	}
	return nil
}

// admitted is after how many records admit gives places. Tests change it.
var admitted = 1 << 12

// admit queues what may have happened by a time, at which the next event is. What lies wholly before all that is not queued yet gets its place meanwhile: neither the event nor
// a record that comes later can belong to it.
func (p *placer) admit(ts uint64) error {
	for n := 1; ; n++ {
		r, list := p.in.peek()
		if r == nil || r.From > ts {
			return nil
		}
		if n%admitted == 0 {
			if err := p.retire(r.From, false); err != nil {
				return err
			}
		}
		it := item{record: *r}
		if it.What == isAccess && p.coll.isAtomic(r) {
			if it.What = isOrder; it.Kind&race.Read == 0 {
				it.drop = &p.left.Stores
			} else {
				it.Kind = race.Order | race.Fence
			}
		}
		t := &p.threads[list]
		t.queue = append(t.queue, it)
		if !t.busy {
			t.busy = true
			p.busy = append(p.busy, list)
		}
		if err := p.in.next(); err != nil {
			return err
		}
	}
}

// own takes an event of a thread.
func (p *placer) own(thread int, ts uint64) {
	q := p.threads[2*thread].queue
	first, last := -1, -1
	for i := range q {
		if q[i].What == isOut && q[i].From <= ts && ts <= q[i].To {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first >= 0 {
		q[first].notBefore(ts)
		q[last].notBehind(ts)
		q = q[first:last]
	}
	p.between(q, ts, first < 0)
	p.between(p.threads[2*thread+1].queue, ts, true)
}

// between leaves out what may be on either side of an event.
func (p *placer) between(q []item, ts uint64, byTime bool) {
	for i := range q {
		switch it := &q[i]; {
		case byTime && (ts < it.From || it.To < ts):
		case it.What == isAccess:
			it.drop = &p.left.Order
		case it.What == isOrder:
			it.also = append(it.also, ts)
		}
	}
}

// gone takes an event by which memory becomes other memory.
func (p *placer) gone(process, ts, lo, hi uint64) {
	for _, list := range p.busy {
		q := p.threads[list].queue
		for i := range q {
			if it := &q[i]; it.What == isAccess && it.From <= ts && ts <= it.To && it.Addr < hi && lo < it.Addr+max(it.Size, 1) {
				if w := p.owners.at(list/2, ts); w >= 0 && p.owners.all[w].process == process {
					it.notBefore(ts)
					it.notBehind(ts)
				}
			}
		}
	}
}

// ends gives the memory that is another's from an event on. A free is none: an access around it that is not ordered with it races with it on either side.
func ends(e *wire.Event) (lo, hi uint64) {
	w := e.Words
	switch e.Type {
	case wire.TypeAlloc:
		ev := wire.DecodeAlloc(w)
		lo, hi = ev.Addr, ev.Addr+ev.Size
	case wire.TypeMmap:
		ev := wire.DecodeMmap(w)
		lo, hi = ev.Addr, ev.Addr+ev.Len
	case wire.TypeMunmap:
		ev := wire.DecodeMunmap(w)
		lo, hi = ev.Addr, ev.Addr+ev.Len
	case wire.TypeMremap:
		ev := wire.DecodeMremap(w)
		lo, hi = ev.Old, ev.Old+ev.OldLen
	case wire.TypeModule:
		ev := wire.DecodeModule(w)
		lo, hi = ev.Base, ev.End
	case wire.TypeThreadStart:
		if ev := wire.DecodeThreadStart(w); ev.Self != 1 {
			lo, hi = ev.StackLo, ev.StackHi
		}
	}
	if hi < lo {
		hi = forever
	}
	return lo, hi
}

// retire gives places to what lies wholly before a time.
func (p *placer) retire(now uint64, all bool) error {
	n := 0
	for _, list := range p.busy {
		t := &p.threads[list]
		k := 0
		for k < len(t.queue) && (all || t.queue[k].To < now) {
			if err := p.give(list, t, k); err != nil {
				return err
			}
			k++
		}
		t.queue = slices.Delete(t.queue, 0, k)
		if t.busy = len(t.queue) > 0; t.busy {
			p.busy[n] = list
			n++
		}
	}
	p.busy = p.busy[:n]
	slices.Sort(p.busy)
	return nil
}

// next gives the time of the thread's first event behind an item of its queue; the largest number: none is known.
func (t *placing) next(k int) uint64 {
	for i := k + 1; i < len(t.queue); i++ {
		if o := &t.queue[i]; o.What == isOut && o.first != 0 {
			return o.first
		}
	}
	return forever
}

// give gives item k of a queue its place; those before it have theirs.
func (p *placer) give(list int, t *placing, k int) error {
	it := &t.queue[k]
	switch it.What {
	case isOut:
		t.last = max(t.last, it.latest)
		return nil
	case isOrder:
		if it.drop != nil {
			*it.drop++
			return nil
		}
		times := append(it.also, min(it.To, t.next(k)))
		slices.Sort(times)
		for _, ts := range times {
			ts = max(ts, t.final)
			t.floor = max(t.floor, ts)
			if err := p.put(list, t, it, ts); err != nil {
				return err
			}
		}
		return nil
	}
	lower := it.From
	if t.last >= lower {
		lower = t.last + 1
	}
	upper := it.To
	if it.latest != 0 || lower > upper {
		upper = min(upper, t.next(k))
	}
	floor := t.floor
	if list%2 == 1 {
		floor = p.floor(list-1, it)
	}
	switch {
	case it.drop != nil:
		*it.drop++
	case lower > upper:
		p.left.Misfit++
	case it.latest != 0 && lower <= it.latest && upper > it.first:
		p.left.Life++
	case floor != 0 && floor >= lower:
		p.left.Atomic++
	default:
		return p.put(list, t, it, max(lower, t.final))
	}
	return nil
}

// floor is the latest time of the atomic instructions in a thread's list that may come before an item of its other one.
func (p *placer) floor(list int, it *item) uint64 {
	t := &p.threads[list]
	ts := t.floor
	for i := range t.queue {
		if o := &t.queue[i]; o.What == isOrder && o.drop == nil && o.From <= it.To {
			ts = max(ts, o.To)
		}
	}
	return ts
}

func (p *placer) put(list int, t *placing, it *item, ts uint64) error {
	w := p.owners.at(list/2, ts)
	if w < 0 {
		if it.What == isAccess && len(p.owners.lives[list/2]) == 0 { // else it is from before the agent, when there was one thread
			p.left.Unknown++
		}
		return nil
	}
	if end, ok := p.owners.until[p.owners.all[w].process]; ok && it.To > end && it.What == isAccess {
		p.left.Cut++
		return nil
	}
	t.final = ts
	if it.What == isAccess {
		p.given++
	}
	r := it.record
	r.From, r.To, r.Owner = ts, ts, uint32(w)
	return p.out.add(list, &r)
}
