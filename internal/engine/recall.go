package engine

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
)

// What identify finds out of a module's file serves each process of the session that has it: a shell script starts thousands of programs, all with the same libc, whose code and tables were hashed for each of them.

// recallMost is how many bytes of code are remembered; when there are more all go.
const recallMost = 32 << 20

// recalls is what a session remembers, by recallKey.
type recalls struct {
	mu    sync.Mutex
	by    map[string]*recalled
	bytes int
}

type recalled struct {
	code    [][]byte // of its texts
	keeps   [][2]uint64
	entered []uint64
	hash    string
}

// recallKey is for what a module's file is, and what is mapped of it; "": that is not known.
func (m *Module) recallKey() string {
	id := m.Image.Identity()
	if id == "" || m.recalls == nil {
		return ""
	}
	key := fmt.Appendf(nil, "%s %x %x", id, m.Base-m.Bias, m.End-m.Bias)
	for _, t := range m.texts {
		key = fmt.Appendf(key, " %x %x", t.at-m.Bias, len(t.code))
	}
	return string(key)
}

// recall knows the module by another process's, if its code is the same.
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
		if !bytes.Equal(t.code, r.code[i]) {
			return false
		}
	}
	m.hash, m.keeps, m.entered = r.hash, r.keeps, r.entered
	return true
}

// remember has the module known to recall.
func (m *Module) remember(key string) {
	n := 0
	for _, t := range m.texts {
		n += len(t.code)
	}
	if key == "" || n > recallMost/4 {
		return
	}
	r := &recalled{hash: m.hash, keeps: m.keeps, entered: m.entered}
	for _, t := range m.texts {
		r.code = append(r.code, slices.Clone(t.code))
	}
	m.recalls.mu.Lock()
	defer m.recalls.mu.Unlock()
	if old := m.recalls.by[key]; old != nil { // of another process at the same time, or with other code
		for _, code := range old.code {
			m.recalls.bytes -= len(code)
		}
	}
	if m.recalls.bytes += n; m.recalls.by == nil || m.recalls.bytes > recallMost {
		m.recalls.by, m.recalls.bytes = map[string]*recalled{}, n
	}
	m.recalls.by[key] = r
}
