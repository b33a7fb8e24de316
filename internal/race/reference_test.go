package race

import (
	"fmt"
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// The reference: a graph of events and accesses with an edge for each release that an acquire follows, all that comes before each by transitive closure, and
// of every byte all accesses of its life. Nothing of it is fast, and it shares nothing with the detector but the reading of the events.

type nodes []uint64 // a set

func (s nodes) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s nodes) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s nodes) union(o nodes) {
	for i := range o {
		s[i] |= o[i]
	}
}

type byteLife struct {
	addr uint64
	life int
}

type touch struct {
	item   int
	write  bool
	atomic bool
}

type reference struct {
	items    []item
	suspects []Suspect

	before  []nodes // of each item: what comes before it
	last    map[uint32]int
	pending map[uint32][]int // acquired with the thread's next item
	given   map[string][]int
	phases  map[uint64][2]int // of a barrier: phase, arrivals
	arrived map[uint32]string
	counts  map[uint64]int

	life    map[uint64]int
	blocks  map[uint64]*refBlock
	parent  map[byteLife]byteLife // union of atomic bytes
	history map[uint64][]touch

	races map[string]map[uint64]bool // key → bytes
	first map[byteLife]int           // the item that is the second of the first race of a byte
}

type refBlock struct {
	addr, size uint64
	freed      bool
	free       int // item
}

func newReference(items []item, suspects []Suspect) *reference {
	r := &reference{items: items, suspects: suspects, parent: map[byteLife]byteLife{}}
	r.walk(true)
	r.walk(false)
	return r
}

func (r *reference) root(b byteLife) byteLife {
	for r.parent[b] != b {
		b = r.parent[b]
	}
	return b
}

func (r *reference) unite(addr, size uint64) {
	at := func(i uint64) byteLife { return byteLife{addr + i, r.life[addr+i]} }
	for i := range size {
		if _, ok := r.parent[at(i)]; !ok {
			r.parent[at(i)] = at(i)
		}
		r.parent[r.root(at(i))] = r.root(at(0))
	}
}

func (r *reference) reset(addr, size uint64) {
	for i := range size {
		r.life[addr+i]++
		delete(r.history, addr+i)
	}
}

// walk goes over the items: first for the atomic bytes alone, then for the races.
func (r *reference) walk(learning bool) {
	r.before, r.last, r.pending = make([]nodes, len(r.items)), map[uint32]int{}, map[uint32][]int{}
	r.given, r.phases, r.arrived, r.counts = map[string][]int{}, map[uint64][2]int{}, map[uint32]string{}, map[uint64]int{}
	r.life, r.blocks, r.history = map[uint64]int{}, map[uint64]*refBlock{}, map[uint64][]touch{}
	r.races, r.first = map[string]map[uint64]bool{}, map[byteLife]int{}
	stores := map[uint32]*Access{}
	for i := range r.items {
		it := &r.items[i]
		if it.event != nil {
			delete(stores, it.event.Thread)
			take, give := r.tokens(i, it.event)
			if learning {
				take, give = nil, nil
			}
			r.enter(i, it.event.Thread, take)
			r.memory(i, it.event, learning)
			r.give(i, give)
		} else {
			a := &it.access
			if learning {
				if s := stores[a.Thread]; a.Kind == Fence && s != nil {
					r.unite(s.Addr, s.Size)
				}
				delete(stores, a.Thread)
				if a.Kind == Write && a.movLike() {
					stores[a.Thread] = a
				}
				if a.Kind&Locked != 0 {
					r.unite(a.Addr, a.Size)
				}
			} else {
				r.access(i, a)
			}
		}
		for _, s := range r.suspects {
			if learning && s.Seq == uint64(i)+1 {
				r.unite(s.Addr, s.Size)
			}
		}
	}
}

// enter makes item i follow the thread's last one, and all that gave what it takes.
func (r *reference) enter(i int, thread uint32, take []string) {
	set := make(nodes, (len(r.items)+63)/64)
	follow := func(j int) {
		set.add(j)
		set.union(r.before[j])
	}
	if j, ok := r.last[thread]; ok {
		follow(j)
	}
	for _, j := range r.pending[thread] {
		follow(j)
	}
	delete(r.pending, thread)
	for _, k := range take {
		for _, j := range r.given[k] {
			follow(j)
		}
	}
	r.before[i] = set
	r.last[thread] = i
}

func (r *reference) give(i int, tokens []string) {
	for _, k := range tokens {
		r.given[k] = append(r.given[k], i)
	}
}

func one(s string, v ...any) []string { return []string{fmt.Sprintf(s, v...)} }

