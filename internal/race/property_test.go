package race

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// program makes random recordings that a program could have made.
type program struct {
	r      *rand.Rand
	items  []item
	alive  []uint32
	next   uint32
	ended  []uint32
	locks  map[uint64]uint32 // mutex → holder
	reads  map[uint64][]uint32
	inside map[uint32]uint64 // thread → barrier it arrived at
	blocks []span
	freed  []span
	atomic bool
}

func (p *program) event(thread uint32, ev interface {
	Append(dst []uint64, ts uint64) []uint64
}) {
	w := ev.Append(nil, 0)
	p.items = append(p.items, item{process: 1, event: &wire.Event{Type: wire.Type(w[0]), Thread: thread, Words: w}})
}

// Blocks and variables lie around borders of cells, pages and shards.
var places = []uint64{0x1fff0, 0x2fff8, 0x30ff8, 0x40000}

func (p *program) span() span {
	if len(p.blocks) > 0 && p.r.IntN(2) == 0 {
		return p.blocks[p.r.IntN(len(p.blocks))]
	}
	if len(p.freed) > 0 && p.r.IntN(40) == 0 {
		return p.freed[p.r.IntN(len(p.freed))]
	}
	at := places[p.r.IntN(len(places))]
	return span{at, at + 24}
}

func (p *program) access(t uint32) {
	s := p.span()
	a := Access{Process: 1, Thread: t, PC: uint64(len(p.items)) + 1<<20}
	a.Size = []uint64{1, 2, 3, 4, 4, 4, 8, 8, 16, 23}[p.r.IntN(10)]
	a.Size = min(a.Size, s.hi-s.lo)
	a.Addr = s.lo + p.r.Uint64N(s.hi-s.lo-a.Size+1)
	if p.r.IntN(3) > 0 {
		a.Addr -= a.Addr % 4
		a.Addr = max(a.Addr, s.lo)
	}
	a.Kind = []Kind{Read, Read, Write, Write, Read | Write}[p.r.IntN(5)]
	isFreed := false
	for _, f := range p.freed {
		isFreed = isFreed || f == s
	}
	switch {
	case p.atomic && p.r.IntN(4) == 0 && a.Size <= 8 && !isFreed:
		a.Kind |= Locked
	case p.atomic && p.r.IntN(30) == 0:
		a = Access{Process: 1, Thread: t, Kind: Fence, PC: a.PC}
	case p.r.IntN(12) == 0:
		a.Kind |= Called
	}
	p.items = append(p.items, item{process: 1, access: a})
}

func (p *program) alloc(t uint32) {
	size := 1 + p.r.Uint64N(30)
	addr := 0x50000 + 8*p.r.Uint64N(12)
	for _, b := range p.blocks {
		if b.lo < addr+size && addr < b.hi {
			return
		}
	}
	for i := 0; i < len(p.freed); i++ {
		if f := p.freed[i]; f.lo < addr+size && addr < f.hi {
			p.freed = append(p.freed[:i], p.freed[i+1:]...)
			i--
		}
	}
	p.event(t, wire.EvAlloc{Addr: addr, Size: size})
	p.blocks = append(p.blocks, span{addr, addr + size})
}

