package analyze

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/sample"
)

// codeOf says whose code a module is, by its path; before glibc 2.34 files were named by their version.
func codeOf(path string) race.Code {
	switch base := filepath.Base(path); {
	case strings.HasPrefix(base, "libripstop"), strings.HasPrefix(base, "ld-linux"), strings.HasPrefix(base, "ld-2."):
		return race.Ignored
	case strings.HasPrefix(base, "libc.so"), strings.HasPrefix(base, "libc-2."), strings.HasPrefix(base, "libpthread"), strings.HasPrefix(base, "libgcc_s"), base == "[vdso]":
		return race.Runtime
	}
	return race.Program
}

// A collection is what recovery gave: records in found, and of each shard what says whether it must be recovered again.
type collection struct {
	counts  recover.Counts
	loose   uint64 // samples without a place that count as accesses
	stacks  *stacks
	found   *runs // two lists for each thread, which are made of those behind them: for each shard its path, samples without a place, and cells
	threads int
	parts   []part
	sampled bool                // watchpoints tell accesses
	atomics map[uint64]struct{} // cells of eight bytes (address / 8) that atomic instructions accessed, of any process
	crowded bool                // there are more than atomics holds
	watched watched
}

// A part is what is known of one shard.
type part struct {
	counts recover.Counts
	loose  uint64
	many   bool // any memory may have been believed
}

// lists gives the first of a shard's three lists.
func (c *collection) lists(shard int) int { return 2*c.threads + 3*shard }

// maxAtomics bounds collection.atomics.
const maxAtomics = 1 << 20

func newCollection(rec *sample.Recording, in *recover.Input) (*collection, error) {
	c := &collection{stacks: newStacks(), threads: len(rec.Threads), parts: make([]part, len(in.Shards))}
	var err error
	if c.found, err = newRuns(c.lists(len(in.Shards))); err != nil {
		return nil, err
	}
	c.found.rising, c.found.parts = true, 2*c.threads
	return c, nil
}

// collect recovers the accesses of some shards, ascending, and takes those of the others as they are.
func (c *collection) collect(ctx context.Context, rec *sample.Recording, in *recover.Input, o recover.Options, jobs int, which []int) error {
	slack := o.Slack
	if slack == 0 {
		slack = recover.DefaultSlack
	}
	w := &collector{collection: c, out: c.found, slack: slack}
	shards := make([]*recover.Shard, len(which))
	for i, n := range which {
		shards[i] = in.Shards[n]
	}
	next, last := 0, -1
	if _, err := recover.Run(ctx, in.Images, shards, o, jobs, func(r *recover.Result) error {
		n := which[next]
		next++
		if r.Shard.Thread != last {
			w.base = 0
		}
		last = r.Shard.Thread
		return w.result(r, n, n == 0 || in.Shards[n-1].Thread != last)
	}); err != nil {
		return err
	}
	c.counts, c.loose = recover.Counts{}, 0
	c.atomics, c.crowded = map[uint64]struct{}{}, false
	paths, loose := make([][]int, c.threads), make([][]int, c.threads)
	for n, s := range in.Shards {
		c.counts.Add(&c.parts[n].counts)
		c.loose += c.parts[n].loose
		at := c.lists(n)
		paths[s.Thread], loose[s.Thread] = append(paths[s.Thread], at), append(loose[s.Thread], at+1)
		if err := c.found.each(at+2, func(r *record) {
			switch {
			case r.What != isAtomicCell:
			case len(c.atomics) >= maxAtomics:
				c.crowded = true
			default:
				c.atomics[r.Addr] = struct{}{}
			}
		}); err != nil {
			return err
		}
	}
	for i := range c.threads {
		c.found.join(2*i, paths[i]...)
		c.found.join(2*i+1, loose[i]...)
	}
	c.watched, c.sampled = watched{}, false
	if err := c.watched.collect(rec, in, w); err != nil {
		return err
	}
	return c.found.finish()
}

// believing gives the shards that believed memory of one of some cells, and which of these were believed at all.
func (c *collection) believing(cells map[uint64]bool) (which []int, believed map[uint64]bool, err error) {
	believed = map[uint64]bool{}
	for n := range c.parts {
		found := c.parts[n].many
		if err := c.found.each(c.lists(n)+2, func(r *record) {
			if r.What == isBelieved && cells[r.Addr] {
				found, believed[r.Addr] = true, true
			}
		}); err != nil {
			return nil, nil, err
		}
		if c.parts[n].many {
			believed = cells
		}
		if found {
			which = append(which, n)
		}
	}
	return which, believed, nil
}

type collector struct {
	*collection
	out   *runs
	slack uint64
	base  uint64          // index of the shard's first instruction
	shard int             // the first of its lists
	cells map[uint64]bool // of the shard's atomic instructions
}

