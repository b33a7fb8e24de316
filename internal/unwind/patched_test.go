package unwind

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// patchedMemory has the list of runs at 0 and in the last of them a trampoline of 16 bytes at 0x1000 for the instruction at 0xff0: from 4 on it has pushed a word, and has rax in rcx.
func patchedMemory() []byte {
	const run = 8 * wire.PatchRuns
	b := make([]byte, run)
	binary.LittleEndian.PutUint64(b[run-8:], run)
	for _, v := range []any{
		wire.TrampolineRun{Count: 1, Lo: 0x1000, Hi: 0x1010},
		wire.Trampoline{At: 0x1000, States: wire.SizeTrampolineRun + wire.SizeTrampoline, Bytes: 16, Count: 2},
		wire.TrampolineState{Pc: -16, Resume: 0xffff},
		wire.TrampolineState{Pc: -13, Off: 4, Resume: 0xffff, Moves: 2},
		wire.TrampolineMove{Reg: 4, From: fromSum, N: 8},
		wire.TrampolineMove{Reg: 0, From: fromReg, N: 1},
	} {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// TestStacks of package engine holds Program against what a handler sees; this is what it does not reach.
func TestProgram(t *testing.T) {
	mem := bytes.NewReader(patchedMemory())
	const rax, rcx = 0, 2
	for _, c := range []struct{ in, want Regs }{
		{Regs{regRA: 0x1003, regRSP: 64, rcx: 7}, Regs{regRA: 0xff0, regRSP: 64, rcx: 7}},
		{Regs{regRA: 0x1004, regRSP: 64, rcx: 7}, Regs{regRA: 0xff3, regRSP: 72, rcx: 7, rax: 7}},
		{Regs{regRA: 0x100f, regRSP: 64, rcx: 7}, Regs{regRA: 0xff3, regRSP: 72, rcx: 7, rax: 7}},
		{Regs{regRA: 0x1010, regRSP: 64}, Regs{regRA: 0x1010, regRSP: 64}},
		{Regs{regRA: 0xfff, regRSP: 64}, Regs{regRA: 0xfff, regRSP: 64}},
	} {
		if got := Program(c.in, 0, mem); got != c.want {
			t.Errorf("%#x: %#x", c.in, got)
		}
	}
	if in := (Regs{regRA: 0x1004}); Program(in, 1<<20, mem) != in {
		t.Error("without a list")
	}
}

// What a process has in its memory is anything.
func FuzzProgram(f *testing.F) {
	f.Add(patchedMemory(), uint64(0x1004), uint64(0))
	f.Fuzz(func(t *testing.T, memory []byte, pc, runs uint64) {
		Program(Regs{regRA: pc, regRSP: 16}, runs, bytes.NewReader(memory))
	})
}
