package race

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
)

// runFull runs a program under run --full and gives the races and uses of freed memory that it reports.
func runFull(t testing.TB, runner, exe string) (found []finding.Finding) {
	t.Helper()
	return runJudged(t, runner, exe, map[string]any{"Full": true})
}

// runJudged runs a program with options of run.Options.
func runJudged(t testing.TB, runner, exe string, options map[string]any) (found []finding.Finding) {
	t.Helper()
	return runBeside(t, runner, exe, exe, options)
}

// runBeside is runJudged for a program that has another build to run natively.
func runBeside(t testing.TB, runner, plain, exe string, options map[string]any) (found []finding.Finding) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: all of it happens in a runner that is built without the race detector")
	}
	native, err := exec.Command(plain).Output()
	if err != nil {
		t.Fatalf("natively: %v", err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	options["ExitCode"], options["Report"] = 0, map[string]any{"Formats": []string{"json=" + report, "text"}}
	o, _ := json.Marshal(options)
	cmd := exec.Command(runner, string(o), "run", exe)
	var errs strings.Builder
	cmd.Stderr = &errs
	if out, err := cmd.Output(); err != nil || string(out) != string(native) {
		t.Fatalf("%v: %q, natively %q\n%s", err, out, native, errs.String())
	}
	return reported(t, report)
}

// reported gives the races and uses of freed memory of a report, in JSON.
func reported(t testing.TB, report string) (found []finding.Finding) {
	t.Helper()
	lines, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		var f struct {
			Type, Rule, Message string
			Notes               []string
			Objects             []struct{ ID, Symbol string }
			Parts               []struct {
				Text, Before string
				Stack        []struct {
					File string
					Line int
				}
				Held []struct{ Object string }
			}
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		rule := finding.Rule(f.Rule)
		if f.Type != "finding" || !slices.Contains([]finding.Rule{finding.RuleDataRace, finding.RuleDataRaceMov, finding.RuleUseAfterFree}, rule) {
			continue
		}
		one := finding.Finding{Rule: rule, Message: f.Message, Notes: f.Notes}
		for _, o := range f.Objects {
			one.Objects = append(one.Objects, finding.Object{ID: o.ID, Symbol: o.Symbol})
		}
		for _, p := range f.Parts {
			part := finding.Part{Text: p.Text}
			if part.Before, err = hex.DecodeString(p.Before); err != nil {
				t.Fatal(err)
			}
			for _, s := range p.Stack {
				part.Stack = append(part.Stack, finding.Frame{File: s.File, Line: s.Line})
			}
			for _, h := range p.Held {
				part.Held = append(part.Held, finding.Held{Object: h.Object})
			}
			one.Parts = append(one.Parts, part)
		}
		found = append(found, one)
	}
	return found
}

// The same programs judged by the agent while they run: each race is found each time, and no other.
func TestProgramsFull(t *testing.T) {
	runner, sources := runnerAndSources(t)
	for _, source := range append(sources, calledSources(t)...) {
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			exe := build(t, source, "-O1")
			for range rounds {
				judge(t, source, runFull(t, runner, exe), false)
			}
			// No race is lost where nothing is patched before there is a second thread (decision 72); what the only thread does to freed memory is.
			if filepath.Base(source) != "pages.c" {
				judge(t, source, runJudged(t, runner, exe, map[string]any{"Full": true, "Late": true}), false)
			}
		})
	}
}

// In one of seventy runs on a busy machine the race of a handler and of its signal's sender was not found: the handler had come while its thread was in the detector, where what it did was taken for ordered.
func TestHandlersInTheMiddle(t *testing.T) {
	runner, _ := runnerAndSources(t)
	const source = "testdata/middle/handlers.c"
	exe := build(t, source, "-O1")
	judge(t, source, runFull(t, runner, exe), false)
	for _, args := range [][]string{{exe}, {exe, "once"}} {
		native, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}
		report := filepath.Join(t.TempDir(), "report.json")
		o, _ := json.Marshal(map[string]any{"Full": true, "Stats": true, "ExitCode": 0, "Report": map[string]any{"Formats": []string{"json=" + report}}})
		out, err := exec.Command(runner, append([]string{string(o), "run"}, args...)...).Output()
		if err != nil || string(out) != string(native) {
			t.Fatalf("%v: %q, natively %q", err, out, native)
		}
		b, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		if len(args) == 1 && !strings.Contains(string(b), `"races, taken for ordered":"0"`) {
			t.Errorf("handlers were taken for ordered:\n%s", b)
		}
	}
}

