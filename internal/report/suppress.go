package report

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

// Suppressions are lines `type:pattern` in ThreadSanitizer's syntax. A finding that one of them matches is not reported.
//
// type is a class (mutex, deadlock, thread, heap, race, crash), the id of a rule, race_top, or called_from_lib. pattern is matched against the function
// (demangled and as in the symbol table), source file, module and `module+0xoffset` of every frame of the finding and against the
// symbols of its objects; race_top only against the innermost frames of the two accesses of a race; called_from_lib only against the modules that made
// the offending calls. `*` stands for anything, `^` at the beginning and `$` at the end anchor the pattern, which otherwise may lie anywhere in the
// name. '#' begins a comment line.
type Suppressions struct {
	list []suppression
	// Ignored lists lines whose type is one of ThreadSanitizer's that ripstop has no findings for.
	Ignored []string
}

type suppression struct {
	kind    string // class, rule id, race_top or called_from_lib
	pattern string
	at      string // file:line
	used    int
}

const (
	calledFromLib = "called_from_lib"
	raceTop       = "race_top"
)

// foreignTypes are types of ThreadSanitizer's that we accept, so that one file serves both, and that match nothing here.
var foreignTypes = []string{"signal"}

const maxSuppressionFile = 16 << 20

func readSuppressionFiles(paths []string) (*Suppressions, error) {
	all := &Suppressions{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--suppressions: %w", err)
		}
		data, err := io.ReadAll(io.LimitReader(f, maxSuppressionFile+1))
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("--suppressions: %w", err)
		}
		if len(data) > maxSuppressionFile {
			return nil, fmt.Errorf("--suppressions: %s is longer than %d MiB: not a list of suppressions", path, maxSuppressionFile>>20)
		}
		if err := all.parse(path, data); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ParseSuppressions reads data, a file of the given name.
func ParseSuppressions(name string, data []byte) (*Suppressions, error) {
	s := &Suppressions{}
	if err := s.parse(name, data); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Suppressions) parse(name string, data []byte) error {
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, n)
		kind, pattern, ok := strings.Cut(line, ":")
		kind, pattern = strings.TrimSpace(kind), strings.TrimSpace(pattern)
		switch {
		case !ok:
			return fmt.Errorf("%s: %q has no ':'; a suppression is type:pattern, as in deadlock:my_function", at, line)
		case slices.Contains(foreignTypes, kind):
			s.Ignored = append(s.Ignored, fmt.Sprintf("%s: %s: not used by ripstop run", at, line))
			continue
		case !slices.Contains(suppressionTypes(), kind):
			return fmt.Errorf("%s: no suppression type %q; there are %s and the rules of `ripstop help rules`", at, kind, strings.Join(classTypes(), ", "))
		case strings.Trim(pattern, "*^$") == "" && !strings.Contains(pattern, "*"):
			return fmt.Errorf("%s: %q has an empty pattern; write * to match everything", at, line)
		}
		s.list = append(s.list, suppression{kind: kind, pattern: pattern, at: at})
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func classTypes() []string {
	types := []string{}
	for _, info := range finding.Rules {
		if !slices.Contains(types, string(info.Class)) {
			types = append(types, string(info.Class))
		}
	}
	return append(types, raceTop, calledFromLib)
}

func suppressionTypes() []string {
	types := classTypes()
	for _, info := range finding.Rules {
		types = append(types, string(info.Rule))
	}
	return types
}

// match reports whether f is suppressed, and counts n uses of the first suppression that says so.
func (s *Suppressions) match(f *finding.Finding, rule finding.RuleInfo, n int) bool {
	for i := range s.list {
		sup := &s.list[i]
		if sup.matches(f, rule) {
			sup.used += n
			return true
		}
	}
	return false
}

// again counts n more sightings of a finding that match said yes to.
func (s *Suppressions) again(f *finding.Finding, n int) { s.match(f, ruleOf(f.Rule), n) }

