package run

import (
	"io"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/detect"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/wire"
)

// A process whose code was patched in part had races told that instructions in the rest order. Now none of its races is told, and the report says so, once.
func TestPartly(t *testing.T) {
	for _, partly := range []bool{false, true} {
		rep, err := report.New(report.Options{Formats: []string{"json=" + t.TempDir() + "/report"}, Default: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		sym := image.NewSymbolizer()
		defer sym.Close()
		j := NewJudge(detect.Config{}, sym, rep)
		j.partly = func(process uint64) bool { return partly && process == 2 }
		ev := wire.EvRace{Rule: wire.RaceRuleDataRace, Kind: 2, Kind2: 2, By: 2, By2: 1, Addr: 0x1000, Size: 8, Pc: 0x51, Addr2: 0x1000, Size2: 8, Pc2: 0x61, Count: 1}
		for range 2 {
			ev.Addr += 0x100 // another race: one that is found again is not told again
			j.Event(2, &wire.Event{Type: wire.TypeRace, Words: ev.Append(nil, 7)})
		}
		j.Finish()
		res, err := rep.Close(report.Summary{})
		if err != nil || (res.New == 0) != partly {
			t.Errorf("partly: %v, %d findings; %v", partly, res.New, err)
		}
		const note = "are not told: not all of its code could be patched, and what orders threads may be in the rest (2 times)"
		if got := strings.Join(j.NotSeen(false), "; "); strings.Contains(got, note) != partly {
			t.Errorf("partly: %v, %q", partly, got)
		}
	}
}
