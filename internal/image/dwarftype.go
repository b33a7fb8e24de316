package image

import (
	"debug/dwarf"
	"fmt"
	"sort"
	"strings"
)

// typeAttrs are what entries of variables and types have beside what functions have; read where entries.types is set.
type typeAttrs struct {
	typ              uint64 // of the entry's type: offset in .debug_info; valid with hasType
	typAlt           bool   // in dwz's file
	size, member     uint64 // DW_AT_byte_size, DW_AT_data_member_location
	upper, count     uint64 // of an array's dimension
	bits             bool   // of a member: a bit field
	location         []byte // an expression
	list             uint64 // or of them a list: its place in .debug_loclists or .debug_loc; valid with hasList
	frameBase        []byte // of a function, likewise
	hasType, hasSize bool
	hasList          bool
	hasUpper, hasCnt bool
}

// typeAttr is entries.attr for what typeAttrs hold.
func (it *entries) typeAttr(at dwarf.Attr, form uint16, val uint64, expr []byte) {
	t := it.types
	switch at {
	case dwarf.AttrType:
		switch form {
		case formRefAddr:
			t.typ, t.typAlt = val, false
		case formGNURefAlt, formRefSup4, formRefSup8:
			t.typ, t.typAlt = val, true
		case formRef1, formRef2, formRef4, formRef8, formRefUdata:
			t.typ, t.typAlt = it.u.off+val, false
		default: // a signature of a type unit, which are not read
			return
		}
		t.hasType = true
	case dwarf.AttrByteSize:
		t.size, t.hasSize = val, true
	case dwarf.AttrDataMemberLoc:
		t.member = val
	case dwarf.AttrBitSize, dwarf.AttrDataBitOffset:
		t.bits = true
	case dwarf.AttrUpperBound:
		t.upper, t.hasUpper = val, expr == nil
	case dwarf.AttrCount:
		t.count, t.hasCnt = val, expr == nil
	case dwarf.AttrLocation:
		t.location = expr
		if form == formSecOffset || form == formData4 && it.u.version < 4 {
			t.list, t.hasList = val, true
		}
	case dwarf.AttrFrameBase:
		t.frameBase = expr
	}
}

// variable is where a variable's entry is. Thread-local ones are apart, by their offset in the file's TLS block.
type variable struct {
	addr, off uint64
	local     bool
}

// maxVariables bounds how many are kept.
const maxVariables = 1 << 20

// variables finds all that have an address, once, by reading all of .debug_info but the insides of types.
func (d *dwarfFile) variables() []variable {
	if d.varsRead {
		return d.vars
	}
	d.varsRead = true
	for i := range d.units {
		u := &d.units[i]
		if d.work -= int(u.end - u.off); d.work < 0 {
			break
		}
		if _, ok := d.root(i); !ok {
			continue
		}
		it := d.entries(u, u.first)
		it.types = &typeAttrs{}
		for depth := 0; len(d.vars) < maxVariables; {
			*it.types = typeAttrs{}
			e, ok := it.next()
			if !ok {
				break
			}
			if e.tag == 0 {
				if depth--; depth <= 0 {
					break
				}
				continue
			}
			if e.tag == dwarf.TagVariable {
				if at, local, ok := d.addressOf(u, it.types.location); ok {
					d.vars = append(d.vars, variable{at, e.off, local})
				}
			}
			if e.children {
				if mayHoldCode(e.tag) || !it.past(&e) {
					depth++
				}
			} else if depth == 0 {
				break
			}
		}
	}
	sort.SliceStable(d.vars, func(i, j int) bool { return d.vars[i].addr < d.vars[j].addr })
	return d.vars
}

// addressOf evaluates the expressions that compilers give variables in memory and thread-local ones (DWARF 5, 2.5.1, 2.6.1.1.2).
func (d *dwarfFile) addressOf(u *unit, expr []byte) (at uint64, local, ok bool) {
	const opAddr, opConst4u, opConst8u, opTLS, opAddrx, opConstx, opGNUTLS, opGNUAddr = 0x03, 0x0c, 0x0e, 0x9b, 0xa1, 0xa2, 0xe0, 0xfb
	if len(expr) < 2 {
		return 0, false, false
	}
	r := newReader(expr, 1)
	switch expr[0] {
	case opAddr, opConst8u:
		at = r.u64()
	case opConst4u:
		at = uint64(r.u32())
	case opAddrx, opConstx, opGNUAddr:
		at = d.addrAt(u, r.uleb())
	default:
		return 0, false, false
	}
	if r.err != nil {
		return 0, false, false
	}
	switch {
	case r.left() == 0:
		return at, false, expr[0] != opConst8u && expr[0] != opConst4u && expr[0] != opConstx
	case r.left() == 1 && (expr[r.off] == opTLS || expr[r.off] == opGNUTLS):
		return at, true, true
	}
	return 0, false, false
}

