package main

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/count"
	"github.com/ripstop/ripstop/internal/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	version = "1.2.3"
	os.Unsetenv(optionsVariable)
	flag.Parse()
	os.Exit(m.Run())
}

// ripstop runs a command line and returns what it prints.
func ripstop(args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	code = execute(args, &out, &err)
	return out.String(), err.String(), code
}

// Help as a user sees it, command by command and topic by topic; -update rewrites the files.
func TestHelpGolden(t *testing.T) {
	pages := map[string][]string{"ripstop": {"help"}}
	for _, c := range newRoot().Commands() {
		if !c.Hidden && c.Name() != "rules" { // its words are written elsewhere
			pages[c.Name()] = []string{"help", c.Name()}
		}
	}
	for name, args := range pages {
		stdout, stderr, code := ripstop(args...)
		if code != 0 || stderr != "" {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
		path := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if stdout != string(want) {
			t.Errorf("%v differs from %s; go test -update rewrites it. Got:\n%s", args, path, stdout)
		}
	}
}

// All forms of asking for help show the same page, and no page is wider than a terminal of 100 columns.
func TestHelpForms(t *testing.T) {
	want, _, _ := ripstop("help", "run")
	for _, args := range [][]string{{"run", "--help"}, {"run", "-h"}} {
		if got, _, code := ripstop(args...); got != want || code != 0 {
			t.Errorf("%v: exit %d\n%s", args, code, got)
		}
	}
	for _, c := range newRoot().Commands() {
		text, _, _ := ripstop("help", c.Name())
		for _, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > 100 {
				t.Errorf("help %s: %d columns: %s", c.Name(), len([]rune(line)), line)
			}
		}
	}
}

// gdb showed ?? for all that lies below an interposed function in a core dump: the library that it would have needed had gone with the run.
func TestAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, stderr, code := ripstop("agent", dir); code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	f, err := elf.Open(filepath.Join(dir, "libripstop.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range []string{".eh_frame", ".symtab"} { // what gdb follows stacks by, and names them by
		if f.Section(name) == nil {
			t.Errorf("the library has no %s", name)
		}
	}
	if _, stderr, code := ripstop("agent", filepath.Join(dir, "libripstop.so")); code != exitFailed || !strings.Contains(stderr, "not a directory") {
		t.Errorf("into a file: exit %d, %s", code, stderr)
	}
}

// The topic of rules names each of them.
func TestRulesTopic(t *testing.T) {
	text, _, _ := ripstop("help", "rules")
	for _, info := range report.Rules() {
		if !strings.Contains(text, fmt.Sprintf("\n%s (%s)\n", info.Rule, info.Class)) {
			t.Errorf("help rules lacks %s", info.Rule)
		}
	}
}

