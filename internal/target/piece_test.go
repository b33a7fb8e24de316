package target

import (
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
)

// A strcpy of a constant is two stores where a compiler makes it in line, and each was told as a write of its own, of one line.
func TestOnePiece(t *testing.T) {
	part := func(pc, caller, piece uint64, line int) finding.Part {
		return finding.Part{Text: "Written here", Thread: 2, Piece: piece, Stack: finding.Stack{
			{PC: pc, Func: "strcpy", File: "string.h", Line: 79, Inlined: true}, {PC: pc, Func: "fill", File: "a.c", Line: line}, {PC: caller, Func: "main", File: "a.c", Line: 20}}}
	}
	first := part(0x10, 0x50, 0x1010, 6)
	other := part(0x18, 0x50, 0x1000, 6)
	other.Thread = 3
	nameless := part(0x18, 0x50, 0x1000, 6)
	nameless.Stack = nameless.Stack[1:]
	for name, c := range map[string]struct {
		parts []finding.Part
		want  int
	}{
		"pieces":               {[]finding.Part{first, part(0x18, 0x50, 0x1000, 6), part(0x20, 0x50, 0xff0, 6)}, 1},
		"another line":         {[]finding.Part{first, part(0x18, 0x50, 0x1000, 7)}, 2},
		"another call":         {[]finding.Part{first, part(0x18, 0x58, 0x1000, 6)}, 2},
		"far away":             {[]finding.Part{first, part(0x18, 0x50, 0x2000, 6)}, 2},
		"another thread":       {[]finding.Part{first, other}, 2},
		"another depth":        {[]finding.Part{first, nameless}, 2},
		"something in between": {[]finding.Part{first, {Text: "Noticed"}, part(0x18, 0x50, 0x1000, 6)}, 3},
		"no pieces":            {[]finding.Part{{Text: "here", Stack: first.Stack}, {Text: "here", Stack: first.Stack}}, 2},
	} {
		if got := onePiece(c.parts); len(got) != c.want || got[0].Stack[0].PC != c.parts[0].Stack[0].PC {
			t.Errorf("%s: %d parts", name, len(got))
		}
	}
}
