package unwind

import (
	"errors"
	"fmt"
)

// Call frame instructions (DWARF 5, 7.24, and GNU's).
const (
	cfaAdvanceLoc      = 0x40 // high two bits
	cfaOffset          = 0x80
	cfaRestore         = 0xc0
	cfaNop             = 0x00
	cfaSetLoc          = 0x01
	cfaAdvanceLoc1     = 0x02
	cfaAdvanceLoc2     = 0x03
	cfaAdvanceLoc4     = 0x04
	cfaOffsetExtended  = 0x05
	cfaRestoreExtended = 0x06
	cfaUndefined       = 0x07
	cfaSameValue       = 0x08
	cfaRegister        = 0x09
	cfaRememberState   = 0x0a
	cfaRestoreState    = 0x0b
	cfaDefCFA          = 0x0c
	cfaDefCFARegister  = 0x0d
	cfaDefCFAOffset    = 0x0e
	cfaDefCFAExpr      = 0x0f
	cfaExpr            = 0x10
	cfaOffsetExtSF     = 0x11
	cfaDefCFASF        = 0x12
	cfaDefCFAOffsetSF  = 0x13
	cfaValOffset       = 0x14
	cfaValOffsetSF     = 0x15
	cfaValExpr         = 0x16
	cfaGNUArgsSize     = 0x2e
	cfaGNUNegOffset    = 0x2f
)

// ruleKind is how a register of the caller is found.
type ruleKind uint8

const (
	ruleUnset     ruleKind = iota // nothing was said: the ABI's default, as the caller left it
	ruleSame                      // said to be unchanged
	ruleUndefined                 // lost
	ruleOffset                    // saved at CFA+off
	ruleValOffset                 // is CFA+off
	ruleRegister                  // is in register off
	ruleExpr                      // saved where expr says
	ruleValExpr                   // is what expr says
)

type regRule struct {
	kind ruleKind
	off  int64
	expr []byte
}

// Registers of which the state is kept.
const (
	slotRBX = iota
	slotRBP
	slotRSP
	slotRA
	numSlots
)

// state is one row of the table that a CFI program describes, for the registers that matter.
type state struct {
	cfaReg  uint64
	cfaOff  int64
	cfaExpr []byte // instead of register and offset
	cfaSet  bool
	regs    [numSlots]regRule
}

func (s *state) reg(n uint64) *regRule {
	switch n {
	case regRBX:
		return &s.regs[slotRBX]
	case regRBP:
		return &s.regs[slotRBP]
	case regRSP:
		return &s.regs[slotRSP]
	case regRA:
		return &s.regs[slotRA]
	}
	return nil
}

// maxRemembered bounds the stack of DW_CFA_remember_state; compilers nest one or two.
const maxRemembered = 128

// run executes the programs of an FDE and its CIE, and calls row with each state and the addresses [from, to) it holds for. When it
// returns an error, the states up to the address where the error was have been told.
func (d *fde) run(row func(from, to uint64, s *state)) (reached uint64, err error) {
	var s state
	m := machine{cie: d.cie, cur: &s, pc: d.begin}
	if err := m.exec(cursor{b: d.cie.program}, nil); err != nil {
		return d.begin, fmt.Errorf("CIE: %w", err)
	}
	m.initial = s
	m.inFDE = true
	emit := func(to uint64) error {
		if to < m.pc {
			return errors.New("its locations go backwards")
		}
		to = min(to, d.end)
		if to > m.pc {
			row(m.pc, to, &s)
			m.pc = to
		}
		return nil
	}
	m.encoding = d.cie.fdeEnc
	if err := m.exec(cursor{b: d.program, addr: d.progAddr}, emit); err != nil {
		return m.pc, err
	}
	return d.end, emit(d.end)
}

// machine executes call frame instructions.
type machine struct {
	cie      *cie
	cur      *state
	initial  state // after the CIE's program: what DW_CFA_restore goes back to
	inFDE    bool
	encoding byte
	pc       uint64
	stack    []state
}

