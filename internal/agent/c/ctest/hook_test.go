package ctest

import (
	"os"
	"testing"
)

// The hook of system-call sites keeps every register, the flags, vector registers and the red zone as the kernel would, for calls of all kinds; counts what
// was called; shows at each of its instructions, stepped one by one, what the program would see at the site or behind it; lives with signals inside, handlers that
// leave by longjmp, calls that the kernel restarts, cancellation, forks.
func TestSyscallHook(t *testing.T) {
	for _, level := range []string{"-O0", "-O2"} {
		got := native(t, os.Environ(), compile(t, "hook.c", level, "-I..", "-fno-builtin"))
		want := "ok registers\nok counting\nok views\nok storm\nok restarts\nok cancellation\nok children\n"
		if got.stdout != want || got.stderr != "" {
			t.Errorf("%s: %+v, want %q", level, got, want)
		}
	}
}