// A program built with OpenMP had some fifty findings a run, all but one of the runtime's insides and of what it orders by its movs. gcc's is libgomp, clang's libomp.
// With optimization clang reads variables of sections that another thread executes, before it knows whose they are: races of the compiler's that no source has.
func TestOpenMP(t *testing.T) {
	runner, _ := runnerAndSources(t)
	const source = "testdata/openmp/openmp.c"
	for compiler, optimized := range map[string]string{"gcc": "-O1", "clang": "-O0"} {
		t.Run(compiler, func(t *testing.T) {
			exe := buildBy(t, compiler, source, optimized, "-fopenmp")
			for range rounds {
				judge(t, source, runFull(t, runner, exe), false)
				dir := recordBy(t, "full", runner, exe)
				judgeTold(t, source, dir)
			}
		})
	}
}

// Two threads that each made a std::regex had a data-race-mov told in each run, of what libstdc++'s headers keep in std::ctype<char>. In stripped programs it is known as well, whoever's file libstdc++ is in.
func TestFullFacets(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/facets/facets.cc"
	for _, level := range []string{"-O0", "-O2"} {
		exe := build(t, source, level)
		for range rounds {
			judge(t, source, runFull(t, runner, exe), false)
		}
	}
	for _, link := range []string{"-shared-libgcc", "-static-libstdc++"} {
		exe := filepath.Join(t.TempDir(), "matches")
		if out, err := exec.Command("g++", "-O2", "-s", "-DMATCHES", "-pthread", link, "-o", exe, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for range rounds {
			if found := runFull(t, runner, exe); len(found) != 0 {
				t.Errorf("%s: %v", link, found)
			}
		}
	}
}

// A thread followed a pointer into a block that another one had freed, and crashed: nothing was told, neither the read that led there nor the races of mov instructions, which are kept back.
func TestFullCrash(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/dies/dies.c"
	exe := build(t, source, "-O1", "-w")
	for _, how := range []string{"segv", "ill", "fpe", "abort"} {
		for range rounds {
			native := exec.Command(exe, how)
			said, _ := native.Output()
			report := filepath.Join(t.TempDir(), "report.json")
			o, _ := json.Marshal(map[string]any{"Full": true, "ExitCode": 0, "Report": map[string]any{"Formats": []string{"json=" + report}}})
			full := exec.Command(runner, string(o), "run", exe, how)
			out, _ := full.Output()
			if natively := native.ProcessState.String(); string(out) != string(said) || full.ProcessState.String() != natively || !strings.HasPrefix(natively, "signal: ") {
				t.Fatalf("%s: %v, %q; natively %v, %q", how, full.ProcessState, out, natively, said)
			}
			judge(t, source, reported(t, report), false)
		}
	}
}

// Optimized, a function finds its own atomics by its stack pointer, and stores to them by mov: what it handed over so was told as data-race-mov.
func TestFullLocals(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/unstepped/locals.cc"
	for _, by := range []struct{ compiler, level string }{{"g++", "-O2"}, {"clang++", "-O1"}, {"clang++", "-O2"}} {
		exe := buildBy(t, by.compiler, source, by.level)
		for range rounds {
			judge(t, source, runFull(t, runner, exe), false)
			dir := recordBy(t, "full", runner, exe)
			judgeTold(t, source, dir)
		}
	}
}

// What a function does to its own frame, whose address nobody else is told, is looked at from when another thread has accessed that stack on: a pointer that outlived its function.
func TestFullFrames(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/unstepped/frames.c"
	for _, compiler := range []string{"gcc", "clang"} {
		for _, level := range []string{"-O0", "-O1", "-O2"} {
			exe := buildBy(t, compiler, source, level)
			for range rounds {
				judge(t, source, runFull(t, runner, exe), false)
			}
		}
	}
}

// A store to an atomic that LLVM makes one instruction of, with the load before it, was told as a certain race, in Rust too: a queue's index that its only writer raises. Debug information says which are such stores. Without
// it none is certain.
func TestFullFolded(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/folded/folded.cc"
	for _, by := range [][]string{{"g++", "-O2"}, {"clang++", "-O1"}, {"clang++", "-O2"}, {"clang++", "-O2", "-g0"}, {"clang++", "-O2", "-gline-tables-only"}} {
		exe := buildBy(t, by[0], source, by[1:]...)
		for range rounds {
			found := runFull(t, runner, exe)
			if len(by) == 2 {
				judge(t, source, found, false)
				judgeTold(t, source, recordBy(t, "full", runner, exe))
				continue
			}
			if len(found) == 0 {
				t.Errorf("%s: nothing is found", by)
			}
			for _, f := range found {
				if f.Rule != finding.RuleDataRaceMov {
					t.Errorf("%s: %s, %s", by, f.Rule, f.Message)
				}
			}
		}
	}
}

// A destructor that stores the vptr again that is there, and then joins the thread that calls virtual functions, was told as data-race-mov each time: in every class that joins its thread in its destructor. Where
// another class's vptr is stored the race is there, and told each time. In recordings as well.
func TestFullVptr(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: all of it happens in a runner that is built without the race detector")
	}
	runner, _ := runnerAndSources(t)
	const source = "testdata/unstepped/vptr.cc"
	for _, by := range []struct {
		compiler string
		flags    []string
	}{
		{"g++", []string{"-O0"}}, {"g++", []string{"-O0", "-no-pie", "-fno-pie"}}, {"g++", []string{"-O2"}}, {"g++", []string{"-O2", "-no-pie", "-fno-pie"}}, {"g++", []string{"-O2", "-no-pie", "-fno-pie", "-static-libstdc++"}},
		{"g++", []string{"-O3", "-march=x86-64-v3"}}, {"g++", []string{"-O2", "-s"}}, {"clang++", []string{"-O0"}}, {"clang++", []string{"-O2"}}, {"clang++", []string{"-O2", "-fPIC", "-no-pie"}},
	} {
		exe := buildBy(t, by.compiler, source, by.flags...)
		for range 2 * rounds {
			found := runFull(t, runner, exe)
			if slices.Contains(by.flags, "-s") { // no lines: base, other, and both words of replaced
				if len(found) < 3 || len(found) > 4 {
					t.Errorf("%v: %v", by, found)
				}
				continue
			}
			judge(t, source, found, false)
		}
		if !slices.Contains(by.flags, "-s") {
			judgeTold(t, source, recordBy(t, "full", runner, exe))
		}
	}
}

