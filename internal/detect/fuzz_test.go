package detect

import (
	"math/rand/v2"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// judged are the events that the detectors look at: all, those of lock orders, those of waits. The first byte of the input chooses.
var judged = [][]wire.Type{{
	wire.TypeAcquire, wire.TypeRelease, wire.TypeOrder, wire.TypeWant, wire.TypeWant, wire.TypeWantEnd, wire.TypeInit, wire.TypeDestroy,
	wire.TypeInBlock, wire.TypeBlockGone, wire.TypeMunmap, wire.TypeMremap, wire.TypeMisuse, wire.TypeSemPost, wire.TypeSemWait,
	wire.TypeBarrierArrive, wire.TypeBarrierLeave, wire.TypeOnceBegin, wire.TypeOnceEnd, wire.TypeCondSignal, wire.TypeCondWait,
	wire.TypeThreadCreate, wire.TypeThreadCreateFailed, wire.TypeThreadStart, wire.TypeThreadExit, wire.TypeThreadJoin,
	wire.TypeThreadDetach, wire.TypeThreadCancel, wire.TypeProcess, wire.TypeProcessEnd, wire.TypeFork, wire.TypeSigaction, wire.TypeNotice,
}, {
	wire.TypeOrder, wire.TypeOrder, wire.TypeOrder, wire.TypeOrder, wire.TypeOrder, wire.TypeOrder, wire.TypeOrder, wire.TypeAcquire,
	wire.TypeThreadCreate, wire.TypeThreadJoin, wire.TypeBarrierArrive, wire.TypeBarrierLeave, wire.TypeDestroy, wire.TypeInBlock,
}, {
	wire.TypeWant, wire.TypeWant, wire.TypeWant, wire.TypeWant, wire.TypeInit, wire.TypeInit, wire.TypeBarrierArrive, wire.TypeSemPost,
	wire.TypeSemWait, wire.TypeThreadExit, wire.TypeMisuse, wire.TypeOnceBegin, wire.TypeCondWait,
}}

// FuzzEvents: no sequence of well-formed records, whatever they say, makes the detectors panic, and every finding is whole. Each byte of
// the input is a choice: mostly among few values, so that events meet each other; 0xff makes the field any word.
func FuzzEvents(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 90 {
		seed := make([]byte, 100+r.IntN(4000))
		for i := range seed {
			seed[i] = byte(r.IntN(255))
		}
		seed[0] = byte(n % len(judged))
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		told := 0
		cfg := Config{MaxNestings: 64, SearchSteps: 64}
		in := choices(data)
		types := judged[int(in.next())%len(judged)]
		threads := 2 + in.next()%5 // number 0 is none
		if in.next()%2 == 0 {
			cfg.ConfirmAll = func(uint64, []uint32) bool { return true }
		}
		d := New(cfg, plainWorld{}, func(fd finding.Finding) {
			told++
			checkWhole(t, fd)
		})
		for ts := uint64(1); len(in) > 0; ts++ {
			process, thread := uint64(in.next()%16/14), uint32(in.next()%threads)
			w := in.record(ts, types[int(in.next())%len(types)])
			if n, err := wire.RecordWords(w); err != nil || n != len(w) {
				t.Fatalf("BUG of the test: %v", err)
			}
			d.Event(process, &wire.Event{TS: ts, Type: wire.Type(w[0]), Thread: thread, Words: w})
			switch in.next() % 64 {
			case 0:
				d.End(process)
			case 1, 2, 3, 4, 5, 6, 7, 8:
				d.Tick()
			case 9:
				d.Stuck(process)
			}
		}
		d.Notes()
		d.Finish()
	})
}

type choices []byte

func (in *choices) next() byte {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return b
}

func (in *choices) any() (x uint64) {
	for range 8 {
		x = x<<8 | uint64(in.next())
	}
	return x
}

// record makes a record of the type.
func (in *choices) record(ts uint64, id wire.Type) []uint64 {
	spec := wire.SpecOf(id)
	places, words := spec.Places()
	w := make([]uint64, words)
	w[0] = ts<<8 | uint64(id)
	for i, f := range spec.Fields {
		b := in.next()
		v := uint64(b % 4)
		switch f.Kind {
		case wire.Addr:
			v = 0x1000 + uint64(b%6)*64
		case wire.Thread:
			v = uint64(b % 6)
		case wire.Enum:
			v = uint64(b % 28)
			if f.Enum == "Object" {
				if v = uint64(b % 11); b >= 128 { // mostly locks
					v = uint64(1 + b%3)
				}
			}
		case wire.Flags:
			v = uint64(b & 0x7)
		}
		if b == 0xff {
			v = in.any()
		}
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		w[places[i].Word] |= v << places[i].Shift
	}
	if spec.Tail == wire.NoTail {
		return w
	}
	n := uint64(in.next() % 5)
	w[words-1] = n
	for range n {
		if spec.Tail != wire.Helds {
			for range wire.TailWords(spec.Tail, 1) {
				w = append(w, in.any())
			}
			continue
		}
		b := in.next()
		h := wire.PackHeld(wire.Held{Obj: 0x1000 + uint64(b%6)*64, Kind: 1 + b/8%6, Mode: b / 64 % 2, Stack: uint32(b % 3)})
		w = append(w, h[:]...)
	}
	return w[:words+int(wire.TailWords(spec.Tail, n))]
}

// checkWhole fails if f names what it does not have.
func checkWhole(t *testing.T, f finding.Finding) {
	t.Helper()
	if _, ok := finding.RuleOf(f.Rule); !ok || f.Message == "" || f.Count < 1 || len(f.Parts) == 0 {
		t.Fatalf("not whole: %+v", f)
	}
	ids := map[string]bool{}
	for _, o := range f.Objects {
		if o.ID == "" || ids[o.ID] || o.Kind == "" {
			t.Fatalf("object %+v", o)
		}
		ids[o.ID] = true
	}
	threads := map[uint32]bool{}
	for _, th := range f.Threads {
		threads[th.Number] = true
	}
	for _, p := range f.Parts {
		if p.Text == "" || p.Thread != 0 && !threads[p.Thread] {
			t.Fatalf("part %+v of %+v", p, f)
		}
		for _, h := range p.Held {
			if !ids[h.Object] {
				t.Fatalf("held %+v of %+v", h, f)
			}
		}
	}
}
