package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	launchBinary  string // testdata/launch
	signalsBinary string // testdata/signals.c
)

func TestMain(m *testing.M) {
	// Run under nohup, this process ignores SIGHUP, and so would all that it starts: what is caught is the default again after exec.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	dir, err := os.MkdirTemp("", "agenttest-")
	if err != nil {
		panic(err)
	}
	launchBinary, signalsBinary = filepath.Join(dir, "launch"), filepath.Join(dir, "signals")
	build := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd, err, out)
			os.Exit(1)
		}
	}
	// As the Makefile builds ripstop.
	build("go", "build", "-ldflags", "-E ripstop_entry", "-o", launchBinary, "./testdata/launch")
	build("gcc", "-O1", "-Wall", "-Werror", "-o", signalsBinary, "testdata/signals.c")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// outcome runs a command line natively or launched.
func outcome(t *testing.T, script string, env []string) string {
	t.Helper()
	cmd := exec.Command("/bin/bash", "-c", script)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s[%v]", out, err)
}

// What the program can see of how it was started is the same launched as natively: environment, descriptors, limits, signal mask and
// dispositions, group, directory; and so is how it ends.
func TestLaunchIsTransparent(t *testing.T) {
	for name, script := range map[string]string{
		"exit status":        `L sh -c 'exit 42'`,
		"success":            `L true`,
		"killed":             `{ L sh -c 'kill -KILL $$'; echo $?; } 2>/dev/null`,
		"terminated":         `{ L sh -c 'kill -TERM $$'; echo $?; } 2>/dev/null`,
		"crashed":            `ulimit -c 0; { L sh -c 'kill -SEGV $$'; echo $?; } 2>/dev/null`,
		"broken pipe":        `L yes | head -1; echo ${PIPESTATUS[@]}`,
		"real time signal":   `{ L sh -c 'kill -40 $$'; echo $?; } 2>/dev/null`,
		"signals":            `L grep Sig[BI] /proc/self/status`,
		"ignored signals":    `trap '' PIPE USR1 HUP INT TERM 40; L grep Sig[BI] /proc/self/status`,
		"ignored SIGCHLD":    `exec env --ignore-signal=CHLD L sh -c 'grep Sig[BI] /proc/self/status; exit 3'`,
		"blocked signals":    `exec env --block-signal=USR1,TERM,CHLD,45 L grep Sig[BI] /proc/self/status`,
		"status of children": `L bash -c 'false; echo $?; (exit 9); echo $?'`,
		"open files":         `ulimit -Sn 123; L bash -c 'ulimit -Sn; ulimit -Hn'`,
		"limits":             `ulimit -c 77; ulimit -s 4000; L bash -c 'ulimit -a'`,
		"limits low for us":  `ulimit -S -v 300000 -d 100000 -f 4 -t 100 -u 5000; L bash -c 'ulimit -a'`,
		"hard limits":        `ulimit -v 3000000 -d 1000000 -f 10000 -t 100 -u 5000; L bash -c 'ulimit -a; ulimit -Ha'`,
		"descriptors":        `exec 5</dev/null 7>/dev/null; L ls /proc/self/fd`,
		"no input":           `L ls /proc/self/fd <&-`,
		"no output":          `L sh -c 'ls /proc/self/fd >&2' >&-`,
		"nothing open":       `L sh -c 'ls /proc/self/fd >/tmp/agent-launch.$PPID' <&- >&- 2>&-; rm -f /tmp/agent-launch.*`,
		"input":              `echo hello | L cat`,
		"group and session":  `cut -d' ' -f5,6 /proc/self/stat | tr '\n' ' ' >/dev/null; L sh -c 'set -- $(cut -d" " -f5,6,7 /proc/self/stat); test $1 = $(cut -d" " -f5 /proc/'$$'/stat) && echo same'`,
		"directory, umask":   `cd /usr; umask 027; L sh -c 'pwd; umask'`,
		"nice":               `nice -n 5 L nice`,
		"argv[0]":            `L sh -c 'echo $0 "$@"' a "b  c" ''`,
		"killing the group":  `setsid -w L bash -c 'trap "echo got it; exit 3" TERM; kill 0; sleep 5'; echo $?`,
		"name":               `L cat /proc/self/comm`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			native := outcome(t, strings.ReplaceAll(script, "L ", " "), []string{"FOO=bar"})
			launched := outcome(t, strings.ReplaceAll(script, "L ", launchBinary+" "), []string{"FOO=bar"})
			if native != launched {
				t.Errorf("natively:\n%s\nlaunched:\n%s", native, launched)
			}
		})
	}
}

