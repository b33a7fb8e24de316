package x86

import (
	"hash/crc32"
	"math/bits"
)

// shiftCount gives the count of a shift, masked as the processor does, and whether it is known. It is the last operand.
func (e *Emulator) shiftCount(op *Op) (n uint8, known bool) {
	mask := uint64(31)
	if op.size == 8 {
		mask = 63
	}
	a := &op.args[op.nargs-1]
	if a.kind == immediateOperand {
		return uint8(op.imm & mask), true
	}
	v := e.read(op, a)
	return uint8(v.Bits & mask), v.Known&mask == mask
}

// shiftUnknown is a shift by a count that is not known: the operand and the flags may have changed.
func (e *Emulator) shiftUnknown(op *Op, flags Flags) {
	e.write(op, &op.args[0], Value{})
	e.setFlags(flags, 0, 0)
}

// shift runs a shift. It gives the result for a count above 0, and the last bit shifted out, at a place in v, which lost says.
func (e *Emulator) shift(op *Op, do func(v Value, n, size uint8) Value, lost func(n, w uint8) int8, over func(v, r Value, top uint64) bit) {
	n, known := e.shiftCount(op)
	if !known {
		e.shiftUnknown(op, FlagsArith)
		return
	}
	v := e.read(op, &op.args[0])
	if n == 0 {
		e.write(op, &op.args[0], v)
		return
	}
	r := do(v, n, op.size)
	set, k := resultFlags(r, op.size)
	e.setFlags(FlagsArith, set, k)
	if at := lost(n, 8*op.size); at >= 0 {
		e.setFlag(CF, bitAt(v, uint8(at)))
	}
	if n == 1 {
		e.setFlag(OF, over(v, r, uint64(1)<<(8*op.size-1)))
	}
	e.write(op, &op.args[0], r)
}

func bitAt(v Value, i uint8) bit { return bit{v.Bits>>i&1 != 0, v.Known>>i&1 != 0} }

func shiftedLeft(v Value, n, size uint8) Value {
	m := widthMask(size)
	return Value{v.Bits << n & m, (v.Known<<n | (1<<n - 1)) & m}
}

func shiftedRight(v Value, n, size uint8) Value {
	m := widthMask(size)
	return Value{v.Bits & m >> n, (v.Known&m>>n | ^(m >> n)) & m}
}

func shiftedRightSigned(v Value, n, size uint8) Value {
	v, m := signed(v, size), widthMask(size)
	n = min(n, 63)
	return Value{uint64(int64(v.Bits)>>n) & m, uint64(int64(v.Known)>>n) & m}
}

// Where the last bit shifted out was; -1: that is undefined.
func lostLeft(n, w uint8) int8 {
	if n >= w {
		return -1
	}
	return int8(w - n)
}

func lostRight(n, w uint8) int8 {
	if n >= w {
		return -1
	}
	return int8(n - 1)
}

// topsDiffer says whether the upper bits of two values differ, which is OF of a shift left by 1.
func topsDiffer(v, r Value, top uint64) bit {
	return bit{(v.Bits^r.Bits)&top != 0, v.Known&r.Known&top != 0}
}

func shiftLeft(e *Emulator, op *Op) { e.shift(op, shiftedLeft, lostLeft, topsDiffer) }

func shiftRight(e *Emulator, op *Op) {
	e.shift(op, shiftedRight, lostRight, func(v, _ Value, top uint64) bit { return bit{v.Bits&top != 0, v.Known&top != 0} })
}

func shiftRightSigned(e *Emulator, op *Op) {
	e.shift(op, shiftedRightSigned, lostRight, func(_, _ Value, _ uint64) bit { return clear0 })
}

// rotated rotates a value of that size to the left; n is less than its bits.
func rotated(v Value, n, size uint8) Value {
	m, w := widthMask(size), 8*size
	if n == 0 {
		return v
	}
	return Value{(v.Bits<<n | v.Bits>>(w-n)) & m, (v.Known<<n | v.Known>>(w-n)) & m}
}

