package engine

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
)

// moduleOf makes a module of a file as if it lay elsewhere in a process by bias.
func moduleOf(t testing.TB, path string, bias uint64, c *cache.Dir) *Module {
	t.Helper()
	img, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	m := &Module{Path: path, Image: img, Bias: bias, cache: c, closed: new(atomic.Bool), space: patch.NewSpace(nil)}
	for _, s := range img.Segments() {
		if s.Flags&elf.PF_X != 0 {
			code := bytes.Clone(img.Bytes(s.Addr, s.FileSize))
			m.Base, m.End = s.Addr+bias, s.Addr+bias+uint64(len(code))
			m.texts = append(m.texts, &text{at: m.Base, size: uint64(len(code)), code: code})
		}
	}
	return m
}

// What was kept of a module's code is what would be learnt anew, wherever the module lies; a file that is not as it was written is not believed, and what is learnt then is kept.
func TestKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := cache.Open("code", cacheMost)
	const libc = "/lib/x86_64-linux-gnu/libc.so.6"
	know := func(bias uint64, c *cache.Dir, kept bool) []byte {
		t.Helper()
		m := moduleOf(t, libc, bias, c)
		m.learn()
		if m.fromCache != kept {
			t.Errorf("from the cache: %v", m.fromCache)
		}
		b := []byte{byte(m.undecoded), byte(m.undecoded >> 8)}
		for _, x := range m.texts {
			b = x.plan.AppendKnown(b)
		}
		return b
	}
	anew := know(0x7f0000000000, nil, false)
	if !bytes.Equal(know(0x7f1234567000, c, false), anew) || !bytes.Equal(know(0x7f1111111000, c, true), anew) {
		t.Error("something else is known")
	}
	// One file of where instructions begin, and one that says which that is by the tables that functions are read from.
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "ripstop/code/????????????????*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x10
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c := cache.Open("code", cacheMost) // another session's: who has read it knows it
		if !bytes.Equal(know(0x7f1234567000, c, strings.HasSuffix(f, ".hash")), anew) || !bytes.Equal(know(0x7f1111111000, c, true), anew) {
			t.Errorf("something else is known after %s was damaged", f)
		}
	}
	// What a client keeps.
	m := moduleOf(t, libc, 0x7f0000000000, c)
	if _, ok := m.Kept("test"); ok {
		t.Error("nothing was kept")
	}
	m.Keep("test", []byte("something"))
	if b, ok := moduleOf(t, libc, 0x7f1000000000, c).Kept("test"); !ok || string(b) != "something" {
		t.Errorf("%q, %v", b, ok)
	}
	// Other code is another module.
	other := moduleOf(t, libc, 0x7f1000000000, c)
	other.texts[0].code[1000] ^= 1
	if _, ok := other.Kept("test"); ok || other.fromCache {
		t.Error("the same for other code")
	}
}

// With what was kept the same is planned as with what was learnt, of large programs and libraries too: every system call, rdtsc and locked instruction that guards and clients would take, and one in 200 of all instructions.
func TestKeptPlans(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := cache.Open("code", cacheMost)
	const bias = 0x7f1234000000
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/bin/python3", "/usr/bin/x264", "/usr/sbin/mariadbd"} {
		if testing.Short() && !strings.Contains(path, "stdc++") {
			continue // by one goroutine: nothing for the race detector
		}
		if _, err := os.Stat(path); err != nil {
			continue
		}
		plan := func(c *cache.Dir, kept bool) (list []*patch.Patch) {
			m := moduleOf(t, path, bias, c)
			m.space = patch.NewSpace([]patch.Range{{Lo: bias - 256<<20, Hi: bias}, {Lo: bias + 128<<20, Hi: bias + 512<<20}})
			if m.learn(); m.fromCache != kept {
				t.Errorf("%s: from the cache: %v", path, m.fromCache)
			}
			for _, x := range m.texts {
				var add []patch.Site
				n := 0
				for a := x.plan.Next(x.at, x.end()); a < x.end(); a = x.plan.Next(a+1, x.end()) {
					code := x.code[a-x.at:]
					if n++; n%200 == 0 || bytes.HasPrefix(code, opSyscall) || bytes.HasPrefix(code, []byte{0x0f, 0x31}) || code[0] == 0xf0 {
						if x.planner.Check(a) == nil {
							add = append(add, patch.Site{At: a, Recipe: bare{}})
						}
					}
				}
				if len(add) == 0 {
					continue
				}
				tx, err := x.planner.PlanSome(add)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, tx.New...)
				x.planner.Commit(tx)
				x.planner.Close()
			}
			return list
		}
		anew := plan(nil, false)
		plan(c, false)
		if got := plan(c, true); !reflect.DeepEqual(got, anew) {
			t.Errorf("%s: %d patches, or others than the %d", path, len(got), len(anew))
		}
		if len(anew) < 100 {
			t.Errorf("%s: %d patches", path, len(anew))
		}
	}
}

// By the tables alone it is known where functions lie: of a file that differs in any byte, so that other functions are found, the tables differ.
func TestTablesTellFunctions(t *testing.T) {
	file, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	look := func(b []byte) (functions [][2]uint64, tables string) {
		img, err := image.FromMemory("true", b)
		if err != nil {
			return nil, err.Error()
		}
		defer img.Close()
		m := &Module{Image: img}
		h := sha256.New()
		if !img.Tables(h) {
			return nil, "none"
		}
		return m.functions(), string(h.Sum(nil))
	}
	want, tables := look(file)
	if len(want) < 10 {
		t.Fatalf("%d functions", len(want))
	}
	r := rand.New(rand.NewPCG(1, 2))
	others := 0
	for range 4000 {
		b := bytes.Clone(file)
		// Most of what matters is small: the head, the end with its section headers, and the frames.
		at := r.IntN(len(b))
		switch r.IntN(4) {
		case 0:
			at = r.IntN(1024)
		case 1:
			at = len(b) - 1 - r.IntN(2048)
		}
		b[at] ^= byte(1 + r.IntN(255))
		got, other := look(b)
		if !slices.Equal(got, want) {
			if others++; other == tables {
				t.Fatalf("with another byte at %#x other functions are found, and the tables are the same", at)
			}
		}
	}
	if others < 100 {
		t.Errorf("only %d files have other functions", others)
	}
}

// What is kept by a build ID, or of a file that has none by what file it is, is there without a look at the code, for the same one alone.
func TestHinted(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := cache.Open("code", cacheMost)
	const libc = "/lib/x86_64-linux-gnu/libc.so.6"
	b, err := os.ReadFile(libc)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "libc.so.6") // it may be written to with nobody the wiser
	if err := os.WriteFile(fresh, b, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ path, id, hint, want string }{
		{libc, "", "a", "nothing"}, {libc, "", "b", "a"}, {fresh, "", "c", "nothing"}, {fresh, "", "d", "nothing"},
		{libc, "12", "e", "nothing"}, {fresh, "12", "f", "e"}, {libc, "34", "g", "nothing"}, {libc, "12", "h", "f"}, {libc, "", "i", "b"},
	} {
		m := moduleOf(t, x.path, 0x7f0000000000, c)
		m.BuildID = x.id
		got := "nothing"
		if b, ok := m.Hinted("thing"); ok {
			got = string(b)
		}
		if got != x.want {
			t.Errorf("of %s, %q, there is %q, not %q", x.path, x.id, got, x.want)
		}
		if m.Hint("thing", []byte(x.hint)); m.learnt {
			t.Error("the code was looked at")
		}
	}
}
