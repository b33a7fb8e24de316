package image

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
)

// Proves: over a whole library (libc, C) and a program (C++), the lines of every row, the function at the start of every range, and
// the inlined call at the start of every inlined range are those that debug/dwarf reads.
func TestEqualsDebugDwarf(t *testing.T) {
	for name, path := range map[string]string{
		"c++":     build(t, "names", "g++", "-g", "-O2", "testdata/names.cc"),
		"clang++": build(t, "names", "clang++", "-g", "-O2", "testdata/names.cc"),
		"libc":    libcDebugFile(t),
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "libc" {
				t.Skip("long")
			}
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			std, err := f.DWARF()
			if err != nil {
				t.Fatal(err)
			}
			m := mustOpen(t, path)
			d := m.dwarf()
			if d == nil {
				t.Fatal(m.Notes())
			}
			lines, funcs, inlined := compareWithStd(t, std, d)
			t.Logf("%d rows, %d functions, %d inlined calls compared", lines, funcs, inlined)
			if lines < 20 || funcs < 4 || inlined < 10 {
				t.Error("too few")
			}
		})
	}
}

func libcDebugFile(t testing.TB) string {
	t.Helper()
	m := mustOpen(t, "/lib/x86_64-linux-gnu/libc.so.6")
	p := buildIDPaths(m.BuildID())
	if len(p) == 0 {
		t.Fatal("libc has no build-id")
	}
	return p[0]
}

func compareWithStd(t *testing.T, std *dwarf.Data, d *dwarfFile) (lines, funcs, inlined int) {
	// In assembly, one range has several names.
	names := map[[2]uint64][]string{}
	eachFunction(t, std, func(_, e *dwarf.Entry, rg [2]uint64) {
		if e.Tag == dwarf.TagSubprogram {
			names[rg] = append(names[rg], stdName(std, e))
		}
	})
	var wrong int
	fail := func(format string, a ...any) {
		if wrong++; wrong < 20 {
			t.Errorf(format, a...)
		}
	}
	var last *dwarf.Entry
	eachFunction(t, std, func(cu, e *dwarf.Entry, rg [2]uint64) {
		if cu != last {
			last = cu
			lines += compareLines(t, std, cu, d, fail)
		}
		want := stdName(std, e)
		got := d.calls(rg[0])
		found := false
		for _, c := range got {
			found = found || c.name == want || c.linkage == want || strings.HasSuffix(c.name, "::"+want) || slices.Contains(names[rg], c.name)
		}
		if !found {
			fail("%v %q at %#x is not among %+v", e.Tag, want, rg[0], got)
		}
		if e.Tag == dwarf.TagSubprogram {
			funcs++
			return
		}
		inlined++
		line, _ := e.Val(dwarf.AttrCallLine).(int64)
		if !slices.ContainsFunc(got, func(c call) bool { return int64(c.line) == line }) {
			fail("the call of %q at %#x is in line %d, not in %+v", want, rg[0], line, got)
		}
	})
	return lines, funcs, inlined
}

// eachFunction calls f for every range of functions and inlined calls.
func eachFunction(t *testing.T, std *dwarf.Data, f func(cu, e *dwarf.Entry, rg [2]uint64)) {
	r := std.Reader()
	var cu *dwarf.Entry
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return
		}
		switch e.Tag {
		case dwarf.TagCompileUnit:
			cu = e
		case dwarf.TagSubprogram, dwarf.TagInlinedSubroutine:
			ranges, err := std.Ranges(e)
			if err != nil {
				t.Fatal(err)
			}
			for _, rg := range ranges {
				if rg[0] != 0 && rg[0] < rg[1] {
					f(cu, e, rg)
				}
			}
		}
	}
}

// stdName is the linkage name or else the plain name, through origins.
func stdName(std *dwarf.Data, e *dwarf.Entry) string {
	name := ""
	for range 10 {
		if s, ok := e.Val(dwarf.AttrLinkageName).(string); ok {
			return s
		}
		if s, ok := e.Val(dwarf.AttrName).(string); ok && name == "" {
			name = s
		}
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			if off, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset); !ok {
				break
			}
		}
		r := std.Reader()
		r.Seek(off)
		next, err := r.Next()
		if err != nil || next == nil {
			break
		}
		e = next
	}
	return name
}

func compareLines(t *testing.T, std *dwarf.Data, cu *dwarf.Entry, d *dwarfFile, fail func(string, ...any)) (n int) {
	lr, err := std.LineReader(cu)
	if err != nil {
		t.Fatal(err)
	}
	if lr == nil {
		return 0
	}
	i := d.unitAt(uint64(cu.Offset))
	if i < 0 {
		t.Fatalf("no unit at %#x", cu.Offset)
	}
	p := d.parse(i)
	if p == nil {
		t.Fatalf("unit at %#x cannot be read", cu.Offset)
	}
	var prev dwarf.LineEntry
	have := false
	for {
		var e dwarf.LineEntry
		if err := lr.Next(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		// A row holds up to the next address.
		if have && e.Address > prev.Address && prev.Line != 0 && prev.Address != 0 {
			n++
			for _, a := range []uint64{prev.Address, e.Address - 1} {
				row, ok := p.lines.find(a)
				if f := p.lines.file(uint64(row.file)); !ok || int(row.line) != prev.Line || int(row.col) != prev.Column || path.Base(f) != path.Base(prev.File.Name) {
					fail("line at %#x: %+v %s %v, expected %s:%d:%d", a, row, f, ok, prev.File.Name, prev.Line, prev.Column)
				}
			}
		}
		prev, have = e, !e.EndSequence
	}
	return n
}
