package race

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/finding"
)

// sharedRounds is how often each program of testdata/shared runs. Without keys all accesses are judged, which takes long and is not what they are for; test/keys, whose machine is slow, says how often.
func sharedRounds(t *testing.T, keys bool) int {
	t.Helper()
	const most, least = 20, 4
	text, ok := os.LookupEnv("RIPSTOP_ROUNDS")
	switch {
	case !ok && keys:
		return most
	case !ok:
		return least
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("RIPSTOP_ROUNDS: %v", err)
	}
	return n
}

func runShared(t testing.TB, runner, exe string) []finding.Finding {
	t.Helper()
	return runJudged(t, runner, exe, map[string]any{"Full": true, "Shared": true})
}

// protectionKeys says whether this machine has them (pkey_alloc(2)).
func protectionKeys() bool {
	key, _, errno := unix.Syscall(unix.SYS_PKEY_ALLOC, 0, 0, 0)
	if errno == 0 {
		_, _, _ = unix.Syscall(unix.SYS_PKEY_FREE, key, 0, 0)
	}
	return errno == 0
}

// TestProtectionKeys: test/keys' machine has them, or its tests would hold without what they are for.
func TestProtectionKeys(t *testing.T) {
	if os.Getenv("RIPSTOP_KEYS") != "" && !protectionKeys() {
		t.Fatal("no protection keys")
	}
}

// Where only accesses to what threads share are judged, races in the memory that is watched are found each time, nothing else is, and the program does what it does natively.
//
// It failed in CI's next machine, an AMD EPYC whose hypervisor shows no keys: there all accesses are judged, all memory is seen, and so a race of 16 bytes with one is certain. The rules that the sources
// state are those of a machine with keys; the races are the same.
func TestProgramsShared(t *testing.T) {
	runner, _ := runnerAndSources(t)
	keys := protectionKeys()
	rounds := sharedRounds(t, keys)
	sources, err := filepath.Glob("testdata/shared/*.c")
	more, err2 := filepath.Glob("testdata/shared/*.cc")
	if err != nil || err2 != nil || len(sources) == 0 || len(more) == 0 {
		t.Fatalf("no programs: %v, %v", err, err2)
	}
	for i, source := range append(sources, more...) {
		levels := []string{"-O2", "-O0"}
		if strings.HasSuffix(source, ".cc") {
			levels = levels[:1] // what they are of takes long to compile, most of all in test/keys' machine
		} else if rounds == 1 {
			levels = levels[i%2:][:1] // a gate
		}
		for _, optimized := range levels {
			t.Run(filepath.Base(source)+optimized, func(t *testing.T) {
				t.Parallel()
				exe := build(t, source, optimized)
				for range rounds {
					found := runShared(t, runner, exe)
					for i := range found {
						if !keys && found[i].Rule == finding.RuleDataRace {
							found[i].Rule = finding.RuleDataRaceMov
						}
					}
					judge(t, source, found, false)
				}
			})
		}
	}
}

// aboutNoKeys are about what orders threads and what libc accesses, which is as without keys. An emulated machine takes minutes for them: it has them in `make soak` alone.
var aboutNoKeys = map[string]bool{"behind.c": true, "guards.cc": true, "environment.c": true, "formats.c": true}

// Of the programs whose memory is not watched yet nothing is told that their sources do not state, but for the class: what orders may be movs that nobody sees.
func TestProgramsSharedTruth(t *testing.T) {
	runner, sources := runnerAndSources(t)
	gate := os.Getenv("RIPSTOP_KEYS") != "" && sharedRounds(t, protectionKeys()) == 1
	for i, source := range append(sources, calledSources(t)...) {
		if gate && (aboutNoKeys[filepath.Base(source)] || i%2 == 1) { // testdata/shared has those that are about keys; of these `make soak` has all
			continue
		}
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			exe := build(t, source, "-O1")
			stated := statements(t, source)
			for _, f := range runShared(t, runner, exe) {
				a, b := lineOf(f.Parts[0].Stack, source), lineOf(f.Parts[1].Stack, source)
				known := false
				for _, s := range stated {
					known = known || slices.Contains(s.lines, a) && slices.Contains(s.lines, b)
				}
				if !known {
					t.Errorf("%s: lines %d and %d: %s, which the source does not state: %s\n%v\n%v", source, a, b, f.Rule, f.Message, f.Parts[0], f.Parts[1])
				}
			}
		})
	}
}

// What one thread alone uses for long is shared no more, nor does what is handed on in order count as untold: the programs' own accesses show that no race is lost by it (lends.c, lends_clean.c).
//
// An array that main had filled and threads worked upon in parts was judged to the program's end, two hundred times slower than natively, as a page that became shared stayed so.
func TestSharingEnds(t *testing.T) {
	runner, _ := runnerAndSources(t)
	if !protectionKeys() {
		t.Skip("this processor has no protection keys: test/keys has a machine with them")
	}
	of := sharedStats(t, runner, "testdata/shared/lends_clean.c")
	if of["pages lent"] < 20 || of["releases that withdrew"] == 0 || of["first accesses told to nobody"] > 2 {
		t.Errorf("%v", of)
	}
}

// What a thread loses with its key is one pardon (decision 36), and in `many` at most one look of each thread's at another's is another.
//
// Each four pages of it were one when their owner came back and found no key: 150 to 340, and each hides races.
func TestPardonsOfTakenKeys(t *testing.T) {
	runner, _ := runnerAndSources(t)
	if !protectionKeys() {
		t.Skip("this processor has no protection keys: test/keys has a machine with them")
	}
	const threads = 40
	if of := sharedStats(t, runner, "testdata/shared/many.c"); of["first accesses told to nobody"] > of["keys taken"]+threads {
		t.Errorf("%v", of)
	}
}

// sharedStats runs a program of testdata/shared, and gives what `--stats` says of its shared memory.
func sharedStats(t *testing.T, runner, source string) map[string]int {
	t.Helper()
	o, err := json.Marshal(map[string]any{"Full": true, "Shared": true, "Stats": true, "ExitCode": 0})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(runner, string(o), "run", build(t, source, "-O2")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	of := map[string]int{}
	for _, m := range regexp.MustCompile(`shared memory, ([a-z ]+[a-z]) +(\d+)`).FindAllSubmatch(out, -1) {
		of[string(m[1])], _ = strconv.Atoi(string(m[2]))
	}
	if len(of) < 4 {
		t.Fatalf("no figures:\n%s", out)
	}
	return of
}
