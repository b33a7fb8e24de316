package syscalls

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/syscalls"
)

// Whatever a program does, it does as natively, and what it called is counted.
func TestOddPrograms(t *testing.T) {
	odd := build(t, "odd.c")
	for _, c := range []struct {
		what    string
		getppid uint64
	}{
		{"status", 0}, {"kill", 5}, {"raw-exit", 5}, {"vdso", 0}, {"threads", 200*100 + 300*10}, {"own", 3000}, {"no-tsc", 5}, {"seccomp", 5}, {"strict", 0},
		{"fork-storm", 60 * 8}, {"coroutines", 50},
	} {
		t.Run(c.what, func(t *testing.T) {
			native := run(t, "", odd, c.what)
			got, p := counted(t, "", odd, c.what)
			if got != native {
				t.Errorf("natively:\n%+v\ncounted:\n%+v", native, got)
			}
			n := p.counts()
			if n["getppid"].calls != c.getppid {
				t.Errorf("%d getppid, want %d", n["getppid"].calls, c.getppid)
			}
			switch c.what {
			case "seccomp":
				if n["getppid"].errors != 5 {
					t.Errorf("%d errors of getppid, want 5", n["getppid"].errors)
				}
			case "strict", "no-tsc":
				if len(p.NotCounted) != 1 {
					t.Errorf("not counted: %q, want that it has no clock", p.NotCounted)
				}
			case "fork-storm":
				if len(p.Processes) != 121 || n["clone"].calls != 120 || n["wait4"].calls != 120 || n["set_robust_list"].calls != 120 {
					t.Errorf("%d processes, %+v", len(p.Processes), n)
				}
			case "vdso":
				vdso := map[string]uint64{}
				for _, r := range p.Calls {
					if r.VDSO {
						vdso[r.Name] = r.Calls
					}
				}
				// The loader and libc may have asked for the time, too.
				if vdso["clock_gettime"] != 1001 || vdso["gettimeofday"] != 300 || vdso["time"] != 70 || n["clock_gettime"].calls != 1 {
					t.Errorf("%v, clock_gettime in the kernel: %d", vdso, n["clock_gettime"].calls)
				}
			case "own":
				each := map[uint64]bool{}
				for _, th := range p.Processes[0].Threads {
					for _, r := range th.Calls {
						if r.Name == "getppid" {
							each[r.Calls] = true
						}
					}
				}
				if len(p.Processes) != 1 || len(p.Processes[0].Threads) != 3 || !each[1000] || !each[2000] {
					t.Errorf("%+v", p.Processes)
				}
			}
		})
	}
}

// When ripstop is killed the program goes on to its normal end, with its patched calls.
func TestRipstopKilled(t *testing.T) {
	odd, dir := build(t, "odd.c"), t.TempDir()
	cmd := exec.Command(ripstop(t), "syscalls", "-o", "counts", "--", odd, "survive")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun, err := bufio.NewReader(out).ReadString('\n')
	if begun != "begun\n" {
		t.Fatalf("%q, %v", begun, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(dir, "done")); err == nil {
			if string(b) != "5" {
				t.Errorf("the program's child ended with %s, not 5", b)
			}
			return
		}
	}
	t.Error("the program did not come to its end")
}

var byObjdump = regexp.MustCompile(`(?m)^ *[0-9a-f]+:\s+(syscall|sysenter|int +\$0x80)\b`)

// Nearly all sites of libc, ld.so and the vdso are patched, and the others have their reasons. In libc and ld.so they are as many as objdump sees: the one of __restore_rt, which no symbol names,
// was neither found nor said to be left.
func TestSites(t *testing.T) {
	_, p := counted(t, "", "/bin/true")
	if len(p.Sites) != 3 {
		t.Fatalf("%+v, want libc, ld.so, vdso", p.Sites)
	}
	for _, s := range p.Sites {
		n := 0
		for tier, m := range s.Patched {
			if n += m; tier == "int3" {
				t.Errorf("%s: %d sites by int3", s.Module, m)
			}
		}
		for why, m := range s.Left {
			n += m
			if m > 4 {
				t.Errorf("%s: %d sites left: %s", s.Module, m, why)
			}
		}
		if n != s.Found || n < 8 {
			t.Errorf("%+v", s)
		}
		if s.Module != "[vdso]" {
			out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", s.Module).Output()
			if err != nil {
				t.Fatal(err)
			}
			if want := len(byObjdump.FindAll(out, -1)); n != want {
				t.Errorf("%s: %d sites patched or left, objdump sees %d", s.Module, n, want)
			}
			if s.Left[string(syscalls.LeftSigreturn)] != 1 {
				t.Errorf("%s: %+v, want the one of __restore_rt left", s.Module, s.Left)
			}
		}
		t.Logf("%+v", s)
	}
}