// rotate runs rol or ror: CF is the bit that went around, OF defined for one step only.
func (e *Emulator) rotate(op *Op, right bool) {
	n, known := e.shiftCount(op)
	if !known {
		e.shiftUnknown(op, CF|OF)
		return
	}
	v, w := e.read(op, &op.args[0]), 8*op.size
	if n == 0 {
		e.write(op, &op.args[0], v)
		return
	}
	by := n % w
	if right {
		by = (w - by) % w
	}
	r := rotated(v, by, op.size)
	top, below := bitAt(r, w-1), bitAt(r, w-2)
	cf, of := bitAt(r, 0), bit{top.set != below.set, top.known && below.known}
	if right {
		cf = top
	} else {
		of = bit{top.set != cf.set, top.known && cf.known}
	}
	e.setFlag(CF, cf)
	if n != 1 {
		of = bit{}
	}
	e.setFlag(OF, of)
	e.write(op, &op.args[0], r)
}

func rotateLeft(e *Emulator, op *Op)  { e.rotate(op, false) }
func rotateRight(e *Emulator, op *Op) { e.rotate(op, true) }

// rotateCarry runs rcl or rcr, a bit at a time.
func (e *Emulator) rotateCarry(op *Op, right bool) {
	n, known := e.shiftCount(op)
	if !known {
		e.shiftUnknown(op, CF|OF)
		return
	}
	v, w, m := e.read(op, &op.args[0]), 8*op.size, widthMask(op.size)
	if n == 0 {
		e.write(op, &op.args[0], v)
		return
	}
	carry := e.flag(CF)
	before := bitAt(v, w-1)
	in := func(at uint8) (b, k uint64) {
		if carry.known {
			k = 1 << at
			if carry.set {
				b = k
			}
		}
		return b, k
	}
	for range n % (w + 1) {
		if right {
			b, k := in(w - 1)
			carry = bitAt(v, 0)
			v = Value{v.Bits>>1 | b, v.Known>>1 | k}
		} else {
			b, k := in(0)
			carry = bitAt(v, w-1)
			v = Value{(v.Bits<<1 | b) & m, (v.Known<<1 | k) & m}
		}
	}
	e.setFlag(CF, carry)
	of := bit{}
	if n == 1 {
		after := bitAt(v, w-1)
		of = bit{before.set != after.set, before.known && after.known}
	}
	e.setFlag(OF, of)
	e.write(op, &op.args[0], v)
}

func rotateLeftCarry(e *Emulator, op *Op)  { e.rotateCarry(op, false) }
func rotateRightCarry(e *Emulator, op *Op) { e.rotateCarry(op, true) }

// shiftDouble runs shld or shrd. By more than the operand's size the outcome is undefined.
func (e *Emulator) shiftDouble(op *Op, right bool) {
	n, known := e.shiftCount(op)
	w, m := 8*op.size, widthMask(op.size)
	if !known || n > w {
		e.shiftUnknown(op, FlagsArith)
		return
	}
	v, from := e.read(op, &op.args[0]), e.read(op, &op.args[1])
	if n == 0 {
		e.write(op, &op.args[0], v)
		return
	}
	r := Value{(v.Bits<<n | from.Bits>>(w-n)) & m, (v.Known<<n | from.Known>>(w-n)) & m}
	cf := bitAt(v, w-n)
	if right {
		r = Value{(v.Bits>>n | from.Bits<<(w-n)) & m, (v.Known>>n | from.Known<<(w-n)) & m}
		cf = bitAt(v, n-1)
	}
	set, k := resultFlags(r, op.size)
	e.setFlags(FlagsArith, set, k)
	e.setFlag(CF, cf)
	if n == 1 {
		e.setFlag(OF, topsDiffer(v, r, uint64(1)<<(w-1)))
	}
	e.write(op, &op.args[0], r)
}

func shiftLeftDouble(e *Emulator, op *Op)  { e.shiftDouble(op, false) }
func shiftRightDouble(e *Emulator, op *Op) { e.shiftDouble(op, true) }

// shiftTo runs shlx and its like: to another operand, without flags.
func (e *Emulator) shiftTo(op *Op, do func(v Value, n, size uint8) Value) {
	n, known := e.shiftCount(op)
	r := Value{}
	if known {
		r = do(e.read(op, &op.args[1]), n, op.size)
	}
	e.write(op, &op.args[0], r)
}

