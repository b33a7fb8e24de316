package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Found by glibc's own tests of its threads (nptl/tst-abstime, tst-barrier4, tst-cancel13 and others, tst-exit2, tst-rwlock15, rt/tst-mqueue5), natively and under `guard --epochs`, where each of these stood still or said something else:
// a wait until a time before 1970, which the kernel refuses, was made again and again; glibc's destroy of a barrier that others are still leaving waits for a mark that guard's wait did not set; who was cancelled in a wait for a condition or a semaphore slept on, since
// glibc knows of no wait and sends no signal; and once the first thread has ended nobody can read the process's memory by its number, so that calls which a stop had interrupted were not recognised, and returned EINTR. A writer for whom readers are to wait was not waited for; and a message queue forgot
// whom it was to notify, since the coordinator closed a descriptor of it where an epoch began.
func TestEpochsOfLeaving(t *testing.T) {
	ofAgent(t)
	for _, kind := range []string{"past", "barriers", "cancels", "ends", "writer", "queue"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			native := finish(t, exec.Command(path("leaving"), kind))
			for _, how := range []map[string]any{{"On": true, "Most": 5 * time.Millisecond}, {"On": true, "Every": true, "Most": 20 * time.Millisecond}} {
				r, counts := epochsBy(t, how, path("leaving"), kind)
				if native.code != 4 || r != native {
					t.Errorf("%+v\nnatively %+v", r, native)
				}
				t.Log(counts)
				if counts["epochs"] == 0 {
					t.Errorf("%v", counts)
				}
				if kind == "barriers" && how["Every"] != nil && counts["executed again: identical"]+counts["executed again: stack"] == 0 {
					t.Errorf("no epoch was executed again: %v", counts)
				}
			}
		})
	}
}

// Who forked while another thread waited to do so too gave the allocator's locks back, and then noted, for all threads, that it had none: the other one never gave them back, and the next fork waited for ever (glibc's nptl/tst-fork1).
// And whoever forked held them while it waited for glibc's list of streams, whose holder waited for a stream, whose reader for the allocator (malloc/tst-malloc-fork-deadlock).
func TestForksAtOnce(t *testing.T) {
	ofAgent(t)
	for _, options := range []map[string]any{{"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}}, {"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 50 * time.Millisecond}}} {
		for _, kind := range []string{"forks", "streams"} {
			if r := finish(t, command(t, options, path("leaving"), kind)); r.code != 4 || r.stdout+r.stderr != "" {
				t.Errorf("%s: %+v", kind, r)
			}
		}
	}
}

// Large blocks lost what was in them under `guard --epochs` (python's test_compile died of it): from Linux 6.17 on mremap moves several mappings, and where it fails at one that is registered with userfaultfd those before it have moved. realloc then moved, or
// copied, the zeros that they had left.
func TestEpochsOfGrowingBlocks(t *testing.T) {
	ofAgent(t)
	for _, how := range []map[string]any{{"On": true, "Most": 10 * time.Millisecond}, {"On": true, "Most": 200 * time.Millisecond}, {"On": true, "Every": true, "Most": 50 * time.Millisecond}} {
		for _, bytes := range []int{0, 16} {
			r, counts := countsOf(t, map[string]any{"Stats": true, "ExitCode": 0, "Guard": map[string]any{"Bytes": bytes}, "Epochs": how}, path("grows"))
			if r.code != 4 || r.stdout+r.stderr != "" || counts["epochs"] == 0 {
				t.Errorf("%d guard bytes: %+v, %v", bytes, r, counts)
			}
			noOther(t, counts)
		}
	}
}

// What mremap moves to where it came from becomes one mapping with what is beside it, and the kernel takes all of that out of userfaultfd, with the marks of pages that were not written (Linux 6.18). What was written there since was kept by no checkpoint: behind such a
// move 23 of 26 epochs went another way, and in testdata/grows.c, whose blocks the heap moved, some three of forty.
func TestEpochsOfMovedBack(t *testing.T) {
	ofAgent(t)
	r, counts := epochsOf(t, 10*time.Millisecond, path("back"))
	if r.code != 3 || r.stdout+r.stderr != "" || counts["executed again: identical"] < 5 {
		t.Errorf("%+v, %v", r, counts)
	}
	noOther(t, counts)
}

// Who first leaves by pthread_exit has libc load the unwinder, behind a look at a variable that no event says, and under mutexes of ld.so's, which no wrapper sees. One of 14 runs of testdata/churn.c with 4 threads stalled: a thread that was making another one waited for such a
// mutex, under the lock of births, where in the recording it had come first; and of those that left together the one that had found the unwinder loaded loaded it once more. 11 of 60 epochs of this program were not the same in their first re-execution.
func TestEpochsOfUnwinder(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("unwinds")))
	for range 30 {
		r, counts := epochsOf(t, 200*time.Millisecond, path("unwinds"))
		if r != native || counts["executed again: identical"]+counts["executed again: stack"] == 0 {
			t.Errorf("%+v, natively %+v; %v", r, native, counts)
		}
		noOther(t, counts)
		for name, n := range counts {
			if strings.HasPrefix(name, "the same in try") {
				t.Errorf("%s: %d", name, n)
			}
		}
	}
}
