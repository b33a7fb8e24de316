// Package real runs real programs natively, under `ripstop run` and under `ripstop record`, and proves that output, status and
// results are the same, and that each finding is one that docs/findings.md has judged.
package real

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ripstop/ripstop/test/real/drive"
)

const root = "../.."

// TestPrograms: a program's output, exit status and results are natively and under run and record the same; what run reports,
// and what report makes of the recorded trace, is in docs/findings.md and true.
func TestPrograms(t *testing.T) {
	if os.Getenv("RIPSTOP_REAL") == "" {
		t.Skip("real programs run by make test-real (RIPSTOP_REAL=1)")
	}
	ripstop, err := filepath.Abs(filepath.Join(root, "bin/ripstop"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ripstop); err != nil {
		t.Fatalf("%v; run make first", err)
	}
	judged, err := readJudged(filepath.Join(root, "docs/findings.md"))
	if err != nil {
		t.Fatal(err)
	}
	size, rounds := drive.Small, 1
	if os.Getenv("RIPSTOP_SOAK") != "" {
		size, rounds = drive.Large, 3
	}
	shared := directory(t)
	for _, p := range drive.Programs() {
		t.Run(p.Name, func(t *testing.T) {
			if p.Sleeps {
				t.Parallel()
			}
			native := once(t, p, drive.Job{Mode: drive.Native, Size: size, Shared: shared})
			for range rounds {
				for _, mode := range []drive.Mode{drive.Run, drive.Record} {
					t.Run(mode.String(), func(t *testing.T) {
						job := drive.Job{Mode: mode, Size: size, Shared: shared, Ripstop: ripstop}
						if mode == drive.Run {
							job.Flags = []string{"--exit-code", "0"}
						}
						job.Dir = directory(t)
						same(t, native, once(t, p, job))
						judge(t, p.Name, judged, findings(t, &job))
					})
				}
			}
		})
	}
}

// directory is a temporary one with a short path, for sockets lie in it, that other users may enter.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rsreal")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.Getenv("RIPSTOP_KEEP") != "" {
			t.Logf("kept: %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func once(t *testing.T, p drive.Program, job drive.Job) drive.Outcome {
	t.Helper()
	job.Limit = 3 * time.Minute
	if job.Size == drive.Large || job.Mode == drive.Count {
		job.Limit = 20 * time.Minute
	}
	if job.Dir == "" {
		job.Dir = directory(t)
	}
	start := time.Now()
	out, err := p.Run(context.Background(), &job)
	if err != nil {
		t.Fatalf("%s %v: %v", p.Name, job.Mode, err)
	}
	t.Logf("%-7v load %.2f s, CPU %.2f s, all %.2f s", job.Mode, out.Time.Seconds(), out.CPU.Seconds(), time.Since(start).Seconds())
	return out
}

// same compares what a user of the program sees.
func same(t *testing.T, want, got drive.Outcome) {
	t.Helper()
	if want.Exit != got.Exit {
		t.Errorf("exit status %d, natively %d", got.Exit, want.Exit)
	}
	for _, c := range []struct{ what, want, got string }{
		{"standard output", string(want.Stdout), string(got.Stdout)},
		{"standard error", string(want.Stderr), string(got.Stderr)},
		{"results", strings.Join(want.Facts, "\n"), strings.Join(got.Facts, "\n")},
	} {
		if c.want != c.got {
			t.Errorf("%s differs\n--- natively\n%s\n--- now\n%s", c.what, end(c.want), end(c.got))
		}
	}
}

func end(s string) string {
	const most = 8000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// finding is what is needed here of a line of a JSON report.
type finding struct {
	Type       string
	Rule       string
	Message    string
	Executable string
	Parts      []struct {
		Text  string
		Stack []struct{ Function, Module, Offset string }
		Held  []struct {
			Stack []struct{ Function, Module, Offset string }
		}
	}
}

// findings reads the reports of a run, or makes them of a recorded trace.
func findings(t *testing.T, job *drive.Job) []finding {
	t.Helper()
	if job.Mode == drive.Record {
		for _, trace := range glob(t, job.Dir, "trace") {
			report := filepath.Join(filepath.Dir(trace), "findings.json")
			watched(t, job.Ripstop, trace)
			cmd := exec.Command(job.Ripstop, "report", "--exit-code", "0", "--format", "json="+report, trace)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", cmd, err, out)
			}
		}
	}
	var all []finding
	for _, report := range glob(t, job.Dir, "findings.json") {
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		complete := false
		for line := range strings.Lines(string(text)) {
			var f finding
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Fatalf("%s: %v in %s", report, err, line)
			}
			if f.Type == "finding" {
				all = append(all, f)
			}
			complete = complete || f.Type == "summary"
		}
		if !complete {
			t.Errorf("%s has no summary", report)
		}
	}
	return all
}

