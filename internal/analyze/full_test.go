package analyze

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fullRecording runs a program that tells its accesses; its output must be that of a plain run.
func fullRecording(t *testing.T, exe string) (dir string) {
	t.Helper()
	run, err := runner()
	if err != nil {
		t.Fatal(err)
	}
	native, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "trace")
	o, _ := json.Marshal(map[string]any{"Dir": dir, "Follow": true, "StackDepth": 24, "Sampling": map[string]any{"Mode": "full"}})
	cmd := exec.Command(run, string(o), "record", exe)
	var said strings.Builder
	cmd.Stderr = &said
	if out, err := cmd.Output(); err != nil || string(out) != string(native) {
		t.Fatalf("%v: %q, natively %q\n%s", err, out, native, &said)
	}
	return dir
}

// With all accesses told each program's race is found in each run; of the same programs made right nothing is reported.
func TestFull(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestJobs runs nearly the same code")
	}
	sources := racePrograms(t)
	lines := stated(t, sources)
	for _, clean := range []bool{false, true} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			var flags []string
			if clean {
				flags = append(flags, "-DCLEAN")
			}
			exe := build(t, "races", sources, flags...)
			for range 3 {
				exit, findings, summary := reported(t, Options{Dir: fullRecording(t, exe), ExitCode: 66, Stats: true})
				files := map[string]bool{}
				for _, f := range findings {
					for _, p := range f["parts"].([]any)[:2] {
						at := ""
						for _, v := range p.(map[string]any)["stack"].([]any) {
							frame := v.(map[string]any)
							file, _ := frame["file"].(string)
							if line, ok := frame["line"].(float64); ok && at == "" && filepath.Ext(file) == ".c" {
								at = fmt.Sprintf("%s:%d", filepath.Base(file), int(line))
								files[filepath.Base(file)] = true
							}
						}
						if !lines[at] || clean {
							t.Errorf("%s, which the source does not state: %v", at, f["message"])
						}
					}
				}
				for _, source := range sources {
					if name := filepath.Base(source); !clean && name != "main.c" && !files[name] {
						t.Errorf("the race of %s is not found", name)
					}
				}
				if (exit == 66) == clean {
					t.Errorf("exit %d", exit)
				}
				if notSeen, _ := json.Marshal(summary["not_seen"]); !strings.Contains(string(notSeen), "libstdc++") || strings.Contains(string(notSeen), "sample") {
					t.Errorf("not seen: %s", notSeen)
				}
				if stats := summary["stats"].(map[string]any); stats["accesses"] == nil {
					t.Errorf("stats: %v", stats)
				}
			}
		})
	}
}

// Reads were told, and their memory looked at, before they were made: the program's handler found its fault in code of the agent.
func TestFullFaults(t *testing.T) {
	if exit, findings, _ := reported(t, Options{Dir: fullRecording(t, build(t, "faults", []string{"testdata/faults.c"})), ExitCode: 66}); exit != 0 || len(findings) != 0 {
		t.Errorf("exit %d, %v", exit, findings)
	}
}

// A handler saw the agent's code and registers when it came while an access was told, and the registers that it set were lost: most of a traced program's time is there.
func TestFullInterrupted(t *testing.T) {
	exe := build(t, "interrupted", []string{"testdata/interrupted.c"})
	if exit, findings, _ := reported(t, Options{Dir: fullRecording(t, exe), ExitCode: 66}); exit != 0 || len(findings) != 0 {
		t.Errorf("exit %d, %v", exit, findings)
	}
}
