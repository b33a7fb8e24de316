package x86

import (
	"strconv"
	"strings"
)

// An encoding is a line of gapTable or integerTable, or one of those that a line stands for.
type encoding struct {
	form  form
	pp    int8  // -1: any
	digit int8  // ModRM.reg, -1: any
	exact int16 // the whole ModRM byte, -1: any
	mem   int8  // 1: memory, 0: register, -1: any
	name  string
	args  []encodedArg
	row   *row     // of name and the number of args
	wide  *variant // names that REX.W, or the vector length, decides
}

// An encodedArg is an operand in the notation that encodingRows tells.
type encodedArg struct {
	letter, width byte
	size          int
}

// A variant is the name that an encoding has with REX.W or with vectors of 32 bytes.
type variant struct {
	longVector bool
	name       string
	row        *row
}

// variants are the encodings, by the name in the table, whose operation has two names: without and with W, or vector length.
var variants = map[string][2]string{
	"rdssp": {"rdsspd", "rdsspq"}, "incssp": {"incsspd", "incsspq"}, "wrss": {"wrssd", "wrssq"}, "wruss": {"wrussd", "wrussq"},
	"fxsave": {"fxsave", "fxsave64"}, "fxrstor": {"fxrstor", "fxrstor64"}, "vzeroupper": {"vzeroupper", "vzeroall"},
}

const opmaps = 16

func encodingKey(f form, opmap, op uint8) int { return (int(f)*opmaps+int(opmap))<<8 | int(op) }

// encodingRows lists encodings by opcode: lists[at[encodingKey(…)]], for which it fills at. It reads a table of encodings, one a line: mandatory prefix (np: none of 66, f2, f3; any), opcode, and behind it a whole ModRM byte or
// /reg and m or r for memory or register; then the mnemonic and its operands. XOP encodings name their map. Of several mnemonics with | between them,
// the first has the opcode or /reg that is written, the others those that follow, by the step behind the + of the opcode, or the /reg by one.
//
// Operands: E register or memory, M memory, R register, by ModRM.rm; G register by ModRM.reg; O register in the opcode; A the accumulator; their size
// follows: b, w, d, q, v (by operand size), y (4, or 8 with REX.W), s (8 as the stack is, or 2), z (4, or 2 with an operand-size prefix),
// x (a vector, or 16 bytes), a number (bytes), a (address size). V, H, W: vector by ModRM.reg, by vvvv, by ModRM.rm or memory. P and Q: an mmx register by
// ModRM.reg, by ModRM.rm or memory. Hy: a general register by vvvv. Ib, Iw, Id: immediates; S: those that are signed; J: a branch's distance; N: the implied 1; C: cl. X: the W of two operands that XOP.W or VEX.W
// swaps; with a vector by the immediate's high half, L; Z is its low half.
func encodingRows(table string, at *[int(formEVEX) * opmaps << 8]uint16) [][]encoding {
	lists := [][]encoding{nil}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		enc, does, ok := strings.Cut(line, " = ")
		if !ok {
			panic("BUG: x86: encoding without '=': " + line)
		}
		in, out := strings.Fields(enc), strings.Fields(does)
		e := encoding{pp: -1, digit: -1, exact: -1, mem: -1}
		for _, a := range out[1:] {
			e.args = append(e.args, parseEncodedArg(a))
		}
		number := func(s string, base int) int {
			n, err := strconv.ParseUint(s, base, 8)
			if err != nil {
				panic("BUG: x86: encoding: " + line)
			}
			return int(n)
		}
		opmap := uint8(0)
		p := in[0]
		if s, ok := strings.CutPrefix(p, "xop."); ok {
			e.form, opmap = formXOP, uint8(number(s, 10))
		} else {
			if s, ok := strings.CutPrefix(p, "vex."); ok {
				e.form, p = formVEX, s
			}
			e.pp = map[string]int8{"np": 0, "66": 1, "f3": 2, "f2": 3, "any": -1}[p]
		}
		in = in[1:]
		if len(in) > 1 && in[0] == "0f" && in[1] == "0f" {
			opmap, in = 15, in[1:]
		} else if in[0] == "0f" {
			opmap, in = 1, in[1:]
			if len(in) > 1 && (in[0] == "38" || in[0] == "3a") {
				opmap = map[string]uint8{"38": 2, "3a": 3}[in[0]]
				in = in[1:]
			}
		}
		first, by, _ := strings.Cut(in[0], "+")
		op, step := number(first, 16), 0
		if by != "" {
			step = number(by, 10)
		}
		if len(in) > 1 {
			s := strings.TrimSuffix(in[1], "+")
			switch {
			case s == "m" || s == "r":
			case s[0] == '/':
				e.digit = int8(s[1] - '0')
			default:
				e.exact = int16(number(s, 16))
			}
			switch s[len(s)-1] {
			case 'm':
				e.mem = 1
			case 'r':
				e.mem = 0
			}
		}
		for i, name := range strings.Split(out[0], "|") {
			e := e
			e.resolve(name)
			if step == 0 && i > 0 {
				e.digit += int8(i)
			}
			k := &at[encodingKey(e.form, opmap, uint8(op+i*step))]
			if *k == 0 {
				*k = uint16(len(lists))
				lists = append(lists, nil)
			}
			lists[*k] = append(lists[*k], e)
		}
	}
	return lists
}

