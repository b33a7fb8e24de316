package run

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Epochs in which threads were born, ended or were joined were lost: no cause was found of what such threads wrote. They are executed again, and whatever comes of that, the program's output and status are native. That all are identical but for
// words of stacks is so on a calm machine; on a busy one some of a thousand go another way (docs/status.md), so that is asked for with RIPSTOP_SOAK=1 alone, of all but one in a hundred.
func TestEpochsOfThreads(t *testing.T) {
	ofAgent(t)
	soak := os.Getenv("RIPSTOP_SOAK") != ""
	for _, threads := range []string{"2", "4", "16"} {
		t.Run(threads, func(t *testing.T) {
			rounds, same, other, lost := 1, 0, 0, 0
			if soak {
				rounds = 100
			}
			for range rounds {
				for name, n := range asNatively(t, path("churn"), threads) {
					verdict, executed := strings.CutPrefix(name, "executed again: ")
					switch {
					case verdict == "identical", verdict == "stack":
						same += n
					case executed:
						other += n
					case name == "lost: once", name == "lost: thread": // the unwinder's first use; a new region of slots, and who ends in these epochs
						lost += n
					case strings.HasPrefix(name, "lost: "):
						t.Errorf("%s: %d", name, n)
					}
				}
			}
			if same < 1 {
				t.Error("no epoch was executed again as it was")
			}
			if soak && (other*100 > same || lost*3 > same) {
				t.Errorf("%d re-executions went another way, %d did not; %d epochs were lost", other, same, lost)
			}
		})
	}
}

// What a program sees of threads that end is what it sees natively: their joins, signals to them, destructors, stacks, a first thread that ends before the others. A stop waited for that one for ever: the kernel lists it, and takes signals for it,
// as long as others live. One that acted upon a cancellation in a later epoch than the call's was executed again without it (in one of 14 runs).
func TestEndsOfThreads(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("ends")))
	r, counts := epochs(t, path("ends"))
	noOther(t, counts)
	if counts["executed again: identical"] < 2 {
		t.Error("hardly an epoch was executed again")
	}
	recorded := finish(t, command(t, map[string]any{"ExitCode": 0, "Epochs": map[string]any{"On": true, "Most": 50 * time.Millisecond}}, path("ends")))
	for _, r := range []result{r, recorded} {
		if told := summaries(r.stderr); !slices.Equal(told, []string{"join-self"}) {
			t.Errorf("it joins itself once; told is %v", told)
		}
		r.stderr = ""
		if r != native {
			t.Errorf("%+v, natively %+v", r, native)
		}
	}
}

// Threads that libc makes for itself are known from the first call on in which the agent looks who calls. Whether they were then, how many others were about to begin said, which no event tells, and each re-execution goes its own way there. And the end of each lost the
// epoch in which it came (here: 24 epochs of 12 notifications). Now only what makes such a thread loses one: libc's own pthread_create, which is under no lock of ours; and the end of one that was never known, as mq_notify's here. Of those that serve aio and
// getaddrinfo_a several may wait for the next request, by a condition of libc's own, and which of them has it is no event: their epochs may differ.
func TestEpochsOfTimers(t *testing.T) {
	ofAgent(t)
	const times = 12
	for _, kind := range []string{"t", "q", "a", "n"} {
		for _, others := range [][]string{nil, {"others"}} {
			pool := kind == "a" || kind == "n"
			if pool && others != nil {
				continue
			}
			program := append([]string{path("timers"), kind, strconv.Itoa(times), "15"}, others...)
			r, counts := epochsOf(t, 5*time.Millisecond, program...)
			if want := "12 calls, 66\n"; r.stdout != want || r.stderr != "" || r.code != 0 || r.signal != 0 {
				t.Errorf("%s %v: %+v", kind, others, r)
			}
			if counts["executed again: identical"] == 0 {
				t.Errorf("%s %v: no epoch is the same: %v", kind, others, counts)
			}
			if pool {
				continue
			}
			noOther(t, counts)
			// The helper's, and one or two in which the program begins.
			if kind == "t" && counts["lost: thread"] > times+3 {
				t.Errorf("%s %v: ends of threads lose epochs: %v", kind, others, counts)
			}
		}
	}
}

// Who makes, joins or ends threads waits for others who do for a second at most, and then goes on: that epoch is lost. The next one was not, though the thread was still about it, in no order with others: in its re-execution a stack was
// taken before it had been left (here each time: a new one mapped; with rolls on a machine with a load of 40 five of 10,732 epochs, and a thread was born on a stack that was not there, which ended the process by SIGSEGV).
func TestEpochsOfUnheld(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("unheld")))
	r, counts := epochsOf(t, 10*time.Second, path("unheld"))
	if r != native || native.stdout != "well\n" {
		t.Errorf("%+v, natively %+v", r, native)
	}
	noOther(t, counts)
	for name, n := range counts {
		if strings.HasPrefix(name, "the same in try") {
			t.Errorf("%s: %d", name, n)
		}
	}
	if counts["lost: thread"] < 2 {
		t.Errorf("no thread went on without the others: %v", counts)
	}
}

