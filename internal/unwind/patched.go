package unwind

import (
	"encoding/binary"
	"io"

	"github.com/ripstop/ripstop/internal/wire"
)

// RunsSymbol is the agent's list of the runs of trampolines in its process: wire.PatchRuns addresses of wire.TrampolineRun, 0 where there is none.
const RunsSymbol = "rs_patch_runs"

// Sources of moves (wire.TrampolineMove), as in package patch.
const (
	fromReg   = 0
	fromStack = 2
	fromSum   = 3
	fromFor   = 4
)

// dwarfOf gives the DWARF number of a general register by its number in instructions.
var dwarfOf = [16]uint8{0, 2, 1, 3, regRSP, regRBP, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}

// Program gives the registers that the program is to be shown of a thread that stands in code of patched instructions: those at its own instruction, from which Walk goes on.
// Others are given back as they are. runs is the address of RunsSymbol in the process. It is what rs_patch_show does from within (internal/agent/c/trampoline.c), but for registers that are kept in the
// thread's save slots: they are what the trampoline has in them. No walk depends on those, since recipes save first what calls need not preserve.
func Program(regs Regs, runs uint64, mem io.ReaderAt) Regs {
	x := index{mem: mem}
	var list [8 * wire.PatchRuns]byte
	if !x.read(runs, list[:]) {
		return regs
	}
	for i := wire.PatchRuns - 1; i >= 0; i-- {
		run := binary.LittleEndian.Uint64(list[8*i:])
		if run == 0 {
			continue
		}
		if at, state, ok := x.find(run, regs[regRA]); ok {
			return x.show(regs, at, state)
		}
	}
	return regs
}

// index reads a process's index of trampolines, in which anything may stand.
type index struct{ mem io.ReaderAt }

func (x *index) read(at uint64, b []byte) bool {
	if int64(at) < 0 {
		return false
	}
	n, _ := x.mem.ReadAt(b, int64(at))
	return n == len(b)
}

// find gives the trampoline's address and its state at pc.
func (x *index) find(run, pc uint64) (at, state uint64, ok bool) {
	le := binary.LittleEndian
	var head [wire.SizeTrampolineRun]byte
	if !x.read(run, head[:]) {
		return 0, 0, false
	}
	var h wire.TrampolineRun
	if _, err := binary.Decode(head[:], le, &h); err != nil || pc < h.Lo || pc >= h.Hi {
		return 0, 0, false
	}
	var t wire.Trampoline
	entry := func(i uint64) bool {
		var b [wire.SizeTrampoline]byte
		if !x.read(run+wire.SizeTrampolineRun+i*wire.SizeTrampoline, b[:]) {
			return false
		}
		_, err := binary.Decode(b[:], le, &t)
		return err == nil
	}
	lo, hi := uint64(0), h.Count
	for lo < hi {
		mid := lo + (hi-lo)/2
		if !entry(mid) {
			return 0, 0, false
		}
		if t.At+uint64(t.Bytes) <= pc {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo >= h.Count || !entry(lo) || t.At > pc {
		return 0, 0, false
	}
	next := run + uint64(t.States)
	for n := 0; n < int(t.Count) || n == 0; n++ {
		s, good := x.state(next)
		if !good || n > 0 && uint64(s.Off) > pc-t.At {
			break
		}
		state = next
		next += wire.SizeTrampolineState + uint64(s.Moves)*wire.SizeTrampolineMove
	}
	return t.At, state, state != 0
}

func (x *index) state(at uint64) (s wire.TrampolineState, ok bool) {
	var b [wire.SizeTrampolineState]byte
	if !x.read(at, b[:]) {
		return s, false
	}
	_, err := binary.Decode(b[:], binary.LittleEndian, &s)
	return s, err == nil
}

// show does what a state says.
func (x *index) show(was Regs, at, state uint64) Regs {
	s, ok := x.state(state)
	if !ok {
		return was
	}
	out := was
	out[regRA] = at + uint64(int64(s.Pc))
	for i := range min(s.Moves, 32) {
		var b [wire.SizeTrampolineMove]byte
		if !x.read(state+wire.SizeTrampolineState+uint64(i)*wire.SizeTrampolineMove, b[:]) {
			break
		}
		var m wire.TrampolineMove
		if _, err := binary.Decode(b[:], binary.LittleEndian, &m); err != nil || m.Reg > 15 {
			continue // flags and what is wider
		}
		var word [8]byte
		n := uint64(int64(m.N))
		switch reg := dwarfOf[m.Reg]; m.From {
		case fromReg:
			out[reg] = was[dwarfOf[n&15]]
		case fromStack:
			if x.read(was[regRSP]+n, word[:]) {
				out[reg] = binary.LittleEndian.Uint64(word[:])
			}
		case fromSum:
			out[reg] = was[reg] + n
		case fromFor:
			out[reg] = out[regRA]
		}
	}
	return out
}
