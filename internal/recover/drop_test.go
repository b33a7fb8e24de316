package recover

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Dropping memory changes only what believed it: nothing else needs to be recovered again.
func TestDropped(t *testing.T) {
	rec := open(t, record(t, 100, build(t, "races"), "10"), 1)
	in := prepared(t, rec, 1<<10, 2)
	recovered := func(memory Memory, drop []Range) (all []*Result) {
		if _, err := Run(context.Background(), in.Images, in.Shards, Options{Memory: memory, Drop: drop, Path: true}, 2, func(r *Result) error {
			all = append(all, r)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	rnd, rounds := rand.New(rand.NewPCG(1, 1)), 6
	if testing.Short() {
		rounds = 2
	}
	for _, memory := range []Memory{Assumed, Proved} {
		before := recovered(memory, nil)
		var cells []uint64
		for _, r := range before {
			cells = append(cells, r.Believed...)
		}
		slices.Sort(cells)
		cells = slices.Compact(cells)
		if len(cells) < 16 {
			t.Fatalf("memory %d: %d cells are believed", memory, len(cells))
		}
		changed := 0
		for range rounds {
			var drop []Range
			dropped := map[uint64]bool{}
			for range 1 + rnd.IntN(4) {
				c := cells[rnd.IntN(len(cells))]
				drop, dropped[c] = append(drop, Range{c * 8, c*8 + 8}), true
			}
			for i, r := range recovered(memory, drop) {
				same := reflect.DeepEqual(r, before[i])
				if !same {
					changed++
				}
				if !same && !before[i].Many && !slices.ContainsFunc(before[i].Believed, func(c uint64) bool { return dropped[c] }) {
					t.Fatalf("memory %d: shard %d is another without %x, which it did not believe", memory, i, drop)
				}
				if slices.ContainsFunc(r.Believed, func(c uint64) bool { return dropped[c] }) {
					t.Fatalf("memory %d: shard %d believes what is dropped", memory, i)
				}
			}
		}
		if changed == 0 {
			t.Errorf("memory %d: dropping changed nothing", memory)
		}
	}
}
