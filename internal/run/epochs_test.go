package run

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// epochs runs a program whose every epoch, of 50 ms at most, is executed again, and gives how it ended and the counts of --stats.
func epochs(t *testing.T, program ...string) (result, map[string]int) {
	t.Helper()
	return epochsOf(t, 50*time.Millisecond, program...)
}

// epochsOf is epochs with another length.
func epochsOf(t *testing.T, most time.Duration, program ...string) (result, map[string]int) {
	t.Helper()
	return epochsBy(t, map[string]any{"On": true, "Every": true, "Most": most}, program...)
}

// judgedEpochs is epochsOf where each is executed again once more, with all accesses judged.
func judgedEpochs(t *testing.T, most time.Duration, program ...string) (result, map[string]int) {
	t.Helper()
	return epochsBy(t, map[string]any{"On": true, "Every": true, "Races": true, "Most": most}, program...)
}

func epochsBy(t *testing.T, how map[string]any, program ...string) (result, map[string]int) {
	t.Helper()
	return countsOf(t, map[string]any{"Stats": true, "ExitCode": 0, "Epochs": how}, program...)
}

// countsOf gives what --stats says of epochs beside what came of the run.
func countsOf(t *testing.T, options map[string]any, program ...string) (result, map[string]int) {
	t.Helper()
	r := finish(t, command(t, options, program...))
	counts := map[string]int{}
	var rest []string
	for line := range strings.Lines(r.stderr) {
		m := regexp.MustCompile(`^ripstop: stats: guard, (.*\S) +(\d+)\n$`).FindStringSubmatch(line)
		switch {
		case m != nil:
			counts[m[1]], _ = strconv.Atoi(m[2])
		case strings.HasPrefix(line, "ripstop: stats: guard, last"):
			t.Log(strings.TrimSpace(line))
		case !strings.HasPrefix(line, "ripstop: stats: "):
			rest = append(rest, line)
		}
	}
	r.stderr = strings.Join(rest, "")
	return r, counts
}

