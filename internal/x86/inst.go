// Package x86 decodes 64-bit x86 instructions and states the facts that instrumenting them needs: which registers and flags an
// instruction reads and writes, which memory it touches and how, where control goes, and where displacement and immediate lie in its
// encoding. It encodes what trampolines need, relocates instructions, redirects their accesses by GS, tells which registers and flags are dead in a
// block, and runs instructions, forwards and backwards, on registers and memory of which only some is known. It knows code bytes only: no process,
// no file, no symbols.
//
// The instruction's shape (prefixes, ModRM, displacement, immediate, hence its length) is parsed here. A table of our own names operation and operands of
// the instructions that most code consists of; golang.org/x/arch's x86asm does of the others, and another table of those that it does not know. The
// facts are one table, an operation a row; the tests hold them against the processor.
//
// Not known, their bytes give ErrInvalid: APX (REX2, extended EVEX), AMX, AVX512-FP16, AMD's XOP but for rotates, shuffles and bit
// manipulation. Taken though processors refuse them: some VEX and EVEX encodings with bits set that the operation reserves, as EVEX.b of those that do
// not round. Not counted among the facts: that floating-point arithmetic reads and writes MXCSR, accesses to the shadow stack's memory, to descriptor
// tables and page tables, and privileged state beyond the one unit SetSys; that enter, which writes only what is among its Mems, faults as well if the
// new end of the stack cannot be written.
package x86

// An ArgKind says what an operand is.
type ArgKind uint8

// Kinds of operands.
const (
	ArgNone ArgKind = iota
	ArgReg          // Reg
	ArgMem          // the instruction's Mems[0]
	ArgImm          // Imm
	ArgRel          // Imm, relative to the end of the instruction
	ArgOne          // the 1 that the opcode of a shift implies
)

// Access says how an operand or memory is used.
type Access uint8

// Accesses. None is an address that is only computed or hinted at.
const (
	None      Access = 0
	Read      Access = 1
	Write     Access = 2
	ReadWrite Access = Read | Write
)

// An Arg is an explicit operand, in Intel order.
type Arg struct {
	Kind   ArgKind
	Reg    Reg
	Access Access
	Imm    int64
}

// MemKind is a set of what is special about a memory access.
type MemKind uint16

// Kinds of memory accesses.
const (
	MemLocked      MemKind = 1 << iota // atomic: a lock prefix, or xchg, which implies it
	MemString                          // one element of a string instruction; under a rep prefix as many as rcx says, from the address on by DF
	MemStack                           // implicit, at rsp or rbp
	MemGather                          // Size is that of an element, Index a vector
	MemScatter                         // likewise
	MemMasked                          // elements or bytes that a mask leaves out are not accessed; compress and expand access as many as it lets through, from the address on
	MemNonTemporal                     // past the caches
	MemBroadcast                       // Size is that of the one element
	MemBit                             // bt and the like with a register: the bit may lie anywhere around the address
	MemState                           // processor state; Size 0 when only the processor knows it
	MemHint                            // prefetch, cache line flush: no data comes or goes
	MemAddress                         // lea and nop: an address and no access
	MemES                              // by ES, whatever the prefixes: the destinations of string instructions and of movdir64b
)

// A Mem is one access to memory. Its address is Seg's base + Base + Index·Scale + Disp (+ Bias), of the registers before the instruction;
// with Base RIP, of the end of the instruction.
type Mem struct {
	Seg, Base, Index Reg
	Scale            uint8
	Bias             int8 // pop [rsp+…] computes its address behind the pop: 8 or 2, else 0
	Access           Access
	Kind             MemKind
	Size             uint16 // bytes
	Disp             int64
}

// RIPRelative says whether the address depends on where the instruction lies.
func (m Mem) RIPRelative() bool { return m.Base == RIP || m.Base == EIP }

// Flow says where control may go besides the next instruction.
type Flow uint8

// Control flow.
const (
	FlowNone         Flow = iota
	FlowJump              // to a relative target
	FlowCond              // jcc: to a relative target or on
	FlowLoop              // loop, loope, loopne, jrcxz, jecxz: likewise, by rcx
	FlowCall              // to a relative target
	FlowRet               //
	FlowIndirectJump      // to a register's or memory's value
	FlowIndirectCall      //
	FlowFar               // far jump, call or return, iret
	FlowSyscall           // syscall, sysenter
	FlowTrap              // int3, int1, int n, ud0, ud1, ud2
	FlowHalt              // hlt
	FlowTransaction       // xbegin: to a relative target when the transaction aborts; xabort and xend
)

// An Inst is one instruction.
type Inst struct {
	Op  string // mnemonic in Intel's spelling, lower case
	Len int

	args  [maxArgs]Arg
	mems  [maxMems]Mem
	nargs uint8
	nmems uint8

	narrow bool // an address-size prefix

	// Registers used as operands or to form addresses, and written. Of those in Kept, which is part of Writes, some of the old value may
	// survive: a write to 8 or 16 bits, to an xmm register by SSE, under a mask or a condition. The others in Writes are overwritten.
	Reads, Writes, Kept RegSet
	// Flags likewise. Those that the manual (Intel SDM vol. 2, 'Flags Affected') calls undefined are written: what comes out, processors decide. Of
	// these, Kept has those that a processor was seen to leave alone.
	FlagsRead, FlagsWritten, FlagsKept, FlagsUndefined Flags

	Flow Flow

	// Prefixes in force.
	Lock, Rep, Repne, NoTrack bool

	// EVEX operands besides Args.
	Mask     Reg // NoReg: none
	Zeroing  bool
	SAE      bool // exceptions suppressed
	Rounding int8 // with SAE, of operations that round: 0 to 3; else -1

	// Offsets in the encoding; lengths are 0 where there is none. An immediate may be two (enter, extrq, insertq), here as one.
	OpcodeOff, ModRMOff int8
	DispOff, DispLen    int8
	ImmOff, ImmLen      int8
	PrefixLen           int8 // legacy prefixes and REX
}

// The most operands (vpermil2ps) and accesses (movs, push of memory) that an instruction has.
const (
	maxArgs = 5
	maxMems = 2
)

// Args gives the explicit operands. They are part of the instruction, not a copy.
func (in *Inst) Args() []Arg { return in.args[:in.nargs] }

// Mems gives the memory touched or addressed; the explicit operand comes first, if there is one. They are part of the instruction, not a copy.
func (in *Inst) Mems() []Mem { return in.mems[:in.nmems] }

func (in *Inst) addArg(a Arg) {
	in.args[in.nargs] = a
	in.nargs++
}

func (in *Inst) addMem(m Mem) {
	in.mems[in.nmems] = m
	in.nmems++
}

// Target gives the address that a relative branch at pc goes to, and whether the instruction is one.
func (in *Inst) Target(pc uint64) (uint64, bool) {
	for _, a := range in.Args() {
		if a.Kind == ArgRel {
			return pc + uint64(in.Len) + uint64(a.Imm), true
		}
	}
	return 0, false
}
