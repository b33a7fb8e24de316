package detect

import (
	"cmp"
	"slices"
)

// The order graph of locks: an edge a → b says that b was taken while a was held. Whether a new edge closes a circle is asked at each one,
// so the strongly connected components are kept in a topological order that is repaired locally (Pearce and Kelly, "A dynamic topological
// sort algorithm for directed acyclic graphs", JEA 2006); a circle merges components for good. The search for real cycles, with threads
// and gates, looks only within a component.

// lockNode is a lock in the order graph.
type lockNode struct {
	id   uint64
	obj  *object
	part *component

	out, in map[*lockNode]int // edges, and how many nestings each stands for
	taken   []*nesting        // nestings that take it
	heldBy  []*nesting        // nestings that hold it
	dead    int               // how many of those are dead

	mark uint64 // last search that came by
	dist int    // in that search: edges to its goal
}

// component is a set of locks each of which can be reached from each other.
type component struct {
	ord     uint64 // a → b between components: a.ord < b.ord
	members []*lockNode
	mark    uint64
}

func (g *orderGraph) addEdge(a, b *lockNode) {
	if a.out == nil {
		a.out = map[*lockNode]int{}
	}
	if b.in == nil {
		b.in = map[*lockNode]int{}
	}
	a.out[b]++
	b.in[a]++
	if a.out[b] > 1 || a.part == b.part || a.part.ord < b.part.ord {
		return
	}
	g.reorder(a.part, b.part)
}

func (g *orderGraph) dropEdge(a, b *lockNode) {
	if a.out[b]--; a.out[b] <= 0 {
		delete(a.out, b)
	}
	if b.in[a]--; b.in[a] <= 0 {
		delete(b.in, a)
	}
}

// reorder restores the order after an edge from → to with from.ord > to.ord.
func (g *orderGraph) reorder(from, to *component) {
	out := func(n *lockNode) map[*lockNode]int { return n.out }
	in := func(n *lockNode) map[*lockNode]int { return n.in }
	ahead := g.reach(to, out, func(c *component) bool { return c.ord <= from.ord })
	behind := g.reach(from, in, func(c *component) bool { return c.ord >= to.ord })

	// What is both ahead of `to` and behind `from` lies on a circle with the new edge.
	pool := make([]uint64, 0, len(ahead)+len(behind))
	var before, after, circle []*component
	isAhead := map[*component]bool{}
	for _, c := range ahead {
		isAhead[c] = true
	}
	for _, c := range behind {
		pool = append(pool, c.ord)
		if isAhead[c] {
			circle = append(circle, c)
			delete(isAhead, c)
		} else {
			before = append(before, c)
		}
	}
	for _, c := range ahead {
		if isAhead[c] {
			pool = append(pool, c.ord)
			after = append(after, c)
		}
	}
	slices.Sort(pool)
	byOrd := func(a, b *component) int { return cmp.Compare(a.ord, b.ord) }
	slices.SortFunc(before, byOrd)
	slices.SortFunc(after, byOrd)
	// Those before move down only, those after move up only: so edges to the rest of the graph keep their direction.
	for i, c := range before {
		c.ord = pool[i]
	}
	for i, c := range after {
		c.ord = pool[len(pool)-len(after)+i]
	}
	if len(circle) > 0 {
		g.merge(circle, pool[len(before)])
	}
}

// merge makes one component of several.
func (g *orderGraph) merge(parts []*component, ord uint64) {
	slices.SortFunc(parts, func(a, b *component) int { return cmp.Compare(len(b.members), len(a.members)) })
	into := parts[0]
	into.ord = ord
	for _, c := range parts[1:] {
		for _, n := range c.members {
			n.part = into
		}
		into.members = append(into.members, c.members...)
		c.members = nil
	}
}

// reach is all that can be reached from c by edges, within the bounds.
func (g *orderGraph) reach(c *component, edges func(*lockNode) map[*lockNode]int, within func(*component) bool) []*component {
	g.epoch++
	c.mark = g.epoch
	found := []*component{c}
	for i := 0; i < len(found); i++ {
		for _, n := range found[i].members {
			for m := range edges(n) {
				if m.part.mark != g.epoch && within(m.part) {
					m.part.mark = g.epoch
					found = append(found, m.part)
				}
			}
		}
	}
	return found
}
