package x86

import (
	"encoding/binary"
	"errors"
)

// ErrTruncated says that the bytes end before the instruction does; more bytes may make it whole.
var ErrTruncated = errors.New("x86: the code ends inside an instruction")

// ErrInvalid says that the bytes are no instruction in 64-bit mode, or none that this package knows.
var ErrInvalid = errors.New("x86: not an instruction")

// ErrVendor says that processors disagree on the instruction's length: a near branch with an operand-size prefix and no REX.W, which Intel
// takes as a 64-bit branch and AMD as a 16-bit one.
var ErrVendor = errors.New("x86: a near branch with an operand-size prefix: its length depends on the processor's maker")

// MaxLen is the longest instruction.
const MaxLen = 15

// An encoding form.
type form uint8

const (
	formLegacy form = iota
	formVEX
	formXOP
	formEVEX
)

// layout is where the parts of an instruction lie, which the opcode map and the ModRM byte decide, whatever the instruction does.
type layout struct {
	form   form
	opmap  uint8 // 0: one byte, 1: 0f, 2: 0f 38, 3: 0f 3a; for VEX, EVEX and XOP as encoded; 15: 3DNow!
	op     uint8
	pp     uint8 // mandatory prefix as VEX encodes it: 0, 1 (66), 2 (f3), 3 (f2); in legacy forms the prefix in force
	rex    uint8 // REX, or its R, X, B and W taken from VEX, XOP, EVEX
	hasREX bool  // a REX prefix, which decides between ah and spl
	seg    Reg   // override in force
	data16 bool
	addr32 bool
	lock   bool
	rep    uint8 // f2 or f3: the last one
	nrep   uint8
	notrk  bool // a 3e prefix
	vvvv   uint8
	l      uint8 // vector length, 0 to 3
	aaa    uint8
	z, b   bool
	r2     bool // EVEX.R'
	modrm  uint8
	sib    uint8
	has    bool // a ModRM byte
	prefix int  // length of the legacy prefixes and REX
	opOff  int  // of the opcode byte
	mrmOff int
	sibOff int // 0: none
	dspOff int
	dspLen int
	immOff int
	immLen int
	disp   int64
	n      int
}

func (l *layout) mod() uint8 { return l.modrm >> 6 }
func (l *layout) reg() uint8 { return l.modrm >> 3 & 7 }
func (l *layout) rm() uint8  { return l.modrm & 7 }
func (l *layout) w() bool    { return l.rex&8 != 0 }

// mem says whether the ModRM byte names memory.
func (l *layout) mem() bool {
	return l.has && l.mod() != 3 && !(l.form == formLegacy && l.opmap == 1 && l.op >= 0x20 && l.op <= 0x23)
}

// How the one-byte and 0f maps go on behind the opcode, a letter each: '-' nothing, 'm' ModRM, 'b' imm8, 'w' imm16, 'z' imm16 or 32,
// 'v' imm16, 32 or 64, 'o' a memory offset, 'r' rel8, 'R' rel32, 'e' imm16 and imm8, 'B' ModRM and imm8, 'Z' ModRM and imm16 or 32,
// 't' and 'T' ModRM and, with /0 and /1 only, imm8 or imm16/32, '.' invalid, 'p' prefix or escape.
const oneByte = "" +
	"mmmmbz..mmmmbz.p" + "mmmmbz..mmmmbz.." + "mmmmbzp.mmmmbzp." + "mmmmbzp.mmmmbzp." + // 00
	"pppppppppppppppp" + "----------------" + "..pmppppzZbB----" + "rrrrrrrrrrrrrrrr" + // 40
	"BZ.Bmmmmmmmmmmmm" + "----------.-----" + "oooo----bz------" + "bbbbbbbbvvvvvvvv" + // 80
	"BBw-ppBZe-w--b.-" + "mmmm...-mmmmmmmm" + "rrrrbbbbRR.r----" + "p-pp--tT------mm" // c0

const twoByte = "" +
	"mmmm.-----.-.m-B" + "mmmmmmmmmmmmmmmm" + "mmmm....mmmmmmmm" + "------.-p.p....." + // 00
	"mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "BBBBmmm-mm..mmmm" + // 40
	"RRRRRRRRRRRRRRRR" + "mmmmmmmmmmmmmmmm" + "---mBm..---mBmmm" + "mmmmmmmmmmBmmmmm" + // 80
	"mmBmBBBm--------" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" // c0

