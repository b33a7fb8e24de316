package x86

import "math/bits"

func nothing(e *Emulator, op *Op) {}

// move extends by zeros, if the destination is larger.
func move(e *Emulator, op *Op) {
	v := e.read(op, &op.args[1])
	v.Known |= ^widthMask(op.args[1].size)
	e.write(op, &op.args[0], v)
}

func moveSigned(e *Emulator, op *Op) {
	src := &op.args[1]
	e.write(op, &op.args[0], signed(e.read(op, src), src.size))
}

func moveSwapped(e *Emulator, op *Op) {
	e.write(op, &op.args[0], swapped(e.read(op, &op.args[1]), op.size))
}

// swapped reverses the bytes of a value of that size.
func swapped(v Value, size uint8) Value {
	s := 64 - 8*size
	return Value{bits.ReverseBytes64(v.Bits) >> s, bits.ReverseBytes64(v.Known) >> s}
}

func lea(e *Emulator, op *Op) {
	e.write(op, &op.args[0], e.effective(&op.mems[0]))
}

// effective gives an address without its segment, of which the lower bits may be known alone.
func (e *Emulator) effective(m *memRef) Value {
	v := Exactly(m.disp)
	plus := func(w Value) {
		k := lowKnown(v.Known & w.Known)
		v = Value{(v.Bits + w.Bits) & k, k}
	}
	if m.base < numGPR {
		r := e.GPR[m.base]
		plus(Value{r.Bits & m.mask, r.Known | ^m.mask})
	} else if m.base == ipBase {
		plus(Exactly(e.pc))
	}
	if m.index < numGPR {
		r := e.GPR[m.index]
		plus(Value{r.Bits & m.inMask << m.shift, (r.Known|^m.inMask)<<m.shift | (1<<m.shift - 1)})
	}
	if m.narrow {
		v = Value{v.Bits & 0xffffffff, v.Known | ^uint64(0xffffffff)}
	}
	return v
}

func exchange(e *Emulator, op *Op) {
	a, b := e.read(op, &op.args[0]), e.read(op, &op.args[1])
	e.write(op, &op.args[0], b)
	e.write(op, &op.args[1], a)
}

// both reads two operands; of a register with itself where the operation's outcome does not depend on it, zeros.
func (e *Emulator) both(op *Op) (a, b Value) {
	if op.same {
		return Value{0, ^uint64(0)}, Value{0, ^uint64(0)}
	}
	return e.read(op, &op.args[0]), e.read(op, &op.args[1])
}

var clear0 = bit{false, true}

func add(e *Emulator, op *Op) {
	r, set, known := sum(e.read(op, &op.args[0]), e.read(op, &op.args[1]), clear0, op.size)
	e.setFlags(FlagsArith, set, known)
	e.write(op, &op.args[0], r)
}

func addCarry(e *Emulator, op *Op) {
	r, set, known := sum(e.read(op, &op.args[0]), e.read(op, &op.args[1]), e.flag(CF), op.size)
	e.setFlags(FlagsArith, set, known)
	e.write(op, &op.args[0], r)
}

func subtract(e *Emulator, op *Op) {
	a, b := e.both(op)
	r, set, known := difference(a, b, clear0, op.size)
	e.setFlags(FlagsArith, set, known)
	e.write(op, &op.args[0], r)
}

func subtractBorrow(e *Emulator, op *Op) {
	a, b := e.both(op)
	r, set, known := difference(a, b, e.flag(CF), op.size)
	e.setFlags(FlagsArith, set, known)
	e.write(op, &op.args[0], r)
}

func compare(e *Emulator, op *Op) {
	a, b := e.both(op)
	_, set, known := difference(a, b, clear0, op.size)
	e.setFlags(FlagsArith, set, known)
}

func increment(e *Emulator, op *Op) {
	r, set, known := sum(e.read(op, &op.args[0]), Exactly(1), clear0, op.size)
	e.setFlags(FlagsArith&^CF, set, known)
	e.write(op, &op.args[0], r)
}

func decrement(e *Emulator, op *Op) {
	r, set, known := difference(e.read(op, &op.args[0]), Exactly(1), clear0, op.size)
	e.setFlags(FlagsArith&^CF, set, known)
	e.write(op, &op.args[0], r)
}

func negate(e *Emulator, op *Op) {
	r, set, known := difference(Exactly(0), e.read(op, &op.args[0]), clear0, op.size)
	e.setFlags(FlagsArith, set, known)
	e.write(op, &op.args[0], r)
}