// typeRef is a type's entry.
type typeRef struct {
	d   *dwarfFile
	off uint64
}

// typeEntry is an entry of a type, read, and where its children begin.
type typeEntry struct {
	entry
	typeAttrs
	d *dwarfFile
	u *unit
	i int // of u
	r reader
}

// read reads the entry at t.
func (t typeRef) read() (e typeEntry, ok bool) {
	if t.d == nil {
		return e, false
	}
	e.d, e.i = t.d, t.d.unitAt(t.off)
	if e.i < 0 {
		return e, false
	}
	e.u = &t.d.units[e.i]
	if !e.u.based {
		if _, ok := t.d.root(e.i); !ok {
			return e, false
		}
	}
	it := t.d.entries(e.u, t.off)
	it.types = &e.typeAttrs
	if e.entry, ok = it.next(); !ok || e.tag == 0 {
		return e, false
	}
	e.r = it.r
	return e, true
}

// of is the entry's type.
func (e *typeEntry) of() typeRef {
	switch {
	case !e.hasType:
		return typeRef{}
	case e.typAlt:
		return typeRef{e.d.alt, e.typ}
	}
	return typeRef{e.d, e.typ}
}

// each calls fn for the entry's children until it returns false.
func (e *typeEntry) each(fn func(c typeEntry) bool) {
	if !e.children {
		return
	}
	it := entries{d: e.d, u: e.u, r: e.r, table: e.d.abbrevTable(e.u.abbrevOff)}
	for depth := 0; e.d.work > 0; {
		c := typeEntry{d: e.d, u: e.u, i: e.i}
		it.types = &c.typeAttrs
		at := it.r.off
		var ok bool
		if c.entry, ok = it.next(); !ok {
			return
		}
		e.d.work -= int(it.r.off - at)
		c.r = it.r
		switch {
		case c.tag == 0:
			if depth--; depth < 0 {
				return
			}
		case depth == 0 && !fn(c):
			return
		case c.tag != 0 && c.children:
			if !it.past(&c.entry) {
				depth++
			}
		}
	}
}

// plain follows names and qualifiers to what has a layout.
func (t typeRef) plain() (e typeEntry, ok bool) {
	for depth := 0; depth < maxDepth; depth++ {
		if e, ok = t.read(); !ok {
			return e, false
		}
		switch e.tag {
		case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagAtomicType, dwarf.TagRestrictType:
			t = e.of()
		default:
			return e, true
		}
	}
	return e, false
}

// size is how many bytes a value of the type has; 0: not known.
func (t typeRef) size(depth int) uint64 {
	e, ok := t.plain()
	switch {
	case !ok || depth > maxDepth:
		return 0
	case e.hasSize:
		return e.typeAttrs.size
	case e.tag == dwarf.TagPointerType || e.tag == dwarf.TagReferenceType || e.tag == dwarf.TagRvalueReferenceType:
		return 8
	case e.tag == dwarf.TagArrayType:
		n := e.of().size(depth + 1)
		for _, m := range e.dimensions() {
			if m != 0 && n > 1<<40/m {
				return 0
			}
			n *= m
		}
		return n
	}
	return 0
}

// dimensions are an array's; 0: not known.
func (e *typeEntry) dimensions() (list []uint64) {
	e.each(func(c typeEntry) bool {
		if c.tag == dwarf.TagSubrangeType {
			n := uint64(0)
			if c.hasCnt {
				n = c.count
			} else if c.hasUpper {
				n = c.upper + 1
			}
			list = append(list, n)
		}
		return len(list) < maxDepth
	})
	return list
}

// String is the type as a programmer writes it, more or less.
func (t typeRef) String() string { return t.words(0) }

