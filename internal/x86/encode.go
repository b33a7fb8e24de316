package x86

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// ErrReach says that a branch or a RIP-relative operand lies more than 2 GiB from what it refers to.
var ErrReach = fmt.Errorf("x86: out of reach of a 32-bit distance")

// Code is machine code as it is written, an instruction a call: what a trampoline needs, not a general assembler. Registers are given by the name that
// says their size; operands that do not exist together (an index rsp, two sizes, ah) are a bug of the caller's. What lies out of reach is
// an error that Err gives.
type Code struct {
	At    uint64 // where the first byte will lie
	Bytes []byte
	err   error
}

// Err gives the first error, ErrReach or nil.
func (c *Code) Err() error { return c.err }

// PC gives the address where the next instruction will lie.
func (c *Code) PC() uint64 { return c.At + uint64(len(c.Bytes)) }

// Abs is the memory of size bytes at an address: RIP-relative if that reaches there, else with the address itself if it has 31 bits.
func Abs(addr uint64, size int) Mem { return Mem{Scale: 1, Disp: int64(addr), Size: uint16(size)} }

// A Cond is a condition of jcc and setcc; its lowest bit negates it.
type Cond uint8

// Conditions, as they are encoded.
const (
	CondO Cond = iota
	CondNO
	CondB
	CondAE
	CondE
	CondNE
	CondBE
	CondA
	CondS
	CondNS
	CondP
	CondNP
	CondL
	CondGE
	CondLE
	CondG
)

// An Arith is an arithmetic operation, as encoded.
type Arith uint8

// Arithmetic operations.
const (
	Add Arith = iota
	Or
	Adc
	Sbb
	And
	Sub
	Xor
	Cmp
)

func bug(format string, args ...any) { panic("BUG: x86: " + fmt.Sprintf(format, args...)) }

// gpr gives a general register's number and size.
func gpr(r Reg) (n uint8, size int) {
	if r.Class() != ClassGPR || r >= AH && r < AX {
		bug("encoding the register %v", r)
	}
	return uint8(r.Num()), r.Size()
}

// An emission is an instruction being put together.
type emission struct {
	lock   bool
	size   int // of the operation: 1, 2, 4, 8
	noW    bool
	op     []byte
	reg    uint8 // ModRM.reg
	byteRe bool  // reg, or rm, is one of spl, bpl, sil and dil
	imm    []byte
}

// prefixes writes the prefixes and the opcode; r, x and b are the high bits of the numbers of registers.
func (c *Code) prefixes(e *emission, seg Reg, narrow bool, x, b uint8) {
	if e.lock {
		c.Bytes = append(c.Bytes, 0xf0)
	}
	switch seg {
	case NoReg:
	case FS:
		c.Bytes = append(c.Bytes, 0x64)
	case GS:
		c.Bytes = append(c.Bytes, 0x65)
	default:
		bug("encoding the segment %v", seg)
	}
	if narrow {
		c.Bytes = append(c.Bytes, 0x67)
	}
	if e.size == 2 {
		c.Bytes = append(c.Bytes, 0x66)
	}
	rex := e.reg>>3<<2 | x>>3<<1 | b>>3
	if e.size == 8 && !e.noW {
		rex |= 8
	}
	if rex != 0 || e.byteRe {
		c.Bytes = append(c.Bytes, 0x40|rex)
	}
	c.Bytes = append(c.Bytes, e.op...)
}

// withReg writes an instruction whose ModRM.rm is a register.
func (c *Code) withReg(e emission, rm Reg) {
	n, size := gpr(rm)
	e.byteRe = e.byteRe || size == 1 && n >= 4 && n < 8
	c.prefixes(&e, NoReg, false, 0, n)
	c.Bytes = append(c.Bytes, 0xc0|e.reg&7<<3|n&7)
	c.Bytes = append(c.Bytes, e.imm...)
}

