package engine

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// keptAreas bounds how many areas of memory a process may have if some of them stay without trampolines: 1/keptAreas of those that it may have at all.
const keptAreas = 16

// mostLeft bounds how many files of modules that have gone are remembered.
const mostLeft = 4096

// keepsIdle says whether what has no trampolines any more stays mapped when modules have gone: if they had gone before, they are likely to come again. To map a module's areas takes a third as long as to
// plan it, and a program that loads one and the same library again and again has it planned to the same place.
func (p *Process) keepsIdle(gone []*Module, maps []tracee.Mapping) bool {
	if p.shares() || slices.ContainsFunc(gone, func(m *Module) bool { return !m.again }) {
		return false
	}
	return len(maps) <= min(maxAreas()/keptAreas, p.mostAreas())
}

// clear gives back what nobody uses when modules have gone: index, and addresses without trampolines, unless they stay for now. It says whether some were unmapped.
func (p *Process) clear(gone []*Module, maps []tracee.Mapping) (unmapped bool, err error) {
	var idle []patch.Range
	if !p.keepsIdle(gone, maps) {
		idle = intersect(p.space.Idle(), p.blocks)
	}
	if len(gone)+len(idle) == 0 {
		return false, nil
	}
	// Somebody else's code may come to lie there.
	if err := p.void(idle); err != nil || len(idle) == 0 {
		return false, err
	}
	return true, p.unmap(idle, maps)
}

// unmap unmaps what is idle. What others have mapped in the place of ours, as the process's map says, is left alone. A forked child has mappings of its own; what they show is the file's, which stays.
func (p *Process) unmap(idle []patch.Range, maps []tracee.Mapping) error {
	var ops []wire.PatchOp
	for _, r := range intersect(idle, p.ours(maps)) {
		o := op(wire.PatchDoUnmap, r.Lo, r.Hi-r.Lo)
		o.Arg = 1
		ops = append(ops, o)
	}
	var kept []patch.Range
	for len(ops) > 0 {
		err := p.do(ops...)
		if err == nil {
			break
		}
		var bad *opError
		if !errors.As(err, &bad) {
			return err
		}
		i := slices.IndexFunc(ops, func(o wire.PatchOp) bool { return o.Address == bad.op.Address })
		if i < 0 {
			return err
		}
		// There are as many areas as there may be, and a piece out of one cannot go.
		kept = append(kept, patch.Range{Lo: ops[i].Address, Hi: ops[i].Address + ops[i].Value})
		ops = ops[i+1:]
	}
	gone := subtract(idle, kept)
	for _, r := range gone {
		p.space.Hidden(r)
	}
	p.blocks, p.framed = subtract(p.blocks, gone), subtract(p.framed, gone)
	p.described, p.unmapped = false, true
	return nil
}

// ours gives what of a process's map is as we have mapped it for trampolines: pages that show frames, and others with memory of their own.
func (p *Process) ours(maps []tracee.Mapping) []patch.Range {
	var frames, own []patch.Range
	for i := range maps {
		m := &maps[i]
		r := patch.Range{Lo: uint64(m.Start), Hi: uint64(m.End)}
		switch {
		case m.Shared && m.Path == "/memfd:"+memoryName:
			frames = append(frames, r)
		case m.Path == "" && m.Inode == 0 && m.Exec && !m.Write && !m.Shared:
			own = append(own, r)
		}
	}
	return union(append(intersect(frames, p.framed), subtract(own, p.framed)...))
}

// punch gives the memory of frames that have no trampolines any more back to the system; memfd_create(2), fallocate(2).
func (p *Process) punch() {
	p.unmapped = false
	for _, r := range p.space.Vacant() {
		if end := min(r.First+r.Frames, int(p.page.Frames)); r.First < end {
			_ = unix.Fallocate(p.fds[0], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(wire.SizePatchPage+r.First*patch.PageSize), int64((end-r.First)*patch.PageSize))
		}
	}
}

// intersect gives what is in both; both are sorted, and their ranges do not overlap.
func intersect(a, b []patch.Range) (out []patch.Range) {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		if r := (patch.Range{Lo: max(a[i].Lo, b[k].Lo), Hi: min(a[i].Hi, b[k].Hi)}); r.Lo < r.Hi {
			out = append(out, r)
		}
		if a[i].Hi < b[k].Hi {
			i++
		} else {
			k++
		}
	}
	return out
}

// --- the index of what is gone ------------------------------------------------------------------------------------------------------

// voidPiece is what of a run is read at once, and voidBlock what is written when something in it has changed.
const (
	voidPiece = 1 << 20
	voidBlock = 4 << 10
)

// voidFor says for how many dead trampolines a run is looked through that has nothing in ranges that go: one for voidFor entries.
const voidFor = 8

// void makes void what runs say of the dead, and of ranges of addresses, in order, where nobody is any more: an entry of no length is met by nobody. Runs at the end of which nothing is left go.
func (p *Process) void(list []patch.Range) error {
	if len(list)+len(p.dead) == 0 {
		return nil
	}
	if err := p.do(); err != nil { // what is yet to be stored
		return err
	}
	all, buf := true, make([]byte, voidPiece)
	for i, r := range p.runs {
		within := len(list) > 0 && r.lo < list[len(list)-1].Hi && r.hi > list[0].Lo
		dead := r.entries <= voidFor*len(p.dead)
		switch {
		case r.void == r.entries:
		case within || dead:
			if err := p.voidRun(i, list, buf); err != nil {
				return err
			}
		default:
			all = false
		}
	}
	if all {
		clear(p.dead)
	}
	return p.dropRuns()
}

// voidRun is void for one run.
func (p *Process) voidRun(i int, list []patch.Range, buf []byte) error {
	r := p.runs[i]
	at, left := r.at+wire.SizeTrampolineRun, r.entries*wire.SizeTrampoline
	for left > 0 {
		b := buf[:min(left, voidPiece)]
		if err := p.read(at, b); err != nil {
			return err
		}
		var w writer
		for lo := 0; lo < len(b); lo += voidBlock {
			block, changed := b[lo:min(lo+voidBlock, len(b))], false
			for k := 0; k < len(block); k += wire.SizeTrampoline {
				e := block[k:]
				entry, n := binary.LittleEndian.Uint64(e), uint64(binary.LittleEndian.Uint16(e[entryBytes:]))
				for len(list) > 0 && list[0].Hi <= entry {
					list = list[1:]
				}
				if n == 0 || p.dead[entry] <= i && (len(list) == 0 || entry+n <= list[0].Lo) {
					continue
				}
				binary.LittleEndian.PutUint16(e[entryBytes:], 0)
				changed = true
				r.void++
			}
			if changed {
				if err := w.add(p, at+uint64(lo), block); err != nil {
					return err
				}
			}
		}
		if err := w.flush(p); err != nil {
			return err
		}
		at, left = at+uint64(len(b)), left-len(b)
	}
	return nil
}

// dropRuns has the last runs go of which all is void.
func (p *Process) dropRuns() error {
	n := len(p.runs)
	var ops []wire.PatchOp
	for ; n > 0 && p.runs[n-1].void == p.runs[n-1].entries; n-- {
		o := op(wire.PatchDoRun, 0, 0)
		o.Arg = uint32(n - 1)
		ops = append(ops, o)
	}
	if len(ops) == 0 {
		return nil
	}
	if err := p.do(ops...); err != nil {
		return err // it still has some of them
	}
	for _, r := range p.runs[n:] {
		r.in.runs--
	}
	p.runs = p.runs[:n]
	p.died(n)
	p.freeArenas()
	return nil
}
