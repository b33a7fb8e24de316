package ctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// The heap under the agent gives the same results as natively, with the program's own allocator and with another one, and with every
// form of operator new.
func TestHeapResults(t *testing.T) {
	const jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
	if _, err := os.Stat(jemalloc); err != nil {
		t.Fatalf("%v: install libjemalloc2", err)
	}
	c := compile(t, "heap_all.c", "-Wno-alloc-size-larger-than", "-Wno-deprecated-declarations")
	je := compile(t, "heap_all.c", "-Wno-alloc-size-larger-than", "-Wno-deprecated-declarations", "-Wl,--no-as-needed", jemalloc)
	cxx := compile(t, "heap_new.cc", "-std=c++17")
	heap := filtered
	heap.Heap, heap.AllocDepth = 1, 8
	for name, config := range map[string]wire.Config{"filtered": filtered, "heap": heap, "all": all} {
		t.Run(name, func(t *testing.T) {
			for _, prog := range []string{c, je, cxx} {
				l := same(t, config, prog)
				if m := misuses(l); len(m) > 0 {
					t.Errorf("%s: misuse in a right program: %+v", prog, m)
				}
			}
		})
	}
}

// What `ripstop run` asks for.
var asRun = wire.Config{Follow: 1, Misuse: 1, Heap: 1, StackDepth: 16, AllocDepth: 12}

// A library's operator new handed out the first bytes of a block that it had from malloc. The delete of them was taken for the end of that block, and
// its free for a second one.
func TestHeapPoolAtBlockStart(t *testing.T) {
	lib := compile(t, "heap_pool.cc", "-DLIBRARY", "-shared", "-fPIC")
	prog := compile(t, "heap_pool.cc", lib, "-Wl,-rpath,"+filepath.Dir(lib))
	for _, config := range []wire.Config{filtered, asRun, all} {
		if m := misuses(same(t, config, prog)); len(m) > 0 {
			t.Errorf("%+v: misuse in a right program: %+v", config, m)
		}
	}
}

// free looks for locks only in blocks that are known to have some: each of them must be known, however the lock came there, and however often its call
// sites gave and took blocks without.
func TestHeapLocksInBlocks(t *testing.T) {
	prog := compile(t, "heap_locks.c", "-O2")
	const times = 40
	for _, config := range []wire.Config{filtered, asRun, all} {
		locksInBlocks(t, config, prog, times)
	}
}

func locksInBlocks(t *testing.T, config wire.Config, prog string, times int) {
	for _, how := range []string{"inited", "spoken", "destroyed", "nested", "locked", "none"} {
		l := same(t, config, prog, how, fmt.Sprint(times))
		gone, m, want := len(l.of(wire.TypeBlockGone)), misuses(l), times
		if how == "none" || how == "inited" && config.All == 0 {
			want = 0
		}
		switch {
		case how == "locked":
			if len(m) != times {
				t.Errorf("%+v, %s: %d times misuse, want %d", config, how, len(m), times)
			}
		case gone != want || len(m) != 0:
			t.Errorf("%+v, %s: %d blocks with locks gone, want %d; misuse %+v", config, how, gone, want, m)
		}
	}
}

// A replacement of operator new wins under the agent where it wins natively: in the executable, and in a library it links. And a C program
// that loads a C++ plugin keeps working, whose operator new is in no global scope: with libstdc++ as a library, and inside the plugin.
func TestHeapReplacedOperators(t *testing.T) {
	inside := compile(t, "heap_replaced.cc", "-DINSIDE")
	lib := compile(t, "heap_replaced.cc", "-DLIBRARY", "-shared", "-fPIC")
	linked := compile(t, "heap_replaced.cc", lib, "-Wl,-rpath,"+filepath.Dir(lib))
	main := compile(t, "heap_plugin.c")
	plugin := compile(t, "heap_plugin_lib.cc", "-shared", "-fPIC")
	static := compile(t, "heap_plugin_lib.cc", "-shared", "-fPIC", "-static-libstdc++", "-static-libgcc")
	for _, argv := range [][]string{{inside}, {linked}, {main, plugin}, {main, static}} {
		for _, config := range []wire.Config{filtered, all} {
			if l := same(t, config, argv...); len(misuses(l)) > 0 {
				t.Errorf("%v: misuse in a right program: %+v", argv, misuses(l))
			}
		}
	}
}

// tcmalloc and mimalloc define __libc_malloc and __libc_free too, and hand out blocks at 8 modulo 16. By those names they were taken for glibc, and
// every second free of a python3 started with tcmalloc preloaded was called an invalid one.
func TestHeapOtherWithNamesOfGlibc(t *testing.T) {
	lib := compile(t, "heap_other.c", "-DLIBRARY", "-shared", "-fPIC", "-fno-builtin")
	prog := compile(t, "heap_other.c", "-fno-builtin", lib, "-Wl,-rpath,"+filepath.Dir(lib))
	heap := filtered
	heap.Heap, heap.AllocDepth = 1, 8
	for _, config := range []wire.Config{filtered, heap, all} {
		if l := same(t, config, prog); len(misuses(l)) > 0 {
			t.Errorf("misuse in a right program: %+v", misuses(l)[0])
		}
	}
}

