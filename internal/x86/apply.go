package x86

import "strings"

// apply adds the row's facts to the instruction whose operands are decoded. It returns false if the processor would refuse the instruction.
func (r *row) apply(in *Inst, l *layout) bool {
	explicit := in.nmems > 0
	if l.lock && !(r.lock && explicit && in.args[0].Kind == ArgMem && l.form == formLegacy) {
		return false
	}
	if r.str != "" || r.special == "xlat" {
		in.nargs = 0
	}
	in.Reads, in.Writes, in.Kept = r.read, r.write|r.keep, r.keep
	in.FlagsRead, in.FlagsWritten, in.FlagsKept, in.FlagsUndefined = r.fRead, r.fWrite, r.fKeep, r.fUndefined
	in.Flow = r.flow
	for i := range in.Args() {
		a := &in.args[i]
		a.Access = Read
		if i < len(r.operands) {
			a.Access = r.operands[i]
		}
		switch a.Kind {
		case ArgReg:
			in.use(a.Reg, a.Access, l.form == formLegacy)
		case ArgMem:
			m := &in.mems[0]
			if r.size >= 0 {
				m.Size = uint16(r.size)
			}
			m.Access = a.Access
			m.Kind |= r.kind
			if r.quirk == quirkAddress {
				a.Access, m.Access, m.Kind = None, None, MemAddress
			}
		default:
			a.Access = None
		}
	}
	r.accumulator(in)
	r.vectors(in, explicit)
	if explicit {
		m := &in.mems[0]
		if l.lock || r.quirk == quirkLocked || r.special == "lock0" {
			m.Kind |= MemLocked
		}
		if r.kind&MemBit != 0 && in.args[1].Kind != ArgReg {
			m.Kind &^= MemBit
		}
		switch {
		case l.op == 0xdb && l.reg() >= 5, l.op == 0xdf && l.reg()&5 == 4:
			if l.opmap == 0 && l.form == formLegacy { // fld, fstp, fbld, fbstp
				m.Size = 10
			}
		case r.quirk == quirkFar:
			m.Size = uint16(2 + l.opSize()) // with REX.W on AMD's processors 6 all the same
		case r.quirk == quirkEnv:
			if l.opSize() == 2 {
				m.Size = 14
			}
		case r.quirk == quirkState:
			if l.opSize() == 2 {
				m.Size = 94
			}
		}
	}
	r.implicit(in, l)
	switch in.Flow {
	case FlowJump, FlowCall:
		if in.args[0].Kind != ArgRel {
			if in.Flow == FlowJump {
				in.Flow = FlowIndirectJump
			} else {
				in.Flow = FlowIndirectCall
			}
			in.NoTrack = l.notrk
			if explicit {
				in.mems[0].Size = 8
			}
		}
	case FlowLoop:
		if l.addr32 && r.quirk == quirkJecxz {
			in.Op = "jecxz"
		}
	}
	for _, m := range in.Mems() {
		in.Reads |= m.Base.Set() | m.Index.Set()
		if m.Seg != NoReg {
			in.Reads |= SetSeg
		}
	}
	if r.quirk == quirkZeroes {
		in.zeroed()
	}
	return true
}

// zeroed drops the reads of the idioms whose outcome is the same whatever a register holds: xor eax, eax and the like.
func (in *Inst) zeroed() {
	n := int(in.nargs)
	if n < 2 || in.Mask != NoReg || in.args[n-1].Kind != ArgReg || in.args[n-2].Kind != ArgReg || in.args[n-1].Reg != in.args[n-2].Reg {
		return
	}
	in.Reads &^= in.args[n-1].Reg.Set()
}

// use notes the access to a register operand.
func (in *Inst) use(r Reg, a Access, legacy bool) {
	s := r.Set()
	if a&Read != 0 {
		in.Reads |= s
	}
	if r.Class() == ClassMMX { // even to read one resets the x87's stack pointer and tags (Intel SDM vol. 1, 9.5.1)
		in.Writes |= s
		in.Kept |= s
	}
	if a&Write == 0 {
		return
	}
	in.Writes |= s
	switch r.Class() {
	case ClassGPR:
		if r.Size() < 4 {
			in.Kept |= s
		}
	case ClassVec:
		if legacy {
			in.Kept |= s
		}
	case ClassMask:
	default:
		in.Kept |= s
	}
}

// width gives the size of the operation in bytes: of its first operand, or of a string operation's element.
func (r *row) width(in *Inst) int {
	if r.unit > 0 {
		return int(r.unit)
	}
	for _, a := range in.Args() {
		switch a.Kind {
		case ArgReg:
			return a.Reg.Size()
		case ArgMem:
			return int(in.mems[0].Size)
		}
	}
	return 8
}

// accumulator adds what depends on the operand size: rax and rdx, and shift counts.
func (r *row) accumulator(in *Inst) {
	w := r.width(in)
	if r.accRead {
		in.Reads |= RAX.Set()
	}
	if r.accWrite {
		in.Writes |= RAX.Set()
		if w < 4 || r.accKeep {
			in.Kept |= RAX.Set()
		}
	}
	if r.dxRead && w > 1 {
		in.Reads |= RDX.Set()
	}
	if r.dxWrite && w > 1 {
		in.Writes |= RDX.Set()
		if w < 4 {
			in.Kept |= RDX.Set()
		}
	}
	switch {
	case r.quirk == quirkAX:
		in.Kept |= RAX.Set()
	case r.quirk == quirkDX:
		in.Kept |= RDX.Set()
	case r.quirk == quirkCompared && in.args[0].Kind == ArgReg:
		in.Kept |= in.args[0].Reg.Set()
	case r.special == "count":
		r.shift(in, w)
	}
}