// watched: the program has threads, and the trace has more than one of them, and locks: equal results prove nothing of a program that
// was let go.
func watched(t *testing.T, ripstop, trace string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(ripstop, "dump", trace)
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if f := bytes.Fields(lines.Bytes()); len(f) > 3 {
			if name := string(f[3]); name == "thread-start" || name == "acquire" || name == "process" {
				count[name]++
			}
		}
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.Bytes())
	}
	t.Logf("trace: %d processes, %d threads, %d locks taken", count["process"], count["thread-start"], count["acquire"])
	if count["thread-start"] <= count["process"] || count["acquire"] == 0 {
		t.Errorf("%s has %v: the program's threads were not watched", trace, count)
	}
}

// glob finds name in dir and in the directories of second runs below it.
func glob(t *testing.T, dir, name string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{name, "*/" + name} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	if len(found) == 0 {
		t.Errorf("no %s in %s", name, dir)
	}
	return found
}

// frames are the names in the finding's stacks; where there is no name, module and offset.
func (f *finding) frames() []string {
	var names []string
	add := func(stack []struct{ Function, Module, Offset string }) {
		for _, frame := range stack {
			name := frame.Function
			if name == "" {
				name = filepath.Base(frame.Module) + "+" + frame.Offset
			}
			names = append(names, name)
		}
	}
	for _, p := range f.Parts {
		add(p.Stack)
		for _, h := range p.Held {
			add(h.Stack)
		}
	}
	return names
}

func judge(t *testing.T, program string, judged []judgement, found []finding) {
	t.Helper()
	for _, f := range found {
		frames := f.frames()
		if !slices.ContainsFunc(judged, func(j judgement) bool { return j.covers(program, &f, frames) }) {
			t.Errorf("not judged in docs/findings.md: %s: %s (%s)%s", f.Rule, f.Message, f.Executable, f.story())
		}
	}
}

func (f *finding) story() string {
	var b strings.Builder
	for _, p := range f.Parts {
		fmt.Fprintf(&b, "\n  %s", p.Text)
		for i, frame := range p.Stack {
			fmt.Fprintf(&b, "\n    #%d %s (%s+%s)", i, frame.Function, frame.Module, frame.Offset)
		}
	}
	return b.String()
}

// TestNativeTwice: what TestPrograms compares does not differ between two native runs, so a difference there is ours.
func TestNativeTwice(t *testing.T) {
	if os.Getenv("RIPSTOP_REAL") == "" || os.Getenv("RIPSTOP_SOAK") == "" {
		t.Skip("runs in make soak (RIPSTOP_REAL=1 RIPSTOP_SOAK=1)")
	}
	shared := directory(t)
	for _, p := range drive.Programs() {
		t.Run(p.Name, func(t *testing.T) {
			job := drive.Job{Mode: drive.Native, Size: drive.Small, Shared: shared}
			same(t, once(t, p, job), once(t, p, job))
		})
	}
}