// Chromium's crash handler never began: malloc, in the executable, is set up under a spin lock and maps memory for that. mmap looked up all real functions,
// the look-up of one that was not there made ld.so call malloc for the text of the error, and malloc was spinning on its own lock.
func TestHeapOwnInTheMaking(t *testing.T) {
	prog := compile(t, "heap_own.c", "-fno-builtin", "-Wl,--export-dynamic")
	for _, config := range []wire.Config{filtered, all} {
		if l := same(t, config, prog); len(misuses(l)) > 0 {
			t.Errorf("misuse in a right program: %+v", misuses(l)[0])
		}
	}
}

// In all mode every block that is handed out is told once and given back once, by whatever interface: an operator new that calls malloc
// is one allocation, a realloc is a free and an allocation.
func TestHeapEvents(t *testing.T) {
	cxx := compile(t, "heap_new.cc", "-std=c++17")
	l := same(t, all, cxx)
	live := map[uint64]bool{}
	allocs, frees := 0, 0
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		switch e.Type {
		case wire.TypeAlloc:
			a := wire.DecodeAlloc(e.Words)
			if live[a.Addr] {
				t.Fatalf("alloc of %#x, which is live", a.Addr)
			}
			live[a.Addr] = true
			allocs++
		case wire.TypeFree:
			f := wire.DecodeFree(e.Words)
			if !live[f.Addr] {
				t.Fatalf("free of %#x, which is not live", f.Addr)
			}
			delete(live, f.Addr)
			frees++
		}
	}
	// 10 forms in 200 rounds, and exceptions, whose objects libstdc++ allocates by malloc.
	if allocs < 2000 || frees < 2000 {
		t.Errorf("%d allocs, %d frees", allocs, frees)
	}
}

// The sanity of TestHeapReplacedOperators: natively the replacement does win.
func TestHeapReplacedNatively(t *testing.T) {
	out, err := exec.Command(compile(t, "heap_replaced.cc", "-DINSIDE")).Output()
	if err != nil || string(out) != "101\n" {
		t.Fatalf("%q, %v", out, err)
	}
}

// Of allocations' stacks those are sent that an event names, before it: in the process that allocated, in its child and the child's child, and also when there are
// more than the agent keeps. Of the others none is, as long as they are not too many.
func TestHeapStacks(t *testing.T) {
	prog := compile(t, "heap_stacks.c", "-O1", "-fno-optimize-sibling-calls")
	config := asRun
	config.AllocDepth = 24
	const few, many = 3000, 40000
	quiet := len(same(t, config, prog, fmt.Sprint(few)).of(wire.TypeStack))
	if quiet > 100 {
		t.Errorf("%d stacks were sent of a program of which nothing is told", quiet)
	}
	for _, n := range []int{few, many} {
		r, l, _ := under(t, config, nil, prog, fmt.Sprint(n), "use")
		if r.state != "exit status 0" || r.stdout != "done\n" {
			t.Fatalf("%+v", r)
		}
		want := map[string]string{} // block in a process: where it was allocated
		for line := range strings.Lines(r.stderr) {
			f := strings.Fields(line)
			want[f[0]+" "+f[1]] = strings.Join(f[2:], " ")
		}
		if len(want) != 120 {
			t.Fatalf("%d blocks: %s", len(want), r.stderr)
		}
		stacks := map[uint32][]uint64{}
		sent, exact := 0, 0
		l.mu.Lock()
		for _, e := range l.events {
			switch e.Type {
			case wire.TypeStack:
				s := wire.DecodeStack(e.Words)
				stacks[s.ID] = s.PCs
				sent++
			case wire.TypeInBlock:
				b := wire.DecodeInBlock(e.Words)
				key := fmt.Sprintf("%d %x", e.process, b.Block)
				path, named := want[key]
				if !named {
					continue
				}
				delete(want, key)
				pcs := stacks[b.Stack]
				if b.Site != 0 && len(pcs) >= 19 { // by chance no other came to its site's place: it may be another's, which it says
					continue
				}
				exact++
				if len(pcs) < 19 {
					t.Errorf("%d blocks, %s: stack %#x is %x", n, key, b.Stack, pcs)
					continue
				}
				if got := strings.Trim(fmt.Sprintf("%x", pcs[1:19]), "[]"); got != path {
					t.Errorf("%d blocks, %s: allocated at\n%s, told is\n%s", n, key, path, got)
				}
			}
		}
		l.mu.Unlock()
		if len(want) > 6 { // a block's place in the agent's table may have gone to another
			t.Errorf("%d blocks: nothing was told of %d that were used: %v", n, len(want), want)
		}
		if exact < 60 {
			t.Errorf("%d blocks: of 120 only %d have stacks that were walked for them", n, exact)
		}
		if n == few && sent > quiet+300 {
			t.Errorf("%d stacks sent for 120 blocks", sent)
		}
	}
}