func complement(e *Emulator, op *Op) {
	v := e.read(op, &op.args[0])
	e.write(op, &op.args[0], Value{^v.Bits & v.Known, v.Known})
}

// logic sets the flags of a logical operation: AF is undefined.
func (e *Emulator) logic(r Value, size uint8) {
	set, known := resultFlags(r, size)
	e.setFlags(FlagsArith, set, known|CF|OF)
}

func conjunction(a, b Value) Value {
	return Value{a.Bits & b.Bits, a.Known&b.Known | a.Known&^a.Bits | b.Known&^b.Bits}
}

func and(e *Emulator, op *Op) {
	r := conjunction(e.read(op, &op.args[0]), e.read(op, &op.args[1]))
	e.logic(r, op.size)
	e.write(op, &op.args[0], r)
}

func test(e *Emulator, op *Op) {
	e.logic(conjunction(e.read(op, &op.args[0]), e.read(op, &op.args[1])), op.size)
}

func andNot(e *Emulator, op *Op) {
	a := e.read(op, &op.args[1])
	r := conjunction(Value{^a.Bits & a.Known, a.Known}, e.read(op, &op.args[2]))
	set, known := resultFlags(r, op.size)
	e.setFlags(FlagsArith, set, (known|CF|OF)&^PF)
	e.write(op, &op.args[0], r)
}

func or(e *Emulator, op *Op) {
	a, b := e.read(op, &op.args[0]), e.read(op, &op.args[1])
	r := Value{a.Bits | b.Bits, a.Known&b.Known | a.Bits | b.Bits}
	e.logic(r, op.size)
	e.write(op, &op.args[0], r)
}

func xor(e *Emulator, op *Op) {
	a, b := e.both(op)
	k := a.Known & b.Known
	r := Value{(a.Bits ^ b.Bits) & k, k}
	e.logic(r, op.size)
	e.write(op, &op.args[0], r)
}

func exchangeAdd(e *Emulator, op *Op) {
	a := e.read(op, &op.args[0])
	r, set, known := sum(a, e.read(op, &op.args[1]), clear0, op.size)
	e.setFlags(FlagsArith, set, known)
	e.write(op, &op.args[1], a)
	e.write(op, &op.args[0], r) // the sum, if both are one register
}

func compareExchange(e *Emulator, op *Op) {
	dst, src := &op.args[0], &op.args[1]
	acc := operand{kind: inGPR, size: op.size}
	old, want, with := e.read(op, dst), e.read(op, &acc), e.read(op, src)
	_, set, known := difference(want, old, clear0, op.size)
	e.setFlags(FlagsArith, set, known)
	switch {
	case known&ZF == 0: // one of them keeps its value
		if dst.kind == inMem {
			e.write(op, dst, agreed(old, with))
		} else {
			e.forgetPart(dst)
		}
		e.GPR[0] = e.maybe(0, op.size, old)
	case set&ZF != 0:
		e.rewritten(0, op.size)
		e.write(op, dst, with)
	default:
		if dst.kind == inMem {
			e.write(op, dst, old)
		} else {
			e.rewritten(dst.reg, op.size)
		}
		e.write(op, &acc, old)
	}
}

// agreed gives what two values have in common.
func agreed(a, b Value) Value {
	k := a.Known & b.Known &^ (a.Bits ^ b.Bits)
	return Value{a.Bits & k, k}
}

// maybe gives what is known of a register of which it is not known whether the value is written to it.
func (e *Emulator) maybe(reg, size uint8, v Value) Value {
	old := e.GPR[reg]
	e.setGPR(reg, size, 0, v)
	now := e.GPR[reg]
	e.GPR[reg] = old
	return agreed(old, now)
}

// rewritten says that a register of that size keeps its value, or has it written to it again, which zeroes the upper half: the manuals leave it open.
func (e *Emulator) rewritten(reg, size uint8) {
	if size == 4 {
		v := e.GPR[reg]
		e.GPR[reg] = agreed(v, Value{v.Bits & 0xffffffff, v.Known | ^uint64(0xffffffff)})
	}
}

