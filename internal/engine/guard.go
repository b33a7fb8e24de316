package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/syscalls"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// guardWindow is how far before a `syscall` instruction its number is looked for.
const guardWindow = 24

// guards gives the system calls that a module makes by instructions of its own and that may be about signals: those must go by the agent, or a thread blocks SIGTRAP and meets int3, or a
// handler is entered past the agent's stubs. Go's runtime makes them so. Likewise those that may hand requests to the kernel (the agent's uring.c), which order threads: liburing's. Sites of the client come first.
func (p *Process) guards(m *Module, sites []patch.Site) (list []patch.Site) {
	hook := p.Func(wire.PatchFuncSyscallHook)
	if m.Kind != Program && m.Kind != Library || len(sites) == 0 && !p.e.opts.Orders || hook == 0 {
		return nil
	}
	for _, c := range m.guarded() {
		at := c.at + m.Bias
		if !slices.ContainsFunc(sites, func(x patch.Site) bool { return x.At == at }) {
			list = append(list, patch.Site{At: at, Recipe: syscalls.Recipe{Next: at + uint64(c.size), Hook: hook}})
		}
	}
	return list
}

// A guarded is a system call that guards names.
type guarded struct {
	at   uint64 // link-time address
	size uint8  // of the instruction
}

// guarded finds them, or knows them from another process: what they are depends on the code alone, and to look for them takes as long as to read what is known of it.
func (m *Module) guarded() (list []guarded) {
	const name = "guards"
	if m.learn(); m.partly {
		return m.guards
	}
	if b, ok := m.Kept(name); ok {
		if list, err := m.parseGuarded(b); err == nil {
			return list
		}
	}
	found := syscalls.Find(func(yield func(uint64, *x86.Inst) bool) {
		for _, t := range m.texts {
			next := t.at
			for i := bytes.Index(t.code, opSyscall); i >= 0; {
				at := t.at + uint64(i)
				for a := max(next, at-min(guardWindow, uint64(i))); a <= at && t.plan.Begins(at); next = a {
					in, err := x86.Decode(t.code[a-t.at:])
					if err != nil || !t.plan.Begins(a) {
						a++
						continue
					}
					if !yield(a, &in) {
						return
					}
					a += uint64(in.Len)
				}
				n := bytes.Index(t.code[i+1:], opSyscall)
				if n < 0 {
					break
				}
				i += 1 + n
			}
		}
	})
	for _, s := range found {
		switch s.Number {
		case -1, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK,
			unix.SYS_MMAP, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_SUBMIT, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS:
		default:
			continue
		}
		if s.Left == "" {
			list = append(list, guarded{s.At - m.Bias, uint8(s.Len)})
		}
	}
	if !m.closed.Load() { // it may have ended early
		m.Keep(name, appendGuarded(nil, list))
	}
	return list
}

// appendGuarded appends them for parseGuarded: of each the address and the size.
func appendGuarded(dst []byte, list []guarded) []byte {
	for _, c := range list {
		dst = append(binary.AppendUvarint(dst, c.at), c.size)
	}
	return dst
}

var errGuarded = errors.New("not system calls of this module")

// parseGuarded takes any bytes.
func (m *Module) parseGuarded(b []byte) (list []guarded, err error) {
	for len(b) > 0 {
		at, n := binary.Uvarint(b)
		if n <= 0 || len(b) == n {
			return nil, errGuarded
		}
		c := guarded{at, b[n]}
		t := m.text(at + m.Bias)
		if t == nil || t.plan.Len(at+m.Bias) != int(c.size) {
			return nil, errGuarded
		}
		list, b = append(list, c), b[n+1:]
	}
	return list, nil
}

var opSyscall = []byte{0x0f, 0x05}
