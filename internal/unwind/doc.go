// Package unwind compiles the call frame information of an ELF image (.eh_frame) into the table of package wire that the agent walks
// stacks with, reads such tables, and walks stacks of other processes from registers and memory with the same rules. Names of
// functions do not belong here (package image), nor does stopping threads (package tracee).
package unwind
