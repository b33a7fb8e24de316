package image

import (
	"debug/elf"
	"encoding/binary"
	"sort"
)

// FunctionStart is where the function begins that a link-time address lies in, as far as the table of .eh_frame_hdr tells (Linux Standard Base, 10.6.2), which programs without symbols have, too. What
// compilers take out of a function (its cold part) is one of its own there. ok is false where there is no such table, or nothing of it at or before the address in the same segment.
func (m *Image) FunctionStart(addr uint64) (start uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, false
	}
	if err := m.guard(func() error { start, ok = m.functionStart(addr); return nil }); err != nil {
		m.note("%v", err)
		return 0, false
	}
	return start, ok
}

func (m *Image) functionStart(addr uint64) (uint64, bool) {
	hdr, size, ok := m.Program(elf.PT_GNU_EH_FRAME)
	if !ok {
		return 0, false
	}
	// Version, and how the numbers behind are written: .eh_frame's place (4 bytes), how many rows, the rows, each two offsets from here. Every linker writes them so.
	const head, row = 12, 8
	b := m.at(hdr, size)
	if len(b) < head || b[0] != 1 || b[1]&0xf != 0xb || b[2] != 0x03 || b[3] != 0x3b {
		return 0, false
	}
	rows := min(uint64(binary.LittleEndian.Uint32(b[8:])), uint64(len(b)-head)/row)
	at := func(i int) uint64 {
		return hdr + uint64(int64(int32(binary.LittleEndian.Uint32(b[head+i*row:]))))
	}
	i := sort.Search(int(rows), func(i int) bool { return at(i) > addr })
	if i == 0 {
		return 0, false
	}
	start := at(i - 1)
	for _, s := range m.file.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && start >= s.Vaddr && start-s.Vaddr < s.Filesz && addr-s.Vaddr < s.Filesz {
			return start, true
		}
	}
	return 0, false
}
