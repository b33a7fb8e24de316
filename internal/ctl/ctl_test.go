package ctl

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func serve(t *testing.T, h Handler) *Server {
	t.Helper()
	s, err := Listen(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// watches answers for one process.
func watches(pid int, a Answer) Handler {
	return func(_ context.Context, q Question) Answer {
		if q.PID != pid {
			return No(Absent, "not here")
		}
		return a
	}
}

// Of several that run the one answers that watches the process; reports of any length come whole.
func TestAsk(t *testing.T) {
	me := os.Getpid()
	big := bytes.Repeat([]byte("report\n"), 1<<16)
	serve(t, watches(1, Answer{Outcome: Done}))
	serve(t, watches(me, Answer{Outcome: Done, Exit: 66, Report: big}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			a := Ask(Question{PID: me, Do: DoReport, Format: "text", WithinMS: 60_000})
			if a.Outcome != Done || a.Exit != 66 || !bytes.Equal(a.Report, big) {
				t.Errorf("%s %s, exit %d, %d bytes", a.Outcome, a.Why, a.Exit, len(a.Report))
			}
		})
	}
	wg.Wait()
	if a := Ask(Question{PID: os.Getppid(), Do: DoStatus, WithinMS: 60_000}); a.Outcome != Absent || !strings.Contains(a.Why, "is not watched") {
		t.Errorf("%+v", a)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if a := Ask(Question{PID: gone.Process.Pid, Do: DoStatus, WithinMS: 60_000}); a.Outcome != Absent || !strings.Contains(a.Why, "there is no process") {
		t.Errorf("%+v", a)
	}
}

// A handler that hears nothing of the end of its time keeps nobody waiting; nor does Close, whose questions under way are answered.
func TestTime(t *testing.T) {
	me := os.Getpid()
	begun, go_on := make(chan bool, 2), make(chan bool)
	s := serve(t, func(_ context.Context, q Question) Answer {
		begun <- true
		<-go_on
		return Answer{Outcome: Done}
	})
	defer close(go_on)
	if a := Ask(Question{PID: me, Do: DoStatus, WithinMS: 1}); a.Outcome != CouldNot || !strings.Contains(a.Why, "no answer within 1ms") {
		t.Errorf("%+v", a)
	}
	<-begun
	answer := make(chan Answer)
	go func() { answer <- Ask(Question{PID: me, Do: DoStatus, WithinMS: 60_000}) }()
	<-begun
	s.Close()
	if a := <-answer; a.Outcome != Absent {
		t.Errorf("%+v", a)
	}
	if a := Ask(Question{PID: me, Do: DoStatus, WithinMS: 1000}); a.Outcome != Absent {
		t.Errorf("closed: %+v", a)
	}
}

// Who asked and is gone is heard of.
func TestHangUp(t *testing.T) {
	begun, over := make(chan bool), make(chan bool)
	s := serve(t, func(ctx context.Context, _ Question) Answer {
		begun <- true
		<-ctx.Done()
		over <- true
		return Answer{Outcome: Done}
	})
	c, err := net.Dial("unix", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Write(message(Question{Version: Version, PID: 1, Do: DoStatus, WithinMS: 60_000}))
	<-begun
	c.Close()
	<-over
}

// another is a process that is asked as one that watches itself.
func another(t *testing.T) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStopped$")
	cmd.Env = append(os.Environ(), "RIPSTOP_TEST_SERVE=1")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		in.Close()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process
}

func stop(t *testing.T, p *os.Process) {
	t.Helper()
	p.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(20 * time.Second); !isStopped(p.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not stop")
		}
	}
}

// A ripstop that is stopped does not answer; that is said at once.
func TestStopped(t *testing.T) {
	if name := os.Getenv("RIPSTOP_TEST_SERVE"); name != "" {
		s, err := Listen(watches(os.Getpid(), Answer{Outcome: Done}))
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("listens\n")
		os.Stdin.Read(make([]byte, 1))
		s.Close()
		return
	}
	p := another(t)
	q := Question{PID: p.Pid, Do: DoStatus, WithinMS: 20_000}
	if a := Ask(q); a.Outcome != Done {
		t.Errorf("%+v", a)
	}
	stop(t, p)
	if a := Ask(q); a.Outcome != CouldNot || !strings.Contains(a.Why, "is stopped") {
		t.Errorf("%+v", a)
	}
}

// Another user is refused, and told so; who is asked by another user's ripstop does not ask it. If some ripstop of root's was stopped (another test's) he was told that it would answer when it goes on, whomever it watched.
func TestForeign(t *testing.T) {
	if pid := os.Getenv("RIPSTOP_TEST_ASK"); pid != "" {
		n, _ := strconv.Atoi(pid)
		a := Ask(Question{PID: n, Do: DoStatus, WithinMS: 20_000})
		os.Stdout.WriteString(string(a.Outcome) + " " + a.Why + "\n")
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "ctltest-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/test", self, 0o755); err != nil {
		t.Fatal(err)
	}
	serve(t, watches(os.Getpid(), Answer{Outcome: Done}))
	stop(t, another(t))
	cmd := exec.Command(dir+"/test", "-test.run", "^TestForeign$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "RIPSTOP_TEST_ASK="+strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "absent ") || !strings.Contains(string(out), "those of other users (") {
		t.Errorf("%v: %s", err, out)
	}
}

// Whom we answer and whom we believe: ourselves and root.
func TestBelieved(t *testing.T) {
	if !believed(0, 1) || !believed(uint32(os.Geteuid()), 1) || believed(54321, os.Getpid()) {
		t.Error("others are believed, or we are not")
	}
}

// Questions are read from whoever connects.
func FuzzQuestion(f *testing.F) {
	f.Add(message(Question{Version: Version, PID: 12, Do: DoReport, Format: "json", WithinMS: 1000}))
	f.Add([]byte("{\"version\":1}\n"))
	f.Add([]byte("\n"))
	f.Add(bytes.Repeat([]byte("x"), 5000))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ReadQuestion(bytes.NewReader(b))
		if err == nil && (q.PID <= 0 || q.WithinMS <= 0 || q.WithinMS > maxWithin.Milliseconds() || q.Version != Version) {
			t.Errorf("%+v", q)
		}
		if err != nil && q != (Question{}) {
			t.Errorf("%v, and %+v", err, q)
		}
	})
}

