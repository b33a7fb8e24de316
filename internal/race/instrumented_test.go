package race

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unlike are the programs of testdata, by name, of which another build says otherwise than their sources: a compiler's instrumentation knows which accesses are atomic and in what order, and nothing of assembler
// and of what it puts in the place of calls (memset, strlen) or knows to be nobody else's yet.
var unlike = map[string]struct {
	skip bool
	lost []string // not races, or not to be seen
	also [][2]int // races that are none by the processor's order
}{
	"instructions.c": {skip: true},
	"lanes.c":        {skip: true},
	"atomics.c":      {lost: []string{"release_store", "payload"}, also: [][2]int{{103, 110}, {102, 112}}}, // a flag that is no atomic, with mfence in assembler
	"popular.cc":     {lost: []string{"publishing", "contents"}, also: [][2]int{{61, 72}}},                 // relaxed
	"sizes.c":        {lost: []string{"string"}},
	"memory.c":       {lost: []string{"strlen"}},
	"objects.c":      {lost: []string{"overwritten"}},
	"frames.c":       {lost: []string{"dangling"}}, // the compiler does not tell what a function does to a variable of its own
}

func judgeInstrumented(t *testing.T, runner, source, plain, exe string) {
	t.Helper()
	want, not := statements(t, source), unlike[filepath.Base(source)]
	seen := map[string]bool{}
	for _, f := range runBeside(t, runner, plain, exe, map[string]any{}) {
		a, b := lineOf(f.Parts[0].Stack, source), lineOf(f.Parts[1].Stack, source)
		name := ""
		for n, s := range want {
			if slices.Contains(s.lines, a) && slices.Contains(s.lines, b) {
				name = n
			}
		}
		if name == "" && !slices.Contains(not.also, [2]int{min(a, b), max(a, b)}) {
			t.Errorf("%s: lines %d and %d: %s, which the source does not state: %s\n%v\n%v", source, a, b, f.Rule, f.Message, f.Parts[0], f.Parts[1])
		}
		seen[name] = true
	}
	for name, s := range want {
		if !seen[name] && s.rule != missed && !slices.Contains(not.lost, name) {
			t.Errorf("%s: %s (lines %d) is not found", source, name, s.lines)
		}
	}
}

// Programs that were built with -fsanitize=thread have the agent for their runtime: the same races, each time, and no other, but for what unlike says.
func TestInstrumented(t *testing.T) {
	runner, sources := runnerAndSources(t)
	for _, source := range append(sources, calledSources(t)...) {
		if unlike[filepath.Base(source)].skip {
			continue
		}
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			plain, exe := build(t, source, "-O1"), build(t, source, "-O1", "-fsanitize=thread", "-w")
			for range rounds {
				judgeInstrumented(t, runner, source, plain, exe)
			}
		})
	}
}

// Atomics order as the program says. By gcc and by clang, whose objects gcc links, as clang itself links another runtime.
func TestInstrumentedOrders(t *testing.T) {
	runner, _ := runnerAndSources(t)
	const source = "testdata/instrumented/orders.c"
	plain := build(t, source, "-O1", "-mcx16", "-latomic")
	for _, compiler := range []string{"gcc", "clang"} {
		for _, level := range []string{"-O0", "-O2"} {
			t.Run(compiler+level, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				object, exe := filepath.Join(dir, "orders.o"), filepath.Join(dir, "orders")
				for _, args := range [][]string{{compiler, "-g", level, "-mcx16", "-w", "-pthread", "-fsanitize=thread", "-c", "-o", object, source}, {"gcc", "-pthread", "-fsanitize=thread", "-o", exe, object, "-latomic"}} {
					if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				}
				for range rounds {
					judgeInstrumented(t, runner, source, plain, exe)
				}
			})
		}
	}
}

// The program has functions of libc from its runtime, which has no versions: by such a name ld.so gives the oldest there is, whose realpath needs a buffer and whose conditions are others (a race of
// pthread_cond_init and signal was missed), or none.
func TestInstrumentedVersions(t *testing.T) {
	runner, _ := runnerAndSources(t)
	source := filepath.Join(t.TempDir(), "versions.c")
	text := `#define _GNU_SOURCE
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
static void ends(void) { puts("ends"); }
int main(void) {
	char *path = realpath("/usr/..", 0), name[16], text[] = "fmemopen";
	cpu_set_t set[2];
	pthread_attr_t a;
	regex_t r;
	regmatch_t m[1];
	glob_t g;
	size_t guard;
	volatile double x = -0.5;
	FILE *f = fmemopen(text, 4, "r");
	atexit(ends);
	pthread_getattr_np(pthread_self(), &a);
	pthread_attr_getguardsize(&a, &guard);
	pthread_setname_np(pthread_self(), "versions");
	pthread_getname_np(pthread_self(), name, sizeof name);
	printf("%s %s %d %d %d %zu\n", path, name, fgetc(f), sched_getaffinity(0, sizeof set, set), pthread_attr_getaffinity_np(&a, sizeof set, set), guard);
	regcomp(&r, "b", 0);
	int found = regexec(&r, "aabb", 1, m, 0), globbed = glob("/usr/bi[n]", GLOB_ONLYDIR, 0, &g);
	printf("%d %d %d %s %d\n", found, (int)m[0].rm_so, globbed, g.gl_pathv[0], (int)(100 * lgamma(x)));
	fclose(f);
}
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	plain, exe := build(t, source, "-O1", "-w", "-lm"), build(t, source, "-O1", "-w", "-fsanitize=thread", "-lm")
	if found := runBeside(t, runner, plain, exe, map[string]any{}); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

// What the program calls of its runtime that is not there is said before it starts: it would end when it calls it. A program that wraps a function itself, as the runtime provides for, did: it was taken for one that
// lacks nothing, and ended with the dynamic linker's 127.
func TestInstrumentedUnknown(t *testing.T) {
	runner, _ := runnerAndSources(t)
	for _, name := range []string{"__sanitizer_print_stack_trace", "__interceptor_strlen"} {
		source := filepath.Join(t.TempDir(), "unknown.c")
		if err := os.WriteFile(source, []byte("int NAME(const char *);\nint main(int argc, char **argv) { return argc > 1 ? NAME(argv[1]) : 0; }\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		cmd := exec.Command(runner, "{}", "run", build(t, source, "-O1", "-fsanitize=thread", "-DNAME="+name))
		cmd.Stderr = &errs
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 126 || !strings.Contains(errs.String(), name) {
			t.Errorf("%v: %s", err, errs.String())
		}
	}
}
