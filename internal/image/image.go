package image

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxInflated bounds what one compressed section may become.
const maxInflated = 1 << 30

// maxSections bounds the section and program headers that are looked at.
const maxSections = 1 << 16

// Image is one opened ELF file. Its methods may be called by several goroutines.
type Image struct {
	path    string
	data    []byte      // the whole file
	mapped  bool        // data is a mapping of a file
	stat    unix.Stat_t // of it, as it was opened
	file    *elf.File
	buildID string

	mu       sync.Mutex
	closed   bool
	inflated map[string][]byte // decompressed sections by name
	syms     *symbols          // nil until needed
	dw       *dwarfFile        // nil until needed
	dwTried  bool
	dbg      *Image // separate debug file
	alt      *Image // what dwz moved out of dbg or of this file
	mini     *Image // .gnu_debugdata
	found    bool   // the debug files have been looked for
	notes    []string
	vtables  *Vtables // nil until needed
}

// Open opens an ELF file of this machine (64-bit little-endian x86-64). The file stays mapped until Close.
func Open(path string) (*Image, error) {
	data, stat, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	m, err := open(path, data, true)
	if err != nil {
		unmap(data)
		return nil, err
	}
	m.stat = stat
	return m, nil
}

// FromMemory reads an ELF image that is not a file, such as the vdso. The name is used in errors. The bytes must not change.
func FromMemory(name string, data []byte) (*Image, error) {
	return open(name, data, false)
}

func open(path string, data []byte, mapped bool) (*Image, error) {
	m := &Image{path: path, data: data, mapped: mapped, inflated: map[string][]byte{}}
	err := m.guard(func() error {
		k, err := head(bytes.NewReader(data), int64(len(data)), path)
		if err != nil {
			return err
		}
		if k.Class != elf.ELFCLASS64 || k.Machine != elf.EM_X86_64 {
			return fmt.Errorf("%s: not a 64-bit x86-64 ELF file, but %v %v", path, k.Class, k.Machine)
		}
		var f *elf.File
		if why := badSections(data); why == "" {
			f, err = elf.NewFile(bytes.NewReader(data))
		} else {
			err = errors.New(why)
		}
		if err != nil {
			// What is needed to run a program and to unwind it does not hang on the section table.
			m.note("%s: its section table is not used: %v", path, err)
			if f, err = elf.NewFile(sectionless(data)); err != nil {
				return fmt.Errorf("%s: %w: %v", path, ErrDamaged, err)
			}
		}
		m.file = f
		m.buildID = m.findBuildID()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// badSections says why debug/elf should not see the section table: it would allocate or decompress too much.
func badSections(data []byte) string {
	off, num, str := le64(data[40:]), uint64(le16(data[60:])), uint64(le16(data[62:]))
	if off == 0 {
		return ""
	}
	if off > uint64(len(data)) || uint64(len(data))-off < 64 || le16(data[58:]) != 64 {
		return "it lies outside the file"
	}
	if num == 0 {
		num = le64(data[off+32:])
	}
	if str == 0xffff {
		str = uint64(le32(data[off+40:]))
	}
	if num > maxSections || num*64 > uint64(len(data))-off {
		return fmt.Sprintf("it has %d entries", num)
	}
	if str < num {
		if s := data[off+64*str:]; elf.SectionFlag(le64(s[8:]))&elf.SHF_COMPRESSED != 0 {
			return "the names of the sections are compressed"
		}
	}
	return ""
}

// sectionless is the file as if it had no section table.
func sectionless(data []byte) io.ReaderAt {
	var h [64]byte
	copy(h[:], data)
	clear(h[40:48])
	clear(h[60:64])
	return headed{h, data}
}

// headed is data with its first 64 bytes replaced.
type headed struct {
	head [64]byte
	data []byte
}

func (h headed) ReadAt(p []byte, off int64) (int, error) {
	n, err := bytes.NewReader(h.data).ReadAt(p, off)
	if off < 64 {
		copy(p[:n], h.head[off:])
	}
	return n, err
}

// Close releases the file and its debug files. The image must not be used afterwards.
func (m *Image) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	for _, x := range []*Image{m.dbg, m.alt, m.mini} {
		if x != nil {
			x.Close()
		}
	}
	if m.mapped {
		unmap(m.data)
	}
	m.data, m.dw, m.syms, m.inflated = nil, nil, nil, nil
}

// Path is the name that the image was opened by.
func (m *Image) Path() string { return m.path }

// BuildID is the build-id in hexadecimal, or "".
func (m *Image) BuildID() string { return m.buildID }

// settled is how long ago a file was changed of which it is known that another change has another time.
const settled = 2 * time.Second

// Identity is what stands for the file's content: device, inode, size and times as they were when it was opened, of which ctime cannot be set back. "": there is no file, or it was changed just before, so that
// the next change might have the same time.
func (m *Image) Identity() string {
	if !m.mapped || time.Since(time.Unix(m.stat.Ctim.Unix())) < settled {
		return ""
	}
	return identity(&m.stat)
}

// Unchanged says whether the file that has the image's path now is the one that was opened, with the content that it had.
func (m *Image) Unchanged() bool {
	var st unix.Stat_t
	return m.mapped && unix.Stat(m.path, &st) == nil && identity(&st) == identity(&m.stat)
}

// IdentityOf is the Identity that an image would have of the file at a path, without opening it, and its inode.
func IdentityOf(path string) (id string, inode uint64) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || time.Since(time.Unix(st.Ctim.Unix())) < settled {
		return "", 0
	}
	return identity(&st), st.Ino
}

func identity(st *unix.Stat_t) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}

