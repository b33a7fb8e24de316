package x86

import "math/bits"

// A Value is a number of up to 64 bits of which only some may be known. Bits that are not known are 0 in Bits.
type Value struct {
	Bits  uint64
	Known uint64 // a mask
}

// Exactly gives a value of which all is known.
func Exactly(v uint64) Value { return Value{v, ^uint64(0)} }

// Whole says whether all 64 bits are known.
func (v Value) Whole() bool { return v.Known == ^uint64(0) }

// A Vector is a zmm register, of which xmm and ymm are the lower bytes, as little-endian words. Bytes that are not known are 0.
type Vector struct {
	Q     [8]uint64
	Known uint64 // a bit a byte
}

// A State is what is known of a thread's registers at one moment. Nothing is known in the zero State.
//
// x87, MMX and mask registers are not part of it: what an instruction takes from there is unknown.
type State struct {
	GPR        [16]Value
	Flags      Flags // 0 where not known
	FlagsKnown Flags // of FlagsArith and DF
	FS, GS     Value // segment bases
	Vec        [32]Vector
}

// Learn adds what the other state knows of the same moment. It returns false, and the states together mean nothing, if they contradict each other.
func (s *State) Learn(o *State) bool {
	agree := true
	learn := func(v *Value, w Value) {
		agree = agree && (v.Bits^w.Bits)&v.Known&w.Known == 0
		v.Bits |= w.Bits
		v.Known |= w.Known
	}
	for i := range s.GPR {
		learn(&s.GPR[i], o.GPR[i])
	}
	learn(&s.FS, o.FS)
	learn(&s.GS, o.GS)
	agree = agree && (s.Flags^o.Flags)&s.FlagsKnown&o.FlagsKnown == 0
	s.Flags |= o.Flags
	s.FlagsKnown |= o.FlagsKnown
	for i := range s.Vec {
		a, b := &s.Vec[i], &o.Vec[i]
		if b.Known == 0 {
			continue
		}
		for j := range a.Q {
			both := byteMasks[uint8(a.Known>>(8*j))] & byteMasks[uint8(b.Known>>(8*j))]
			agree = agree && (a.Q[j]^b.Q[j])&both == 0
			a.Q[j] |= b.Q[j]
		}
		a.Known |= b.Known
	}
	return agree
}

// byteMasks turns a mask of bytes into one of bits.
var byteMasks = func() (t [256]uint64) {
	for i := range t {
		for b := range 8 {
			if i>>b&1 != 0 {
				t[i] |= 0xff << (8 * b)
			}
		}
	}
	return t
}()

// Memory is memory of which only some may be known. Addresses wrap around at 2^64. SparseMemory is one.
type Memory interface {
	// Load gives the size bytes (1 to 8) at the address as a little-endian number. Bits of other bytes are 0 and not known.
	Load(addr uint64, size int) Value
	// Store notes that the size bytes (1 to 8) at the address now hold the lower bytes of the value, or are unknown where that is. A memory may round down what is known.
	Store(addr uint64, size int, v Value)
	// Forget notes that size bytes from the address on may have changed.
	Forget(addr, size uint64)
	// ForgetAll notes that all that can be written may have changed: after a store to an unknown address, or in the kernel.
	ForgetAll()
}

// A MemAccess is an access to memory that an instruction made, or, at an address that is not known, made somewhere.
type MemAccess struct {
	Addr   uint64 // 0 if not known; of the first element
	Known  bool   // the address is known
	Down   bool   // the elements follow each other downwards (DF)
	Access Access
	Kind   MemKind // with MemMasked only some of the bytes may have been touched
	Size   uint16  // bytes, as in Mem; 0 when only the processor knows
	// Elements of Size, one after the other; 1 but for string instructions under a rep prefix, gathers and scatters. 0: not known, maybe none. Of
	// scasb and the like those that were looked at.
	Count uint64
}

