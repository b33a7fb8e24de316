package image

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"slices"
	"sort"
)

// dwarfFile is the debug information of one ELF file. Its slices lie in mapped files: everything runs under guard.
type dwarfFile struct {
	info, abbrev, line, str, lineStr, strOff, addr, ranges, rnglists, aranges, loc, loclists []byte

	alt      *dwarfFile // dwz's common file
	units    []unit     // by offset
	index    []unitRange
	indexed  bool
	abbrevs  map[uint64]*abbrevTable
	cache    []*parsedUnit // most recently used last
	cost     int           // bytes in cache
	split    bool          // some units are in .dwo files
	vars     []variable    // by address
	varsRead bool
	work     int // what the current lookup may still do, in bytes read or so
}

// unitRange is a range of addresses that a unit describes.
type unitRange struct {
	lo, hi uint64
	unit   int
}

// unit is a unit of .debug_info.
type unit struct {
	off, first, end uint64 // of its header, its first entry, and what follows it, in .debug_info
	abbrevOff       uint64
	version         uint16
	typ             uint8 // DW_UT_…, 0 before DWARF 5
	addrSize        uint8
	is64            bool
	based           bool // the fields below are set
	addrBase        uint64
	strBase         uint64
	rngBase         uint64
	low             uint64 // base address of range lists
	asked, names    bool   // namesAtomics was asked; its answer
}

// Unit types of DWARF 5.
const (
	utCompile  = 1
	utPartial  = 3
	utSkeleton = 4
)

const (
	maxUnits     = 1 << 22
	maxCacheCost = 96 << 20 // bytes of parsed units that are kept
	maxDepth     = 64       // nesting and chains of references that are followed
	maxWork      = 1 << 29  // for one lookup: entries that refer to the same long lists again and again must not take hours
)

var errDwarf = errors.New("damaged debug information")

// reader reads little-endian values; after the first failure everything reads as zero and err is set.
type reader struct {
	b   []byte
	off uint64
	err error
}

func newReader(b []byte, off uint64) reader {
	r := reader{b: b, off: off}
	if off > uint64(len(b)) {
		r.fail()
	}
	return r
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errDwarf
	}
	r.off = uint64(len(r.b))
}

func (r *reader) left() uint64 { return uint64(len(r.b)) - r.off }

func (r *reader) bytes(n uint64) []byte {
	if r.err != nil || n > r.left() {
		r.fail()
		return nil
	}
	b := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return b
}

func (r *reader) u8() uint8 {
	if r.err == nil && r.off < uint64(len(r.b)) {
		r.off++
		return r.b[r.off-1]
	}
	r.fail()
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.bytes(2); b != nil {
		return le16(b)
	}
	return 0
}

func (r *reader) u24() uint32 {
	if b := r.bytes(3); b != nil {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return le32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return le64(b)
	}
	return 0
}

// offset reads 4 or 8 bytes.
func (r *reader) offset(is64 bool) uint64 {
	if is64 {
		return r.u64()
	}
	return uint64(r.u32())
}

// length reads a unit's length.
func (r *reader) length() (n uint64, is64 bool) {
	n = uint64(r.u32())
	if n == 0xffffffff {
		return r.u64(), true
	}
	if n >= 0xfffffff0 {
		r.fail()
	}
	return n, false
}

func (r *reader) uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := r.u8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			return v
		}
	}
}

func (r *reader) sleb() int64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := r.u8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			if shift+7 < 64 && b&0x40 != 0 {
				v |= ^uint64(0) << (shift + 7)
			}
			return int64(v)
		}
	}
}

// cstring skips a NUL-terminated string and returns its bytes.
func (r *reader) cstring() []byte {
	for i := r.off; r.err == nil && i < uint64(len(r.b)); i++ {
		if r.b[i] == 0 {
			b := r.b[r.off:i:i]
			r.off = i + 1
			return b
		}
	}
	r.fail()
	return nil
}

// dwarf opens the debug information of the image or of its debug file; nil if there is none.
func (m *Image) dwarf() *dwarfFile {
	if m.dwTried {
		return m.dw
	}
	m.dwTried = true
	m.findDebugFiles()
	for _, x := range []*Image{m, m.dbg} {
		if x == nil {
			continue
		}
		if d := x.loadDwarf(m); d != nil {
			m.dw = d
			break
		}
	}
	if m.dw != nil && m.alt != nil {
		m.dw.alt = m.alt.loadDwarf(m)
	}
	return m.dw
}

