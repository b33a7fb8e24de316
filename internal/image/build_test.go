package image

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// build compiles with the given command line and returns the path of the result. What is needed and missing is a failure.
func build(t testing.TB, name string, cmd ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	run(t, append(cmd, "-o", out)...)
	return out
}

func run(t testing.TB, cmd ...string) string {
	t.Helper()
	b, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v (script/deps build test installs what is missing)\n%s", cmd, err, b)
	}
	return string(b)
}

func mustOpen(t testing.TB, path string) *Image {
	t.Helper()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// symbolAddr finds a symbol with debug/elf.
func symbolAddr(t testing.TB, path, name string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatalf("%s: no symbol %s", path, name)
	return 0
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
