package trace

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

func acquire(ts, obj uint64) []uint64 {
	return wire.EvAcquire{Obj: obj, Kind: wire.ObjectMutex}.Append(nil, ts)
}

func release(ts, obj uint64) []uint64 {
	return wire.EvRelease{Obj: obj, Kind: wire.ObjectMutex}.Append(nil, ts)
}

func start(ts uint64, self uint32) []uint64 { return wire.EvThreadStart{Self: self}.Append(nil, ts) }

// collect returns a merger and what it has handed on, as "T<thread>@<ts> <type> <word 1>".
func collect() (*Merger, *[]string) {
	var got []string
	return NewMerger(func(e *wire.Event) {
		got = append(got, fmt.Sprintf("T%d@%d %v %x", e.Thread, e.TS, e.Type, e.Words[1]))
	}), &got
}

func appendAll(t *testing.T, l *Lane, recs ...[]uint64) {
	t.Helper()
	if err := l.Append(slices.Concat(recs...)); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, m *Merger) {
	t.Helper()
	if err := m.Flush(); err != nil {
		t.Fatal(err)
	}
}

func wantEvents(t *testing.T, got *[]string, want ...string) {
	t.Helper()
	if !slices.Equal(*got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(*got, "\n  "), strings.Join(want, "\n  "))
	}
	*got = nil
}

// An event is handed on only when no open lane can bring an older or equal one, and at once when that is so.
func TestMergerHoldsBack(t *testing.T) {
	m, got := collect()
	a, b := m.Lane(LaneKey{0, 0, 0}), m.Lane(LaneKey{0, 1, 0})
	appendAll(t, a, acquire(5, 1), acquire(7, 2), acquire(9, 3))
	flush(t, m)
	wantEvents(t, got)
	b.Bound(7)
	flush(t, m)
	wantEvents(t, got, "T0@5 acquire 1")
	appendAll(t, b, acquire(8, 4)) // appending is a bound, too
	flush(t, m)
	wantEvents(t, got, "T0@7 acquire 2")
	b.Bound(3) // cannot take back what was promised
	b.Close()
	flush(t, m)
	wantEvents(t, got, "T0@8 acquire 4") // 9 may still get company on a itself
	if m.Buffered() == 0 {
		t.Error("nothing buffered, though an event waits")
	}
	a.Close()
	flush(t, m)
	wantEvents(t, got, "T0@9 acquire 3")
	if n := m.Buffered(); n != 0 {
		t.Errorf("%d words buffered at the end", n)
	}
}

// Of events at one tick the release comes before the acquire that depends on it, whichever lane it is on; otherwise lanes keep their
// own order and rank by key, not by when they were made.
func TestMergerTies(t *testing.T) {
	m, got := collect()
	b, a := m.Lane(LaneKey{1, 0, 0}), m.Lane(LaneKey{0, 9, 1})
	appendAll(t, a, acquire(5, 1), release(5, 1), acquire(5, 2))
	appendAll(t, b, release(5, 3), acquire(5, 4))
	a.Close()
	b.Close()
	flush(t, m)
	wantEvents(t, got, "T0@5 release 3", "T0@5 acquire 1", "T0@5 release 1", "T0@5 acquire 2", "T0@5 acquire 4")
}

// Both lanes of a slot carry the number of the thread that has the slot at that time, and only that slot's.
func TestMergerThreads(t *testing.T) {
	m, got := collect()
	l0, l1 := m.Lane(LaneKey{0, 3, 0}), m.Lane(LaneKey{0, 3, 1})
	other := m.Lane(LaneKey{0, 4, 0})
	appendAll(t, l0, start(1, 7), acquire(2, 1), start(10, 8), acquire(11, 2))
	appendAll(t, l1, acquire(3, 3), acquire(12, 4))
	appendAll(t, other, start(4, 9), acquire(13, 5))
	for _, l := range []*Lane{l0, l1, other} {
		l.Close()
	}
	flush(t, m)
	wantEvents(t, got, "T7@1 thread-start 7", "T7@2 acquire 1", "T7@3 acquire 3", "T9@4 thread-start 9", "T8@10 thread-start 8",
		"T8@11 acquire 2", "T8@12 acquire 4", "T9@13 acquire 5")
}

