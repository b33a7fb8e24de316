package recipe

import (
	"encoding/binary"
	"fmt"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Compile makes the code of operations for an instruction. live is what is live before it (Live); everything else may be overwritten. The error wraps one of
// this package's or x86's.
func Compile(ops []Op, site Site, live x86.Live, env Env) (*Code, error) {
	live.Regs |= site.addressed() | site.Inst.Reads | x86.RSP.Set()
	live.Flags |= site.Inst.FlagsRead
	c := &Code{site: site, env: env, live: live, ops: ops}
	err := c.valid(ops)
	if err == nil {
		a := c.assemble(nowhere)
		c.size, err = len(a.Bytes), a.err
		a.free()
	}
	if err != nil {
		return nil, fmt.Errorf("recipe for %v at %#x: %w", site.Inst, site.At, err)
	}
	return c, nil
}

// nowhere is an address from which nothing is near: code for it is the longest.
const nowhere = 1 << 62

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (c *Code) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	a := c.assemble(at)
	defer a.free()
	if a.err != nil {
		return dst, nil, a.err
	}
	return append(dst, a.Bytes...), a.settled(), nil
}

// valid checks the operations, and notes whether they replace the instruction.
func (c *Code) valid(ops []Op) error {
	in := &c.site.Inst
	for i, o := range ops {
		ends := true
		switch o := o.(type) {
		case Count:
			if o.Of > PerThread {
				return ErrOp
			}
			ends = false
		case Call:
			ends = false
		case Tell:
			if o.Mem < 0 || o.Mem >= len(in.Mems()) || !tellable(&in.Mems()[o.Mem]) {
				return ErrAddress
			}
			ends = false
		case Defer:
			if o.Mem < 0 || o.Mem >= len(in.Mems()) || !tellable(&in.Mems()[o.Mem]) || in.Mems()[o.Mem].Seg == x86.FS {
				return ErrAddress
			}
			ends = false
		case Check:
			if o.Mem < 0 || o.Mem >= len(in.Mems()) || !tells(&in.Mems()[o.Mem]) {
				return ErrAddress
			}
			if o.Bits > 64 || o.Shift > 63 || o.Bits != 0 && o.Shift >= o.Bits {
				return ErrOp
			}
			if err := c.valid(o.Then); err != nil {
				return err
			}
			ends = false
		case GS:
			for i, m := range in.Mems() {
				if m.Kind&(x86.MemStack|x86.MemAddress|x86.MemHint) == 0 && !in.TakesGS(i) {
					return x86.ErrNoGS
				}
			}
		case Emulate:
			if in.Flow != x86.FlowNone && in.Flow != x86.FlowSyscall {
				return ErrFlow
			}
		case Hook:
			if in.Op != "syscall" {
				return ErrFlow
			}
		default:
			return ErrOp
		}
		if ends && i+1 < len(ops) {
			return ErrOrder
		}
		if ends {
			c.replaces = true
		}
	}
	if c.replaces {
		switch in.Flow {
		case x86.FlowNone, x86.FlowSyscall, x86.FlowRet, x86.FlowIndirectJump: // what is copied as it is
		default:
			return ErrFlow
		}
	}
	return nil
}

func (c *Code) next() uint64 { return c.site.At + uint64(c.site.Inst.Len) }

func (c *Code) assemble(at uint64) *assembler {
	a := newAssembler(c, at)
	if at == nowhere {
		a.copyAt = c.site.At
	}
	a.list(c.ops, true)
	if a.jumps > 0 { // nothing has fallen through to the instruction yet
		a.op().JmpTo(&a.end)
		a.plainCopy()
	}
	a.Bind(&a.end)
	a.fail(a.Err())
	return a
}

// list writes operations. Behind the last one everything is in place and the thread goes on: at the instruction, or behind it.
func (a *assembler) list(ops []Op, top bool) {
	for i, o := range ops {
		last := i+1 == len(ops)
		switch o := o.(type) {
		case Count:
			a.count(o)
			if !last {
				a.identity()
			}
		case Call:
			a.identity()
			a.call(o, false)
		case Tell:
			a.identity()
			if o.Gate != 0 {
				a.gated(o)
			} else {
				a.tell(o)
			}
		case Defer:
			a.identity()
			a.deferred(o)
		case Check:
			a.check(o)
		case GS:
			a.identity()
			a.gs()
			a.leave(top)
			return
		case Emulate:
			a.identity()
			a.call(Call(o), true)
			a.leave(top)
			return
		case Hook:
			a.identity()
			a.hook(o)
			a.leave(top)
			return
		}
	}
	a.identity()
	switch {
	case !a.of.replaces:
		a.leave(top)
	case top:
		a.plainCopy()
	default:
		a.op().JmpTo(&a.plain)
		a.jumps++
	}
}

// leave goes on behind the code.
func (a *assembler) leave(top bool) {
	if !top {
		a.op().JmpTo(&a.end)
	}
}

