// Package beside runs the racy programs of internal/race under ripstop and under the detectors of others, Helgrind, DRD and ThreadSanitizer, and judges all by what the programs state (package
// stated): which of the stated races each finds, and what else it tells. What belongs here is how the others are run and what their reports mean; how programs state races does not.
package beside

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ripstop/ripstop/test/stated"
)

// Frame is a frame of a stack, as far as a tool tells it.
type Frame struct {
	File    string // without directory; "" where it is not known
	Line    int
	Inlined bool // in the next one (ripstop's)
}

// Report is one race of a tool's: the stacks of the accesses that it tells, one or two, innermost frame first.
type Report struct {
	Stacks [][]Frame
	Text   string
	alone  bool // of the second stack the instruction is all that is known (ripstop's, of an access that was long ago)
}

// Lines gives for each stack the line of the innermost frame in the file source; 0: none is there. An instruction that is alone, of a function in another file, has no line.
func (r *Report) Lines(source string) (lines []int) {
	for n, s := range r.Stacks {
		i := slices.IndexFunc(s, func(f Frame) bool { return f.File == filepath.Base(source) })
		if i < 0 && n == 1 && r.alone && len(s) > 0 && s[0].File != "" {
			continue
		}
		if i < 0 {
			lines = append(lines, 0)
		} else {
			lines = append(lines, s[i].Line)
		}
	}
	return lines
}

// Tool is a race detector.
type Tool struct {
	Name  string
	Build []string // more flags for the compiler
	// Args are in front of the program; {out} is the file that Parse reads.
	Args  []string
	Env   []string
	Parse func(io.Reader) ([]Report, error)
}

// Tools are ripstop, whose binary is given, and those it is compared with. The address space of TSan's programs must be laid out as before Linux 6.9 (setarch -R). Only one of two threads that
// wait for each other by turns runs under valgrind: --fair-sched gives each its turn.
func Tools(ripstop string) []Tool {
	valgrind := func(name string, more ...string) []string {
		return append([]string{"valgrind", "--tool=" + name, "--fair-sched=yes", "--xml=yes", "--xml-file={out}"}, more...)
	}
	return []Tool{
		{Name: "ripstop", Args: []string{ripstop, "run", "--full", "--exit-code=0", "--format=json={out}", "--"}, Parse: ParseRipstop},
		{Name: "Helgrind", Args: valgrind("helgrind", "--history-level=full"), Parse: ParseValgrind},
		{Name: "DRD", Args: valgrind("drd"), Parse: ParseValgrind},
		{Name: "TSan", Build: []string{"-fsanitize=thread", "-Wno-tsan"}, Args: []string{"setarch", "-R"}, Parse: ParseTSan,
			Env: []string{"TSAN_OPTIONS=exitcode=0:log_path={out}:history_size=7:suppress_equal_addresses=0:report_thread_leaks=0"}},
	}
}

// Compile builds source for t in dir.
func (t *Tool) Compile(source, dir string) (exe string, err error) {
	exe = filepath.Join(dir, filepath.Base(source)+"-"+t.Name)
	compiler := "gcc"
	if strings.HasSuffix(source, ".cc") {
		compiler = "g++"
	}
	args := append([]string{"-g", "-O1", "-pthread", "-Wl,-z,now", "-o", exe, source}, t.Build...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s %v: %w\n%s", compiler, args, err, out)
	}
	return exe, nil
}

// limit is for one run, so that a program that a tool does not let end does not hold up the rest.
const limit = time.Minute

// Run runs exe and gives what t tells of it. How exe ends is no matter: some detectors change it.
func (t *Tool) Run(exe, dir string) ([]Report, error) {
	file := filepath.Join(dir, filepath.Base(exe)+".out")
	named := func(list []string) (out []string) {
		for _, s := range list {
			out = append(out, strings.ReplaceAll(s, "{out}", file))
		}
		return out
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append(named(t.Args), exe)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), named(t.Env)...)
	cmd.WaitDelay = time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return nil, fmt.Errorf("%v: %w\n%s", args, errors.Join(err, ctx.Err()), errs.String())
	}
	files, _ := filepath.Glob(file + "*") // TSan's log has the pid behind its name, and there is none if it found nothing
	var all []Report
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		got, err := t.Parse(f)
		f.Close()
		os.Remove(name)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", args, err)
		}
		all = append(all, got...)
	}
	return all, nil
}

// Judged is what a tool's reports come to.
type Judged struct {
	Found map[string]bool // stated races
	False []string        // what is not stated, each pair of lines once
}