// The thread that forked goes on in the child under its number, from the first event on.
func TestMergerForkedThread(t *testing.T) {
	m, got := collect()
	l := m.Lane(LaneKey{})
	appendAll(t, l, wire.EvProcess{PID: 3, Start: wire.StartFork, ParentThread: 5}.Append(nil, 1), acquire(2, 1))
	l.Close()
	flush(t, m)
	wantEvents(t, got, "T5@1 process 3", "T5@2 acquire 1")
}

// A lane that comes late is handed on and counted, not lost.
func TestMergerLate(t *testing.T) {
	m, got := collect()
	a := m.Lane(LaneKey{})
	appendAll(t, a, acquire(10, 1))
	a.Close()
	flush(t, m)
	b := m.Lane(LaneKey{Slot: 1})
	appendAll(t, b, acquire(5, 2))
	b.Close()
	flush(t, m)
	wantEvents(t, got, "T0@10 acquire 1", "T0@5 acquire 2")
	if m.Late() != 1 {
		t.Errorf("Late() = %d, want 1", m.Late())
	}
}

// Bad words are refused with lane and place, and leave the lane as it was. Pads are skipped, whatever timestamp they bear.
func TestAppendRefuses(t *testing.T) {
	pad := wire.EvPad{Tail: make([]byte, 16)}.Append(nil, 0)
	for _, c := range []struct {
		name  string
		words []uint64
		want  string
	}{
		{"unknown id", slices.Concat(acquire(20, 1), []uint64{20<<8 | 255, 0}), "word 3 of 5: unknown event id 255"},
		{"cut short", acquire(20, 1)[:2], "word 0 of 2: record cut short"},
		{"backwards", slices.Concat(acquire(20, 1), acquire(19, 1)), "word 3 of 6: acquire at 19 is older than the event before it at 20"},
		{"older than the last Append", acquire(9, 1), "word 0 of 3: acquire at 9 is older than the event before it at 10"},
		{"endless tail", []uint64{20<<8 | uint64(wire.TypeHolds), 1 << 60}, "word 0 of 2: event holds: tail of"},
	} {
		m, got := collect()
		l := m.Lane(LaneKey{2, 3, 1})
		appendAll(t, l, acquire(10, 9))
		err := l.Append(c.words)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "lane 1 of slot 3 in region 2") {
			t.Errorf("%s: error %v, want one with %q and the lane", c.name, err, c.want)
		}
		appendAll(t, l, pad, acquire(11, 8), pad)
		l.Close()
		flush(t, m)
		wantEvents(t, got, "T0@10 acquire 9", "T0@11 acquire 8")
	}
}