// Entry is the link-time address at which the kernel or the loader enters the image, 0 if there is none.
func (m *Image) Entry() uint64 { return m.file.Entry }

// Type is ET_EXEC, ET_DYN, …
func (m *Image) Type() elf.Type { return m.file.Type }

// Notes says what could not be used of the image and its debug files, one sentence each.
func (m *Image) Notes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.notes...)
}

func (m *Image) note(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	for _, n := range m.notes {
		if n == s {
			return
		}
	}
	if len(m.notes) < 32 {
		m.notes = append(m.notes, s)
	}
}

// guard runs fn, which reads the mapped file, and makes an error of the fault that follows when somebody truncates the file.
func (m *Image) guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if f, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		}); ok && f.Addr() >= 4096 {
			err = fmt.Errorf("%s: the file was truncated while it was read", m.path)
			return
		}
		panic(r)
	}()
	return fn()
}

// Section returns a copy of the named section's bytes, decompressed, and its link-time address. ok is false if there is none or it
// has no bytes in the file.
func (m *Image) Section(name string) (b []byte, addr uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, 0, false
	}
	err := m.guard(func() error {
		s := m.section(name)
		if s == nil {
			return nil
		}
		d, err := m.sectionData(s)
		if err != nil {
			return err
		}
		b, addr, ok = bytes.Clone(d), s.Addr, d != nil
		return nil
	})
	if err != nil {
		return nil, 0, false
	}
	return b, addr, ok
}

// Segment is a loaded part of the image.
type Segment struct {
	Addr, Size, FileSize uint64
	Offset               uint64 // in the file
	Flags                elf.ProgFlag
}

// Segments lists the PT_LOAD segments.
func (m *Image) Segments() []Segment {
	var out []Segment
	for _, p := range m.file.Progs {
		if p.Type == elf.PT_LOAD {
			out = append(out, Segment{p.Vaddr, p.Memsz, p.Filesz, p.Off, p.Flags})
		}
	}
	return out
}

// Program returns address and size of the first program header of a type, such as PT_GNU_EH_FRAME.
func (m *Image) Program(t elf.ProgType) (addr, size uint64, ok bool) {
	for _, p := range m.file.Progs {
		if p.Type == t {
			return p.Vaddr, p.Memsz, true
		}
	}
	return 0, 0, false
}

// Bytes returns a copy of up to n bytes that are loaded from the file at a link-time address: fewer when the segment's file part ends
// earlier, nil when nothing is there.
func (m *Image) Bytes(addr, n uint64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	var out []byte
	err := m.guard(func() error {
		out = bytes.Clone(m.at(addr, n))
		return nil
	})
	if err != nil {
		return nil
	}
	return out
}

// at is Bytes without the copy.
func (m *Image) at(addr, n uint64) []byte {
	for _, p := range m.file.Progs {
		if p.Type != elf.PT_LOAD || addr < p.Vaddr || addr-p.Vaddr >= p.Filesz {
			continue
		}
		skip := addr - p.Vaddr
		d := m.fileRange(p.Off, p.Filesz)
		if skip >= uint64(len(d)) {
			return nil
		}
		d = d[skip:]
		if uint64(len(d)) > n {
			d = d[:n:n]
		}
		return d
	}
	return nil
}

