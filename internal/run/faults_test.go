package run

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// refuse is an argument of testdata/refusing.c by which calls fail.
func refuse(e syscall.Errno, calls ...int) string {
	var list []string
	for _, c := range calls {
		list = append(list, fmt.Sprintf("%d=%d", c, int(e)))
	}
	return strings.Join(list, ",")
}

// under is command in narrow circumstances, which hold for ripstop, too.
func under(t *testing.T, narrow string, o map[string]any, program ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(path("refusing"), append([]string{narrow}, command(t, o, program...).Args...)...)
}

// everyEpoch has each epoch of 50 ms executed again.
var everyEpoch = map[string]any{"Stats": true, "ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Every": true, "Most": 50 * time.Millisecond}}

// notStats are the lines that are no counts of --stats, and what is told of identical re-executions.
func notStats(stderr string) (rest string, identical bool) {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "ripstop: stats: ") {
			b.WriteString(line)
		}
		identical = identical || strings.HasPrefix(line, "ripstop: stats: guard, executed again: identical ")
	}
	return b.String(), identical
}

// What a container, or a kernel, may refuse: the program is as natively, and its epochs are executed again as they were. Without userfaultfd a checkpoint looks at all pages; nothing needs to be said of that.
func TestFaultsRefused(t *testing.T) {
	ofAgent(t)
	docker := []int{unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PTRACE, unix.SYS_BPF, unix.SYS_KEYCTL}
	for name, narrow := range map[string]string{
		"userfaultfd": refuse(unix.EPERM, unix.SYS_USERFAULTFD), "process_vm_readv": refuse(unix.ENOSYS, unix.SYS_PROCESS_VM_READV), "membarrier": refuse(unix.EPERM, unix.SYS_MEMBARRIER),
		"docker": refuse(unix.EPERM, docker...), "gVisor": refuse(unix.ENOSYS, append(docker, unix.SYS_MEMBARRIER)...),
	} {
		for _, program := range [][]string{{path("epochs"), "4"}, {path("churn"), "4"}} {
			t.Run(name+"/"+filepath.Base(program[0]), func(t *testing.T) {
				native := finish(t, exec.Command(program[0], program[1:]...))
				r := finish(t, under(t, narrow, everyEpoch, program...))
				said, identical := notStats(r.stderr)
				if r.stdout != native.stdout || r.code != native.code || said != native.stderr {
					t.Errorf("%+v, natively %+v", r, native)
				}
				if !identical {
					t.Errorf("no epoch was executed again:\n%s", r.stderr)
				}
			})
		}
	}
}

// Where perf is refused nobody was named who wrote. ripstop sets debug registers; if it may not either that is said, once, and the rest of the report is as it was.
func TestWrittenWithoutPerf(t *testing.T) {
	ofAgent(t)
	o := map[string]any{"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}
	const said = "ripstop: not seen: "
	for _, e := range []syscall.Errno{unix.EACCES, unix.EPERM, unix.ENOSYS} {
		for _, program := range []string{"written", "born"} {
			t.Run(program+"/"+unix.ErrnoName(e), func(t *testing.T) {
				r := finish(t, under(t, refuse(e, unix.SYS_PERF_EVENT_OPEN), o, path(program)))
				_, written, named := strings.Cut(r.stderr, "Written here in thread T")
				lines := strings.Split(written, "\n")
				if r.stdout != "done\n" || r.code != 0 || strings.Count(r.stderr, "WARNING:") != 1 || strings.Contains(r.stderr, said) {
					t.Errorf("status %d, %q\n%s", r.code, r.stdout, r.stderr)
				}
				if !named && program == "born" && !strings.Contains(r.stderr, said) {
					return // its re-execution went another way (anotherWay)
				}
				if len(lines) < 2 || !strings.HasPrefix(strings.TrimSpace(lines[1]), "#0 put ") || strings.Contains(written, "Written here") {
					t.Errorf("%s", r.stderr)
				}
			})
		}
	}
	t.Run("and without ptrace", func(t *testing.T) {
		r := finish(t, under(t, refuse(unix.EPERM, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PTRACE), o, path("written")))
		if r.stdout != "done\n" || r.code != 0 || strings.Count(r.stderr, "WARNING:") != 1 || strings.Contains(r.stderr, "Written here") {
			t.Errorf("status %d, %q\n%s", r.code, r.stdout, r.stderr)
		}
		if strings.Count(r.stderr, said) != 1 || !strings.Contains(r.stderr, "who wrote where could not be watched (operation not permitted)") {
			t.Errorf("%s", r.stderr)
		}
	})
}

// Under a limit on memory epochs would take from the program what natively it has (the arena grows with what it writes): none are recorded, which is said, once. Before, wide limits were used for checkpoints without a word, and of narrow ones there were up to three lines, with a number for the cause.
func TestFaultsLimits(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("epochs"), "4"))
	for name, narrow := range map[string]string{"address space": fmt.Sprintf("r%d=%d", unix.RLIMIT_AS, 4<<30), "address space, wide": fmt.Sprintf("r%d=%d", unix.RLIMIT_AS, 64<<30),
		"data": fmt.Sprintf("r%d=%d", unix.RLIMIT_DATA, 400<<20), "data, wide": fmt.Sprintf("r%d=%d", unix.RLIMIT_DATA, 2<<30)} {
		t.Run(name, func(t *testing.T) {
			r := finish(t, under(t, narrow, everyEpoch, path("epochs"), "4"))
			said, _ := notStats(r.stderr)
			if r.stdout != native.stdout || r.code != native.code || strings.Count(said, "\n") != 1 || !strings.Contains(said, "ripstop: not seen: process ") || !strings.Contains(said, ": no epochs are recorded: that would take memory from what its limit (ulimit -v, -d) leaves it\n") {
				t.Errorf("%+v, natively %+v", r, native)
			}
		})
	}
	// Near the limit on descriptors: natively the program has six.
	for _, n := range []int{7, 9, 20} {
		t.Run(fmt.Sprintf("%d descriptors", n), func(t *testing.T) {
			r := finish(t, command(t, everyEpoch, path("refusing"), fmt.Sprintf("r%d=%d", unix.RLIMIT_NOFILE, n), path("epochs"), "4"))
			said, identical := notStats(r.stderr)
			if r.stdout != native.stdout || r.code != native.code || said != "" || !identical {
				t.Errorf("%+v, natively %+v", r, native)
			}
		})
	}
}