// The environment is passed on string for string, also what Go's packages would drop.
func TestLaunchEnvironment(t *testing.T) {
	env := []string{"B=2", "A=1", "A=again", "no assignment", "=x", "EMPTY=", "PATH=/bin", "B=2", "LAST=\xff\xfe"}
	read := func(argv ...string) string {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: env, Files: []*os.File{nil, w, os.Stderr}})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		b.ReadFrom(r)
		p.Wait()
		return strings.ReplaceAll(b.String(), "\x00", "\n")
	}
	native := read("/bin/cat", "/proc/self/environ")
	if native != strings.Join(env, "\n")+"\n" {
		t.Fatalf("the test's own way changes the environment: %q", native)
	}
	if launched := read(launchBinary, "/bin/cat", "/proc/self/environ"); launched != native {
		t.Errorf("natively %q\nlaunched %q", native, launched)
	}
}

// What cannot be run, or not be watched, is refused with one line and the shell's exit codes.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cc := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		src := file(name+".c", "int main(void) { return 0; }", 0o666)
		if out, err := exec.Command(args[0], append(args[1:], "-o", path, src)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return path
	}
	good := cc("good", "gcc")
	object := cc("object", "gcc", "-c")
	if err := os.Chmod(object, 0o777); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(name string, f func([]byte) []byte) string { return file(name, string(f(bytes.Clone(b))), 0o777) }
	put := func(name string, at int, v ...byte) string {
		return patch(name, func(b []byte) []byte { copy(b[at:], v); return b })
	}
	// Whoever is not root takes Debian's own.
	setuid, setgid := "/usr/bin/su", "/usr/bin/chage"
	if os.Geteuid() == 0 {
		setuid = patch("setuid", func(b []byte) []byte { return b })
		setgid = patch("setgid", func(b []byte) []byte { return b })
		for _, err := range []error{os.Chown(setuid, 12345, 12345), os.Chmod(setuid, 0o755|os.ModeSetuid),
			os.Chown(setgid, 0, 12345), os.Chmod(setgid, 0o755|os.ModeSetgid)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	own := patch("own", func(b []byte) []byte { return b })
	os.Chmod(own, 0o755|os.ModeSetuid)
	loop := filepath.Join(dir, "loop")
	file("loop", "#!"+loop+"\n", 0o777)

	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{good, 0, ""},
		{own, 0, ""}, // setuid to ourselves gives nothing
		{file("script", "#!/bin/sh\nexit 0\n", 0o777), 0, ""},
		{file("script2", "#! "+filepath.Join(dir, "script")+" x\n", 0o777), 0, ""},
		{file("plain", "exit 5\n", 0o777), 5, ""},
		{file("empty", "", 0o777), 0, ""},
		{filepath.Join(dir, "missing"), 127, "no such file"},
		{"no-such-program-anywhere", 127, "no such program in PATH"},
		{filepath.Join(good, "x"), 127, "no such file"},
		{dir, 126, "is a directory"},
		{file("data", "x", 0o666), 126, "permission denied"},
		{"/dev/null", 126, "permission denied"},
		{file("zeros", "\x00\x00\x00\x00", 0o777), 126, "neither a program of this machine nor a script"},
		{file("nointerp", "#!/no/such/shell\n", 0o777), 127, "its interpreter /no/such/shell does not exist"},
		{file("noname", "#! \n", 0o777), 126, "names no interpreter"},
		{loop, 126, "too many levels"},
		{cc("static", "gcc", "-static"), 126, "statically linked"},
		{cc("static-pie", "gcc", "-static-pie"), 126, "statically linked"},
		{cc("asan", "gcc", "-fsanitize=address"), 126, "built with AddressSanitizer"},
		{cc("asan-static", "gcc", "-fsanitize=address", "-static-libasan"), 0, ""},
		{cc("tsan", "gcc", "-fsanitize=thread"), 126, "built with ThreadSanitizer"},
		{cc("tsan-static", "gcc", "-fsanitize=thread", "-static-libtsan"), 126, "built with ThreadSanitizer"},
		{cc("ubsan", "gcc", "-fsanitize=undefined"), 0, ""},
		{cc("m32", "gcc", "-m32"), 126, "32-bit"},
		{cc("musl", "musl-gcc"), 126, "musl"},
		{object, 126, "an object file"},
		{setuid, 126, "setuid"},
		{setgid, 126, "setgid"},
		{patch("cut", func(b []byte) []byte { return b[:100] }), 126, "damaged ELF file"},
		{patch("short", func(b []byte) []byte { return b[:2000] }), 126, "truncated"},
		{patch("magic only", func(b []byte) []byte { return b[:4] }), 126, "damaged ELF file"},
		{put("arm", 18, 183, 0), 126, "another machine (aarch64)"},
		{put("big-endian", 5, 2), 126, ""},
		{put("class", 4, 9), 126, "damaged ELF file"},
		{put("many headers", 56, 0xff, 0xff), 126, "damaged ELF file"},
		{put("header size", 54, 1, 0), 126, "damaged ELF file"},
		{put("headers far away", 32, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), 126, "damaged ELF file"},
		{patch("other linker", func(b []byte) []byte {
			return bytes.Replace(b, []byte("/lib64/ld-linux-x86-64.so.2"), []byte("/system/bin/linker64\x00\x00\x00\x00\x00\x00\x00"), 1)
		}), 126, "not glibc's"},
		{patch("no linker", func(b []byte) []byte {
			return bytes.Replace(b, []byte("/lib64/ld-linux-x86-64.so.2"), []byte("/lib99/ld-linux-x86-64.so.2"), 1)
		}), 127, "/lib99/ld-linux-x86-64.so.2 does not exist"},
	} {
		cmd := exec.Command(launchBinary, c.path)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.Run()
		text := stderr.String()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(text, c.want) || strings.Count(text, "\n") > 1 || (c.code != 0 && c.code != 5 && text == "") {
			t.Errorf("%s: exit %d, %q; want %d, %q", filepath.Base(c.path), code, text, c.code, c.want)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("not root: without a program that has capabilities")
		return
	}
	// Capabilities count for those who have none.
	capable := patch("capable", func(b []byte) []byte { return b })
	if out, err := exec.Command("setcap", "cap_net_raw+ep", capable).CombinedOutput(); err != nil {
		t.Fatalf("setcap: %v %s", err, out)
	}
	os.Chmod(dir, 0o755)
	os.Chmod(filepath.Dir(launchBinary), 0o755)
	for _, d := range []string{filepath.Dir(dir)} {
		os.Chmod(d, 0o755)
	}
	cmd := exec.Command(launchBinary, capable)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "setcap") {
		t.Errorf("capable: %q", out)
	}
	if out, err := exec.Command(launchBinary, capable).CombinedOutput(); err != nil {
		t.Errorf("capable, as root: %v %q", err, out)
	}
}

