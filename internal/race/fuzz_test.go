package race

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// choices are the decisions that a fuzzed input makes, a byte each; 0 when it has ended.
type choices []byte

func (c *choices) next() byte {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return b
}

// value is mostly one of few, so that things meet; else any.
func (c *choices) value() (v uint64) {
	b := c.next()
	switch {
	case b < 160:
		return uint64(b%5) * 0x1000
	case b < 220:
		return uint64(b % 7)
	case b < 240:
		return 0x1000*uint64(b%5) + uint64(c.next()%32)
	}
	for range 8 {
		v = v<<8 | uint64(c.next())
	}
	return v
}

// record is a whole record of a type.
func (c *choices) record(ts uint64, spec *wire.Spec) []uint64 {
	places, words := spec.Places()
	w := make([]uint64, words)
	w[0] = ts<<8 | uint64(spec.ID)
	for i, f := range spec.Fields {
		v := c.value()
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		w[places[i].Word] |= v << places[i].Shift
	}
	if spec.Tail != wire.NoTail {
		n := uint64(c.next() % 4)
		w[words-1] = n
		w = append(w, make([]uint64, wire.TailWords(spec.Tail, n))...)
	}
	return w
}

// FuzzRun: whatever well-formed records and accesses say, nothing panics, findings are whole, and in two parts the same places are found.
func FuzzRun(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		seed := make([]byte, 100+r.IntN(3000))
		for i := range seed {
			seed[i] = byte(r.IntN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := choices(data[:min(len(data), 1<<14)])
		var items []item
		for len(in) > 0 {
			process, thread := uint64(in.next()%16/14)+1, uint32(in.next()%5)
			if in.next()%3 == 0 {
				w := in.record(0, &wire.Events[int(in.next())%len(wire.Events)])
				items = append(items, item{process: process, event: &wire.Event{Type: wire.Type(w[0]), Thread: thread, Words: w}})
				continue
			}
			a := Access{Process: process, Thread: thread, Addr: in.value(), Size: in.value(), Kind: Kind(in.next() % 16), PC: uint64(in.next()), Stack: uint32(in.next() % 4)}
			a.Size &= 1<<14 - 1 // a huge one takes its time
			items = append(items, item{process: process, access: a})
		}
		recording := inputOf(items)
		whole, err := Run(recording, newPlainWorld, Config{MaxCells: 1 << 20, MaxFreed: 8})
		if err != nil {
			t.Fatal(err)
		}
		var keys, parted []string
		for _, r := range whole.Races {
			keys = append(keys, r.Key)
			if f := r.Finding; f.Rule == "" || f.Message == "" || len(f.Parts) != 2 || len(f.Objects) == 0 || f.Count < 1 {
				t.Errorf("not whole: %+v", f)
			}
		}
		parts, err := Run(recording, newPlainWorld, Config{MaxCells: 1 << 20, MaxFreed: 8, Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range parts.Races {
			parted = append(parted, r.Key)
		}
		if !slices.Equal(keys, parted) {
			t.Errorf("in two parts\n%q\nin one\n%q", parted, keys)
		}
	})
}
