package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
)

// --- a parent for what the killed leave behind ---------------------------------------------------------------------------------------

const reaperArg = "-reaper"

// ends says how a command and its orphans ended.
type ends struct {
	Main    unix.WaitStatus
	Orphans []unix.WaitStatus
	Left    bool // there were processes after the time limit, and they were killed
}

// reaper is another program: reaper FILE DELAY SIGNAL WHO command... runs the command, sends SIGNAL after DELAY to it (WHO: self) or to its
// first child (child), waits for it and for all its descendants, and writes ends to FILE.
func reaper(args []string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "reaper:", err)
		os.Exit(3)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fail(err)
	}
	delay, err := time.ParseDuration(args[1])
	if err != nil {
		fail(err)
	}
	sig, _ := strconv.Atoi(args[2])
	pid, err := syscall.ForkExec(args[4], args[4:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fail(err)
	}
	var mainEnded atomic.Bool
	go func() {
		time.Sleep(delay)
		whom := pid
		for args[3] == "child" {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
			for _, tid := range tasks(pid) {
				b2, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid))
				b = append(b, b2...)
			}
			program := 0
			for _, f := range strings.Fields(string(b)) {
				if p, _ := strconv.Atoi(f); !isSentinel(p) && (program == 0 || p < program) {
					program = p // the sentinel, if it has no name yet, is younger
				}
			}
			if program != 0 {
				whom = program
				break
			}
			if mainEnded.Load() {
				return
			}
		}
		syscall.Kill(whom, syscall.Signal(sig))
	}()
	var e ends
	time.AfterFunc(limit, func() {
		// What is left ends now, so that the loop below does.
		for _, tid := range tasks(os.Getpid()) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%s/children", tid))
			for _, f := range strings.Fields(string(b)) {
				p, _ := strconv.Atoi(f)
				syscall.Kill(p, syscall.SIGABRT)
			}
		}
		e.Left = true
	})
	for {
		var ws unix.WaitStatus
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			break
		}
		p := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16))) // si_pid
		sentinel := isSentinel(p)
		unix.Wait4(p, &ws, 0, nil)
		switch {
		case p == pid:
			mainEnded.Store(true)
			e.Main = ws
		case !sentinel:
			e.Orphans = append(e.Orphans, ws)
		}
	}
	b, _ := json.Marshal(e)
	if err := os.WriteFile(args[0], b, 0o600); err != nil {
		fail(err)
	}
	os.Exit(0)
}

// isSentinel tells whether a process, which may be a zombie, is ripstop's helper and not the program.
func isSentinel(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b)) == agent.SentinelName
}

