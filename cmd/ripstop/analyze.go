package main

import (
	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/analyze"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
)

// analyzeFlags is what the flags of analyze say.
type analyzeFlags struct {
	analyze.Options
	movAtomics, memory string
}

// memories are the values of --memory.
var memories = map[string]recover.Memory{"proved": recover.Proved, "assumed": recover.Assumed, "none": recover.None}

func (o *analyzeFlags) options() analyze.Options {
	v := o.Options
	v.MovAtomics, v.Memory = race.MovAtomics(o.movAtomics), memories[o.memory]
	return v
}

func newAnalyze() *cobra.Command {
	o := &analyzeFlags{}
	cmd := &cobra.Command{
		Use:     "analyze [flags] DIR",
		GroupID: "trace",
		Short:   "Find data races in a sampled recording",
		Long: `Looks for data races, and accesses to freed memory, in a trace that was recorded with
--sample, and reports on standard output. The accesses between two samples are
recovered where that is certain, by running the program's instructions again, and
judged together with the trace's locks, threads and allocations. The exit status is
66 when something was found, else 0.

A sample shows a part of all accesses: how much is said at the end, and what was
left out, and no report is no proof. Loads and stores of C11 atomics look like
others in machine code, so with samples every race is of the rule data-race-mov.
A recording of --sample=full has all accesses, and every race between them is
reported.`,
		Example: `  ripstop record --sample=auto -o trace -- ./server
  ripstop record --sample=full -o trace -- ./test
  ripstop analyze trace
  ripstop analyze --format sarif -o races.sarif --suppressions known.supp trace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Dir, o.Report.Default = args[0], cmd.OutOrStdout()
			options := o.options()
			return exit(jobs.analyze(&options))
		},
	}
	takesTrace(cmd)
	fs := flagsOf(cmd)
	fs.under("How it is done")
	fs.number(&o.Jobs, "jobs", 0, 0, 1<<10, "`N` goroutines that recover and judge; 0 is one for each processor; the result is the same")
	fs.movAtomics(&o.movAtomics)
	fs.oneOf(&o.memory, "memory", "proved", []string{"proved", "assumed", "none"},
		"what is believed of memory while instructions are run again: what nobody else can have written, all until a race shows otherwise (which may give false reports), or nothing")
	fs.boolean(&o.Stats, "stats", "", "at the end, show what was recovered, and how")
	fs.reportFlags(&o.Report, &o.ExitCode)
	return cmd
}

// movAtomics is the flag of commands that find races.
func (fs *flagSet) movAtomics(to *string) {
	fs.oneOf(to, "mov-atomics", string(race.DefaultMovAtomics), []string{string(race.Report), string(race.Hide)},
		"races that are none if plain loads and stores are C11 atomics: report them, as data-race-mov, or hide them")
}
