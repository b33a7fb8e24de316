package main

import (
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/count"
	"github.com/ripstop/ripstop/internal/run"
)

// countFlags is what the flags of count say.
type countFlags struct {
	flags
	format, output string
	sel            count.Selection
	top            int
}

func (o *countFlags) options() (count.Options, error) {
	outputs, err := count.ParseOutputs(o.format, o.output)
	if err != nil {
		return count.Options{}, err
	}
	for _, p := range o.sel.Modules {
		if _, err := path.Match(p, ""); err != nil {
			return count.Options{}, fmt.Errorf("--modules: %q: %w", p, err)
		}
	}
	return count.Options{Program: o.program, Version: versionString(), Select: o.sel, Outputs: outputs, Top: o.top, Follow: o.follow,
		WaitFor: run.WaitFor(o.waitFor), Stats: o.stats}, nil
}

func newCount() *cobra.Command {
	o := &countFlags{}
	var options count.Options
	cmd := &cobra.Command{
		Use:     "count [flags] -- program [args…]",
		GroupID: "measure",
		Short:   "Run a program and count its memory instructions",
		Long: `Runs program and counts how often each of its instructions that touch memory began
to execute: loads, stores, atomic and string operations and so on, by function and
source line. The counts are exact, of all threads and of children too; they are
written when the program has ended, however it ends. Its exit status is its own.

Not counted are libc (unless --libc says so), the loader, code that the program
makes as it runs, and stack traffic such as push and call; what else could not be
counted is listed. A string instruction counts once, whatever its length.

gdb shows right stacks of a counted program; where a thread is in code that counts,
frame #0 reads <signal handler called> and #1 is the place in the program. Set
breakpoints with hbreak (break would damage patched code), and tell gdb
'handle SIGTRAP nostop noprint pass', since some instructions are patched by int3.`,
		Example: `  ripstop count -- ./prog arg
  ripstop count --format text,pprof=prof.pb.gz -- ./prog; pprof -top prof.pb.gz
  ripstop count --modules 'libz.so*' --format json -o counts.json -- gzip file`,
		RunE: func(_ *cobra.Command, _ []string) error { return exit(jobs.count(&options)) },
	}
	takesProgram(cmd)
	fs := flagsOf(cmd)
	fs.under("What is counted")
	fs.cmd.Flags().StringSliceVar(&o.sel.Modules, "modules", nil, "only programs and libraries whose name or path fits one of these `PATTERNS`, comma-separated; * stands for anything")
	fs.note("modules")
	fs.boolean(&o.sel.Libc, "libc", "", "the C library's instructions too")
	fs.boolean(&o.sel.Stack, "stack", "", "what push, pop, leave and ret do too")
	fs.under("How it is shown")
	fs.text(&o.format, "format", "", "text", "write `FORMAT[=FILE],...`, each of text, json, pprof")
	fs.complete("format", count.Formats...)
	fs.text(&o.output, "output", "o", "", "`FILE` for the one format that names none; - is standard output (default standard error)")
	fs.number(&o.top, "top", 20, 0, 1<<30, "functions and lines that the text shows; 0 shows all")
	fs.under("The program")
	fs.yesNo(&o.follow, "follow", true, "count in child processes too")
	fs.oneOf(&o.waitFor, "wait-for", string(run.Main), []string{string(run.Main), string(run.All)},
		"whose end ends the run: the program's own, or that of all processes that are counted, such as a daemon's")
	fs.boolean(&o.stats, "stats", "", "at the end, show how instructions were patched and what it cost")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := applyEnvironment(cmd, "format", "output"); err != nil {
			return err
		}
		o.program = args
		options, err = o.options()
		return err
	}
	return cmd
}
