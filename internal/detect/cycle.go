package detect

import (
	"fmt"
	"slices"
)

// maxCyclesTold bounds how many different cycles one new nesting may tell.
const maxCyclesTold = 8

// finder looks for the shortest cycles through one doing of one nesting.
type finder struct {
	g     *orderGraph
	path  []step
	limit int // length of cycles looked for
	found int
	spent bool // the steps ran out
}

// search tells the shortest cycles that the doing by of n closes.
func (g *orderGraph) search(n *nesting, by *doing) {
	cyclic := false
	for _, h := range n.held {
		if h.node.part == n.take.part && inOrder(h.node.obj.kind) {
			cyclic = true
		}
	}
	if !cyclic {
		return
	}
	f := &finder{g: g}
	f.distances(n)
	// dist counts the nestings from a lock that is held to one that takes a goal; with n itself a cycle has one more.
	if n.take.mark != g.epoch {
		return
	}
	f.path = append(f.path, step{n: n, by: by})
	for f.limit = n.take.dist + 1; f.limit <= len(n.take.part.members) && f.found == 0 && !f.spent; f.limit++ {
		if !f.extend() {
			break
		}
	}
	if f.spent {
		g.d.note(fmt.Sprintf("process %s: a search for cycles in its lock orders was cut short, some inversions may not be reported", g.p.name()))
	}
}

// distances marks every lock of n's component with the least number of nestings to a lock that n holds, over edges backwards.
func (f *finder) distances(n *nesting) {
	g := f.g
	g.epoch++
	var queue []*lockNode
	for _, h := range n.held {
		if h.node.part == n.take.part && inOrder(h.node.obj.kind) && h.node.mark != g.epoch {
			h.node.mark, h.node.dist = g.epoch, 0
			queue = append(queue, h.node)
		}
	}
	for i := 0; i < len(queue); i++ {
		for m := range queue[i].in {
			f.g.steps--
			if m.part == n.take.part && m.mark != g.epoch {
				m.mark, m.dist = g.epoch, queue[i].dist+1
				queue = append(queue, m)
			}
		}
	}
}

// extend looks for a next step of the path; false if no longer limit could find more than this one did.
func (f *finder) extend() (cut bool) {
	last := &f.path[len(f.path)-1]
	lock := last.n.take
	for _, n := range lock.heldBy {
		if f.g.steps--; f.g.steps < 0 {
			f.spent = true
			return false
		}
		if n.dead || n.take.part != lock.part || n.take.mark != f.g.epoch {
			continue
		}
		hold := holdIndex(n.held, lock)
		if !conflict(last.n.mode, n.held[hold].mode) || !f.fits(n) {
			continue
		}
		closes := f.closes(n)
		length := len(f.path) + 1
		if closes < 0 {
			length += n.take.dist // at least
		}
		if length > f.limit {
			cut = true
			continue
		}
		if closes >= 0 && length < f.limit {
			continue // it was looked at under its own limit
		}
		doings := n.by
		if len(n.more) > 0 && !slices.ContainsFunc(n.by, func(x doing) bool { return f.free(&x) }) {
			doings = n.more
		}
		for i := range doings {
			if !f.free(&doings[i]) {
				continue
			}
			f.path = append(f.path, step{n: n, by: &doings[i], hold: hold})
			if closes >= 0 {
				f.path[0].hold = closes
				f.g.tell(f.path)
				f.found++
			} else if f.extend() {
				cut = true
			}
			f.path = f.path[:len(f.path)-1]
			if f.spent || f.found >= maxCyclesTold {
				return false
			}
			if closes >= 0 {
				break // other threads that did the same make the same cycle
			}
		}
	}
	return cut
}

// fits reports whether n can be there at the same time as all nestings of the path: no lock is held by two in conflicting modes.
func (f *finder) fits(n *nesting) bool {
	for i := range f.path {
		a, b := f.path[i].n.held, n.held
		for len(a) > 0 && len(b) > 0 {
			f.g.steps--
			switch {
			case a[0].node.id < b[0].node.id:
				a = a[1:]
			case a[0].node.id > b[0].node.id:
				b = b[1:]
			default:
				if conflict(a[0].mode, b[0].mode) {
					return false
				}
				a, b = a[1:], b[1:]
			}
		}
	}
	return true
}

// free reports whether by is of another thread than all of the path and concurrent with all of it.
func (f *finder) free(by *doing) bool {
	for i := range f.path {
		f.g.steps--
		if !concurrent(f.path[i].by, by) {
			return false
		}
	}
	return true
}

// closes is the index of the lock that the first nesting of the path holds and n takes in conflict with that, −1 if there is none.
func (f *finder) closes(n *nesting) int {
	first := f.path[0].n
	if i := holdIndex(first.held, n.take); i >= 0 && conflict(n.mode, first.held[i].mode) {
		return i
	}
	return -1
}

// holdIndex finds lock in held, which is sorted by id; −1 if it is not there.
func holdIndex(held []holding, lock *lockNode) int {
	lo, hi := 0, len(held)
	for lo < hi {
		mid := (lo + hi) / 2
		if held[mid].node.id < lock.id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(held) && held[lo].node == lock {
		return lo
	}
	return -1
}
