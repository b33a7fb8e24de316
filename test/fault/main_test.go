package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	ripstop string // the binary under test
	built   string // directory of the programs in testdata
	soak    = os.Getenv("RIPSTOP_SOAK") != ""
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == reaperArg {
		reaper(os.Args[2:])
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ripstop = os.Getenv("RIPSTOP_BINARY")
	if ripstop == "" {
		ripstop, _ = filepath.Abs("../../bin/ripstop")
	}
	if _, err := os.Stat(ripstop); err != nil {
		fmt.Fprintf(os.Stderr, "%v; run make first\n", err)
		return 1
	}
	// Not where TMPDIR says: other users must be able to go there.
	var err error
	if built, err = os.MkdirTemp("/tmp", "rsfault"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(built)
	os.Chmod(built, 0o755)
	sources, _ := filepath.Glob("testdata/*.c")
	for _, src := range sources {
		name := strings.TrimSuffix(filepath.Base(src), ".c")
		args := []string{"-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", src, "-ldl", "-o", filepath.Join(built, name)}
		if strings.HasSuffix(name, "_lib") {
			args[len(args)-1] += ".so"
			args = append(args, "-shared", "-fPIC")
		}
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", src, err, out)
			return 1
		}
	}
	return m.Run()
}

// program is the path of a program in testdata.
func program(name string) string { return filepath.Join(built, name) }

// result of a command line as a user sees it.
type result struct {
	stdout, stderr string
	status         string
	took           time.Duration
	hung           bool
}

// limit is when a command is taken for hung. Runs take a second or two on an idle machine; a thousand forks beside four threads that never rest took a quarter of a minute on one of two processors, and 40 seconds
// beside other tests there.
var limit = map[bool]time.Duration{false: 3 * time.Minute, true: 10 * time.Minute}[soak]

// start starts cmd in its own process group, with files for output, and returns what waits for its end. A process that does not end in
// time gets killed with its group.
func start(t *testing.T, cmd *exec.Cmd) func() result {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	out, errs := open("out"), open("err")
	defer out.Close()
	defer errs.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = errs
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (r result) {
		timer := time.AfterFunc(limit, func() {
			r.hung = true
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		})
		cmd.Wait()
		timer.Stop()
		r.took = time.Since(began)
		r.status = cmd.ProcessState.String()
		b, _ := os.ReadFile(out.Name())
		r.stdout = string(b)
		b, _ = os.ReadFile(errs.Name())
		r.stderr = string(b)
		return r
	}
}

// mode is a way to run a program.
type mode struct {
	name string
	args []string // of ripstop; none: natively
	file string   // the report, or the trace
}

// environment of the programs: little, so that differences can be read.
func environment() []string {
	env := []string{"LC_ALL=C", "A=", "B==b"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (m mode) command(argv ...string) *exec.Cmd {
	argv = append(append([]string{}, m.args...), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = environment()
	return cmd
}

// watched are the modes under ripstop, with new files.
func watched(t *testing.T) []mode {
	dir := t.TempDir()
	report, trace := filepath.Join(dir, "report"), filepath.Join(dir, "trace")
	return []mode{
		{"run", []string{ripstop, "run", "--exit-code", "0", "--format", "json=" + report, "--"}, report},
		{"record", []string{ripstop, "record", "-o", trace, "--"}, trace},
	}
}

// same compares what the user sees.
func same(t *testing.T, native, got result) {
	t.Helper()
	if got.hung {
		t.Errorf("it hangs")
	}
	if native.status != got.status {
		t.Errorf("%s, natively %s", got.status, native.status)
	}
	for _, c := range []struct{ what, want, got string }{{"output", native.stdout, got.stdout}, {"error output", native.stderr, got.stderr}} {
		if c.want != c.got {
			t.Errorf("%s differs\n--- natively\n%s\n--- now\n%s", c.what, shortened(c.want), shortened(c.got))
		}
	}
}

func shortened(s string) string {
	if len(s) > 3000 {
		return s[:1500] + "\n…\n" + s[len(s)-1500:]
	}
	return s
}

// oursApart splits lines that the agent or ripstop says from a program's error output.
func oursApart(stderr string) (program string, ours []string) {
	var rest strings.Builder
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "ripstop: ") {
			ours = append(ours, line)
		} else {
			rest.WriteString(line)
		}
	}
	return rest.String(), ours
}

// nothingReported fails if the JSON report file holds findings.
func nothingReported(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		return // not even begun
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		var v struct {
			Type string
			Rule string
		}
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Errorf("%s: %v", line, err)
		} else if v.Type == "finding" {
			t.Errorf("a false report: %s", line)
		}
	}
}
