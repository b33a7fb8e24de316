package unwind

import (
	"encoding/binary"
	"io"

	"github.com/ripstop/ripstop/internal/wire"
)

// Regs are the registers of a thread by DWARF number: rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 rip.
type Regs [17]uint64

// Module is where an image lies in the process.
type Module struct {
	Start, End uint64 // mapped addresses
	Bias       uint64 // address = link-time address + Bias
	Table      *Table
	Bridges    []Bridge
}

// Bridge is code whose frames have their return address where no table says, though they are walked past: their length is Frame, and it lies Next bytes above rsp. All registers but rsp are the caller's.
type Bridge struct{ Lo, Hi, Frame, Next uint64 }

// MaxFrames bounds a walk.
const MaxFrames = 4096

// Walk returns the program counters of a stack, innermost first, at most depth of them (MaxFrames if depth is 0). The first is exact;
// every other is such that one less lies in the instruction that its frame executes: a return address, or one more than the address
// that a signal interrupted. The walk ends where there is no caller, nothing is known, or memory cannot be read. mem is read at
// addresses of the process.
func Walk(regs Regs, mem io.ReaderAt, modules []Module, depth int) []uint64 {
	pcs, _ := walk(regs, mem, modules, depth)
	return pcs
}

// walk also returns where each frame ends: its CFA, 0 where that is not known (the last frame, one that a signal interrupted).
func walk(regs Regs, mem io.ReaderAt, modules []Module, depth int) (out, cfas []uint64) {
	if depth <= 0 || depth > MaxFrames {
		depth = MaxFrames
	}
	w := walker{mem: mem}
	w.pc, w.rsp, w.rbp, w.rbx = regs[regRA], regs[regRSP], regs[regRBP], regs[regRBX]
	w.haveRBP, w.haveRBX = true, true
	w.reg = func(n uint8) (uint64, bool) { return regs[n&15], true }
	out, cfas = []uint64{w.pc}, []uint64{0}
	exact := true // pc is that of an instruction, not a return address
	for len(out) < depth {
		at := w.pc
		if !exact {
			at--
		}
		if w.cross(modules) {
			out, cfas, exact = append(out, w.pc), append(cfas, 0), false
			continue
		}
		r := lookup(modules, at)
		signal := wire.CFA(r.CFA) == wire.CFASigframe
		if signal {
			at := w.rsp
			if !w.sigframe() {
				break
			}
			w.reg = func(n uint8) (uint64, bool) { return w.load(at + gregOffset[n&15]) }
		} else {
			if !w.step(r) {
				break
			}
			cfas[len(cfas)-1] = w.rsp
			w.reg = nil
		}
		if w.pc == 0 {
			break
		}
		exact = signal
		if signal {
			out = append(out, w.pc+1)
		} else {
			out = append(out, w.pc)
		}
		cfas = append(cfas, 0)
	}
	return out, cfas
}

// cross goes to the caller of a bridge, if the frame is one.
func (w *walker) cross(modules []Module) bool {
	for i := range modules {
		for _, b := range modules[i].Bridges {
			if w.pc < b.Lo || w.pc >= b.Hi {
				continue
			}
			ra, ok := w.load(w.rsp + b.Next)
			if ok {
				w.pc, w.rsp = ra, w.rsp+b.Frame
			}
			return ok
		}
	}
	return false
}

func lookup(modules []Module, pc uint64) wire.UnwindRule {
	for i := range modules {
		if m := &modules[i]; m.Table != nil && pc >= m.Start && pc < m.End {
			return m.Table.Lookup(pc - m.Bias)
		}
	}
	return none
}

// walker holds the registers of a frame.
type walker struct {
	mem              io.ReaderAt
	pc               uint64
	rsp, rbp, rbx    uint64
	haveRBP, haveRBX bool
	// reg gives any register of the innermost frame and of an interrupted one; nil elsewhere.
	reg func(n uint8) (uint64, bool)
}

// gregOffset is where the kernel saves each register by DWARF number, counted from rsp in the signal trampoline.
var gregOffset = [16]uint64{144, 136, 152, sigRBX, 112, 104, sigRBP, sigRSP, 40, 48, 56, 64, 72, 80, 88, 96}

func (w *walker) load(addr uint64) (uint64, bool) {
	var b [8]byte
	if int64(addr) < 0 { // not user space
		return 0, false
	}
	if n, _ := w.mem.ReadAt(b[:], int64(addr)); n != len(b) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

// step goes to the caller's frame.
func (w *walker) step(r wire.UnwindRule) bool {
	add := func(v uint64, off int32) uint64 { return v + uint64(int64(off)) }
	var cfa uint64
	ok := true
	switch wire.CFA(r.CFA) {
	case wire.CFARsp:
		cfa = add(w.rsp, r.CFAOff)
	case wire.CFARbp:
		cfa, ok = add(w.rbp, r.CFAOff), w.haveRBP
	case wire.CFAReg:
		switch {
		case w.reg != nil:
			cfa, ok = w.reg(r.Reg)
		case r.Reg == regRBX:
			cfa, ok = w.rbx, w.haveRBX
		default:
			ok = false
		}
		cfa = add(cfa, r.CFAOff)
	case wire.CFADerefRbp:
		if ok = w.haveRBP; ok {
			cfa, ok = w.load(add(w.rbp, r.CFAOff))
			cfa += uint64(r.Reg)
		}
	case wire.CFADerefRsp:
		cfa, ok = w.load(add(w.rsp, r.CFAOff))
		cfa += uint64(r.Reg)
	case wire.CFAPlt:
		cfa = add(w.rsp, r.CFAOff)
		if w.pc&15 >= uint64(r.Reg) {
			cfa += 8
		}
	default:
		return false
	}
	if !ok || cfa <= w.rsp {
		return false // a stack grows downwards: the caller's frame lies above
	}
	ra, ok := w.load(cfa - 8)
	if !ok {
		return false
	}
	rbp, haveRBP := w.rbp, w.haveRBP
	switch wire.RBPRule(r.RBP) {
	case wire.RBPRuleCfa:
		rbp, haveRBP = w.load(add(cfa, r.RBPOff))
	case wire.RBPRuleAtRbp:
		if haveRBP {
			rbp, haveRBP = w.load(add(w.rbp, r.RBPOff))
		}
	case wire.RBPRuleUndef:
		haveRBP = false
	}
	switch r.RBX {
	case rbxSaved:
		w.rbx, w.haveRBX = w.load(add(cfa, r.RBXOff))
	case rbxLost:
		w.haveRBX = false
	}
	w.pc, w.rsp, w.rbp, w.haveRBP = ra, cfa, rbp, haveRBP
	return true
}

// sigframe goes to the frame that a signal interrupted: the kernel saved its registers above rsp. The handler may run on another stack.
func (w *walker) sigframe() bool {
	at := w.rsp
	var ok [4]bool
	w.pc, ok[0] = w.load(at + sigRIP)
	w.rsp, ok[1] = w.load(at + sigRSP)
	w.rbp, ok[2] = w.load(at + sigRBP)
	w.rbx, ok[3] = w.load(at + sigRBX)
	w.haveRBP, w.haveRBX = true, true
	return ok == [4]bool{true, true, true, true}
}
