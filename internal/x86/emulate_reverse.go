package x86

// Reverse makes of what is known after the instruction, which lies at pc and was followed by the one at next, what was known before it: only what is
// certain. e.Mem is what is known of memory, likewise. Accesses then are the instruction's, by the registers as they were before it.
func (e *Emulator) Reverse(op *Op, pc, next uint64) {
	e.pc, e.next = pc, next
	e.Accesses = e.Accesses[:0]
	if op.undo != nil {
		op.undo(e, op)
	} else {
		e.undoByFacts(op)
	}
	if op.nmems != 0 {
		e.locate(op)
		e.report(op)
	}
}

// undoByFacts makes unknown what the instruction may have overwritten.
func (e *Emulator) undoByFacts(op *Op) {
	e.forgetRegisters(op)
	e.locate(op)
	e.forgetMemory(op)
	if op.flow == FlowFar || op.flow == FlowTrap || op.flow == FlowSyscall {
		e.State = State{}
		e.Mem.ForgetAll()
	}
}

// Follow adds what control's way says right after an Exec of the instruction: it went on at next. Flags that a condition tested, and what a jump's or call's operand held, may be
// known by it.
func (e *Emulator) Follow(op *Op, next uint64) {
	switch {
	case op.flow == FlowCond && op.exact:
		e.decided(op, next)
	case op.flow == FlowIndirectJump, op.flow == FlowIndirectCall && op.args[0].kind == inGPR && op.args[0].reg != rsp:
		e.learn(&op.args[0], Exactly(next))
	}
}

// decided learns the flags from where a conditional jump went.
func (e *Emulator) decided(op *Op, next uint64) {
	on := e.pc + uint64(op.length)
	target := e.pc + op.target
	if on == target {
		return
	}
	holds := next == target
	if op.cond&1 != 0 {
		holds = !holds
	}
	switch op.cond >> 1 {
	case 3:
		if !holds {
			e.setFlag(CF, clear0)
			e.setFlag(ZF, clear0)
		}
	case 6:
	case 7:
		if !holds {
			e.setFlag(ZF, clear0)
		}
	default:
		e.setFlag(oneFlag[op.cond>>1], bit{holds, true})
	}
}

// oneFlag are the flags of the conditions that look at one only.
var oneFlag = [8]Flags{0: OF, 1: CF, 2: ZF, 4: SF, 5: PF}

// restore sets what an operand held; of a register only the operand's bits.
func (e *Emulator) restore(op *Op, a *operand, v Value) {
	switch a.kind {
	case inGPR:
		m := widthMask(a.size)
		r := &e.GPR[a.reg]
		r.Bits = r.Bits&^(m<<a.shift) | v.Bits&m<<a.shift
		r.Known = r.Known&^(m<<a.shift) | v.Known&m<<a.shift
	case inMem:
		e.store(0, a.size, v)
	}
}

// learn adds to what is known of an operand, which the instruction leaves alone. What is known already stays.
func (e *Emulator) learn(a *operand, v Value) {
	m := widthMask(a.size)
	switch a.kind {
	case inGPR:
		r := &e.GPR[a.reg]
		k := v.Known & m << a.shift &^ r.Known
		r.Bits |= v.Bits << a.shift & k
		r.Known |= k
	case inMem:
		e.learnMemory(0, a.size, v)
	}
}

// learnMemory is learn for access i.
func (e *Emulator) learnMemory(i int, size uint8, v Value) {
	if !e.known[i] || v.Known == 0 {
		return
	}
	was := e.Mem.Load(e.addrs[i], int(size))
	k := v.Known &^ was.Known
	e.Mem.Store(e.addrs[i], int(size), Value{was.Bits | v.Bits&k, was.Known | k})
}

// forget makes unknown the memory of access i.
func (e *Emulator) forget(i int, size uint8) {
	if e.known[i] {
		e.Mem.Forget(e.addrs[i], uint64(size))
	} else {
		e.Mem.ForgetAll()
	}
}

// invert undoes an operation on its first operand: before gives what that held, from what it holds afterwards.
func (e *Emulator) invert(op *Op, before func(r Value) Value) {
	dst := &op.args[0]
	if dst.kind == inMem { // no register of the address changes
		e.forgetRegisters(op)
		e.locate(op)
		e.restore(op, dst, before(e.read(op, dst)))
		return
	}
	r := e.read(op, dst)
	e.forgetRegisters(op)
	e.locate(op)
	e.restore(op, dst, before(r))
}

