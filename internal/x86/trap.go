package x86

import "errors"

// ErrNoWriter says that no instruction that ends at the trap, or is being repeated there, can have written the bytes.
var ErrNoWriter = errors.New("x86: no instruction here wrote the bytes")

// A Trap is what a data breakpoint on writes reports: not the instruction that wrote, but where the processor goes on behind it, and the registers there.
type Trap struct {
	PC         uint64
	Regs       [16]uint64 // general registers, by number: rax, rcx, rdx, rbx, rsp …
	Addr, Size uint64     // the watched bytes
}

// What the registers behind an instruction say of whether it wrote the bytes.
type verdict uint8

const (
	cannot verdict = iota
	may            // they were changed since, or the address has parts that nobody has here
	did
)

// A repeated string instruction writes as much as this before a breakpoint on its way interrupts it.
const repeated = 64

// Writer finds the instruction that wrote, and where it lies. code begins at start, the first byte of a function or of any instruction before PC; it goes up to PC at least, and should go on for MaxLen bytes, as a repeated string
// instruction is interrupted on its way, at itself. ErrNoWriter: there is none, as behind a call, whose target is PC; ErrInvalid or ErrTruncated: the code between is none.
func (t *Trap) Writer(code []byte, start uint64) (at uint64, in Inst, err error) {
	if start > t.PC || t.PC-start > uint64(len(code)) {
		return 0, Inst{}, ErrTruncated
	}
	before := cannot
	for pc := start; pc < t.PC; {
		next, err := Decode(code[pc-start:])
		if err != nil {
			return 0, Inst{}, err
		}
		at, in = pc, next
		pc += uint64(in.Len)
		if pc > t.PC {
			return 0, Inst{}, ErrInvalid // PC lies inside an instruction
		}
		if pc == t.PC {
			before = t.wrote(&in)
		}
	}
	if before != did {
		if here, err := Decode(code[t.PC-start:]); err == nil && t.repeats(&here) {
			return t.PC, here, nil
		}
	}
	if before == cannot {
		return 0, Inst{}, ErrNoWriter
	}
	return at, in, nil
}

// The instruction at PC writes a string, has more of it to write, and the bytes are among those that it wrote last.
func (t *Trap) repeats(in *Inst) bool {
	const rcx, rdi = 1, 7
	for _, m := range in.Mems() {
		if in.Rep && m.Kind&MemString != 0 && m.Access&Write != 0 && t.Regs[rcx] != 0 {
			return t.covers(t.Regs[rdi]-repeated, repeated) || t.covers(t.Regs[rdi]+uint64(m.Size), repeated) // upwards or, with DF, downwards
		}
	}
	return false
}

// An instruction that ends at PC.
func (t *Trap) wrote(in *Inst) verdict {
	best := cannot
	for _, m := range in.Mems() {
		if m.Access&Write != 0 && m.Kind&(MemHint|MemAddress) == 0 {
			best = max(best, t.wroteTo(in, m))
		}
	}
	return best
}

func (t *Trap) wroteTo(in *Inst, m Mem) verdict {
	const rdi = 7
	if m.Kind&MemString != 0 {
		// rdi has gone on, whichever way; of a repeated one it may have gone any distance.
		if in.Rep || in.Repne || t.covers(t.Regs[rdi]-uint64(m.Size), uint64(m.Size)) || t.covers(t.Regs[rdi]+uint64(m.Size), uint64(m.Size)) {
			return may
		}
		return cannot
	}
	if m.Size == 0 || m.Kind&(MemScatter|MemGather|MemBit|MemState|MemMasked) != 0 || m.Seg == FS || m.Seg == GS {
		return may
	}
	addr := uint64(m.Disp)
	for _, r := range []struct {
		reg   Reg
		scale uint64
	}{{m.Base, 1}, {m.Index, uint64(m.Scale)}} {
		switch r.reg {
		case NoReg:
			continue
		case RIP, EIP:
			addr += t.PC
			continue
		}
		n, class := r.reg.Num(), r.reg.Class()
		if class != ClassGPR || in.Writes.Has(r.reg) {
			return may
		}
		addr += t.Regs[n] * r.scale
	}
	if in.narrow {
		addr &= 1<<32 - 1
	}
	if t.covers(addr, uint64(m.Size)) {
		return did
	}
	return cannot
}

// [addr, addr+size) meets the watched bytes.
func (t *Trap) covers(addr, size uint64) bool { return t.Addr-addr < size || addr-t.Addr < t.Size }
