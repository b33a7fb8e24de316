// Package stated reads what small racy programs state of themselves in comments: a line with `// race NAME` (or `/* race NAME */`) is one of the places of the race of that name. No judging is here:
// packages race and beside do it, each with what it ran.
package stated

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Race is a race that a source states.
type Race struct {
	// Kind is "race" (data-race), "race-mov" (data-race-mov), "uaf" (use-after-free-access), "race-any": of whichever rule, since that depends on who comes first, or "missed": a race that ripstop is known not to see.
	Kind  string
	Lines []int // the places, from 1
}

var said = regexp.MustCompile(`^(race|race-mov|race-any|uaf|missed) ([a-z0-9_]+)( \*/|$)`)

// Races reads the file source and gives what it states, by name.
func Races(source string) (map[string]*Race, error) {
	b, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	return Parse(source, string(b))
}

// Parse is Races of a text; name is for errors.
func Parse(name, text string) (map[string]*Race, error) {
	out := map[string]*Race{}
	for n, line := range strings.Split(text, "\n") {
		_, comment, ok := strings.Cut(line, "// ")
		if !ok {
			_, comment, _ = strings.Cut(line, "/* ")
		}
		m := said.FindStringSubmatch(comment)
		if m == nil {
			continue
		}
		if r := out[m[2]]; r == nil {
			out[m[2]] = &Race{m[1], []int{n + 1}}
		} else if r.Kind != m[1] {
			return nil, fmt.Errorf("%s:%d: %s is of two kinds", name, n+1, m[2])
		} else {
			r.Lines = append(r.Lines, n+1)
		}
	}
	return out, nil
}
