package real

import (
	"fmt"
	"os"
	"strings"
)

// judgement is a row of the table in docs/findings.md: `| program | rule | frame | verdict | why |`. It covers a finding of that
// rule in that program with that function in one of its stacks. Only the verdict true is allowed: what is false is a bug to mend.
type judgement struct {
	program, rule, frame string
}

func (j judgement) covers(program string, f *finding, frames []string) bool {
	if j.program != program || j.rule != f.Rule {
		return false
	}
	for _, frame := range frames {
		if frame == j.frame {
			return true
		}
	}
	return false
}

func readJudged(path string) ([]judgement, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []judgement
	in := false
	for n, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") {
			in = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if cells[0] == "program" {
			in = true
			continue
		}
		if !in || strings.HasPrefix(cells[0], "-") {
			continue
		}
		if len(cells) != 5 {
			return nil, fmt.Errorf("%s:%d: %d cells instead of 5", path, n+1, len(cells))
		}
		if cells[3] != "true" || cells[4] == "" {
			return nil, fmt.Errorf("%s:%d: the verdict must be true, with its reason", path, n+1)
		}
		all = append(all, judgement{cells[0], cells[1], cells[2]})
	}
	return all, nil
}
