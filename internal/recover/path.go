package recover

import (
	"errors"
	"io"

	"github.com/ripstop/ripstop/internal/pt"
)

// A path is the instructions of a piece of a trace, as indexes of code.insts, with what is known of their times.
type path struct {
	list  []int32
	marks []mark
	cuts  []int   // positions before which what ran is not known, or the kernel changed registers; ascending
	gaps  []int   // those of cuts before which the trace lost what ran
	holes []Range // the times that may belong to what was lost
	lost  []Range // those of gaps
	outs  []out   // where it was outside of what is traced; ascending
	own   [2]int  // the positions that belong to the shard; the others are there to learn from
}

// A mark begins the positions that one packet tells of: they ran at a TSC from `from` up to `to`.
type mark struct {
	pos      int
	from, to uint64
}

const forever = ^uint64(0)

// An out is a time outside of what is traced, just before a position.
type out struct {
	pos      int
	left     int // index of the first of pather.times that was made when it had been left
	back     int // of the last that was made before it had come back
	from, to uint64
	entry    uint64 // where it went by a branch, if the trace tells; else 0
}

// A pather decodes paths; it belongs to one goroutine.
type pather struct {
	code    *code
	path    *path
	steps   [256]pt.Step
	times   []mark // pos, and in `to` the packet's own time
	syscall bool   // the last instruction is a system call
	next    uint64 // where execution stands
	off     uint64 // where tracing went off; valid if
	paused  bool   // it did so between two instructions
	left    int    // as in out
	entry   uint64 // as in out
	synced  int    // position of the last PSB
	lowest  []uint64
	ends    []int // of each gap, the first of times behind it; unsettled
	hidden  bool  // tracing has a filter: what runs while it is off is not all in the kernel
}

const unsettled = 1 << 62

// maxPath bounds the instructions of a shard; what comes behind is a gap.
const maxPath = 16 << 20

// decode reads the segments of a trace; the path is good until the next one. Positions from segment `first` up to `behind` are the path's own.
func (d *pather) decode(s *Shard, code *code) *path {
	p := d.path
	if p == nil {
		p = &path{}
	}
	*p = path{list: p.list[:0], marks: p.marks[:0], cuts: p.cuts[:0], gaps: p.gaps[:0], holes: p.holes[:0], lost: p.lost[:0], outs: p.outs[:0]}
	*d = pather{code: code, path: p, times: d.times[:0], ends: d.ends[:0], lowest: d.lowest, hidden: s.Filtered}
	for i, seg := range s.Segments {
		if i == s.First {
			p.own[0] = len(p.list)
		}
		if i == s.Behind {
			p.own[1] = len(p.list)
		}
		d.segment(s, seg)
	}
	if s.Behind == len(s.Segments) {
		p.own[1] = len(p.list)
	}
	d.bound(s)
	return p
}

func (d *pather) segment(s *Shard, seg pt.Segment) {
	f := pt.NewFlow(s.Trace, seg, s.Config, d.code.flow)
	first := true
	d.synced = len(d.path.list)
	for {
		n, err := f.Read(d.steps[:])
		for i := range d.steps[:n] {
			st := &d.steps[i]
			if st.Kind == pt.StepSync {
				for i := len(d.ends) - 1; i >= 0 && d.ends[i] == unsettled; i-- {
					d.ends[i] = len(d.times)
				}
				if first && !d.continues(st.To) { // the segment before was not decoded to its end
					d.gap()
				}
				d.synced = len(d.path.list)
			}
			first = false
			if s.Until != 0 && st.HasTime && st.Time >= s.Until {
				d.gap() // other code may be mapped from here on
				return
			}
			d.step(st)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if ip, ok := f.Stands(); ok && len(d.path.list) > 0 && !d.paused { // behind a branch it is not behind the last instruction
				d.next = ip
			}
			return
		default:
			if !errors.Is(err, pt.ErrNoCode) { // damage shows late
				d.truncate(d.synced)
			}
			d.gap()
		}
	}
}

// truncate takes back what comes behind a position.
func (d *pather) truncate(pos int) {
	p := d.path
	p.list = p.list[:pos]
	for len(p.cuts) > 0 && p.cuts[len(p.cuts)-1] > pos {
		p.cuts = p.cuts[:len(p.cuts)-1]
	}
	for len(p.gaps) > 0 && p.gaps[len(p.gaps)-1] > pos {
		p.gaps, d.ends = p.gaps[:len(p.gaps)-1], d.ends[:len(p.gaps)-1]
	}
	for len(p.outs) > 0 && p.outs[len(p.outs)-1].pos > pos {
		p.outs = p.outs[:len(p.outs)-1]
	}
	for i := range d.times { // they remain times that nothing known belongs to
		d.times[i].pos = min(d.times[i].pos, pos)
	}
}

// continues says whether execution at an address follows what is in the path.
func (d *pather) continues(to uint64) bool {
	switch {
	case len(d.path.list) == 0:
		return false
	case d.paused:
		return d.off == to
	}
	return d.next == to
}

func (d *pather) time(s *pt.Step) {
	if s.HasTime && (len(d.times) == 0 || d.times[len(d.times)-1].to != s.Time) {
		d.times = append(d.times, mark{pos: len(d.path.list), to: s.Time})
	}
}

