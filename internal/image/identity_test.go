package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file's identity is the same for the same file and another one for any other, also of the same content; none is told of a file that was changed just now, nor of what is no file.
func TestIdentity(t *testing.T) {
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "true")
	open := func() *Image {
		t.Helper()
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if id := open().Identity(); id != "" {
		t.Errorf("just written: %q", id)
	}
	time.Sleep(settled + 100*time.Millisecond)
	m := open()
	if id := m.Identity(); id == "" || id != open().Identity() || !m.Unchanged() {
		t.Errorf("%q, unchanged: %v", id, m.Unchanged())
	}
	if err := os.Chtimes(path, time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if m.Unchanged() {
		t.Error("other times do not count")
	}
	time.Sleep(settled + 100*time.Millisecond)
	now := open()
	if id := now.Identity(); id == "" || id == m.Identity() {
		t.Errorf("%q after %q", id, m.Identity())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if now.Unchanged() {
		t.Error("unchanged, though it is gone")
	}
	if m, err = FromMemory("true", b); err != nil || m.Identity() != "" || m.Unchanged() {
		t.Errorf("of what is in memory: %q, %v; %v", m.Identity(), m.Unchanged(), err)
	}
}
