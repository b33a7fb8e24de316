package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

// bin has the runner (ripstop without its command line) and the programs of testdata.
var bin string

// detected: these tests are built with the race detector.
var detected bool

func TestMain(m *testing.M) {
	if _, err := agent.Library(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "runtest-")
	if err != nil {
		panic(err)
	}
	os.Chmod(dir, 0o755)
	bin = dir
	build := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		if !detected {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd, err, out)
			os.Exit(1)
		}
	}
	// As the Makefile builds ripstop; under the race detector with it, or it would look at nothing but these tests.
	if detected {
		build("go", "build", "-race", "-ldflags", "-E ripstop_entry", "-o", path("runner"), "./testdata/runner")
	} else {
		build("go", "build", "-ldflags", "-E ripstop_entry", "-o", path("runner"), "./testdata/runner")
	}
	for _, prog := range []string{"inversion", "deadlock", "busy", "holding", "jail", "daemon", "crash", "server", "endless", "raced", "epochs", "written", "freed", "asked", "churn", "born", "ends", "mapped", "later", "rolls", "handlers", "refusing", "many", "tight", "streams", "wakes", "racy", "taken", "locked", "leaves", "worker", "alone", "clocks", "swarm", "glances", "alternate", "kept", "moving", "leaving", "grows", "lockall", "spaces", "dispatch", "batches", "half", "told", "back", "stale", "remains", "given", "rseq", "laden", "small", "reserves", "narrow", "polls", "unwinds", "made", "inherits", "unheld", "strays", "timers", "lengths", "lasting", "astray", "sharing", "both", "queries", "rewrites", "meets", "nowhere", "early", "starts", "lookers", "ways", "parts", "leftover", "second", "shutin", "numbers", "images", "fromthread", "unblocks"} {
		build("gcc", "-g", "-O1", "-Wall", "-Werror", "-Wno-use-after-free", "-pthread", "-o", path(prog), "testdata/"+prog+".c")
	}
	for _, o := range []string{"O0", "O2"} {
		build("gcc", "-g", "-"+o, "-Wall", "-Werror", "-pthread", "-o", path("yields-"+o), "testdata/yields.c")
	}
	build("gcc", "-g", "-Wall", "-Werror", "-fPIC", "-shared", "-DLIBRARY", "-o", path("libbound.so"), "testdata/bound.c")
	build("gcc", "-g", "-Wall", "-Werror", "-Wl,-z,lazy", "-Wl,--allow-shlib-undefined", "-Wl,-rpath,$ORIGIN", "-o", path("bound"), "testdata/bound.c", path("libbound.so"))
	build("gcc", "-g", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-fno-builtin", "-DLIBRARY", "-o", path("libown.so"), "testdata/own.c")
	build("gcc", "-g", "-O1", "-Wall", "-Werror", "-pthread", "-Wl,-rpath,$ORIGIN", "-o", path("own"), "testdata/own.c", path("libown.so"))
	build("gcc", "-g", "-O1", "-Wall", "-Werror", "-fno-builtin", "-no-pie", "-fno-pie", "-o", path("points"), "testdata/points.c")
	for _, lib := range []string{"libopens.so", "libopens2.so"} {
		build("g++", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-DLIBRARY", "-o", path(lib), "testdata/opens.cc")
	}
	build("g++", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "-Wl,-rpath,$ORIGIN", "-o", path("opens"), "testdata/opens.cc")
	if !detected {
		build("env", "CGO_ENABLED=1", "go", "build", "-o", path("goes"), "../engine/testdata/cgo")
	}
	build("gcc", "-g", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread", "-DLIBRARY", "-o", path("libfromthread.so"), "testdata/fromthread.c")
	build("g++", "-g", "-O2", "-Wall", "-Werror", "-pthread", "-o", path("inlined"), "testdata/inlined.cc")
	build("g++", "-g", "-O1", "-Wall", "-Wno-free-nonheap-object", "-Wno-use-after-free", "-pthread", "-o", path("deletes"), "testdata/deletes.cc")
	build("g++", "-g", "-O2", "-Wall", "-Werror", "-o", path("loops"), "testdata/loops.cc")
	build("g++", "-std=c++20", "-g", "-O1", "-Wall", "-Werror", "-pthread", "-o", path("sleeping"), "testdata/sleeping.cc")
	build("g++", "-std=c++20", "-g", "-O1", "-Wall", "-Werror", "-pthread", "-o", path("stops"), "testdata/stops.cc")
	build("g++", "-std=c++20", "-g", "-O2", "-Wall", "-Werror", "-pthread", "-o", path("words"), "testdata/words.cc")
	build("gcc", "-g", "-O2", "-Wall", "-Werror", "-pthread", "-o", path("slept"), "testdata/slept.c")
	for _, o := range []string{"O0", "O2"} {
		build("g++", "-std=c++20", "-g", "-"+o, "-Wall", "-Werror", "-pthread", "-o", path("free-"+o), "testdata/free.cc")
	}
	build("g++", "-std=c++20", "-g", "-O2", "-Wall", "-Werror", "-pthread", "-fopenmp", "-o", path("shares"), "testdata/shares.cc")
	build("g++", "-std=c++20", "-g", "-O2", "-Wall", "-Werror", "-pthread", "-o", path("interrupted"), "testdata/interrupted.cc")
	build("g++", "-std=c++20", "-g", "-O2", "-Wall", "-Werror", "-pthread", "-o", path("handed"), "testdata/handed.cc")
	build("gcc", "-g", "-O1", "-Wall", "-Werror", "-pthread", "-o", path("action"), "testdata/action.c")
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")) // not before: the go command has its cache there
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// ofAgent skips a test that is about what the agent's C does, where it is the Go around it that is looked at: -short, under the race detector.
func ofAgent(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: of ripstop's own code it runs what TestEpochs and others run")
	}
}

func path(name string) string { return filepath.Join(bin, name) }

// command is the runner on a program; o is a map of Options.
func command(t *testing.T, o map[string]any, program ...string) *exec.Cmd {
	t.Helper()
	if o == nil {
		o = map[string]any{}
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(path("runner"), append([]string{string(b), "run"}, program...)...)
}

type result struct {
	code           int // -1: signal
	signal         syscall.Signal
	stdout, stderr string
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Minute // a program that outlives ripstop has its streams
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(5*time.Minute, func() { cmd.Process.Signal(syscall.SIGABRT) })
	cmd.Wait()
	if !timer.Stop() {
		t.Fatalf("%v hangs; it wrote %s\n%s", cmd, out.String(), errs.String())
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	r := result{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
	if ws.Signaled() {
		r.signal = ws.Signal()
	}
	return r
}

func summaries(text string) (list []string) {
	for _, line := range strings.Split(text, "\n") {
		if s, ok := strings.CutPrefix(line, "SUMMARY: ripstop: "); ok {
			list = append(list, strings.Fields(s)[0])
		}
	}
	return list
}

// An inversion is found, in the process itself, in a forked child and in one that is executed; the exit status says so, and the
// program's output is its own. Children are left alone where they are not to be followed.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name string
		o    map[string]any
		args []string
		code int
		want string
	}{
		{"itself", nil, nil, 66, "[lock-order-inversion]"},
		{"forked child", nil, []string{"x"}, 66, "[lock-order-inversion]"},
		{"executed child", nil, []string{"x", "y"}, 66, "[lock-order-inversion]"},
		{"other exit code", map[string]any{"ExitCode": 9}, nil, 9, "[lock-order-inversion]"},
		{"exit code of the program", map[string]any{"ExitCode": 0}, nil, 3, "[lock-order-inversion]"},
		{"no stacks", map[string]any{"StackDepth": 0}, nil, 66, "[lock-order-inversion]"},
		{"children not followed", map[string]any{"Follow": false}, []string{"x"}, 3, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := finish(t, command(t, c.o, append([]string{path("inversion")}, c.args...)...))
			if r.code != c.code || r.stdout != "done\n" || fmt.Sprint(summaries(r.stderr)) != c.want {
				t.Errorf("exit %d, output %q, findings %v; want %d, %s\n%s", r.code, r.stdout, summaries(r.stderr), c.code, c.want, r.stderr)
			}
			if c.code != 3 && c.o["StackDepth"] != 0 && (!strings.Contains(r.stderr, "inversion.c:") || !strings.Contains(r.stderr, "lock_a")) {
				t.Errorf("no names in the report:\n%s", r.stderr)
			}
		})
	}
}

// What is found ends a program that would never end by itself.
func TestHaltOnFirst(t *testing.T) {
	r := finish(t, command(t, map[string]any{"Full": true, "MemoryLimit": 16, "HaltOnFirst": true}, path("endless")))
	if r.code != 66 || !strings.Contains(r.stderr, "--halt-on-first") || !strings.Contains(r.stderr, "data-race") {
		t.Errorf("%+v", r)
	}
}

// The report of a race says what each side held, and what was accessed: a global, a thread-local variable, a block.
func TestRaceReport(t *testing.T) {
	r := finish(t, command(t, map[string]any{"Full": true}, path("raced"), filepath.Join(t.TempDir(), "mark")))
	if r.code != 66 || r.stdout != "6\n" {
		t.Fatalf("%+v", r)
	}
	blocks := strings.Split(r.stderr, "WARNING: ")[1:]
	for name, want := range map[string][]string{
		"global 'total'": {`by thread T3 .*\(mutexes: read RW1, write M1\), before which there was 1:\n`, `revious read and write .* by thread T2 .*\(mutexes: write M2\):\n`, `RW1 \(0x[0-9a-f]+\) is global 'table' in raced\n`, `global 'total' in raced \(int total\)\n`,
			`M1 \(0x[0-9a-f]+\) is global 'second'`, `M2 \(0x[0-9a-f]+\) is global 'first'`, `Mutex M2 previously acquired by the same thread here:\n    #0 early `},
		"thread-local data 'mine' of main thread": {`by thread T3 \(tid=\d+\), before which there was \d+:\n    #0 late`, `by thread T2 \(tid=\d+\):\n    #0 early`, `4 bytes inside of .* \(int mine.b\)`, `L1 \(mine.b\) is written`},
		"heap block of size 24":                   {`allocated by:\n    #0 main`},
	} {
		i := slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, name) })
		if i < 0 {
			t.Errorf("no race of %s", name)
			continue
		}
		for _, w := range want {
			if !regexp.MustCompile(w).MatchString(blocks[i]) {
				t.Errorf("%s: no %q", name, w)
			}
		}
	}
	if len(blocks) != 3 || t.Failed() {
		t.Errorf("%d findings:\n%s", len(blocks), r.stderr)
	}
}

