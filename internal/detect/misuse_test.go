package detect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Which facts of the agent are errors in their context, and which are none.
func TestMisuse(t *testing.T) {
	const unlocked = `unlock-not-owner: Unlock of mutex M1 by a thread that does not hold it`
	check(t, Config{}, []testCase{
		{"unlock by another", twoThreads + `T3 misuse what=unlock-not-owner obj=$a stack=S1 stack2=S2 other=T2`, unlocked},
		{"of an errorcheck mutex: it was asked for", twoThreads + `
			T1 init obj=$a flags=errorcheck
			T3 misuse what=unlock-not-owner obj=$a result=1 stack=S1 other=T2
			T3 misuse what=unlock-not-locked obj=$a result=1 stack=S1
			T3 misuse what=cond-wait-unlocked obj=$a result=1 stack=S1
			T3 misuse what=relock obj=$a result=35 stack=S1
			P1 gone`, ``},
		{"in a fork handler of the child", `
			P1 T1 thread-start tid=50
			P2 T1 process start=fork id=2 parent_id=1 parent_thread=T1
			P2 T1 misuse what=unlock-not-owner obj=$a stack=S1`, ``},
		{"of a rwlock", `T1 misuse what=unlock-not-owner kind=rwlock obj=$a stack=S1
			T1 misuse what=unlock-read-write kind=rwlock obj=$b stack=S2
			T1 misuse what=unlock-not-locked kind=rwlock obj=$b stack=S3`, `
			rwlock-unlock-not-held: Unlock of rwlock RW1 by a thread that does not hold it
			rwlock-unlock-not-held: Unlock of rwlock RW1 by a thread that does not hold it
			rwlock-unlock-not-held: Unlock of rwlock RW1 by a thread that does not hold it`},
		{"the same place again is counted", `
			T1 misuse what=destroy-locked obj=$a stack=S1
			T1 misuse what=destroy-locked obj=$b stack=S1
			T1 misuse what=destroy-locked obj=$b stack=S1
			T1 misuse what=destroy-locked obj=$b stack=S2
			P1 gone`, `
			destroy-locked: Destroy of mutex M1 while it is locked
			destroy-locked: Destroy of mutex M1 while it is locked
			destroy-locked: Destroy of mutex M1 while it is locked (2 more)`},
		{"without stacks each object is one", `
			T1 misuse what=destroy-locked obj=$a
			T1 misuse what=destroy-locked obj=$b
			T1 misuse what=destroy-locked obj=$b
			T1 misuse what=destroy-locked obj=$b
			P1 gone`, `
			destroy-locked: Destroy of mutex M1 while it is locked
			destroy-locked: Destroy of mutex M1 while it is locked
			destroy-locked: Destroy of mutex M1 while it is locked (2 more)`},
		{"thread ends holding", twoThreads + `T2 misuse what=exit-holding-lock obj=$a stack=S1 stack2=S2`,
			`exit-holding-lock: Thread ends while it holds mutex M1`},
		{"process ends holding", twoThreads + `
			T1 process-end
			T1 misuse what=exit-holding-lock obj=$a stack=S1
			T1 misuse what=free-locked obj=$a stack=S1`, ``},
		{"free of a locked lock", `T1 misuse what=free-locked obj=$a stack=S1 stack2=S2`, `free-locked: Free of memory that holds mutex M1, which is locked`},
		{"a dead owner is what robust mutexes are for", `T1 misuse what=owner-died obj=$a result=130 stack=S1`, ``},
		{"a robust mutex that nobody repaired", `T1 misuse what=owner-died obj=$a result=131 stack=S1`,
			`owner-died: Robust mutex M1 is unusable: it was unlocked without being made consistent after its owner died`},
		{"relock: the deadlock is told, once", twoThreads + `
			T2 misuse what=relock obj=$a stack=S2 stack2=S1
			T2 want obj=$a stack=S2 held=[$a:S1]
			P1 gone`, `self-deadlock: T2 waits for mutex M1 that it holds itself`},
		{"relock, the hold is not in the list", twoThreads + `
			T2 misuse what=relock obj=$a stack=S2 stack2=S1
			T2 want obj=$a stack=S2`, `self-deadlock: T2 waits for mutex M1 that it holds itself`},
		{"relock with a time limit", twoThreads + `
			T2 misuse what=relock obj=$a stack=S2 stack2=S1
			T2 want obj=$a how=timed stack=S2 held=[$a:S1]
			T2 want-end obj=$a result=110`, `self-deadlock: Lock of mutex M1 by the thread that holds it`},
		{"relock that another thread undoes", twoThreads + `
			T2 misuse what=relock obj=$a stack=S2 stack2=S1
			T2 want obj=$a how=timed stack=S2 held=[$a:S1]
			T3 misuse what=unlock-not-owner obj=$a other=T2 stack=S3
			T2 want-end obj=$a`, unlocked},
		{"threads", twoThreads + `
			T1 misuse what=double-join kind=thread other=T2 stack=S1
			T1 misuse what=join-detached kind=thread other=T3 stack=S2
			T1 misuse what=join-self kind=thread other=T1 stack=S3
			T1 misuse what=double-detach kind=thread stack=S4`, `
			double-join: Join of T2, which was joined already
			join-detached: Join of T3, which is detached
			join-self: Thread joins itself
			double-detach: Detach of a thread, which was detached or joined already`},
		{"unknown to us", `T1 misuse what=99 obj=$a stack=S1`, ``},
	})
}