// resolve finds the facts of the operation.
func (e *encoding) resolve(name string) {
	n := len(e.args)
	e.name = name
	if v, ok := variants[name]; ok {
		e.name = v[0]
		e.wide = &variant{name == "vzeroupper", v[1], rowOf(v[1], n)}
	}
	e.row = rowOf(e.name, n)
	if e.row == nil {
		panic("BUG: x86: no facts of " + name)
	}
}

func parseEncodedArg(s string) encodedArg {
	a := encodedArg{letter: s[0]}
	if len(s) > 1 {
		if n, err := strconv.Atoi(s[1:]); err == nil {
			a.size = n
		} else {
			a.width = s[1]
			a.size = map[byte]int{'b': 1, 'w': 2, 'd': 4, 'q': 8, 'x': 16}[a.width]
		}
	}
	return a
}

// encoding finds the line for the instruction, if there is one.
func (l *layout) encoding() *encoding {
	if l.form >= formEVEX {
		return nil
	}
	list := encodings[encodingAt[encodingKey(l.form, l.opmap&(opmaps-1), l.op)]]
	for i := range list {
		e := &list[i]
		if e.pp >= 0 && int8(l.pp) != e.pp || e.exact >= 0 && int16(l.modrm) != e.exact || e.digit >= 0 && int8(l.reg()) != e.digit ||
			e.mem >= 0 && (e.mem == 1) != l.mem() || l.form == formXOP && l.pp != 0 {
			continue
		}
		return e
	}
	return nil
}

// gpr gives general register n of the size in bytes.
func (l *layout) gpr(n uint8, size int) Reg {
	switch size {
	case 1:
		if n >= 4 && n < 8 && !l.hasREX {
			return AH + Reg(n-4)
		}
		return AL + Reg(n&15)
	case 2:
		return AX + Reg(n&15)
	case 4:
		return EAX + Reg(n&15)
	}
	return RAX + Reg(n&15)
}

// opSize gives the operand size of an instruction that REX.W and the prefix decide.
func (l *layout) opSize() int {
	switch {
	case l.w():
		return 8
	case l.data16 && l.form == formLegacy:
		return 2
	}
	return 4
}

// immediate gives the n-byte number in the code.
func immediate(code []byte, n int) (v int64) {
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | int64(code[i])
	}
	return v
}

