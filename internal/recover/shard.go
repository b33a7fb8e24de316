package recover

import (
	"context"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// A Reach says how far from samples accesses are recovered.
type Reach uint8

// The reaches. All but Both are there to be compared with.
const (
	Both        Reach = iota // forwards and backwards
	ForwardOnly              // forwards
	Block                    // within the basic block of a sample, as RaceZ did
)

// Options say how accesses are recovered.
type Options struct {
	Reach  Reach
	Memory Memory
	// Drop is addresses whose memory is not believed while other threads live: those that threads race on. Results that do not have them among Believed, nor are Many,
	// are the same without.
	Drop  []Range
	Slack uint64 // TSC ticks by which the times of samples and packets may be wrong; 0: DefaultSlack
	Path  bool   // give the instructions as well
}

// DefaultSlack allows for the rounding of perf's nanoseconds and of crystal ticks.
const DefaultSlack = 1000

// A Shard is a piece of a thread's trace with what is needed to recover its accesses. It is made by Shards and is not changed.
type Shard struct {
	Thread   int // of Input
	Trace    []byte
	Config   pt.Config
	Segments []pt.Segment
	First    int // the shard's own segments are those from First up to Behind; the others are there to learn from
	Behind   int
	Image    int    // of Input
	Until    uint64 // TSC from which on other code is mapped; 0: never
	Start    uint64 // TSC of the first segment's PSB
	OwnStart uint64 // TSC of the PSB of its own segments, and of the PSB behind them; as Start and End
	OwnEnd   uint64
	End      uint64          // TSC of the PSB behind the last segment; the largest number: the trace ends with it
	Samples  []sample.Sample // of the thread, as many as may belong to the segments, in the order of time
	Alone    []Range         // TSCs at which the recording has no other thread
	Filtered bool            // tracing is off in some code
	FS       uint64          // base of fs, with HasFS
	HasFS    bool
}

// A Result is what a shard's instructions accessed, as far as it is known, in order.
type Result struct {
	Shard    *Shard
	Accesses []Access // Index counts from the shard's first own instruction
	Path     []uint64 // with Options.Path: the addresses of the shard's own instructions
	Gaps     []uint64 // indexes before which the trace lost what ran, counted likewise; at the beginning of a thread there is one
	Lost     []Range  // the times in which what Gaps lack may have run
	Atomics  []Access // the locked instructions and fences, all of them: Size is 0 and How Unknown where the address is not known; of a fence it is that of the store just before
	Loose    []Access // samples that are not placed, but tell an access by an instruction of the program's own code that the path has: From and To are the sample's time, there is no Index
	Calls    []Call   // what Access.Calls means; the first is none
	Outs     []Out    // when the thread was outside of the program's own code; in the order of Index
	Believed []uint64 // cells of eight bytes (address / 8) that were written and then read in the replay while other threads lived; ascending
	Many     bool     // there were more of Believed than are told
	Counts   Counts
}

// An Out is a time that a thread spent outside of the program's own code: in what is not traced, in an Image's Outside, in the kernel. What it did by calls
// of libraries falls into one of them.
type Out struct {
	Index    uint64 // of the first instruction behind it; as in Access
	From, To uint64 // it began not before the TSC From and ended not after To
}

// A Call is a call that has not returned: what it returns to, and the call before it. Those from before the shard, and from code that is not the program's own, are not known.
type Call struct {
	Return uint64
	Outer  uint32 // in Result.Calls; 0: none that is known
}

// A Recoverer recovers shards, one after the other. It belongs to one goroutine.
type Recoverer struct {
	opt    Options
	images []Image
	codes  []*code
	drops  [][]Range // of each image, what is never believed
	r      replay
	p      pather
}

// An Image is code and the read-only memory that belongs to it.
type Image struct {
	pt.Image
	Constants []Constant
	Volatile  []Range // memory that the kernel changes by itself: vvar
	Mappings  []sample.Mapping
	Outside   []Range              // code that is not the program's own: its accesses are used, and not given
	Functions map[uint64]*Function // by address; what they access for the program's own code is given if they are Outside
}

// NewRecoverer gives a Recoverer for shards of these images.
func NewRecoverer(images []Image, o Options) *Recoverer {
	if o.Slack == 0 {
		o.Slack = DefaultSlack
	}
	v := &Recoverer{opt: o, images: images, codes: make([]*code, len(images))}
	for i := range images {
		v.drops = append(v.drops, sortRanges(slices.Clone(images[i].Volatile)))
	}
	v.r.opt, v.r.mem = &v.opt, newMemory(&v.opt)
	v.r.e.Mem = v.r.mem
	v.r.every = standEvery
	return v
}

// Recover recovers a shard. The result is the caller's.
func (v *Recoverer) Recover(s *Shard) *Result {
	c := v.codes[s.Image]
	if c == nil {
		c = newCode(&v.images[s.Image])
		v.codes[s.Image] = c
	}
	c.trim()
	r := &v.r
	r.shard, r.code, r.alone, r.counts = s, c, s.Alone, Counts{}
	r.mem.drop = v.drops[s.Image]
	clear(r.mem.used)
	r.mem.sparse.Reset()
	r.path = v.p.decode(s, c)
	r.run()
	return r.result()
}

// result collects what is known of the shard's own instructions.
func (r *replay) result() *Result {
	p := r.path
	out := &Result{Shard: r.shard, Counts: r.counts}
	for i, at := range p.gaps {
		if at >= p.own[0] && at < max(p.own[1], p.own[0]+1) {
			out.Gaps, out.Lost = append(out.Gaps, uint64(at-p.own[0])), append(out.Lost, p.lost[i])
		}
	}
	out.Believed, out.Many = r.mem.believes()
	out.Counts.Gaps = uint64(len(out.Gaps))
	for i := range r.shard.Samples {
		if s := &r.shard.Samples[i]; isMemory(s) && s.TSC >= r.shard.OwnStart && s.TSC < r.shard.OwnEnd {
			out.Counts.Samples++
		}
	}
	out.Counts.Placed = uint64(r.firstPlaced(p.own[1]) - r.firstPlaced(p.own[0]))
	out.Loose = r.loose()
	mark := p.at(p.own[0])
	known := 0
	for _, h := range r.how[r.first[p.own[0]]:r.first[p.own[1]]] {
		if h != Unknown {
			known++
		}
	}
	out.Accesses = make([]Access, 0, known)
	went := outing{p: p, out: out}
	calls, gap, call := newCalling(), 0, 0
	const fenceReach = 4 // instructions between a store and the fence that makes it sequentially consistent
	var stored Access    // the last store
	for i := p.own[0]; i < p.own[1]; i++ {
		for mark+1 < len(p.marks) && p.marks[mark+1].pos <= i {
			mark++
		}
		in := &r.code.insts[p.list[i]]
		out.Counts.Instructions++
		if r.opt.Path {
			out.Path = append(out.Path, in.pc)
		}
		outside := in.traits&isOutside != 0
		went.at(i, mark, outside)
		for ; gap < len(p.gaps) && p.gaps[gap] <= i; gap++ {
			calls.lost()
		}
		if !outside {
			calls.at(in)
		}
		for ; call < len(r.calls) && r.calls[call].entry <= i; call++ {
			if c := &r.calls[call]; c.entry == i {
				r.callAccesses(c, &calls, out)
			}
		}
		a := Access{Index: uint64(i - p.own[0]), IP: in.pc, Calls: calls.now, From: p.marks[mark].from, To: p.marks[mark].to}
		if in.traits&isLocked != 0 && in.nslots == 0 && !outside {
			f := a
			if stored.How != Unknown && stored.Index >= a.Index-min(a.Index, fenceReach) {
				f.Addr, f.Size, f.How = stored.Addr, stored.Size, stored.How
			}
			out.Atomics = append(out.Atomics, f)
		}
		for k := range in.slots[:in.nslots] {
			j := r.first[i] + int32(k)
			out.Counts.Accesses++
			out.Counts.By[r.how[j]]++
			if outside {
				continue
			}
			a.Addr, a.Size, a.Flags, a.How = r.addrs[j], r.sizes[j], in.slots[k].flags, r.how[j]
			if a.How != Unknown {
				out.Accesses = append(out.Accesses, a)
			}
			if a.Flags&(Write|Stack) == Write {
				stored = a
			}
			if in.traits&isLocked != 0 && a.Flags&Locked != 0 {
				out.Atomics = append(out.Atomics, a)
			}
		}
	}
	went.end(p.own[1], r.shard)
	out.Calls = calls.all
	return out
}

// loose gives Result.Loose.
func (r *replay) loose() (all []Access) {
	placed := make(map[*sample.Sample]bool, len(r.placed))
	for _, p := range r.placed {
		placed[p.Sample] = true
	}
	met := r.met[:0]
	for i := range r.shard.Samples {
		s := &r.shard.Samples[i]
		if !isMemory(s) || s.TSC < r.shard.OwnStart || s.TSC >= r.shard.OwnEnd || placed[s] {
			continue
		}
		n, ok := r.code.index[s.IP] // the path has met it, or it does not count
		if len(met) == 0 && ok {
			met = resize(met, len(r.code.insts))
			for _, x := range r.path.list {
				met[x] = true
			}
			r.met = met
		}
		if !ok || !met[n] { // else the atomics around it are not known either
			continue
		}
		in := &r.code.insts[n]
		if k := sampledSlot(in, s); k >= 0 && in.traits&(isOutside|isLocked) == 0 {
			all = append(all, Access{IP: s.IP, Addr: s.Addr, Size: uint64(in.slots[k].size), From: s.TSC, To: s.TSC, Flags: in.slots[k].flags, How: Sampled})
		}
	}
	return all
}

// Run recovers shards with so many goroutines and gives the results to emit, in the order of the shards and never two at a time. Indexes of accesses count from
// the first instruction of their thread. No more than four results a goroutine wait. It ends early with emit's error or the context's.
func Run(ctx context.Context, images []Image, shards []*Shard, o Options, workers int, emit func(*Result) error) (total Counts, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	workers = max(workers, 1)
	done := make([]chan *Result, len(shards))
	for i := range done {
		done[i] = make(chan *Result, 1)
	}
	room := make(chan struct{}, 4*workers)
	work := make(chan int)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop() // before the wait
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(work)
		for i := range shards {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			select {
			case work <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	for range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			v := NewRecoverer(images, o)
			for i := range work {
				done[i] <- v.Recover(shards[i])
			}
		}()
	}
	base := map[int]uint64{}
	for i, s := range shards {
		select {
		case r := <-done[i]:
			<-room
			for k := range r.Accesses {
				r.Accesses[k].Index += base[s.Thread]
			}
			base[s.Thread] += r.Counts.Instructions
			total.Add(&r.Counts)
			if err := emit(r); err != nil {
				return total, err
			}
		case <-ctx.Done():
			return total, ctx.Err()
		}
	}
	return total, nil
}
