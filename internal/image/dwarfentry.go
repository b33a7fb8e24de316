package image

import (
	"debug/dwarf"
)

// Forms (DWARF 5, 7.5.6, and GNU's).
const (
	formAddr         = 0x01
	formBlock2       = 0x03
	formBlock4       = 0x04
	formData2        = 0x05
	formData4        = 0x06
	formData8        = 0x07
	formString       = 0x08
	formBlock        = 0x09
	formBlock1       = 0x0a
	formData1        = 0x0b
	formFlag         = 0x0c
	formSdata        = 0x0d
	formStrp         = 0x0e
	formUdata        = 0x0f
	formRefAddr      = 0x10
	formRef1         = 0x11
	formRef2         = 0x12
	formRef4         = 0x13
	formRef8         = 0x14
	formRefUdata     = 0x15
	formIndirect     = 0x16
	formSecOffset    = 0x17
	formExprloc      = 0x18
	formFlagPresent  = 0x19
	formStrx         = 0x1a
	formAddrx        = 0x1b
	formRefSup4      = 0x1c
	formStrpSup      = 0x1d
	formData16       = 0x1e
	formLineStrp     = 0x1f
	formRefSig8      = 0x20
	formImplicit     = 0x21
	formLoclistx     = 0x22
	formRnglistx     = 0x23
	formRefSup8      = 0x24
	formStrx1        = 0x25
	formStrx2        = 0x26
	formStrx3        = 0x27
	formStrx4        = 0x28
	formAddrx1       = 0x29
	formAddrx2       = 0x2a
	formAddrx3       = 0x2b
	formAddrx4       = 0x2c
	formGNUAddrIndex = 0x1f01
	formGNUStrIndex  = 0x1f02
	formGNURefAlt    = 0x1f20
	formGNUStrpAlt   = 0x1f21
)

// Attributes that debug/dwarf does not name.
const (
	attrGNUDwoName  = dwarf.Attr(0x2130)
	attrMIPSLinkage = dwarf.Attr(0x2007)
)

// abbrevTable is a table of .debug_abbrev.
type abbrevTable struct {
	dense  []abbrev // code i+1, as compilers number them
	sparse map[uint64]*abbrev
}

type abbrev struct {
	tag      dwarf.Tag
	children bool
	attrs    []attrSpec
}

type attrSpec struct {
	attr     dwarf.Attr
	form     uint16
	implicit int64
}

