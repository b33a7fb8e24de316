package report

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
)

// What a line matches and what it does not.
func TestSuppressionsMatch(t *testing.T) {
	fromLib := stripped()
	for _, tc := range []struct {
		line string
		f    finding.Finding
		want bool
	}{
		{"deadlock:audit", inversion(), true},
		{"deadlock:^audit$", inversion(), true},
		{"deadlock:^udit", inversion(), false},
		{"deadlock:audi$", inversion(), false},
		{"deadlock:a*dit", inversion(), true},
		{"deadlock:^close_*nt$", inversion(), true},
		{"deadlock:*", inversion(), true},
		{"deadlock:bank.c", inversion(), true},
		{"deadlock:/build/bank/bank$", inversion(), true},
		{"deadlock:^audit_lock$", inversion(), true}, // the object's symbol
		{"deadlock:open_account", inversion(), true}, // where it was allocated
		{"deadlock:Audit", inversion(), false},
		{"lock-order-inversion:audit", inversion(), true},
		{"self-deadlock:audit", inversion(), false},
		{"mutex:audit", inversion(), false},
		{"thread:audit", inversion(), false},
		{"heap:audit", inversion(), false},
		{"race:audit", inversion(), false},
		{"  deadlock : audit  ", inversion(), true},
		{"mutex:libvendor.so.3+0x4c1b", stripped(), true},
		{"mutex:^libvendor.so.3+0x4c1b$", stripped(), true},
		{"mutex:/opt/lib/libvendor.so.3+0x4c1b", stripped(), true},
		{"mutex:libvendor*+0x4c1b", stripped(), true},
		{"mutex:libvendor.so.3+0x4c1", stripped(), false}, // a whole offset, not the beginning of one
		{"mutex:vendor.so.3+0x4c1b", stripped(), false},   // a whole name
		{"mutex:libvendor.so.3+0x4c*", stripped(), true},
		{"mutex:libvendor.so.3+0x5000", stripped(), true},
		{"unlock-not-owner:vendor", stripped(), true},
		{"called_from_lib:libvendor.so", fromLib, true},
		{"called_from_lib:^/opt/lib/", fromLib, true},
		{"called_from_lib:libc.so.6", inversion(), false}, // in a stack, but not what called
		{"called_from_lib:bank", inversion(), true},
		{"race:auditor", dataRace(), true},
		{"race:totals", dataRace(), true},
		{"race_top:^audit$", dataRace(), true},
		{"race_top:close_account", dataRace(), true},
		{"race_top:auditor", dataRace(), false}, // it called
		{"race_top:audit", inversion(), false},
	} {
		s, err := ParseSuppressions("t", []byte(tc.line))
		if err != nil {
			t.Errorf("%s: %v", tc.line, err)
			continue
		}
		if got := s.match(&tc.f, ruleOf(tc.f.Rule), 1); got != tc.want {
			t.Errorf("%s on %s: %v, want %v", tc.line, tc.f.Rule, got, tc.want)
		}
	}
}

