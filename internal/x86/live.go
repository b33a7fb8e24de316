package x86

// Live is a set of registers and flags whose values may still matter.
type Live struct {
	Regs  RegSet
	Flags Flags
}

// AllLive is everything: what is known where nothing is known.
var AllLive = Live{^RegSet(0), ^Flags(0)}

// Assume is a set of what Liveness may take for granted of code that it does not see. None of it holds for every program.
type Assume uint8

const (
	// AssumeABI says that calls and returns pass nothing in the arithmetic flags (System V psABI, 3.2.1).
	AssumeABI Assume = 1 << iota
	// AssumeNoHandler says that where an instruction faults nobody looks at registers that the code itself no longer needs: no handler that goes on elsewhere, as
	// those of non-call exceptions do.
	AssumeNoHandler
)

// Block decodes the instructions that run one after the other from the start of code: up to and with the first that may lead elsewhere (a branch, call,
// return, system call or trap), and to the first that is none, at most limit.
func Block(code []byte, limit int) (block []Inst) {
	for len(block) < limit {
		in, err := Decode(code)
		if err != nil {
			break
		}
		block = append(block, in)
		if in.Flow != FlowNone {
			break
		}
		code = code[in.Len:]
	}
	return block
}

// Liveness gives for each instruction of a block what is live before it, and for the end of the block what is live there: len(block)+1 sets. What is in no
// set is dead: it is overwritten, whole, before it is read. At the end of the block everything is live.
func Liveness(block []Inst, assume Assume) []Live {
	sets := make([]Live, len(block)+1)
	live := AllLive
	for i := len(block); ; i-- {
		sets[i] = live
		if i == 0 {
			return sets
		}
		in := &block[i-1]
		if assume&AssumeABI != 0 && (in.Flow == FlowCall || in.Flow == FlowIndirectCall || in.Flow == FlowRet) {
			live.Flags &^= FlagsArith
		}
		live.Regs = live.Regs&^(in.Writes&^in.Kept) | in.Reads
		live.Flags = live.Flags&^(in.FlagsWritten&^in.FlagsKept) | in.FlagsRead
		if assume&AssumeNoHandler == 0 && in.MayFault() {
			live = AllLive
		}
	}
}

// MayFault says whether the instruction may raise an exception on some state: it accesses memory, divides, computes in floating point, or is there for
// control flow. It says so of some instructions that never do.
func (in *Inst) MayFault() bool {
	for _, m := range in.Mems() {
		if m.Kind&MemAddress == 0 {
			return true
		}
	}
	return in.Flow != FlowNone || in.Op == "div" || in.Op == "idiv" || (in.Reads|in.Writes)&^(SetGPR|SetMask) != 0 ||
		(in.FlagsRead|in.FlagsWritten)&^(FlagsArith|DF) != 0
}
