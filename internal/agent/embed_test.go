package agent

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What only tells accesses is the C library's own where accesses are not told: the dynamic linker passes our names by, at no cost to the program; all others are ours in both.
func TestWithoutProtected(t *testing.T) {
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "where.c"), filepath.Join(dir, "where")
	text := `#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **names) {
	for (int i = 1; i < n; i++) {
		Dl_info d;
		dladdr(dlsym(RTLD_DEFAULT, names[i]), &d);
		puts(d.dli_fname);
	}
}
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		told bool
	}{{"plain", false}, {"telling", true}} {
		l, err := openLibrary(c.told, "")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, c.name+".so")
		if err := l.write(path); err != nil {
			t.Fatal(err)
		}
		// In memory it is the same as what is written, unless its functions stay in.
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if whole, err := Library(); err != nil || bytes.Equal(b, whole) == c.told {
			t.Errorf("%s: %d bytes written, %d in memory (%v)", c.name, len(b), len(whole), err)
		}
		names := []string{"memcpy", "strlen", "fread", "fstat", "read", "pthread_mutex_lock"}
		cmd := exec.Command(exe, names...)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+path, "LD_BIND_NOW=1")
		out, err := cmd.CombinedOutput()
		lines := strings.Fields(string(out))
		if err != nil || len(lines) != len(names) {
			t.Fatalf("%s: %v\n%s", c.name, err, out)
		}
		for i, name := range names {
			if ours := lines[i] == path; ours != (c.told || i >= 4) {
				t.Errorf("%s: %s is in %s", c.name, name, lines[i])
			}
		}
	}
	for _, bad := range []string{"", "\x7fELF", strings.Repeat("\x7fELF\x02\x01\x01", 20)} {
		if _, err := WithoutProtected([]byte(bad)); err == nil || !strings.Contains(err.Error(), "BUG") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
