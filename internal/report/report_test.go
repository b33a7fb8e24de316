package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/finding"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	os.Unsetenv("NO_COLOR")
	os.Unsetenv("GITHUB_WORKSPACE")
	flag.Parse()
	os.Exit(m.Run())
}

// render gives findings to a Reporter with one format and returns what it wrote.
func render(t *testing.T, format string, change func(*Options), s Summary, findings ...finding.Finding) string {
	t.Helper()
	var b bytes.Buffer
	o := Options{
		Formats: []string{format}, Default: &b, SourceMap: []string{"/build/bank=testdata/src"},
		Version: "1.2.3", Command: []string{"/build/bank/bank", "--fast", "a b"},
	}
	if change != nil {
		change(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		r.Add(f)
	}
	if _, err := r.Close(s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every format of the same findings, as files that a reader can judge. -update rewrites them.
func TestGolden(t *testing.T) {
	for _, tc := range []struct {
		name, format string
		change       func(*Options)
	}{
		{"text", "text", nil},
		{"color", "text", func(o *Options) { o.Color = "always" }},
		{"nosource", "text", func(o *Options) { o.NoSource = true; o.GenSuppressions = true }},
		{"json", "json", nil},
		{"sarif", "sarif", func(o *Options) { o.SourceMap, o.SourceRoot = nil, "/build/bank" }},
		{"junit", "junit", nil},
		{"github", "github", nil},
	} {
		again := inversion()
		again.PID = 9999
		got := render(t, tc.format, tc.change, exampleSummary(), append(fixtures(), again)...)
		if tc.format == "sarif" {
			got = withoutRules(t, got)
		}
		path := filepath.Join("testdata", tc.name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from what the %s format writes now; go test -update rewrites it. %s", path, tc.format, firstDifference(got, string(want)))
		}
	}
}

// withoutRules leaves the table of rules out: its words are kept in package finding.
func withoutRules(t *testing.T, text string) string {
	t.Helper()
	var log sarifLog
	if err := json.Unmarshal([]byte(text), &log); err != nil {
		t.Fatal(err)
	}
	for i := range log.Runs[0].Results {
		log.Runs[0].Results[i].RuleIndex = nil
	}
	log.Runs[0].Tool.Driver.Rules = nil
	out, err := json.MarshalIndent(log, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("Line %d is\n%s\nwhere the file has\n%s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(g), len(w))
}

// A run in which nothing was found writes no text at all, and files that machines can read.
func TestNothingFound(t *testing.T) {
	for _, format := range []string{"text", "github"} {
		if got := render(t, format, nil, Summary{}); got != "" {
			t.Errorf("%s of a clean run: %q", format, got)
		}
	}
	validateSARIF(t, render(t, "sarif", nil, Summary{}))
	validateLines(t, render(t, "json", nil, Summary{}))
	if got := render(t, "junit", nil, Summary{}); !strings.Contains(got, `tests="1" failures="0"`) {
		t.Errorf("JUnit of a clean run:\n%s", got)
	}
}

// The fingerprint stays when addresses, pids, thread numbers, lines, columns, directories and the order of the parts change, and
// changes with the rule, a function or a lock.
func TestFingerprintIsStable(t *testing.T) {
	base := inversion()
	want := stableKey(&base)
	moved := inversion()
	moved.PID, moved.Exe, moved.Message = 1, "/tmp/other/bank", "other words"
	moved.Parts[0], moved.Parts[1] = moved.Parts[1], moved.Parts[0]
	for i := range moved.Parts {
		moved.Parts[i].Thread += 10
	}
	shift := func(s finding.Stack) {
		for i := range s {
			s[i].PC += 0x1000
			s[i].Line += 7
			s[i].Column = 1
			s[i].BuildID = "11"
			s[i].File = strings.Replace(s[i].File, "/build/bank", "/home/ci/42", 1)
			s[i].Module = strings.Replace(s[i].Module, "/build/bank", "/home/ci/42", 1)
			s[i].Offset += 0x40
		}
	}
	eachStack(&moved, shift)
	for i := range moved.Objects {
		moved.Objects[i].Addr += 0x1000
		moved.Objects[i].Block += 0x1000
	}
	moved.Parts[0].Stack = append(moved.Parts[0].Stack, frameStart, frameStart) // another C library's frames
	if got := stableKey(&moved); got != want {
		t.Errorf("fingerprint %s became %s", want, got)
	}
	for name, change := range map[string]func(*finding.Finding){
		"rule":     func(f *finding.Finding) { f.Rule = finding.RuleDeadlock },
		"function": func(f *finding.Finding) { f.Parts[0].Stack[0].Func = "audit2" },
		"lock":     func(f *finding.Finding) { f.Objects[0].Symbol = "other_lock" },
		"part":     func(f *finding.Finding) { f.Parts = f.Parts[:1] },
	} {
		f := inversion()
		change(&f)
		if stableKey(&f) == want {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}

// One finding once: sightings that differ only in pid, addresses and threads are counted; another place in the same function is
// another finding, with a fingerprint of its own.
func TestMerge(t *testing.T) {
	var b bytes.Buffer
	r, err := New(Options{Default: &b, Formats: []string{"json"}})
	if err != nil {
		t.Fatal(err)
	}
	again := inversion()
	again.PID = 5
	again.Objects[1].Addr, again.Objects[1].Block = 0x10, 0
	again.Count = 4
	elsewhere := inversion()
	elsewhere.Parts[0].Stack[0].Line++
	elsewhere.Parts[0].Stack[0].PC++
	if !r.Add(inversion()) || r.Add(again) || !r.Add(elsewhere) || r.Add(elsewhere) {
		t.Error("Add is wrong about what is new")
	}
	if r.New() != 2 {
		t.Errorf("%d new findings, want 2", r.New())
	}
	res, err := r.Close(Summary{})
	if err != nil || res != (Result{New: 2, Repeats: 5}) {
		t.Errorf("%+v, %v", res, err)
	}
	var sum jsonSummary
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil {
		t.Fatal(err)
	}
	f := inversion()
	fp := stableKey(&f)
	if want := map[string]int{fp: 5, fp + ":2": 2}; !reflect.DeepEqual(sum.Counts, want) {
		t.Errorf("counts %v, want %v", sum.Counts, want)
	}
}

// A finding that comes again when its process ends, and its modules are gone, is the one that was reported with names.
func TestMergeWithoutNames(t *testing.T) {
	var b bytes.Buffer
	r, err := New(Options{Default: &b})
	if err != nil {
		t.Fatal(err)
	}
	named := inversion()
	inlined := named.Parts[0].Stack[0]
	inlined.Func, inlined.Inlined = "lock_it", true
	named.Parts[0].Stack = append(finding.Stack{inlined}, named.Parts[0].Stack...)
	bare := inversion()
	eachStack(&bare, func(s finding.Stack) {
		for i := range s {
			s[i] = finding.Frame{PC: s[i].PC}
		}
	})
	if !r.Add(named) || r.Add(bare) {
		t.Error("the finding without names counts as another one")
	}
	bare.PID++
	if !r.Add(bare) {
		t.Error("the same addresses in another process count as the same finding")
	}
}

// Locks of an array: which of them meet, and how many, makes no other finding.
func TestMergeArray(t *testing.T) {
	ring := func(n int, first uint64) finding.Finding {
		f := finding.Finding{Rule: finding.RuleInversion, PID: uint32(n)}
		for i := range n {
			off := first + uint64(i)*40
			id := fmt.Sprintf("M%d", i+1)
			f.Objects = append(f.Objects, finding.Object{ID: id, Kind: "mutex", Where: finding.Global, Module: bankExe, Symbol: "forks", SymOffset: off, Addr: off})
			f.Parts = append(f.Parts, finding.Part{Stack: finding.Stack{frameMain}, Held: []finding.Held{{Object: id, Stack: finding.Stack{frameMain}}}})
		}
		return f
	}
	a, b := ring(3, 0), ring(5, 80)
	if stableKey(&a) != stableKey(&b) || exactKey(&a) != exactKey(&b) {
		t.Error("circles of 3 and 5 forks are different findings")
	}
}

// A block's stack may be that of an earlier block from the same call: behind a wrapper frames were another caller's, and the report did not say so. The first frame alone needs no such word.
func TestReusedStack(t *testing.T) {
	frames := finding.Stack{{PC: 0x1450, Func: "xmalloc"}, {PC: 0x1500, Func: "main"}}
	for _, c := range []struct {
		reused bool
		stack  finding.Stack
		want   bool
	}{{true, frames, true}, {true, frames[:1], false}, {false, frames, false}} {
		o := finding.Object{ID: "M1", Kind: "mutex", Where: finding.Heap, Block: 0x1000, Addr: 0x1008, Size: 64, Allocated: c.stack, Reused: c.reused}
		text, stack := objectText(&finding.Finding{}, &o)
		if got := strings.Contains(text, "may have had another caller"); got != c.want || len(stack) != len(c.stack) || !strings.HasSuffix(text, " by") {
			t.Errorf("%v, %d frames: %s", c.reused, len(c.stack), text)
		}
	}
}

// Add may be called from many goroutines: each distinct finding is reported once.
func TestConcurrentAdd(t *testing.T) {
	r, err := New(Options{Default: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, f := range fixtures() {
				r.Add(f)
			}
		})
	}
	wg.Wait()
	if res, err := r.Close(Summary{}); err != nil || res.New != 4 || res.Repeats != 7+7+7*3+2+7 {
		t.Errorf("%+v, %v", res, err)
	}
}

// Known findings of a baseline are not shown and do not count; what is new is.
func TestBaseline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.json")
	text := render(t, "json", nil, Summary{}, inversion(), deadlock())
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	r, err := New(Options{Default: &b, Baseline: path})
	if err != nil {
		t.Fatal(err)
	}
	later := inversion()
	eachStack(&later, func(s finding.Stack) {
		for i := range s {
			s[i].Line += 100
		}
	})
	if r.Add(later) || r.Add(deadlock()) || !r.Add(stripped()) {
		t.Error("Add is wrong about what the baseline has")
	}
	res, err := r.Close(Summary{})
	if err != nil || res.New != 1 || res.Known != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	if s := b.String(); strings.Contains(s, "lock-order") || !strings.Contains(s, "2 known from the baseline") {
		t.Errorf("text:\n%s", s)
	}
	for name, wrong := range map[string]string{
		"missing": "", "empty.json": "", "text.json": "hello\n", "sarif.json": "{\n \"version\": \"2.1.0\"\n}\n",
		"other.json": `{"type":"finding","fingerprint":"00"}` + "\n", "new.json": `{"type":"run","version":99}` + "\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		if name != "missing" {
			if err := os.WriteFile(path, []byte(wrong), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := New(Options{Baseline: path}); err == nil || !strings.Contains(err.Error(), "--baseline: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("baseline %s: error %v", name, err)
		}
	}
}

// A source file newer than the program is not shown, and that is said; one that is older is.
func TestSourceNewerThanProgram(t *testing.T) {
	dir := t.TempDir()
	exe, src := filepath.Join(dir, "bank"), filepath.Join(dir, "bank.c")
	for _, p := range []string{exe, src} {
		if err := os.WriteFile(p, []byte("one\ntwo\nthree\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := stripped()
	f.Parts = []finding.Part{{Text: "here", Stack: finding.Stack{{Module: exe, Func: "f", File: src, Line: 2, Column: 2}}}}
	built := time.Now()
	for _, tc := range []struct {
		edited time.Time
		want   string
	}{
		{built.Add(-time.Hour), "| two\n            | "},
		{built.Add(time.Hour), "bank.c is newer than bank"},
	} {
		if err := errors.Join(os.Chtimes(exe, built, built), os.Chtimes(src, tc.edited, tc.edited)); err != nil {
			t.Fatal(err)
		}
		if got := render(t, "text", nil, Summary{}, f); !strings.Contains(got, tc.want) {
			t.Errorf("want %q in:\n%s", tc.want, got)
		}
	}
	f.Parts[0].Stack[0].Line = 4
	if err := os.Chtimes(src, built.Add(-time.Hour), built.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := render(t, "text", nil, Summary{}, f); !strings.Contains(got, "has only 3 lines") {
		t.Errorf("line beyond the end:\n%s", got)
	}
}

// The caret stands under the byte that the column counts, behind tabs and other characters too.
func TestCaret(t *testing.T) {
	for _, tc := range []struct {
		line   string
		column int
		text   string
		caret  int
	}{
		{"\tlock(&m);", 2, "        lock(&m);", 9},
		{"lock(&m);", 1, "lock(&m);", 1},
		{"é lock", 4, "é lock", 3},
		{"ab", 9, "ab", 0},
		{"a\x1bb", 3, "a?b", 3},
		{"", 1, "", 0},
		{strings.Repeat("x", 200), 190, strings.Repeat("x", maxColumns) + "…", maxColumns},
	} {
		text, caret := layOut(tc.line, tc.column)
		if text != tc.text || caret != tc.caret {
			t.Errorf("layOut(%q, %d) = %q, %d; want %q, %d", tc.line, tc.column, text, caret, tc.text, tc.caret)
		}
	}
}

// Several outputs at once, each where it was told to go; and mistakes in the flags are told before anything is opened.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	sarifPath := filepath.Join(dir, "r.%p.sarif")
	var b bytes.Buffer
	if _, err := New(Options{Formats: []string{"text,sarif=" + sarifPath, "junit"}, Output: filepath.Join(dir, "r.xml"), Default: &b}); err == nil {
		t.Error("--output with two open formats is accepted")
	}
	r, err := New(Options{Formats: []string{"text,sarif=" + sarifPath, "junit=" + filepath.Join(dir, "r.xml")}, Default: &b})
	if err != nil {
		t.Fatal(err)
	}
	r.Add(inversion())
	if _, err := r.Close(Summary{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("r.%d.sarif", os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	validateSARIF(t, string(data))
	if data, err := os.ReadFile(filepath.Join(dir, "r.xml")); err != nil || !bytes.Contains(data, []byte("<failure")) {
		t.Errorf("%v %s", err, data)
	}
	if !strings.Contains(b.String(), "SUMMARY: ripstop: lock-order-inversion") {
		t.Errorf("text: %s", b.String())
	}
	b.Reset()
	r, err = New(Options{Formats: []string{"json"}, Output: filepath.Join(dir, "r.json"), Default: &b})
	if err != nil {
		t.Fatal(err)
	}
	r.Add(inversion())
	if _, err := r.Close(Summary{}); err != nil {
		t.Fatal(err)
	}
	if want := "ripstop: reported 1 finding, see " + filepath.Join(dir, "r.json") + "\n"; b.String() != want {
		t.Errorf("with a file only, the terminal shows %q, want %q", b.String(), want)
	}
	for _, o := range []Options{
		{Formats: []string{"html"}}, {Formats: []string{"text="}}, {Formats: []string{"json=x,sarif=./x"}},
		{Formats: []string{"json,sarif"}, Output: filepath.Join(dir, "y")}, {Formats: []string{"json=/nonexistent/x"}},
		{Color: "purple"}, {SourceMap: []string{"x"}}, {Suppressions: []string{"/nonexistent"}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "y")); err == nil {
		t.Error("a file was made in spite of wrong flags")
	}
}

// A write that fails is an error of Close, and the findings are counted all the same.
func TestWriteFails(t *testing.T) {
	r, err := New(Options{Default: failingWriter{}})
	if err != nil {
		t.Fatal(err)
	}
	r.Add(inversion())
	res, err := r.Close(Summary{})
	if err == nil || !strings.Contains(err.Error(), "disk full") || res.New != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// GitHub's escapes: a message or file name cannot end the command early or begin another.
func TestGitHubEscapes(t *testing.T) {
	f := inversion()
	f.Message = "100% of\r\n::error::x"
	for i := range f.Parts[0].Stack {
		f.Parts[0].Stack[i].File = "a,b:c%/x.c"
	}
	got := render(t, "github", nil, Summary{}, f)
	for _, want := range []string{"file=a%2Cb%3Ac%25/x.c,line=20,", "::100%25 of"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in %q", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

// In a workflow, file names are relative to the checkout, not to the directory that the step runs in.
func TestGitHubWorkspace(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GITHUB_WORKSPACE", filepath.Dir(here))
	if got := render(t, "github", nil, Summary{}, inversion()); !strings.Contains(got, "file=report/testdata/src/bank.c,") {
		t.Errorf("%q", got)
	}
}

// A relative name from debug information is below the source root only if there is such a file.
func TestRelativeNames(t *testing.T) {
	src, err := newSources(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	here, _ := os.Getwd()
	for name, want := range map[string]bool{
		"./testdata/src/bank.c": true, "./nptl/pthread_create.c": false, "../report/doc.go": false,
		here + "/doc.go": true, filepath.Dir(here) + "/x.c": false, "/usr/include/stdio.h": false,
	} {
		if got, below := src.relative(name); below != want {
			t.Errorf("relative(%q) = %q, %v; want %v", name, got, below, want)
		}
	}
}

// A counter that two functions raise without a lock was one finding for each pair of lines and each caller. It is one race, of which the other places are told at the end; another object, or
// another function, is another race. What is suppressed by its caller does not take the others with it.
// A program of numpy's that multiplies matrices had 296 blocks of races of movs, as the flags by which OpenBLAS's threads hand on work are atomics of which no debug information tells, and all the rest is ordered by these.
func TestOrderedRacesAreFolded(t *testing.T) {
	var findings []finding.Finding
	for i := range mostOrdered + 5 {
		f := dataRace()
		f.Rule, f.Ordered = finding.RuleDataRaceMov, i != 2 && i != mostOrdered+3
		f.Parts[0].Stack[0].PC, f.Parts[0].Stack[0].Func = uint64(1000+i), fmt.Sprintf("at%d", i)
		findings = append(findings, f, f) // again: its sightings are no more told than it
	}
	text := render(t, "text", nil, Summary{}, findings...)
	if n := strings.Count(text, "SUMMARY:"); n != mostOrdered+2 || !strings.Contains(text, "and 3 more data-race-mov, not shown") || strings.Count(text, "seen ") != mostOrdered+2 || !strings.Contains(text, fmt.Sprintf("reported %d findings", mostOrdered+5)) {
		t.Errorf("%d blocks\n%s", n, text)
	}
	for format, change := range map[string]func(*Options){"text": func(o *Options) { o.Verbose = true }, "json": nil} {
		if text := render(t, format, change, Summary{}, findings...); strings.Contains(text, "not shown") || !strings.Contains(text, fmt.Sprintf("at%d", mostOrdered+4)) {
			t.Errorf("%s", text)
		}
	}
}

// A chess program without symbols had 571 findings, one for each pair of instructions of the same few functions.
func TestRaceOnceWithoutNames(t *testing.T) {
	var findings []finding.Finding
	for _, places := range [][2]uint64{{0x1000, 0x1100}, {0x1000, 0x1000}, {0x1200, 0x1100}, {0, 0}} { // functions that access
		for i := range uint64(3) {
			f := dataRace()
			for part, start := range places {
				f.Parts[part].Stack = finding.Stack{{PC: 0x400000 + start + 8*i, Module: bankExe, Offset: start + 8*i, Start: start}}
			}
			findings = append(findings, f)
		}
	}
	text := render(t, "text", nil, Summary{}, findings...)
	if strings.Count(text, "SUMMARY:") != 3+3 || strings.Count(text, "also between") != 2+2+2 {
		t.Errorf("%s", text)
	}
}

func TestRaceOnce(t *testing.T) {
	var text, lines bytes.Buffer
	change := func(fn func(f *finding.Finding)) finding.Finding {
		f := dataRace()
		fn(&f)
		return f
	}
	first := dataRace()
	turned := change(func(f *finding.Finding) { f.Parts[0], f.Parts[1] = f.Parts[1], f.Parts[0] })
	line := change(func(f *finding.Finding) { f.Parts[0].Stack[0].PC, f.Parts[0].Stack[0].Line = 1, 23 })
	caller := change(func(f *finding.Finding) {
		f.Parts[0].Stack = append(f.Parts[0].Stack, finding.Frame{PC: 9, Func: "elsewhere", File: "/src/x.c", Line: 9})
	})
	element := change(func(f *finding.Finding) { f.Objects[0].Addr, f.Objects[0].Path = 7, ".open[3]" })
	member := change(func(f *finding.Finding) { f.Objects[0].Addr, f.Objects[0].Path = 8, ".other" })
	object := change(func(f *finding.Finding) { f.Objects[0].Addr, f.Objects[0].Symbol = 2, "others" })
	function := change(func(f *finding.Finding) { f.Parts[0].Stack[0].PC, f.Parts[0].Stack[0].Func = 3, "other" })
	for _, o := range []struct {
		format string
		to     *bytes.Buffer
	}{{"text", &text}, {"json", &lines}} {
		r, err := New(Options{Default: o.to, Formats: []string{o.format}, NoSource: true})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range []struct {
			finding.Finding
			new bool
		}{{first, true}, {turned, false}, {line, false}, {caller, false}, {line, false}, {element, false}, {member, true}, {object, true}, {function, true}} {
			if got := r.Add(f.Finding); got != f.new {
				t.Errorf("finding %d: new %v", i, got)
			}
		}
		if res, err := r.Close(Summary{}); err != nil || res != (Result{New: 4, Repeats: 5}) {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if n := strings.Count(text.String(), "also between"); n != 1 || !strings.Contains(text.String(), "seen 6 times") {
		t.Errorf("%s", text.String())
	}
	var sum jsonSummary
	all := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if err := json.Unmarshal([]byte(all[len(all)-1]), &sum); err != nil {
		t.Fatal(err)
	}
	if also := sum.Also[stableKey(&first)]; len(sum.Also) != 1 || len(also) != 1 || len(also[0]) != 2 || also[0][0].Line != line.Parts[0].Stack[0].Line {
		t.Errorf("%+v", sum.Also)
	}
}

// A thread that ends with a lock held is in no function any more: each report of one said "[no stack was taken]", as if something had been missing.
func TestEndHasNoStack(t *testing.T) {
	locked := finding.Stack{{Module: "prog", Offset: 0x1173, Func: "works"}}
	f := finding.Finding{Rule: finding.RuleExitHoldingLock, Message: "Thread ends while it holds mutex M1", Parts: []finding.Part{{Text: "Still held at its end", Thread: 2}, {Text: "Locked here", Thread: 2, Stack: locked}}, Threads: []finding.Thread{{Number: 2, Tid: 7}}}
	got := render(t, "text", nil, Summary{}, f)
	if !strings.Contains(got, "\n  Still held at its end in thread T2 (tid=7)\n\n  Locked here in thread T2 (tid=7):\n") || strings.Contains(got, "no stack was taken") {
		t.Errorf("%s", got)
	}
}
