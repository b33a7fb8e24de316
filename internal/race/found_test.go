package race

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// What the agent's detector finds reads like what this package finds.
func TestFound(t *testing.T) {
	const mov = "it rests on mov instructions"
	two := wire.EvRace{Kind: uint8(Write), Kind2: uint8(Read), By: 2, By2: 1, Addr: 0x1000, Size: 8, Pc: 0x51, Addr2: 0x1004, Size2: 4, Pc2: 0x61, Count: 3}
	for _, c := range []struct {
		rule    wire.RaceRule
		change  func(e *wire.EvRace)
		want    finding.Rule
		message string
		parts   string
		note    string
	}{
		{wire.RaceRuleDataRace, func(*wire.EvRace) {}, finding.RuleDataRace, "L1 is written by T2 and read by the main thread, and nothing orders the two",
			"Write of size 8 at 0x1000 by 2; Previous read of size 4 at 0x1004 by 1", ""},
		{wire.RaceRuleDataRaceMov, func(*wire.EvRace) {}, finding.RuleDataRaceMov, "L1 is written by T2 and read by the main thread, and nothing orders the two",
			"Write of size 8 at 0x1000 by 2; Previous read of size 4 at 0x1004 by 1", mov},
		{wire.RaceRuleDataRaceOrdered, func(*wire.EvRace) {}, finding.RuleDataRaceMov, "L1 is written by T2 and read by the main thread, and nothing orders the two",
			"Write of size 8 at 0x1000 by 2; Previous read of size 4 at 0x1004 by 1", "others order the two accesses"},
		{wire.RaceRuleDataRace, func(e *wire.EvRace) { e.Kind = uint8(Read | Write | Locked); e.Pc2 = 0 }, finding.RuleDataRace, "L1 is accessed, and nothing orders the two",
			"Atomic read and write of size 8 at 0x1000 by 2; Previous access, including byte 0x1004 by 0", "where the earlier access was is not remembered"},
		{wire.RaceRuleFree, func(e *wire.EvRace) { e.Pc, e.Stack = 0, 7 }, finding.RuleDataRace, "H1 is freed by T2, and nothing orders that after the access by the main thread",
			"Free (free) of a block of size 8 at 0x1000 by 2; Previous read of size 4 at 0x1004 by 1", ""},
		{wire.RaceRuleUseAfterFree, func(e *wire.EvRace) { e.Stack2 = 9 }, finding.RuleUseAfterFree, "H1 was freed before T2 accessed it",
			"Write of size 8 at 0x1000 by 2; Block H1 freed (free) by 1", ""},
	} {
		ev := two
		ev.Rule = c.rule
		c.change(&ev)
		live := NewLive(plainWorld{})
		f, ok := live.Found(1, ev)
		if !ok {
			t.Fatalf("%v: it is not told", c.rule)
		}
		parts := make([]string, 0, len(f.Parts))
		for _, p := range f.Parts {
			parts = append(parts, fmt.Sprintf("%s by %d", p.Text, p.Thread))
		}
		if got := strings.Join(parts, "; "); f.Rule != c.want || f.Ordered != (c.rule == wire.RaceRuleDataRaceOrdered) || f.Message != c.message || got != c.parts || f.Count != 3 {
			t.Errorf("%v: rule %s, %q, %q, count %d", c.rule, f.Rule, f.Message, got, f.Count)
		}
		if notes := strings.Join(f.Notes, "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%v: notes %q", c.rule, notes)
		}
	}
}

