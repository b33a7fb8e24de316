package ctest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// oldPrograms builds the program that asks for versions of 2002, and the library without versions that it uses.
func oldPrograms(t *testing.T) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "libplain.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-nostdlib", "-DLIBRARY", "-o", lib, "testdata/old_versions.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return compile(t, "old_versions.c", lib)
}

// A program linked when there was one pthread_cond_wait only, which takes a pointer's room, was given today's by the agent, since ld.so takes a
// symbol without a version for any: it wrote over what lay beside the condition, and the program hung. So with all functions that glibc has
// in versions that differ.
func TestOldVersions(t *testing.T) {
	prog := oldPrograms(t)
	bothModes(t, func(t *testing.T, config wire.Config) {
		l := same(t, config, in(t.TempDir(), prog)...)
		if config.All == 0 {
			return
		}
		waits, woken, signals := len(l.of(wire.TypeCondWait)), len(l.of(wire.TypeCondWoken)), len(l.of(wire.TypeCondSignal))
		if waits == 0 || waits != woken || signals < 100 {
			t.Errorf("%d cond-wait, %d cond-woken, %d cond-signal, want some waits, each woken, and 100 signals", waits, woken, signals)
		}
		if n := len(l.of(wire.TypeMisuse)); n != 0 {
			t.Errorf("%d misuses", n)
		}
	})
}
