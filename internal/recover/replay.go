package recover

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/x86"
)

// A replay recovers one shard. It belongs to one goroutine, which reuses its memory.
type replay struct {
	opt   *Options
	shard *Shard
	code  *code
	path  *path
	e     x86.Emulator
	mem   *memory

	cands  []candidate
	placed []placed

	calls   []libCall // in the order of their entries
	looks   []look    // in the order of positions
	entries []int32   // positions of isEntry

	first   []int32 // of each position, its first slot in the arrays below
	addrs   []uint64
	sizes   []uint64
	how     []How
	trusted []bool // what the access touches may be remembered, as the way forwards found
	before  []uint16
	after   []uint16
	ahead   []fact // what the way forwards knew of registers just before they were overwritten, ascending
	back    []fact // what the way backwards knew of registers just after they were written, descending
	news    int    // facts and accesses that the last pass added to what was known
	wrong   bool   // it contradicted itself
	again   bool   // this is not the first round
	counts  Counts
	fs      x86.Value
	alone   []Range // times at which the process has no other thread
	left    []int32 // of each of the shard's samples: candidates that are not out
	met     []bool  // of each instruction of code, whether the path has it; see loose

	every       int       // instructions between two stands, at least
	forth, rear lap       // of the ways forwards and backwards
	spare       [2][]fact // memory of the lists before ahead and back
	changed     []int32   // positions at which the last way forwards changed trusted
}

// A fact is that a register held a value before, or after, the instruction at a position ran.
type fact struct {
	pos int32
	reg uint8
	val uint64
}

var noConstants []Constant

// maxRounds bounds the passes forwards and backwards. Programs do not come near it.
const maxRounds = 8

// prepare lays out the slots.
func (r *replay) prepare() {
	n := len(r.path.list)
	r.first = resize(r.first, n+1)
	at := int32(0)
	r.entries = r.entries[:0]
	r.fs = x86.Value{}
	r.mem.fs, r.mem.hasFS = r.shard.FS, r.shard.HasFS
	if r.shard.HasFS {
		r.fs = x86.Exactly(r.shard.FS)
	}
	for i, x := range r.path.list {
		r.first[i] = at
		at += int32(r.code.insts[x].nslots)
		if t := r.code.insts[x].traits; t&(setsFS|isEntry) != 0 {
			if t&setsFS != 0 {
				r.fs = x86.Value{}
			} else {
				r.entries = append(r.entries, int32(i))
			}
		}
	}
	r.first[n] = at
	r.addrs, r.sizes, r.how, r.trusted = resize(r.addrs, int(at)), resize(r.sizes, int(at)), resize(r.how, int(at)), resize(r.trusted, int(at))
	r.before, r.after = resize(r.before, n), resize(r.after, n)
}

// resize gives a slice of n zeros, in the old one's memory if it has room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	s = s[:n]
	clear(s)
	return s
}

// run recovers what it can.
func (r *replay) run() {
	r.prepare()
	r.candidates()
	r.library()
	from := 0
	for _, to := range append(r.path.cuts, len(r.path.list)) {
		if to > from {
			r.stretch(from, to)
		}
		from = to
	}
	r.known()
}

// stretch recovers between two cuts.
func (r *replay) stretch(from, to int) {
	lo, hi := r.firstCand(from), r.firstCand(to)
	cands := slices.Clone(r.cands[lo:hi])
	before := slices.Clone(r.placed[r.firstPlaced(from):r.firstPlaced(to)])
	if r.rounds(from, to) {
		return
	}
	// What was believed of memory was wrong, or a sample is not where it seems to be: once more without memory.
	misfits := r.counts.Misfits
	for i, c := range cands {
		if now := &r.cands[lo+i]; now.out && !c.out && !r.isPlaced(now) {
			r.left[c.sample]++
		}
		r.cands[lo+i] = c
	}
	r.placed = slices.Replace(r.placed, r.firstPlaced(from), r.firstPlaced(to), before...)
	r.clearStretch(from, to)
	belief := r.mem.belief
	r.mem.belief = None
	fine := r.rounds(from, to)
	r.mem.belief = belief
	if !fine {
		r.clearStretch(from, to)
		r.placed = slices.Delete(r.placed, r.firstPlaced(from), r.firstPlaced(to))
	}
	r.counts.Misfits = max(misfits, r.counts.Misfits)
	if from < r.path.own[1] && to > r.path.own[0] {
		r.counts.Contradicted++
	}
}

