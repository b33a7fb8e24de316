package recover

import (
	"slices"

	"github.com/ripstop/ripstop/internal/x86"
)

// A lap is what the passes of a direction leave for the next one of that direction, which then need not go where it would find what the last one did: from a place at
// which the same is known as was then, up to the first position at which it would be told something else.
type lap struct {
	stands []stand // of the last pass, in its order
	next   []stand // of the one that runs
	facts  []fact  // what the last pass gave
	vecs   []savedVec
	frames []frame
	placed []placed // what the last pass was told, in the stretch
	dirty  []uint64 // positions from the stretch's first on at which this pass is told something else, a bit each
	from   int      // the stretch's first
	at     int      // the first of stands that was not come to
	due    int      // its position; -1: none
	last   int      // position of the last of next
	begun  bool     // there was a pass in this stretch
}

// A stand is what is known between two instructions, where nothing is known of memory.
type stand struct {
	pos        int // forwards the next position, backwards the last one
	mark       int
	facts      int // how many were given until here
	gpr        [16]x86.Value
	fs, gs     x86.Value
	flags      x86.Flags
	flagsKnown x86.Flags
	low        uint64
	rsp        uint64 // of frames
	vecs       [2]int32
	frames     [2]int32
	alone      bool
}

type savedVec struct {
	n uint8
	x86.Vector
}

// standEvery is, as replay.every, the fewest instructions between two stands.
const standEvery = 64

// reset forgets all, for another stretch.
func (l *lap) reset() {
	l.stands, l.next, l.facts, l.vecs, l.frames, l.placed = l.stands[:0], l.next[:0], l.facts[:0], l.vecs[:0], l.frames[:0], l.placed[:0]
	l.begun = false
}

// start begins a pass over positions from one up to another; with the facts that the last pass gave, those that it was told and those that this one is, both in the same order,
// and positions that are dirty besides.
func (r *replay) start(l *lap, from, to int, gave, was, is []fact, besides []int32) {
	l.stands, l.next = l.next, l.stands[:0]
	l.at, l.due, l.last, l.from = 0, -1, from, from
	now := r.placed[r.firstPlaced(from):r.firstPlaced(to)]
	if l.begun {
		l.facts = gave
		l.dirty = resize(l.dirty, (to-from)/64+1)
		l.differ(was, is)
		for i, k := 0, 0; i < len(l.placed) || k < len(now); {
			switch {
			case k == len(now) || i < len(l.placed) && l.placed[i].pos < now[k].pos:
				l.mark(l.placed[i].pos)
				i++
			case i == len(l.placed) || l.placed[i].pos > now[k].pos:
				l.mark(now[k].pos)
				k++
			default:
				if l.placed[i].Sample != now[k].Sample {
					l.mark(now[k].pos)
				}
				i, k = i+1, k+1
			}
		}
		for _, pos := range besides {
			l.mark(int(pos))
		}
		if len(l.stands) > 0 {
			l.due = l.stands[0].pos
		}
	}
	l.begun = true
	l.placed = append(l.placed[:0], now...)
}

// differ marks where two lists of facts in the same order are not the same.
func (l *lap) differ(a, b []fact) {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	down := len(a) > 0 && a[0].pos > a[len(a)-1].pos || len(b) > 0 && b[0].pos > b[len(b)-1].pos
	for i, k := n, n; i < len(a) || k < len(b); {
		switch {
		case k == len(b):
			l.mark(int(a[i].pos))
			i++
		case i == len(a):
			l.mark(int(b[k].pos))
			k++
		case a[i] == b[k]:
			i, k = i+1, k+1
		case a[i].pos == b[k].pos:
			l.mark(int(a[i].pos))
			switch x, y := a[i].reg, b[k].reg; {
			case x < y:
				i++
			case x > y:
				k++
			default:
				i, k = i+1, k+1
			}
		case (a[i].pos < b[k].pos) != down:
			l.mark(int(a[i].pos))
			i++
		default:
			l.mark(int(b[k].pos))
			k++
		}
	}
}

func (l *lap) mark(pos int) { l.dirty[(pos-l.from)>>6] |= 1 << ((pos - l.from) & 63) }

// clean says whether nothing else is told at positions from one up to another.
func (l *lap) clean(from, to int) bool {
	for i := from - l.from; i < to-l.from; {
		n := min(64-i&63, to-l.from-i)
		if l.dirty[i>>6]>>(i&63)<<(64-n) != 0 {
			return false
		}
		i += n
	}
	return true
}

