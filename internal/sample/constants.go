package sample

import (
	"bytes"
	"debug/elf"
)

// A Constant is memory that a file maps read-only and without code, beside its code: constants and tables of jumps.
type Constant struct {
	CodeStart, CodeEnd uint64 // of the mapping of the file's code
	Addr               uint64
	Bytes              []byte
}

// Constants gives the read-only memory of an epoch's files, as their program headers state it. It is there as long as the code is mapped. What is made
// read-only only after relocation is not among it, nor anything of a file with relocations in what is read-only.
func (r *Recording) Constants(e *Epoch) (all []Constant) {
	for _, m := range e.Mappings {
		b, err := r.contents(m)
		if err != nil {
			continue // Image says why
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			continue
		}
		if t, err := f.DynValue(elf.DT_TEXTREL); err != nil || len(t) > 0 {
			continue
		}
		all = append(all, constantsOf(f, b, m)...)
	}
	return all
}

// baseOf gives what is added to a file's addresses where its code is mapped so.
func baseOf(f *elf.File, m Mapping) (base uint64, found bool) {
	const page = 4096
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Off&^(page-1) == m.Offset && m.End-m.Start == (p.Off-m.Offset+p.Filesz+page-1)&^(page-1) {
			base, found = m.Start-p.Vaddr&^(page-1), true
		}
	}
	return base, found
}

func constantsOf(f *elf.File, b []byte, m Mapping) (all []Constant) {
	base, found := baseOf(f, m)
	if !found {
		return nil
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 && p.Filesz > 0 && p.Off < uint64(len(b)) && p.Filesz <= uint64(len(b))-p.Off {
			all = append(all, Constant{m.Start, m.End, base + p.Vaddr, b[p.Off : p.Off+p.Filesz]})
		}
	}
	return all
}