func shiftLeftNoFlags(e *Emulator, op *Op)        { e.shiftTo(op, shiftedLeft) }
func shiftRightNoFlags(e *Emulator, op *Op)       { e.shiftTo(op, shiftedRight) }
func shiftRightSignedNoFlags(e *Emulator, op *Op) { e.shiftTo(op, shiftedRightSigned) }
func rotateRightNoFlags(e *Emulator, op *Op) {
	e.shiftTo(op, func(v Value, n, size uint8) Value { return rotated(v, (8*size-n)%(8*size), size) })
}

// testBit is bt, bts, btr and btc. With a register's number the bit may lie outside of the operand, which locate sees to; ZF is left alone.
func testBit(e *Emulator, op *Op) {
	w := uint64(8*op.size - 1)
	nr := e.read(op, &op.args[1])
	v := e.read(op, &op.args[0])
	e.setFlags(FlagsArith&^ZF, 0, 0)
	if nr.Known&w != w {
		if op.cond != 0 {
			e.write(op, &op.args[0], Value{})
		}
		return
	}
	at := uint8(nr.Bits & w)
	b := bitAt(v, at)
	e.setFlag(CF, b)
	m := uint64(1) << at
	switch op.cond {
	case 0:
		return
	case 1:
		v = Value{v.Bits | m, v.Known | m}
	case 2:
		v = Value{v.Bits &^ m, v.Known | m}
	case 3:
		v = Value{v.Bits ^ m&v.Known, v.Known}
	}
	e.write(op, &op.args[0], v)
}

// scanned sets the flags of bsf and bsr, ZF alone defined, and the index, which is undefined if there is no bit.
func (e *Emulator) scanned(op *Op, v Value, at int, known bool) {
	e.setFlags(FlagsArith, 0, 0)
	e.setFlag(ZF, bit{v.Bits == 0, v.Bits != 0 || v.whole(op.size)})
	if v.Bits == 0 || !known {
		e.forgetPart(&op.args[0])
		return
	}
	e.write(op, &op.args[0], Exactly(uint64(at)))
}

func bitScanForward(e *Emulator, op *Op) {
	v := e.read(op, &op.args[1])
	at := bits.TrailingZeros64(v.Bits)
	e.scanned(op, v, at, v.Bits != 0 && lowKnown(v.Known)>>at&1 != 0)
}

func bitScanReverse(e *Emulator, op *Op) {
	v := e.read(op, &op.args[1])
	e.scanned(op, v, 63-bits.LeadingZeros64(v.Bits), v.whole(op.size))
}

// counted sets the flags of tzcnt and lzcnt: CF if there is no bit, ZF if the count is 0.
func (e *Emulator) counted(op *Op, v Value, n int, known bool) {
	e.setFlags(FlagsArith, 0, 0)
	e.setFlag(CF, bit{v.Bits == 0, v.Bits != 0 || v.whole(op.size)})
	r := Value{}
	if known {
		r = Exactly(uint64(n))
		e.setFlag(ZF, bit{n == 0, true})
	}
	e.write(op, &op.args[0], r)
}

// trailingZeros is tzcnt, and leadingZeros lzcnt, as processors have them since 2013; older ones run bsf and bsr instead.
func trailingZeros(e *Emulator, op *Op) {
	v := e.read(op, &op.args[1])
	n := min(bits.TrailingZeros64(v.Bits), int(8*op.size))
	e.counted(op, v, n, v.whole(op.size) || v.Bits != 0 && lowKnown(v.Known)>>n&1 != 0)
}

func leadingZeros(e *Emulator, op *Op) {
	v := e.read(op, &op.args[1])
	e.counted(op, v, bits.LeadingZeros64(v.Bits)-int(64-8*op.size), v.whole(op.size))
}

func countBits(e *Emulator, op *Op) {
	v := e.read(op, &op.args[1])
	e.setFlags(FlagsArith, 0, FlagsArith&^ZF)
	e.setFlag(ZF, bit{v.Bits == 0, v.Bits != 0 || v.whole(op.size)})
	r := Value{}
	if v.whole(op.size) {
		r = Exactly(uint64(bits.OnesCount64(v.Bits)))
	}
	e.write(op, &op.args[0], r)
}

