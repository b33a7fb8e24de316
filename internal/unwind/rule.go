package unwind

import (
	"math"

	"github.com/ripstop/ripstop/internal/wire"
)

// RBX field of a rule.
const (
	rbxSame  = 0
	rbxSaved = 1
	rbxLost  = 2
)

// Where the kernel puts the interrupted registers, counted from rsp in the signal trampoline: struct ucontext of x86-64 Linux.
const (
	sigRBP = 120
	sigRBX = 128
	sigRSP = 160
	sigRIP = 168
)

// Operations of DWARF expressions.
const (
	opDeref      = 0x06
	opAnd        = 0x1a
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opGE         = 0x2a
	opLit0       = 0x30
	opBreg0      = 0x70
)

// none is rule 0.
var none = wire.UnwindRule{}

// rule makes a wire rule of a state. ok is false if the table cannot express it; the rule is then none.
func (s *state) rule(signal bool) (r wire.UnwindRule, ok bool) {
	ra, rsp := s.regs[slotRA], s.regs[slotRSP]
	if ra.kind == ruleUndefined {
		return wire.UnwindRule{CFA: uint8(wire.CFAUndef), RBP: uint8(wire.RBPRuleUndef), RBX: rbxLost}, true
	}
	if !s.cfaSet {
		return none, false
	}
	if ra.kind == ruleExpr {
		if signal && s.isSigframe() {
			return wire.UnwindRule{CFA: uint8(wire.CFASigframe)}, true
		}
		return none, false
	}
	if signal || ra.kind != ruleOffset || ra.off != -8 {
		return none, false
	}
	if rsp.kind != ruleUnset && (rsp.kind != ruleValOffset || rsp.off != 0) {
		return none, false
	}
	if s.cfaExpr == nil {
		off, fits := toInt32(s.cfaOff)
		if !fits || s.cfaReg > 15 {
			return none, false
		}
		r.CFAOff = off
		switch s.cfaReg {
		case regRSP:
			r.CFA = uint8(wire.CFARsp)
		case regRBP:
			r.CFA = uint8(wire.CFARbp)
		default:
			r.CFA, r.Reg = uint8(wire.CFAReg), uint8(s.cfaReg)
		}
	} else if !cfaExpression(s.cfaExpr, &r) {
		return none, false
	}
	s.rbp(&r)
	s.rbx(&r)
	return r, true
}

// rbp fills in where the caller's rbp is. What cannot be expressed counts as lost: the walk goes on as long as it is not needed.
func (s *state) rbp(r *wire.UnwindRule) {
	p := s.regs[slotRBP]
	r.RBP = uint8(wire.RBPRuleUndef)
	switch p.kind {
	case ruleUnset, ruleSame:
		r.RBP = uint8(wire.RBPRuleSame)
	case ruleOffset:
		if off, ok := toInt32(p.off); ok {
			r.RBP, r.RBPOff = uint8(wire.RBPRuleCfa), off
		}
	case ruleExpr:
		reg, off, ok := bregOnly(p.expr)
		switch {
		case !ok:
		case reg == regRBP:
			if off, ok := toInt32(off); ok {
				r.RBP, r.RBPOff = uint8(wire.RBPRuleAtRbp), off
			}
		case reg == uint64(s.cfaReg) && s.cfaExpr == nil:
			// Relative to the register that the CFA is relative to.
			if off, ok := toInt32(off - s.cfaOff); ok {
				r.RBP, r.RBPOff = uint8(wire.RBPRuleCfa), off
			}
		}
	}
}

func (s *state) rbx(r *wire.UnwindRule) {
	p := s.regs[slotRBX]
	r.RBX = rbxLost
	switch p.kind {
	case ruleUnset, ruleSame:
		r.RBX = rbxSame
	case ruleOffset:
		if off, ok := toInt32(p.off); ok {
			r.RBX, r.RBXOff = rbxSaved, off
		}
	}
}

// isSigframe recognises the kernel's signal frame as glibc describes it.
func (s *state) isSigframe() bool {
	var r wire.UnwindRule
	if s.cfaExpr == nil || !cfaExpression(s.cfaExpr, &r) || wire.CFA(r.CFA) != wire.CFADerefRsp || r.CFAOff != sigRSP || r.Reg != 0 {
		return false
	}
	for slot, want := range map[int]int64{slotRA: sigRIP, slotRSP: sigRSP, slotRBP: sigRBP, slotRBX: sigRBX} {
		p := s.regs[slot]
		reg, off, ok := bregOnly(p.expr)
		if p.kind != ruleExpr || !ok || reg != regRSP || off != want {
			return false
		}
	}
	return true
}

// bregOnly matches DW_OP_breg: off.
func bregOnly(e []byte) (reg uint64, off int64, ok bool) {
	c := cursor{b: e}
	reg, off, ok = breg(&c)
	return reg, off, ok && len(c.b) == 0
}

func breg(c *cursor) (reg uint64, off int64, ok bool) {
	op := c.uint(1)
	if c.err != nil || op < opBreg0 || op > opBreg0+31 {
		return 0, 0, false
	}
	off = c.sleb()
	return op - opBreg0, off, c.err == nil
}

// cfaExpression matches the expressions that compilers, linkers and assembly writers use for the CFA: a register plus a constant, what
// lies there (gcc's and OpenSSL's realigned stacks) plus a constant, and the linker's lazy procedure linkage table.
func cfaExpression(e []byte, r *wire.UnwindRule) bool {
	c := cursor{b: e}
	reg, off, ok := breg(&c)
	if !ok {
		return false
	}
	o32, fits := toInt32(off)
	if !fits {
		return false
	}
	r.CFAOff = o32
	if len(c.b) == 0 {
		switch reg {
		case regRSP:
			r.CFA = uint8(wire.CFARsp)
		case regRBP:
			r.CFA = uint8(wire.CFARbp)
		default:
			r.CFA, r.Reg = uint8(wire.CFAReg), uint8(reg)
		}
		return reg <= 15
	}
	if c.b[0] == opDeref {
		switch reg {
		case regRSP:
			r.CFA = uint8(wire.CFADerefRsp)
		case regRBP:
			r.CFA = uint8(wire.CFADerefRbp)
		default:
			return false
		}
		add, ok := addend(c.b[1:])
		r.Reg = add
		return ok
	}
	// rsp + off + (((rip & 15) >= n) << 3)
	if p := c.b; reg == regRSP && len(p) == 9 && p[0] == opBreg0+regRA && p[1] == 0 && p[2] == opLit0+15 && p[3] == opAnd &&
		p[4] >= opLit0 && p[4] <= opLit0+15 && p[5] == opGE && p[6] == opLit0+3 && p[7] == opShl && p[8] == opPlus {
		r.CFA, r.Reg = uint8(wire.CFAPlt), p[4]-opLit0
		return true
	}
	return false
}

// addend matches nothing, DW_OP_plus_uconst n, and DW_OP_lit n, DW_OP_plus, for n < 256.
func addend(e []byte) (uint8, bool) {
	if len(e) == 0 {
		return 0, true
	}
	c := cursor{b: e}
	op := c.uint(1)
	switch {
	case op == opPlusUconst:
		n := c.uleb()
		return uint8(n), c.err == nil && len(c.b) == 0 && n < 256
	case op >= opLit0 && op <= opLit0+31:
		return uint8(op - opLit0), c.uint(1) == opPlus && c.err == nil && len(c.b) == 0
	}
	return 0, false
}

func toInt32(v int64) (int32, bool) {
	return int32(v), v >= math.MinInt32 && v <= math.MaxInt32
}
