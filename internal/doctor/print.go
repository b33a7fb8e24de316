package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

var groupTitles = []struct{ id, title string }{
	{"system", "System"}, {"cpu", "Processor"}, {"perf", "Measuring and debugging hardware"}, {"memory", "Memory tracking"},
}

// Text writes the report for people. paint colours a status; nil leaves it plain.
func (r *Report) Text(w io.Writer, paint func(Status, string) string) error {
	if paint == nil {
		paint = func(_ Status, s string) string { return s }
	}
	width := 0
	for _, f := range r.Facts {
		width = max(width, len(f.Title))
	}
	for _, f := range r.Features {
		width = max(width, len(f.Title))
	}
	var b strings.Builder
	line := func(title string, a Answer) {
		word := a.Status.String()
		b.WriteString(fmt.Sprintf("  %-*s  %s", width, title, paint(a.Status, word)))
		switch {
		case a.Why != "" && a.Status == Unknown:
			b.WriteString(" because " + a.Why)
		case a.Why != "":
			b.WriteString(", because " + a.Why)
		case a.Value != "":
			b.WriteString(": " + a.Value)
		}
		b.WriteByte('\n')
	}
	for _, g := range groupTitles {
		heading := g.title + "\n"
		for _, f := range r.Facts {
			if f.Group == g.id {
				b.WriteString(heading)
				heading = ""
				line(f.Title, f.Answer)
			}
		}
		if heading == "" {
			b.WriteByte('\n')
		}
	}
	for _, later := range []bool{false, true} {
		if later {
			fmt.Fprintf(&b, "\nWhat this machine will be able to do in later versions\n")
		} else {
			fmt.Fprintf(&b, "What ripstop can do here\n")
		}
		for _, f := range r.Features {
			if f.Later == later {
				line(f.Title, f.Answer)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
