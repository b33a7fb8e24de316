package tracee

import (
	"os"
	"strings"
	"testing"
)

// Proves: each kind of line that the kernel writes is read right.
func TestParseMaps(t *testing.T) {
	got, err := ParseMaps(strings.Join([]string{
		"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a name (1)  with\\012newline",
		"7f0000000000-7f0000001000 rw-s 00000000 00:01 77                         /memfd:x (deleted)",
		"7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]",
		"7f1000000000-7f1000001000 ---p 00000000 00:00 0 ",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
	}, "\n") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Mapping{
		{0x400000, 0x452000, true, false, true, false, 0x1000, "08:02", 173521, "/usr/bin/a name (1)  with\nnewline", false},
		{0x7f0000000000, 0x7f0000001000, true, true, false, true, 0, "00:01", 77, "/memfd:x", true},
		{0x7ffc00000000, 0x7ffc00021000, true, true, false, false, 0, "00:00", 0, "[stack]", false},
		{0x7f1000000000, 0x7f1000001000, false, false, false, false, 0, "00:00", 0, "", false},
		{0xffffffffff600000, 0xffffffffff601000, false, false, true, false, 0, "00:00", 0, "[vsyscall]", false},
	}
	if len(got) != len(want) {
		t.Fatalf("%d mappings, expected %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %+v, expected %+v", i, got[i], want[i])
		}
	}
}

// Proves: damaged lines give an error that shows the line.
func TestParseMapsErrors(t *testing.T) {
	for _, s := range []string{"x", "1-2", "2-1 r-xp 0 0:0 0", "1-2 r?xp 0 0:0 0", "1-2 r-xp z 0:0 0", "1-2 r-xp 0 0:0 z", "1-2 r-xp 0 0:0", "\n\n"} {
		if _, err := ParseMaps(s); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", s, err)
		}
	}
	if m, err := ParseMaps(""); err != nil || len(m) != 0 {
		t.Errorf("empty: %v, %v", m, err)
	}
}

// Proves: no text makes the parser panic, and what it accepts has ranges in order.
func FuzzParseMaps(f *testing.F) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add("1-2 r-xp 0 0:0 0 (deleted)\n")
	f.Fuzz(func(t *testing.T, s string) {
		ms, err := ParseMaps(s)
		if err != nil {
			return
		}
		for _, m := range ms {
			if m.Start > m.End {
				t.Errorf("%+v", m)
			}
		}
	})
}