// compareExchangeTwo is cmpxchg8b and cmpxchg16b.
func compareExchangeTwo(e *Emulator, op *Op) {
	half := uint8(op.mems[0].size / 2)
	const ax, cx, dx, bx = 0, 1, 2, 3
	reg := func(r uint8) Value { return e.read(op, &operand{kind: inGPR, reg: r, size: half}) }
	var low, high Value
	if e.known[0] {
		low, high = e.Mem.Load(e.addrs[0], int(half)), e.Mem.Load(e.addrs[0]+uint64(half), int(half))
	}
	a, d := reg(ax), reg(dx)
	m := widthMask(half)
	differs := (a.Bits^low.Bits)&a.Known&low.Known | (d.Bits^high.Bits)&d.Known&high.Known
	equal := a.Known&low.Known&d.Known&high.Known == m && differs == 0
	e.setFlag(ZF, bit{equal, equal || differs != 0})
	store := func(l, h Value) {
		if !e.known[0] {
			e.Mem.ForgetAll()
			return
		}
		e.Mem.Store(e.addrs[0], int(half), l)
		e.Mem.Store(e.addrs[0]+uint64(half), int(half), h)
	}
	switch {
	case equal:
		e.rewritten(ax, half)
		e.rewritten(dx, half)
		store(reg(bx), reg(cx))
	case differs != 0:
		store(low, high)
		e.setGPR(ax, half, 0, low)
		e.setGPR(dx, half, 0, high)
	default:
		store(agreed(low, reg(bx)), agreed(high, reg(cx)))
		e.GPR[ax], e.GPR[dx] = e.maybe(ax, half, low), e.maybe(dx, half, high)
	}
}

// product gives the double product of values of that size.
func product(a, b uint64, size uint8, sign bool) (high, low uint64) {
	s := 64 - 8*size
	if size == 8 {
		high, low = bits.Mul64(a, b)
		if sign {
			if int64(a) < 0 {
				high -= b
			}
			if int64(b) < 0 {
				high -= a
			}
		}
		return high, low
	}
	if sign {
		a, b = uint64(int64(a<<s)>>s), uint64(int64(b<<s)>>s)
	}
	p := a * b
	m := widthMask(size)
	return p >> (8 * size) & m, p & m
}

// multiplied sets CF and OF to whether the upper half matters; the others are undefined.
func (e *Emulator) multiplied(high, low uint64, size uint8, sign, known bool) {
	full := uint64(0)
	if sign && low>>(8*size-1)&1 != 0 {
		full = widthMask(size)
	}
	e.setFlags(FlagsArith, 0, 0)
	b := bit{high != full, known}
	e.setFlag(CF, b)
	e.setFlag(OF, b)
}

// double sets ax, or rdx and rax at the size, to a double number.
func (e *Emulator) double(high, low Value, size uint8) {
	if size == 1 {
		e.setGPR(0, 2, 0, Value{low.Bits | high.Bits<<8, low.Known | high.Known<<8})
		return
	}
	e.setGPR(0, size, 0, low)
	e.setGPR(2, size, 0, high)
}

// multiplyInto is mul and imul with one operand.
func (e *Emulator) multiplyInto(op *Op, sign bool) {
	a, b := e.read(op, &operand{kind: inGPR, size: op.size}), e.read(op, &op.args[0])
	m := widthMask(op.size)
	high, low := product(a.Bits, b.Bits, op.size, sign)
	if a.whole(op.size) && b.whole(op.size) {
		e.multiplied(high, low, op.size, sign, true)
		e.double(Value{high, m}, Value{low, m}, op.size)
		return
	}
	e.multiplied(0, 0, op.size, sign, false)
	k := lowKnown(a.Known&b.Known) & m
	e.double(Value{}, Value{low & k, k}, op.size)
}

func multiply(e *Emulator, op *Op) { e.multiplyInto(op, false) }

func multiplySigned(e *Emulator, op *Op) {
	if op.nargs == 1 {
		e.multiplyInto(op, true)
		return
	}
	a, b := e.read(op, &op.args[op.nargs-2]), e.read(op, &op.args[op.nargs-1])
	high, low := product(a.Bits, b.Bits, op.size, true)
	known := a.whole(op.size) && b.whole(op.size)
	e.multiplied(high, low, op.size, true, known)
	k := lowKnown(a.Known & b.Known)
	e.write(op, &op.args[0], Value{low & k, k})
}

func multiplyNoFlags(e *Emulator, op *Op) {
	a, b := e.read(op, &operand{kind: inGPR, reg: 2, size: op.size}), e.read(op, &op.args[2])
	high, low := product(a.Bits, b.Bits, op.size, false)
	k, kh := lowKnown(a.Known&b.Known), uint64(0)
	if a.whole(op.size) && b.whole(op.size) {
		kh = widthMask(op.size)
	}
	e.write(op, &op.args[1], Value{low & k, k})
	e.write(op, &op.args[0], Value{high & kh, kh}) // the upper half, if both are one register
}

