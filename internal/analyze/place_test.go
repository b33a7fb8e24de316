package analyze

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/wire"
)

// A deed is what a thread did at a time: an access, an atomic instruction, or outside of its code, with events.
type deed struct {
	what   what
	at     uint64
	events []uint64
}

// Random threads: each thing is known to within some range around its true time, as packets tell it. What is given a place has none later than the true one (an atomic
// instruction: none earlier), and is on the right side of each event of its thread and behind the atomic instructions before it. With exact times nothing is left out.
func TestPlace(t *testing.T) {
	defer func(n int) { admitted = n }(admitted)
	for seed := range uint64(160) {
		admitted = []int{1 << 12, 1}[seed/4%2]
		r := rand.New(rand.NewPCG(seed, 1))
		blur := []uint64{0, 3, 40, 300}[seed%4]
		const threads = 3
		o := &owners{index: map[owner]int{}}
		in, err := newRuns(2 * threads)
		if err != nil {
			t.Fatal(err)
		}
		out, err := newRuns(2 * threads)
		if err != nil {
			t.Fatal(err)
		}
		var events []wire.Event
		truth := make([][]deed, threads)
		accesses := uint64(0)
		for n := range threads {
			o.all = append(o.all, owner{1, uint32(n + 1)})
			o.lives = append(o.lives, []life{{0, n}})
			o.index[o.all[n]] = n
			now, latest := uint64(1000+r.IntN(20)), uint64(0)
			add := func(list int, from, to uint64, rec record) {
				rec.From, rec.To = from-r.Uint64N(blur+1), to+r.Uint64N(blur+1)
				if list%2 == 0 {
					latest = max(latest, rec.From)
					rec.From = latest
				}
				if err := in.add(list, &rec); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 60 {
				now += 1 + r.Uint64N(40)
				d := deed{at: now}
				switch r.IntN(6) {
				case 0:
					d.what = isOut
					from := now
					for range r.IntN(3) {
						now += 1 + r.Uint64N(10)
						d.events = append(d.events, now)
						events = append(events, wire.Event{TS: now, Type: wire.TypeAcquire, Thread: uint32(n + 1)})
					}
					now++
					add(2*n, from, now, record{What: isOut})
				case 1:
					d.what = isOrder
					add(2*n, now, now, record{What: isOrder, Kind: race.Order | race.Fence})
				default:
					accesses++
					add(2*n, now, now, record{Addr: 0x1000, Size: 8, Kind: race.Write, PC: uint64(i)})
				}
				truth[n] = append(truth[n], d)
			}
		}
		slices.SortStableFunc(events, func(a, b wire.Event) int { return int(int64(a.TS - b.TS)) })
		if err := in.finish(); err != nil {
			t.Fatal(err)
		}
		p, err := place(func(fn func(uint64, *wire.Event) error) error {
			for i := range events {
				if err := fn(1, &events[i]); err != nil {
					return err
				}
			}
			return nil
		}, o, &collection{found: in, threads: threads}, out)
		if err != nil {
			t.Fatal(err)
		}
		if l := p.left; l.Order+l.Atomic+l.Life+l.Misfit+l.Unknown+p.given != accesses || blur == 0 && p.given != accesses {
			t.Fatalf("seed %d: %d accesses, given %d, left %+v", seed, accesses, p.given, l)
		}
		given := make([][]record, threads)
		m, err := out.merge()
		if err != nil {
			t.Fatal(err)
		}
		last := uint64(0)
		for {
			rec, list := m.peek()
			if rec == nil {
				break
			}
			if rec.From < last {
				t.Fatalf("seed %d: %d behind %d", seed, rec.From, last)
			}
			last = rec.From
			given[list/2] = append(given[list/2], *rec)
			if err := m.next(); err != nil {
				t.Fatal(err)
			}
		}
		for n := range threads {
			// told says whether an atomic instruction was told at or behind its time, at or before the thread's next event, and before a place in what was given.
			told := func(i int, before []record) bool {
				limit := uint64(forever)
				for _, d := range truth[n][i:] {
					if len(d.events) > 0 {
						limit = d.events[0]
						break
					}
				}
				return slices.ContainsFunc(before, func(g record) bool { return g.What == isOrder && g.From >= truth[n][i].at && g.From <= limit })
			}
			for i, d := range truth[n] {
				switch d.what {
				case isOrder:
					if !told(i, given[n]) {
						t.Fatalf("seed %d, thread %d: the atomic instruction at %d is told too early, or behind an event that follows it", seed, n, d.at)
					}
				case isAccess:
					k := slices.IndexFunc(given[n], func(g record) bool { return g.What == isAccess && g.PC == uint64(i) })
					if k < 0 {
						continue
					}
					g := given[n][k]
					if g.From > d.at {
						t.Fatalf("seed %d, thread %d: the access at %d is given %d", seed, n, d.at, g.From)
					}
					for _, other := range truth[n] {
						for _, e := range other.events {
							// Of one time the detector takes accesses first.
							if (e < d.at) != (e < g.From) {
								t.Fatalf("seed %d, thread %d: the access at %d is given %d, across an event at %d", seed, n, d.at, g.From, e)
							}
						}
					}
					for j := range i {
						if truth[n][j].what == isOrder && !told(j, given[n][:k]) {
							t.Fatalf("seed %d, thread %d: the access at %d comes before the atomic instruction at %d", seed, n, d.at, truth[n][j].at)
						}
					}
				}
			}
		}
		in.Close()
		out.Close()
	}
}

// An access around the time at which its memory was given to another block is left out; one that an event of its own thread puts on one side is not.
func TestPlaceLives(t *testing.T) {
	alloc := func(ts uint64, thread uint32, addr, size uint64) wire.Event {
		return wire.Event{TS: ts, Type: wire.TypeAlloc, Thread: thread, Words: wire.EvAlloc{Addr: addr, Size: size}.Append(nil, ts)}
	}
	for _, c := range []struct {
		name   string
		events []wire.Event
		outs   []record
		given  uint64
	}{
		{"another thread's", []wire.Event{alloc(105, 2, 0x1000, 64)}, nil, 0},
		{"elsewhere", []wire.Event{alloc(105, 2, 0x2000, 64)}, nil, 1},
		{"at another time", []wire.Event{alloc(111, 2, 0x1000, 64)}, nil, 1},
		{"before an event of its own", []wire.Event{alloc(103, 2, 0x1000, 64), {TS: 105, Type: wire.TypeAcquire, Thread: 1}}, []record{{From: 104, To: 106, What: isOut}}, 1},
		{"behind an event of its own", []wire.Event{{TS: 105, Type: wire.TypeAcquire, Thread: 1}, alloc(107, 2, 0x1000, 64)}, []record{{From: 104, To: 106, What: isOut}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &owners{all: []owner{{1, 1}, {1, 2}}, lives: [][]life{{{0, 0}}, {{0, 1}}}, index: map[owner]int{{1, 1}: 0, {1, 2}: 1}}
			in, err := newRuns(4)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			out, err := newRuns(4)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			from := uint64(100)
			for _, r := range c.outs {
				if err := in.add(0, &r); err != nil {
					t.Fatal(err)
				}
				from = r.From
			}
			if err := in.add(0, &record{From: from, To: 110, Addr: 0x1010, Size: 8, Kind: race.Write}); err != nil {
				t.Fatal(err)
			}
			if err := in.finish(); err != nil {
				t.Fatal(err)
			}
			p, err := place(func(fn func(uint64, *wire.Event) error) error {
				for i := range c.events {
					if err := fn(1, &c.events[i]); err != nil {
						return err
					}
				}
				return nil
			}, o, &collection{found: in, threads: len(in.lists) / 2}, out)
			if err != nil || p.given != c.given || p.left.Life != 1-c.given {
				t.Errorf("given %d, left %+v, %v", p.given, p.left, err)
			}
		})
	}
}

// What is in memory does not grow with the length of a trace: of 400,000 records no more wait at a time than may have happened around then. Without events they once all did.
func TestPlaceBound(t *testing.T) {
	for _, c := range []struct {
		name string
		step uint64 // between events; 0: there are none
		most int
	}{{"many events", 50, 4000}, {"no events", 0, 3 * admitted}} {
		t.Run(c.name, func(t *testing.T) { placeBound(t, c.step, c.most) })
	}
}

func placeBound(t *testing.T, step uint64, bound int) {
	const threads, each = 4, 100_000
	o := &owners{index: map[owner]int{}}
	in, err := newRuns(2 * threads)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := newRuns(2 * threads)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for n := range threads {
		o.all = append(o.all, owner{1, uint32(n + 1)})
		o.lives = append(o.lives, []life{{0, n}})
		o.index[o.all[n]] = n
		for i := range uint64(each) {
			r := record{From: 1000 + 10*i, To: 1100 + 10*i, Addr: 0x1000 + i, Size: 1, Kind: race.Write}
			if i%20 == 0 {
				r.What = isOut
			}
			if err := in.add(2*n, &r); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.done(2 * n); err != nil {
			t.Fatal(err)
		}
	}
	n := uint64(0)
	p, err := place(func(fn func(uint64, *wire.Event) error) error {
		for ts := uint64(1000); step > 0 && ts < 1000+10*each; ts += step {
			n++
			if err := fn(1, &wire.Event{TS: ts, Type: wire.TypeAcquire, Thread: uint32(1 + n%threads)}); err != nil {
				return err
			}
		}
		return nil
	}, o, &collection{found: in, threads: threads}, out)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i := range p.threads {
		most += cap(p.threads[i].queue) // what has waited
	}
	if most > bound || step > 0 && n != 10*each/step || out.size < 100*writeBuffer {
		t.Errorf("%d records waited at once, %d events, %d bytes written", most, n, out.size)
	}
}
