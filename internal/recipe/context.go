package recipe

// ContextSize is the size of a Context in memory.
const ContextSize = 24*8 + 0

// A Context is what a function called by a recipe gets the address of. In memory: 24 words of 8 bytes, in this order, at an address divisible by 64. It lies on the program's stack,
// below the red zone, or deeper when calls nest.
type Context struct {
	GPR   [16]uint64 // the program's registers by number, rsp included
	Flags uint64     // RFLAGS
	Site  uint64     // the address of the instruction
	Next  uint64     // the address behind it
	Addr  [2]uint64  // of its accesses, in the order of x86.Inst.Mems; 0 where Compile could not tell (ErrAddress)
	Data  uint64     // Call.Data
	Outer uint64     // what was at fs:Env.Context before: the context of a call that a signal interrupted
	Back  uint64     // not the program's: where the trampoline goes on
}