// Judge compares reports on source with what it states. A report is of a stated race if all lines that it tells are among its places: DRD tells one of the two.
func Judge(source string, races map[string]*stated.Race, reports []Report) Judged {
	j := Judged{Found: map[string]bool{}}
	seen := map[string]bool{}
	for _, r := range reports {
		lines := r.Lines(source)
		known := false
		for name, s := range races {
			if len(lines) > 0 && !slices.ContainsFunc(lines, func(l int) bool { return !slices.Contains(s.Lines, l) }) {
				j.Found[name], known = true, true
			}
		}
		slices.Sort(lines)
		if key := fmt.Sprint(lines); !known && !seen[key] {
			seen[key] = true
			j.False = append(j.False, fmt.Sprintf("lines %v: %s", lines, r.Text))
		}
	}
	return j
}

// ParseRipstop reads ripstop's report in JSON lines.
func ParseRipstop(in io.Reader) (out []Report, err error) {
	for d := json.NewDecoder(in); ; {
		var f struct {
			Type, Rule, Message string
			Parts               []struct{ Stack []Frame }
		}
		if err := d.Decode(&f); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if f.Type != "finding" || !slices.Contains([]string{"data-race", "data-race-mov", "use-after-free-access"}, f.Rule) {
			continue
		}
		r := Report{Text: f.Rule + ": " + f.Message}
		for n, p := range f.Parts[:min(2, len(f.Parts))] {
			for i := range p.Stack {
				_, p.Stack[i].File = filepath.Split(p.Stack[i].File)
			}
			r.Stacks = append(r.Stacks, p.Stack)
			r.alone = n == 1 && slices.IndexFunc(p.Stack, func(f Frame) bool { return !f.Inlined }) == len(p.Stack)-1
		}
		out = append(out, r)
	}
}

// ParseValgrind reads the XML of Helgrind or DRD (docs/internals/xml-output-protocol4.txt of valgrind's source). DRD tells one stack: of the other thread it knows between which two calls its
// access was.
func ParseValgrind(in io.Reader) (out []Report, err error) {
	var doc struct {
		Errors []struct {
			Kind  string `xml:"kind"`
			What  string `xml:"what"`
			XWhat string `xml:"xwhat>text"`
			Stack []struct {
				Frames []struct {
					File string `xml:"file"`
					Line int    `xml:"line"`
				} `xml:"frame"`
			} `xml:"stack"`
		} `xml:"error"`
	}
	if err := xml.NewDecoder(in).Decode(&doc); err != nil {
		return nil, err
	}
	for _, e := range doc.Errors {
		if e.Kind != "Race" && e.Kind != "ConflictingAccess" {
			continue
		}
		stacks := e.Stack[:min(2, len(e.Stack))]
		if e.Kind == "ConflictingAccess" {
			stacks = stacks[:min(1, len(stacks))]
		} else if !strings.Contains(e.XWhat, "race during") {
			continue
		}
		r := Report{Text: e.What + e.XWhat}
		for _, s := range stacks {
			var frames []Frame
			for _, f := range s.Frames {
				frames = append(frames, Frame{File: f.File, Line: f.Line})
			}
			r.Stacks = append(r.Stacks, frames)
		}
		out = append(out, r)
	}
	return out, nil
}

var (
	tsanHead  = regexp.MustCompile(`^WARNING: ThreadSanitizer: (.*) \(pid=\d+\)$`)
	tsanFrame = regexp.MustCompile(`^    #\d+ .*?(?:([^ /]+):(\d+)(?::\d+)?)? \(`)
)

// ParseTSan reads the text of ThreadSanitizer's reports, of gcc's or clang's. Of a stack that it could not restore nothing is told.
func ParseTSan(in io.Reader) (out []Report, err error) {
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var r *Report
	accesses := 0 // paragraphs of accesses in r
	inStack := false
	for _, line := range strings.Split(string(b), "\n") {
		if m := tsanHead.FindStringSubmatch(line); m != nil {
			r = nil
			if strings.Contains(m[1], "race") || strings.Contains(m[1], "use-after-free") || strings.Contains(m[1], "vptr") {
				out = append(out, Report{Text: m[1]})
				r = &out[len(out)-1]
			}
			accesses, inStack = 0, false
			continue
		}
		if r == nil {
			continue
		}
		if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ") {
			inStack = accesses < 2 && strings.Contains(line, " of size ")
			if inStack {
				accesses++
				r.Stacks = append(r.Stacks, nil)
			}
			continue
		}
		if inStack && strings.Contains(line, "[failed to restore the stack]") {
			r.Stacks, inStack = r.Stacks[:len(r.Stacks)-1], false
		}
		if m := tsanFrame.FindStringSubmatch(line); m != nil && inStack && len(r.Stacks) > 0 {
			n, _ := strconv.Atoi(m[2])
			last := &r.Stacks[len(r.Stacks)-1]
			*last = append(*last, Frame{File: m[1], Line: n})
		}
	}
	return out, nil
}