func (p *program) sync(t uint32) {
	obj := uint64(0xa00 + 0x100*p.r.IntN(3))
	switch p.r.IntN(15) {
	case 0, 1:
		if p.locks[obj] == 0 && len(p.reads[obj]) == 0 {
			p.locks[obj] = t
			p.event(t, wire.EvAcquire{Obj: obj, Kind: wire.ObjectRwlock})
		}
	case 2, 3:
		if p.locks[obj] == t {
			p.locks[obj] = 0
			p.event(t, wire.EvRelease{Obj: obj, Kind: wire.ObjectRwlock})
		}
	case 4:
		if p.locks[obj] == 0 {
			p.reads[obj] = append(p.reads[obj], t)
			p.event(t, wire.EvAcquire{Obj: obj, Kind: wire.ObjectRwlock, Mode: wire.ModeShared})
		}
	case 5:
		for i, o := range p.reads[obj] {
			if o == t {
				p.reads[obj] = append(p.reads[obj][:i], p.reads[obj][i+1:]...)
				p.event(t, wire.EvRelease{Obj: obj, Kind: wire.ObjectRwlock, Mode: wire.ModeShared})
				break
			}
		}
	case 6:
		p.event(t, wire.EvSemPost{Obj: obj + 0x1000})
	case 7:
		p.event(t, wire.EvSemWait{Obj: obj + 0x1000})
	case 8:
		if p.r.IntN(2) == 0 {
			p.event(t, wire.EvCondSignal{Cond: obj + 0x2000})
		} else {
			p.event(t, wire.EvCondWoken{Cond: obj + 0x2000})
		}
	case 9:
		if p.r.IntN(2) == 0 {
			p.event(t, wire.EvChannelRelease{Channel: obj})
		} else {
			p.event(t, wire.EvChannelAcquire{Channel: obj})
		}
	case 10:
		if p.r.IntN(2) == 0 {
			p.event(t, wire.EvFutexWake{Obj: obj})
		} else {
			p.event(t, wire.EvFutexWait{Obj: obj})
		}
	case 11:
		if p.r.IntN(2) == 0 {
			p.event(t, wire.EvSignalSend{Sig: 10, Target: p.alive[p.r.IntN(len(p.alive))]})
		} else {
			p.event(t, wire.EvSignalEnter{Sig: 10, Code: siTkill})
		}
	case 12:
		if p.r.IntN(2) == 0 {
			p.event(t, wire.EvOnceEnd{Obj: obj + 0x3000, Kind: wire.ObjectOnce, Done: 1})
		} else {
			p.event(t, wire.EvOnceSeen{Obj: obj + 0x3000, Kind: wire.ObjectOnce})
		}
	case 13:
		if p.inside[t] == 0 {
			p.inside[t] = 0x7000
			p.event(t, wire.EvBarrierArrive{Obj: 0x7000, Count: 2})
		} else {
			delete(p.inside, t)
			p.event(t, wire.EvBarrierLeave{Obj: 0x7000})
		}
	case 14:
		if o := p.alive[p.r.IntN(len(p.alive))]; o != t && p.r.IntN(4) == 0 {
			p.event(t, wire.EvThreadCancel{Target: o})
		}
	}
}

func (p *program) thread(t uint32) {
	switch {
	case p.r.IntN(2) == 0 && len(p.alive) < 5:
		p.next++
		p.event(t, wire.EvThreadCreate{Child: p.next})
		if p.r.IntN(2) == 0 {
			p.access(t)
		}
		p.event(p.next, wire.EvThreadStart{Self: p.next})
		p.alive = append(p.alive, p.next)
	case len(p.ended) > 0 && p.r.IntN(2) == 0:
		p.event(t, wire.EvThreadJoin{Target: p.ended[0]})
		p.ended = p.ended[1:]
	case len(p.alive) > 2:
		i := 1 + p.r.IntN(len(p.alive)-1)
		p.event(p.alive[i], wire.EvThreadExit{})
		p.ended = append(p.ended, p.alive[i])
		p.alive = append(p.alive[:i], p.alive[i+1:]...)
	}
}

