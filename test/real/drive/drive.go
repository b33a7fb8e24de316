// Package drive runs real programs, each with a load that ends by itself and results that can be compared: natively, under
// `ripstop run`, under `ripstop record` and under `ripstop count`. Package real judges what comes of it, bench times it. Nothing here knows what a finding
// is, and no program is treated differently because of what ripstop says of it.
package drive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Mode is how a program is started.
type Mode int

const (
	Native Mode = iota
	Run
	Record
	Count
	Guard
	Again  // guard, each epoch executed again and compared; Job.Ripstop is the runner of package run's tests
	Judged // and once more, with every memory access looked at
)

func (m Mode) String() string {
	return [...]string{"native", "run", "record", "count", "guard", "again", "judged"}[m]
}

// Size is how much work a program gets.
type Size int

const (
	Small Size = iota // a second or so: what tests can afford
	Timed             // some seconds, so that starting up does not count: for the bench
	Large             // what is too long for CI
	Short             // a fifth of Timed, for a bench that runs each program in many ways; of what `pick` sizes
)

// pick gives the number that belongs to the size.
func (s Size) pick(small, timed, large int) int { return [...]int{small, timed, large, timed / 5}[s] }

// Job is one run of a program.
type Job struct {
	Mode    Mode
	Size    Size
	Ripstop string        // the binary; not needed natively
	Flags   []string      // further flags of ripstop run, guard, record or count; {findings} stands for Findings(), as a program may be run twice, in two directories
	Env     []string      // more of the environment of what is under test
	Shared  string        // directory for inputs that all runs of a program share, kept between runs
	Dir     string        // directory of this run, empty at the beginning; also the program's TMPDIR
	Limit   time.Duration // after which everything is killed and the run has failed
}

// Findings is the JSON report of a run in mode Run, Again or Judged; of Guard if it is asked for.
func (j *Job) Findings() string { return filepath.Join(j.Dir, "findings.json") }

// Trace is the trace directory of a run in mode Record.
func (j *Job) Trace() string { return filepath.Join(j.Dir, "trace") }

// Counts is the JSON profile of a run in mode Count.
func (j *Job) Counts() string { return filepath.Join(j.Dir, "counts.json") }

// Outcome is what came of a run.
type Outcome struct {
	Exit   int           // exit status of the program (or of ripstop); 128+n if it died by signal n
	Stdout []byte        // with what differs from run to run natively already replaced
	Stderr []byte        // likewise
	Facts  []string      // results of the load, which must be as natively
	Time   time.Duration // of the load: start and end of a server are not in it
	CPU    time.Duration // user and system time of the program, its children and ripstop, from start to end
}

// Program is one program under its load.
type Program struct {
	Name string
	Run  func(ctx context.Context, j *Job) (Outcome, error)
	// Sleeps: it mostly waits for time to pass, so it may run beside others, and timing it says nothing.
	Sleeps bool
}

// Programs is every program, in the order of tables.
func Programs() []Program {
	return []Program{
		{Name: "pbzip2", Run: pbzip2},
		{Name: "pigz", Run: pigz},
		{Name: "x264", Run: x264},
		{Name: "sqlite-threads", Run: sqliteThreads},
		{Name: "sqlite-shell", Run: sqliteShell},
		{Name: "python-threading", Run: pythonThreading, Sleeps: true},
		{Name: "python-futures", Run: pythonFutures, Sleeps: true},
		{Name: "memcached", Run: memcached},
		{Name: "redis", Run: redis},
		{Name: "apache2", Run: apache2},
		{Name: "mariadb", Run: mariadb},
	}
}

// Alone is programs whose work is one thread's.
func Alone() []Program {
	return []Program{{Name: "redis-default", Run: redisDefault}}
}

// Single is programs that have nothing to do with threads, for what concerns all code alike.
func Single() []Program {
	return []Program{
		{Name: "xz", Run: xz},
		{Name: "cc1", Run: cc1},
	}
}

