package ctest

import (
	"debug/elf"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/x86"
)

// watches is the last line of guard_watch.c: what became of the last epoch's; and of all epochs, how many re-executions diverged and were made again. Of what the kernel refused: one of RS_GUARD_WATCH_….
type watches struct{ units, rounds, moreTries, atOnce, refused, errno, pages int }

const (
	watchDenied = iota + 1
	watchNoRegister
	watchNoDevice
	watchNoDescriptor
	watchOther
	watchHot
)

// hit is where the processor was behind the last write of guard_watch.c; base is where the program's image lies, regs are in a ucontext's order.
type hit struct {
	base, pc, addr, size uint64
	regs                 [17]uint64
}

// instruction finds what wrote, in the program's file.
func (h hit) instruction(t *testing.T, program string) string {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	trap := x86.Trap{PC: h.pc, Addr: h.addr, Size: h.size}
	for i, of := range [16]int{13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7} {
		trap.Regs[i] = h.regs[of]
	}
	for _, s := range symbols {
		at := h.pc - h.base - s.Value
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || at >= s.Size {
			continue
		}
		text := f.Sections[s.Section]
		code := make([]byte, at+x86.MaxLen)
		if _, err := text.ReadAt(code, int64(s.Value-text.Addr)); err != nil {
			t.Fatal(err)
		}
		_, in, err := trap.Writer(code, h.base+s.Value)
		if err != nil {
			t.Fatal(s.Name, err)
		}
		return in.String()
	}
	t.Fatalf("no function at %#x", h.pc-h.base)
	return ""
}

// guardWatch makes guard_watch.c. What it returns runs it, with perf_event_open failing by that error, and gives what came of each epoch.
func guardWatch(t *testing.T) func(t *testing.T, kind string, epochs, beyond, descriptors int, refuse syscall.Errno) ([]string, watches) {
	t.Helper()
	lib, preload := preloadable(t)
	program := compile(t, "guard_watch.c", "-O2", "-ldl")
	entries := guardEntries(t, lib, "begin", "checkpoint", "again", "last", "watch", "watches")
	return func(t *testing.T, kind string, epochs, beyond, descriptors int, refuse syscall.Errno) ([]string, watches) {
		t.Helper()
		flags := guardLog
		if kind == "pipe" || kind == "file" {
			flags |= guardCalls2
		}
		var argv []string
		if refuse != 0 {
			argv = []string{program, "refuse", strconv.Itoa(int(refuse))}
		}
		argv = append(argv, "env", "LD_PRELOAD="+preload, program, kind, strconv.Itoa(epochs), strconv.Itoa(flags), strconv.Itoa(beyond), strconv.Itoa(descriptors))
		got := native(t, os.Environ(), append(argv, entries...)...)
		lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
		if len(lines) != epochs+2 || got.stderr != "" || got.state != "exit status 0" {
			t.Fatalf("%+v", got)
		}
		var w watches
		_, err := fmt.Sscanf(lines[epochs], "units %d rounds %d more tries %d at once %d refused %d error %d pages %d", &w.units, &w.rounds, &w.moreTries, &w.atOnce, &w.refused, &w.errno, &w.pages)
		if err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		if want := map[string]string{"byte": "mov byte ptr [", "wide": "lock add qword ptr [", "vector": "movups xmmword ptr [", "rep": "rep stosb"}[kind]; want != "" && w.rounds > 0 {
			var h hit
			list := []any{&h.base, &h.pc, &h.addr, &h.size}
			for i := range h.regs {
				list = append(list, &h.regs[i])
			}
			if _, err := fmt.Sscanf(lines[epochs+1], "hit base %d pc %d address %d bytes %d regs"+strings.Repeat(" %d", len(h.regs)), list...); err != nil {
				t.Fatal(err)
			}
			if in := h.instruction(t, program); h.pc != 0 && !strings.HasPrefix(in, want) {
				t.Errorf("written by %s, want %s", in, want)
			}
		}
		return lines[:epochs], w
	}
}

func allWell(t *testing.T, lines []string) {
	t.Helper()
	for i, line := range lines {
		if line != "well" {
			t.Errorf("epoch %d: %s", i, line)
		}
	}
}

// A wrong write behind an object, in a random iteration of one of four threads: in each re-execution the last hit of the watch is that write: its thread, value and instruction, or system call; without one there is no hit. Memory is the
// same with the watch as without. Half of the threads have SIGTRAP blocked, and the program has a handler for it, which is never called.
func TestGuardWatch(t *testing.T) {
	run := guardWatch(t)
	for _, kind := range kindsOfWrites {
		t.Run(kind, func(t *testing.T) {
			lines, w := run(t, kind, 20, 1, 0, 0)
			allWell(t, lines)
			if w != (watches{units: 1, rounds: 1, atOnce: 1, pages: w.pages}) {
				t.Errorf("%+v", w)
			}
		})
	}
}