// Mistakes are told with file and line and what to do; what TSan has and we do not is noted.
func TestSuppressionsErrors(t *testing.T) {
	for line, want := range map[string]string{
		"nonsense":       "no ':'",
		"dedlock:f":      `no suppression type "dedlock"`,
		"deadlock:":      "empty pattern",
		"deadlock:^$":    "empty pattern",
		":f":             "no suppression type",
		"deadlock f : x": "no suppression type",
	} {
		_, err := ParseSuppressions("my.supp", []byte("# comment\n\n"+line+"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "my.supp:3: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want my.supp:3: … %s", line, err, want)
		}
	}
	s, err := ParseSuppressions("my.supp", []byte("signal:f\r\ndeadlock:g\r\n"))
	if err != nil || len(s.Ignored) != 1 || len(s.list) != 1 || s.list[0].pattern != "g" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Suppressed findings are neither shown nor counted as findings; what matched and what did not is told at the end.
func TestSuppressionsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.supp")
	if err := os.WriteFile(path, []byte("deadlock:audit\nmutex:nothing_like_it\nsignal:x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verbose := range []bool{false, true} {
		var b bytes.Buffer
		r, err := New(Options{Default: &b, Suppressions: []string{path}, Verbose: verbose})
		if err != nil {
			t.Fatal(err)
		}
		again := inversion()
		again.Count = 2
		if r.Add(inversion()) || r.Add(again) || !r.Add(stripped()) {
			t.Error("Add is wrong about what is suppressed")
		}
		res, err := r.Close(Summary{})
		if err != nil || res.New != 1 || res.Suppressed != 3 {
			t.Errorf("%+v, %v", res, err)
		}
		s := b.String()
		if strings.Contains(s, "lock-order") || !strings.Contains(s, "     3  deadlock:audit ("+path+":1)") {
			t.Errorf("text:\n%s", s)
		}
		if strings.Contains(s, "nothing_like_it") != verbose || strings.Contains(s, "signal:x") != verbose {
			t.Errorf("verbose %v:\n%s", verbose, s)
		}
	}
}

// A suppression that --gen-suppressions prints suppresses the finding that it was printed for, and no other rule.
func TestSuggestionSuppresses(t *testing.T) {
	odd := inversion()
	odd.Parts[0].Stack[0].Func = "std::vector<char*, A<B> >::operator*(int, char const (&) [3])::{lambda()#1}::operator()() const"
	for _, f := range append(fixtures(), odd) {
		rec := &record{f: f, rule: ruleOf(f.Rule), where: locate(&f)}
		line := suggestion(rec)
		s, err := ParseSuppressions("gen", []byte(line+"\n"))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !s.match(&f, rec.rule, 1) {
			t.Errorf("%s does not suppress its finding", line)
		}
		f.Rule = finding.RuleThreadLeak
		if s.match(&f, ruleOf(f.Rule), 1) {
			t.Errorf("%s suppresses another rule", line)
		}
	}
}

// asRegexp states what a pattern means.
func asRegexp(pattern string) *regexp.Regexp {
	rest, start := strings.CutPrefix(pattern, "^")
	rest, end := strings.CutSuffix(rest, "$")
	var parts []string
	for _, p := range strings.Split(rest, "*") {
		parts = append(parts, regexp.QuoteMeta(p))
	}
	re := strings.Join(parts, `[\s\S]*`)
	if start {
		re = `\A` + re
	}
	if end {
		re += `\z`
	}
	return regexp.MustCompile(re)
}

// The matcher agrees with a regular expression of the same meaning.
func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{{"^a*b$", "ab"}, {"a*a", "a"}, {"*", ""}, {"$", "x"}, {"^", ""}, {"**a**", "bab"}, {"a$", "aba"}, {"^ab*b$", "ab"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		for _, s := range []string{pattern, name} {
			if len(s) > 200 || strings.ToValidUTF8(s, "") != s {
				return // the oracle reads UTF-8
			}
		}
		if got, want := fits(pattern, name), asRegexp(pattern).MatchString(name); got != want {
			t.Errorf("fits(%q, %q) = %v, want %v", pattern, name, got, want)
		}
	})
}

// No file of suppressions makes the reader panic, and what it accepts it can match.
func FuzzSuppressions(f *testing.F) {
	f.Add([]byte("# c\n\ndeadlock:^f*$\nmutex:lib.so+0x12\ncalled_from_lib:x\nrace:y\r\n"))
	f.Add([]byte(":\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSuppressions("f", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("error without a place: %v", err)
			}
			return
		}
		for _, fi := range fixtures() {
			s.match(&fi, ruleOf(fi.Rule), 1)
		}
	})
}

// No file given as a baseline makes the reader panic.
func FuzzBaseline(f *testing.F) {
	f.Add([]byte(`{"type":"run","version":1}` + "\n" + `{"type":"finding","fingerprint":"00"}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		known, err := parseBaseline(bytes.NewReader(data))
		if (known == nil) == (err == nil) {
			t.Errorf("%v, %v", known, err)
		}
	})
}
