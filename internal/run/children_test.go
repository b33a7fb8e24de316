package run

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childRunning builds testdata/child.c, whose child does what another program of testdata does.
func childRunning(t *testing.T, program string, flags ...string) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "child")
	args := append([]string{"-g", "-O1", "-Wall", "-Wno-array-bounds", "-Wno-stringop-overflow", "-fno-stack-protector", "-pthread", "-include", "signal.h", "-include", "string.h", "-include", "unistd.h", "-DOF=\"" + program + ".c\"", "-o", prog, "testdata/child.c"}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// recordedChildren waits for all processes.
func recordedChildren(most time.Duration, every bool) map[string]any {
	return map[string]any{"ExitCode": 66, "Stats": true, "WaitFor": "all", "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Every": every, "Most": most}}
}

// Of a forked child no epochs were recorded, so a server that had gone into the background, or a worker of one, crashed without a cause. Its epochs begin before it makes its first thread.
func TestChildrenOfPointers(t *testing.T) {
	ofAgent(t)
	prog := childRunning(t, "pointer")
	for _, how := range []string{"fork", "daemon", "twice", "threads"} {
		for _, k := range pointerKinds {
			switch k.name {
			case "thread", "crowd":
			default:
				continue
			}
			t.Run(how+"/"+k.name, func(t *testing.T) {
				cmd := command(t, recordedChildren(10*time.Second, false), prog, how, k.name)
				if how == "twice" { // steps by int3, debug registers by ptrace
					cmd = under(t, refuse(unix.EACCES, unix.SYS_PERF_EVENT_OPEN), recordedChildren(10*time.Second, false), prog, how, k.name)
				}
				r := finish(t, cmd)
				if !strings.Contains(r.stderr, "was written here") {
					if k.name == "thread" && anotherWay(r.stderr) {
						t.Log(r.stderr)
						return
					}
					t.Errorf("%+v", r)
				}
				if !strings.Contains(r.stderr, " spoil_"+k.name+" ") || strings.Count(r.stderr, "WARNING:") != 1 || r.stdout != "begun\n" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// A worker of one thread makes nothing that shows that it lives: its epochs begin when it comes out of a wait, or any call, a fifth of a second old, so that what it does with the first request after that can be executed again.
func TestChildrenThatServe(t *testing.T) {
	ofAgent(t)
	r := finish(t, command(t, recordedChildren(10*time.Second, false), childRunning(t, "epochs"), "serve"))
	if r.stdout != "done\n" || strings.Count(r.stderr, "WARNING:") != 1 {
		t.Errorf("status %d, %q", r.code, r.stdout)
	}
	_, written, _ := strings.Cut(r.stderr, "Written here in")
	if lines := strings.Split(written, "\n"); len(lines) < 2 || !strings.HasPrefix(strings.TrimSpace(lines[1]), "#0 put ") {
		t.Errorf("%s", r.stderr)
	}
}

// What a child and its threads do is executed again as it was, whatever its parent was in the middle of; and it is done once, with the output and status that it has natively.
func TestChildrenAgain(t *testing.T) {
	ofAgent(t)
	prog := childRunning(t, "epochs")
	for _, how := range []string{"fork", "daemon", "twice", "threads"} {
		t.Run(how, func(t *testing.T) {
			native := finish(t, exec.Command(prog, how, "4"))
			for how == "daemon" && native.stdout == "" { // written behind its end
				t.Fatal("it wrote nothing")
			}
			options := recordedChildren(50*time.Millisecond, true)
			options["ExitCode"] = 0
			r, counts := countsOf(t, options, prog, how, "4")
			if r != native {
				t.Errorf("%+v\nnatively %+v", r, native)
			}
			t.Log(counts)
			noOther(t, counts)
			if counts["executed again: identical"]+counts["executed again: stack"] < 3 || counts["events executed again"] < 10000 { // the parent's epochs are of a few
				t.Errorf("%v", counts)
			}
		})
	}
}

// Children of children, each of which makes a thread and so is recorded; and those that end at once, which are not.
func TestChildrenOfChildren(t *testing.T) {
	ofAgent(t)
	prog := childRunning(t, "epochs")
	for _, args := range [][]string{{"busy"}, {"at once", "50"}} {
		r, counts := countsOf(t, recordedChildren(20*time.Millisecond, true), append([]string{prog}, args...)...)
		if r.code != 0 || r.stdout != "" || r.stderr != "" {
			t.Errorf("%+v", r)
		}
		t.Log(counts)
	}
}

// A daemon that lives on when its ripstop has gone with the program's end is not recorded from there on, and goes on.
func TestChildrenLetGo(t *testing.T) {
	ofAgent(t)
	options := recordedChildren(20*time.Millisecond, false)
	delete(options, "WaitFor")
	r := finish(t, command(t, options, childRunning(t, "epochs"), "closed"))
	if r.code != 0 || r.stdout != "done\n" || !strings.Contains(r.stderr, "it lives on") {
		t.Errorf("%+v", r)
	}
}

// Where recording had ended before the program, the end of the epoch was due for ever: the coordinator looked for it again and again, and used a processor.
func TestRecordingIsOver(t *testing.T) {
	ofAgent(t)
	r := finish(t, command(t, recordedChildren(200*time.Millisecond, false), childRunning(t, "epochs"), "over"))
	if r.code != 0 || r.stdout != "idle\n" {
		t.Errorf("%+v", r)
	}
}
