package x86

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// ignored tries the encodings that differ only in bits which the instruction ignores: W and, of scalar operations, the vector length.
// x86asm's tables have one value of them each.
func (l *layout) ignored(try func(bool, byte, func([]byte)) (x86asm.Inst, bool)) (x86asm.Inst, bool) {
	var setL, flipW func(p []byte)
	switch l.form {
	case formVEX:
		at := 1
		if l.opOff-l.prefix == 3 {
			at = 2
			flipW = func(p []byte) { p[2] ^= 0x80 }
		}
		setL = func(p []byte) { p[at] &^= 4 }
	case formEVEX:
		setL = func(p []byte) { p[3] &^= 0x60 }
		if x, ok := try(false, 0, func(p []byte) { p[2] ^= 0x80 }); ok && ignoresW(x.Op.String()) {
			return x, true
		}
	default:
		return x86asm.Inst{}, false
	}
	if flipW != nil {
		if x, ok := try(false, 0, flipW); ok {
			return x, true
		}
	}
	if l.l != 0 {
		if x, ok := try(false, 0, setL); ok && scalar(x.Op.String()) {
			return x, true
		}
		if flipW != nil {
			if x, ok := try(false, 0, func(p []byte) { setL(p); flipW(p) }); ok && scalar(x.Op.String()) {
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
