package present

import (
	"bytes"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is given is zeros, or a copy, of any size; and of a large piece the pages are there.
func TestPresent(t *testing.T) {
	for _, n := range []int{0, 1, 4096, least - 1, least, least + 1, 1<<20 + 123} {
		if b := Bytes(n); len(b) != n || bytes.Count(b, []byte{0}) != n {
			t.Fatalf("%d bytes: %d, or not of zeros", n, len(b))
		}
		if w := Words(n); len(w) != n {
			t.Fatalf("%d words: %d", n, len(w))
		}
		b := bytes.Repeat([]byte{7}, n)
		if c := Clone(b); !bytes.Equal(c, b) {
			t.Fatalf("a copy of %d bytes differs", n)
		}
	}
	b := make([]byte, 8<<20) // from the system: nothing of it is there yet
	in := inCore(t, b)
	populate(b)
	if now := inCore(t, b); now < in || now < len(b)/pageSize-2 {
		t.Errorf("%d of %d pages are there, before %d", now, len(b)/pageSize, in)
	}
}

// inCore counts the pages of b that are in memory.
func inCore(t *testing.T, b []byte) (n int) {
	skip := -uintptr(unsafe.Pointer(&b[0])) & (pageSize - 1)
	b = b[skip : len(b)&^(pageSize-1)]
	vec := make([]byte, len(b)/pageSize)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&vec[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}
