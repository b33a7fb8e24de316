package recover

import "github.com/ripstop/ripstop/internal/x86"

// How says what an access is known by.
type How uint8

// The ways to know an access, the surest first.
const (
	Unknown  How = iota
	Sampled      // a sample told its address
	Path         // its address is part of the instruction: relative to rip, or absolute
	Forward      // by running forwards from a sample
	Backward     // by running backwards from a sample
	Combined     // by running forwards or backwards from what the other direction had found
	hows
)

var howNames = [...]string{Unknown: "unknown", Sampled: "sampled", Path: "path", Forward: "forward", Backward: "backward", Combined: "combined"}

// String names it.
func (h How) String() string { return howNames[min(int(h), len(howNames)-1)] }

// Flags say what an access is.
type Flags uint8

// The flags.
const (
	Read   Flags = 1 << iota
	Write        // with Read: a read-modify-write
	Locked       // it is atomic
	Stack        // implicit, at the stack pointer
	Called       // by a function of the C library that was called at IP, in all; Index is that of the function's first instruction, or of the one that went there
)

// An Access is one access to memory that a thread made.
type Access struct {
	Index    uint64 // of its instruction among those of the thread's trace; of one in a gap there is none
	IP       uint64 // of the instruction
	Addr     uint64 // of the lowest byte
	Size     uint64 // bytes; of a repeated string instruction, of all rounds together
	From, To uint64 // it happened at a TSC in this range; To is the largest number where nothing bounds it
	Flags    Flags
	How      How
	Calls    uint32 // in Result.Calls: where its function was called from; 0: not known
}

// flagsOf gives the flags of a memory operand.
func flagsOf(m *x86.Mem) (f Flags) {
	if m.Access&x86.Read != 0 {
		f |= Read
	}
	if m.Access&x86.Write != 0 {
		f |= Write
	}
	if m.Kind&x86.MemLocked != 0 {
		f |= Locked
	}
	if m.Kind&x86.MemStack != 0 {
		f |= Stack
	}
	return f
}

// Counts are what a recovery had to do with.
type Counts struct {
	Instructions uint64       // of the trace
	Accesses     uint64       // that they made, elements of gathers and masked ones apart
	By           [hows]uint64 // Accesses, by how they are known
	Samples      uint64       // of memory accesses, with registers
	Placed       uint64       // of these, those whose instruction is certain
	Misfits      uint64       // of these, those that fit nowhere
	Gaps         uint64       // places at which the trace lost what ran
	Calls        uint64       // of functions of the C library that are known to copy, set or compare memory, by the program's own code
	Told         uint64       // of Calls, those of which at least one access is known
	Contradicted uint64       // stretches in which what was known contradicted itself; nothing but samples and Path is given of them
}

// Add adds those of another shard.
func (c *Counts) Add(o *Counts) {
	c.Instructions += o.Instructions
	c.Accesses += o.Accesses
	for i := range c.By {
		c.By[i] += o.By[i]
	}
	c.Samples += o.Samples
	c.Placed += o.Placed
	c.Misfits += o.Misfits
	c.Gaps += o.Gaps
	c.Calls += o.Calls
	c.Told += o.Told
	c.Contradicted += o.Contradicted
}
