package recipe

import (
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Registers that a function may change (System V psABI, 3.2.1).
var callerSaved = []x86.Reg{x86.RAX, x86.RCX, x86.RDX, x86.RSI, x86.RDI, x86.R8, x86.R8 + 1, x86.R8 + 2, x86.R11}

// The header of an XSAVE area, of which xsave writes the first word and xsavec the second too, and xrstor wants the others to be zero (Intel SDM vol. 1, 13.7
// to 13.10).
const (
	xsaveHeader     = 512
	xsaveHeaderSize = 64
)

// call writes a Call, or an Emulate. Everything is in place before it and behind it.
func (a *assembler) call(o Call, emulate bool) {
	env := &a.of.env
	xs := 0
	if !o.General {
		if xs = int(env.XSave.Size+63) &^ 63; xs == 0 {
			a.fail(ErrEnv)
		}
	}
	if env.Slots < 2 || env.Context == 0 {
		a.fail(ErrEnv)
		return
	}
	ctx := func(n int) x86.Mem { return at(x86.RSP, n) }
	rsp := x86.RSP.Num()
	clobber := func(list ...x86.Reg) {
		for _, r := range list {
			a.move(r.Num(), patch.FromStack, 8*r.Num())
		}
	}
	// The stack, below the red zone.
	a.op().Store(a.slot(0), x86.RSP)
	a.op().Lea(x86.RSP, at(x86.RSP, -128))
	a.move(rsp, patch.FromSlot, 0)
	a.op().Pushf()
	a.op().PopMem(a.slot(1))
	a.move(patch.FlagsAll, patch.FromSlot, 1)
	a.op().ArithImm(x86.And, x86.RSP, -64)
	a.op().Lea(x86.RSP, at(x86.RSP, -ContextSize-xs))
	// The context.
	for r := x86.RAX; r < x86.RAX+16; r++ {
		if r != x86.RSP {
			a.op().Store(ctx(8*r.Num()), r)
		}
	}
	a.op().Load(x86.RAX, a.slot(0))
	clobber(x86.RAX)
	a.op().Store(ctx(8*rsp), x86.RAX)
	clobber(x86.RSP)
	a.op().Load(x86.RAX, a.slot(1))
	a.op().Store(ctx(ctxFlags), x86.RAX)
	a.move(patch.FlagsAll, patch.FromStack, ctxFlags)
	a.constant(x86.RAX, a.of.site.At)
	a.op().Store(ctx(ctxSite), x86.RAX)
	a.op().Lea(x86.RAX, at(x86.RAX, a.of.site.Inst.Len))
	a.op().Store(ctx(ctxNext), x86.RAX)
	info := uint64(0)
	for i := range 2 {
		m := ctx(ctxAddr + 8*i)
		mems := a.of.site.Inst.Mems()
		if i < len(mems) {
			info |= accessInfo(&mems[i]) << (32 * i)
		}
		if i >= len(mems) || !tells(&mems[i]) {
			a.op().StoreImm(m, 0)
			continue
		}
		if mems[i].Index != x86.NoReg {
			clobber(x86.RCX)
		}
		if a.address(x86.RAX, x86.RCX, &mems[i]) {
			a.op().ArithLoad(x86.Add, x86.RAX, fs(0))
		}
		a.op().Store(m, x86.RAX)
	}
	for _, w := range []struct {
		at int
		v  uint64
	}{{ctxData, o.Data}, {ctxInfo, info}} {
		if int64(w.v) == int64(int32(w.v)) {
			a.op().StoreImm(ctx(w.at), int32(w.v))
		} else {
			a.op().MovImm(x86.RAX, w.v)
			a.op().Store(ctx(w.at), x86.RAX)
		}
	}
	a.op().Load(x86.RAX, fs(env.Context))
	a.op().Store(ctx(ctxOuter), x86.RAX)
	a.op().Store(fs(env.Context), x86.RSP)
	mask := func() {
		a.op().MovImm(x86.EAX, env.XSave.Mask&0xffffffff)
		a.op().MovImm(x86.EAX+2, env.XSave.Mask>>32)
		clobber(x86.RDX)
	}
	if xs > 0 {
		a.op().MovImm(x86.EAX, 0)
		for i := 0; i < xsaveHeaderSize; i += 8 {
			a.op().Store(ctx(ContextSize+xsaveHeader+i), x86.RAX)
		}
		mask()
		if env.XSave.Compact {
			a.op().Xsavec(ctx(ContextSize))
		} else {
			a.op().Xsave(ctx(ContextSize))
		}
	}
	a.op().Mov(x86.RDI, x86.RSP)
	clobber(x86.RDI)
	a.op().Cld()
	if a.near(o.Func) {
		a.op().Call(o.Func)
	} else {
		a.op().MovImm(x86.RAX, o.Func)
		a.op().CallReg(x86.RAX)
	}
	clobber(callerSaved...)
	restored := callerSaved
	if emulate {
		restored = nil
		for r := x86.RAX; r < x86.RAX+16; r++ {
			clobber(r)
			if r != x86.RSP {
				restored = append(restored, r)
			}
		}
		a.forAt, a.track.resume = a.of.next(), nil
	} else {
		a.effect()
	}
	if xs > 0 {
		a.move(patch.Extended, patch.FromStack, ContextSize)
		mask()
		a.op().Xrstor(ctx(ContextSize))
		a.back(patch.Extended)
	}
	a.op().Load(x86.RAX, ctx(ctxOuter))
	a.op().Store(fs(env.Context), x86.RAX)
	shift := func(n int) {
		for r := range a.moves {
			if a.away[r] && a.moves[r].From == patch.FromStack {
				a.moves[r].N += int32(n)
			}
		}
	}
	a.op().PushMem(ctx(ctxFlags))
	shift(8)
	a.op().Popf()
	shift(-8)
	a.back(patch.FlagsAll)
	for _, r := range restored {
		a.op().Load(r, ctx(8*r.Num()))
		a.back(r.Num())
	}
	a.op().Load(x86.RSP, ctx(8*rsp))
	a.back(rsp)
	a.here()
}
