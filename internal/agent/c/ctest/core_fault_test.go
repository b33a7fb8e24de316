package ctest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/wire"
)

// session is a session whose events nobody looks at.
func session(t *testing.T, config wire.Config) *agent.Session {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	s, err := agent.New(agent.Options{Config: config, Handler: &log{ended: map[uint64]bool{}}, Library: lib})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// oneLine fails unless what the agent says is nothing or one line of its own for a process.
func oneLine(t *testing.T, what, stderr string) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSuffix(stderr, "\n"), "\n") {
		if line != "" && !strings.HasPrefix(line, "ripstop: process ") {
			t.Errorf("%s: stderr %q", what, stderr)
		}
	}
	if strings.Count(stderr, "\n") > 2 { // the program and its child
		t.Errorf("%s: stderr %q", what, stderr)
	}
}

// Each system call of the agent fails in turn, from its first to the program's, and those that only the agent makes also later. The program runs
// as ever; at most a line of ours tells why it is not watched.
func TestFailingCalls(t *testing.T) {
	prog := compile(t, "core_small.c")
	s := session(t, all)
	env := s.Environ(nil)
	run := func(args ...string) result {
		argv := []string{"strace", "-f", "-o", filepath.Join(t.TempDir(), "trace")}
		for _, e := range env {
			argv = append(argv, "-E", e)
		}
		argv = append(argv, args...)
		return native(t, os.Environ(), append(argv, prog)...)
	}
	// A run without faults says which calls there are, and where the agent begins.
	trace := filepath.Join(t.TempDir(), "all")
	if r := run("-o", trace); r.stdout != "start\ndone\n" || r.state != "exit status 3" || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	call := regexp.MustCompile(`^\d+ +([a-z_0-9]+)\(`)
	before, start, total := map[string]int{}, map[string]int{}, map[string]int{}
	begun, started := false, false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		m := call.FindStringSubmatch(sc.Text())
		if m == nil {
			continue
		}
		begun = begun || strings.Contains(sc.Text(), "SOCK_SEQPACKET")
		started = started || strings.Contains(sc.Text(), `write(1, "start`)
		total[m[1]]++
		if !begun {
			before[m[1]]++
		}
		if !started {
			start[m[1]]++
		}
	}
	if !begun || !started {
		t.Fatal("the agent's start was not found in strace's output")
	}
	errno := map[string]string{"mmap": "ENOMEM", "memfd_create": "ENFILE", "socket": "EMFILE", "connect": "EACCES", "ftruncate": "EFBIG",
		"madvise": "ENOMEM", "sendmsg": "EPIPE", "recvmsg": "EAGAIN", "prlimit64": "EPERM", "readlink": "ENOENT", "fcntl": "EPERM",
		"setsockopt": "ENOPROTOOPT", "clone": "EAGAIN", "fstat": "EIO", "close": "EINTR", "gettid": "ENOSYS", "rt_sigprocmask": "EINVAL"}
	own := map[string]bool{"socket": true, "connect": true, "sendmsg": true, "recvmsg": true, "memfd_create": true, "ftruncate": true,
		"setsockopt": true, "clone": true, "fcntl": true}
	n := 0
	for name, e := range errno {
		last := start[name]
		if own[name] {
			last = total[name]
		}
		for i := before[name] + 1; i <= last; i++ {
			what := fmt.Sprintf("%s number %d fails with %s", name, i, e)
			// The count is of each process: strace's `when` counts by thread.
			r := run("-e", fmt.Sprintf("inject=%s:error=%s:when=%d", name, e, i))
			if r.stdout != "start\ndone\n" || r.state != "exit status 3" {
				t.Errorf("%s: %+v", what, r)
			}
			oneLine(t, what, r.stderr)
			n++
		}
	}
	t.Logf("%d faults", n)
}

// Limits that are too low for us are no harm to the program.
func TestLimits(t *testing.T) {
	prog := compile(t, "core_small.c")
	s := session(t, all)
	for _, limit := range []string{"ulimit -Sf 0", "ulimit -f 0", "ulimit -f 100", "ulimit -Sn 4", "ulimit -n 5", "ulimit -v 200000", "ulimit -v 110000",
		"exec 0<&- 2>&-", "exec 0<&-", "ulimit -l 0"} {
		r := native(t, s.Environ(os.Environ()), "/bin/bash", "-c", limit+"; exec "+prog)
		if r.stdout != "start\ndone\n" || r.state != "exit status 3" {
			t.Errorf("%s: %+v", limit, r)
		}
		oneLine(t, limit, r.stderr)
		t.Logf("%s: %q", limit, r.stderr)
	}
}