// parse finds the parts of the instruction at the start of code.
func (l *layout) parse(code []byte) error {
	if len(code) > MaxLen {
		code = code[:MaxLen]
	}
	short := func() error {
		if len(code) == MaxLen {
			return ErrInvalid // longer than any instruction may be
		}
		return ErrTruncated
	}
	i := 0
	var b byte
prefixes:
	for ; ; i++ {
		if i >= len(code) {
			return short()
		}
		b = code[i]
		switch b {
		case 0x26, 0x2e, 0x36, 0x3e: // es, cs, ss and ds count for nothing in 64-bit mode, and do not undo fs or gs
			l.notrk = l.notrk || b == 0x3e
		case 0x64:
			l.seg = FS
		case 0x65:
			l.seg = GS
		case 0x66:
			l.data16 = true
		case 0x67:
			l.addr32 = true
		case 0xf0:
			l.lock = true
		case 0xf2, 0xf3:
			l.rep = b
			l.nrep++
		default:
			if b&0xf0 != 0x40 {
				break prefixes
			}
			l.rex, l.hasREX = b, true
			continue
		}
		l.rex, l.hasREX = 0, false // a REX prefix counts only right before the opcode
	}
	l.prefix = i
	switch {
	case l.rep == 0xf3:
		l.pp = 2
	case l.rep == 0xf2:
		l.pp = 3
	case l.data16:
		l.pp = 1
	}
	at := func(k int) (byte, bool) {
		if i+k < len(code) {
			return code[i+k], true
		}
		return 0, false
	}
	kind := byte('m')
	switch b {
	case 0xc4, 0xc5, 0x62, 0x8f:
		size := map[byte]int{0xc4: 3, 0xc5: 2, 0x62: 4, 0x8f: 3}[b]
		p1, ok := at(1)
		if !ok {
			return short()
		}
		if b == 0x8f && p1&0x1f < 8 {
			l.opOff = i
			l.op = b
			i++
			break // pop
		}
		if l.hasREX || l.data16 || l.lock || l.rep != 0 {
			return ErrInvalid
		}
		if _, ok := at(size); !ok {
			return short()
		}
		if err := l.vector(b, code[i:i+size]); err != nil {
			return err
		}
		i += size
		l.opOff = i
		l.op = code[i]
		i++
		switch {
		case l.form == formXOP && l.opmap == 8, l.form != formXOP && l.opmap == 3:
			kind = 'B'
		case l.form == formXOP && l.opmap == 10:
			kind = 'Q' // ModRM and imm32 always
		case l.form != formXOP && l.opmap == 1:
			switch l.op {
			case 0x70, 0x71, 0x72, 0x73, 0xc2, 0xc4, 0xc5, 0xc6:
				kind = 'B'
			case 0x77:
				if l.form == formVEX {
					kind = '-'
				}
			}
		case l.form == formVEX && l.opmap == 7:
			kind = 'Q'
		}
	default:
		l.opOff = i
		l.op = b
		i++
		kind = oneByte[b]
		if b == 0x0f {
			if i >= len(code) {
				return short()
			}
			l.opmap, l.op, l.opOff = 1, code[i], i
			kind = twoByte[l.op]
			i++
			if l.op == 0x38 || l.op == 0x3a {
				l.opmap, kind = 2, 'm'
				if l.op == 0x3a {
					l.opmap, kind = 3, 'B'
				}
				if i >= len(code) {
					return short()
				}
				l.op, l.opOff = code[i], i
				i++
			} else if l.op == 0x0f {
				l.opmap = 15
			}
		}
	}
	// The operand size that decides immediates. A branch's is its own affair, below.
	z := 4
	if l.data16 && !l.w() {
		z = 2
	}
	imm := 0
	switch kind {
	case '.', 'p':
		return ErrInvalid
	case 'b', 'r', 'B', 't':
		imm = 1
	case 'w':
		imm = 2
	case 'e':
		imm = 3
	case 'z', 'Z', 'T':
		imm = z
	case 'v':
		imm = z
		if l.w() {
			imm = 8
		}
	case 'o':
		imm = 8
		if l.addr32 {
			imm = 4
		}
	case 'R', 'Q':
		imm = 4
	}
	switch kind {
	case 'm', 'B', 'Z', 't', 'T', 'Q':
		if i >= len(code) {
			return short()
		}
		l.has, l.modrm, l.mrmOff = true, code[i], i
		i++
		if kind == 't' || kind == 'T' {
			if l.reg() > 1 {
				imm = 0
			}
		}
		if l.form == formLegacy && l.opmap == 1 && l.op == 0x78 && (l.pp == 1 || l.pp == 3) {
			imm = 2 // extrq and insertq: two of one byte
		}
		if l.mem() {
			if l.rm() == 4 {
				if i >= len(code) {
					return short()
				}
				l.sib, l.sibOff = code[i], i
				i++
			}
			switch {
			case l.mod() == 1:
				l.dspLen = 1
			case l.mod() == 2, l.rm() == 5, l.rm() == 4 && l.sib&7 == 5:
				l.dspLen = 4
			}
			if l.dspLen > 0 {
				l.dspOff = i
				i += l.dspLen
				if i > len(code) {
					return short()
				}
				l.disp = int64(int8(code[l.dspOff]))
				if l.dspLen == 4 {
					l.disp = int64(int32(binary.LittleEndian.Uint32(code[l.dspOff:])))
				}
			}
		}
	}
	if l.form == formLegacy && l.opmap == 1 && l.op == 0xae && l.pp == 2 && l.mem() && l.reg() < 4 {
		return ErrInvalid // rdfsbase and its like of memory
	}
	if l.form == formLegacy && l.opmap == 0 && l.op == 0x90 && l.pp == 2 && l.rex&1 != 0 {
		return ErrInvalid // pause or xchg with r8: the manuals do not say
	}
	near := kind == 'R' || l.opmap == 0 && (kind == 'r' && (l.op < 0xe0 || l.op > 0xe3)) || l.form == formLegacy && l.opmap == 0 && l.op == 0xc7 && l.modrm == 0xf8
	if l.form == formLegacy && l.data16 && !l.w() && (near || l.opmap == 0 && (l.op == 0xc2 || l.op == 0xc3 || l.op == 0xff && l.has && (l.reg() == 2 || l.reg() == 4))) {
		return ErrVendor
	}
	if imm > 0 {
		l.immOff, l.immLen = i, imm
		i += imm
		if i > len(code) {
			return short()
		}
	}
	l.n = i
	return nil
}

