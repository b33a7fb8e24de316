package patch

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// When memory could not be written in the middle of a change, half of it stayed. Random transactions are begun, up to each of their steps, of which the last is written in part, and taken back: after each write whatever
// boundary is entered means the old patch or the new one or int3; at the end the text and the plan are as they were, and the same transaction succeeds.
func TestBack(t *testing.T) {
	libc := load(t, libcFile, 0x7f1234500000)
	rnd := rand.New(rand.NewPCG(5, 6))
	begun, vias, rounds := 0, 0, 4
	if testing.Short() { // under the race detector it takes minutes
		rounds = 2
	}
	for round := range rounds {
		at := libc.at + rnd.Uint64N(uint64(len(libc.orig))-8192)
		text := libc.slice(at, at+600)
		free := around(text)
		if round%2 == 1 { // little is free: dear tiers
			free = nil
			for range 60 {
				a := text.at - 1<<30 - 1<<29 + rnd.Uint64N(3<<30)
				free = append(free, Range{a, a + 1<<20})
			}
		}
		b := newBench(text, free)
		whole := b.space.total()
		all := b.checked(text)
		for n := range 8 {
			var add []Site
			var remove []uint64
			density := 1 + rnd.IntN(20)
			for _, a := range all {
				switch {
				case n == 7 && b.sites[a], b.sites[a] && rnd.IntN(3) == 0:
					remove = append(remove, a)
				case n < 7 && !b.sites[a] && rnd.IntN(40) < density:
					add = append(add, Site{a, mark{a, rnd.IntN(3) * rnd.IntN(60)}})
				}
			}
			for k := 1; ; k++ {
				tx, err := b.Plan(add, remove)
				if err != nil {
					break // too little is free
				}
				if k > len(tx.Steps()) {
					b.apply(t, tx, add, remove)
					b.Commit(tx)
					b.Free(tx)
					break
				}
				begun++
				vias += len(tx.Back().Vacate)
				b.takeBack(t, tx, k, rnd, add, remove)
			}
		}
		if !bytes.Equal(text.planned(), text.orig) && round%2 == 0 || b.records.count() > 0 && round%2 == 0 {
			t.Fatalf("round %d: after all sites are gone %d records are left", round, b.records.count())
		}
		if now := b.space.total(); now != whole && round%2 == 0 {
			t.Fatalf("round %d: of %d free bytes %d are left", round, whole, now)
		}
	}
	t.Logf("%d times begun, %d jumps inside neighbours", begun, vias)
	if begun < 40*rounds || vias == 0 {
		t.Errorf("%d times begun, %d jumps inside neighbours: not enough is tested", begun, vias)
	}
}

// takeBack begins k steps of a transaction, the last of them in part, and takes them back.
func (b *bench) takeBack(t *testing.T, tx *Transaction, k int, rnd *rand.Rand, add []Site, remove []uint64) {
	changing := map[uint64]bool{}
	for _, a := range remove {
		changing[a] = true
	}
	for _, s := range add {
		changing[s.At] = true
	}
	for _, x := range tx.New {
		b.img.load(&x.Trampoline)
		if x.Via != 0 {
			b.via[x.Via] = x.At
		}
	}
	before, text := bytes.Clone(b.img.now), bytes.Clone(b.text.planned())
	for _, e := range tx.Edits {
		copy(text[e.At-b.text.at:], e.Old)
		b.img.traps[e.At] = e.To
	}
	write := func(list []Write, check bool) {
		for i, w := range list {
			copy(b.img.now[w.At-b.img.at:], w.Bytes)
			if !check || len(list) > 8 && i+1 < len(list) {
				continue
			}
			if err := b.check(changing); err != nil {
				t.Fatalf("taken back from step %d on: %v", k-1, err)
			}
		}
	}
	forth := tx.Steps()
	for _, step := range forth[:k-1] {
		write(step, false)
	}
	some := slices.Clone(forth[k-1])
	rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	write(some[:rnd.IntN(len(some)+1)], true)
	back := tx.Back()
	steps := back.Steps()
	for _, step := range steps[len(steps)-k:] {
		write(step, true)
	}
	for _, e := range back.Edits {
		if b.img.traps[e.At] = e.To; e.New[0] != opTrap {
			delete(b.img.traps, e.At)
		}
	}
	b.Undo(tx)
	for _, x := range tx.New {
		b.space.Free(x.Trampoline.At, x.Trampoline.Len())
	}
	if !bytes.Equal(b.img.now, before) || !bytes.Equal(b.text.planned(), text) {
		t.Fatalf("taken back from step %d on the text is not as it was", k-1)
	}
	if err := b.check(nil); err != nil {
		t.Fatalf("taken back from step %d on: %v", k-1, err)
	}
}
