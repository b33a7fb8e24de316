package x86

import "encoding/binary"

// DirectBranch gives the length of the direct jump, conditional jump or call that code begins with, and its distance from its end; ok is false if it is something else, has prefixes, or
// is not whole. What it says Decode says, in ten times as long.
func DirectBranch(code []byte) (n int, distance int64, call, ok bool) {
	if len(code) < 2 {
		return 0, 0, false, false
	}
	switch b := code[0]; {
	case b&0xf0 == 0x70 || b == 0xeb:
		return 2, int64(int8(code[1])), false, true
	case b == 0xe8 || b == 0xe9:
		n = 5
	case b == 0x0f && code[1]&0xf0 == 0x80:
		n = 6
	}
	if n == 0 || len(code) < n {
		return 0, 0, false, false
	}
	return n, int64(int32(binary.LittleEndian.Uint32(code[n-4:]))), code[0] == 0xe8, true
}

// MayBranch says whether the instruction that code begins with may be one whose Flow is not FlowNone, by a look at its opcode: a tenth of the time of Decode, for those who look
// for branches among many instructions. The code must begin with an instruction.
func MayBranch(code []byte) bool {
	for i, b := range code {
		switch {
		case b == 0x26 || b == 0x2e || b == 0x36 || b == 0x3e || b >= 0x64 && b <= 0x67 || b == 0xf0 || b == 0xf2 || b == 0xf3, b&0xf0 == 0x40:
			continue // a prefix
		case b == 0x0f && i+1 < len(code):
			b = code[i+1]
			return b&0xf0 == 0x80 || b == 0x01 || b == 0x05 || b == 0x07 || b == 0x0b || b == 0x34 || b == 0x35 || b == 0xaa || b == 0xb9 || b == 0xff
		case b == 0xc6 || b == 0xc7: // mov; xabort, xbegin
			return i+1 < len(code) && code[i+1] == 0xf8
		}
		return b&0xf0 == 0x70 || b >= 0xe0 && b <= 0xe3 || b >= 0xe8 && b <= 0xeb || b == 0x9a || b == 0xc2 || b == 0xc3 || b >= 0xca && b <= 0xcf || b == 0xf1 || b == 0xf4 || b == 0xff
	}
	return false
}
