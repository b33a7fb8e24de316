// Package step is a PMU made of software, for machines without one and for the truth: it steps every thread of a program by ptrace, instruction by
// instruction, and writes what a processor with PEBS and Intel PT would have told: samples of memory accesses at a period, with the registers behind the
// access, and the control flow as packets. Beside them it writes the truth: every instruction and every access, in order.
//
// One thread at a time runs in user mode, for a random number of instructions, so that the order of accesses is known. System calls go on meanwhile, so
// that threads may wait for each other; what the kernel reads and writes is not told. An instruction that waits for another thread without being a system
// call (a page that a handler of userfaultfd fills) therefore never ends.
//
// Times are the real TSC's, read before each instruction: the program, and the agent in it, read the same counter. So a stepped program is as slow as
// stepping makes it, some ten thousand times slower than natively, and its time packets are rarer than a processor's to match.
//
// What a stepped program can notice: the time, and that transactions (xbegin) always abort. Not the trap flag: what pushf and syscall show of it is taken
// away. If ripstop is killed by SIGKILL, so is the program, by the SIGTRAP of the step under way, which the kernel then delivers.
package step