// A race that was announced while its memory was there is told as it was then, once.
func TestPending(t *testing.T) {
	names := &changing{name: "early"}
	live := NewLive(names)
	ev := wire.EvRace{Rule: wire.RaceRulePendingRace, Kind: uint8(Write), Kind2: uint8(Write), By: 2, By2: 1, Addr: 0x1000, Size: 8, Pc: 0x51, Addr2: 0x1000, Size2: 8, Pc2: 0x61, Count: 1}
	if _, ok := live.Found(1, ev); ok {
		t.Fatal("it is told before it is decided")
	}
	names.name = "late"
	ev.Rule, ev.Count = wire.RaceRuleDataRaceMov, 7
	f, ok := live.Found(1, ev)
	if !ok || f.Rule != finding.RuleDataRaceMov || f.Count != 7 || f.Objects[0].Symbol != "early" {
		t.Errorf("%v, %+v", ok, f)
	}
	// The thread's access to a block was found for two reasons to wait; the second finding was one of memory of which nothing was known, as the block was freed by then.
	if f, ok = live.Found(1, ev); ok {
		t.Errorf("once more: %+v", f)
	}
	if f, ok = live.Found(2, ev); !ok || f.Objects[0].Symbol != "late" {
		t.Errorf("another process: %v, %+v", ok, f)
	}
	live.End(1)
	if len(live.pending) != 0 || len(live.told[1]) != 0 {
		t.Errorf("kept: %v, %v", live.pending, live.told)
	}
}

type changing struct {
	plainWorld
	name string
}

func (c *changing) Object(_, addr uint64, _ wire.Object) finding.Object {
	return finding.Object{Addr: addr, Symbol: c.name}
}

// openmp's code at 0xa… is libgomp's.
type openmp struct{ plainWorld }

func (openmp) Frame(_, pc uint64, _ bool) finding.Frame {
	f := finding.Frame{PC: pc}
	if pc>>8 == 0xa {
		f.Module = "/usr/lib/x86_64-linux-gnu/libgomp.so.1"
	}
	return f
}

// libgomp looks at a group of tasks once more when the thread that waits for them may free it: told in one run of five of a program of task groups, as a race of free. What the program itself accesses there is told.
func TestInsideSynchronisers(t *testing.T) {
	for _, c := range []struct {
		rule    wire.RaceRule
		pc, pc2 uint64
		told    bool
	}{
		{wire.RaceRuleFree, 0, 0xa01, false},
		{wire.RaceRuleFree, 0, 0x501, true},
		{wire.RaceRuleUseAfterFree, 0xa01, 0, false},
		{wire.RaceRuleUseAfterFree, 0x501, 0, true},
		{wire.RaceRuleDataRace, 0x501, 0xa01, true},
	} {
		ev := wire.EvRace{Rule: c.rule, Kind: uint8(Write), Kind2: uint8(Read | Locked), By: 2, By2: 1, Addr: 0x1000, Size: 8, Pc: c.pc, Addr2: 0x1000, Size2: 1, Pc2: c.pc2, Count: 1}
		if _, ok := NewLive(openmp{}).Found(1, ev); ok != c.told {
			t.Errorf("%v at %#x and %#x: told %v", c.rule, c.pc, c.pc2, ok)
		}
	}
	for _, c := range []struct {
		items string
		want  int
	}{
		{"T3 alloc addr=0x8000 size=0x40 stack=S5\nT3 lrw1 0x8030 @2561\nT2 free addr=0x8000 stack=S6", 0},
		{"T3 alloc addr=0x8000 size=0x40 stack=S5\nT3 w1 0x8030 @1281\nT2 free addr=0x8000 stack=S6", 1},
		{"T3 alloc addr=0x8000 size=0x40 stack=S5\nT3 free addr=0x8000 stack=S6\nT3 lrw1 0x8030 @2561", 0},
		{"T3 alloc addr=0x8000 size=0x40 stack=S5\nT3 free addr=0x8000 stack=S6\nT3 w1 0x8030 @1281", 1},
	} {
		res, err := Run(inputOf(parse(t, twoThreads+c.items)), func() World { return openmp{} }, Config{})
		if err != nil || len(res.Races) != c.want {
			t.Errorf("%s: %v, %v", c.items, gist(res.Races), err)
		}
	}
}
