package ctest

import (
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// Wrong joins and detaches are told as such, and once; a pthread_t that glibc gives again to a new thread is no error.
func TestThreadMisuse(t *testing.T) {
	prog := compile(t, "core_misuse.c")
	for what, want := range map[string]wire.Misuse{
		"double-join": wire.MisuseDoubleJoin, "join-detached": wire.MisuseJoinDetached, "double-detach": wire.MisuseDoubleDetach,
		"join-self": wire.MisuseJoinSelf, "reuse": 0,
	} {
		l := same(t, filtered, prog, what)
		var got []wire.Misuse
		for _, e := range l.of(wire.TypeMisuse) {
			m := wire.DecodeMisuse(e.Words)
			got = append(got, m.What)
			if m.Kind != wire.ObjectThread || m.Stack == 0 || (want != wire.MisuseJoinSelf && m.Stack2 == 0) || m.Other == 0 {
				t.Errorf("%s: %+v", what, m)
			}
		}
		if want == 0 && len(got) > 0 || want != 0 && (len(got) != 1 || got[0] != want) {
			t.Errorf("%s: misuse %v, want %v", what, got, want)
		}
	}
}

// Threads that glibc makes for itself are taken in with their first event, and end like others.
func TestForeignThreads(t *testing.T) {
	l := same(t, all, compile(t, "core_foreign.c"))
	starts, exits := len(l.of(wire.TypeThreadStart)), len(l.of(wire.TypeThreadExit))
	// main, three that call back, and glibc's own helper if it calls something of ours.
	if starts < 4 || starts > 5 || exits < 2 {
		t.Errorf("%d threads started, want main and 3 or 4; %d ended, want all but the last, which may be cut short", starts, exits)
	}
}

// thread-exit comes after cleanup handlers, C++ thread_local destructors and every round of key destructors.
func TestEndOrder(t *testing.T) {
	l := same(t, all, compile(t, "core_order.cc"))
	last := map[uint32]wire.Type{}
	locks := map[uint32]int{}
	for _, e := range l.events {
		last[e.Thread] = e.Type
		if e.Type == wire.TypeAcquire {
			locks[e.Thread]++
		}
	}
	for n := uint32(2); n <= 4; n++ {
		// One in the body, one each in cleanup and thread_local, three rounds of the key.
		if last[n] != wire.TypeThreadExit || locks[n] != 6 {
			t.Errorf("T%d: ends with %v, %d locks, want thread-exit, 6", n, last[n], locks[n])
		}
	}
}

// Children of fork are processes of their own, with their parent, modules and stacks; grandchildren too.
func TestForks(t *testing.T) {
	l := same(t, filtered, compile(t, "core_forks.c"))
	parent := map[uint64]uint64{}
	depth := func(p uint64) (n int) {
		for ; parent[p] != 0; p = parent[p] {
			n++
		}
		return n
	}
	for _, e := range l.of(wire.TypeProcess) {
		p := wire.DecodeProcess(e.Words)
		parent[p.ID] = p.ParentID
		if (p.Start == wire.StartFork) != (p.ParentID != 0) || p.ID != e.process {
			t.Errorf("%+v", p)
		}
	}
	count := map[int]int{}
	for p := range parent {
		count[depth(p)]++
	}
	if count[0] != 1 || count[1] != 20 || count[2] != 20 {
		t.Errorf("processes by depth: %v, want 1, 20, 20", count)
	}
	first := map[uint64]wire.Type{}
	for _, e := range l.events {
		if _, ok := first[e.process]; !ok {
			first[e.process] = e.Type
			if e.Type != wire.TypeProcess {
				t.Errorf("process %d begins with %v", e.process, e.Type)
			}
		}
	}
	if n := len(l.of(wire.TypeMisuse)) + len(l.of(wire.TypeNotice)); n != 0 {
		t.Errorf("%d misuse and notice events", n)
	}
}

// getauxval and runtimes that walk behind the environment find the auxiliary vector they find natively.
func TestAuxv(t *testing.T) {
	same(t, filtered, compile(t, "core_auxv.c"))
}

// Children that a signal handler forks in the middle of an emission go on and are processes of their own.
func TestForkInHandler(t *testing.T) {
	l := same(t, all, compile(t, "core_forkhandler.c", "-O2"))
	if n := len(l.of(wire.TypeProcess)); n < 90 || n > 101 {
		t.Errorf("%d processes, want 101 but for children that sent nothing", n)
	}
}

// A child that a handler had forked waited for ever for room in a ring that was empty: the fork had come between the two instructions by which an emission of its parent's read where its ring's head is to be, and stored that. TestForkInHandler met it once; here each instruction of a post has its fork.
func TestForkAtEachInstruction(t *testing.T) {
	l := same(t, all, compile(t, "core_forksteps.c", "-O2"))
	if n := len(l.of(wire.TypeProcess)); n < 100 {
		t.Errorf("%d processes: a post has more instructions than that", n)
	}
}

// A handler that left by siglongjmp between the two stores by which an emission ends: the thread was never heard of again if the second is only made where the first was. TestJumps meets that once in some runs.
func TestJumpAtEachInstruction(t *testing.T) {
	l := same(t, all, compile(t, "core_forksteps.c", "-O2"), "jump")
	if n := len(l.of(wire.TypeSemPost)); n < 10000 {
		t.Errorf("%d posts are told, of 10000 and more", n)
	}
}
