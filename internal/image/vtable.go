package image

import (
	"debug/elf"
	"slices"
	"sort"
	"strings"
)

// A Pointer is a value that the dynamic linker leaves in a module, or that its code makes: a link-time address, or (Symbol) so many bytes behind a symbol that another module defines.
type Pointer struct {
	Addr   uint64
	Symbol string
}

// Vtables tells addresses that objects of C++ have as their vptr, by the form that the Itanium ABI (2.5.2) gives to tables of virtual functions: behind the distance to the object's top and a std::type_info, whose own vptr
// is one of libstdc++'s. It needs no symbols. Without RTTI (-fno-rtti) a table cannot be told from others, and only its symbol is known, if there is one.
type Vtables struct {
	m        *Image
	moved    []moved // by address
	copied   []copied
	packed   bool // DT_RELR: pointers are also what lies there
	relro    [2]uint64
	segments []Segment
}

type moved struct {
	at, value uint64
	symbol    string
}

type copied struct {
	at, size uint64
	symbol   string
}

const (
	tableOf  = "_ZTV"
	typeOf   = "_ZTI"
	abiTable = "_ZTVN10__cxxabiv1" // of the classes of type_info
	relr     = elf.DynTag(36)      // DT_RELR
	// mostTop is the largest distance to an object's top that is believed.
	mostTop = 1 << 30
)

// Vtables reads what tells vtables. It takes long where there are many relocations: once an image.
func (m *Image) Vtables() *Vtables {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.vtables == nil {
		v := &Vtables{m: m}
		if !m.closed {
			_ = m.guard(func() error { // what cannot be read has none
				v.read()
				return nil
			})
		}
		m.vtables = v
	}
	return m.vtables
}

func (v *Vtables) read() {
	m := v.m
	d := m.dynamic()
	for _, p := range m.file.Progs {
		if p.Type == elf.PT_GNU_RELRO {
			v.relro = [2]uint64{p.Vaddr, p.Vaddr + p.Memsz}
		}
	}
	v.segments = m.Segments()
	v.packed = d[relr] != 0
	str := m.at(d[elf.DT_STRTAB], d[elf.DT_STRSZ])
	for b := m.at(d[elf.DT_RELA], d[elf.DT_RELASZ]); len(b) >= 24; b = b[24:] {
		at, info, addend := le64(b), le64(b[8:]), le64(b[16:])
		typ := elf.R_X86_64(uint32(info))
		if typ == elf.R_X86_64_RELATIVE {
			v.moved = append(v.moved, moved{at: at, value: addend})
			continue
		}
		if typ != elf.R_X86_64_64 && typ != elf.R_X86_64_GLOB_DAT && typ != elf.R_X86_64_COPY {
			continue
		}
		sym := m.at(d[elf.DT_SYMTAB]+info>>32*24, 24)
		if len(sym) < 24 || uint64(le32(sym)) >= uint64(len(str)) {
			continue
		}
		name := str[le32(sym):]
		if len(name) < 4 || name[0] != '_' || name[1] != 'Z' || name[2] != 'T' || name[3] != 'V' && name[3] != 'I' {
			continue // of no vtable and no type_info
		}
		symbol, section, value := cString(name, 1<<16), le16(sym[6:]), le64(sym[8:])
		switch {
		case typ == elf.R_X86_64_COPY:
			v.copied = append(v.copied, copied{at, le64(sym[16:]), symbol})
		case section == uint16(elf.SHN_UNDEF) || strings.HasPrefix(symbol, abiTable):
			v.moved = append(v.moved, moved{at, addend, symbol})
		default:
			v.moved = append(v.moved, moved{at: at, value: value + addend})
		}
	}
	slices.SortFunc(v.moved, func(a, b moved) int { return int(min(max(int64(a.at-b.at), -1), 1)) })
}

// word gives what the dynamic linker leaves at an address; pointer: it is one to something in a module.
func (v *Vtables) word(at uint64) (p Pointer, pointer, ok bool) {
	if n := sort.Search(len(v.moved), func(i int) bool { return v.moved[i].at >= at }); n < len(v.moved) && v.moved[n].at == at {
		return Pointer{v.moved[n].value, v.moved[n].symbol}, true, true
	}
	b := v.m.Bytes(at, 8)
	if len(b) < 8 {
		return Pointer{}, false, false
	}
	return Pointer{Addr: le64(b)}, v.packed || v.m.file.Type == elf.ET_EXEC, true
}

