package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

// Report is what a report in JSON says, as far as verdicts are about it (docs/findings-schema.json).
type Report struct {
	Findings []Finding
	Exit     *int     // the program's own status, nil: it did not exit
	NotSeen  []string // what ripstop says it could not see
}

// Finding is one of its findings.
type Finding struct {
	Rule    finding.Rule
	Message string
	Parts   []struct {
		Stack []frame
		Held  []struct{ Stack []frame }
	}
	Objects []struct {
		Symbol, Module         string
		Allocated, Initialised []frame
	}
	Threads []struct{ Created []frame }
}

type frame struct{ Function, Module string }

// ReadReport reads a report in JSON lines. One without a summary is of a ripstop that died.
func ReadReport(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, complete := &Report{}, false
	for n, line := range bytes.Split(data, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var head struct {
			Type    string
			Exit    *int     `json:"exit_code"`
			NotSeen []string `json:"not_seen"`
		}
		if err := json.Unmarshal(line, &head); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
		switch head.Type {
		case "finding":
			var f Finding
			if err := json.Unmarshal(line, &f); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
			}
			r.Findings = append(r.Findings, f)
		case "summary":
			r.Exit, r.NotSeen, complete = head.Exit, head.NotSeen, true
		}
	}
	if !complete {
		return nil, fmt.Errorf("%s: the report has no summary", path)
	}
	return r, nil
}

// functions is every function in some stack of the finding, by the last part of its name, without parameters.
func (f *Finding) functions() []string {
	var names []string
	add := func(stacks ...[]frame) {
		for _, s := range stacks {
			for _, fr := range s {
				names = append(names, base(fr.Function))
			}
		}
	}
	for _, p := range f.Parts {
		add(p.Stack)
		for _, h := range p.Held {
			add(h.Stack)
		}
	}
	for _, o := range f.Objects {
		add(o.Allocated, o.Initialised)
	}
	for _, t := range f.Threads {
		add(t.Created)
	}
	return names
}

// base is a demangled name without scopes, template arguments and parameters: "f" of "ns::f<int>(char)".
func base(name string) string {
	name = strings.ReplaceAll(name, "(anonymous namespace)::", "")
	if i := strings.IndexAny(name, "(<["); i > 0 {
		name = name[:i]
	}
	return name[strings.LastIndex(name, ":")+1:]
}

// mismatch says what the finding lacks of v, "" if nothing. Without symbols only the rule is known.
func (v Verdict) mismatch(f *Finding, symbols bool) string {
	if f.Rule != v.Rule {
		return "another rule"
	}
	if !symbols {
		return ""
	}
	functions := f.functions()
	for _, want := range v.Frames {
		if !slices.Contains(functions, want) {
			return fmt.Sprintf("no frame of %s; there are %s", want, strings.Join(functions, " "))
		}
	}
	var have []string
	module := v.Module == ""
	for _, o := range f.Objects {
		have = append(have, base(o.Symbol))
		module = module || strings.HasSuffix(o.Module, v.Module)
	}
	for _, want := range v.Objects {
		if !slices.Contains(have, want) {
			return fmt.Sprintf("no object %s; there are %s", want, strings.Join(have, " "))
		}
	}
	if !module {
		return "no object in module " + v.Module
	}
	return ""
}

// Judge says in which way the findings are not those that a program states, "" if they are.
func Judge(want []Verdict, found []Finding, symbols bool) string {
	if match(want, found, symbols) {
		return ""
	}
	var b strings.Builder
	for _, v := range want {
		fmt.Fprintf(&b, "  stated: %v\n", v)
	}
	if len(want) == 0 {
		b.WriteString("  stated: none\n")
	}
	for i := range found {
		f := &found[i]
		fmt.Fprintf(&b, "  found:  %s: %s\n", f.Rule, f.Message)
		for _, v := range want {
			if v.Rule == f.Rule {
				if why := v.mismatch(f, symbols); why != "" {
					fmt.Fprintf(&b, "          (not as stated: %s)\n", why)
				}
			}
		}
	}
	if len(found) == 0 {
		b.WriteString("  found:  none\n")
	}
	return b.String()
}

// match tells whether there is a one-to-one assignment of verdicts to findings.
func match(want []Verdict, found []Finding, symbols bool) bool {
	if len(want) != len(found) {
		return false
	}
	if len(want) == 0 {
		return true
	}
	for i := range found {
		if want[0].mismatch(&found[i], symbols) == "" && match(want[1:], slices.Delete(slices.Clone(found), i, i+1), symbols) {
			return true
		}
	}
	return false
}
