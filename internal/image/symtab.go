package image

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sort"
	"strings"
)

// symKind is what a symbol may name.
type symKind uint8

const (
	symFunc symKind = iota
	symData
	symPLT // a stub in the procedure linkage table; its name lacks the "@plt"
	symLocal
	symLabel // NOTYPE without a size: assembly; named only where nothing better is
)

// symbol is kept small: a large program has a million.
type symbol struct {
	addr, size uint64
	name       uint32 // offset in the string table
	tab        uint8  // which string table
	kind       symKind
	rank       uint8 // of symbols at one address the one with the lowest rank names it
}

// symbols are the functions and the objects of an image, each sorted by address.
type symbols struct {
	code, data []symbol
	local      []symbol // thread-local variables; their addresses are offsets in the file's TLS block
	strs       [][]byte // into mapped files: valid under guard only
}

// maxSymbols bounds one symbol table.
const maxSymbols = 1 << 24

// Symbol is a name for an address.
type Symbol struct {
	Name       string // as in the symbol table; "foo@plt" for a stub
	Addr, Size uint64
	Data       bool // an object, not a function
}

// Symbol finds the function or object that contains a link-time address. A function without a size reaches up to the next symbol.
func (m *Image) Symbol(addr uint64) (Symbol, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out Symbol
	var ok bool
	if m.closed {
		return out, false
	}
	if err := m.guard(func() error { out, ok = m.symbol(addr); return nil }); err != nil {
		m.note("%v", err)
		return Symbol{}, false
	}
	return out, ok
}

func (m *Image) symbol(addr uint64) (Symbol, bool) {
	t := m.symbols()
	if s, ok := t.find(t.code, addr); ok && s.size != 0 {
		return t.export(s), true
	}
	if s, ok := t.find(t.data, addr); ok {
		return t.export(s), true
	}
	if s, ok := t.find(t.code, addr); ok && m.sameSection(s.addr, addr) {
		return t.export(s), true
	}
	return Symbol{}, false
}

// ThreadLocal finds the thread-local variable that lies so many bytes below the thread pointer of a thread whose executable the image is, and the offset in it. The executable's block is the first
// below the pointer (glibc, elf/dl-tls.c, _dl_determine_tlsoffset; psABI, variant II).
func (m *Image) ThreadLocal(below uint64) (sym Symbol, offset uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return sym, 0, false
	}
	for _, p := range m.file.Progs {
		if p.Type != elf.PT_TLS || p.Memsz > 1<<40 {
			continue
		}
		align := max(p.Align, 1)
		if align&(align-1) != 0 || align > 1<<30 {
			return sym, 0, false
		}
		first := -p.Vaddr & (align - 1)
		block := (p.Memsz-first+align-1)&^(align-1) + first
		if below == 0 || below > block || p.Memsz < first {
			return sym, 0, false
		}
		err := m.guard(func() error {
			t := m.symbols()
			if s, found := t.find(t.local, block-below); found {
				sym, offset, ok = t.export(s), block-below-s.addr, true
			}
			return nil
		})
		if err != nil {
			m.note("%v", err)
			return Symbol{}, 0, false
		}
	}
	return sym, offset, ok
}

func (t *symbols) export(s symbol) Symbol {
	n := t.name(s)
	if s.kind == symPLT {
		n += "@plt"
	}
	return Symbol{Name: n, Addr: s.addr, Size: s.size, Data: s.kind == symData}
}

func (t *symbols) name(s symbol) string {
	b := t.strs[s.tab]
	if uint64(s.name) >= uint64(len(b)) {
		return ""
	}
	return cString(b[s.name:], 1<<16)
}

// find returns the symbol that contains addr: the nearest one below that reaches it, or one without a size if that is the nearest.
func (t *symbols) find(tab []symbol, addr uint64) (symbol, bool) {
	i := sort.Search(len(tab), func(i int) bool { return tab[i].addr > addr })
	var open symbol
	var haveOpen bool
	for j := i - 1; j >= 0 && i-j <= 64; j-- {
		s := tab[j]
		if s.size == 0 {
			if !haveOpen && j == i-1 {
				open, haveOpen = s, true
			}
			continue
		}
		if addr-s.addr < s.size {
			return s, true
		}
	}
	return open, haveOpen
}

// sameSection tells whether two addresses lie in one section, or in one segment of a file without sections.
func (m *Image) sameSection(a, b uint64) bool {
	for _, s := range m.file.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && a >= s.Addr && a-s.Addr < s.Size {
			return b >= s.Addr && b-s.Addr < s.Size
		}
	}
	for _, p := range m.file.Progs {
		if p.Type == elf.PT_LOAD && a >= p.Vaddr && a-p.Vaddr < p.Memsz {
			return b >= p.Vaddr && b-p.Vaddr < p.Memsz
		}
	}
	return false
}

