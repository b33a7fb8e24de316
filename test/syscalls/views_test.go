package syscalls

import (
	"strings"
	"testing"
)

// Handlers see the program's own code: stepped through a call instruction by instruction, they see the same instructions, registers and flags as natively, in the same order;
// wherever a timer interrupts, the instruction is one of the program's or of its libraries', and the stack can be unwound to main.
func TestHandlersSeeTheSites(t *testing.T) {
	views := build(t, "views.c", "-O1", "-fno-inline", "-rdynamic", "-fexceptions")
	native := run(t, "", views, "steps")
	got, p := counted(t, "", views, "steps")
	a, b := strings.Split(native.stdout, "\n"), strings.Split(got.stdout, "\n")
	if len(a) < 100 {
		t.Fatalf("only %d lines natively:\n%s%s", len(a), native.stdout, native.stderr)
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("line %d:\nnatively %s\ncounted  %s\nbefore   %s", i+1, a[i], b[i], strings.Join(a[max(0, i-3):i], "\n         "))
		}
	}
	if got != native {
		t.Errorf("natively:\n%+v\ncounted:\n%+v", native, got)
	}
	if n := p.counts()["lseek"]; n.calls != 2 || n.errors != 2 {
		t.Errorf("lseek: %+v, want 2 calls that fail", n)
	}
	for _, what := range []string{"storm", "cancel"} {
		native = run(t, "", views, what)
		got, _ = counted(t, "", views, what)
		if got != native || got.stderr != "" {
			t.Errorf("%s: natively:\n%+v\ncounted:\n%+v", what, native, got)
		}
	}
}
