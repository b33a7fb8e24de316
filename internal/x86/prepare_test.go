package x86

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// A prepared subject has a state in which its accesses go where they shall.
type prepared struct {
	subject
	st    *state
	fixed RegSet
	has   uint64 // components of the extended state
}

// place sets registers, or the displacement in the code, so that access i goes to addr. It may end some bytes off, or not succeed.
func (p *prepared) place(i int, addr uint64) {
	m := p.in.Mems()[i]
	rest := addr - p.st.address(&p.in, m) // what must be added
	set := func(r Reg, v uint64) {
		p.st.gpr[r.Num()] = v
		p.fixed |= r.Set()
	}
	gpr := func(r Reg) bool { return r.Class() == ClassGPR && p.fixed&r.Set() == 0 }
	switch {
	case m.Base == m.Index && gpr(m.Base):
		set(m.Base, (p.st.value(m.Base)+0)+rest/uint64(1+m.Scale)) // refined below
		for range 64 {                                             // division of a number modulo 2^64: take the address downwards until it fits
			rest = addr - p.st.address(&p.in, m)
			if rest == 0 {
				break
			}
			v := (addr - uint64(m.Disp)) / uint64(1+m.Scale)
			if m.Seg == FS {
				v = (addr - p.st.fs - uint64(m.Disp)) / uint64(1+m.Scale)
			} else if m.Seg == GS {
				v = (addr - p.st.gs - uint64(m.Disp)) / uint64(1+m.Scale)
			}
			set(m.Base, v)
			addr--
		}
	case gpr(m.Base) && m.Base.Size() >= 4:
		v := p.st.gpr[m.Base.Num()] + rest
		if m.Base.Size() == 4 { // of a 32-bit address register only the lower half counts
			v = p.st.gpr[m.Base.Num()]&^0xffffffff | v&0xffffffff
		}
		set(m.Base, v)
		if m.Base == RSP && !canonical(v) { // the index takes what is more (sandbox.random says why)
			set(RSP, uint64(int64(v)<<16>>16))
			if gpr(m.Index) {
				set(m.Index, 0)
				set(RSP, addr-p.st.address(&p.in, m)+p.st.gpr[4])
			}
		}
	case gpr(m.Index) && m.Index.Size() >= 4:
		set(m.Index, p.st.gpr[m.Index.Num()]+rest/uint64(m.Scale))
		if r := addr - p.st.address(&p.in, m); int64(r) > 8 || int64(r) < -8 { // it must be small for the division to be right
			set(m.Index, 0)
			set(m.Index, (addr-p.st.address(&p.in, m))/uint64(m.Scale))
		}
	case (m.Base == NoReg || m.Base.Class() == ClassIP) && m.Index.Class() != ClassGPR && p.in.DispLen >= 4:
		d := uint64(m.Disp) + rest
		binary.LittleEndian.PutUint32(p.code[p.in.DispOff:], uint32(d))
		if p.in.DispLen == 8 {
			binary.LittleEndian.PutUint64(p.code[p.in.DispOff:], d)
		}
		in, err := Decode(p.code)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		p.in = in
	}
	p.fixed |= m.Base.Set() | m.Index.Set()
}

// ranges are the bytes that the facts say the instruction touches from the state: known is false if they do not say exactly.
type touched struct {
	from, size uint64
	access     Access
	probe      bool // nothing is written
}

func (p *prepared) ranges() (list []touched, known bool) {
	known = true
	if p.in.Op == "enter" { // faults if the stack it makes room for cannot be written, and writes nothing there
		slots := p.in.Mems()[0]
		list = append(list, touched{p.st.address(&p.in, slots) - uint64(p.in.Args()[0].Imm), 1, Write, true})
	}
	for _, m := range p.in.Mems() {
		if m.Access == None {
			continue
		}
		a := p.st.address(&p.in, m)
		switch {
		case m.Kind&(MemGather|MemScatter) != 0:
			known = false
			for k := range uint64(64) { // indexes are below 64
				list = append(list, touched{from: a + k*uint64(m.Scale), size: uint64(m.Size), access: m.Access})
			}
		case m.Kind&MemState != 0 && m.Size == 0:
			known = false
			list = append(list, touched{from: a, size: 2816, access: m.Access})
		case m.Kind&MemString != 0 && (p.in.Rep || p.in.Repne):
			step := uint64(m.Size)
			if p.st.flags&uint64(DF) != 0 {
				step = -step
			}
			for k := range p.st.value(RCX) & 0xff {
				list = append(list, touched{from: a + k*step, size: uint64(m.Size), access: m.Access})
			}
			known = false
		default:
			known = known && m.Kind&(MemMasked|MemBit|MemState) == 0
			list = append(list, touched{from: a, size: uint64(m.Size), access: m.Access})
		}
	}
	return list, known
}