// symbols reads the tables of the file, its debug file and its mini debug information, once.
func (m *Image) symbols() *symbols {
	if m.syms != nil {
		return m.syms
	}
	m.findDebugFiles()
	t := &symbols{}
	full := false
	for _, x := range []*Image{m, m.dbg} {
		if x == nil {
			continue
		}
		err := x.guard(func() error {
			full = x.addSection(t, ".symtab") || full
			return nil
		})
		if err != nil {
			m.note("%v", err)
		}
	}
	if !full && m.mini != nil {
		full = m.mini.addSection(t, ".symtab")
	}
	if !m.addSection(t, ".dynsym") {
		m.addDynamic(t)
	}
	m.addPLT(t)
	t.sort()
	m.syms = t
	return t
}

// addSection adds a symbol table section with its string table. It says whether there was one.
func (m *Image) addSection(t *symbols, name string) bool {
	s := m.section(name)
	if s == nil || uint64(s.Link) >= uint64(len(m.file.Sections)) {
		return false
	}
	d, err := m.sectionData(s)
	if err != nil || d == nil {
		if err != nil {
			m.note("%v", err)
		}
		return false
	}
	str, err := m.sectionData(m.file.Sections[s.Link])
	if err != nil {
		m.note("%v", err)
		return false
	}
	t.add(m, d, str)
	return true
}

// add reads Elf64_Sym entries.
func (t *symbols) add(m *Image, d, str []byte) {
	if len(t.strs) > 200 {
		return
	}
	tab := uint8(len(t.strs))
	t.strs = append(t.strs, str)
	n := min(len(d)/24, maxSymbols)
	t.code = slices.Grow(t.code, n/2) // most are of code
	for i := 1; i < n; i++ {
		e := d[i*24 : i*24+24]
		typ, bind, shndx := elf.ST_TYPE(e[4]), elf.ST_BIND(e[4]), elf.SectionIndex(le16(e[6:]))
		s := symbol{addr: le64(e[8:]), size: le64(e[16:]), name: le32(e), tab: tab}
		if shndx == elf.SHN_UNDEF || shndx == elf.SHN_ABS || uint64(s.name) >= uint64(len(str)) || str[s.name] == 0 {
			continue
		}
		if s.size > 1<<40 {
			s.size = 0
		}
		code := m.executable(shndx, s.addr)
		switch typ {
		case elf.STT_FUNC, elf.STT_GNU_IFUNC:
			s.kind = symFunc
		case elf.STT_OBJECT, elf.STT_COMMON:
			s.kind = symData
		case elf.STT_NOTYPE:
			switch {
			case code:
				s.kind = symLabel
			case s.size != 0:
				s.kind = symData
			default:
				continue
			}
		case elf.STT_TLS:
			s.kind = symLocal
		default: // sections, files
			continue
		}
		if (s.kind == symData || s.kind == symLocal) && s.size == 0 {
			continue
		}
		name := cString(str[s.name:], 256)
		s.rank = symRank(s.kind, bind, name)
		if s.kind == symLabel && (strings.HasPrefix(name, ".L") || strings.HasPrefix(name, "$")) {
			continue
		}
		switch s.kind {
		case symData:
			t.data = append(t.data, s)
		case symLocal:
			t.local = append(t.local, s)
		default:
			t.code = append(t.code, s)
		}
	}
}

// symRank orders the names of one address: what a programmer would have written comes first.
func symRank(k symKind, bind elf.SymBind, name string) uint8 {
	var r uint8
	if k == symLabel {
		r |= 0x80
	}
	if bind == elf.STB_LOCAL {
		r |= 0x40
	}
	under := 0
	for under < len(name) && under < 3 && name[under] == '_' {
		under++
	}
	if strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") {
		under = 0
	}
	r |= uint8(under) << 4
	return r | uint8(min(len(name)/8, 15))
}

// executable tells whether a symbol lies in code.
func (m *Image) executable(idx elf.SectionIndex, addr uint64) bool {
	if int(idx) < len(m.file.Sections) && idx < elf.SHN_LORESERVE {
		return m.file.Sections[idx].Flags&elf.SHF_EXECINSTR != 0
	}
	for _, p := range m.file.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Memsz {
			return p.Flags&elf.PF_X != 0
		}
	}
	return false
}

