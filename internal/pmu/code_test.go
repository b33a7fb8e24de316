package pmu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The ranges of a filter are the executable segments of the files, which are what is mapped of them.
func TestCode(t *testing.T) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	a, err := CodeFor(self, "main", []string{"main"}, nil)
	if err != nil || len(a) == 0 || a[0].Path != self || a[0].Size == 0 {
		t.Fatalf("%v, %v", a, err)
	}
	b, err := CodeIn(os.Getpid(), "main", []string{"main", filepath.Base(self)})
	if err != nil || len(b) != 2*len(a) || b[0] != a[0] || b[1] != a[0] {
		t.Errorf("%v, %v", b, err)
	}
	sh, err := CodeFor("/bin/sh", "main", []string{"main", "libc.so.6"}, nil)
	if err != nil || len(sh) != 2 || !strings.Contains(sh[1].Path, "libc") {
		t.Errorf("%v, %v", sh, err)
	}
	dir := t.TempDir()
	if err := os.Symlink(sh[1].Path, filepath.Join(dir, "libmine.so")); err != nil {
		t.Fatal(err)
	}
	if c, err := CodeFor("/bin/sh", "main", []string{"libmine.so"}, []string{"LD_LIBRARY_PATH=/nowhere:" + dir}); err != nil || len(c) != 1 || c[0] != sh[1] {
		t.Errorf("%v, %v", c, err)
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() ([]Range, error){
		func() ([]Range, error) { return CodeFor("/bin/sh", "main", []string{"libnowhere.so"}, nil) },
		func() ([]Range, error) { return CodeFor(script, "main", []string{"main"}, nil) },
		func() ([]Range, error) { return CodeIn(os.Getpid(), "main", []string{"libnowhere.so"}) },
		func() ([]Range, error) { return CodeIn(1<<22, "main", []string{"main"}) },
	} {
		if c, err := f(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, %v", c, err)
		}
	}
}
