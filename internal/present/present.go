// Package present makes large pieces of memory whose pages are there at once: where all of it is soon written, a fault for each page costs more than what is written, in virtual machines several times as much.
package present

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// least is how large a piece is of which the kernel is asked.
const least = 64 << 10

// pageSize is the kernel's.
const pageSize = 4096

// Bytes gives n bytes of zeros.
func Bytes(n int) []byte {
	b := make([]byte, n)
	populate(b)
	return b
}

// Words gives n words of zeros.
func Words(n int) []uint64 {
	w := make([]uint64, n)
	if n > 0 {
		populate(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*n))
	}
	return w
}

// Clone gives a copy.
func Clone(b []byte) []byte {
	c := Bytes(len(b))
	copy(c, b)
	return c
}

// populate asks for the pages that lie whole in b. An error is no matter: they come one by one then.
func populate(b []byte) {
	if len(b) < least {
		return
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (pageSize - 1)
	if n := (uintptr(len(b)) - skip) &^ (pageSize - 1); n > 0 {
		_ = unix.Madvise(b[skip:skip+n], unix.MADV_POPULATE_WRITE)
	}
}
