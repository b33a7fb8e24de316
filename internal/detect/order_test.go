package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/trace"
)

const abInversion = `lock-order-inversion: Cycle in lock order graph: M1 => M2 => M1`

// Each reason why opposite orders are an inversion or none, as a filtered trace tells it.
func TestInversions(t *testing.T) {
	check(t, Config{}, []testCase{
		{"two threads, two orders", twoThreads + `
			T2 order obj=$b stack=S21 held=[$a:S20]
			T3 order obj=$a stack=S31 held=[$b:S30]`, abInversion},
		{"the same order", twoThreads + `
			T2 order obj=$b held=[$a]
			T3 order obj=$b held=[$a]`, ``},
		{"one thread alone", twoThreads + `
			T2 order obj=$b held=[$a]
			T2 order obj=$a held=[$b]`, ``},
		{"a gate", twoThreads + `
			T2 order obj=$b held=[$g,$a]
			T3 order obj=$a held=[$g,$b]`, ``},
		{"a gate held for reading by both is none", twoThreads + `
			T2 order obj=$b held=[rwlock:$g:shared:S1,$a]
			T3 order obj=$a held=[rwlock:$g:shared:S1,$b]`, abInversion},
		{"a gate held for reading by one", twoThreads + `
			T2 order obj=$b held=[rwlock:$g:shared:S1,$a]
			T3 order obj=$a held=[rwlock:$g:exclusive:S1,$b]`, ``},
		{"a gate around one only", twoThreads + `
			T2 order obj=$b held=[$g,$a]
			T3 order obj=$a held=[$b]`, abInversion},
		{"an initialiser as a gate", twoThreads + `
			T2 order obj=$b held=[once:$g,$a]
			T3 order obj=$a held=[once:$g,$b]`, ``},
		{"an initialiser that is gone, as of a task whose result was taken", twoThreads + `
			T2 order obj=$b held=[once:$g,$a]
			T1 block-gone block=$g size=16
			T3 order obj=$a held=[once:$d,$b]`, abInversion},
		{"a gate that is gone proves nothing", twoThreads + `
			T2 order obj=$b held=[$g,$a]
			T1 block-gone block=$g size=16
			T3 order obj=$a held=[$d,$b]`, ``},
		{"a trylock as the last gives up", twoThreads + `
			T2 order obj=$b how=try held=[$a]
			T3 order obj=$a held=[$b]`, ``},
		{"a timed lock as the last gives up", twoThreads + `
			T2 order obj=$b how=timed held=[$a]
			T3 order obj=$a held=[$b]`, ``},
		{"after a condition wait it is taken as any lock", twoThreads + `
			T2 order obj=$b how=cond held=[$a]
			T3 order obj=$a held=[$b]`, abInversion},
		{"recursion", twoThreads + `
			T2 order obj=$a how=recursive held=[$a,$b]
			T3 order obj=$b held=[$a]`, ``},
		{"separated by a join", `
			T1 thread-create child=T2
			T2 order obj=$b held=[$a]
			T2 thread-exit
			T1 thread-join target=T2
			T1 thread-create child=T3
			T3 order obj=$a held=[$b]`, ``},
		{"a join that failed separates nothing", `
			T1 thread-create child=T2
			T1 thread-create child=T3
			T2 order obj=$b held=[$a]
			T1 thread-join target=T2 result=16
			T1 order obj=$a held=[$b]`, abInversion},
		{"before the creation", `
			T1 order obj=$b held=[$a]
			T1 thread-create child=T2
			T2 order obj=$a held=[$b]`, ``},
		{"after the creation", `
			T1 thread-create child=T2
			T1 order obj=$b held=[$a]
			T2 order obj=$a held=[$b]`, abInversion},
		{"again after the creation", `
			T1 order obj=$b held=[$a]
			T1 thread-create child=T2
			T1 order obj=$b held=[$a]
			T2 order obj=$a held=[$b]`, abInversion},
		{"joined by another, who told us", `
			T1 thread-create child=T2
			T1 thread-create child=T3
			T2 order obj=$b held=[$a]
			T2 thread-exit
			T3 thread-join target=T2
			T3 thread-create child=T4
			T4 order obj=$a held=[$b]`, ``},
		{"joined by another, who did not", `
			T1 thread-create child=T2
			T1 thread-create child=T3
			T2 order obj=$b held=[$a]
			T2 thread-exit
			T3 thread-join target=T2
			T1 thread-create child=T4
			T4 order obj=$a held=[$b]`, abInversion},
		{"phases of a barrier", twoThreads + `
			T2 order obj=$b held=[$a]
			T2 barrier-arrive obj=$g count=2
			T3 barrier-arrive obj=$g count=2
			T3 barrier-leave obj=$g
			T2 barrier-leave obj=$g
			T3 order obj=$a held=[$b]`, ``},
		{"the same phase of a barrier", twoThreads + `
			T2 barrier-arrive obj=$g count=2
			T3 barrier-arrive obj=$g count=2
			T3 barrier-leave obj=$g
			T2 barrier-leave obj=$g
			T2 order obj=$b held=[$a]
			T3 order obj=$a held=[$b]`, abInversion},
		{"readers", twoThreads + `
			T2 order obj=$r kind=rwlock mode=shared held=[$a]
			T3 order obj=$a held=[rwlock:$r:shared:S1]`, ``},
		{"a reader and a writer", twoThreads + `
			T2 order obj=$r kind=rwlock mode=exclusive held=[$a]
			T3 order obj=$a held=[rwlock:$r:shared:S1]`,
			`lock-order-inversion: Cycle in lock order graph: RW1 => M1 => RW1`},
		{"a writer and a reader", twoThreads + `
			T2 order obj=$r kind=rwlock mode=shared held=[$a]
			T3 order obj=$a held=[rwlock:$r:exclusive:S1]`,
			`lock-order-inversion: Cycle in lock order graph: RW1 => M1 => RW1`},
		{"destroyed and made again", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 destroy obj=$b
			T3 order obj=$a held=[$b]`, ``},
		{"initialised again", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 init obj=$b
			T3 order obj=$a held=[$b]`, ``},
		{"a destroy that failed", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 destroy obj=$b result=16
			T3 order obj=$a held=[$b]`, abInversion},
		{"freed", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 block-gone block=0xb00 size=64
			T3 order obj=$a held=[$b]`, ``},
		{"freed beside it", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 block-gone block=0xb01 size=64
			T3 order obj=$a held=[$b]`, abInversion},
		{"on the stack of a thread that ended", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 thread-start self=T9 stack_lo=0xb00 stack_hi=0xc00
			T9 thread-exit
			T3 order obj=$a held=[$b]`, ``},
		{"the late word of a static lock", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 init obj=$b flags=static
			T3 order obj=$a held=[$b]`, abInversion},
		{"handed over", twoThreads + `
			T2 order obj=$b held=[$a]
			T1 misuse obj=$b what=unlock-not-owner other=T2 stack=S9
			T3 order obj=$a held=[$b]`, `unlock-not-owner: Unlock of mutex M1 by a thread that does not hold it`},
		{"three locks", twoThreads + `
			T1 order obj=$b held=[$a]
			T2 order obj=$c held=[$b]
			T3 order obj=$a held=[$c]`, `lock-order-inversion: Cycle in lock order graph: M1 => M2 => M3 => M1`},
		{"three locks, two threads", twoThreads + `
			T2 order obj=$b held=[$a]
			T2 order obj=$c held=[$b]
			T3 order obj=$a held=[$c]`, ``},
		{"three locks, two threads, one of which holds them all", twoThreads + `
			T2 order obj=$b held=[$a]
			T2 order obj=$c held=[$a,$b]
			T3 order obj=$a held=[$c]`, abInversion},
		{"a gate around two of three", twoThreads + `
			T1 order obj=$b held=[$g,$a]
			T2 order obj=$c held=[$g,$b]
			T3 order obj=$a held=[$c]`, ``},
		{"a second one, longer, through the same nesting is not told", twoThreads + `
			T1 thread-create child=T4
			T2 order obj=$a held=[$b]
			T3 order obj=$c held=[$b]
			T4 order obj=$a held=[$c]
			T1 order obj=$b held=[$a]`, abInversion},
		{"a forked child's locks are its own", twoThreads + `
			P1 T2 order obj=$b held=[$a]
			P2 T1 process start=fork id=2 parent_id=1 parent_thread=T1
			P2 T1 thread-create child=T2
			P2 T2 order obj=$a held=[$b]`, ``},
		{"a semaphore as a lock", twoThreads + `
			T1 init obj=$s kind=sem value=1
			T2 order obj=$s kind=sem held=[$a]
			T3 order obj=$a held=[sem:$s:S1]`, `lock-order-inversion: Cycle in lock order graph: S1 => M1 => S1`},
		// Two processes' threads took turns by a shared semaphore, and the orders within it were told as an inversion.
		{"a shared semaphore as a gate", twoThreads + `
			T1 init obj=$s kind=sem value=1 flags=pshared
			T2 order obj=$b held=[sem:$s:S1,$a]
			T3 order obj=$a held=[sem:$s:S1,$b]`, ``},
		{"a shared semaphore in a cycle: others may post it", twoThreads + `
			T1 init obj=$s kind=sem value=1 flags=pshared
			T2 order obj=$s kind=sem held=[$a]
			T3 order obj=$a held=[sem:$s:S1]`, ``},
		{"a semaphore that is handed over later", twoThreads + `
			T1 init obj=$s kind=sem value=1
			T2 order obj=$s kind=sem held=[$a]
			T3 order obj=$a held=[sem:$s:S1]
			T1 sem-post obj=$s`, ``},
	})
}

// The finding names for each edge where the first lock was acquired and where the second, and by whom.
func TestInversionTellsBothSides(t *testing.T) {
	fs := run(t, Config{}, twoThreads+`
		T2 order obj=$b stack=S21 held=[$g:S19,$a:S20]
		T3 order obj=$a stack=S31 held=[$b:S30]`)
	if len(fs) != 1 {
		t.Fatalf("findings %v", gist(fs))
	}
	var got []string
	for _, p := range fs[0].Parts {
		got = append(got, fmt.Sprintf("%s T%d @%s %s@%s", p.Text, p.Thread, pcs(p.Stack), p.Held[0].Object, pcs(p.Held[0].Stack)))
	}
	want := []string{
		"Mutex M2 acquired here while holding mutex M1 T3 @31 M1@30",
		"Mutex M1 acquired here while holding mutex M2 T2 @21 M2@20",
	}
	if !slices.Equal(got, want) {
		t.Errorf("parts:\n  %s", strings.Join(got, "\n  "))
	}
	if o := fs[0].Objects; len(o) != 2 || o[0].Addr != 0xb00 || o[1].Addr != 0xa00 || o[0].Kind != "mutex" {
		t.Errorf("objects %+v", o)
	}
}

// Many locks of one kind, taken at the same places in the code, make one finding with a count, not one for each pair.
func TestOneFindingForAClass(t *testing.T) {
	var ev strings.Builder
	ev.WriteString(twoThreads)
	const n = 30
	for i := range n {
		for j := range n {
			if i != j {
				thread := 2
				if i < j {
					thread = 3
				}
				fmt.Fprintf(&ev, "T%d order obj=0x%x stack=S2 held=[0x%x:S1]\n", thread, 0x1000+i*64, 0x1000+j*64)
			}
		}
	}
	all := ev.String()
	fs := run(t, Config{}, all+"P1 gone")
	if len(fs) != 2 || fs[0].Message != fs[1].Message || fs[0].Count != 1 || fs[1].Count < n {
		t.Errorf("want one finding and its count, got %q", gist(fs))
	}
	// Other places in the code are another finding.
	fs = run(t, Config{}, all+"T2 order obj=0x110 stack=S5 held=[0x120:S4]\nT3 order obj=0x120 stack=S7 held=[0x110:S6]")
	if len(fs) != 3 || fs[1].Count != 1 || fs[1].Parts[0].Stack[0].PC == fs[0].Parts[0].Stack[0].PC {
		t.Errorf("two classes: got %q", gist(fs))
	}
}

// A cycle of n locks by n threads is found for any n, once.
func TestRings(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 60} {
		var ev strings.Builder
		for i := range n {
			fmt.Fprintf(&ev, "T1 thread-create child=T%d\n", i+2)
		}
		for i := range n {
			fmt.Fprintf(&ev, "T%d order obj=0x%x stack=S%d held=[0x%x:S%d]\n", i+2, 0x1000+64*((i+1)%n), 2*i+2, 0x1000+64*i, 2*i+1)
		}
		fs := run(t, Config{}, ev.String())
		if len(fs) != 1 || len(fs[0].Parts) != n {
			t.Errorf("ring of %d: %q", n, gist(fs))
		}
	}
}

// 200 locks held at once are no problem, and the order of the first and the last is still compared.
func TestManyLocksHeld(t *testing.T) {
	var ev, held strings.Builder
	ev.WriteString(twoThreads)
	for i := range 200 {
		if i > 0 {
			fmt.Fprintf(&ev, "T2 order obj=0x%x held=[%s]\n", 0x1000+64*i, held.String())
			held.WriteByte(',')
		}
		fmt.Fprintf(&held, "0x%x", 0x1000+64*i)
	}
	fmt.Fprintf(&ev, "T3 order obj=0x%x held=[0x%x]\n", 0x1000, 0x1000+64*199)
	fs := run(t, Config{}, ev.String())
	if !slices.Equal(gist(fs), []string{abInversion}) {
		t.Errorf("got %q", gist(fs))
	}
}

// Short threads without end, each nesting the same locks, neither use up the graph nor hide an inversion among those that live.
func TestManyShortThreads(t *testing.T) {
	d := New(Config{}, plainWorld{}, func(finding.Finding) { t.Error("a finding among threads that are all joined") })
	at := uint64(1)
	one := func(format string, args ...any) {
		lines, err := trace.ParseText(strings.NewReader(fmt.Sprintf(format, args...)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range lines {
			d.Event(1, &lines[i].Event)
			at++
		}
	}
	for i := range 3000 {
		a, b := "0xa00", "0xb00"
		if i%2 == 1 {
			a, b = b, a
		}
		one("T1 thread-create child=T%[1]d\nT%[1]d order obj=%[2]s stack=S1 held=[%[3]s:S2]\nT%[1]d thread-exit\nT1 thread-join target=T%[1]d", i+2, a, b)
	}
	p := d.procs[1]
	if len(p.threads) != 1 || len(d.Notes()) != 0 {
		t.Errorf("%d threads kept, notes %q", len(p.threads), d.Notes())
	}
	found := 0
	d.sink = func(finding.Finding) { found++ }
	one("T1 thread-create child=T5000\nT5000 order obj=0xa00 stack=S1 held=[0xb00:S2]\nT1 order obj=0xb00 stack=S1 held=[0xa00:S2]")
	if found != 1 {
		t.Errorf("%d findings for the inversion of two threads that live", found)
	}
}

// Of twenty workers that nest two locks alike only sixteen were kept. When those were joined, the opposite order was taken for harmless, though four
// workers still ran.
func TestTheLastOfManyWorkers(t *testing.T) {
	var ev strings.Builder
	for i := range 20 {
		fmt.Fprintf(&ev, "T1 thread-create child=T%d\n", i+2)
	}
	for i := range 20 {
		fmt.Fprintf(&ev, "T%d order obj=$b held=[$a]\n", i+2)
	}
	join := func(workers int) string {
		var text strings.Builder
		for i := range workers {
			fmt.Fprintf(&text, "T%d thread-exit\nT1 thread-join target=T%d\n", i+2, i+2)
		}
		return ev.String() + text.String() + "T1 order obj=$a held=[$b]\n"
	}
	found, d := feed(t, Config{}, join(19))
	if len(*found) != 1 || (*found)[0].Rule != finding.RuleInversion || len(d.Details()) != 0 {
		t.Errorf("one of twenty still runs: findings %v, details %q", gist(*found), d.Details())
	}
	if found, _ := feed(t, Config{}, join(20)); len(*found) != 0 {
		t.Errorf("all twenty were joined: findings %v", gist(*found))
	}
}

// A server with forty workers that all nest two locks alike printed a warning into the standard error of a correct program. For some hundreds it is a
// detail, to be had on demand; and the one thread that does it the other way is found all the same.
func TestManyWorkersNestAlike(t *testing.T) {
	var ev strings.Builder
	for i := range 301 {
		fmt.Fprintf(&ev, "T1 thread-create child=T%d\n", i+2)
	}
	for i := range 300 {
		fmt.Fprintf(&ev, "T%d order obj=$b held=[$a]\n", i+2)
	}
	_, d := feed(t, Config{}, ev.String())
	if n := d.Notes(); len(n) != 0 {
		t.Errorf("notes %q", n)
	}
	if n := d.Details(); len(n) != 1 || !strings.Contains(n[0], "nest the same locks") {
		t.Errorf("details %q", n)
	}
	found, _ := feed(t, Config{}, ev.String()+"T302 order obj=$a held=[$b]\n")
	if len(*found) != 1 || (*found)[0].Rule != finding.RuleInversion {
		t.Errorf("findings %v", *found)
	}
}

// Bounds are said, never silent.
func TestBoundsAreSaid(t *testing.T) {
	_, d := feed(t, Config{MaxNestings: 2}, twoThreads+`
		T2 order obj=$b held=[$a]
		T2 order obj=$c held=[$a]
		T2 order obj=$d held=[$a]`)
	if n := d.Notes(); len(n) != 1 || !strings.Contains(n[0], "more than 2 different ways") {
		t.Errorf("notes %q", n)
	}
	// A dense tangle of locks behind gates: the search gives up, and says so.
	var ev strings.Builder
	ev.WriteString(twoThreads)
	for i := range 14 {
		for j := range 14 {
			if i != j {
				fmt.Fprintf(&ev, "T%d order obj=0x%x held=[0xf0,0x%x]\n", 1+(i*j)%3, 0x1000+64*i, 0x1000+64*j)
			}
		}
	}
	_, d = feed(t, Config{SearchSteps: 16}, ev.String())
	if n := d.Notes(); len(n) != 1 || !strings.Contains(n[0], "cut short") {
		t.Errorf("notes %q", n)
	}
}

// What ends takes its part of the graph with it: a program that makes and frees locks forever does not fill it.
func TestDeadLocksLeaveTheGraph(t *testing.T) {
	d := New(Config{}, plainWorld{}, func(f finding.Finding) { t.Errorf("finding %s", f.Message) })
	var ev strings.Builder
	ev.WriteString(twoThreads)
	for i := range 2000 {
		// A lock in a block, below a lock that stays and above another that stays.
		fmt.Fprintf(&ev, "T%d order obj=0x%x held=[0x10]\nT2 order obj=0x20 held=[0x%x]\nT2 block-gone block=0x%x size=64\n", 2+i%2, 0x1000+i*64, 0x1000+i*64, 0x1000+i*64)
	}
	lines, err := trace.ParseText(strings.NewReader(ev.String()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		d.Event(1, &lines[i].Event)
	}
	p := d.procs[1]
	if p.order.count != 0 || len(p.order.nestings) != 0 || len(p.objs.byAddr) != 2 || len(p.objs.pages) != 1 {
		t.Errorf("left: %d nestings (%d), %d objects, %d pages", p.order.count, len(p.order.nestings), len(p.objs.byAddr), len(p.objs.pages))
	}
	for _, o := range p.objs.byAddr {
		if n := o.node; len(n.taken)+len(n.heldBy) > 4 || len(n.out)+len(n.in) > 0 {
			t.Errorf("lock %#x keeps %d+%d nestings, %d+%d edges", o.addr, len(n.taken), len(n.heldBy), len(n.out), len(n.in))
		}
	}
}
