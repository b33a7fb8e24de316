package access

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// The agent leaves out the accesses of libc's functions that the same libraries call (module.c).
func TestLeftOutByTheAgentToo(t *testing.T) {
	b, err := os.ReadFile("../agent/c/module.c")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`left_out_names\[\] = \{([^}]*)\}`).FindSubmatch(b)
	if list == nil {
		t.Fatal("no left_out_names")
	}
	var names []string
	for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllSubmatch(list[1], -1) {
		names = append(names, string(m[1]))
	}
	ours := append(slices.Clone(LeftOut), Synchronisers...)
	first := slices.Clone(names[:min(len(ours), len(names))])
	slices.Sort(first)
	sorted := slices.Sorted(slices.Values(ours))
	if n := regexp.MustCompile(`PATCHED = (\d+)`).FindSubmatch(b); n == nil || string(n[1]) != strconv.Itoa(len(ours)) || !slices.Equal(first, sorted) {
		t.Errorf("PATCHED is %s; the first of %q are to be %q", n, names, ours)
	}
	for _, want := range append(ours, "libc.so.", "ld-linux", "libripstop.so") {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not in %q", want, names)
		}
	}
}

// What those that synchronise do to blocks of their own is not told (tell.go of internal/race, which may not import this).
func TestSynchronisersOfTheDetectorToo(t *testing.T) {
	b, err := os.ReadFile("../race/tell.go")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`synchronisers = \[\]string\{([^}]*)\}`).FindSubmatch(b)
	if list == nil {
		t.Fatal("no synchronisers")
	}
	var names []string
	for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllSubmatch(list[1], -1) {
		names = append(names, string(m[1]))
	}
	if !slices.Equal(names, Synchronisers) {
		t.Errorf("%q, here %q", names, Synchronisers)
	}
}

// A lock prefix is a fence only where nothing is changed at the stack's end; a function's own atomics lie there too. With the mend taken out all were fences.
func TestFences(t *testing.T) {
	const rmw = read | write | atomic
	for _, c := range []struct {
		what, code string
		data       uint64
	}{
		{"lock or qword ptr [rsp], 0", "\xf0\x48\x83\x0c\x24\x00", fence},
		{"lock or dword ptr [rsp-64], 0", "\xf0\x83\x4c\x24\xc0\x00", fence},
		{"lock add dword ptr [rsp], 0", "\xf0\x83\x04\x24\x00", fence},
		{"lock add dword ptr [rsp], 1", "\xf0\x83\x04\x24\x01", rmw},
		{"lock or dword ptr [rsp+20], 0", "\xf0\x83\x4c\x24\x14\x00", rmw},
		{"lock xadd dword ptr [rsp+20], eax", "\xf0\x0f\xc1\x44\x24\x14", rmw},
		{"lock cmpxchg dword ptr [rsp+20], edx", "\xf0\x0f\xb1\x54\x24\x14", rmw},
		{"xchg dword ptr [rsp], eax", "\x87\x04\x24", rmw},
		{"lock add dword ptr [rax], 0", "\xf0\x83\x00\x00", rmw},
	} {
		in, err := x86.Decode([]byte(c.code))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if data, unseen := dataOf(&in); data != c.data || unseen {
			t.Errorf("%s: %#x, %v; not %#x", c.what, data, unseen, c.data)
		}
	}
}

func TestMost(t *testing.T) {
	for want, by := range map[string]map[string]int{
		"3 in /a": {"/a": 3},
		"3 in /b, 1 in /a, 1 in /c, 1 in /d, 1 in /e":              {"/a": 1, "/b": 3, "/c": 1, "/d": 1, "/e": 1},
		"9 in /f, 3 in /b, 1 in /a, 1 in /c, 2 in 2 other modules": {"/a": 1, "/b": 3, "/c": 1, "/d": 1, "/e": 1, "/f": 9},
	} {
		if got := most(by); got != want {
			t.Errorf("%s", got)
		}
	}
}

// In node counts of references were missing, as locked instructions could not be patched, and races were told that are none: the report said how many instructions were not seen, and not that some of them order.
func TestLooseIsSaid(t *testing.T) {
	const note = "races may be told that are none: 2 in /a"
	for _, c := range []struct {
		races bool
		loose int
		said  bool
	}{{true, 2, true}, {true, 0, false}, {false, 2, false}} {
		s := New(c.races)
		s.miss("/a", 3, c.loose)
		s.miss("/b", 1, 0)
		if got := strings.Join(s.NotSeen(), "; "); strings.Contains(got, note) != c.said || !strings.Contains(got, "3 in /a, 1 in /b") {
			t.Errorf("%+v: %s", c, got)
		}
	}
	in, err := x86.Decode([]byte("\xf0\x0f\xc1\x07")) // lock xadd [rdi], eax
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := dataOf(&in); !orders(&in, data) {
		t.Errorf("lock xadd orders nothing: %#x", data)
	}
}
