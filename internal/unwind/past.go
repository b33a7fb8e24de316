package unwind

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/ripstop/ripstop/internal/wire"
)

// WalkPast returns the program counters, as Walk does, of the stack with which a thread took a lock that it still holds. The frames that m has whole
// are those of that time; the others are taken from the stack as it is now, if a frame of the same function ends at the same place, and otherwise the
// walk ends there. now are the registers of the thread, which must be stopped. It is the agent's walk (moment.c) in Go.
func WalkPast(m *wire.Moment, now Regs, mem io.ReaderAt, modules []Module, depth int) []uint64 {
	p := past{now: mem, lo: m.Rsp}
	for _, w := range m.Word {
		p.then = binary.LittleEndian.AppendUint64(p.then, w)
	}
	pcs, cfas := walk(Regs{regRA: m.Pc - 1, regRSP: m.Rsp, regRBP: m.Rbp}, p, modules, depth)
	nowPCs, nowCFAs := walk(now, mem, modules, MaxFrames)
	for i, cfa := range cfas {
		if cfa != 0 && cfa-8-p.lo < uint64(len(p.then)) {
			continue // it returns by a word that is known
		}
		j := slices.Index(nowCFAs, cfa)
		if cfa == 0 || j < 0 || entry(modules, pcs[i], i > 0) == 0 || entry(modules, pcs[i], i > 0) != entry(modules, nowPCs[j], j > 0) {
			return pcs[:i+1]
		}
		break // the rest is what it is now
	}
	return pcs
}

// entry is the address at which the function, or the part of one, begins that pc lies in; 0: not known.
func entry(modules []Module, pc uint64, isReturn bool) uint64 {
	if isReturn {
		pc--
	}
	for i := range modules {
		if m := &modules[i]; m.Table != nil && pc >= m.Start && pc < m.End {
			if start := m.Table.Start(pc - m.Bias); start != 0 {
				return start + m.Bias
			}
		}
	}
	return 0
}

// past is the memory of a process with a part of a stack as it was earlier.
type past struct {
	now  io.ReaderAt
	lo   uint64
	then []byte
}

func (p past) ReadAt(b []byte, off int64) (int, error) {
	if at := uint64(off) - p.lo; at < uint64(len(p.then)) && uint64(len(p.then))-at >= uint64(len(b)) {
		return copy(b, p.then[at:]), nil
	}
	return p.now.ReadAt(b, off)
}
