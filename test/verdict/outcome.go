package verdict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
)

// Outcome is what a user sees of a command.
type Outcome struct {
	Code           int         // exit status
	Signal         unix.Signal // that ended it; 0: it exited
	Stdout, Stderr string
}

// Status is how it ended, as text.
func (o Outcome) Status() string {
	if o.Signal != 0 {
		return "signal " + unix.SignalName(o.Signal)
	}
	return fmt.Sprintf("exit status %d", o.Code)
}

// patience is how long a command may take. It is far beyond what any needs; a command that reaches it hangs.
const patience = 2 * time.Minute

// Start starts a command in dir, in a process group of its own. The environment is small and fixed, so that nothing of the tester's
// own (RIPSTOP_OPTIONS, LD_PRELOAD, language) plays a part. Wait must be called.
func Start(dir string, args []string) (*Running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r := &Running{cmd: exec.CommandContext(ctx, args[0], args[1:]...), ctx: ctx, cancel: cancel}
	r.cmd.Dir = dir
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Cancel = func() error { return unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL) }
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}

// Running is a command that was started.
type Running struct {
	cmd            *exec.Cmd
	ctx            context.Context
	cancel         context.CancelFunc
	stdout, stderr bytes.Buffer
}

// Terminate asks the processes of its group to end, one after the other, the youngest first: a child's end is seen by who watches its parent.
// The command itself, which is to see all of them end, is not asked.
func (r *Running) Terminate() error {
	for {
		pid, err := r.youngest()
		if err != nil || pid == 0 {
			return err
		}
		if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		for running(pid, r.cmd.Process.Pid) {
			if r.ctx.Err() != nil {
				return fmt.Errorf("process %d does not end on SIGTERM", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// youngest is the process of the group with the greatest number, 0: there is none but the command.
func (r *Running) youngest() (pid int, err error) {
	list, err := r.processes()
	return slices.Max(append(list, 0)), err
}

// processes are those of the group but the command.
func (r *Running) processes() (list []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err == nil && n != r.cmd.Process.Pid && running(n, r.cmd.Process.Pid) {
			list = append(list, n)
		}
	}
	return list, nil
}

// Runs tells whether a thread of the group's processes, the command's aside, has a processor or waits for one.
func (r *Running) Runs() (bool, error) {
	list, err := r.processes()
	for _, pid := range list {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, task := range tasks {
			stat, _ := os.ReadFile(task) // none: it has ended
			if at := bytes.LastIndex(stat, []byte(") ")); at >= 0 && bytes.HasPrefix(stat[at:], []byte(") R")) {
				return true, nil
			}
		}
	}
	return false, err
}

// running tells whether the process is of the group and no zombie. ripstop's own second process, which takes its signals and ends with it, does not count.
func running(pid, group int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	var state string
	var parent, pgrp int
	name, rest, _ := strings.Cut(string(stat), ") ")
	if strings.HasSuffix(name, "("+agent.SentinelName) {
		return false
	}
	n, _ := fmt.Sscan(rest, &state, &parent, &pgrp)
	if state == "Z" { // only its first thread may have ended: then the others are still there
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return n == 3 && pgrp == group && err == nil && len(tasks) > 1
	}
	return n == 3 && pgrp == group && state != "X"
}

// Kill ends it and its group.
func (r *Running) Kill() { r.cancel() }

// Wait waits for its end, and for that of all who have its output open.
func (r *Running) Wait() (Outcome, error) {
	defer r.cancel()
	err := r.cmd.Wait()
	defer unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL) // what a failure left behind
	o := Outcome{Stdout: r.stdout.String(), Stderr: r.stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		return o, fmt.Errorf("it hung: killed after %v\n%s", patience, clip(o.Stderr))
	case err != nil && !errors.As(err, &exit):
		return o, err
	}
	w := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if w.Signaled() {
		o.Signal = w.Signal()
	} else {
		o.Code = w.ExitStatus()
	}
	return o, nil
}

// Do runs a command to its end.
func Do(dir string, args []string) (Outcome, error) {
	r, err := Start(dir, args)
	if err != nil {
		return Outcome{}, err
	}
	return r.Wait()
}

// clip is the beginning of a long text.
func clip(s string) string {
	const most = 6000
	if len(s) > most {
		return s[:most] + fmt.Sprintf("… (%d bytes more)", len(s)-most)
	}
	return s
}

// differ says how two texts differ, "" if they do not.
func differ(what, native, ours string) string {
	if native == ours {
		return ""
	}
	return fmt.Sprintf("%s differs\nnatively:\n%s\nwith us:\n%s", what, indent(clip(native)), indent(clip(ours)))
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ")
}