func byteSwap(e *Emulator, op *Op) {
	v := Value{} // of 16 bits: undefined
	if op.size >= 4 {
		v = swapped(e.read(op, &op.args[0]), op.size)
	}
	e.write(op, &op.args[0], v)
}

// lowest runs blsi, blsr and blsmsk, whose CF tells whether the operand is 0.
func (e *Emulator) lowest(op *Op, do func(v uint64) uint64, zero bool) {
	v := e.read(op, &op.args[1])
	r := Value{}
	if v.whole(op.size) {
		r = Value{do(v.Bits) & widthMask(op.size), widthMask(op.size)}
	}
	set, known := resultFlags(r, op.size)
	e.setFlags(FlagsArith, set, (known|OF)&^PF)
	e.setFlag(CF, bit{(v.Bits == 0) == zero, v.Bits != 0 || v.whole(op.size)})
	e.write(op, &op.args[0], r)
}

func lowestBit(e *Emulator, op *Op) {
	e.lowest(op, func(v uint64) uint64 { return v & -v }, false)
}

func lowestBitReset(e *Emulator, op *Op) {
	e.lowest(op, func(v uint64) uint64 { return v & (v - 1) }, true)
}

func lowestBitMask(e *Emulator, op *Op) {
	e.lowest(op, func(v uint64) uint64 { return v ^ (v - 1) }, true)
}

func bitField(e *Emulator, op *Op) {
	v, c := e.read(op, &op.args[1]), e.read(op, &op.args[2])
	r := Value{}
	if v.whole(op.size) && c.Known&0xffff == 0xffff {
		start, n := c.Bits&0xff, c.Bits>>8&0xff
		r = Exactly(v.Bits >> start)
		if n < 64 {
			r.Bits &= 1<<n - 1
		}
		r = Value{r.Bits & widthMask(op.size), widthMask(op.size)}
	}
	set, known := resultFlags(r, op.size)
	e.setFlags(FlagsArith, set, known&ZF|CF|OF)
	e.write(op, &op.args[0], r)
}

func zeroHigh(e *Emulator, op *Op) {
	v, c := e.read(op, &op.args[1]), e.read(op, &op.args[2])
	w := uint64(8 * op.size)
	n, known := c.Bits&0xff, c.Known&0xff == 0xff
	r := Value{}
	if known {
		r = v
		if n < w {
			r = conjunction(v, Exactly(1<<n-1))
		}
	}
	set, k := resultFlags(r, op.size)
	e.setFlags(FlagsArith, set, (k|OF)&^PF)
	e.setFlag(CF, bit{n >= w, known})
	e.write(op, &op.args[0], r)
}

func deposit(e *Emulator, op *Op) {
	e.scatter(op, func(v, mask uint64) (r uint64) {
		for ; mask != 0; mask &= mask - 1 {
			if v&1 != 0 {
				r |= mask & -mask
			}
			v >>= 1
		}
		return r
	})
}

func extract(e *Emulator, op *Op) {
	e.scatter(op, func(v, mask uint64) (r uint64) {
		for i := 0; mask != 0; mask &= mask - 1 {
			if v&mask&-mask != 0 {
				r |= 1 << i
			}
			i++
		}
		return r
	})
}

// scatter runs pdep and pext.
func (e *Emulator) scatter(op *Op, do func(v, mask uint64) uint64) {
	v, mask := e.read(op, &op.args[1]), e.read(op, &op.args[2])
	r := Value{}
	if v.whole(op.size) && mask.whole(op.size) {
		r = Exactly(do(v.Bits, mask.Bits))
	}
	e.write(op, &op.args[0], r)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c is crc32: without the inversions that the package makes before and after.
func crc32c(e *Emulator, op *Op) {
	src := &op.args[1]
	v, c := e.read(op, src), e.read(op, &operand{kind: inGPR, reg: op.args[0].reg, size: 4})
	r := Value{}
	if v.whole(src.size) && c.whole(4) {
		x := uint32(c.Bits)
		for i := range src.size {
			x = castagnoli[uint8(x)^uint8(v.Bits>>(8*i))] ^ x>>8
		}
		r = Exactly(uint64(x))
	}
	e.setGPR(op.args[0].reg, 4, 0, r)
}
