package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
)

// idle answers test requests at once.
type idle struct{ hollow }

func (*idle) Sites(*engine.Process, *engine.Module) []patch.Site { return nil }
func (*idle) Test(*engine.Process, uint64) error                 { return nil }

// asked patches what threads ask for.
type asked struct{ idle }

func (*asked) Site(*engine.Process, *engine.Module, uint64) (patch.Recipe, bool) {
	return empty{}, true
}

// requests measures what threads wait that ask the engine.
func (b *bench) requests(ctx context.Context) error {
	if !b.only.MatchString("patch") && !b.only.MatchString("request") {
		return nil
	}
	prog, err := b.compile("request", patchSource)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-46s %9s %9s %9s\n", "request", "median", "mean", "p99")
	nothing := func() engine.Client { return &idle{} }
	libc := func() engine.Client { return &hollow{} }
	places := func() engine.Client { return &asked{} }
	for _, k := range []struct {
		name, kind string
		c          func() engine.Client
		n          int
		goal       float64
	}{
		{"that changes nothing", "request", nothing, 20000, goalRequest},
		{"  after 2 ms of silence", "apart", nothing, 500, 0},
		{"for a place, up to the copy that is executed", "soon", places, 4000, goalRequest},
		{"  after 2 ms of silence", "soon-apart", places, 500, 0},
		{"for a place, up to the patch", "site", places, 4000, 0},
		{"  after 2 ms of silence", "site-apart", places, 500, 0},
		{"for a place of libc, up to the patch", "request", libc, 2000, 0},
		{"  after 2 ms of silence", "apart", libc, 500, 0},
	} {
		var mid, mean, late []float64
		for range b.rounds {
			v, _, err := patchedOnce(ctx, k.c(), prog, k.kind, strconv.Itoa(k.n))
			if err != nil {
				return err
			}
			if len(v) != 3 {
				return fmt.Errorf("%s %s printed %v", prog, k.kind, v)
			}
			mid, mean, late = append(mid, v[0]), append(mean, v[1]), append(late, v[2])
		}
		fmt.Printf("%-46s %6.1f µs %6.1f µs %6.1f µs %s\n", k.name, median(mid)/1e3, median(mean)/1e3, median(late)/1e3, b.verdict(median(mid), k.goal))
	}
	return nil
}
