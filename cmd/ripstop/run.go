package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/record"
	"github.com/ripstop/ripstop/internal/run"
)

// Values of --races.
const (
	racesAsked  = "asked" // as --full says
	racesShared = "shared"
)

// Values of --full-from and --epochs-from.
const fromStart, fromThread = "start", "thread"

var onDeadlock = []string{"exit", "continue", "abort"}

// takesProgram makes cmd a command whose flags end at the program's name.
func takesProgram(cmd *cobra.Command) {
	cmd.Flags().SetInterspersed(false)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "" {
			return fmt.Errorf("no program to run; usage: %s", cmd.UseLine())
		}
		return nil
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
}

// targetFlags are the flags of every command that starts a program.
func (fs *flagSet) targetFlags(o *flags) {
	fs.under("The program")
	fs.yesNo(&o.follow, "follow", true, "watch child processes too")
	fs.oneOf(&o.waitFor, "wait-for", string(run.Main), []string{string(run.Main), string(run.All)},
		"whose end ends the run: the program's own, or that of all processes that are watched, such as a daemon's")
	fs.number(&o.stackDepth, "stack-depth", 24, 0, 256, "frames kept of each stack; 0 takes none, which is cheapest")
	fs.boolean(&o.stats, "stats", "", "at the end, show what watching cost: memory, events, stacks, waits")
}

// deadlockFlags are those of what happens while a program runs.
func (fs *flagSet) deadlockFlags(o *flags) {
	fs.oneOf(&o.onDeadlock, "on-deadlock", "exit", onDeadlock, "when every thread is stuck: end the program, leave it, or abort it for a core dump")
	fs.long(&o.hangTimeout, "hang-timeout", 0, "when nothing has happened for so `LONG` (30s, 5m), show all threads; 0 never does")
	fs.boolean(&o.haltOnFirst, "halt-on-first", "", "end the program when something is reported that is neither suppressed nor known; races that rest on mov alone are mostly told at the end")
}

func newRun() *cobra.Command {
	o := &flags{}
	cmd := &cobra.Command{
		Use:     "run [flags] -- program [args…]",
		GroupID: "find",
		Short:   "Run a program and report deadlocks, lock-order inversions and misuse",
		Long: `Runs program under ripstop's agent and reports what it finds, on standard error
unless told otherwise. The program's input, output, signals and exit status are
as without ripstop; when something was found the exit status is 66.

With --full, code is changed when it is first run. A debugger that attaches to such
a program meanwhile would stop there: tell gdb 'handle SIGTRAP nostop noprint pass',
and set breakpoints with hbreak.

Flags end at the program's name; -- before it is good style and needed only when
its name begins with a dash. Flags may also stand in RIPSTOP_OPTIONS (see
'ripstop help options').`,
		Example: `  ripstop run -- ./server -p 8080
  ripstop run --format text,sarif=report.sarif -- make test
  ripstop run --suppressions known.supp --on-deadlock=abort -- ./server
  ripstop run --full -- ./unit-test
  ripstop run --tool=sharing -- ./benchmark`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.program, o.report.Command = args, args
			if o.tool != toolFind && (o.full || o.races != racesAsked || o.heap != string(run.LibcHeap)) {
				return errors.New("--tool=sharing does not look for races, and has libc's heap: give it without --full and --heap")
			}
			if useless := uselessForSharing(cmd.Flags()); o.tool == toolSharing && len(useless) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "ripstop: --tool=sharing has no use for %s\n", strings.Join(useless, ", "))
			}
			if o.races == racesShared && o.heap == string(run.OwnHeap) {
				return errors.New("--races=shared watches blocks of its own: give it without --heap=own")
			}
			return exit(jobs.run(o))
		},
	}
	takesProgram(cmd)
	fs := flagsOf(cmd)
	fs.targetFlags(o)
	fs.deadlockFlags(o)
	fs.oneOf(&o.heap, "heap", string(run.LibcHeap), []string{string(run.LibcHeap), string(run.OwnHeap)},
		"whose malloc the program has: libc's, or ripstop's own in its place, which is not needed for anything yet")
	fs.oneOf(&o.tool, "tool", toolFind, []string{toolFind, toolSharing},
		"what the program is watched for: find what is wrong; or sharing, the cache lines that threads take from each other, falsely or truly, by fields and instructions, all accesses counted (as slow as --full; --format text or json, and the exit status is the program's)")
	fs.under("Data races")
	fs.boolean(&o.full, "full", "", "look for data races too, by checking every memory access of the program and its libraries: 15 to 200 times slower")
	fs.oneOf(&o.fullFrom, "full-from", fromStart, []string{fromStart, fromThread},
		"since when --full checks a process: from its start; or from its second thread on, so that shells, compilers and other programs without threads run nearly as fast as without --full. No race is lost by that, but what the only thread does to memory that is freed is not seen, nor that a location is an atomic by what it does; and a process whose other threads are timers' or aio's is not checked")
	fs.oneOf(&o.races, "races", racesAsked, []string{racesAsked, racesShared}, "which accesses --full checks: all, or those to memory that threads share")
	cmd.Flags().MarkHidden("races") // not whole yet: docs/decisions.md, 36
	fs.movAtomics(&o.movAtomics)
	fs.number(&o.memoryLimit, "memory-limit", 1088, 16, 1088, "MiB that --full takes at most for what was accessed in a process; beyond it what is oldest is forgotten, and with it races")
	fs.reportFlags(&o.report, &o.exitCode)
	return cmd
}

