package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// githubWriter writes workflow commands, one line a finding, which GitHub's runner turns into annotations. The runner reads
// standard output and standard error alike.
type githubWriter struct {
	w io.Writer
	r *Reporter
}

var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func (g *githubWriter) add(rec *record) error {
	level := "warning"
	if rec.rule.Level == "error" {
		level = "error"
	}
	var props []string
	prop := func(name, value string) { props = append(props, name+"="+githubProperty.Replace(value)) }
	if fr := rec.where; fr.File != "" {
		prop("file", g.file(fr.File))
		if fr.Line > 0 {
			prop("line", fmt.Sprint(fr.Line))
			if fr.Column > 0 {
				prop("col", fmt.Sprint(fr.Column))
			}
		}
	}
	prop("title", "ripstop: "+rec.rule.Title)
	_, err := fmt.Fprintf(g.w, "::%s %s::%s\n", level, strings.Join(props, ","), githubData.Replace(longMessage(rec)))
	return err
}

// file names a file relative to the checkout, as annotations need it, whatever the directory that the step runs in.
func (g *githubWriter) file(name string) string {
	shown, below := g.r.src.relative(name)
	path := shown
	if below {
		path = filepath.Join(g.r.src.root, shown)
	}
	if top := os.Getenv("GITHUB_WORKSPACE"); top != "" && filepath.IsAbs(path) {
		if rel, err := filepath.Rel(top, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return shown
}

func (*githubWriter) finish([]*record, Result, Summary) error { return nil }