// fileRange is the part of [off, off+n) that the file has.
func (m *Image) fileRange(off, n uint64) []byte {
	size := uint64(len(m.data))
	if off >= size {
		return nil
	}
	if n > size-off {
		n = size - off
	}
	return m.data[off : off+n : off+n]
}

// HasSection says whether there is a section of that name.
func (m *Image) HasSection(name string) bool { return m.section(name) != nil }

// section finds a section by name; .zdebug_x stands for .debug_x.
func (m *Image) section(name string) *elf.Section {
	for _, s := range m.file.Sections {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// sectionData returns the bytes of a section without a copy if it is not compressed. Nil: it has none in the file.
func (m *Image) sectionData(s *elf.Section) ([]byte, error) {
	if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL {
		return nil, nil
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		if s.Offset > uint64(len(m.data)) || s.FileSize > uint64(len(m.data))-s.Offset {
			return nil, fmt.Errorf("%s: section %s lies outside the file", m.path, s.Name)
		}
		return m.data[s.Offset : s.Offset+s.FileSize : s.Offset+s.FileSize], nil
	}
	if d, ok := m.inflated[s.Name]; ok {
		return d, nil
	}
	if s.Size > maxInflated {
		return nil, fmt.Errorf("%s: section %s says that it is %d bytes when decompressed; more than %d are not read", m.path, s.Name, s.Size, maxInflated)
	}
	r := s.Open()
	if r == nil {
		return nil, fmt.Errorf("%s: section %s has a compression that is not known", m.path, s.Name)
	}
	// The buffer grows with what really comes, not with what the header says.
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, int64(s.Size)+1))
	if err == nil && uint64(n) != s.Size {
		err = fmt.Errorf("%d bytes, not %d", n, s.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: section %s cannot be decompressed: %w", m.path, s.Name, err)
	}
	m.inflated[s.Name] = b.Bytes()
	return b.Bytes(), nil
}

// findBuildID looks through the notes of the segments, then of the sections (a debug file's segments have no bytes).
func (m *Image) findBuildID() string {
	for _, s := range m.file.Sections {
		if s.Type == elf.SHT_NOTE && s.Flags&elf.SHF_COMPRESSED == 0 {
			if id := buildIDNote(m.fileRange(s.Offset, s.FileSize)); id != "" {
				return id
			}
		}
	}
	for _, p := range m.file.Progs {
		if p.Type == elf.PT_NOTE {
			if id := buildIDNote(m.fileRange(p.Off, p.Filesz)); id != "" {
				return id
			}
		}
	}
	return ""
}

// buildIDNote finds NT_GNU_BUILD_ID in a sequence of ELF notes.
func buildIDNote(b []byte) string {
	for len(b) >= 12 {
		ns, ds, typ := uint64(le32(b)), uint64(le32(b[4:])), le32(b[8:])
		b = b[12:]
		if (ns+3)&^3 > uint64(len(b)) {
			return ""
		}
		name, rest := b[:ns], b[(ns+3)&^3:]
		if ds > uint64(len(rest)) {
			return ""
		}
		if typ == 3 && string(name) == "GNU\x00" && ds > 0 && ds <= 64 {
			return hex.EncodeToString(rest[:ds])
		}
		if (ds+3)&^3 > uint64(len(rest)) {
			return ""
		}
		b = rest[(ds+3)&^3:]
	}
	return ""
}

// openRegular opens a file that must be a regular one, without waiting on a FIFO.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// ErrNotRegular says that a path is a directory, device or pipe.
var ErrNotRegular = errors.New("not a regular file")

func mapFile(path string) (b []byte, st unix.Stat_t, err error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, st, err
	}
	defer f.Close()
	if size == 0 {
		return nil, st, fmt.Errorf("%s: the file is empty: %w", path, ErrNotELF)
	}
	if size > 1<<40 {
		return nil, st, fmt.Errorf("%s: %d bytes are too many for an ELF file", path, size)
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, st, fmt.Errorf("%s: fstat: %w", path, err)
	}
	b, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, st, fmt.Errorf("%s: mmap: %w", path, err)
	}
	return b, st, nil
}

func unmap(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic(fmt.Sprintf("BUG: munmap of an image at %p: %v", unsafe.SliceData(b), err))
	}
}

func le16(b []byte) uint16 { _ = b[1]; return uint16(b[0]) | uint16(b[1])<<8 }
func le32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
func le64(b []byte) uint64 { return uint64(le32(b)) | uint64(le32(b[4:]))<<32 }
