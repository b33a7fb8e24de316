package agent

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/wire"
)

// tables answers requests for unwind tables. A table is compiled once, kept as a file that nobody changes (a sealed memfd, or one of
// the cache) and every process may get, and kept on disk by build-id, or by the file's identity.
type tables struct {
	warn  func(string)
	cache *diskCache

	mu                       sync.Mutex
	byKey                    map[string]*tableEntry
	compiled, cached, absent uint64
}

type tableEntry struct {
	once sync.Once
	made atomic.Bool
	fd   int   // of a file that begins with the table; -1: there is none
	size int64 // bytes of the table
}

func newTables(warn func(string)) *tables {
	return &tables{warn: warn, cache: openDiskCache(), byKey: map[string]*tableEntry{}}
}

// get returns a descriptor, or -1, for each request. The descriptors stay ours.
func (t *tables) get(reqs []wire.ModuleRequest, pid int) []int {
	fds := make([]int, len(reqs))
	for i, e := range t.entries(reqs, pid) {
		fds[i] = e.fd
	}
	return fds
}

// entries is get, with the tables' bytes.
func (t *tables) entries(reqs []wire.ModuleRequest, pid int) []*tableEntry {
	entries := make([]*tableEntry, len(reqs))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range reqs {
		m, err := newModule(&reqs[i], pid)
		if err != nil {
			t.warn(fmt.Sprintf("process %d: no unwind table: %v", pid, err))
			entries[i] = &tableEntry{fd: -1}
			continue
		}
		t.mu.Lock()
		e := t.byKey[m.key()]
		if e == nil {
			e = &tableEntry{fd: -1}
			t.byKey[m.key()] = e
		}
		t.mu.Unlock()
		entries[i] = e
		if e.made.Load() {
			continue // as nearly all: nobody else need be woken
		}
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			e.once.Do(func() {
				e.fd, e.size = t.make(m)
				e.made.Store(true)
			})
		}()
	}
	wg.Wait()
	return entries
}

// make makes the table of m, or tells why it cannot.
func (t *tables) make(m *module) (fd int, size int64) {
	if fd, size, hit := t.cache.load(m.id); hit {
		t.count(&t.cached)
		return fd, size
	}
	table, err := m.compile()
	if err != nil {
		t.count(&t.absent)
		t.warn(fmt.Sprintf("no unwind table for %s, stacks end there: %v", m.name(), err))
		return -1, 0
	}
	// The many small programs that somebody builds without build-ids while he works would only fill the cache.
	if m.buildID != "" || (len(table) >= 64<<10 && m.file() == m.id) {
		t.cache.store(m.id, table)
	}
	fd, err = sealed(table)
	if err != nil {
		t.count(&t.absent)
		t.warn(fmt.Sprintf("no unwind table for %s: %v", m.name(), err))
		return -1, 0
	}
	t.count(&t.compiled)
	return fd, int64(len(table))
}

func (t *tables) count(n *uint64) {
	t.mu.Lock()
	*n++
	t.mu.Unlock()
}

func (t *tables) counts() (compiled, cached, absent uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.compiled, t.cached, t.absent
}

func (t *tables) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.byKey {
		if e.fd >= 0 {
			unix.Close(e.fd)
			e.fd = -1
		}
	}
}

// sealed returns a memfd with content b that nobody can change: all processes share it.
func sealed(b []byte) (int, error) {
	fd, err := unix.MemfdCreate("ripstop-unwind", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return -1, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		return -1, err
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
}

// module is a checked ModuleRequest.
type module struct {
	pid     int
	path    string // "": not a file
	buildID string // hexadecimal, "" if there is none
	base    uint64
	id      string // the build-id, or else file(); "" if the module has neither
}

func newModule(r *wire.ModuleRequest, pid int) (*module, error) {
	if r.BuildIDLen > uint32(len(r.BuildID)) {
		return nil, fmt.Errorf("a build-id of %d bytes", r.BuildIDLen)
	}
	n := bytes.IndexByte(r.Path[:], 0)
	if n < 0 {
		return nil, fmt.Errorf("a path without end")
	}
	path := string(r.Path[:n])
	if path != "" && path[0] != '/' {
		return nil, fmt.Errorf("the path %q is not absolute", path)
	}
	m := &module{pid: pid, path: path, buildID: hex.EncodeToString(r.BuildID[:r.BuildIDLen]), base: r.Base}
	m.id = m.buildID
	if m.id == "" {
		m.id = m.file()
	}
	return m, nil
}

// file is what stands for the content of a mapped file without build-id: inode, size and times, of which ctime cannot be set back. "" if it cannot
// be told.
func (m *module) file() string {
	if m.path == "" {
		return ""
	}
	_, _, ino, ok := m.mapping()
	for _, path := range []string{fmt.Sprintf("/proc/%d/root%s", m.pid, m.path), m.path} {
		var st unix.Stat_t
		if ok && unix.Stat(path, &st) == nil && st.Ino == ino {
			return fmt.Sprintf("file-%x-%x-%x-%x-%x", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		}
	}
	return ""
}

// key is the same for modules that have the same table.
func (m *module) key() string {
	if m.id != "" {
		return m.id
	}
	return fmt.Sprintf("pid %d base %#x %s", m.pid, m.base, m.path)
}

func (m *module) name() string {
	if m.path == "" {
		return "the vdso"
	}
	return m.path
}

func (m *module) compile() ([]byte, error) {
	img, err := m.image()
	if err != nil {
		return nil, err
	}
	defer img.Close()
	table, _, err := unwind.Compile(img)
	return table, err
}

// image finds the very file that is mapped: by its path in the process's root, by its path in ours, by the mapping itself; and if it is
// gone, in the process's memory.
func (m *module) image() (*image.Image, error) {
	if m.path == "" {
		return m.vdso()
	}
	var first error
	try := func(path string) *image.Image {
		img, err := image.Open(path)
		if err == nil {
			if err = m.check(img, path); err == nil {
				return img
			}
			img.Close()
		}
		if first == nil {
			first = err
		}
		return nil
	}
	for _, path := range []string{fmt.Sprintf("/proc/%d/root%s", m.pid, m.path), m.path} {
		if img := try(path); img != nil {
			return img, nil
		}
	}
	if start, end, _, ok := m.mapping(); ok {
		if img := try(fmt.Sprintf("/proc/%d/map_files/%x-%x", m.pid, start, end)); img != nil {
			return img, nil
		}
	}
	img, err := m.fromMemory()
	if err != nil {
		return nil, first
	}
	return img, nil
}

// check fails unless img is what the process has mapped.
func (m *module) check(img *image.Image, path string) error {
	if img.BuildID() != m.buildID {
		return fmt.Errorf("%s has build-id %q, what is mapped has %q: the file was changed", path, img.BuildID(), m.buildID)
	}
	if m.buildID != "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if _, _, ino, ok := m.mapping(); !ok || ino != st.Ino {
		return fmt.Errorf("%s is not the file that is mapped", path)
	}
	return nil
}

// mapping is the first mapping of the module in the process.
func (m *module) mapping() (start, end, ino uint64, ok bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", m.pid))
	if err != nil {
		return 0, 0, 0, false
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			continue
		}
		lo, hi, _ := strings.Cut(fields[0], "-")
		a, err1 := strconv.ParseUint(lo, 16, 64)
		b, err2 := strconv.ParseUint(hi, 16, 64)
		i, err3 := strconv.ParseUint(fields[4], 10, 64)
		if err1 == nil && err2 == nil && err3 == nil && a <= m.base && m.base < b {
			return a, b, i, true
		}
	}
	return 0, 0, 0, false
}