// isPlaced says whether the candidate is where its sample was placed.
func (r *replay) isPlaced(c *candidate) bool {
	for i := r.firstPlaced(c.pos); i < len(r.placed) && r.placed[i].pos == c.pos; i++ {
		if r.placed[i].Sample == &r.shard.Samples[c.sample] {
			return true
		}
	}
	return false
}

func (r *replay) clearStretch(from, to int) {
	clear(r.addrs[r.first[from]:r.first[to]])
	clear(r.sizes[r.first[from]:r.first[to]])
	clear(r.how[r.first[from]:r.first[to]])
	clear(r.trusted[r.first[from]:r.first[to]])
	r.forgetCalls(from, to)
	clear(r.before[from:to])
	clear(r.after[from:to])
}

// rounds goes forwards and backwards until neither finds anything new; false if what was known contradicted itself.
func (r *replay) rounds(from, to int) bool {
	r.back, r.ahead, r.spare[0], r.spare[1] = r.back[:0], r.ahead[:0], r.spare[0][:0], r.spare[1][:0]
	r.forth.reset()
	r.rear.reset()
	r.wrong = false
	r.settle(from, to)
	for round := range maxRounds {
		r.again = round > 0
		r.news = 0
		if r.forward(from, to); r.wrong {
			return false
		}
		if r.opt.Reach == ForwardOnly {
			if !r.settle(from, to) {
				return true
			}
			continue
		}
		if r.again && r.news == 0 && !r.settle(from, to) {
			return true
		}
		r.news = 0
		if r.backward(from, to); r.wrong {
			return false
		}
		if !r.settle(from, to) && r.news == 0 {
			return true
		}
	}
	return true
}

// begin forgets everything.
func (r *replay) begin() {
	r.e.State = x86.State{}
	r.e.FS = r.fs
	r.mem.ForgetAll()
	r.mem.frames.reset()
}

// isAlone says whether the process has no other thread while the positions of a mark run.
func (r *replay) isAlone(mark int) bool {
	m := r.path.marks[mark]
	for _, a := range r.alone {
		if (a.Start == 0 || m.from >= a.Start && m.from-a.Start > r.opt.Slack) && (a.End == forever || m.to < a.End && a.End-m.to > r.opt.Slack) {
			return true
		}
	}
	return false
}

// atMark sets what depends on the time.
func (r *replay) atMark(mark int) {
	if a := r.isAlone(mark); a != r.mem.alone {
		r.mem.ForgetAll()
		r.mem.alone = a
	}
}

