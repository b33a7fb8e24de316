package run

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
)

// A server whose worker went into its chroot right after fork was not watched at all, and not a word said so: the session's socket has no name in
// there. Now the worker finds the socket's twin in the abstract namespace. From a network namespace of its own it does not; then the report
// says which process was not watched, and why. (Its two orders are separated by a join, which makes them no
// inversion; that it was watched is told by --stats.)
func TestShutIn(t *testing.T) {
	for _, c := range []struct {
		how  string
		seen bool
	}{{"", true}, {"c", true}, {"t", true}, {"n", true}, {"cn", false}, {"tn", false}} {
		t.Run("shut in by "+c.how, func(t *testing.T) {
			r := finish(t, command(t, map[string]any{"Stats": true}, path("jail"), t.TempDir(), c.how))
			if strings.Contains(r.stderr, "cannot shut myself in: Operation not permitted") {
				t.Skip("that is forbidden here: not root, or a container")
			}
			if r.code != 3 || len(summaries(r.stderr)) != 0 {
				t.Fatalf("exit %d, want 3\n%s", r.code, r.stderr)
			}
			if got := strings.Contains(r.stderr, "was not watched: from its chroot"); got == c.seen {
				t.Errorf("it is said that it was not watched: %v\n%s", got, r.stderr)
			}
			if got := regexp.MustCompile(`processes +2\b`).MatchString(r.stderr); got != c.seen {
				t.Errorf("two processes were watched: %v\n%s", got, r.stderr)
			}
		})
	}
}

// A server that goes into the background was let go without a word when its first process ended, and a daemon that had not yet used a lock by then
// was not even known. Now the run ends with the first process as it does natively, but says who lives on; with --wait-for=all it goes on
// until the daemon has ended, or until it is asked to end itself.
func TestDaemon(t *testing.T) {
	start := func(t *testing.T, o map[string]any, args ...string) (cmd *exec.Cmd, errs *bytes.Buffer, fifo string, pid string) {
		fifo = filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd, errs = command(t, o, append([]string{path("daemon"), fifo}, args...)...), &bytes.Buffer{}
		cmd.Stderr = errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		return cmd, errs, fifo, strings.TrimSpace(string(b))
	}
	let := func(t *testing.T, fifo string) {
		if err := os.WriteFile(fifo, []byte("x"), 0); err != nil {
			t.Fatal(err)
		}
	}
	livesOn := func(pid string) string { return "what " + pid + " (daemon) does after the program's end: it lives on" }
	for _, args := range [][]string{nil, {"by daemon()"}} {
		t.Run(fmt.Sprint("let go ", args), func(t *testing.T) {
			cmd, errs, fifo, pid := start(t, nil, args...)
			err := cmd.Wait()
			let(t, fifo)
			if err != nil || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), livesOn(pid)) {
				t.Errorf("%v; want %q\n%s", err, livesOn(pid), errs)
			}
		})
		t.Run(fmt.Sprint("waited for ", args), func(t *testing.T) {
			cmd, errs, fifo, _ := start(t, map[string]any{"WaitFor": "all"}, args...)
			let(t, fifo)
			cmd.Wait()
			if got := summaries(errs.String()); cmd.ProcessState.ExitCode() != 66 || fmt.Sprint(got) != "[lock-order-inversion]" || strings.Contains(errs.String(), "lives on") {
				t.Errorf("%v, findings %v\n%s", cmd.ProcessState, got, errs)
			}
		})
	}
	t.Run("no longer waited for", func(t *testing.T) {
		cmd, errs, fifo, pid := start(t, map[string]any{"WaitFor": "all"})
		over := make(chan error)
		go func() { over <- cmd.Wait() }()
		var err error
		for waiting := true; waiting; { // again and again: one that comes at the very moment of the first process's end is passed on to it
			cmd.Process.Signal(syscall.SIGTERM)
			select {
			case err = <-over:
				waiting = false
			case <-time.After(50 * time.Millisecond):
			}
		}
		let(t, fifo)
		if err != nil || !strings.Contains(errs.String(), livesOn(pid)) {
			t.Errorf("%v; want %q\n%s", err, livesOn(pid), errs)
		}
	})
}

// Shared memory counts as a file for ulimit -f, and a limit of one block was refused with "cannot make shared memory: file too large". Where it can be
// raised for a moment it is; else a line says what is needed.
func TestFileSizeLimit(t *testing.T) {
	r := finish(t, exec.Command("bash", "-c", `ulimit -S -f 1; "$0" '{}' run "$1" 2>&1 | cat; exit ${PIPESTATUS[0]}`, path("runner"), path("inversion")))
	if fmt.Sprint(summaries(r.stdout)) != "[lock-order-inversion]" {
		t.Errorf("soft limit: exit %d\n%s", r.code, r.stdout)
	}
	for kib, want := range map[int]string{1: "the limit on file size is 1 KiB (ulimit -f)", 4095: "ripstop needs 4096", 4096: ""} {
		os.Chmod(path("runner"), 0o755)
		cmd := exec.Command("bash", "-c", fmt.Sprintf(`ulimit -f %d; "$0" '{}' run "$1" 2>&1 | cat; exit ${PIPESTATUS[0]}`, kib), path("runner"), path("inversion"))
		if os.Geteuid() == 0 { // who may raise it
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 23579, Gid: 23579}}
		}
		cmd.Dir = "/"
		r := finish(t, cmd)
		switch {
		case want == "" && (r.code != 66 || fmt.Sprint(summaries(r.stdout)) != "[lock-order-inversion]"):
			t.Errorf("ulimit -f %d: exit %d\n%s", kib, r.code, r.stdout)
		case want != "" && (r.code != agent.ExitOurs || strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stdout, want)):
			t.Errorf("ulimit -f %d: exit %d, want %q\n%s", kib, r.code, want, r.stdout)
		}
	}
}