// add writes a record of a list with its times made safe.
func (w *collector) add(list int, r *record) error {
	r.From -= min(r.From, w.slack)
	r.To += min(forever-r.To, w.slack)
	return w.out.add(list, r)
}

// result writes the records of shard n in the order of its path, in place of those it had; first says that its thread begins with it.
func (w *collector) result(r *recover.Result, n int, first bool) error {
	p := &w.parts[n]
	*p = part{counts: r.Counts, many: r.Many}
	w.shard, w.cells = w.lists(n), map[uint64]bool{}
	for k := range 3 {
		w.out.lists[w.shard+k].chunks = nil
	}
	if err := w.shardOf(r, p, first); err != nil {
		return err
	}
	for _, cell := range r.Believed {
		if err := w.out.add(w.shard+2, &record{What: isBelieved, Addr: cell}); err != nil {
			return err
		}
	}
	for _, cell := range slices.Sorted(maps.Keys(w.cells)) {
		if err := w.out.add(w.shard+2, &record{What: isAtomicCell, Addr: cell}); err != nil {
			return err
		}
	}
	for k := range 3 {
		if err := w.out.done(w.shard + k); err != nil {
			return err
		}
	}
	return nil
}

func (w *collector) shardOf(r *recover.Result, p *part, first bool) error {
	w.stacks.begin(r.Calls)
	outs, gaps, lost, atomics, accesses := r.Outs, r.Gaps, r.Lost, r.Atomics, r.Accesses
	for {
		// The next on the path. What is before an instruction comes first.
		which, next := -1, uint64(forever)
		see := func(i int, have bool, index func() uint64) {
			if have && index() < next {
				which, next = i, index()
			}
		}
		see(0, len(outs) > 0, func() uint64 { return outs[0].Index })
		see(1, len(gaps) > 0, func() uint64 { return gaps[0] })
		see(2, len(atomics) > 0, func() uint64 { return atomics[0].Index })
		see(3, len(accesses) > 0, func() uint64 { return accesses[0].Index - w.base })
		var rec record
		switch which {
		case -1:
			w.base += r.Counts.Instructions
			return w.loosen(r, p)
		case 0:
			rec = record{From: outs[0].From, To: outs[0].To, What: isOut}
			outs = outs[1:]
		case 1:
			g := lost[0]
			gaps, lost = gaps[1:], lost[1:]
			if next == 0 && first { // the thread began in code that is not traced
				continue
			}
			rec = record{From: g.Start, To: g.End, What: isOrder, Kind: race.Fence | race.Order}
		case 2:
			rec = accessOf(&atomics[0])
			rec.What = isOrder
			w.atomic(&rec)
			if rec.Kind |= race.Order; rec.Kind&race.Locked == 0 {
				rec.Kind |= race.Fence
			}
			atomics = atomics[1:]
		case 3:
			a := &accesses[0]
			accesses = accesses[1:]
			if a.Flags&(recover.Stack|recover.Locked) != 0 {
				continue
			}
			rec = accessOf(a)
			rec.Stack = w.stacks.of(a)
		}
		if err := w.add(w.shard, &rec); err != nil {
			return err
		}
	}
}

// atomic notes the location of an atomic instruction.
func (w *collector) atomic(r *record) {
	if r.Size == 0 || r.Size > 64 {
		return
	}
	for cell := r.Addr / 8; cell <= (r.Addr+r.Size-1)/8; cell++ {
		w.cells[cell] = true
	}
}

// isAtomic says whether an access is to a location that atomic instructions accessed too.
func (c *collection) isAtomic(r *record) bool {
	if r.Size == 0 || len(c.atomics) == 0 {
		return false
	}
	first, last := r.Addr/8, (r.Addr+r.Size-1)/8
	if last-first > uint64(len(c.atomics)) { // a copy of much
		for cell := range c.atomics {
			if cell >= first && cell <= last {
				return true
			}
		}
		return false
	}
	for cell := first; cell <= last; cell++ {
		if _, ok := c.atomics[cell]; ok {
			return true
		}
	}
	return false
}

// loosen writes the samples that have no place on the path.
func (w *collector) loosen(r *recover.Result, p *part) error {
	for i := range r.Loose {
		rec := accessOf(&r.Loose[i])
		if err := w.add(w.shard+1, &rec); err != nil {
			return err
		}
		p.loose++
	}
	return nil
}

func accessOf(a *recover.Access) record {
	r := record{From: a.From, To: a.To, Addr: a.Addr, Size: a.Size, PC: a.IP, How: a.How}
	for _, f := range []struct {
		flag recover.Flags
		kind race.Kind
	}{{recover.Read, race.Read}, {recover.Write, race.Write}, {recover.Locked, race.Locked}} {
		if a.Flags&f.flag != 0 {
			r.Kind |= f.kind
		}
	}
	return r
}
