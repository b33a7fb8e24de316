package main

import "github.com/spf13/cobra"

// takesTrace makes cmd a command with one argument, a trace directory.
func takesTrace(cmd *cobra.Command) {
	cmd.Args = oneArg("trace directory")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
}

func newReport() *cobra.Command {
	o := &flags{}
	cmd := &cobra.Command{
		Use:     "report [flags] DIR",
		GroupID: "trace",
		Short:   "Report the findings of a recorded trace",
		Long: `Judges the events of a trace as 'ripstop run' would have, and reports on standard
output. The exit status is 66 when something was found, else 0.`,
		Example: `  ripstop report trace
  ripstop report --format sarif -o report.sarif trace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir, o.report.Default = args[0], cmd.OutOrStdout()
			return exit(jobs.report(o))
		},
	}
	takesTrace(cmd)
	fs := flagsOf(cmd)
	fs.reportFlags(&o.report, &o.exitCode)
	return cmd
}

func newDump() *cobra.Command {
	o := &dumpFlags{}
	cmd := &cobra.Command{
		Use:     "dump [flags] DIR",
		GroupID: "trace",
		Short:   "Show the events of a recorded trace as text",
		Long: `Prints one line for each event, in the order in which they happened. docs/formats.md
of the source says what each means.`,
		Example: `  ripstop dump trace
  ripstop dump --thread 7 --type acquire,release trace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit(jobs.dump(args[0], o, cmd.OutOrStdout()))
		},
	}
	takesTrace(cmd)
	fs := flagsOf(cmd)
	fs.under("What is shown")
	fs.number(&o.process, "process", 0, 0, 1<<31, "only events of the process with this number, as the lines show it; 0 is all")
	fs.number(&o.thread, "thread", 0, 0, 1<<31, "only events of the thread with this number; 0 is all")
	cmd.Flags().StringSliceVar(&o.types, "type", nil, "only events of these `TYPES`, comma-separated")
	fs.note("type")
	return cmd
}
