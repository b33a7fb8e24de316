package count

import "github.com/ripstop/ripstop/internal/x86"

// A Kind says how an instruction uses memory. Each instruction is of one kind, the first in this order that fits: locked, gather, scatter, masked, non-temporal, string,
// then load, store or read-write, then stack.
type Kind uint8

// Kinds.
const (
	Load        Kind = iota // reads
	Store                   // writes
	ReadWrite               // reads and writes one place: add to memory, xadd and cmpxchg without lock
	Locked                  // atomic: a lock prefix, or xchg, which implies it
	String                  // movs, stos, lods, cmps, scas, ins, outs; under a rep prefix one execution, however many elements
	Gather                  // reads elements at a vector of addresses
	Scatter                 // writes them
	MaskedLoad              // reads elements that a mask lets through
	MaskedStore             // writes them
	StreamLoad              // reads past the caches: movntdqa
	StreamStore             // writes past the caches
	Stack                   // touches memory only as push, pop, call, ret, enter and leave do
	Kinds
)

var kindNames = [Kinds]string{
	"load", "store", "read-write", "locked", "string", "gather", "scatter", "masked-load", "masked-store", "stream-load", "stream-store", "stack",
}

// String gives the kind's name, as in reports.
func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return "?"
}

// An Access is what is fixed about an instruction's use of memory.
type Access struct {
	Kind Kind
	// Size is the bytes of one access, the largest if it has several: of an element for gathers and scatters, of an iteration for strings. 0: only the processor knows.
	Size uint16
}

// Classify says how an instruction uses memory, and false if it does not: an address that is only computed or hinted at (lea, prefetch, cache line
// flushes, nop) is no use.
func Classify(in *x86.Inst) (a Access, ok bool) {
	var kinds x86.MemKind
	var access x86.Access
	var size uint16
	stack := false
	for _, m := range in.Mems() {
		switch {
		case m.Access == x86.None || m.Kind&(x86.MemAddress|x86.MemHint) != 0:
		case m.Kind&x86.MemStack != 0:
			stack = true
			if a.Size < m.Size {
				a.Size = m.Size
			}
		default:
			kinds |= m.Kind
			access |= m.Access
			size = max(size, m.Size)
		}
	}
	if access == x86.None {
		a.Kind = Stack
		return a, stack
	}
	a.Size = size
	writes := access&x86.Write != 0
	of := func(load, store Kind) Kind {
		if writes {
			return store
		}
		return load
	}
	switch {
	case kinds&x86.MemLocked != 0:
		a.Kind = Locked
	case kinds&(x86.MemGather|x86.MemScatter) != 0:
		a.Kind = of(Gather, Scatter)
	case kinds&x86.MemMasked != 0:
		a.Kind = of(MaskedLoad, MaskedStore)
	case kinds&x86.MemNonTemporal != 0:
		a.Kind = of(StreamLoad, StreamStore)
	case kinds&x86.MemString != 0:
		a.Kind = String
	case access == x86.ReadWrite:
		a.Kind = ReadWrite
	default:
		a.Kind = of(Load, Store)
	}
	return a, true
}