// Whatever the lanes, the batches and the bounds, what comes out is what went in: each lane in its own order, the whole in order of
// time, and among equal ones no acquire on another lane's release that stood ready at its lane's head.
func TestMergerProperty(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		type ev struct {
			ts   uint64
			lane int
			n    uint64
		}
		var in, out []ev
		m := NewMerger(func(e *wire.Event) { out = append(out, ev{e.TS, int(e.Words[1] >> 32), e.Words[1] & 0xffffffff}) })
		lanes := make([]*Lane, 1+r.IntN(6))
		now := make([]uint64, len(lanes))
		for i := range lanes {
			lanes[i] = m.Lane(LaneKey{Slot: uint32(i)})
		}
		for n := range uint64(200) {
			i := r.IntN(len(lanes))
			now[i] += r.Uint64N(4)
			id := uint64(i)<<32 | n
			in = append(in, ev{now[i], i, n})
			if r.IntN(2) == 0 {
				appendAll(t, lanes[i], acquire(now[i], id))
			} else {
				appendAll(t, lanes[i], release(now[i], id))
			}
			if r.IntN(10) == 0 {
				j := r.IntN(len(lanes))
				now[j] += r.Uint64N(20)
				lanes[j].Bound(now[j])
			}
			if r.IntN(10) == 0 {
				flush(t, m)
			}
		}
		for _, l := range lanes {
			l.Close()
		}
		flush(t, m)
		if !slices.IsSortedFunc(out, func(a, b ev) int { return cmp.Compare(a.ts, b.ts) }) || m.Late() != 0 {
			t.Fatalf("seed %d: not in order of time (%d late): %v", seed, m.Late(), out)
		}
		byLane := func(a, b ev) int { return cmp.Compare(a.lane, b.lane) }
		slices.SortStableFunc(in, byLane)
		slices.SortStableFunc(out, byLane)
		if !slices.Equal(in, out) {
			t.Fatalf("seed %d: lanes differ:\nin  %v\nout %v", seed, in, out)
		}
	}
}

// Flushing from inside the sink is the caller's mistake and answered as such.
func TestFlushFromSink(t *testing.T) {
	var m *Merger
	var err error
	m = NewMerger(func(*wire.Event) { err = m.Flush() })
	l := m.Lane(LaneKey{})
	appendAll(t, l, acquire(1, 1))
	l.Close()
	flush(t, m)
	if err == nil {
		t.Error("no error")
	}
}

func BenchmarkMerger(b *testing.B) {
	for _, lanes := range []int{1, 2, 16, 128} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			var sum uint64
			m := NewMerger(func(e *wire.Event) { sum += e.TS })
			const batch = 1024
			words := make([]uint64, 0, batch*4)
			ts := uint64(0)
			b.ReportAllocs()
			for done := 0; done < b.N; {
				for i := range lanes {
					words = words[:0]
					t := ts + uint64(i)
					for range batch {
						words = wire.EvAcquire{Obj: t, Kind: wire.ObjectMutex}.Append(words, t)
						t += uint64(lanes)
					}
					if err := m.Lane(LaneKey{Slot: uint32(i)}).Append(words); err != nil {
						b.Fatal(err)
					}
				}
				ts += uint64(batch * lanes)
				if err := m.Flush(); err != nil {
					b.Fatal(err)
				}
				done += batch * lanes
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

// FuzzAppend: arbitrary words never panic, and what Append takes comes out again whole and in order.
func FuzzAppend(f *testing.F) {
	f.Add(wordBytes(acquire(1, 2)), uint8(3))
	f.Add(wordBytes(slices.Concat(start(1, 2), wire.EvHolds{Held: make([]wire.Held, 3)}.Append(nil, 4))), uint8(1))
	f.Add(wordBytes(wire.EvStack{ID: 1, PCs: []uint64{1, 2}}.Append(nil, 9)), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, split uint8) {
		words := make([]uint64, 0, len(data)/8)
		for i := 0; i+8 <= len(data); i += 8 {
			var w uint64
			for j := range 8 {
				w |= uint64(data[i+j]) << (8 * j)
			}
			words = append(words, w)
		}
		var out []uint64
		last := uint64(0)
		m := NewMerger(func(e *wire.Event) {
			if e.TS < last {
				t.Fatalf("%d after %d", e.TS, last)
			}
			last = e.TS
			out = append(out, e.Words...)
		})
		l := m.Lane(LaneKey{})
		cut := min(int(split), len(words))
		taken := []uint64{}
		for _, w := range [][]uint64{words[:cut], words[cut:]} {
			if l.Append(w) == nil {
				taken = append(taken, w...)
			}
		}
		l.Close()
		if err := m.Flush(); err != nil {
			t.Fatal(err)
		}
		if len(out) > len(taken) || m.Buffered() != 0 {
			t.Fatalf("%d words in, %d out, %d left", len(taken), len(out), m.Buffered())
		}
	})
}
