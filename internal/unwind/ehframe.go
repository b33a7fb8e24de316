package unwind

import (
	"errors"
	"fmt"
	"slices"
)

// DWARF register numbers of x86-64 that the tables know.
const (
	regRBX = 3
	regRBP = 6
	regRSP = 7
	regRA  = 16
)

// Pointer encodings (LSB, Core Generic, "DWARF Extensions").
const (
	peOmit     = 0xff
	peAbs      = 0x00
	peULEB     = 0x01
	peUData2   = 0x02
	peUData4   = 0x03
	peUData8   = 0x04
	peSLEB     = 0x09
	peSData2   = 0x0a
	peSData4   = 0x0b
	peSData8   = 0x0c
	pePCRel    = 0x10
	peTextRel  = 0x20
	peDataRel  = 0x30
	peFuncRel  = 0x40
	peAligned  = 0x50
	peIndirect = 0x80
)

var errShort = errors.New("it ends early")

// cursor reads little-endian values; after the first failure everything reads as zero and err is set.
type cursor struct {
	b    []byte
	addr uint64 // link-time address of b[0]
	err  error
}

func (c *cursor) take(n uint64) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(len(c.b)) {
		c.err = errShort
		return nil
	}
	out := c.b[:n:n]
	c.b, c.addr = c.b[n:], c.addr+n
	return out
}

func (c *cursor) uint(n int) uint64 {
	var v uint64
	for i, x := range c.take(uint64(n)) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.uint(1)
		if c.err != nil {
			return 0
		}
		if shift < 64 {
			v |= (b & 0x7f) << shift
		}
		if b&0x80 == 0 {
			return v
		}
	}
}

func (c *cursor) sleb() int64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.uint(1)
		if c.err != nil {
			return 0
		}
		if shift < 64 {
			v |= (b & 0x7f) << shift
		}
		if b&0x80 == 0 {
			if shift+7 < 64 && b&0x40 != 0 {
				v |= ^uint64(0) << (shift + 7)
			}
			return int64(v)
		}
	}
}

// pointer reads an encoded pointer. An indirect one comes back as the address of the pointer, and ok is false: only the loaded
// program knows more. So does ok for encodings relative to what is not known here.
func (c *cursor) pointer(enc byte, dataRel uint64) (v uint64, ok bool) {
	if enc == peOmit {
		return 0, false
	}
	if enc == peAligned {
		c.take(-c.addr & 7)
		return c.uint(8), true
	}
	at := c.addr
	switch enc & 0x0f {
	case peAbs, peUData8, peSData8:
		v = c.uint(8)
	case peULEB:
		v = c.uleb()
	case peUData2:
		v = c.uint(2)
	case peUData4:
		v = c.uint(4)
	case peSLEB:
		v = uint64(c.sleb())
	case peSData2:
		v = uint64(int64(int16(c.uint(2))))
	case peSData4:
		v = uint64(int64(int32(c.uint(4))))
	default:
		c.err = fmt.Errorf("pointer encoding %#x is not known", enc)
		return 0, false
	}
	ok = c.err == nil
	switch enc & 0x70 {
	case 0:
	case pePCRel:
		v += at
	case peDataRel:
		v += dataRel
	default: // relative to the text section or to the function: no compiler for x86-64 writes it here
		ok = false
	}
	return v, ok && enc&peIndirect == 0
}

// cie is a common information entry.
type cie struct {
	codeAlign uint64
	dataAlign int64
	sized     bool // augmentation begins with z: entries say how long their augmentation is
	fdeEnc    byte
	signal    bool
	program   []byte
	err       error
}

// fde is a frame description entry.
type fde struct {
	cie        *cie
	begin, end uint64
	program    []byte
	progAddr   uint64 // link-time address of program, for DW_CFA_set_loc
	handles    bool   // it has a table of exception handlers
}

// ehFrame is a whole .eh_frame.
type ehFrame struct {
	data    []byte
	addr    uint64
	dataRel uint64
	cies    map[uint64]*cie
	// openEnd: data reaches to the end of its segment since the section's size is not known; a zero length ends it.
	openEnd bool
}

