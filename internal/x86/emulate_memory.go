package x86

import (
	"encoding/binary"
	"math/bits"
)

// A SparseMemory is a Memory that keeps the bytes that are known, and knows those of sections that never change. Make it with NewSparseMemory.
type SparseMemory struct {
	pages  map[uint64]*sparsePage // by address / sparsePageSize
	cache  [16]*sparsePage        // by number modulo 16; nil or right
	fixed  []fixedRange
	epoch  uint64
	absent sparsePage
}

const sparsePageSize = 4096

type sparsePage struct {
	number uint64
	epoch  uint64                      // known holds if it is the memory's
	known  [sparsePageSize / 64]uint64 // a bit a byte
	fixed  [sparsePageSize / 64]uint64 // likewise, part of known: bytes that never change
	data   [sparsePageSize + 8]byte    // and room for a load of 8 bytes at the last one; those not known are anything
}

type fixedRange struct {
	from uint64
	data []byte
}

// NewSparseMemory gives a memory of which nothing is known.
func NewSparseMemory() *SparseMemory { return &SparseMemory{pages: map[uint64]*sparsePage{}, epoch: 1} }

// AddReadOnly says that the bytes lie at the address and never change. Add them before any other use of the memory; where ranges overlap, the later holds. The
// slice is kept and not changed.
func (m *SparseMemory) AddReadOnly(addr uint64, data []byte) {
	m.fixed = append(m.fixed, fixedRange{addr, data})
}

// Pages says for how many pages of 4096 bytes there is memory allocated.
func (m *SparseMemory) Pages() int { return len(m.pages) }

// Reset makes the memory as it was before its first use, but for the read-only ranges.
func (m *SparseMemory) Reset() {
	clear(m.pages)
	clear(m.cache[:])
}

// page gives a page as it is now; if there is none it makes one, or, unless make is set, gives one of which nothing is known.
func (m *SparseMemory) page(number uint64, create bool) *sparsePage {
	p := m.cache[number&15]
	if p == nil || p.number != number {
		p = m.pages[number]
		if p == nil {
			if p = m.newPage(number, create); p == nil {
				return &m.absent
			}
			m.pages[number] = p
		}
		m.cache[number&15] = p
	}
	if p.epoch != m.epoch {
		p.epoch, p.known = m.epoch, p.fixed
	}
	return p
}

// newPage makes a page with what is fixed in it; nil if nothing is and it need not be.
func (m *SparseMemory) newPage(number uint64, create bool) *sparsePage {
	var p *sparsePage
	if create {
		p = &sparsePage{number: number}
	}
	from := number * sparsePageSize
	for _, r := range m.fixed {
		off := r.from - from // modulo 2^64
		data := r.data
		if off >= sparsePageSize {
			if -off >= uint64(len(data)) {
				continue
			}
			data, off = data[-off:], 0
		}
		if len(data) == 0 {
			continue
		}
		if p == nil {
			p = &sparsePage{number: number}
		}
		n := copy(p.data[off:sparsePageSize], data)
		for i := off; i < off+uint64(n); i++ {
			p.fixed[i>>6] |= 1 << (i & 63)
		}
	}
	return p
}

// Load is Memory's.
func (m *SparseMemory) Load(addr uint64, size int) Value {
	off := addr % sparsePageSize
	if off+uint64(size) > sparsePageSize {
		n := int(sparsePageSize - off)
		a, b := m.Load(addr, n), m.Load(addr+uint64(n), size-n)
		return Value{a.Bits | b.Bits<<(8*n), a.Known | b.Known<<(8*n)}
	}
	p := m.page(addr/sparsePageSize, false)
	w, s := off>>6, off&63
	k := p.known[w] >> s
	if s > 56 && w+1 < uint64(len(p.known)) {
		k |= p.known[w+1] << (64 - s)
	}
	mask := byteMasks[uint8(k)] & widthMask(uint8(size))
	return Value{binary.LittleEndian.Uint64(p.data[off:]) & mask, mask}
}

// Store is Memory's. Bytes are known as a whole or not at all. What is said to be read-only stays as it is.
func (m *SparseMemory) Store(addr uint64, size int, v Value) {
	off := addr % sparsePageSize
	if off+uint64(size) > sparsePageSize {
		n := int(sparsePageSize - off)
		m.Store(addr, n, v)
		m.Store(addr+uint64(n), size-n, Value{v.Bits >> (8 * n), v.Known >> (8 * n)})
		return
	}
	p := m.page(addr/sparsePageSize, v.Known != 0)
	if p == &m.absent {
		return
	}
	for i := range uint64(size) {
		w, bit := (off+i)>>6, uint64(1)<<((off+i)&63)
		switch {
		case p.fixed[w]&bit != 0:
		case uint8(v.Known>>(8*i)) == 0xff:
			p.known[w] |= bit
			p.data[off+i] = byte(v.Bits >> (8 * i))
		default:
			p.known[w] &^= bit
		}
	}
}

// Forget is Memory's.
func (m *SparseMemory) Forget(addr, size uint64) {
	if size/sparsePageSize > uint64(len(m.pages)) { // more pages than there are
		for _, p := range m.pages {
			from := p.number*sparsePageSize - addr
			if from < size {
				m.forget(p.number, 0, min(size-from, sparsePageSize))
			}
			if -from < sparsePageSize {
				m.forget(p.number, -from, min(size, sparsePageSize+from))
			}
		}
		return
	}
	for size > 0 {
		off := addr % sparsePageSize
		n := min(size, sparsePageSize-off)
		m.forget(addr/sparsePageSize, off, n)
		addr += n
		size -= n
	}
}

// forget makes n bytes of a page, from the offset on, unknown.
func (m *SparseMemory) forget(number, off, n uint64) {
	p := m.page(number, false)
	if p == &m.absent {
		return
	}
	for n > 0 {
		w, s := off>>6, off&63
		k := min(n, 64-s)
		mask := ^uint64(0) >> (64 - k) << s
		p.known[w] &= p.fixed[w] | ^mask
		off += k
		n -= k
	}
}

// ForgetAll is Memory's: read-only ranges stay known.
func (m *SparseMemory) ForgetAll() { m.epoch++ }

// Known counts the bytes that are known.
func (m *SparseMemory) Known() (n int) {
	for number := range m.pages {
		for _, w := range m.page(number, false).known {
			n += bits.OnesCount64(w)
		}
	}
	return n
}
