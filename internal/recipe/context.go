package recipe

import "github.com/ripstop/ripstop/internal/x86"

// A Context is what a function called by a recipe gets the address of. In memory: ContextSize bytes at an address divisible by 64, words of 8 bytes in this
// order. It lies on the program's stack below the red zone, with the function's own frames below it.
type Context struct {
	GPR   [16]uint64 // the program's registers by number, rsp included
	Flags uint64     // RFLAGS
	Site  uint64     // the address of the instruction
	Next  uint64     // the address behind it
	Addr  [2]uint64  // of its accesses, in the order of x86.Inst.Mems; 0 where there is none, or it is none that a register holds (ErrAddress)
	Data  uint64     // Call.Data
	Outer uint64     // what was at fs:Env.Context before: 0, or the context of a call that a signal interrupted
	Info  uint64     // of the accesses: 32 bits each, the first the lower ones (accessInfo)
}

// ContextSize is the size of a Context.
const ContextSize = 24 * 8

// Where the words lie.
const (
	ctxFlags = 8 * (16 + iota)
	ctxSite
	ctxNext
	ctxAddr
	_
	ctxData
	ctxOuter
	ctxInfo
)

// accessInfo says of an access: bits 0 to 15 its size (of one element, if it is a string's or a vector of addresses), 16 and 17 x86.Access, 18 to 31
// x86.MemKind.
func accessInfo(m *x86.Mem) uint64 { return uint64(m.Size) | uint64(m.Access)<<16 | uint64(m.Kind)<<18 }