// asNatively compares a run whose epochs are executed again with a native one.
func asNatively(t *testing.T, program ...string) map[string]int {
	t.Helper()
	cmd := exec.Command(program[0], program[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run()
	r, counts := epochs(t, program...)
	if r.stdout != out.String() || r.stderr != errs.String() || r.code != cmd.ProcessState.ExitCode() {
		t.Errorf("status %d, natively %d; %d bytes, natively %d; it says %q, natively %q", r.code, cmd.ProcessState.ExitCode(), len(r.stdout), out.Len(), r.stderr, errs.String())
	}
	t.Log(counts)
	return counts
}

// noOther wants no epoch to have come out otherwise than it was, but for words of stacks (docs/status.md).
func noOther(t *testing.T, counts map[string]int) {
	t.Helper()
	for name, n := range counts {
		if verdict, executed := strings.CutPrefix(name, "executed again: "); executed && verdict != "identical" && verdict != "stack" {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// Epochs of a session, each executed again in place: the program's output and status are native, and what it did is done once. A correct program's re-executions are identical, but for words of stacks (docs/status.md).
func TestEpochs(t *testing.T) {
	for _, threads := range []string{"1", "2", "4"} {
		t.Run(threads, func(t *testing.T) {
			counts := asNatively(t, path("epochs"), threads)
			if counts["executed again: identical"] < 1 {
				t.Error("no epoch was executed again")
			}
			for name, n := range counts {
				switch name {
				case "epochs", "events executed again", "executed again: identical", "executed again: stack", "ends that were not to be had":
				default:
					if !strings.HasPrefix(name, "lost: ") {
						t.Errorf("%s: %d", name, n)
					}
				}
			}
		})
	}
}

// A program with an allocator of its own is recorded whether its blocks are looked at or not: without guard bytes it was not, and was told that its heap was libc's. That allocator's mutexes are the program's: the first thread's, which it had tried
// before there was a log, it went on to take as if there were none, so most epochs differed in memory. (And was told of them as held for ever, which each free looked through: a third of what recording cost redis.)
func TestEpochsOfOwnHeap(t *testing.T) {
	ofAgent(t)
	for name, guard := range map[string]any{"alone": map[string]any{}, "guard bytes": map[string]any{"Bytes": 16, "Quarantine": 1 << 10}} {
		t.Run(name, func(t *testing.T) {
			native := finish(t, exec.Command(path("own")))
			options := map[string]any{"Stats": true, "ExitCode": 0, "Guard": guard, "Epochs": map[string]any{"On": true, "Every": true, "Most": 10 * time.Millisecond}}
			r, counts := countsOf(t, options, path("own"))
			if r.stdout != native.stdout || r.code != native.code || strings.Contains(r.stderr, "libc's") {
				t.Errorf("%+v, natively %+v", r, native)
			}
			same, rest := counts["executed again: identical"], 0
			for name, n := range counts {
				if verdict, executed := strings.CutPrefix(name, "executed again: "); executed && verdict != "identical" || strings.HasPrefix(name, "lost: ") {
					rest += n
				}
			}
			if same < 3 || rest > 1+same/10 {
				t.Errorf("%v", counts)
			}
		})
	}
}

// A mutex that a thread takes again and again was an event of 16 bytes each time: sqlite3's log was full every 60 ms, each end cost 6, and writing to all pages again more. Such a run is one event as far as it is nobody else's turn; what is
// executed again is the same, with one thread and in turns.
func TestEpochsOfRuns(t *testing.T) {
	ofAgent(t)
	const times = 40 * 9000 // of testdata/taken.c, each thread
	for _, threads := range []string{"1", "2", "4"} {
		t.Run(threads, func(t *testing.T) {
			counts := asNatively(t, path("taken"), threads)
			same := counts["executed again: identical"] + counts["executed again: stack"]
			noOther(t, counts)
			if same < 2 {
				t.Errorf("%d epochs were executed again", same)
			}
			if events := counts["events executed again"]; threads == "1" && events > times/50 {
				t.Errorf("%d events for %d acquisitions", events, times)
			}
		})
	}
}

// A process that has one thread wrote an event for each mutex that it took, though no order was to be kept: many in turn are one now, also where a handler runs between them, and the mutexes that it has when it makes its first threads are waited for.
func TestEpochsOfOne(t *testing.T) {
	const times = 3000000 // of testdata/alone.c
	for _, args := range [][]string{nil, {"signals"}} {
		t.Run(strings.Join(args, ""), func(t *testing.T) {
			counts := asNatively(t, append([]string{path("alone")}, args...)...)
			same := counts["executed again: identical"] + counts["executed again: stack"]
			noOther(t, counts)
			if same < 2 {
				t.Errorf("%d epochs were executed again", same)
			}
			// A sixteenth of the mutexes are of a kind that has events of its own; what is tried in vain is one, too.
			if events := counts["events executed again"]; events > times/2 {
				t.Errorf("%d events for %d times", events, times)
			}
		})
	}
}

// A file that was unmapped in an epoch cannot be mapped again where its name is gone, or another's: the process was killed ("cannot go back to the checkpoint"), as sqlite's was that had closed a database with a write-ahead log. Such epochs are not
// executed again; the program is as natively.
func TestEpochsOfMappings(t *testing.T) {
	ofAgent(t)
	for _, what := range []string{"file", "named"} {
		t.Run(what, func(t *testing.T) {
			counts := asNatively(t, path("mapped"), what, t.TempDir())
			if counts["lost: file"] < 1 {
				t.Error("no epoch was lost: file")
			}
			if counts["executed again: identical"] < 1 {
				t.Error("no epoch was executed again")
			}
		})
	}
}

// Memory that other processes see is not put back, and a re-execution wrote to it again: a counter there had counted twice what was done once. Then no epoch was executed again of a process that can write to such memory, so none of apache2's, nor of a
// program that has a database with a write-ahead log. It is exchanged for the process's own meanwhile, but for devices' and what is large.
func TestEpochsOfSharedMemory(t *testing.T) {
	ofAgent(t)
	for _, what := range []string{"nobody", "memfd", "file", "unlinked", "posix", "sysv", "children", "other", "protected", "shorter", "parts", "gone", "large", "device"} {
		t.Run(what, func(t *testing.T) {
			counts := asNatively(t, path("sharing"), what, t.TempDir())
			switch what {
			case "large", "device":
				if what == "device" && counts["epochs"] < 2 {
					t.Skip("perf is refused here")
				}
				if counts["lost: shared"] < 2 {
					t.Error("no epoch was lost: shared")
				}
			case "other":
			default:
				noOther(t, counts)
				if counts["executed again: identical"] < 3 || counts["lost: shared"] > 0 {
					t.Error("hardly an epoch was executed again")
				}
			}
		})
	}
}

// What rdtsc and rdtscp give is recorded: counters in slots that the clock chooses (as InnoDB's are) differed in every epoch. Flags, registers and the red zone are kept over them.
func TestEpochsOfClocks(t *testing.T) {
	ofAgent(t)
	for _, threads := range []string{"1", "2", "4"} {
		t.Run(threads, func(t *testing.T) {
			counts := asNatively(t, path("clocks"), threads)
			noOther(t, counts)
			if counts["executed again: identical"] < 2 {
				t.Error("hardly an epoch was executed again")
			}
		})
	}
}

// A look at another thread's memory without a lock comes out in a re-execution as it did only if waits last as long as others needed: those in the kernel, and ours. Of each epoch that differed there is another re-execution, which says so.
func TestEpochsTriedAgain(t *testing.T) {
	ofAgent(t)
	for _, kind := range []string{"sleep", "timed"} {
		t.Run(kind, func(t *testing.T) {
			counts := asNatively(t, path("glances"), kind)
			all, again := 0, 0
			for name, n := range counts {
				if strings.HasPrefix(name, "executed again: ") {
					all += n
				}
				if strings.HasPrefix(name, "the same in try ") {
					again += n
				}
			}
			if same := counts["executed again: identical"] + counts["executed again: stack"]; same*2 < all || again < 1 { // beside busy processes 5 of 8; without tries none
				t.Errorf("%d of %d epochs came out the same, %d behind the first try", same, all, again)
			}
		})
	}
}

// A place that one thread unmaps is given to another's next mapping: a re-execution that asked for it before the first had given it up had EEXIST ("call-result"; x264, which maps each picture, in a sixth of its epochs).
// So it had where a library was loaded meanwhile: its unwind table was mapped beside the program's memory, where the program's own mapping had been a moment before (16 of 51 epochs).
func TestEpochsOfPlaces(t *testing.T) {
	ofAgent(t)
	for kind, runs := range map[string]int{"places": 1, "loads": 6} {
		for range runs {
			counts := asNatively(t, path("mapped"), kind)
			if counts["executed again: identical"]+counts["executed again: stack"] < 1 {
				t.Error("no epoch was executed again")
			}
			if n := counts["executed again: call-result"] + counts["executed again: map"]; n > 0 {
				t.Errorf("%s: %d epochs with another result", kind, n)
			}
		}
	}
}

// The pages of a file that was mapped where memory with content had been at the checkpoint have nothing of their own: they were taken for zeros, and differed ("memory") from the file's.
func TestEpochsOfFilesOver(t *testing.T) {
	ofAgent(t)
	counts := asNatively(t, path("mapped"), "over")
	noOther(t, counts)
	if counts["executed again: identical"] < 8 {
		t.Errorf("hardly an epoch was executed again: %v", counts)
	}
}

// A re-execution may go where the program never went, and crash there: the process died of it, as one did that was given an error for a mapping and used it. It is a difference like others. So it is where the thread has
// the fault's signal blocked, as it has within glibc's functions that make and end threads: the kernel ended the process by it. In the last run crashes are told, too: not this one.
func TestEpochsThatCrash(t *testing.T) {
	ofAgent(t)
	for _, args := range [][]string{nil, {"blocked"}} {
		if counts := asNatively(t, append([]string{path("later")}, args...)...); counts["executed again: fault"] < 1 {
			t.Errorf("%v: no re-execution crashed", args)
		}
	}
	r := finish(t, command(t, map[string]any{"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Every": true, "Most": 50 * time.Millisecond}}, path("later")))
	if r.code != 0 || r.stdout != "1770\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
}

// Real programs are as natively. What came of their epochs is in the log: docs/status.md says which are not identical.
func TestEpochsOfPrograms(t *testing.T) {
	if os.Getenv("RIPSTOP_SOAK") == "" && testing.Short() {
		t.Skip("programs take seconds")
	}
	text := filepath.Join(t.TempDir(), "text")
	var b strings.Builder
	for i := range 60000 {
		b.WriteString(strconv.Itoa(i*7919%1000003) + "\n")
	}
	if err := os.WriteFile(text, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range [][]string{
		{"gzip", "-c", text},
		{"xz", "-T2", "-1", "-c", text},
		{"sqlite3", ":memory:", "create table t(a, b); with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, printf('%d', x*7919%10007) from c; select count(*), sum(length(b)) from t;"},
		{"pigz", "-n", "-p", "2", "-c", text},
	} {
		t.Run(program[0], func(t *testing.T) {
			name, err := exec.LookPath(program[0])
			if err != nil {
				t.Skip(err)
			}
			counts := asNatively(t, append([]string{name}, program[1:]...)...)
			if counts["executed again: identical"]+counts["executed again: stack"] < 1 {
				t.Error("no epoch was executed again")
			}
		})
	}
}

// A forked child is not guarded, and what it holds began in the middle: of locks that are right there were orders that are none, each time. Where epochs are recorded orders are not judged, nor anything of the locks of forked children.
func TestEpochsJudgeNoOrders(t *testing.T) {
	r := finish(t, command(t, map[string]any{"Epochs": map[string]any{"On": true}}, "/usr/bin/python3", "testdata/forked.py"))
	if r.code != 0 || r.stdout != "done\n" || r.stderr != "" {
		t.Errorf("status %d, %q, %s", r.code, r.stdout, r.stderr)
	}
}

// A file that was read and closed in an epoch was kept open by a duplicate until that was over. When that was closed, the POSIX locks went that the process had taken on the file since; and a flock, or a lock of the open file, that natively goes with the program's close
// stayed until then: the program could not take it again, and one that waited for it waited for itself.
func TestEpochsOfLockedFiles(t *testing.T) {
	ofAgent(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, most := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
		native := finish(t, exec.Command(path("locked"), file))
		r, counts := epochsOf(t, most, path("locked"), file)
		if r != native || native.code != 3 {
			t.Errorf("%+v\nnatively %+v", r, native)
		}
		if counts["executed again: identical"] < 3 {
			t.Errorf("%v", counts)
		}
	}
	// As it is used: no epoch is executed again, and its end may be too dear.
	native := finish(t, exec.Command(path("locked"), file))
	if r, _ := epochsBy(t, map[string]any{"On": true, "Most": 20 * time.Millisecond}, path("locked"), file); r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
}

// What was read and closed in an epoch was kept at the highest numbers of the program's own descriptors: python's tests, which go through all numbers to find what a child has inherited, found them; and what a program put there itself was closed when the epoch was over.
func TestEpochsOfClosedFiles(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("kept"), t.TempDir()))
	if native.code != 4 {
		t.Fatalf("natively %+v", native)
	}
	r, counts := epochsOf(t, 20*time.Millisecond, path("kept"), t.TempDir())
	if r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
	// close_range, which loses its epoch, is followed by one with nothing else in it.
	if counts["executed again: identical"] < 12 {
		t.Errorf("%v", counts)
	}
	noOther(t, counts)
	if r, _ := epochsBy(t, map[string]any{"On": true, "Most": 20 * time.Millisecond}, path("kept"), t.TempDir()); r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
}

// A write of four megabytes to a pipe, which natively waits until all is read, said that it had written some when the signal of an epoch's end came (python's test_io.test_interrupted_write_unbuffered); so did all calls that move bytes until a signal comes.
func TestEpochsOfMovingBytes(t *testing.T) {
	ofAgent(t)
	file := filepath.Join(t.TempDir(), "file")
	native := finish(t, exec.Command(path("moving"), file))
	if native.code != 5 || strings.Contains(native.stdout, "others") {
		t.Fatalf("natively %+v", native)
	}
	epochs := 0 // a busy machine has few in a run
	for range 3 {
		r, counts := epochsBy(t, map[string]any{"On": true, "Most": 5 * time.Millisecond}, path("moving"), file)
		if epochs += counts["epochs"]; r != native {
			t.Errorf("%+v\nnatively %+v\n%v", r, native, counts)
		}
	}
	if epochs < 3 {
		t.Errorf("%d epochs", epochs)
	}
	r, counts := epochsOf(t, 20*time.Millisecond, path("moving"), file)
	if r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
	noOther(t, counts)
}

// io_uring_enter said that it had taken its requests, and the completions for which it was to wait were not there, when the signal of an epoch's end came (liburing's fpos crashed, as it looked at the first); recvmmsg and sendmmsg said that they had
// moved some messages, and what interrupted recvmmsg was left to the socket as an error.
func TestEpochsOfBatches(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("batches")))
	if native.code != 5 || !strings.Contains(native.stdout, "recvmmsg 40 ") || !strings.Contains(native.stdout, "sendmmsg 40 ") || strings.Contains(native.stdout, "completed 0") {
		t.Fatalf("natively %+v", native)
	}
	epochs := 0 // a busy machine has few in a run
	for range 3 {
		r, counts := epochsBy(t, map[string]any{"On": true, "Most": 5 * time.Millisecond}, path("batches"))
		if epochs += counts["epochs"]; r != native {
			t.Errorf("%+v\nnatively %+v\n%v", r, native, counts)
		}
	}
	if epochs < 3 {
		t.Errorf("%d epochs", epochs)
	}
	r, counts := epochsOf(t, 20*time.Millisecond, path("batches"))
	if r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
	noOther(t, counts)
}

// mariadbd, whose log is written by io_uring, stood still: the kernel's worker is listed with the threads and comes to no stop, so no epoch could end; the logs were full, and each event of each thread waited for an end that came to nothing in 100 ms.
func TestEpochsOfWorkers(t *testing.T) {
	const rounds = "800000" // more events than a log has room for
	native := finish(t, exec.Command(path("worker"), "locks", rounds))
	if native.code == 77 {
		t.Skip("this kernel has no io_uring, or forbids it")
	}
	r, counts := epochsBy(t, map[string]any{"On": true, "Most": time.Hour}, path("worker"), "locks", rounds)
	if r != native || native.code != 0 {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
	if counts["ends that were not to be had"] >= counts["epochs"] {
		t.Errorf("%v", counts)
	}
}

// Objects of synchronisation come and go, and there was no room for more than 24,576 in the life of a process: then each epoch was lost. Those for which nobody waits are forgotten where an epoch ends.
func TestEpochsForgetObjects(t *testing.T) {
	ofAgent(t)
	r, counts := epochsBy(t, map[string]any{"On": true, "Every": true, "Most": 20 * time.Millisecond}, path("swarm"), "objects", "120000")
	t.Log(counts)
	same := counts["executed again: identical"] + counts["executed again: stack"]
	// Where a busy machine lets an end not be had the next one is put off by seconds.
	if r.code != 0 || counts["ends that were not to be had"] == 0 && (same < counts["lost: objects"] || same < 2) {
		t.Errorf("%+v, %v", r, counts)
	}
}

// A stop takes a thread out of a sleep, which is then made again, and the kernel has said by then what was left of it: a program that sleeps by nanosleep(&t, &t) slept shorter and shorter. Behind calls that were made again registers were ours. And the system calls that a program
// makes itself, past libc, were in no log: an epoch that was executed again made them again, so that a pipe had twice what was written, and its writer waited for ever.
func TestEpochsOfWaits(t *testing.T) {
	native := finish(t, exec.Command(path("remains")))
	for name, how := range map[string]map[string]any{"recorded": {"On": true, "Most": 20 * time.Millisecond}, "executed again": {"On": true, "Every": true, "Most": 20 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			if name == "recorded" {
				ofAgent(t)
			}
			r, counts := epochsBy(t, how, path("remains"))
			if r != native || r.stdout != "over\n" {
				t.Errorf("%+v, natively %+v", r, native)
			}
			noOther(t, counts)
			least := 10
			if name == "recorded" {
				least = 2 // ends are given a share of the time, and on a busy machine one takes long
			}
			if counts["epochs"] < least {
				t.Errorf("%v", counts)
			}
		})
	}
	// Where a container refuses what a thread's timeout is read by, its sleep began anew at each stop: one that is longer than an epoch had no end.
	t.Run("refused", func(t *testing.T) {
		ofAgent(t)
		o := map[string]any{"ExitCode": 0, "Epochs": map[string]any{"On": true, "Every": true, "Most": 20 * time.Millisecond}}
		if r := finish(t, under(t, refuse(syscall.EPERM, unix.SYS_PROCESS_VM_READV), o, path("remains"))); r != native {
			t.Errorf("%+v, natively %+v", r, native)
		}
	})
}

// A wait with a timeout is as long as natively, however many epochs end meanwhile. The signal of a stop ends it, and it is made again with what is left: but from when the first stop had seen it, so that of 200 ms the sleep was 300 where epochs took 150, and 205 to 280 with
// epochs of 5 ms and some load, as the time from then on that a stop took was not counted either, if it found the thread on its way back.
func TestLengthsOfWaits(t *testing.T) {
	ofAgent(t)
	const asked, waits = 200 * time.Millisecond, 16
	// lengths gives the median, as a busy machine makes some long.
	lengths := func(cmd *exec.Cmd) time.Duration {
		r := finish(t, cmd)
		if r.code != 0 || r.signal != 0 || r.stderr != "" {
			t.Fatalf("%+v", r)
		}
		var took []time.Duration
		for line := range strings.Lines(r.stdout) {
			name, us, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, _ := strconv.Atoi(us)
			took = append(took, time.Duration(n)*time.Microsecond)
			if took[len(took)-1] < asked {
				t.Errorf("%s took %v", name, took[len(took)-1])
			}
		}
		if len(took) != waits {
			t.Fatalf("%q", r.stdout)
		}
		slices.Sort(took)
		t.Log(took)
		return took[waits/2]
	}
	late := lengths(exec.Command(path("lengths"), "200")) - asked
	for _, most := range []time.Duration{5 * time.Millisecond, 150 * time.Millisecond} {
		got := lengths(command(t, map[string]any{"ExitCode": 0, "Epochs": map[string]any{"On": true, "Most": most}}, path("lengths"), "200"))
		if got > asked+asked/4+3*late {
			t.Errorf("epochs of %v: half of the waits for %v took %v and more, natively %v", most, asked, got, asked+late)
		}
	}
}

// allAlike wants a program as natively, and all of its epochs the same where they are executed again, of which there are as many at least.
func allAlike(t *testing.T, least int, program string) {
	t.Helper()
	native := finish(t, exec.Command(program))
	r, counts := epochsOf(t, 10*time.Millisecond, program)
	if r != native || counts["executed again: identical"] < least {
		t.Errorf("%+v, natively %+v, %v", r, native, counts)
	}
	noOther(t, counts)
}

// Whoever comes out of poll has what came of it written, also by an end of an epoch, and then in the recording alone: of a program that polls the same places again more than half of the epochs (71 of 130) differed in memory. And where a signal waited, what asked whether the
// call would return wrote that to the program's memory, too (24 of 3,400 epochs of `rolls gmrcbsokfhilt 16`, in words of stacks).
func TestEpochsOfPolls(t *testing.T) {
	ofAgent(t)
	allAlike(t, 5, path("polls"))
}

// A thread begins with its maker's vector registers, and in a re-execution without any: what libc's memcpy leaves there (AVX-512's of 240 bytes of thread-local variables) lay in words of memcached's stacks.
func TestEpochsOfVectors(t *testing.T) {
	ofAgent(t)
	allAlike(t, 2, path("inherits"))
}

// Locks that a program makes itself of words and futexes, as Rust's standard library does, were nowhere in the log: each epoch of six threads on one lock went another way. A condition made of such a word lost its wake-up in the re-execution, where the signal came before the wait, which
// stood for good. Their epochs are executed again as they were; and what looks like such a lock (a flag of what is made once, a lock that counts who waits) does what it does natively.
func TestEpochsOfMadeLocks(t *testing.T) {
	ofAgent(t)
	asOften(t, path("made"), "locks", "400000")
	asOften(t, path("made"), "conditions", "40000")
	t.Run("alike", func(t *testing.T) {
		native := finish(t, exec.Command(path("made"), "alike", "50000"))
		for _, every := range []bool{false, true} {
			r, _ := epochsBy(t, map[string]any{"On": true, "Every": every, "Most": 20 * time.Millisecond}, path("made"), "alike", "50000")
			if r != native {
				t.Errorf("%+v, natively %+v", r, native)
			}
		}
	})
	t.Run("judged", func(t *testing.T) { // their code is as its file has it
		r, _ := judgedEpochs(t, 50*time.Millisecond, path("made"), "locks", "50000")
		if native := finish(t, exec.Command(path("made"), "locks", "50000")); r.stdout != native.stdout || !strings.Contains(r.stderr, "made has locks of its own in ") {
			t.Errorf("%+v, natively %+v", r, native)
		}
	})
}

// The same of Rust's own, where there is a compiler.
func TestEpochsOfRust(t *testing.T) {
	ofAgent(t)
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	for name, flags := range map[string][]string{"plain": nil, "stripped": {"-Cstrip=symbols"}, "small": {"-Copt-level=s", "-Cpanic=abort"}} {
		exe := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command(rustc, append([]string{"--edition=2021", "-O", "-o", exe, "testdata/made.rs"}, flags...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		asOften(t, exe, "locks", "200000")
		asOften(t, exe, "conditions", "20000")
	}
}

// The order of what threads do to the words of C++20's semaphores and Rust's RwLock was nowhere in the log: of 16 epochs of such a program three were the same. Most are now; what loads decide, and waits that come earlier or later, still make some go another way.
func TestEpochsOfWords(t *testing.T) {
	ofAgent(t)
	mostly(t, path("words"), "60000")
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	exe := filepath.Join(t.TempDir(), "made")
	if out, err := exec.Command(rustc, "--edition=2021", "-O", "-o", exe, "testdata/made.rs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mostly(t, exe, "readers", "200000")
}

// A thread goes on by what it keeps in a register, as readers of Rust's RwLock do, who pass waiting writers if they have slept: it has slept if what it loaded said so, and loads are in no order. Executed again it loaded later, had not slept when its turn came, and came to another change of the word, which was let fail, for ever: one in twelve epochs of RwLock's went another way by that, of this program all of nine. Now
// such a change finds what the word held before.
func TestEpochsOfWordsByRegisters(t *testing.T) {
	ofAgent(t)
	sameEpochs(t, 20*time.Millisecond, 6, path("slept"), "slept", "60")
}

// An epoch ended as a log was full, with its thread before a change of a word. That was the next epoch's first event when it failed, and the thread then came to another one; executed again it went on from its stand to wait for that one's turn, for the change that had failed. Of 24 such epochs eleven went another way.
func TestEpochsOfFullLogs(t *testing.T) {
	ofAgent(t)
	sameEpochs(t, time.Second, 6, path("slept"), "full", "2000000")
}

// sameEpochs runs a program until so many epochs of its were executed again, of which four in five, at least, must be the same.
func sameEpochs(t *testing.T, most time.Duration, least int, program ...string) {
	t.Helper()
	native := finish(t, exec.Command(program[0], program[1:]...))
	same, all := 0, 0
	for n := 0; n < 8 && all < least; n++ { // a busy machine has few in one run
		r, counts := epochsOf(t, most, program...)
		if r != native {
			t.Errorf("%+v, natively %+v", r, native)
		}
		t.Log(counts)
		same += counts["executed again: identical"] + counts["executed again: stack"]
		for name, n := range counts {
			if strings.HasPrefix(name, "executed again: ") {
				all += n
			}
		}
	}
	if all < least || same*5 < all*4 {
		t.Errorf("%s: %d of %d the same", program[0], same, all)
	}
}

// mostly runs a program until twelve epochs of its were executed again in which much was in order, and a third of all or more must have been the same (of words three of sixteen were before they were in order; of readers half, so of these it says alone that none stalls, and that all is as natively). Of few it is chance: of readers one in three to fifteen goes another way, the more the longer they are.
func mostly(t *testing.T, program ...string) {
	t.Helper()
	native := finish(t, exec.Command(program[0], program[1:]...))
	same, all, events := 0, 0, 0
	for range 8 {
		r, counts := epochsOf(t, 20*time.Millisecond, program...)
		if r != native {
			t.Errorf("%+v, natively %+v", r, native)
		}
		t.Log(counts)
		if n := counts["executed again: stalled"]; n > 0 {
			t.Errorf("%d stalled", n)
		}
		same += counts["executed again: identical"] + counts["executed again: stack"]
		events += counts["events executed again"]
		for name, n := range counts {
			if strings.HasPrefix(name, "executed again: ") {
				all += n
			}
		}
		if all >= 12 {
			break
		}
	}
	if same < 1 || same*3 < all || events < 2000 {
		t.Errorf("%s: %d of %d the same, %d events", program[0], same, all, events)
	}
}

// asOften runs a program whose order is that of its locks, which are many events. It comes to be the same in all but one of ten epochs: what was loaded without a lock is in no order.
func asOften(t *testing.T, program ...string) {
	t.Helper()
	t.Run(strings.Join(program[1:], " "), func(t *testing.T) {
		native := finish(t, exec.Command(program[0], program[1:]...))
		r, counts := epochsOf(t, 20*time.Millisecond, program...)
		t.Log(counts)
		same, all := counts["executed again: identical"]+counts["executed again: stack"], 0
		for name, n := range counts {
			if strings.HasPrefix(name, "executed again: ") {
				all += n
			}
		}
		if r != native || same < 1 || same*10 < all*9-9 || counts["events executed again"] < 2000 {
			t.Errorf("%+v, natively %+v, %v", r, native, counts)
		}
	})
}