// A mistake on the command line gives one clear error, a hint, and 125; nothing on standard output.
func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		args []string
		say  string
	}{
		{[]string{"run"}, "run: no program to run"},
		{[]string{"run", "--"}, "run: no program to run"},
		{[]string{"--"}, "run: no program to run"},
		{[]string{"run", "--nonsense", "--", "true"}, "run: unknown flag: --nonsense"},
		{[]string{"run", "--follow=perhaps", "--", "true"}, "it takes yes or no"},
		{[]string{"run", "--on-deadlock", "explode", "--", "true"}, "it takes one of exit, continue, abort"},
		{[]string{"run", "--exit-code", "256", "--", "true"}, "it takes a number from 0 to 255"},
		{[]string{"run", "--stack-depth", "4x", "--", "true"}, "it takes a number"},
		{[]string{"run", "--hang-timeout", "5", "--", "true"}, "it takes a time such as 30s or 5m"},
		{[]string{"guard", "--epochs", "-1s", "--", "true"}, "it takes a time such as 30s or 5m"},
		{[]string{"record", "--", "true"}, "record: no directory for the trace: give one with -o DIR"},
		{[]string{"count"}, "count: no program to run"},
		{[]string{"count", "--format", "xml", "--", "true"}, "count: --format: \"xml\" is none of text, json, pprof"},
		{[]string{"count", "--format", "json=", "--", "true"}, "count: --format: json= names no file"},
		{[]string{"count", "--format", "pprof", "--", "true"}, "count: a pprof profile is bytes and no text: name a file"},
		{[]string{"count", "--format", "text,json", "-o", "x", "--", "true"}, "count: -o x is for the one format that names no file, and 2 do"},
		{[]string{"count", "--modules", "[", "--", "true"}, "count: --modules: \"[\": syntax error in pattern"},
		{[]string{"report"}, "report: 0 arguments where one trace directory is wanted"},
		{[]string{"dump", "a", "b"}, "dump: 2 arguments where one trace directory is wanted"},
		{[]string{"./prog", "-x"}, "to run a program write: ripstop run -- ./prog -x"},
		{[]string{"./prog", "arg"}, "to run a program write: ripstop run -- ./prog arg"},
		{[]string{"doctor", "x"}, "doctor: \"x\" is too much: ripstop doctor takes no arguments"},
		{[]string{"rules", "x"}, "rules: \"x\" is too much"},
		{[]string{"man"}, "man: 0 arguments where one directory is wanted"},
		{[]string{"recrod", "x"}, "no command \"recrod\" (did you mean 'ripstop record'?); to run a program write: ripstop run -- recrod x"},
		// These showed the page of ripstop itself and ended with 0.
		{[]string{"help", "nope"}, "help: there is no command or topic \"nope\""},
		{[]string{"help", "repotr"}, "(did you mean 'ripstop help report'?)"},
		{[]string{"help", "run", "report"}, "help: 2 arguments where one command or topic is wanted"},
		{[]string{"ctl", "1234"}, "ctl: 1 arguments where a process and a question are wanted"},
		{[]string{"ctl", "status", "1234"}, "ctl: \"status\" is no process id"},
		{[]string{"ctl", "0", "status"}, "ctl: \"0\" is no process id"},
		{[]string{"ctl", "1234", "explode"}, "ctl: \"explode\" is none of status, checkpoint, rollback, report"},
		{[]string{"ctl", "1234", "status", "--format", "sarif"}, "ctl: --format sarif is of reports: a status has text and json"},
		{[]string{"ctl", "1234", "status", "--timeout", "2h"}, "ctl: --timeout takes a time from 1ms to 1h0m0s"},
		{[]string{"completion"}, "completion: 0 arguments where one shell is wanted"},
		{[]string{"completion", "tcsh"}, "is no shell that there is a script for: bash, fish, zsh"},
	} {
		stdout, stderr, code := ripstop(tc.args...)
		if code != exitFailed || stdout != "" || !strings.HasPrefix(stderr, "ripstop: ") || !strings.Contains(stderr, tc.say) {
			t.Errorf("%v: exit %d, %q, %q; want 125 and %q", tc.args, code, stdout, stderr, tc.say)
		}
		if n := strings.Count(stderr, "\n"); n != 2 || !strings.Contains(stderr, "Try 'ripstop help") {
			t.Errorf("%v: %d lines: %s", tc.args, n, stderr)
		}
	}
}

// parse runs a command line up to the call it would make and returns what the flags said.
func parse(t *testing.T, environment string, args ...string) (*flags, error) {
	t.Helper()
	if environment != "" {
		t.Setenv(optionsVariable, environment)
	}
	var got *flags
	old := jobs
	defer func() { jobs = old }()
	catch := func(o *flags) (int, error) { got = o; return 0, nil }
	jobs = jobTable{run: catch, record: catch, report: catch, dump: old.dump}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&bytes.Buffer{})
	err := root.Execute()
	return got, err
}

