package fault

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guards are the ways to run under guard: without epochs, with, with each epoch executed again, and where the kernel refuses breakpoints by perf, so that ripstop sets debug registers.
func guards(t *testing.T) []mode {
	t.Helper()
	runner, refusing := filepath.Join(t.TempDir(), "runner"), filepath.Join(t.TempDir(), "refusing")
	for _, args := range [][]string{
		{"go", "build", "-ldflags", "-E ripstop_entry", "-o", runner, "../../internal/run/testdata/runner"},
		{"gcc", "-Wall", "-Wextra", "-Werror", "-o", refusing, "../../internal/run/testdata/refusing.c"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	every, err := json.Marshal(map[string]any{"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Every": true, "Most": 20 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	return []mode{
		{name: "guard", args: []string{ripstop, "guard", "--exit-code", "0", "--epochs", "0", "--"}},
		{name: "epochs", args: []string{ripstop, "guard", "--exit-code", "0", "--epochs", "50ms", "--"}},
		{name: "every", args: []string{runner, string(every), "run"}},
		{name: "debug registers", args: []string{refusing, fmt.Sprintf("%d=%d", unix.SYS_PERF_EVENT_OPEN, unix.EACCES), ripstop, "guard", "--exit-code", "0", "--epochs", "10s", "--"}},
	}
}

// natively is what a program does without us.
func natively(t *testing.T, argv ...string) result {
	t.Helper()
	return start(t, mode{}.command(argv...))()
}

// guarded are the programs that are killed, all of which end with 7.
var guarded = []struct {
	name string
	argv []string
}{
	{"all", []string{"work", "all", "3"}},
	{"threads", []string{"work", "threads", "6", "3000"}},
	{"forks", []string{"work", "forks"}},
	{"overflows", []string{"overflows"}},
}

// Killed at whatever moment, in the middle of a re-execution too, with the threads' debug registers set or not, the Go side takes nothing from a program that is guarded: it comes to its normal end.
func TestKillGoSideOfGuard(t *testing.T) {
	kills := 32
	if soak {
		kills = 2000
	}
	tmp := shortTmp(t)
	tried, inTarget := 0, 0
	for _, m := range guards(t) {
		for _, p := range guarded {
			t.Run(m.name+"/"+p.name, func(t *testing.T) {
				argv := append([]string{program(p.argv[0])}, p.argv[1:]...)
				native := natively(t, argv...)
				argv = append(append([]string{}, m.args...), argv...)
				whole := start(t, mode{}.command(argv...))()
				if whole.stdout != native.stdout || whole.status != native.status {
					t.Fatalf("%+v", whole)
				}
				for range kills / len(guarded) / 4 {
					delay := time.Duration(rand.Int64N(int64(whole.took)))
					r, e := interrupted(t, tmp, delay, syscall.SIGKILL, "self", argv...)
					tried++
					if e.Left {
						t.Fatalf("killed after %v of %v, the program hangs", delay, whole.took)
					}
					if !e.Main.Signaled() || len(e.Orphans) == 0 && (r.stdout == "" || r.stdout == native.stdout) {
						continue // it was quicker, or not yet there
					}
					inTarget++
					var last unix.WaitStatus
					if len(e.Orphans) > 0 {
						last = e.Orphans[len(e.Orphans)-1]
					}
					if r.stdout != native.stdout || !last.Exited() || last.ExitStatus() != 7 {
						t.Errorf("killed after %v of %v, the program ends with %v and\n%s%s", delay, whole.took, e.Orphans, r.stdout, r.stderr)
					}
				}
			})
		}
	}
	t.Logf("%d of %d kills came while the program ran", inTarget, tried)
	if inTarget < tried/4 {
		t.Errorf("only %d of %d kills came while the program ran", inTarget, tried)
	}
}

// A guarded program that is killed at whatever moment ends by that, and ripstop as it does; nothing hangs.
func TestKillGuarded(t *testing.T) {
	kills := 32
	if soak {
		kills = 1200
	}
	tmp := shortTmp(t)
	for _, m := range guards(t) {
		for _, p := range guarded {
			t.Run(m.name+"/"+p.name, func(t *testing.T) {
				argv := append(append(append([]string{}, m.args...), program(p.argv[0])), p.argv[1:]...)
				whole := start(t, mode{}.command(argv...))()
				for range kills / len(guarded) / 4 {
					delay := time.Duration(rand.Int64N(int64(whole.took)))
					r, e := interrupted(t, tmp, delay, syscall.SIGKILL, "child", argv...)
					if e.Left {
						t.Fatalf("killed after %v of %v: it hangs", delay, whole.took)
					}
					if killed := e.Main.Signaled() && e.Main.Signal() == syscall.SIGKILL; !killed && !(e.Main.Exited() && (e.Main.ExitStatus() == 7 || e.Main.ExitStatus() == 128+9)) {
						t.Errorf("killed after %v of %v, ripstop ends with %#x: %s", delay, whole.took, uint32(e.Main), r.stderr)
					}
					if strings.Contains(r.stderr, "ripstop: crash") || strings.Contains(r.stderr, "panic") {
						t.Errorf("killed after %v: %s", delay, r.stderr)
					}
				}
			})
		}
	}
}
