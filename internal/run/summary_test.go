package run

import (
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/agent"
)

// What the detector of races lost is said, each by itself; nothing is said where nothing was lost.
func TestRacesNotSeen(t *testing.T) {
	for _, c := range []struct {
		st   agent.Stats
		want string
	}{
		{agent.Stats{}, ""},
		{agent.Stats{RaceEvicted: 7}, "history of 7 pages"},
		{agent.Stats{RaceAmnesties: 3}, "across 3 moments"},
		{agent.Stats{RaceUnsaid: 2}, "2 races more"},
	} {
		got := strings.Join(racesNotSeen(c.st), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.st, got, c.want)
		}
	}
}
