package recover

// An outing follows when a thread is outside of the program's own code, in the order of positions.
type outing struct {
	p       *path
	out     *Result
	next    int // the first of p.outs that is not used
	outside bool
	since   uint64 // when it was left, with outside
}

// at takes the next position, whose mark is the one with that index.
func (w *outing) at(pos, mark int, outside bool) {
	p := w.p
	for w.next < len(p.outs) && p.outs[w.next].pos < pos {
		w.next++
	}
	from, to, found := uint64(0), p.marks[mark].to, false
	for ; w.next < len(p.outs) && p.outs[w.next].pos == pos; w.next++ {
		from, to, found = p.outs[w.next].from, p.outs[w.next].to, true
	}
	switch {
	case outside && !w.outside: // it leaves here
		w.since = p.marks[mark].from
		if found {
			w.since = min(w.since, from)
		}
		if pos == p.own[0] {
			w.since = w.before(pos)
		}
	case !outside && (w.outside || found):
		if w.outside {
			from = w.since
			to = max(to, p.marks[mark].to)
		}
		w.out.Outs = append(w.out.Outs, Out{uint64(pos - p.own[0]), from, to})
	}
	w.outside = outside
}

// before gives the time not after which the shard's first position was outside already.
func (w *outing) before(pos int) uint64 {
	if pos == 0 {
		return 0
	}
	return w.p.marks[w.p.at(pos-1)].from
}

// end closes the shard: what lies behind its last instruction may be outside.
func (w *outing) end(pos int, s *Shard) {
	p := w.p
	from, to, found := uint64(0), s.End, false
	for ; w.next < len(p.outs); w.next++ {
		if o := &p.outs[w.next]; o.pos == pos {
			from, to, found = o.from, o.to, true
		}
	}
	switch {
	case w.outside:
		from, found = w.since, true
	case pos > p.own[0] && s.OwnEnd == forever: // the thread's last
		from, found = p.marks[p.at(pos-1)].from, true
	}
	if found {
		w.out.Outs = append(w.out.Outs, Out{uint64(pos - p.own[0]), from, to})
	}
}
