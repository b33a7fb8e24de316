package x86

// condition gives whether the op's condition holds (Intel SDM vol. 1, appendix B).
func (e *Emulator) condition(op *Op) bit {
	var b bit
	c, z, s, o := e.flag(CF), e.flag(ZF), e.flag(SF), e.flag(OF)
	switch op.cond >> 1 {
	case 0:
		b = o
	case 1:
		b = c
	case 2:
		b = z
	case 3:
		b = either(c, z)
	case 4:
		b = s
	case 5:
		b = e.flag(PF)
	case 6:
		b = bit{s.set != o.set, s.known && o.known}
	default:
		b = either(bit{s.set != o.set, s.known && o.known}, z)
	}
	if op.cond&1 != 0 {
		b.set = !b.set
	}
	return b
}

// either says whether one of two is set.
func either(a, b bit) bit {
	return bit{a.known && a.set || b.known && b.set, a.known && b.known || a.known && a.set || b.known && b.set}
}

func jcc(e *Emulator, op *Op) { e.branch(op, e.condition(op)) }

// branch goes to the target or on.
func (e *Emulator) branch(op *Op, b bit) {
	switch {
	case !b.known:
		e.next, e.nextKnown = 0, false
	case b.set:
		e.next = e.pc + op.target
	}
}

func setcc(e *Emulator, op *Op) {
	b, v := e.condition(op), Value{Known: 0xfe}
	if b.known {
		v.Known = 0xff
		if b.set {
			v.Bits = 1
		}
	}
	e.write(op, &op.args[0], v)
}

// cmovcc writes the destination in any case, so that the upper half of a 32-bit one is zeroed.
func cmovcc(e *Emulator, op *Op) {
	b, old, from := e.condition(op), e.read(op, &op.args[0]), e.read(op, &op.args[1])
	switch {
	case !b.known:
		from = agreed(old, from)
	case !b.set:
		from = old
	}
	e.write(op, &op.args[0], from)
}

// addTo adds to a register.
func (e *Emulator) addTo(reg int, n uint64) {
	v := &e.GPR[reg]
	k := lowKnown(v.Known)
	*v = Value{(v.Bits + n) & k, k}
}

const (
	rcx = 1
	rsp = 4
	rbp = 5
	rsi = 6
	rdi = 7
)

// The stack's access is the last one of those that push and pop.
func (op *Op) stack() int { return int(op.nmems) - 1 }

func push(e *Emulator, op *Op) {
	i := op.stack()
	size := uint8(op.mems[i].size)
	v := e.read(op, &op.args[0])
	e.store(i, size, v)
	e.addTo(rsp, -uint64(size))
}

func pop(e *Emulator, op *Op) {
	i := op.stack()
	size := uint8(op.mems[i].size)
	v := e.load(i, size)
	e.addTo(rsp, uint64(size))
	e.write(op, &op.args[0], v)
}

func leave(e *Emulator, op *Op) {
	size := uint8(op.mems[0].size)
	v := e.load(0, size)
	e.GPR[rsp] = e.GPR[rbp]
	e.addTo(rsp, uint64(size))
	e.setGPR(rbp, size, 0, v)
}

func call(e *Emulator, op *Op) {
	e.jumpTo(op)
	e.store(op.stack(), 8, Exactly(e.pc+uint64(op.length)))
	e.addTo(rsp, ^uint64(7))
}

func jump(e *Emulator, op *Op) { e.jumpTo(op) }

// jumpTo goes to a relative target, or where the operand says.
func (e *Emulator) jumpTo(op *Op) {
	if op.args[0].kind == immediateOperand {
		e.next = e.pc + op.target
		return
	}
	e.goTo(e.read(op, &op.args[0]))
}

func (e *Emulator) goTo(v Value) {
	e.next, e.nextKnown = v.Bits, v.Whole()
	if !e.nextKnown {
		e.next = 0
	}
}

func ret(e *Emulator, op *Op) {
	e.goTo(e.load(0, 8))
	e.addTo(rsp, 8+op.imm&0xffff)
}

func jumpRCX(e *Emulator, op *Op) {
	v := e.read(op, &operand{kind: inGPR, reg: rcx, size: op.size})
	e.branch(op, bit{v.Bits == 0, v.Bits != 0 || v.whole(op.size)})
}

func loop(e *Emulator, op *Op) {
	e.addTo(rcx, ^uint64(0))
	v, z := e.GPR[rcx], e.flag(ZF)
	b := bit{v.Bits != 0, v.Bits != 0 || v.Whole()}
	if op.cond != 0 {
		if op.cond == 2 {
			z.set = !z.set
		}
		b = either(bit{!b.set, b.known}, bit{!z.set, z.known})
		b.set = !b.set
	}
	e.branch(op, b)
}

// systemCall forgets memory and what the call does not preserve. rt_sigreturn restores all registers, so all is unknown, and where it goes too.
func systemCall(e *Emulator, op *Op) {
	const sigreturn = 15
	nr := e.GPR[0]
	e.Mem.ForgetAll()
	if nr.Whole() && nr.Bits == sigreturn {
		e.State = State{}
		e.next, e.nextKnown = 0, false
		return
	}
	flags, known := e.Flags, e.FlagsKnown
	e.forgetRegisters(op)
	e.Flags, e.FlagsKnown = flags, known
}

func loadFlags(e *Emulator, op *Op) {
	const ones, mask = 2, uint64(SF | ZF | AF | PF | CF)
	v := Value{uint64(e.Flags)&mask | ones, uint64(e.FlagsKnown)&mask | ^mask&0xff}
	e.setGPR(0, 1, 8, v)
}

func storeFlags(e *Emulator, op *Op) {
	v := e.GPR[0]
	e.setFlags(SF|ZF|AF|PF|CF, Flags(v.Bits>>8&0xff), Flags(v.Known>>8&0xff))
}

// Bits of RFLAGS that are always the same: 1, and 3, 5 and 15.
const (
	flagsOne  = 1 << 1
	flagsZero = 1<<3 | 1<<5 | 1<<15
)

func pushFlags(e *Emulator, op *Op) {
	size := uint8(op.mems[0].size)
	e.store(0, size, Value{uint64(e.Flags) | flagsOne, uint64(e.FlagsKnown) | flagsOne | flagsZero | ^uint64(0xffffffff)})
	e.addTo(rsp, -uint64(size))
}

func popFlags(e *Emulator, op *Op) {
	size := uint8(op.mems[0].size)
	v := e.load(0, size)
	e.setFlags(FlagsArith|DF, Flags(v.Bits), Flags(v.Known))
	e.addTo(rsp, uint64(size))
}

// setOne gives clc and its like.
func setOne(f Flags, set bool) func(*Emulator, *Op) {
	return func(e *Emulator, op *Op) { e.setFlag(f, bit{set, true}) }
}

func complementCarry(e *Emulator, op *Op) {
	c := e.flag(CF)
	e.setFlag(CF, bit{!c.set, c.known})
}

// zeroLine is clzero, which ignores the address's lower bits; its facts do not tell.
func zeroLine(e *Emulator, op *Op) { e.Mem.ForgetAll() }
