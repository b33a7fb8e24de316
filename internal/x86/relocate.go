package x86

import (
	"encoding/binary"
	"errors"
)

// ErrCall says that an instruction pushes its own place: relocated it would push another one, and unwinding, pthread_cancel and the like would be lost.
var ErrCall = errors.New("x86: a call cannot be relocated: it pushes its place")

// Calls says what Relocate does with calls.
type Calls uint8

const (
	// RefuseCalls gives ErrCall: a call stays in place.
	RefuseCalls Calls = iota
	// PushReturn makes a push of the original return address and a jump of a call. With a shadow stack the return from it would fault; and if the memory
	// that holds the target cannot be read, that is found with the address already pushed. Calls by rsp are refused all the same.
	PushReturn
)

// MaxRelocated is the most bytes that Relocate makes of an instruction.
const MaxRelocated = 13 + MaxLen

// Relocate appends to dst code that does at address to what the instruction, whose bytes are code, does at address from. It ends where the instruction's
// successor goes on; branches lead where they led. Most instructions are copied. RIP-relative operands are encoded anew, or ErrReach; a lea that cannot
// reach becomes a mov. Short branches become near ones; loop and jrcxz, which have no near form, jump over a jump. Registers and flags not written by the
// instruction are left alone and nothing below the red zone is used.
//
// What a program can still see of the place: the rcx that syscall leaves, the instruction pointer of the x87's last operation, a signal's context. A
// branch into the bytes that a patch displaces is the planner's concern.
func Relocate(dst []byte, in *Inst, code []byte, from, to uint64, calls Calls) ([]byte, error) {
	code = code[:in.Len]
	c := Code{At: to, Bytes: dst}
	c.At -= uint64(len(dst)) // so that PC is right
	next := from + uint64(in.Len)
	target, relative := in.Target(from)
	switch in.Flow {
	case FlowJump:
		c.Jmp(target)
	case FlowCond:
		c.Jcc(Cond(code[in.OpcodeOff]&15), target)
	case FlowLoop:
		if in.narrow {
			c.Bytes = append(c.Bytes, 0x67)
		}
		c.Bytes = append(c.Bytes, code[in.OpcodeOff], 2, 0xeb, 5)
		c.Jmp(target)
	case FlowCall, FlowIndirectCall:
		if err := c.call(in, code, next, target, calls); err != nil {
			return dst, err
		}
	case FlowFar:
		if in.Op == "callf" {
			return dst, ErrCall
		}
		c.copy(in, code, next)
	default:
		if relative { // xbegin
			c.Bytes = append(c.Bytes, code[:in.ImmOff]...)
			c.rel32(target)
			break
		}
		c.copy(in, code, next)
	}
	if c.err != nil {
		return dst, c.err
	}
	return c.Bytes, nil
}

// copy appends the instruction with its RIP-relative operand, if it has one, as seen from here.
func (c *Code) copy(in *Inst, code []byte, next uint64) {
	at := len(c.Bytes)
	if in.nmems == 0 || !in.mems[0].RIPRelative() {
		c.Bytes = append(c.Bytes, code...)
		return
	}
	m := in.mems[0]
	here := c.PC() + uint64(in.Len)
	addr := next + uint64(m.Disp)
	d := int64(addr - here)
	switch {
	case m.Base == EIP: // the sum is cut to 32 bits: any distance can be reached
		d = int64(int32(d))
	case d == int64(int32(d)):
	case in.Op == "lea" && in.args[0].Reg.Size() >= 4:
		if in.args[0].Reg.Size() == 4 {
			addr &= 0xffffffff
		}
		c.MovImm(in.args[0].Reg, addr)
		return
	default:
		c.fail()
		return
	}
	c.Bytes = append(c.Bytes, code...)
	binary.LittleEndian.PutUint32(c.Bytes[at+int(in.DispOff):], uint32(d))
}

// call appends a push of the return address and a jump.
func (c *Code) call(in *Inst, code []byte, next, target uint64, calls Calls) error {
	if calls != PushReturn {
		return ErrCall
	}
	indirect := in.Flow == FlowIndirectCall
	if indirect && in.usesRSP() {
		return ErrCall
	}
	c.PushImm(int32(next))
	if uint64(int64(int32(next))) != next {
		c.StoreImm(Mem{Base: RSP, Scale: 1, Disp: 4, Size: 4}, int32(next>>32))
	}
	if !indirect {
		c.Jmp(target)
		return nil
	}
	at := len(c.Bytes)
	c.copy(in, code, next)
	if c.err == nil {
		p := &c.Bytes[at+int(in.ModRMOff)]
		*p = *p&^0x38 | 4<<3
	}
	return nil
}

// usesRSP says whether an operand, not the stack itself, is rsp or is addressed by it.
func (in *Inst) usesRSP() bool {
	for _, a := range in.Args() {
		switch {
		case a.Kind == ArgReg && a.Reg == RSP:
			return true
		case a.Kind == ArgMem && (in.mems[0].Base.Set()|in.mems[0].Index.Set())&RSP.Set() != 0:
			return true
		}
	}
	return false
}
