package x86

import "strings"

// vectorSemantics has what moves data between vectors, registers and memory, and what loops over strings and structs are made of. Names of
// three operands, with v before them, are added by vectorNames. What computes in floating point has no semantics.
var vectorSemantics = []semanticsRow{
	{vectorNames("movaps movapd movups movupd movdqa movdqu lddqu movntps movntpd movntdq movntdqa") +
		" vmovdqa32 vmovdqa64 vmovdqu8 vmovdqu16 vmovdqu32 vmovdqu64", moveVector, undoMoveVector},
	{vectorNames("movd movq"), moveWord, undoMoveWord},
	{vectorNames("movss movsd_xmm"), moveScalar, undoMoveScalar},
	{vectorNames("movlps movlpd movhps movhpd"), moveHalf, undoMoveHalf},
	{vectorNames("pxor xorps xorpd") + " vpxord vpxorq", logic((*Emulator).xorWords), nil},
	{vectorNames("por orps orpd") + " vpord vporq", logic((*Emulator).orWords), nil},
	{vectorNames("pand andps andpd") + " vpandd vpandq", logic((*Emulator).andWords), nil},
	{vectorNames("pandn andnps andnpd") + " vpandnd vpandnq", logic((*Emulator).andNotWords), nil},
	{vectorNames("paddb"), lanes(1, plus), nil},
	{vectorNames("paddw"), lanes(2, plus), nil},
	{vectorNames("paddd"), lanes(4, plus), nil},
	{vectorNames("paddq"), lanes(8, plus), nil},
	{vectorNames("psubb"), lanes(1, minus), nil},
	{vectorNames("psubw"), lanes(2, minus), nil},
	{vectorNames("psubd"), lanes(4, minus), nil},
	{vectorNames("psubq"), lanes(8, minus), nil},
	{vectorNames("pcmpeqb"), lanes(1, equal), nil},
	{vectorNames("pcmpeqw"), lanes(2, equal), nil},
	{vectorNames("pcmpeqd"), lanes(4, equal), nil},
	{vectorNames("pcmpeqq"), lanes(8, equal), nil},
	{vectorNames("pcmpgtb"), lanes(1, greater), nil},
	{vectorNames("pcmpgtw"), lanes(2, greater), nil},
	{vectorNames("pcmpgtd"), lanes(4, greater), nil},
	{vectorNames("pcmpgtq"), lanes(8, greater), nil},
	{vectorNames("pminub"), lanes(1, smaller), nil},
	{vectorNames("pmaxub"), lanes(1, larger), nil},
	{vectorNames("pmovmskb"), signs(1), nil},
	{vectorNames("movmskps"), signs(4), nil},
	{vectorNames("movmskpd"), signs(8), nil},
	{vectorNames("punpcklbw"), permutation(interleaved(1, 0)), nil},
	{vectorNames("punpcklwd"), permutation(interleaved(2, 0)), nil},
	{vectorNames("punpckldq unpcklps"), permutation(interleaved(4, 0)), nil},
	{vectorNames("punpcklqdq unpcklpd movlhps"), permutation(interleaved(8, 0)), nil},
	{vectorNames("punpckhbw"), permutation(interleaved(1, 8)), nil},
	{vectorNames("punpckhwd"), permutation(interleaved(2, 8)), nil},
	{vectorNames("punpckhdq unpckhps"), permutation(interleaved(4, 8)), nil},
	{vectorNames("punpckhqdq unpckhpd"), permutation(interleaved(8, 8)), nil},
	{vectorNames("movhlps"), permutation(func(_ uint8, i int) int {
		if i < 8 {
			return second + i + 8
		}
		return i
	}), nil},
	{vectorNames("pshufd"), permutation(func(imm uint8, i int) int { return second + 4*int(imm>>(2*(i/4))&3) + i&3 }), nil},
	{vectorNames("pshuflw"), permutation(func(imm uint8, i int) int {
		if i >= 8 {
			return second + i
		}
		return second + 2*int(imm>>(2*(i/2))&3) + i&1
	}), nil},
	{vectorNames("pshufhw"), permutation(func(imm uint8, i int) int {
		if i < 8 {
			return second + i
		}
		return second + 8 + 2*int(imm>>(2*(i/2-4))&3) + i&1
	}), nil},
	{vectorNames("shufps"), permutation(func(imm uint8, i int) int { return i/8*second + 4*int(imm>>(2*(i/4))&3) + i&3 }), nil},
	{vectorNames("palignr"), permutation(func(imm uint8, i int) int {
		switch at := int(imm) + i; {
		case at < 16:
			return second + at
		case at < 32:
			return at - 16
		default:
			return zeroByte
		}
	}), nil},
	{vectorNames("pslldq"), shiftBytes(func(imm uint8, i int) int { return i - int(imm) }), nil},
	{vectorNames("psrldq"), shiftBytes(func(imm uint8, i int) int { return i + int(imm) }), nil},
	{vectorNames("pinsrb pinsrw pinsrd pinsrq"), insertWord, nil},
	{vectorNames("pextrb pextrw pextrd pextrq extractps"), extractWord, nil},
	{"vinserti128 vinsertf128", insertHalf, nil},
	{"vextracti128 vextractf128", extractHalf, nil},
	{"vpbroadcastb vpbroadcastw vpbroadcastd vpbroadcastq vbroadcastss vbroadcastsd", broadcast, nil},
	{"vzeroupper", zeroUpper, nil},
	{"vzeroall", zeroAll, nil},
}

