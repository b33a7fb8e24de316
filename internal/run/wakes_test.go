package run

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A thread that waits for another one in the kernel was given the recording's result before the other had done what woke it: pbzip2's thread that waits in sigwait had ended by the time of the pthread_kill, and no re-execution of its last epoch
// came out the same, so that an overflow there had no writer. Each epoch is executed again, for each kind of what wakes and of what waits: all are identical, but for words of stacks.
//
// What it found: a thread that came to an epoch's end in pthread_kill stood there with all signals blocked, and the stop waited ten seconds for it ("looked").
func TestEpochsOfWakes(t *testing.T) {
	ofAgent(t)
	rounds, runs := "250", 1
	if os.Getenv("RIPSTOP_SOAK") != "" {
		rounds, runs = "1000", 10
	}
	for _, kind := range strings.Fields("pipe closed dup2 poll select splice socket message shutdown connect eventfd epoll epoll_ctl timerfd timer signal queue kill signalfd looked process") {
		t.Run(kind, func(t *testing.T) {
			native := finish(t, exec.Command(path("wakes"), kind, rounds))
			same, all := 0, map[string]int{}
			for range runs {
				r, counts := epochsOf(t, 20*time.Millisecond, path("wakes"), kind, rounds)
				if r != native || r.code != 0 {
					t.Errorf("%+v, natively %+v", r, native)
				}
				for name, n := range counts {
					all[name] += n
					if verdict, executed := strings.CutPrefix(name, "executed again: "); verdict == "identical" || verdict == "stack" {
						same += n
					} else if executed {
						t.Errorf("%s: %d", name, n)
					}
				}
			}
			t.Log(all)
			if n := all["ends that were not to be had"]; same < 3*runs || n*4 > same {
				t.Errorf("%d epochs came out the same; %d ends were not to be had", same, n)
			}
		})
	}
}
