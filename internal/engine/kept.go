package engine

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"sync"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/patch"
)

// What is known of a module's code is costly to find out and depends on nothing but the module's file: so it is kept on disk, by the hash of all that it is made of, for
// the next process that has the module, wherever it lies there.

// cacheMost is how many bytes are kept.
const cacheMost = 768 << 20

// openCache gives the user's cache, of this build of ripstop: another one may find out something else.
var openCache = sync.OnceValue(func() *cache.Dir {
	if len(build()) == 0 {
		return nil
	}
	return cache.Open("code", cacheMost)
})

// build is what identifies this build: the Go linker's note about the executable.
var build = sync.OnceValue(func() []byte {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil
	}
	defer f.Close()
	s := f.Section(".note.go.buildid")
	if s == nil || s.Size > 4<<10 {
		return nil
	}
	b, err := s.Data()
	if err != nil || len(b) < 32 {
		return nil
	}
	return b
})

// hashCode hashes what knowledge of a module's code is made from but for where functions are said to lie: the code, what must not move, and where the loader enters. Addresses are link-time ones.
func (m *Module) hashCode(keep [][2]uint64, entered []uint64) []byte {
	h := sha256.New()
	h.Write(build())
	words := make([]byte, 0, 8*(5+2*len(keep)+len(entered)+2*len(m.texts)))
	add := func(v ...uint64) {
		for _, x := range v {
			words = binary.LittleEndian.AppendUint64(words, x)
		}
	}
	add(uint64(len(m.texts)), uint64(len(keep)), uint64(len(entered)), m.Base-m.Bias, m.End-m.Bias)
	for _, r := range keep {
		add(r[0], r[1])
	}
	add(entered...)
	for _, t := range m.texts {
		add(t.at-m.Bias, uint64(len(t.code)))
	}
	h.Write(words)
	for _, t := range m.texts {
		h.Write(t.code)
	}
	return h.Sum(nil)
}

// hashFunctions adds where functions lie, which is the module's hash then.
func hashFunctions(code []byte, functions [][2]uint64) string {
	h := sha256.New()
	h.Write(code)
	words := make([]byte, 0, 16*len(functions))
	for _, r := range functions {
		words = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(words, r[0]), r[1])
	}
	h.Write(words)
	return hex.EncodeToString(h.Sum(nil))
}

// To list a module's functions takes ten times as long as to hash the tables that they are read from. So a module's hash is kept, too, by that of its code and these tables.

// hashTables adds the tables to the hash of the code. "": they cannot be read.
func (m *Module) hashTables(code []byte) string {
	h := sha256.New()
	h.Write(code)
	if !m.Image.Tables(h) {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)) + ".hash"
}

// hashed knows the module's hash if it was kept.
func (m *Module) hashed(tables string) bool {
	if tables == "" {
		return false
	}
	b, ok := m.cache.Load(tables)
	if ok = ok && len(b) == 2*sha256.Size; ok {
		m.hash = string(b)
	}
	return ok
}

// keepHash keeps the module's hash.
func (m *Module) keepHash(tables string) {
	if tables != "" {
		m.cache.Store(tables, []byte(m.hash))
	}
}

// A file of what is known: how many bytes were not understood, then for each text the length of its part and the part (patch.Text.AppendKnown).

// known makes the texts' plans of the instructions that were kept, and says whether there were some.
func (m *Module) known() bool {
	b, ok := m.cache.Load(m.hash)
	if !ok || len(b) < 8 {
		return false
	}
	undecoded := binary.LittleEndian.Uint64(b)
	b = b[8:]
	for _, t := range m.texts {
		if len(b) < 8 || uint64(len(b)-8) < binary.LittleEndian.Uint64(b) {
			return false
		}
		n := binary.LittleEndian.Uint64(b)
		var err error
		if t.plan, err = patch.KnownText(t.at, t.code, b[8:8+n]); err != nil {
			return false
		}
		b = b[8+n:]
	}
	m.undecoded = undecoded
	return true
}

// keep keeps the instructions that were made known.
func (m *Module) keep() {
	b := binary.LittleEndian.AppendUint64(nil, m.undecoded)
	for _, t := range m.texts {
		at := len(b)
		b = t.plan.AppendKnown(append(b, make([]byte, 8)...))
		binary.LittleEndian.PutUint64(b[at:], uint64(len(b)-at-8))
	}
	m.cache.Store(m.hash, b)
}

// Kept gives what Keep was given for this module's code under a name by this build of ripstop, in this process or another one of the user's, wherever the module lay there; false:
// there is nothing, or only what lies around some places is known (Around). It is the caller's.
func (m *Module) Kept(name string) ([]byte, bool) {
	m.learn()
	if m.partly {
		return nil, false
	}
	return m.cache.Load(m.hash + "." + name)
}

// Keep keeps what may be of use when the module is met again. The name is part of a file's.
func (m *Module) Keep(name string, b []byte) {
	m.learn()
	if !m.closed.Load() && !m.partly {
		m.cache.Store(m.hash+"."+name, b)
	}
}

// Hinted gives what Hint was given for a module of the same build ID and the same segments (without a build ID: of the same file) under a name, without looking at its code, which Kept does: another file may say the same of itself, so what comes is to be
// looked at again.
func (m *Module) Hinted(name string) ([]byte, bool) {
	file := m.hintFile(name)
	if file == "" {
		return nil, false
	}
	return m.cache.Load(file)
}

// Hint keeps what Hinted gives. The name is part of a file's.
func (m *Module) Hint(name string, b []byte) {
	if file := m.hintFile(name); file != "" && !m.closed.Load() && (m.BuildID != "" || m.Image.Unchanged()) {
		m.cache.Store(file, b)
	}
}

// hintFile is the name of the file; "": nothing is kept. What has no build id, as all of rustup's toolchains, is known by the file that it is, as for Around.
func (m *Module) hintFile(name string) string {
	if m.BuildID != "" {
		return m.claimed() + "." + name
	}
	id := m.Image.Identity()
	if id == "" || m.cache == nil {
		return ""
	}
	h := m.hashClaim()
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil)) + "." + name
}

// claimed hashes what a module says it is.
func (m *Module) claimed() string {
	return hex.EncodeToString(m.hashClaim().Sum(nil))
}

func (m *Module) hashClaim() hash.Hash {
	h := sha256.New()
	h.Write(build())
	h.Write([]byte(m.BuildID))
	var words []byte
	for _, s := range m.Image.Segments() {
		for _, v := range [...]uint64{s.Addr, s.Size, s.FileSize, s.Offset, uint64(s.Flags)} {
			words = binary.LittleEndian.AppendUint64(words, v)
		}
	}
	h.Write(words)
	return h
}

// countKept adds a module to the figures.
func (m *Module) countKept(s *Stats) {
	if m.learnt {
		s.Modules++
	}
	if m.fromCache {
		s.Kept++
	}
}
