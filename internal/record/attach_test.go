package record

import (
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
)

// A process that already runs is sampled until it ends, and ends as it would have; what cannot be attached to, or in no such way, is one error.
func TestAttach(t *testing.T) {
	cmd := exec.Command(filepath.Join(bin, "busy"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, ready); err != nil || string(ready) != "ready\n" {
		t.Fatalf("%q, %v", ready, err)
	}
	pid := cmd.Process.Pid
	tids, err := tracee.Threads(pid)
	if err != nil || len(tids) < 2 {
		t.Fatalf("%v, %v", tids, err)
	}
	dir := filepath.Join(t.TempDir(), "trace")
	for _, c := range []struct {
		pid  int
		mode sample.Mode
		want string
	}{
		{pid, sample.None, "--sample=auto"},
		{pid, sample.Step, "--sample=step"},
		{tids[1], sample.Timer, "is a thread of process " + strconv.Itoa(pid)},
		{1 << 22, sample.Timer, "there is no process"},
	} {
		code, err := Attach(Options{Dir: dir, Sampling: Sampling{Mode: c.mode}}, c.pid)
		if code != 125 || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q of %d: %d, %v", c.mode, c.pid, code, err)
		}
	}
	var said said
	said.on = func(text string) {
		if strings.Contains(text, "sampling process") { // it is attached: the program may end
			in.Close()
		}
	}
	rest := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(out)
		rest <- string(b)
		cmd.Wait()
	}()
	code, err := Attach(Options{Dir: dir, Messages: &said, Sampling: Sampling{Mode: sample.Timer}}, pid)
	if code != 0 || err != nil || !strings.Contains(said.String(), "it has ended") {
		t.Errorf("%d, %v\n%s", code, err, said.String())
	}
	if text := <-rest; text != "counts add up\n" {
		t.Errorf("the program said %q", text)
	}
	s, err := sample.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Threads) < len(tids) || !s.Info.Attached || !s.Info.Complete || len(s.Damage) > 0 {
		t.Errorf("%d threads of %d, %+v, %v", len(s.Threads), len(tids), s.Info, s.Damage)
	}
	if code, _, stderr := runner(t, "report", ReportOptions{Dir: dir, ExitCode: 66}); code != 0 {
		t.Errorf("report: exit %d\n%s", code, stderr)
	}
}

// said keeps messages and tells of each.
type said struct {
	bytes.Buffer
	on func(text string)
}

func (s *said) Write(b []byte) (int, error) {
	s.on(string(b))
	return s.Buffer.Write(b)
}