func (d *pather) step(s *pt.Step) {
	d.time(s)
	switch s.Kind {
	case pt.StepRun:
		d.run(s)
	case pt.StepDisable:
		d.off, d.paused, d.left, d.entry = s.From, true, max(0, len(d.times)-1), s.To
	case pt.StepEnable:
		if len(d.path.list) == 0 {
			d.gap()
			if s.HasTime {
				d.ends[len(d.ends)-1]-- // it ends at this very time
			}
		}
		d.enable(s.To)
		d.outside(d.left, d.entry)
	case pt.StepAsync:
		d.cut()
		d.outside(max(0, len(d.times)-1), 0)
		d.next = s.To
	case pt.StepOverflow, pt.StepTSX:
		d.gap()
		d.ends[len(d.ends)-1] = unsettled // time is a lower bound until there is a TSC packet
	}
}

// outside notes that it was outside up to here.
func (d *pather) outside(left int, entry uint64) {
	d.entry = 0
	p, back := d.path, max(0, len(d.times)-1)
	if n := len(p.outs); n > 0 && p.outs[n-1].pos == len(p.list) {
		p.outs[n-1].back, p.outs[n-1].entry = back, 0
		return
	}
	p.outs = append(p.outs, out{pos: len(p.list), left: min(left, back), back: back, entry: entry})
}

// enable goes on where the kernel left to, or behind what is not traced.
func (d *pather) enable(to uint64) {
	switch {
	case len(d.path.list) == 0:
	case d.syscall && !d.hidden:
		if to != d.next { // a signal handler, or the way back from one, or another program
			d.cut()
		}
	case d.hidden || !d.paused || to != d.off:
		d.cut()
	}
	d.next, d.paused = to, false
}

func (d *pather) run(s *pt.Step) {
	p := d.path
	if len(p.list)+int(s.Count) > maxPath {
		d.gap()
		return
	}
	d.syscall, d.paused = false, false
	pc, before := s.From, int32(-1)
	if n := len(p.list); n > 0 {
		before = p.list[n-1]
	}
	for k := range s.Count {
		var i int32
		var ok bool
		if k == 0 {
			i, ok = d.code.jump(before, pc)
		} else {
			i, ok = d.code.behind(before, pc)
		}
		if !ok {
			d.gap()
			return
		}
		p.list, before = append(p.list, i), i
		in := &d.code.insts[i]
		pc = in.next()
		d.syscall = in.traits&isSyscall != 0
	}
	d.next = pc
}

// cut notes that nothing that was known holds from here on.
func (d *pather) cut() {
	if n := len(d.path.cuts); n == 0 || d.path.cuts[n-1] != len(d.path.list) {
		d.path.cuts = append(d.path.cuts, len(d.path.list))
	}
	d.syscall, d.paused = false, false
}

// gap is cut where the trace lost something.
func (d *pather) gap() {
	n := len(d.path.list)
	if k := len(d.path.gaps); k > 0 && d.path.gaps[k-1] == n {
		d.ends[k-1] = len(d.times)
	} else {
		d.path.gaps, d.ends = append(d.path.gaps, n), append(d.ends, len(d.times))
	}
	d.cut()
}

// bound makes marks of the packets' times. What a packet tells ran after the packet before it was made, whose time is an estimate that is exact only where
// cycles are counted, and before the next one's.
func (d *pather) bound(s *Shard) {
	t := d.times
	p := d.path
	p.marks = append(p.marks, mark{0, 0, forever})
	d.lowest = resize(d.lowest, len(t)+1)
	lowest := d.lowest // of the packets from here on
	lowest[len(t)] = forever
	for i := len(t) - 1; i >= 0; i-- {
		lowest[i] = min(lowest[i+1], t[i].to)
	}
	highest := uint64(0)
	for i := range t {
		m := mark{pos: t[i].pos, to: forever}
		highest = max(highest, t[i].to)
		if i+1 < len(t) {
			m.to = max(highest, t[i+1].to)
		}
		if i > 0 {
			m.from = lowest[i-1]
		}
		if i == 0 && m.pos > 0 {
			p.marks[0].to = m.to
		}
		if last := len(p.marks) - 1; p.marks[last].pos == m.pos {
			p.marks[last] = m // of several packets at one position the last one tells of it
		} else {
			p.marks = append(p.marks, m)
		}
	}
	last := &p.marks[len(p.marks)-1]
	if last.to = s.End; s.End == forever { // what came behind the last packet is lost
		p.holes = append(p.holes, Range{last.from, forever})
	}
	highest = 0
	for i, k := 0, 0; i < len(p.outs); i++ {
		o := &p.outs[i]
		for ; k < len(t) && k <= o.back+1; k++ {
			highest = max(highest, t[k].to)
		}
		if o.to = highest; o.back+1 >= len(t) {
			o.to = s.End
		}
		if o.left > 0 {
			o.from = lowest[o.left-1]
		}
	}
	for i, g := range p.gaps {
		h := Range{0, forever}
		if g > 0 {
			h.Start = p.marks[p.at(g-1)].from
		}
		if d.ends[i] < len(t) {
			h.End = t[d.ends[i]].to
		}
		p.holes, p.lost = append(p.holes, h), append(p.lost, h)
	}
}

// isLost says whether what ran at a time may be in a hole.
func (p *path) isLost(tsc, slack uint64) bool {
	for _, h := range p.holes {
		if (tsc >= h.Start || h.Start-tsc <= slack) && (tsc <= h.End || tsc-h.End <= slack) {
			return true
		}
	}
	return false
}

// at gives the index of the mark that a position belongs to.
func (p *path) at(pos int) int {
	lo, hi := 0, len(p.marks)
	for hi-lo > 1 {
		if m := (lo + hi) / 2; p.marks[m].pos <= pos {
			lo = m
		} else {
			hi = m
		}
	}
	return lo
}