// A limit that comes while the program runs: what checkpoints have is not more from then on, and the epochs that they are too small for are lost. It is said once, at the end.
func TestFaultsMemory(t *testing.T) {
	cmd := command(t, map[string]any{"Stats": true, "ExitCode": 0, "Epochs": map[string]any{"On": true, "Every": true, "Most": 20 * time.Millisecond}}, path("tight"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	line := make([]byte, 6)
	if n, err := out.Read(line); string(line[:n]) != "ready\n" {
		t.Fatalf("%q, %v\n%s", line[:n], err, errs.String())
	}
	pid := childOf(t, cmd.Process.Pid, "tight")
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: 16 << 30, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
	in.Close()
	var rest bytes.Buffer
	rest.ReadFrom(out)
	cmd.Wait()
	native := exec.Command(path("tight"))
	want, _ := native.Output()
	said, _ := notStats(errs.String())
	if "ready\n"+rest.String() != string(want) || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%v, %q; natively %q", cmd.ProcessState, rest.String(), want)
	}
	if strings.Count(said, "\n") != 1 || !strings.Contains(said, " epochs could not be executed again: what they began with was not kept, as there was no memory for it, or a limit") {
		t.Errorf("%s", errs.String())
	}
}

// childOf finds the child by its name.
func childOf(t *testing.T, pid int, name string) int {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		b, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(b)) {
			if comm, _ := os.ReadFile("/proc/" + f + "/comm"); strings.TrimSpace(string(comm)) == name {
				n, _ := strconv.Atoi(f)
				return n
			}
		}
	}
	t.Fatalf("process %d has no child %s", pid, name)
	return 0
}

// A process that has nearly all mappings that it may have, and splits and joins some: nothing that natively works is refused because of ours.
func TestFaultsMappings(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("many"), "1000"))
	for _, every := range []bool{false, true} {
		r := finish(t, command(t, map[string]any{"Stats": true, "ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Every": every, "Most": 50 * time.Millisecond}}, path("many"), "1000"))
		said, _ := notStats(r.stderr)
		if r.stdout != native.stdout || r.code != native.code || said != native.stderr || native.code != 0 {
			t.Errorf("every %t: %+v, natively %+v", every, r, native)
		}
	}
}

// What is a program's standard error later, or its child's, is the program's own: dovecot takes what its services write there for what they have to say, and had two lines of the agent's about their limit on memory in its log. The user hears of it
// where the run began, and by the report.
func TestSaysToUser(t *testing.T) {
	for name, options := range map[string]map[string]any{"full": {"Full": true, "Follow": true}, "guard": {"Guard": map[string]any{"Bytes": 16}, "Follow": true}} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			r := finish(t, command(t, options, "/bin/sh", "-c", `ulimit -v 200000; /bin/true; exec 2>"$0"; /bin/true; /bin/true; exec 2>&-; exec 2>>"$0"; /bin/true; echo done`, log))
			if text, err := os.ReadFile(log); err != nil || len(text) != 0 || r.stdout != "done\n" || r.code != 0 {
				t.Errorf("status %d, %q, %v, in the log: %s", r.code, r.stdout, err, text)
			}
			want := map[string]string{"full": "its limit on address space (ulimit -v) leaves no room to patch its code", "guard": "its heap is libc's"}[name]
			if strings.Count("\n"+r.stderr, "\nripstop: process ") != 1 || !strings.Contains(r.stderr, " and 3 more: "+want) {
				t.Errorf("%s", r.stderr)
			}
		})
	}
}
