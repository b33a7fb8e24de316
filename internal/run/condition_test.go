package run

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Of an abort (a failed assertion, a smashed stack) the report had where it was and what was said, and nobody who wrote: there is no pointer to look for. What the last condition before the call that does not come back looked at is followed as a crash's pointer is,
// in each kind of testdata/condition.c to spoil_KIND. Before, the last epoch was not executed again for one, either.
func TestCauseOfAbort(t *testing.T) {
	ofAgent(t)
	for _, level := range []string{"-O0", "-O2"} {
		prog := filepath.Join(t.TempDir(), "condition"+level)
		if out, err := exec.Command("gcc", "-g", level, "-Wall", "-Wno-stringop-overflow", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-pthread", "-o", prog, "testdata/condition.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, k := range []struct{ name, value, thread string }{
			// -10, or what one or two more writes made of it before the other thread looked.
			{"assert", `0xffffff(?:f6|ec|e2) that the last condition before the abort looked at, read from 0x[0-9a-f]+, L1 \(balance\), was`, "thread T2"},
			{"field", "0xfffffffffffffffb that the last condition before the abort looked at, read from 0x[0-9a-f]+, was", "main thread"},
			{"byte", "0x0 that the last condition before the abort looked at, read from 0x[0-9a-f]+, was", "main thread"},
			{"smash", "0x[0-9a-f]{16} that the last condition before the abort looked at, read from 0x[0-9a-f]+(, L1[^,]*)?, was", "main thread"},
			{"sum", "0x28 that (the last condition before the abort looked at|what the last condition before the abort looked at was computed from), read from 0x[0-9a-f]+, was", "main thread"},
			{"kill", "", ""},
		} {
			t.Run(k.name+level, func(t *testing.T) {
				native := finish(t, exec.Command(prog, k.name))
				r := finish(t, command(t, pointerOptions, prog, k.name))
				if r.code != 66 || native.signal != syscall.SIGABRT || !strings.HasPrefix(r.stderr, native.stderr) || r.stdout != native.stdout || strings.Count(r.stderr, "WARNING: ripstop: crash") != 1 {
					t.Fatalf("%+v\nnatively %+v", r, native)
				}
				by := regexp.MustCompile(`(?s)  The value ` + k.value + ` written here in ` + k.thread + `[^:]*:\n    #0 (?:\w*(?:strcpy|memset|memcpy|stpcpy)\w* [^\n]*\n    #1 )?(spoil_` + k.name + `|use_smash) `)
				switch {
				case k.value == "":
					if strings.Contains(r.stderr, "written here") {
						t.Errorf("%s", r.stderr)
					}
				case !by.MatchString(r.stderr) || !strings.Contains(r.stderr, "Note: The crash was reproduced"):
					t.Errorf("%s", r.stderr)
				}
			})
		}
	}
}
