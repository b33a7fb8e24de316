package image

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// debugDirs is where distributions put separate debug files. Tests add to it.
var debugDirs = []string{"/usr/lib/debug"}

// findDebugFiles opens what belongs to the image: its separate debug file, dwz's common file and its mini debug information, once.
// What is there and does not fit is noted.
func (m *Image) findDebugFiles() {
	if m.found {
		return
	}
	m.found = true
	if m.section(".debug_info") == nil && m.section(".zdebug_info") == nil {
		m.dbg = m.openDebugFile()
	}
	if m.dbg == nil {
		m.mini = m.openMini()
	}
	m.alt = m.openAlt()
	if m.alt == nil && m.dbg != nil {
		m.alt = m.dbg.openAlt()
	}
	if m.dbg != nil {
		m.notes = append(m.notes, m.dbg.notes...)
	}
}

// OpenDebugFile opens the separate debug file of a build-id. It serves in place of an image that is no longer on the disk.
func OpenDebugFile(buildID string) (*Image, error) {
	for _, p := range buildIDPaths(buildID) {
		x, err := Open(p)
		if err == nil && x.buildID == buildID {
			return x, nil
		}
		if err == nil {
			x.Close()
		}
	}
	return nil, fmt.Errorf("no debug file for build-id %s under %s", buildID, strings.Join(debugDirs, ", "))
}

func buildIDPaths(id string) []string {
	if b, err := hex.DecodeString(id); err != nil || len(b) < 3 {
		return nil
	}
	var out []string
	for _, d := range debugDirs {
		out = append(out, filepath.Join(d, ".build-id", id[:2], id[2:]+".debug"))
	}
	return out
}

// openDebugFile looks as gdb does: first by build-id, then by the name and checksum in .gnu_debuglink.
func (m *Image) openDebugFile() *Image {
	if m.buildID != "" {
		for _, p := range buildIDPaths(m.buildID) {
			if x := m.tryDebugFile(p); x != nil {
				if x.buildID == m.buildID {
					return x
				}
				m.note("%s: not used, its build-id is %s, not %s", p, orNone(x.buildID), m.buildID)
				x.Close()
			}
		}
	}
	s := m.section(".gnu_debuglink")
	if s == nil || !m.mapped {
		return nil
	}
	d, err := m.sectionData(s)
	if err != nil || d == nil {
		return nil
	}
	name := cString(d, 255)
	off := (len(name) + 4) &^ 3
	if name == "" || strings.ContainsRune(name, '/') || off+4 > len(d) {
		m.note("%s: its .gnu_debuglink is damaged", m.path)
		return nil
	}
	want := le32(d[off:])
	dir, err := filepath.Abs(filepath.Dir(m.path))
	if err != nil {
		return nil
	}
	cands := []string{filepath.Join(dir, name), filepath.Join(dir, ".debug", name)}
	for _, d := range debugDirs {
		cands = append(cands, filepath.Join(d, dir, name))
	}
	if real, err := filepath.EvalSymlinks(m.path); err == nil && filepath.Dir(real) != dir {
		dir = filepath.Dir(real)
		cands = append(cands, filepath.Join(dir, name), filepath.Join(dir, ".debug", name))
		for _, d := range debugDirs {
			cands = append(cands, filepath.Join(d, dir, name))
		}
	}
	for _, p := range cands {
		x := m.tryDebugFile(p)
		if x == nil {
			continue
		}
		var sum uint32
		if err := x.guard(func() error { sum = crc32.ChecksumIEEE(x.data); return nil }); err == nil && sum == want {
			return x
		}
		m.note("%s: not used, its checksum is %08x, not %08x as %s wants", p, sum, want, m.path)
		x.Close()
	}
	return nil
}

// tryDebugFile opens a file that may be the debug file. Only a missing file is no news.
func (m *Image) tryDebugFile(path string) *Image {
	if sameFile(path, m.path) {
		return nil
	}
	x, err := Open(path)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			m.note("%v", err)
		}
		return nil
	}
	return x
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// openAlt opens the file into which dwz moved what several debug files have in common.
func (m *Image) openAlt() *Image {
	s := m.section(".gnu_debugaltlink")
	if s == nil {
		return nil
	}
	d, err := m.sectionData(s)
	if err != nil || d == nil {
		return nil
	}
	name := cString(d, 4096)
	if name == "" || len(name)+1 >= len(d) || len(d)-len(name)-1 > 64 {
		m.note("%s: its .gnu_debugaltlink is damaged", m.path)
		return nil
	}
	id := hex.EncodeToString(d[len(name)+1:])
	if !filepath.IsAbs(name) {
		path := m.path
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		name = filepath.Join(filepath.Dir(path), name)
	}
	for _, p := range append([]string{name}, buildIDPaths(id)...) {
		x := m.tryDebugFile(p)
		if x == nil {
			continue
		}
		if x.buildID == id {
			return x
		}
		m.note("%s: not used, its build-id is %s, not %s", p, orNone(x.buildID), id)
		x.Close()
	}
	m.note("%s: some names are missing, for lack of %s (build-id %s)", m.path, name, id)
	return nil
}

// openMini reads the mini debug information: an ELF file with function symbols, compressed with xz, as Fedora has it.
func (m *Image) openMini() *Image {
	s := m.section(".gnu_debugdata")
	if s == nil {
		return nil
	}
	d, err := m.sectionData(s)
	if err != nil || d == nil {
		return nil
	}
	b, err := unxz(d)
	if err != nil {
		m.note("%s: its .gnu_debugdata cannot be decompressed: %v", m.path, err)
		return nil
	}
	x, err := open(m.path+"(.gnu_debugdata)", b, false)
	if err != nil {
		m.note("%v", err)
		return nil
	}
	return x
}

const (
	maxXZDict = 64 << 20  // the largest that xz -9 uses
	maxMini   = 256 << 20 // bytes of mini debug information
)

func unxz(d []byte) ([]byte, error) {
	if err := xzDictionary(d); err != nil {
		return nil, err
	}
	r, err := xz.ReaderConfig{SingleStream: true}.NewReader(bytes.NewReader(d))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, maxMini+1))
	if err != nil {
		return nil, err
	}
	if n > maxMini {
		return nil, fmt.Errorf("more than %d bytes", maxMini)
	}
	return b.Bytes(), nil
}

// xzDictionary checks the size of the dictionary that the first block wants, before the decoder allocates it.
func xzDictionary(d []byte) error {
	bad := errors.New("not one xz block with one LZMA2 filter")
	if len(d) < 24 || string(d[:6]) != "\xfd7zXZ\x00" || d[12] == 0 {
		return bad
	}
	h := d[12:]
	if n := (int(h[0]) + 1) * 4; n <= len(h) {
		h = h[:n]
	} else {
		return bad
	}
	flags, p := h[1], h[2:]
	if flags&3 != 0 {
		return bad
	}
	for _, bit := range []byte{0x40, 0x80} {
		for flags&bit != 0 {
			if len(p) == 0 {
				return bad
			}
			c := p[0]
			p = p[1:]
			if c < 0x80 {
				break
			}
		}
	}
	if len(p) < 3 || p[0] != 0x21 || p[1] != 1 {
		return bad
	}
	bits := uint(p[2])
	if bits > 40 {
		return bad
	}
	if size := uint64(2|bits&1) << (bits/2 + 11); size > maxXZDict {
		return fmt.Errorf("its dictionary of %d bytes is too large", size)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
