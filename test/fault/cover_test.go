package fault

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Code that `run --full` would have patched when it is first run goes on as it is where nobody is there any more to patch it: in the program, and in a child that it makes then, with an int3 of its own.
func TestKillCovered(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "cover")
	if out, err := exec.Command("gcc", "-O1", "-Wall", "-pthread", "-o", prog, "../../internal/engine/testdata/cover.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// lines runs it, and has something done when it is in the middle.
	lines := func(between func(*exec.Cmd), argv ...string) string {
		cmd := exec.Command(argv[0], argv[1:]...)
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
		r := bufio.NewReader(out)
		first, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		between(cmd)
		in.Close()
		rest, err := io.ReadAll(r) // up to the program's end
		if err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // its status is that of a killed process
		return first + string(rest)
	}
	want := lines(func(*exec.Cmd) {}, prog, "gone")
	if !strings.HasPrefix(want, "ready") || !strings.Contains(want, "\nchild 5\n") {
		t.Fatalf("natively: %q", want)
	}
	for name, between := range map[string]func(*exec.Cmd){
		"killed": func(cmd *exec.Cmd) { _ = cmd.Process.Kill() },
		"lives":  func(*exec.Cmd) {},
	} {
		if got := lines(between, ripstop, "run", "--full", "--", prog, "gone"); got != want {
			t.Errorf("%s: %q, natively %q", name, got, want)
		}
	}
}