func tasks(pid int) (names []string) {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// interrupted runs argv and sends it, or its first child, sig after delay. Sessions have their directories in tmp.
func interrupted(t *testing.T, tmp string, delay time.Duration, sig syscall.Signal, who string, argv ...string) (result, ends) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ends")
	cmd := exec.Command(os.Args[0], append([]string{reaperArg, file, delay.String(), strconv.Itoa(int(sig)), who}, argv...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TMPDIR="+tmp)
	r := start(t, cmd)()
	var e ends
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		t.Fatalf("no result of the reaper: %v\n%s", err, r.stderr)
	}
	return r, e
}

// shortTmp is a directory with a short name that everybody may enter.
func shortTmp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rsf")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o711)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// --- the Go side is killed ------------------------------------------------------------------------------------------------------------

// Killed at whatever moment, the Go side takes nothing from the program: it comes to its normal end, in bounded time, and no child process
// of it is lost. The directories of the dead sessions are gone after the next run.
func TestKillGoSide(t *testing.T) {
	kills := 30
	if soak {
		kills = 1000
	}
	programs := []struct {
		name string
		argv []string
	}{
		{"all", []string{program("work"), "all", "3"}},
		{"events", []string{program("work"), "threads", "6", "20000"}}, // full rings when recorded
		{"threads", []string{program("work"), "threads", "150", "50"}},
		{"forks", []string{program("work"), "forks"}},
	}
	tmp := shortTmp(t)
	var inTarget atomic.Int32
	t.Run("kills", func(t *testing.T) {
		for i, p := range programs {
			t.Run(p.name, func(t *testing.T) {
				if i%2 == 1 {
					t.Parallel() // two at a time
				}
				native := start(t, mode{}.command(p.argv...))()
				whole := map[string]time.Duration{}
				for k := range kills / len(programs) {
					m := watched(t)[k%2]
					argv := append(append([]string{}, m.args...), p.argv...)
					if whole[m.name] == 0 {
						whole[m.name] = start(t, m.command(p.argv...))().took
					}
					delay := time.Duration(rand.Int64N(int64(whole[m.name])))
					r, e := interrupted(t, tmp, delay, syscall.SIGKILL, "self", argv...)
					if e.Left {
						t.Fatalf("%s: killed after %v, the program hangs", m.name, delay)
					}
					if !e.Main.Signaled() {
						continue // it was quicker
					}
					if len(e.Orphans) == 0 && (r.stdout == "" || r.stdout == native.stdout) {
						continue // killed before it had started the program, or when that had ended
					}
					inTarget.Add(1)
					var last unix.WaitStatus
					if len(e.Orphans) > 0 {
						last = e.Orphans[len(e.Orphans)-1]
					}
					if r.stdout != native.stdout || len(e.Orphans) == 0 || !last.Exited() || last.ExitStatus() != 7 {
						t.Errorf("%s: killed after %v of %v, the program ends with %v and\n%s%s", m.name, delay, whole[m.name], e.Orphans, r.stdout, r.stderr)
					}
					if _, ours := oursApart(r.stderr); len(ours) != 0 {
						t.Errorf("%s: killed after %v, somebody says %q", m.name, delay, ours)
					}
				}
			})
		}
	})
	t.Logf("%d of %d kills came while the program ran", inTarget.Load(), kills)
	if int(inTarget.Load()) < kills/4 {
		t.Errorf("only %d of %d kills came while the program ran", inTarget.Load(), kills)
	}
	// A directory counts as stale only when it is ten seconds old: make them so.
	dirs, _ := filepath.Glob(filepath.Join(tmp, "ripstop-*"))
	if len(dirs) == 0 {
		t.Error("the kills left no directories: the rest of the test shows nothing")
	}
	for _, d := range dirs {
		past := time.Now().Add(-time.Minute)
		if err := os.Chtimes(d, past, past); err != nil {
			t.Fatal(err)
		}
	}
	cmd := watched(t)[0].command("/bin/true")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	start(t, cmd)()
	if left, _ := filepath.Glob(filepath.Join(tmp, "ripstop-*")); len(left) != 0 {
		t.Errorf("of %d directories of dead sessions %d are left after a run: %v", len(dirs), len(left), left)
	}
}

// While the Go side is stopped, threads whose rings are full wait for it; when it goes on, nothing has been lost: the trace has each
// lock and unlock there was, as has that of an undisturbed run.
func TestStopGoSide(t *testing.T) {
	argv := []string{program("work"), "threads", "4", "30000"}
	native := start(t, mode{}.command(argv...))()
	m := watched(t)[1]
	cmd := m.command(argv...)
	wait := start(t, cmd)
	// It has begun to write events when the file has some.
	events := filepath.Join(m.file, "events.rst")
	deadline := time.Now().Add(limit)
	for {
		if fi, err := os.Stat(events); err == nil && fi.Size() > 1<<16 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no events are written")
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // longer than the heartbeat may be old
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r := wait()
	same(t, native, r)
	if r.took < 1500*time.Millisecond {
		t.Errorf("the program was done in %v: it did not wait", r.took)
	}
	// 2 rounds of 4 threads with 30,000 rounds of two locks.
	const want = 2 * 4 * 30000 * 2
	if n := count(t, m.file, "acquire"); n < want {
		t.Errorf("%d acquires in the trace, of %d", n, want)
	}
	if n := count(t, m.file, "release"); n < want {
		t.Errorf("%d releases in the trace, of %d", n, want)
	}
}

// count counts events of a kind in a trace.
func count(t *testing.T, trace, kind string) int {
	t.Helper()
	out, err := exec.Command(ripstop, "dump", trace).Output()
	if err != nil {
		t.Fatalf("dump: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	return bytes.Count(out, []byte(" "+kind+" "))
}

// --- the program is killed ---------------------------------------------------------------------------------------------------------------

// Killed at whatever moment, the program leaves a trace that can be read and judged, and that holds what was done before: a thread that
// had written a number before it was killed had its events recorded up to there. Nothing is reported that is not so.
func TestKillProgram(t *testing.T) {
	kills := 12
	if soak {
		kills = 300
	}
	for _, p := range []struct {
		name string
		argv []string
	}{
		{"counting", []string{program("counting")}},
		{"all", []string{program("work"), "all", "3"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for range kills / 2 {
				m := watched(t)[1]
				delay := 30*time.Millisecond + time.Duration(rand.Int64N(int64(800*time.Millisecond)))
				r, e := interrupted(t, shortTmp(t), delay, syscall.SIGKILL, "child", append(append([]string{}, m.args...), p.argv...)...)
				if e.Left {
					t.Fatalf("after %v: it hangs", delay)
				}
				if p.name == "counting" && !(e.Main.Signaled() && e.Main.Signal() == syscall.SIGKILL) && !(e.Main.Exited() && e.Main.ExitStatus() == 128+9) {
					t.Errorf("the program was killed, ripstop ends with %#x", uint32(e.Main))
				}
				if p.name == "counting" {
					done := strings.Count(r.stdout, "\n")
					if n := count(t, m.file, "acquire"); n < done {
						t.Errorf("after %v: it said %d times that it had taken the lock, the trace has %d", delay, done, n)
					}
				}
				rep := exec.Command(ripstop, "report", "--format", "json", m.file)
				out, err := rep.Output()
				if err != nil {
					t.Errorf("after %v: report: %v\n%s", delay, err, out)
				}
				if bytes.Contains(out, []byte(`"type":"finding"`)) {
					t.Errorf("after %v: a false report: %s", delay, out)
				}
			}
		})
	}
}
