// Package recover finds the memory accesses that were not sampled. A sample gives all general registers at one moment, the control flow trace every
// instruction that a thread ran; between two samples the instructions are run again on what is known of the registers, forwards from the one sample and
// backwards from the other, until neither adds anything (ProRace, ASPLOS 2017, sections 5.1 and 5.2).
//
// An address that is given is right: what is not certain is not given. It rests on these things alone:
//
//   - The trace and the samples are of one run, and the code is what the recording says; a trace that does not fit its code is an error of package pt.
//   - A sample belongs to an instruction of its address within the time that the packets around it allow (and Options.Slack), and there is only one such
//     instruction that does not contradict what is known otherwise. If several are left it is not used.
//   - The kernel preserves the registers of an interrupted thread unless it runs a signal handler, which the trace shows; a system call changes rax, rcx and r11;
//     fs does not change once a thread uses it.
//   - Memory is remembered only where nobody else can have written: see Memory. All is forgotten at system calls, signals, gaps in the trace and stores to
//     addresses that are not known.
//   - Sections that a module's file says are read-only hold what the file does, for that module's own code.
//
// Everything is a function of a Shard, a piece of one thread's trace that the trace alone determines: shards are recovered in parallel or on other machines,
// in whatever order, with the same result.
package recover
