package x86

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// ignored tries the encodings that differ only in bits which the instruction ignores: W and, of scalar operations, the vector length.
// x86asm's tables have one value of them each.
func (l *layout) ignored(code []byte) (x86asm.Inst, bool) {
	var setL, flipW tweak // nothing, when zero
	switch l.form {
	case formVEX:
		setL = tweak{at: 1, clear: 4}
		if l.opOff-l.prefix == 3 {
			setL.at = 2
			flipW = tweak{at: 2, flip: 0x80}
		}
	case formEVEX:
		setL = tweak{at: 3, clear: 0x60}
		if x, ok := l.ask(code, false, 0, [2]tweak{{at: 2, flip: 0x80}}); ok && ignoresW(x.Op.String()) {
			return x, true
		}
	default:
		return x86asm.Inst{}, false
	}
	if flipW.at != 0 {
		if x, ok := l.ask(code, false, 0, [2]tweak{flipW}); ok {
			return x, true
		}
	}
	if l.l != 0 {
		if x, ok := l.ask(code, false, 0, [2]tweak{setL}); ok && scalar(x.Op.String()) {
			return x, true
		}
		if flipW.at != 0 {
			if x, ok := l.ask(code, false, 0, [2]tweak{setL, flipW}); ok && scalar(x.Op.String()) {
				return x, true
			}
		}
	}
	return x86asm.Inst{}, false
}

// scalar says whether a vector operation works on one element, so that it ignores the vector length.
func scalar(op string) bool {
	for _, s := range []string{"SS", "SD", "SH", "2SI", "2USI"} {
		if strings.HasSuffix(op, s) {
			return true
		}
	}
	return false
}

// gprByW says whether the operation's general registers are as wide as VEX.W says; the others' width is fixed, and as x86asm has it.
func gprByW(op string) bool {
	switch op {
	case "andn", "bextr", "blsi", "blsmsk", "blsr", "bzhi", "mulx", "pdep", "pext", "rorx", "sarx", "shlx", "shrx":
		return true
	}
	return false
}

// ignoresW says whether an EVEX operation ignores W: those on bytes and words and a few more; of the others W is part of the opcode.
func ignoresW(op string) bool {
	if strings.HasPrefix(op, "VAES") || op == "VINSERTPS" || op == "VEXTRACTPS" || op == "VPSLLDQ" || op == "VPSRLDQ" {
		return true
	}
	if strings.HasPrefix(op, "VPMOVSX") || strings.HasPrefix(op, "VPMOVZX") {
		return !strings.HasSuffix(op, "DQ")
	}
	if !strings.HasPrefix(op, "VP") {
		return false
	}
	for _, s := range []string{"B", "W", "BW", "WD"} {
		if strings.HasSuffix(op, s) {
			return true
		}
	}
	return strings.HasPrefix(op, "VPEXTRW") // x86asm has it twice
}
