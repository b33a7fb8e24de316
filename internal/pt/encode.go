package pt

import (
	"fmt"
)

// Append adds a packet's bytes to dst. Len is not looked at. The error says which field holds what the packet cannot express; dst is then
// returned as it was. Sizes of block items are by the packet's Flag, which must agree with its block's.
func Append(dst []byte, p *Packet) ([]byte, error) {
	if p.Kind == Bad || p.Kind >= numKinds {
		return dst, fmt.Errorf("pt: there is no packet %v to encode", p.Kind)
	}
	switch p.Kind {
	case PSB:
		return append(dst, psbPattern...), nil
	case TNT8, TNT64:
		most := uint8(MaxTNT8)
		if p.Kind == TNT64 {
			most = MaxTNT64
		}
		if p.Form == 0 || p.Form > most || p.Value>>p.Form != 0 {
			return dst, fmt.Errorf("pt: %v cannot hold %d branches in %#x", p.Kind, p.Form, p.Value)
		}
		payload := p.Value | 1<<p.Form
		if p.Kind == TNT8 {
			return append(dst, byte(payload<<1)), nil
		}
		return appendLittle(append(dst, layouts[TNT64].header...), payload, 6), nil
	case TIP, TIPPGE, TIPPGD, FUP:
		n := -1
		if p.Form < 8 {
			n = int(ipBytes[p.Form])
		}
		if n < 0 || n < 8 && p.Value>>(8*n) != 0 {
			return dst, fmt.Errorf("pt: %v with form %d cannot hold %#x", p.Kind, p.Form, p.Value)
		}
		return appendLittle(append(dst, layouts[p.Kind].header[0]|p.Form<<5), p.Value, n), nil
	case CYC:
		return appendCYC(dst, p.Value)
	}
	return appendFields(dst, p)
}

// appendCYC: what Decoder.cyc reads.
func appendCYC(dst []byte, v uint64) ([]byte, error) {
	if v>>61 != 0 {
		return dst, fmt.Errorf("pt: CYC cannot hold %#x", v)
	}
	c, v := byte(v&0x1f)<<3|0x03, v>>5
	if v != 0 {
		c |= 0x04
	}
	dst = append(dst, c)
	for v != 0 {
		c, v = byte(v&0x7f)<<1, v>>7
		if v != 0 {
			c |= 1
		}
		dst = append(dst, c)
	}
	return dst, nil
}

// appendFields encodes by the table of packets.
func appendFields(dst []byte, p *Packet) ([]byte, error) {
	l := &layouts[p.Kind]
	var b [maxLen]byte
	copy(b[:], l.header)
	size := int(l.size)
	width := uint8(64)
	switch p.Kind {
	case PTW:
		if p.Form > 1 {
			return dst, fmt.Errorf("pt: %v cannot hold form %d", p.Kind, p.Form)
		}
		width = 32 << p.Form
		size = 2 + int(width/8)
	case BIP:
		if size = 9; p.Flag {
			size, width = 5, 32
		}
	case TRIG:
		if size = 3; p.Form&TrigCount != 0 {
			size = 5
		} else if p.Extra != 0 {
			return dst, fmt.Errorf("pt: %v holds an instruction count only with TrigCount", p.Kind)
		}
	}
	var held [mustZero]bool
	for _, f := range l.fields {
		var v uint64
		switch f.to {
		case inValue:
			v = p.Value
		case inExtra:
			v = uint64(p.Extra)
		case inForm:
			v = uint64(p.Form)
		case inFlag:
			if p.Flag {
				v = 1
			}
		case mustZero:
			continue
		}
		held[f.to] = true
		n := min(f.n, width)
		bits := v >> f.shift
		if bits<<f.shift != v || n < 64 && bits>>n != 0 {
			return dst, fmt.Errorf("pt: %v cannot hold %#x", p.Kind, v)
		}
		for i := 0; bits != 0; i++ {
			at := int(f.off) + i
			b[at/8] |= byte(bits&1) << (at % 8)
			bits >>= 1
		}
	}
	if p.Value != 0 && !held[inValue] || p.Extra != 0 && !held[inExtra] || p.Form != 0 && !held[inForm] || p.Flag && !held[inFlag] && p.Kind != BIP {
		return dst, fmt.Errorf("pt: %v has no place for all of form %d, flag %t, extra %#x, value %#x", p.Kind, p.Form, p.Flag, p.Extra, p.Value)
	}
	return append(dst, b[:size]...), nil
}

func appendLittle(dst []byte, v uint64, n int) []byte {
	for range n {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}
