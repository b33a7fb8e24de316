// Package fault shows what happens to a program under ripstop when something goes wrong: system calls of ours fail, the Go side or the
// program is killed, the program does what few programs do. The claim is always the same: the program's output, exit status and
// results are those of a run without us, and nothing false is reported.
//
// Its tests need bin/ripstop (make), or the binary that RIPSTOP_BINARY names. RIPSTOP_SOAK=1 runs the long forms.
package fault
