package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/wire"
)

// Stats says what a table holds and lacks.
type Stats struct {
	FDEs        int // entries used
	BadFDEs     int // entries that cannot be read or describe code that the image does not have
	States      int // rows that the entries describe, before equal neighbours are merged
	Inexpress   int // of these, rows that the table's rules cannot express: the walk stops there
	LostRBP     int // of these, rows whose rbp the rules cannot express: the walk stops where it is needed
	Rows, Rules int // in the table
}

// maxFrameBytes bounds the section; the largest programs have 30 MB.
const maxFrameBytes = 512 << 20

// span is a row before it is laid out: rule holds for [from, to).
type span struct {
	from, to uint64
	rule     uint32
	start    bool // an entry begins here
}

// Compile makes the unwind table of an image, from its .eh_frame section or, when the section headers are stripped, from its
// PT_GNU_EH_FRAME segment. An image without frames gives a table without rows. Single bad entries are left out and counted.
func Compile(img *image.Image) ([]byte, Stats, error) {
	e, err := frames(img)
	if err != nil {
		return nil, Stats{}, err
	}
	var st Stats
	b := builder{index: map[wire.UnwindRule]uint32{}}
	b.rule(none)
	if e != nil {
		code := executable(img)
		bad, err := e.each(func(d *fde) {
			if !code.holds(d.begin, d.end) {
				st.BadFDEs++
				return
			}
			st.FDEs++
			b.add(d, &st)
		})
		st.BadFDEs += bad
		if err != nil && st.FDEs == 0 {
			return nil, st, fmt.Errorf("%s: %w", img.Path(), err)
		}
	}
	out := b.layout(&st)
	return out, st, nil
}

// frames finds the frame information. Nil without error: there is none.
func frames(img *image.Image) (*ehFrame, error) {
	hdr, _, haveHdr := img.Program(elf.PT_GNU_EH_FRAME)
	if data, addr, ok := img.Section(".eh_frame"); ok {
		if len(data) > maxFrameBytes {
			return nil, fmt.Errorf("%s: .eh_frame has %d bytes; more than %d are not read", img.Path(), len(data), maxFrameBytes)
		}
		return &ehFrame{data: data, addr: addr, dataRel: hdr}, nil
	}
	if !haveHdr {
		return nil, nil
	}
	h := img.Bytes(hdr, 64)
	if len(h) < 4 {
		return nil, nil
	}
	if h[0] != 1 {
		return nil, fmt.Errorf("%s: .eh_frame_hdr has version %d, not 1", img.Path(), h[0])
	}
	c := cursor{b: h[4:], addr: hdr + 4}
	addr, ok := c.pointer(h[1], hdr)
	if !ok {
		return nil, fmt.Errorf("%s: .eh_frame_hdr does not say where .eh_frame is", img.Path())
	}
	data := img.Bytes(addr, maxFrameBytes)
	if data == nil {
		return nil, fmt.Errorf("%s: .eh_frame_hdr says that .eh_frame is at %#x, where nothing is", img.Path(), addr)
	}
	return &ehFrame{data: data, addr: addr, dataRel: hdr, openEnd: true}, nil
}

// codeRanges are the executable segments.
type codeRanges [][2]uint64

func executable(img *image.Image) codeRanges {
	var out codeRanges
	for _, s := range img.Segments() {
		if s.Flags&elf.PF_X != 0 && s.Addr+s.Size >= s.Addr {
			out = append(out, [2]uint64{s.Addr, s.Addr + s.Size})
		}
	}
	return out
}

func (c codeRanges) holds(lo, hi uint64) bool {
	for _, r := range c {
		if lo >= r[0] && hi <= r[1] {
			return true
		}
	}
	return false
}

// builder collects rows.
type builder struct {
	rules []wire.UnwindRule
	index map[wire.UnwindRule]uint32
	spans []span
}

func (b *builder) rule(r wire.UnwindRule) uint32 {
	if i, ok := b.index[r]; ok {
		return i
	}
	i := uint32(len(b.rules))
	b.rules, b.index[r] = append(b.rules, r), i
	return i
}

func (b *builder) add(d *fde, st *Stats) {
	start := true
	reached, err := d.run(func(from, to uint64, s *state) {
		r, ok := s.rule(d.cie.signal)
		st.States++
		if !ok {
			st.Inexpress++
		} else if wire.RBPRule(r.RBP) == wire.RBPRuleUndef && wire.CFA(r.CFA) != wire.CFAUndef {
			st.LostRBP++
		}
		i := b.rule(r)
		if n := len(b.spans); !start && n > 0 && b.spans[n-1].to == from && b.spans[n-1].rule == i {
			b.spans[n-1].to = to
			return
		}
		b.spans = append(b.spans, span{from, to, i, start})
		start = false
	})
	if err != nil && reached < d.end {
		st.States++
		st.Inexpress++
		b.spans = append(b.spans, span{reached, d.end, 0, start})
	}
}

// layout sorts the rows, cuts what overlaps, fills the gaps with rule 0, and writes the table.
func (b *builder) layout(st *Stats) []byte {
	slices.SortStableFunc(b.spans, func(x, y span) int { return cmp.Compare(x.from, y.from) })
	var base uint64
	if len(b.spans) > 0 {
		base = b.spans[0].from
	}
	rows := make([]wire.UnwindRow, 0, len(b.spans)+len(b.spans)/8)
	put := func(pc uint64, rule uint32) { // with wire.RowStart, if so
		off := pc - base
		if off > math.MaxUint32 {
			return
		}
		if n := len(rows); n > 0 {
			if rows[n-1].PC == uint32(off) {
				n--
				rows = rows[:n] // the later entry has the last word
			}
			if n > 0 && rows[n-1].Rule&^wire.RowStart == rule {
				return
			}
		}
		rows = append(rows, wire.UnwindRow{PC: uint32(off), Rule: rule})
	}
	for i, s := range b.spans {
		if s.start {
			put(s.from, s.rule|wire.RowStart)
		} else {
			put(s.from, s.rule)
		}
		if i+1 == len(b.spans) || b.spans[i+1].from > s.to {
			put(s.to, 0)
		}
	}
	if n := len(rows); n > 0 && rows[n-1].Rule&^wire.RowStart != 0 {
		// The rest lies more than 4 GiB behind Base.
		rows[n-1].Rule = 0
		st.Inexpress++
	}
	st.Rows, st.Rules = len(rows), len(b.rules)

	pages := pageIndex(rows)
	h := wire.UnwindHeader{Magic: wire.Magic, Version: wire.Version, Rules: uint32(len(b.rules)), Rows: uint32(len(rows)), Pages: uint32(len(pages)), Base: base,
		RowsOffset: uint64(wire.SizeUnwindHeader + len(b.rules)*wire.SizeUnwindRule)}
	out := make([]byte, 0, int(h.RowsOffset)+len(rows)*wire.SizeUnwindRow+4*len(pages))
	out = appendHeader(out, h)
	for _, r := range b.rules {
		out = append(out, r.CFA, r.RBP, r.Reg, r.RBX)
		out = binary.LittleEndian.AppendUint32(out, uint32(r.CFAOff))
		out = binary.LittleEndian.AppendUint32(out, uint32(r.RBPOff))
		out = binary.LittleEndian.AppendUint32(out, uint32(r.RBXOff))
	}
	for _, r := range rows {
		out = binary.LittleEndian.AppendUint32(out, r.PC)
		out = binary.LittleEndian.AppendUint32(out, r.Rule)
	}
	for _, n := range pages {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	return out
}
