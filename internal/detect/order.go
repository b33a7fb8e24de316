package detect

import (
	"fmt"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Lock order. A nesting is "a thread took lock L while it held the set H". Nestings n1 … nk make an inversion when each holds what the
// one before takes, and
//   - they are by k different threads,
//   - none of them comes before another by thread creation, end, join or a barrier,
//   - what one takes conflicts with how the next holds it: two shared holds of a rwlock do not, not even where waiting writers could
//     come between them, since nothing in the events proves that a writer comes;
//   - no other lock is held by two of them in conflicting modes (a gate: then they cannot be there at the same time).
//
// What makes no nesting: a try or timed lock as the last one (it gives up; but it counts as held), taking again what the thread holds,
// objects that were handed over (released by a thread that did not hold them). Initialisers (once, guard) are gates only: the same one
// does not run twice. Destroyed locks take their nestings with them. Cycles with a semaphore are told when it is destroyed or the
// process ends, if it was used as a lock until then.
//
// Only the shortest cycles through a new nesting are told: fixing them is what matters first.
//
// Not seen: that locks or data force an order (a thread created while a lock is held which it takes first). Such a cycle is told though it
// cannot happen.
type orderGraph struct {
	d *Detector
	p *process

	nodes    uint64                // ids given
	lastOrd  uint64                // highest place in the topological order
	nestings map[uint64][]*nesting // by hash
	count    int
	steps    int    // what the search may still spend
	epoch    uint64 // of marks
}

// nesting is one (lock taken, locks held), with those who did it.
type nesting struct {
	take *lockNode
	mode wire.Mode
	held []holding // sorted by node id
	hash uint64
	by   []doing
	more []doing // what did not fit into by: looked at where none of by counts
	dead bool
}

type holding struct {
	node *lockNode
	mode wire.Mode
}

// doing is one time a thread did it, for each of its segments the first.
type doing struct {
	thread  uint32 // serial
	number  uint32
	segment uint32
	clock   clock
	stacks  []uint32 // where each of held was acquired, then where take was; shared between equal ones
}

// maxDoings bounds the doings of one nesting that every search looks at, maxMore those kept beside them. When both are full, one that comes before the
// new one is replaced: what the old one conflicts with from now on, the new one does as well.
const (
	maxDoings = 16
	maxMore   = 240
)

func newOrderGraph(d *Detector, p *process) *orderGraph {
	return &orderGraph{d: d, p: p, nestings: map[uint64][]*nesting{}}
}

// ordered reports whether a comes before b; of one thread's doings one always does.
func ordered(a, b *doing) bool {
	if a.thread == b.thread {
		return a.segment <= b.segment
	}
	s, ok := b.clock.at(a.thread)
	return ok && s >= a.segment
}

func concurrent(a, b *doing) bool {
	return !ordered(a, b) && !ordered(b, a)
}

func conflict(a, b wire.Mode) bool { return a != wire.ModeShared || b != wire.ModeShared }

// inOrder reports whether a lock of that kind can be in a cycle.
func inOrder(kind wire.Object) bool {
	switch kind {
	case wire.ObjectMutex, wire.ObjectRwlock, wire.ObjectSpin, wire.ObjectSem:
		return true
	}
	return false
}

func isGate(kind wire.Object) bool {
	return inOrder(kind) || kind == wire.ObjectOnce || kind == wire.ObjectGuard
}

// node is the place of the lock at addr in the graph; nil if it has none.
func (g *orderGraph) node(addr uint64, kind wire.Object) *lockNode {
	o := g.p.object(addr, kind)
	if o == nil || o.handed {
		return nil
	}
	if o.node == nil {
		g.nodes++
		g.lastOrd++
		o.node = &lockNode{id: g.nodes, obj: o}
		o.node.part = &component{ord: g.lastOrd, members: []*lockNode{o.node}}
	}
	return o.node
}

// add takes a nesting by t.
func (g *orderGraph) add(t *thread, addr uint64, kind wire.Object, mode wire.Mode, how wire.How, stack uint32, held []wire.Held) {
	if !inOrder(kind) || how == wire.HowTry || how == wire.HowTimed || len(held) == 0 {
		return
	}
	hs := make([]holding, 0, len(held))
	at := make([]uint32, 0, len(held)+1)
	cyclic := false
	for i := range held {
		h := &held[i]
		if h.Obj == addr {
			return // it holds it already: no order
		}
		if k := wire.Object(h.Kind); isGate(k) {
			if n := g.node(h.Obj, k); n != nil {
				hs = append(hs, holding{n, wire.Mode(h.Mode)})
				at = append(at, h.Stack)
				cyclic = cyclic || inOrder(k)
			}
		}
	}
	take := g.node(addr, kind)
	if take == nil || !cyclic {
		return
	}
	hs, at = sortHoldings(hs, at)
	at = append(at, stack)
	n := g.nesting(take, mode, hs)
	if n == nil {
		return
	}
	t.marked = true
	by := doing{thread: t.serial, number: t.number, segment: t.segment, clock: t.clock, stacks: at}
	if !g.did(n, &by) {
		return
	}
	g.steps = min(g.steps+g.d.cfg.SearchSteps, 256*g.d.cfg.SearchSteps)
	g.search(n, &by)
}

// sortHoldings sorts by node and makes one of several mentions of a lock.
func sortHoldings(hs []holding, at []uint32) ([]holding, []uint32) {
	for i := 1; i < len(hs); i++ {
		for j := i; j > 0 && hs[j].node.id < hs[j-1].node.id; j-- {
			hs[j], hs[j-1] = hs[j-1], hs[j]
			at[j], at[j-1] = at[j-1], at[j]
		}
	}
	kept := 0
	for i := range hs {
		if kept > 0 && hs[kept-1].node == hs[i].node {
			hs[kept-1].mode = min(hs[kept-1].mode, hs[i].mode) // exclusive, if one of them is
			continue
		}
		hs[kept], at[kept] = hs[i], at[i]
		kept++
	}
	return hs[:kept], at[:kept]
}

// nesting finds or makes the nesting of these locks; nil if there is no room.
func (g *orderGraph) nesting(take *lockNode, mode wire.Mode, hs []holding) *nesting {
	hash := mix(take.id, uint64(mode), uint64(len(hs)))
	for _, h := range hs {
		hash = mix(hash, h.node.id, uint64(h.mode))
	}
	for _, n := range g.nestings[hash] {
		if n.take == take && n.mode == mode && slices.Equal(n.held, hs) {
			return n
		}
	}
	if g.count >= g.d.cfg.MaxNestings {
		g.d.note(fmt.Sprintf("process %s nested its locks in more than %d different ways: lock orders beyond these were not checked", g.p.name(), g.d.cfg.MaxNestings))
		return nil
	}
	g.count += 1 + len(hs)/8 // long ones take more room
	n := &nesting{take: take, mode: mode, held: hs, hash: hash}
	g.nestings[hash] = append(g.nestings[hash], n)
	take.taken = append(take.taken, n)
	for _, h := range hs {
		h.node.heldBy = append(h.node.heldBy, n)
		if inOrder(h.node.obj.kind) {
			g.addEdge(h.node, take)
		}
	}
	return n
}

// did notes who did n; false if that says nothing new.
func (g *orderGraph) did(n *nesting, by *doing) bool {
	same := func(x doing) bool { return x.thread == by.thread && x.segment == by.segment }
	if slices.ContainsFunc(n.by, same) || slices.ContainsFunc(n.more, same) {
		return false
	}
	for i := range n.by {
		if slices.Equal(n.by[i].stacks, by.stacks) {
			by.stacks = n.by[i].stacks
			break
		}
	}
	if len(n.by) < maxDoings {
		n.by = append(n.by, *by)
		return true
	}
	before := func(x doing) bool { return ordered(&x, by) }
	if i := slices.IndexFunc(n.by, before); i >= 0 {
		n.by = append(slices.Delete(n.by, i, i+1), *by)
		return true
	}
	if i := slices.IndexFunc(n.more, before); i >= 0 {
		n.more[i] = *by
		return true
	}
	if len(n.more) < maxMore {
		n.more = append(n.more, *by)
		return true
	}
	// A conflict is missed only with a later thread that all of those kept come before.
	g.d.detail(fmt.Sprintf("process %s: more than %d threads at a time nest the same locks in the same way: the later ones were only checked against what was known then", g.p.name(), maxDoings+maxMore))
	return true
}

// remove takes a lock that is no more out of the graph, with all nestings it is part of.
func (g *orderGraph) remove(o *object) {
	n := o.node
	if n == nil {
		return
	}
	o.node = nil
	for _, x := range n.taken {
		g.removeNesting(x, n)
	}
	for _, x := range n.heldBy {
		if !inOrder(o.kind) {
			g.keepWithout(x, n)
		}
		g.removeNesting(x, n)
	}
	n.taken, n.heldBy = nil, nil
	for to := range n.out {
		delete(to.in, n)
	}
	for from := range n.in {
		delete(from.out, n)
	}
	n.out, n.in = nil, nil
	n.part.members = slices.DeleteFunc(n.part.members, func(m *lockNode) bool { return m == n })
}

// keepWithout keeps what x says of the other locks when n goes, an initialiser that x was in. A lock that goes may have been the gate of
// nestings that are not gated by anything else then; an initialiser was run by one thread, and no other thread's nesting was in it. (Tasks of
// std::async and std::packaged_task are initialisers of their future, which goes as soon as somebody has the answer.)
func (g *orderGraph) keepWithout(x *nesting, n *lockNode) {
	i := slices.IndexFunc(x.held, func(h holding) bool { return h.node == n })
	if x.dead || i < 0 {
		return
	}
	y := g.nesting(x.take, x.mode, slices.Delete(slices.Clone(x.held), i, i+1))
	if y == nil {
		return
	}
	for _, by := range slices.Concat(x.by, x.more) {
		by.stacks = slices.Delete(slices.Clone(by.stacks), i, i+1)
		g.did(y, &by)
	}
}

// removeNesting kills x because n goes. Lists of other locks are cleaned when half of them is dead.
func (g *orderGraph) removeNesting(x *nesting, n *lockNode) {
	if x.dead {
		return
	}
	x.dead = true
	g.count -= 1 + len(x.held)/8
	list := slices.DeleteFunc(g.nestings[x.hash], func(y *nesting) bool { return y == x })
	if len(list) == 0 {
		delete(g.nestings, x.hash)
	} else {
		g.nestings[x.hash] = list
	}
	if x.take != n {
		x.take.bury()
	}
	for _, h := range x.held {
		if h.node == n {
			continue
		}
		h.node.bury()
		if x.take != n && inOrder(h.node.obj.kind) {
			g.dropEdge(h.node, x.take)
		}
	}
}

// bury counts a nesting of the lock that died.
func (n *lockNode) bury() {
	if n.dead++; n.dead*2 <= len(n.taken)+len(n.heldBy) {
		return
	}
	n.dead = 0
	n.taken = slices.DeleteFunc(n.taken, func(x *nesting) bool { return x.dead })
	n.heldBy = slices.DeleteFunc(n.heldBy, func(x *nesting) bool { return x.dead })
}

// step is a nesting of a cycle by one thread; the lock that the step before takes is held[hold].
type step struct {
	n    *nesting
	by   *doing
	hold int
}

// tell makes the finding of a cycle: steps[i] holds what steps[i-1] takes.
func (g *orderGraph) tell(steps []step) {
	p := g.p
	b := p.newTeller(finding.RuleInversion)
	names := make([]string, len(steps)) // of the lock that step i holds
	var objs []*object
	for i, s := range steps {
		o := s.n.held[s.hold].node.obj
		names[i] = b.object(o.addr, o.kind)
		if o.kind == wire.ObjectSem {
			objs = append(objs, o)
		}
	}
	msg := "Cycle in lock order graph: "
	for i, s := range steps {
		next := steps[(i+1)%len(steps)]
		o := s.n.held[s.hold].node.obj
		taken := next.n.held[next.hold].node.obj
		takes := names[(i+1)%len(steps)]
		msg += names[i] + " => "
		how := ""
		if s.n.mode == wire.ModeShared {
			how = " for reading"
		}
		b.part(finding.Part{
			Text:   fmt.Sprintf("%s %s acquired%s here while holding %s %s", b.kind(taken.kind), takes, how, finding.KindWords(o.kind.String()), names[i]),
			Thread: s.by.number,
			Stack:  b.stack(s.by.stacks[len(s.n.held)]),
			Held:   []finding.Held{{Object: names[i], Shared: s.n.held[s.hold].mode == wire.ModeShared, Stack: b.stack(s.by.stacks[s.hold])}},
		})
	}
	b.f.Message = msg + names[0]
	key := g.classOf(steps)
	if len(objs) > 0 {
		b.f.Notes = append(b.f.Notes, "the semaphore counts as a lock because every thread that waited for it posted it itself")
		p.sayLater(key, b.f, objs)
		return
	}
	p.say(key, b.f)
}

// classOf is the same for cycles that a programmer would call the same: made at the same places in the code (of locks made at the same
// place, where no stacks were taken), however many locks and threads take part.
func (g *orderGraph) classOf(steps []step) string {
	var parts []string
	for i, s := range steps {
		next := steps[(i+1)%len(steps)]
		h := s.n.held[s.hold].node.obj
		l := next.n.held[next.hold].node.obj
		part := fmt.Sprint(h.kind, l.kind)
		for _, x := range []struct {
			stack uint32
			o     *object
		}{{s.by.stacks[s.hold], h}, {s.by.stacks[len(s.n.held)], l}} {
			if x.stack != 0 {
				part += fmt.Sprint(" at ", x.stack)
			} else {
				part += " of " + x.o.class()
			}
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return "order " + fmt.Sprint(slices.Compact(parts))
}

// class names o by where it was made.
func (o *object) class() string {
	switch {
	case o.allocStack != 0:
		return fmt.Sprintf("heap %d+%d", o.allocStack, o.allocAt)
	case o.initStack != 0:
		return fmt.Sprintf("init %d", o.initStack)
	}
	return fmt.Sprintf("%x", o.addr)
}
