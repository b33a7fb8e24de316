package agent

import (
	"fmt"
	"strings"
	"testing"
)

// smaps is what the kernel says of mappings, of each of which so many KiB are there.
func smaps(mappings ...any) string {
	var b strings.Builder
	for i := 0; i < len(mappings); i += 3 {
		fmt.Fprintf(&b, "%x-%x rw-p 00000000 00:00 0 \nSize: 1048576 kB\nRss:                 999 kB\nPss:               %5d kB\nPss_Dirty:           999 kB\nVmFlags: rd wr mr mw me ac\n", mappings[i], mappings[i+1], mappings[i+2])
	}
	return b.String()
}

func TestFootprintParts(t *testing.T) {
	const at, eighth = uint64(0x200000000000), uint64(1 << 35)
	got, err := parseFootprint(smaps(
		0x400000, 0x401000, 1,
		at-0x1000, at, 2, // right in front of the arena
		at, at+0x1000000, 4,
		at+0x1000000, at+eighth, 8,
		at+eighth, at+eighth+0x1000, 16,
		at+eighth+0x1000, at+5*eighth, 32,
		at+5*eighth, at+5*eighth+0x1000, 64,
		at+5*eighth+0x1000, at+8*eighth, 128,
		at+8*eighth, at+8*eighth+0x1000, 256,
		0x7f0000000000, 0x7f0000001000, 512,
	))
	if want := (Footprint{All: 1023, Own: 12, Logs: 48, Kept: 192, Arena: 252}); got != want || err != nil {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	// The library's agent divides its arena otherwise, or something else lies there.
	if _, err := parseFootprint(smaps(at+eighth/2, at+2*eighth, 1)); err == nil {
		t.Error("a mapping in two parts is taken for one in one")
	}
}
