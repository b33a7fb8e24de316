package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/ripstop/ripstop/internal/finding"
)

// Symbolizer names addresses in modules. It opens each module when it is first asked about, keeps the most recently used, and checks
// that the file is still the one that was mapped, by its build-id: of another file it gives no names. It is safe for concurrent use.
type Symbolizer struct {
	mu     sync.Mutex
	mods   map[moduleKey]*module
	clock  uint64
	frames map[addrKey][]finding.Frame
	size   int // of frames, in bytes
	notes  []string
	noted  map[string]bool
}

type moduleKey struct{ path, buildID string }

type module struct {
	img  *Image // nil: cannot be used
	used uint64
	seen int // notes of img already told
}

type addrKey struct {
	moduleKey
	addr uint64
}

const (
	maxOpenModules  = 128
	maxCachedFrames = 64 << 20 // bytes
)

// NewSymbolizer returns a Symbolizer.
func NewSymbolizer() *Symbolizer {
	return &Symbolizer{mods: map[moduleKey]*module{}, frames: map[addrKey][]finding.Frame{}, noted: map[string]bool{}}
}

// Frames names a link-time address of a module, innermost inlined call first; for a return address the caller passes the address less
// one. There is always at least one frame: where nothing is known it has Module, Offset and BuildID alone. PC is left to the caller.
// An empty buildID is not checked. The result is shared: it must not be changed.
func (s *Symbolizer) Frames(modulePath, buildID string, linkAddr uint64) []finding.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := addrKey{moduleKey{modulePath, buildID}, linkAddr}
	if f, ok := s.frames[key]; ok {
		return f
	}
	var out []finding.Frame
	id := buildID
	if m := s.module(key.moduleKey); m.img != nil {
		out = m.img.Frames(linkAddr)
		id = m.img.BuildID()
		s.takeNotes(m)
	}
	if len(out) == 0 {
		out = []finding.Frame{{}}
		if m := s.module(key.moduleKey); m.img != nil {
			out[0].Start, _ = m.img.FunctionStart(linkAddr)
		}
	}
	for i := range out {
		out[i].Module, out[i].Offset, out[i].BuildID = modulePath, linkAddr, id
	}
	for i := range out {
		s.size += 256 + len(out[i].Func) + len(out[i].Symbol) + len(out[i].File)
	}
	if s.size > maxCachedFrames {
		clear(s.frames)
		s.size = 0
	}
	s.frames[key] = out
	return out
}

// Symbol names the object or function that contains a link-time address, demangled, and how far into it the address is.
func (s *Symbolizer) Symbol(modulePath, buildID string, linkAddr uint64) (name string, offset uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.module(moduleKey{modulePath, buildID})
	if m.img == nil {
		return "", 0, false
	}
	sym, ok := m.img.Symbol(linkAddr)
	s.takeNotes(m)
	if !ok {
		return "", 0, false
	}
	return Demangle(sym.Name), linkAddr - sym.Addr, true
}

// Variable gives what the debug information says of the global variable at a link-time address, or of the thread-local one at an offset of the module's TLS block: the part of it that
// is there, as it is written behind its name, and that part's type.
func (s *Symbolizer) Variable(modulePath, buildID string, at uint64, local bool) (path, typ string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.module(moduleKey{modulePath, buildID})
	if m.img == nil {
		return "", "", false
	}
	v, ok := m.img.Variable(at, local)
	s.takeNotes(m)
	return v.Path, v.Type, ok
}

// Local gives what the debug information says of the variable that lies so many bytes from the canonical frame address of the function at a link-time address (of a return address the one
// before it): whose it is, its name, the part of it that is there, and that part's type.
func (s *Symbolizer) Local(modulePath, buildID string, linkAddr uint64, offset int64) (fn, name, path, typ string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.module(moduleKey{modulePath, buildID})
	if m.img == nil {
		return "", "", "", "", false
	}
	l, ok := m.img.Local(linkAddr, offset)
	s.takeNotes(m)
	return l.Func, l.Name, l.Path, l.Type, ok
}

// ThreadLocal gives the thread-local variable of an executable that lies so many bytes below a thread's pointer, the offset in it, and
// that in the TLS block.
func (s *Symbolizer) ThreadLocal(modulePath, buildID string, below uint64) (name string, offset, at uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.module(moduleKey{modulePath, buildID})
	if m.img == nil {
		return "", 0, 0, false
	}
	sym, offset, ok := m.img.ThreadLocal(below)
	s.takeNotes(m)
	return Demangle(sym.Name), offset, sym.Addr + offset, ok
}

