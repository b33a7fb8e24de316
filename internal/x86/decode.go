package x86

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/arch/x86/x86asm"
)

// Decode decodes the instruction at the start of code, in 64-bit mode, and states its facts. It looks at no more than MaxLen bytes.
// The error is ErrTruncated, ErrInvalid or ErrVendor.
func Decode(code []byte) (Inst, error) {
	tables.Do(makeTables)
	var l layout
	if err := l.parse(code); err != nil {
		return Inst{}, err
	}
	in := Inst{
		Len: l.n, Rounding: -1,
		OpcodeOff: int8(l.opOff), ModRMOff: int8(l.mrmOff), DispOff: int8(l.dspOff), DispLen: int8(l.dspLen), ImmOff: int8(l.immOff), ImmLen: int8(l.immLen),
		PrefixLen: int8(l.prefix), Lock: l.lock, narrow: l.addr32,
	}
	var row *row
	if e := l.encoding(); e != nil {
		row = e.fill(&in, &l, code)
	} else if l.form == formLegacy && l.opmap == 0 && l.op >= 0xa0 && l.op <= 0xa3 {
		l.offset(&in, code)
		row = movRow
	} else if row = l.operation(&in, code); row == nil {
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
	in.Op = "mov"
	in.addMem(m)
	in.DispOff, in.DispLen, in.ImmOff, in.ImmLen = in.ImmOff, in.ImmLen, 0, 0
	in.addArg(Arg{Kind: ArgReg, Reg: l.gpr(0, size)})
	in.addArg(Arg{Kind: ArgMem})
	if l.op >= 0xa2 {
		in.args[0], in.args[1] = in.args[1], in.args[0]
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

// A tweak changes bits of the byte at a place behind the prefixes.
type tweak struct {
	at               int
	clear, set, flip byte
}

// ask asks x86asm for the operation and its operands, with these prefixes and with the changes in place of what the code has.
func (l *layout) ask(code []byte, data16 bool, rep byte, changes [2]tweak) (x86asm.Inst, bool) {
	var buf [MaxLen + 4]byte
	p := buf[:0]
	if data16 {
		p = append(p, 0x66)
	}
	if rep != 0 {
		p = append(p, rep)
	}
	if l.rex != 0 && l.form == formLegacy || l.hasREX {
		p = append(p, l.rex)
	}
	n := len(p)
	p = append(p, code[l.prefix:l.n]...)
	for _, c := range changes {
		if n+c.at < len(p) {
			b := &p[n+c.at]
			*b = (*b&^c.clear | c.set) ^ c.flip
		}
	}
	x, err := x86asm.Decode(p, 64)
	return x, err == nil && x.Op != 0 && x.Len == len(p)
}

// operation asks x86asm for the operation and its operands. It is given the plainest encoding: only the prefixes that may choose the
// operation, and bits that mean nothing in the form that it knows. Nil: there is none.
func (l *layout) operation(in *Inst, code []byte) *row {
	var x x86asm.Inst
	var ok bool
	if l.form != formLegacy {
		x, ok = l.ask(code, false, 0, [2]tweak{})
		if !ok {
			x, ok = l.ignored(code)
		}
	} else {
		rep := l.rep
		if l.opmap == 0 {
			rep = 0
		}
		var fix [2]tweak
		if l.opmap == 1 && l.op >= 0x20 && l.op <= 0x23 { // moves to and from control registers do not look at mod
			fix[0] = tweak{at: 2, set: 0xc0}
		}
		x, ok = l.ask(code, l.data16, rep, fix)
		if !ok && l.data16 && (l.opmap == 0 || rep != 0 || prefixFree(l.op)) {
			x, ok = l.ask(code, false, rep, fix)
		}
		if !ok && rep != 0 && l.opmap == 1 && prefixFree(l.op) {
			x, ok = l.ask(code, l.data16, 0, fix)
			if !ok && l.data16 {
				x, ok = l.ask(code, false, 0, fix)
			}
		}
	}
	if !ok || int(x.Op) >= len(operations) {
		return nil
	}
	o := operationOf(x.Op)
	in.Op = o.name
	if !l.convert(in, &x, o) || l.form != formLegacy && l.vvvv != 0 && !l.names(in) {
		return nil
	}
	return o.rows[in.nargs]
}

// convert takes over x86asm's operands. Memory operands are our own; x86asm says only how large they are and which vector indexes them.
// It returns false for a register that does not exist.
func (l *layout) convert(in *Inst, x *x86asm.Inst, o *operation) bool {
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
			if i == 0 && l.w() && o.signs {
				r = l.gpr(uint8(r.Num()), 8)
			}
			if l.form == formEVEX && i == 1 && l.aaa != 0 && r == K0+Reg(l.aaa) && !o.fromMask {
				in.Mask = r
				continue
			}
			if l.form == formVEX && r.Class() == ClassGPR && o.gprByW {
				r = l.gpr(uint8(r.Num()), l.opSize())
			}
			in.addArg(Arg{Kind: ArgReg, Reg: r})
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
			in.addMem(m)
			in.addArg(Arg{Kind: ArgMem})
		case x86asm.Imm:
			kind := ArgImm
			if l.immLen == 0 {
				kind = ArgOne
			}
			in.addArg(Arg{Kind: kind, Imm: int64(a)})
		case x86asm.Rel:
			in.addArg(Arg{Kind: ArgRel, Imm: int64(a)})
		}
	}
	in.Zeroing = x.Zeroing
	if l.form == formEVEX {
		// Masks, zeroing and broadcast where the operation has none of them are refused by the processor.
		if l.aaa != 0 && in.Mask == NoReg || l.z && (in.Mask == NoReg || in.nargs > 0 && in.args[0].Kind == ArgMem) || l.b && l.mem() && !x.Broadcast {
			return false
		}
	}
	if r := in.args[0].Reg; l.form == formEVEX && r.Class() == ClassMask && int(l.reg()) == r.Num() && (in.Zeroing || l.rex&4 != 0 || l.r2) {
		return false // a mask register is not zeroed, and there are eight of them
	}
	if in.nmems > 0 && in.mems[0].Index.Class() == ClassVec && l.rm() != 4 {
		return false // a vector of addresses needs a SIB byte
	}
	if l.form == formEVEX && l.b && !l.mem() {
		// Where nothing is rounded and nothing raises an exception the bit is reserved: Intel's processors refuse it, AMD's of Zen 4 and later ignore it, and run
		// the instruction on vectors of the length that is no rounding mode then.
		if !slices.ContainsFunc(rounding[:], func(prefix string) bool { return strings.HasPrefix(in.Op, prefix) }) {
			return false
		}
		in.SAE, in.Rounding = true, int8(l.l)
	}
	return true
}

// rounding are beginnings of the names of operations that have embedded rounding or suppress exceptions (Intel SDM vol. 2, 2.7.5).
var rounding = [...]string{
	"vadd", "vsub", "vmul", "vdiv", "vsqrt", "vmax", "vmin", "vcmp", "vcvt", "vcomi", "vcomx", "vucom", "vgetexp", "vgetmant", "vrndscale", "vreduce", "vfixupimm",
	"vrange", "vscalef", "vfm", "vfnm", "vfc", "vrcp28", "vrsqrt28", "vexp2",
}

// names says whether one of the operands is the register that VEX.vvvv or EVEX.V'vvvv name. They must be all ones, which is number 0 here, where the
// operation has no use for them (Intel SDM vol. 2, 2.3.5.6).
func (l *layout) names(in *Inst) bool {
	for _, a := range in.Args() {
		if a.Kind == ArgReg && a.Reg.Num() == int(l.vvvv) {
			return true
		}
	}
	return in.nmems > 0 && in.mems[0].Index.Class() == ClassVec // whose number V' is part of
}

// opNames are the operations whose names of ours are not x86asm's in lower case.
var opNames = map[x86asm.Op]string{
	x86asm.ICEBP: "int1", x86asm.LRET: "retf", x86asm.LCALL: "callf", x86asm.LJMP: "jmpf", x86asm.XLATB: "xlat",
}

// An operation is what we know of one of x86asm's.
type operation struct {
	name     string
	rows     [maxArgs + 1]*row // by the number of operands
	signs    bool              // movmskps and the like, whose register REX.W widens
	fromMask bool              // the mask register is an operand
	gprByW   bool
}

// The tables are made when they are first needed, and rows of them are read then: few commands decode, and those that do meet few operations.
var (
	tables      sync.Once
	facts       map[string]factsLine
	operations  [3000]atomic.Pointer[operation] // x86asm's, by number: those that were met
	movRow      *row
	encodingAt  [int(formEVEX) * opmaps << 8]uint16 // see encodingRows
	encodings   [][]encoding
	fmaRow      = parseRow([]string{"", "xrr", "", "", ""})
	plainVector = parseRow([]string{"", "wrrrr", "", "", ""}) // the facts of most vector operations: the first operand is written, the others are read
)

func makeTables() {
	facts = factsLines()
	movRow = rowOf("mov", 2)
	encodings = encodingRows(strings.TrimSpace(integerTable)+gapTable, &encodingAt)
}

// operationOf gives what we know of an operation of x86asm's. Who meets it first makes it; that two do at once does no harm.
func operationOf(op x86asm.Op) *operation {
	if o := operations[op].Load(); o != nil {
		return o
	}
	name, known := opNames[op]
	if !known {
		name = strings.TrimSuffix(strings.ToLower(op.String()), "_c5") // x86asm has second names
		if strings.HasPrefix(name, "vpcmp") {
			name = strings.TrimSuffix(name, "64")
		}
	}
	o := &operation{
		name: name, gprByW: gprByW(name),
		signs:    strings.HasSuffix(name, "movmskps") || strings.HasSuffix(name, "movmskpd") || strings.HasSuffix(name, "pmovmskb"),
		fromMask: strings.HasPrefix(name, "vpmovm2") || strings.HasPrefix(name, "vpbroadcastm"),
	}
	for n := range o.rows {
		o.rows[n] = rowOf(name, n)
	}
	operations[op].Store(o)
	return o
}