// What count's flags say, and that the formats that RIPSTOP_OPTIONS sets for reports are not meant for it.
func TestCountFlags(t *testing.T) {
	t.Setenv(optionsVariable, "--format sarif=x --follow=no --stack-depth 3")
	old := jobs
	defer func() { jobs = old }()
	var got count.Options
	jobs.count = func(o *count.Options) (int, error) { got = *o; return 0, nil }
	if _, stderr, code := ripstop("count", "--format", "json=a,pprof", "-o", "b", "--modules", "libz*,prog", "--libc", "--top", "3", "--", "prog", "--top"); code != 0 {
		t.Fatal(stderr)
	}
	want := count.Options{Program: []string{"prog", "--top"}, Version: "1.2.3", Select: count.Selection{Modules: []string{"libz*", "prog"}, Libc: true},
		Outputs: []count.Output{{Format: "json", File: "a"}, {Format: "pprof", File: "b"}}, Top: 3, WaitFor: "main"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Flags end at the program's name: what follows is the program's, whatever it looks like.
func TestProgramKeepsItsFlags(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--stats", "--", "prog", "--stats", "-h", "--", "x"},
		{"run", "--stats", "prog", "--stats", "-h", "--", "x"},
	} {
		o, err := parse(t, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"prog", "--stats", "-h", "--", "x"}; !reflect.DeepEqual(o.program, want) || !o.stats {
			t.Errorf("%v: program %q, stats %v", args, o.program, o.stats)
		}
	}
	o, err := parse(t, "", "run", "--", "--odd-name")
	if err != nil || !reflect.DeepEqual(o.program, []string{"--odd-name"}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parse(t, "", "run", "--follow", "no", "run", "run"); err != nil || o.follow || !reflect.DeepEqual(o.program, []string{"run", "run"}) {
		t.Errorf("%+v, %v", o, err)
	}
}

// Every flag reaches the options, and without any the defaults stand.
func TestFlags(t *testing.T) {
	o, err := parse(t, "", "run", "prog")
	if err != nil {
		t.Fatal(err)
	}
	if !o.follow || o.onDeadlock != "exit" || o.hangTimeout != 0 || o.exitCode != 66 || o.stats || o.report.NoSource || o.report.Color != "auto" ||
		o.report.Formats != nil || o.report.Version != "1.2.3" || !reflect.DeepEqual(o.report.Command, []string{"prog"}) {
		t.Errorf("defaults: %+v", o)
	}
	o, err = parse(t, "", "run", "--follow=no", "--on-deadlock=abort", "--hang-timeout", "30s", "--exit-code=9", "--stats", "--stack-depth=3",
		"--suppressions=a", "--suppressions", "b", "--gen-suppressions", "--baseline=c", "--format", "text,json=d", "--format=sarif", "-o", "e",
		"--color=never", "--source=no", "--source-root=f", "--source-map=g=h", "-v", "prog")
	if err != nil {
		t.Fatal(err)
	}
	r := o.report
	if o.follow || o.onDeadlock != "abort" || o.hangTimeout.Seconds() != 30 || o.exitCode != 9 || !o.stats || o.stackDepth != 3 ||
		!reflect.DeepEqual(r.Suppressions, []string{"a", "b"}) || !r.GenSuppressions || r.Baseline != "c" ||
		!reflect.DeepEqual(r.Formats, []string{"text,json=d", "sarif"}) || r.Output != "e" || r.Color != "never" || !r.NoSource ||
		r.SourceRoot != "f" || !reflect.DeepEqual(r.SourceMap, []string{"g=h"}) || !r.Verbose {
		t.Errorf("%+v", o)
	}
	if o, err = parse(t, "", "record", "-o", "dir", "prog", "-o", "x"); err != nil || o.dir != "dir" || !reflect.DeepEqual(o.program, []string{"prog", "-o", "x"}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parse(t, "", "report", "--format=json", "dir"); err != nil || o.dir != "dir" || o.report.Default == nil {
		t.Errorf("%+v, %v", o, err)
	}
}

// RIPSTOP_OPTIONS mirrors the flags; a flag on the command line replaces what it says; flags of other commands are skipped; mistakes
// name the variable.
func TestOptionsVariable(t *testing.T) {
	const env = `--exit-code 7 --format json,sarif='my report.sarif' --suppressions a --suppressions b -v --json --follow=no`
	o, err := parse(t, env, "run", "prog")
	if err != nil {
		t.Fatal(err)
	}
	if o.exitCode != 7 || !reflect.DeepEqual(o.report.Formats, []string{"json,sarif=my report.sarif"}) ||
		!reflect.DeepEqual(o.report.Suppressions, []string{"a", "b"}) || !o.report.Verbose || o.follow {
		t.Errorf("%+v", o)
	}
	o, err = parse(t, env, "run", "--exit-code=8", "--suppressions=c", "--follow=yes", "prog")
	if err != nil {
		t.Fatal(err)
	}
	if o.exitCode != 8 || !reflect.DeepEqual(o.report.Suppressions, []string{"c"}) || !o.follow || !o.report.Verbose {
		t.Errorf("flags do not win: %+v", o)
	}
	if o, err = parse(t, env, "report", "dir"); err != nil || o.exitCode != 7 {
		t.Errorf("report: %+v, %v", o, err)
	}
	if o, err = parse(t, env, "record", "-o", "d", "prog"); err != nil || o.follow {
		t.Errorf("record: %+v, %v", o, err)
	}
	for env, say := range map[string]string{
		"--nonsense":        "unknown flag: --nonsense",
		"--exit-code=x":     "it takes a number",
		"--format 'x":       "the quote ' is not closed",
		`--format x\`:       "nothing behind the last",
		"word":              `"word" is not a flag`,
		"--stats -- prog":   `"prog" is not a flag`,
		"--help":            "of no use",
		"--hang-timeout":    "needs an argument",
		"--on-deadlock=die": "it takes one of",
	} {
		if _, err := parse(t, env, "run", "prog"); err == nil || !strings.HasPrefix(err.Error(), "RIPSTOP_OPTIONS: ") || !strings.Contains(err.Error(), say) {
			t.Errorf("RIPSTOP_OPTIONS=%q: error %v, want … %s", env, err, say)
		}
	}
}

// Words are split as a shell splits them.
func TestSplitWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                     nil,
		" \t\n":                nil,
		"a b":                  {"a", "b"},
		` a  'b c' "d e" `:     {"a", "b c", "d e"},
		`a\ b 'c\d' "e\"f\\g"`: {"a b", `c\d`, `e"f\g`},
		`"a\b" --x='y'"z"w`:    {`a\b`, "--x=yzw"},
		`'' ""`:                {"", ""},
		"\xff \xfe":            {"\xff", "\xfe"},
	} {
		if got, err := splitWords(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("splitWords(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// No value of RIPSTOP_OPTIONS makes us panic, and words that are quoted come back as they were.
func FuzzOptions(f *testing.F) {
	f.Add(`--format json='a b' -v "x\"y"`)
	f.Add(`--follow=no \`)
	f.Fuzz(func(t *testing.T, text string) {
		words, err := splitWords(text)
		if err != nil {
			return
		}
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, err := splitWords(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(words, again) {
			t.Errorf("%q became %q, %v", words, again, err)
		}
		if len(words) < 20 {
			parseSettings(newRun(), words)
		}
	})
}

// The manual pages are there for every command, name every flag, and groff formats them without a warning.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	if _, stderr, code := ripstop("man", dir); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Fatal("groff is needed to check the manual pages: apt-get install groff-base")
	}
	pages, _ := filepath.Glob(filepath.Join(dir, "*.1"))
	commands := 0
	for _, c := range newRoot().Commands() {
		if !c.Hidden && c.GroupID != "" && c.Name() != "help" && c.Name() != "completion" {
			commands++
		}
	}
	if len(pages) != commands+1 {
		t.Errorf("%d pages for %d commands: %v", len(pages), commands, pages)
	}
	for _, page := range pages {
		out, err := exec.Command(groff, "-man", "-Tascii", "-ww", "-z", page).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", page, err, out)
		}
	}
	for _, c := range newRoot().Commands() {
		if c.Name() != "run" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, "ripstop-run.1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range flagNames(c) {
			if !strings.Contains(string(data), strings.ReplaceAll("--"+name, "-", `\-`)) {
				t.Errorf("ripstop-run.1 does not name --%s", name)
			}
		}
	}
}

func flagNames(c *cobra.Command) (names []string) {
	groups, sets := groupsOf(c)
	for _, g := range groups {
		for line := range strings.SplitSeq(sets[g].FlagUsages(), "\n") {
			if _, rest, ok := strings.Cut(line, "--"); ok && strings.HasPrefix(strings.TrimSpace(line), "-") {
				names = append(names, strings.Fields(rest)[0])
			}
		}
	}
	return names
}

// The completion scripts are accepted by the shells they are for, as far as those are here; bash is.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, stderr, code := ripstop("completion", shell)
		if code != 0 || !strings.Contains(script, "ripstop") {
			t.Errorf("%s: exit %d, %s", shell, code, stderr)
			continue
		}
		if shell != "bash" {
			continue
		}
		cmd := exec.Command("bash", "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("bash: %v\n%s", err, out)
		}
	}
	for _, c := range []struct{ line, want []string }{
		{[]string{"run", "--on-deadlock", ""}, []string{"exit", "continue", "abort"}},
		{[]string{"help", "re"}, []string{"record", "report"}},
		{[]string{"completion", ""}, []string{"bash", "fish", "zsh"}},
	} {
		out, _, _ := ripstop(append([]string{"__complete"}, c.line...)...)
		for _, w := range c.want {
			if !strings.Contains("\n"+out, "\n"+w) {
				t.Errorf("%q is not offered behind %q:\n%s", w, c.line, out)
			}
		}
	}
}
