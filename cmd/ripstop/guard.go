package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ripstop/ripstop/internal/run"
)

func newGuard() *cobra.Command {
	o := &flags{}
	cmd := &cobra.Command{
		Use:     "guard [flags] -- program [args…]",
		GroupID: "find",
		Short:   "Run a program always on guard: who caused its crashes and overwritten heap blocks",
		Long: `Runs program at nearly its own speed and, when something breaks, says why: the last
moments are recorded (the order of locks, results of system calls, memory as it was),
and are executed again, in place, under watch. All that is said of a crash or of an
overwritten block comes from there; then the program goes on, or dies, as it would have.

A crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) that the program does not handle is
reported with its stack, and with who wrote the pointer, index, divisor or return address
that was used, those that wrote what that had copied, and the heap blocks that it was
read from, with who freed them. Of an abort the report has what the C library said (a
failed assertion, a smashed stack), or the type and what() of the C++ exception for
which std::terminate was called, if libstdc++ is a shared library, and who wrote what
the last condition before it looked at.

The program has ripstop's heap in place of the C library's, in which known bytes lie
behind each block, and freed blocks are kept back for a while, filled with known bytes.
They are looked at when a block is freed or reallocated, when it is to be used again,
and when the process ends or executes another program. What was overwritten is reported
with the instruction that wrote, the block, where it was allocated and freed, and when
it was noticed. With --guard-bytes 0 --quarantine 0 blocks are not looked at, and cost
what they cost under 'ripstop run'; all else stays.

--epochs is how far back the recording goes at most; 0 records nothing: the report then
says no more of a crash than where it was, and of a block than that it was overwritten.
Not every program can be executed again, and an epoch is over when it does what cannot
be undone, after which another begins: what was written before the last one began is not
known. --stats shows how many epochs there were. Under a limit on memory (ulimit -v, -d)
nothing is recorded: it would take from the program what the limit leaves it. A forked
child is recorded from when it makes a thread, or from a system call when it is a fifth
of a second old, but not one that shares memory with other processes. Of forked children,
and of all that cannot be recorded, locks and threads are not judged. Each program that
is executed starts some 15 ms later; with --epochs-from=thread 1 ms, but for those that
have threads: for suites of thousands of short programs, and for shells.

While epochs are recorded a deadlock is reported when it has lasted for a second or two:
of mutexes, rwlocks that are held for writing, joins, initialisers, and of a process all
of whose threads wait. Who has a lock is said, and not where it was taken. Of misuse
what an object's own words prove is reported: of a mutex unlocks, waits and destroys by
who does not hold it, use after it was destroyed, and full counts; unlocks of a rwlock
that is free or another's to write; joins and detaches; impossible counts. What needs a
list of the locks that are held is left to 'ripstop run', and to --epochs 0: lock-order
inversions above all, locks that are robust or have a protocol, spin locks.
With --races=on the last moments are executed once more, with every memory access looked
at as by 'ripstop run --full': the report then also has the data races of those moments,
and accesses to freed blocks, reads too (marked reproduced). All threads wait meanwhile,
for seconds.

Not seen: writes that jump over the bytes that are looked at (256 behind a block, the
first 128 of a freed one), writes in front of the first block of a group, reads,
blocks of a program's own allocator; without epochs, stacks that overflow.

What 'ripstop run' reports of the heap is reported too: invalid and double frees; with
--epochs 0 all that it reports. The program's input, output, signals and exit status are
as without ripstop; when something was found the exit status is 66.`,
		Example: `  ripstop guard -- ./server -p 8080
  ripstop guard --guard-bytes 64 --quarantine 16M -- ./unit-test
  ripstop guard --races on -- ./unit-test
  ripstop guard --guard-bytes 0 --quarantine 0 -- ./server`,
		RunE: func(_ *cobra.Command, args []string) error {
			if o.epochRaces == "on" && o.epochs == 0 {
				return errors.New("--races=on looks at epochs that are executed again, and none are recorded with --epochs 0")
			}
			if o.guardBytes == 0 && o.quarantine != 0 {
				return errors.New("--guard-bytes 0 looks at no block, and freed ones are kept back to be looked at: give --quarantine 0, too")
			}
			o.program, o.report.Command = args, args
			return exit(jobs.guard(o))
		},
	}
	takesProgram(cmd)
	fs := flagsOf(cmd)
	fs.under("The heap")
	fs.number(&o.guardBytes, "guard-bytes", run.DefaultGuardBytes, 0, run.MaxGuardBytes, "`N` bytes, at least, behind each block that nobody may write; 0, with a quarantine of 0: blocks are not looked at")
	fs.size(&o.quarantine, "quarantine", run.DefaultQuarantine, run.MaxQuarantine, "keep back freed blocks of `SIZE` in all for each thread, before they are used again: 512K, 16M; 0 keeps none")
	fs.long(&o.epochs, "epochs", run.DefaultEpoch, "record epochs of at most `LONG` (1s, 10s), so that the last one can be executed again to find who wrote; 0 records none")
	fs.oneOf(&o.epochsFrom, "epochs-from", fromStart, []string{fromStart, fromThread},
		"since when a process is recorded: from its start; or from its second thread on, so that programs without threads run as with --epochs 0: each that a shell executes starts 1 ms later, and not 15. Of what crashes before, nobody is named; nor are processes recorded whose other threads are timers' or aio's")
	fs.oneOf(&o.epochRaces, "races", "off", []string{"off", "on"}, "what is executed again is so once more with every memory access looked at, for data races and reads of freed blocks")
	fs.oneOf(&o.queues, "queues", "off", []string{"off", "on"}, "what threads do to queues without a lock is recorded in its order")
	cmd.Flags().MarkHidden("queues") // it costs too much in large programs: docs/decisions.md, 65
	fs.targetFlags(o)
	fs.deadlockFlags(o)
	fs.reportFlags(&o.report, &o.exitCode)
	return cmd
}
