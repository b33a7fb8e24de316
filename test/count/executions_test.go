package count

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// The two oracles agree on each instruction of the program, all its libraries and libc; the loader, which looks at the processor and at the
// environment, is left out.
func TestOraclesAgree(t *testing.T) {
	so := plugin(t)
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
				diff := differences(module, emulated[module], stepped[module])
				t.Logf("%s: %d instructions ran, %d differ", module, len(stepped[module]), len(diff))
				if module == loader {
					continue
				}
				instructions += len(stepped[module])
				for _, line := range diff {
					t.Errorf("emulated, stepped: %s", line)
				}
			}
			if instructions < 1000 {
				t.Errorf("only %d instructions ran", instructions)
			}
		})
	}
}
