package x86

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// fuzzMemory gives a memory that is known around where the registers of fuzzed point.
func fuzzMemory(rnd *rand.Rand) *SparseMemory {
	m := NewSparseMemory()
	for _, addr := range dataAt[:2] {
		p := m.page(addr/sparsePageSize, true)
		p.known = allKnown
		for i := 0; i < pageSize; i += 8 {
			binary.LittleEndian.PutUint64(p.data[i:], rnd.Uint64())
		}
	}
	return m
}

// fuzzed gives an emulator with all known; the same for the same seed.
func fuzzed(seed uint64) *Emulator {
	rnd := rand.New(rand.NewPCG(seed, 13))
	e := &Emulator{Mem: fuzzMemory(rnd)}
	for i := range e.GPR {
		e.GPR[i] = Exactly(word(rnd))
		if rnd.IntN(2) == 0 {
			e.GPR[i] = Exactly(dataAt[rnd.IntN(2)] + rnd.Uint64N(pageSize))
		}
	}
	e.FlagsKnown = FlagsArith | DF
	e.Flags = Flags(rnd.Uint32()) & e.FlagsKnown
	e.FS, e.GS = Exactly(rnd.Uint64()&0xff8), Exactly(rnd.Uint64()&0xff8)
	for i := range e.Vec {
		e.Vec[i].Known = ^uint64(0)
		for j := range e.Vec[i].Q {
			e.Vec[i].Q[j] = word(rnd)
		}
	}
	return e
}

// agree says whether no two of the emulators' values contradict each other.
func agree(a, b *Emulator) bool {
	s := a.State
	if !s.Learn(&b.State) {
		return false
	}
	for _, page := range dataAt[:2] {
		for i := uint64(0); i < pageSize; i += 8 {
			v, w := a.Mem.Load(page+i, 8), b.Mem.Load(page+i, 8)
			if (v.Bits^w.Bits)&v.Known&w.Known != 0 || v.Bits&^v.Known != 0 {
				return false
			}
		}
	}
	return true
}

// wellFormed says whether all that is not known is 0.
func (s *State) wellFormed() bool {
	for _, v := range append(s.GPR[:], s.FS, s.GS) {
		if v.Bits&^v.Known != 0 {
			return false
		}
	}
	for i := range s.Vec {
		for j, q := range s.Vec[i].Q {
			if q&^s.Vec[i].wordKnown(j) != 0 {
				return false
			}
		}
	}
	return s.Flags&^s.FlagsKnown == 0 && s.FlagsKnown&^(FlagsArith|DF) == 0
}

// Whatever the bytes are: nothing panics; knowing less before means knowing less, and nothing else, afterwards; and what Reverse says of the state before
// agrees with it.
func FuzzEmulate(f *testing.F) {
	for _, code := range []string{"4801c8", "f348a5", "f3a6", "48f7f1", "0fb111", "c9", "488d4408f8", "660fd7c1", "c5fd6f01", "0fa301", "48d3e0", "8f442408"} {
		in := decoded(f, code)
		b, _ := hex.DecodeString(code)
		f.Add(b[:in.Len], uint64(1))
	}
	f.Fuzz(func(t *testing.T, code []byte, seed uint64) {
		in, err := Decode(code)
		if err != nil {
			return
		}
		op := Bind(&in)
		const pc = 0x10000000
		rnd := rand.New(rand.NewPCG(seed, 14))
		before, whole := fuzzed(seed), fuzzed(seed)
		next, known := whole.Exec(op, pc)
		if !whole.wellFormed() {
			t.Fatalf("%x %v: %+v", code[:in.Len], &in, whole.State)
		}
		for range 4 {
			e := fuzzed(seed)
			hide(e, rnd)
			n, k := e.Exec(op, pc)
			if k && known && n != next || !e.wellFormed() || !agree(e, whole) {
				t.Fatalf("%x %v: with less known before, something else comes out", code[:in.Len], &in)
			}
		}
		if !known {
			return // it raises an exception, or goes where nobody knows
		}
		for range 4 {
			e := fuzzed(seed)
			e.Exec(op, pc)
			hide(e, rnd)
			e.Reverse(op, pc, next)
			if !e.wellFormed() || !agree(e, before) {
				t.Fatalf("%x %v: what is said of the state before is not so", code[:in.Len], &in)
			}
		}
	})
}
