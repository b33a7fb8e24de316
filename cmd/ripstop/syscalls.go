package main

import (
	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/calls"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/syscalls"
)

func newSyscalls() *cobra.Command {
	o := &flags{}
	var c calls.Options
	var order, detail string
	cmd := &cobra.Command{
		Use:     "syscalls [flags] -- program [args…]",
		GroupID: "measure",
		Short:   "Run a program and count its system calls, their errors and time",
		Long: `Runs program and counts its system calls, of all threads and of children too, as
strace -c does but without stopping the program: a call costs tens of nanoseconds
more. The table is written when the program has ended, however it ends. Its exit
status is its own.

Counted are the calls that libc and the loader make after the program has been
loaded, also those that fail, and calls of the vdso's functions, which seldom enter
the kernel (without time). The time is what passed from call to return, waiting
included. Not counted are the calls by which the program is loaded, what does not
come back (exit, rt_sigreturn), calls by instructions of the program's own, as
those of the Go runtime, and statically linked programs. Calls of a child made by
vfork, posix_spawn or system count as its parent's until it executes a program.`,
		Example: `  ripstop syscalls -- ls -l
  ripstop syscalls --by thread --sort calls -- ./server
  ripstop syscalls --format json -o calls.json -- make`,
		RunE: func(_ *cobra.Command, args []string) error {
			c.Program, c.Version, c.Order, c.Detail = args, versionString(), syscalls.Order(order), syscalls.Detail(detail)
			c.Follow, c.WaitFor, c.Stats = o.follow, run.WaitFor(o.waitFor), o.stats
			return exit(jobs.syscalls(&c))
		},
	}
	takesProgram(cmd)
	fs := flagsOf(cmd)
	fs.under("How it is shown")
	fs.oneOf(&c.Format, "format", "text", calls.Formats, "a table, or what docs/formats.md describes")
	fs.text(&c.Output, "output", "o", "", "`FILE` to write; - is standard output (default standard error)")
	fs.oneOf(&order, "sort", string(syscalls.ByTime), syscalls.Orders, "what comes first: most time, calls, errors; or by name")
	fs.oneOf(&detail, "by", string(syscalls.Total), syscalls.Details, "one table of all, one for each process, or one for each thread too; JSON has all of them")
	fs.under("The program")
	fs.yesNo(&o.follow, "follow", true, "count in child processes too")
	fs.oneOf(&o.waitFor, "wait-for", string(run.Main), []string{string(run.Main), string(run.All)},
		"whose end ends the run: the program's own, or that of all processes that are counted, such as a daemon's")
	fs.boolean(&o.stats, "stats", "", "at the end, show which instructions were patched, which not and why, and what it cost")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return applyEnvironment(cmd, "format", "output") }
	return cmd
}