// loadDwarf finds the sections and the units. Notes go to report.
func (m *Image) loadDwarf(report *Image) *dwarfFile {
	d := &dwarfFile{abbrevs: map[uint64]*abbrevTable{}}
	for _, s := range []struct {
		name string
		dst  *[]byte
	}{
		{"info", &d.info}, {"abbrev", &d.abbrev}, {"line", &d.line}, {"str", &d.str}, {"line_str", &d.lineStr}, {"addr", &d.addr},
		{"str_offsets", &d.strOff}, {"ranges", &d.ranges}, {"rnglists", &d.rnglists}, {"aranges", &d.aranges},
		{"loc", &d.loc}, {"loclists", &d.loclists},
	} {
		sec := m.section(".debug_" + s.name)
		if sec == nil {
			if m.section(".zdebug_"+s.name) != nil {
				report.note("%s: debug sections in the old .zdebug form are not read", m.path)
			}
			continue
		}
		b, err := m.sectionData(sec)
		if err != nil {
			report.note("%v", err)
			continue
		}
		*s.dst = b
	}
	if len(d.info) == 0 {
		return nil
	}
	if skipped := d.findUnits(); skipped > 0 {
		report.note("%s: %d units of .debug_info are damaged or of a version that is not known", m.path, skipped)
	}
	if len(d.units) == 0 {
		return nil
	}
	return d
}

// findUnits reads the unit headers.
func (d *dwarfFile) findUnits() (skipped int) {
	r := newReader(d.info, 0)
	for r.left() > 0 && len(d.units) < maxUnits {
		u := unit{off: r.off}
		n, is64 := r.length()
		if r.err != nil || n > r.left() {
			return skipped + 1
		}
		start := r.off
		u.end, u.is64 = start+n, is64
		h := newReader(d.info[:u.end], start)
		u.version = h.u16()
		if u.version >= 5 {
			u.typ, u.addrSize = h.u8(), h.u8()
			u.abbrevOff = h.offset(is64)
			switch u.typ {
			case utSkeleton, 5: // unit id
				h.u64()
			case 2, 6: // type signature and offset
				h.u64()
				h.offset(is64)
			}
		} else {
			u.abbrevOff, u.addrSize = h.offset(is64), h.u8()
		}
		u.first = h.off
		if h.err == nil && u.version >= 2 && u.version <= 5 && u.addrSize == 8 {
			d.units = append(d.units, u)
		} else if n > 0 {
			skipped++
		}
		r.off = u.end
	}
	return skipped
}

// unitAt returns the index of the unit that holds an offset of .debug_info, or -1.
func (d *dwarfFile) unitAt(off uint64) int {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].end > off })
	if i < len(d.units) && off >= d.units[i].first {
		return i
	}
	return -1
}

// buildIndex finds which unit describes which addresses: by .debug_aranges, and for units that it lacks (clang writes none) by the
// units' own first entry. The units' contents are not looked at.
func (d *dwarfFile) buildIndex() {
	if d.indexed {
		return
	}
	d.indexed = true
	seen := make([]bool, len(d.units))
	d.readAranges(seen)
	for i := range d.units {
		if seen[i] {
			continue
		}
		if d.work < 0 || len(d.index) > maxIndex {
			break
		}
		if t := d.units[i].typ; t != 0 && t != utCompile && t != utSkeleton {
			continue
		}
		e, ok := d.root(i)
		if !ok || e.tag != dwarf.TagCompileUnit && e.tag != dwarf.TagSkeletonUnit {
			continue
		}
		ranges := d.entryRanges(&d.units[i], e)
		if len(ranges) == 0 && !e.has(atLow) {
			// No range at all: as assemblers of old leave it. The line table tells.
			if p := d.parse(i); p != nil {
				ranges = p.lines.span()
			}
		}
		for _, r := range ranges {
			d.index = append(d.index, unitRange{r[0], r[1], i})
		}
	}
	d.index = slices.DeleteFunc(d.index, func(r unitRange) bool { return r.lo == 0 || r.hi <= r.lo })
	sort.SliceStable(d.index, func(i, j int) bool { return d.index[i].lo < d.index[j].lo })
}

// readAranges reads .debug_aranges and marks the units that it has.
func (d *dwarfFile) readAranges(seen []bool) {
	r := newReader(d.aranges, 0)
	for r.left() > 0 {
		at := r.off
		n, is64 := r.length()
		if r.err != nil || n > r.left() {
			return
		}
		end := r.off + n
		s := newReader(d.aranges[:end], r.off)
		r.off = end
		version := s.u16()
		cu := s.offset(is64)
		if asize, ssize := s.u8(), s.u8(); s.err != nil || version != 2 || asize != 8 || ssize != 0 {
			continue
		}
		i := sort.Search(len(d.units), func(i int) bool { return d.units[i].off >= cu })
		if i == len(d.units) || d.units[i].off != cu {
			continue
		}
		s.off += (16 - (s.off-at)%16) % 16
		some := false
		for s.err == nil && s.left() >= 16 {
			lo, size := s.u64(), s.u64()
			if lo == 0 && size == 0 {
				break
			}
			if lo != 0 && size != 0 && lo+size > lo {
				d.index = append(d.index, unitRange{lo, lo + size, i})
			}
			some = true
		}
		if some {
			seen[i] = true
		}
	}
}

