package tracee

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Memory reads the memory of a process at its addresses: offset n of the reader is address n. Nothing is stopped for it. A read that
// runs into memory that is not there returns what came before, and an error.
func Memory(pid int) io.ReaderAt { return memory(pid) }

type memory int

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("process %d: %v is no user address", int(m), Addr(off))
	}
	done := 0
	for done < len(p) {
		addr := uintptr(off) + uintptr(done)
		n, err := unix.ProcessVMReadv(int(m), []unix.Iovec{iovec(p[done:])}, []unix.RemoteIovec{{Base: addr, Len: len(p) - done}}, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return done, fmt.Errorf("process %d: reading %d bytes at %v: %w", int(m), len(p)-done, Addr(addr), err)
		}
		done += n
	}
	return done, nil
}

func iovec(p []byte) unix.Iovec {
	v := unix.Iovec{Base: &p[0]}
	v.SetLen(len(p))
	return v
}
