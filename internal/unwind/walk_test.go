package unwind_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/unwind"
)

// Proves: the stacks of threads that stand in frames of many shapes (alloca, realigned stacks, callbacks from libc, noreturn calls,
// assembly, signals on the same and on another stack, a fault in the first instruction of a function, exceptions) are those that gdb
// finds, frame by frame up to the end, for two compilers and four ways to optimise.
func TestWalkEqualsGdb(t *testing.T) {
	for i, c := range [][]string{
		{"gcc", "-O0"}, {"gcc", "-O2"}, {"gcc", "-O3", "-fomit-frame-pointer"}, {"gcc", "-O2", "-fno-omit-frame-pointer", "-no-pie"},
		{"clang", "-O0"}, {"clang", "-O2"}, {"gcc", "-O2", "-mavx2", "-static"},
		{"g++", "-O0"}, {"g++", "-O2"}, {"clang++", "-O2"},
	} {
		t.Run(strings.Join(c, ""), func(t *testing.T) {
			if testing.Short() && i%7 != 1 {
				t.Skip("long")
			}
			src, spinning := "testdata/walk.c", 1
			if strings.HasSuffix(c[0], "++") {
				src, spinning = "testdata/walk.cc", 0
			}
			pid := startProgram(t, append(c, "-pthread", src), spinning)
			want := gdbStacks(t, pid)
			mods, read := modules(t, pid)
			tids, err := tracee.Threads(pid)
			if err != nil {
				t.Fatal(err)
			}
			if len(tids) != len(want) {
				t.Fatalf("%d threads, gdb has %d", len(tids), len(want))
			}
			for _, tid := range tids {
				var got []uint64
				err := tracee.Stop(tid, func(s *tracee.Stopped) error {
					got = unwind.Walk(unwind.Regs(s.Regs), read, mods, 0)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				w := want[tid]
				if len(w) > 1 && len(got) > 1 && got[0] != w[0] {
					got[0] = w[0] // a thread that spins is at another instruction by now
				}
				if !slices.Equal(got, w) {
					t.Errorf("thread %d:\n%x, gdb has\n%x", tid, got, w)
				}
				if len(w) < 3 {
					t.Errorf("gdb has only %x", w)
				}
			}
		})
	}
}

// startProgram builds and starts a program that stands still once it has printed "ready".
func startProgram(t *testing.T, cc []string, spinning int) int {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "walk")
	if out, err := exec.Command(cc[0], append(cc[1:], "-g", "-o", exe)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v (script/deps build test installs what is missing)\n%s", cc, err, out)
	}
	cmd := exec.Command(exe)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the program says %q, %v", line, err)
	}
	waitPaused(t, cmd.Process.Pid, spinning)
	return cmd.Process.Pid
}

// waitPaused waits until every thread is in pause(2), but for those that spin.
func waitPaused(t *testing.T, pid, spinning int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		tids, err := tracee.Threads(pid)
		if err != nil {
			t.Fatal(err)
		}
		paused := 0
		for _, tid := range tids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(string(b), fmt.Sprintf("%d ", syscall.SYS_PAUSE)) {
				paused++
			}
		}
		if paused == len(tids)-spinning {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d threads wait in pause", paused, len(tids))
		}
	}
}

const gdbScript = `
import gdb
for t in gdb.selected_inferior().threads():
    t.switch()
    out = []
    f = gdb.newest_frame()
    signal = False
    while f is not None:
        if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): # frames that have no place on the stack
            out.append("%x" % (f.pc() + (1 if signal else 0)))
            signal = f.type() == gdb.SIGTRAMP_FRAME
        f = f.older()
    print("STACK %d %s" % (t.ptid[1], " ".join(out)))
`

// gdbStacks returns gdb's stacks by thread id, interrupted frames plus one as Walk has them.
func gdbStacks(t *testing.T, pid int) map[int][]uint64 {
	t.Helper()
	script := filepath.Join(t.TempDir(), "stacks.py")
	if err := os.WriteFile(script, []byte(gdbScript), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "set backtrace past-main on", "-ex", "set backtrace past-entry on",
		"-p", strconv.Itoa(pid), "-x", script)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("gdb is needed: %v\n%s", err, b)
	}
	out := map[int][]uint64{}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "STACK" {
			continue
		}
		tid, _ := strconv.Atoi(f[1])
		for _, s := range f[2:] {
			pc, err := strconv.ParseUint(s, 16, 64)
			if err != nil {
				t.Fatalf("gdb says %q", line)
			}
			out[tid] = append(out[tid], pc)
		}
	}
	if len(out) == 0 {
		t.Fatalf("gdb says\n%s", b)
	}
	return out
}

// modules compiles the tables of all that is mapped executable.
func modules(t *testing.T, pid int) ([]unwind.Module, interface {
	ReadAt([]byte, int64) (int, error)
}) {
	t.Helper()
	mem := tracee.Memory(pid)
	maps, err := tracee.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	var out []unwind.Module
	for _, m := range maps {
		if !m.Exec || m.Path == "" || m.Path == "[vsyscall]" {
			continue
		}
		var img *image.Image
		var err error
		if m.Path == "[vdso]" {
			b := make([]byte, m.End-m.Start)
			if _, err := mem.ReadAt(b, int64(m.Start)); err != nil {
				t.Fatal(err)
			}
			img, err = image.FromMemory("[vdso]", b)
		} else {
			img, err = image.Open(m.Path)
		}
		if err != nil {
			t.Fatal(err)
		}
		bias, err := biasOf(img, m)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := unwind.Compile(img)
		img.Close()
		if err != nil {
			t.Fatal(err)
		}
		tab, err := unwind.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, unwind.Module{Start: uint64(m.Start), End: uint64(m.End), Bias: bias, Table: tab})
	}
	return out, mem
}

func biasOf(img *image.Image, m tracee.Mapping) (uint64, error) {
	for _, s := range img.Segments() {
		if m.Offset >= s.Offset&^0xfff && m.Offset < s.Offset+s.FileSize {
			return uint64(m.Start) - (s.Addr&^0xfff + m.Offset - s.Offset&^0xfff), nil
		}
	}
	return 0, fmt.Errorf("no segment of %s is mapped at %v", m.Path, m.Start)
}
