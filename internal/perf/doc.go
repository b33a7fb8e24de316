// Package perf reads and writes perf.data, the file of Linux' perf: attributes of the events, what the machine was (features), and records
// in the order of the file. It is pure: bytes to values and back; it opens no event and no file.
//
// A file has a header that points to its parts; a pipe, or a file made of one, begins with a shorter header and carries the same in
// records. Numbers have the byte order of the machine that recorded, and both orders are read and written.
//
// Sources: tools/perf/Documentation/perf.data-file-format.txt, tools/lib/perf/include/perf/event.h, include/uapi/linux/perf_event.h and
// perf_event_open(2). Names are those of the kernel.
package perf

import (
	"errors"
	"fmt"
)

// What can be wrong with a file. They come in an *Error.
var (
	ErrFormat    = errors.New("not a perf.data file")
	ErrTruncated = errors.New("the file ends too early")
	ErrSize      = errors.New("a size that cannot be")
	ErrShort     = errors.New("shorter than its contents")
	ErrID        = errors.New("no event has its id")
	ErrContents  = errors.New("contents that cannot be")
)

// An Error says what was wrong, with what, and where.
type Error struct {
	Offset int64  // in the file, of what is named
	What   string // "record MMAP2", "feature CPU_TOPOLOGY"
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("perf.data: at offset %#x: %s: %v", e.Offset, e.What, e.Err)
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }
