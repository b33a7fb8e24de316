package race

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// plainWorld names nothing: a stack S7 is one frame with PC 7. Code at 0xc… is the runtime's, at 0xd… the agent's; what the runtime does at 0xcc… counts.
type plainWorld struct{}

func (plainWorld) Event(uint64, *wire.Event)       {}
func (plainWorld) Held(uint64, uint32) []wire.Held { return nil }
func (plainWorld) Stack(_ uint64, id uint32) finding.Stack {
	return finding.Stack{{PC: uint64(id)}}
}
func (plainWorld) Frame(_, pc uint64, _ bool) finding.Frame { return finding.Frame{PC: pc} }
func (plainWorld) Thread(_ uint64, number uint32) finding.Thread {
	return finding.Thread{Number: number, Tid: 1000 + number, Creator: min(number-1, 1)}
}
func (plainWorld) Object(_, addr uint64, _ wire.Object) finding.Object {
	return finding.Object{Addr: addr, Where: finding.Unknown}
}
func (plainWorld) Process(process uint64) (uint32, string, []string) {
	return uint32(100 + process), "/bin/prog", []string{"prog"}
}
func (plainWorld) Code(_, pc uint64) Code {
	switch pc >> 8 {
	case 0xc, 0xcc:
		return Runtime
	case 0xd:
		return Ignored
	}
	return Program
}
func (plainWorld) Counts(a *Access) bool { return a.PC>>8 == 0xcc }

func newPlainWorld() World { return plainWorld{} }

// item is an event or an access of a recording in memory.
type item struct {
	process uint64
	event   *wire.Event
	access  Access
}

