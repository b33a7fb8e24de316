package run

import (
	"fmt"
	"slices"
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

// What was not looked for is said of programs that could have had it.
func TestUnasked(t *testing.T) {
	two := agent.Stats{Processes: 1, Threads: 2}
	for _, c := range []struct {
		o    Options
		st   agent.Stats
		want string
	}{
		{Options{}, two, "--full"},
		{Options{}, agent.Stats{Processes: 2, Threads: 2}, ""},
		{Options{Full: true}, two, ""},
		{Options{Epochs: Epochs{On: true}}, two, "--races=on"},
		{Options{Epochs: Epochs{On: true, Races: true}}, two, ""},
	} {
		got := strings.Join(unasked(&c.o, c.st), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v, %d threads: %q, want %q", c.o, c.st.Threads, got, c.want)
		}
	}
}

// What is true of many processes, as of each of a test suite under a limit on memory, is one line.
func TestNotSeenOfMany(t *testing.T) {
	u := newUnseen()
	for p := uint64(1); p <= 3; p++ {
		u.add(true, p, fmt.Sprintf("process %d (worker)", p), "no epochs are recorded")
	}
	u.add(true, 1, "process 1 (worker)", "a thread was not seen")
	u.add(true, 1, "process 1 (worker)", "a thread was not seen")
	u.add(false, 2, "process 2 (worker)", "it executed a program that was not followed")
	u.warn("two connections were closed")
	for all, want := range map[bool][]string{
		false: {"process 1 (worker) and 2 more: no epochs are recorded", "process 1 (worker): a thread was not seen (2 times)", "two connections were closed"},
		true: {"process 1 (worker) and 2 more: no epochs are recorded", "process 1 (worker): a thread was not seen (2 times)", "process 2 (worker): it executed a program that was not followed",
			"two connections were closed"},
	} {
		if got := u.lines(all); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
