package x86

import "golang.org/x/arch/x86/x86asm"

// A Reg names a register as an operand does: EAX and RAX are two names of one register, whose number is Num.
type Reg uint8

// The first register of each class; the others follow by their number.
const (
	NoReg Reg = 0
	AL    Reg = 1         // al to r15b, with spl, bpl, sil and dil
	AH    Reg = AL + 16   // ah, ch, dh, bh
	AX    Reg = AH + 4    // ax to r15w
	EAX   Reg = AX + 16   // eax to r15d
	RAX   Reg = EAX + 16  // rax to r15
	RIP   Reg = RAX + 16  // the address of the next instruction
	EIP   Reg = RIP + 1   // the same, cut to 32 bits by an address-size prefix
	ST0   Reg = EIP + 1   // st(0) to st(7)
	MM0   Reg = ST0 + 8   // mm0 to mm7
	XMM0  Reg = MM0 + 8   // xmm0 to xmm31
	YMM0  Reg = XMM0 + 32 // ymm0 to ymm31
	ZMM0  Reg = YMM0 + 32 // zmm0 to zmm31
	K0    Reg = ZMM0 + 32 // k0 to k7
	ES    Reg = K0 + 8    // es, cs, ss, ds, fs, gs
	CS    Reg = ES + 1    //
	SS    Reg = ES + 2    //
	DS    Reg = ES + 3    //
	FS    Reg = ES + 4    //
	GS    Reg = ES + 5    //
	CR0   Reg = ES + 6    // cr0 to cr15
	DR0   Reg = CR0 + 16  // dr0 to dr7
	regs      = int(DR0) + 8
)

// Frequently named registers.
const (
	RCX = RAX + 1
	RDX = RAX + 2
	RBX = RAX + 3
	RSP = RAX + 4
	RBP = RAX + 5
	RSI = RAX + 6
	RDI = RAX + 7
	R8  = RAX + 8
	R11 = RAX + 11
	CL  = AL + 1
	DX  = AX + 2
)

// A RegClass is a kind of registers.
type RegClass uint8

// Classes of registers.
const (
	ClassNone RegClass = iota
	ClassGPR
	ClassIP
	ClassX87
	ClassMMX
	ClassVec
	ClassMask
	ClassSeg
	ClassSys
)

var regClass, regNum, regSize, regName = regTables()