// sort orders the symbols and leaves one per address and size.
func (t *symbols) sort() {
	for _, tab := range []*[]symbol{&t.code, &t.data, &t.local} {
		s := *tab
		sort.Slice(s, func(i, j int) bool {
			a, b := &s[i], &s[j]
			if a.addr != b.addr {
				return a.addr < b.addr
			}
			// find goes from the end to the front: what should be found first must come last.
			if (a.size == 0) != (b.size == 0) {
				return a.size == 0
			}
			if a.rank != b.rank {
				return a.rank > b.rank
			}
			if a.size != b.size {
				return a.size > b.size
			}
			if a.tab != b.tab {
				return a.tab > b.tab
			}
			return a.name > b.name
		})
		out := s[:0]
		for i := range s {
			if i+1 < len(s) && s[i+1].addr == s[i].addr && s[i+1].size >= s[i].size {
				continue
			}
			out = append(out, s[i])
		}
		*tab = append([]symbol(nil), out...)
	}
}

// Defines says whether the file has a dynamic symbol of that name for others to use.
func (m *Image) Defines(name string) bool {
	found := false
	_ = m.guard(func() error { // a file without them defines none
		all, err := m.file.DynamicSymbols()
		found = slices.ContainsFunc(all, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF })
		return err
	})
	return found
}

// Wants says whether the file has a dynamic symbol of that name which others are to define.
func (m *Image) Wants(name string) bool {
	found := false
	_ = m.guard(func() error {
		all, err := m.file.DynamicSymbols()
		found = slices.ContainsFunc(all, func(s elf.Symbol) bool { return s.Name == name && s.Section == elf.SHN_UNDEF })
		return err
	})
	return found
}

// addDynamic reads the dynamic symbols of a file without section headers.
func (m *Image) addDynamic(t *symbols) {
	d := m.dynamic()
	symtab, strtab := d[elf.DT_SYMTAB], d[elf.DT_STRTAB]
	if symtab == 0 || strtab == 0 {
		return
	}
	n := m.dynamicCount(d)
	t.add(m, m.at(symtab, n*24), m.at(strtab, d[elf.DT_STRSZ]))
}

// dynamic reads the dynamic section: the first value of each tag.
func (m *Image) dynamic() map[elf.DynTag]uint64 {
	out := map[elf.DynTag]uint64{}
	for _, p := range m.file.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		b := m.at(p.Vaddr, min(p.Filesz, 1<<16))
		for ; len(b) >= 16; b = b[16:] {
			tag := elf.DynTag(int64(le64(b)))
			if tag == elf.DT_NULL {
				break
			}
			if _, ok := out[tag]; !ok {
				out[tag] = le64(b[8:])
			}
		}
	}
	return out
}

// Relocates says whether the dynamic linker changes code of the file (DT_TEXTREL).
func (m *Image) Relocates() bool {
	yes := false
	_ = m.guard(func() error { // a file without a dynamic section has none
		d := m.dynamic()
		_, old := d[elf.DT_TEXTREL]
		yes = old || d[elf.DT_FLAGS]&uint64(elf.DF_TEXTREL) != 0
		return nil
	})
	return yes
}

// dynamicCount finds the number of dynamic symbols, which only the hash tables tell.
func (m *Image) dynamicCount(d map[elf.DynTag]uint64) uint64 {
	if h := d[elf.DT_HASH]; h != 0 {
		if b := m.at(h, 8); len(b) == 8 {
			return min(uint64(le32(b[4:])), maxSymbols)
		}
	}
	h := d[elf.DT_GNU_HASH]
	b := m.at(h, 16)
	if h == 0 || len(b) < 16 {
		return 0
	}
	nbuckets, symoffset, bloom := uint64(le32(b)), uint64(le32(b[4:])), uint64(le32(b[8:]))
	buckets := m.at(h+16+bloom*8, nbuckets*4)
	var last uint64
	for i := 0; i+4 <= len(buckets); i += 4 {
		last = max(last, uint64(le32(buckets[i:])))
	}
	if last < symoffset {
		return min(symoffset, maxSymbols)
	}
	chain := m.at(h+16+bloom*8+nbuckets*4+(last-symoffset)*4, maxSymbols)
	for len(chain) >= 4 {
		last++
		if le32(chain)&1 != 0 {
			break
		}
		chain = chain[4:]
	}
	return min(last, maxSymbols)
}

