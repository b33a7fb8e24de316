package patch

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
)

// randomStates makes a trampoline with states of all kinds.
func randomStates(rnd *rand.Rand) *Trampoline {
	t := &Trampoline{Code: make([]byte, 1+rnd.IntN(600))}
	for off := 0; off < len(t.Code); off += 1 + rnd.IntN(1+rnd.IntN(300)) {
		s := State{Off: off, For: 0x401000 + rnd.Uint64N(20), Resume: Restart}
		switch rnd.IntN(6) {
		case 0:
			s.Resume = off
		case 1, 2:
			s.Resume = rnd.IntN(len(t.Code))
		case 3:
			s.For = rnd.Uint64()
		}
		if n := len(t.States); n > 0 && rnd.IntN(2) == 0 {
			s.Moves = append(s.Moves, t.States[n-1].Moves...)
		}
		for r := range uint8(moveRegs) {
			if rnd.IntN(8) > 0 || r >= FlagsAH && len(s.Moves) > 0 && s.Moves[len(s.Moves)-1].Reg >= FlagsAH {
				continue
			}
			m := Move{Reg: r, From: Source(rnd.IntN(int(sources)))}
			switch m.From {
			case FromReg, FromSlot:
				m.N = rnd.Int32N(16)
			case FromStack, FromSum:
				m.N = int32(rnd.Uint32()) >> rnd.IntN(32)
			}
			i := 0
			for i < len(s.Moves) && s.Moves[i].Reg < r {
				i++
			}
			if i < len(s.Moves) && s.Moves[i].Reg == r {
				s.Moves[i] = m
			} else if i == len(s.Moves) {
				s.Moves = append(s.Moves, m)
			}
		}
		t.States = append(t.States, s)
	}
	return t
}

// States in bytes say of each byte of code what the states say.
func TestStatesInBytes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	for range 3000 {
		x := randomStates(rnd)
		const at = 0x401003
		b := x.AppendStates([]byte{1, 2}, at)
		list, code, err := ParseStates(b[2:], at)
		if err != nil || code != len(x.Code) {
			t.Fatalf("%+v: % x: %d bytes of code, %v", x.States, b, code, err)
		}
		got := &Trampoline{Code: x.Code, States: list}
		for off := range x.Code {
			g, w := got.StateAt(off), x.StateAt(off)
			g.Off, w.Off = 0, 0
			if len(g.Moves) != len(w.Moves) || g.For != w.For || g.Resume != w.Resume || len(g.Moves) > 0 && !reflect.DeepEqual(g.Moves, w.Moves) {
				t.Fatalf("at %d: %+v, want %+v", off, g, w)
			}
		}
	}
}

// Bytes that are no states give ErrStates; what is read from others says the same in bytes again.
func FuzzStates(f *testing.F) {
	rnd := rand.New(rand.NewPCG(4, 5))
	for range 20 {
		f.Add(randomStates(rnd).AppendStates(nil, 0x401000))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, code, err := ParseStates(b, 0x401000)
		if err != nil {
			if !errors.Is(err, ErrStates) {
				t.Fatal(err)
			}
			return
		}
		x := &Trampoline{Code: make([]byte, code), States: list}
		again := x.AppendStates(nil, 0x401000)
		l, n, err := ParseStates(again, 0x401000)
		if err != nil || n != code || !reflect.DeepEqual(l, list) {
			t.Fatalf("% x read %+v, written % x, read %+v, %v", b, list, again, l, err)
		}
	})
}