// vectorNames adds to each name that with a v before it.
func vectorNames(names string) string {
	list := strings.Fields(names)
	return strings.Join(list, " ") + " v" + strings.Join(list, " v")
}

// wordKnown gives the bits known of word j.
func (v *Vector) wordKnown(j int) uint64 { return byteMasks[uint8(v.Known>>(8*j))] }

// word gives word j.
func (v *Vector) word(j int) Value { return Value{v.Q[j], v.wordKnown(j)} }

// setWord sets word j. Of bytes known in part nothing is known.
func (v *Vector) setWord(j int, w Value) {
	k := wholeBytes(w.Known)
	v.Q[j] = w.Bits & byteMasks[k]
	v.Known = v.Known&^(0xff<<(8*j)) | uint64(k)<<(8*j)
}

// wholeBytes gives a bit for each byte of the mask that is 0xff.
func wholeBytes(k uint64) (b uint8) {
	for i := range 8 {
		if uint8(k>>(8*i)) == 0xff {
			b |= 1 << i
		}
	}
	return b
}

// lowBytes gives the mask of n bytes of a Vector.
func lowBytes(n uint8) uint64 { return ^uint64(0) >> (64 - n) }

// cut leaves the lower n bytes; the others are 0 and known.
func (v *Vector) cut(n uint8) {
	for j := range v.Q {
		switch left := int(n) - 8*j; {
		case left <= 0:
			v.Q[j] = 0
		case left < 8:
			v.Q[j] &= widthMask(uint8(left))
		}
	}
	if n < 64 {
		v.Known |= ^lowBytes(n)
	}
}

// readVector gives the lower n bytes of a vector or memory operand; the others are 0.
func (e *Emulator) readVector(a *operand, n uint8) (v Vector) {
	if a.kind == inVec {
		v = e.Vec[a.reg]
		v.cut(n)
		return v
	}
	v.Known = ^uint64(0)
	for j := 0; 8*j < int(n); j++ {
		w := Value{}
		size := min(8, int(n)-8*j)
		if e.known[0] {
			w = e.Mem.Load(e.addrs[0]+uint64(8*j), size)
		}
		w.Known |= ^widthMask(uint8(size))
		v.setWord(j, w)
	}
	return v
}

