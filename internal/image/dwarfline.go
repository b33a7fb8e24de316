package image

import (
	"path"
	"sort"
)

// lineTable is a decoded line number program.
type lineTable struct {
	d       *dwarfFile
	u       unit // for text
	compDir string
	files   []lineFile // by the number that rows and calls use
	dirs    []strRef   // 0 is the compilation directory; before DWARF 5 it is left out of the table, and empty here
	seqs    []lineSeq  // by lo
	rows    []lineRow
}

// lineFile is not read before it is asked for: a million entries may all name the same long string.
type lineFile struct {
	name strRef
	dir  uint64
}

// lineSeq is a run of rows with ascending addresses.
type lineSeq struct {
	lo, hi uint64
	first  int // rows[first:last]
	last   int
}

type lineRow struct {
	addr uint64
	file uint32
	line uint32
	col  uint32
}

const (
	maxLineRows  = 1 << 23
	maxLineFiles = 1 << 20
)

// lines decodes the line table at an offset of .debug_line. What was decoded before it turned out to be damaged is kept.
func (d *dwarfFile) lines(u *unit, off uint64, compDir string) *lineTable {
	t := &lineTable{d: d, u: *u, compDir: compDir}
	r := newReader(d.line, off)
	n, is64 := r.length()
	t.u.is64 = is64
	if r.err != nil || n > r.left() {
		return t
	}
	r.b = r.b[:r.off+n]
	d.work -= int(n)
	version := r.u16()
	if version < 2 || version > 5 {
		return t
	}
	if version >= 5 {
		if asize, seg := r.u8(), r.u8(); asize != 8 || seg != 0 {
			return t
		}
	}
	hlen := r.offset(is64)
	if r.err != nil || hlen > r.left() {
		return t
	}
	program := r.off + hlen
	p := lineProgram{t: t, minInst: uint64(r.u8()), maxOps: 1}
	if version >= 4 {
		p.maxOps = uint64(r.u8())
	}
	r.u8() // default_is_stmt
	p.lineBase, p.lineRange, p.opBase = int64(int8(r.u8())), uint64(r.u8()), r.u8()
	if p.lineRange == 0 || p.maxOps == 0 || p.opBase == 0 {
		return t
	}
	for i := uint8(1); i < p.opBase; i++ {
		p.opLens[i] = r.u8()
	}
	if version >= 5 {
		for _, f := range t.list5(&r) {
			t.dirs = append(t.dirs, f.name)
		}
		t.files = t.list5(&r)
	} else {
		t.dirs = []strRef{{}}
		for r.err == nil && len(t.dirs) < maxLineFiles {
			s := r.cstring()
			if len(s) == 0 {
				break
			}
			t.dirs = append(t.dirs, strRef{form: formString, text: s})
		}
		t.files = []lineFile{{}}
		for r.err == nil && len(t.files) < maxLineFiles {
			s := r.cstring()
			if len(s) == 0 {
				break
			}
			t.files = append(t.files, lineFile{strRef{form: formString, text: s}, r.uleb()})
			r.uleb() // time
			r.uleb() // size
		}
	}
	if r.err == nil {
		p.run(newReader(r.b, program))
	}
	sort.SliceStable(t.seqs, func(i, j int) bool { return t.seqs[i].lo < t.seqs[j].lo })
	return t
}

// Content types of DWARF 5's directory and file lists.
const (
	lnctPath = 1
	lnctDir  = 2
)

// list5 reads a list of files or directories with its own description of the columns.
func (t *lineTable) list5(r *reader) []lineFile {
	type column struct {
		content uint64
		form    uint16
	}
	cols := make([]column, r.u8())
	for i := range cols {
		cols[i].content = r.uleb()
		cols[i].form = uint16(min(r.uleb(), 0xffff))
	}
	count := r.uleb()
	// Each entry takes at least one byte, or the count is a lie.
	if r.err != nil || len(cols) == 0 || count > r.left() || count > maxLineFiles {
		if count != 0 {
			r.fail()
		}
		return nil
	}
	it := entries{d: t.d, u: &t.u, r: *r}
	out := make([]lineFile, 0, count)
	for i := uint64(0); i < count; i++ {
		var f lineFile
		for _, c := range cols {
			val, blk, ok := it.value(c.form, 0)
			if !ok {
				r.fail()
				return out
			}
			switch c.content {
			case lnctPath:
				f.name = strRef{c.form, val, blk}
			case lnctDir:
				f.dir = val
			}
		}
		out = append(out, f)
	}
	*r = it.r
	return out
}

// lineProgram runs a line number program.
type lineProgram struct {
	t               *lineTable
	minInst, maxOps uint64
	lineBase        int64
	lineRange       uint64
	opBase          uint8
	opLens          [256]uint8
	addr, op        uint64
	file, line, col uint64
	first           int
	sorted          bool
}

func (p *lineProgram) reset() {
	p.addr, p.op, p.file, p.line, p.col = 0, 0, 1, 1, 0
	p.first, p.sorted = len(p.t.rows), true
}