// stand notes what is known at a position.
func (r *replay) stand(l *lap, pos, mark, facts int) {
	e, f := &r.e, &r.mem.frames
	v, k := int32(len(l.vecs)), int32(len(l.frames))
	for i := range e.Vec {
		if e.Vec[i].Known != 0 {
			l.vecs = append(l.vecs, savedVec{uint8(i), e.Vec[i]})
		}
	}
	l.frames = append(l.frames, f.list...)
	l.next = append(l.next, stand{
		pos: pos, mark: mark, facts: facts, gpr: e.GPR, fs: e.FS, gs: e.GS, flags: e.Flags, flagsKnown: e.FlagsKnown, low: r.mem.low, rsp: f.rsp,
		vecs: [2]int32{v, int32(len(l.vecs))}, frames: [2]int32{k, int32(len(l.frames))}, alone: r.mem.alone,
	})
	l.last = pos
}

// isAt says whether the same is known as was at a stand.
func (r *replay) isAt(l *lap, s *stand) bool {
	e, m := &r.e, r.mem
	if m.stored || m.alone != s.alone || m.low != s.low || e.GPR != s.gpr || e.FS != s.fs || e.GS != s.gs || e.Flags != s.flags || e.FlagsKnown != s.flagsKnown {
		return false
	}
	if len(m.frames.list) > 0 && m.frames.rsp != s.rsp || !slices.Equal(m.frames.list, l.frames[s.frames[0]:s.frames[1]]) {
		return false
	}
	vecs := l.vecs[s.vecs[0]:s.vecs[1]]
	for i := range e.Vec {
		if e.Vec[i].Known == 0 {
			continue
		}
		if len(vecs) == 0 || vecs[0].n != uint8(i) || vecs[0].Vector != e.Vec[i] {
			return false
		}
		vecs = vecs[1:]
	}
	return len(vecs) == 0
}

// takeStand makes what was known at a stand what is known.
func (r *replay) takeStand(l *lap, s *stand) {
	e, m := &r.e, r.mem
	e.State = x86.State{GPR: s.gpr, FS: s.fs, GS: s.gs, Flags: s.flags, FlagsKnown: s.flagsKnown}
	for _, v := range l.vecs[s.vecs[0]:s.vecs[1]] {
		e.Vec[v.n] = v.Vector
	}
	m.ForgetAll()
	m.low, m.alone = s.low, s.alone
	m.frames.rsp, m.frames.list = s.rsp, append(m.frames.list[:0], l.frames[s.frames[0]:s.frames[1]]...)
}

// skip is called where a stand of the last pass is due. If the same is known as was then, it goes on to the last stand up to which the pass is told the same, or to the end, and gives it; given are
// the facts that this pass has given, to which those on the way are added. nil with ok: it is the end.
func (r *replay) skip(l *lap, end int, given *[]fact) (to *stand, ok bool) {
	n := l.at
	l.at++
	s := &l.stands[n]
	if !r.isAt(l, s) {
		l.advance()
		return nil, false
	}
	at := func(k int) int {
		if k < len(l.stands) {
			return l.stands[k].pos
		}
		return end
	}
	k := n
	for k < len(l.stands) && l.clean(min(at(k), at(k+1)), max(at(k), at(k+1))) {
		k++
	}
	if k == n {
		l.advance()
		return nil, false
	}
	facts := len(l.facts)
	if k < len(l.stands) {
		facts = l.stands[k].facts
	}
	if len(l.next) > 0 && l.next[len(l.next)-1].pos == s.pos {
		l.next = l.next[:len(l.next)-1] // it is the same
	}
	shift := len(*given) - s.facts
	for i := n; i <= k && i < len(l.stands); i++ {
		l.next = append(l.next, l.stands[i])
		l.next[len(l.next)-1].facts += shift
	}
	*given = append(*given, l.facts[s.facts:facts]...)
	l.last = at(k)
	l.at = k + 1
	l.advance()
	if k == len(l.stands) {
		return nil, true
	}
	to = &l.stands[k]
	r.takeStand(l, to)
	return to, true
}

func (l *lap) advance() {
	if l.due = -1; l.at < len(l.stands) {
		l.due = l.stands[l.at].pos
	}
}