// unitsFor returns the units that may describe an address: usually one.
func (d *dwarfFile) unitsFor(addr uint64) []int {
	d.buildIndex()
	var out []int
	i := sort.Search(len(d.index), func(i int) bool { return d.index[i].lo > addr })
	for j := i - 1; j >= 0 && i-j <= 32 && len(out) < 4; j-- {
		if r := d.index[j]; addr < r.hi && !slices.Contains(out, r.unit) {
			out = append(out, r.unit)
		}
	}
	return out
}

// entryRanges returns the address ranges of an entry.
func (d *dwarfFile) entryRanges(u *unit, e entry) [][2]uint64 {
	if e.has(atRanges) {
		if u.version >= 5 {
			off := e.ranges
			if e.rangesForm == formRnglistx {
				r := newReader(d.rnglists, u.rngBase)
				size := uint64(4)
				if u.is64 {
					size = 8
				}
				if off > r.left()/size {
					return nil
				}
				r.off += off * size
				off = u.rngBase + r.offset(u.is64)
				if r.err != nil {
					return nil
				}
			}
			return d.rnglist(u, off)
		}
		return d.rangeList(u, e.ranges)
	}
	if !e.has(atLow) || !e.has(atHigh) {
		return nil
	}
	lo, hi := e.low, e.high
	if e.highIsSize {
		hi += lo
	}
	if lo >= hi || lo == 0 {
		return nil // linkers set what they removed to 0
	}
	return [][2]uint64{{lo, hi}}
}

// maxRanges bounds the ranges of one entry.
const maxRanges = 1 << 20

// maxIndex bounds the ranges of all units.
const maxIndex = 1 << 23

// rangeList reads .debug_ranges (DWARF 2 to 4).
func (d *dwarfFile) rangeList(u *unit, off uint64) (out [][2]uint64) {
	r, base := newReader(d.ranges, off), u.low
	defer func() { d.work -= 16 * len(out) }()
	if d.work < 0 {
		return nil
	}
	for r.err == nil && len(out) < maxRanges {
		lo, hi := r.u64(), r.u64()
		switch {
		case r.err != nil || lo == 0 && hi == 0:
			return out
		case lo == ^uint64(0):
			base = hi
		default:
			out = appendRange(out, base+lo, base+hi)
		}
	}
	return out
}

// rnglist reads .debug_rnglists (DWARF 5).
func (d *dwarfFile) rnglist(u *unit, off uint64) (out [][2]uint64) {
	r, base := newReader(d.rnglists, off), u.low
	defer func() { d.work -= 16 * len(out) }()
	if d.work < 0 {
		return nil
	}
	for r.err == nil && len(out) < maxRanges {
		switch r.u8() {
		case 0:
			return out
		case 1:
			base = d.addrAt(u, r.uleb())
		case 2:
			lo, hi := r.uleb(), r.uleb()
			out = appendRange(out, d.addrAt(u, lo), d.addrAt(u, hi))
		case 3:
			lo := d.addrAt(u, r.uleb())
			out = appendRange(out, lo, lo+r.uleb())
		case 4:
			lo, hi := r.uleb(), r.uleb()
			out = appendRange(out, base+lo, base+hi)
		case 5:
			base = r.u64()
		case 6:
			lo, hi := r.u64(), r.u64()
			out = appendRange(out, lo, hi)
		case 7:
			lo := r.u64()
			out = appendRange(out, lo, lo+r.uleb())
		default:
			return out
		}
	}
	return out
}

func appendRange(out [][2]uint64, lo, hi uint64) [][2]uint64 {
	if lo == 0 || hi <= lo {
		return out
	}
	return append(out, [2]uint64{lo, hi})
}

// addrAt reads entry i of the unit's part of .debug_addr.
func (d *dwarfFile) addrAt(u *unit, i uint64) uint64 {
	if u.addrBase > uint64(len(d.addr)) || i >= (uint64(len(d.addr))-u.addrBase)/8 {
		return 0
	}
	return binary.LittleEndian.Uint64(d.addr[u.addrBase+8*i:])
}
