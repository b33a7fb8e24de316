package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Options are what the flags say about reports. New checks all of it, so that a mistake is told before the program is started.
type Options struct {
	Formats []string  // each FORMAT or FORMAT=FILE, FORMAT one of Formats; none: text
	Output  string    // file of the one format that names none; "-" is standard output
	Default io.Writer // where formats without a file go; nil: standard error

	Color           string   // auto, always, never; "" is auto
	NoSource        bool     // leave source excerpts out
	SourceRoot      string   // names of files below it are shown relative to it; "" is the working directory
	SourceMap       []string // FROM=TO: file names that begin with FROM are looked up and shown with TO instead; the first that fits
	Suppressions    []string // files
	GenSuppressions bool     // text: a suppression follows each finding
	Baseline        string   // file written by --format json=FILE: the findings in it are not reported
	Verbose         bool     // text: also list suppressions that matched nothing

	Version string   // ripstop's
	Command []string // the program and its arguments
}

// Formats are the names of formats in the order that help shows them.
var Formats = []string{"text", "json", "sarif", "junit", "github"}

// Summary is what is known when a run has ended. Everything may be empty.
type Summary struct {
	ExitCode   int      // of the program; meaningful if Exited
	Exited     bool     // false: killed by a signal, or there was no program (a report of a trace)
	NotSeen    []string // what could not be watched, a sentence each: children not followed, things the agent could not do
	Unasked    []string // what was not looked for, as nobody asked for it: what, and what would look for it
	Stats      []Stat   // for --stats; printed in this order
	DurationMS int64
}

// Stat is one figure of --stats.
type Stat struct{ Name, Value string }

// Result is what a run's findings came to.
type Result struct {
	New        int // distinct findings reported; > 0 decides the exit status
	Repeats    int // further sightings of those
	Suppressed int // sightings dropped by suppressions
	Known      int // distinct findings that the baseline has
}

// output is one place that findings are written to.
type output struct {
	format string
	path   string // "" is Options.Default
	w      io.Writer
	close  func() error
}

// parseOutputs reads Formats and Output and opens nothing.
func (o *Options) parseOutputs() ([]output, error) {
	var outs []output
	for _, item := range o.Formats {
		for _, one := range strings.Split(item, ",") {
			name, path, hasPath := strings.Cut(one, "=")
			if !known(name) {
				return nil, fmt.Errorf("--format: no format %q; there are %s", name, strings.Join(Formats, ", "))
			}
			if hasPath && path == "" {
				return nil, fmt.Errorf("--format: %q names no file after '='", one)
			}
			outs = append(outs, output{format: name, path: path})
		}
	}
	if len(outs) == 0 {
		outs = []output{{format: "text"}}
	}
	if o.Output != "" {
		var open []int
		for i := range outs {
			if outs[i].path == "" {
				open = append(open, i)
			}
		}
		if len(open) != 1 {
			return nil, fmt.Errorf("--output: %d of the formats have no file of their own, it must be one; write --format FORMAT=FILE,…", len(open))
		}
		outs[open[0]].path = o.Output
	}
	byPath := map[string]string{}
	for _, out := range outs {
		key := filepath.Clean(out.path)
		if out.path == "" || out.path == "-" {
			continue
		}
		if other, twice := byPath[key]; twice {
			return nil, fmt.Errorf("--format: %s and %s would both be written to %s", other, out.format, out.path)
		}
		byPath[key] = out.format
	}
	return outs, nil
}

func known(format string) bool {
	for _, f := range Formats {
		if f == format {
			return true
		}
	}
	return false
}

// open opens the file of out. It happens before the program is started: a path that cannot be written to is told at once.
func (out *output) open(o *Options) error {
	switch out.path {
	case "":
		out.w = o.Default
	case "-":
		out.w = os.Stdout
	default:
		out.path = expandPath(out.path, os.Getpid())
		f, err := os.OpenFile(out.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		if err != nil {
			return fmt.Errorf("cannot write the %s report: %w", out.format, err)
		}
		out.w, out.close = f, f.Close
	}
	return nil
}

// expandPath replaces %p by the process id, so that programs started side by side with the same RIPSTOP_OPTIONS keep apart,
// and %% by %.
func expandPath(path string, pid int) string {
	return strings.NewReplacer("%%", "%", "%p", fmt.Sprint(pid)).Replace(path)
}

// parseSourceMap reads FROM=TO pairs.
func parseSourceMap(items []string) ([][2]string, error) {
	var pairs [][2]string
	for _, item := range items {
		from, to, ok := strings.Cut(item, "=")
		if !ok || from == "" {
			return nil, fmt.Errorf("--source-map: %q is not of the form FROM=TO", item)
		}
		pairs = append(pairs, [2]string{from, to})
	}
	return pairs, nil
}
