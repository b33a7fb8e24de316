package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/ripstop/ripstop/internal/count"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/sharing"
	"github.com/ripstop/ripstop/internal/tool"
)

// Values of --tool.
const (
	toolFind    = "find"
	toolSharing = "sharing"
)

// uselessForSharing names the flags that were given and mean nothing to --tool=sharing.
func uselessForSharing(given *pflag.FlagSet) (names []string) {
	given.Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"tool", "format", "output", "follow", "wait-for", "stack-depth"}, f.Name) {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// runSharing is run --tool=sharing.
func runSharing(o *flags) (code int, err error) {
	if len(o.report.Formats) > 1 {
		return exitFailed, errors.New("--tool=sharing: give one --format")
	}
	format := ""
	if len(o.report.Formats) == 1 {
		format = o.report.Formats[0]
	}
	outputs, err := count.ParseOutputs(format, o.report.Output)
	if err != nil {
		return exitFailed, err
	}
	if slices.ContainsFunc(outputs, func(x count.Output) bool { return x.Format == "pprof" }) {
		return exitFailed, errors.New("--tool=sharing: it has the formats text and json")
	}
	var files []io.WriteCloser
	for _, x := range outputs {
		var f io.WriteCloser
		switch x.File {
		case "":
			f = os.Stderr
		case "-":
			f = os.Stdout
		default:
			if f, err = os.Create(x.File); err != nil {
				return exitFailed, err
			}
		}
		files = append(files, f)
	}
	p := sharing.New()
	status, notSeen, err := tool.Run(tool.Options{Program: o.program, Follow: o.follow, WaitFor: run.WaitFor(o.waitFor), StackDepth: o.stackDepth}, p)
	if err != nil {
		return run.Code(err), err
	}
	r := sharing.Report{Command: o.program, Version: versionString(), Lines: p.Lines(), NotSeen: notSeen}
	for i, x := range outputs {
		write := r.WriteText
		if x.Format == "json" {
			write = r.WriteJSON
		}
		err = errors.Join(err, write(files[i]))
		if x.File != "" && x.File != "-" {
			err = errors.Join(err, files[i].Close())
		}
	}
	if err != nil {
		return exitFailed, fmt.Errorf("%w (the program ended with %v)", err, status)
	}
	return run.End(status), nil
}