// Notes says, once each, why names are missing: modules that changed, debug files that do not fit.
func (s *Symbolizer) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.notes...)
}

// Close closes all files. The Symbolizer can still be used.
func (s *Symbolizer) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, m := range s.mods {
		if m.img != nil {
			m.img.Close()
		}
		delete(s.mods, k)
	}
	clear(s.frames)
}

func (s *Symbolizer) takeNotes(m *module) {
	notes := m.img.Notes()
	for _, n := range notes[min(m.seen, len(notes)):] {
		s.note(n)
	}
	m.seen = len(notes)
}

func (s *Symbolizer) note(n string) {
	if !s.noted[n] && len(s.notes) < 1000 {
		s.noted[n] = true
		s.notes = append(s.notes, n)
	}
}

func (s *Symbolizer) module(k moduleKey) *module {
	s.clock++
	m := s.mods[k]
	if m == nil {
		open := 0
		for _, o := range s.mods {
			if o.img != nil {
				open++
			}
		}
		if open >= maxOpenModules {
			s.closeOldest()
		}
		m = &module{}
		img, err := openModule(k.path, k.buildID)
		if err != nil {
			s.note(err.Error())
		}
		m.img = img
		s.mods[k] = m
	}
	m.used = s.clock
	return m
}

func (s *Symbolizer) closeOldest() {
	var key moduleKey
	var oldest *module
	for k, m := range s.mods {
		if m.img != nil && (oldest == nil || m.used < oldest.used) {
			key, oldest = k, m
		}
	}
	if oldest != nil {
		oldest.img.Close()
		delete(s.mods, key)
	}
}

// openModule opens the file that was mapped, or its debug file if it has been replaced or removed.
func openModule(path, buildID string) (*Image, error) {
	if isVDSO(path) {
		return openVDSO(buildID)
	}
	img, err := Open(path)
	if err == nil && (buildID == "" || img.BuildID() == buildID) {
		return img, nil
	}
	if err == nil {
		err = fmt.Errorf("%s: names are not shown, since the file changed after it was loaded: its build-id is %s, not %s", path, orNone(img.BuildID()), buildID)
		img.Close()
	} else if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s: names are not shown, since the file no longer exists", path)
	} else {
		err = fmt.Errorf("names are not shown: %w", err)
	}
	if buildID != "" {
		if dbg, derr := OpenDebugFile(buildID); derr == nil {
			return dbg, nil
		}
	}
	return nil, err
}

func isVDSO(path string) bool {
	return path == "" || path == "[vdso]" || strings.HasPrefix(path, "linux-vdso.so") || strings.HasPrefix(path, "linux-gate.so")
}

// openVDSO reads the vdso from our own memory: the kernel maps the same one into every process.
func openVDSO(buildID string) (*Image, error) {
	b, err := ownVDSO()
	if err != nil {
		return nil, err
	}
	img, err := FromMemory("[vdso]", b)
	if err != nil {
		return nil, err
	}
	if buildID != "" && img.BuildID() != buildID {
		img.Close()
		return nil, errors.New("[vdso]: names are not shown, since it is that of another kernel")
	}
	return img, nil
}

// ownVDSO copies the vdso of this process.
func ownVDSO() ([]byte, error) {
	const atSysinfoEhdr = 33
	auxv, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return nil, fmt.Errorf("[vdso]: %w", err)
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if le64(auxv) != atSysinfoEhdr {
			continue
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, fmt.Errorf("[vdso]: %w", err)
		}
		defer mem.Close()
		return readVDSO(mem, int64(le64(auxv[8:])))
	}
	return nil, errors.New("[vdso]: the kernel gives this process none")
}

// readVDSO reads an ELF image up to the end of its section headers, which lie behind everything else.
func readVDSO(mem *os.File, base int64) ([]byte, error) {
	var h [64]byte
	if _, err := mem.ReadAt(h[:], base); err != nil {
		return nil, fmt.Errorf("[vdso]: %w", err)
	}
	size := le64(h[40:]) + uint64(le16(h[58:]))*uint64(le16(h[60:]))
	if string(h[:4]) != elf.ELFMAG || size < 64 || size > 1<<20 {
		return nil, fmt.Errorf("[vdso]: %w", ErrDamaged)
	}
	b := make([]byte, size)
	if _, err := mem.ReadAt(b, base); err != nil {
		return nil, fmt.Errorf("[vdso]: %w", err)
	}
	return b, nil
}
