package x86

import (
	"math/rand/v2"
	"testing"
)

// A memoryModel is the plainest Memory: a map of bytes.
type memoryModel struct{ bytes, fixed map[uint64]byte }

func (m *memoryModel) load(addr uint64, size int) (v Value) {
	for i := range size {
		b, ok := m.fixed[addr+uint64(i)]
		if !ok {
			b, ok = m.bytes[addr+uint64(i)]
		}
		if ok {
			v.Bits |= uint64(b) << (8 * i)
			v.Known |= 0xff << (8 * i)
		}
	}
	return v
}

func (m *memoryModel) store(addr uint64, size int, v Value) {
	for i := range size {
		if uint8(v.Known>>(8*i)) == 0xff {
			m.bytes[addr+uint64(i)] = byte(v.Bits >> (8 * i))
		} else {
			delete(m.bytes, addr+uint64(i))
		}
	}
}

// A SparseMemory does what a map of bytes does, over pages, at their borders, around the end of the address space, and in read-only ranges.
func TestSparseMemory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	bases := []uint64{0x1000 - 40, 0x5000, ^uint64(0) - 30, 0x7fff00001f00, 0x9000 - 8}
	for round := range 60 {
		m, model := NewSparseMemory(), &memoryModel{map[uint64]byte{}, map[uint64]byte{}}
		for range rnd.IntN(4) {
			at, data := bases[rnd.IntN(len(bases))]+rnd.Uint64N(64), make([]byte, rnd.IntN(9000))
			for i := range data {
				data[i] = byte(rnd.Uint32())
				model.fixed[at+uint64(i)] = data[i]
			}
			m.AddReadOnly(at, data)
		}
		for step := range 3000 {
			addr, size := bases[rnd.IntN(len(bases))]+rnd.Uint64N(90), 1+rnd.IntN(8)
			switch rnd.IntN(8) {
			case 0, 1, 2:
				v := Value{Known: rnd.Uint64() | rnd.Uint64() | rnd.Uint64()}
				if rnd.IntN(2) == 0 {
					v.Known = ^uint64(0)
				}
				v.Bits = rnd.Uint64() & v.Known
				m.Store(addr, size, v)
				model.store(addr, size, v)
			case 3:
				n := rnd.Uint64N(40)
				if rnd.IntN(8) == 0 { // over many pages, or over all
					n = rnd.Uint64() >> rnd.IntN(60)
				}
				m.Forget(addr, n)
				for a := range model.bytes {
					if a-addr < n {
						delete(model.bytes, a)
					}
				}
			case 4:
				if rnd.IntN(30) == 0 {
					m.ForgetAll()
					clear(model.bytes)
				}
				if rnd.IntN(100) == 0 {
					m.Reset()
					clear(model.bytes)
				}
			}
			if got, want := m.Load(addr, size), model.load(addr, size); got != want {
				t.Fatalf("round %d, step %d: %d bytes at %#x are %+v, want %+v", round, step, size, addr, got, want)
			}
		}
	}
}

// A mapping of a whole library costs nothing until it is read.
func TestSparseMemoryIsSparse(t *testing.T) {
	m := NewSparseMemory()
	m.AddReadOnly(0x1000, make([]byte, 1<<20))
	m.Store(1<<40, 8, Value{})
	m.Forget(0, 1<<50)
	if m.Load(0x2000-4, 8) != Exactly(0) || m.Load(1<<40, 8) != (Value{}) {
		t.Error("a read-only range is not known, or something else is")
	}
	if m.Pages() != 2 {
		t.Errorf("%d pages are allocated, want 2", m.Pages())
	}
}
