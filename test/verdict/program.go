// Package verdict holds the programs of testdata/prog against their stated verdicts: what ripstop finds in each is what the program says of
// itself, under every schedule, and nothing else about the program changes. docs/testing.md describes how a program states its verdict.
//
// Here belongs what is about these small programs: reading their statements, building, running and judging them. Programs of others
// are package real's.
package verdict

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/finding"
)

// Program is a test program and what its first lines state.
type Program struct {
	Name    string // of the file
	Path    string
	Want    []Verdict   // the findings, no more and no fewer; empty: none
	Epochs  []Verdict   // likewise under `ripstop guard --epochs`
	Alone   bool        // it is not run there: nothing would end it
	Hangs   bool        // natively it does not end
	Exit    int         // its own exit status
	Signal  unix.Signal // that it dies by; 0: none
	Args    []string    // of the program
	Flags   []string    // of ripstop run and report
	Build   []string    // more flags for the compiler
	Library bool        // the file is also built as a shared library, with LIBRARY defined
	Symbols bool        // it is not tested stripped
	Runs    int         // how often it is run at least; 0: as usual
}

// Verdict states one finding.
type Verdict struct {
	Rule    finding.Rule
	Objects []string // symbols that must be among the finding's objects
	Frames  []string // functions that must be in some stack of it
	Module  string   // that one of its objects is in, by the end of the name; "": any
}

func (v Verdict) String() string {
	s := string(v.Rule)
	if len(v.Objects) > 0 {
		s += " objects=" + strings.Join(v.Objects, ",")
	}
	if len(v.Frames) > 0 {
		s += " frames=" + strings.Join(v.Frames, ",")
	}
	if v.Module != "" {
		s += " module=" + v.Module
	}
	return s
}

// ReadPrograms reads the statements of all programs in dir.
func ReadPrograms(dir string) ([]*Program, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []*Program
	for _, e := range entries {
		if !slices.Contains([]string{".c", ".cc", ".rs"}, filepath.Ext(e.Name())) {
			continue
		}
		path, err := filepath.Abs(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p, err := Parse(e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		p.Path = path
		all = append(all, p)
	}
	return all, nil
}

const directive = "// ripstop:"

// Parse reads the statements in the comment lines that a program begins with.
func Parse(name, text string) (*Program, error) {
	p := &Program{Name: name}
	none, epochs := false, false
	for n, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "//") {
			break
		}
		rest, ok := strings.CutPrefix(line, directive)
		if !ok {
			continue
		}
		if err := p.statement(strings.Fields(rest), &none, &epochs); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
		}
	}
	switch {
	case none && len(p.Want) > 0:
		return nil, fmt.Errorf("%s: 'verdict none' besides another verdict", name)
	case !none && len(p.Want) == 0:
		return nil, fmt.Errorf("%s: no line '%s verdict …' among the comment lines at its beginning", name, directive)
	case p.Hangs && len(p.Want) == 0:
		return nil, fmt.Errorf("%s: it hangs, but without a finding nothing would end it", name)
	case p.Exit != 0 && p.Signal != 0, p.Hangs && (p.Exit != 0 || p.Signal != 0):
		return nil, fmt.Errorf("%s: two different ends", name)
	}
	if !epochs {
		for _, v := range p.Want {
			if !notWithEpochs[v.Rule] {
				p.Epochs = append(p.Epochs, v)
			}
		}
	}
	if p.Hangs && len(p.Epochs) == 0 && !p.Alone {
		return nil, fmt.Errorf("%s: it hangs, but without a finding nothing would end it with epochs: state 'epochs VERDICT' or 'epochs hangs'", name)
	}
	return p, nil
}

// notWithEpochs are the rules for which a list of what threads hold is needed, or more of threads than is kept while epochs are recorded.
var notWithEpochs = map[finding.Rule]bool{
	finding.RuleInversion: true, finding.RuleThreadLeak: true, finding.RuleExitHoldingLock: true, finding.RuleFreeLocked: true, finding.RuleReinitLocked: true,
	finding.RuleDestroyWaited: true, finding.RuleCondTwoMutexes: true, finding.RuleBarrierInUse: true, finding.RuleOwnerDied: true, finding.RuleForkDeadlock: true,
}

func (p *Program) statement(words []string, none, epochs *bool) error {
	if len(words) == 0 {
		return fmt.Errorf("an empty statement")
	}
	args := words[1:]
	takes := func(n int) error {
		if len(args) != n {
			return fmt.Errorf("%s takes %d words, not %d", words[0], n, len(args))
		}
		return nil
	}
	switch words[0] {
	case "verdict":
		if len(args) == 1 && args[0] == "none" {
			*none = true
			return nil
		}
		v, err := parseVerdict(args)
		if err != nil {
			return err
		}
		p.Want = append(p.Want, v)
	case "epochs":
		*epochs = true
		switch {
		case len(args) == 1 && args[0] == "none":
		case len(args) == 1 && args[0] == "hangs":
			p.Alone = true
		default:
			v, err := parseVerdict(args)
			if err != nil {
				return err
			}
			p.Epochs = append(p.Epochs, v)
		}
	case "hangs":
		p.Hangs = true
		return takes(0)
	case "symbols":
		p.Symbols = true
		return takes(0)
	case "library":
		p.Library = true
		return takes(0)
	case "exit":
		return number(&p.Exit, 1, 255, args)
	case "runs":
		return number(&p.Runs, 1, 1000, args)
	case "signal":
		if err := takes(1); err != nil {
			return err
		}
		if p.Signal = unix.SignalNum("SIG" + args[0]); p.Signal == 0 {
			return fmt.Errorf("there is no signal SIG%s", args[0])
		}
	case "args":
		p.Args = append(p.Args, args...)
	case "flags":
		p.Flags = append(p.Flags, args...)
	case "build":
		p.Build = append(p.Build, args...)
	default:
		return fmt.Errorf("there is no statement %q", words[0])
	}
	return nil
}

func number(to *int, least, most int, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("one number is wanted, not %d words", len(args))
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < least || n > most {
		return fmt.Errorf("%q is not a number from %d to %d", args[0], least, most)
	}
	*to = n
	return nil
}

func parseVerdict(args []string) (Verdict, error) {
	var v Verdict
	if len(args) == 0 {
		return v, fmt.Errorf("verdict takes a rule, or none")
	}
	v.Rule = finding.Rule(args[0])
	if _, ok := finding.RuleOf(v.Rule); !ok {
		return v, fmt.Errorf("there is no rule %q", args[0])
	}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		if value == "" {
			return v, fmt.Errorf("%q is not KEY=VALUE", arg)
		}
		switch key {
		case "objects":
			v.Objects = strings.Split(value, ",")
		case "frames":
			v.Frames = strings.Split(value, ",")
		case "module":
			v.Module = value
		default:
			return v, fmt.Errorf("a verdict has no %q", key)
		}
	}
	return v, nil
}