// command is how the program's command line is started in this job, in a process group of its own. A name is looked up as a shell
// of root would, since Debian keeps servers in /usr/sbin.
func (j *Job) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path, err := lookup(name)
	if err != nil {
		return nil, err
	}
	argv := append([]string{path}, args...)
	switch j.Mode {
	case Guard:
		argv = append(append([]string{j.Ripstop, "guard"}, append(j.named(), "--")...), argv...)
	case Again, Judged:
		argv = append([]string{j.Ripstop, j.again(), "run"}, argv...)
	case Run:
		argv = append(append([]string{j.Ripstop, "run", "--format", "json=" + j.Findings()}, append(j.Flags, "--")...), argv...)
	case Count:
		argv = append(append([]string{j.Ripstop, "count", "--format", "json=" + j.Counts()}, append(j.Flags, "--")...), argv...)
	case Record:
		argv = append(append([]string{j.Ripstop, "record", "-o", j.Trace()}, append(j.Flags, "--")...), argv...)
	}
	cmd := j.plain(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Env, j.Env...)
	return cmd, nil
}

// named is the flags with the report's name in them.
func (j *Job) named() (flags []string) {
	for _, f := range j.Flags {
		flags = append(flags, strings.ReplaceAll(f, "{findings}", j.Findings()))
	}
	return flags
}

// again is what the runner is told: epochs of 50 ms at most, so that there are some in a second; of those that are judged, each of which takes seconds, of a second.
func (j *Job) again() string {
	most := 50 * time.Millisecond
	if j.Mode == Judged {
		most = time.Second
	}
	return fmt.Sprintf(`{"Stats": true, "ExitCode": 0, "Report": {"Formats": [%q]}, "Guard": {"Bytes": 16, "Quarantine": 1024}, "Epochs": {"On": true, "Every": true, "Most": %d, "Races": %t}}`,
		"json="+j.Findings(), most, j.Mode == Judged)
}

// plain is a command that is not under test: a load generator, an installer.
func (j *Job) plain(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = j.Dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMPDIR="+j.Dir, "RIPSTOP_OPTIONS=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		// ripstop answers SIGQUIT with all stacks, which is what one wants to see of a run that hangs.
		if j.Mode != Native && path == j.Ripstop {
			_ = cmd.Process.Signal(syscall.SIGQUIT)
			time.Sleep(3 * time.Second)
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func lookup(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path := filepath.Join(dir, name); exec.Command("test", "-x", path).Run() == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; run make deps-test", name)
}

// context bounds a run by the job's limit.
func (j *Job) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.Limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, j.Limit, fmt.Errorf("not ended after %v", j.Limit))
}

// batch runs a program that reads, computes and ends; time is from start to end. in may be empty: no input.
func (j *Job) batch(ctx context.Context, in, name string, args ...string) (Outcome, error) {
	ctx, cancel := j.context(ctx)
	defer cancel()
	cmd, err := j.command(ctx, name, args...)
	if err != nil {
		return Outcome{}, err
	}
	if in != "" {
		f, err := os.Open(in)
		if err != nil {
			return Outcome{}, err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err = cmd.Run()
	out := Outcome{Time: time.Since(start), Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	return out, j.ended(ctx, cmd, err, &out)
}

// ended puts what is known of an ended command into out. A bad exit status is no error here: the caller compares it.
func (j *Job) ended(ctx context.Context, cmd *exec.Cmd, err error, out *Outcome) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %v\n%s", cmd.Path, context.Cause(ctx), tail(out.Stderr))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w\n%s", cmd.Path, err, tail(out.Stderr))
	}
	state := cmd.ProcessState
	out.CPU = state.UserTime() + state.SystemTime()
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		out.Exit = 128 + int(status.Signal())
	} else {
		out.Exit = status.ExitStatus()
	}
	return nil
}

// tool runs a command that is not under test and must succeed; it gives its standard output.
func (j *Job) tool(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := lookup(name)
	if err != nil {
		return nil, err
	}
	cmd := j.plain(ctx, path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, tail(out), tail(stderr.Bytes()))
	}
	return out, nil
}

// tail is the end of an output, for error messages.
func tail(b []byte) []byte {
	const most = 6000
	if len(b) > most {
		return append([]byte("…"), b[len(b)-most:]...)
	}
	return b
}