// dividend gives the double number that div divides, and whether all is known.
func (e *Emulator) dividend(size uint8) (high, low uint64, known bool) {
	a, d := e.GPR[0], e.GPR[2]
	if size == 1 {
		return a.Bits >> 8 & 0xff, a.Bits & 0xff, a.whole(2)
	}
	m := widthMask(size)
	return d.Bits & m, a.Bits & m, a.whole(size) && d.whole(size)
}

// divided sets quotient and remainder. If they do not fit the processor raises an exception: then nothing is known of what comes next.
func (e *Emulator) divided(quotient, remainder uint64, size uint8, known, fits bool) {
	e.setFlags(FlagsArith, 0, 0)
	v := func(x uint64) Value { return Value{x & widthMask(size), widthMask(size)} }
	q, r := v(quotient), v(remainder)
	if !known || !fits {
		q, r = Value{}, Value{}
		if known {
			e.next, e.nextKnown = 0, false
		}
	}
	e.double(r, q, size)
}

func divide(e *Emulator, op *Op) {
	by := e.read(op, &op.args[0])
	high, low, known := e.dividend(op.size)
	known = known && by.whole(op.size)
	if !known || by.Bits <= high {
		e.divided(0, 0, op.size, known, false)
		return
	}
	if op.size < 8 {
		high, low = 0, high<<(8*op.size)|low
	}
	q, r := bits.Div64(high, low, by.Bits)
	e.divided(q, r, op.size, true, true)
}

func divideSigned(e *Emulator, op *Op) {
	by := e.read(op, &op.args[0])
	high, low, known := e.dividend(op.size)
	known = known && by.whole(op.size)
	d := int64(signed(by, op.size).Bits)
	if !known || d == 0 {
		e.divided(0, 0, op.size, known, false)
		return
	}
	if op.size < 8 { // the dividend as 128 bits
		w := 8 * op.size
		low |= high << w
		if op.size < 4 {
			low = uint64(int64(low<<(64-2*w)) >> (64 - 2*w))
		}
		high = uint64(int64(low) >> 63)
	}
	negative := int64(high) < 0
	if negative {
		var borrow uint64
		low, borrow = bits.Sub64(0, low, 0)
		high, _ = bits.Sub64(0, high, borrow)
	}
	magnitude := uint64(d)
	if d < 0 {
		magnitude = -magnitude
	}
	if magnitude <= high {
		e.divided(0, 0, op.size, true, false)
		return
	}
	q, r := bits.Div64(high, low, magnitude)
	limit := uint64(1) << (8*op.size - 1) // of the quotient, one less if it is positive
	fits := q < limit
	if negative != (d < 0) {
		fits = q <= limit
		q = -q
	}
	if negative {
		r = -r
	}
	e.divided(q, r, op.size, true, fits)
}

func addCarryCF(e *Emulator, op *Op) { e.addOneFlag(op, CF) }
func addCarryOF(e *Emulator, op *Op) { e.addOneFlag(op, OF) }

// addOneFlag is adcx and adox: the carry goes through one flag alone.
func (e *Emulator) addOneFlag(op *Op, f Flags) {
	r, set, known := sum(e.read(op, &op.args[0]), e.read(op, &op.args[1]), e.flag(f), op.size)
	e.setFlag(f, bit{set&CF != 0, known&CF != 0})
	e.write(op, &op.args[0], r)
}

func extendAccumulator(e *Emulator, op *Op) {
	half := op.size / 2
	v := e.read(op, &operand{kind: inGPR, size: half})
	e.setGPR(0, op.size, 0, signed(v, half))
}

func extendToDX(e *Emulator, op *Op) {
	v := signed(e.read(op, &operand{kind: inGPR, size: op.size}), op.size)
	e.setGPR(2, op.size, 0, Value{uint64(int64(v.Bits) >> 63), uint64(int64(v.Known) >> 63)})
}

func translateByte(e *Emulator, op *Op) { e.setGPR(0, 1, 0, e.load(0, 1)) }

func readFS(e *Emulator, op *Op)  { e.write(op, &op.args[0], e.FS) }
func readGS(e *Emulator, op *Op)  { e.write(op, &op.args[0], e.GS) }
func writeFS(e *Emulator, op *Op) { e.FS = e.base(op) }
func writeGS(e *Emulator, op *Op) { e.GS = e.base(op) }

// base gives the register that wrfsbase and its like read, extended by zeros.
func (e *Emulator) base(op *Op) Value {
	v := e.read(op, &op.args[0])
	v.Known |= ^widthMask(op.args[0].size)
	return v
}
