package ctest

import (
	"fmt"
	"testing"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/wire"
)

// small has rings that are full all the time.
var small = wire.Config{All: 1, Follow: 1, Misuse: 1, LaneBytes: 4096, NestBytes: 4096}

// Rings that are much too small lose nothing: every lock and unlock of every thread arrives, in order.
func TestFullRing(t *testing.T) {
	prog := compile(t, "core_storm.c", "-O2")
	const pairs, threads = 5000, 3
	l := runStorm(t, small, prog, fmt.Sprint(pairs))
	checkStorm(t, l, pairs*threads, true)
}

// Signal handlers that interrupt emissions use the second lane: nothing is lost, with stacks too.
func TestHandlers(t *testing.T) {
	prog := compile(t, "core_storm.c", "-O2")
	const pairs, threads = 60000, 3
	for _, c := range []wire.Config{all, {All: 1, Follow: 1, Misuse: 1}} {
		l := runStorm(t, c, prog, fmt.Sprint(pairs))
		checkStorm(t, l, pairs*threads, true)
	}
}

// Handlers that leave by siglongjmp, out of emissions too, leave no thread mute: its later events are there, and it ends properly.
func TestJumps(t *testing.T) {
	prog := compile(t, "core_storm.c", "-O2")
	const pairs, threads = 60000, 3
	l := runStorm(t, all, prog, fmt.Sprint(pairs), "jump")
	checkStorm(t, l, pairs*threads, false)
}

// runStorm runs prog under the agent only: how often its handlers ran differs from run to run.
func runStorm(t *testing.T, c wire.Config, argv ...string) (l *stormLog) {
	t.Helper()
	r, lg, st := under(t, c, nil, argv...)
	if st.Late != 0 || r.stderr != "" {
		t.Errorf("%d events came too late for their place; stderr %q", st.Late, r.stderr)
	}
	l = &stormLog{log: lg}
	if n, err := fmt.Sscanf(r.stdout, "pairs %d posts %d jumps %d", &l.pairs, &l.posts, &l.jumps); n != 3 || r.state != "exit status 0" {
		t.Fatalf("%+v: %v", r, err)
	}
	return l
}

type stormLog struct {
	*log
	pairs, posts, jumps int
}

func checkStorm(t *testing.T, l *stormLog, pairs int, exact bool) {
	t.Helper()
	acquired, released, posted, exits := 0, 0, 0, 0
	last := map[uint32]uint64{}
	for _, e := range l.events {
		if e.TS < last[0] {
			t.Fatalf("%v at %d after %d: not in order", e.Type, e.TS, last[0])
		}
		last[0] = e.TS
		switch e.Type {
		case wire.TypeAcquire:
			if a := wire.DecodeAcquire(e.Words); a.Kind == wire.ObjectMutex {
				acquired++
			}
		case wire.TypeRelease:
			if a := wire.DecodeRelease(e.Words); a.Kind == wire.ObjectMutex {
				released++
			}
		case wire.TypeSemPost:
			posted++
		case wire.TypeThreadExit:
			exits++
		}
	}
	t.Logf("%d pairs: %d acquired, %d released; %d posts: %d seen; %d jumps", l.pairs, acquired, released, l.posts, posted, l.jumps)
	if exits != 3 {
		t.Errorf("%d thread-exit, want 3", exits)
	}
	// Three more of the lock under which the threads add up.
	if exact && (acquired != pairs+3 || released != pairs+3 || posted != l.posts) {
		t.Errorf("%d pairs and %d posts were made; %d acquired, %d released, %d posted", pairs+3, l.posts, acquired, released, posted)
	}
	// In mode `jump` the pairs are posts too. One that is jumped out of may have been sent or not, and is made again.
	if !exact && (posted < pairs+l.posts-l.jumps || posted > pairs+l.posts+l.jumps) {
		t.Errorf("%d + %d posts were made, with %d jumps; %d posted", pairs, l.posts, l.jumps, posted)
	}
}

// More threads than a region holds, and threads coming and going faster than anybody looks, are all seen from beginning to end.
func TestManyThreads(t *testing.T) {
	prog := compile(t, "core_churn.c", "-O2")
	for _, c := range []struct{ threads, times, regions int }{{500, 2, 32}, {1, 5000, 1}, {70, 20, 5}} {
		r, l, st := under(t, filtered, nil, prog, fmt.Sprint(c.threads), fmt.Sprint(c.times))
		if r.stdout != "bad 0\n" || r.stderr != "" || r.state != "exit status 0" {
			t.Fatalf("%+v", r)
		}
		n := c.threads * c.times
		starts, exits, joins := len(l.of(wire.TypeThreadStart)), len(l.of(wire.TypeThreadExit)), len(l.of(wire.TypeThreadJoin))
		if starts != n+1 || exits != n || joins != n {
			t.Errorf("%d threads: %d started, %d ended, %d joined", n, starts-1, exits, joins)
		}
		if n := len(l.of(wire.TypeMisuse)) + len(l.of(wire.TypeNotice)); n != 0 {
			t.Errorf("%d misuse and notice events", n)
		}
		t.Logf("%d threads: %d regions, %d KiB of the agent, %d KiB of regions", n, st.Regions, st.AgentBytes>>10, st.RegionBytes>>10)
		if int(st.Regions) > c.regions+2 {
			t.Errorf("%d regions for %d threads at a time", st.Regions, c.threads)
		}
		// Of a region, only what threads used is there.
		used := st.AgentBytes + uint64(c.threads+1)*(wire.SizeSlot+agent.DefaultLaneBytes+agent.DefaultNestBytes)
		if limit := uint64(c.threads+1)<<20 + 32<<20; used > limit {
			t.Errorf("%d bytes, at most %d", used, limit)
		}
	}
}
