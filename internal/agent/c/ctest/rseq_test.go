package ctest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// rseq areas were given up with 32 bytes, which is what glibc 2.36 registers. A newer one registers as much as the kernel has fields, which is more from Linux 7.0 on: to give up was refused, no thread was kept, and a birth that a rollback takes away left an area to which the kernel writes, or for which it kills.
// How many there are is asked of the kernel, and nothing is changed by that.
func TestRseqBytes(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "rseq")
	if out, err := exec.Command("gcc", "-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", exe, "testdata/rseq_driver.c", "../guardrseq.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, bytes := range []int{0, 32, 40, 48, 64} {
		want := fmt.Sprintf("32 %d as it was\n", max(bytes, 32))
		if out, err := exec.Command(exe, fmt.Sprint(bytes)).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%d: %v, %q, want %q", bytes, err, out, want)
		}
	}
}
