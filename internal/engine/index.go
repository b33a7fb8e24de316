package engine

import (
	"encoding/binary"
	"slices"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// A run is a part of the process's index of trampolines, by which the agent shows interrupted threads to the program (internal/agent/c/patch.c).
type run struct {
	at   uint64
	list []*patch.Patch
}

// entries gives what of a patch is in the index: its trampoline, and the jump inside a neighbour.
func entries(x *patch.Patch) []indexed {
	list := []indexed{{x.Trampoline.At, x.Trampoline.End(), x.Trampoline.States}}
	if x.Via != 0 {
		list = append(list, indexed{x.Via, x.Via + 5, []patch.State{{For: x.At, Resume: patch.Restart}}})
	}
	return list
}

type indexed struct {
	lo, hi uint64
	states []patch.State
}

// encodeRun makes a run of patches: wire.TrampolineRun.
func encodeRun(list []*patch.Patch) []byte {
	var all []indexed
	for _, x := range list {
		all = append(all, entries(x)...)
	}
	slices.SortFunc(all, func(a, b indexed) int {
		if a.lo < b.lo {
			return -1
		}
		return 1
	})
	le := binary.LittleEndian
	head := wire.SizeTrampolineRun + len(all)*wire.SizeTrampoline
	b := make([]byte, 0, head+len(all)*64)
	b = le.AppendUint64(b, uint64(len(all)))
	b = le.AppendUint64(b, all[0].lo)
	hi := uint64(0)
	for i := range all {
		hi = max(hi, all[i].hi)
	}
	b = le.AppendUint64(b, hi)
	var states []byte
	for i := range all {
		e := &all[i]
		b = le.AppendUint64(b, e.lo)
		b = le.AppendUint32(b, uint32(head+len(states)))
		b = le.AppendUint16(b, uint16(e.hi-e.lo))
		b = le.AppendUint16(b, uint16(len(e.states)))
		for _, s := range e.states {
			states = le.AppendUint32(states, uint32(int32(s.For-e.lo)))
			states = le.AppendUint16(states, uint16(s.Off))
			resume := uint16(0xffff)
			if s.Resume != patch.Restart {
				resume = uint16(s.Resume)
			}
			states = le.AppendUint16(states, resume)
			states = le.AppendUint32(states, uint32(len(s.Moves)))
			for _, m := range s.Moves {
				states = le.AppendUint32(states, uint32(m.N))
				states = append(states, m.Reg, uint8(m.From), 0, 0)
			}
		}
	}
	return append(b, states...)
}

// An arena is memory of the process for runs; they are laid out in it one after the other.
type arena struct{ at, used, bytes uint64 }

// arenaBytes is the least that is reserved at once.
const arenaBytes = 64 << 10

// index makes trampolines known to the agent, before the first jump leads there: by the operations that it gives, once they are done.
func (p *Process) index(list []*patch.Patch) ([]wire.PatchOp, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if len(p.runs) == wire.PatchRuns {
		return nil, p.merge(list)
	}
	r, err := p.makeRun(list)
	if err != nil {
		return nil, err
	}
	o := op(wire.PatchDoRun, r.at, 0)
	o.Arg = uint32(len(p.runs))
	p.runs = append(p.runs, r)
	return []wire.PatchOp{o}, nil
}

func (p *Process) makeRun(list []*patch.Patch) (*run, error) {
	b := encodeRun(list)
	n := len(p.arenas)
	if n == 0 || uint64(len(b)) > p.arenas[n-1].bytes-p.arenas[n-1].used {
		size := max(arenaBytes, (uint64(len(b))+patch.PageSize-1)&^(patch.PageSize-1))
		ops := []wire.PatchOp{op(wire.PatchDoReserve, 0, size)}
		if err := p.do(ops...); err != nil {
			return nil, err
		}
		p.arenas = append(p.arenas, &arena{at: ops[0].Address, bytes: size})
		p.tables += size
		n++
	}
	a := p.arenas[n-1]
	r := &run{at: a.at + a.used, list: list}
	a.used += (uint64(len(b)) + 15) &^ 15
	a.used = min(a.used, a.bytes)
	return r, p.write(r.at, b)
}

// merge makes one run of all that live.
func (p *Process) merge(list []*patch.Patch) error {
	var all []*patch.Patch
	for _, r := range append(p.runs, &run{list: list}) {
		for _, x := range r.list {
			if !p.dead[x] {
				all = append(all, x)
			}
		}
	}
	old := p.arenas
	p.arenas = nil
	m, err := p.makeRun(all)
	if err != nil {
		p.arenas = append(old, p.arenas...)
		return err
	}
	var ops []wire.PatchOp
	for slot := range wire.PatchRuns { // the new one first: what is in it is in the old ones too
		o := op(wire.PatchDoRun, 0, 0)
		if o.Arg = uint32(slot); slot == 0 {
			o.Address = m.at
		}
		ops = append(ops, o)
	}
	p.runs = []*run{m}
	clear(p.dead)
	if err := p.do(ops...); err != nil {
		return err
	}
	for _, a := range old {
		// A reader in a handler may keep it; then it stays for good.
		if err := p.do(op(wire.PatchDoUnmap, a.at, a.bytes)); err == nil {
			p.tables -= a.bytes
		}
	}
	return nil
}