// writeVector sets a register, or n bytes of memory. Of a register, SSE leaves the bytes behind the lower n as they are; VEX and EVEX zero them, as v has them.
func (e *Emulator) writeVector(op *Op, a *operand, n uint8, v *Vector) {
	switch {
	case a.kind == inMem && !e.known[0]:
		e.Mem.ForgetAll()
	case a.kind == inMem:
		for j := 0; 8*j < int(n); j++ {
			e.Mem.Store(e.addrs[0]+uint64(8*j), min(8, int(n)-8*j), v.word(j))
		}
	case op.vex:
		e.Vec[a.reg] = *v
	default:
		r := &e.Vec[a.reg]
		for j := 0; 8*j < int(n); j++ {
			m := widthMask(uint8(min(8, int(n)-8*j)))
			r.Q[j] = r.Q[j]&^m | v.Q[j]&m
		}
		m := lowBytes(n)
		r.Known = r.Known&^m | v.Known&m
	}
}

// vectorSize gives the bytes of the first vector operand.
func (op *Op) vectorSize() uint8 {
	for i := range op.nargs {
		if op.args[i].kind == inVec {
			return op.args[i].size
		}
	}
	return op.size
}

func moveVector(e *Emulator, op *Op) {
	n := op.vectorSize()
	v := e.readVector(&op.args[1], n)
	e.writeVector(op, &op.args[0], n, &v)
}

// wordSize gives the bytes that movd and movq move.
func (op *Op) wordSize() uint8 {
	for i := range op.nargs {
		if a := &op.args[i]; a.kind != inVec {
			return a.size
		}
	}
	return 8
}

func moveWord(e *Emulator, op *Op) {
	n, dst, src := op.wordSize(), &op.args[0], &op.args[1]
	var v Vector
	if src.kind == inGPR {
		v.Known = ^uint64(0)
		w := e.read(op, src)
		w.Known |= ^widthMask(n)
		v.setWord(0, w)
	} else {
		v = e.readVector(src, n)
	}
	switch dst.kind {
	case inGPR:
		e.write(op, dst, v.word(0))
	case inMem:
		e.writeVector(op, dst, n, &v)
	default:
		e.writeVector(op, dst, 16, &v)
	}
}

// moveScalar is movss and movsd: between registers, SSE leaves the upper bytes alone, and VEX takes them from the operand in the middle.
func moveScalar(e *Emulator, op *Op) {
	n, dst, src := op.unit, &op.args[0], &op.args[op.nargs-1]
	v := e.readVector(src, n)
	switch {
	case dst.kind == inMem:
		e.writeVector(op, dst, n, &v)
	case src.kind == inMem:
		e.writeVector(op, dst, 16, &v)
	case op.nargs == 3:
		w := e.readVector(&op.args[1], 16)
		m := lowBytes(n)
		w.Q[0] = w.Q[0]&^widthMask(n) | v.Q[0]
		w.Known = w.Known&^m | v.Known&m
		e.writeVector(op, dst, 16, &w)
	default:
		e.writeVector(op, dst, n, &v)
	}
}

// moveHalf is movlps, movhps and their like, which move half of an xmm register from or to memory.
func moveHalf(e *Emulator, op *Op) {
	half := int(op.cond)
	if op.args[0].kind == inMem {
		e.store(0, 8, e.Vec[op.args[1].reg].word(half))
		return
	}
	v := e.Vec[op.args[0].reg]
	if op.nargs == 3 {
		v = e.readVector(&op.args[1], 16)
	}
	v.setWord(half, e.load(0, 8))
	e.Vec[op.args[0].reg] = v
}

// two reads the operands of an operation on two vectors of n bytes; where there is but one, both are it.
func (e *Emulator) two(op *Op) (a, b Vector, n uint8) {
	n = op.vectorSize()
	last := op.nargs - 1
	if op.args[last].kind == immediateOperand {
		last--
	}
	first := uint8(0)
	if last == 2 {
		first = 1
	}
	return e.readVector(&op.args[first], n), e.readVector(&op.args[last], n), n
}

// logic makes the semantics of an operation on bits.
func logic(do func(e *Emulator, a, b Value, same bool) Value) func(*Emulator, *Op) {
	return func(e *Emulator, op *Op) {
		a, b, n := e.two(op)
		x, y := &op.args[0], &op.args[1]
		if op.nargs == 3 {
			x, y = y, &op.args[2]
		}
		same := x.kind == y.kind && x.kind == inVec && x.reg == y.reg
		v := Vector{Known: ^uint64(0)}
		for j := 0; 8*j < int(n); j++ {
			v.setWord(j, do(e, a.word(j), b.word(j), same))
		}
		e.writeVector(op, &op.args[0], n, &v)
	}
}