func randomProgram(seed uint64, steps int) []item {
	p := &program{r: rand.New(rand.NewPCG(seed, 23)), alive: []uint32{1}, next: 1, locks: map[uint64]uint32{}, reads: map[uint64][]uint32{}, inside: map[uint32]uint64{}}
	p.atomic = seed%2 == 0
	orders := 2 + p.r.IntN(8) // how much there is of it
	p.event(1, wire.EvThreadStart{Self: 1})
	p.event(1, wire.EvInit{Obj: 0x7000, Kind: wire.ObjectBarrier, Value: 2})
	for range steps {
		t := p.alive[p.r.IntN(len(p.alive))]
		switch n := p.r.IntN(20); {
		case n < 2:
			p.thread(t)
		case n == 2:
			p.alloc(t)
		case n == 3 && len(p.blocks) > 0:
			i := p.r.IntN(len(p.blocks))
			p.event(t, wire.EvFree{Addr: p.blocks[i].lo, Stack: uint32(len(p.items) + 1)})
			p.freed = append(p.freed, p.blocks[i])
			p.blocks = append(p.blocks[:i], p.blocks[i+1:]...)
		case n < 4+orders:
			p.sync(t)
		default:
			p.access(t)
		}
	}
	return p.items
}

// hold compares a pass of the detector with the reference.
func hold(t *testing.T, name string, ref *reference, d *Detector) {
	t.Helper()
	for key := range d.races {
		if ref.races[key] == nil {
			t.Errorf("%s: %q is reported and is no race", name, key)
		}
	}
	for key := range ref.races {
		if strings.HasPrefix(key, "1 freed") && d.races[key] == nil {
			t.Errorf("%s: %q is not reported", name, key)
		}
	}
	for b, i := range ref.first {
		found := false
		for key, bytes := range ref.races {
			if !bytes[b.addr] || d.races[key] == nil {
				continue
			}
			it := &ref.items[i]
			if it.event != nil {
				found = found || strings.HasSuffix(key, fmt.Sprintf(" S%d", i+1))
			} else {
				found = found || strings.Contains(key+" ", fmt.Sprintf(" %x ", it.access.PC))
			}
		}
		if !found {
			t.Errorf("%s: the first race of byte %#x, by item %d, is not reported", name, b.addr, i)
		}
	}
}

// FastTrack reports a race on a byte if and only if the reference does, and the first of them: over random programs with all kinds of orders, overlapping accesses,
// atomics, and memory that is freed and given out again. In parts it finds the same.
func TestAgainstReference(t *testing.T) {
	seeds, races, movs := 200, 0, 0
	if testing.Short() {
		seeds = 50
	}
	for seed := range uint64(seeds) {
		items := randomProgram(seed, 60+int(seed%7)*60)
		in := inputOf(items)
		pass := func(suspects []Suspect) *Detector {
			atomics, err := Learn(in, nil, suspects)
			if err != nil {
				t.Fatal(err)
			}
			d := NewWith(Config{}, nil, atomics)
			if err := d.Detect(in); err != nil {
				t.Fatal(err)
			}
			return d
		}
		d := pass(nil)
		hold(t, fmt.Sprintf("seed %d", seed), newReference(items, nil), d)
		sure := pass(d.Suspects())
		hold(t, fmt.Sprintf("seed %d with suspects", seed), newReference(items, d.Suspects()), sure)

		whole, err := Run(in, newPlainWorld, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range whole.Races {
			if r.Mov {
				movs++
			}
			if s := sure.races[r.Key]; (s == nil || s.Mov) != r.Mov {
				t.Errorf("seed %d: %q rests on mov: %t", seed, r.Key, r.Mov)
			}
		}
		races += len(whole.Races)
		parts, err := Run(in, newPlainWorld, Config{Shards: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole.Races {
			whole.Races[i].Finding.Count = 0
		}
		for i := range parts.Races {
			parts.Races[i].Finding.Count = 0
		}
		if !reflect.DeepEqual(whole.Races, parts.Races) {
			t.Errorf("seed %d: in parts another result:\n%q\n%q", seed, gist(parts.Races), gist(whole.Races))
		}
		if t.Failed() {
			return
		}
	}
	if races < 5*seeds || movs == 0 || movs == races {
		t.Errorf("%d races, %d of movs, in %d programs: they show nothing", races, movs, seeds)
	}
}
