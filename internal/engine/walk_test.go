package engine_test

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/x86"
)

// A visitor steps debugged.c through its function walked.
type visitor struct {
	t       *testing.T
	pid     int
	out     *bufio.Reader
	text    tracee.Mapping // of the program's code
	code    func(pc uint64) bool
	walked  uint64
	modules []unwind.Module
	runs    uint64
}

func (v *visitor) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *visitor) wait() unix.Signal {
	v.t.Helper()
	var ws unix.WaitStatus
	_, err := unix.Wait4(v.pid, &ws, unix.WALL, nil)
	v.must(err)
	if !ws.Stopped() {
		v.t.Fatalf("it ended: %#x", ws)
	}
	return ws.StopSignal()
}

func (v *visitor) regs() (r unix.PtraceRegs) {
	v.t.Helper()
	v.must(unix.PtraceGetRegs(v.pid, &r))
	return r
}

// step executes an instruction, with a signal delivered before.
func (v *visitor) step(sig unix.Signal) {
	v.t.Helper()
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(v.pid), 0, uintptr(sig), 0, 0); e != 0 {
		v.t.Fatal(e)
	}
	if got := v.wait(); got != unix.SIGTRAP {
		v.t.Fatalf("a step ended with %v", got)
	}
}

// on lets it run until a signal comes, which is taken away.
func (v *visitor) on(want unix.Signal) {
	v.t.Helper()
	v.must(unix.PtraceCont(v.pid, 0))
	if got := v.wait(); got != want {
		v.t.Fatalf("%v, not %v", got, want)
	}
}

// look reads where things are.
func (v *visitor) look(prog string) {
	v.t.Helper()
	maps, err := tracee.Maps(v.pid)
	v.must(err)
	var bias uint64
	for i := range maps {
		m := &maps[i]
		if m.Exec && m.Path == prog {
			v.text = *m
			img, err := image.Open(prog)
			v.must(err)
			defer img.Close()
			for _, s := range img.Segments() {
				if s.Offset&^4095 == uint64(m.Offset) {
					bias = uint64(m.Start) - s.Addr&^4095
				}
			}
			b, _, err := unwind.Compile(img)
			v.must(err)
			table, err := unwind.Decode(b)
			v.must(err)
			v.modules = []unwind.Module{{Start: uint64(m.Start), End: uint64(m.End), Bias: bias, Table: table}}
		}
		if filepath.Base(m.Path) == "libripstop.so" && m.Offset == 0 {
			v.runs = uint64(m.Start) + symbol(v.t, m.Path, unwind.RunsSymbol)
		}
	}
	v.walked = bias + symbol(v.t, prog, "walked")
	v.code = func(pc uint64) bool {
		for i := range maps {
			if m := &maps[i]; m.Exec && pc >= uint64(m.Start) && pc < uint64(m.End) {
				return m.Path == prog || m.Path == "" || strings.HasPrefix(m.Path, "/memfd:ripstop-patch")
			}
		}
		return false
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", v.pid), os.O_RDWR, 0)
	v.must(err)
	defer mem.Close()
	_, err = mem.WriteAt([]byte{1}, int64(bias+symbol(v.t, prog, "go")))
	v.must(err)
}

func symbol(t *testing.T, path, name string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}

// here gives the stack at the instruction where it stands, as unwind.Walk tells it from outside.
func (v *visitor) here() []uint64 {
	r := v.regs()
	regs := unwind.Regs{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rip}
	mem := tracee.Memory(v.pid)
	if v.runs != 0 {
		regs = unwind.Program(regs, v.runs, mem)
	}
	return v.own(unwind.Walk(regs, mem, v.modules, 0))
}

// own gives the part of a stack that is the program's.
func (v *visitor) own(pcs []uint64) (list []uint64) {
	for _, pc := range pcs {
		if pc < uint64(v.text.Start) || pc >= uint64(v.text.End) {
			break
		}
		list = append(list, pc-v.walked)
	}
	return list
}

// interrupt has a handler run and gives the stack that it sees. The thread then stands where it was, or at the place of its trampoline where it goes on.
func (v *visitor) interrupt() []uint64 {
	v.t.Helper()
	sp := v.regs().Rsp
	v.step(unix.SIGUSR1)
	v.on(unix.SIGUSR2)
	// A trampoline may have pushed what is taken back.
	for r := v.regs(); !v.code(r.Rip) || r.Rsp < sp; r = v.regs() {
		v.step(0)
	}
	line, err := v.out.ReadString('\n')
	v.must(err)
	var pcs []uint64
	for _, f := range strings.Fields(line) {
		pc, err := strconv.ParseUint(f, 16, 64)
		v.must(err)
		pcs = append(pcs, pc+v.walked)
	}
	return v.own(pcs)
}

// visit gives the stacks at all instructions of walked and what it calls, those that are the same as the last left out.
func visit(t *testing.T, prog string, o *engine.Options) (stacks [][]uint64) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(prog)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if o != nil {
		finish := startPatched(t, *o, cmd)
		defer finish()
	} else if err := cmd.Start(); err != nil {
		t.Fatal(err)
	} else {
		defer cmd.Wait()
	}
	defer cmd.Process.Kill()
	v := &visitor{t: t, pid: cmd.Process.Pid, out: bufio.NewReader(out)}
	_, err = v.out.ReadString('\n')
	v.must(err)
	v.must(unix.PtraceAttach(v.pid))
	if sig := v.wait(); sig != unix.SIGSTOP {
		t.Fatal(sig)
	}
	v.look(prog)
	v.on(unix.SIGUSR2)
	begun, steps := false, 0
	seen := map[uint64]bool{} // where it was interrupted at this place: it may begin the trampoline anew afterwards
	for ; ; v.step(0) {
		pc := v.regs().Rip
		if begun = begun || pc == v.walked; !begun {
			continue
		}
		stack := v.here()
		if len(stack) < 2 {
			break // in main again
		}
		if n := len(stacks); n == 0 || !slices.Equal(stacks[n-1], stack) {
			stacks = append(stacks, stack)
			clear(seen)
		}
		if seen[pc] {
			continue
		}
		seen[pc] = true
		steps++
		if inside := v.interrupt(); !slices.Equal(inside, stack) {
			t.Fatalf("at %#x (%+#x): %#x from outside, %#x in a handler", pc, pc-v.walked, stack, inside)
		}
	}
	t.Logf("%d steps, %d places", steps, len(stacks))
	return stacks
}

// At each instruction of trampolines the stack that is seen from outside (unwind.Walk) is the one that a handler sees (backtrace, with libgcc's tables), and is the stack at the program's instruction; and
// the program goes on from there as if nothing had been.
func TestStacks(t *testing.T) {
	for _, opt := range []string{"-O0", "-O2"} {
		t.Run(opt, func(t *testing.T) {
			prog := compile(t, "debugged.c", opt)
			want := visit(t, prog, nil)
			got := visit(t, prog, &engine.Options{Client: &counting{everywhere{t: t}}, Calls: x86.PushReturn})
			for i := range want {
				if i == len(got) || !slices.Equal(want[i], got[i]) {
					t.Fatalf("place %d of %d: natively %#x, of %d %#x", i, len(want), want[i], len(got), got[min(i, len(got)-1)])
				}
			}
			if len(got) != len(want) || len(want) < 60 {
				t.Errorf("%d places, natively %d", len(got), len(want))
			}
		})
	}
}
