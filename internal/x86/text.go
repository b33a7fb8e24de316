package x86

import (
	"fmt"
	"strings"
)

var sizeNames = map[uint16]string{1: "byte", 2: "word", 4: "dword", 6: "fword", 8: "qword", 10: "tbyte", 16: "xmmword", 32: "ymmword", 64: "zmmword"}

// text gives the operand without its size.
func (m Mem) text() string {
	var b strings.Builder
	if m.Seg != NoReg {
		b.WriteString(m.Seg.String() + ":")
	}
	b.WriteByte('[')
	sep := ""
	if m.Base != NoReg {
		b.WriteString(m.Base.String())
		sep = "+"
	}
	if m.Index != NoReg {
		fmt.Fprintf(&b, "%s%s*%d", sep, m.Index, m.Scale)
		sep = "+"
	}
	switch {
	case sep == "":
		fmt.Fprintf(&b, "%#x", uint64(m.Disp))
	case m.Disp < 0:
		fmt.Fprintf(&b, "-%#x", -uint64(m.Disp))
	case m.Disp > 0:
		fmt.Fprintf(&b, "+%#x", m.Disp)
	}
	return b.String() + "]"
}

// String gives the instruction in Intel syntax. Branch targets are relative to the instruction's end; immediates are hexadecimal.
func (in Inst) String() string {
	var b strings.Builder
	for _, p := range []struct {
		on   bool
		name string
	}{{in.Lock, "lock "}, {in.Rep, "rep "}, {in.Repne, "repne "}, {in.NoTrack, "notrack "}} {
		if p.on {
			b.WriteString(p.name)
		}
	}
	b.WriteString(strings.TrimSuffix(in.Op, "_xmm"))
	for i, a := range in.Args() {
		b.WriteString(map[bool]string{true: " ", false: ", "}[i == 0])
		switch a.Kind {
		case ArgReg:
			b.WriteString(a.Reg.String())
		case ArgMem:
			if n := sizeNames[in.Mems()[0].Size]; n != "" {
				b.WriteString(n + " ptr ")
			}
			b.WriteString(in.Mems()[0].text())
		case ArgImm:
			fmt.Fprintf(&b, "%#x", a.Imm)
		case ArgOne:
			b.WriteByte('1')
		case ArgRel:
			fmt.Fprintf(&b, ".%+#x", a.Imm)
		}
		if i == 0 && in.Mask != NoReg {
			fmt.Fprintf(&b, "{%s}", in.Mask)
		}
		if i == 0 && in.Zeroing {
			b.WriteString("{z}")
		}
	}
	return b.String()
}
