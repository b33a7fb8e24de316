package sharing

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/tool"
	"github.com/ripstop/ripstop/internal/wire"
)

// world has a name for nothing but places in a table.
type world struct{}

func (world) Process(uint64) (uint32, string, []string)     { return 7, "/bin/prog", nil }
func (world) Thread(_ uint64, number uint32) finding.Thread { return finding.Thread{Number: number} }
func (world) Frame(_, pc uint64, _ bool) finding.Frame      { return finding.Frame{PC: pc} }
func (world) Symbolize(*finding.Finding)                    {}
func (world) Object(_, addr uint64, _ wire.Object) finding.Object {
	return finding.Object{Addr: addr, Where: finding.Global, Module: "/bin/prog", Symbol: "table", SymOffset: addr & 63}
}

// Which lines are told, and as what.
func TestKinds(t *testing.T) {
	u := func(thread uint32, read, written, moved, first, last uint64) tool.Use {
		return tool.Use{Process: 1, Thread: thread, Line: 0x1000, PC: 0x400000 + uint64(thread), Read: read, Written: written, Reads: 1, Writes: 1, Moved: moved, First: first, Last: last}
	}
	for _, c := range []struct {
		what string
		uses []tool.Use
		want Kind
	}{
		{"two counters", []tool.Use{u(2, 0xff, 0xff, 20, 1, 9), u(3, 0xff00, 0xff00, 20, 1, 9)}, False},
		{"one counter", []tool.Use{u(2, 0xff, 0xff, 20, 1, 9), u(3, 0xff, 0xff, 20, 1, 9)}, True},
		{"a flag beside a counter of another", []tool.Use{u(2, 0xff, 0xff, 20, 1, 9), u(3, 0xff, 0, 20, 1, 9), u(4, 0, 0xff00, 20, 1, 9)}, Both},
		{"one after the other", []tool.Use{u(2, 0xff, 0xff, 20, 1, 4), u(3, 0xff00, 0xff00, 20, 5, 9)}, ""},
		{"all read", []tool.Use{u(2, 0xff, 0, 20, 1, 9), u(3, 0xff, 0, 20, 1, 9)}, ""},
		{"seldom", []tool.Use{u(2, 0xff, 0xff, 1, 1, 9), u(3, 0xff, 0xff, 1, 1, 9)}, ""},
		{"one that set it up and looks at the end", []tool.Use{u(1, 0xffff, 0xffff, 2, 1, 10), u(2, 0xff, 0xff, 20, 2, 9), u(3, 0xff00, 0xff00, 20, 2, 9)}, False},
		{"told in pieces", []tool.Use{u(2, 0xff, 0xff, 6, 1, 3), u(2, 0, 0xff, 6, 4, 9), u(3, 0xff00, 0xff00, 6, 2, 9)}, False},
	} {
		p := New()
		for i := range c.uses {
			p.Use(world{}, &c.uses[i])
		}
		p.End(world{}, 1)
		got := Kind("")
		if lines := p.Lines(); len(lines) > 0 {
			got = lines[0].Kind
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q", c.what, got, c.want)
		}
	}
}

// Both forms name the fields.
func TestWrite(t *testing.T) {
	p := New()
	for thread := range uint32(2) {
		p.Use(world{}, &tool.Use{Process: 1, Thread: thread + 2, Line: 0x1000, PC: 0x400000, Read: 0xff << (8 * thread), Written: 1 << 63 >> thread, Reads: 3, Writes: 2, Moved: 9, First: 1, Last: 5})
	}
	p.End(world{}, 1)
	r := Report{Command: []string{"prog"}, Lines: p.Lines(), NotSeen: []string{"the rest"}}
	var text, json bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&json); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"false sharing", "moved 18 times between 2 threads", "bytes 8 to 15: table+8", "bytes 63 to 63: table+63", "not seen: the rest"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	for _, want := range []string{`"sharing":"false"`, `"first":62,"last":62,"name":"table+62"`, `"not_seen":["the rest"]`} {
		if !strings.Contains(json.String(), want) {
			t.Errorf("no %q in\n%s", want, json.String())
		}
	}
}
