package image

import (
	"bytes"
	"debug/dwarf"
	"slices"
	"sort"
	"strings"
)

// An AtomicStore is code of such a function. Inlined: all that lies there is inlined into a function that is none, whose own variables may be the atomics.
type AtomicStore struct {
	Lo, Hi  uint64
	Inlined bool
}

// AtomicStores gives the link-time addresses of code that debug information says to be a store to an atomic of C++'s or Rust's, inlined or not: sorted, apart from each other.
// There is no such thing for C, whose atomics are operators. Nil: none, or no debug information.
func (m *Image) AtomicStores() (list []AtomicStore) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	if err := m.guard(func() error { list = m.atomicStores(); return nil }); err != nil {
		m.note("%v", err)
		return nil
	}
	return list
}

func (m *Image) atomicStores() []AtomicStore {
	d := m.dwarf()
	if d == nil || !d.mentionsAtomics() {
		return nil
	}
	var list []AtomicStore
	known := map[uint64]bool{} // by the offset of a function's entry
	d.work = maxWork
	if d.alt != nil {
		d.alt.work = maxWork
	}
	for i := range d.units {
		list = d.atomicsIn(i, known, list)
		if len(list) > maxIndex || d.work < 0 {
			m.note("%s: it has more stores to atomics than are looked for", m.path)
			break
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Lo < list[j].Lo })
	n := 0
	for _, r := range list {
		if n > 0 && r.Lo < list[n-1].Hi {
			last := &list[n-1]
			last.Hi, last.Inlined = max(last.Hi, r.Hi), last.Inlined && r.Inlined
			continue
		}
		list[n] = r
		n++
	}
	return slices.Clip(list[:n])
}

// FoldsAtomics reports whether the module's compiler may have made one instruction of a load of an atomic, an addition and a store (`add [x], 1`, without lock): LLVM does, for orders that need no fence; gcc does not.
// Where it does not say which compiler that was, as in Debian's packages, it may.
func (m *Image) FoldsAtomics() bool {
	b, _, ok := m.Section(".comment")
	if !ok {
		return true
	}
	gcc := false
	for _, by := range strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 }) {
		switch {
		case strings.HasPrefix(by, "GCC:"):
			gcc = true
		case strings.HasPrefix(by, "Linker:"), strings.HasPrefix(by, "mold "):
		default:
			return true
		}
	}
	return !gcc
}

// NamesAtomics reports whether debug information tells of the code at a link-time address what of it is a store to an atomic: AtomicStores has it then, or it is none.
func (m *Image) NamesAtomics(addr uint64) (names bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if err := m.guard(func() error {
		d := m.dwarf()
		if d == nil {
			return nil
		}
		d.work = maxWork
		for _, i := range d.unitsFor(addr) {
			if names = d.namesAtomics(i); names {
				break
			}
		}
		return nil
	}); err != nil {
		m.note("%v", err)
		return false
	}
	return names
}

// namesAtomics: the unit is C++'s or Rust's, whose atomics are functions, and has functions' names (with line tables alone it has not).
func (d *dwarfFile) namesAtomics(i int) bool {
	u := &d.units[i]
	if !u.asked {
		u.asked = true
		if e, ok := d.root(i); ok {
			switch e.language {
			case 0x04, 0x19, 0x1a, 0x1c, 0x21, 0x2b, 0x2c: // C++ of various years, Rust
				u.names = d.abbrevTable(u.abbrevOff).namesFunctions()
			}
		}
	}
	return u.names
}

func (t *abbrevTable) namesFunctions() bool {
	names := func(a *abbrev) bool {
		return a.tag == dwarf.TagSubprogram && slices.ContainsFunc(a.attrs, func(s attrSpec) bool { return s.attr == dwarf.AttrLinkageName || s.attr == attrMIPSLinkage })
	}
	for i := range t.dense {
		if names(&t.dense[i]) {
			return true
		}
	}
	for _, a := range t.sparse {
		if names(a) {
			return true
		}
	}
	return false
}

// mentionsAtomics says whether any string of the debug information is part of such a function's name: else no entry is read.
func (d *dwarfFile) mentionsAtomics() bool {
	for f := d; f != nil; f = f.alt {
		for _, part := range []string{rustStore, "13__atomic_base", "St6atomicI", "11atomic_flag", "18__cxx_atomic_store"} {
			if bytes.Contains(f.str, []byte(part)) || f == d && bytes.Contains(f.info, []byte(part)) {
				return true
			}
		}
	}
	return false
}

