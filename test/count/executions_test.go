package count

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

const libc, loader = "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"

// build compiles a program of testdata.
func build(t *testing.T, source string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	args := append([]string{"-g", "-o", path, filepath.Join("testdata", source)}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return path
}

func plugin(t *testing.T) string {
	t.Helper()
	path, err := BuildPlugin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// differences lists where two counts of one module differ, at most a screen of it.
func differences(what string, a, b map[uint64]uint64) (lines []string) {
	all := map[uint64]bool{}
	for _, m := range []map[uint64]uint64{a, b} {
		for addr := range m {
			all[addr] = true
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(all)) {
		if a[addr] != b[addr] {
			lines = append(lines, fmt.Sprintf("%s+%#x: %d, %d", what, addr, a[addr], b[addr]))
		}
	}
	if n := len(lines); n > 20 {
		lines = append(lines[:20], fmt.Sprintf("… %d in all of %d", n, len(all)))
	}
	return lines
}

// chosen matches functions that depend on the processor: those that libc has in several implementations, which look at where in a page a string lies, and what looks at the
// processor's caches.
var chosen = regexp.MustCompile(`_(avx|sse|ssse|evex|erms|x86_)`)

// processorFree leaves out what depends on the processor or on where memory lies.
func processorFree(sym *image.Symbolizer, module string, counts map[uint64]uint64) map[uint64]uint64 {
	out := map[uint64]uint64{}
	for addr, n := range counts {
		name, _, _ := sym.Symbol(module, "", addr)
		if !chosen.MatchString(name) {
			out[addr] = n
		}
	}
	return out
}

// The two oracles agree on each instruction of the program and all its libraries; of libc on those that do not depend on the processor. The loader,
// which looks at the processor and at the environment all the time, is left out.
func TestOraclesAgree(t *testing.T) {
	so := plugin(t)
	sym := image.NewSymbolizer()
	defer sym.Close()
	for _, p := range []Program{
		{Path: build(t, "kernel.c", "-O3", "-mavx2")},
		{Path: build(t, "kernel.c", "-O0", "-mavx2", "-no-pie")},
		{Path: "/usr/bin/sort", Args: []string{"--parallel=1", "-S", "1M", "testdata/kernel.c"}},
	} {
		name := filepath.Base(p.Path)
		t.Run(name, func(t *testing.T) {
			dir, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			emulated, _, err := Emulated(ctx, &p, dir, so)
			if err != nil {
				t.Fatal(err)
			}
			stepped, err := Stepped(ctx, &p, dir)
			if err != nil {
				t.Fatal(err)
			}
			instructions := 0
			for _, module := range slices.Sorted(maps.Keys(stepped)) {
				if module == loader {
					continue
				}
				e, s := emulated[module], stepped[module]
				if module == libc {
					e, s = processorFree(sym, module, e), processorFree(sym, module, s)
				}
				diff := differences(module, e, s)
				t.Logf("%s: %d of %d instructions compared, %d differ", module, len(s), len(stepped[module]), len(diff))
				instructions += len(s)
				for _, line := range diff {
					t.Errorf("emulated, stepped: %s", line)
				}
			}
			if n := len(stepped[p.Path]); n < 100 || instructions < 1000 {
				t.Errorf("only %d instructions ran, %d of the program", instructions, n)
			}
		})
	}
}