// each calls f for every FDE. Entries that cannot be read are counted; only a length that leads out of the section ends the reading.
func (e *ehFrame) each(f func(*fde)) (bad int, err error) {
	e.cies = map[uint64]*cie{}
	for off := uint64(0); off+4 <= uint64(len(e.data)); {
		c := cursor{b: e.data[off:], addr: e.addr + off}
		n, idSize := c.uint(4), 4
		if n == 0 {
			if e.openEnd {
				return bad, nil
			}
			off += 4
			continue
		}
		if n == 0xffffffff {
			n, idSize = c.uint(8), 8
		}
		idAt := c.addr - e.addr
		body := c.take(n)
		if c.err != nil || n < uint64(idSize) {
			if e.openEnd {
				return bad, nil // what follows the frames in the segment
			}
			return bad + 1, fmt.Errorf("the entry at offset %#x of .eh_frame says that it has %d bytes: %w", off, n, errShort)
		}
		off = idAt + n
		b := cursor{b: body, addr: e.addr + idAt}
		// In an FDE, the distance back from the field itself to its CIE.
		id := b.uint(idSize)
		if id == 0 {
			continue // a CIE: read when an FDE names it
		}
		d, ferr := e.fde(&b, id, idAt)
		if ferr != nil {
			bad++
			continue
		}
		if d != nil {
			f(d)
		}
	}
	return bad, nil
}

func (e *ehFrame) fde(b *cursor, id, idAt uint64) (*fde, error) {
	if id > idAt {
		return nil, errors.New("its CIE lies before the section")
	}
	ci := e.cie(idAt - id)
	if ci.err != nil {
		return nil, ci.err
	}
	begin, ok := b.pointer(ci.fdeEnc, e.dataRel)
	if b.err != nil {
		return nil, b.err
	}
	if !ok {
		return nil, fmt.Errorf("pointer encoding %#x of its start is not known", ci.fdeEnc)
	}
	size, _ := b.pointer(ci.fdeEnc&0x0f, 0)
	handles := false
	if ci.sized {
		// Without handlers the pointer to their table is zero. Of nothing else an entry has more than that.
		handles = slices.ContainsFunc(b.take(b.uleb()), func(x byte) bool { return x != 0 })
	}
	if b.err != nil {
		return nil, b.err
	}
	if size == 0 {
		return nil, nil
	}
	if begin+size < begin {
		return nil, errors.New("its range wraps around")
	}
	return &fde{cie: ci, begin: begin, end: begin + size, program: b.b, progAddr: b.addr, handles: handles}, nil
}

// cie reads the CIE at an offset, once.
func (e *ehFrame) cie(off uint64) *cie {
	if c := e.cies[off]; c != nil {
		return c
	}
	ci := &cie{}
	ci.err = e.readCIE(off, ci)
	e.cies[off] = ci
	return ci
}

func (e *ehFrame) readCIE(off uint64, ci *cie) error {
	if off > uint64(len(e.data)) {
		return errShort
	}
	c := cursor{b: e.data[off:], addr: e.addr + off}
	n, idSize := c.uint(4), 4
	if n == 0xffffffff {
		n, idSize = c.uint(8), 8
	}
	at := c.addr
	body := c.take(n)
	if c.err != nil {
		return c.err
	}
	c = cursor{b: body, addr: at}
	if c.uint(idSize) != 0 {
		return errors.New("it is not a CIE")
	}
	version := c.uint(1)
	if version != 1 && version != 3 && version != 4 {
		return fmt.Errorf("CIE version %d is not known", version)
	}
	var aug []byte
	for {
		x := c.take(1)
		if c.err != nil {
			return c.err
		}
		if x[0] == 0 {
			break
		}
		aug = append(aug, x[0])
		if len(aug) > 16 {
			return errors.New("its augmentation is too long")
		}
	}
	if version == 4 {
		if c.uint(1) != 8 || c.uint(1) != 0 {
			return errors.New("addresses are not of 8 bytes")
		}
	}
	if string(aug) == "eh" {
		c.uint(8)
	}
	ci.codeAlign, ci.dataAlign = c.uleb(), c.sleb()
	ra := uint64(0)
	if version == 1 {
		ra = c.uint(1)
	} else {
		ra = c.uleb()
	}
	if c.err == nil && ra != regRA {
		return fmt.Errorf("its return address is register %d, not %d", ra, regRA)
	}
	ci.fdeEnc = peAbs
	if len(aug) > 0 && aug[0] == 'z' {
		ci.sized = true
		n := c.uleb()
		at := c.addr
		a := cursor{b: c.take(n), addr: at}
		for _, x := range aug[1:] {
			switch x {
			case 'R':
				ci.fdeEnc = byte(a.uint(1))
			case 'P':
				a.pointer(byte(a.uint(1)), e.dataRel)
			case 'L':
				a.uint(1)
			case 'S':
				ci.signal = true
			default:
				return fmt.Errorf("augmentation %q is not known", aug)
			}
		}
		if a.err != nil {
			return a.err
		}
	} else if len(aug) > 0 && string(aug) != "eh" {
		return fmt.Errorf("augmentation %q is not known", aug)
	}
	ci.program = c.b
	return c.err
}
