package count

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An instruction is counted exactly as often as it runs, whichever way: by several threads at once, in forked children and what they execute, in handlers; when
// it faults, and when the program is killed afterwards. The program ends as it does natively.
func TestWays(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O0", "-no-pie"}} {
		prog := build(t, "ways.c", append(flags, "-pthread")...)
		for _, c := range []struct {
			way    string
			want   uint64
			signal syscall.Signal
			exit   int
		}{
			{"plain", 1000, 0, 0},
			{"threads", 1000 + 8*20000, 0, 0},
			{"fork", 1000 + 3*500 + 50 + 1000 + 7 + 9, 0, 0},
			{"libraries", 1000 + 5*10 + 20 + 30, 0, 0},
			{"signals", 1000 + 300, 0, 0},
			{"repair", 1000 + 10, 0, 0}, // the first of the ten begins once and ends after the handler
			{"leave", 1000 + 10, 0, 0},
			{"behind", 1000, 0, 0},
			{"kill", 1000, syscall.SIGKILL, 0},
			{"crash", 1000 + 1, syscall.SIGSEGV, 0},
			{"exit", 1000, 0, 3},
		} {
			t.Run(c.way, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "counts.json")
				cmd := exec.Command(ripstop(t), "count", "--format", "json", "-o", file, "--", prog, c.way)
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if c.signal != 0 && status.Signal() != c.signal || c.signal == 0 && status.ExitStatus() != c.exit || len(out) > 0 {
					t.Errorf("ended with %v, output %s", cmd.ProcessState, out)
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var p struct {
					Processes []struct{ Executable string }
					Places    []struct {
						Stack  []struct{ Function string }
						Counts map[string]uint64
					}
				}
				if err := json.Unmarshal(text, &p); err != nil {
					t.Fatal(err)
				}
				var got uint64
				for _, x := range p.Places {
					if x.Stack[0].Function == "touch" {
						got += x.Counts["locked"]
					}
				}
				if got != c.want {
					t.Errorf("counted %d, want %d; processes %v", got, c.want, p.Processes)
				}
			})
		}
	}
}

// Where the kernel places nothing at random, as under gdb, libraries lie right below the stack. The engine took nothing there to be free: no instruction of a library was counted, and to find
// that out took minutes for a large one.
func TestFixedLayout(t *testing.T) {
	prog := build(t, "ways.c", "-O2", "-pthread")
	file := filepath.Join(t.TempDir(), "counts.json")
	cmd := exec.Command("setarch", "-R", ripstop(t), "count", "--libc", "--format", "json", "-o", file, "--", prog, "libraries")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Modules []struct {
			Path   string
			Counts map[string]uint64
			Missed []struct{ Why string }
		}
		Tiers []struct {
			Tier  string
			Sites uint64
		}
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range p.Modules {
		if strings.Contains(m.Path, "/libz.so") || strings.Contains(m.Path, "/libc.so") {
			seen++
		}
		for _, x := range m.Missed {
			if strings.Contains(x.Why, "memory") {
				t.Fatalf("%s: %d missed, the first: %s", m.Path, len(m.Missed), x.Why)
			}
		}
	}
	if seen != 2 {
		t.Errorf("modules %+v", p.Modules)
	}
	for _, x := range p.Tiers {
		if x.Tier == "int3" && x.Sites > 100 || x.Tier == "jump" && x.Sites < 10000 {
			t.Errorf("%d sites by %s", x.Sites, x.Tier)
		}
	}
}

// All three forms at once: the text on standard error, the others in their files; the program's own output and status are untouched. pprof's tool shows the function.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	prog := build(t, "ways.c", "-O2", "-pthread")
	cmd := exec.Command(ripstop(t), "count", "--format", "text,pprof=p.pb.gz,json=c.json", "--stats", "--", prog, "exit")
	cmd.Dir = dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != 3 || stdout.Len() > 0 {
		t.Errorf("%v, output %q", err, stdout.String())
	}
	for _, want := range []string{"1,000", "touch (ways)", "ways.c:20 touch", "libc.so.6: libc: --libc counts it", "ld-linux-x86-64.so.2: the loader, which is never changed", "stats: patched by"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, stderr.String())
		}
	}
	out, err := exec.Command("go", "tool", "pprof", "-top", "-sample_index=locked", filepath.Join(dir, "p.pb.gz")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1000   100%   100%       1000   100%  touch") {
		t.Errorf("pprof: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "c.json")); err != nil {
		t.Error(err)
	}
}

// A file that cannot be written is said before the program runs.
func TestBadFile(t *testing.T) {
	out, err := exec.Command(ripstop(t), "count", "-o", "/nonexistent/x", "--", "/bin/echo", "ran").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 || string(out) != "ripstop: open /nonexistent/x: no such file or directory\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// --modules counts what fits and nothing else, and says so.
func TestModules(t *testing.T) {
	out, err := exec.Command(ripstop(t), "count", "--modules", "libz.so*,nothing*", "--", "/usr/bin/sqlite3", ":memory:", "select 1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "memory instructions ran in 1 module of 1 process") || !strings.Contains(string(out), ": left out by --modules") || !strings.Contains(string(out), "--modules nothing*: nothing that was loaded fits that") || strings.Contains(string(out), "libz.so*: nothing") {
		t.Errorf("%v: %s", err, out)
	}
}
