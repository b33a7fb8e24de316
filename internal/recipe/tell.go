package recipe

import (
	"encoding/binary"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// tellDepth is how far below the program's rsp a Tell's code finds it: the red zone, and rdi.
const tellDepth = 128 + 8

// tellMark are the first bytes of a TellMark: nopl disp32(…), with one byte and 32 bits that mean nothing to the processor.
var tellMark = [3]byte{0x0f, 0x1f, 0x84}

// TellMark is what lies behind a Tell's call, at an address: nopl, of which byte 3 is Shape and bytes 4 to 7 are the signed distance from there to the site.
func TellMark(at, site uint64, shape uint8) (mark [8]byte, ok bool) {
	d := int64(site - at)
	copy(mark[:], tellMark[:])
	mark[3] = shape
	binary.LittleEndian.PutUint32(mark[4:], uint32(int32(d)))
	return mark, d == int64(int32(d))
}

// tellable says whether a Tell can compute the address of an access: with rsp moved, and one register only.
func tellable(m *x86.Mem) bool {
	if !tells(m) {
		return false
	}
	if m.Seg == x86.FS {
		for _, r := range []x86.Reg{m.Base, m.Index} {
			if r != x86.NoReg && (r.Size() != 8 || r == x86.RDI) {
				return false
			}
		}
	}
	if isReg(m.Base, x86.RSP) {
		d := m.Disp + int64(m.Bias) + tellDepth
		return m.Base.Size() == 8 && d == int64(int32(d))
	}
	return true
}

// isReg says whether r is the register, or a part of it.
func isReg(r, of x86.Reg) bool { return r.Class() == x86.ClassGPR && r.Num() == of.Num() }

// TellSize gives the most bytes that the code of one Tell takes, without making it; 0: Compile refuses it.
func TellSize(site *Site, mem int) int {
	m := &site.Inst.Mems()[mem]
	if !tellable(m) {
		return 0
	}
	const around = 5 + 1 + 8 + 8 // lea, push, call, mark
	if _, ok := site.fixed(m); ok {
		return around + 10 // mov r64, imm64
	}
	c := x86.Code{Bytes: make([]byte, 0, 32)}
	steps, own := tellSteps(m)
	if own {
		c.Load(x86.RDI, fs(0))
	}
	for _, x := range steps {
		c.Lea(x86.RDI, x)
	}
	return around + len(c.Bytes)
}

// GateSize is the most that a Gate adds to it where the arithmetic flags are dead.
const GateSize = 9 + 9 + 6 + 9 + 6 + 5 + 9 // a register is saved, loaded, its byte tested, and put back; jcc, jmp; it is put back

// ClearSize is what Clears adds to it; DeferSize the most by which a Defer is larger than a Tell.
const (
	ClearSize = 13
	DeferSize = 2*9 + 9 + 7 + 3*9 + 8 - 5 - 1 - 8 - 8 + 9 // rsp, rbp; a register is saved; lea; it, and the address, are stored, and it is put back; the mark. Less what a Tell has
)

// deferred writes a Defer. Everything is in place before it and behind it.
func (a *assembler) deferred(o Defer) {
	m := &a.of.site.Inst.Mems()[o.Mem]
	word := func(n int32) x86.Mem { return fs(o.At + 8*n) }
	a.op().Store(word(2), x86.RSP)
	a.op().Store(word(3), x86.RBP)
	t := a.take()
	a.op().Lea(t, x86.Mem{Base: x86.RIP, Scale: 1})
	from := len(a.Bytes)
	a.op().Store(word(1), t)
	a.address(t, t, m)
	a.op().Store(word(0), t)
	a.release(t)
	a.identity()
	mark, ok := TellMark(a.PC(), a.of.site.At, o.Shape)
	if !ok && a.At != nowhere {
		a.fail(x86.ErrReach)
	}
	binary.LittleEndian.PutUint32(a.Bytes[from-4:], uint32(len(a.Bytes)-from))
	a.op()
	a.Bytes = append(a.Bytes, mark[:]...)
}

// tellSteps gives the leas that compute an address which depends on registers into rdi, rsp being tellDepth lower than the program's. own: rdi must have the base of FS before.
func tellSteps(m *x86.Mem) (steps []x86.Mem, own bool) {
	x := x86.Mem{Base: m.Base, Index: m.Index, Scale: m.Scale, Disp: m.Disp + int64(m.Bias), Size: 8}
	if isReg(m.Base, x86.RSP) {
		x.Disp += tellDepth
	}
	if m.Seg != x86.FS {
		return []x86.Mem{x}, false
	}
	if x.Base != x86.NoReg {
		steps = append(steps, x86.Mem{Base: x.Base, Index: x86.RDI, Scale: 1, Size: 8})
	}
	x.Base = x86.RDI
	return append(steps, x), true
}

// gated writes a Tell with a Gate. Everything is in place before it and behind it.
func (a *assembler) gated(o Tell) {
	t := a.take()
	a.op().Load(t, fs(o.Gate))
	a.saveFlags(x86.FlagsArith)
	a.op().TestMem(x86.Mem{Base: t, Scale: 1, Disp: TellGate, Size: 1}, -1)
	a.release(t)
	var closed, over x86.Label
	a.op().JccTo(x86.CondE, &closed)
	was := a.track
	a.identity()
	a.tell(o)
	a.op().JmpTo(&over)
	told := a.track
	a.track = was
	a.Bind(&closed)
	a.identity()
	a.track = told // who is behind it has told, or need not
	a.Bind(&over)
}

// tell writes a Tell. Everything is in place before it and behind it.
func (a *assembler) tell(o Tell) {
	m := &a.of.site.Inst.Mems()[o.Mem]
	rsp := x86.RSP.Num()
	a.op().Lea(x86.RSP, at(x86.RSP, -128))
	a.move(rsp, patch.FromSum, 128)
	a.op().Push(x86.RDI)
	a.move(rsp, patch.FromSum, tellDepth)
	saved := func() { a.move(x86.RDI.Num(), patch.FromStack, 0) }
	if v, ok := a.of.site.fixed(m); ok {
		a.constant(x86.RDI, v)
	} else {
		steps, own := tellSteps(m)
		if own {
			a.op().Load(x86.RDI, fs(0)) // the thread control block's address of itself is what fs adds
			saved()
		}
		for _, x := range steps {
			a.op().Lea(x86.RDI, x)
			saved()
		}
	}
	saved()
	a.op().CallMem(fs(o.Entry))
	a.effect()
	a.back(x86.RDI.Num())
	a.back(rsp)
	a.here()
	mark, ok := TellMark(a.PC(), a.of.site.At, o.Shape)
	if !ok && a.At != nowhere {
		a.fail(x86.ErrReach)
	}
	a.op()
	a.Bytes = append(a.Bytes, mark[:]...)
	if o.Clears != 0 {
		a.op().StoreImm(fs(o.Clears), 0)
	}
}
