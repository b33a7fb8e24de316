// Package agent is the Go side of a session: it carries the agent's library, starts a program under it, answers the agent's questions,
// and takes the events out of the rings. What events mean, and what is reported, is not its business.
//
// A Session has a directory (the library and a socket), a control page shared with all agents, and for every traced process its regions.
// Launching (Resolve, Start, Supervise) makes the program see us as little as can be: as it would be started by whoever started us.
//
// Everything that comes from a target is hostile until checked: messages, descriptors, and every word of shared memory.
package agent

import (
	"bytes"
	"debug/elf"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
)

// lib holds libripstop.so once make has built it, and a README so that the directory is there without it.
//
//go:embed lib
var lib embed.FS

const libraryName = "libripstop.so"

// ErrNoAgent says that this binary was built without the agent.
var ErrNoAgent = errors.New("this ripstop was built without its agent: build it with 'make' in its source directory")

// Library returns the bytes of the agent's shared object. It leaves functions that only access memory for their callers, such as memcpy, to the C library.
func Library() ([]byte, error) {
	b, err := Interposing()
	if err != nil {
		return nil, err
	}
	return WithoutProtected(b)
}

// Interposing is Library with all its functions, for programs whose accesses are all told.
func Interposing() ([]byte, error) {
	b, err := lib.ReadFile("lib/" + libraryName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoAgent
	}
	return b, err
}

// WithoutProtected is what Library makes of the agent's shared object: it takes the values away from a library's dynamic symbols of protected visibility (internal/agent/c/called.h). The dynamic linker passes by a symbol without a value
// (check_match in glibc's elf/dl-lookup.c), so that whoever asks for such a name gets the C library's. Their own
// look-up of the C library's functions at their first call would take the text of dlerror from the program.
func WithoutProtected(lib []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(lib))
	if err != nil {
		return nil, fmt.Errorf("BUG: the agent's library: %w", err)
	}
	s := f.SectionByType(elf.SHT_DYNSYM)
	if s == nil || s.Offset > uint64(len(lib)) || s.FileSize > uint64(len(lib))-s.Offset {
		return nil, errors.New("BUG: the agent's library has no dynamic symbols")
	}
	const value = 8
	out := bytes.Clone(lib)
	for syms := out[s.Offset : s.Offset+s.FileSize]; len(syms) >= elf.Sym64Size; syms = syms[elf.Sym64Size:] {
		if elf.ST_VISIBILITY(syms[5]) == elf.STV_PROTECTED && elf.ST_TYPE(syms[4]) == elf.STT_FUNC {
			binary.LittleEndian.PutUint64(syms[value:], 0)
		}
	}
	return out, nil
}
