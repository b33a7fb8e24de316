package run

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Found by stress-ng's usersyscall in all modes: of a program that has its system calls given to itself by SIGSYS (PR_SET_SYSCALL_USER_DISPATCH, as Wine has it) the agent's own calls were given to its handler too, which answered them as
// if the program had made them, or killed it; syscall() and patched instructions of libc were called from the agent's addresses, outside of the range that the program lets pass, so that what was to pass did not, and what the handler was
// told of a call was wrong. A forked child's patched instructions were no longer looked at when guard was off in it.
func TestDispatchedCalls(t *testing.T) {
	ofAgent(t)
	said := regexp.MustCompile(`(?m)^ripstop: not seen: process \d+ \(dispatch\): no epochs are recorded: its system calls are given to itself .*\n`)
	for _, program := range []string{"none", "own", "libc", "half", "always", "none f", "libc f", "none b", "none d"} {
		args := append([]string{path("dispatch")}, strings.Fields(program)...)
		native := finish(t, exec.Command(args[0], args[1:]...))
		if !strings.Contains(native.stdout, "on: 0\n") {
			t.Skipf("%+v natively", native)
		}
		if want := map[string]syscall.Signal{"always": syscall.SIGSYS, "none b": syscall.SIGSYS, "none d": syscall.SIGSYS}[program]; native.signal != want {
			t.Fatalf("%s: natively %+v", program, native)
		}
		for _, how := range []map[string]any{{"ExitCode": 0}, {"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}}, {"ExitCode": 0, "Stats": true, "Epochs": map[string]any{"On": true, "Most": 20 * time.Millisecond}}} {
			r, _ := countsOf(t, how, args...)
			if how["Epochs"] != nil && len(said.FindAllString(r.stderr, -1)) != 1 {
				t.Errorf("%s: %v: says %q", program, how, r.stderr)
			}
			if r.stderr = said.ReplaceAllString(r.stderr, ""); r != native {
				t.Errorf("%s: %v: %+v\nnatively %+v", program, how, r, native)
			}
		}
	}
}