// forward runs the instructions from one position up to another.
func (r *replay) forward(from, to int) {
	e, m := &r.e, r.mem
	m.listed = false
	r.begin()
	mark := r.path.at(from)
	m.alone = r.isAlone(mark)
	sampled, cand := r.firstPlaced(from), r.firstCand(from)
	learn, looked := len(r.back)-1, r.firstLook(from)
	lap, old := &r.forth, r.ahead
	r.start(lap, from, to, old, r.spare[1], r.back, nil)
	ahead := r.spare[0][:0]
	r.spare[0] = old
	r.changed = r.changed[:0]
	defer func() { r.ahead = ahead }()
	one := r.opt.Reach == Block
	list, insts := r.path.list[:to], r.code.insts
	next := &insts[list[from]]
	for i := from; i < to; i++ {
		if i == lap.due {
			if s, ok := r.skip(lap, to, &ahead); ok && s == nil {
				return
			} else if ok {
				i, mark = s.pos, s.mark
				next = &insts[list[i]]
				sampled, cand, looked = r.firstPlaced(i), r.firstCand(i), r.firstLook(i)
				learn = sort.Search(len(r.back), func(k int) bool { return int(r.back[k].pos) < i }) - 1
			}
		}
		for mark+1 < len(r.path.marks) && r.path.marks[mark+1].pos <= i {
			mark++
			r.atMark(mark)
		}
		in := next
		for ; looked < len(r.looks) && int(r.looks[looked].pos) <= i; looked++ {
			r.look(r.looks[looked], Forward)
		}
		for w := in.writes; w != 0; w &= w - 1 {
			reg := bits.TrailingZeros16(w)
			if v := &e.GPR[reg]; v.Whole() && (reg != rsp || in.traits&unwinds == 0) {
				ahead = append(ahead, fact{int32(i), uint8(reg), v.Bits})
				if r.before[i]>>reg&1 == 0 {
					r.news++
				}
			}
		}
		old := e.GPR[rsp]
		if m.consts != in.consts {
			m.consts = in.consts
		}
		if in.traits&isLocked != 0 && m.belief == Assumed && !m.alone {
			m.ForgetAll()
		}
		at, known := e.Exec(in.op, in.pc)
		if in.nslots > 0 {
			r.found(i, in, Forward)
		}
		if i+1 < to {
			next = &insts[list[i+1]]
			pc := next.pc
			if known && at != pc {
				r.wrong = true
				return
			}
			if in.traits&isBranch != 0 {
				e.Follow(in.op, pc)
			}
		}
		for ; learn >= 0 && int(r.back[learn].pos) <= i; learn-- {
			if f := &r.back[learn]; int(f.pos) == i {
				v := &e.GPR[f.reg]
				if (v.Bits^f.val)&v.Known != 0 {
					r.wrong = true
					return
				}
				*v = x86.Exactly(f.val)
			}
		}
		for ; cand < len(r.cands) && r.cands[cand].pos <= i; cand++ {
			if c := &r.cands[cand]; c.pos == i && !fits(in, &r.shard.Samples[c.sample], e) {
				r.exclude(c)
			}
		}
		for ; sampled < len(r.placed) && r.placed[sampled].pos <= i; sampled++ {
			s := r.placed[sampled].Sample
			if !fits(in, s, e) {
				r.wrong = true
				return
			}
			take(in, s, e)
			r.sampled(i, in, s)
		}
		for w := in.writes; w != 0; w &= w - 1 {
			if reg := bits.TrailingZeros16(w); e.GPR[reg].Whole() {
				r.after[i] |= 1 << reg
			}
		}
		r.stack(in, old)
		if one && in.traits&isBranch != 0 {
			r.begin()
		}
		if !m.stored && i+1-lap.last >= r.every && i+1 < to {
			r.stand(lap, i+1, mark, len(ahead))
		}
	}
}

const (
	rsp = 4
	rbp = 5
)

// stack follows the frames over an instruction that has run; old is rsp before it.
func (r *replay) stack(in *inst, old x86.Value) {
	e, f := &r.e, &r.mem.frames
	now := e.GPR[rsp]
	if !now.Whole() {
		if len(f.list) > 0 {
			r.lost()
		}
		return
	}
	if in.writes>>rsp&1 != 0 {
		if old.Whole() && now.Bits < old.Bits && in.traits&lowersSP == 0 {
			r.lost() // another stack
		}
		f.moved(now.Bits)
		if in.traits&isCall != 0 && !f.entered(now.Bits) {
			r.forgetFrames()
		}
	} else if f.rsp != now.Bits {
		f.moved(now.Bits)
	}
	if in.traits&(takesSP|takesBP) == 0 || len(f.list) == 0 {
		return
	}
	sparse := r.mem.sparse
	if r.mem.alone || r.mem.belief == Assumed {
		sparse = nil // nobody uses the pointer
	}
	if in.traits&takesBP != 0 {
		bp := e.GPR[rbp] // as before the instruction, or it is no pointer any more
		switch {
		case !bp.Whole() || in.writes>>rbp&1 != 0:
			f.pointAll(sparse)
			return
		case f.find(bp.Bits) < 0:
			if in.traits&takesSP == 0 {
				return
			}
		}
		f.point(f.find(bp.Bits), sparse)
	}
	f.point(len(f.list)-1, sparse)
	for w := in.writes; w != 0; w &= w - 1 { // where the pointer points
		if reg := bits.TrailingZeros16(w); reg == rsp {
			continue
		} else if v := e.GPR[reg]; !v.Whole() {
			f.pointAll(sparse)
		} else {
			f.point(f.find(v.Bits), sparse)
		}
	}
}