// vector takes apart the VEX, XOP or EVEX prefix p.
func (l *layout) vector(b byte, p []byte) error {
	switch b {
	case 0xc5:
		l.form, l.opmap = formVEX, 1
		l.rex = (^p[1] >> 5) & 4
		l.vvvv, l.l, l.pp = ^p[1]>>3&15, p[1]>>2&1, p[1]&3
		return nil
	case 0xc4, 0x8f:
		l.form, l.opmap = formVEX, p[1]&0x1f
		if b == 0x8f {
			l.form = formXOP
		}
		l.rex = ^p[1]>>5&7 | p[2]>>4&8
		l.vvvv, l.l, l.pp = ^p[2]>>3&15, p[2]>>2&1, p[2]&3
		if b == 0xc4 && (l.opmap == 0 || l.opmap > 3 && l.opmap != 7) || b == 0x8f && l.opmap > 10 {
			return ErrInvalid
		}
		return nil
	}
	if p[1]&8 != 0 || p[2]&4 == 0 {
		return ErrInvalid // APX
	}
	l.form, l.opmap = formEVEX, p[1]&7
	if l.opmap == 0 || l.opmap > 3 { // 4 is APX; 5 and 6 AVX512-FP16, which x86asm takes for maps 1 and 2
		return ErrInvalid
	}
	l.rex = ^p[1]>>5&7 | p[2]>>4&8
	l.r2 = p[1]&16 == 0
	l.vvvv, l.pp = ^p[2]>>3&15, p[2]&3
	if p[3]&8 == 0 {
		l.vvvv |= 16
	}
	l.aaa, l.b, l.l, l.z = p[3]&7, p[3]&16 != 0, p[3]>>5&3, p[3]&128 != 0
	return nil
}

// address gives the memory operand that ModRM names, without its size and kind.
func (l *layout) address() (m Mem) {
	base, ip := RAX, RIP
	if l.addr32 {
		base, ip = EAX, EIP
	}
	m.Seg, m.Disp, m.Scale = l.seg, l.disp, 1
	b := func(n uint8) Reg { return base + Reg(n|l.rex&1<<3) }
	switch {
	case l.rm() == 4:
		if x := l.sib>>3&7 | l.rex&2<<2; x != 4 {
			m.Index, m.Scale = base+Reg(x), 1<<(l.sib>>6)
		}
		if l.sib&7 != 5 || l.mod() != 0 {
			m.Base = b(l.sib & 7)
		}
	case l.mod() == 0 && l.rm() == 5:
		m.Base = ip
	default:
		m.Base = b(l.rm())
	}
	return m
}