func regTables() (class [regs]RegClass, num [regs]uint8, size [regs]uint8, name [regs]string) {
	fill := func(first Reg, c RegClass, bytes uint8, names ...string) {
		for i, s := range names {
			r := int(first) + i
			class[r], num[r], size[r], name[r] = c, uint8(i), bytes, s
		}
	}
	numbered := func(prefix, suffix string, from, n int) (names []string) {
		for i := from; i < from+n; i++ {
			s := ""
			if i >= 10 {
				s = string(rune('0' + i/10))
			}
			names = append(names, prefix+s+string(rune('0'+i%10))+suffix)
		}
		return names
	}
	old := []string{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"}
	with := func(prefix string) (names []string) {
		for _, s := range old {
			names = append(names, prefix+s)
		}
		return names
	}
	fill(AL, ClassGPR, 1, append([]string{"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"}, numbered("r", "b", 8, 8)...)...)
	fill(AH, ClassGPR, 1, "ah", "ch", "dh", "bh")
	fill(AX, ClassGPR, 2, append(with(""), numbered("r", "w", 8, 8)...)...)
	fill(EAX, ClassGPR, 4, append(with("e"), numbered("r", "d", 8, 8)...)...)
	fill(RAX, ClassGPR, 8, append(with("r"), numbered("r", "", 8, 8)...)...)
	fill(RIP, ClassIP, 8, "rip")
	fill(EIP, ClassIP, 4, "eip")
	fill(ST0, ClassX87, 10, numbered("st(", ")", 0, 8)...)
	fill(MM0, ClassMMX, 8, numbered("mm", "", 0, 8)...)
	fill(XMM0, ClassVec, 16, numbered("xmm", "", 0, 32)...)
	fill(YMM0, ClassVec, 32, numbered("ymm", "", 0, 32)...)
	fill(ZMM0, ClassVec, 64, numbered("zmm", "", 0, 32)...)
	fill(K0, ClassMask, 8, numbered("k", "", 0, 8)...)
	fill(ES, ClassSeg, 2, "es", "cs", "ss", "ds", "fs", "gs")
	fill(CR0, ClassSys, 8, numbered("cr", "", 0, 16)...)
	fill(DR0, ClassSys, 8, numbered("dr", "", 0, 8)...)
	return class, num, size, name
}

// String gives the register's name in Intel syntax, "" for none.
func (r Reg) String() string {
	if int(r) < regs {
		return regName[r]
	}
	return ""
}

// Class gives the kind of register.
func (r Reg) Class() RegClass {
	if int(r) < regs {
		return regClass[r]
	}
	return ClassNone
}

// Num gives the register's number in its class: 0 for al, ax, eax and rax; ah is part of number 0 too.
func (r Reg) Num() int {
	if int(r) < regs {
		return int(regNum[r])
	}
	return 0
}

// Size gives the register's width in bytes.
func (r Reg) Size() int {
	if int(r) < regs {
		return int(regSize[r])
	}
	return 0
}

// fromX86asm translates the register names of x86asm; NoReg are those that we do not know.
func fromX86asm(r x86asm.Reg) Reg { return translated[r] }

var translated = func() (t [256]Reg) {
	for r := range t {
		t[r] = translate(x86asm.Reg(r))
	}
	return t
}()

func translate(r x86asm.Reg) Reg {
	for _, m := range []struct {
		from, to x86asm.Reg
		first    Reg
	}{
		{x86asm.RAX, x86asm.R15, RAX}, {x86asm.EAX, x86asm.R15L, EAX}, {x86asm.X0, x86asm.X31, XMM0}, {x86asm.Y0, x86asm.Y31, YMM0},
		{x86asm.AL, x86asm.BL, AL}, {x86asm.AH, x86asm.BH, AH}, {x86asm.SPB, x86asm.R15B, AL + 4}, {x86asm.AX, x86asm.R15W, AX},
		{x86asm.Z0, x86asm.Z31, ZMM0}, {x86asm.K0, x86asm.K7, K0}, {x86asm.F0, x86asm.F7, ST0}, {x86asm.M0, x86asm.M7, MM0},
		{x86asm.ES, x86asm.GS, ES}, {x86asm.CR0, x86asm.CR15, CR0}, {x86asm.DR0, x86asm.DR7, DR0},
		{x86asm.RIP, x86asm.RIP, RIP}, {x86asm.EIP, x86asm.EIP, EIP},
	} {
		if r >= m.from && r <= m.to {
			return m.first + Reg(r-m.from)
		}
	}
	return NoReg
}

// A RegSet is a set of whole registers: a name of part of a register stands for the register.
// Bits 0 to 15 are the general registers by number, 16 to 47 the vector registers, 48 to 55 the mask registers, then the units below.
type RegSet uint64

// Units that instructions touch as a whole.
const (
	SetX87   RegSet = 1 << (56 + iota) // the x87 stack, its control and status words, and the MMX registers, which are its mantissas
	SetMXCSR                           // only where an instruction loads, stores or resets it: arithmetic's use of it is not counted
	SetSeg                             // segment selectors and the FS and GS bases
	SetPKRU                            // rights of the protection keys
	SetSSP                             // the shadow stack's pointer
	SetSys                             // anything else of the machine: control and debug registers, MSRs, XCR0, tables, counters, transactions

	SetGPR  RegSet = 0xffff
	SetVec  RegSet = 0xffffffff << 16
	SetMask RegSet = 0xff << 48
)

// Set gives the set of the register alone. The instruction pointer is in no set.
func (r Reg) Set() RegSet {
	switch r.Class() {
	case ClassGPR:
		return 1 << r.Num()
	case ClassVec:
		return 1 << (16 + r.Num())
	case ClassMask:
		return 1 << (48 + r.Num())
	case ClassX87, ClassMMX:
		return SetX87
	case ClassSeg:
		return SetSeg
	case ClassSys:
		return SetSys
	}
	return 0
}

// Has says whether the set holds the register.
func (s RegSet) Has(r Reg) bool { return r.Set() != 0 && s&r.Set() != 0 }

// Flags is a set of the flags in RFLAGS, at their places there.
type Flags uint32

// The flags.
const (
	CF Flags = 1 << 0
	PF Flags = 1 << 2
	AF Flags = 1 << 4
	ZF Flags = 1 << 6
	SF Flags = 1 << 7
	TF Flags = 1 << 8
	IF Flags = 1 << 9
	DF Flags = 1 << 10
	OF Flags = 1 << 11
	AC Flags = 1 << 18

	// FlagsArith is what arithmetic instructions set.
	FlagsArith = OF | SF | ZF | AF | PF | CF
)