// That second was counted from when a thread had begun to wait. Where many wait and each has the lock for a while it was over for the last ones though all went on: at a load of 30 to 57, 20 programs of 16 threads at once, a quarter of the epochs was lost for it. It is counted from when
// the lock was given back last.
func TestEpochsOfQueues(t *testing.T) {
	ofAgent(t)
	r, counts := epochsOf(t, 10*time.Second, path("unheld"), "queue")
	if r.code != 0 || r.signal != 0 || r.stdout != "well\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	noOther(t, counts)
	if counts["lost: thread"] != 0 || counts["executed again: identical"] == 0 {
		t.Errorf("a thread did not wait for the others: %v", counts)
	}
}

// A re-execution that goes another way had a thread born on its recorded stack, whatever stack had been made ready for it: as a thread has no alternate stack then, the kernel ended the process by SIGSEGV. And it made calls that take away the stack on which another
// thread lives, where its handlers find nothing, and the kernel writes (rseq). Both are differences like others.
func TestEpochsOfStrays(t *testing.T) {
	ofAgent(t)
	for _, how := range []string{"other", "under"} {
		r, counts := epochsOf(t, 20*time.Second, path("strays"), how)
		if r.code != 0 || r.signal != 0 || r.stdout != "well\n" || r.stderr != "" || counts["epochs"] == 0 {
			t.Errorf("%s: %+v, %v", how, r, counts)
		}
	}
}

// The 32 bytes of each thread that the kernel writes by itself (rseq) were kept from going back and forward, for all that were there at the checkpoint. One that had ended since, on a stack of the program's own, had none any more, and what lay there was the
// program's data: where a re-execution went another way before the thread's end, the program went on with 24 bytes of that thread's in the middle of its data (each time, here).
func TestEpochsOfGivenStacks(t *testing.T) {
	ofAgent(t)
	r, counts := epochsOf(t, 20*time.Millisecond, path("given"), "8")
	if r.code != 0 || r.stdout != "0\n" || r.stderr != "" || counts["executed again: call-bytes"] == 0 || counts["executed again: identical"] == 0 {
		t.Errorf("%+v, %v", r, counts)
	}
}

// Of an rseq area that a thread has registered itself nobody knew: the thread was kept from ending with it, and when its stack was unmapped the kernel, which writes there whenever a thread has been away, ended the process (SIGSEGV, of which nothing was told). Such a thread ends natively, and its epoch is lost.
func TestEndsOfOwnRseq(t *testing.T) {
	ofAgent(t)
	for _, every := range []bool{false, true} {
		cmd := command(t, map[string]any{"Stats": true, "ExitCode": 0, "Epochs": map[string]any{"On": true, "Every": every, "Most": 20 * time.Millisecond}}, path("rseq"), "4")
		cmd.Env = append(os.Environ(), "GLIBC_TUNABLES=glibc.pthread.rseq=0")
		r := finish(t, cmd)
		// Where nothing is executed again an epoch may be lost before, by the registration.
		if r.code != 0 || r.stdout != "well\n" || (every && !regexp.MustCompile(`guard, lost: thread +[1-9]`).MatchString(r.stderr)) {
			t.Errorf("each executed again: %v: %+v", every, r)
		}
	}
}

// Where many threads have come back from calls and wait for a processor some are in the middle of one at every moment: an end stopped and let go all of them 200 times, for a second and a half, and was then given up.
func TestEpochsOfCrowds(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("worker"), "crowd", "1500"))
	r := finish(t, command(t, map[string]any{"Stats": true, "ExitCode": 0, "Epochs": map[string]any{"On": true, "Most": 20 * time.Millisecond}}, path("worker"), "crowd", "1500"))
	m := regexp.MustCompile(`(?s)guard, epochs +(\d+)\n.*guard, time at their ends +(\S+)\n`).FindStringSubmatch(r.stderr)
	if r.stdout != native.stdout || r.code != native.code || native.code != 0 || m == nil {
		t.Fatalf("%+v\nnatively %+v", r, native)
	}
	ends, _ := strconv.Atoi(m[1])
	took, err := time.ParseDuration(m[2])
	// An end is given up after 300 ms and a stop; the machine may be busy. That of the last epoch may not have come any more, and there may be no other.
	if err != nil || took > time.Duration(ends+1)*time.Second {
		t.Errorf("%d ends took %s: %s", ends, m[2], r.stderr)
	}
}

// Where there were more threads than logs, 256 at once or since the epoch began (python's own tests of thread-local variables come that far), those without waited in glibc, and woke who waits there: nobody who waits for them by guard's waits. So a program stood
// still: 300 threads in turn, 2,000 one after another who post as they end, and threads that are made after the process has shut itself in. With more objects than there is room for a mutex was given back by glibc's wait for a condition, which wakes nobody
// either.
func TestEpochsOfSwarms(t *testing.T) {
	ofAgent(t)
	for _, args := range [][]string{{"threads", "300"}, {"brief", "2000"}, {"off", "20"}, {"objects", "40000"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			native := finish(t, exec.Command(path("swarm"), args...))
			for _, every := range []bool{false, true} {
				r, counts := epochsBy(t, map[string]any{"On": true, "Every": every, "Most": 50 * time.Millisecond}, append([]string{path("swarm")}, args...)...)
				if native.code != 0 || r.stdout != native.stdout || r.code != 0 {
					t.Errorf("%+v\nnatively %+v", r, native)
				}
				if args[0] != "off" && counts["epochs"] == 0 {
					t.Errorf("%v", counts)
				}
			}
		})
	}
}
