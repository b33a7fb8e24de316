package run

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// triesOf runs a crash that needs a race so often, and gives how many crashes came again in which try: 0: in none; -1: how many runs did not crash. Whatever comes of that, the program dies of the signal that it would have died of, and says nothing more.
func triesOf(t *testing.T, kind string, runs int, until time.Time) map[int]int {
	t.Helper()
	tries := map[int]int{}
	for i := 0; i < runs && time.Now().Before(until); i++ {
		r := finish(t, command(t, map[string]any{"ExitCode": 0, "Stats": true, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("racy"), kind))
		if r.code == 0 && r.stdout == "no crash\n" {
			tries[-1]++
			continue
		}
		if r.signal != syscall.SIGSEGV || r.stdout != "" || strings.Count(r.stderr, "WARNING:") != 1 {
			t.Fatalf("status %d, %q\n%s", r.code, r.stdout, r.stderr)
		}
		try := -2
		if m := regexp.MustCompile(`stats: guard, crashes (?:reproduced in try (\d+)|that could not be reproduced) +1\n`).FindStringSubmatch(r.stderr); m != nil {
			try, _ = strconv.Atoi("0" + m[1])
		}
		note := regexp.MustCompile(`  Note: The crash (?:was reproduced: the last epoch was executed again, and came to it in (the first try|try \d+), with|could not be reproduced: the last epoch was executed again \d+ times, and)`).FindStringSubmatch(r.stderr)
		if note == nil || (note[1] == "the first try") != (try == 1) || (note[1] == "") != (try == 0) || try == -2 {
			t.Fatalf("try %d\n%s", try, r.stderr)
		}
		if try == 0 {
			t.Log(regexp.MustCompile(`stats: guard, last difference.*`).FindString(r.stderr))
		}
		tries[try]++
		// A crash that came again has its cause told, with the variable, and nobody else has it.
		by := "was written here in thread T2"
		if strings.Contains(r.stderr, by) && !regexp.MustCompile(`read from 0x[0-9a-f]+, L1 \(shared\), `+by+`.*\n    #0 take_away `).MatchString(r.stderr) {
			t.Errorf("%s", r.stderr)
		}
	}
	return tries
}

// histogram is a table of tries, as iReplayer's second one.
func histogram(tries map[int]int) string {
	var keys []int
	crashes := 0
	for k, n := range tries {
		keys = append(keys, k)
		if k >= 0 {
			crashes += n
		}
	}
	slices.Sort(keys)
	var b strings.Builder
	fmt.Fprintf(&b, "%d crashes", crashes)
	for _, k := range keys {
		name := map[bool]string{true: fmt.Sprintf("try %d", k), false: "not reproduced"}[k > 0]
		if k < 0 {
			name = "runs without a crash"
		}
		fmt.Fprintf(&b, "; %s: %d (%.2f%%)", name, tries[k], 100*float64(tries[k])/float64(max(crashes, 1)))
	}
	return b.String()
}

// Behind a difference the re-execution's end was waited for as if there were none: a thread that then computes for ever was given three seconds and twenty times the epoch's length, so a crashed program did not die for minutes. Here it was 25 s; now some 7.
func TestTriesThatCompute(t *testing.T) {
	ofAgent(t)
	begun := time.Now()
	r := finish(t, command(t, map[string]any{"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("astray")))
	took := time.Since(begun)
	if r.signal != syscall.SIGSEGV || !strings.Contains(r.stderr, "could not be reproduced: the last epoch was executed again") {
		t.Fatalf("signal %v\n%s", r.signal, r.stderr)
	}
	if took > 17*time.Second {
		t.Errorf("one second was recorded, and it took %s to look into the crash", took)
	}
}

// A crash that needs a race came again in its re-execution only if that happened to go the same way: results of sleeps are given without sleeping, so what the sleeps had kept apart was not, and the report had no cause. Nothing was said of that either.
// Now what waits in the kernel is in order, and so is what comes before a crash: of a race that is widened by sleeps, the first try reproduces at least 99.9% (RIPSTOP_SOAK=1: 10,000 runs, or as many as there are in RIPSTOP_SOAK_MINUTES; 20 in a gate,
// all but one, as the machine may be busy). A race that is not has more tries, with delays: most crashes come again. How many, one knows: each report says so.
func TestTries(t *testing.T) {
	ofAgent(t)
	runs, until := 20, time.Now().Add(time.Hour)
	soak := os.Getenv("RIPSTOP_SOAK") != ""
	if soak {
		runs = 10000
		if m, err := strconv.Atoi(os.Getenv("RIPSTOP_SOAK_MINUTES")); err == nil {
			until = time.Now().Add(time.Duration(m) * time.Minute)
		}
	}
	t.Run("sleeps", func(t *testing.T) {
		tries := triesOf(t, "sleeps", runs, until)
		t.Log(histogram(tries))
		crashes := 0
		for k, n := range tries {
			crashes += n * min(1, k+1)
		}
		if other := crashes - tries[1]; crashes*2 < runs && !soak || tries[0] > 0 && !soak || other > max(crashes/1000, 1) {
			t.Errorf("%d of %d crashes were reproduced in the first try", tries[1], crashes)
		}
	})
	// Where the last of it lies between two events was taken for done when the other's wait was over: of such a crash one in twenty came too early in all eight tries, and of this kind most.
	t.Run("serves", func(t *testing.T) {
		tries := triesOf(t, "serves", runs, until)
		t.Log(histogram(tries))
		if tries[1]+1 < runs-tries[-1] && !soak {
			t.Errorf("%d of %d crashes were reproduced in the first try", tries[1], runs-tries[-1])
		}
	})
	t.Run("computes", func(t *testing.T) {
		tries := triesOf(t, "computes", runs/2, until)
		t.Log(histogram(tries))
		later, crashes := 0, 0
		for k, n := range tries {
			crashes += n * min(1, k+1)
			if k > 1 {
				later += n
			}
		}
		if later == 0 && soak || (later+tries[1])*2 < crashes { // on a busy machine it may be that none needs them
			t.Errorf("%d of %d crashes were reproduced, %d of them with delays", later+tries[1], crashes, later)
		}
	})
	if soak {
		// A thread that waits for nothing had no place among the other's waits: of its crashes none came again in the first try. How many do now depends on whether both run at once: then a mark lies between many acts.
		t.Run("looks", func(t *testing.T) {
			tries := triesOf(t, "looks", runs/100, until)
			t.Log(histogram(tries))
			if tries[1] == 0 {
				t.Error("none was reproduced in the first try")
			}
		})
		t.Run("quick", func(t *testing.T) { t.Log(histogram(triesOf(t, "quick", runs/10, until))) })
	}
}

// waitsInVain is what --stats says of them.
func waitsInVain(stderr string) (n int) {
	if m := regexp.MustCompile(`guard, waits in vain +(\d+)\n`).FindStringSubmatch(stderr); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// A wait for an initialiser has no event of its own, and that it was over counted, of a thread whose next event was a lock of the heap, only behind that. Others that were awake by then waited for it, and it for the heap's lock, which had been theirs first: each time until nobody had
// moved for 0.2 s. A program of six threads that used streams died 6 to 20 s after it crashed, one time in ten; of this one two runs in eight took 7 to 9 s, and 0.3 s since.
func TestInitialisersBeforeTheHeap(t *testing.T) {
	ofAgent(t)
	vain := 0
	for i := 0; i < 12; i++ {
		r := finish(t, command(t, pointerOptions, path("meets")))
		if r.code != 66 || !strings.Contains(r.stderr, "Note: The crash was reproduced") {
			t.Fatalf("run %d: status %d\n%s", i, r.code, r.stderr)
		}
		vain += waitsInVain(r.stderr)
	}
	if vain > 20 { // a run has a few now and then; it had 12 to 60
		t.Errorf("%d waits in vain", vain)
	}
}

// A thread crashed as soon as it was there: its creator, which had been in the call that makes it, stood before that call in each re-execution, until nobody had moved for 0.2 s; and the crash's thread waited as long for one that had not been made by then.
// With the steps to the divisor, what it was copied from and who wrote there these are 13 re-executions: three runs in ten of a program whose threads divide by zero took 3 to 5 s to die, and 0.4 s since.
func TestCrashAtBirth(t *testing.T) {
	ofAgent(t)
	vain := 0
	for i := 0; i < 16; i++ {
		r := finish(t, command(t, pointerOptions, path("early")))
		vain += waitsInVain(r.stderr)
		if r.code != 66 || !strings.Contains(r.stderr, "Note: The crash was reproduced") || !strings.Contains(r.stderr, "The divisor 0x0, read from") {
			t.Fatalf("run %d: status %d\n%s", i, r.code, r.stderr)
		}
	}
	if vain > 16 { // on a busy machine there may be some; it had 13 in each of three runs in ten
		t.Errorf("%d waits in vain", vain)
	}
}