// A program of whose code each way has a stack of its own (node's parser has a million before it runs a line) had used up the numbers of stacks, and all later ones were missing: of accesses only the instruction was told, of threads not who made them.
func TestManyWays(t *testing.T) {
	ofAgent(t)
	r := finish(t, command(t, map[string]any{"Full": true}, path("ways")))
	if r.code != 66 || r.stdout != "1\n" {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{`#0 touch [^#]*#1 first `, `#0 touch [^#]*#1 second `, `created by main thread at:\n +#0 main `, `not seen: .* in very many ways`} {
		if !regexp.MustCompile(want).MatchString(r.stderr) {
			t.Errorf("no %q in\n%s", want, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "are missing") {
		t.Errorf("stacks are missing:\n%s", r.stderr)
	}
}

// A shell that forked had all of its code patched first, which took 1.5 s, and a python that pyenv's script starts 12: programs of one thread need none of it (decision 72). What a process does before it has a second thread is as it is, and races behind it are found as if all had been told.
func TestSecondThread(t *testing.T) {
	ofAgent(t)
	patched := regexp.MustCompile(`stats: instructions that access memory, patched +(\d+)`)
	all := regexp.MustCompile(`stats: instructions that access memory +(\d+)\n.*instructions that access memory, in code that was run +(\d+)`)
	for _, c := range []struct {
		name  string
		races bool
	}{{"at-once", true}, {"grandchild", true}, {"blocked", true}, {"coroutine", true}, {"handler", true}, {"heap", true}, {"sandbox", false} /* the agent has no memory for what it finds there */, {"alone", false}, {"freed", false}, {"timer", false}, {"dangling", false}} {
		t.Run(c.name, func(t *testing.T) {
			native, err := exec.Command(path("second"), c.name).Output()
			if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 3 {
				t.Fatalf("natively: %v", err)
			}
			o := map[string]any{"Full": true, "Late": true, "Stats": true}
			r := finish(t, command(t, o, path("second"), c.name))
			code, found := 3, "[]"
			if c.races {
				code, found = 66, "[data-race]"
			}
			if c.name == "dangling" {
				code, found = 66, "[use-after-free-access]"
			}
			if r.code != code || r.stdout != string(native) || fmt.Sprint(summaries(r.stderr)) != found {
				t.Errorf("exit %d, output %q, natively %q, findings %v, not %s\n%s", r.code, r.stdout, native, summaries(r.stderr), found, r.stderr)
			}
			if m := patched.FindStringSubmatch(r.stderr); m == nil || (m[1] == "0") != slices.Contains([]string{"alone", "freed", "timer"}, c.name) {
				t.Errorf("patched: %q\n%s", m, r.stderr)
			}
			// Where a stack has no room for a signal's frame nothing may be left to be patched when it is first run.
			if m := all.FindStringSubmatch(r.stderr); m == nil || (m[1] == m[2]) != (c.name == "coroutine" || c.name == "sandbox" || m[1] == "0") {
				t.Errorf("told, and in code that was run: %q\n%s", m, r.stderr)
			}
			if strings.Contains(r.stderr, "threads that were not seen being made") != (c.name == "timer") {
				t.Errorf("threads that nobody saw:\n%s", r.stderr)
			}
			if c.name != "freed" {
				return
			}
			o["Late"] = false
			if r := finish(t, command(t, o, path("second"), c.name)); fmt.Sprint(summaries(r.stderr)) != "[use-after-free-access]" {
				t.Errorf("from the start %v\n%s", summaries(r.stderr), r.stderr)
			}
		})
	}
}

// --stats said that a server had taken no locks: they were added up when threads ended, and a server's never do.
func TestLocksTaken(t *testing.T) {
	for prog, want := range map[string]string{
		"server":   "3000",
		"deadlock": "2", // killed by a signal: as of each thread's last wait
	} {
		r := finish(t, command(t, map[string]any{"Stats": true}, path(prog)))
		if m := regexp.MustCompile(`stats: locks taken +(\d+)`).FindStringSubmatch(r.stderr); m == nil || m[1] != want {
			t.Errorf("%s: %q, want %s\n%s", prog, m, want, r.stderr)
		}
	}
}

// What is suppressed does not count.
func TestSuppressed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "supp")
	if err := os.WriteFile(file, []byte("deadlock:^back$\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	r := finish(t, command(t, map[string]any{"Report": map[string]any{"Suppressions": []string{file}}}, path("inversion")))
	if r.code != 3 || len(summaries(r.stderr)) != 0 {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	file2 := filepath.Join(t.TempDir(), "supp")
	os.WriteFile(file2, []byte("deadlock:^one$\n"), 0o666)
	cmd := command(t, map[string]any{"Report": map[string]any{"Suppressions": []string{file2}}}, path("deadlock"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // for a wrong end to happen; a right program gets by whatever it takes
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM || strings.Contains(errs.String(), "stuck") {
		t.Errorf("a program whose deadlock is suppressed was ended: %#x\n%s", ws, errs.String())
	}
}

// A deadlock of all threads ends the program, or not, as asked.
func TestOnDeadlock(t *testing.T) {
	r := finish(t, command(t, nil, path("deadlock")))
	if r.code != 66 || fmt.Sprint(summaries(r.stderr)) != "[deadlock]" || !strings.Contains(r.stderr, "is ended") {
		t.Errorf("exit: %d\n%s", r.code, r.stderr)
	}
	dir := t.TempDir()
	cmd := command(t, map[string]any{"OnDeadlock": "abort", "ExitCode": 0}, path("deadlock"))
	cmd.Dir = dir
	if r := finish(t, cmd); r.signal != syscall.SIGABRT || fmt.Sprint(summaries(r.stderr)) != "[deadlock]" {
		t.Errorf("abort: exit %d, signal %v\n%s", r.code, r.signal, r.stderr)
	}
	p := startProgram(t, command(t, map[string]any{"OnDeadlock": "continue"}, path("deadlock")))
	p.expectError("SUMMARY: ripstop: deadlock")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 66 {
		t.Errorf("continue: exit %d", code)
	}
	// Not all threads are stuck: it is told at once, and the program goes on.
	p = startProgram(t, command(t, nil, path("deadlock"), "x"))
	p.expectError("SUMMARY: ripstop: deadlock")
	p.in.Close()
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 66 {
		t.Errorf("part: exit %d", code)
	}
}

// program is a running runner.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan string
	errs chan string
	seen []string
}

func startProgram(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd, out: make(chan string, 1000), errs: make(chan string, 1000)}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	lines := func(r io.Reader, err error, to chan string) {
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(to)
			for sc := bufio.NewScanner(r); sc.Scan(); {
				to <- sc.Text()
			}
		}()
	}
	stdout, err := cmd.StdoutPipe()
	lines(stdout, err, p.out)
	stderr, err := cmd.StderrPipe()
	lines(stderr, err, p.errs)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return p
}

func (p *program) expect(from chan string, text string) {
	p.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-from:
			if !ok {
				p.t.Fatalf("the end, and no line with %q; there were\n%s", text, strings.Join(p.seen, "\n"))
			}
			p.seen = append(p.seen, line)
			if strings.Contains(line, text) {
				return
			}
		case <-limit:
			p.t.Fatalf("no line with %q comes; there were\n%s", text, strings.Join(p.seen, "\n"))
		}
	}
}

func (p *program) expectError(text string)  { p.t.Helper(); p.expect(p.errs, text) }
func (p *program) expectOutput(text string) { p.t.Helper(); p.expect(p.out, text) }

func (p *program) wait() {
	p.t.Helper()
	timer := time.AfterFunc(5*time.Minute, func() { p.cmd.Process.Kill() })
	for line := range p.errs {
		p.seen = append(p.seen, line)
	}
	for line := range p.out {
		p.seen = append(p.seen, line)
	}
	p.cmd.Wait()
	if !timer.Stop() {
		p.t.Fatalf("%v hangs", p.cmd)
	}
}

// A lock that is held by a thread which waits in the kernel is shown with the whole stack that took it, though the agent did not walk it then and its
// innermost frames have been left.
func TestHeldLockIsShown(t *testing.T) {
	p := startProgram(t, command(t, nil, path("holding")))
	p.expectOutput("holding")
	p.cmd.Process.Signal(syscall.SIGQUIT)
	p.expectError("previously acquired by the same thread here")
	for i, f := range []string{"enter", "section", "wide_path", "run"} {
		p.expectError(fmt.Sprintf("#%d %s ", i, f))
	}
	p.in.Close()
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// SIGQUIT and --hang-timeout show where all threads are, what they wait for, what they hold; the program does not notice.
func TestThreadsAreShown(t *testing.T) {
	p := startProgram(t, command(t, map[string]any{"HangTimeout": 300 * time.Millisecond, "OnDeadlock": "continue"}, path("deadlock"), "x"))
	p.expectOutput("ready")
	p.expectError("nothing has happened for 300ms")
	p.expectError("Is here in main thread")
	p.expectError("main")
	p.expectError("==================")
	p.cmd.Process.Signal(syscall.SIGQUIT)
	p.expectError("): SIGQUIT")
	p.expectError("Waits for mutex M1")
	p.expectError("one ")
	p.expectError("previously acquired by the same thread here")
	p.expectError("is global 'second'")
	p.in.Close()
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 66 {
		t.Errorf("exit %d", code)
	}
}

// A correct program: nothing on stderr, its own output and status. It is run many times at once, so that schedules differ.
func TestCleanRun(t *testing.T) {
	for i := 0; i < 4; i++ {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			p := startProgram(t, command(t, nil, path("busy")))
			p.expectOutput("ready")
			time.Sleep(200 * time.Millisecond) // work for the program
			p.in.Close()
			p.expectOutput("counts add up")
			p.wait()
			if code := p.cmd.ProcessState.ExitCode(); code != 5 || len(p.seen) != 2 {
				t.Errorf("exit %d, lines %q", code, p.seen)
			}
		})
	}
}

