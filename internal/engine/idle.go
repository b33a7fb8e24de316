package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

// Of most libraries an Idler wants nothing, and to open each and to ask takes, where there are a hundred, a good part of a start. So the files of which that was found out are kept, by what identifies them
// (image.Identity): a hash of each, in one file for all.

// idleMost is how many are kept. When there are more the list begins anew.
const idleMost = 8 << 10

// idleSize is how long the hash of a file is.
const idleSize = 16

type idleHash [idleSize]byte

// idle are files that are idle. It is for several goroutines at once.
type idle struct {
	mu   sync.Mutex
	read bool
	name string // under which they are kept
	set  map[idleHash]bool
}

// known gives how many files are known, which it reads once; below 0: none ever are.
func (l *idle) known(p *Process) int {
	c, ok := p.e.opts.Client.(Idler)
	if !ok || p.e.cache == nil || p.e.opts.Orders || p.of != nil {
		return -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.read {
		h := sha256.New()
		h.Write(build())
		fmt.Fprintf(h, "%T", c)
		l.read, l.name, l.set = true, hex.EncodeToString(h.Sum(nil))+".idle", map[idleHash]bool{}
		if b, ok := p.e.cache.Load(l.name); ok {
			l.set = parseIdle(b)
		}
	}
	return len(l.set)
}

// is says whether the file of an identity, of which "" is none, is idle.
func (l *idle) is(id string) bool {
	if id == "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set[hashIdle(id)]
}

// noteIdle notes which of the modules that have come and were looked at are idle.
func (p *Process) noteIdle(come []*Module) {
	l := &p.e.idle
	c, ok := p.e.opts.Client.(Idler)
	if !ok || l.known(p) < 0 || p.closed.Load() {
		return
	}
	var more []idleHash
	for _, m := range come {
		if m.Image == nil || m.Kind != Library || m.learnt || m.sites > 0 {
			continue
		}
		if id := m.Image.Identity(); id != "" && c.Idle(m) && m.Image.Unchanged() {
			more = append(more, hashIdle(id))
		}
	}
	if len(more) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.set)+len(more) > idleMost {
		clear(l.set)
	}
	for _, h := range more {
		l.set[h] = true
	}
	p.e.cache.Store(l.name, appendIdle(nil, l.set))
}

func hashIdle(id string) (h idleHash) {
	sum := sha256.Sum256([]byte(id))
	copy(h[:], sum[:])
	return h
}

func appendIdle(dst []byte, set map[idleHash]bool) []byte {
	for h := range set {
		dst = append(dst, h[:]...)
	}
	return dst
}

// parseIdle takes any bytes.
func parseIdle(b []byte) map[idleHash]bool {
	set := make(map[idleHash]bool, len(b)/idleSize)
	for ; len(b) >= idleSize; b = b[idleSize:] {
		set[idleHash(b)] = true
	}
	return set
}

// close closes the module's file.
func (m *Module) close() {
	if m.Image != nil {
		m.Image.Close()
	}
}