// Load gives the pointer at an address of the module where nothing changes it any more.
func (v *Vtables) Load(at uint64) (Pointer, bool) {
	constant := at-v.relro[0] < v.relro[1]-v.relro[0]
	for _, s := range v.segments {
		constant = constant || s.Flags&elf.PF_W == 0 && at-s.Addr < s.FileSize
	}
	if at%8 != 0 || !constant {
		return Pointer{}, false
	}
	p, pointer, ok := v.word(at)
	return p, ok && pointer
}

// Is says whether it is what an object may have for its vptr.
func (v *Vtables) Is(p Pointer) bool {
	const least = 16 // the distance and the type come before it
	switch {
	case p.Symbol != "":
		return strings.HasPrefix(p.Symbol, tableOf) && p.Addr >= least
	case p.Addr%8 != 0 || p.Addr < least:
		return false
	}
	for _, c := range v.copied {
		if p.Addr-c.at < c.size {
			return strings.HasPrefix(c.symbol, tableOf) && p.Addr-c.at >= least
		}
	}
	if !v.isTop(p.Addr - 16) {
		return false
	}
	typ, pointer, ok := v.word(p.Addr - 8)
	if ok && pointer && (typ.Symbol != "" || typ.Addr != 0) {
		return v.isType(typ)
	}
	// Without RTTI.
	if typ != (Pointer{}) || !v.isCode(p.Addr) {
		return false
	}
	s, ok := v.m.Symbol(p.Addr)
	return ok && strings.HasPrefix(s.Name, tableOf) && p.Addr-s.Addr >= least
}

// isCode says whether a pointer to code of the module lies there.
func (v *Vtables) isCode(at uint64) bool {
	p, pointer, ok := v.word(at)
	return ok && pointer && p.Symbol == "" && slices.ContainsFunc(v.segments, func(s Segment) bool { return s.Flags&elf.PF_X != 0 && p.Addr-s.Addr < s.Size })
}

// isTop says whether a distance to an object's top lies there: no pointer, as the second word of a type_info is.
func (v *Vtables) isTop(at uint64) bool {
	top, pointer, ok := v.word(at)
	if !ok || top.Symbol != "" || top.Addr%8 != 0 || top.Addr+mostTop > 2*mostTop {
		return false
	}
	for _, s := range v.segments {
		if pointer && top.Addr != 0 && top.Addr-s.Addr < s.Size {
			return false
		}
	}
	return true
}

// isType says whether a type_info lies there.
func (v *Vtables) isType(p Pointer) bool {
	if p.Symbol != "" {
		return strings.HasPrefix(p.Symbol, typeOf) && p.Addr == 0
	}
	for _, c := range v.copied {
		if p.Addr == c.at {
			return strings.HasPrefix(c.symbol, typeOf)
		}
	}
	of, ok := v.vptr(p.Addr)
	if !ok || v.isABI(of) {
		return ok
	}
	if of.Symbol != "" {
		return false
	}
	// libstdc++ is in the module: the type of the class of its type is __si_class_type_info, which is its own class's.
	for range 2 {
		typ, pointer, ok := v.word(of.Addr - 8)
		if !ok || !pointer || typ.Symbol != "" {
			return false
		}
		next, ok := v.vptr(typ.Addr)
		if !ok || next.Symbol != "" {
			return false
		}
		if next == of {
			return true
		}
		of = next
	}
	return false
}

func (v *Vtables) vptr(object uint64) (Pointer, bool) {
	p, pointer, ok := v.word(object)
	return p, ok && pointer && object%8 == 0 && (p.Symbol != "" || p.Addr%8 == 0 && p.Addr >= 16)
}

func (v *Vtables) isABI(p Pointer) bool {
	if p.Symbol != "" {
		return strings.HasPrefix(p.Symbol, abiTable)
	}
	for _, c := range v.copied {
		if p.Addr-c.at < c.size {
			return strings.HasPrefix(c.symbol, abiTable)
		}
	}
	return false
}
