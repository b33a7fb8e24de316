package pt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What can be wrong with a packet. A Decoder gives them in an *Error.
var (
	ErrTruncated = errors.New("the trace ends inside a packet")
	ErrOpcode    = errors.New("no packet begins with these bytes")
	ErrPayload   = errors.New("a packet has contents that it cannot have")
)

// An Error says what was wrong in a trace, and where.
type Error struct {
	Offset uint64 // of the packet in the trace
	IP     uint64 // of the instruction that was to be decoded, 0 if the error is in the packets alone
	Err    error
}

func (e *Error) Error() string {
	if e.IP != 0 {
		return fmt.Sprintf("pt: at offset %#x, ip %#x: %v", e.Offset, e.IP, e.Err)
	}
	return fmt.Sprintf("pt: at offset %#x: %v", e.Offset, e.Err)
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

// A Decoder takes a trace apart into packets. It reads from the trace's first byte on; where a trace begins in the middle of a packet, as a
// ring buffer's does, call Sync first.
type Decoder struct {
	data []byte
	pos  int
	base uint64
	item uint8 // bytes of a block item inside BBP … BEP, else 0
}

// NewDecoder gives a decoder of a trace, or of a part of one that lies base bytes behind its beginning. The data is not copied.
func NewDecoder(data []byte, base uint64) *Decoder { return &Decoder{data: data, base: base} }

// Offset gives the offset in the trace of the packet that Next will give.
func (d *Decoder) Offset() uint64 { return d.base + uint64(d.pos) }

// Sync goes to the next PSB, which Next will then give. A PSB counts that begins a little before the current offset, since a packet
// before it, cut short where the trace is broken, may have swallowed its first bytes. The error is io.EOF if there is none.
func (d *Decoder) Sync() error {
	start := max(0, d.pos-psbLen+1) // behind the beginning of any PSB that Next gave
	i := findPSB(d.data[start:])
	if i < 0 {
		d.pos = len(d.data)
		return io.EOF
	}
	d.pos, d.item = start+i, 0
	return nil
}

// findPSB gives the place of the first PSB, or -1. Where its pattern is repeated beyond its length, what precedes the last 16 bytes is
// rubbish that looks alike: no packet that can follow a PSB, but another PSB, begins so.
func findPSB(b []byte) int {
	i := bytes.Index(b, []byte(psbPattern))
	if i < 0 {
		return -1
	}
	for i+psbLen+2 <= len(b) && b[i+psbLen] == 0x02 && b[i+psbLen+1] == 0x82 {
		i += 2
	}
	return i
}

func (d *Decoder) fail(err error) error { return &Error{Offset: d.Offset(), Err: err} }

// Next gives the next packet and moves behind it. At the end of the trace the error is io.EOF. After an *Error the decoder stands where it
// stood: Skip or Sync move it on.
func (d *Decoder) Next(p *Packet) error {
	if d.pos >= len(d.data) {
		return io.EOF
	}
	b := d.data[d.pos:]
	c := b[0]
	if d.item != 0 && c&0x07 == 0x04 {
		return d.rare(p, b, BIP)
	}
	k := opcodes[c]
	switch k {
	case TNT8:
		n, v := tnt(uint64(c >> 1))
		*p = Packet{Kind: TNT8, Len: 1, Form: n, Value: v}
		d.pos, d.item = d.pos+1, 0
		return nil
	case TIP, TIPPGE, TIPPGD, FUP:
		n := int(ipBytes[c>>5])
		if n < 0 {
			return d.fail(ErrPayload)
		}
		if len(b) < 1+n {
			return d.fail(ErrTruncated)
		}
		var v uint64
		switch {
		case len(b) >= 9:
			v = binary.LittleEndian.Uint64(b[1:9])
			if n < 8 {
				v &= 1<<(8*n) - 1
			}
		default:
			v = little(b[1 : 1+n])
		}
		*p = Packet{Kind: k, Len: uint8(1 + n), Form: c >> 5, Value: v}
		d.pos += 1 + n
		if k != FUP {
			d.item = 0
		}
		return nil
	case CYC:
		if c&4 == 0 {
			*p = Packet{Kind: CYC, Len: 1, Value: uint64(c >> 3)}
			d.pos++
			return nil
		}
		return d.cyc(p, b)
	case MTC:
		if len(b) < 2 {
			return d.fail(ErrTruncated)
		}
		*p = Packet{Kind: MTC, Len: 2, Value: uint64(b[1])}
		d.pos += 2
		return nil
	case PAD:
		*p = Packet{Kind: PAD, Len: 1}
		d.pos++
		return nil
	case extended:
		if len(b) < 2 {
			return d.fail(ErrTruncated)
		}
		k = extensions[b[1]]
		switch k {
		case maintained:
			if len(b) < 3 {
				return d.fail(ErrTruncated)
			}
			if k = MNT; b[2] != layouts[MNT].header[2] {
				return d.fail(ErrOpcode)
			}
		case TNT64:
			if len(b) < 8 {
				return d.fail(ErrTruncated)
			}
			n, v := tnt(binary.LittleEndian.Uint64(b) >> 16)
			if n == 0 {
				return d.fail(ErrPayload)
			}
			*p = Packet{Kind: TNT64, Len: 8, Form: n, Value: v}
			d.pos, d.item = d.pos+8, 0
			return nil
		}
	case moded:
		if len(b) < 2 {
			return d.fail(ErrTruncated)
		}
		switch b[1] &^ 0x1f {
		case layouts[ModeExec].header[1]:
			k = ModeExec
		case layouts[ModeTSX].header[1]:
			k = ModeTSX
		default:
			return d.fail(ErrPayload)
		}
	}
	if k == Bad {
		return d.fail(ErrOpcode)
	}
	return d.rare(p, b, k)
}

// Skip moves behind a byte that is no packet.
func (d *Decoder) Skip() {
	if d.pos < len(d.data) {
		d.pos++
	}
}

// rare decodes by the table of packets.
func (d *Decoder) rare(p *Packet, b []byte, k Kind) error {
	l := &layouts[k]
	size := int(l.size)
	if size == 0 {
		if k == TRIG && len(b) < 3 {
			return d.fail(ErrTruncated)
		}
		if size = sizeOf(k, b, d.item); size < 0 {
			return d.fail(ErrPayload)
		}
	}
	if len(b) < size {
		return d.fail(ErrTruncated)
	}
	b = b[:size]
	if k == PSB && string(b) != psbPattern {
		return d.fail(ErrPayload)
	}
	*p = Packet{Kind: k, Len: uint8(size)}
	for _, f := range l.fields {
		v := f.get(b)
		switch f.to {
		case inValue:
			p.Value = v
		case inExtra:
			p.Extra = uint32(v)
		case inForm:
			p.Form = uint8(v)
		case inFlag:
			p.Flag = v != 0
		case mustZero:
			if v != 0 {
				return d.fail(ErrPayload)
			}
		}
	}
	d.pos += size
	switch k {
	case BBP:
		if d.item = 8; p.Flag {
			d.item = 4
		}
	case BIP:
		p.Flag = d.item == 4
	case TSC, TMA, CBR, MNT, EXSTOP, PWRE, PWRX: // these may come between the items of a block
	default:
		d.item = 0
	}
	return nil
}

// sizeOf gives the size of a packet whose own bits, or for block items the block's beginning, give it; -1: they cannot be so.
func sizeOf(k Kind, b []byte, item uint8) int {
	switch k {
	case PTW:
		return [4]int{6, 10, -1, -1}[b[1]>>5&3]
	case BIP:
		return 1 + int(item)
	case TRIG:
		if b[1]&0x40 != 0 {
			return 5
		}
		return 3
	}
	return 0
}

// cyc decodes a CYC packet: five bits in the first byte and seven in each further, with a bit that says whether another follows.
func (d *Decoder) cyc(p *Packet, b []byte) error {
	v, more := uint64(b[0]>>3), b[0]&4 != 0
	n := 1
	for shift := 5; more; shift += 7 {
		if n >= len(b) {
			return d.fail(ErrTruncated)
		}
		if shift+7 > 64 {
			return d.fail(ErrPayload)
		}
		v |= uint64(b[n]>>1) << shift
		more = b[n]&1 != 0
		n++
	}
	*p = Packet{Kind: CYC, Len: uint8(n), Value: v}
	d.pos += n
	return nil
}

// little reads up to eight bytes as a number.
func little(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// get takes the field's bits out of a packet; bits behind its end are zero.
func (f field) get(b []byte) uint64 {
	at := int(f.off / 8)
	if at >= len(b) {
		return 0
	}
	low := little(b[at:min(at+8, len(b))]) >> (f.off % 8) // fields of more than 57 bits begin with a byte
	if f.n < 64 {
		low &= 1<<f.n - 1
	}
	return low << f.shift
}