// The program sees of us nothing that it can ask for by the usual means, and ends as it would alone.
func TestTransparent(t *testing.T) {
	for name, script := range map[string]string{
		"environment":         `L env`,
		"environment of all":  `export LD_PRELOAD= FOO="a b"; L sh -c 'env; env; python3 -c "import os; print(sorted(os.environ.items()))"'`,
		"own LD_PRELOAD":      `export LD_PRELOAD=libpthread.so.0; L sh -c 'env; echo $LD_PRELOAD'`,
		"descriptors":         `exec 5</dev/null 7>/dev/null; L ls /proc/self/fd; L sh -c 'ls /proc/self/fd; ls /proc/$$/fd'`,
		"no input":            `L ls /proc/self/fd <&-`,
		"nothing open":        `L sh -c 'ls /proc/self/fd >/tmp/run-test.$PPID' <&- >&- 2>&-; rm -f /tmp/run-test.*`,
		"signals":             `trap '' PIPE USR1 HUP 40; L grep Sig[BI] /proc/self/status`,
		"limits":              `ulimit -c 0; ulimit -Sn 99; L bash -c 'ulimit -a'`,
		"few descriptors":     `ulimit -n 64; L sh -c 'ulimit -n; ls /proc/self/fd; exit 4'; echo $?`,
		"exit status":         `L sh -c 'exit 42'; echo $?`,
		"killed":              `{ L sh -c 'kill -KILL $$'; echo $?; } 2>/dev/null`,
		"crashed":             `ulimit -c 0; { L sh -c 'kill -SEGV $$'; echo $?; } 2>/dev/null`,
		"broken pipe":         `L yes | head -1; echo ${PIPESTATUS[@]}`,
		"input":               `seq 100000 | L sha256sum`,
		"pipeline":            `L bash -c 'seq 1000 | sort -rn | head -3; exit ${PIPESTATUS[0]}'`,
		"background":          `L sh -c 'sleep 0.2 & echo started; wait; echo ended'`,
		"script":              `printf '#!/bin/sh\necho $# $1; exit 9\n' >/tmp/run-test-script.$$; chmod +x /tmp/run-test-script.$$; L /tmp/run-test-script.$$ a b; echo $?; rm /tmp/run-test-script.$$`,
		"another user":        `L setpriv --reuid=12345 --regid=12345 --clear-groups id`,
		"cleared environment": `L env -i /bin/sh -c 'env; /usr/bin/env'`,
		"python":              `L python3 -c 'import threading,sys; t=threading.Thread(target=print, args=("hi",)); t.start(); t.join(); sys.exit(7)'; echo $?`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell := func(prefix string) string {
				cmd := exec.Command("/bin/bash", "-c", strings.ReplaceAll(script, "L ", prefix))
				cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "XDG_CACHE_HOME=" + path("cache"), "LC_ALL=C.UTF-8"}
				out, err := cmd.CombinedOutput()
				// The shell's own variable is the name of what it started.
				return underscore.ReplaceAllString(fmt.Sprintf("%s[%v]", out, err), "")
			}
			native, watched := shell(" "), shell(path("runner")+" '{}' run ")
			if native != watched {
				t.Errorf("natively:\n%s\nwatched:\n%s", native, watched)
			}
		})
	}
}

