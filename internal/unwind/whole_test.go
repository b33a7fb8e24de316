package unwind

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// A function that handles exceptions is not whole, nor is what the compiler moved away, with the function that it belongs to; all others are.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "whole.cc"), filepath.Join(dir, "whole")
	text := `#include <cstdio>
#include <cstdlib>
extern "C" {
__attribute__((noinline)) int plain(int n) { volatile int own[8] = {n}; return own[n & 7]; }
__attribute__((noinline)) int catches(int n) { try { if (n > 5) throw n; return plain(n); } catch (int k) { return k; } }
__attribute__((noinline)) int moved(int n) { if (__builtin_expect(n > 1000, 0)) { puts("far"); puts("away"); abort(); } return plain(n) + 1; }
}
int main(int argc, char **) { return catches(argc) + moved(argc); }
`
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("g++", "-O2", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	img, err := image.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	list, parts := Whole(img)
	if !parts {
		t.Error("no part of a function lies elsewhere")
	}
	if !slices.IsSortedFunc(list, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) }) {
		t.Errorf("%x", list)
	}
	all, err := Ranges(img)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"plain": true, "catches": false, "moved": true, "moved.cold": false, "catches.cold": false} {
		at, found := uint64(0), false
		for _, r := range all {
			if f := img.Frames(r[0]); len(f) > 0 && f[0].Func == name {
				at, found = r[0], true
			}
		}
		if !found {
			if want {
				t.Errorf("%s has no entry", name)
			}
			continue
		}
		if is := slices.ContainsFunc(list, func(r [2]uint64) bool { return r[0] == at }); is != want {
			t.Errorf("%s is whole: %v", name, is)
		}
	}
}
