package recipe

import (
	"errors"
	"testing"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// touches says whether an instruction accesses memory other than the stack implicitly.
func touches(in *x86.Inst) bool {
	for _, m := range in.Mems() {
		if m.Kind&(x86.MemStack|x86.MemAddress|x86.MemHint) == 0 && m.Access != x86.None {
			return true
		}
	}
	return false
}

// What recipes at all memory instructions of libc take, in memory of the process: frames that trampolines lie in, their states (once each, where many are the
// same), and 16 bytes for each in an index. Also how many areas of memory the kernel keeps for them.
func TestSize(t *testing.T) {
	code, at := textOf(t, libcFile)
	const base = 0x7f1234500000
	env := Env{Save: -1024, Slots: MaxSlots, Cells: -512, Context: -520}
	for _, c := range []struct {
		name string
		ops  []Op
	}{
		{"empty", nil},
		{"count, shared", []Op{Count{Cell: 0x40000000, Of: Shared}}},
		{"count, per thread", []Op{Count{Cell: 0x40000000, Of: PerThread}}},
		{"tell", []Op{Tell{Entry: -640}}},
	} {
		if testing.Short() && len(c.ops) > 0 {
			t.Logf("%s: not with -short", c.name)
			continue
		}
		text := patch.NewText(base+at, code)
		end := base + at + uint64(len(code))
		for a := base + at; a < end; a++ {
			a = text.AddFunction(a, end)
		}
		low, high := (base+at)&^(patch.PageSize-1)-4<<20, end+4<<20
		space := patch.NewSpace([]patch.Range{{Lo: low - 1<<31, Hi: low}, {Lo: high, Hi: high + 1<<31}})
		p := patch.NewPlanner(text, space)
		p.Calls = x86.PushReturn
		var sites []patch.Site
		dead := 0
		for a := base + at; a < end; a++ {
			if !text.Begins(a) {
				continue
			}
			here := code[a-base-at:]
			in, err := x86.Decode(here)
			if err != nil || !touches(&in) || p.Check(a) != nil {
				continue
			}
			live := Live(here, x86.AssumeNoHandler)
			if live.Flags&x86.FlagsArith == 0 {
				dead++
			}
			site := Site{At: a, Inst: in, Code: here}
			r, err := Compile(c.ops, site, live, env)
			if errors.Is(err, ErrAddress) && c.name == "tell" {
				if n := TellSize(&site, 0); n != 0 {
					t.Errorf("%v: refused, but its size is %d", in, n)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := TellSize(&site, 0); c.name == "tell" && n < r.Size() {
				t.Errorf("%v: %d bytes, TellSize says %d", in, r.Size(), n)
			}
			sites = append(sites, patch.Site{At: a, Recipe: r})
		}
		tx, err := p.Plan(sites, nil)
		if err != nil {
			t.Fatal(err)
		}
		mappings := space.Frames()
		bytes, states, distinct := 0, 0, map[string]bool{}
		for _, x := range tx.New {
			bytes += len(x.Trampoline.Code)
			s := string(x.Trampoline.AppendStates(nil, x.At))
			if !distinct[s] {
				distinct[s] = true
				states += len(s)
			}
		}
		total := space.FrameCount()*patch.PageSize + states + 16*len(tx.New)
		t.Logf("%s: %d sites (flags dead at %d), %d trampolines of %.1f bytes in %d pages, %d frames, %d areas; %d bytes of states, %d different; %.1f bytes a site",
			c.name, len(sites), dead, len(tx.New), float64(bytes)/float64(len(tx.New)), len(mappings), space.FrameCount(), space.Areas(), states, len(distinct),
			float64(total)/float64(len(sites)))
		if total > 200*len(sites) {
			t.Errorf("%s: %d bytes for %d sites, more than 200 each", c.name, total, len(sites))
		}
	}
}