func (t *abbrevTable) get(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// maxAbbrevTables bounds the tables that are kept: some linkers leave one per unit.
const maxAbbrevTables = 256

func (d *dwarfFile) abbrevTable(off uint64) *abbrevTable {
	if t := d.abbrevs[off]; t != nil {
		return t
	}
	t := &abbrevTable{}
	r := newReader(d.abbrev, off)
	for {
		code := r.uleb()
		if r.err != nil || code == 0 {
			break
		}
		a := abbrev{tag: dwarf.Tag(r.uleb()), children: r.u8() != 0}
		for {
			at, form := r.uleb(), r.uleb()
			var implicit int64
			if form == formImplicit {
				implicit = r.sleb()
			}
			if r.err != nil || at == 0 && form == 0 {
				break
			}
			if form > 0xffff {
				r.fail()
				break
			}
			a.attrs = append(a.attrs, attrSpec{dwarf.Attr(at), uint16(form), implicit})
		}
		if r.err != nil {
			break
		}
		if code == uint64(len(t.dense))+1 {
			t.dense = append(t.dense, a)
		} else {
			if t.sparse == nil {
				t.sparse = map[uint64]*abbrev{}
			}
			if t.get(code) == nil {
				t.sparse[code] = &a
			}
		}
	}
	d.work -= int(r.off - min(off, r.off))
	if len(d.abbrevs) >= maxAbbrevTables {
		clear(d.abbrevs)
	}
	d.abbrevs[off] = t
	return t
}

// Which attributes an entry has.
const (
	atLow = 1 << iota
	atHigh
	atRanges
	atOrigin
	atLinkage
	atName
	atDeclaration
	atStmtList
	atSibling
)

// entry is a debugging information entry: the attributes that names and lines need.
type entry struct {
	off      uint64
	tag      dwarf.Tag // 0: the end of a list of children
	children bool
	set      uint16

	low, high                 uint64
	lowIndexed, highIsSize    bool
	ranges                    uint64
	rangesForm                uint16
	name, linkage             strRef
	origin                    uint64 // abstract origin or specification: offset in .debug_info
	originAlt                 bool   // in dwz's file
	sibling                   uint64
	callFile, callLine, colum uint64
	stmtList                  uint64
	compDir, dwoName          strRef
	addrBase, strBase         uint64
	rngBase, inlineCode       uint64
	language                  uint64
}

func (e *entry) has(bit uint16) bool { return e.set&bit != 0 }

// strRef is a string that has not been read yet.
type strRef struct {
	form uint16
	val  uint64 // offset or index
	text []byte // form string
}

// entries reads the entries of a unit in sequence.
type entries struct {
	d     *dwarfFile
	u     *unit
	r     reader
	table *abbrevTable
	types *typeAttrs // if not nil, filled too
}

func (d *dwarfFile) entries(u *unit, off uint64) entries {
	return entries{d: d, u: u, r: newReader(d.info[:u.end], off), table: d.abbrevTable(u.abbrevOff)}
}

// root reads the first entry of a unit and what the others need from it.
func (d *dwarfFile) root(i int) (entry, bool) {
	u := &d.units[i]
	it := d.entries(u, u.first)
	e, ok := it.next()
	if !ok {
		return e, false
	}
	if !u.based {
		u.based = true
		u.addrBase, u.strBase, u.rngBase = e.addrBase, e.strBase, e.rngBase
		if u.rngBase == 0 && u.version >= 5 {
			u.rngBase = 12 // the first table's offsets, behind its header
		}
		if u.strBase == 0 && u.version >= 5 {
			u.strBase = 8
		}
		if u.addrBase == 0 && u.version >= 5 {
			u.addrBase = 8
		}
		// An address by index could not be looked up before addrBase was known.
		if e.lowIndexed {
			e.low = d.addrAt(u, e.low)
		}
		u.low = e.low
	} else if e.lowIndexed {
		e.low = u.low
	}
	if e.dwoName.form != 0 {
		d.split = true
	}
	return e, true
}

// next reads the entry at the reader's position; ok is false at the end of the unit or where it is damaged.
func (it *entries) next() (e entry, ok bool) {
	r := &it.r
	if r.err != nil || r.left() == 0 {
		return e, false
	}
	e.off = r.off
	code := r.uleb()
	if r.err != nil {
		return e, false
	}
	if code == 0 {
		return e, true
	}
	a := it.table.get(code)
	if a == nil {
		r.fail()
		return e, false
	}
	e.tag, e.children = a.tag, a.children
	for i := range a.attrs {
		it.attr(&e, &a.attrs[i])
	}
	if e.lowIndexed && it.u.based {
		e.low, e.lowIndexed = it.d.addrAt(it.u, e.low), false
	}
	return e, r.err == nil
}

// past moves behind the children of e, which was read last; false: where that is is not known.
func (it *entries) past(e *entry) bool {
	if !e.has(atSibling) || e.sibling <= it.r.off || e.sibling > it.u.end {
		return false
	}
	it.r.off = e.sibling
	return true
}

// attr reads one attribute into e, or over it.
func (it *entries) attr(e *entry, s *attrSpec) {
	r := &it.r
	form := s.form
	for i := 0; form == formIndirect; i++ {
		form = uint16(min(r.uleb(), 0xffff))
		if i > 4 {
			r.fail()
			return
		}
	}
	val, blk, ok := it.value(form, s.implicit)
	if !ok {
		r.fail()
		return
	}
	if it.types != nil {
		it.typeAttr(s.attr, form, val, blk)
	}
	switch s.attr {
	case dwarf.AttrLowpc:
		e.low, e.set = val, e.set|atLow
		e.lowIndexed = form != formAddr
	case dwarf.AttrHighpc:
		e.high, e.set = val, e.set|atHigh
		switch form {
		case formAddr:
		case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
			e.high = it.d.addrAt(it.u, val)
		default:
			e.highIsSize = true
		}
	case dwarf.AttrRanges:
		e.ranges, e.rangesForm, e.set = val, form, e.set|atRanges
	case dwarf.AttrName:
		e.name, e.set = strRef{form, val, blk}, e.set|atName
	case dwarf.AttrLanguage:
		e.language = val
	case dwarf.AttrLinkageName, attrMIPSLinkage:
		e.linkage, e.set = strRef{form, val, blk}, e.set|atLinkage
	case dwarf.AttrAbstractOrigin, dwarf.AttrSpecification:
		switch form {
		case formRefAddr:
			e.origin, e.originAlt = val, false
		case formGNURefAlt, formRefSup4, formRefSup8:
			e.origin, e.originAlt = val, true
		case formRef1, formRef2, formRef4, formRef8, formRefUdata:
			e.origin, e.originAlt = it.u.off+val, false
		default: // a type signature: no function has it
			return
		}
		e.set |= atOrigin
	case dwarf.AttrSibling:
		if form != formRefAddr {
			val += it.u.off
		}
		e.sibling, e.set = val, e.set|atSibling
	case dwarf.AttrDeclaration:
		if val != 0 {
			e.set |= atDeclaration
		}
	case dwarf.AttrCallFile:
		e.callFile = val
	case dwarf.AttrCallLine:
		e.callLine = val
	case dwarf.AttrCallColumn:
		e.colum = val
	case dwarf.AttrStmtList:
		e.stmtList, e.set = val, e.set|atStmtList
	case dwarf.AttrCompDir:
		e.compDir = strRef{form, val, blk}
	case dwarf.AttrDwoName, attrGNUDwoName:
		e.dwoName = strRef{form, val, blk}
	case dwarf.AttrAddrBase, 0x2133: // GNU_addr_base
		e.addrBase = val
	case dwarf.AttrStrOffsetsBase:
		e.strBase = val
	case dwarf.AttrRnglistsBase:
		e.rngBase = val
	case dwarf.AttrInline:
		e.inlineCode = val
	}
}

// value reads a value of a form: a number, or the bytes of a string.
func (it *entries) value(form uint16, implicit int64) (val uint64, blk []byte, ok bool) {
	r := &it.r
	switch form {
	case formAddr:
		val = r.u64()
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		val = uint64(r.u8())
	case formData2, formRef2, formStrx2, formAddrx2:
		val = uint64(r.u16())
	case formStrx3, formAddrx3:
		val = uint64(r.u24())
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		val = uint64(r.u32())
	case formData8, formRef8, formRefSig8, formRefSup8:
		val = r.u64()
	case formData16:
		r.bytes(16)
	case formString:
		blk = r.cstring()
	case formSdata:
		val = uint64(r.sleb())
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		val = r.uleb()
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		val = r.offset(it.u.is64)
	case formRefAddr:
		if it.u.version <= 2 {
			val = r.u64()
		} else {
			val = r.offset(it.u.is64)
		}
	case formFlagPresent:
		val = 1
	case formImplicit:
		val = uint64(implicit)
	case formBlock1:
		blk = r.bytes(uint64(r.u8()))
	case formBlock2:
		blk = r.bytes(uint64(r.u16()))
	case formBlock4:
		blk = r.bytes(uint64(r.u32()))
	case formBlock, formExprloc:
		blk = r.bytes(r.uleb())
	default:
		return 0, nil, false
	}
	return val, blk, r.err == nil
}

// maxName bounds the names that are read.
const maxName = 1 << 16

// text reads a string.
func (d *dwarfFile) text(u *unit, s strRef) string {
	sec := d.str
	off := s.val
	switch s.form {
	case formString:
		return string(s.text[:min(len(s.text), maxName)])
	case formStrp:
	case formLineStrp:
		sec = d.lineStr
	case formStrpSup, formGNUStrpAlt:
		if d.alt == nil {
			return ""
		}
		sec = d.alt.str
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		size := uint64(4)
		if u.is64 {
			size = 8
		}
		r := newReader(d.strOff, u.strBase)
		if s.val >= r.left()/size {
			return ""
		}
		r.off += s.val * size
		off = r.offset(u.is64)
	default:
		return ""
	}
	if off >= uint64(len(sec)) {
		return ""
	}
	return cString(sec[off:], maxName)
}

// funcName finds the name of a function's entry, through its abstract origin and its declaration. linkage is as in the symbol table.
func (d *dwarfFile) funcName(u *unit, e entry) (linkage, name string) {
	for depth := 0; depth < maxDepth; depth++ {
		if linkage == "" && e.has(atLinkage) {
			linkage = d.text(u, e.linkage)
		}
		if name == "" && e.has(atName) {
			name = d.text(u, e.name)
		}
		if linkage != "" {
			break
		}
		if !e.has(atOrigin) {
			// C++ without a linkage name, as gcc leaves static functions that it inlined everywhere.
			if p := d.parse(d.unitAt(e.off)); p != nil {
				name = p.scopes[e.off] + name
			}
			break
		}
		if e.originAlt {
			if d = d.alt; d == nil {
				break
			}
		}
		i := d.unitAt(e.origin)
		if i < 0 {
			break
		}
		u = &d.units[i]
		if !u.based {
			if _, ok := d.root(i); !ok {
				break
			}
		}
		it := d.entries(u, e.origin)
		var ok bool
		if e, ok = it.next(); !ok {
			break
		}
	}
	return linkage, name
}
