package ctest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A program whose threads are born and end died of SIGSEGV in its first epoch, once in some 8,000 runs, and nothing was told. A thread that found no log free raised the number of logs and then wrote its id into the new one; another that looked in between
// found that one free, and took it. So two threads had one log, and one alternate stack: the frames of the next stop lay over each other, and each thread went on with the other's registers, or with half of a frame, which the kernel refuses. With 0.2 ms
// between the two instructions five of twelve runs crashed, and six had no end. Here a thread that takes a place is interrupted at each of its instructions by one that takes another.
func TestGuardPlaces(t *testing.T) {
	for _, o := range []string{"-O0", "-O2"} {
		program := filepath.Join(t.TempDir(), "place")
		if out, err := exec.Command("gcc", o, "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/guard_place.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if out, err := exec.Command(program).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", o, err, out)
		}
	}
}