// No descriptor of ours is in the program's table, not even for a moment that an open of its own could notice.
func TestDescriptors(t *testing.T) {
	for _, redirect := range []string{"", "0<&-", "0<&- 2>&-"} {
		same(t, all, "/bin/bash", "-c", "exec ls -l /proc/self/fd "+redirect+" | sed 's/^.* \\([0-9]* ->\\)/\\1/; s/:.*//; s,/proc/[0-9]*,/proc/N,'")
	}
}

// The Go side is killed while the program runs: with rings that are full at once, and with rings that never are, the program goes on to its
// end and says what it would have said.
func TestGoKilled(t *testing.T) {
	if os.Getenv("CTEST_SERVE") != "" {
		serve(t)
		return
	}
	prog := compile(t, "core_churn.c", "-O2")
	for _, bytes := range []string{"4096", "262144"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestGoKilled$")
		cmd.Env = append(os.Environ(), "CTEST_SERVE="+bytes)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var env []string
		for sc := bufio.NewScanner(out); sc.Scan() && sc.Text() != "ready"; {
			env = append(env, sc.Text())
		}
		target := exec.Command(prog, "20", "400", "3")
		target.Env = env
		stdout, err := target.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Start(); err != nil {
			t.Fatal(err)
		}
		// While it is at it, from the moment it has told the session of itself to somewhere in the middle.
		time.Sleep(100 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		began := time.Now()
		sc := bufio.NewScanner(stdout)
		sc.Scan()
		target.Wait()
		if sc.Text() != "bad 0" || target.ProcessState.String() != "exit status 3" {
			t.Errorf("rings of %s: %q, %v", bytes, sc.Text(), target.ProcessState)
		}
		t.Logf("rings of %s: ended %v after the kill", bytes, time.Since(began))
		if time.Since(began) > 20*time.Second {
			t.Errorf("rings of %s: ended %v after the kill", bytes, time.Since(began))
		}
	}
}

// killer is killed when it is asked for patches.
type killer struct{}

func (killer) Attach(uint64, int) ([2]int, error) {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
func (killer) Gone(uint64) {}

// A program that was executed as ripstop was killed said on its standard error that no epochs are recorded (TestKillGoSideOfGuard, one kill in some hundreds): what had failed was to be patched, since nobody was there any more to do it. Since then that is told by an event, and standard error is the program's.
func TestGoKilledBeforePatches(t *testing.T) {
	config := all
	config.Patch, config.Calls, config.Guard, config.Allocator = 1, 1, 1, uint32(wire.AllocatorFreer)
	if os.Getenv("CTEST_SERVE") != "" {
		lib, err := library()
		if err != nil {
			t.Fatal(err)
		}
		s, err := agent.New(agent.Options{Config: config, Handler: &log{ended: map[uint64]bool{}}, Library: lib, Patcher: killer{}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, e := range s.Environ([]string{"PATH=" + os.Getenv("PATH")}) {
			fmt.Println(e)
		}
		fmt.Println("ready")
		select {}
	}
	prog := compile(t, "core_small.c")
	want := native(t, os.Environ(), prog)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGoKilledBeforePatches$")
	cmd.Env = append(os.Environ(), "CTEST_SERVE=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var env []string
	for sc := bufio.NewScanner(out); sc.Scan() && sc.Text() != "ready"; {
		env = append(env, sc.Text())
	}
	got := native(t, env, prog)
	cmd.Process.Signal(syscall.SIGTERM) // if it was not asked
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Errorf("the Go side ended with %v", cmd.ProcessState)
	}
	if got != want {
		t.Errorf("%+v, natively %+v", got, want)
	}
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	told := &log{ended: map[uint64]bool{}}
	s, err := agent.New(agent.Options{Config: config, Handler: told, Library: lib})
	if err != nil {
		t.Fatal(err)
	}
	got = native(t, s.Environ(os.Environ()), prog)
	s.Close()
	is := func(e event) bool {
		return e.Type == wire.TypeNotice && wire.DecodeNotice(e.Words).What == wire.NoticeNoEpochs
	}
	if !slices.ContainsFunc(told.events, is) || got != want {
		t.Errorf("with nobody who patches: %+v", got)
	}
}

// serve is the Go side in a process of its own.
func serve(t *testing.T) {
	c := all
	c.StackDepth = 4
	if _, err := fmt.Sscan(os.Getenv("CTEST_SERVE"), &c.LaneBytes); err != nil {
		t.Fatal(err)
	}
	s := session(t, c)
	for _, e := range s.Environ([]string{"PATH=" + os.Getenv("PATH")}) {
		fmt.Println(e)
	}
	fmt.Println("ready")
	time.Sleep(time.Minute)
}
