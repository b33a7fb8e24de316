package target

import (
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
)

// Symbolize fills in the names of f: of the frames of all its stacks and of its global objects. What has no name keeps its module and
// offset, or its bare address.
func (s *Set) Symbolize(f *finding.Finding) {
	if s.sym == nil {
		return
	}
	for i := range f.Parts {
		p := &f.Parts[i]
		p.Stack = s.SymbolizeStack(p.Stack)
		if p.Callee && len(p.Stack) > 0 && p.Stack[0].Func != "" {
			callee := &p.Stack[0] // the agent's, in front of the library's
			callee.File, callee.Line, callee.Column = "", 0, 0
			if what, where, ok := strings.Cut(p.Text, " at "); ok {
				p.Text = what + " by " + callee.Func + " at " + where
			}
			p.Callee = false // it is said
		}
		for j := range p.Held {
			p.Held[j].Stack = s.SymbolizeStack(p.Held[j].Stack)
		}
	}
	f.Parts = onePiece(f.Parts)
	if f.Crash != nil && f.Crash.Exception != "" {
		const typeinfo = "typeinfo for "
		if name, ok := strings.CutPrefix(image.Demangle("_ZTI"+f.Crash.Exception), typeinfo); ok {
			f.Crash.Exception = name
		}
	}
	for i := range f.Threads {
		f.Threads[i].Created = s.SymbolizeStack(f.Threads[i].Created)
	}
	for i := range f.Objects {
		o := &f.Objects[i]
		o.Allocated = s.SymbolizeStack(o.Allocated)
		o.Initialised = s.SymbolizeStack(o.Initialised)
		if o.Where == finding.Global && o.Symbol == "" && o.Module != "" {
			at := o.SymOffset
			if name, offset, ok := s.sym.Symbol(o.Module, o.BuildID, at); ok {
				o.Symbol, o.SymOffset = name, offset
				o.Path, o.Type, _ = s.sym.Variable(o.Module, o.BuildID, at, false)
			}
		}
		if o.Below != 0 && o.Where != finding.TLS {
			s.threadLocal(o)
		}
		if o.Where == finding.OnStack && o.Frame.Module != "" {
			s.stackSlot(o)
		}
		if o.Kind != finding.KindWords("location") { // of locks what they are is known, and how their library makes them is nobody's matter
			o.Path, _, _ = strings.Cut(o.Path, "._")
			o.Type = ""
		}
	}
}

// threadLocal makes o a thread-local variable of the executable, if it is one.
func (s *Set) threadLocal(o *finding.Object) {
	module, buildID := o.Module, o.BuildID
	o.Module, o.BuildID = "", ""
	if name, offset, at, ok := s.sym.ThreadLocal(module, buildID, o.Below); ok && module != "" {
		o.Where, o.Module, o.BuildID, o.Symbol, o.SymOffset, o.OwnerThread = finding.TLS, module, buildID, name, offset, o.BelowThread
		o.Path, o.Type, _ = s.sym.Variable(module, buildID, at, true)
	}
}

// SymbolizeStack gives the stack with names, inlined frames included; it leaves st itself as it is. The first frame's address is the
// instruction itself; those of the others are return addresses, and the call that belongs to them ends just before.
func (s *Set) SymbolizeStack(st finding.Stack) finding.Stack {
	if s.sym == nil || len(st) == 0 {
		return st
	}
	out := make(finding.Stack, 0, len(st)+4)
	for i, fr := range st {
		if fr.Module == "" || fr.Func != "" || fr.File != "" {
			out = append(out, fr)
			continue
		}
		at := fr.Offset
		if i > 0 {
			at--
		}
		named := s.sym.Frames(fr.Module, fr.BuildID, at)
		if len(named) == 0 {
			out = append(out, fr)
			continue
		}
		for j, n := range named {
			n.PC, n.Module, n.BuildID, n.Offset = fr.PC, fr.Module, fr.BuildID, fr.Offset
			n.Inlined = j < len(named)-1
			out = append(out, n)
		}
	}
	return out
}

// pieceBytes is as much as an instruction writes.
const pieceBytes = 64

// onePiece leaves out what has been said by the part before: a write that a compiler made several instructions of, such as a strcpy of a constant.
func onePiece(parts []finding.Part) []finding.Part {
	return slices.CompactFunc(parts, func(b, a finding.Part) bool {
		return a.Piece != 0 && b.Piece != 0 && a.Piece-b.Piece+pieceBytes <= 2*pieceBytes && a.Text == b.Text && a.Thread == b.Thread && sameLines(a.Stack, b.Stack)
	})
}

// sameLines says whether two stacks differ at most in which instruction of a line it is that they begin with.
func sameLines(a, b finding.Stack) bool {
	if len(a) == 0 || len(a) != len(b) || a[0].File == "" || a[0].Line == 0 {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		first := x.PC == a[0].PC && y.PC == b[0].PC // with what is inlined there
		if x.Func != y.Func || x.File != y.File || x.Line != y.Line || x.Module != y.Module || x.Inlined != y.Inlined || !first && x.PC != y.PC {
			return false
		}
	}
	return true
}