// withMem writes an instruction whose ModRM.rm is memory.
func (c *Code) withMem(e emission, m Mem) {
	var base, index uint8 = 0, 4
	narrow := m.Base.Size() == 4 || m.Index.Size() == 4
	address := func(r Reg) uint8 {
		n, size := gpr(r)
		if size < 4 || narrow != (size == 4) {
			bug("encoding the address %v", m.text())
		}
		return n
	}
	if m.Index != NoReg {
		if index = address(m.Index); index == 4 {
			bug("encoding rsp as an index")
		}
	}
	if m.Scale > 8 || bits.OnesCount8(m.Scale) > 1 {
		bug("encoding the scale %d", m.Scale)
	}
	scale := uint8(bits.TrailingZeros8(max(m.Scale, 1)))
	reg := e.reg & 7 << 3
	disp32 := func(d int64) []byte {
		if d != int64(int32(d)) {
			c.fail()
		}
		return binary.LittleEndian.AppendUint32(nil, uint32(d))
	}
	switch {
	case m.RIPRelative() || m.Base == NoReg && m.Index == NoReg && m.Seg == NoReg:
		c.prefixes(&e, m.Seg, m.Base == EIP, 0, 0)
		d := m.Disp
		if m.Base == NoReg {
			d -= int64(c.PC() + 5 + uint64(len(e.imm)))
			if d != int64(int32(d)) && m.Disp == int64(int32(m.Disp)) && m.Disp >= 0 {
				c.Bytes = append(c.Bytes, 4|reg, 0x25)
				c.Bytes = append(append(c.Bytes, disp32(m.Disp)...), e.imm...)
				return
			}
		}
		c.Bytes = append(append(c.Bytes, 5|reg), disp32(d)...)
	case m.Base == NoReg:
		c.prefixes(&e, m.Seg, narrow, index, 0)
		c.Bytes = append(append(c.Bytes, 4|reg, scale<<6|index&7<<3|5), disp32(m.Disp)...)
	default:
		base = address(m.Base)
		c.prefixes(&e, m.Seg, narrow, index&8, base)
		mod, d := uint8(0x80), []byte(nil)
		switch {
		case m.Disp == 0 && base&7 != 5:
			mod = 0
		case m.Disp == int64(int8(m.Disp)):
			mod, d = 0x40, []byte{byte(m.Disp)}
		default:
			d = disp32(m.Disp)
		}
		if index != 4 || base&7 == 4 {
			c.Bytes = append(c.Bytes, mod|reg|4, scale<<6|index&7<<3|base&7)
		} else {
			c.Bytes = append(c.Bytes, mod|reg|base&7)
		}
		c.Bytes = append(c.Bytes, d...)
	}
	c.Bytes = append(c.Bytes, e.imm...)
}

func (c *Code) fail() {
	if c.err == nil {
		c.err = ErrReach
	}
}

// sized makes an emission whose opcode is even for bytes and odd for words, with a register in ModRM.reg.
func sized(op byte, size int, reg uint8, byteReg bool) emission {
	switch size {
	case 1:
	case 2, 4, 8:
		op |= 1
	default:
		bug("encoding an operation of %d bytes", size)
	}
	return emission{size: size, op: []byte{op}, reg: reg, byteRe: byteReg && size == 1 && reg >= 4 && reg < 8}
}

func sameSize(a, b int) {
	if a != b {
		bug("encoding operands of %d and %d bytes", a, b)
	}
}