func (m *machine) exec(c cursor, advance func(to uint64) error) error {
	move := func(to uint64) error {
		if advance == nil {
			return errors.New("a CIE moves the location")
		}
		return advance(to)
	}
	set := func(reg uint64, r regRule) {
		if p := m.cur.reg(reg); p != nil {
			*p = r
		}
	}
	restore := func(reg uint64) error {
		if !m.inFDE {
			return errors.New("a CIE restores a register")
		}
		if p := m.cur.reg(reg); p != nil {
			*p = *m.initial.reg(reg)
		}
		return nil
	}
	for len(c.b) > 0 {
		op := byte(c.uint(1))
		low := uint64(op & 0x3f)
		var err error
		switch op & 0xc0 {
		case cfaAdvanceLoc:
			if err := move(m.pc + low*m.cie.codeAlign); err != nil {
				return err
			}
			continue
		case cfaOffset:
			set(low, regRule{kind: ruleOffset, off: int64(c.uleb()) * m.cie.dataAlign})
			if c.err != nil {
				return c.err
			}
			continue
		case cfaRestore:
			if err := restore(low); err != nil {
				return err
			}
			continue
		}
		switch op {
		case cfaNop:
		case cfaSetLoc:
			to, ok := c.pointer(m.encoding, 0)
			if c.err == nil && !ok {
				return errors.New("DW_CFA_set_loc has an encoding that is not known")
			}
			if c.err == nil {
				err = move(to)
			}
		case cfaAdvanceLoc1:
			err = move(m.pc + c.uint(1)*m.cie.codeAlign)
		case cfaAdvanceLoc2:
			err = move(m.pc + c.uint(2)*m.cie.codeAlign)
		case cfaAdvanceLoc4:
			err = move(m.pc + c.uint(4)*m.cie.codeAlign)
		case cfaOffsetExtended:
			reg := c.uleb()
			set(reg, regRule{kind: ruleOffset, off: int64(c.uleb()) * m.cie.dataAlign})
		case cfaOffsetExtSF:
			reg := c.uleb()
			set(reg, regRule{kind: ruleOffset, off: c.sleb() * m.cie.dataAlign})
		case cfaGNUNegOffset:
			reg := c.uleb()
			set(reg, regRule{kind: ruleOffset, off: -int64(c.uleb()) * m.cie.dataAlign})
		case cfaValOffset:
			reg := c.uleb()
			set(reg, regRule{kind: ruleValOffset, off: int64(c.uleb()) * m.cie.dataAlign})
		case cfaValOffsetSF:
			reg := c.uleb()
			set(reg, regRule{kind: ruleValOffset, off: c.sleb() * m.cie.dataAlign})
		case cfaRestoreExtended:
			err = restore(c.uleb())
		case cfaUndefined:
			set(c.uleb(), regRule{kind: ruleUndefined})
		case cfaSameValue:
			set(c.uleb(), regRule{kind: ruleSame})
		case cfaRegister:
			reg := c.uleb()
			set(reg, regRule{kind: ruleRegister, off: int64(c.uleb())})
		case cfaRememberState:
			if len(m.stack) >= maxRemembered {
				return errors.New("too many states are remembered")
			}
			m.stack = append(m.stack, *m.cur)
		case cfaRestoreState:
			if len(m.stack) == 0 {
				return errors.New("no state is remembered")
			}
			*m.cur = m.stack[len(m.stack)-1]
			m.stack = m.stack[:len(m.stack)-1]
		case cfaDefCFA:
			m.cur.cfaReg, m.cur.cfaOff = c.uleb(), int64(c.uleb())
			m.cur.cfaExpr, m.cur.cfaSet = nil, true
		case cfaDefCFASF:
			m.cur.cfaReg, m.cur.cfaOff = c.uleb(), c.sleb()*m.cie.dataAlign
			m.cur.cfaExpr, m.cur.cfaSet = nil, true
		case cfaDefCFARegister:
			m.cur.cfaReg, m.cur.cfaExpr = c.uleb(), nil
		case cfaDefCFAOffset:
			m.cur.cfaOff = int64(c.uleb())
		case cfaDefCFAOffsetSF:
			m.cur.cfaOff = c.sleb() * m.cie.dataAlign
		case cfaDefCFAExpr:
			m.cur.cfaExpr, m.cur.cfaSet = c.take(c.uleb()), true
			if len(m.cur.cfaExpr) == 0 && c.err == nil {
				return errors.New("an expression is empty")
			}
		case cfaExpr:
			reg := c.uleb()
			set(reg, regRule{kind: ruleExpr, expr: c.take(c.uleb())})
		case cfaValExpr:
			reg := c.uleb()
			set(reg, regRule{kind: ruleValExpr, expr: c.take(c.uleb())})
		case cfaGNUArgsSize:
			c.uleb()
		default:
			return fmt.Errorf("instruction %#x is not known", op)
		}
		if err == nil {
			err = c.err
		}
		if err != nil {
			return err
		}
	}
	return nil
}
