package image

import (
	"debug/dwarf"
	"slices"
	"sort"
)

// parsedUnit is what lookups need of a unit.
type parsedUnit struct {
	unit  int
	funcs []funcRange // by lo
	lines *lineTable
	// scopes are the namespaces and classes around functions that have no linkage name, by the offset of their entry.
	scopes map[uint64]string
	size   int
}

// funcRange is a range of a function that has code of its own.
type funcRange struct {
	lo, hi, off uint64 // off: its entry
}

// maxFuncs bounds the functions of a unit.
const maxFuncs = 1 << 22

// parse reads a unit, or finds it among the recently read.
func (d *dwarfFile) parse(i int) *parsedUnit {
	for k, p := range d.cache {
		if p.unit == i {
			d.cache = append(slices.Delete(d.cache, k, k+1), p)
			return p
		}
	}
	if i < 0 || d.work < 0 {
		return nil
	}
	d.work -= int(d.units[i].end - d.units[i].off)
	root, ok := d.root(i)
	if !ok {
		return nil
	}
	u := &d.units[i]
	p := &parsedUnit{unit: i}
	it := d.entries(u, u.first)
	var scope []string // the prefix in force at each depth
	scopeBytes := 0
	for depth := 0; len(p.funcs) < maxFuncs; {
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
		if e.tag == dwarf.TagSubprogram && !e.has(atDeclaration) {
			for _, r := range d.entryRanges(u, e) {
				p.funcs = append(p.funcs, funcRange{r[0], r[1], e.off})
			}
		}
		outer := ""
		if depth > 0 && depth <= len(scope) {
			outer = scope[depth-1]
		}
		if e.tag == dwarf.TagSubprogram && outer != "" && e.has(atName) && !e.has(atLinkage) && scopeBytes < maxScopes {
			scopeBytes += len(outer) + 64
			if p.scopes == nil {
				p.scopes = map[uint64]string{}
			}
			p.scopes[e.off] = outer
		}
		if e.children {
			if !mayHoldCode(e.tag) && it.past(&e) {
				continue
			}
			if depth < maxDepth {
				scope = append(scope[:min(depth, len(scope))], d.scopeBelow(u, outer, e))
			}
			depth++
		} else if depth == 0 {
			break
		}
	}
	sort.SliceStable(p.funcs, func(i, j int) bool { return p.funcs[i].lo < p.funcs[j].lo })
	if root.has(atStmtList) {
		p.lines = d.lines(u, root.stmtList, d.text(u, root.compDir))
	}
	p.size = 24*len(p.funcs) + scopeBytes + p.lines.size() + 256
	d.cost += p.size
	d.cache = append(d.cache, p)
	for d.cost > maxCacheCost && len(d.cache) > 1 {
		d.cost -= d.cache[0].size
		d.cache = slices.Delete(d.cache, 0, 1)
	}
	return p
}

// maxScope and maxScopes bound the prefixes of names, and all that are kept of a unit.
const (
	maxScope  = 4096
	maxScopes = 32 << 20
)

// scopeBelow is the prefix of names declared directly below an entry.
func (d *dwarfFile) scopeBelow(u *unit, outer string, e entry) string {
	switch e.tag {
	case dwarf.TagNamespace:
		if !e.has(atName) {
			return outer + "(anonymous namespace)::"
		}
	case dwarf.TagClassType, dwarf.TagStructType, dwarf.TagUnionType:
		if !e.has(atName) {
			return outer
		}
	default:
		return ""
	}
	name := d.text(u, e.name)
	if len(outer)+len(name) > maxScope {
		return "" // better no scope than a wrong one
	}
	return outer + name + "::"
}

// mayHoldCode says that functions with code may be described below an entry. Rust has them below types.
func mayHoldCode(t dwarf.Tag) bool {
	switch t {
	case dwarf.TagEnumerationType, dwarf.TagArrayType, dwarf.TagSubroutineType:
		return false
	}
	return true
}

// call is a function at an address: the innermost first, each inlined into the next.
type call struct {
	linkage, name string
	file          string
	line, column  int
	inlined       bool
}

// calls finds the functions and lines at an address.
func (d *dwarfFile) calls(addr uint64) []call {
	d.work = maxWork
	if d.alt != nil {
		d.alt.work = maxWork
	}
	for _, i := range d.unitsFor(addr) {
		p := d.parse(i)
		if p == nil {
			continue
		}
		if out := d.callsIn(p, addr); out != nil {
			return out
		}
	}
	return nil
}

func (d *dwarfFile) callsIn(p *parsedUnit, addr uint64) []call {
	u := &d.units[p.unit]
	row, haveRow := p.lines.find(addr)
	k := sort.Search(len(p.funcs), func(k int) bool { return p.funcs[k].lo > addr })
	best, found := funcRange{}, false
	for j := k - 1; j >= 0 && k-j <= 16; j-- {
		if f := p.funcs[j]; addr < f.hi && (!found || f.hi-f.lo < best.hi-best.lo) {
			best, found = f, true
		}
	}
	if !found && !haveRow {
		return nil
	}
	var chain []entry // outermost first
	if found {
		chain = d.inlineChain(u, best.off, addr)
	}
	out := make([]call, 0, len(chain)+1)
	c := call{}
	if haveRow {
		c.file, c.line, c.column = p.lines.file(uint64(row.file)), int(row.line), int(row.col)
	}
	if len(chain) == 0 {
		return append(out, c)
	}
	for j := len(chain) - 1; j >= 0; j-- {
		e := chain[j]
		c.linkage, c.name = d.funcName(u, e)
		c.inlined = j > 0
		out = append(out, c)
		c = call{file: p.lines.file(e.callFile), line: int(clamp(e.callLine)), column: int(clamp(e.colum))}
		if e.callLine == 0 {
			c.file = ""
		}
	}
	return out
}

// inlineChain returns the function at off and the calls inlined into it at addr, each in the one before.
func (d *dwarfFile) inlineChain(u *unit, off, addr uint64) []entry {
	it := d.entries(u, off)
	f, ok := it.next()
	if !ok {
		return nil
	}
	chain := []entry{f}
	if !f.children {
		return chain
	}
	// skip says at which depth a subtree began that does not hold addr; 0: none.
	for depth, skip := 1, 0; depth > 0; {
		e, ok := it.next()
		if !ok {
			break
		}
		if e.tag == 0 {
			depth--
			if skip > depth {
				skip = 0
			}
			continue
		}
		inside := false
		if skip == 0 {
			switch e.tag {
			case dwarf.TagInlinedSubroutine:
				for _, r := range d.entryRanges(u, e) {
					inside = inside || addr >= r[0] && addr < r[1]
				}
				if inside && len(chain) < maxDepth {
					chain = append(chain, e)
				}
			case dwarf.TagSubprogram: // a nested one is found by its own range
			default: // a block, a call site, a variable
				inside = true
			}
		}
		if e.children {
			if !inside && e.has(atSibling) && e.sibling > it.r.off && e.sibling <= u.end {
				it.r.off = e.sibling
				continue
			}
			depth++
			if skip == 0 && !inside {
				skip = depth
			}
		}
	}
	return chain
}
