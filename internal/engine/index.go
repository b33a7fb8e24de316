package engine

import (
	"encoding/binary"
	"errors"
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// A run is a part of the process's index of trampolines, by which the agent shows interrupted threads to the program (internal/agent/c/trampoline.c). What is in it is in the
// process only.
type run struct {
	at, bytes uint64
	lo, hi    uint64 // what its entries are of
	entries   int
	void      int // of them, those of no length
	in        *arena
}

// An indexed is an entry: a piece of code and its states in bytes, which hold wherever the entry lies.
type indexed struct {
	lo, hi uint64
	n      int // states
	states []byte
}

// entries gives what of patches is in the index: of each its trampoline, and the jump inside a neighbour, of which only the first byte is no place of the program's: the others may be
// heads of instructions. What is in the index stays there when the patch goes, for threads in handlers; so the latter may never mean something else (patch.Patch.Via), and the former only when no thread can
// come back there (reclaim): then the newer run is found first.
func entries(list []*patch.Patch) []indexed {
	size, vias := 0, 0
	for _, x := range list {
		size += statesSize(x.Trampoline.States)
		if x.Via != 0 {
			size, vias = size+wire.SizeTrampolineState, vias+1
		}
	}
	b := make([]byte, 0, size)
	all, inner := make([]indexed, 0, len(list)+vias), make([]indexed, 0, vias)
	for _, x := range list {
		at := len(b)
		b = appendStates(b, x.Trampoline.At, x.Trampoline.States)
		all = append(all, indexed{x.Trampoline.At, x.Trampoline.End(), len(x.Trampoline.States), b[at:len(b):len(b)]})
		if x.Via != 0 {
			at := len(b)
			b = appendStates(b, x.Via, []patch.State{{For: x.At, Resume: patch.Restart}})
			inner = append(inner, indexed{x.Via, x.Via + 1, 1, b[at:len(b):len(b)]})
		}
	}
	return append(all, inner...)
}

func statesSize(states []patch.State) (size int) {
	for i := range states {
		size += wire.SizeTrampolineState + len(states[i].Moves)*wire.SizeTrampolineMove
	}
	return size
}

// appendStates appends the states of code that lies at an address: wire.TrampolineState and TrampolineMove.
func appendStates(b []byte, lo uint64, states []patch.State) []byte {
	le := binary.LittleEndian
	for i := range states {
		s := &states[i]
		b = le.AppendUint32(b, uint32(int32(s.For-lo)))
		b = le.AppendUint16(b, uint16(s.Off))
		resume := uint16(0xffff)
		if s.Resume != patch.Restart {
			resume = uint16(s.Resume)
		}
		b = le.AppendUint16(b, resume)
		b = le.AppendUint32(b, uint32(len(s.Moves)))
		for _, m := range s.Moves {
			b = le.AppendUint32(b, uint32(m.N))
			b = append(b, m.Reg, uint8(m.From), 0, 0)
		}
	}
	return b
}

// A place is where the all[i] of some begins.
type place struct {
	lo uint64
	i  int
}

// inOrder gives entries by where they begin, those at one address as they come. They are pieces that are in order already, of as many runs, so they are merged; and the places alone, as entries are seven words each.
func inOrder(all []indexed) []place {
	list := make([]place, len(all))
	var ends []int // of the pieces
	for i := range all {
		if list[i] = (place{all[i].lo, i}); i > 0 && list[i].lo < list[i-1].lo {
			ends = append(ends, i)
		}
	}
	if len(ends) == 0 {
		return list
	}
	ends = append(ends, len(all))
	for other := make([]place, len(all)); len(ends) > 1; list, other = other, list {
		to, n := 0, 0
		for k := 0; k < len(ends); k += 2 {
			mid, end := ends[k], ends[min(k+1, len(ends)-1)]
			for a, b := to, mid; to < end; to++ {
				if b == end || a < mid && list[a].lo <= list[b].lo {
					other[to] = list[a]
					a++
				} else {
					other[to] = list[b]
					b++
				}
			}
			ends[n] = end
			n++
		}
		ends = ends[:n]
	}
	return list
}

// encodeRun makes a run: wire.TrampolineRun.
func encodeRun(all []indexed) []byte {
	order := inOrder(all)
	le := binary.LittleEndian
	head := wire.SizeTrampolineRun + len(all)*wire.SizeTrampoline
	hi, size := uint64(0), head
	for i := range all {
		hi = max(hi, all[i].hi)
		size += len(all[i].states)
	}
	b := make([]byte, 0, size)
	b = le.AppendUint64(b, uint64(len(all)))
	b = le.AppendUint64(b, order[0].lo)
	b = le.AppendUint64(b, hi)
	at := head
	for _, o := range order {
		e := &all[o.i]
		b = le.AppendUint64(b, e.lo)
		b = le.AppendUint32(b, uint32(at))
		b = le.AppendUint16(b, uint16(e.hi-e.lo))
		b = le.AppendUint16(b, uint16(e.n))
		at += len(e.states)
	}
	for _, o := range order {
		b = append(b, all[o.i].states...)
	}
	return b
}

// decodeRun appends the entries of a run that encodeRun made and that a process, which may write what it likes there, gave back.
func decodeRun(list []indexed, b []byte) ([]indexed, error) {
	le := binary.LittleEndian
	if len(b) < wire.SizeTrampolineRun {
		return list, errRun
	}
	n := le.Uint64(b)
	if n > uint64(len(b))/wire.SizeTrampoline {
		return list, errRun
	}
	head := wire.SizeTrampolineRun + n*wire.SizeTrampoline
	if head > uint64(len(b)) {
		return list, errRun
	}
	for i := range n {
		e := b[wire.SizeTrampolineRun+i*wire.SizeTrampoline:]
		lo, at, end := le.Uint64(e), uint64(le.Uint32(e[8:])), uint64(len(b))
		if i+1 < n {
			end = uint64(le.Uint32(e[wire.SizeTrampoline+8:]))
		}
		if at < head || end < at || end > uint64(len(b)) {
			return list, errRun
		}
		list = append(list, indexed{lo, lo + uint64(le.Uint16(e[12:])), int(le.Uint16(e[14:])), b[at:end]})
	}
	return list, nil
}

var errRun = errors.New("the process's index of trampolines was overwritten")

// bury says that what the runs so far say of a patch is void.
func (p *Process) bury(x *patch.Patch) {
	p.dead[x.Trampoline.At] = len(p.runs)
	if x.Via != 0 {
		p.dead[x.Via] = len(p.runs)
	}
}

// unindex makes void what runs say of places in a text that is gone, where other code may come to lie: the jumps inside neighbours. An entry of no length is met by nobody.
func (p *Process) unindex(t *text) error {
	if err := p.do(); err != nil { // what is yet to be stored
		return err
	}
	for _, r := range p.runs {
		var err error
		place := func(i int) uint64 { return r.at + wire.SizeTrampolineRun + uint64(i)*wire.SizeTrampoline }
		begins := func(i int) uint64 {
			var b [8]byte
			err = errors.Join(err, p.read(place(i), b[:]))
			return binary.LittleEndian.Uint64(b[:])
		}
		first := sort.Search(r.entries, func(i int) bool { return begins(i) >= t.at })
		for i := first; err == nil && i < r.entries && begins(i) < t.end(); i++ {
			var n [2]byte
			if err = errors.Join(err, p.read(place(i)+entryBytes, n[:])); err == nil && n != [2]byte{} {
				err = p.write(place(i)+entryBytes, []byte{0, 0})
				r.void++
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// An arena is memory of the process for runs; they are laid out in it one after the other.
type arena struct {
	at, used, bytes uint64
	runs            int // of those that the agent knows
}

// arenaBytes is the least that is reserved at once.
const arenaBytes = 64 << 10

// index makes trampolines known to the agent, before the first jump leads there: by the operations that it gives, once they are done.
func (p *Process) index(list []*patch.Patch) ([]wire.PatchOp, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if compact := p.compact(); compact || p.firstRun+len(p.runs) == wire.PatchRuns {
		from := 0
		if !compact {
			from = mergeFrom(p.runs)
		}
		return nil, p.merge(from, list)
	}
	r, b, err := p.makeRun(entries(list))
	if err != nil {
		return nil, err
	}
	var ops []wire.PatchOp
	if p.mem != nil && len(b) <= storeMost && len(b) <= len(p.page.Bytes)-p.stored { // sooner done by the process itself
		o := op(wire.PatchDoStore, r.at, uint64(len(b)))
		o.Arg = uint32(p.stored)
		p.stored += copy(p.page.Bytes[p.stored:], b)
		ops = append(ops, o)
	} else if err := p.write(r.at, b); err != nil {
		r.in.runs--
		return nil, err
	}
	o := op(wire.PatchDoRun, r.at, 0)
	o.Arg = uint32(p.firstRun + len(p.runs))
	p.runs = append(p.runs, r)
	return append(ops, o), nil
}

// hasRoom says whether index needs nothing of the process.
func (p *Process) hasRoom(list []*patch.Patch) bool {
	if p.compact() || p.firstRun+len(p.runs) == wire.PatchRuns || len(p.arenas) == 0 {
		return false
	}
	size := wire.SizeTrampolineRun
	for _, x := range list {
		size += 2*wire.SizeTrampoline + statesSize(x.Trampoline.States) + wire.SizeTrampolineState // with a jump inside a neighbour
	}
	a := p.arenas[len(p.arenas)-1]
	return uint64(size) <= a.bytes-a.used
}

// storeMost is the most of a run, in bytes, that the process copies by itself: it keeps the page's memory for that.
const storeMost = 4 << 10

// makeRun gives a run and what is to be written there.
func (p *Process) makeRun(list []indexed) (*run, []byte, error) {
	b := encodeRun(list)
	n := len(p.arenas)
	if n == 0 || uint64(len(b)) > p.arenas[n-1].bytes-p.arenas[n-1].used {
		size := max(arenaBytes, (uint64(len(b))+patch.PageSize-1)&^(patch.PageSize-1))
		o := op(wire.PatchDoReserve, 0, size)
		o.Arg = 1 // to be written to
		ops := []wire.PatchOp{o}
		if err := p.do(ops...); err != nil {
			return nil, nil, err
		}
		p.arenas = append(p.arenas, &arena{at: ops[0].Address, bytes: size})
		p.reserved(ops[0].Address, size)
		p.tables += size
		n++
	}
	a := p.arenas[n-1]
	r := &run{at: a.at + a.used, bytes: uint64(len(b)), lo: binary.LittleEndian.Uint64(b[runLo:]), hi: binary.LittleEndian.Uint64(b[runHi:]), entries: len(list), in: a}
	a.used += (uint64(len(b)) + 15) &^ 15
	a.used = min(a.used, a.bytes)
	a.runs++
	return r, b, nil
}

// Bounds of merging.
const (
	mergeCost = 16 << 10 // bytes that could be copied in the time that it takes besides
	mergeMost = 32 << 20 // bytes that are merged at once, if that frees some places in the table: they are in memory here meanwhile
	mergeSome = 8
	// compactFrom is how many entries are void, at least, when all runs are merged for that.
	compactFrom = 1 << 10
)

// mergeFrom says which of the runs, up to the last, are to be made one when another is to come and there is no place for it: those of which the fewest bytes are copied for each
// place. So runs get longer from the last to the first, and none is copied often.
func mergeFrom(runs []*run) int {
	from, least, sum := 0, 0.0, uint64(mergeCost)
	for i := len(runs) - 1; i >= 0; i-- {
		sum += runs[i].bytes
		places := len(runs) - i // of them one for the run that is to come
		if sum > mergeMost && places > mergeSome {
			break
		}
		if cost := float64(sum) / float64(places); places == 2 || places > 2 && cost <= least {
			from, least = i, cost
		}
	}
	return from
}

// compact says whether most of what the runs have is void, and all of them are to be made one.
func (p *Process) compact() bool {
	entries, void, bytes := 0, len(p.dead), uint64(0)
	for _, r := range p.runs {
		entries += r.entries
		void += r.void
		bytes += r.bytes
	}
	return void >= compactFrom && 2*void > entries && len(p.runs) > 0 && bytes <= mergeMost
}

// merge makes the runs from one on and what is new one.
func (p *Process) merge(from int, list []*patch.Patch) error {
	if err := p.do(); err != nil { // what is yet to be stored
		return err
	}
	var all []indexed
	for i := from; i < len(p.runs); {
		// Those that lie behind each other are read at once.
		end, next := p.runs[i].at, i
		for ; next < len(p.runs) && p.runs[next].in == p.runs[i].in && p.runs[next].at >= end; next++ {
			end = p.runs[next].at + p.runs[next].bytes
		}
		at := p.runs[i].at
		b := make([]byte, end-at)
		if err := p.read(at, b); err != nil {
			return err
		}
		for ; i < next; i++ {
			r, first := p.runs[i], len(all)
			var err error
			if all, err = decodeRun(all, b[r.at-at:][:r.bytes:r.bytes]); err != nil {
				return err
			}
			live := slices.DeleteFunc(all[first:], func(e indexed) bool {
				died, dead := p.dead[e.lo]
				return dead && i < died || e.lo == e.hi
			})
			all = all[:first+len(live)]
		}
	}
	all = append(all, entries(list)...)
	m, b, err := p.makeRun(all)
	if err != nil {
		return err
	}
	if err := p.write(m.at, b); err != nil {
		m.in.runs--
		return err
	}
	var ops []wire.PatchOp
	for slot := from; slot < len(p.runs); slot++ { // the new one first: what is in it is in the old ones too, and readers come from behind
		o := op(wire.PatchDoRun, 0, 0)
		if o.Arg = uint32(p.firstRun + slot); slot == from {
			o.Address = m.at
		}
		ops = append(ops, o)
	}
	if err := p.do(ops...); err != nil {
		return err // it may have been told of the new one, which stays for good
	}
	for _, r := range p.runs[from:] {
		r.in.runs--
	}
	p.runs = append(slices.Clone(p.runs[:from]), m)
	p.died(from)
	p.freeArenas()
	return nil
}

// died says that what is dead is so in the first runs only: those behind them are new, or no more.
func (p *Process) died(runs int) {
	for at, died := range p.dead {
		if died = min(died, runs); died == 0 {
			delete(p.dead, at)
		} else {
			p.dead[at] = died
		}
	}
}

// freeArenas gives back the memory of those in which no run is.
func (p *Process) freeArenas() {
	p.arenas = slices.DeleteFunc(p.arenas, func(a *arena) bool {
		if a.runs > 0 {
			return false
		}
		// A reader in a handler may keep it; then it stays for good.
		if p.do(op(wire.PatchDoUnmap, a.at, a.bytes)) == nil {
			p.tables -= a.bytes
		}
		return true
	})
}
