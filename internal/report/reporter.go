package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/ripstop/ripstop/internal/finding"
)

// Reporter takes findings and writes them. Its methods may be called from several goroutines.
type Reporter struct {
	mu      sync.Mutex
	opts    Options
	src     *sources
	outs    []output
	writers []writer

	suppressions *Suppressions
	baseline     map[string]bool
	raw          map[string]*record // by raw key
	merged       map[string]*record // by exact key
	races        map[string]*record // by race key: those of class race that were not suppressed
	byStable     map[string]int     // how many exact keys share a stable fingerprint
	records      []*record          // what was reported, in order
	result       Result
	err          error
	closed       bool
}

// record is one distinct finding.
type record struct {
	f           finding.Finding
	rule        finding.RuleInfo
	where       finding.Frame // what SUMMARY, SARIF and annotations point to; zero when nothing is known
	fingerprint string
	count       int
	suppressed  bool
	known       bool              // in the baseline
	also        [][]finding.Frame // of a race, other places where it is the same: a frame of each part
}

// maxAlso bounds record.also.
const maxAlso = 64

// writer is one format. A finding is given to it once, when it is first seen.
type writer interface {
	add(*record) error
	finish(records []*record, res Result, s Summary) error
}

// New checks o, reads suppressions and baseline, and opens the outputs.
func New(o Options) (*Reporter, error) {
	if o.Default == nil {
		o.Default = os.Stderr
	}
	r := &Reporter{opts: o, raw: map[string]*record{}, merged: map[string]*record{}, races: map[string]*record{}, byStable: map[string]int{}}
	var err error
	if r.src, err = newSources(&o); err != nil {
		return nil, err
	}
	if r.outs, err = o.parseOutputs(); err != nil {
		return nil, err
	}
	if r.suppressions, err = readSuppressionFiles(o.Suppressions); err != nil {
		return nil, err
	}
	if o.Baseline != "" {
		if r.baseline, err = readBaseline(o.Baseline); err != nil {
			return nil, err
		}
	}
	for i := range r.outs {
		out := &r.outs[i]
		if err = out.open(&o); err != nil {
			r.closeFiles()
			return nil, err
		}
		w, err := r.newWriter(out)
		if err != nil {
			r.closeFiles()
			return nil, err
		}
		r.writers = append(r.writers, w)
	}
	if !r.hasTerminalText() {
		r.writers = append(r.writers, &pointer{r: r, outs: r.outs})
	}
	return r, nil
}

func (r *Reporter) newWriter(out *output) (writer, error) {
	switch out.format {
	case "text":
		color, err := useColor(r.opts.Color, out.w)
		if err != nil {
			return nil, err
		}
		return &textWriter{w: out.w, r: r, p: newPrinter(r.src, color, !r.opts.NoSource)}, nil
	case "json":
		return newJSONWriter(out.w, r)
	case "sarif":
		return &sarifWriter{w: out.w, r: r}, nil
	case "junit":
		return &junitWriter{w: out.w, r: r}, nil
	case "github":
		return &githubWriter{w: out.w, r: r}, nil
	}
	panic("BUG: format " + out.format)
}

// hasTerminalText reports whether some format writes to where the user looks.
func (r *Reporter) hasTerminalText() bool {
	for i := range r.outs {
		if r.outs[i].path == "" || r.outs[i].path == "-" {
			return true
		}
	}
	return false
}

// Add takes a symbolised finding. It reports true if the finding is new: not seen before in this run, not suppressed, not in the
// baseline. Text, JSON and annotations are written before Add returns.
func (r *Reporter) Add(f finding.Finding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		panic("BUG: report.Add after Close")
	}
	n := max(f.Count, 1)
	race := raceKey(&f)
	raw, exact := rawKey(&f), exactKey(&f)+"\n"+race
	old := r.raw[raw]
	if old == nil {
		old = r.merged[exact]
	}
	if old != nil {
		r.raw[raw] = old
		old.count += n
		switch {
		case old.suppressed:
			r.suppressions.again(&old.f, n)
			r.result.Suppressed += n
		case !old.known:
			r.result.Repeats += n
		}
		return false
	}
	rec := &record{f: f, rule: ruleOf(f.Rule), where: locate(&f), count: n}
	r.raw[raw], r.merged[exact] = rec, rec
	if r.suppressions.match(&rec.f, rec.rule, n) {
		rec.suppressed = true
		r.result.Suppressed += n
		return false
	}
	if old := r.races[race]; old != nil {
		r.raw[raw], r.merged[exact] = old, old
		old.count += n
		old.alsoAt(&f)
		if !old.known {
			r.result.Repeats += n
		}
		return false
	}
	if race != "" {
		r.races[race] = rec
	}
	rec.fingerprint = stableKey(&f)
	r.byStable[rec.fingerprint]++
	if k := r.byStable[rec.fingerprint]; k > 1 {
		rec.fingerprint = fmt.Sprintf("%s:%d", rec.fingerprint, k)
	}
	if r.baseline[rec.fingerprint] {
		rec.known = true
		r.result.Known++
		return false
	}
	r.result.New++
	r.result.Repeats += n - 1
	r.records = append(r.records, rec)
	for _, w := range r.writers {
		r.fail(w.add(rec))
	}
	return true
}

// alsoAt keeps where f is, if that is none of the places that are known, by line.
func (rec *record) alsoAt(f *finding.Finding) {
	lines := func(frames []finding.Frame) string {
		var l []string
		for _, fr := range frames {
			if fr.Line > 0 {
				l = append(l, fmt.Sprintf("%s:%d", fr.File, fr.Line))
			} else {
				l = append(l, fmt.Sprintf("%s+%x", fr.Module, fr.Offset))
			}
		}
		slices.Sort(l)
		return strings.Join(l, "\n")
	}
	at := places(f)
	same := func(b []finding.Frame) bool { return lines(b) == lines(at) }
	if len(rec.also) < maxAlso && !same(places(&rec.f)) && !slices.ContainsFunc(rec.also, same) {
		rec.also = append(rec.also, at)
	}
}

// places are the frames of f's parts that tell most.
func places(f *finding.Finding) (at []finding.Frame) {
	for _, p := range f.Parts {
		if len(p.Stack) > 0 {
			at = append(at, p.Stack[telling(p.Stack)])
		}
	}
	return at
}

// New is the number of distinct findings reported so far.
func (r *Reporter) New() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result.New
}

// Result is what the findings reported so far came to.
func (r *Reporter) Result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}

// Snapshot writes to w, in that one of Formats, what a report would be that ended now. Nothing ends.
func (r *Reporter) Snapshot(format string, w io.Writer, s Summary) (Result, error) {
	if !known(format) {
		return Result{}, fmt.Errorf("no format %q; there are %s", format, strings.Join(Formats, ", "))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := r.newWriter(&output{format: format, w: w})
	for i := 0; i < len(r.records) && err == nil; i++ {
		err = out.add(r.records[i])
	}
	if err == nil {
		err = out.finish(r.records, r.result, s)
	}
	return r.result, err
}

// Close writes what is written at the end and closes the files. The error is the first that any output met.
func (r *Reporter) Close(s Summary) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.result, r.err
	}
	r.closed = true
	for _, w := range r.writers {
		r.fail(w.finish(r.records, r.result, s))
	}
	r.closeFiles()
	return r.result, r.err
}

func (r *Reporter) closeFiles() {
	for i := range r.outs {
		if r.outs[i].close != nil {
			r.fail(r.outs[i].close())
			r.outs[i].close = nil
		}
	}
}

func (r *Reporter) fail(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("writing the report: %w", err)
	}
}
