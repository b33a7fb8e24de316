package engine

import (
	"debug/elf"
	"encoding/binary"
	"slices"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/x86"
)

// entries of a dynamic section and of a relocation table that are looked at, at most: the file may be anybody's.
const maxEntries = 1 << 20

// relaPiece is how many bytes of relocations are copied at once.
const relaPiece = 24 << 10

// roots gives the link-time addresses at which the loader or the kernel enters an image: where neither symbols nor frames describe a function, as in what crti.o and crtbegin.o bring along.
func roots(img *image.Image) (list []uint64) {
	le := binary.LittleEndian
	if e := img.Entry(); e != 0 {
		list = append(list, e)
	}
	addr, size, ok := img.Program(elf.PT_DYNAMIC)
	if !ok {
		return list
	}
	dyn := map[elf.DynTag]uint64{}
	for b := img.Bytes(addr, min(size, 16*maxEntries)); len(b) >= 16; b = b[16:] {
		tag := elf.DynTag(le.Uint64(b))
		if tag == elf.DT_NULL {
			break
		}
		dyn[tag] = le.Uint64(b[8:])
	}
	for _, tag := range []elf.DynTag{elf.DT_INIT, elf.DT_FINI} {
		if a := dyn[tag]; a != 0 {
			list = append(list, a)
		}
	}
	// Pointers in the arrays are what relocations say, or (DT_RELR, not PIE) what lies there.
	at := map[uint64]uint64{}
	lo, hi := ^uint64(0), uint64(0) // where they lie: most relocations, of which there may be a million, are elsewhere
	for _, tag := range []elf.DynTag{elf.DT_PREINIT_ARRAY, elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY} {
		sizeTag := map[elf.DynTag]elf.DynTag{elf.DT_PREINIT_ARRAY: elf.DT_PREINIT_ARRAYSZ, elf.DT_INIT_ARRAY: elf.DT_INIT_ARRAYSZ, elf.DT_FINI_ARRAY: elf.DT_FINI_ARRAYSZ}[tag]
		b := img.Bytes(dyn[tag], min(dyn[sizeTag], 8*maxEntries))
		for i := 0; i+8 <= len(b); i += 8 {
			a := dyn[tag] + uint64(i)
			at[a] = le.Uint64(b[i:])
			lo, hi = min(lo, a), max(hi, a)
		}
	}
	// In pieces: a copy of all of them would be megabytes.
	for from, left := dyn[elf.DT_RELA], min(dyn[elf.DT_RELASZ], 24*maxEntries)/24*24; left > 0 && len(at) > 0; {
		b := img.Bytes(from, min(left, relaPiece))
		b = b[:len(b)/24*24]
		if len(b) == 0 {
			break
		}
		from, left = from+uint64(len(b)), left-uint64(len(b))
		for ; len(b) > 0; b = b[24:] {
			a := le.Uint64(b)
			if a < lo || a > hi {
				continue
			}
			if _, ok := at[a]; ok && elf.R_X86_64(le.Uint32(b[8:])) == elf.R_X86_64_RELATIVE {
				at[a] = le.Uint64(b[16:])
			}
		}
	}
	for _, a := range at {
		if a != 0 {
			list = append(list, a)
		}
	}
	slices.Sort(list) // the same each time
	return list
}

// follow makes known what is reached from addresses where instructions begin, and from the branches of all known instructions: each up to where control does not go on, or
// to what is known already. Where the target lies inside a known instruction nothing is learnt: one of the two is wrong.
func (t *text) follow(roots []uint64) {
	todo := append(roots, t.plan.Unknown()...)
	branches := func(lo, hi uint64) {
		for a := t.plan.Next(lo, hi); a < hi; a = t.plan.Next(a+1, hi) {
			if !x86.MayBranch(t.code[a-t.at:]) {
				continue
			}
			if in, err := x86.Decode(t.code[a-t.at:]); err == nil {
				if target, ok := in.Target(a); ok && !t.plan.Begins(target) {
					todo = append(todo, target)
				}
			}
		}
	}
	for len(todo) > 0 {
		lo := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if lo < t.at || lo >= t.end() || t.plan.Begins(lo) || t.inside(lo) {
			continue
		}
		hi := lo
		for hi < t.end() && !t.plan.Begins(hi) {
			in, err := x86.Decode(t.code[hi-t.at:])
			if err != nil {
				break
			}
			hi += uint64(in.Len)
			if stops(&in) {
				break
			}
		}
		branches(lo, t.plan.AddFunction(lo, hi))
	}
}

// stops says whether control does not go on behind the instruction.
func stops(in *x86.Inst) bool {
	switch in.Flow {
	case x86.FlowJump, x86.FlowIndirectJump, x86.FlowRet, x86.FlowFar, x86.FlowHalt:
		return true
	case x86.FlowTrap:
		return in.Op != "int3" && in.Op != "int"
	}
	return false
}

// inside says whether an address lies inside a known instruction.
func (t *text) inside(addr uint64) bool {
	for a := addr - min(addr-t.at, x86.MaxLen-1); a < addr; a++ {
		if a+uint64(t.plan.Len(a)) > addr {
			return true
		}
	}
	return false
}