// plainCopy writes the displaced instruction; jumps to plain lead to it.
func (a *assembler) plainCopy() {
	a.Bind(&a.plain)
	a.jumps = 0
	a.track = track{forAt: a.of.site.At}
	if a.effects {
		a.self()
	}
	a.copied(func(at uint64) ([]byte, error) {
		return x86.Relocate(nil, &a.of.site.Inst, a.of.site.Code, a.of.site.At, at, x86.RefuseCalls)
	})
}

// self says that a thread that has the displaced instruction before it resumes there.
func (a *assembler) self() {
	a.effect()
	a.here()
}

// gs writes the displaced instruction with a GS prefix.
func (a *assembler) gs() {
	if a.track.resume != nil {
		a.self()
	}
	a.copied(func(at uint64) ([]byte, error) {
		return x86.WithGS(nil, &a.of.site.Inst, a.of.site.Code, a.of.site.At, at)
	})
}

func (a *assembler) copied(make func(at uint64) ([]byte, error)) {
	at := a.PC()
	if a.copyAt != 0 {
		at = a.copyAt
	}
	code, err := make(at)
	if err != nil {
		a.fail(err)
	}
	a.op()
	a.Bytes = append(a.Bytes, code...)
	a.done()
}

// done says that the instruction is done, or what replaces it.
func (a *assembler) done() { a.track = track{forAt: a.of.next()} }

// count writes a Count.
func (a *assembler) count(o Count) {
	const changed = x86.FlagsArith &^ x86.CF // by inc
	low := o.Cell < 1<<31
	cell := x86.Mem{Scale: 1, Disp: int64(o.Cell), Size: 8}
	var held []x86.Reg
	take := func() x86.Reg {
		r := a.take()
		held = append(held, r)
		return r
	}
	switch {
	case o.Of == PerThread && a.of.env.Cells == 0:
		a.fail(ErrEnv)
		return
	case o.Of == PerThread && low:
		cell.Base = take()
		a.op().Load(cell.Base, fs(a.of.env.Cells))
	case o.Of == PerThread:
		cell = x86.Mem{Base: take(), Index: take(), Scale: 1, Size: 8}
		a.constant(cell.Base, o.Cell)
		a.op().Load(cell.Index, fs(a.of.env.Cells))
	case !low && !a.near(o.Cell):
		cell = at(take(), 0)
		a.constant(cell.Base, o.Cell)
	}
	if o.Of == Shared {
		a.saveFlags(changed)
		cell.Kind = x86.MemLocked
	}
	if a.spareFlags(changed) {
		a.op().Inc(cell)
	} else {
		if cell.Index != x86.NoReg {
			a.op().Lea(cell.Base, cell)
			cell = at(cell.Base, 0)
			a.release(held[1])
			held = held[:1]
		}
		t := take()
		a.op().Load(t, cell)
		a.op().Lea(t, at(t, 1))
		a.op().Store(cell, t)
	}
	a.effect()
	a.release(held...)
}

// check writes a Check and what it leads to; behind it is what is done otherwise.
func (a *assembler) check(o Check) {
	m := &a.of.site.Inst.Mems()[o.Mem]
	t := a.take()
	var entry x86.Mem
	if v, ok := a.of.site.fixed(m); ok {
		if o.Bits != 0 && o.Bits < 64 {
			v &= 1<<o.Bits - 1
		}
		a.constant(t, o.Table+v>>o.Shift)
		a.saveFlags(x86.FlagsArith)
		entry = x86.Mem{Base: t, Scale: 1, Size: 1}
	} else {
		more := a.address(t, t, m)
		a.saveFlags(x86.FlagsArith)
		if more {
			a.op().ArithLoad(x86.Add, t, fs(0)) // the thread control block's address of itself
		}
		shift := o.Shift
		if o.Bits != 0 && o.Bits < 64 {
			a.op().Shl(t, 64-o.Bits)
			shift += 64 - o.Bits
		}
		if shift > 0 {
			a.op().Shr(t, shift)
		}
		entry = x86.Mem{Base: t, Scale: 1, Disp: int64(o.Table), Size: 1}
		if o.Table >= 1<<31 {
			u := a.take()
			a.constant(u, o.Table)
			entry = x86.Mem{Base: u, Index: t, Scale: 1, Size: 1}
			a.release(u)
		}
	}
	a.op().TestMem(entry, int32(int8(o.Mask)))
	a.release(t)
	var over x86.Label
	a.op().JccTo(x86.CondE, &over)
	was := a.track
	a.list(o.Then, false)
	a.track = was
	a.Bind(&over)
}

// hook writes a Hook.
func (a *assembler) hook(o Hook) {
	a.op().Lea(x86.RCX, x86.Mem{Base: x86.RIP, Scale: 1})
	from := len(a.Bytes)
	a.constant(x86.R11, a.of.next())
	if a.near(o.Func) {
		a.op().Jmp(o.Func)
	} else {
		a.op().JmpMem(x86.Mem{Base: x86.RIP, Scale: 1})
		a.Bytes = binary.LittleEndian.AppendUint64(a.Bytes, o.Func)
	}
	binary.LittleEndian.PutUint32(a.Bytes[from-4:], uint32(len(a.Bytes)-from))
	a.done()
	a.move(x86.RCX.Num(), patch.FromFor, 0)
	a.constant(x86.RCX, a.of.next())
	a.done()
}