// Under ulimit -v or -u the words of Go's runtime came, a screenful, and its status 2, perhaps after the program had been started. Where the limit is
// only a soft one it now holds for the program alone; where it is a hard one there is a line that says how much is needed.
func TestHardLimits(t *testing.T) {
	for _, dir := range []string{filepath.Dir(launchBinary), launchBinary} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[string]string{
		"-v 300000": "the limit on address space is too low (ulimit -v): ripstop needs 900000",
		"-v 899999": "the limit on address space is too low (ulimit -v): ripstop needs 900000",
		"-v 900000": "",
		"-d 100000": "the limit on memory is too low (ulimit -d): ripstop needs 200000",
		"-d 200000": "",
		"-u 1":      "the limit on processes and threads is reached (ulimit -u): ripstop needs room for 24 more",
		"-u 12":     "the limit on processes and threads is reached (ulimit -u): ripstop needs room for 24 more",
		"-u 60":     "",
		"-l 0":      "",
		"-s 64":     "",
		"-c 0":      "",
		"-i 0":      "",
	} {
		cmd := exec.Command("bash", "-c", "ulimit "+limit+" && exec "+launchBinary+" /bin/echo hello")
		// Root may raise hard limits, and is not counted by ulimit -u. A user of our own, whom nobody else's processes are counted for.
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 23579, Gid: 23579}}
		} else if strings.HasPrefix(limit, "-u") {
			t.Log("not root: without ulimit", limit)
			continue
		}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		wantCode := 0
		if want == "" {
			want = "hello\n"
		} else {
			want, wantCode = "ripstop: "+want+"\n", ExitOurs
		}
		if cmd.ProcessState.ExitCode() != wantCode || string(out) != want {
			t.Errorf("ulimit %s: %v, want status %d and %q; got\n%.500s", limit, err, wantCode, want, out)
		}
	}
}

