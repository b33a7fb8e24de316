package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Go's functions were patched like C's: run --full used more of a goroutine's stack than there is, and the program died of SIGSEGV. Under guard --epochs the runtime, which
// makes its system calls itself, was told that ripstop's alternate stack is the program's, and ended by "non-Go code set up signal handler without SA_ONSTACK flag". It is left alone now, which is said.
func TestGo(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("goes")))
	if native.code != 0 || !strings.Contains(native.stdout, "nil pointer") {
		t.Fatalf("natively %+v", native)
	}
	for _, x := range []struct {
		how  map[string]any
		said string
	}{
		{map[string]any{}, ""},
		{map[string]any{"Guard": map[string]any{"Bytes": 16}}, ""},
		{map[string]any{"Full": true}, "on whose small stacks nothing can be called"},
		{map[string]any{"Epochs": map[string]any{"On": true, "Most": 5 * time.Millisecond, "Every": true}}, "no epoch of this process is recorded"},
	} {
		x.how["ExitCode"] = 0
		for range 3 {
			r := finish(t, command(t, x.how, path("goes")))
			if r.code != native.code || r.signal != native.signal || r.stdout != native.stdout {
				t.Errorf("%v: %+v\nnatively %+v", x.how, r, native)
			}
			if !strings.Contains(r.stderr, x.said) {
				t.Errorf("%v: says %s", x.how, r.stderr)
			}
		}
	}
}

// A SIGTRAP that a Go program with C in it sent to itself was lost under guard in one of a hundred runs: its threads begin with all signals blocked, and unblock them past us, so the thread that was interrupted kept it for later.
func TestUnblockedPastUs(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("unblocks")))
	if native.code != 3 || native.stdout != "1 1\n" {
		t.Fatalf("natively %+v", native)
	}
	for _, how := range []map[string]any{{}, {"Full": true}, {"Epochs": map[string]any{"On": true, "Most": 5 * time.Millisecond, "Every": true}}, {"Epochs": map[string]any{"On": true, "Late": true}}} {
		how["ExitCode"] = 0
		if r := finish(t, command(t, how, path("unblocks"))); r.code != native.code || r.stdout != native.stdout {
			t.Errorf("%v: %+v", how, r)
		}
	}
}

// Ruby, which at its start uses up all of its first thread's stack but for 4 KiB, to have it, died of SIGSEGV under run --full, whose functions run on that stack.
func TestReservedStack(t *testing.T) {
	ofAgent(t)
	for _, left := range []string{"4096", "1024", "512"} {
		native := finish(t, exec.Command(path("reserves"), left))
		if native.code != 0 {
			t.Fatalf("natively %+v", native)
		}
		r := finish(t, command(t, map[string]any{"ExitCode": 0, "Full": true}, path("reserves"), left))
		if r.code != 0 || r.signal != 0 || r.stdout != native.stdout {
			t.Errorf("%s: %+v\nnatively %+v", left, r, native)
		}
		if !strings.Contains(r.stderr, "first thread's stack was nearly used up") || !strings.Contains(r.stderr, "data race") {
			t.Errorf("%s: says %s", left, r.stderr)
		}
	}
}

// Of a program that is linked to a fixed address and has a pointer to strcmp (as node has) the dynamic linker wrote a warning to its standard error under run --full: our strcmp was of protected visibility.
func TestPointers(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("points")))
	if native.code != 0 || native.stdout != "1 0\n" {
		t.Fatalf("natively %+v", native)
	}
	for _, how := range []map[string]any{{}, {"Full": true}, {"Guard": map[string]any{"Bytes": 16}}} {
		r := finish(t, command(t, how, path("points")))
		var said []string
		for line := range strings.Lines(r.stderr) {
			if !strings.HasPrefix(line, "ripstop: not seen: ") {
				said = append(said, line)
			}
		}
		if r.code != 0 || r.stdout != native.stdout || said != nil {
			t.Errorf("%v: %+v", how, r)
		}
	}
}