// vdso is the kernel's: the same in all processes, so that ours will do unless its build-id says otherwise.
func (m *module) vdso() (*image.Image, error) {
	own := module{pid: os.Getpid(), base: ownVDSO(), buildID: m.buildID}
	if own.base != 0 {
		if start, end, _, ok := own.mapping(); ok && start == own.base {
			b := bytes.Clone(unsafe.Slice((*byte)(pointer(start)), end-start))
			if img, err := image.FromMemory("[vdso]", b); err == nil {
				if img.BuildID() == m.buildID {
					return img, nil
				}
				img.Close()
			}
		}
	}
	return m.fromMemory()
}

// pointer makes a pointer of an address that no Go object has.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// ownVDSO is AT_SYSINFO_EHDR of this process, 0 if there is none.
func ownVDSO() uint64 {
	const atSysinfoEhdr = 33
	b, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return 0
	}
	for ; len(b) >= 16; b = b[16:] {
		if read[uint64](b) == atSysinfoEhdr {
			return read[uint64](b[8:])
		}
	}
	return 0
}

// maxImage bounds an image that is read from memory.
const maxImage = 256 << 20

// fromMemory reads the loaded segments out of the process and puts them where they are in the file. There are no sections then.
func (m *module) fromMemory() (*image.Image, error) {
	if m.pid <= 0 {
		return nil, errors.New("the process cannot be seen from here")
	}
	head := make([]byte, os.Getpagesize())
	if err := m.readAt(head, m.base); err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(withoutSections(head)))
	if err != nil {
		return nil, fmt.Errorf("what is at %#x of process %d is no ELF image: %w", m.base, m.pid, err)
	}
	var size, first uint64
	first = math.MaxUint64
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if p.Off > maxImage || p.Filesz > maxImage {
			return nil, fmt.Errorf("the image at %#x of process %d is larger than %d bytes", m.base, m.pid, maxImage)
		}
		size, first = max(size, p.Off+p.Filesz), min(first, p.Vaddr)
	}
	b := make([]byte, max(size, uint64(len(head))))
	copy(b, withoutSections(head))
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 {
			continue
		}
		into := b[p.Off : p.Off+p.Filesz]
		// A segment that cannot be read stays zero; what is needed may be in another.
		_ = m.readAt(into, m.base+p.Vaddr-first&^uint64(os.Getpagesize()-1))
		if p.Off == 0 {
			copy(b, withoutSections(head))
		}
	}
	img, err := image.FromMemory(m.name(), b)
	if err != nil {
		return nil, err
	}
	if img.BuildID() != m.buildID {
		img.Close()
		return nil, fmt.Errorf("what is at %#x of process %d has build-id %q, not %q", m.base, m.pid, img.BuildID(), m.buildID)
	}
	return img, nil
}

// withoutSections is the head of an ELF file with no section table, which is not loaded.
func withoutSections(head []byte) []byte {
	h := bytes.Clone(head)
	for _, at := range []struct{ off, n int }{{0x28, 8}, {0x3c, 2}, {0x3e, 2}} { // e_shoff, e_shnum, e_shstrndx
		clear(h[at.off : at.off+at.n])
	}
	return h
}

// readAt reads memory of the process.
func (m *module) readAt(b []byte, addr uint64) error {
	for len(b) > 0 {
		n, err := unix.ProcessVMReadv(m.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
			[]unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
		if err == nil && n <= 0 {
			err = unix.EFAULT
		}
		if err != nil {
			return fmt.Errorf("cannot read memory of process %d at %#x: %w", m.pid, addr, err)
		}
		b, addr = b[n:], addr+uint64(n)
	}
	return nil
}
