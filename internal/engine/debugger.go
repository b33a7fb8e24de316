package engine

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// trampolineName is what debuggers call code in trampolines.
const trampolineName = "ripstop_trampoline"

// describe tells debuggers where trampolines may lie, if that has changed, by gdb's interface for code that is made at run time (gdb's manual, 'JIT Compilation
// Interface'). Who is not looking costs nothing.
func (p *Process) describe() error {
	if p.described || len(p.blocks) == 0 && p.descriptions[1].bytes == 0 {
		return nil
	}
	p.described = true
	blocks := p.blocks
	if len(blocks) == 0 {
		blocks = []patch.Range{{}} // all have gone
	}
	if p.rules == nil {
		p.rules = frameRules(p.Func(wire.PatchFuncRuns))
	}
	b := debugFile(p.rules, blocks)
	// A debugger that looked at the last one may still do so, before it hears of this one; at the one before it no longer.
	a := p.descriptions[0]
	if uint64(len(b)) > a.bytes {
		ops := []wire.PatchOp{op(wire.PatchDoReserve, 0, (2*uint64(len(b))+patch.PageSize-1)&^(patch.PageSize-1))}
		if a.bytes != 0 {
			ops = append(ops, op(wire.PatchDoUnmap, a.at, a.bytes))
			p.tables -= a.bytes
			p.descriptions[0] = arena{}
		}
		var bad *opError
		if err := p.do(ops...); err != nil && (!errors.As(err, &bad) || bad.op.Kind == ops[0].Kind) {
			return err // but that the old one stays
		}
		a = arena{at: ops[0].Address, bytes: ops[0].Value}
		p.reserved(a.at, a.bytes)
		p.descriptions[0] = a
		p.tables += a.bytes
	}
	if err := p.write(a.at, b); err != nil {
		return err
	}
	if err := p.do(op(wire.PatchDoDebugger, a.at, uint64(len(b)))); err != nil {
		return err
	}
	p.descriptions[0], p.descriptions[1] = p.descriptions[1], a
	return nil
}

// debugFile makes an ELF file for trampolines in blocks of memory: the rules of frameRules, and a function without lines that they all are.
func debugFile(rules []byte, blocks []patch.Range) []byte {
	le := binary.LittleEndian
	var names, body bytes.Buffer
	names.WriteByte(0)
	sections := []elf.Section64{{}}
	add := func(name string, s elf.Section64, b []byte) {
		s.Name = uint32(names.Len())
		names.WriteString(name + "\x00")
		for body.Len()%8 != 0 {
			body.WriteByte(0)
		}
		s.Addralign = 8
		if s.Off = headerSize + uint64(body.Len()); s.Type != uint32(elf.SHT_NOBITS) {
			s.Size = uint64(len(b))
			body.Write(b)
		}
		sections = append(sections, s)
	}
	progbits := elf.Section64{Type: uint32(elf.SHT_PROGBITS)}
	// Somewhere there must be a text: the first block stands for all.
	add(".text", elf.Section64{Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: blocks[0].Lo, Size: blocks[0].Hi - blocks[0].Lo}, nil)
	add(".debug_frame", progbits, debugFrame(rules, blocks))
	add(".debug_abbrev", progbits, abbreviations)
	// A unit of version 4: its abbreviations at 0, addresses of 8 bytes; the two entries and the end of the list of children.
	unit := append(le.AppendUint32(le.AppendUint16(nil, 4), 0), 8)
	unit = append(unit, 1)
	unit = append(unit, debugProducer+"\x00"...)
	unit = append(le.AppendUint32(le.AppendUint64(unit, 0), 0), 2)
	unit = append(unit, trampolineName+"\x00"...)
	unit = append(le.AppendUint32(unit, 0), 0)
	add(".debug_info", progbits, append(le.AppendUint32(nil, uint32(len(unit))), unit...))
	var ranges []byte
	for _, r := range append(blocks[:len(blocks):len(blocks)], patch.Range{}) {
		ranges = le.AppendUint64(le.AppendUint64(ranges, r.Lo), r.Hi)
	}
	add(".debug_ranges", progbits, ranges)
	shstrtab := names.String() + ".shstrtab\x00"
	add(".shstrtab", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, []byte(shstrtab))
	for body.Len()%8 != 0 {
		body.WriteByte(0)
	}
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Shoff: headerSize + uint64(body.Len()), Ehsize: headerSize,
		Shentsize: uint16(binary.Size(elf.Section64{})), Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1)}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	b, err := binary.Append(nil, le, h)
	b = append(b, body.Bytes()...)
	b, err2 := binary.Append(b, le, sections)
	if err := errors.Join(err, err2); err != nil {
		panic(fmt.Sprintf("BUG: engine: %v", err))
	}
	return b
}

const headerSize = 64 // of elf.Header64

// debugProducer has gdb believe call frame information at a ret. It looks at the stack by itself otherwise, and finds the caller of the function whose ret was displaced
// (amd64_epilogue_frame_sniffer in gdb/amd64-tdep.c).
const debugProducer = "GNU C17 12.2.0"

// abbreviations of .debug_info (DWARF 4, 7.5): a unit with producer, low_pc and ranges, and a subprogram with name and ranges.
var abbreviations = []byte{
	1, 0x11, 1, 0x25, 0x08, 0x11, 0x01, 0x55, 0x17, 0, 0,
	2, 0x2e, 0, 0x03, 0x08, 0x55, 0x17, 0, 0,
	0,
}
