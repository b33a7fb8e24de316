package recover

// A calling follows the calls of the program's own code along a path.
type calling struct {
	all   []Call
	index map[Call]uint32
	now   uint32
	depth int
	after uint64 // what the last instruction returns to, if it was a call; else 0
}

// maxCallDepth bounds how far back calls are known.
const maxCallDepth = 64

func newCalling() calling { return calling{all: make([]Call, 1), index: map[Call]uint32{}} }

// lost forgets what is open, since it is not known what ran.
func (c *calling) lost() { c.now, c.depth, c.after = 0, 0, 0 }

// at takes the next instruction of the program's own code.
func (c *calling) at(in *inst) {
	if c.after != 0 && in.pc != c.after && c.depth < maxCallDepth {
		k := Call{c.after, c.now}
		n, ok := c.index[k]
		if !ok {
			n = uint32(len(c.all))
			c.all, c.index[k] = append(c.all, k), n
		}
		c.now = n
		c.depth++
	}
	depth := c.depth
	for n := c.now; n != 0; n = c.all[n].Outer { // it may have come back, from one call or from several
		depth--
		if c.all[n].Return == in.pc {
			c.now, c.depth = c.all[n].Outer, depth
			break
		}
	}
	if c.after = 0; in.traits&isCall != 0 {
		c.after = in.next()
	}
}