// An Emulator runs instructions on what is known of a thread. One belongs to one goroutine.
//
// What it says is known after an instruction is what the processor gives from any state that agrees with what was known before, if the instruction
// completes and no other thread or signal handler changed the memory in between. Flags that the manual leaves undefined are never known. Where control
// does not go from one instruction to the next as they say (a signal, the abort of a transaction), the caller sets State and Mem to what is known there.
type Emulator struct {
	State
	Mem Memory // must be set

	// Accesses are those of the last Exec or Reverse, in the order in which the processor makes them; reused by the next one. An instruction that reads
	// and writes the same place is one access. Prefetches and the like are not among them.
	Accesses []MemAccess

	pc, next  uint64
	nextKnown bool
	addrs     [maxMems]uint64
	known     [maxMems]bool
}

// Exec runs the instruction, which lies at pc, and gives the address of the next one; known is false if registers, flags or memory that decide it are not. Of what
// depends on unknown things nothing is known afterwards.
//
// A string instruction under a rep prefix runs all its rounds. A system call makes what the kernel may change unknown, and so does rt_sigreturn with all. An instruction
// without semantics here makes unknown what its facts say it writes.
func (e *Emulator) Exec(op *Op, pc uint64) (next uint64, known bool) {
	e.pc, e.next, e.nextKnown = pc, pc+uint64(op.length), true
	e.Accesses = e.Accesses[:0]
	if op.nmems != 0 {
		e.locate(op)
		e.report(op)
	}
	op.run(e, op)
	return e.next, e.nextKnown
}

// An Op is an instruction made ready for an Emulator. It does not depend on where the instruction lies and is not changed by running it: it may be kept and shared.
type Op struct {
	run, undo func(*Emulator, *Op)

	imm     uint64
	args    [4]operand
	mems    [maxMems]memRef
	nargs   uint8
	nmems   uint8
	order   [maxMems]uint8 // of accesses, as indexes of mems
	ordered uint8          // how many
	length  uint8
	size    uint8 // of the operation, in bytes
	cond    uint8 // of selectors
	flow    Flow
	same    bool // both operands are one register
	rep     uint8
	exact   bool  // there are semantics
	vex     bool  // zeroes the rest of the vector registers that it writes
	unit    uint8 // bytes of a vector's element

	writesArg bool // an operand that is a general register or part of one

	target       uint64 // relative to pc
	writes       RegSet // without the GPRs that are operands
	flagsWritten Flags
}

// Values of Op.rep.
const (
	noRep = iota
	repeat
	repeatNot
)

// An operand is a general register or part of one, a vector register, memory (the first of mems) or an immediate.
type operand struct {
	kind  operandKind
	reg   uint8 // number
	shift uint8 // 8: ah and the like
	size  uint8 // bytes
	acc   Access
	mask  uint64 // of its size
}

type operandKind uint8

const (
	inGPR operandKind = iota + 1
	inVec
	inMem
	immediateOperand
	elsewhere // a register that State does not have
)

// A memRef is a Mem made ready.
type memRef struct {
	base, index  uint8 // general register, or one of those below
	shift        uint8 // of the index
	segment      uint8
	narrow       bool
	access       Access
	kind         MemKind
	size         uint16
	disp         uint64
	mask, inMask uint64 // of base and index: the part of the register that counts
}

// Values of memRef's base, index and segment.
const (
	noBase     = 16
	ipBase     = 17 // the end of the instruction is part of disp
	indexes    = 18 // a vector
	fsSegment  = 1
	gsSegment  = 2
	numGPR     = 16
	bitOffset  = MemBit
	everywhere = MemGather | MemScatter
)

// Exact says whether there are semantics for the instruction; if not, Exec makes unknown what it writes.
func (op *Op) Exact() bool { return op.exact }

// Flow says where control may go besides the next instruction.
func (op *Op) Flow() Flow { return op.flow }

// Len gives the instruction's length in bytes.
func (op *Op) Len() int { return int(op.length) }

// widthMask gives the mask of a number of so many bytes, 1 to 8.
func widthMask(size uint8) uint64 { return ^uint64(0) >> (64 - 8*uint(size)) }

// locate computes the addresses of the accesses from the registers as they are.
func (e *Emulator) locate(op *Op) {
	for i := range op.nmems {
		e.addrs[i], e.known[i] = e.address(op, &op.mems[i])
	}
}

