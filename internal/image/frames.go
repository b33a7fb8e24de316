package image

import (
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

// Frames names what is at a link-time address: the function and line, and before it the functions inlined there, innermost first. For
// a return address the caller passes the address less one. PC, Module, Offset and BuildID are not set. Nil: nothing is known.
func (m *Image) Frames(addr uint64) []finding.Frame {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	var out []finding.Frame
	if err := m.guard(func() error { out = m.frames(addr); return nil }); err != nil {
		m.note("%v", err)
		return nil
	}
	return out
}

func (m *Image) frames(addr uint64) []finding.Frame {
	sym, haveSym := m.symbol(addr)
	haveSym = haveSym && !sym.Data
	var calls []call
	if d := m.dwarf(); d != nil {
		calls = d.calls(addr)
		if d.work < 0 {
			m.note("%s: names may be missing, since its debug information refers to the same data too often to be followed", m.path)
		}
		if d.split {
			m.note("%s: parts of its debug information are in .dwo files (-gsplit-dwarf), which are not read: inlined calls are missing", m.path)
		}
	}
	if len(calls) == 0 {
		if !haveSym {
			return nil
		}
		return []finding.Frame{named(sym.Name, sym.Name)}
	}
	out := make([]finding.Frame, 0, len(calls))
	for i, c := range calls {
		name, linkage := c.name, c.linkage
		if i == len(calls)-1 && haveSym {
			// The symbol table knows a function better where DWARF gives no linkage name, or that of an internal alias.
			if !mangled(linkage) && name != "" {
				linkage = ""
			}
			switch {
			case linkage == "" && (name == "" || mangled(sym.Name)):
				linkage = sym.Name
			case linkage == "" && strings.HasPrefix(name, "__") && underscores(sym.Name) < underscores(name):
				name = sym.Name // ___pthread_mutex_lock, __GI_kill
			}
		}
		f := named(name, linkage)
		if i == len(calls)-1 && haveSym && sym.Name != f.Func {
			f.Symbol = sym.Name
		}
		f.File, f.Line, f.Column, f.Inlined = c.file, c.line, c.column, c.inlined
		out = append(out, f)
	}
	return out
}

func underscores(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }

// named makes a frame of a plain name and a linkage name, either of which may be missing.
func named(name, linkage string) finding.Frame {
	f := finding.Frame{Func: name}
	if linkage != "" {
		if d := Demangle(linkage); d != linkage || name == "" {
			f.Func = d
		}
		if f.Func != linkage {
			f.Symbol = linkage
		}
	}
	return f
}

func mangled(s string) bool { return strings.HasPrefix(s, "_Z") || strings.HasPrefix(s, "_R") }
