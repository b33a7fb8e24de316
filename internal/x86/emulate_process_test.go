package x86

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A stepping is what a process did: the registers before each instruction, and the instructions.
type stepping struct {
	regs []unix.PtraceRegs
	ops  map[uint64]*Op
	code map[uint64]Inst
}

// stepped runs a program from its entry on, so many instructions, one at a time. A repeated string instruction is one.
func stepped(t *testing.T, n int, args ...string) *stepping {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{Env: []string{"LC_ALL=C"}, Files: []*os.File{null, null, null},
		Sys: &unix.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}})
	if err != nil {
		t.Fatalf("starting %v: %v", args, err)
	}
	defer func() {
		p.Kill()
		p.Wait()
	}()
	wait := func() {
		t.Helper()
		var ws unix.WaitStatus
		for {
			_, err := unix.Wait4(p.Pid, &ws, unix.WALL, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil || !ws.Stopped() || ws.StopSignal() != unix.SIGTRAP {
				t.Fatalf("waiting for %v: %v, status %#x", args, err, int(ws))
			}
			return
		}
	}
	wait()
	entry := entryOf(t, p.Pid)
	var saved [8]byte
	if _, err := unix.PtracePeekText(p.Pid, uintptr(entry), saved[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.PtracePokeText(p.Pid, uintptr(entry), append([]byte{0xcc}, saved[1:]...)); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceCont(p.Pid, 0); err != nil {
		t.Fatal(err)
	}
	wait()
	if _, err := unix.PtracePokeText(p.Pid, uintptr(entry), saved[:]); err != nil {
		t.Fatal(err)
	}
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(p.Pid, &r); err != nil {
		t.Fatal(err)
	}
	r.Rip = entry
	if err := unix.PtraceSetRegs(p.Pid, &r); err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	s := &stepping{ops: map[uint64]*Op{}, code: map[uint64]Inst{}}
	repeated := false
	for len(s.regs) < n {
		if last := len(s.regs) - 1; !repeated || s.regs[last].Rip != r.Rip {
			s.regs = append(s.regs, r)
			if s.ops[r.Rip] == nil {
				var code [MaxLen]byte
				k, _ := mem.ReadAt(code[:], int64(r.Rip))
				in, err := Decode(code[:k])
				if err != nil {
					t.Fatalf("% x at %#x: %v", code[:k], r.Rip, err)
				}
				s.ops[r.Rip], s.code[r.Rip] = Bind(&in), in
			}
			repeated = s.ops[r.Rip].rep != noRep
		}
		if err := unix.PtraceSingleStep(p.Pid); err != nil {
			t.Fatal(err)
		}
		wait()
		if err := unix.PtraceGetRegs(p.Pid, &r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// entryOf gives the program's entry, from the auxiliary vector.
func entryOf(t *testing.T, pid int) uint64 {
	t.Helper()
	const atEntry = 9
	aux, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		t.Fatal(err)
	}
	for ; len(aux) >= 16; aux = aux[16:] {
		if binary.LittleEndian.Uint64(aux) == atEntry {
			return binary.LittleEndian.Uint64(aux[8:])
		}
	}
	t.Fatal("no entry in the auxiliary vector")
	return 0
}

// sample gives the state with all general registers, as a PMU's samples have them.
func sample(r *unix.PtraceRegs) (s State) {
	for i, p := range order(r) {
		s.GPR[i] = Exactly(*p)
	}
	s.FlagsKnown = FlagsArith | DF
	s.Flags = Flags(r.Eflags) & s.FlagsKnown
	s.FS, s.GS = Exactly(r.Fs_base), Exactly(r.Gs_base)
	return s
}

// contradicts says which of the registers are not what the emulator says, "" if none.
func contradicts(e *Emulator, r *unix.PtraceRegs) string {
	for i, p := range order(r) {
		if v := e.GPR[i]; v.Bits != *p&v.Known {
			return fmt.Sprintf("%v is %#x, not %#x (known %#x)", RAX+Reg(i), *p, v.Bits, v.Known)
		}
	}
	if f := (e.Flags ^ Flags(r.Eflags)) & e.FlagsKnown; f != 0 {
		return "flags " + flagText(f)
	}
	return ""
}

// Along what a real program did, from samples of its registers, with nothing known of memory and vectors: whatever the emulator knows on the way forwards and
// backwards is so.
func TestEmulateAlongProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: nothing here runs at once with anything")
	}
	sql := []string{"/usr/bin/sqlite3", ":memory:", "create table t(a, b); insert into t values (1, 'x'), (2, 'y'); select * from t order by b desc;"}
	if !soak {
		along(t, 100_000, sql...)
		return
	}
	for _, args := range [][]string{sql, {"/usr/bin/python3", "-S", "-c", "print(sorted(range(1000)))"}, {"/usr/bin/gzip", "-c", "/usr/bin/gzip"}, {"/usr/sbin/mariadbd", "--version"}} {
		along(t, 500_000, args...)
	}
}

func along(t *testing.T, n int, args ...string) {
	s := stepped(t, n, args...)
	rnd := rand.New(rand.NewPCG(11, 12))
	truth := &Emulator{Mem: NewSparseMemory()}
	for _, period := range []int{30, 300, 3000} {
		var all, ahead, back, either int
		e := &Emulator{Mem: NewSparseMemory()}
		for from := 0; from < len(s.regs)-1; {
			to := min(from+period/2+rnd.IntN(period), len(s.regs)-1)
			var forwards, backwards = make([][2]bool, to-from), make([][2]bool, to-from)
			e.State = sample(&s.regs[from])
			e.Mem.ForgetAll()
			for i := from; i < to; i++ {
				pc, after := s.regs[i].Rip, &s.regs[i+1]
				next, known := e.Exec(s.ops[pc], pc)
				in := s.code[pc]
				if known && next != after.Rip {
					t.Fatalf("instruction %d, %v at %#x: goes to %#x, not %#x", i, in, pc, after.Rip, next)
				}
				e.Follow(s.ops[pc], after.Rip)
				if w := contradicts(e, after); w != "" {
					t.Fatalf("instruction %d, %v at %#x, %d after a sample: %s", i, in, pc, i-from, w)
				}
				truth.State, truth.pc = sample(&s.regs[i]), pc
				truth.Accesses = truth.Accesses[:0]
				truth.locate(s.ops[pc])
				truth.report(s.ops[pc])
				for k, a := range e.Accesses {
					if w := truth.Accesses[k]; a.Known && (a.Addr != w.Addr || a.Size != w.Size || a.Access != w.Access) {
						t.Fatalf("instruction %d, %v at %#x: access %+v, is %+v", i, in, pc, a, w)
					}
					forwards[i-from][k] = a.Known
				}
			}
			e.State = sample(&s.regs[to])
			e.Mem.ForgetAll()
			for i := to - 1; i >= from; i-- {
				pc, before := s.regs[i].Rip, &s.regs[i]
				e.Reverse(s.ops[pc], pc, s.regs[i+1].Rip)
				in := s.code[pc]
				if w := contradicts(e, before); w != "" {
					t.Fatalf("before instruction %d, %v at %#x, %d before a sample: %s", i, in, pc, to-i, w)
				}
				truth.State, truth.pc = sample(before), pc
				truth.Accesses = truth.Accesses[:0]
				truth.locate(s.ops[pc])
				truth.report(s.ops[pc])
				for k, a := range e.Accesses {
					w := truth.Accesses[k]
					if a.Known && (a.Addr != w.Addr || a.Size != w.Size || a.Access != w.Access) {
						t.Fatalf("before instruction %d, %v at %#x: access %+v, is %+v", i, in, pc, a, w)
					}
					backwards[i-from][k] = a.Known
				}
				for k := range truth.Accesses {
					if m := in.mems[s.ops[pc].order[k]]; m.Kind&MemStack != 0 || m.Base == RSP || m.Base == RBP || m.RIPRelative() {
						continue
					}
					all++
					f, b := forwards[i-from][k], backwards[i-from][k]
					for what, n := range map[*int]bool{&ahead: f, &back: b, &either: f || b} {
						if n {
							*what++
						}
					}
				}
			}
			from = to
		}
		share := func(n int) float64 { return float64(n) / float64(max(all, 1)) }
		t.Logf("%s, a sample every %d instructions: of %d accesses neither on the stack nor at fixed addresses, known forwards %.2f, backwards %.2f, either %.2f",
			args[0], period, all, share(ahead), share(back), share(either))
		if period == 30 && share(either) < 0.5 {
			t.Errorf("only %.2f of the accesses are known close to samples", share(either))
		}
	}
}
