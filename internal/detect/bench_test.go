package detect

import (
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// benchEvents gives the events of a loop in which two threads each do `body`, and measures events.
func benchEvents(b *testing.B, body func(thread uint32, ts uint64) []*wire.Event) {
	d := New(Config{}, plainWorld{}, func(finding.Finding) { b.Fatal("a finding") })
	var events []*wire.Event
	for i := range uint64(1000) {
		events = append(events, body(2+uint32(i%2), 1+i*100)...)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, e := range events {
			d.Event(1, e)
		}
		n += len(events)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

func event(thread uint32, ts uint64, ev appender) *wire.Event {
	w := ev.Append(nil, ts)
	return &wire.Event{TS: ts, Type: wire.Type(w[0]), Thread: thread, Words: w}
}

// One lock at a time, the threads in turn: must be at least 10 Mevents/s.
func BenchmarkAcquireRelease(b *testing.B) {
	benchEvents(b, func(t uint32, ts uint64) []*wire.Event {
		return []*wire.Event{
			event(t, ts, wire.EvAcquire{Obj: 0x1000 + ts%64*64, Kind: wire.ObjectMutex, Stack: 5}),
			event(t, ts+1, wire.EvRelease{Obj: 0x1000 + ts%64*64, Kind: wire.ObjectMutex}),
		}
	})
}

// Three locks, nested.
func BenchmarkNested(b *testing.B) {
	benchEvents(b, func(t uint32, ts uint64) (out []*wire.Event) {
		for i := range uint64(3) {
			out = append(out, event(t, ts+i, wire.EvAcquire{Obj: 0x1000 + i*64, Kind: wire.ObjectMutex, Stack: 5}))
		}
		for i := range uint64(3) {
			out = append(out, event(t, ts+3+i, wire.EvRelease{Obj: 0x1000 + (2-i)*64, Kind: wire.ObjectMutex}))
		}
		return out
	})
}

// Waits that end, as a filtered trace of a contended program tells them.
func BenchmarkWants(b *testing.B) {
	benchEvents(b, func(t uint32, ts uint64) []*wire.Event {
		return []*wire.Event{
			event(t, ts, wire.EvWant{Obj: 0x1000, Kind: wire.ObjectMutex, Stack: 5, Held: []wire.Held{{Obj: 0x2000 + uint64(t)*64, Kind: uint8(wire.ObjectMutex)}}}),
			event(t, ts+1, wire.EvWantEnd{Obj: 0x1000}),
		}
	})
}

// Ten thousand locks in a tree of orders, each pair told by two threads: what a large program costs when it starts.
func BenchmarkOrdersOfALargeProgram(b *testing.B) {
	for b.Loop() {
		d := New(Config{}, plainWorld{}, func(finding.Finding) { b.Fatal("a finding") })
		ts := uint64(0)
		for t := range uint32(2) {
			for i := uint64(1); i < 10000; i++ {
				ts++
				// Made in an order against that of the graph, so that it must be repaired.
				child := 10000 - i
				d.Event(1, event(2+t, ts, wire.EvOrder{Obj: 0x10000 + child*2*64, Kind: wire.ObjectMutex, Held: []wire.Held{{Obj: 0x10000 + child*64, Kind: uint8(wire.ObjectMutex)}}}))
			}
		}
	}
	b.ReportMetric(float64(b.N)*20000/b.Elapsed().Seconds()/1e6, "Morders/s")
}