// launched is a running launch of the signals program.
type launched struct {
	t     *testing.T
	pid   int
	lines chan string
}

func launchSignals(t *testing.T, cmd *exec.Cmd) *launched {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &launched{t, cmd.Process.Pid, make(chan string, 100)}
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			l.lines <- sc.Text()
		}
		close(l.lines)
	}()
	l.expect("ready")
	return l
}

func (l *launched) expect(want string) {
	l.t.Helper()
	select {
	case got := <-l.lines:
		if got != want {
			l.t.Fatalf("the program says %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		l.t.Fatalf("the program does not say %q", want)
	}
}

// wait waits for the launcher's next change of state.
func (l *launched) wait() unix.WaitStatus {
	l.t.Helper()
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(l.pid, &ws, unix.WUNTRACED|unix.WCONTINUED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			l.t.Fatal(err)
		}
		return ws
	}
}

// Signals sent to us reach the program, once each; SIGQUIT is ours; stopping and going on work on both as on one.
func TestSignalsArePassedOn(t *testing.T) {
	cmd := exec.Command(launchBinary, signalsBinary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = w
	l := launchSignals(t, cmd)
	w.Close()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, 40} {
		unix.Kill(l.pid, sig)
		l.expect(fmt.Sprintf("signal %d", int(sig)))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTSTP} {
		unix.Kill(l.pid, sig)
		if ws := l.wait(); !ws.Stopped() || ws.StopSignal() != sig {
			t.Fatalf("wait status %#x, want stopped by %v", ws, sig)
		}
		unix.Kill(l.pid, syscall.SIGCONT)
		if ws := l.wait(); !ws.Continued() {
			t.Fatalf("wait status %#x, want continued", ws)
		}
		unix.Kill(l.pid, syscall.SIGUSR1) // shows that the program runs again
		l.expect(fmt.Sprintf("signal %d", int(syscall.SIGUSR1)))
	}
	// To the program alone.
	child := onlyChild(t, l.pid)
	unix.Kill(child, syscall.SIGSTOP)
	if ws := l.wait(); !ws.Stopped() || ws.StopSignal() != syscall.SIGSTOP {
		t.Fatalf("wait status %#x, want stopped by SIGSTOP", ws)
	}
	unix.Kill(-l.pid, syscall.SIGCONT) // to the group, as a shell does
	if ws := l.wait(); !ws.Continued() {
		t.Fatalf("wait status %#x, want continued", ws)
	}
	// Said before SIGTERM ends the program: on a busy machine it ended, and we with it, before SIGQUIT had been looked at.
	unix.Kill(l.pid, syscall.SIGQUIT)
	said := make([]byte, len("launch: SIGQUIT\n"))
	if _, err := io.ReadFull(stderr, said); err != nil || string(said) != "launch: SIGQUIT\n" {
		t.Fatalf("stderr %q, %v", said, err)
	}
	unix.Kill(l.pid, syscall.SIGTERM)
	l.expect(fmt.Sprintf("signal %d", int(syscall.SIGTERM)))
	if ws := l.wait(); !ws.Exited() || ws.ExitStatus() != 7 {
		t.Errorf("wait status %#x", ws)
	}
	if rest, err := io.ReadAll(stderr); err != nil || len(rest) > 0 {
		t.Errorf("stderr has %q besides, %v", rest, err)
	}
}

// launchAlone begins the program of signals in a process group of its own, whose end is the test's.
func launchAlone(t *testing.T) (l *launched, program int) {
	t.Helper()
	cmd := exec.Command(launchBinary, signalsBinary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l = launchSignals(t, cmd)
	t.Cleanup(func() { unix.Kill(-l.pid, syscall.SIGKILL) })
	return l, onlyChild(t, l.pid)
}

// Found by redis's tests (integration/shutdown), which stop a replica by SIGSTOP and let it go on by SIGCONT: ripstop had stopped with it, as a shell's job control wants, and nobody let it go on. The program ran, unseen, to its end, and then waited for ever to
// be reaped.
func TestGoesOnWithTheProgram(t *testing.T) {
	l, program := launchAlone(t)
	stop := func() {
		t.Helper()
		unix.Kill(program, syscall.SIGSTOP)
		if ws := l.wait(); !ws.Stopped() || ws.StopSignal() != syscall.SIGSTOP {
			t.Fatalf("wait status %#x, want stopped by SIGSTOP", ws)
		}
	}
	for range 10 {
		stop()
		unix.Kill(program, syscall.SIGCONT) // to the program alone
		if ws := l.wait(); !ws.Continued() {
			t.Fatalf("wait status %#x, want continued", ws)
		}
		unix.Kill(l.pid, syscall.SIGUSR1)
		l.expect(fmt.Sprintf("signal %d", int(syscall.SIGUSR1)))
	}
	// At once, so that it may have gone on before we have stopped.
	for range 20 {
		unix.Kill(program, syscall.SIGSTOP)
		unix.Kill(program, syscall.SIGCONT)
		unix.Kill(l.pid, syscall.SIGUSR1)
		l.expect(fmt.Sprintf("signal %d", int(syscall.SIGUSR1)))
	}
}

// A program that is ended while it is stopped ends us too, as it ends.
func TestEndsWithTheStoppedProgram(t *testing.T) {
	l, program := launchAlone(t)
	unix.Kill(program, syscall.SIGSTOP)
	if ws := l.wait(); !ws.Stopped() {
		t.Fatalf("wait status %#x, want stopped", ws)
	}
	unix.Kill(program, syscall.SIGKILL)
	ws := l.wait()
	for ws.Continued() {
		ws = l.wait()
	}
	if !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("wait status %#x, want ended by SIGKILL", ws)
	}
}

// kill -TERM -PGID, and with it every test runner that ends its jobs so, reached the program twice: once directly, and once passed on by us, who are
// in the group too. Nothing about a signal says whether it was sent to us or to our group.
func TestSignalsToTheGroup(t *testing.T) {
	cmd := exec.Command(launchBinary, signalsBinary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l := launchSignals(t, cmd)
	program := onlyChild(t, l.pid)
	defer unix.Kill(-l.pid, syscall.SIGKILL)
	// What is passed on comes in the order in which it was sent to us: were one of the group's passed on too, it would be seen before SIGUSR2. The
	// first of them shows that the program is being supervised.
	say := func(sig syscall.Signal) { l.expect(fmt.Sprintf("signal %d", int(sig))) }
	unix.Kill(l.pid, syscall.SIGUSR2)
	say(syscall.SIGUSR2)
	for range 20 {
		for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP, 40} {
			unix.Kill(-l.pid, sig)
			say(sig)
			unix.Kill(l.pid, syscall.SIGUSR2)
			say(syscall.SIGUSR2)
		}
		// As timeout(1) does: to us and to the group. Natively these are two.
		unix.Kill(l.pid, 41)
		unix.Kill(-l.pid, 41)
		say(41)
		say(41)
		unix.Kill(l.pid, syscall.SIGUSR2)
		say(syscall.SIGUSR2)
	}
	// Where the one that tells them apart is gone, what is sent to us is still passed on.
	var others []byte
	for _, f := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", l.pid))) {
		b, _ := os.ReadFile(f)
		others = append(others, b...)
	}
	for _, f := range strings.Fields(string(others)) {
		if pid, _ := strconv.Atoi(f); pid != program {
			unix.Kill(pid, syscall.SIGKILL)
		}
	}
	unix.Kill(l.pid, syscall.SIGUSR2)
	say(syscall.SIGUSR2)
	unix.Kill(l.pid, syscall.SIGTERM)
	say(syscall.SIGTERM)
	if ws := l.wait(); !ws.Exited() || ws.ExitStatus() != 7 {
		t.Errorf("wait status %#x", ws)
	}
	cmd.Wait()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A job in the background of a shell script is born with SIGINT and SIGQUIT ignored. The program keeps it so; we still answer SIGQUIT, for it
// is in scripts, too, that the threads of a program that hangs are asked for.
func TestQuitOfBackgroundJob(t *testing.T) {
	cmd := exec.Command("sh", "-c", `trap '' INT QUIT; exec "$@"`, "sh", launchBinary, signalsBinary)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stderr = w
	l := launchSignals(t, cmd)
	w.Close()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", onlyChild(t, l.pid)))
	if err != nil {
		t.Fatal(err)
	}
	var ignored uint64
	_, line, _ := strings.Cut(string(status), "SigIgn:")
	if fmt.Sscanf(line, "%x", &ignored); ignored&6 != 6 {
		t.Errorf("the program does not ignore SIGINT and SIGQUIT: %#x", ignored)
	}
	unix.Kill(l.pid, syscall.SIGQUIT)
	stderr := bufio.NewReader(r)
	said, _ := stderr.ReadString('\n') // of two signals at once the second may be seen first, and end the program
	unix.Kill(l.pid, syscall.SIGTERM)
	l.expect(fmt.Sprintf("signal %d", int(syscall.SIGTERM)))
	l.wait()
	cmd.Wait()
	if more, _ := io.ReadAll(stderr); said+string(more) != "launch: SIGQUIT\n" {
		t.Errorf("stderr %q, then %q", said, more)
	}
}

// What was ignored when a background job began is the program's to handle all the same: tor in the background of a script, with a handler for SIGINT,
// was sent one, which ended at us.
func TestSignalsIgnoredAtFirst(t *testing.T) {
	cmd := exec.Command("sh", "-c", `trap '' INT HUP; exec "$@"`, "sh", launchBinary, "perl", "-e",
		`$| = 1; $SIG{INT} = sub { print "interrupted\n"; exit 4 }; print "ready\n"; sleep 1 while 1`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, step := range []struct {
		line string
		sigs []syscall.Signal
	}{{"ready", []syscall.Signal{syscall.SIGHUP, syscall.SIGINT}}, {"interrupted", nil}} {
		if !lines.Scan() || lines.Text() != step.line {
			t.Fatalf("%q, want %q", lines.Text(), step.line)
		}
		for _, sig := range step.sigs {
			unix.Kill(cmd.Process.Pid, sig)
		}
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("exit status %d, want 4", code)
	}
}

// onlyChild is the only child, but for the sentinel, which is younger and has no name at first.
func onlyChild(t *testing.T, pid int) (child int) {
	t.Helper()
	eventually(t, "a child", func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			for _, s := range strings.Fields(string(b)) {
				p, _ := strconv.Atoi(s)
				name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p))
				if err == nil && strings.TrimSpace(string(name)) != SentinelName && (child == 0 || p < child) {
					child = p
				}
			}
		}
		return child != 0
	})
	return child
}

