package detect

import "testing"

// A full trace says acquire and release where a filtered one says order: the same is found.
func TestFullTraces(t *testing.T) {
	check(t, Config{}, []testCase{
		{"two orders", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b
			T2 release obj=$b
			T2 release obj=$a
			T3 acquire obj=$b
			T3 acquire obj=$a`, abInversion},
		{"not nested", twoThreads + `
			T2 acquire obj=$a
			T2 release obj=$a
			T2 acquire obj=$b
			T3 acquire obj=$b
			T3 release obj=$b
			T3 acquire obj=$a`, ``},
		{"released in the order acquired", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b
			T2 release obj=$a
			T2 acquire obj=$c
			T3 acquire obj=$c
			T3 acquire obj=$b`, abInversion},
		{"recursion ends with the last release", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$a how=recursive
			T2 release obj=$a how=recursive
			T2 acquire obj=$b
			T2 release obj=$b
			T2 release obj=$a
			T3 acquire obj=$b
			T3 acquire obj=$a`, abInversion},
		{"recursion makes no order", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b
			T2 acquire obj=$a how=recursive
			T2 release obj=$a how=recursive
			T3 acquire obj=$a
			T3 acquire obj=$b`, ``},
		// A frame left by longjmp had a lock, and the next one has another in its place: after its release nothing is held. A recording said that
		// it was, where a run did not.
		{"a lock left behind, and another in its place", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$a
			T2 release obj=$a
			T2 acquire obj=$b
			T3 acquire obj=$b
			T3 acquire obj=$a`, ``},
		{"a gate", twoThreads + `
			T2 acquire obj=$g
			T2 acquire obj=$a
			T2 acquire obj=$b
			T3 acquire obj=$g
			T3 acquire obj=$b
			T3 acquire obj=$a`, ``},
		{"a trylock", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b how=try
			T3 acquire obj=$b
			T3 acquire obj=$a`, ``},
		{"a lock after a trylock", twoThreads + `
			T2 acquire obj=$a how=try
			T2 acquire obj=$b
			T3 acquire obj=$b
			T3 acquire obj=$a`, abInversion},
		{"released by another: no lock", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b
			T3 release obj=$a
			T3 acquire obj=$b
			T3 acquire obj=$a`, ``},
		{"freed while held", twoThreads + `
			T2 acquire obj=$a
			T2 block-gone block=0xa00 size=64
			T2 acquire obj=$b
			T2 release obj=$b
			T3 acquire obj=$b
			T3 acquire obj=$a`, ``},
		{"unmapped", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b
			T1 munmap addr=0 len=4096
			T3 acquire obj=$b
			T3 acquire obj=$a`, ``},
		{"made anew since: remembered nestings do not count for it", twoThreads + `
			T2 acquire obj=$a
			T2 acquire obj=$b
			T2 release obj=$b
			T1 init obj=$b
			T2 acquire obj=$b
			T3 acquire obj=$b
			T3 acquire obj=$a`, abInversion},
		{"held by the forking thread, in the child", `
			P1 T1 thread-start tid=50
			P1 T1 acquire obj=$a
			P1 T1 fork child_pid=60
			P1 T1 release obj=$a
			P2 T1 process pid=60 start=fork id=2 parent_id=1 parent_thread=T1
			P2 T1 thread-create child=T2
			P2 T1 acquire obj=$b
			P2 T2 acquire obj=$b
			P2 T2 acquire obj=$a`, abInversion},
		{"taken after the fork, in the parent only", `
			P1 T1 thread-start tid=50
			P1 T1 fork child_pid=60
			P1 T1 acquire obj=$a
			P2 T1 process pid=60 start=fork id=2 parent_id=1 parent_thread=T1
			P2 T1 thread-create child=T2
			P2 T1 acquire obj=$b
			P2 T2 acquire obj=$b
			P2 T2 acquire obj=$a`, ``},
		{"a semaphore as a lock", twoThreads + `
			T1 init obj=$s kind=sem value=1
			T2 acquire obj=$a
			T2 sem-wait obj=$s
			T2 sem-post obj=$s
			T2 release obj=$a
			T3 sem-wait obj=$s
			T3 acquire obj=$a
			T3 release obj=$a
			T3 sem-post obj=$s
			P1 gone`, `lock-order-inversion: Cycle in lock order graph: S1 => M1 => S1`},
		{"a named semaphore as a gate", twoThreads + `
			T1 init obj=$s kind=sem value=1 flags=named
			T2 sem-wait obj=$s
			T2 acquire obj=$a
			T2 acquire obj=$b
			T2 release obj=$b
			T2 release obj=$a
			T2 sem-post obj=$s
			T3 sem-wait obj=$s
			T3 acquire obj=$b
			T3 acquire obj=$a
			T3 release obj=$a
			T3 release obj=$b
			T3 sem-post obj=$s`, ``},
		{"a semaphore handed over", twoThreads + `
			T1 init obj=$s kind=sem value=1
			T2 acquire obj=$a
			T2 sem-wait obj=$s
			T2 sem-post obj=$s
			T2 release obj=$a
			T3 sem-wait obj=$s
			T3 acquire obj=$a
			T3 release obj=$a
			T2 sem-post obj=$s
			P1 gone`, ``},
		{"semaphores, all stuck", twoThreads + `
			T1 init obj=$a kind=sem value=1
			T1 init obj=$b kind=sem value=1
			T2 sem-wait obj=$a stack=S1
			T3 sem-wait obj=$b stack=S2
			T2 want obj=$b kind=sem held=[sem:$a:S1]
			T3 want obj=$a kind=sem held=[sem:$b:S2]
			T1 want kind=thread target=T2
			P1 gone`, `deadlock: Cycle of waiting threads: T2 waits for S1 held by T3, T3 waits for S2 held by T2`},
		{"a post is on its way", twoThreads + `
			T1 init obj=$a kind=sem value=0
			T3 acquire obj=$b
			T3 release obj=$b
			T2 want obj=$a kind=sem
			T3 thread-exit
			T1 sem-post obj=$a
			T1 want kind=thread target=T2
			P1 gone`, ``},
		{"a full trace in which nobody posts", twoThreads + `
			T1 init obj=$a kind=sem value=0
			T3 acquire obj=$b
			T3 release obj=$b
			T3 thread-exit
			T2 want obj=$a kind=sem
			T1 want kind=thread target=T2
			P1 gone`, `hang: Every thread of the process waits, and none is left to wake another: T2 for S1, the main thread for the end of T2`},
	})
}
