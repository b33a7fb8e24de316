package analyze

import (
	"context"
	"path/filepath"
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

// A collection is what recovery gave.
type collection struct {
	counts   recover.Counts
	loose    uint64              // samples without a place that count as accesses
	believed map[uint64]struct{} // as recover.Result.Believed, of all
	stacks   *stacks
	all      bool                // there were too many: any memory may have been believed
	sampled  bool                // watchpoints tell accesses
	atomics  map[uint64]struct{} // cells of eight bytes (address / 8) that atomic instructions accessed, of any process
	crowded  bool                // there are more than atomics holds
	watched  watched
}

// maxBelieved bounds collection.believed.
const maxBelieved = 1 << 20

// collect recovers accesses and writes what was done to runs, which have two lists for each thread.
func collect(ctx context.Context, rec *sample.Recording, in *recover.Input, o recover.Options, jobs int, out *runs) (*collection, error) {
	c := &collection{stacks: newStacks(), believed: map[uint64]struct{}{}, atomics: map[uint64]struct{}{}}
	slack := o.Slack
	if slack == 0 {
		slack = recover.DefaultSlack
	}
	w := &collector{collection: c, out: out, slack: slack, latest: make([]uint64, 2*len(rec.Threads))}
	last := -1
	var err error
	c.counts, err = recover.Run(ctx, in.Images, in.Shards, o, jobs, func(r *recover.Result) error {
		first := r.Shard.Thread != last
		if first && last >= 0 {
			if err := w.done(last); err != nil {
				return err
			}
		}
		last = r.Shard.Thread
		return w.result(r, first)
	})
	if err != nil {
		return nil, err
	}
	if err := c.watched.collect(rec, in, w); err != nil {
		return nil, err
	}
	return c, out.finish()
}

type collector struct {
	*collection
	out    *runs
	slack  uint64
	latest []uint64 // of each list, its latest From
	base   uint64   // index of the shard's first instruction
}

func (w *collector) done(thread int) error {
	if err := w.out.done(2 * thread); err != nil {
		return err
	}
	return w.out.done(2*thread + 1)
}

// add writes a record of a list with its times made safe.
func (w *collector) add(list int, r *record) error {
	r.From -= min(r.From, w.slack)
	r.To += min(forever-r.To, w.slack)
	at := &w.latest[list] // what comes later on the path was not earlier; samples are in the order of time
	*at = max(*at, r.From)
	r.From = *at
	r.To = max(r.To, r.From)
	return w.out.add(list, r)
}

// result writes a shard's records in the order of its path.
func (w *collector) result(r *recover.Result, first bool) error {
	for _, cell := range r.Believed {
		if len(w.believed) < maxBelieved {
			w.believed[cell] = struct{}{}
		}
	}
	w.all = w.all || r.Many || len(w.believed) >= maxBelieved
	if first {
		w.base = 0
	}
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
			return w.loosen(r)
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
		if err := w.add(2*r.Shard.Thread, &rec); err != nil {
			return err
		}
	}
}

// atomic notes the location of an atomic instruction.
func (w *collector) atomic(r *record) {
	if r.Size == 0 || r.Size > 64 {
		return
	}
	if len(w.atomics) >= maxBelieved {
		w.crowded = true
		return
	}
	for cell := r.Addr / 8; cell <= (r.Addr+r.Size-1)/8; cell++ {
		w.atomics[cell] = struct{}{}
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
func (w *collector) loosen(r *recover.Result) error {
	for i := range r.Loose {
		rec := accessOf(&r.Loose[i])
		if err := w.add(2*r.Shard.Thread+1, &rec); err != nil {
			return err
		}
		w.loose++
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
