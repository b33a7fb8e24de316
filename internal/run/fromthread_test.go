package run

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fromThread is epochsOf where a process is recorded from its second thread on.
func fromThread(t *testing.T, program ...string) (result, map[string]int) {
	t.Helper()
	return epochsBy(t, map[string]any{"On": true, "Every": true, "Late": true, "Most": 10 * time.Millisecond}, program...)
}

// Each program that a shell executed under guard started 18 ms later, as all its system calls were patched before it ran. With --epochs-from=thread that is put off until there is a second thread: whatever has happened until then, its epochs are executed again as they were.
func TestEpochsFromThread(t *testing.T) {
	ofAgent(t)
	for _, k := range []struct {
		program []string
		same    int // epochs, at least
	}{
		{[]string{path("second"), "at-once"}, 1},
		{[]string{path("second"), "grandchild"}, 1},
		{[]string{path("second"), "blocked"}, 1},
		{[]string{path("second"), "coroutine"}, 1},
		{[]string{path("second"), "handler"}, 1},
		{[]string{path("second"), "heap"}, 1},
		{[]string{path("second"), "alone"}, 0},
		{[]string{path("fromthread"), "stack"}, 1},
		{[]string{path("fromthread"), "opened", path("libfromthread.so")}, 1},
		// All epochs were lost where nobody had seen the alternate stack that a handler was on.
		{[]string{path("half"), "leap"}, 5},
		// A page of shared memory that was empty when the epoch began had in its re-execution what the epoch had written: a counter there had counted twice.
		{[]string{path("sharing"), "parts"}, 1},
	} {
		t.Run(k.program[len(k.program)-1], func(t *testing.T) {
			native := finish(t, exec.Command(k.program[0], k.program[1:]...))
			r, counts := fromThread(t, k.program...)
			if r != native {
				t.Errorf("%+v, natively %+v", r, native)
			}
			noOther(t, counts)
			if same := counts["executed again: identical"]; same < k.same || k.same == 0 && counts["epochs"] != 0 {
				t.Errorf("%v", counts)
			}
		})
	}
}

// What is not recorded is said.
func TestEpochsFromThreadSaid(t *testing.T) {
	ofAgent(t)
	r, counts := fromThread(t, path("second"), "timer")
	if r.code != 3 || counts["epochs"] != 0 || !strings.Contains(r.stderr, "threads that were not seen being made") {
		t.Errorf("%+v %v", r, counts)
	}
	options := map[string]any{"Epochs": map[string]any{"On": true, "Late": true}, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}}
	r = finish(t, command(t, options, path("fromthread"), "alone"))
	if r.code != 66 || !strings.Contains(r.stderr, "as it had no second thread") || strings.Contains(r.stderr, "was written here") {
		t.Errorf("%+v", r)
	}
}

// Nobody was named where the thread that crashed stood in its function's last call when the epoch began: the return address of that call, behind which steps begin, had been written before.
func TestPointerBehindCall(t *testing.T) {
	ofAgent(t)
	options := map[string]any{"Epochs": map[string]any{"On": true, "Late": true}, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}}
	for name, cmd := range map[string]*exec.Cmd{
		"registers": command(t, options, path("fromthread"), "crash"),
		"software":  under(t, refuse(unix.EPERM, unix.SYS_PERF_EVENT_OPEN), options, path("fromthread"), "crash"),
	} {
		if r := finish(t, cmd); r.code != 66 || strings.Contains(r.stderr, "no second thread") || !regexp.MustCompile(`was written here in thread T2 .*\n +#0 spoil `).MatchString(r.stderr) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
