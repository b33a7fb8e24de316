// Package syscalls holds `ripstop syscalls` against strace: the same programs, the same numbers of calls and of errors.
package syscalls

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ripstop is the binary under test.
func ripstop(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RIPSTOP_BINARY")
	if path == "" {
		path, _ = filepath.Abs("../../bin/ripstop")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run make first", err)
	}
	return path
}

func build(t *testing.T, source string, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	args := append([]string{"-O2", "-g", "-Wall", "-pthread", "-o", bin, filepath.Join("testdata", source)}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return bin
}

// An outcome is what a program did that others see.
type outcome struct {
	stdout, stderr, status string
}

func run(t *testing.T, dir string, argv ...string) outcome {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	err := cmd.Run()
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		t.Fatalf("%v: %v", argv, err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.String()}
}

// A number is what was counted of a call.
type number struct{ calls, errors uint64 }

type counts map[string]number

func (c counts) add(name string, failed bool) {
	n := c[name]
	n.calls++
	if failed {
		n.errors++
	}
	c[name] = n
}

// A profile is what the tests read of `ripstop syscalls --format json` (docs/formats.md).
type profile struct {
	Calls []struct {
		Name          string
		VDSO          bool
		Number        *int
		Calls, Errors uint64
		Nanoseconds   uint64
	}
	Processes []struct {
		PID     int
		Threads []struct {
			Number, TID int
			Calls       []struct {
				Name  string
				Calls uint64
			}
		}
	}
	Sites []struct {
		Module  string
		Found   int
		Patched map[string]int
		Left    map[string]int
	}
	NotCounted []string `json:"not_counted"`
}

// counted runs a program under ripstop syscalls.
func counted(t *testing.T, dir string, argv ...string) (outcome, *profile) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls.json")
	got := run(t, dir, append([]string{ripstop(t), "syscalls", "--format", "json", "-o", file, "--"}, argv...)...)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, got.stderr)
	}
	var p profile
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	for _, n := range p.NotCounted {
		if !strings.Contains(n, "time stamp counter") {
			t.Errorf("%v: not counted: %s", argv, n)
		}
	}
	return got, &p
}

func (p *profile) counts() counts {
	c := counts{}
	for _, r := range p.Calls {
		if !r.VDSO {
			c[r.Name] = number{r.Calls, r.Errors}
		}
	}
	return c
}

var (
	whole   = regexp.MustCompile(`^(\d+) +(?:<\.\.\. )?([a-z_0-9]+)(?:\(.*| resumed>.*)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)$`)
	begun   = regexp.MustCompile(`^(\d+) +([a-z_0-9]+)\(.*<unfinished \.\.\.>$`)
	unknown = regexp.MustCompile(`^syscall_(0x[0-9a-f]+)$`)
)

// traced runs a program under strace and counts what it called once it was loaded: the loader's last call is the munmap of its cache.
func traced(t *testing.T, dir string, argv ...string) (outcome, counts) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	got := run(t, dir, append([]string{"strace", "-f", "-qq", "-e", "signal=none", "-o", file, "--"}, argv...)...)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := counts{}
	loading := map[string]bool{}
	first := true
	for _, line := range strings.Split(string(b), "\n") {
		if m := begun.FindStringSubmatch(line); m != nil && first {
			first, loading[m[1]] = false, true
		}
		m := whole.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		pid, name, result := m[1], m[2], m[3]
		executed := (name == "execve" || name == "execveat") && result == "0"
		switch {
		case executed:
			if !first {
				c.add(name, false)
			}
			first, loading[pid] = false, true
		case loading[pid]:
			loading[pid] = name != "munmap"
		case result == "?" && strings.Contains(m[4], "ERESTARTNOHAND"): // EINTR, since the programs have handlers
			c.add(name, true)
		case result == "?": // it did not come back, or is about to be made again
		case unknown.MatchString(name):
			c.add("(other numbers)", result == "-1")
		default:
			c.add(name, result == "-1")
		}
	}
	return got, c
}

