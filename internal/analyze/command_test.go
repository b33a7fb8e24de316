package analyze

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/sample"
)

// reported is Analyze with a JSON report, which it reads.
func reported(t *testing.T, o Options) (exit int, findings []map[string]any, summary map[string]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	o.Report.Formats = append(o.Report.Formats, "json="+file)
	exit, err := Analyze(o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var v map[string]any
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		switch v["type"] {
		case "finding":
			findings = append(findings, v)
		case "summary":
			summary = v
		}
	}
	return exit, findings, summary
}

// What the command gives: status, reports, what was not seen, figures; suppressions and a baseline leave findings out.
func TestAnalyze(t *testing.T) {
	dir := races(t, false)
	text := &strings.Builder{}
	exit, findings, summary := reported(t, Options{Dir: dir, ExitCode: 66, Stats: true, Report: report.Options{Formats: []string{"text"}, Default: text, Color: "never"}})
	if exit != 66 || len(findings) < 12 {
		t.Fatalf("exit %d, %d findings", exit, len(findings))
	}
	for _, f := range findings {
		for _, p := range f["parts"].([]any)[:2] {
			if known, _ := p.(map[string]any)["provenance"].(string); !slices.Contains([]string{"sampled", "path", "forward", "backward", "combined"}, known) {
				t.Errorf("an access is known by %q: %v", known, f["message"])
			}
		}
	}
	notSeen, _ := json.Marshal(summary["not_seen"])
	for _, want := range []string{"mode step, one of 1 loads and of 1 stores", "only code of these was traced: main"} {
		if !strings.Contains(string(notSeen), want) || !strings.Contains(text.String(), want) {
			t.Errorf("%q is not said: %s", want, notSeen)
		}
	}
	if stats := summary["stats"].(map[string]any); stats["judged"] == nil || stats["control flow"] == nil {
		t.Errorf("stats: %v", stats)
	}
	if n := strings.Count(text.String(), "SUMMARY: ripstop: data-race-mov"); n != len(findings) || !strings.Contains(text.String(), "a sample told it") {
		t.Errorf("%d summaries of %d findings:\n%s", n, len(findings), text)
	}

	old := filepath.Join(t.TempDir(), "old.json")
	if exit, err := Analyze(Options{Dir: dir, ExitCode: 9, Report: report.Options{Formats: []string{"json=" + old}}}); exit != 9 || err != nil {
		t.Errorf("exit %d, %v", exit, err)
	}
	if exit, findings, _ := reported(t, Options{Dir: dir, ExitCode: 66, Report: report.Options{Baseline: old}}); exit != 0 || len(findings) != 0 {
		t.Errorf("with a baseline: exit %d, %d findings", exit, len(findings))
	}
	supp := filepath.Join(t.TempDir(), "supp")
	if err := os.WriteFile(supp, []byte("race:main.c\nrace:races\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit, findings, summary := reported(t, Options{Dir: dir, ExitCode: 66, Report: report.Options{Suppressions: []string{supp}}}); exit != 0 || len(findings) != 0 || summary["suppressed"].(float64) < 12 {
		t.Errorf("with suppressions: exit %d, %d findings, %v", exit, len(findings), summary)
	}
}

// A directory that is no sampled recording, and one that is cut off or damaged anywhere, gives an error or a result that says so; never a panic.
func TestDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestJobs runs the same code, with several workers")
	}
	quiet := report.Options{Formats: []string{"json=/dev/null"}}
	if exit, err := Analyze(Options{Dir: t.TempDir(), Report: quiet}); exit != 125 || err == nil {
		t.Errorf("nothing there: exit %d, %v", exit, err)
	}
	from := races(t, false)
	copied := func(names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			if err := os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	if exit, err := Analyze(Options{Dir: copied("meta.json", "events.rst"), Report: quiet}); exit != 125 || err == nil || !strings.Contains(err.Error(), "record with --sample") {
		t.Errorf("without samples: exit %d, %v", exit, err)
	}
	attached := copied("meta.json", "events.rst", sample.PerfFile)
	if err := sample.WriteInfo(attached, sample.Info{Mode: sample.Timer, Attached: true, Complete: true}); err != nil {
		t.Fatal(err)
	}
	if exit, err := Analyze(Options{Dir: attached, Report: quiet}); exit != 125 || err == nil || !strings.Contains(err.Error(), "--pid") {
		t.Errorf("of a process that was attached to: exit %d, %v", exit, err)
	}
	perf, err := os.ReadFile(filepath.Join(from, sample.PerfFile))
	if err != nil {
		t.Fatal(err)
	}
	events, err := os.ReadFile(filepath.Join(from, "events.rst"))
	if err != nil {
		t.Fatal(err)
	}
	others := []string{"meta.json", sample.InfoFile, sample.VDSOFile, sample.AgentFile}
	for _, c := range []struct {
		name         string
		perf, events []byte
	}{
		{"half the samples", perf[:len(perf)/2], events},
		{"few samples", perf[:len(perf)/50], events},
		{"no samples", nil, events},
		{"half the events", perf, events[:len(events)/2]},
		{"no events", perf, events[:20]},
		{"wrong bytes", changed(perf), events},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copied(others...)
			for name, b := range map[string][]byte{sample.PerfFile: c.perf, "events.rst": c.events} {
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			exit, err := Analyze(Options{Dir: dir, Report: quiet})
			if (exit == 125) != (err != nil) || len(c.perf) == len(perf) && len(c.events) < len(events) && err != nil {
				t.Errorf("exit %d, %v", exit, err)
			}
		})
	}
	if testing.Short() { // the same code once more
		return
	}
	// Where the events end, locks are no longer seen: what was accessed from there on made races of what is none.
	clean := filepath.Join(t.TempDir(), "clean")
	if err := os.CopyFS(clean, os.DirFS(races(t, true))); err != nil {
		t.Fatal(err)
	}
	if events, err = os.ReadFile(filepath.Join(clean, "events.rst")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(clean, "events.rst"), events[:len(events)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, clean)
	if a := r.analyze(t, Options{}); len(a.found.Findings) > 0 || a.placer.left.Cut == 0 || a.placer.given == 0 {
		t.Errorf("with half the events of a program without races: %d findings, given %d, left %+v", len(a.found.Findings), a.placer.given, a.placer.left)
	}
	r = open(t, from)
	r.thin(50, 1)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, th := range r.rec.Threads { // samples that lie
		for i := range th.Samples {
			switch s := &th.Samples[i]; rnd.IntN(4) {
			case 0:
				s.TSC += rnd.Uint64N(1 << 20)
			case 1:
				s.Addr = rnd.Uint64()
			case 2:
				s.Regs[rnd.IntN(16)] = rnd.Uint64()
			}
		}
	}
	r.analyze(t, Options{Memory: recover.Assumed})
	for _, th := range r.rec.Threads {
		th.Start, th.End = rnd.Uint64(), rnd.Uint64()
	}
	r.analyze(t, Options{})
}

// changed is a copy with a wrong byte here and there.
func changed(b []byte) []byte {
	b = slices.Clone(b)
	for i := 5000; i < len(b); i += 99_991 {
		b[i] ^= 0x55
	}
	return b
}
