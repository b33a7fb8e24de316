package report

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
)

const rulerLine = "=================="

// printer lays findings out as text.
type printer struct {
	src     *sources
	color   bool
	excerpt bool
	b       bytes.Buffer
}

func newPrinter(src *sources, color, excerpt bool) *printer {
	return &printer{src: src, color: color, excerpt: excerpt}
}

func (p *printer) paint(s style, text string) string {
	if !p.color || text == "" {
		return text
	}
	return string(s) + text + string(plain)
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// block lays out one finding, from ruler to ruler.
func (p *printer) block(rec *record) {
	f := &rec.f
	p.printf("%s\n", rulerLine)
	pid := ""
	if f.PID != 0 {
		pid = fmt.Sprintf(" (pid=%d)", f.PID)
	}
	p.printf("%s\n", p.paint(red, fmt.Sprintf("WARNING: ripstop: %s%s", clean(rec.rule.Title), pid)))
	if f.Message != "" {
		p.printf("  %s\n", p.paint(bold, message(f)))
	}
	p.printf("\n")
	p.body(f)
	p.printf("%s\n", p.paint(bold, p.summary(rec)))
	p.printf("%s\n", rulerLine)
}

// body lays out parts, objects, threads and notes.
func (p *printer) body(f *finding.Finding) {
	noted := map[string]bool{}
	for i := range f.Parts {
		part := &f.Parts[i]
		if f.Rule == finding.RuleExitHoldingLock && len(part.Stack) == 0 {
			// A thread that ends is in no function of the program's any more.
			p.printf("  %s\n", p.paint(blue, partText(f, part)))
		} else {
			p.heading(partText(f, part))
			p.stack(part.Stack)
			p.source(part.Stack, noted)
		}
		for j := range part.Held {
			h := &part.Held[j]
			p.printf("\n")
			p.heading(heldText(f, h))
			p.stack(h.Stack)
			p.source(h.Stack, noted)
		}
		p.printf("\n")
	}
	for i := range f.Objects {
		p.object(f, &f.Objects[i])
	}
	for i := range f.Threads {
		p.thread(f, &f.Threads[i])
	}
	p.memory(f.Memory)
	for _, n := range f.Notes {
		p.printf("  Note: %s\n", clean(n))
	}
	if len(f.Notes) > 0 {
		p.printf("\n")
	}
}

// memory shows bytes, sixteen a line.
func (p *printer) memory(m *finding.Memory) {
	if m == nil {
		return
	}
	p.heading(fmt.Sprintf("Memory at 0x%x", m.Addr))
	const line = 16
	for i := 0; i < len(m.Is); i += line {
		end := min(i+line, len(m.Is))
		p.printf("    should be % x\n", m.Was[i:min(end, len(m.Was))])
		text := make([]byte, 0, line)
		for _, c := range m.Is[i:end] {
			if c < ' ' || c > '~' {
				c = '.'
			}
			text = append(text, c)
		}
		p.printf("    is        %-*s |%s|\n", 3*line-1, fmt.Sprintf("% x", m.Is[i:end]), text)
	}
	p.printf("\n")
}

func (p *printer) heading(text string) { p.printf("  %s\n", p.paint(blue, text+":")) }

func (p *printer) object(f *finding.Finding, o *finding.Object) {
	if o.Kind == finding.KindWords("thread") {
		return // told with the threads
	}
	text, stack := objectText(f, o)
	if stack == nil {
		p.printf("  %s\n", p.paint(magenta, text))
	} else {
		p.printf("  %s\n", p.paint(magenta, text+":"))
		p.stack(stack)
	}
	if len(o.Initialised) > 0 {
		p.printf("\n  %s\n", p.paint(magenta, begunText(o)+":"))
		p.stack(o.Initialised)
	}
	p.printf("\n")
}

// thread says where a thread was created; nothing need be said of the main thread.
func (p *printer) thread(f *finding.Finding, t *finding.Thread) {
	if t.Number == 1 {
		return
	}
	text := "Thread " + threadLabel(t)
	if t.Creator != 0 {
		text += " created by " + threadName(f, t.Creator)
	} else if len(t.Created) > 0 {
		text += " created"
	}
	if len(t.Created) == 0 {
		if t.Creator == 0 {
			text += ": its creation was not seen"
		}
		p.printf("  %s\n\n", p.paint(blue, text))
		return
	}
	p.heading(text + " at")
	p.stack(t.Created)
	p.printf("\n")
}

func (p *printer) stack(s finding.Stack) {
	if len(s) == 0 {
		p.printf("    [no stack was taken]\n")
	}
	s = withoutStart(s)
	for i := range s {
		p.printf("    #%d %s\n", i, p.frame(&s[i]))
	}
}

// withoutStart leaves out what calls main and the functions of threads, which is the same in every stack.
func withoutStart(s finding.Stack) finding.Stack {
	n := len(s)
	for n > 0 && (isRuntime(s[n-1]) || s[n-1].Func == "_start") {
		n--
	}
	if n == 0 {
		return s
	}
	return s[:n]
}

// frame is `func file:line:column (module+0xoffset) (BuildId: id) (inlined)` with what is known of it. The build id is for finding out elsewhere what
// the frame is, so it is left out where the source line says that. An inlined frame has the address of the next one: what stands behind
// ThreadSanitizer's format disturbs no reader of it.
func (p *printer) frame(fr *finding.Frame) string {
	name := "<null>"
	if fr.Func != "" {
		name = clean(fr.Func)
	}
	parts := []string{name}
	if place := placeOf(p.src, fr); place != "" {
		parts = append(parts, place)
	}
	if fr.Module != "" {
		parts = append(parts, fmt.Sprintf("(%s+0x%x)", clean(filepath.Base(fr.Module)), fr.Offset))
	} else {
		parts = append(parts, fmt.Sprintf("(0x%x)", fr.PC))
	}
	if fr.BuildID != "" && (fr.File == "" || fr.Line <= 0) {
		parts = append(parts, "(BuildId: "+clean(fr.BuildID)+")")
	}
	if fr.Inlined {
		parts = append(parts, "(inlined)")
	}
	return strings.Join(parts, " ")
}

// placeOf is file:line:column, "" if the file is not known.
func placeOf(src *sources, fr *finding.Frame) string {
	if fr.File == "" {
		return ""
	}
	s := clean(src.display(fr.File))
	if fr.Line > 0 {
		s += fmt.Sprintf(":%d", fr.Line)
		if fr.Column > 0 {
			s += fmt.Sprintf(":%d", fr.Column)
		}
	}
	return s
}

// source shows the lines around the frame of s that tells most; once per place in a finding.
func (p *printer) source(s finding.Stack, noted map[string]bool) {
	if !p.excerpt || len(s) == 0 {
		return
	}
	fr := s[telling(s)]
	if isRuntime(fr) {
		return
	}
	lines, why := p.src.excerpt(fr)
	if why != "" && !noted[why] {
		noted[why] = true
		p.printf("      %s\n", p.paint(dim, "["+clean(why)+"]"))
	}
	key := fmt.Sprintf("%s:%d:%d", fr.File, fr.Line, fr.Column)
	if len(lines) == 0 || noted[key] {
		return
	}
	noted[key] = true
	for _, l := range lines {
		mark := " "
		if l.here {
			mark = p.paint(green, ">")
		}
		p.printf("%s\n", strings.TrimRight(fmt.Sprintf("    %s %s %s", mark, p.paint(dim, fmt.Sprintf("%5d |", l.number)), l.text), " "))
		if l.caret > 0 {
			p.printf("      %s %s%s\n", p.paint(dim, "      |"), strings.Repeat(" ", l.caret-1), p.paint(green, "^"))
		}
	}
}

// summary is the line that scripts look for.
func (p *printer) summary(rec *record) string {
	s := "SUMMARY: ripstop: " + string(rec.f.Rule)
	if place := summaryPlace(p.src, rec); place != "" {
		s += " " + place
	}
	return s
}

// summaryPlace is `file:line in func`, or `(module+0xoffset) in func` without a source line.
func summaryPlace(src *sources, rec *record) string {
	fr := rec.where
	s := ""
	switch {
	case fr.File != "" && fr.Line > 0:
		s = fmt.Sprintf("%s:%d", clean(src.display(fr.File)), fr.Line)
	case fr.Module != "":
		s = fmt.Sprintf("(%s+0x%x)", clean(filepath.Base(fr.Module)), fr.Offset)
	}
	if fr.Func != "" {
		s += " in " + clean(fr.Func)
	}
	return strings.TrimPrefix(s, " ")
}

// textWriter writes each block in one piece, so that output of the program does not come between its lines.
type textWriter struct {
	w       io.Writer
	r       *Reporter
	p       *printer
	ordered int // races that were written although movs order their accesses
	folded  map[*record]bool
}

// mostOrdered is how many of these are written: a flag of a library's that is an atomic without debug information has hundreds, which stand or fall with it.
const mostOrdered = 8

// fold says that a finding is one of those that are no more than counted.
func (t *textWriter) fold(rec *record) bool {
	if !rec.f.Ordered || t.r.opts.Verbose || t.r.opts.GenSuppressions {
		return false
	}
	if t.ordered < mostOrdered {
		t.ordered++
		return false
	}
	if t.folded == nil {
		t.folded = map[*record]bool{}
	}
	t.folded[rec] = true
	return true
}

func (t *textWriter) flush() error {
	_, err := t.w.Write(t.p.b.Bytes())
	t.p.b.Reset()
	return err
}

func (t *textWriter) add(rec *record) error {
	if t.fold(rec) {
		return nil
	}
	t.p.block(rec)
	if t.r.opts.GenSuppressions {
		if line := suggestion(rec); line != "" {
			t.p.printf("# To suppress it, put the next line in a file and name that with --suppressions.\n%s\n", clean(line))
		} else {
			t.p.printf("# Nothing is known of this place that a suppression could name.\n")
		}
	}
	return t.flush()
}

func (t *textWriter) finish(records []*record, res Result, s Summary) error {
	for _, rec := range records {
		if t.folded[rec] {
			continue
		}
		if rec.count > rec.f.Count && rec.count > 1 {
			object := ""
			if rec.rule.Class == finding.ClassRace && len(rec.f.Objects) > 0 { // of several at one place this tells which
				if object = objectName(&rec.f.Objects[0]); object != "" {
					object = " (" + object + ")"
				}
			}
			t.p.printf("ripstop: seen %d times: %s%s\n", rec.count, strings.TrimPrefix(t.p.summary(rec), "SUMMARY: ripstop: "), object)
		}
		t.p.also(rec, t.r.opts.Verbose)
	}
	if n := len(t.folded); n > 0 {
		t.p.printf("ripstop: and %d more %s, not shown (--verbose shows all): other movs order their accesses, so that they are none if what those access is an atomic in the source\n", n, finding.RuleDataRaceMov)
	}
	t.p.ending(t.r, res, s)
	return t.flush()
}

// also lists the other places of a race.
func (p *printer) also(rec *record, all bool) {
	const few = 4
	for i, at := range rec.also {
		if i == few && !all {
			p.printf("ripstop:   and %s of lines (--verbose lists them)\n", count(len(rec.also)-few, "more pair"))
			break
		}
		var names []string
		for _, fr := range at {
			place := placeOf(p.src, &fr)
			if place == "" {
				place = fmt.Sprintf("%s+0x%x", clean(filepath.Base(fr.Module)), fr.Offset)
			}
			names = append(names, place)
		}
		p.printf("ripstop:   also between %s\n", strings.Join(names, " and "))
	}
}

// ending says what the run came to; nothing if there is nothing to say, so that a clean run is silent.
func (p *printer) ending(r *Reporter, res Result, s Summary) {
	if line := tally(res); line != "" {
		p.printf("ripstop: %s\n", line)
	} else if r.opts.Verbose {
		p.printf("ripstop: reported nothing\n")
	}
	used, unused := r.suppressions.counts()
	if len(used) > 0 {
		p.printf("ripstop: suppressions that matched:\n")
		for _, line := range used {
			p.printf("%s\n", clean(line))
		}
	}
	switch {
	case len(unused) == 0:
	case r.opts.Verbose:
		p.printf("ripstop: suppressions that matched nothing:\n")
		for _, line := range unused {
			p.printf("        %s\n", clean(line))
		}
	case res.New > 0 || len(used) > 0:
		p.printf("ripstop: %s matched nothing (--verbose lists them)\n", count(len(unused), "suppression"))
	}
	if r.opts.Verbose {
		for _, line := range r.suppressions.Ignored {
			p.printf("ripstop: %s\n", clean(line))
		}
	}
	for _, line := range s.NotSeen {
		p.printf("ripstop: not seen: %s\n", clean(line))
	}
	if r.opts.Verbose || res.New > 0 {
		for _, line := range s.Unasked {
			p.printf("ripstop: not looked for: %s\n", clean(line))
		}
	}
	width := 0
	for _, st := range s.Stats {
		width = max(width, len(st.Name))
	}
	for _, st := range s.Stats {
		p.printf("ripstop: stats: %-*s  %s\n", width, clean(st.Name), clean(st.Value))
	}
}

func tally(res Result) string {
	var parts []string
	if res.New > 0 {
		parts = append(parts, "reported "+count(res.New, "finding"))
	}
	if res.Suppressed > 0 {
		parts = append(parts, fmt.Sprintf("%d suppressed", res.Suppressed))
	}
	if res.Known > 0 {
		parts = append(parts, fmt.Sprintf("%d known from the baseline", res.Known))
	}
	return strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// pointer stands in for text when every format goes to a file: it says on the terminal where to look.
type pointer struct {
	r    *Reporter
	outs []output
}

func (*pointer) add(*record) error { return nil }

func (pt *pointer) finish(_ []*record, res Result, s Summary) error {
	if res.New == 0 {
		return nil
	}
	var files []string
	for _, o := range pt.outs {
		files = append(files, o.path)
	}
	_, err := fmt.Fprintf(pt.r.opts.Default, "ripstop: %s, see %s\n", tally(res), strings.Join(files, ", "))
	return err
}