func (e *Emulator) xorWords(a, b Value, same bool) Value {
	if same {
		return Exactly(0)
	}
	k := a.Known & b.Known
	return Value{(a.Bits ^ b.Bits) & k, k}
}

func (e *Emulator) orWords(a, b Value, _ bool) Value {
	return Value{a.Bits | b.Bits, a.Known&b.Known | a.Bits | b.Bits}
}

func (e *Emulator) andWords(a, b Value, _ bool) Value { return conjunction(a, b) }

func (e *Emulator) andNotWords(a, b Value, same bool) Value {
	if same {
		return Exactly(0)
	}
	return conjunction(Value{^a.Bits & a.Known, a.Known}, b)
}

// Operations on elements of size bytes. Their outcome may have bits beyond.
func plus(a, b uint64, _ uint8) uint64    { return a + b }
func minus(a, b uint64, _ uint8) uint64   { return a - b }
func smaller(a, b uint64, _ uint8) uint64 { return min(a, b) }
func larger(a, b uint64, _ uint8) uint64  { return max(a, b) }

func equal(a, b uint64, _ uint8) uint64 {
	if a == b {
		return ^uint64(0)
	}
	return 0
}

func greater(a, b uint64, size uint8) uint64 {
	s := 64 - 8*size
	if int64(a<<s) > int64(b<<s) {
		return ^uint64(0)
	}
	return 0
}

// lanes makes the semantics of an operation on elements of a size. An outcome is known if both elements are.
func lanes(size uint8, do func(a, b uint64, size uint8) uint64) func(*Emulator, *Op) {
	return func(e *Emulator, op *Op) {
		a, b, n := e.two(op)
		m := widthMask(size)
		v := Vector{Known: ^uint64(0)}
		for j := 0; 8*j < int(n); j++ {
			x, y, r := a.word(j), b.word(j), Value{}
			for s := uint8(0); s < 64; s += 8 * size {
				if x.Known&y.Known>>s&m == m {
					r.Bits |= do(x.Bits>>s&m, y.Bits>>s&m, size) & m << s
					r.Known |= m << s
				}
			}
			v.setWord(j, r)
		}
		e.writeVector(op, &op.args[0], n, &v)
	}
}

// signs makes the semantics of an operation that gathers the upper bits of a vector's elements.
func signs(size int) func(*Emulator, *Op) {
	return func(e *Emulator, op *Op) {
		n := op.args[1].size
		v := e.readVector(&op.args[1], n)
		r, k := uint64(0), 0
		known := uint64(0)
		for at := size - 1; at < int(n); at += size {
			r |= v.Q[at/8] >> (8*(at%8) + 7) & 1 << k
			known |= v.Known >> at & 1 << k
			k++
		}
		known |= ^uint64(0) << k
		e.setGPR(op.args[0].reg, 8, 0, Value{r, known})
	}
}

// A permutation's sources: bytes 0 to 15 of the first operand, of the second from here on, and a byte of zeros.
const (
	second   = 16
	zeroByte = 32
)

// permutation makes the semantics of an operation that moves bytes within each 16 of them: from gives for byte i where it comes from.
func permutation(from func(imm uint8, i int) int) func(*Emulator, *Op) {
	return func(e *Emulator, op *Op) {
		a, b, n := e.two(op)
		v := Vector{Known: ^lowBytes(n)}
		for base := 0; base < int(n); base += 16 {
			for i := range 16 {
				src, at := &a, from(uint8(op.imm), i)
				if at == zeroByte {
					v.Known |= 1 << (base + i)
					continue
				}
				if at >= second {
					src = &b
				}
				at = base + at&15
				v.Q[(base+i)/8] |= src.Q[at/8] >> (8 * (at % 8)) & 0xff << (8 * (i % 8))
				v.Known |= src.Known >> at & 1 << (base + i)
			}
		}
		e.writeVector(op, &op.args[0], n, &v)
	}
}

