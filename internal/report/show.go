package report

import (
	"os"

	"github.com/ripstop/ripstop/internal/finding"
)

// Show writes to where text goes, under the title, what is laid out like a finding and is none: the threads of a process that was asked
// what it does. It counts for nothing, and other formats have no place for it; without a text report it goes to Options.Default.
func (r *Reporter) Show(title string, f finding.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t *textWriter
	for _, w := range r.writers {
		if tw, ok := w.(*textWriter); ok {
			t = tw
			break
		}
	}
	if t == nil {
		w := r.opts.Default
		if w == nil {
			w = os.Stderr
		}
		color, err := useColor(r.opts.Color, w)
		r.fail(err)
		t = &textWriter{w: w, r: r, p: newPrinter(r.src, color, false)}
	}
	t.p.printf("%s\n%s\n\n", rulerLine, t.p.paint(bold, clean(title)))
	t.p.body(&f)
	t.p.printf("%s\n", rulerLine)
	r.fail(t.flush())
}
