package run

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

var waysOfGuard = []map[string]any{{"ExitCode": 0}, {"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}}, {"ExitCode": 0, "Stats": true, "Epochs": map[string]any{"On": true, "Most": 20 * time.Millisecond}},
	{"ExitCode": 0, "Stats": true, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}}

// Found by firefox under guard: its processes ended themselves one after the other. A sandbox's handler of SIGSYS compares si_call_addr with the instruction pointer, which said the program's site, and si_call_addr the hook's. What it answered in
// rax was taken for a handler that goes elsewhere, so that nothing was done behind the call.
func TestAnswersOfSandboxes(t *testing.T) {
	ofAgent(t)
	said := regexp.MustCompile(`(?m)^ripstop: not seen: process \d+ \(shutin\): (not all blocks of its heap were looked at when it ended|the agent did not get memory .*)\n`)
	for _, args := range [][]string{{path("shutin")}, {path("shutin"), "t"}} {
		native := finish(t, exec.Command(args[0], args[1:]...))
		if native.code == 2 {
			t.Skipf("%+v natively", native)
		}
		if native.code != 7 || strings.Count(native.stdout, "handled 1 code 1 ") != 5 || strings.Count(native.stdout, "there 1, rax 1") < 5 {
			t.Fatalf("natively %+v", native)
		}
		for _, how := range waysOfGuard {
			r, _ := countsOf(t, how, args...)
			if r.stderr = said.ReplaceAllString(r.stderr, ""); r != native {
				t.Errorf("%v: %v: %+v\nnatively %+v", args, how, r, native)
			}
		}
	}
}

// Found by chromium under guard: its zygote counts the links of /proc/self/task before it forks, and ended itself, as it had two threads: the coordinator was one. Threads that an epoch keeps were told, too.
func TestNumbersOfThreads(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("numbers")))
	if want := "alone all\ntogether all\njoined all\nothers 1 1; root 1\n"; native.stdout != want {
		t.Fatalf("%+v natively", native)
	}
	for _, how := range waysOfGuard {
		if r, _ := countsOf(t, how, path("numbers")); r != native {
			t.Errorf("%v: %+v\nnatively %+v", how, r, native)
		}
	}
}

// Found by chromium's sandbox under guard: a program that is executed in a pid namespace of its own, where /proc is still the outer one, looked for its threads there by numbers that they have not, for two seconds, before it gave up
// recording: a zygote was too late, and each program in a container's or a build's such namespace took two seconds.
func TestOutersProc(t *testing.T) {
	ofAgent(t)
	program := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "sh", "-c", "echo $$"}
	native := finish(t, exec.Command(program[0], program[1:]...))
	if native.code != 0 || !strings.HasPrefix(native.stdout, "1\n") {
		t.Skipf("%+v natively", native)
	}
	said := regexp.MustCompile(`(?m)^ripstop: not seen: process \d+ \(\w+\)( and \d+ more)?: no epochs are recorded: its /proc is that of another pid namespace\n`)
	r, _ := countsOf(t, waysOfGuard[3], program...)
	if !said.MatchString(r.stderr) {
		t.Errorf("says %q", r.stderr)
	}
	if r.stderr = said.ReplaceAllString(r.stderr, ""); r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
}

// Found with Wine and Erlang: each of a process's files with code that is no ELF file was said in a line of its own (Wine: 133 for `cmd /c echo`), with a name of the file in /proc and nothing of what that means.
func TestAlienCode(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("images")))
	if native.stdout != "14 1\n8\n" {
		t.Fatalf("%+v natively", native)
	}
	said := regexp.MustCompile(`(?m)^ripstop: not seen: code in files that are no ELF files \(made at run time, or Windows'\), as /memfd:\w+, is not patched: what its instructions do is not seen\n`)
	r, _ := countsOf(t, waysOfGuard[3], path("images"))
	if len(said.FindAllString(r.stderr, -1)) != 1 {
		t.Errorf("says %q", r.stderr)
	}
	if r.stderr = said.ReplaceAllString(r.stderr, ""); r != native {
		t.Errorf("%+v\nnatively %+v", r, native)
	}
}