// lost gives up what is known of frames.
func (r *replay) lost() {
	r.mem.frames.reset()
	r.forgetFrames()
}

// forgetFrames forgets what was believed because of frames, since new ones may come to lie there.
func (r *replay) forgetFrames() {
	if !r.mem.alone && r.mem.belief == Proved {
		r.mem.ForgetAll()
	}
}

// backward undoes the instructions from the last position down.
func (r *replay) backward(from, to int) {
	e, m := &r.e, r.mem
	m.listed = true
	r.begin()
	mark := r.path.at(to - 1)
	m.alone = r.isAlone(mark)
	sampled, cand := r.firstPlaced(to)-1, r.firstCand(to)-1
	learn, looked := len(r.ahead)-1, r.firstLook(to)-1
	lap, old := &r.rear, r.back
	r.start(lap, from, to, old, r.spare[0], r.ahead, r.changed)
	lap.last = to
	back := r.spare[1][:0]
	r.spare[1] = old
	defer func() { r.back = back }()
	one := r.opt.Reach == Block
	var next uint64
	for i := to - 1; i >= from; i-- {
		if i+1 == lap.due {
			if s, ok := r.skip(lap, from, &back); ok && s == nil {
				return
			} else if ok {
				mark, next = s.mark, r.code.insts[r.path.list[s.pos]].pc
				sampled, cand, looked = r.firstPlaced(s.pos)-1, r.firstCand(s.pos)-1, r.firstLook(s.pos)-1
				learn = sort.Search(len(r.ahead), func(k int) bool { return int(r.ahead[k].pos) >= s.pos }) - 1
				i = s.pos - 1
			}
		}
		for mark > 0 && i < r.path.marks[mark].pos {
			mark--
			r.atMark(mark)
		}
		in := &r.code.insts[r.path.list[i]]
		if one && in.traits&isBranch != 0 {
			r.begin()
		}
		for ; cand >= 0 && r.cands[cand].pos >= i; cand-- {
			if c := &r.cands[cand]; c.pos == i && !fits(in, &r.shard.Samples[c.sample], e) {
				r.exclude(c)
			}
		}
		var here *sample.Sample
		for ; sampled >= 0 && r.placed[sampled].pos >= i; sampled-- {
			here = r.placed[sampled].Sample
			if !fits(in, here, e) {
				r.wrong = true
				return
			}
			take(in, here, e)
		}
		for w := in.writes; w != 0; w &= w - 1 {
			reg := bits.TrailingZeros16(w)
			if v := &e.GPR[reg]; v.Whole() {
				back = append(back, fact{int32(i), uint8(reg), v.Bits})
				if r.after[i]>>reg&1 == 0 {
					r.news++
				}
			}
		}
		if m.consts != in.consts {
			m.consts = in.consts
		}
		m.slot = true
		for k := r.first[i]; k < r.first[i+1]; k++ {
			m.slot = m.slot && r.trusted[k]
		}
		if in.traits&isLocked != 0 && m.belief == Assumed && !m.alone {
			m.ForgetAll()
		}
		if i == to-1 {
			next = in.next()
			if in.traits&isBranch != 0 { // where it went is not known
				r.begin()
			}
		}
		if i < to-1 || in.traits&isBranch == 0 {
			e.Reverse(in.op, in.pc, next)
			if here != nil {
				r.solve(in, here)
			}
			if in.nslots > 0 {
				r.found(i, in, Backward)
			}
		}
		for ; learn >= 0 && int(r.ahead[learn].pos) >= i; learn-- {
			if f := &r.ahead[learn]; int(f.pos) == i {
				v := &e.GPR[f.reg]
				if (v.Bits^f.val)&v.Known != 0 {
					r.wrong = true
					return
				}
				*v = x86.Exactly(f.val)
			}
		}
		for w := in.writes; w != 0; w &= w - 1 {
			if reg := bits.TrailingZeros16(w); e.GPR[reg].Whole() {
				r.before[i] |= 1 << reg
			}
		}
		for ; looked >= 0 && int(r.looks[looked].pos) >= i; looked-- {
			r.look(r.looks[looked], Backward)
		}
		if in.traits&isCall != 0 && !m.alone && m.belief == Proved {
			m.left(e.GPR[rsp])
		}
		next = in.pc
		if !m.stored && lap.last-i >= r.every && i > from {
			r.stand(lap, i, mark, len(back))
		}
	}
}

