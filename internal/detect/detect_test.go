package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// plainWorld names nothing: a stack S7 is one frame with PC 7.
type plainWorld struct{}

func (plainWorld) Stack(_ uint64, id uint32) finding.Stack {
	return finding.Stack{{PC: uint64(id)}}
}
func (plainWorld) Thread(_ uint64, number uint32) finding.Thread {
	return finding.Thread{Number: number, Tid: 1000 + number, Creator: min(number-1, 1)}
}
func (plainWorld) Object(_, addr uint64, _ wire.Object) finding.Object {
	return finding.Object{Addr: addr, Where: finding.Unknown}
}
func (plainWorld) Module(_, addr uint64) (string, bool) {
	if addr>>24 == 0x7f {
		return "/lib/libx.so", addr&1 == 1
	}
	return "", false
}

func (plainWorld) Process(process uint64) (uint32, string, []string) {
	return uint32(100 + process), "/bin/prog", []string{"prog"}
}

// run feeds the events of text, with a Tick after each, and ends the processes that end with a line `P1 gone`. It returns the findings.
func run(t testing.TB, cfg Config, text string) []finding.Finding {
	t.Helper()
	out, d := feed(t, cfg, text)
	d.Finish()
	return *out
}

// feed is run without the Finish.
func feed(t testing.TB, cfg Config, text string) (*[]finding.Finding, *Detector) {
	t.Helper()
	var out []finding.Finding
	d := New(cfg, plainWorld{}, func(f finding.Finding) { out = append(out, f) })
	var block []string
	flush := func() {
		lines, err := trace.ParseText(strings.NewReader(strings.Join(block, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		for i := range lines {
			d.Event(lines[i].Process, &lines[i].Event)
			d.Tick()
		}
		block = nil
	}
	// $names are addresses per ParseText: give them ones of our own that hold over the whole text.
	names := strings.NewReplacer("$a", "0xa00", "$b", "0xb00", "$c", "0xc00", "$d", "0xd00", "$g", "0x9900", "$s", "0x5500", "$r", "0x7700")
	for _, l := range strings.Split(text, "\n") {
		l = strings.TrimSpace(l)
		var p uint64
		if n, _ := fmt.Sscanf(l, "P%d gone", &p); n == 1 && strings.HasSuffix(l, "gone") {
			flush()
			d.End(p)
			continue
		}
		if l != "" {
			block = append(block, names.Replace(l))
		}
	}
	flush()
	return &out, d
}

// gist is what tests compare of findings: rule and message.
func gist(fs []finding.Finding) []string {
	out := []string{}
	for _, f := range fs {
		s := string(f.Rule) + ": " + f.Message
		if f.Count != 1 {
			s += fmt.Sprintf(" (%d more)", f.Count)
		}
		out = append(out, s)
	}
	return out
}

// check runs each case and compares the gist; want is one finding a line.
func check(t *testing.T, cfg Config, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := []string{}
			for _, l := range strings.Split(c.want, "\n") {
				if l = strings.TrimSpace(l); l != "" {
					want = append(want, l)
				}
			}
			got := gist(run(t, cfg, c.events))
			if !slices.Equal(got, want) {
				t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

type testCase struct{ name, events, want string }
