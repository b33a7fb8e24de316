package detect

import (
	"testing"
)

const lateLocks = twoThreads + `
	T1 init obj=$a kind=mutex flags=static
	T1 init obj=$b kind=mutex flags=static
	T1 init obj=$c kind=mutex flags=static
`

// While epochs are recorded waits are told late, with the owner and without what is held. Each row of what is claimed of them, and beside it what is not.
func TestLate(t *testing.T) {
	all := func(uint64, []uint32) bool { return true }
	check(t, Config{Epochs: true, Confirm: all, ConfirmAll: all}, []testCase{
		{"two mutexes, named by the first once more", lateLocks + `
			T2 want obj=$b kind=mutex how=late value=3 stack=S21
			T3 want obj=$a kind=mutex how=late value=2 stack=S31
			T2 want obj=$b kind=mutex how=late value=3 stack=S21`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
		{"an owner that was named before it waited may have given it up", lateLocks + `
			T2 want obj=$b kind=mutex how=late value=3
			T3 want obj=$a kind=mutex how=late value=2`, ``},
		{"it got it meanwhile", lateLocks + `
			T2 want obj=$b kind=mutex how=late value=3
			T3 want obj=$a kind=mutex how=late value=2
			T2 want-end obj=$b
			T2 want obj=$c kind=mutex how=late value=3`, ``},
		{"it is told once, however often they look again", lateLocks + `
			T2 want obj=$b kind=mutex how=late value=3
			T3 want obj=$a kind=mutex how=late value=2
			T2 want obj=$b kind=mutex how=late value=3
			T3 want obj=$a kind=mutex how=late value=2
			T2 want obj=$b kind=mutex how=late value=3`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
		{"with itself", lateLocks + `
			T2 want obj=$a kind=mutex how=late value=2`,
			`self-deadlock: T2 waits for mutex M1 that it holds itself`},
		{"a join of one that waits for what the joiner has", lateLocks + `
			T1 want kind=thread target=T2
			T2 want obj=$a kind=mutex how=late value=1`,
			`deadlock: Cycle of waiting threads: the main thread waits for the end of T2, T2 waits for M1 held by the main thread`},
		{"the joiner had it before", lateLocks + `
			T2 want obj=$a kind=mutex how=late value=1
			T1 want kind=thread target=T2`, ``},
		{"shared with others, who have numbers of their own", twoThreads + `
			T1 init obj=$a kind=mutex flags=pshared
			T2 want obj=$a kind=mutex how=late value=2`, ``},
		{"nobody is known by that number", lateLocks + `
			T2 want obj=$a kind=mutex how=late value=77`, ``},
		{"its owner had ended, and another thread runs", lateLocks + `
			T3 thread-exit
			T2 want obj=$a kind=mutex how=late value=3`, ``},
		{"its owner had ended", lateLocks + `
			T3 thread-exit
			T1 want kind=thread target=T2
			T2 want obj=$a kind=mutex how=late value=3`,
			`deadlock: T2 waits for mutex M1, which T3 held when it ended`},
		{"its owner has ended since", lateLocks + `
			T2 want obj=$a kind=mutex how=late value=3
			T3 thread-exit`, ``},
		{"what is announced with a list of what is held is not judged", lateLocks + `
			T2 want obj=$b kind=mutex held=[$a]
			T3 want obj=$a kind=mutex held=[$b]`, ``},
		{"nor are orders", lateLocks + `
			T2 order obj=$b held=[$a]
			T3 order obj=$a held=[$b]`, ``},
		{"readers are not known; all threads wait", twoThreads + `
			T1 init obj=$r kind=rwlock flags=static
			T1 want kind=thread target=T2
			T2 want obj=$r kind=rwlock mode=exclusive how=late
			T3 want obj=$r kind=rwlock mode=exclusive how=late`,
			`deadlock: Every thread of the process waits, and none is left to wake another: the main thread for the end of T2, T2 for RW1, T3 for RW1`},
		{"readers are not known; one runs", twoThreads + `
			T1 init obj=$r kind=rwlock flags=static
			T2 want obj=$r kind=rwlock mode=exclusive how=late
			T3 want obj=$r kind=rwlock mode=exclusive how=late`, ``},
		{"a condition, and nobody left", twoThreads + `
			T1 init obj=$c kind=cond flags=static
			T1 want kind=thread target=T2
			T3 thread-exit
			T2 want obj=$c kind=cond how=late`,
			`hang: Every thread of the process waits, and none is left to wake another: T2 for C1, the main thread for the end of T2`},
		{"a barrier that cannot fill", twoThreads + `
			T1 init obj=$a kind=barrier value=4
			T1 want obj=$a kind=barrier how=late value=4
			T2 want obj=$a kind=barrier how=late value=4
			T3 want obj=$a kind=barrier how=late value=4`,
			`deadlock: Barrier B1 can never fill: it is for 4 threads, 3 arrived, and no thread is left that could`},
		{"a misuse with its owner", lateLocks + `
			T2 misuse what=unlock-not-owner obj=$a kind=mutex aux=3 stack=S1`,
			`unlock-not-owner: Unlock of mutex M1 by a thread that does not hold it`},
		{"of which nobody is known by that number", lateLocks + `
			T2 misuse what=unlock-not-owner obj=$a kind=mutex aux=77 stack=S1`, ``},
		{"a misuse that rests on what is held", lateLocks + `
			T2 misuse what=exit-holding-lock obj=$a kind=mutex stack=S1`, ``},
		{"a lock that was unlocked by another", lateLocks + `
			T1 misuse what=unlock-not-owner obj=$a kind=mutex aux=3 stack=S1
			T2 want obj=$a kind=mutex how=late value=2`,
			`unlock-not-owner: Unlock of mutex M1 by a thread that does not hold it`},
		{"a forked child, which is not recorded", lateLocks + `
			T1 fork child_pid=9
			P2 T1 process pid=9 start=fork id=2 parent_id=1 parent_thread=T1
			P2 T1 misuse what=unlock-not-locked obj=$a kind=mutex stack=S1`, ``},
	})
}