// samplingFlags are those of samples of memory accesses.
func (fs *flagSet) samplingFlags(o *flags) {
	fs.under("Samples of memory accesses")
	fs.oneOf(&o.sample, "sample", "", []string{"auto", "pmu", "timer", "step", "full"},
		"sample by the processor (pmu: PEBS and Intel PT), by a clock and breakpoints (timer), the better of these (auto), step every instruction (step: very slow, and exact), or have each instruction tell what memory it accesses (full: slow, and nothing but libc is left out)")
	fs.number(&o.period, "period", record.DefaultPeriod, 1, 1<<31, "of pmu and step: `N` loads and N stores of a thread from one sample to the next")
	cmd := fs.cmd
	cmd.Flags().StringSliceVar(&o.filter, "filter", nil, "trace control flow only in these `FILES`, base names, comma-separated; main is the program's own (default), all is everywhere")
	fs.note("filter")
	o.budget = 0.02
	cmd.Flags().Var((*share)(&o.budget), "budget", "of timer: the share of the program's CPU time that sampling may take; 0% is no limit")
	fs.note("budget")
	fs.number(&o.steps, "steps", 0, 0, 1<<40, "of step: let the program go after `N` instructions; 0 steps all")
}

func newRecord() *cobra.Command {
	o := &flags{}
	cmd := &cobra.Command{
		Use:     "record [flags] -o DIR -- program [args…]",
		GroupID: "trace",
		Short:   "Run a program and keep all its events in a trace",
		Long: `Runs program and writes every event of its threads to a trace, a directory that
'ripstop report' judges and 'ripstop dump' shows, here or elsewhere. Nothing is
reported now, and the exit status is the program's.

With --sample the trace also gets samples of the program's memory accesses, in a
perf.data file that perf reads: what races are recovered from; with --sample=full
all accesses, as events of the trace, told by the program's own code. With --pid it is
samples alone, of a process that runs already, until it ends or you interrupt
ripstop; the process is left as it was.`,
		Example: `  ripstop record -o trace -- ./server
  ripstop report trace
  ripstop record --sample=auto -o trace -- ./server
  ripstop record --sample=auto --pid 1234 -o trace`,
		RunE: func(_ *cobra.Command, args []string) error {
			if o.dir == "" {
				return errors.New("no directory for the trace: give one with -o DIR")
			}
			o.program = args
			return exit(jobs.record(o))
		},
	}
	takesProgram(cmd)
	needsProgram := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.pid == 0:
			return needsProgram(cmd, args)
		case len(args) > 0:
			return errors.New("give a program or --pid, not both")
		}
		return nil
	}
	fs := flagsOf(cmd)
	fs.under("The trace")
	fs.text(&o.dir, "dir", "o", "", "`DIR` to write; it must not exist or be an older trace")
	fs.targetFlags(o)
	fs.samplingFlags(o)
	fs.number(&o.pid, "pid", 0, 0, 1<<22, "sample process `N`, which runs already, in place of a program")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return applyEnvironment(cmd) }
	return cmd
}
