package engine

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// Relocations are read in pieces, and only those that lie among the arrays' pointers are looked up: what is found is what all of them, looked up at once, say of the arrays.
func TestRootsOfRelocations(t *testing.T) {
	le := binary.LittleEndian
	pieces := false
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/bin/python3", "/usr/sbin/mariadbd", "/bin/true"} {
		img, err := image.Open(path)
		if err != nil {
			t.Log(err)
			continue
		}
		defer img.Close()
		addr, size, _ := img.Program(elf.PT_DYNAMIC)
		dyn := map[elf.DynTag]uint64{}
		for b := img.Bytes(addr, size); len(b) >= 16; b = b[16:] {
			dyn[elf.DynTag(le.Uint64(b))] = le.Uint64(b[8:])
		}
		said := map[uint64]uint64{}
		for b := img.Bytes(dyn[elf.DT_RELA], dyn[elf.DT_RELASZ]); len(b) >= 24; b = b[24:] {
			if elf.R_X86_64(le.Uint32(b[8:])) == elf.R_X86_64_RELATIVE {
				said[le.Uint64(b)] = le.Uint64(b[16:])
			}
		}
		pieces = pieces || dyn[elf.DT_RELASZ] > 2*relaPiece
		var want []uint64
		for _, a := range []uint64{img.Entry(), dyn[elf.DT_INIT], dyn[elf.DT_FINI]} {
			if a != 0 {
				want = append(want, a)
			}
		}
		for _, tags := range [][2]elf.DynTag{{elf.DT_PREINIT_ARRAY, elf.DT_PREINIT_ARRAYSZ}, {elf.DT_INIT_ARRAY, elf.DT_INIT_ARRAYSZ}, {elf.DT_FINI_ARRAY, elf.DT_FINI_ARRAYSZ}} {
			for i := uint64(0); i < dyn[tags[1]]; i += 8 {
				a, ok := said[dyn[tags[0]]+i]
				if !ok {
					a = le.Uint64(img.Bytes(dyn[tags[0]]+i, 8))
				}
				if a != 0 {
					want = append(want, a)
				}
			}
		}
		slices.Sort(want)
		if got := roots(img); !slices.Equal(got, want) {
			t.Errorf("%s: %x, not %x", path, got, want)
		}
	}
	if !pieces {
		t.Error("no file with relocations of more than one piece")
	}
}