func (t typeRef) words(depth int) string {
	e, ok := t.read()
	if !ok || depth > maxDepth {
		return "void"
	}
	name := ""
	if e.has(atName) {
		name = e.d.text(e.u, e.name)
	}
	switch e.tag {
	case dwarf.TagPointerType:
		to := e.of().words(depth + 1)
		if strings.HasSuffix(to, "*") {
			return to + "*"
		}
		return to + " *"
	case dwarf.TagReferenceType:
		return e.of().words(depth+1) + " &"
	case dwarf.TagRvalueReferenceType:
		return e.of().words(depth+1) + " &&"
	case dwarf.TagConstType:
		return "const " + e.of().words(depth+1)
	case dwarf.TagVolatileType:
		return "volatile " + e.of().words(depth+1)
	case dwarf.TagAtomicType:
		return "_Atomic " + e.of().words(depth+1)
	case dwarf.TagRestrictType:
		return e.of().words(depth + 1)
	case dwarf.TagArrayType:
		s := e.of().words(depth + 1)
		for _, n := range e.dimensions() {
			if n == 0 {
				s += "[]"
			} else {
				s += fmt.Sprintf("[%d]", n)
			}
		}
		return s
	case dwarf.TagSubroutineType:
		return e.of().words(depth+1) + " ()"
	}
	if name == "" {
		return map[dwarf.Tag]string{dwarf.TagStructType: "struct {…}", dwarf.TagClassType: "class {…}", dwarf.TagUnionType: "union {…}", dwarf.TagEnumerationType: "enum {…}"}[e.tag]
	}
	return name
}

// place follows t to the smallest part that holds the byte at offset: how it is written behind the variable's name, and its type. It ends at unions, of which nobody knows what is in them, and at
// bit fields.
func (t typeRef) place(offset uint64, depth int) (path string, typ typeRef) {
	e, ok := t.plain()
	if !ok || depth > maxDepth {
		return "", t
	}
	switch e.tag {
	case dwarf.TagStructType, dwarf.TagClassType:
		var found typeEntry
		if e.has(atDeclaration) {
			return "", t
		}
		e.each(func(c typeEntry) bool {
			if (c.tag == dwarf.TagMember || c.tag == dwarf.TagInheritance) && !c.has(atDeclaration) && !c.bits && offset >= c.member && offset-c.member < c.of().size(0) {
				found = c
			}
			return found.tag == 0
		})
		if found.tag == 0 {
			return "", t
		}
		rest, typ := found.of().place(offset-found.member, depth+1)
		if found.has(atName) && found.tag == dwarf.TagMember {
			return "." + e.d.text(e.u, found.name) + rest, typ
		}
		if rest == "" {
			return "", t
		}
		return rest, typ
	case dwarf.TagArrayType:
		size, dims := e.of().size(0), e.dimensions()
		if size == 0 || len(dims) == 0 {
			return "", t
		}
		i := offset / size
		for k := len(dims) - 1; k >= 0; k-- {
			n := i
			if k > 0 {
				if dims[k] == 0 {
					return "", t
				}
				n, i = i%dims[k], i/dims[k]
			}
			path = fmt.Sprintf("[%d]", n) + path
		}
		rest, typ := e.of().place(offset%size, depth+1)
		return path + rest, typ
	}
	return "", t
}

// Variable is what the debug information says of a place in memory.
type Variable struct {
	Path string // as a programmer writes it behind the variable's name: ".count[3]"; "": all of it
	Type string // of that part
}

// Variable finds the global variable that holds a link-time address, or (local) the thread-local one that holds an offset of the image's TLS block.
func (m *Image) Variable(addr uint64, local bool) (v Variable, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return v, false
	}
	err := m.guard(func() error {
		d := m.dwarf()
		if d == nil {
			return nil
		}
		d.work = maxWork
		vars := d.variables()
		const workOfTypes = 1 << 22
		d.work = workOfTypes
		if d.alt != nil {
			d.alt.work = workOfTypes
		}
		// An extern declaration has no address, but a variable may have entries for each of its inlined functions, and one of no type.
		for i := sort.Search(len(vars), func(i int) bool { return vars[i].addr > addr }) - 1; i >= 0; i-- {
			if vars[i].local != local {
				continue
			}
			t, found := (typeRef{d, vars[i].off}).typeOf()
			if !found {
				continue
			}
			if n := t.size(0); addr-vars[i].addr >= max(n, 1) {
				return nil
			}
			path, part := t.place(addr-vars[i].addr, 0)
			v, ok = Variable{path, part.String()}, true
			return nil
		}
		return nil
	})
	if err != nil {
		m.note("%v", err)
		return Variable{}, false
	}
	return v, ok
}

// typeOf is the type of the variable at t, perhaps by its declaration.
func (t typeRef) typeOf() (typeRef, bool) {
	for depth := 0; depth < maxDepth; depth++ {
		e, ok := t.read()
		switch {
		case !ok:
			return typeRef{}, false
		case e.hasType:
			return e.of(), true
		case !e.has(atOrigin):
			return typeRef{}, false
		}
		t = typeRef{e.d, e.origin}
		if e.originAlt {
			t.d = e.d.alt
		}
	}
	return typeRef{}, false
}
