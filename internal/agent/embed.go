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
	size int64
	// What stands at symbolsAt instead; nil: nothing does.
	symbols   []byte
	symbolsAt int64
}

// openLibrary opens the one that is built in. If interposing is false it leaves functions that only access memory for their callers, such as memcpy, to
// the C library; with them it is for programs whose accesses are all told.
func openLibrary(interposing bool) (*library, error) {
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
	if !interposing {
		err = l.withoutProtected()
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
	_, err = f.WriteAt(l.symbols, l.symbolsAt)
	return err
}

func isZero(b []byte) bool { return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// Library returns the bytes of the agent's shared object. It leaves functions that only access memory for their callers, such as memcpy, to the C library.
func Library() ([]byte, error) {
	l, err := openLibrary(false)
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
	copy(b[l.symbolsAt:], l.symbols)
	return b, nil
}

// WithoutProtected is what Library makes of the agent's shared object.
func WithoutProtected(lib []byte) ([]byte, error) {
	l := &library{ReaderAt: bytes.NewReader(lib), size: int64(len(lib))}
	if err := l.withoutProtected(); err != nil {
		return nil, err
	}
	return l.bytes()
}

// withoutProtected takes the values away from a library's dynamic symbols of protected visibility (internal/agent/c/called.h). The dynamic linker passes by a symbol without a value
// (check_match in glibc's elf/dl-lookup.c), so that whoever asks for such a name gets the C library's. Their own
// look-up of the C library's functions at their first call would take the text of dlerror from the program.
func (l *library) withoutProtected() error {
	f, err := elf.NewFile(l)
	if err != nil {
		return fmt.Errorf("BUG: the agent's library: %w", err)
	}
	s := f.SectionByType(elf.SHT_DYNSYM)
	if s == nil {
		return errors.New("BUG: the agent's library has no dynamic symbols")
	}
	b, err := s.Data()
	if err != nil {
		return fmt.Errorf("BUG: the dynamic symbols of the agent's library: %w", err)
	}
	const value = 8
	for syms := b; len(syms) >= elf.Sym64Size; syms = syms[elf.Sym64Size:] {
		if elf.ST_VISIBILITY(syms[5]) == elf.STV_PROTECTED && elf.ST_TYPE(syms[4]) == elf.STT_FUNC {
			clear(syms[value : value+8])
		}
	}
	l.symbols, l.symbolsAt = b, int64(s.Offset)
	return nil
}
