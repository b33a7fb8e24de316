package ctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// Words of Config.Allocator: each policy, and guard bytes with a small quarantine.
var allocators = map[string]uint32{
	"owner":         uint32(wire.AllocatorOwner),
	"freer":         uint32(wire.AllocatorFreer),
	"freer-guarded": uint32(wire.AllocatorFreer) | 4<<8 | 1<<16,
}

// allocDriver builds testdata/alloc_driver.c with the allocator's sources.
func allocDriver(t *testing.T) string {
	t.Helper()
	sources, err := filepath.Glob("../alloc*.c")
	sources = slices.DeleteFunc(sources, func(s string) bool { return filepath.Base(s) == "allocask.c" }) // it is of the program's malloc
	if err != nil || len(sources) < 4 {
		t.Fatal(sources, err)
	}
	exe := filepath.Join(t.TempDir(), "alloc_driver")
	args := append([]string{"-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-pthread", "-o", exe, "testdata/alloc_driver.c", "../os.c"}, sources...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// The allocator alone, by what it promises to those who build on it: owners, block_of, addresses that follow from the calls, limits, locks' order, guard bytes.
func TestAllocator(t *testing.T) {
	exe := allocDriver(t)
	for _, test := range []string{"addresses", "owners", "blocks", "zero", "untouched", "limits", "no_memory", "resize", "order", "ends", "guard"} {
		for _, policy := range []wire.Allocator{wire.AllocatorOwner, wire.AllocatorFreer} {
			t.Run(test+"/"+policy.String(), func(t *testing.T) {
				word := uint32(policy)
				if test == "guard" {
					word |= 4<<8 | 1<<16
				}
				run := func() string {
					out, err := exec.Command(exe, test, strconv.Itoa(int(word))).CombinedOutput()
					if err != nil || !strings.HasSuffix(string(out), "ok "+test+"\n") {
						t.Fatalf("%v\n%s", err, out)
					}
					return string(out)
				}
				if first := run(); test == "addresses" {
					if second := run(); first != second {
						t.Errorf("other addresses in the second run: %s and %s", first, second)
					}
				}
			})
		}
	}
}

// Programs have the same results with the agent's heap as with libc's: random calls against a model, with threads that come and go, blocks handed over, and forks; all
// forms of malloc and of operator new.
func TestOwnHeap(t *testing.T) {
	model := compile(t, "alloc_model.c", "-O1")
	forms := compile(t, "heap_all.c", "-Wno-alloc-size-larger-than", "-Wno-deprecated-declarations")
	operators := compile(t, "heap_new.cc", "-std=c++17")
	for name, word := range allocators {
		t.Run(name, func(t *testing.T) {
			config := asRun
			config.Allocator = word
			for _, argv := range [][]string{{model, "4", "2", "3000"}, {forms}, {operators}} {
				if m := misuses(same(t, config, argv...)); len(m) > 0 {
					t.Errorf("%v: misuse in a right program: %+v", argv, m)
				}
			}
		})
	}
}

// What heap.c knows of blocks it knows of the agent's own: locks in them when they are freed, stacks, what is freed twice.
func TestOwnHeapLocksInBlocks(t *testing.T) {
	prog := compile(t, "heap_locks.c", "-O2")
	const times = 40
	config := asRun
	config.Allocator = uint32(wire.AllocatorOwner)
	locksInBlocks(t, config, prog, times)
}

// Where there are no addresses for it the program runs with libc's heap, and is told once.
func TestOwnHeapRefused(t *testing.T) {
	prog := compile(t, "alloc_model.c", "-O1")
	config := asRun
	config.Allocator = uint32(wire.AllocatorOwner)
	r, _, _ := under(t, config, nil, "/bin/sh", "-c", "ulimit -v 900000; exec "+prog+" 2 1 2000")
	if r.stdout != "ok\n" || r.state != "exit status 0" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "its heap is libc's") {
		t.Errorf("%+v", r)
	}
	// Of another allocator than libc's nothing is taken away.
	const jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
	if _, err := os.Stat(jemalloc); err != nil {
		t.Fatalf("%v: install libjemalloc2", err)
	}
	prog = compile(t, "heap_all.c", "-Wno-alloc-size-larger-than", "-Wno-deprecated-declarations", "-Wl,--no-as-needed", jemalloc)
	want := native(t, os.Environ(), prog)
	r, _, _ = under(t, config, nil, prog)
	if r.stdout != want.stdout || r.state != want.state || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "another allocator") {
		t.Errorf("jemalloc: %+v", r)
	}
}
