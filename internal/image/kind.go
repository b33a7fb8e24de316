package image

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Errors of Head, Classify and Open, for errors.Is.
var (
	ErrNotELF  = errors.New("not an ELF file")
	ErrDamaged = errors.New("damaged ELF file") // truncated, or headers that contradict themselves
)

// Libc is the C library that a program's interpreter belongs to.
type Libc string

const (
	LibcNone  Libc = "none" // no interpreter: static
	LibcGlibc Libc = "glibc"
	LibcMusl  Libc = "musl"
	LibcOther Libc = "other"
)

// Kind is what the head of an ELF file says.
type Kind struct {
	Class   elf.Class
	Data    elf.Data
	Machine elf.Machine
	Type    elf.Type // ET_EXEC, ET_DYN, …
	Entry   uint64
	Interp  string // path of the interpreter, "" if there is none
	Libc    Libc
	Dynamic bool // has a dynamic section
	PIE     bool // ET_DYN with an interpreter
	// Truncated: a segment lies beyond the end of the file or lacks its bytes, so the kernel would refuse to run it or the program would
	// die of SIGBUS. Separate debug files look like that too, whence it is no error here.
	Truncated bool
}

// Static says that no dynamic linker runs in the program.
func (k Kind) Static() bool { return k.Interp == "" }

// Classify reads the head of the file at path. Errors of the operating system come as they are.
func Classify(path string) (Kind, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return Kind{}, err
	}
	defer f.Close()
	return head(f, size, path)
}

// Head reads the head of an ELF file of the given size. It fails with ErrNotELF or ErrDamaged, or with the reader's own error.
func Head(r io.ReaderAt, size int64) (Kind, error) { return head(r, size, "file") }

func head(r io.ReaderAt, size int64, name string) (Kind, error) {
	damaged := func(format string, a ...any) (Kind, error) {
		return Kind{}, fmt.Errorf("%s: %w: %s", name, ErrDamaged, fmt.Sprintf(format, a...))
	}
	readAt := func(b []byte, off int64) error {
		n, err := r.ReadAt(b, off)
		if n == len(b) {
			return nil
		}
		return err
	}
	var h [64]byte
	if size < 4 {
		return Kind{}, fmt.Errorf("%s: %w", name, ErrNotELF)
	}
	if err := readAt(h[:4], 0); err != nil {
		return Kind{}, fmt.Errorf("%s: %w", name, err)
	}
	if string(h[:4]) != elf.ELFMAG {
		return Kind{}, fmt.Errorf("%s: %w", name, ErrNotELF)
	}
	if size < 52 {
		return damaged("%d bytes are too few for its header", size)
	}
	want := int64(len(h))
	if size < want {
		want = size
	}
	if err := readAt(h[:want], 0); err != nil {
		return Kind{}, fmt.Errorf("%s: %w", name, err)
	}
	k := Kind{Class: elf.Class(h[4]), Data: elf.Data(h[5]), Libc: LibcNone}
	var bo binary.ByteOrder = binary.LittleEndian
	switch k.Data {
	case elf.ELFDATA2LSB:
	case elf.ELFDATA2MSB:
		bo = binary.BigEndian
	default:
		return damaged("byte order %d", h[5])
	}
	if h[6] != 1 {
		return damaged("ELF version %d", h[6])
	}
	k.Type, k.Machine = elf.Type(bo.Uint16(h[16:])), elf.Machine(bo.Uint16(h[18:]))

	var phoff uint64
	var phentsize, phnum, wantEnt uint16
	switch k.Class {
	case elf.ELFCLASS32:
		k.Entry, phoff = uint64(bo.Uint32(h[24:])), uint64(bo.Uint32(h[28:]))
		phentsize, phnum, wantEnt = bo.Uint16(h[42:]), bo.Uint16(h[44:]), 32
	case elf.ELFCLASS64:
		if size < 64 {
			return damaged("%d bytes are too few for its header", size)
		}
		k.Entry, phoff = bo.Uint64(h[24:]), bo.Uint64(h[32:])
		phentsize, phnum, wantEnt = bo.Uint16(h[54:]), bo.Uint16(h[56:]), 56
	default:
		return damaged("class %d", h[4])
	}
	if phnum == 0 {
		return k, nil
	}
	if phentsize != wantEnt {
		return damaged("program headers of %d bytes, not %d", phentsize, wantEnt)
	}
	if phoff > uint64(size) || uint64(phnum)*uint64(phentsize) > uint64(size)-phoff {
		return damaged("its program headers lie beyond the end of the file (truncated?)")
	}
	ph := make([]byte, int(phnum)*int(phentsize))
	if err := readAt(ph, int64(phoff)); err != nil {
		return Kind{}, fmt.Errorf("%s: %w", name, err)
	}
	for i := 0; i < int(phnum); i++ {
		p := ph[i*int(phentsize):]
		var off, filesz, memsz uint64
		if k.Class == elf.ELFCLASS64 {
			off, filesz, memsz = bo.Uint64(p[8:]), bo.Uint64(p[32:]), bo.Uint64(p[40:])
		} else {
			off, filesz, memsz = uint64(bo.Uint32(p[4:])), uint64(bo.Uint32(p[16:])), uint64(bo.Uint32(p[20:]))
		}
		switch elf.ProgType(bo.Uint32(p)) {
		case elf.PT_LOAD:
			if filesz > memsz {
				return damaged("segment %d is larger in the file than in memory", i)
			}
			if off > uint64(size) || filesz > uint64(size)-off {
				if k.Type == elf.ET_EXEC || k.Type == elf.ET_DYN {
					k.Truncated = true
				}
			}
		case elf.PT_DYNAMIC:
			k.Dynamic = true
		case elf.PT_INTERP:
			if k.Interp != "" {
				continue
			}
			if filesz == 0 {
				k.Truncated = true // in a debug file
				continue
			}
			if filesz < 2 || filesz > 4096 {
				return damaged("the name of its interpreter has %d bytes", filesz)
			}
			if off > uint64(size) || filesz > uint64(size)-off {
				k.Truncated = true
				continue
			}
			b := make([]byte, filesz)
			if err := readAt(b, int64(off)); err != nil {
				return Kind{}, fmt.Errorf("%s: %w", name, err)
			}
			s, _, ok := strings.Cut(string(b), "\x00")
			if !ok {
				return damaged("the name of its interpreter does not end")
			}
			k.Interp = s
		}
	}
	k.PIE = k.Type == elf.ET_DYN && k.Interp != ""
	if k.Interp != "" {
		switch base := path.Base(k.Interp); {
		case strings.HasPrefix(base, "ld-musl-"):
			k.Libc = LibcMusl
		case strings.HasPrefix(base, "ld-linux"), strings.HasPrefix(base, "ld.so."), strings.HasPrefix(base, "ld64.so."):
			k.Libc = LibcGlibc
		default:
			k.Libc = LibcOther
		}
	}
	return k, nil
}