// second reads the operand that the instruction leaves alone.
func (e *Emulator) second(op *Op) Value { return e.read(op, &op.args[1]) }

func (e *Emulator) less(op *Op, r, s Value) Value {
	v, _, _ := difference(r, s, clear0, op.size)
	return v
}

func (e *Emulator) more(op *Op, r, s Value) Value {
	v, _, _ := sum(r, s, clear0, op.size)
	return v
}

func undoAdd(e *Emulator, op *Op) {
	if op.same {
		e.invert(op, func(r Value) Value { return solved(r, 2, op.size) })
		return
	}
	e.invert(op, func(r Value) Value { return e.less(op, r, e.second(op)) })
}

func undoSubtract(e *Emulator, op *Op) {
	if op.same {
		e.undoByFacts(op)
		return
	}
	e.invert(op, func(r Value) Value { return e.more(op, r, e.second(op)) })
}

func undoXor(e *Emulator, op *Op) {
	if op.same {
		e.undoByFacts(op)
		return
	}
	e.invert(op, func(r Value) Value {
		s := e.second(op)
		k := r.Known & s.Known
		return Value{(r.Bits ^ s.Bits) & k, k}
	})
}

func undoIncrement(e *Emulator, op *Op) {
	e.invert(op, func(r Value) Value { return e.less(op, r, Exactly(1)) })
}

func undoDecrement(e *Emulator, op *Op) {
	e.invert(op, func(r Value) Value { return e.more(op, r, Exactly(1)) })
}

func undoNegate(e *Emulator, op *Op) {
	e.invert(op, func(r Value) Value { return e.less(op, Exactly(0), r) })
}

func undoNot(e *Emulator, op *Op) {
	e.invert(op, func(r Value) Value { return Value{^r.Bits & r.Known, r.Known} })
}

func undoByteSwap(e *Emulator, op *Op) {
	if op.size < 4 {
		e.undoByFacts(op)
		return
	}
	e.invert(op, func(r Value) Value { return swapped(r, op.size) })
}

// unshift undoes a shift or rotation by a count that is known and, if it is in cl, not changed.
func (e *Emulator) unshift(op *Op, before func(r Value, n uint8) Value) {
	e.invert(op, func(r Value) Value {
		n, known := e.shiftCount(op)
		if !known {
			return Value{}
		}
		return before(r, n)
	})
}

func undoShiftLeft(e *Emulator, op *Op) {
	e.unshift(op, func(r Value, n uint8) Value { return Value{r.Bits >> n, r.Known >> n} })
}

func undoShiftRight(e *Emulator, op *Op) {
	m := widthMask(op.size)
	e.unshift(op, func(r Value, n uint8) Value { return Value{r.Bits << n & m, r.Known << n & m} })
}

func undoRotateLeft(e *Emulator, op *Op) {
	w := 8 * op.size
	e.unshift(op, func(r Value, n uint8) Value { return rotated(r, (w-n%w)%w, op.size) })
}

func undoRotateRight(e *Emulator, op *Op) {
	w := 8 * op.size
	e.unshift(op, func(r Value, n uint8) Value { return rotated(r, n%w, op.size) })
}

// solved gives what is certain of x in x·factor = r, modulo the size.
func solved(r Value, factor uint64, size uint8) Value {
	if factor == 0 {
		return Value{}
	}
	m := widthMask(size)
	t := uint8(0)
	for ; factor&1 == 0; factor >>= 1 {
		t++
	}
	inverse := factor // right to 3 bits; each round doubles them
	for range 5 {
		inverse *= 2 - factor*inverse
	}
	k := lowKnown(r.Known) & m >> t
	return Value{r.Bits >> t * inverse & k, k}
}