// shift adds what a shift's count decides, which is not known if it is in cl.
func (r *row) shift(in *Inst, width int) {
	mask := int64(31)
	if width == 8 {
		mask = 63
	}
	last := in.args[in.nargs-1]
	count := last.Imm & mask
	shift := r.fUndefined != 0 // and no rotate
	switch {
	case last.Kind == ArgReg: // a count of nothing leaves the flags alone
		in.FlagsKept |= in.FlagsWritten
		in.FlagsUndefined |= OF
		if shift {
			in.FlagsUndefined |= CF
		}
	case count == 0:
		in.FlagsKept |= in.FlagsWritten
		in.FlagsUndefined = 0
	case count > 1:
		in.FlagsUndefined |= OF
		if !shift {
			in.FlagsKept |= OF // it is left alone at times
		}
		if shift && count >= int64(8*width) {
			in.FlagsUndefined |= CF
		}
	}
}

// vectors adds what masks, gathers and register groups do.
func (r *row) vectors(in *Inst, explicit bool) {
	if in.Mask != NoReg {
		in.Reads |= in.Mask.Set()
		if explicit {
			in.mems[0].Kind |= MemMasked
		}
		if a := in.args[0]; !in.Zeroing && a.Kind == ArgReg && a.Reg.Class() == ClassVec {
			in.Kept |= a.Reg.Set()
		}
	}
	if r.kind&(MemGather|MemScatter) != 0 && explicit {
		m := &in.mems[0]
		m.Size = 4
		if strings.HasSuffix(in.Op, "pd") || strings.HasSuffix(in.Op, "q") {
			m.Size = 8
		}
		if in.Mask != NoReg && r.kind&MemHint == 0 { // cleared as the elements are done
			in.Writes |= in.Mask.Set()
		}
		if r.kind&MemGather != 0 && r.kind&MemHint == 0 {
			in.Kept |= in.args[0].Reg.Set()
			if int(in.nargs) == 3 {
				in.args[2].Access = ReadWrite
				in.Writes |= in.args[2].Reg.Set()
			}
		}
	}
	switch r.special {
	case "four": // four consecutive registers from a multiple of four
		in.Reads |= 15 << (16 + in.args[1].Reg.Num()&^3)
	case "pairk":
		in.Writes |= 3 << (48 + in.args[0].Reg.Num()&^1)
	}
}

// implicit adds the accesses to memory that no operand names.
func (r *row) implicit(in *Inst, l *layout) {
	named := func(q Reg) Reg { // in the instruction's address size
		if l.addr32 {
			return q - RAX + EAX
		}
		return q
	}
	stack := func(base Reg, disp int64, size int, a Access) {
		in.addMem(Mem{Base: base, Scale: 1, Disp: disp, Size: uint16(size), Access: a, Kind: MemStack})
	}
	word := 8 // of the stack
	if l.data16 && !l.w() {
		word = 2
	}
	sp, bp := RSP.Set(), RBP.Set()
	if r.push != 0 || r.pop != 0 {
		in.Reads |= sp
		in.Writes |= sp
		size := r.push + r.pop
		switch {
		case size < 0:
			size = word
		case in.Flow == FlowFar: // by default four bytes an element
			switch {
			case l.data16 && !l.w():
				size /= 4
			case !l.w():
				size /= 2
			}
		}
		if r.push != 0 {
			stack(RSP, -int64(size), size, Write)
		} else {
			if int(in.nmems) > 0 && (in.mems[0].Base == RSP || in.mems[0].Base == EAX+RSP-RAX) {
				in.mems[0].Bias = int8(size)
			}
			stack(RSP, 0, size, Read)
		}
	}
	switch r.special {
	case "enter":
		level := in.args[1].Imm & 31
		in.Reads |= sp | bp
		in.Writes |= sp | bp
		stack(RSP, -int64(word)*(level+1), word*int(level+1), Write)
		if level > 1 {
			stack(RBP, -int64(word)*(level-1), word*int(level-1), Read)
		}
	case "leave":
		in.Reads |= bp
		in.Writes |= sp | bp
		stack(RBP, 0, word, Read)
	case "xlat":
		in.addMem(Mem{Seg: l.seg, Base: named(RBX), Index: AL, Scale: 1, Size: 1, Access: Read})
	case "dir64":
		in.use(in.args[0].Reg, Read, false)
		in.args[0].Access = Read
		in.addMem(Mem{Base: in.args[0].Reg, Scale: 1, Size: 64, Access: Write, Kind: MemNonTemporal | MemES})
	}
	if r.at != NoReg {
		in.addMem(Mem{Seg: l.seg, Base: named(r.at), Scale: 1, Size: r.atSize, Access: r.atAccess, Kind: r.kind})
	}
	if r.str == "" {
		return
	}
	for _, c := range r.str {
		m := Mem{Base: named(RDI), Scale: 1, Size: r.unit, Access: Write, Kind: MemString | MemES}
		switch c {
		case 's':
			m.Seg, m.Base, m.Access, m.Kind = l.seg, named(RSI), Read, MemString
		case 'D':
			m.Access = Read
		}
		in.addMem(m)
		in.Reads |= m.Base.Set()
		in.Writes |= m.Base.Set()
	}
	if l.rep != 0 {
		in.Rep, in.Repne = l.rep == 0xf3, l.rep == 0xf2
		in.Reads |= RCX.Set()
		in.Writes |= RCX.Set()
		in.FlagsKept |= in.FlagsWritten // nothing is done if rcx is 0
		if r.accWrite {
			in.Kept |= RAX.Set()
		}
	}
}
