package engine

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
)

// What is found out of a module's code serves each process of the session that has it: a shell script starts thousands of programs, all with the same libc, whose code was read into memory of its own, hashed, and looked up
// in files of the cache for each of them. A module is another process's if its file is the same (image.Identity), as much of it is mapped, and its code is the same, byte for byte. Then both have their code, and what is known
// of it, in common: nobody changes either.

// recallMost is how many bytes are remembered, of code and of what is known of it; when there are more all go.
const recallMost = 32 << 20

// recalls is what a session remembers, by recallKey.
type recalls struct {
	mu    sync.Mutex
	by    map[string]*recalled
	bytes int
}

// recalled is what is known of a module, by link-time addresses. Under recalls.mu, but for what is there from the beginning.
type recalled struct {
	code    [][]byte // of its texts
	keeps   [][2]uint64
	entered []uint64
	hash    string

	plans     []*patch.Text // nil: nobody has learnt it yet
	undecoded uint64
	found     map[string]any // Recalled's
	bytes     int
}

// recallKey is for what a module's file is, and what is mapped of it; "": that is not known. The vdso has no file: all of it is in its text.
func (m *Module) recallKey() string {
	if m.recalls == nil {
		return ""
	}
	id := m.Image.Identity()
	if m.Kind == VDSO && len(m.texts) == 1 && m.texts[0].at == m.Base && m.texts[0].end() == m.End {
		id = "vdso"
	}
	if id == "" {
		return ""
	}
	key := fmt.Appendf(nil, "%s %x %x", id, m.Base-m.Bias, m.End-m.Bias)
	for _, t := range m.texts {
		key = fmt.Appendf(key, " %x %x", t.at-m.Bias, t.size)
	}
	return string(key)
}

// recall knows the module by another process's, if its code is the same. What of it was not read need not be any more.
func (m *Module) recall(key string) bool {
	if key == "" {
		return false
	}
	m.recalls.mu.Lock()
	r := m.recalls.by[key]
	m.recalls.mu.Unlock()
	if r == nil {
		return false
	}
	for i, t := range m.texts {
		if t.code == nil && !m.same(t.at, r.code[i]) || t.code != nil && !bytes.Equal(t.code, r.code[i]) {
			return false
		}
	}
	for i, t := range m.texts {
		t.code = r.code[i]
	}
	m.hash, m.keeps, m.entered, m.recalled = r.hash, r.keeps, r.entered, r
	return true
}

// remember has the module known to recall. Its code is in common from then on.
func (m *Module) remember(key string) {
	r := &recalled{hash: m.hash, keeps: m.keeps, entered: m.entered}
	for _, t := range m.texts {
		r.code = append(r.code, t.code)
		r.bytes += len(t.code)
	}
	if key == "" || r.bytes > recallMost/4 {
		return
	}
	m.recalled = r
	m.recalls.mu.Lock()
	defer m.recalls.mu.Unlock()
	if old := m.recalls.by[key]; old != nil { // of another process at the same time, or with other code
		m.recalls.bytes -= old.bytes
	}
	if m.recalls.by == nil {
		m.recalls.by = map[string]*recalled{}
	}
	m.recalls.by[key] = r
	m.recalls.grown(r.bytes)
}

// grown says that so many bytes more are remembered. If those are too many all go; who has some of it keeps it.
func (s *recalls) grown(n int) {
	if s.bytes += n; s.bytes > recallMost {
		clear(s.by)
		s.bytes = 0
	}
}

// grow is grown for one that may have gone.
func (r *recalled) grow(s *recalls, n int) {
	for _, x := range s.by {
		if x == r {
			r.bytes += n
			s.grown(n)
		}
	}
}

// knownAgain knows the module's instructions by another process's.
func (m *Module) knownAgain() bool {
	if m.recalled == nil {
		return false
	}
	m.recalls.mu.Lock()
	plans, undecoded := m.recalled.plans, m.recalled.undecoded
	m.recalls.mu.Unlock()
	for i, plan := range plans {
		m.texts[i].plan = plan.Again(m.texts[i].at)
	}
	if plans != nil {
		m.undecoded = undecoded
	}
	return plans != nil
}

// rememberKnown has the module's instructions known to knownAgain.
func (m *Module) rememberKnown() {
	if m.recalled == nil {
		return
	}
	var plans []*patch.Text
	n := 0
	for _, t := range m.texts {
		plans = append(plans, t.plan.Again(t.at))
		n += patch.KnownSize(len(t.code))
	}
	m.recalls.mu.Lock()
	defer m.recalls.mu.Unlock()
	if m.recalled.plans == nil {
		m.recalled.plans, m.recalled.undecoded = plans, m.undecoded
		m.recalled.grow(m.recalls, n)
	}
}

// Recalled gives what find found in a module of the same file and code under that name, in this session, wherever it lay there; or calls find. So that may only depend on the module's code, on what is known of it, and on its
// image. What it finds is small, by link-time addresses, and nobody changes it.
func (m *Module) Recalled(name string, find func() any) any {
	m.learn()
	r := m.recalled
	if r == nil {
		return find()
	}
	m.recalls.mu.Lock()
	v, ok := r.found[name]
	m.recalls.mu.Unlock()
	if ok {
		return v
	}
	v = find()
	if m.closed.Load() { // it may have ended early
		return v
	}
	m.recalls.mu.Lock()
	defer m.recalls.mu.Unlock()
	if r.found == nil {
		r.found = map[string]any{}
	}
	r.found[name] = v
	return v
}

// pieces are what same reads.
var pieces = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// same says whether such code lies there, as far as it can be read so: that takes two thirds of the time of /proc/PID/mem.
func (p *Process) same(at uint64, code []byte) bool {
	piece := pieces.Get().(*[128 << 10]byte)
	defer pieces.Put(piece)
	for len(code) > 0 {
		b := piece[:min(len(piece), len(code))]
		if _, err := tracee.Memory(p.PID).ReadAt(b, int64(at)); err != nil || !bytes.Equal(b, code[:len(b)]) {
			return false
		}
		at, code = at+uint64(len(b)), code[len(b):]
	}
	return true
}

// unread drops the texts that cannot be read.
func (m *Module) unread() {
	m.texts = slices.DeleteFunc(m.texts, func(t *text) bool { return t.code == nil && !m.fetch(t) })
}
