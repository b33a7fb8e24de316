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
	"io"
	"io/fs"
	"os"
)

// lib holds libripstop.so once make has built it, and a README so that the directory is there without it.
//
//go:embed lib
var lib embed.FS

const libraryName = "libripstop.so"

// ErrNoAgent says that this binary was built without the agent.
var ErrNoAgent = errors.New("this ripstop was built without its agent: build it with 'make' in its source directory")

// library is an agent's shared object.
type library struct {
	io.ReaderAt
	size    int64
	instead []bytesAt // what stands there instead
}

type bytesAt struct {
	at int64
	b  []byte
}

// openLibrary opens the one that is built in. If interposing is false it leaves functions that only access memory for their callers, such as memcpy, to
// the C library; with them it is for programs whose accesses are all told. With a runtime's name it takes that one's place (instrumented.go), if that is ThreadSanitizer's.
func openLibrary(interposing bool, runtime string) (*library, error) {
	f, err := lib.Open("lib/" + libraryName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoAgent
	}
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l := &library{ReaderAt: f.(io.ReaderAt), size: fi.Size()} // embed.FS: its files are io.ReaderAt
	err = l.without(func(runtimes bool) bool {
		if runtimes {
			return runtime == ""
		}
		return !interposing
	})
	if err == nil && runtime != "" {
		err = l.rename(runtime)
	}
	return l, err
}

// write makes a file of it, in pieces: as a whole it would be the largest part of what we allocate for a short run. Pages of zeros, nearly half of it, are holes
// in the file.
func (l *library) write(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const page = 4 << 10
	piece := make([]byte, 16*page)
	for at := int64(0); at < l.size; at += int64(len(piece)) {
		n, err := l.ReadAt(piece, at)
		if err != nil && err != io.EOF {
			return err
		}
		for from := 0; from < n; {
			to := from // what is to be written up to the next page of zeros
			for to < n && !isZero(piece[to:min(to+page, n)]) {
				to += page
			}
			if to > from {
				if _, err := f.WriteAt(piece[from:min(to, n)], at+int64(from)); err != nil {
					return err
				}
			}
			from = to + page
		}
	}
	if err := f.Truncate(l.size); err != nil {
		return err
	}
	for _, p := range l.instead {
		if _, err := f.WriteAt(p.b, p.at); err != nil {
			return err
		}
	}
	return nil
}

func isZero(b []byte) bool { return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// Library returns the bytes of the agent's shared object. It leaves functions that only access memory for their callers, such as memcpy, to the C library.
func Library() ([]byte, error) {
	l, err := openLibrary(false, "")
	if err != nil {
		return nil, err
	}
	return l.bytes()
}

func (l *library) bytes() ([]byte, error) {
	b := make([]byte, l.size)
	if _, err := l.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	for _, p := range l.instead {
		copy(b[p.at:], p.b)
	}
	return b, nil
}

// WithoutProtected is what Library makes of the agent's shared object.
func WithoutProtected(lib []byte) ([]byte, error) {
	l := &library{ReaderAt: bytes.NewReader(lib), size: int64(len(lib))}
	if err := l.without(func(bool) bool { return true }); err != nil {
		return nil, err
	}
	return l.bytes()
}

// without takes the values away from those of a library's dynamic symbols of protected visibility (internal/agent/c/called.h) that are gone: those of ThreadSanitizer's runtime, the others. The
// dynamic linker passes by a symbol without a value (check_match in glibc's elf/dl-lookup.c), so that whoever asks for such a name gets the C library's. Their own
// look-up of the C library's functions at their first call would take the text of dlerror from the program. Those that stay are of default visibility then, to which nobody within the
// library refers by name: of protected ones the dynamic linker warns on standard error where a program that is linked to a fixed address has a pointer to them (glibc's dl-protected.h).
func (l *library) without(gone func(runtimes bool) bool) error {
	f, err := elf.NewFile(l)
	if err != nil {
		return fmt.Errorf("BUG: the agent's library: %w", err)
	}
	s, err := dynamicSymbols(f)
	if err != nil {
		return err
	}
	b, err := s.Data()
	if err != nil {
		return fmt.Errorf("BUG: the dynamic symbols of the agent's library: %w", err)
	}
	for syms := b; len(syms) >= elf.Sym64Size; syms = syms[elf.Sym64Size:] {
		section := binary.LittleEndian.Uint16(syms[symbolSection:])
		switch {
		case !protected(syms[symbolInfo], syms[symbolOther]):
		case gone(isRuntimes(f, elf.SectionIndex(section))):
			clear(syms[symbolValue : symbolValue+8])
		default:
			syms[symbolOther] = syms[symbolOther]&^3 | byte(elf.STV_DEFAULT)
		}
	}
	l.instead = append(l.instead, bytesAt{int64(s.Offset), b})
	return nil
}

// Where a symbol of an ELF file has what (Elf64_Sym).
const (
	symbolInfo    = 4
	symbolOther   = 5
	symbolSection = 6
	symbolValue   = 8
)

func protected(info, other byte) bool {
	return elf.ST_VISIBILITY(other) == elf.STV_PROTECTED && elf.ST_TYPE(info) == elf.STT_FUNC
}

// dynamicSymbols gives the section of them.
func dynamicSymbols(f *elf.File) (*elf.Section, error) {
	s := f.SectionByType(elf.SHT_DYNSYM)
	if s == nil || int(s.Link) >= len(f.Sections) {
		return nil, errors.New("BUG: the agent's library has no dynamic symbols")
	}
	return s, nil
}