// Beside the watched byte there is written four million times in an epoch, each of which is two signals: the page is given up after a while, which is said, and the re-execution comes to its end as recorded.
func TestGuardWatchHot(t *testing.T) {
	lines, w := guardWatch(t)(t, "hot", 1, 1, 0, syscall.ENOENT)
	if w != (watches{units: 1, rounds: 1, atOnce: 1, refused: watchHot, errno: -int(syscall.ETIME), pages: 1}) || !strings.HasPrefix(lines[0], "refused: asked 0 verdict 0 ") {
		t.Errorf("%+v %s", w, lines[0])
	}
}

var kindsOfWrites = []string{"clean", "byte", "wide", "vector", "strcpy", "memset", "rep", "pipe", "file"}

// In a virtual machine whose host keeps the debug registers to itself (AMD SEV) breakpoints could be set and were never hit: nobody was named who wrote, and nobody was told. The same by pages that are read-only in the re-execution; a kernel that has no breakpoints
// (ENOENT) is answered alike, everywhere. All units at once, whatever lies beside them.
func TestGuardWatchPages(t *testing.T) {
	run := guardWatch(t)
	for _, kind := range kindsOfWrites {
		t.Run(kind, func(t *testing.T) {
			lines, w := run(t, kind, 5, 1, 0, syscall.ENOENT)
			allWell(t, lines)
			if w != (watches{units: 1, rounds: 1, atOnce: 1, pages: 1}) {
				t.Errorf("%+v", w)
			}
		})
	}
	for beyond, units := range map[int]int{8: 2, 24: 4, 150: 23} {
		t.Run(strconv.Itoa(beyond), func(t *testing.T) {
			lines, w := run(t, "memset", 5, beyond, 0, syscall.ENOENT)
			allWell(t, lines)
			if w != (watches{units: units, rounds: 1, atOnce: units, pages: 1}) {
				t.Errorf("%+v", w)
			}
		})
	}
}

// More bytes than there are registers are watched in further re-executions of the same epoch, and what one instruction can write at once never in the same.
func TestGuardWatchMany(t *testing.T) {
	run := guardWatch(t)
	for beyond, want := range map[int]watches{8: {units: 2, rounds: 2, atOnce: 1}, 24: {units: 4, rounds: 4, atOnce: 1}, 150: {units: 23, rounds: 12, atOnce: 3}} {
		t.Run(strconv.Itoa(beyond), func(t *testing.T) {
			lines, w := run(t, "memset", 5, beyond, 0, 0)
			allWell(t, lines)
			if w.pages != 0 {
				want.rounds, want.atOnce, want.pages = 1, want.units, 1
			}
			if w != want {
				t.Errorf("%+v, want %+v", w, want)
			}
		})
	}
}

// With few registers or descriptors fewer are watched at once; with none, and where perf is refused, it is said why, and the re-execution is made without.
func TestGuardWatchRefused(t *testing.T) {
	run := guardWatch(t)
	for _, c := range []struct {
		name            string
		limit           int
		atOnce, refused int
	}{
		{"two registers in use", -2, 2, 0}, {"three registers in use", -3, 1, 0}, {"all registers in use", -4, 0, watchNoRegister},
		{"few descriptors", 12, 2, 0}, {"fewer descriptors", 8, 1, 0}, {"no descriptors", 5, 0, watchNoDescriptor},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, w := run(t, "byte", 2, 150, c.limit, 0)
			if w.pages != 0 {
				c.atOnce, c.refused = w.units, 0 // no register, and no descriptor, is needed
			}
			if w.atOnce != c.atOnce || w.refused != c.refused {
				t.Errorf("%+v", w)
			}
			if c.refused == 0 {
				allWell(t, lines)
			} else if !strings.HasPrefix(lines[0], "refused: asked 0 verdict 0 ") {
				t.Error(lines[0])
			}
		})
	}
	for e, refused := range map[syscall.Errno]int{syscall.EACCES: watchDenied, syscall.EPERM: watchDenied, syscall.ENOSPC: watchNoRegister, syscall.ENODEV: watchNoDevice, syscall.ENOSYS: watchNoDevice} {
		t.Run(unix.ErrnoName(e), func(t *testing.T) {
			lines, w := run(t, "byte", 2, 1, 0, e)
			if w.refused != refused || w.errno != -int(e) || w.rounds != 0 || !strings.HasPrefix(lines[0], "refused: asked 0 verdict 0 ") {
				t.Errorf("%+v %s", w, lines[0])
			}
		})
	}
}