func buildText(t *testing.T, text string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "text.c")
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return build(t, source, "-O1")
}

// A program that holds other ones of its locks each time had a definition, a stack and sites for each set: of places that have had thousands the locks are not told any more, and it is said.
func TestFullManySets(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: as TestFullVptr")
	}
	runner, _ := runnerAndSources(t)
	exe := buildText(t, `#include <pthread.h>
#include <stdlib.h>
enum { N = 256 };
static pthread_mutex_t lock[N];
static long counted[N];
static void *none(void *p) { return p; }
int main(int argc, char **argv) {
	pthread_t t; /* what a thread does before there is another one is told once */
	pthread_create(&t, 0, none, 0);
	pthread_join(t, 0);
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&lock[i], 0);
	for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 1); i++) {
		int a = i % (N - 1), b = a + 1 + i / N % (N - 1 - a);
		pthread_mutex_lock(&lock[a]);
		pthread_mutex_lock(&lock[b]);
		counted[a]++;
		counted[b]++;
		pthread_mutex_unlock(&lock[b]);
		pthread_mutex_unlock(&lock[a]);
	}
}
`)
	for _, rounds := range []string{"2000", "60000"} {
		o, _ := json.Marshal(map[string]any{"Full": true, "Stats": true, "ExitCode": 0, "Report": map[string]any{"Formats": []string{"text"}}})
		out, err := exec.Command(runner, string(o), "run", exe, rounds).CombinedOutput()
		if said := strings.Contains(string(out), "very many different sets"); err != nil || said != (rounds == "60000") {
			t.Errorf("%s: %v\n%s", rounds, err, out)
		}
	}
}

