package engine

import (
	"debug/elf"
	"encoding/binary"

	"github.com/ripstop/ripstop/internal/image"
)

// restartable gives the link-time ranges [start, post-commit) of an image's restartable sequences and where they abort to (struct rseq_cs in linux/rseq.h,
// collected in the section __rseq_cs by convention). The kernel aborts a thread that it preempts between these addresses and nowhere else; the abort's address
// must have a signature before it. So nothing there may move.
func restartable(img *image.Image) (list [][2]uint64) {
	const size = 32 // version, flags; start, length, abort
	le := binary.LittleEndian
	b, at, ok := img.Section("__rseq_cs")
	if !ok {
		return nil
	}
	moved := map[uint64]uint64{} // what the loader puts there
	if dyn, size, ok := img.Program(elf.PT_DYNAMIC); ok {
		var rela, bytes uint64
		for d := img.Bytes(dyn, min(size, 16*maxEntries)); len(d) >= 16 && le.Uint64(d) != 0; d = d[16:] {
			switch elf.DynTag(le.Uint64(d)) {
			case elf.DT_RELA:
				rela = le.Uint64(d[8:])
			case elf.DT_RELASZ:
				bytes = le.Uint64(d[8:])
			}
		}
		for r := img.Bytes(rela, min(bytes, 24*maxEntries)); len(r) >= 24; r = r[24:] {
			if to := le.Uint64(r); to-at < uint64(len(b)) && elf.R_X86_64(le.Uint32(r[8:])) == elf.R_X86_64_RELATIVE {
				moved[to] = le.Uint64(r[16:])
			}
		}
	}
	for i := 0; i+size <= len(b); i += size {
		word := func(off int) uint64 {
			if v, ok := moved[at+uint64(i+off)]; ok {
				return v
			}
			return le.Uint64(b[i+off:])
		}
		start, length := word(8), le.Uint64(b[i+16:])
		if length < 1<<20 { // else it is no such thing
			list = append(list, [2]uint64{start, start + length})
		}
	}
	return list
}