// atomicsIn adds those of a unit.
func (d *dwarfFile) atomicsIn(i int, known map[uint64]bool, list []AtomicStore) []AtomicStore {
	if _, ok := d.root(i); !ok {
		return list
	}
	u := &d.units[i]
	it := d.entries(u, u.first)
	for depth := 0; ; {
		e, ok := it.next()
		if !ok {
			return list
		}
		switch {
		case e.tag == 0:
			if depth--; depth <= 0 {
				return list
			}
			continue
		case d.work < 0 || len(list) > maxIndex:
			return list
		case (e.tag == dwarf.TagInlinedSubroutine || e.tag == dwarf.TagSubprogram && !e.has(atDeclaration)) && (e.has(atLow) || e.has(atRanges)):
			at := e.off
			if e.has(atOrigin) && !e.originAlt {
				at = e.origin
			}
			is, found := known[at]
			if !found {
				is = isAtomicStore(d.linkage(u, e))
				known[at] = is
			}
			if is {
				for _, r := range d.entryRanges(u, e) {
					list = append(list, AtomicStore{Lo: r[0], Hi: r[1], Inlined: e.tag == dwarf.TagInlinedSubroutine})
				}
			}
		}
		if e.children {
			if !mayHoldCode(e.tag) && it.past(&e) {
				continue
			}
			depth++
		} else if depth == 0 {
			return list
		}
	}
}

// linkage is a function's linkage name, through its abstract origin and its declaration; "" if it has none.
func (d *dwarfFile) linkage(u *unit, e entry) string {
	for range maxDepth {
		if e.has(atLinkage) {
			return d.text(u, e.linkage)
		}
		if !e.has(atOrigin) {
			return ""
		}
		if e.originAlt {
			if d = d.alt; d == nil {
				return ""
			}
		}
		i := d.unitAt(e.origin)
		if i < 0 {
			return ""
		}
		if _, ok := d.root(i); !ok {
			return ""
		}
		u = &d.units[i]
		it := d.entries(u, e.origin)
		var ok bool
		if e, ok = it.next(); !ok {
			return ""
		}
	}
	return ""
}

// rustAtomics and rustStore are in the name of core::sync::atomic::atomic_store, in either mangling.
const (
	rustAtomics = "4core4sync6atomic"
	rustStore   = "12atomic_store"
)

// cppAtomics are how mangled names of members of libstdc++'s and libc++'s atomics begin, behind _ZN and the qualifiers of the member. libc++'s namespace is std::__1.
var cppAtomics = []string{
	"St13__atomic_baseI", "St6atomicI", "St11atomic_flag", "St12__atomic_refI", "St10atomic_refI", "St14__atomic_floatI", "St16__atomic_flag_base",
	"St3__113__atomic_baseI", "St3__16atomicI", "St3__111atomic_flag", "St3__110atomic_refI", "St3__117__atomic_ref_base",
}

// isAtomicStore says of a linkage name whether the function is a store to an atomic, and writes no other memory but its own frame.
func isAtomicStore(name string) bool {
	if strings.Contains(name, rustAtomics) {
		return strings.Contains(name, rustStore)
	}
	rest, ok := strings.CutPrefix(name, "_ZN")
	if !ok || strings.HasPrefix(rest, "St3__118__cxx_atomic_store") {
		return ok
	}
	rest = strings.TrimLeft(rest, "rVK")
	for _, class := range cppAtomics {
		member, ok := strings.CutPrefix(rest, class)
		if !ok {
			continue
		}
		if strings.HasSuffix(class, "I") {
			if member, ok = pastArguments(member); !ok {
				return false
			}
		}
		return strings.HasPrefix(member, "5store") || strings.HasPrefix(member, "aS") || strings.HasPrefix(member, "5clear")
	}
	return false
}

// pastArguments skips template arguments up to the E that ends them, by the grammar's nesting: I, N, X, L, J and F open what E closes, and a number is a name's length.
func pastArguments(s string) (string, bool) {
	for i, depth := 0, 1; i < len(s); {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			n := 0
			for ; i < len(s) && s[i] >= '0' && s[i] <= '9' && n < len(s); i++ {
				n = 10*n + int(s[i]-'0')
			}
			i += n
		case c == 'S': // a substitution: St, Sa, …, S_, S0_
			i++
			if i < len(s) && (s[i] == '_' || s[i] >= '0' && s[i] <= '9' || s[i] >= 'A' && s[i] <= 'Z') {
				for i < len(s) && s[i] != '_' {
					i++
				}
			}
			i++
		case c == 'I' || c == 'N' || c == 'X' || c == 'L' || c == 'J' || c == 'F':
			depth++
			i++
		case c == 'E':
			i++
			if depth--; depth == 0 {
				return s[i:], true
			}
		default:
			i++
		}
	}
	return "", false
}