func (sup *suppression) matches(f *finding.Finding, rule finding.RuleInfo) bool {
	if sup.kind == calledFromLib {
		for _, p := range f.Parts {
			if len(p.Stack) > 0 && sup.fits(p.Stack[0].Module) {
				return true
			}
			for _, h := range p.Held {
				if len(h.Stack) > 0 && sup.fits(h.Stack[0].Module) {
					return true
				}
			}
		}
		return false
	}
	if sup.kind == raceTop {
		return rule.Class == finding.ClassRace && slices.ContainsFunc(f.Parts, func(p finding.Part) bool { return len(p.Stack) > 0 && sup.fitsFrame(&p.Stack[0]) })
	}
	if sup.kind != string(rule.Rule) && sup.kind != string(rule.Class) {
		return false
	}
	hit := false
	eachStack(f, func(s finding.Stack) {
		for i := 0; i < len(s) && !hit; i++ {
			hit = sup.fitsFrame(&s[i])
		}
	})
	for i := 0; i < len(f.Objects) && !hit; i++ {
		hit = sup.fits(f.Objects[i].Symbol)
	}
	return hit
}

func eachStack(f *finding.Finding, do func(finding.Stack)) {
	for _, p := range f.Parts {
		do(p.Stack)
		for _, h := range p.Held {
			do(h.Stack)
		}
	}
	for _, t := range f.Threads {
		do(t.Created)
	}
	for _, o := range f.Objects {
		do(o.Allocated)
		do(o.Initialised)
	}
}

func (sup *suppression) fitsFrame(fr *finding.Frame) bool {
	if sup.fits(fr.Func) || sup.fits(fr.Symbol) || sup.fits(fr.File) || sup.fits(fr.Module) {
		return true
	}
	return fr.Module != "" && strings.Contains(sup.pattern, "+0x") && fitsOffset(sup.pattern, fr)
}

func (sup *suppression) fits(name string) bool { return name != "" && fits(sup.pattern, name) }

// fitsOffset matches a pattern like libfoo.so+0x1234. The offset must be whole, and the module's name begin at a path component.
func fitsOffset(pattern string, fr *finding.Frame) bool {
	if !strings.HasSuffix(pattern, "*") && !strings.HasSuffix(pattern, "$") {
		pattern += "$"
	}
	offset := fmt.Sprintf("+0x%x", fr.Offset)
	if fits(pattern, fr.Module+offset) && strings.ContainsAny(pattern[:1], "^*/") {
		return true
	}
	return fits("^"+strings.TrimPrefix(pattern, "^"), filepath.Base(fr.Module)+offset)
}

// fits matches name against a pattern with * ^ $. Its time is bounded by len(pattern)*len(name).
func fits(pattern, name string) bool {
	rest, atStart := strings.CutPrefix(pattern, "^")
	rest, atEnd := strings.CutSuffix(rest, "$")
	pieces := strings.Split(rest, "*")
	if atStart {
		if !strings.HasPrefix(name, pieces[0]) {
			return false
		}
		name = name[len(pieces[0]):]
		if len(pieces) == 1 {
			return !atEnd || name == ""
		}
		pieces = pieces[1:]
	}
	var last string
	if atEnd {
		last, pieces = pieces[len(pieces)-1], pieces[:len(pieces)-1]
	}
	for _, p := range pieces {
		i := strings.Index(name, p)
		if i < 0 {
			return false
		}
		name = name[i+len(p):]
	}
	return !atEnd || strings.HasSuffix(name, last)
}

// suggestion is a suppression for f alone: its rule, and the place that stands for it.
func suggestion(rec *record) string {
	fr := rec.where
	switch {
	case fr.Func != "" && !strings.ContainsAny(fr.Func, "\n\r"):
		return fmt.Sprintf("%s:^%s$", rec.f.Rule, fr.Func)
	case fr.Module != "":
		return fmt.Sprintf("%s:%s+0x%x", rec.f.Rule, filepath.Base(fr.Module), fr.Offset)
	}
	for _, o := range rec.f.Objects {
		if o.Symbol != "" {
			return fmt.Sprintf("%s:^%s$", rec.f.Rule, o.Symbol)
		}
	}
	return ""
}

// counts lists what matched, and what matched nothing.
func (s *Suppressions) counts() (used, unused []string) {
	for _, sup := range s.list {
		line := fmt.Sprintf("%s:%s (%s)", sup.kind, sup.pattern, sup.at)
		if sup.used > 0 {
			used = append(used, fmt.Sprintf("%6d  %s", sup.used, line))
		} else {
			unused = append(unused, line)
		}
	}
	return used, unused
}
