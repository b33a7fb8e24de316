package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
)

const twoThreads = `
	T1 thread-start tid=1
	T1 thread-create child=T2
	T2 thread-start tid=2
	T1 thread-create child=T3
	T3 thread-start tid=3
`

// Each row of what a deadlock is, and beside it what looks like one and is none. A Tick follows every event, so that a claim made too early
// shows as well.
func TestDeadlocks(t *testing.T) {
	check(t, Config{}, []testCase{
		{"two mutexes", twoThreads + `
			T2 want obj=$b stack=S21 held=[$a:S20]
			T3 want obj=$a stack=S31 held=[$b:S30]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
		{"the first got it after all", twoThreads + `
			T2 want obj=$b held=[$a]
			T2 want-end obj=$b
			T3 want obj=$a held=[$c]`, ``},
		{"a timed wait gives up", twoThreads + `
			T2 want obj=$b how=timed held=[$a]
			T3 want obj=$a held=[$b]`, ``},
		{"a chain is no cycle", twoThreads + `
			T2 want obj=$b held=[$a]
			T3 want obj=$c held=[$b]`, ``},
		{"three threads", twoThreads + `
			T1 want obj=$a held=[$c]
			T2 want obj=$b held=[$a]
			T3 want obj=$c held=[$b]`,
			`deadlock: Cycle of waiting threads: the main thread waits for M1 held by T2, T2 waits for M2 held by T3, T3 waits for M3 held by the main thread`},
		{"it is told once", twoThreads + `
			T2 want obj=$b held=[$a]
			T3 want obj=$a held=[$b]
			T1 want obj=$a`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
		{"one after the other", twoThreads + `
			T1 thread-create child=T4
			T1 thread-create child=T5
			T2 want obj=$b held=[$a]
			T3 want obj=$a held=[$b]
			T4 want obj=$d held=[$c]
			T5 want obj=$c held=[$d]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2
			 deadlock: Cycle of waiting threads: T4 waits for M1 held by T5, T5 waits for M2 held by T4`},
		{"with itself", twoThreads + `
			T2 want obj=$a stack=S2 held=[$a:S1]`,
			`self-deadlock: T2 waits for mutex M1 that it holds itself`},
		{"a recursive mutex lets its owner in", twoThreads + `
			T1 init obj=$a flags=recursive
			T2 want obj=$a held=[$a]`, ``},
		{"two that cannot both hold it", twoThreads + `
			T1 want obj=$c held=[$a]
			T2 want obj=$b held=[$a]
			T3 want obj=$a held=[$b]`, ``},
		{"handed over: who holds it says nothing", twoThreads + `
			T1 misuse what=unlock-not-owner obj=$a other=T2 stack=S1
			T2 want obj=$b held=[$a]
			T3 want obj=$a held=[$b]`, `unlock-not-owner: Unlock of mutex M1 by a thread that does not hold it`},
		{"spin locks", twoThreads + `
			T2 want obj=$b kind=spin held=[spin:$a:S1]
			T3 want obj=$a kind=spin held=[spin:$b:S2]`,
			`deadlock: Cycle of waiting threads: T2 waits for SP1 held by T3, T3 waits for SP2 held by T2`},
		{"writer and reader", twoThreads + `
			T2 want obj=$b held=[rwlock:$a:shared:S1]
			T3 want obj=$a kind=rwlock mode=exclusive held=[$b]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for RW1 held by T2`},
		{"readers do not wait for each other", twoThreads + `
			T2 want obj=$b kind=rwlock mode=shared held=[rwlock:$a:shared:S1]
			T3 want obj=$a kind=rwlock mode=shared held=[rwlock:$b:shared:S1]`, ``},
		{"upgrade of a rwlock", twoThreads + `
			T2 want obj=$r kind=rwlock mode=exclusive held=[rwlock:$r:shared:S1]`,
			`self-deadlock: T2 waits for rwlock RW1 that it holds itself`},
		// Two that upgrade were told by nobody, and hung: what the agent says of a relock was taken for a hold for writing, and two of these for a lock that is none.
		{"two upgrade a rwlock", twoThreads + `
			T2 misuse what=relock kind=rwlock obj=$r stack=S2 stack2=S1
			T2 want obj=$r kind=rwlock mode=exclusive stack=S2 held=[rwlock:$r:shared:S1]
			T3 misuse what=relock kind=rwlock obj=$r stack=S2 stack2=S1
			T3 want obj=$r kind=rwlock mode=exclusive stack=S2 held=[rwlock:$r:shared:S1]`, `
			self-deadlock: T2 waits for rwlock RW1 that it holds itself
			self-deadlock: T3 waits for rwlock RW1 that it holds itself`},
		{"a reader behind a writer, where writers go first", twoThreads + `
			T1 init obj=$r kind=rwlock value=2
			T2 want obj=$r kind=rwlock mode=exclusive
			T3 want obj=$r kind=rwlock mode=shared held=[rwlock:$r:shared:S1]`,
			`deadlock: Cycle of waiting threads: T2 waits for RW1 held by T3, T3 waits for RW1 behind the writer T2`},
		{"a reader passes a writer, where readers go first", twoThreads + `
			T1 init obj=$r kind=rwlock value=0
			T2 want obj=$r kind=rwlock mode=exclusive
			T3 want obj=$r kind=rwlock mode=shared held=[rwlock:$r:shared:S1]`, ``},
		{"a writer waits for all readers", twoThreads + `
			T1 want obj=$r kind=rwlock mode=exclusive held=[$b]
			T2 want obj=$c held=[rwlock:$r:shared:S1]
			T3 want obj=$b held=[rwlock:$r:shared:S1]`,
			`deadlock: Cycle of waiting threads: the main thread waits for RW1 held by T3, T3 waits for M1 held by the main thread`},
		{"join of one that waits for what the joiner holds", twoThreads + `
			T1 want kind=thread target=T2 held=[$a]
			T2 want obj=$a`,
			`deadlock: Cycle of waiting threads: the main thread waits for the end of T2, T2 waits for M1 held by the main thread`},
		{"join of one that has ended", twoThreads + `
			T2 thread-exit
			T1 want kind=thread target=T2 held=[$a]
			T3 want obj=$a`, ``},
		{"join circle of three", twoThreads + `
			T1 want kind=thread target=T2
			T2 want kind=thread target=T3
			T3 want kind=thread target=T1`,
			`deadlock: Cycle of waiting threads: the main thread waits for the end of T2, T2 waits for the end of T3, T3 waits for the end of the main thread`},
		{"a cancelled join ends", twoThreads + `
			T3 thread-cancel target=T1
			T1 want kind=thread target=T2 held=[$a]
			T2 want obj=$a`, ``},
		{"once within itself", twoThreads + `
			T1 once-begin obj=$a kind=once
			T1 want obj=$a kind=once`,
			`self-deadlock: The main thread waits for once control O1 whose initialiser it runs itself`},
		{"initialiser waits for a lock of one who waits for it", twoThreads + `
			T2 once-begin obj=$a kind=guard
			T2 want obj=$b
			T3 want obj=$a kind=guard held=[$b]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for G1 initialised by T2`},
		{"an initialiser that ended", twoThreads + `
			T2 once-begin obj=$a kind=guard
			T2 once-end obj=$a kind=guard
			T2 want obj=$b
			T3 want obj=$a kind=guard held=[$b]`, ``},
		{"the holder has ended", twoThreads + `
			T2 misuse what=exit-holding-lock obj=$a stack=S1 stack2=S2
			T2 thread-exit
			T3 want obj=$a`,
			`exit-holding-lock: Thread ends while it holds mutex M1
			 deadlock: T3 waits for mutex M1, which T2 held when it ended`},
		{"the holder has ended, another unlocked it, and a third holds it", twoThreads + `
			T2 misuse what=exit-holding-lock obj=$a stack=S1 stack2=S2
			T2 thread-exit
			T3 want obj=$a value=1`,
			`exit-holding-lock: Thread ends while it holds mutex M1`},
		{"the dead holder's lock was made anew", twoThreads + `
			T2 misuse what=exit-holding-lock obj=$a stack=S1 stack2=S2
			T2 thread-exit
			T1 init obj=$a
			T3 want obj=$a`,
			`exit-holding-lock: Thread ends while it holds mutex M1`},
		{"a robust mutex is passed on", twoThreads + `
			T1 init obj=$a flags=robust
			T2 misuse what=exit-holding-lock obj=$a stack=S1 stack2=S2
			T2 thread-exit
			T3 want obj=$a`, ``},
		{"a second wait in a signal handler", twoThreads + `
			T2 want obj=$b held=[$a]
			T2 want obj=$c kind=sem
			T3 want obj=$a held=[$b]
			T2 want-end obj=$c
			T2 want obj=$b held=[$a]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
		{"a handler that posts does not unblock", twoThreads + `
			T2 want obj=$b held=[$a]
			T2 sem-post obj=$c
			T3 want obj=$a held=[$b]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
	})
}

// Semaphores, barriers and conditions: only where nobody could wake the waiter.
func TestWaitsThatNobodyEnds(t *testing.T) {
	const sems = twoThreads + `
			T1 init obj=$a kind=sem value=1
			T1 init obj=$b kind=sem value=1
		`
	const eating = `
			T2 want obj=$b kind=sem held=[sem:$a:S1]
			T3 want obj=$a kind=sem held=[sem:$b:S2]
		`
	const cycle = `deadlock: Cycle of waiting threads: T2 waits for S1 held by T3, T3 waits for S2 held by T2`
	check(t, Config{ConfirmAll: func(uint64, []uint32) bool { return true }}, []testCase{
		{"semaphores as locks, another thread runs", sems + eating, ``},
		{"semaphores as locks, all stuck", sems + eating + `T1 want kind=thread target=T2`, cycle},
		{"semaphores proven to be locks", sems + `
			T2 want obj=$b kind=sem value=100 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=100 held=[sem:$b:S2]`, cycle},
		// A permit that its taker gave back itself five times was passed on with a job the sixth time, while the taker waited for one who waited for
		// the permit.
		{"semaphores that were locks so far", sems + `
			T2 want obj=$b kind=sem value=5 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=5 held=[sem:$b:S2]`, ``},
		{"semaphores that were locks to the end", sems + `
			T2 want obj=$b kind=sem value=5 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=5 held=[sem:$b:S2]
			P1 gone`, cycle},
		{"semaphores that were locks to the end, from a full trace", sems + `
			T3 sem-wait obj=$b
			T3 sem-post obj=$b
			T3 sem-wait obj=$b
			T3 sem-post obj=$b
			T2 sem-wait obj=$a
			T2 sem-post obj=$a
			T2 sem-wait obj=$a
			T2 sem-post obj=$a
			T2 sem-wait obj=$a
			T3 sem-wait obj=$b
			T2 want obj=$b kind=sem
			T3 want obj=$a kind=sem
			P1 gone`, cycle},
		{"a taker that waited for a post before", sems + `
			T2 want obj=$a kind=sem how=timed held=[sem:$a:S1]
			T2 want-end obj=$a
			T2 want obj=$b kind=sem value=100 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=100 held=[sem:$b:S2]
			P1 gone`, ``},
		// CPython's locks are semaphores: its Condition takes a lock of its own a second time and is woken by another thread's release. A run of
		// test_threading was told to be stuck in itself, and every thread that waited behind it too.
		{"a semaphore taken twice by one thread is a wait for another's post", sems + `
			T2 want obj=$a kind=sem value=500 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=500
			P1 gone`, ``},
		{"a semaphore that was handed over", sems + `
			T1 sem-post obj=$a
			T2 want obj=$b kind=sem value=5 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=5 held=[sem:$b:S2]`, ``},
		{"a shared semaphore", twoThreads + `
			T1 init obj=$a kind=sem value=1 flags=pshared
			T1 init obj=$b kind=sem value=1
			T2 want obj=$b kind=sem value=500 held=[sem:$a:S1]
			T3 want obj=$a kind=sem value=500 held=[sem:$b:S2]`, ``},
		// A program mapped memory in which its parent had made a semaphore and a barrier, and was put down as it waited for the parent.
		{"a semaphore that another process may have made", `
			T1 thread-start tid=1
			T1 init obj=$a kind=sem flags=static
			T1 want obj=$a kind=sem`, ``},
		{"a barrier that another process may have made", `
			T1 thread-start tid=1
			T1 init obj=$a kind=barrier flags=static
			T1 barrier-arrive obj=$a count=2
			T1 want obj=$a kind=barrier value=2`, ``},
		{"a handler could post", sems + `T1 sigaction sig=10 handler=0x1234` + eating + `T1 want kind=thread target=T2`, ``},
		{"a barrier that cannot fill", twoThreads + `
			T1 init obj=$a kind=barrier value=3
			T2 barrier-arrive obj=$a count=3
			T2 want obj=$a kind=barrier value=3
			T3 barrier-arrive obj=$a count=3
			T3 want obj=$a kind=barrier value=3
			T1 want kind=thread target=T2`,
			`deadlock: Barrier B1 can never fill: it is for 3 threads, 2 arrived, and no thread is left that could`},
		{"a barrier that somebody may fill", twoThreads + `
			T1 init obj=$a kind=barrier value=3
			T2 barrier-arrive obj=$a count=3
			T2 want obj=$a kind=barrier value=3
			T3 barrier-arrive obj=$a count=3
			T3 want obj=$a kind=barrier value=3`, ``},
		{"a barrier that has filled", twoThreads + `
			T1 init obj=$a kind=barrier value=2
			T2 barrier-arrive obj=$a count=2
			T2 want obj=$a kind=barrier value=2
			T3 barrier-arrive obj=$a count=2
			T1 want kind=thread target=T2
			T3 want kind=thread target=T2`, ``},
		{"a barrier that cannot fill a second time", twoThreads + `
			T1 init obj=$a kind=barrier value=2
			T2 barrier-arrive obj=$a count=2
			T3 barrier-arrive obj=$a count=2
			T2 barrier-leave obj=$a
			T3 barrier-leave obj=$a
			T3 thread-exit
			T2 barrier-arrive obj=$a count=2
			T2 want obj=$a kind=barrier value=2
			T1 want kind=thread target=T2`,
			`deadlock: Barrier B1 can never fill: it is for 2 threads, 1 arrived, and no thread is left that could`},
		{"a barrier between deadlocked threads", twoThreads + `
			T1 init obj=$c kind=barrier value=2
			T1 barrier-arrive obj=$c count=2
			T1 want obj=$c kind=barrier value=2
			T2 want obj=$b held=[$a]
			T3 want obj=$a held=[$b]`,
			`deadlock: Cycle of waiting threads: T2 waits for M1 held by T3, T3 waits for M2 held by T2`},
		{"a lost wake-up", twoThreads + `
			T1 init obj=$c kind=cond flags=static
			T3 thread-exit
			T2 want obj=$c kind=cond
			T1 want kind=thread target=T2`,
			`hang: Every thread of the process waits, and none is left to wake another: T2 for C1, the main thread for the end of T2`},
		{"somebody may signal", twoThreads + `
			T1 init obj=$c kind=cond flags=static
			T2 want obj=$c kind=cond
			T1 want kind=thread target=T2`, ``},
		{"one who waits for a lock that is free by now may signal", twoThreads + `
			T1 init obj=$c kind=cond flags=static
			T2 want obj=$c kind=cond
			T3 want kind=thread target=T2
			T1 want obj=$a`, ``},
		{"a barrier that one may fill who waits for a free lock", twoThreads + `
			T1 init obj=$b kind=barrier value=2
			T2 barrier-arrive obj=$b count=2
			T2 want obj=$b kind=barrier value=2
			T3 want kind=thread target=T2
			T1 want obj=$a`, ``},
		{"a condition whose making was not seen", twoThreads + `
			T3 thread-exit
			T2 want obj=$c kind=cond
			T1 want kind=thread target=T2`, ``},
		{"a thread that is not seen", twoThreads + `
			T1 notice what=thread-unseen
			T1 init obj=$c kind=cond flags=static
			T3 thread-exit
			T2 want obj=$c kind=cond
			T1 want kind=thread target=T2`, ``},
		{"a timed wait on a condition", twoThreads + `
			T1 init obj=$c kind=cond flags=static
			T3 thread-exit
			T2 want obj=$c kind=cond how=timed
			T1 want kind=thread target=T2`, ``},
	})
}

// Without anybody to ask whether all sleep, a claim about all threads waits until the process is gone, and about conditions needs that
// every signal is seen.
func TestHangsOfRecordedProcesses(t *testing.T) {
	const wait = twoThreads + `
			T1 init obj=$c kind=cond flags=static
			T3 thread-exit
			T2 cond-wait cond=$c mutex=$a
			T2 want obj=$c kind=cond
		`
	const hang = `hang: Every thread of the process waits, and none is left to wake another: T2 for C1, the main thread for the end of T2`
	check(t, Config{}, []testCase{
		{"killed", wait + "T1 want kind=thread target=T2\nP1 gone", hang},
		{"it may go on", wait + "T1 want kind=thread target=T2", ``},
		{"signalled", wait + "T1 cond-signal cond=$c\nT1 want kind=thread target=T2\nP1 gone", ``},
		{"not a full trace", strings.Replace(wait, "T2 cond-wait cond=$c mutex=$a", "", 1) + "T1 want kind=thread target=T2\nP1 gone", ``},
	})
}

// A forked child has its parent's locked locks, but not the threads that hold them.
func TestLockedBeforeFork(t *testing.T) {
	const fork = `
		P1 T1 process pid=50 id=1
		P1 T1 thread-start tid=50
		P1 T1 thread-create child=T2
		P1 T2 thread-start tid=51
		P1 T1 init obj=$a flags=static
		P2 T1 process pid=60 start=fork id=2 parent_id=1 parent_thread=T1
		P2 T1 thread-start tid=60
		`
	check(t, Config{}, []testCase{
		{"by a thread that is gone", fork + `P2 T1 want obj=$a value=51`,
			`deadlock-after-fork: The main thread waits for mutex M1, which a thread of the parent process held at the time of fork`},
		{"by the thread that forked", fork + `P2 T1 want obj=$a value=50 held=[$a:S3]`,
			`self-deadlock: The main thread waits for mutex M1 that it holds itself`},
		{"by a thread of the child", fork + `
			P2 T1 thread-create child=T3
			P2 T3 thread-start tid=61
			P2 T1 want obj=$a value=61`, ``},
		{"in the parent", fork + `P1 T1 want obj=$a value=51`, ``},
		{"nobody's", fork + `P2 T1 want obj=$a value=0`, ``},
		{"shared with the parent", strings.Replace(fork, "flags=static", "flags=pshared", 1) + `P2 T1 want obj=$a value=51`, ``},
		{"of which nothing is known", fork + `P2 T1 want obj=$b value=51`, ``},
		{"made anew in the child", fork + `
			P2 T1 init obj=$a flags=pshared
			P2 T1 want obj=$a value=51`, ``},
		{"of a parent that has ended", fork + "P1 gone\nP2 T1 want obj=$a value=51",
			`deadlock-after-fork: The main thread waits for mutex M1, which a thread of the parent process held at the time of fork`},
		{"shared with a parent that has ended", strings.Replace(fork, "flags=static", "flags=pshared", 1) + "P1 gone\nP2 T1 want obj=$a value=51", ``},
		{"made anew in the child of a parent that has ended", fork + `
			P2 T1 init obj=$a flags=pshared
			P1 gone
			P2 T1 want obj=$a value=51`, ``},
	})
}

// The finding says who holds what since where and waits for what where, and who else is stuck behind.
func TestDeadlockTellsAll(t *testing.T) {
	out, d := feed(t, Config{}, twoThreads+`
		T1 want obj=$a stack=S11
		T2 want obj=$b stack=S21 held=[$g:S19,$a:S20]
		T3 want obj=$a stack=S31 held=[$b:S30]`)
	if len(*out) != 1 {
		t.Fatalf("%d findings, want 1: %v", len(*out), gist(*out))
	}
	f := (*out)[0]
	if !f.Fatal || !d.Stuck(1) {
		t.Errorf("Fatal %v, Stuck %v: every thread is stuck", f.Fatal, d.Stuck(1))
	}
	if f.PID != 101 || f.Exe != "/bin/prog" || f.Count != 1 {
		t.Errorf("pid %d exe %s count %d", f.PID, f.Exe, f.Count)
	}
	var got []string
	for _, p := range f.Parts {
		s := p.Text + "@" + pcs(p.Stack)
		for _, h := range p.Held {
			s += " " + h.Object + "@" + pcs(h.Stack)
		}
		got = append(got, s)
	}
	want := []string{
		"Blocked here on mutex M1 (held by T3)@21 M3@19 M2@20",
		"Blocked here on mutex M2 (held by T2)@31 M1@30",
		"Blocked behind them on mutex M2 (held by T2)@11",
	}
	if !slices.Equal(got, want) {
		t.Errorf("parts:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if len(f.Threads) != 3 || len(f.Objects) != 3 {
		t.Errorf("%d threads, %d objects, want 3 and 3", len(f.Threads), len(f.Objects))
	}
}

func pcs(s finding.Stack) string {
	var out []string
	for _, fr := range s {
		out = append(out, fmt.Sprint(fr.PC))
	}
	return strings.Join(out, ",")
}

// Stuck is about the present, and about every thread.
func TestStuck(t *testing.T) {
	const cycle = twoThreads + `
		T2 want obj=$b held=[$a]
		T3 want obj=$a held=[$b]
		`
	for _, c := range []struct {
		name, events string
		want         bool
	}{
		{"the main thread runs", cycle, false},
		{"the main thread joins", cycle + "T1 want kind=thread target=T2", true},
		{"the main thread waits with a limit", cycle + "T1 want kind=thread target=T2 how=timed", false},
		{"a thread is being made", cycle + "T1 thread-create child=T4\nT1 want kind=thread target=T2", false},
		{"it came loose", cycle + "T1 want kind=thread target=T2\nT2 want-end obj=$b result=4", false},
		{"nothing known", "", false},
	} {
		if _, d := feed(t, Config{}, c.events); d.Stuck(1) != c.want {
			t.Errorf("%s: Stuck is %v", c.name, !c.want)
		}
	}
}

// A deadlock that the surroundings do not confirm is not told, but asked for again.
func TestConfirm(t *testing.T) {
	answer, asked := false, 0
	cfg := Config{Confirm: func(process uint64, threads []uint32) bool {
		asked++
		if process != 1 || !slices.Equal(threads, []uint32{2, 3}) {
			t.Errorf("asked for process %d, threads %v", process, threads)
		}
		return answer
	}}
	out, d := feed(t, cfg, twoThreads+`
		T2 want obj=$b held=[$a]
		T3 want obj=$a held=[$b]`)
	if len(*out) != 0 || asked == 0 || d.Stuck(1) {
		t.Fatalf("asked %d times, findings %v", asked, gist(*out))
	}
	answer = true
	d.Tick()
	d.Tick()
	if len(*out) != 1 {
		t.Fatalf("%d findings after the confirmation, want 1", len(*out))
	}
}
