// Package hook finds the instructions by which libc, ld.so, the vdso and, for guard, a program itself make system calls, and what is to be put in their place: a jump to the agent's hook
// (internal/agent/c/syshook.c), which counts calls, or records them.
package hook

import (
	"debug/elf"
	"strings"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/syscalls"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// An Asked is an instruction that is to be patched, or is left alone for a reason.
type Asked struct {
	At   uint64
	Left string
}

// Sites gives the sites of a module, and all that was found.
func Sites(p *engine.Process, m *engine.Module) (sites []patch.Site, list []Asked) {
	switch m.Kind {
	case engine.Libc, engine.Loader, engine.VDSO:
	default:
		return nil, nil
	}
	for _, c := range calls(m) {
		at := c.at + m.Bias
		list = append(list, Asked{at, string(c.left)})
		if c.left == "" {
			sites = append(sites, patch.Site{At: at, Recipe: syscalls.Recipe{Next: at + uint64(c.size), Hook: p.Func(wire.PatchFuncSyscallHook)}})
		}
	}
	if m.Kind == engine.VDSO {
		for row, at := range entries(m) {
			at += m.Bias
			list = append(list, Asked{at, ""})
			sites = append(sites, patch.Site{At: at, Recipe: syscalls.EntryRecipe{Entry: at, Hook: p.Func(wire.PatchFuncVdsoHook), Offset: uint32(row * wire.SizeCallCount)}})
		}
	}
	return sites, list
}

// A Client has all of them patched, and keeps nothing. It is an engine's client.
type Client struct{}

// Start needs nothing.
func (Client) Start(*engine.Process) error { return nil }

// Sites gives the sites of a module.
func (Client) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	sites, _ := Sites(p, m)
	return sites
}

// Patched takes no note.
func (Client) Patched(*engine.Process, *engine.Module, func(uint64) *patch.Patch) {}

// Site refuses: nothing is patched on request.
func (Client) Site(*engine.Process, *engine.Module, uint64) (patch.Recipe, bool) { return nil, false }

// Unasked says that all is patched when a module comes.
func (Client) Unasked() {}

// End does nothing.
func (Client) End(*engine.Process) {}

// calls gives a module's system calls, by link-time addresses. The list must not change.
func calls(m *engine.Module) []call {
	return m.Recalled("syscalls", func() any { return findCalls(m) }).([]call)
}

// findCalls finds them, or knows them from another session. The vdso is the kernel's, and small.
func findCalls(m *engine.Module) []call {
	const name = "syscalls"
	if b, ok := kept(m, name); ok {
		if list, err := parseCalls(b); err == nil {
			return list
		}
	}
	var list []call
	found := syscalls.Find(func(yield func(uint64, *x86.Inst) bool) {
		near(m, yield, func(at uint64, before []byte) {
			if syscalls.ReturnsFromSignal(before) {
				list = append(list, call{at: at - m.Bias, left: syscalls.LeftSigreturn})
			}
		})
	})
	for _, s := range found {
		list = append(list, call{at: s.At - m.Bias, size: uint8(s.Len), left: s.Left})
	}
	if m.Kind != engine.VDSO {
		m.Keep(name, appendCalls(nil, list))
	}
	return list
}

// window is how far before a site its number is looked for.
const window = 24

// near calls yield for the known instructions up to each that may be a site, by address, and unknown for such bytes where no instruction is known, with those before them.
// To decode all of libc takes longer than all else.
func near(m *engine.Module, yield func(uint64, *x86.Inst) bool, unknown func(at uint64, before []byte)) {
	for _, s := range m.Image.Segments() {
		if s.Flags&elf.PF_X == 0 {
			continue
		}
		code := m.Image.Bytes(s.Addr, s.FileSize)
		next := uint64(0) // the first address that was not looked at
		for i := 0; i+1 < len(code); i++ {
			if !syscalls.MayBegin(code[i:]) {
				continue
			}
			at := s.Addr + m.Bias + uint64(i)
			var more bool
			if next, more = upTo(m, max(next, at-min(window, uint64(i))), at, yield, func() { unknown(at, code[:i]) }); !more {
				return
			}
		}
	}
}

// upTo calls yield for the known instructions from a up to one that may be a site, and unknown if there is none. It gives the first address that was not looked at; false: yield wants no more.
func upTo(m *engine.Module, a, at uint64, yield func(uint64, *x86.Inst) bool, unknown func()) (uint64, bool) {
	for a <= at {
		in, ok := m.Instruction(a)
		if !ok {
			if a == at {
				unknown()
			}
			a++
			continue
		}
		if !yield(a, &in.Inst) {
			return a, false
		}
		a += uint64(in.Inst.Len)
	}
	return a, true
}

// entries gives the link-time addresses of the vdso's functions, by row. The map must not change.
func entries(m *engine.Module) map[int]uint64 {
	return m.Recalled("entries", func() any { return findEntries(m) }).(map[int]uint64)
}

func findEntries(m *engine.Module) map[int]uint64 {
	list := map[int]uint64{}
	for _, f := range m.Image.Functions() {
		s, ok := m.Image.Symbol(f[0])
		row, known := syscalls.VDSO[strings.TrimPrefix(s.Name, "__vdso_")]
		if ok && known && s.Addr == f[0] {
			list[row] = f[0]
		}
	}
	return list
}