// interleaved gives the permutation that takes elements of a size in turn from both operands, from the byte at on.
func interleaved(size, at int) func(uint8, int) int {
	return func(_ uint8, i int) int { return i/size&1*second + at + i/(2*size)*size + i%size }
}

// shiftBytes gives the semantics of a shift of each 16 bytes; of two operands the second is the count.
func shiftBytes(from func(imm uint8, i int) int) func(*Emulator, *Op) {
	return permutation(func(imm uint8, i int) int {
		if at := from(imm, i); at >= 0 && at < 16 {
			return second + at
		}
		return zeroByte
	})
}

// element gives which of n elements an immediate names, as the byte where it begins.
func (op *Op) elementAt(size uint8) int { return int(uint8(op.imm)&(16/size-1)) * int(size) }

func insertWord(e *Emulator, op *Op) {
	src, first := &op.args[op.nargs-2], 0
	if op.nargs == 4 {
		first = 1
	}
	size, v := op.unit, e.readVector(&op.args[first], 16)
	w := e.read(op, src)
	at := op.elementAt(size)
	j, s := at/8, at%8*8
	m := widthMask(size) << s
	old := v.word(j)
	v.setWord(j, Value{old.Bits&^m | w.Bits<<s&m, old.Known&^m | w.Known<<s&m})
	e.writeVector(op, &op.args[0], 16, &v)
}

func extractWord(e *Emulator, op *Op) {
	size, v := op.unit, e.readVector(&op.args[1], 16)
	at := op.elementAt(size)
	w := v.word(at / 8)
	s, m := at%8*8, widthMask(size)
	w = Value{w.Bits >> s & m, w.Known>>s&m | ^m}
	if dst := &op.args[0]; dst.kind == inGPR {
		e.setGPR(dst.reg, 8, 0, w)
	} else {
		e.store(0, size, w)
	}
}

func insertHalf(e *Emulator, op *Op) {
	v, w := e.readVector(&op.args[1], 32), e.readVector(&op.args[2], 16)
	at := int(op.imm & 1 * 2)
	v.setWord(at, w.word(0))
	v.setWord(at+1, w.word(1))
	e.writeVector(op, &op.args[0], 32, &v)
}

func extractHalf(e *Emulator, op *Op) {
	v := e.readVector(&op.args[1], 32)
	at := int(op.imm & 1 * 2)
	w := Vector{Known: ^uint64(0)}
	w.setWord(0, v.word(at))
	w.setWord(1, v.word(at+1))
	e.writeVector(op, &op.args[0], 16, &w)
}

func broadcast(e *Emulator, op *Op) {
	n, size, src := op.args[0].size, op.unit, &op.args[1]
	var w Value
	if src.kind == inVec {
		w = e.Vec[src.reg].word(0)
	} else if src.kind == inGPR {
		w = e.GPR[src.reg]
	} else {
		w = e.load(0, size)
	}
	m := widthMask(size)
	w = Value{w.Bits & m, w.Known & m}
	for s := 8 * size; s < 64; s *= 2 {
		w = Value{w.Bits | w.Bits<<s, w.Known | w.Known<<s}
	}
	v := Vector{Known: ^uint64(0)}
	for j := range n / 8 {
		v.setWord(int(j), w)
	}
	e.writeVector(op, &op.args[0], n, &v)
}

func zeroUpper(e *Emulator, op *Op) {
	for i := range 16 {
		e.Vec[i].cut(16)
	}
}

func zeroAll(e *Emulator, op *Op) {
	for i := range 16 {
		e.Vec[i] = Vector{Known: ^uint64(0)}
	}
}

// unitOf gives the bytes of the elements that an operation's name tells, where moveScalar and the like need them.
func unitOf(op string) uint8 {
	op = strings.TrimSuffix(op, "_xmm")
	switch {
	case strings.HasSuffix(op, "ss") || strings.HasSuffix(op, "ps") || strings.HasSuffix(op, "d") && !strings.HasSuffix(op, "sd"):
		return 4
	case strings.HasSuffix(op, "b"):
		return 1
	case strings.HasSuffix(op, "w"):
		return 2
	}
	return 8
}