// tokens says what an event takes and gives.
func (r *reference) tokens(i int, e *wire.Event) (take, give []string) {
	w := e.Words
	switch e.Type {
	case wire.TypeThreadCreate:
		return nil, one("create %d", wire.DecodeThreadCreate(w).Child)
	case wire.TypeThreadStart:
		return one("create %d", e.Thread), nil
	case wire.TypeThreadExit:
		return nil, one("exit %d", e.Thread)
	case wire.TypeThreadJoin:
		return one("exit %d", wire.DecodeThreadJoin(w).Target), nil
	case wire.TypeThreadCancel:
		t := wire.DecodeThreadCancel(w).Target
		r.pending[t] = append(r.pending[t], i)
	case wire.TypeAcquire:
		ev := wire.DecodeAcquire(w)
		if take = one("writer %x", ev.Obj); ev.Mode == wire.ModeExclusive {
			take = append(take, one("reader %x", ev.Obj)...)
		}
	case wire.TypeRelease:
		if ev := wire.DecodeRelease(w); ev.Mode == wire.ModeExclusive {
			return nil, one("writer %x", ev.Obj)
		} else {
			return nil, one("reader %x", ev.Obj)
		}
	case wire.TypeInit:
		ev := wire.DecodeInit(w)
		for _, k := range []string{"writer %x", "reader %x", "cond %x", "sem %x", "once %x"} {
			delete(r.given, fmt.Sprintf(k, ev.Obj))
		}
		r.counts[ev.Obj] = int(ev.Value)
		r.phases[ev.Obj] = [2]int{r.phases[ev.Obj][0] + 1, 0}
	case wire.TypeCondSignal:
		return nil, one("cond %x", wire.DecodeCondSignal(w).Cond)
	case wire.TypeCondWoken:
		return one("cond %x", wire.DecodeCondWoken(w).Cond), nil
	case wire.TypeBarrierArrive:
		ev := wire.DecodeBarrierArrive(w)
		p := r.phases[ev.Obj]
		if p[1] == r.counts[ev.Obj] {
			p = [2]int{p[0] + 1, 0}
		}
		p[1]++
		r.phases[ev.Obj] = p
		give = one("phase %x %d", ev.Obj, p[0])
		r.arrived[e.Thread] = give[0]
	case wire.TypeBarrierLeave:
		return []string{r.arrived[e.Thread]}, nil
	case wire.TypeSemPost:
		return nil, one("sem %x", wire.DecodeSemPost(w).Obj)
	case wire.TypeSemWait:
		return one("sem %x", wire.DecodeSemWait(w).Obj), nil
	case wire.TypeOnceEnd:
		return nil, one("once %x", wire.DecodeOnceEnd(w).Obj)
	case wire.TypeOnceSeen:
		return one("once %x", wire.DecodeOnceSeen(w).Obj), nil
	case wire.TypeChannelRelease:
		return nil, one("channel %x", wire.DecodeChannelRelease(w).Channel)
	case wire.TypeChannelAcquire:
		return one("channel %x", wire.DecodeChannelAcquire(w).Channel), nil
	case wire.TypeFutexWake:
		return nil, one("futex %x", wire.DecodeFutexWake(w).Obj)
	case wire.TypeFutexWait:
		return one("futex %x", wire.DecodeFutexWait(w).Obj), nil
	case wire.TypeSignalSend:
		ev := wire.DecodeSignalSend(w)
		return nil, one("signal %d %d", ev.Target, ev.Sig)
	case wire.TypeSignalEnter:
		return one("signal %d %d", e.Thread, wire.DecodeSignalEnter(w).Sig), nil
	}
	return take, give
}

func (r *reference) memory(i int, e *wire.Event, learning bool) {
	switch e.Type {
	case wire.TypeAlloc:
		ev := wire.DecodeAlloc(e.Words)
		for a, b := range r.blocks {
			if b.addr < ev.Addr+ev.Size && ev.Addr < b.addr+b.size {
				delete(r.blocks, a)
			}
		}
		r.reset(ev.Addr, ev.Size)
		r.blocks[ev.Addr] = &refBlock{addr: ev.Addr, size: ev.Size}
	case wire.TypeFree:
		b := r.blocks[wire.DecodeFree(e.Words).Addr]
		for a := b.addr; a < b.addr+b.size && !learning; a++ {
			for _, h := range r.history[a] {
				if !r.before[i].has(h.item) {
					r.race(fmt.Sprintf("1 free %x S%d", r.items[h.item].access.PC, i+1), a, i)
				}
			}
		}
		r.reset(b.addr, b.size)
		b.freed, b.free = true, i
	}
}

func (r *reference) race(key string, addr uint64, i int) {
	if r.races[key] == nil {
		r.races[key] = map[uint64]bool{}
	}
	r.races[key][addr] = true
	if b := (byteLife{addr, r.life[addr]}); r.first[b] == 0 {
		r.first[b] = i
	}
}

func (r *reference) access(i int, a *Access) {
	atomicAt := func(addr uint64) (string, bool) {
		b := byteLife{addr, r.life[addr]}
		if _, ok := r.parent[b]; !ok || a.Kind&Locked == 0 && !a.movLike() {
			return "", false
		}
		return fmt.Sprint("atomic ", r.root(b)), true
	}
	var tokens []string
	for n := range a.Size {
		if k, ok := atomicAt(a.Addr + n); ok && !slices.Contains(tokens, k) {
			tokens = append(tokens, k)
		}
	}
	take, give := tokens, tokens
	if a.Kind&Read == 0 {
		take = nil
	}
	if a.Kind&Write == 0 {
		give = nil
	}
	r.enter(i, a.Thread, take)
	if a.Kind != Fence {
		for addr := a.Addr; addr < a.Addr+a.Size; addr++ {
			r.accessByte(i, a, addr, atomicAt)
		}
	}
	r.give(i, give)
}

func (r *reference) accessByte(i int, a *Access, addr uint64, atomicAt func(uint64) (string, bool)) {
	for _, b := range r.blocks {
		if b.freed && b.addr <= addr && addr < b.addr+b.size {
			r.races[fmt.Sprintf("1 freed %x S%d", a.PC, b.free+1)] = map[uint64]bool{}
			return
		}
	}
	_, atomic := atomicAt(addr)
	now := touch{i, a.Kind&Write != 0, atomic}
	for _, h := range r.history[addr] {
		if (h.write || now.write) && !(h.atomic && atomic) && !r.before[i].has(h.item) {
			r.race(pairKey(1, "race", a.PC, r.items[h.item].access.PC), addr, i)
		}
	}
	r.history[addr] = append(r.history[addr], now)
}
