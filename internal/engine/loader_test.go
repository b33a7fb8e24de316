package engine

import (
	"bytes"
	"testing"
)

// What the loader calls for debuggers is written over only if it does nothing, and as far as it is padded: anything else there is somebody's, a debugger's breakpoint too.
func TestEmptyFunction(t *testing.T) {
	const nop11 = "\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00"
	for _, c := range []struct {
		name, code string
		n          int
	}{
		{"padded by long nops", "\xc3" + nop11 + "\x0f\x1f\x40\x00", 16},
		{"with endbr64", "\xf3\x0f\x1e\xfa\xc3" + nop11, 16},
		{"repz ret", "\xf3\xc3" + nop11 + "\x66\x0f\x1f", 13},
		{"int3 behind it", "\xc3\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc", 16},
		{"the next function begins at once", "\xc3\x48\x89\xf8\xc3" + nop11, 1},
		{"a breakpoint", "\xcc" + nop11 + "\x0f\x1f\x40\x00", 0},
		{"it does something", "\x31\xc0\xc3" + nop11 + "\x90\x90", 0},
		{"it takes arguments away", "\xc2\x08\x00" + nop11 + "\x90\x90", 0},
		{"it falls through", "\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90", 0},
	} {
		if n := emptyFunction([]byte(c.code)); n != c.n {
			t.Errorf("%s: %d, not %d", c.name, n, c.n)
		}
	}
	if n := emptyFunction(bytes.Repeat([]byte{0xf3, 0x0f, 0x1e, 0xfa}, 4)); n >= jumpBytes {
		t.Errorf("endbr64 alone: %d", n)
	}
}