// A thread that ended unnoticed is a leak; one that still runs, is awaited, detached, or unknown, is none.
func TestThreadLeaks(t *testing.T) {
	const leak = `thread-leak: T2 has ended but was neither joined nor detached`
	check(t, Config{}, []testCase{
		{"ended", "T1 thread-create child=T2 stack=S1\nT2 thread-exit\nT1 process-end", leak},
		{"joined", "T1 thread-create child=T2\nT2 thread-exit\nT1 thread-join target=T2\nT1 process-end", ``},
		{"the join failed", "T1 thread-create child=T2\nT2 thread-exit\nT1 thread-join target=T2 result=22\nT1 process-end", leak},
		{"detached at creation", "T1 thread-create child=T2 detached=1\nT2 thread-exit\nT1 process-end", ``},
		{"detached before its end", "T1 thread-create child=T2\nT1 thread-detach target=T2\nT2 thread-exit\nT1 process-end", ``},
		{"detached after its end", "T1 thread-create child=T2\nT2 thread-exit\nT1 thread-detach target=T2\nT1 process-end", ``},
		{"still running", "T1 thread-create child=T2\nT1 process-end", ``},
		{"ends after the process began to", "T1 thread-create child=T2\nT1 process-end\nT2 thread-exit\nP1 gone", ``},
		{"killed", "T1 thread-create child=T2\nT2 thread-exit\nP1 gone", ``},
		{"_exit", "T1 thread-create child=T2\nT2 thread-exit\nT1 process-end end=raw-exit", ``},
		{"being joined", "T1 thread-create child=T2\nT1 thread-create child=T3\nT3 want kind=thread target=T2\nT2 thread-exit\nT1 process-end", ``},
		{"never made", "T1 thread-create child=T2\nT1 thread-create-failed child=T2 error=11\nT1 process-end", ``},
		{"the main thread", "T1 thread-create child=T2\nT2 thread-start\nT1 thread-exit\nT2 process-end", ``},
		{"in the child of a fork", `
			P1 T1 thread-create child=T2
			P2 T2 process start=fork id=2 parent_id=1 parent_thread=T2
			P2 T2 thread-exit
			P2 T2 process-end`, ``},
		{"many from one place", `
			T1 thread-create child=T2 stack=S1
			T1 thread-create child=T3 stack=S1
			T1 thread-create child=T4 stack=S1
			T2 thread-exit
			T3 thread-exit
			T4 thread-exit
			T1 process-end
			P1 gone`, leak + "\n" + leak + " (2 more)"},
	})
}

// Every fact that the agent can state is either told with a rule of the table or left out on purpose.
func TestEveryMisuseHasARule(t *testing.T) {
	for _, e := range wire.Enums {
		if e.Name != "Misuse" {
			continue
		}
		for _, v := range e.Values {
			if wire.Misuse(v.V) == wire.MisuseThreadLeak {
				continue // seen by the Go side
			}
			m, ok := misuseRules[wire.Misuse(v.V)]
			if !ok {
				t.Errorf("%s has no rule", v.Name)
				continue
			}
			if _, ok := finding.RuleOf(m.rule); !ok {
				t.Errorf("%s: rule %s is not in the table", v.Name, m.rule)
			}
			fs := run(t, Config{}, fmt.Sprintf("T1 thread-create child=T2\nT1 misuse what=%s obj=$a result=131 stack=S1 stack2=S2 other=T2\nP1 gone", v.Name))
			if len(fs) != 1 || fs[0].Rule != m.rule || strings.Contains(fs[0].Message, "%") {
				t.Errorf("%s: %v", v.Name, gist(fs))
				continue
			}
			if parts := fs[0].Parts; parts[0].Thread != 1 || pcs(parts[0].Stack) != "1" || m.earlier != "" && (len(parts) != 2 || pcs(parts[1].Stack) != "2") {
				t.Errorf("%s: parts %+v", v.Name, parts)
			}
		}
	}
}
