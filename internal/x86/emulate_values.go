package x86

import "math/bits"

// read gives an operand's value, of its size; unknown bits and those beyond are 0.
func (e *Emulator) read(op *Op, a *operand) Value {
	switch a.kind {
	case inGPR:
		v, m := &e.GPR[a.reg&15], a.mask
		if m == 0 {
			m = widthMask(a.size) // it is not of an Op
		}
		shift := a.shift & 63
		return Value{v.Bits >> shift & m, v.Known >> shift & m}
	case inMem:
		return e.load(0, a.size)
	case immediateOperand:
		m := widthMask(op.size)
		return Value{op.imm & m, m}
	}
	return Value{}
}

// write sets an operand. Of a register's 32 bits the upper half is zeroed, of fewer the others stay.
func (e *Emulator) write(op *Op, a *operand, v Value) {
	switch a.kind {
	case inGPR:
		e.setGPR(a.reg, a.size, a.shift, v)
	case inMem:
		e.store(0, a.size, v)
	}
}

func (e *Emulator) setGPR(reg, size, shift uint8, v Value) {
	r := &e.GPR[reg]
	m := widthMask(size)
	v.Bits, v.Known = v.Bits&m, v.Known&m
	switch size {
	case 8:
		*r = v
	case 4:
		*r = Value{v.Bits, v.Known | ^m}
	default:
		r.Bits = r.Bits&^(m<<shift) | v.Bits<<shift
		r.Known = r.Known&^(m<<shift) | v.Known<<shift
	}
}

// load reads memory of access i.
func (e *Emulator) load(i int, size uint8) Value {
	if !e.known[i] {
		return Value{}
	}
	return e.Mem.Load(e.addrs[i], int(size))
}

// store writes memory of access i.
func (e *Emulator) store(i int, size uint8, v Value) {
	if !e.known[i] {
		e.Mem.ForgetAll()
		return
	}
	e.Mem.Store(e.addrs[i], int(size), v)
}

// A bit is a flag: known or not.
type bit struct{ set, known bool }

// setFlag sets one flag.
func (e *Emulator) setFlag(f Flags, b bit) {
	e.Flags &^= f
	e.FlagsKnown &^= f
	if b.known {
		e.FlagsKnown |= f
		if b.set {
			e.Flags |= f
		}
	}
}

func (e *Emulator) flag(f Flags) bit { return bit{e.Flags&f != 0, e.FlagsKnown&f != 0} }

// setFlags sets those of mask: to the set ones, of which known are known.
func (e *Emulator) setFlags(mask, set, known Flags) {
	e.FlagsKnown = e.FlagsKnown&^mask | known&mask
	e.Flags = e.Flags&^mask | set&known&mask
}

// resultFlags gives ZF, SF and PF of a result, and which of them are known.
func resultFlags(v Value, size uint8) (set, known Flags) {
	m := widthMask(size)
	switch {
	case v.Bits&m != 0:
		known |= ZF
	case v.Known&m == m:
		set, known = ZF, ZF
	}
	top := uint64(1) << (8*size - 1)
	if v.Known&top != 0 {
		known |= SF
		if v.Bits&top != 0 {
			set |= SF
		}
	}
	if v.Known&0xff == 0xff {
		known |= PF
		if bits.OnesCount8(uint8(v.Bits))&1 == 0 {
			set |= PF
		}
	}
	return set, known
}

// lowKnown gives the mask of the lower bits up to the first that is not known.
func lowKnown(known uint64) uint64 {
	return ^known&(known+1) - 1 // all bits below the lowest zero
}

// sum gives a + b + carry and the flags of an addition of that size, which are OF, SF, ZF, AF, PF and CF, and which of them are known.
func sum(a, b Value, carry bit, size uint8) (r Value, set, known Flags) {
	m := widthMask(size)
	k := lowKnown(a.Known & b.Known)
	c := uint64(0)
	if !carry.known {
		k = 0
	} else if carry.set {
		c = 1
	}
	k &= m
	r = Value{(a.Bits + b.Bits + c) & k, k}
	set, known = resultFlags(r, size)
	if k&15 == 15 {
		known |= AF
		if a.Bits&15+b.Bits&15+c > 15 {
			set |= AF
		}
	}
	if k == m {
		known |= CF | OF
		full := a.Bits + b.Bits
		over := full < a.Bits
		full += c
		if over || full < c || full > m {
			set |= CF
		}
		if (a.Bits^r.Bits)&(b.Bits^r.Bits)>>(8*size-1)&1 != 0 {
			set |= OF
		}
	}
	return r, set, known
}

// difference gives a - b - borrow likewise.
func difference(a, b Value, borrow bit, size uint8) (r Value, set, known Flags) {
	m := widthMask(size)
	k := lowKnown(a.Known & b.Known)
	c := uint64(0)
	if !borrow.known {
		k = 0
	} else if borrow.set {
		c = 1
	}
	k &= m
	r = Value{(a.Bits - b.Bits - c) & k, k}
	set, known = resultFlags(r, size)
	if borrow.known && !borrow.set && (a.Bits^b.Bits)&a.Known&b.Known&m != 0 {
		known |= ZF // they differ
	}
	if k&15 == 15 {
		known |= AF
		if a.Bits&15 < b.Bits&15+c {
			set |= AF
		}
	}
	if k == m {
		known |= CF | OF
		if a.Bits < b.Bits || a.Bits == b.Bits && c != 0 {
			set |= CF
		}
		if (a.Bits^b.Bits)&(a.Bits^r.Bits)>>(8*size-1)&1 != 0 {
			set |= OF
		}
	}
	return r, set, known
}

// signed gives the value of that size, extended by its sign, to 64 bits.
func signed(v Value, size uint8) Value {
	s := 64 - 8*size
	return Value{uint64(int64(v.Bits<<s) >> s), uint64(int64(v.Known<<s) >> s)}
}

// whole says whether all bits of a value of that size are known.
func (v Value) whole(size uint8) bool { m := widthMask(size); return v.Known&m == m }