func undoMultiply(e *Emulator, op *Op) {
	dst := &op.args[0]
	switch {
	case op.nargs == 3:
		r := e.read(op, dst)
		e.forgetRegisters(op)
		e.locate(op)
		e.learn(&op.args[1], solved(r, op.imm, op.size))
	case op.nargs == 2 && !op.same:
		e.invert(op, func(r Value) Value {
			if s := e.second(op); s.whole(op.size) {
				return solved(r, s.Bits, op.size)
			}
			return Value{}
		})
	default:
		e.undoByFacts(op)
	}
}

// undoMove is for moves that leave the source's bits in the lower part of the destination.
func undoMove(e *Emulator, op *Op) {
	dst, src := &op.args[0], &op.args[1]
	if dst.kind == inMem {
		e.locate(op)
		e.learn(src, e.read(op, dst))
		e.locate(op) // the source may be part of the address
		e.forget(0, dst.size)
		return
	}
	v := e.read(op, dst)
	e.forgetRegisters(op)
	e.locate(op)
	e.learn(src, v)
}

// undoLea solves for the register that the address has and the result replaces, or for one that is not known.
func undoLea(e *Emulator, op *Op) {
	dst, m := &op.args[0], &op.mems[0]
	r := e.read(op, dst)
	e.forgetRegisters(op)
	if m.base == ipBase {
		return
	}
	one := func(reg uint8, mask, factor uint64, rest Value) {
		v, _, _ := difference(r, rest, clear0, op.size)
		v = solved(v, factor, op.size)
		e.learn(&operand{kind: inGPR, reg: reg, size: 8}, Value{v.Bits & mask, v.Known & mask})
	}
	part := func(reg uint8, mask uint64, shift uint8) Value {
		v := e.GPR[reg]
		return Value{(v.Bits&mask)<<shift + m.disp, lowKnown((v.Known|^mask)<<shift | (1<<shift - 1))}.settled()
	}
	based, indexed := m.base < numGPR, m.index < numGPR
	disp := Exactly(m.disp)
	factor := uint64(1) << m.shift
	if m.narrow && dst.size > 4 { // cut to 32 bits: the result's upper half says nothing
		r = Value{r.Bits & 0xffffffff, r.Known & 0xffffffff}
	}
	switch {
	case based && indexed && m.base == m.index:
		one(m.base, m.mask, 1+factor, disp)
	case based && indexed:
		if m.index == dst.reg || m.base != dst.reg && e.GPR[m.base].Whole() {
			one(m.index, m.inMask, factor, part(m.base, m.mask, 0))
		} else {
			one(m.base, m.mask, 1, part(m.index, m.inMask, m.shift))
		}
	case based:
		one(m.base, m.mask, 1, disp)
	case indexed:
		one(m.index, m.inMask, factor, disp)
	}
}

// settled clears the bits that are not known.
func (v Value) settled() Value { return Value{v.Bits & v.Known, v.Known} }

func undoExchange(e *Emulator, op *Op) {
	x, y := &op.args[0], &op.args[1]
	b := e.read(op, y)
	if x.kind != inMem {
		a := e.read(op, x)
		e.forgetRegisters(op)
		e.restore(op, y, a)
		e.restore(op, x, b)
		return
	}
	e.forgetRegisters(op)
	e.locate(op)
	e.restore(op, y, e.read(op, x))
	e.restore(op, x, b)
}

func undoExchangeAdd(e *Emulator, op *Op) {
	x, y := &op.args[0], &op.args[1]
	if op.same {
		e.undoByFacts(op)
		return
	}
	d := e.read(op, y)
	var r Value
	if x.kind != inMem {
		r = e.read(op, x)
	}
	e.forgetRegisters(op)
	e.locate(op)
	if x.kind == inMem {
		r = e.read(op, x)
	}
	e.restore(op, y, e.less(op, r, d))
	e.restore(op, x, d)
}

// undoCompare learns from ZF that the operands were equal.
func undoCompare(e *Emulator, op *Op) {
	e.undoTested(op, func(x, y *operand) {
		a, b := e.read(op, x), e.read(op, y)
		e.learn(x, b)
		e.learn(y, a)
	})
}

// undoTest learns from ZF that a register tested with itself was 0.
func undoTest(e *Emulator, op *Op) {
	e.undoTested(op, func(x, y *operand) {
		if op.same {
			e.learn(x, Exactly(0))
		}
	})
}