// rights says what the sandbox allows at an address.
func rights(a uint64) Access {
	switch {
	case a >= dataAt[0] && a < dataAt[0]+pageSize, a >= dataAt[1] && a < dataAt[1]+pageSize:
		return ReadWrite
	case a >= dataAt[2] && a < dataAt[2]+pageSize, a >= codeAt && a < codeAt+codeSize, a >= farAt && a < farAt+codeSize:
		return Read
	}
	return None
}

// faults says whether the page table refuses one of the accesses.
func faults(list []touched) bool {
	for _, t := range list {
		for k := range t.size {
			if t.access&^rights(t.from+k) != 0 {
				return true
			}
		}
	}
	return false
}

// at gives the byte of the data pages at an address, nil if it is elsewhere.
func (st *state) at(a uint64) *byte {
	for i, from := range dataAt {
		if a >= from && a < from+pageSize {
			return &st.data[i][a-from]
		}
	}
	return nil
}

func (st *state) put(a uint64, size int, v uint64) {
	for k := range size {
		if p := st.at(a + uint64(k)); p != nil {
			*p = byte(v >> (8 * k))
		}
	}
}

func (st *state) fillVec(s *sandbox, r Reg, b byte) {
	for _, p := range st.vec(s, r.Num()) {
		for i := range p {
			p[i] = b
		}
	}
}

// prepare makes a state for the subject. Its accesses go to the addresses, where given, else somewhere into the pages; all says that masks let all through.
func (s *sandbox) prepare(sub subject, rnd *rand.Rand, addrs map[int]uint64, all bool) *prepared {
	p := &prepared{subject: sub, st: s.random(rnd), has: s.components}
	p.code = append([]byte(nil), sub.code...)
	p.st.rip = sub.rip
	in := &p.in
	le := binary.LittleEndian
	set := func(r Reg, v uint64) {
		p.st.gpr[r.Num()] = v
		p.fixed |= r.Set()
	}
	if in.Rep || in.Repne {
		n := uint64(rnd.IntN(4))
		if all {
			n = 1
		}
		set(RCX, n)
	}
	for _, m := range in.Mems() {
		if m.Index.Class() == ClassVec {
			for _, piece := range p.st.vec(s, m.Index.Num()) {
				for j := 0; j < len(piece); j += 4 {
					le.PutUint32(piece[j:], rnd.Uint32()&63)
				}
				if strings.HasPrefix(strings.TrimLeft(in.Op, "vpgathersc"), "q") {
					for j := 0; j < len(piece); j += 8 {
						le.PutUint64(piece[j:], rnd.Uint64()&63)
					}
				}
			}
		}
		if m.Kind&MemBit != 0 {
			if r := in.Args()[1].Reg; (r.Set()&(m.Base.Set()|m.Index.Set())) == 0 && (r < AH || r >= AX) {
				set(r, uint64(rnd.IntN(8*int(m.Size))))
			}
		}
	}
	if all {
		if in.Mask != NoReg {
			le.PutUint64(p.st.x[s.off.mask+8*in.Mask.Num():], ^uint64(0))
		}
		if strings.Contains(in.Op, "maskmov") && in.Args()[1].Reg.Class() == ClassVec {
			p.st.fillVec(s, in.Args()[1].Reg, 0xff)
		}
		if in.Op == "maskmovq" {
			k := in.Args()[1].Reg.Num() // TOP must be 0 for the register to be where it is in the area
			p.st.x[3] &^= 0x38
			le.PutUint64(p.st.x[32+16*k:], ^uint64(0))
		}
	}
	if in.DispLen == 4 && len(in.Mems()) > 1 && in.Mems()[0].Base.Class() == ClassGPR { // an operand that shares rsp with the stack must be near
		le.PutUint32(p.code[in.DispOff:], uint32(rnd.IntN(16)*8))
		if again, err := Decode(p.code); err == nil {
			p.in = again
		}
	}
	if m := in.Mems(); len(m) > 1 && m[0].Base == m[1].Base && m[0].Index.Class() == ClassGPR {
		set(m[0].Index, uint64(rnd.IntN(16)))
	}
	if pre := presets[in.Op]; pre != nil {
		pre(p, set)
	}
	if in.Op == "enter" { // little room, in the page
		p.code[in.ImmOff+1] = 0
		if again, err := Decode(p.code); err == nil {
			p.in = again
		}
	}
	for i, m := range in.Mems() {
		if m.Kind&MemAddress != 0 {
			continue
		}
		a, given := addrs[i]
		if !given {
			a = dataAt[i&1] + uint64(1024+64*rnd.IntN(8)) + inLine(m)
			if m.Kind&MemState != 0 { // it must fit into the page
				a = dataAt[i&1] + uint64(512+64*rnd.IntN(8))
			}
		}
		if _, one := addrs[1-i]; one && !given && len(in.Mems()) > 1 && in.Mems()[0].Base == in.Mems()[1].Base { // the other one decides
			continue
		}
		p.place(i, a)
	}
	// What control flow reads must be an address of code.
	landing := codeAt + rnd.Uint64N(codeSize)
	switch in.Flow {
	case FlowIndirectJump, FlowIndirectCall:
		if a := in.Args()[0]; a.Kind == ArgReg && p.fixed&a.Reg.Set() == 0 {
			p.st.gpr[a.Reg.Num()] = landing
		} else if a.Kind == ArgMem {
			p.st.put(p.st.address(in, in.Mems()[0]), 8, landing)
		}
	case FlowRet:
		p.st.put(p.st.address(in, in.Mems()[0]), 8, landing)
	}
	for i, m := range in.Mems() {
		if fix := contents[in.Op]; fix != nil && m.Access&Read != 0 && i == 0 {
			fix(p, p.st.address(in, m))
		}
	}
	clear(p.st.x[s.xsize:]) // as in random
	return p
}

