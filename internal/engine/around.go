package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/ripstop/ripstop/internal/patch"
)

// To know all instructions of a large library takes as long as to read it and three quarters of it more, where a few places of it are patched. What is known around these is kept in a file of its own, by what identifies the
// module's file: device, inode, size and times (image.Identity), so that its code need not be read to know it again. The code around the places is, and compared by a hash.

// aroundReach is how far before and behind a place instructions are known: several times as far as any patch has others depend on it.
const aroundReach = 1 << 10

// Around says that of the module's code nothing will be asked, now or later, but about instructions at places, link-time addresses, and a few hundred bytes around each. If that is known from another process
// nothing else is read. The client must be Unasked; of others', and where nothing is kept, all is known as ever.
func (m *Module) Around(places []uint64) {
	if m.learnt || m.read == nil || len(places) == 0 {
		return
	}
	name := m.aroundName()
	if name == "" {
		return
	}
	if b, ok := m.cache.Load(name); ok {
		if a, err := parseAround(b); err == nil && m.covers(a, places) && m.take(a) {
			return
		}
	}
	m.learn()
	if m.closed.Load() || !m.asInFile() {
		return
	}
	guards := m.guarded()
	for _, g := range guards {
		places = append(places[:len(places):len(places)], g.at)
	}
	if b := m.appendAround(nil, guards, places); b != nil && m.Image.Unchanged() {
		m.cache.Store(name, b)
	}
}

// aroundName is the name of the file that is kept; "": nothing is.
func (m *Module) aroundName() string {
	id := m.Image.Identity()
	if id == "" || m.cache == nil {
		return ""
	}
	h := m.hashClaim()
	h.Write([]byte(id))
	var words []byte
	for _, t := range m.texts {
		words = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(words, t.at-m.Bias), t.size)
	}
	h.Write(words)
	return hex.EncodeToString(h.Sum(nil)) + ".around"
}

// An around is what is kept: of a module what Undecoded says, and which system calls guards names; and parts.
type around struct {
	undecoded uint64
	guards    []byte // appendGuarded's
	parts     []part
}

// A part is what is known of whole pages of a text.
type part struct {
	patch.Range                   // link-time addresses
	code        [sha256.Size]byte // the hash of their bytes
	known       []byte            // patch.Text.AppendPart's
}

// pagesAround gives the pages of the texts within reach of places, link-time addresses.
func (m *Module) pagesAround(places []uint64) []patch.Range {
	list := make([]patch.Range, 0, len(places))
	for _, at := range places {
		if t := m.text(at + m.Bias); t != nil {
			const page = patch.PageSize
			lo, hi := t.at-m.Bias, t.end()-m.Bias
			list = append(list, patch.Range{Lo: max(lo, at-min(at, aroundReach)) &^ (page - 1), Hi: min(hi, (at+aroundReach+page-1)&^(page-1))})
		}
	}
	return union(list)
}

// covers says whether all that may be asked about places is in the parts.
func (m *Module) covers(a *around, places []uint64) bool {
	there := make([]patch.Range, len(a.parts))
	for i := range a.parts {
		there[i] = a.parts[i].Range
	}
	return len(subtract(m.pagesAround(places), union(there))) == 0
}

// take makes known what was kept: each part is a text then, and there is no other. False: it is not of this code, and nothing is known.
func (m *Module) take(a *around) bool {
	texts := make([]*text, len(a.parts))
	for i := range a.parts {
		x := &a.parts[i]
		lo, hi := x.Lo+m.Bias, x.Hi+m.Bias
		if t := m.text(lo); t == nil || hi > t.end() || lo >= hi {
			return false
		}
		t := &text{at: lo, size: hi - lo, code: make([]byte, hi-lo)}
		if m.read(lo, t.code) != nil || sha256.Sum256(t.code) != x.code {
			return false
		}
		var err error
		if t.plan, err = patch.KnownText(lo, t.code, x.known); err != nil {
			return false
		}
		texts[i] = t
	}
	all := m.texts
	m.texts = texts
	guards, err := m.parseGuarded(a.guards)
	if err != nil {
		m.texts = all
		return false
	}
	for _, t := range texts {
		m.plans(t)
	}
	m.guards, m.undecoded = guards, a.undecoded
	m.learnt, m.partly, m.fromCache = true, true, true
	return true
}

// appendAround appends what is kept about places for parseAround; nil: it is not worth it.
func (m *Module) appendAround(dst []byte, guards []guarded, places []uint64) []byte {
	list := appendGuarded(nil, guards)
	dst = binary.AppendUvarint(dst, m.undecoded)
	dst = append(binary.AppendUvarint(dst, uint64(len(list))), list...)
	size, all := uint64(0), uint64(0)
	for _, t := range m.texts {
		all += t.size
	}
	for _, r := range m.pagesAround(places) {
		if size += r.Hi - r.Lo; size > all/2 {
			return nil
		}
		t := m.text(r.Lo + m.Bias)
		if r.Hi+m.Bias > t.end() { // texts that touch
			return nil
		}
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, r.Lo), r.Hi-r.Lo)
		sum := sha256.Sum256(t.code[r.Lo+m.Bias-t.at : r.Hi+m.Bias-t.at])
		dst = append(dst, sum[:]...)
		known := t.plan.AppendPart(nil, r.Lo+m.Bias, r.Hi+m.Bias)
		dst = append(binary.AppendUvarint(dst, uint64(len(known))), known...)
	}
	return dst
}

var errAround = errors.New("not what is known around places")

// parseAround takes any bytes.
func parseAround(b []byte) (*around, error) {
	bad := false
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad, n = true, 0
		}
		b = b[n:]
		return v
	}
	bytes := func(n uint64) []byte {
		if n > uint64(len(b)) {
			bad, n = true, 0
		}
		x := b[:n:n]
		b = b[n:]
		return x
	}
	a := &around{undecoded: number()}
	a.guards = bytes(number())
	for len(b) > 0 && !bad {
		var x part
		x.Lo = number()
		x.Hi = x.Lo + number()
		copy(x.code[:], bytes(sha256.Size))
		x.known = bytes(number())
		if x.Hi <= x.Lo || x.Lo%patch.PageSize != 0 || len(a.parts) > 0 && a.parts[len(a.parts)-1].Hi > x.Lo {
			bad = true
		}
		a.parts = append(a.parts, x)
	}
	if bad {
		return nil, errAround
	}
	return a, nil
}