// addPLT names the stubs of the procedure linkage table, of whatever kind the linker made: each jumps through a slot (jmp *x(%rip)),
// and a relocation says which symbol the slot is for.
func (m *Image) addPLT(t *symbols) {
	dyn, rel := m.section(".dynsym"), map[uint64]uint32{}
	if dyn == nil || uint64(dyn.Link) >= uint64(len(m.file.Sections)) {
		return
	}
	syms, err1 := m.sectionData(dyn)
	str, err2 := m.sectionData(m.file.Sections[dyn.Link])
	if err1 != nil || err2 != nil {
		return
	}
	for _, name := range []string{".rela.plt", ".rela.dyn"} {
		s := m.section(name)
		if s == nil {
			continue
		}
		d, err := m.sectionData(s)
		if err != nil {
			continue
		}
		for ; len(d) >= 24 && len(rel) < maxSymbols; d = d[24:] {
			info := le64(d[8:])
			if typ := elf.R_X86_64(uint32(info)); typ == elf.R_X86_64_JMP_SLOT || typ == elf.R_X86_64_GLOB_DAT {
				rel[le64(d)] = uint32(info >> 32)
			}
		}
	}
	if len(rel) == 0 {
		return
	}
	tab := uint8(len(t.strs))
	t.strs = append(t.strs, str)
	for _, name := range []string{".plt", ".plt.sec", ".plt.got", ".plt.bnd"} {
		s := m.section(name)
		if s == nil {
			continue
		}
		d, err := m.sectionData(s)
		if err != nil {
			continue
		}
		step := 16
		if name == ".plt.got" && s.Entsize == 8 {
			step = 8
		}
		for off := 0; off+step <= len(d); off += step {
			for i := off; i+6 <= off+step; i++ {
				if d[i] != 0xff || d[i+1] != 0x25 {
					continue
				}
				slot := s.Addr + uint64(i) + 6 + uint64(int64(int32(le32(d[i+2:]))))
				sym, ok := rel[slot]
				if !ok || uint64(sym)*24+24 > uint64(len(syms)) {
					continue
				}
				n := le32(syms[uint64(sym)*24:])
				if uint64(n) >= uint64(len(str)) || str[n] == 0 {
					continue
				}
				t.code = append(t.code, symbol{addr: s.Addr + uint64(off), size: uint64(step), name: n, tab: tab, kind: symPLT})
				break
			}
		}
	}
}

// cString is the text up to a NUL, at most limit bytes. The bytes are copied.
func cString(b []byte, limit int) string {
	for i, c := range b {
		if i >= limit {
			break
		}
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b[:min(len(b), limit)])
}

// Tables writes all that Functions and readers of .eh_frame read of the file and of its debug file: where it is the same, so is what they give. It is far less work than to read it. False: it cannot be told,
// since there are no section headers or a section cannot be read.
func (m *Image) Tables(w io.Writer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	err := m.guard(func() error {
		m.findDebugFiles()
		err := m.writeTables(w)
		for _, x := range []*Image{m.dbg, m.mini} {
			if err == nil && x != nil {
				err = x.guard(func() error { return x.writeTables(w) })
			}
		}
		return err
	})
	return err == nil
}

var errNoSections = errors.New("no section headers")

func (m *Image) writeTables(w io.Writer) error {
	if len(m.file.Sections) == 0 {
		return errNoSections
	}
	var head []byte
	for _, p := range m.file.Progs {
		for _, v := range [...]uint64{uint64(p.Type), uint64(p.Flags), p.Off, p.Vaddr, p.Filesz, p.Memsz} {
			head = binary.LittleEndian.AppendUint64(head, v)
		}
	}
	for _, s := range m.file.Sections {
		for _, v := range [...]uint64{uint64(s.Type), uint64(s.Flags), s.Addr, s.Offset, s.FileSize, s.Entsize, uint64(s.Link), uint64(len(s.Name))} {
			head = binary.LittleEndian.AppendUint64(head, v)
		}
		head = append(head, s.Name...)
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, s := range m.file.Sections {
		switch {
		case s.Type == elf.SHT_SYMTAB, s.Type == elf.SHT_DYNSYM, s.Type == elf.SHT_STRTAB, s.Type == elf.SHT_RELA, s.Type == elf.SHT_DYNAMIC:
		case strings.HasPrefix(s.Name, ".eh_frame"), strings.HasPrefix(s.Name, ".plt"):
		default:
			continue
		}
		d, err := m.sectionData(s)
		if err == nil {
			_, err = w.Write(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Functions lists the functions of the symbol tables that have a size, in order of address: their first bytes and the bytes behind them, link-time addresses. Several may
// begin at one address, and some may overlap.
func (m *Image) Functions() (list [][2]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	err := m.guard(func() error {
		for _, s := range m.symbols().code {
			if s.kind == symFunc && s.size != 0 && s.addr+s.size > s.addr {
				list = append(list, [2]uint64{s.addr, s.addr + s.size})
			}
		}
		return nil
	})
	if err != nil {
		m.note("%v", err)
	}
	return list
}
