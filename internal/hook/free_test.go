package hook

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// queuesOf finds a program's queues as it lies in its file, and gives what it is that was found, by function.
func queuesOf(t *testing.T, exe string) (found map[string][]string, functions []string) {
	t.Helper()
	img, err := image.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	f := &queueFinder{wordFinder: finderOf(img), owned: map[uint64]bool{}}
	f.word = func(at uint64) (uint64, bool) { // as the linker has it: no address is left to the loader
		lo, size, ok := img.Program(elf.PT_GNU_RELRO)
		b := img.Bytes(at, 8)
		if !ok || at-lo >= size || len(b) < 8 {
			return 0, false
		}
		return binary.LittleEndian.Uint64(b), true
	}
	for _, at := range finderOf(img).find() {
		f.owned[at] = true
	}
	found = map[string][]string{}
	for _, at := range f.find() {
		s, _ := img.Symbol(at)
		in, _ := f.insn(at)
		found[s.Name] = append(found[s.Name], fmt.Sprintf("%x %s", at, in.Op))
	}
	for _, fn := range img.Functions() {
		if s, ok := img.Symbol(fn[0]); ok {
			functions = append(functions, s.Name)
		}
	}
	return found, functions
}

// Queues without a lock were read and written in no order, so nearly all of their epochs went another way. What they are made of is found, loads as well; counts of references, other counters and what is far from any wait are left alone, as to order them would cost and say nothing.
func TestQueues(t *testing.T) {
	for _, cc := range []string{"g++ -O1", "g++ -O2", "g++ -O3", "clang++ -O2"} {
		exe := filepath.Join(t.TempDir(), "free")
		flags := strings.Fields(cc)
		if out, err := exec.Command(flags[0], append(flags[1:], "-std=c++20", "-no-pie", "-pthread", "-o", exe, "testdata/free.cc")...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", cc, out)
		}
		found, functions := queuesOf(t, exe)
		seen := 0
		for _, name := range functions {
			kind, _, _ := strings.Cut(name, "_")
			if kind == "queue" && len(found[name]) == 0 || kind == "none" && len(found[name]) > 0 {
				t.Errorf("%s: %s: %v", cc, name, found[name])
			}
			if kind == "queue" || kind == "none" {
				seen++
			}
		}
		for _, name := range []string{"queue_put", "queue_get"} { // both numbers, what is exchanged, what is stored
			var loads, stores int
			for _, in := range found[name] {
				if strings.HasSuffix(in, " mov") {
					loads++
				}
				if strings.HasSuffix(in, " cmpxchg") {
					stores++
				}
			}
			if loads < 3 || stores < 1 {
				t.Errorf("%s: of %s %v", cc, name, found[name])
			}
		}
		if seen < 7 {
			t.Errorf("%s: %v", cc, functions)
		}
	}
}

// The same of Rust's channels, which a program has of the standard library, where there is a compiler.
func TestQueuesOfRust(t *testing.T) {
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	exe := filepath.Join(t.TempDir(), "free")
	if out, err := exec.Command(rustc, "--edition=2021", "-O", "-Crelocation-model=static", "-Clink-arg=-no-pie", "-o", exe, "../run/testdata/free.rs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, _ := queuesOf(t, exe)
	for _, part := range []string{"4list", "5array", "5waker", "7Barrier", "4park"} {
		n := 0
		for name, list := range found {
			if strings.Contains(name, part) {
				n += len(list)
			}
		}
		if n == 0 {
			t.Errorf("nothing is found of %s", part)
		}
	}
}
