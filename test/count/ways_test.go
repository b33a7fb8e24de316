package count

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// An instruction is counted exactly as often as it runs, whichever way: by several threads at once, in forked children and what they execute, in handlers; when
// it faults, and when the program is killed afterwards. The program ends as it does natively.
func TestWays(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O0", "-no-pie"}} {
		prog := build(t, "ways.c", append(flags, "-pthread")...)
		for _, c := range []struct {
			way    string
			want   uint64
			signal syscall.Signal
			exit   int
		}{
			{"plain", 1000, 0, 0},
			{"threads", 1000 + 8*20000, 0, 0},
			{"fork", 1000 + 3*500 + 50 + 1000 + 7 + 9, 0, 0},
			{"signals", 1000 + 300, 0, 0},
			{"repair", 1000 + 10, 0, 0}, // the first of the ten begins once and ends after the handler
			{"leave", 1000 + 10, 0, 0},
			{"kill", 1000, syscall.SIGKILL, 0},
			{"crash", 1000 + 1, syscall.SIGSEGV, 0},
			{"exit", 1000, 0, 3},
		} {
			t.Run(c.way, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "counts.json")
				cmd := exec.Command(ripstop(t), "count", "--format", "json", "-o", file, "--", prog, c.way)
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if c.signal != 0 && status.Signal() != c.signal || c.signal == 0 && status.ExitStatus() != c.exit || len(out) > 0 {
					t.Errorf("ended with %v, output %s", cmd.ProcessState, out)
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var p struct {
					Processes []struct{ Executable string }
					Places    []struct {
						Stack  []struct{ Function string }
						Counts map[string]uint64
					}
				}
				if err := json.Unmarshal(text, &p); err != nil {
					t.Fatal(err)
				}
				var got uint64
				for _, x := range p.Places {
					if x.Stack[0].Function == "touch" {
						got += x.Counts["locked"]
					}
				}
				if got != c.want {
					t.Errorf("counted %d, want %d; processes %v", got, c.want, p.Processes)
				}
			})
		}
	}
}