// operandSize gives the bytes of an operand whose size the prefixes decide.
func (l *layout) operandSize(a encodedArg) int {
	switch a.width {
	case 'v':
		return l.opSize()
	case 'y':
		if l.w() {
			return 8
		}
		return 4
	case 'z':
		return min(l.opSize(), 4)
	case 's':
		if l.data16 && !l.w() {
			return 2
		}
		return 8
	case 'a':
		if l.addr32 {
			return 4
		}
		return 8
	}
	return a.size
}

// fill sets the operands of an instruction that the tables know, and gives its facts.
func (e *encoding) fill(in *Inst, l *layout, code []byte) *row {
	vec := XMM0
	if l.l == 1 && l.form != formLegacy && !(e.name[0] == 'v' && e.name[1] == 'f' && e.name[len(e.name)-2] == 's') { // FMA4 of scalars ignores L
		vec = YMM0
	}
	rm := l.rm() | l.rex&1<<3
	reg := l.reg() | l.rex&4<<1
	for _, a := range e.args {
		size := l.operandSize(a)
		r := NoReg
		switch a.letter {
		case 'E', 'M', 'R':
			if l.mem() {
				l.memory(in, size)
			} else {
				r = l.gpr(rm, size)
			}
		case 'G':
			r = l.gpr(reg, size)
		case 'O':
			r = l.gpr(l.op&7|l.rex&1<<3, size)
		case 'A':
			r = l.gpr(0, size)
		case 'C':
			r = CL
		case 'V':
			r = vec + Reg(reg)
		case 'W', 'X':
			if l.mem() {
				if size == 0 {
					size = vec.Size()
				}
				l.memory(in, size)
			} else {
				r = vec + Reg(rm)
			}
		case 'H':
			if a.width != 0 {
				r = l.gpr(l.vvvv, size)
			} else {
				r = vec + Reg(l.vvvv&15)
			}
		case 'P':
			r = MM0 + Reg(l.reg())
		case 'Q':
			if l.mem() {
				l.memory(in, 8)
			} else {
				r = MM0 + Reg(l.rm())
			}
		case 'L':
			r = vec + Reg(code[l.immOff]>>4)
		case 'Z':
			in.addArg(Arg{Kind: ArgImm, Imm: int64(code[l.immOff] & 15)})
		case 'I':
			in.addArg(Arg{Kind: ArgImm, Imm: immediate(code[l.immOff:], l.immLen)})
		case 'S', 'J':
			v := immediate(code[l.immOff:], l.immLen)
			v = v << (64 - 8*l.immLen) >> (64 - 8*l.immLen)
			kind := ArgImm
			if a.letter == 'J' {
				kind = ArgRel
			}
			in.addArg(Arg{Kind: kind, Imm: v})
		case 'N':
			in.addArg(Arg{Kind: ArgOne, Imm: 1})
		default:
			panic("BUG: x86: operand " + string(a.letter))
		}
		if r != NoReg {
			in.addArg(Arg{Kind: ArgReg, Reg: r})
		}
		if a.letter == 'X' && l.opmap == 9 {
			in.addArg(Arg{Kind: ArgReg, Reg: vec + Reg(l.vvvv&15)})
		}
	}
	n := in.nargs
	if l.w() && (l.form == formVEX && n > 3 || l.form == formXOP && l.opmap == 8 && n == 4) { // FMA4 and vpermil2: the third and fourth are swapped
		in.args[2], in.args[3] = in.args[3], in.args[2]
	}
	if l.w() && l.form == formXOP && l.opmap == 9 && l.op >= 0x90 {
		in.args[n-2], in.args[n-1] = in.args[n-1], in.args[n-2]
	}
	if e.wide != nil && (e.wide.longVector && l.l == 1 || !e.wide.longVector && l.w()) {
		in.Op = e.wide.name
		return e.wide.row
	}
	in.Op = e.name
	return e.row
}

// memory adds the memory operand that ModRM names.
func (l *layout) memory(in *Inst, size int) {
	m := l.address()
	m.Size = uint16(size)
	in.addMem(m)
	in.addArg(Arg{Kind: ArgMem})
}