func (p *lineProgram) advance(n uint64) {
	if p.maxOps == 1 {
		p.addr += n * p.minInst
		return
	}
	p.addr += p.minInst * ((p.op + n) / p.maxOps)
	p.op = (p.op + n) % p.maxOps
}

func (p *lineProgram) row() bool {
	t := p.t
	if len(t.rows) >= maxLineRows {
		return false
	}
	if n := len(t.rows); n > p.first && t.rows[n-1].addr > p.addr {
		p.sorted = false
	}
	t.rows = append(t.rows, lineRow{p.addr, clamp(p.file), clamp(p.line), clamp(p.col)})
	return true
}

func clamp(v uint64) uint32 { return uint32(min(v, 1<<31-1)) }

// endSequence closes the rows since the last one. Code that the linker removed has addresses from 0 or from -1.
func (p *lineProgram) endSequence() {
	t := p.t
	rows := t.rows[p.first:]
	if !p.sorted {
		sort.SliceStable(rows, func(i, j int) bool { return rows[i].addr < rows[j].addr })
	}
	if len(rows) == 0 || rows[0].addr == 0 || p.addr <= rows[0].addr || rows[len(rows)-1].addr > p.addr {
		t.rows = t.rows[:p.first]
	} else {
		t.seqs = append(t.seqs, lineSeq{rows[0].addr, p.addr, p.first, len(t.rows)})
	}
	p.reset()
}

func (p *lineProgram) run(r reader) {
	p.reset()
	defer func() { p.t.rows = p.t.rows[:p.first] }() // an unfinished sequence has no end
	for r.err == nil && r.left() > 0 {
		op := r.u8()
		if op >= p.opBase {
			adj := uint64(op - p.opBase)
			p.advance(adj / p.lineRange)
			p.line += uint64(p.lineBase + int64(adj%p.lineRange))
			if !p.row() {
				return
			}
			continue
		}
		switch op {
		case 0: // extended
			n := r.uleb()
			b := r.bytes(n)
			if len(b) == 0 {
				continue
			}
			switch b[0] {
			case 1:
				p.endSequence()
			case 2:
				if len(b) == 9 {
					p.addr, p.op = le64(b[1:]), 0
				}
			case 3: // DW_LNE_define_file
				f := newReader(b, 1)
				if name := f.cstring(); f.err == nil && len(p.t.files) < maxLineFiles {
					p.t.files = append(p.t.files, lineFile{strRef{form: formString, text: name}, f.uleb()})
				}
			}
		case 1:
			if !p.row() {
				return
			}
		case 2:
			p.advance(r.uleb())
		case 3:
			p.line += uint64(r.sleb())
		case 4:
			p.file = r.uleb()
		case 5:
			p.col = r.uleb()
		case 6, 7, 10, 11:
		case 8:
			p.advance(uint64(255-p.opBase) / p.lineRange)
		case 9:
			p.addr += uint64(r.u16())
			p.op = 0
		case 12:
			r.uleb()
		default:
			for i := uint8(0); i < p.opLens[op]; i++ {
				r.uleb()
			}
		}
	}
}

// span returns the ranges of addresses that the table has.
func (t *lineTable) span() [][2]uint64 {
	if t == nil {
		return nil
	}
	var out [][2]uint64
	for _, s := range t.seqs {
		out = append(out, [2]uint64{s.lo, s.hi})
	}
	return out
}

// find returns the row for an address. A row of line 0 (code that the compiler made up) gives way to the nearest one before it in the
// sequence that has a line.
func (t *lineTable) find(addr uint64) (lineRow, bool) {
	if t == nil {
		return lineRow{}, false
	}
	i := sort.Search(len(t.seqs), func(i int) bool { return t.seqs[i].lo > addr })
	for j := i - 1; j >= 0 && i-j <= 16; j-- {
		s := t.seqs[j]
		if addr >= s.hi {
			continue
		}
		rows := t.rows[s.first:s.last]
		k := sort.Search(len(rows), func(k int) bool { return rows[k].addr > addr }) - 1
		for k > 0 && rows[k].line == 0 {
			k--
		}
		return rows[k], rows[k].line != 0
	}
	return lineRow{}, false
}

// file returns the path of a file number.
func (t *lineTable) file(n uint64) string {
	if t == nil || n >= uint64(len(t.files)) {
		return ""
	}
	name := t.d.text(&t.u, t.files[n].name)
	if name == "" || path.IsAbs(name) {
		return name
	}
	root := t.compDir
	if len(t.dirs) > 0 && t.dirs[0].form != 0 {
		root = t.d.text(&t.u, t.dirs[0])
	}
	dir := root
	if i := t.files[n].dir; i > 0 && i < uint64(len(t.dirs)) {
		if dir = t.d.text(&t.u, t.dirs[i]); !path.IsAbs(dir) {
			dir = path.Join(root, dir)
		}
	}
	return path.Join(dir, name)
}

// size estimates the bytes that the table takes.
func (t *lineTable) size() int {
	if t == nil {
		return 0
	}
	return 24*len(t.rows) + 32*len(t.seqs) + 48*len(t.files) + 40*len(t.dirs)
}
