// Package tracee looks at a running process from outside: its threads, their registers, its memory and its mappings. It stops one
// thread at a time for as long as its registers are read, and lets it go on every path; if we die, the kernel lets it go. What the
// registers and the memory mean does not belong here.
package tracee

import "fmt"

// Addr is an address in another process. The distinct type keeps it from being dereferenced or mixed with our own addresses.
type Addr uint64

// String prints the address as 0x….
func (a Addr) String() string { return fmt.Sprintf("%#x", uint64(a)) }