var underscore = regexp.MustCompile(`(?m)^_=.*\n|\('_', '[^']*'\)`)

// A program that gives up its rights is watched all the same.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	r := finish(t, command(t, nil, "setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", path("inversion")))
	if r.code != 66 || fmt.Sprint(summaries(r.stderr)) != "[lock-order-inversion]" {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
}

// If ripstop is killed the program goes on to its own end, and what is left of the session is removed by the next run.
func TestRipstopKilled(t *testing.T) {
	tmp := filepath.Join(bin, "tmp")
	if err := os.Mkdir(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 5; i++ {
		cmd := command(t, nil, path("busy"))
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		p := startProgram(t, cmd)
		p.expectOutput("ready")
		time.Sleep(time.Duration(i) * 20 * time.Millisecond) // moments of all kinds
		cmd.Process.Kill()
		time.Sleep(100 * time.Millisecond) // work for the program alone
		p.in.Close()
		p.expectOutput("counts add up")
		cmd.Wait()
	}
	left, _ := filepath.Glob(filepath.Join(tmp, "ripstop-*"))
	if len(left) != 5 {
		t.Fatalf("%d directories are left; the test does not show what it should", len(left))
	}
	old := time.Now().Add(-time.Hour)
	for _, dir := range left {
		os.Chtimes(dir, old, old)
	}
	cmd := command(t, nil, "true")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	finish(t, cmd)
	if left, _ := filepath.Glob(filepath.Join(tmp, "ripstop-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Processes that outlive the program are let go and run on.
func TestLetGo(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	r := finish(t, command(t, map[string]any{"Report": map[string]any{"Verbose": true}}, "sh", "-c",
		"(sleep 1; echo lived >"+mark+") >/dev/null 2>&1 & sleep 0.2; exit 6"))
	if r.code != 6 || !strings.Contains(r.stderr, "live on") {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		if b, _ := os.ReadFile(mark); string(b) == "lived\n" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the process that was let go did not come to its end")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// What cannot be run is told in one line, with the shell's exit codes.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		program string
		code    int
	}{{"/no/such/program", 127}, {"/", 126}, {"/etc/passwd", 126}} {
		r := finish(t, command(t, nil, c.program))
		if r.code != c.code || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q", c.program, r.code, r.stderr)
		}
	}
}

// Too few descriptors for ripstop itself is a clear error, not a crash of Go's runtime; or, for whoever may raise the limit, none at all.
func TestFewDescriptors(t *testing.T) {
	cmd := exec.Command("/bin/bash", "-c", "ulimit -n 6; exec "+path("runner")+" '{}' run sh -c 'ulimit -n; exit 4'")
	if r := finish(t, cmd); !(r.code == 125 && strings.HasPrefix(r.stderr, "runner: the limit of open files is 6")) && !(r.code == 4 && r.stdout == "6\n") ||
		strings.Count(r.stderr, "\n") > 1 {
		t.Errorf("exit %d, %q, %q", r.code, r.stdout, r.stderr)
	}
}

// --stats says what it cost; an idle program costs next to nothing.
func TestIdle(t *testing.T) {
	cmd := command(t, map[string]any{"Stats": true}, "sleep", "2")
	r := finish(t, cmd)
	if r.code != 0 || !strings.Contains(r.stderr, "stats: agent memory") {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	t.Logf("processor time for 2 s of an idle program: %v", cpu)
	if cpu > time.Second {
		t.Errorf("watching an idle program for 2 s took %v of processor time", cpu)
	}
}
