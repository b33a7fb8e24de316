package run

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Handlers within an epoch cost it its re-execution: of threads that send each other signals (TestRolls, g) 7 of 8 epochs were lost. They run at recorded points now, and what a program can tell of when, where and with what they run is native (testdata/handlers.c
// says MUST of each), in recording as in re-execution: epochs are identical, but for words of stacks. Handlers that cannot wait for a recorded point lose their epoch as before, and are right all the same.
//
// One that came within a function of the vdso (clocks) was run behind it in the recording, and nowhere in the re-execution: of programs with signals and timed waits one epoch in 20 to 50 went another way.
func TestHandlers(t *testing.T) {
	ofAgent(t)
	for _, k := range []struct {
		kind string
		lost bool // some handlers cannot wait: by the kind's sense
	}{
		{"sleeps", false}, {"sleeps-restart", false}, {"reads", false}, {"reads-restart", false}, {"semaphores", false}, {"semaphores-restart", false}, {"waits", false}, {"selves", false}, {"jumps", false},
		{"stacks", false}, {"values", false}, {"timers", false}, {"clocks", false}, {"computes", true}, {"once", true}, {"suspends", true}, {"faults", true},
	} {
		t.Run(k.kind, func(t *testing.T) {
			rounds := 1
			if os.Getenv("RIPSTOP_SOAK") != "" {
				rounds = 30
			}
			same, stack, lost := 0, 0, 0
			for range rounds {
				native := finish(t, exec.Command(path("handlers"), k.kind))
				r, counts := epochsOf(t, 10*time.Millisecond, path("handlers"), k.kind)
				if r != native {
					t.Fatalf("%+v, natively %+v", r, native)
				}
				for name, n := range counts {
					verdict, executed := strings.CutPrefix(name, "executed again: ")
					switch {
					case verdict == "identical":
						same += n
					case verdict == "stack":
						stack += n
					case executed:
						t.Errorf("%s: %d", name, n)
					case name == "lost: signal":
						lost += n
					}
				}
			}
			t.Logf("%d identical, %d but for words of stacks, %d lost", same, stack, lost)
			// An epoch that ended in a handler, or in a wait of which the kernel says what is left, differed in words of stacks: sleeps in three of five.
			if !k.lost && stack*4 > same+stack {
				t.Errorf("%d of %d epochs differed in words of stacks", stack, same+stack)
			}
			if !k.lost && (same+stack < 3*rounds || lost > (same+stack)/2) {
				t.Errorf("%d epochs were identical, %d differed in words of stacks, %d were lost", same, stack, lost)
			}
		})
	}
}

// A handler that cannot wait runs where the kernel began it, and its own acts left nothing in the log of the act, call or wait that it had interrupted. An epoch that began in such a handler, or right behind it, was executed again from the middle of that act as if there were none: the mutex that it
// takes had a first ticket that was nobody's turn, and whoever wanted it next waited for ever (one in 40 runs of TestEpochsOfOne stalled so); an end that waits for all to stand did not come.
// One that had left by a jump from an alternate stack (leap) lost all epochs that followed.
func TestHandlersWithinActs(t *testing.T) {
	ofAgent(t)
	for _, kind := range []string{"act", "wait", "jump", "leap"} {
		t.Run(kind, func(t *testing.T) {
			native := finish(t, exec.Command(path("half"), kind))
			r, counts := epochsOf(t, 10*time.Millisecond, path("half"), kind)
			if r != native {
				t.Fatalf("%+v, natively %+v", r, native)
			}
			t.Log(counts)
			noOther(t, counts)
			if same := counts["executed again: identical"]; same < 5 || counts["ends that were not to be had"] > same/5 || counts["lost: signal"] < 2 {
				t.Errorf("%v", counts)
			}
		})
	}
}

// A call that waits was interrupted by a stop, and what it waited for came before all stood, with a signal behind it: the call failed with EINTR, which it does natively only if the signal was first. A program in whose rounds threads wake each other and then send signals met that in half of its runs with
// epochs of 5 ms, and never natively. One of a run may fail: a processor that is told late of a signal sees it in the next call (natively so with select, of which the kernel looks for signals first).
func TestToldBeforeSignals(t *testing.T) {
	ofAgent(t)
	for _, kind := range []string{"poll", "epoll", "read", "signal"} {
		t.Run(kind, func(t *testing.T) {
			native := finish(t, exec.Command(path("told"), kind))
			for range 2 {
				r, _ := epochsBy(t, map[string]any{"On": true, "Most": 2 * time.Millisecond}, path("told"), kind)
				r.stdout = strings.Replace(r.stdout, " 1\n", " 0\n", 1)
				if native.stdout != "4800 0\n" || r != native {
					t.Errorf("%+v, natively %+v", r, native)
				}
			}
		})
	}
}

// Threads that have no alternate stack have one of ours, so that the kernel writes no frame where later ones of the program's lie. Nothing says so to the program: not sigaltstack, not sigaction, not the stack on which its handlers run, in an epoch or when it is lost.
func TestAlternateStacks(t *testing.T) {
	for _, every := range []bool{true, false} {
		native := finish(t, exec.Command(path("alternate")))
		r, _ := epochsBy(t, map[string]any{"On": true, "Every": every, "Most": 5 * time.Millisecond}, path("alternate"))
		if r != native || native.stdout != "180 0\n" {
			t.Errorf("%+v, natively %+v", r, native)
		}
	}
}
