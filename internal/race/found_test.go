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
		f := Found(plainWorld{}, 1, ev)
		parts := make([]string, 0, len(f.Parts))
		for _, p := range f.Parts {
			parts = append(parts, fmt.Sprintf("%s by %d", p.Text, p.Thread))
		}
		if got := strings.Join(parts, "; "); f.Rule != c.want || f.Message != c.message || got != c.parts || f.Count != 3 {
			t.Errorf("%v: rule %s, %q, %q, count %d", c.rule, f.Rule, f.Message, got, f.Count)
		}
		if notes := strings.Join(f.Notes, "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%v: notes %q", c.rule, notes)
		}
	}
}