// Answers are read from whoever listens.
func FuzzAnswer(f *testing.F) {
	for _, a := range []Answer{
		{Outcome: Done, Report: []byte("report"), Exit: 66}, No(Absent, "not here"), {Outcome: Done, Status: &Status{Epochs: &Epochs{Lost: map[string]uint64{"x": 1}}}},
		{Outcome: Done, Epoch: &Epoch{Differs: &Difference{}}},
	} {
		var b bytes.Buffer
		a.write(&b)
		f.Add(b.Bytes())
	}
	f.Add([]byte("{\"version\":1,\"outcome\":\"done\",\"bytes\":268435456}\nx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ReadAnswer(bytes.NewReader(b))
		if err != nil {
			return
		}
		if a.Exit < 0 || a.Exit > 255 || len(a.Report) != a.Bytes || len(a.Report) > len(b) {
			t.Errorf("%+v", a)
		}
		var again bytes.Buffer
		if err := a.write(&again); err != nil {
			t.Error(err)
		}
	})
}

// /proc/net/unix has names that others chose.
func FuzzNames(f *testing.F) {
	f.Add([]byte("Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 12345 @ripstop-ctl-1-00\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 12346 @ripstop-ctl-1-00\n0000000000000000: 00000003 00000000 00000000 0001 03 12346\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := names(bytes.NewReader(b))
		for _, n := range list {
			if !strings.HasPrefix(n, prefix) || strings.ContainsAny(n, " \n") {
				t.Errorf("%q", n)
			}
		}
	})
}

func TestNames(t *testing.T) {
	list, err := names(strings.NewReader("0000000000000000: 00000002 00000000 00010000 0001 01 12345 @ripstop-ctl-1-00\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 12346 @ripstop-ctl-1-00\n0000000000000000: 00000002 00000000 00010000 0001 01 12347 /run/x\n"))
	if err != nil || len(list) != 1 || list[0] != "@ripstop-ctl-1-00" {
		t.Errorf("%q, %v", list, err)
	}
}
