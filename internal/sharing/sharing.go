// Package sharing finds the cache lines that threads take from each other: which are shared falsely, because their bytes are of different threads, and which truly. It is an analysis of
// package tool.
package sharing

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/tool"
)

// MinMoved is how often a line must have moved to be shown: what is handed over once or twice costs nothing.
const MinMoved = 10

// Kind is how a line is shared.
type Kind string

const (
	False Kind = "false" // what one thread writes no other accesses
	True  Kind = "true"  // all that threads take the line for another one writes or accesses
	Both  Kind = "both"
)

// Profile is the analysis.
type Profile struct {
	lines map[key]*line
	done  []Line
}

type key struct{ process, line uint64 }

type line struct {
	uses  []use
	moved uint64
}

type use struct {
	tool.Use
	fields []Field
}

// Line is a line that is shared.
type Line struct {
	PID     uint32
	Exe     string
	Addr    uint64
	Kind    Kind
	Moved   uint64
	Threads []Thread // the one that took it most comes first
}

// Thread is what a thread did to a line.
type Thread struct {
	finding.Thread
	Reads, Writes, Moved uint64
	Uses                 []Instruction
}

// Instruction is what an instruction did; Stack has the functions that it is inlined into.
type Instruction struct {
	Stack                finding.Stack
	Reads, Writes, Moved uint64
	Fields               []Field
}

// Field is a run of bytes that an instruction accessed, and what lies there.
type Field struct {
	First, Last int // in the line
	Object      finding.Object
}

// New makes one.
func New() *Profile { return &Profile{lines: map[key]*line{}} }

// Use is the tool.Analysis's.
func (p *Profile) Use(w tool.World, u *tool.Use) {
	k := key{u.Process, u.Line}
	l := p.lines[k]
	if l == nil {
		l = &line{}
		p.lines[k] = l
	}
	l.moved += u.Moved
	for i := range l.uses {
		if o := &l.uses[i]; o.Thread == u.Thread && o.PC == u.PC {
			o.Read, o.Written, o.Reads, o.Writes, o.Moved = o.Read|u.Read, o.Written|u.Written, o.Reads+u.Reads, o.Writes+u.Writes, o.Moved+u.Moved
			o.First, o.Last = min(o.First, u.First), max(o.Last, u.Last)
			return
		}
	}
	x := use{Use: *u}
	if u.Moved > 0 { // its object may be gone when all is over
		x.fields = fieldsOf(w, u)
	}
	l.uses = append(l.uses, x)
}

func fieldsOf(w tool.World, u *tool.Use) (out []Field) {
	for mask, at := u.Read|u.Written, 0; mask != 0; {
		skip := bits.TrailingZeros64(mask)
		n := bits.TrailingZeros64(^(mask >> skip))
		at += skip
		o := w.Object(u.Process, u.Line+uint64(at), 0)
		o.Kind = finding.KindWords("location")
		out = append(out, Field{at, at + n - 1, o})
		at += n
		if skip+n >= 64 {
			break
		}
		mask >>= skip + n
	}
	return out
}

// End is the tool.Analysis's: the process's lines are judged.
func (p *Profile) End(w tool.World, process uint64) {
	for k, l := range p.lines {
		if k.process != process {
			continue
		}
		delete(p.lines, k)
		if l.moved >= MinMoved {
			p.judge(w, k, l)
		}
	}
}

// byThread is what one thread did to a line.
type byThread struct {
	number        uint32
	read, written uint64
	first, last   uint64
	moved         uint64
	uses          []use
}

// seldom is how often a thread must have taken a line to count: less is who sets it up and who looks at it in the end.
const seldom = 3

// together leaves the threads that had the line while another did: a stack or block that is used again by another thread is not shared.
func together(l *line) (out []*byThread) {
	all := map[uint32]*byThread{}
	for _, u := range l.uses {
		t := all[u.Thread]
		if t == nil {
			t = &byThread{number: u.Thread, first: u.First}
			all[u.Thread] = t
		}
		t.read, t.written, t.moved = t.read|u.Read, t.written|u.Written, t.moved+u.Moved
		t.first, t.last = min(t.first, u.First), max(t.last, u.Last)
		t.uses = append(t.uses, u)
	}
	maps.DeleteFunc(all, func(_ uint32, t *byThread) bool { return t.moved < seldom })
	for _, n := range slices.Sorted(maps.Keys(all)) {
		t := all[n]
		for _, o := range all {
			if o != t && o.first <= t.last && t.first <= o.last {
				out = append(out, t)
				break
			}
		}
	}
	return out
}

// kindOf says how threads share a line; "": nobody writes to it.
func kindOf(threads []*byThread) Kind {
	same, apart := false, false
	for i, t := range threads {
		for _, o := range threads[:i] {
			if t.written|o.written == 0 {
				continue
			}
			if t.written&(o.read|o.written) != 0 || o.written&(t.read|t.written) != 0 {
				same = true
			} else {
				apart = true
			}
		}
	}
	switch {
	case same && apart:
		return Both
	case same:
		return True
	case apart:
		return False
	}
	return ""
}

// block makes o one in a heap block that was freed since another use of the line was told.
func (l *line) block(o *finding.Object) {
	for _, u := range l.uses {
		for _, f := range u.fields {
			if k := f.Object; o.Where == finding.Unknown && k.Where == finding.Heap && o.Addr-k.Block < k.Size {
				k.Addr = o.Addr
				*o = k
			}
		}
	}
}

func (p *Profile) judge(w tool.World, k key, l *line) {
	threads := together(l)
	kind := kindOf(threads)
	out := Line{Addr: k.line, Kind: kind}
	for _, t := range threads {
		out.Moved += t.moved
	}
	if kind == "" || out.Moved < MinMoved {
		return
	}
	out.PID, out.Exe, _ = w.Process(k.process)
	for _, t := range threads {
		th := Thread{Thread: w.Thread(k.process, t.number), Moved: t.moved}
		for _, u := range t.uses {
			in := Instruction{Reads: u.Reads, Writes: u.Writes, Moved: u.Moved, Fields: u.fields}
			if in.Fields == nil {
				in.Fields = fieldsOf(w, &u.Use)
				for i := range in.Fields {
					l.block(&in.Fields[i].Object)
				}
			}
			// Names are put into findings.
			f := finding.Finding{Parts: []finding.Part{{Stack: finding.Stack{w.Frame(k.process, u.PC, false)}}}}
			for _, x := range in.Fields {
				f.Objects = append(f.Objects, x.Object)
			}
			w.Symbolize(&f)
			in.Stack = f.Parts[0].Stack
			for i := range in.Fields {
				in.Fields[i].Object = f.Objects[i]
			}
			th.Reads += u.Reads
			th.Writes += u.Writes
			th.Uses = append(th.Uses, in)
		}
		slices.SortStableFunc(th.Uses, func(a, b Instruction) int { return cmp.Compare(b.Moved, a.Moved) })
		out.Threads = append(out.Threads, th)
	}
	slices.SortStableFunc(out.Threads, func(a, b Thread) int { return cmp.Compare(b.Moved, a.Moved) })
	p.done = append(p.done, out)
}

// Lines are those that are shared, of the processes that have ended; the one that moved most comes first.
func (p *Profile) Lines() []Line {
	slices.SortFunc(p.done, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Moved, a.Moved), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Addr, b.Addr))
	})
	return p.done
}