// A program of Rust's channels had up to seven findings a run, all false: what their stores, which are plain movs, hand over.
func TestRust(t *testing.T) {
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	runner, _ := runnerAndSources(t)
	const source = "testdata/rust/channels.rs"
	for _, level := range []string{"0", "2"} {
		exe := filepath.Join(t.TempDir(), "channels")
		if out, err := exec.Command(rustc, "--edition=2021", "-g", "-Copt-level="+level, "-o", exe, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for range rounds {
			judge(t, source, runFull(t, runner, exe), false)
		}
	}
}

// A library of the program's that allocates writes to blocks that are free, and copies them by libc's functions after realloc began: redis with jemalloc had 178 findings, all false. What the
// program itself does to them is told.
func TestFullAllocator(t *testing.T) {
	runner, _ := runnerAndSources(t)
	dir := t.TempDir()
	library := filepath.Join(dir, "liballocator.so")
	if out, err := exec.Command("gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-shared", "-fPIC", "-o", library, "testdata/allocator/allocator.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exe := filepath.Join(dir, "blocks")
	const source = "testdata/allocator/blocks.c"
	if out, err := exec.Command("gcc", "-O0", "-g", "-Wall", "-Wextra", "-Wno-use-after-free", "-Werror", "-pthread", "-o", exe, source, library, "-Wl,-z,now,-rpath,"+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	judge(t, source, runFull(t, runner, exe), false)
}

// named has jemalloc, from which a library of its own has blocks by mallocx, where blocks of malloc's had been that libcrypto freed: 3,391 accesses to freed memory were told, none of which was one. The functions
// of libc are had past the agent by a library that is loaded with RTLD_DEEPBIND.
func TestFullPast(t *testing.T) {
	runner, _ := runnerAndSources(t)
	build := func(dir, name string, args ...string) string {
		t.Helper()
		to := filepath.Join(dir, name)
		if out, err := exec.Command("gcc", append([]string{"-O0", "-g", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-pthread", "-fPIC", "-o", to}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return to
	}
	const source = "testdata/allocator/past.c"
	for _, how := range []string{"linked", "late", "deep"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			path := "-Wl,-z,now,-rpath," + dir
			allocator := build(dir, "liballocator.so", "-shared", "testdata/allocator/allocator.c")
			var exe string
			switch how {
			case "linked":
				lib := build(dir, "libpast.so", "-shared", "-DLIBRARY", "-DOTHER", source, allocator)
				exe = build(dir, "past", source, lib, allocator, path)
			case "late":
				lib := build(dir, "libpast.so", "-shared", "-DLIBRARY", "-DOTHER", source, allocator)
				exe = build(dir, "past", "-DMODE=0", "-DLATE=\""+lib+"\"", source, "-Wl,--no-as-needed", allocator, path)
			case "deep":
				lib := build(dir, "libpast.so", "-shared", "-DLIBRARY", source)
				exe = build(dir, "past", "-D_GNU_SOURCE", "-DMODE=RTLD_DEEPBIND", "-DLATE=\""+lib+"\"", source)
			}
			if found := runFull(t, runner, exe); len(found) != 0 {
				t.Errorf("%v", found)
			}
		})
	}
}

// A program may use all of what malloc_usable_size says of its block. Behind what it had asked for the block that was freed there before was still known: redis with libc's malloc had three accesses to
// freed memory told, none of which was one.
func TestFullUsable(t *testing.T) {
	runner, _ := runnerAndSources(t)
	source := filepath.Join(t.TempDir(), "usable.c")
	text := `#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *nothing(void *p) { return p; }
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, nothing, 0);
	pthread_join(t, 0);
	char *first = malloc(2000), *second = malloc(2000), *last = malloc(2000);
	uintptr_t was = (uintptr_t)first;
	memset(second, 1, 2000);
	free(second);
	free(first); // one with the second now
	volatile char *p = malloc(2016); // as much as lies in front of the second
	if ((uintptr_t)p != was || (uintptr_t)second != was + 2016)
		return 1;
	size_t n = malloc_usable_size((void *)p);
	for (size_t i = 0; i < n; i++)
		p[i] = 2;
	printf("%zu\n", n);
	free((void *)p);
	p[2020] = 3; // uaf late
	free(last);
}
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(t.TempDir(), "usable")
	if out, err := exec.Command("gcc", "-g", "-O0", "-w", "-pthread", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := runFull(t, runner, exe)
	if len(found) != 1 || found[0].Rule != finding.RuleUseAfterFree || lineOf(found[0].Parts[0].Stack, source) != 25 {
		t.Errorf("%v", found)
	}
}

// A leaf function has the stack 8 bytes from where a call wants it. Its first access in a library that was loaded late had the agent fetch what stacks are walked by, which stored vectors
// on the stack: SIGSEGV in the program.
func TestFullLeaf(t *testing.T) {
	runner, _ := runnerAndSources(t)
	dir := t.TempDir()
	source, library := filepath.Join(dir, "leaf.c"), filepath.Join(dir, "libleaf.so")
	text := `#include <dlfcn.h>
#include <stdio.h>
#ifdef LIBRARY
int count[4];
int leaf(int i) { return ++count[i & 3]; }
#else
int main(void) {
	void *lib = dlopen(NAME, RTLD_NOW);
	int (*leaf)(int) = (int (*)(int))dlsym(lib, "leaf");
	printf("%d\n", leaf(1));
}
#endif
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-g", "-O2", "-DLIBRARY", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exe := filepath.Join(dir, "leaf")
	if out, err := exec.Command("gcc", "-g", "-O1", "-DNAME=\""+library+"\"", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if found := runFull(t, runner, exe); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

// A handler that comes while the agent looks at an access finds the program at the site, with its registers and flags, and what it makes of them counts: half of a program's time is there.
func TestFullSignals(t *testing.T) {
	runner, _ := runnerAndSources(t)
	for _, met := range []string{"-DMET=0", "-DMET=1", "-DMET=2"} { // what other threads have accessed of the stack
		exe := build(t, "../analyze/testdata/interrupted.c", "-O1", met)
		for range rounds {
			if found := runFull(t, runner, exe); len(found) != 0 {
				t.Errorf("%s: %v", met, found)
			}
		}
	}
}

// The same where each access is new in its thread's time, and told by code that has more registers in use, and a cell locked. What it had been about to store was lost, or the cell stayed locked, where it was not seen to
// (mutations); and of entries for eight bytes, which had become shorter than others, some places were taken for others', with flags that were none.
func TestFullSignalsNew(t *testing.T) {
	runner, _ := runnerAndSources(t)
	exe := build(t, "../analyze/testdata/interruptednew.c", "-O1")
	for range rounds {
		if found := runFull(t, runner, exe); len(found) != 0 {
			t.Error(found)
		}
	}
}

// A read that is followed by a write of the same bytes is put off (internal/access, pairs.go). What it acquires orders the reads in between all the same, and it is told where the thread never comes to the write.
func TestFullPairs(t *testing.T) {
	runner, _ := runnerAndSources(t)
	const source = "testdata/pairs/pairs.c"
	exe := build(t, source, "-O1")
	for range rounds {
		judge(t, source, runFull(t, runner, exe), false)
	}
	exe = build(t, source, "-O1", "-DORDER")
	for range rounds {
		if found := runFull(t, runner, exe); len(found) != 0 {
			t.Error(found)
		}
	}
}
