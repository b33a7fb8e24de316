package x86

// semantics are what an operation does, and what follows from the state after it for the one before it. Either may be missing.
type semantics struct {
	run, undo func(*Emulator, *Op)
	vector    bool // operands may be vector registers
}

// Bind makes the instruction ready for an Emulator. It never fails: what has no semantics is run by its facts.
func Bind(in *Inst) *Op {
	op := &Op{
		run: (*Emulator).clobber, length: uint8(in.Len), flow: in.Flow,
		writes: in.Writes, flagsWritten: in.FlagsWritten, vex: in.Op[0] == 'v', unit: unitOf(in.Op),
	}
	fits := in.nargs <= uint8(len(op.args)) && in.Mask == NoReg
	vector := false
	for i, a := range in.Args() {
		if i == len(op.args) {
			break
		}
		o := &op.args[i]
		o.acc = a.Access
		switch a.Kind {
		case ArgReg:
			o.reg, o.size = uint8(a.Reg.Num()), uint8(a.Reg.Size())
			switch a.Reg.Class() {
			case ClassGPR:
				o.kind = inGPR
				if a.Reg >= AH && a.Reg < AX {
					o.shift = 8
				}
			case ClassVec:
				o.kind = inVec
				vector = true
			default:
				o.kind = elsewhere
				fits = false
			}
		case ArgMem:
			o.kind, o.size = inMem, uint8(min(in.mems[0].Size, 255))
		case ArgImm, ArgOne, ArgRel:
			o.kind = immediateOperand
			op.imm = uint64(a.Imm)
		}
	}
	op.nargs = min(in.nargs, uint8(len(op.args)))
	for i := range op.nargs {
		a := &op.args[i]
		a.mask = widthMask(a.size)
		if a.kind == inGPR && a.acc&Write != 0 {
			op.writes &^= 1 << a.reg
			op.writesArg = true
		}
	}
	op.same = op.nargs == 2 && in.args[0].Kind == ArgReg && in.args[0].Reg == in.args[1].Reg
	if t, ok := in.Target(0); ok {
		op.target = t
	}
	switch {
	case in.Rep:
		op.rep = repeat
	case in.Repne:
		op.rep = repeatNot
	}
	op.bindMems(in)
	op.size = operationSize(in)
	if s := semanticsOf(in); s != nil && fits && (s.vector || !vector) {
		op.undo = s.undo
		if s.run != nil && (op.rep == noRep || in.mems[0].Kind&MemString != 0) {
			op.run, op.exact = s.run, true
		}
		op.cond = selectors[in.Op]
	}
	return op
}

// semanticsOf gives the operation's semantics, nil if there are none. With an address-size prefix, string instructions and loop count in ecx, esi and edi, which no compiler
// asks for.
func semanticsOf(in *Inst) *semantics {
	if in.narrow && (in.Flow == FlowLoop && in.Op != "jecxz" || in.nmems > 0 && in.mems[0].Kind&MemString != 0) {
		return nil
	}
	for _, m := range in.Mems() {
		if m.Kind&(MemBroadcast|MemMasked|MemGather|MemScatter) != 0 {
			return nil
		}
	}
	return semanticsTable[in.Op]
}

// accumulatorSizes are the bytes of the operations that name no operand.
var accumulatorSizes = map[string]uint8{"cbw": 2, "cwde": 4, "cdqe": 8, "cwd": 2, "cdq": 4, "cqo": 8, "jecxz": 4}

// operationSize gives the bytes of the first operand, or of the first access if there is none.
func operationSize(in *Inst) uint8 {
	if n := accumulatorSizes[in.Op]; n != 0 {
		return n
	}
	if in.nargs > 0 && in.args[0].Kind == ArgReg {
		return uint8(in.args[0].Reg.Size())
	}
	if in.nmems > 0 {
		return uint8(min(in.mems[0].Size, 255))
	}
	return 8
}

func (op *Op) bindMems(in *Inst) {
	op.nmems = in.nmems
	for i, m := range in.Mems() {
		r := &op.mems[i]
		*r = memRef{base: noBase, index: noBase, access: m.Access, kind: m.Kind, size: m.Size, disp: uint64(m.Disp) + uint64(int64(m.Bias))}
		switch m.Base.Class() {
		case ClassGPR:
			r.base, r.mask = uint8(m.Base.Num()), widthMask(uint8(m.Base.Size()))
		case ClassIP:
			r.base = ipBase
			r.disp += uint64(in.Len)
		}
		switch m.Index.Class() {
		case ClassGPR:
			r.index, r.inMask = uint8(m.Index.Num()), widthMask(uint8(m.Index.Size()))
			for s := m.Scale; s > 1; s >>= 1 {
				r.shift++
			}
		case ClassVec:
			r.index = indexes
		}
		r.narrow = in.narrow && m.Kind&MemStack == 0
		switch m.Seg {
		case FS:
			r.segment = fsSegment
		case GS:
			r.segment = gsSegment
		}
	}
	for _, first := range []bool{true, false} { // what is only read is read before anything is written
		for i, m := range in.Mems() {
			if m.Kind&(MemAddress|MemHint) == 0 && (m.Access == Read) == first {
				op.order[op.ordered] = uint8(i)
				op.ordered++
			}
		}
	}
}