// inLine is what to add to an address at the beginning of a cache line: a locked access that only nearly gets where it shall must not cross into another
// line, which stops the whole machine.
func inLine(m Mem) uint64 {
	if m.Kind&MemLocked != 0 {
		return 16
	}
	return 0
}

// presets set the registers of operations that fault with most values.
var presets = map[string]func(p *prepared, set func(Reg, uint64)){
	"div": divisible, "idiv": divisible, "xrstor": ownState, "xrstor64": ownState,
	"xgetbv": func(p *prepared, set func(Reg, uint64)) { set(RCX, 0) },
	"rdpkru": func(p *prepared, set func(Reg, uint64)) { set(RCX, 0) },
	"wrpkru": func(p *prepared, set func(Reg, uint64)) {
		set(RCX, 0)
		set(RDX, 0)
		set(RAX, p.st.gpr[0]&0xffffffff&^3)
	},
	"wrfsbase": func(p *prepared, set func(Reg, uint64)) {
		set(p.in.Args()[0].Reg, p.st.gpr[p.in.Args()[0].Reg.Num()]&0x7fffffffffff)
	},
	"wrgsbase": func(p *prepared, set func(Reg, uint64)) {
		set(p.in.Args()[0].Reg, p.st.gpr[p.in.Args()[0].Reg.Num()]&0x7fffffffffff)
	},
	"cpuid":     func(p *prepared, set func(Reg, uint64)) { set(RAX, 0); set(RCX, 0) },
	"movdir64b": func(p *prepared, set func(Reg, uint64)) {},
}

// ownState asks for no more of the state than the process may have.
func ownState(p *prepared, set func(Reg, uint64)) { p.st.gpr[0] &= p.has }

// divisible makes quotients fit.
func divisible(p *prepared, set func(Reg, uint64)) {
	size := p.in.Args()[0].Reg.Size()
	if p.in.Args()[0].Kind == ArgMem {
		size = int(p.in.Mems()[0].Size)
	}
	p.st.gpr[0] &= 1<<(8*min(size, 4)-1) - 1
	if size > 1 {
		p.st.gpr[2] = 0
		if m := p.in.Mems(); len(m) > 0 && m[0].Index.Class() == ClassGPR { // the index is enough to place the operand
			set(RDX, 0)
		}
	}
}

// contents correct memory of operations that fault with most of it.
var contents = map[string]func(p *prepared, a uint64){
	"ldmxcsr": mxcsr(0), "vldmxcsr": mxcsr(0), "fxrstor": mxcsr(24), "fxrstor64": mxcsr(24),
	"xrstor": image, "xrstor64": image,
	"popfq": func(p *prepared, a uint64) {
		p.st.put(a, 8, uint64(uint32(word(rand.New(rand.NewPCG(a, 1))))&0xcd5|0x202))
	},
	"popf": func(p *prepared, a uint64) { p.st.put(a, 2, word(rand.New(rand.NewPCG(a, 1)))&0xcd5|0x202) },
}

// image makes a valid header of the XSAVE area (Intel SDM vol. 1, 13.4.2).
func image(p *prepared, a uint64) {
	mxcsr(24)(p, a)
	for k := uint64(0); k < 64; k += 8 {
		p.st.put(a+xstateHeader+k, 8, 0)
	}
	p.st.put(a+xstateHeader, 8, word(rand.New(rand.NewPCG(a, 2)))&p.has)
}

func mxcsr(off uint64) func(p *prepared, a uint64) {
	return func(p *prepared, a uint64) { p.st.put(a+off, 4, 0x1f80) }
}