func (e *Emulator) undoTested(op *Op, equal func(x, y *operand)) {
	z := e.flag(ZF)
	e.forgetRegisters(op)
	e.locate(op)
	if z.known && z.set {
		equal(&op.args[0], &op.args[1])
	}
}

func undoExtendAccumulator(e *Emulator, op *Op) {
	half := operand{kind: inGPR, size: op.size / 2}
	v := e.read(op, &half)
	e.forgetRegisters(op)
	e.restore(op, &half, v)
}

// unwind undoes the change of rsp by n bytes, and finds the addresses.
func (e *Emulator) unwind(op *Op, n uint64) {
	v := e.GPR[rsp]
	e.forgetRegisters(op)
	e.GPR[rsp] = v
	e.addTo(rsp, n)
	e.locate(op)
}

func undoPush(e *Emulator, op *Op) {
	i := op.stack()
	size := uint8(op.mems[i].size)
	e.unwind(op, uint64(size))
	e.learn(&op.args[0], e.load(i, size))
	e.forget(i, size)
}

func undoPop(e *Emulator, op *Op) {
	i, dst := op.stack(), &op.args[0]
	size := uint8(op.mems[i].size)
	if dst.kind == inGPR && dst.reg == rsp {
		e.undoByFacts(op)
		return
	}
	var v Value
	if dst.kind == inGPR {
		v = e.read(op, dst)
	}
	e.unwind(op, -uint64(size))
	if dst.kind == inMem {
		v = e.load(0, size)
		e.forget(0, size)
	}
	e.learnMemory(i, size, v)
}

// undoLeave: rsp was overwritten by rbp, rbp by what lies there.
func undoLeave(e *Emulator, op *Op) {
	size := uint8(op.mems[0].size)
	sp, v := e.GPR[rsp], e.GPR[rbp]
	e.forgetRegisters(op)
	e.GPR[rbp] = sp
	e.addTo(rbp, -uint64(size))
	e.locate(op)
	e.learnMemory(0, size, v)
}

func undoCall(e *Emulator, op *Op) {
	e.unwind(op, 8)
	e.forget(op.stack(), 8)
	if op.args[0].kind != immediateOperand {
		e.learn(&op.args[0], Exactly(e.next))
	}
}

func undoRet(e *Emulator, op *Op) {
	e.unwind(op, -(8 + op.imm&0xffff))
	e.learnMemory(0, 8, Exactly(e.next))
}

func undoJump(e *Emulator, op *Op) {
	if op.args[0].kind != immediateOperand {
		e.locate(op)
		e.learn(&op.args[0], Exactly(e.next))
	}
}

func undoBranch(e *Emulator, op *Op) { e.decided(op, e.next) }

func undoPushFlags(e *Emulator, op *Op) {
	size := uint8(op.mems[0].size)
	e.unwind(op, uint64(size))
	e.forget(0, size)
}

func undoPopFlags(e *Emulator, op *Op) { e.unwind(op, -uint64(op.mems[0].size)) }

func undoLoop(e *Emulator, op *Op) {
	v := e.GPR[rcx]
	e.forgetRegisters(op)
	e.GPR[rcx] = v
	e.addTo(rcx, 1)
}

// undoSystemCall: after rt_sigreturn control does not go on behind the call.
func undoSystemCall(e *Emulator, op *Op) {
	e.Mem.ForgetAll()
	if e.next != e.pc+uint64(op.length) {
		e.State = State{}
		return
	}
	flags, known := e.Flags, e.FlagsKnown
	e.forgetRegisters(op)
	e.Flags, e.FlagsKnown = flags, known
}

// undoString takes the index registers back; not over the unknown number of rounds of a repeated one.
func undoString(e *Emulator, op *Op) {
	down := e.flag(DF)
	if op.rep != noRep || !down.known {
		e.undoByFacts(op)
		return
	}
	step, after := -uint64(op.size), e.GPR
	if down.set {
		step = -step
	}
	e.forgetRegisters(op)
	for i := range op.nmems {
		reg := op.mems[i].base
		e.GPR[reg] = after[reg]
		e.addTo(int(reg), step)
	}
	e.locate(op)
	e.forgetMemory(op)
	if op.mems[0].base == rsi && op.nmems == 1 { // lods
		e.learnMemory(0, op.size, after[0])
	}
}