// solve finds the one register of a sampled address that is not known before the instruction.
func (r *replay) solve(in *inst, s *sample.Sample) {
	k := sampledSlot(in, s)
	if k < 0 {
		return
	}
	m := &in.mems[k]
	if m.Base.Class() != x86.ClassGPR || m.Base.Size() != 8 || m.Kind&(x86.MemBit|x86.MemStack) != 0 || m.Index != x86.NoReg && m.Index.Class() != x86.ClassGPR {
		return
	}
	rest := s.Addr - uint64(m.Disp) - uint64(int64(m.Bias))
	switch m.Seg {
	case x86.FS, x86.GS:
		return
	}
	v := &r.e.GPR[m.Base.Num()]
	if m.Index != x86.NoReg {
		x := r.e.GPR[m.Index.Num()]
		if m.Index.Size() != 8 || m.Index == m.Base || !x.Whole() {
			return
		}
		rest -= x.Bits * uint64(m.Scale)
	}
	if (v.Bits^rest)&v.Known != 0 {
		r.wrong = true
		return
	}
	*v = x86.Exactly(rest)
	r.e.Accesses[k].Known, r.e.Accesses[k].Addr = true, s.Addr
}

// found notes the accesses that the last instruction made.
func (r *replay) found(i int, in *inst, how How) {
	at := r.first[i]
	for k := range r.e.Accesses {
		a := &r.e.Accesses[k]
		j := at + int32(k)
		if !a.Known {
			continue
		}
		if how == Forward {
			if t := r.mem.mayBelieve(a.Addr, max(1, int(in.slots[k].size))); t != r.trusted[j] {
				r.trusted[j] = t
				if r.again {
					r.changed = append(r.changed, int32(i))
				}
			}
		}
		if in.slots[k].vague || a.Count == 0 {
			continue
		}
		size := uint64(a.Size) * a.Count
		addr := a.Addr
		if a.Down {
			addr -= size - uint64(a.Size)
		}
		if r.how[j] != Unknown {
			if r.addrs[j] != addr || r.sizes[j] != size {
				r.wrong = true
			}
			continue
		}
		if in.slots[k].path && in.traits&isRepeated == 0 {
			how = Path
		} else if r.again {
			how = Combined
		}
		r.addrs[j], r.sizes[j], r.how[j] = addr, size, how
		r.news++
	}
}

// sampled notes the access that a sample tells.
func (r *replay) sampled(i int, in *inst, s *sample.Sample) {
	k := sampledSlot(in, s)
	if k < 0 {
		return
	}
	j := r.first[i] + int32(k)
	if r.how[j] != Unknown && r.addrs[j] != s.Addr {
		r.wrong = true
		return
	}
	r.addrs[j], r.sizes[j], r.how[j] = s.Addr, uint64(in.slots[k].size), Sampled
}

func (r *replay) firstPlaced(pos int) int {
	lo, hi := 0, len(r.placed)
	for lo < hi {
		if m := (lo + hi) / 2; r.placed[m].pos < pos {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (r *replay) firstCand(pos int) int {
	lo, hi := 0, len(r.cands)
	for lo < hi {
		if m := (lo + hi) / 2; r.cands[m].pos < pos {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}