// A signal by which the program dies is ours too; who waits for us sees the same.
func TestDeathBySignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGPIPE, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGALRM, 50} {
		cmd := exec.Command(launchBinary, "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", int(sig)))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.Run()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ws.Signaled() || ws.Signal() != sig || ws.CoreDump() || out.Len() != 0 {
			t.Errorf("%v: wait status %#x, output %q", sig, ws, out.String())
		}
	}
}

// On a terminal, in a shell with job control: ^Z stops and fg goes on, ^C reaches the program once.
func TestJobControl(t *testing.T) {
	pty := openPTY(t)
	cmd := exec.Command("/bin/bash", "--norc", "--noediting", "-i")
	cmd.Env = append(os.Environ(), "PS1=prompt> ", "HISTFILE=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pty.slave, pty.slave, pty.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pty.slave.Close()
	pty.expect("prompt> ")
	pty.send(launchBinary + " " + signalsBinary + "\n")
	pty.expect("ready")
	pty.send("\x1a") // ^Z
	pty.expect("Stopped")
	pty.expect("prompt> ")
	pty.send("fg\n")
	launcher := onlyChild(t, cmd.Process.Pid)
	program := onlyChild(t, launcher)
	defer unix.Kill(program, syscall.SIGKILL)
	// The shell says what it does before it does it: hands over the terminal, lets the job go on.
	eventually(t, "the job is in the foreground and runs", func() bool {
		pgrp, err := unix.IoctlGetInt(int(pty.master.Fd()), unix.TIOCGPGRP)
		return err == nil && pgrp == launcher && stateOf(launcher) != 'T' && stateOf(program) != 'T'
	})
	pty.send("\x03") // ^C
	pty.expect("signal 2\r\n")
	pty.send("\x1a")
	pty.expect("Stopped")
	pty.send("bg\n")
	pty.expect("&")
	pty.send("kill -USR1 %1\n") // to the group: the program and us
	pty.expect("signal 10\r\n")
	pty.send("kill -TERM %1; wait %1; echo status $?\n")
	pty.expect("status 7")
	if n := strings.Count(pty.seen.String(), "signal 2\r\n"); n != 1 {
		t.Errorf("the program got SIGINT %d times", n)
	}
}

// The program is on the terminal as it would be alone.
func TestTerminal(t *testing.T) {
	pty := openPTY(t)
	cmd := exec.Command(launchBinary, "bash", "-c", "tty; stty size; read x; echo got $x; test -t 0 && test -t 1 && echo terminal")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pty.slave, pty.slave, pty.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	pty.slave.Close()
	pty.expect("/dev/pts/")
	pty.send("word\n")
	pty.expect("got word")
	pty.expect("terminal")
}

// stateOf is the third field of /proc/PID/stat: R, S, D, T, …; 0 if it cannot be read.
func stateOf(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := bytes.LastIndexByte(b, ')')
	if err != nil || i < 0 || i+2 >= len(b) {
		return 0
	}
	return b[i+2]
}

type pty struct {
	t             *testing.T
	master, slave *os.File
	data          chan []byte
	pending       string
	seen          strings.Builder
}

func openPTY(t *testing.T) *pty {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, master: os.NewFile(uintptr(fd), "ptmx"), slave: slave, data: make(chan []byte, 100)}
	t.Cleanup(func() { p.master.Close(); slave.Close() })
	go func() {
		for {
			b := make([]byte, 4096)
			n, err := p.master.Read(b)
			if err != nil {
				close(p.data)
				return
			}
			p.data <- b[:n]
		}
	}()
	return p
}

func (p *pty) send(s string) {
	p.t.Helper()
	if _, err := p.master.WriteString(s); err != nil {
		p.t.Fatal(err)
	}
}

// expect waits for text and forgets what came before it.
func (p *pty) expect(text string) {
	p.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		if _, rest, ok := strings.Cut(p.pending, text); ok {
			p.pending = rest
			return
		}
		select {
		case b, ok := <-p.data:
			if !ok {
				p.t.Fatalf("the terminal is closed; %q has not come, but %q", text, p.pending)
			}
			p.pending += string(b)
			p.seen.Write(b)
		case <-limit:
			p.t.Fatalf("%q does not come; there is %q", text, p.pending)
		}
	}
}
