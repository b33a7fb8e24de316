package run

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A crash that needs a race was reported without it: its re-executions were looked at by breakpoints alone, which tell who wrote the pointer, where there are some, and not that nothing orders that and the use. Reads of freed memory, which
// change nothing, were not seen at all. Now the epoch is executed once more with all accesses judged: the report has the race, and the read with where the block was made and freed, and of the rest nothing.
// With four threads a third of the epochs stood for up to 40 s, in a thread that had a lock and waited for one that needed it.
func TestJudged(t *testing.T) {
	for _, o := range []string{"-O0", "-O2"} {
		program := path("judged" + o)
		if out, err := exec.Command("gcc", "-g", o, "-Wall", "-Werror", "-Wno-use-after-free", "-pthread", "-o", program, "testdata/judged.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, threads := range []int{2, 4} {
			for _, c := range []struct{ kind, found string }{
				{"race", `data race[^\n]*\n  L1 \(shared\) is read by the main thread and written by T2, and nothing orders the two\n\n  Read of size 8 [^\n]* by main thread:\n    #0 use [^§]*  Previous write of size 8 [^\n]* by thread T2 [^\n]*:\n    #0 take_away `},
				{"freed", `access to freed memory[^\n]*\n[^§]*  Read of size 8 [^\n]* by main thread:\n    #0 look [^§]*  Block \w+ freed \(free\) by thread T2[^\n]*:\n(?:    #0 free[^\n]*\n)?    #\d give_up [^§]* was allocated by:\n(?:    #0 calloc[^\n]*\n)?    #\d make `},
				{"own", `access to freed memory[^\n]*\n[^§]*  Read of size 8 [^\n]* by main thread:\n    #0 look [^§]*  Block \w+ freed \(free\) by main thread[^\n]*:\n(?:    #0 free[^\n]*\n)?    #\d give_up [^§]* was allocated by:\n(?:    #0 calloc[^\n]*\n)?    #\d make `},
			} {
				t.Run(c.kind+o+"/"+strconv.Itoa(threads), func(t *testing.T) {
					if threads == 4 || o == "-O0" {
						ofAgent(t)
					}
					r := finish(t, command(t, map[string]any{"ExitCode": 0, "Stats": true, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}, "Epochs": map[string]any{"On": true, "Races": true, "Most": 10 * time.Second}}, program, c.kind, strconv.Itoa(threads)))
					if r.signal != syscall.SIGSEGV || r.stdout != "" {
						t.Errorf("signal %v, %q", r.signal, r.stdout)
					}
					var found []string
					for _, one := range strings.Split(r.stderr, "==================\n") {
						if regexp.MustCompile(`^WARNING: ripstop: `+c.found).MatchString(one) && strings.Contains(one, "Reproduced: ") {
							found = append(found, "what it is about")
						} else if m := regexp.MustCompile(`SUMMARY: ripstop: (\S+) \S+ in (\w+)`).FindStringSubmatch(one); m != nil {
							found = append(found, m[1]+" in "+m[2])
						}
					}
					crashed := map[string]string{"race": "crash in use"}[c.kind]
					if crashed == "" {
						crashed = "crash in crash"
					}
					has := map[string]bool{}
					for _, f := range found {
						has[f] = true
					}
					delete(has, "data-race-mov in main")      // what looks whether there is something, and who takes it away: the same race
					delete(has, "data-race-mov in take_away") // likewise
					if !has["what it is about"] || !has[crashed] || len(has) != 2 || !strings.Contains(r.stderr, "looked at for races: whole") {
						t.Errorf("%q\n%s", found, r.stderr)
					}
				})
			}
		}
	}
}

// Programs without a race, over all that threads share, whose every epoch is executed again and looked at: nothing is reported, and output and status are native.
func TestJudgedAndClean(t *testing.T) {
	for _, kinds := range []string{"mrcbso", "k", "g", "h", "i", "l", "t"} {
		for _, threads := range []string{"2", "4"} {
			t.Run(kinds+"/"+threads, func(t *testing.T) {
				if testing.Short() && kinds != "mrcbso" {
					t.Skip("-short: mrcbso has all kinds of locks; the rest takes seconds each")
				}
				program := []string{path("rolls"), kinds, threads, "20"}
				native := finish(t, exec.Command(program[0], program[1:]...))
				r, counts := judgedEpochs(t, 10*time.Millisecond, program...)
				if r != native {
					t.Errorf("%+v, natively %+v", r, native)
				}
				whole, astray := counts["looked at for races: whole"], counts["looked at for races: astray"]
				if whole == 0 || astray > (whole+astray)/5 || counts["looked at for races: refused"] > 0 {
					t.Errorf("%v", counts)
				}
			})
		}
	}
}

// Judged re-executions of pigz and pbzip2 went astray, nearly all: an mmap found its place taken. By tables of the patch engine's, of which all but the first came to lie where the kernel likes; and by trampolines, where something is mapped on the way
// and is gone by the epoch's end, at which the engine looks.
func TestJudgedPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the Go code is TestJudgedAndClean's")
	}
	program := path("places")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-pthread", "-o", program, "testdata/places.c", "-Wl,--no-as-needed", "-lm", "-lstdc++").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	native := finish(t, exec.Command(program))
	r, counts := judgedEpochs(t, 20*time.Millisecond, program)
	if r != native {
		t.Errorf("%+v, natively %+v", r, native)
	}
	if counts["looked at for races: whole"] == 0 || counts["looked at for races: astray"] > 0 || counts["looked at for races: refused"] > 0 {
		t.Errorf("%v", counts)
	}
}

// What was freed before the epoch that was executed again was not known as freed there, and an abort was not looked into at all: a program that read stale memory and failed an assertion was told of the abort alone.
func TestJudgedStale(t *testing.T) {
	ofAgent(t)
	for kind, signal := range map[string]syscall.Signal{"abort": syscall.SIGABRT, "crash": syscall.SIGSEGV, "clean": syscall.SIGABRT} {
		t.Run(kind, func(t *testing.T) {
			r := finish(t, command(t, map[string]any{"ExitCode": 0, "Stats": true, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}, "Epochs": map[string]any{"On": true, "Races": true, "Most": 20 * time.Millisecond}}, path("stale"), kind))
			if r.signal != signal || r.stdout != "" {
				t.Errorf("signal %v, %q", r.signal, r.stdout)
			}
			stale := regexp.MustCompile(`access to freed memory[^\n]*\n[^§]*  Read of size 8 [^\n]* by main thread:\n    #0 look [^§]*  Block \w+ freed \(free\) by thread T2[^\n]*:\n(?:    #0 free[^\n]*\n)?    #\d give_up [^§]*Reproduced: `).MatchString(r.stderr)
			if !regexp.MustCompile(`guard, epochs +[1-9]`).MatchString(r.stderr) {
				t.Error("all is in one epoch")
			}
			if stale != (kind != "clean") || strings.Count(r.stderr, "SUMMARY: ") != map[bool]int{true: 2, false: 1}[stale] {
				t.Errorf("stale %v\n%s", stale, r.stderr)
			}
		})
	}
}
