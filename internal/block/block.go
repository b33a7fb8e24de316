// Package block makes system calls that block for long, at no cost while they do.
package block

import (
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// Go keeps a processor of its own (a P) for a thread in a system call, up to 10 ms, and looks every 20 µs whether to take it away: some sixty wake-ups of a thread of ours for each wait of
// some milliseconds, of which the program's processors are full. The runtime's own long waits give theirs away at once, by these two, which it keeps open for others (go.dev/issue/67401).

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// Syscall makes a system call that most likely waits for long. What the arguments point to must be in the heap or outside of Go's memory, and reachable until it returns.
//
//go:nosplit
func Syscall(trap, a1, a2, a3, a4, a5, a6 uintptr) (r uintptr, errno unix.Errno) {
	entersyscallblock()
	r, _, errno = unix.RawSyscall6(trap, a1, a2, a3, a4, a5, a6)
	exitsyscall()
	return r, errno
}
