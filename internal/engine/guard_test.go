package engine

import (
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/cache"
)

// Each start looked through all code of a module for the system calls that go by the agent. They are kept: what is found, and what is known from another process wherever the module lies there, is the same, and bytes
// that name no instruction of the module are not believed.
func TestGuardedKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := cache.Open("code", cacheMost)
	const libc = "/lib/x86_64-linux-gnu/libc.so.6" // as a module that makes many of its own
	anew := moduleOf(t, libc, 0x7f0000000000, nil).guarded()
	if len(anew) < 5 {
		t.Fatalf("%d system calls", len(anew))
	}
	if got := moduleOf(t, libc, 0x7f1234567000, c).guarded(); !slices.Equal(got, anew) {
		t.Error("with a cache others are found")
	}
	m := moduleOf(t, libc, 0x7f1111111000, c)
	b, ok := m.Kept("guards")
	if !ok {
		t.Fatal("they are not kept")
	}
	if got, err := m.parseGuarded(b); err != nil || !slices.Equal(got, anew) {
		t.Errorf("others are known: %v", err)
	}
	for _, bad := range [][]byte{b[:len(b)-1], appendGuarded(nil, []guarded{{anew[0].at + 1, 2}}), appendGuarded(nil, []guarded{{1 << 40, 2}})} {
		if _, err := m.parseGuarded(bad); err == nil {
			t.Errorf("%x is believed", bad)
		}
		m.Keep("guards", bad)
		if got := moduleOf(t, libc, 0x7f2222222000, c).guarded(); !slices.Equal(got, anew) {
			t.Errorf("after %x was kept others are known", bad)
		}
	}
}

// Whatever bytes were kept, what is believed names instructions of the module, and is told again as it was.
func FuzzGuarded(f *testing.F) {
	m := moduleOf(f, "/lib/x86_64-linux-gnu/libc.so.6", 0x7f0000000000, nil)
	f.Add(appendGuarded(nil, m.guarded()))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := m.parseGuarded(b)
		if err != nil {
			return
		}
		if again, err := m.parseGuarded(appendGuarded(nil, list)); err != nil || !slices.Equal(again, list) {
			t.Errorf("%v, told again %v, %v", list, again, err)
		}
	})
}
