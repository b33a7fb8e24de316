package race

import (
	"slices"
	"strings"
	"testing"
)

// What lies on a stack is named by its frame: of the thread that comes later its own frames, of another's those that its creator is still in. In the first form the frames were those of when a
// thread was last made, and a variable of whoever had that place next got the old one's name.
func TestSlots(t *testing.T) {
	runner, _ := runnerAndSources(t)
	const source = "testdata/slots/slots.c"
	names := map[string][]string{"others": {"pair.second[1] of others"}, "mine": {"counter of mine"}, "handed": {"handed.second[1] of hand", ""}}
	for _, level := range []string{"-O0", "-O1"} {
		exe := build(t, source, level, "-fno-inline")
		for range 3 {
			found := runFull(t, runner, exe)
			judge(t, source, found, false)
			for _, f := range found {
				for name, s := range statements(t, source) {
					if !slices.Contains(s.lines, lineOf(f.Parts[0].Stack, source)) {
						continue
					}
					got := ""
					if _, rest, ok := strings.Cut(f.Message, " ("); ok {
						got, _, _ = strings.Cut(rest, ")")
					}
					if !slices.Contains(names[name], got) {
						t.Errorf("%s: %s: %q of %q", level, name, got, f.Message)
					}
				}
				if len(f.Parts[0].Before) == 0 {
					t.Errorf("%s: %s: what was there before %s is not known", level, f.Message, f.Parts[0].Text)
				}
			}
		}
	}
}
