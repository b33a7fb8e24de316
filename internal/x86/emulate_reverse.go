package x86

// Reverse makes of what is known after the instruction, which lies at pc, what was known before it: only what is certain. e.Mem is what is known of
// memory, likewise. Accesses then are the instruction's, by the registers as they were before it.
func (e *Emulator) Reverse(op *Op, pc uint64) {
	e.pc = pc
	e.Accesses = e.Accesses[:0]
	e.forgetRegisters(op)
	if op.nmems != 0 {
		e.locate(op)
		e.report(op)
	}
}
