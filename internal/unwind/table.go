package unwind

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/ripstop/ripstop/internal/wire"
)

// Table is a decoded unwind table. Addresses are link-time.
type Table struct {
	Base  uint64
	Rules []wire.UnwindRule
	Rows  []wire.UnwindRow
}

// pageIndex is what stands behind the rows: for each page of the code, and one more, how many rows begin below it. Nothing where that
// would be larger than the rows: code is not that sparse, but an image may say so.
func pageIndex(rows []wire.UnwindRow) []uint32 {
	if len(rows) == 0 {
		return nil
	}
	n := uint64(rows[len(rows)-1].PC)>>pageBits + 2
	if n > uint64(2*len(rows)+2) {
		return nil
	}
	pages := make([]uint32, n)
	below := 0
	for i := range pages {
		for below < len(rows) && uint64(rows[below].PC) < uint64(i)<<pageBits {
			below++
		}
		pages[i] = uint32(below)
	}
	return pages
}

const pageBits = 12

func appendHeader(b []byte, h wire.UnwindHeader) []byte {
	le := binary.LittleEndian
	n := len(b)
	b = le.AppendUint64(b, h.Magic)
	b = le.AppendUint32(b, h.Version)
	b = le.AppendUint32(b, h.Rules)
	b = le.AppendUint32(b, h.Rows)
	b = le.AppendUint32(b, h.Pages)
	b = le.AppendUint64(b, h.Base)
	b = le.AppendUint64(b, h.RowsOffset)
	return append(b, make([]byte, wire.SizeUnwindHeader-(len(b)-n))...)
}

// Decode reads a table and checks all that lookups rely on.
func Decode(b []byte) (*Table, error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("unwind table: %s", fmt.Sprintf(format, a...))
	}
	le := binary.LittleEndian
	if len(b) < wire.SizeUnwindHeader {
		return nil, bad("%d bytes are too few for its header", len(b))
	}
	if m, v := le.Uint64(b), le.Uint32(b[8:]); m != wire.Magic || v != wire.Version {
		return nil, bad("magic %#x, version %d; expected %#x, version %d", m, v, wire.Magic, wire.Version)
	}
	nrules, nrows, npages := uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:])), uint64(le.Uint32(b[20:]))
	base, rowsOff := le.Uint64(b[24:]), le.Uint64(b[32:])
	if nrules == 0 {
		return nil, bad("it lacks rule 0")
	}
	if want := wire.SizeUnwindHeader + nrules*wire.SizeUnwindRule; rowsOff != want || rowsOff+nrows*wire.SizeUnwindRow+4*npages != uint64(len(b)) {
		return nil, bad("%d rules, %d rows at offset %d and %d pages do not make %d bytes", nrules, nrows, rowsOff, npages, len(b))
	}
	t := &Table{Base: base, Rules: make([]wire.UnwindRule, nrules), Rows: make([]wire.UnwindRow, nrows)}
	for i := range nrules {
		p := b[wire.SizeUnwindHeader+i*wire.SizeUnwindRule:]
		r := wire.UnwindRule{CFA: p[0], RBP: p[1], Reg: p[2], RBX: p[3], CFAOff: int32(le.Uint32(p[4:])),
			RBPOff: int32(le.Uint32(p[8:])), RBXOff: int32(le.Uint32(p[12:]))}
		if r.CFA > uint8(wire.CFAUndef) || r.RBP > uint8(wire.RBPRuleUndef) || r.RBX > rbxLost ||
			wire.CFA(r.CFA) == wire.CFAReg && r.Reg > 15 || i == 0 && r != none {
			return nil, bad("rule %d is %+v", i, r)
		}
		t.Rules[i] = r
	}
	var last uint32
	for i := range nrows {
		p := b[rowsOff+i*wire.SizeUnwindRow:]
		row := wire.UnwindRow{PC: le.Uint32(p), Rule: le.Uint32(p[4:])}
		if uint64(row.Rule&^wire.RowStart) >= nrules || i > 0 && row.PC <= last {
			return nil, bad("row %d is %+v", i, row)
		}
		last = row.PC
		t.Rows[i] = row
	}
	pages := pageIndex(t.Rows)
	if uint64(len(pages)) != npages {
		return nil, bad("%d pages, where the rows are on %d", npages, len(pages))
	}
	for i, n := range pages {
		if is := le.Uint32(b[rowsOff+nrows*wire.SizeUnwindRow+4*uint64(i):]); is != n {
			return nil, bad("%d rows are said to be below page %d, where it is %d", is, i, n)
		}
	}
	return t, nil
}

// Lookup returns the rule that holds at a link-time address.
func (t *Table) Lookup(addr uint64) wire.UnwindRule {
	i := t.row(addr)
	if i < 0 {
		return none
	}
	return t.Rules[t.Rows[i].Rule&^wire.RowStart]
}

// row is the index of the row that holds at a link-time address; -1: none does.
func (t *Table) row(addr uint64) int {
	off := addr - t.Base
	if addr < t.Base || off > math.MaxUint32 {
		return -1
	}
	return sort.Search(len(t.Rows), func(i int) bool { return uint64(t.Rows[i].PC) > off }) - 1
}

// Start is the link-time address at which the entry of .eh_frame begins that addr lies in, or the last one before it; 0 if there is none.
func (t *Table) Start(addr uint64) uint64 {
	for i := t.row(addr); i >= 0; i-- {
		if t.Rows[i].Rule&wire.RowStart != 0 {
			return t.Base + uint64(t.Rows[i].PC)
		}
	}
	return 0
}
