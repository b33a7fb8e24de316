package image

import (
	"debug/dwarf"
	"sort"
)

// Local is a variable of a function, or a parameter, that lies in its frame.
type Local struct {
	Func string // whose variable it is: the function, or one that is inlined into it; demangled
	Name string
	Variable
}

// Local finds the variable that lies offset bytes from the canonical frame address of the function at a link-time address, among those that are in scope there; for a return address the
// caller passes the address less one. Only places that are said to be relative to the frame are known, as all are whose address was taken without optimisation.
func (m *Image) Local(addr uint64, offset int64) (l Local, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return l, false
	}
	if err := m.guard(func() error { l, ok = m.local(addr, offset); return nil }); err != nil {
		m.note("%v", err)
		return Local{}, false
	}
	return l, ok
}

func (m *Image) local(addr uint64, offset int64) (l Local, ok bool) {
	d := m.dwarf()
	if d == nil {
		return l, false
	}
	d.work = maxWork
	if d.alt != nil {
		d.alt.work = maxWork
	}
	for _, i := range d.unitsFor(addr) {
		p := d.parse(i)
		if p == nil {
			continue
		}
		k := sort.Search(len(p.funcs), func(k int) bool { return p.funcs[k].lo > addr })
		for j := k - 1; j >= 0 && k-j <= 16; j-- {
			if f := p.funcs[j]; addr < f.hi {
				return d.localIn(&d.units[i], f.off, addr, offset)
			}
		}
	}
	return l, false
}

// localIn looks among the variables of the function at off whose blocks, and inlined functions, hold addr. The innermost of those at the place counts.
func (d *dwarfFile) localIn(u *unit, off, addr uint64, offset int64) (l Local, ok bool) {
	it := d.entries(u, off)
	it.types = &typeAttrs{}
	f, more := it.next()
	base, known := frameBase(it.types.frameBase)
	if !more || !f.children || !known {
		return l, false
	}
	scopes := []entry{f} // functions at each depth
	var found typeRef
	var owner entry
	var from int64
	for depth := 1; depth > 0 && depth < maxDepth && d.work > 0; {
		*it.types = typeAttrs{}
		at := it.r.off
		e, more := it.next()
		if !more {
			break
		}
		d.work -= int(it.r.off - at)
		if e.tag == 0 {
			depth--
			scopes = scopes[:max(depth, 1)]
			continue
		}
		inside := false
		scope := scopes[len(scopes)-1]
		switch e.tag {
		case dwarf.TagVariable, dwarf.TagFormalParameter:
			at, is := frameOffset(it.types.location)
			if it.types.hasList {
				at, is = frameOffset(d.fromList(u, it.types.list, addr))
			}
			if !is || at+base > offset {
				break
			}
			r := typeRef{d, e.off}
			if t, has := r.typeOf(); has && uint64(offset-at-base) < max(t.size(0), 1) {
				found, owner, from = r, scope, at+base
			}
		case dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
			for _, r := range d.entryRanges(u, e) {
				inside = inside || addr >= r[0] && addr < r[1]
			}
			if e.tag == dwarf.TagInlinedSubroutine {
				scope = e
			}
		}
		if e.children && (inside || !it.past(&e)) {
			if !inside { // nobody says how long it is
				if !d.skip(&it) {
					break
				}
				continue
			}
			depth++
			scopes = append(scopes, scope)
		}
	}
	if found.d == nil {
		return l, false
	}
	t, _ := found.typeOf()
	path, part := t.place(uint64(offset-from), 0)
	l.Variable = Variable{path, part.String()}
	l.Name = d.nameOf(found)
	linkage, name := d.funcName(u, owner)
	l.Func = named(name, linkage).Func
	return l, l.Name != ""
}

// skip reads to the end of a list of children.
func (d *dwarfFile) skip(it *entries) bool {
	for depth := 1; depth > 0; {
		at := it.r.off
		e, ok := it.next()
		if d.work -= int(it.r.off - at); !ok || d.work < 0 {
			return false
		}
		if e.tag == 0 {
			depth--
		} else if e.children && !it.past(&e) {
			depth++
		}
	}
	return true
}

// nameOf is the name of a variable, perhaps by its declaration.
func (d *dwarfFile) nameOf(t typeRef) string {
	for depth := 0; depth < maxDepth; depth++ {
		e, ok := t.read()
		switch {
		case !ok:
			return ""
		case e.has(atName):
			return e.d.text(e.u, e.name)
		case !e.has(atOrigin):
			return ""
		}
		t = typeRef{e.d, e.origin}
		if e.originAlt {
			t.d = e.d.alt
		}
	}
	return ""
}

// frameBase is where a function's frame base is, from its canonical frame address: that itself, or rbp, which holds the place of the caller's rbp below the return address in functions that say so
// (DWARF 5, 3.3.5).
func frameBase(expr []byte) (int64, bool) {
	const opReg6, opCallFrameCFA = 0x56, 0x9c
	if len(expr) != 1 {
		return 0, false
	}
	switch expr[0] {
	case opCallFrameCFA:
		return 0, true
	case opReg6:
		return -16, true
	}
	return 0, false
}

// frameOffset evaluates DW_OP_fbreg.
func frameOffset(expr []byte) (int64, bool) {
	const opFbreg = 0x91
	if len(expr) < 2 || expr[0] != opFbreg {
		return 0, false
	}
	r := newReader(expr, 1)
	n := r.sleb()
	return n, r.err == nil && r.left() == 0
}

// fromList is the expression of a location list that holds at addr (DWARF 5, 7.7.3; DWARF 4, 2.6.2).
func (d *dwarfFile) fromList(u *unit, off, addr uint64) []byte {
	base := u.low
	r := newReader(d.loclists, off)
	if u.version < 5 {
		r = newReader(d.loc, off)
	}
	start := r.off
	defer func() { d.work -= int(r.off - min(start, r.off)) }()
	for r.err == nil && d.work > 0 {
		var lo, hi uint64
		if u.version < 5 {
			lo, hi = r.u64(), r.u64()
			if lo == 0 && hi == 0 {
				return nil
			}
			if lo == ^uint64(0) {
				base = hi
				continue
			}
			lo, hi = base+lo, base+hi
			if expr := r.bytes(uint64(r.u16())); addr >= lo && addr < hi && r.err == nil {
				return expr
			}
			continue
		}
		switch r.u8() {
		case 1:
			base = d.addrAt(u, r.uleb())
			continue
		case 2:
			lo, hi = d.addrAt(u, r.uleb()), d.addrAt(u, r.uleb())
		case 3:
			lo = d.addrAt(u, r.uleb())
			hi = lo + r.uleb()
		case 4:
			lo, hi = base+r.uleb(), base+r.uleb()
		case 5:
			hi = ^uint64(0)
		case 6:
			base = r.u64()
			continue
		case 7:
			lo, hi = r.u64(), r.u64()
		case 8:
			lo = r.u64()
			hi = lo + r.uleb()
		case 9: // GNU's view pair
			r.uleb()
			r.uleb()
			continue
		default:
			return nil
		}
		if expr := r.bytes(r.uleb()); addr >= lo && addr < hi && r.err == nil {
			return expr
		}
	}
	return nil
}