// inputOf makes a recording of items, in their order.
func inputOf(items []item) Input {
	var accesses []Access
	for i := range items {
		if items[i].event != nil {
			items[i].event.TS = uint64(i) + 1
		} else {
			items[i].access.Time = uint64(i) + 1
			accesses = append(accesses, items[i].access)
		}
	}
	return Input{
		Events: func(fn func(uint64, *wire.Event) error) error {
			for i := range items {
				if e := items[i].event; e != nil {
					if err := fn(items[i].process, e); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Accesses: Accesses(accesses),
	}
}

var kinds = map[string]Kind{"r": Read, "w": Write, "rw": Read | Write, "lr": Read | Locked, "lw": Write | Locked, "lrw": Read | Write | Locked, "fence": Fence}

// parse reads lines: events as the text twin has them, and accesses like `T2 w4 0x100 @7` (thread, kind and size, address, pc), perhaps behind `P2`.
func parse(t testing.TB, text string) (items []item) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		f := strings.Fields(line)
		process := uint64(1)
		if n, _ := fmt.Sscanf(f[0], "P%d", &process); n == 1 {
			f = f[1:]
		}
		if len(f) >= 2 {
			a := Access{Process: process}
			name := strings.TrimRight(f[1], "0123456789")
			if k, ok := kinds[name]; ok {
				a.Kind = k
				if _, err := fmt.Sscanf(f[0], "T%d", &a.Thread); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if k != Fence {
					if n, err := fmt.Sscanf(f[1][len(name):]+" "+strings.Join(f[2:], " "), "%d 0x%x @%d", &a.Size, &a.Addr, &a.PC); n != 3 {
						t.Fatalf("%q: %v", line, err)
					}
				}
				items = append(items, item{process: process, access: a})
				continue
			}
		}
		lines, err := trace.ParseText(strings.NewReader(line))
		if err != nil || len(lines) != 1 {
			t.Fatalf("%q: %v", line, err)
		}
		e := lines[0].Event
		items = append(items, item{process: lines[0].Process, event: &e})
	}
	return items
}

// gist is what tests compare: rule, and the places of code.
func gist(races []Race) []string {
	out := []string{}
	for _, r := range races {
		s := string(r.Finding.Rule)
		for _, p := range r.Finding.Parts {
			s += fmt.Sprintf(" %d", p.Stack[0].PC)
		}
		out = append(out, s)
	}
	return out
}

type testCase struct{ name, items, want string }

func check(t *testing.T, cfg Config, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := []string{}
			for _, l := range strings.Split(c.want, "\n") {
				if l = strings.TrimSpace(l); l != "" {
					want = append(want, l)
				}
			}
			res, err := Run(inputOf(parse(t, c.items)), newPlainWorld, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := gist(res.Races); !slices.Equal(got, want) {
				t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

const twoThreads = `
	T1 thread-start self=T1
	T1 thread-create child=T2
	T1 thread-create child=T3
	T2 thread-start self=T2
	T3 thread-start self=T3
`

// Each kind of order once as it orders, and once the other way round, where it must not. Accesses of three bytes are no movs of atomics.
func TestOrders(t *testing.T) {
	ordered := func(release, acquire string) string {
		return twoThreads + "T2 w3 0x100 @1\n" + release + "\n" + acquire + "\nT3 w3 0x100 @2"
	}
	const race = "data-race 2 1"
	var cases []testCase
	for _, o := range []struct{ name, release, acquire string }{
		{"mutex", "T2 release obj=0xa00 kind=mutex", "T3 acquire obj=0xa00 kind=mutex"},
		{"spin", "T2 release obj=0xa00 kind=spin", "T3 acquire obj=0xa00 kind=spin"},
		{"rwlock writer to writer", "T2 release obj=0xa00 kind=rwlock", "T3 acquire obj=0xa00 kind=rwlock"},
		{"rwlock writer to reader", "T2 release obj=0xa00 kind=rwlock", "T3 acquire obj=0xa00 kind=rwlock mode=shared"},
		{"rwlock reader to writer", "T2 release obj=0xa00 kind=rwlock mode=shared", "T3 acquire obj=0xa00 kind=rwlock"},
		{"mutex of a condition wait", "T2 release obj=0xa00 kind=mutex how=cond", "T3 acquire obj=0xa00 kind=mutex how=cond"},
		{"condition", "T2 cond-signal cond=0xa00", "T3 cond-woken cond=0xa00 mutex=0xb00"},
		{"barrier", "T2 barrier-arrive obj=0xa00 count=2\nT3 barrier-arrive obj=0xa00 count=2", "T3 barrier-leave obj=0xa00"},
		{"semaphore", "T2 sem-post obj=0xa00", "T3 sem-wait obj=0xa00"},
		{"once", "T2 once-end obj=0xa00 kind=once done=1", "T3 once-seen obj=0xa00 kind=once"},
		{"guard", "T2 once-end obj=0xa00 kind=guard done=1", "T3 once-seen obj=0xa00 kind=guard"},
		// Code that g++ compiles reads the guard's byte and makes no call: a program with a static variable in a function was reported for it.
		{"a guard that is looked at", "T2 once-end obj=0xa00 kind=guard done=1", "T3 r1 0xa00 @9"},
		{"an initialiser that failed", "T2 once-end obj=0xa00 kind=guard", "T3 once-begin obj=0xa00 kind=guard"},
		{"signal", "T2 signal-send sig=10 target=T3", "T3 signal-enter sig=10 code=-6"},
		{"sigaction", "T2 sigaction sig=11 handler=0x500", "T3 signal-enter sig=11 code=1"},
		{"a timer's signal", "", "T3 signal-enter sig=14 code=128"},
		{"sigwait", "T2 signal-send sig=10 target=T3", "T3 signal-taken sig=10 code=-6"},
		{"channel", "T2 channel-release channel=5 kind=pipe fd=3", "T3 channel-acquire channel=5 kind=pipe fd=4"},
		{"futex", "T2 futex-wake obj=0xa00 op=1 result=1", "T3 futex-wait obj=0xa00 op=0 result=0"},
		{"key", "T2 key-create key=3 destructor=0x500", "T3 key-destructor key=3 value=0x1"},
		{"exit handler", "T2 atexit-add fn=0x500", "T3 atexit-run fn=0x500"},
		{"module", "T2 module base=0x9000 end=0xa000 id=7", ""},
		{"cancel", "T2 thread-cancel target=T3", ""},
		{"locked instruction", "T2 lrw4 0xa00 @9", "T3 lrw4 0xa00 @9"},
		{"a flag that a locked instruction clears later", "T2 w4 0xa00 @9", "T3 r4 0xa00 @9\nT3 lrw4 0xa00 @9"},
		{"a store with a fence", "T2 w4 0xa00 @9\nT2 fence", "T3 r4 0xa00 @9"},
		{"pshared objects are one", "T2 init obj=0xa00 kind=mutex flags=pshared\nT2 init obj=0xb00 kind=sem flags=pshared\nT2 release obj=0xa00 kind=mutex", "T3 sem-wait obj=0xb00"},
		{"objects in a shared mapping", "T1 mmap addr=0x8000 len=4096 mflags=1\nT2 release obj=0x8a00 kind=mutex", "T3 sem-wait obj=0x8b00"},
		{"thread that somebody made", "", "T4 thread-start self=T4\nT4 release obj=0xa00 kind=mutex\nT3 acquire obj=0xa00 kind=mutex"},
	} {
		cases = append(cases, testCase{o.name, ordered(o.release, o.acquire), ""})
		if o.release != "" && o.acquire != "" && o.name != "barrier" {
			cases = append(cases, testCase{o.name + ", too late", ordered(o.acquire, o.release), race})
		}
	}
	for _, o := range []struct{ name, release, acquire string }{
		{"rwlock reader to reader", "T2 release obj=0xa00 kind=rwlock mode=shared", "T3 acquire obj=0xa00 kind=rwlock mode=shared"},
		{"another lock", "T2 release obj=0xa00 kind=mutex", "T3 acquire obj=0xb00 kind=mutex"},
		{"a recursive release", "T2 release obj=0xa00 kind=mutex how=recursive", "T3 acquire obj=0xa00 kind=mutex"},
		{"a recursive acquire", "T2 release obj=0xa00 kind=mutex", "T3 acquire obj=0xa00 kind=mutex how=recursive"},
		{"a wait that timed out", "T2 cond-signal cond=0xa00", "T3 cond-woken cond=0xa00 mutex=0xb00 result=110"},
		{"a futex that was not woken", "T2 futex-wake obj=0xa00 op=1", "T3 futex-wait obj=0xa00 op=0 result=-11"},
		{"a cancel that failed", "T2 thread-cancel target=T3 result=3", ""},
		{"a join that failed", "T2 thread-exit", "T3 thread-join target=T2 result=16"},
		{"another signal", "T2 signal-send sig=10 target=T3", "T3 signal-enter sig=12 code=-6"},
		{"a signal to another", "T2 signal-send sig=10 target=T1", "T3 signal-enter sig=10 code=-6"},
		{"a phase before", "T2 barrier-arrive obj=0xa00 count=1\nT3 barrier-arrive obj=0xa00 count=1", "T3 barrier-leave obj=0xa00"},
		{"a lock that is a new one", "T2 release obj=0xa00 kind=mutex\nT3 init obj=0xa00 kind=mutex", "T3 acquire obj=0xa00 kind=mutex"},
		{"a destroyed lock", "T2 release obj=0xa00 kind=mutex\nT2 destroy obj=0xa00 kind=mutex", "T3 acquire obj=0xa00 kind=mutex"},
		{"locked instructions of the C library", "T2 lrw4 0xa00 @3100", "T3 lrw4 0xa00 @3100"},
		{"other atomic bytes", "T2 lrw4 0xa00 @9", "T3 lrw4 0xa04 @9"},
		{"an atomic that is only read", "T2 lr4 0xa00 @9", "T3 lrw4 0xa00 @9"},
	} {
		cases = append(cases, testCase{o.name, ordered(o.release, o.acquire), race})
	}
	check(t, Config{}, cases)
}

func TestThreads(t *testing.T) {
	check(t, Config{}, []testCase{
		{"create, exit, join", `
			T1 thread-start self=T1
			T1 w3 0x100 @1
			T1 thread-create child=T2
			T2 thread-start self=T2
			T2 w3 0x100 @2
			T2 thread-exit
			T1 thread-join target=T2
			T1 w3 0x100 @3`, ``},
		{"after create", `
			T1 thread-start self=T1
			T1 thread-create child=T2
			T1 w3 0x100 @1
			T2 thread-start self=T2
			T2 w3 0x100 @2`, `data-race 2 1`},
		{"no join", `
			T1 thread-start self=T1
			T1 thread-create child=T2
			T2 thread-start self=T2
			T2 w3 0x100 @2
			T2 thread-exit
			T1 w3 0x100 @3`, `data-race 3 2`},
		// A place in the clocks is used again only behind the end of the thread that had it: T3 knows nothing of T2 here.
		{"a detached thread's successor", `
			T1 thread-start self=T1
			T1 thread-create child=T2 detached=1
			T2 thread-start self=T2
			T2 w3 0x100 @2
			T2 thread-exit
			T1 thread-create child=T3
			T3 thread-start self=T3
			T3 w3 0x100 @3`, `data-race 3 2`},
		{"fork, and a message back by another process", `
			P1 T1 thread-start self=T1
			P1 T1 thread-create child=T2
			P1 T2 thread-start self=T2
			P1 T1 w3 0x100 @1
			P1 T1 fork child_pid=50
			P2 T0 process pid=50 start=fork parent_thread=T1 id=2 parent_id=1
			P2 T1 channel-release channel=9 kind=pipe
			P1 T2 channel-acquire channel=9 kind=pipe
			P1 T2 w3 0x100 @2`, ``},
		{"wait", `
			P1 T1 thread-start self=T1
			P1 T1 thread-create child=T2
			P1 T2 thread-start self=T2
			P1 T1 w3 0x100 @1
			P1 T1 fork child_pid=50
			P2 T0 process pid=50 start=fork parent_thread=T1 id=2 parent_id=1
			P1 T2 wait pid=50
			P1 T2 w3 0x100 @2`, ``},
		// A child whose first event came late was taken to follow all that the thread that forked had done until then.
		{"what a thread does behind a fork", `
			P1 T1 thread-start self=T1
			P1 T1 thread-create child=T2
			P1 T2 thread-start self=T2
			P1 T1 fork child_pid=50
			P1 T1 w3 0x100 @1
			P2 T0 process pid=50 start=fork parent_thread=T1 id=2 parent_id=1
			P1 T2 wait pid=50
			P1 T2 w3 0x100 @2`, `data-race 2 1`},
		{"a child's memory is its own", `
			P1 T1 thread-start self=T1
			P1 T1 thread-create child=T2
			P1 T2 thread-start self=T2
			P1 T2 w3 0x100 @1
			P2 T0 process pid=50 start=fork parent_thread=T1 id=2 parent_id=1
			P2 T1 w3 0x100 @2`, ``},
		{"a stack given again", `
			T1 thread-start self=T1
			T1 thread-create child=T2 detached=1
			T2 thread-start self=T2 stack_lo=0x8000 stack_hi=0x9000
			T2 w8 0x8100 @2
			T2 thread-exit
			T1 thread-create child=T3
			T3 thread-start self=T3 stack_lo=0x8000 stack_hi=0x9000
			T3 w8 0x8100 @3`, ``},
	})
}

func TestHeap(t *testing.T) {
	check(t, Config{}, []testCase{
		{"use after free", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 r8 0x8018 @1`, `use-after-free-access 1 6`},
		{"the byte behind", twoThreads + `
			T2 alloc addr=0x8000 size=31 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 r1 0x801f @1`, ``},
		{"the allocator's own", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 w8 0x8000 @3100
			T2 w8 0x8000 @3400`, ``},
		{"a function of the C library that the program called", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 w8 0x8000 @52300`, `use-after-free-access 52300 6`},
		// It ordered the two threads, and hid the races of those that begin one after another.
		{"a block that is handed out again has no history, and orders nothing", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 w3 0x8000 @1
			T2 w3 0x100 @2
			T2 free addr=0x8000 stack=S6
			T3 alloc addr=0x7ff0 size=64 stack=S5
			T3 w3 0x8000 @3
			T3 w3 0x100 @4`, `data-race 4 2`},
		{"free against access", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 release obj=0xa00 kind=mutex
			T3 acquire obj=0xa00 kind=mutex
			T3 r3 0x8010 @1
			T2 free addr=0x8000 stack=S6`, `data-race 6 1`},
		{"realloc in place", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 w8 0x8000 @1
			T2 free addr=0x8000 kind=realloc stack=S6
			T2 alloc addr=0x8000 size=64 kind=realloc stack=S6
			T2 r8 0x8000 @2`, ``},
		{"freed and mapped anew", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 mmap addr=0x8000 len=4096
			T2 r8 0x8018 @1`, ``},
		// As by jemalloc's mallocx, and of a library that is loaded with RTLD_DEEPBIND.
		{"blocks are had past malloc", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 alloc addr=0x8100 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 notice what=other-allocations
			T2 r8 0x8018 @1
			T2 free addr=0x8100 stack=S6
			T2 r8 0x8118 @2
			T2 alloc addr=0x8200 size=32 stack=S5
			T2 free addr=0x8200 stack=S6
			T2 w8 0x8208 @3`, ``},
		{"a library's functions are libc's own", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 notice what=deepbind
			T2 r8 0x8018 @1`, ``},
		{"another notice", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 free addr=0x8000 stack=S6
			T2 notice what=limit
			T2 r8 0x8018 @1`, `use-after-free-access 1 6`},
		{"a race with a free is one all the same", twoThreads + `
			T2 alloc addr=0x8000 size=32 stack=S5
			T2 release obj=0xa00 kind=mutex
			T3 acquire obj=0xa00 kind=mutex
			T3 notice what=other-allocations
			T3 r3 0x8010 @1
			T2 free addr=0x8000 stack=S6`, `data-race 6 1`},
		{"a huge block may be unmapped", twoThreads + `
			T2 alloc addr=0x80000 size=200000 stack=S5
			T2 free addr=0x80000 stack=S6
			T2 r8 0x80018 @1`, ``},
	})
}

func TestAtomics(t *testing.T) {
	cases := []testCase{
		{"atomic with atomic", twoThreads + `
			T2 lrw4 0x100 @1
			T3 lrw4 0x100 @2
			T2 r4 0x100 @3
			T3 w4 0x100 @4`, ``},
		{"atomic with memset", twoThreads + `
			T2 lrw4 0x100 @1
			T3 w3 0x100 @2`, `data-race 2 1`},
		{"atomic with an add without lock", twoThreads + `
			T2 lrw4 0x100 @1
			T3 rw4 0x100 @2`, `data-race 2 1`},
		{"an add without lock with an atomic", twoThreads + `
			T3 rw4 0x100 @2
			T2 lrw4 0x100 @1`, `data-race 1 2`},
		{"mov of ordinary bytes beside", twoThreads + `
			T2 lrw4 0x100 @1
			T2 w8 0x100 @2
			T3 w8 0x100 @3`, `data-race-mov 3 2`},
		{"a hand-made lock", twoThreads + `
			T2 lrw4 0x200 @1
			T2 rw8 0x100 @2
			T2 w4 0x200 @3
			T3 lrw4 0x200 @1
			T3 rw8 0x100 @2`, ``},
		{"movs alone", twoThreads + `
			T2 w4 0x100 @1
			T3 r4 0x100 @2`, `data-race-mov 2 1`},
		{"movs of different sizes", twoThreads + `
			T2 w4 0x100 @1
			T3 r2 0x100 @2`, `data-race 2 1`},
		{"movs of unaligned bytes", twoThreads + `
			T2 w4 0x102 @1
			T3 w4 0x102 @2`, `data-race 2 1`},
		{"an order that rests on mov", twoThreads + `
			T2 w16 0x200 @1
			T2 w4 0x100 @2
			T3 r4 0x100 @3
			T3 r16 0x200 @4`, "data-race-mov 3 2\ndata-race-mov 4 1"},
		{"no order by mov", twoThreads + `
			T2 w16 0x200 @1
			T3 r4 0x100 @3
			T2 w4 0x100 @2
			T3 r16 0x200 @4`, "data-race-mov 2 3\ndata-race 4 1"},
		{"another life of the bytes", twoThreads + `
			T2 alloc addr=0x8000 size=16
			T2 lrw4 0x8000 @1
			T2 free addr=0x8000
			T2 alloc addr=0x8000 size=16
			T2 w4 0x8000 @2
			T3 w4 0x8000 @3`, `data-race-mov 3 2`},
	}
	check(t, Config{}, cases)
	t.Run("hide", func(t *testing.T) {
		var hidden []testCase
		for _, c := range cases {
			var keep []string
			for _, l := range strings.Split(c.want, "\n") {
				if !strings.HasPrefix(l, "data-race-mov") {
					keep = append(keep, l)
				}
			}
			c.want = strings.Join(keep, "\n")
			hidden = append(hidden, c)
		}
		check(t, Config{MovAtomics: Hide}, hidden)
	})
}

func TestBytes(t *testing.T) {
	check(t, Config{}, []testCase{
		{"neighbours", twoThreads + `
			T2 w4 0x100 @1
			T3 w4 0x104 @2
			T2 w1 0x108 @3
			T3 w1 0x109 @4
			T2 w16 0x110 @5
			T3 w3 0x120 @6`, ``},
		{"one byte in common", twoThreads + `
			T2 w4 0x100 @1
			T3 w4 0x103 @2`, `data-race 2 1`},
		{"a long one over many cells and pages", twoThreads + `
			T2 w10000 0xffd @1
			T3 w1 0x370c @2
			T3 w1 0x370d @3
			T3 w1 0xffc @4`, `data-race 2 1`},
		{"reads of many, one write", twoThreads + `
			T1 thread-create child=T4
			T2 r3 0x100 @1
			T3 r3 0x100 @2
			T4 w3 0x100 @3`, "data-race 3 1\ndata-race 3 2"},
		{"the same race once", twoThreads + `
			T2 w3 0x100 @1
			T3 w3 0x100 @2
			T2 w3 0x200 @1
			T3 w3 0x200 @2
			T3 w3 0x300 @2
			T2 w3 0x300 @1`, `data-race 2 1`},
		{"half of what was written is other memory now", twoThreads + `
			T2 w8 0x8000 @1
			T3 alloc addr=0x8000 size=3 stack=S5
			T3 w3 0x8000 @2
			T3 w3 0x8004 @3`, `data-race 3 1`},
		{"code of the agent and the runtime", twoThreads + `
			T2 w3 0x100 @3400
			T3 w3 0x100 @3100
			T3 w3 0x100 @1`, ``},
	})
}

// With room for a few cells the newest history is kept, and the loss is said.
func TestHistoryIsBounded(t *testing.T) {
	text := twoThreads + "T2 w3 0x100 @1\nT2 w3 0x900000 @5\n"
	for i := range 100 {
		text += fmt.Sprintf("T2 w1000 0x%x @3\n", 0x10000+i*4096)
	}
	text += "T2 w3 0x800000 @6\nT3 w3 0x100 @2\nT3 w3 0x800000 @7\n"
	res, err := Run(inputOf(parse(t, text)), newPlainWorld, Config{MaxCells: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if got := gist(res.Races); !slices.Equal(got, []string{"data-race 7 6"}) || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "history") {
		t.Errorf("%q, notes %q", got, res.Notes)
	}
}

// What a finding says.
func TestFinding(t *testing.T) {
	items := parse(t, twoThreads+`
		T2 acquire obj=0xa00 kind=mutex stack=S9
		T2 w4 0x100 @1
		T2 release obj=0xa00 kind=mutex
		T3 acquire obj=0xb00 kind=rwlock mode=shared stack=S8
		T3 r8 0x100 @2`)
	items[len(items)-1].access.Provenance = "recovered"
	res, err := Run(inputOf(items), newPlainWorld, Config{})
	if err != nil || len(res.Findings) != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	f := res.Findings[0]
	var got []string
	for _, p := range f.Parts {
		s := fmt.Sprintf("T%d %s", p.Thread, p.Text)
		for _, h := range p.Held {
			s += fmt.Sprintf("; %s shared=%t at %d", h.Object, h.Shared, h.Stack[0].PC)
		}
		got = append(got, s)
	}
	got = append(got, f.Message)
	got = append(got, f.Notes...)
	want := []string{
		"T3 Read of size 8 at 0x100; RW1 shared=true at 8",
		"T2 Previous write of size 4 at 0x100; M1 shared=false at 9",
		"L1 is read by T3 and written by T2, and nothing orders the two",
		"the read: recovered",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if f.PID != 101 || f.Exe != "/bin/prog" || len(f.Threads) != 2 || len(f.Objects) != 3 {
		t.Errorf("%+v", f)
	}
}
