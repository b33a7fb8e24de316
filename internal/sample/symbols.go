package sample

import (
	"bytes"
	"debug/elf"
)

// A Symbol is a function that a file exports, where it was mapped.
type Symbol struct {
	Name     string
	Addr     uint64
	Size     uint64
	Resolver bool // it is not the function: it returns the address of the one to be used (STT_GNU_IFUNC)
}

// Symbols gives the exported functions of those of an epoch's files whose path is wanted. Files that cannot be read have none; Image says why.
func (r *Recording) Symbols(e *Epoch, want func(path string) bool) (all []Symbol) {
	for _, m := range e.Mappings {
		if !want(m.Path) {
			continue
		}
		b, err := r.contents(m)
		if err != nil {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			continue
		}
		base, found := baseOf(f, m)
		if !found {
			continue
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			continue
		}
		for _, s := range symbols {
			const indirect = elf.STT_LOOS // STT_GNU_IFUNC
			kind := elf.ST_TYPE(s.Info)
			if at := base + s.Value; s.Section != elf.SHN_UNDEF && (kind == elf.STT_FUNC || kind == indirect) && at >= m.Start && at < m.End {
				all = append(all, Symbol{s.Name, at, s.Size, kind == indirect})
			}
		}
	}
	return all
}
