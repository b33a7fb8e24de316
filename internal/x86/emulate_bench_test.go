package x86

import "testing"

// A walk is code made ready: the instructions of a text one after the other.
type walk struct {
	ops []*Op
	pcs []uint64
}

func walkOf(b *testing.B, file string, n int) (w walk) {
	b.Helper()
	code, addr := text(b, file)
	for at := 0; at < len(code) && len(w.ops) < n; {
		in, err := Decode(code[at:])
		if err != nil {
			at++
			continue
		}
		w.ops, w.pcs = append(w.ops, Bind(&in)), append(w.pcs, addr+uint64(at))
		at += in.Len
	}
	return w
}

// sampled sets registers as a sample has them.
func (e *Emulator) sampled() {
	e.State = State{FlagsKnown: FlagsArith | DF, FS: Exactly(0x7f0000000000), GS: Exactly(0)}
	for i := range e.GPR {
		e.GPR[i] = Exactly(0x7ffe00000000 + uint64(i)*0x10040)
	}
}

// Forwards and backwards over libc's code, with all registers known at every 64th instruction: ns/op are those of an instruction.
func BenchmarkExec(b *testing.B) {
	w := walkOf(b, libs+"libc.so.6", 1<<18)
	e := &Emulator{Mem: NewSparseMemory()}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i&63 == 0 {
			e.sampled()
		}
		e.Exec(w.ops[i], w.pcs[i])
		if i++; i == len(w.ops) {
			i = 0
		}
	}
}

func BenchmarkReverse(b *testing.B) {
	w := walkOf(b, libs+"libc.so.6", 1<<18)
	e := &Emulator{Mem: NewSparseMemory()}
	b.ReportAllocs()
	i := len(w.ops) - 1
	for b.Loop() {
		if i&63 == 0 {
			e.sampled()
		}
		if i--; i < 0 {
			i = len(w.ops) - 2
		}
		e.Reverse(w.ops[i], w.pcs[i], w.pcs[i+1])
	}
}

// The first time that an instruction is met it is decoded and made ready.
func BenchmarkBind(b *testing.B) {
	code, _ := text(b, libs+"libc.so.6")
	b.ReportAllocs()
	at := 0
	for b.Loop() {
		in, err := Decode(code[at:])
		if err != nil {
			at++
			continue
		}
		Bind(&in)
		if at += in.Len; at >= len(code) {
			at = 0
		}
	}
}
