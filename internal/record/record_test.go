package record

import (
	"bytes"
	"encoding/json"
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
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// bin has the runner of package run (ripstop without its command line) and that package's programs.
var bin string

func TestMain(m *testing.M) {
	if _, err := agent.Library(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "recordtest-")
	if err != nil {
		panic(err)
	}
	bin = dir
	build := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd, err, out)
			os.Exit(1)
		}
	}
	build("go", "build", "-ldflags", "-E ripstop_entry", "-o", filepath.Join(dir, "runner"), "../run/testdata/runner")
	for _, prog := range []string{"inversion", "deadlock", "busy"} {
		build("gcc", "-g", "-O1", "-Wall", "-Werror", "-pthread", "-o", filepath.Join(dir, prog), "../run/testdata/"+prog+".c")
	}
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")) // not before: the go command has its cache there
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// runner runs a job to its end.
func runner(t *testing.T, job string, o any, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "runner"), append([]string{string(b), job}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(5*time.Minute, func() { cmd.Process.Signal(syscall.SIGABRT) })
	cmd.Wait()
	if !timer.Stop() {
		t.Fatalf("%v hangs: %s\n%s", cmd, out.String(), errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

var volatile = regexp.MustCompile(`0x[0-9a-f]{6,}|\(?(tid|pid)=\d+\)?`)

// The findings of a recorded trace are those of a run, word for word but for addresses and ids, children included.
func TestReportEqualsRun(t *testing.T) {
	for _, args := range [][]string{{}, {"x"}, {"x", "y"}} {
		program := append([]string{filepath.Join(bin, "inversion")}, args...)
		code, _, live := runner(t, "run", map[string]any{}, program...)
		if code != 66 {
			t.Fatalf("run: exit %d\n%s", code, live)
		}
		dir := filepath.Join(t.TempDir(), "trace")
		code, stdout, stderr := runner(t, "record", Options{Dir: dir, Follow: true, StackDepth: 24}, program...)
		if code != 3 || stdout != "done\n" || stderr != "" {
			t.Fatalf("record: exit %d, %q, %q", code, stdout, stderr)
		}
		code, _, offline := runner(t, "report", ReportOptions{Dir: dir, ExitCode: 66})
		if a, b := volatile.ReplaceAllString(live, ""), volatile.ReplaceAllString(offline, ""); code != 66 || a != b {
			t.Errorf("exit %d\nrun:\n%s\nreport:\n%s", code, live, offline)
		}
	}
}

// A program killed in a deadlock has left all its events, and the deadlock is found in them.
func TestKilledInDeadlock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trace")
	b, _ := json.Marshal(Options{Dir: dir, Follow: true, StackDepth: 24})
	cmd := exec.Command(filepath.Join(bin, "runner"), string(b), "record", filepath.Join(bin, "deadlock"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	wants := func() (n int) {
		tr, err := trace.Open(dir)
		if err != nil {
			return 0
		}
		defer tr.Close()
		tr.Events(func(_ uint64, e *wire.Event) error {
			if e.Type == wire.TypeWant {
				n++
			}
			return nil
		})
		return n
	}
	// The trace can be read while it is written.
	for end := time.Now().Add(30 * time.Second); wants() < 3; {
		if time.Now().After(end) {
			t.Fatal("the waits of the three threads do not come to the trace")
		}
		time.Sleep(20 * time.Millisecond)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("record ended with %#x", ws)
	}
	code, _, stderr := runner(t, "report", ReportOptions{Dir: dir, ExitCode: 66})
	if code != 66 || strings.Count(stderr, "SUMMARY: ripstop: deadlock") != 1 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// A recorder killed at any moment leaves a readable trace and a program that goes on.
func TestRecorderKilled(t *testing.T) {
	for i := 0; i < 5; i++ {
		dir := filepath.Join(t.TempDir(), "trace")
		b, _ := json.Marshal(Options{Dir: dir, Follow: true, StackDepth: 4})
		cmd := exec.Command(filepath.Join(bin, "runner"), string(b), "record", filepath.Join(bin, "busy"))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		line := make([]byte, 6)
		if _, err := r.Read(line); err != nil || string(line) != "ready\n" {
			t.Fatalf("%q %v", line, err)
		}
		time.Sleep(time.Duration(50+i*40) * time.Millisecond) // moments of all kinds
		cmd.Process.Kill()
		in.Close()
		var rest bytes.Buffer
		rest.ReadFrom(r)
		cmd.Wait()
		if rest.String() != "counts add up\n" {
			t.Errorf("the program wrote %q", rest.String())
		}
		code, _, stderr := runner(t, "report", ReportOptions{Dir: dir, ExitCode: 66})
		if code != 0 || !strings.Contains(stderr, "cut off") {
			t.Errorf("exit %d\n%s", code, stderr)
		}
	}
}

// dump prints the events, all or those asked for; every line is read back by the text parser.
func TestDump(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trace")
	runner(t, "record", Options{Dir: dir, StackDepth: 4}, filepath.Join(bin, "inversion"))
	code, all, stderr := runner(t, "dump", Filter{}, dir)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	if _, err := trace.ParseText(strings.NewReader(all)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{" process ", " thread-create ", " acquire ", " release ", " process-end "} {
		if !strings.Contains(all, want) {
			t.Errorf("no event %q", want)
		}
	}
	_, some, _ := runner(t, "dump", Filter{Thread: 2, Types: []string{"acquire", "release"}}, dir)
	lines := strings.Split(strings.TrimSuffix(some, "\n"), "\n")
	if len(lines) < 4 {
		t.Errorf("%d lines of thread 2", len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(line, " T2 ") || !strings.Contains(line, " acquire ") && !strings.Contains(line, " release ") {
			t.Errorf("not asked for: %s", line)
		}
	}
	if _, none, _ := runner(t, "dump", Filter{Process: 99}, dir); none != "" {
		t.Errorf("of process 99: %s", none)
	}
	if code, _, stderr := runner(t, "dump", Filter{Types: []string{"nonsense"}}, dir); code != 125 || !strings.Contains(stderr, "nonsense") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Where no trace can be written, or none is, that is told before anything is started.
func TestRefusals(t *testing.T) {
	busy := t.TempDir()
	os.WriteFile(filepath.Join(busy, "letter"), nil, 0o666)
	for _, dir := range []string{busy, "/proc/no", "/dev/null"} {
		code, stdout, stderr := runner(t, "record", Options{Dir: dir}, "echo", "started")
		if code != 125 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q", dir, code, stdout, stderr)
		}
	}
	for _, dir := range []string{busy, "/no/such/dir"} {
		if code, _, stderr := runner(t, "report", ReportOptions{Dir: dir}); code != 125 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q", dir, code, stderr)
		}
	}
}

// A full disk ends the recording, not the program; it is told, and what was written can be read.
func TestDiskFull(t *testing.T) {
	unshare := []string{"unshare", "-m"}
	if os.Geteuid() != 0 {
		unshare = []string{"unshare", "-Urm"}
	}
	if err := exec.Command(unshare[0], append(unshare[1:], "true")...).Run(); err != nil {
		t.Skip("nothing can be mounted here, as in most containers:", err)
	}
	mount, dir := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	b, _ := json.Marshal(Options{Dir: filepath.Join(mount, "trace"), Follow: true, StackDepth: 4})
	args := append(unshare, "sh", "-c", `mount -t tmpfs -o size=128k tmpfs $1 || exit 1; to=$2; from=$1/trace; shift 2; "$@"; s=$?; cp -r $from $to; exit $s`,
		"sh", mount, dir, filepath.Join(bin, "runner"), string(b), "record", "sh", "-c", "(sleep 1) | "+filepath.Join(bin, "busy"))
	cmd := exec.Command(args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run()
	if out.String() != "ready\ncounts add up\n" {
		t.Errorf("the program wrote %q", out.String())
	}
	if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("exit %d\n%s", code, errs.String())
	}
	if code, _, stderr := runner(t, "report", ReportOptions{Dir: dir, ExitCode: 66}); code != 0 || !strings.Contains(stderr, "cut off") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}
