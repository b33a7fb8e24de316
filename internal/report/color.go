package report

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// style is an SGR sequence.
type style string

const (
	bold    style = "\x1b[1m"
	red     style = "\x1b[1;31m"
	magenta style = "\x1b[1;35m"
	blue    style = "\x1b[1;34m"
	green   style = "\x1b[1;32m"
	dim     style = "\x1b[2m"
	plain   style = "\x1b[0m"
)

// useColor decides by mode, by what w is, and by NO_COLOR (no-color.org: any non-empty value) and TERM.
func useColor(mode string, w io.Writer) (bool, error) {
	switch mode {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "", "auto":
		f, ok := w.(*os.File)
		return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())), nil
	}
	return false, fmt.Errorf("--color: %q is none of auto, always, never", mode)
}