func imm32(v int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

// Mov copies a register.
func (c *Code) Mov(dst, src Reg) {
	n, size := gpr(src)
	sameSize(dst.Size(), size)
	c.withReg(sized(0x88, size, n, true), dst)
}

// MovImm sets a register of 32 or 64 bits, by the shortest encoding. Flags are left alone.
func (c *Code) MovImm(dst Reg, v uint64) {
	n, size := gpr(dst)
	e := emission{size: size}
	switch {
	case size == 4 || size == 8 && v>>32 == 0:
		e.size = 4
		e.op = []byte{0xb8 | n&7}
		c.prefixes(&e, NoReg, false, 0, n)
		c.Bytes = binary.LittleEndian.AppendUint32(c.Bytes, uint32(v))
	case size == 8 && int64(v) == int64(int32(v)):
		e.op, e.imm = []byte{0xc7}, imm32(int32(v))
		c.withReg(e, dst)
	case size == 8:
		e.op = []byte{0xb8 | n&7}
		c.prefixes(&e, NoReg, false, 0, n)
		c.Bytes = binary.LittleEndian.AppendUint64(c.Bytes, v)
	default:
		bug("encoding mov %v, imm", dst)
	}
}

// Load reads memory into a register of the same size.
func (c *Code) Load(dst Reg, m Mem) {
	n, size := gpr(dst)
	c.withMem(sized(0x8a, size, n, true), m)
}

// LoadZX reads 1 or 2 bytes of memory into a 32-bit register.
func (c *Code) LoadZX(dst Reg, m Mem) {
	n, size := gpr(dst)
	sameSize(size, 4)
	op := map[uint16]byte{1: 0xb6, 2: 0xb7}[m.Size]
	if op == 0 {
		bug("encoding movzx of %d bytes", m.Size)
	}
	c.withMem(emission{size: 4, op: []byte{0x0f, op}, reg: n}, m)
}

// Store writes a register to memory.
func (c *Code) Store(m Mem, src Reg) {
	n, size := gpr(src)
	c.withMem(sized(0x88, size, n, true), m)
}

// StoreImm writes a number to memory of the operand's size; to 8 bytes it goes sign-extended.
func (c *Code) StoreImm(m Mem, v int32) {
	e := sized(0xc6, int(m.Size), 0, false)
	e.imm = imm32(v)[:min(m.Size, 4)]
	c.withMem(e, m)
}

// Lea computes an address.
func (c *Code) Lea(dst Reg, m Mem) {
	n, size := gpr(dst)
	if size < 4 {
		bug("encoding lea %v", dst)
	}
	m.Seg = NoReg
	c.withMem(emission{size: size, op: []byte{0x8d}, reg: n}, m)
}

// oneByte writes an opcode that holds a 64-bit register's number.
func (c *Code) oneByte(op byte, r Reg) {
	n, size := gpr(r)
	sameSize(size, 8)
	c.prefixes(&emission{size: 8, noW: true, op: []byte{op | n&7}}, NoReg, false, 0, n)
}

// Push pushes a 64-bit register.
func (c *Code) Push(r Reg) { c.oneByte(0x50, r) }

// Pop pops a 64-bit register.
func (c *Code) Pop(r Reg) { c.oneByte(0x58, r) }

// PushMem pushes 8 bytes of memory.
func (c *Code) PushMem(m Mem) { c.withMem(emission{size: 8, noW: true, op: []byte{0xff}, reg: 6}, m) }

// PopMem pops 8 bytes into memory.
func (c *Code) PopMem(m Mem) { c.withMem(emission{size: 8, noW: true, op: []byte{0x8f}}, m) }

// PushImm pushes a number, sign-extended to 64 bits.
func (c *Code) PushImm(v int32) { c.Bytes = append(append(c.Bytes, 0x68), imm32(v)...) }

// Pushf pushes RFLAGS.
func (c *Code) Pushf() { c.Bytes = append(c.Bytes, 0x9c) }

// Popf pops RFLAGS.
func (c *Code) Popf() { c.Bytes = append(c.Bytes, 0x9d) }

// Lahf puts SF, ZF, AF, PF and CF into ah.
func (c *Code) Lahf() { c.Bytes = append(c.Bytes, 0x9f) }

// Cld clears DF.
func (c *Code) Cld() { c.Bytes = append(c.Bytes, 0xfc) }

// Sahf takes them from ah.
func (c *Code) Sahf() { c.Bytes = append(c.Bytes, 0x9e) }

// Set sets an 8-bit register to 1 if the condition holds, else to 0.
func (c *Code) Set(cond Cond, r Reg) {
	_, size := gpr(r)
	sameSize(size, 1)
	c.withReg(emission{size: 1, op: []byte{0x0f, 0x90 | byte(cond&15)}}, r)
}

// Arith does dst = dst op src with registers; Cmp writes only flags.
func (c *Code) Arith(op Arith, dst, src Reg) {
	n, size := gpr(src)
	sameSize(dst.Size(), size)
	c.withReg(sized(byte(op&7)<<3, size, n, true), dst)
}

// ArithLoad does dst = dst op memory.
func (c *Code) ArithLoad(op Arith, dst Reg, m Mem) {
	n, size := gpr(dst)
	c.withMem(sized(byte(op&7)<<3|2, size, n, true), m)
}

// ArithStore does memory = memory op src, with a lock prefix if the memory is MemLocked.
func (c *Code) ArithStore(op Arith, m Mem, src Reg) {
	n, size := gpr(src)
	e := sized(byte(op&7)<<3, size, n, true)
	e.lock = locked(m, op != Cmp)
	c.withMem(e, m)
}

func locked(m Mem, may bool) bool {
	if m.Kind&MemLocked != 0 && !may {
		bug("encoding lock of an operation that only reads")
	}
	return m.Kind&MemLocked != 0
}

// arithImm makes the emission for op with a number: of 8 bits if that does.
func arithImm(op Arith, size int, v int32) emission {
	e := sized(0x80, size, uint8(op&7), false)
	e.imm = imm32(v)[:min(size, 4)]
	if v == int32(int8(v)) && size > 1 {
		e.op, e.imm = []byte{0x83}, []byte{byte(v)}
	}
	return e
}

// ArithImm does dst = dst op v, sign-extended.
func (c *Code) ArithImm(op Arith, dst Reg, v int32) {
	_, size := gpr(dst)
	c.withReg(arithImm(op, size, v), dst)
}

// ArithStoreImm does memory = memory op v, with a lock prefix if the memory is MemLocked.
func (c *Code) ArithStoreImm(op Arith, m Mem, v int32) {
	e := arithImm(op, int(m.Size), v)
	e.lock = locked(m, op != Cmp)
	c.withMem(e, m)
}

// Inc adds 1 to memory and leaves CF alone, with a lock prefix if the memory is MemLocked.
func (c *Code) Inc(m Mem) {
	e := sized(0xfe, int(m.Size), 0, false)
	e.lock = locked(m, true)
	c.withMem(e, m)
}

// Test sets the flags of a & b.
func (c *Code) Test(a, b Reg) {
	n, size := gpr(b)
	sameSize(a.Size(), size)
	c.withReg(sized(0x84, size, n, true), a)
}

// TestImm sets the flags of a register of 32 or 64 bits & v, sign-extended.
func (c *Code) TestImm(r Reg, v int32) {
	_, size := gpr(r)
	e := sized(0xf6, size, 0, false)
	e.imm = imm32(v)[:min(size, 4)]
	c.withReg(e, r)
}

// TestMem sets the flags of memory & v, sign-extended.
func (c *Code) TestMem(m Mem, v int32) {
	e := sized(0xf6, int(m.Size), 0, false)
	e.imm = imm32(v)[:min(m.Size, 4)]
	c.withMem(e, m)
}

// Shr shifts a register of 32 or 64 bits right by n.
func (c *Code) Shr(r Reg, n uint8) { c.shift(5, r, n) }

// Shl shifts a register of 32 or 64 bits left by n.
func (c *Code) Shl(r Reg, n uint8) { c.shift(4, r, n) }

func (c *Code) shift(digit uint8, r Reg, n uint8) {
	_, size := gpr(r)
	e := sized(0xc0, size, digit, false)
	e.imm = []byte{n}
	c.withReg(e, r)
}

// Xsave saves the components in edx:eax, in the standard form.
func (c *Code) Xsave(m Mem) { c.withMem(emission{size: 8, op: []byte{0x0f, 0xae}, reg: 4}, m) }

// Xsavec saves them in the compact form, without those in their initial state.
func (c *Code) Xsavec(m Mem) { c.withMem(emission{size: 8, op: []byte{0x0f, 0xc7}, reg: 4}, m) }

// Xrstor restores them, from either form.
func (c *Code) Xrstor(m Mem) { c.withMem(emission{size: 8, op: []byte{0x0f, 0xae}, reg: 5}, m) }

// Xchg swaps a register with memory, atomically.
func (c *Code) Xchg(m Mem, r Reg) {
	n, size := gpr(r)
	c.withMem(sized(0x86, size, n, true), m)
}

// rel32 appends the distance from the end of the instruction.
func (c *Code) rel32(to uint64) {
	d := int64(to - c.PC() - 4)
	if d != int64(int32(d)) {
		c.fail()
	}
	c.Bytes = binary.LittleEndian.AppendUint32(c.Bytes, uint32(d))
}

// Jmp jumps to an address, in five bytes.
func (c *Code) Jmp(to uint64) {
	c.Bytes = append(c.Bytes, 0xe9)
	c.rel32(to)
}

// Jcc jumps to an address if the condition holds, in six bytes.
func (c *Code) Jcc(cond Cond, to uint64) {
	c.Bytes = append(c.Bytes, 0x0f, 0x80|byte(cond&15))
	c.rel32(to)
}

// Call calls an address, in five bytes.
func (c *Code) Call(to uint64) {
	c.Bytes = append(c.Bytes, 0xe8)
	c.rel32(to)
}

// JmpReg jumps to where a 64-bit register points.
func (c *Code) JmpReg(r Reg) { c.indirect(4, r) }

// CallReg calls where a 64-bit register points.
func (c *Code) CallReg(r Reg) { c.indirect(2, r) }

func (c *Code) indirect(digit uint8, r Reg) {
	_, size := gpr(r)
	sameSize(size, 8)
	c.withReg(emission{size: 8, noW: true, op: []byte{0xff}, reg: digit}, r)
}

// JmpMem jumps to the address that memory holds.
func (c *Code) JmpMem(m Mem) { c.withMem(emission{size: 8, noW: true, op: []byte{0xff}, reg: 4}, m) }

// CallMem calls the address that memory holds.
func (c *Code) CallMem(m Mem) { c.withMem(emission{size: 8, noW: true, op: []byte{0xff}, reg: 2}, m) }

// Ret returns.
func (c *Code) Ret() { c.Bytes = append(c.Bytes, 0xc3) }

// Int3 traps.
func (c *Code) Int3() { c.Bytes = append(c.Bytes, 0xcc) }

// A Label is a place in the code that is jumped to before it is known.
type Label struct {
	fix []int // where rel32 to it lie
}

// JccTo jumps to a label if the condition holds.
func (c *Code) JccTo(cond Cond, l *Label) {
	c.Jcc(cond, c.PC())
	l.fix = append(l.fix, len(c.Bytes)-4)
}

// JmpTo jumps to a label.
func (c *Code) JmpTo(l *Label) {
	c.Jmp(c.PC())
	l.fix = append(l.fix, len(c.Bytes)-4)
}

// Bind puts the label here. All jumps to it must have been written.
func (c *Code) Bind(l *Label) {
	for _, at := range l.fix {
		binary.LittleEndian.PutUint32(c.Bytes[at:], uint32(len(c.Bytes)-at-4))
	}
	l.fix = nil
}

// nops are the no-operations of each length that the manual recommends (Intel SDM vol. 2, NOP).
var nops = [...]string{
	1: "\x90", 2: "\x66\x90", 3: "\x0f\x1f\x00", 4: "\x0f\x1f\x40\x00", 5: "\x0f\x1f\x44\x00\x00", 6: "\x66\x0f\x1f\x44\x00\x00",
	7: "\x0f\x1f\x80\x00\x00\x00\x00", 8: "\x0f\x1f\x84\x00\x00\x00\x00\x00", 9: "\x66\x0f\x1f\x84\x00\x00\x00\x00\x00",
}

// Nop fills n bytes with as few instructions as may be.
func (c *Code) Nop(n int) {
	for n > 0 {
		k := min(n, len(nops)-1)
		c.Bytes = append(c.Bytes, nops[k]...)
		n -= k
	}
}