func (e *Emulator) address(op *Op, m *memRef) (uint64, bool) {
	a := m.disp
	if m.base < numGPR {
		v := &e.GPR[m.base]
		if v.Known&m.mask != m.mask {
			return 0, false
		}
		a += v.Bits & m.mask
	} else if m.base == ipBase {
		a += e.pc
	}
	if m.index < numGPR {
		v := &e.GPR[m.index]
		if v.Known&m.inMask != m.inMask {
			return 0, false
		}
		a += v.Bits & m.inMask << m.shift
	} else if m.index == indexes {
		return 0, false
	}
	if m.kind&bitOffset != 0 {
		v := e.read(op, &op.args[1])
		mask := widthMask(op.size)
		if v.Known != mask {
			return 0, false
		}
		bit := int64(v.Bits<<(64-8*op.size)) >> (64 - 8*op.size)
		a += uint64(bit>>3) &^ uint64(op.size-1) // the unit that the bit lies in, from the address on
	}
	if m.narrow {
		a = uint64(uint32(a))
	}
	if m.segment != 0 {
		base := &e.FS
		if m.segment == gsSegment {
			base = &e.GS
		}
		if !base.Whole() {
			return 0, false
		}
		a += base.Bits
	}
	return a, true
}

// report lists the accesses.
func (e *Emulator) report(op *Op) {
	n := int(op.ordered)
	if n > cap(e.Accesses) {
		e.Accesses = make([]MemAccess, maxMems)
	}
	e.Accesses = e.Accesses[:n]
	for k := range e.Accesses {
		i := op.order[k]
		m, a := &op.mems[i], &e.Accesses[k]
		a.Addr, a.Known, a.Down, a.Access, a.Kind, a.Size, a.Count = e.addrs[i], e.known[i], false, m.access, m.kind, m.size, 1
		if m.kind&everywhere != 0 || m.kind&MemString != 0 && op.rep != noRep {
			a.Count = 0
		}
	}
}

// clobber makes unknown what the facts say that the instruction writes.
func (e *Emulator) clobber(op *Op) {
	e.forgetRegisters(op)
	e.forgetMemory(op)
	switch op.flow {
	case FlowNone:
	case FlowSyscall:
		e.Mem.ForgetAll()
	case FlowJump, FlowCall:
		e.next = e.pc + op.target
	default:
		e.next, e.nextKnown = 0, false
		if op.flow == FlowFar || op.flow == FlowTrap {
			e.State = State{}
			e.Mem.ForgetAll()
		}
	}
}

// largestState is more than any processor's XSAVE area has, 11,008 bytes with AMX (CPUID leaf 0xd). The run-time linker saves one when it binds a function.
const largestState = 1 << 14

// forgetMemory makes unknown the memory that the facts say is written.
func (e *Emulator) forgetMemory(op *Op) {
	for i := range op.nmems {
		m := &op.mems[i]
		if m.access&Write == 0 {
			continue
		}
		switch {
		case !e.known[i] || m.kind&everywhere != 0 || m.kind&MemString != 0 && op.rep != noRep:
			e.Mem.ForgetAll()
		case m.size == 0:
			e.Mem.Forget(e.addrs[i], largestState)
		default:
			e.Mem.Forget(e.addrs[i], uint64(m.size))
		}
	}
}

// forgetRegisters is clobber of registers and flags alone.
func (e *Emulator) forgetRegisters(op *Op) {
	w := op.writes
	if w&SetGPR != 0 {
		for g := uint16(w & SetGPR); g != 0; g &= g - 1 {
			e.GPR[bits.TrailingZeros16(g)&15] = Value{}
		}
	}
	if w&SetVec != 0 {
		for i := range e.Vec {
			if w>>(16+i)&1 != 0 {
				e.Vec[i] = Vector{}
			}
		}
	}
	if w&SetSeg != 0 {
		e.FS, e.GS = Value{}, Value{}
	}
	if op.writesArg {
		for i := range op.nargs {
			if a := &op.args[i]; a.kind == inGPR && a.acc&Write != 0 {
				e.forgetPart(a)
			}
		}
	}
	e.FlagsKnown &^= op.flagsWritten
	e.Flags &= e.FlagsKnown
}

// forgetPart makes unknown what a write to the operand changes of its register.
func (e *Emulator) forgetPart(a *operand) {
	m := ^uint64(0)
	if a.size < 4 {
		m = widthMask(a.size) << a.shift
	}
	v := &e.GPR[a.reg]
	v.Bits &^= m
	v.Known &^= m
}