// moved are calls that the C library makes once, and when: the agent's own start may come first. The others do not come back.
var moved = []string{"brk", "getrandom", "exit", "exit_group", "rt_sigreturn"}

func compare(t *testing.T, want, got counts, but []string) {
	t.Helper()
	but = append(slices.Clone(moved), but...)
	names := map[string]bool{}
	for _, c := range []counts{want, got} {
		for name := range c {
			names[name] = true
		}
	}
	var same uint64
	for name := range names {
		if slices.Contains(but, name) {
			continue
		}
		if want[name] != got[name] {
			t.Errorf("%s: strace has %d calls, %d errors; ripstop %d, %d", name, want[name].calls, want[name].errors, got[name].calls, got[name].errors)
		}
		same += want[name].calls
	}
	if same == 0 {
		t.Error("strace has nothing: the comparison is empty")
	}
	t.Logf("%d calls of %d kinds compared", same, len(names))
}

// What ripstop counts is what strace does: each number of calls and of errors, of real programs and of one that does what is difficult. And the programs behave as
// natively.
func TestCountsEqualStrace(t *testing.T) {
	calls := build(t, "calls.c")
	// Threads that meet by chance: how often, and how much memory malloc takes for them, is not the same in each run.
	chance := []string{"futex", "mmap", "munmap", "mprotect", "madvise", "sched_yield", "clock_nanosleep", "restart_syscall"}
	// await_call looks until it sees what it waits for; malloc asks how many processors there are when threads meet in it.
	looks := append([]string{"openat", "read", "close"}, chance...)
	for name, c := range map[string]struct {
		argv []string
		but  []string
	}{
		"plain":    {[]string{calls, "plain"}, nil},
		"signals":  {[]string{calls, "signals"}, nil},
		"threads":  {[]string{calls, "threads"}, chance},
		"cancel":   {[]string{calls, "cancel"}, looks},
		"children": {[]string{calls, "children"}, nil},
		"ls":       {[]string{"/bin/ls", "-lR", "/etc"}, nil},
		"sort":     {[]string{"/usr/bin/sort", "--parallel=1", "/etc/passwd"}, nil},
		"shell":    {[]string{"/bin/sh", "-c", "for i in 1 2 3; do /bin/true $i; done; ls / | sort; (exit 3); echo $?"}, []string{"read", "rt_sigprocmask", "wait4"}},
		"sqlite3": {[]string{"/usr/bin/sqlite3", "test.db", `pragma journal_mode=delete; create table t(a, b); with recursive c(x) as (select 1 union all
			select x+1 from c where x<3000) insert into t select x, hex(x) from c; create index i on t(b); select count(*) from t; drop table t;`}, nil},
		"python3": {[]string{"/usr/bin/python3", "-S", "-c", `
import os, subprocess, signal, threading
for i in range(50): os.stat("/")
print(subprocess.run(["/bin/echo", "hello"], capture_output=True).stdout)
t = threading.Thread(target=lambda: [os.getppid() for i in range(1000)])
t.start(); t.join()
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitpid(pid, 0)[1], os.system("exit 4"))`}, append([]string{"read", "poll", "select", "pselect6"}, chance...)},
		"pigz": {[]string{"/bin/sh", "-c", "head -c 2000000 /dev/zero >z; exec pigz -p 4 -k -f z"}, looks},
	} {
		t.Run(name, func(t *testing.T) {
			native := run(t, t.TempDir(), c.argv...)
			there, want := traced(t, t.TempDir(), c.argv...)
			here, got := counted(t, t.TempDir(), c.argv...)
			if here != native {
				t.Errorf("natively:\n%+v\ncounted:\n%+v", native, here)
			}
			if there.stdout != native.stdout {
				t.Fatalf("under strace:\n%+v\nnatively:\n%+v", there, native)
			}
			compare(t, want, got.counts(), c.but)
		})
	}
}
