package x86

import (
	"encoding/binary"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// Decode decodes the instruction at the start of code, in 64-bit mode, and states its facts. It looks at no more than MaxLen bytes.
// The error is ErrTruncated, ErrInvalid or ErrVendor.
func Decode(code []byte) (Inst, error) {
	var l layout
	if err := l.parse(code); err != nil {
		return Inst{}, err
	}
	in := Inst{
		Len: l.n, Rounding: -1,
		OpcodeOff: l.opOff, ModRMOff: l.mrmOff, DispOff: l.dspOff, DispLen: l.dspLen, ImmOff: l.immOff, ImmLen: l.immLen, PrefixLen: l.prefix,
		Lock: l.lock,
	}
	if g := l.gap(); g != nil {
		g.fill(&in, &l, code)
	} else if l.form == formLegacy && l.opmap == 0 && l.op >= 0xa0 && l.op <= 0xa3 {
		l.offset(&in, code)
	} else if err := l.operation(&in, code); err != nil {
		return Inst{}, err
	}
	row := facts[in.Op]
	if r := factsByCount[countKey{in.Op, len(in.Args)}]; r != nil {
		row = r
	}
	if row == nil {
		return Inst{}, ErrInvalid
	}
	if !row.apply(&in, &l) {
		return Inst{}, ErrInvalid
	}
	return in, nil
}

// offset decodes the moves between the accumulator and a 64-bit address in the code.
func (l *layout) offset(in *Inst, code []byte) {
	size := 1
	if l.op&1 != 0 {
		size = l.opSize()
	}
	m := Mem{Seg: l.seg, Scale: 1, Size: uint16(size)}
	if l.immLen == 8 {
		m.Disp = int64(binary.LittleEndian.Uint64(code[l.immOff:]))
	} else {
		m.Disp = int64(binary.LittleEndian.Uint32(code[l.immOff:]))
	}
	in.Op, in.Mems = "mov", []Mem{m}
	in.DispOff, in.DispLen, in.ImmOff, in.ImmLen = in.ImmOff, in.ImmLen, 0, 0
	in.Args = []Arg{{Kind: ArgReg, Reg: l.gpr(0, size)}, {Kind: ArgMem}}
	if l.op >= 0xa2 {
		in.Args[0], in.Args[1] = in.Args[1], in.Args[0]
	}
}

// prefixFree says whether 66, f2 and f3 before an opcode of the 0f map change nothing but the operand size.
func prefixFree(op uint8) bool {
	switch {
	case op >= 0x80 && op <= 0x9f, op >= 0x40 && op <= 0x4f, op >= 0xc8 && op <= 0xcf, op >= 0x02 && op <= 0x0b, op >= 0x18 && op <= 0x1f,
		op >= 0x30 && op <= 0x35, op >= 0xa0 && op <= 0xad, op == 0xaf, op >= 0xb0 && op <= 0xb7, op >= 0xb9 && op <= 0xbb,
		op == 0xbe, op == 0xbf, op == 0xc0, op == 0xc1, op <= 0x01, op >= 0x20 && op <= 0x23:
		return true
	}
	return false
}

// operation asks x86asm for the operation and its operands. It is given the plainest encoding: only the prefixes that may choose the
// operation, and bits that mean nothing in the form that it knows.
func (l *layout) operation(in *Inst, code []byte) error {
	var buf [MaxLen + 4]byte
	try := func(data16 bool, rep byte, change func(op []byte)) (x86asm.Inst, bool) {
		p := buf[:0]
		if data16 {
			p = append(p, 0x66)
		}
		if rep != 0 {
			p = append(p, rep)
		}
		n := len(p)
		if l.rex != 0 && l.form == formLegacy || l.hasREX {
			p = append(p, l.rex)
			n++
		}
		p = append(p, code[l.prefix:l.n]...)
		if change != nil {
			change(p[n:])
		}
		x, err := x86asm.Decode(p, 64)
		return x, err == nil && x.Op != 0 && x.Len == len(p)
	}
	var x x86asm.Inst
	var ok bool
	if l.form != formLegacy {
		x, ok = try(false, 0, nil)
		if !ok {
			x, ok = l.ignored(try)
		}
	} else {
		rep := l.rep
		if l.opmap == 0 {
			rep = 0
		}
		var fix func([]byte)
		if l.opmap == 1 && l.op >= 0x20 && l.op <= 0x23 { // moves to and from control registers do not look at mod
			fix = func(p []byte) { p[2] |= 0xc0 }
		}
		if l.opmap == 0 && l.op == 0xc0 || l.op == 0xc1 || l.op >= 0xd0 && l.op <= 0xd3 {
			if l.opmap == 0 && l.reg() == 6 { // sal is shl
				fix = func(p []byte) { p[1] &^= 0x10 }
			}
		}
		if l.opmap == 0 && (l.op == 0xf6 || l.op == 0xf7) && l.reg() == 1 { // as is /0
			fix = func(p []byte) { p[1] &^= 0x38 }
		}
		x, ok = try(l.data16, rep, fix)
		if !ok && l.data16 && (l.opmap == 0 || rep != 0 || prefixFree(l.op)) {
			x, ok = try(false, rep, fix)
		}
		if !ok && rep != 0 && l.opmap == 1 && prefixFree(l.op) {
			x, ok = try(l.data16, 0, fix)
			if !ok && l.data16 {
				x, ok = try(false, 0, fix)
			}
		}
	}
	if !ok {
		return ErrInvalid
	}
	name := opName(x.Op)
	in.Op = name
	if !l.convert(in, &x) {
		return ErrInvalid
	}
	return nil
}

// convert takes over x86asm's operands. Memory operands are our own; x86asm says only how large they are and which vector indexes them.
// It returns false for a register that does not exist.
func (l *layout) convert(in *Inst, x *x86asm.Inst) bool {
	for i, a := range x.Args {
		switch a := a.(type) {
		case nil:
			continue
		case x86asm.Reg:
			r := fromX86asm(a)
			if r == NoReg {
				return false
			}
			if l.form == formEVEX && l.l == 0 && !l.b && r >= YMM0 && r < K0 { // conversions that halve the length
				r = XMM0 + Reg(r.Num())
			}
			if i == 0 && l.w() && (strings.HasSuffix(in.Op, "movmskps") || strings.HasSuffix(in.Op, "movmskpd") || strings.HasSuffix(in.Op, "pmovmskb")) {
				r = l.gpr(uint8(r.Num()), 8)
			}
			if l.form == formEVEX && i == 1 && l.aaa != 0 && r == K0+Reg(l.aaa) && !strings.HasPrefix(in.Op, "vpmovm2") && !strings.HasPrefix(in.Op, "vpbroadcastm") {
				in.Mask = r
				continue
			}
			if l.form == formVEX && r.Class() == ClassGPR && gprByW(in.Op) {
				r = l.gpr(uint8(r.Num()), map[bool]int{false: 4, true: 8}[l.w()])
			}
			in.Args = append(in.Args, Arg{Kind: ArgReg, Reg: r})
		case x86asm.Mem:
			if !l.mem() { // implied by the operation: the facts table says which
				continue
			}
			m := l.address()
			m.Size = uint16(x.MemBytes)
			if c := fromX86asm(a.Index); c.Class() == ClassVec {
				m.Index, m.Scale = c, 1<<(l.sib>>6)
			}
			if l.form == formEVEX {
				m.Disp = a.Disp
			}
			if x.Broadcast {
				m.Kind |= MemBroadcast
			}
			in.Mems = append(in.Mems, m)
			in.Args = append(in.Args, Arg{Kind: ArgMem})
		case x86asm.Imm:
			kind := ArgImm
			if l.immLen == 0 {
				kind = ArgOne
			}
			in.Args = append(in.Args, Arg{Kind: kind, Imm: int64(a)})
		case x86asm.Rel:
			in.Args = append(in.Args, Arg{Kind: ArgRel, Imm: int64(a)})
		}
	}
	in.Zeroing = x.Zeroing
	if l.form == formEVEX {
		// Masks, zeroing and broadcast where the operation has none of them are refused by the processor.
		if l.aaa != 0 && in.Mask == NoReg || l.z && (in.Mask == NoReg || len(in.Args) > 0 && in.Args[0].Kind == ArgMem) || l.b && l.mem() && !x.Broadcast {
			return false
		}
	}
	if l.form == formEVEX && l.b && !l.mem() {
		in.SAE, in.Rounding = true, int8(l.l)
	}
	return true
}

// opNames are the operations whose names of ours are not x86asm's in lower case.
var opNames = map[x86asm.Op]string{
	x86asm.ICEBP: "int1", x86asm.LRET: "retf", x86asm.LCALL: "callf", x86asm.LJMP: "jmpf", x86asm.XLATB: "xlat",
}

// names are the operations' names by their number in x86asm.
var names = func() (list []string) {
	for op := x86asm.Op(0); op < 3000; op++ {
		name, known := opNames[op]
		if !known {
			name = strings.TrimSuffix(strings.ToLower(op.String()), "_c5")
			if strings.HasPrefix(name, "vpcmp") {
				name = strings.TrimSuffix(name, "64")
			}
		}
		list = append(list, name)
	}
	return list
}()

func opName(op x86asm.Op) string {
	if int(op) < len(names) {
		return names[op]
	}
	return "" // which has no facts, and is refused for that
}
