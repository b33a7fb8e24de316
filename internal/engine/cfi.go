package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// What a debugger is told of trampolines: one entry of call frame information (DWARF 5, 6.4) for each block of memory that they lie in. Its rules are expressions that search the
// process's index as the agent does (internal/agent/c/trampoline.c, find and move), when somebody asks for a frame: nothing is written for a site, and nothing is done before.
//
// A trampoline is a frame of its own without extent, whose caller is the program at the instruction that the thread is for, with the registers that it has there. It is marked as a signal's: so the
// caller's pc is taken as it is, and not as a return address, and gdb's step and next go on through the trampoline instead of waiting for a return.

// Operations of DWARF expressions (DWARF 5, 2.5).
const (
	dwDeref     = 0x06
	dwConst4u   = 0x0c
	dwConst8u   = 0x0e
	dwDup       = 0x12
	dwDrop      = 0x13
	dwOver      = 0x14
	dwPick      = 0x15
	dwSwap      = 0x16
	dwRot       = 0x17
	dwMinus     = 0x1c
	dwMul       = 0x1e
	dwPlus      = 0x22
	dwPlusConst = 0x23
	dwShr       = 0x25
	dwXor       = 0x27
	dwBra       = 0x28
	dwEq        = 0x29
	dwGe        = 0x2a
	dwGt        = 0x2b
	dwLe        = 0x2c
	dwLt        = 0x2d
	dwSkip      = 0x2f
	dwLit0      = 0x30
	dwBreg0     = 0x70
	dwDerefSize = 0x94
)

// Instructions of call frame information.
const (
	dwDefCFAExpression = 0x0f
	dwValExpression    = 0x16
)

// dwarfOf gives the DWARF number of a general register by its number in instructions; x86-64 psABI, figure 3.36.
var dwarfOf = [16]byte{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}

const (
	dwarfRIP = 16
	regRSP   = 4 // in instructions
)

// An expression is one that is being written. Jumps go to names.
type expression struct {
	b      []byte
	labels map[string]int
	jumps  map[int]string // by where the distance is
}

func newExpression() *expression {
	return &expression{labels: map[string]int{}, jumps: map[int]string{}}
}

func (e *expression) op(list ...byte) { e.b = append(e.b, list...) }
func (e *expression) lit(n byte)      { e.op(dwLit0 + n) }
func (e *expression) pick(n byte)     { e.op(dwPick, n) }
func (e *expression) addr(v uint64) {
	e.b = binary.LittleEndian.AppendUint64(append(e.b, dwConst8u), v)
}
func (e *expression) register(dw byte)  { e.op(dwBreg0+dw, 0) }
func (e *expression) label(name string) { e.labels[name] = len(e.b) }

func (e *expression) add(n uint64) {
	if n != 0 {
		e.b = binary.AppendUvarint(append(e.b, dwPlusConst), n)
	}
}

func (e *expression) jump(op byte, name string) {
	e.op(op, 0, 0)
	e.jumps[len(e.b)-2] = name
}

// load replaces the address on the stack by what lies at it + off.
func (e *expression) load(off uint64, size byte) {
	e.add(off)
	if size == 8 {
		e.op(dwDeref)
	} else {
		e.op(dwDerefSize, size)
	}
}

// load32 is load of a signed number of 32 bits.
func (e *expression) load32(off uint64) {
	e.load(off, 4)
	for _, op := range []byte{dwXor, dwMinus} {
		e.b = binary.LittleEndian.AppendUint32(append(e.b, dwConst4u), 1<<31)
		e.op(op)
	}
}

func (e *expression) bytes() []byte {
	for at, name := range e.jumps {
		to, ok := e.labels[name]
		if !ok {
			panic("BUG: engine: an expression jumps to " + name)
		}
		binary.LittleEndian.PutUint16(e.b[at:], uint16(int16(to-at-2)))
	}
	return e.b
}

// Offsets in what the index is made of: wire.TrampolineRun, Trampoline, TrampolineState and TrampolineMove.
const (
	runCount, runLo, runHi                = 0, 8, 16
	entryAt, entryStates, entryBytes      = 0, 8, 12
	entryCount                            = 14
	statePC, stateOff, stateMoves         = 0, 4, 8
	moveN, moveReg, moveFrom              = 0, 4, 5
	stateSize, moveSize, entrySize        = wire.SizeTrampolineState, wire.SizeTrampolineMove, wire.SizeTrampoline
	_                                uint = 24 - wire.SizeTrampolineRun // layouts that changed
	_                                uint = 16 - entrySize
	_                                uint = 12 - stateSize
	_                                uint = 8 - moveSize
)

// find leaves on the stack: pc, …, the entry's address, …, the state's address, 2 above it. It goes on at `none` with pc and one word if there is none.
func (e *expression) find(runs uint64) {
	e.register(dwarfRIP)
	e.op(dwConst4u, wire.PatchRuns, 0, 0, 0)
	e.label("run") // pc, runs left
	e.op(dwDup)
	e.lit(0)
	e.op(dwEq)
	e.jump(dwBra, "none")
	e.lit(1)
	e.op(dwMinus, dwDup)
	e.lit(8)
	e.op(dwMul)
	e.addr(runs)
	e.op(dwPlus, dwDeref)
	e.op(dwDup)
	e.lit(0)
	e.op(dwEq)
	e.jump(dwBra, "next run")
	e.pick(2)
	e.pick(1)
	e.load(runLo, 8)
	e.op(dwLt)
	e.jump(dwBra, "next run")
	e.pick(2)
	e.pick(1)
	e.load(runHi, 8)
	e.op(dwGe)
	e.jump(dwBra, "next run")
	e.lit(0)
	e.pick(1)
	e.load(runCount, 8)
	e.label("half") // pc, runs left, run, lo, hi
	e.op(dwOver, dwOver, dwGe)
	e.jump(dwBra, "halved")
	e.op(dwOver, dwOver, dwPlus)
	e.lit(1)
	e.op(dwShr, dwDup)
	e.lit(entrySize)
	e.op(dwMul)
	e.pick(4)
	e.op(dwPlus)
	e.add(wire.SizeTrampolineRun)
	e.op(dwDup, dwDeref, dwSwap)
	e.load(entryBytes, 2)
	e.op(dwPlus)
	e.pick(6)
	e.op(dwLe)
	e.jump(dwBra, "upper") // the middle one ends at or below pc
	e.op(dwSwap, dwDrop)
	e.jump(dwSkip, "half")
	e.label("upper")
	e.lit(1)
	e.op(dwPlus, dwRot, dwSwap, dwDrop)
	e.jump(dwSkip, "half")
	e.label("halved")
	e.op(dwDrop, dwDup)
	e.pick(2)
	e.load(runCount, 8)
	e.op(dwGe)
	e.jump(dwBra, "not here")
	e.lit(entrySize)
	e.op(dwMul, dwOver, dwPlus)
	e.add(wire.SizeTrampolineRun)
	e.op(dwDup, dwDeref)
	e.pick(4)
	e.op(dwLe)
	e.jump(dwBra, "found")
	e.label("not here")
	e.op(dwDrop)
	e.label("next run")
	e.op(dwDrop)
	e.jump(dwSkip, "run")
	e.label("found") // pc, runs left, run, entry
	e.pick(3)
	e.pick(1)
	e.load(entryAt, 8)
	e.op(dwMinus)
	e.pick(1)
	e.load(entryStates, 4)
	e.pick(3)
	e.op(dwPlus, dwDup)
	e.pick(3)
	e.load(entryCount, 2)
	e.label("state") // pc, runs left, run, entry, offset, state, next state, states left
	e.op(dwDup)
	e.lit(0)
	e.op(dwEq)
	e.jump(dwBra, "stated")
	e.op(dwOver)
	e.load(stateOff, 2)
	e.pick(4)
	e.op(dwGt)
	e.jump(dwBra, "stated")
	e.lit(1)
	e.op(dwMinus, dwSwap, dwRot, dwSwap, dwDrop) // offset, next state, states left: it is the state now
	e.op(dwOver, dwDup)
	e.load(stateMoves, 4)
	e.lit(moveSize)
	e.op(dwMul, dwPlus)
	e.add(stateSize)
	e.op(dwSwap)
	e.jump(dwSkip, "state")
	e.label("stated")
	e.op(dwDrop, dwDrop)
}

// instruction pushes the program's pc, with the state on top.
func (e *expression) instruction() {
	e.op(dwDup)
	e.load32(statePC)
	e.pick(3)
	e.load(entryAt, 8)
	e.op(dwPlus)
}

// programPC gives the expression for the pc that the program is to be shown.
func programPC(runs uint64) []byte {
	e := newExpression()
	e.find(runs)
	e.instruction()
	e.jump(dwSkip, "end")
	e.label("none")
	e.op(dwDrop)
	e.label("end")
	return e.bytes()
}

// programRegister gives the expression for a register, by its number in instructions, that the program is to be shown. What is kept in the thread's slots cannot be told: expressions have no
// access to fs. Those are registers that recipes write to, of which unwinding needs none but in rare functions.
func programRegister(runs uint64, reg byte) []byte {
	e := newExpression()
	own := dwarfOf[reg]
	e.find(runs)
	e.op(dwDup)
	e.add(stateSize)
	e.op(dwOver)
	e.load(stateMoves, 4)
	e.label("move") // …, entry, offset, state, move, moves left
	e.op(dwDup)
	e.lit(0)
	e.op(dwEq)
	e.jump(dwBra, "none")
	e.op(dwOver)
	e.load(moveReg, 1)
	e.lit(reg)
	e.op(dwEq)
	e.jump(dwBra, "moved")
	e.lit(1)
	e.op(dwMinus, dwSwap)
	e.add(moveSize)
	e.op(dwSwap)
	e.jump(dwSkip, "move")
	e.label("moved")
	e.op(dwDrop, dwDup)
	e.load(moveFrom, 1) // …, state, move, from
	for _, from := range []struct {
		source patch.Source
		name   string
	}{{patch.FromReg, "register"}, {patch.FromStack, "stack"}, {patch.FromSum, "sum"}, {patch.FromFor, "for"}} {
		e.op(dwDup)
		e.lit(byte(from.source))
		e.op(dwEq)
		e.jump(dwBra, from.name)
	}
	e.jump(dwSkip, "none")
	e.label("stack")
	e.op(dwDrop)
	e.load32(moveN)
	e.register(dwarfOf[regRSP])
	e.op(dwPlus, dwDeref)
	e.jump(dwSkip, "end")
	e.label("sum")
	e.op(dwDrop)
	e.load32(moveN)
	e.register(own)
	e.op(dwPlus)
	e.jump(dwSkip, "end")
	e.label("for")
	e.op(dwDrop, dwDrop)
	e.instruction()
	e.jump(dwSkip, "end")
	e.label("register")
	e.op(dwDrop)
	e.load32(moveN)
	for n := range dwarfOf {
		e.op(dwDup)
		e.lit(byte(n))
		e.op(dwEq)
		e.jump(dwBra, fmt.Sprint("register ", n))
	}
	for n, dw := range dwarfOf {
		e.label(fmt.Sprint("register ", n))
		e.register(dw)
		e.jump(dwSkip, "end")
	}
	e.label("none")
	e.register(own)
	e.label("end")
	return e.bytes()
}

// frameRules gives the common information entry of trampolines of a process that has its index at runs.
func frameRules(runs uint64) []byte {
	rules := slices.Clone(rulesElsewhere())
	was, is := binary.LittleEndian.AppendUint64(nil, elsewhere), binary.LittleEndian.AppendUint64(nil, runs)
	for b := rules; ; b = b[len(was):] {
		i := bytes.Index(b, was)
		if i < 0 {
			return rules
		}
		b = b[i:]
		copy(b, is)
	}
}

// elsewhere stands for an index in rulesElsewhere, in which nothing else looks like it: to make the rules takes fifty times as long as to copy them.
const elsewhere = 0xe15ee15e_e15ee15e

var rulesElsewhere = sync.OnceValue(func() []byte { return makeRules(elsewhere) })

func makeRules(runs uint64) []byte {
	le := binary.LittleEndian
	// A common information entry: version 4, augmentation "S" (a signal's frame), addresses of 8 bytes, no segments, factors 1 and -8, return addresses in rip.
	cie := le.AppendUint32(nil, 1<<32-1)
	cie = append(cie, 4, 'S', 0, 8, 0, 1, 0x78, dwarfRIP)
	rule := func(head []byte, e []byte) {
		cie = append(cie, head...)
		cie = binary.AppendUvarint(cie, uint64(len(e)))
		cie = append(cie, e...)
	}
	rule([]byte{dwDefCFAExpression}, programRegister(runs, regRSP))
	rule([]byte{dwValExpression, dwarfRIP}, programPC(runs))
	for reg := range byte(16) {
		if reg != regRSP {
			rule([]byte{dwValExpression, dwarfOf[reg]}, programRegister(runs, reg))
		}
	}
	return appendEntry(nil, cie)
}

// appendEntry appends an entry of call frame information.
func appendEntry(dst, body []byte) []byte {
	for len(body)%8 != 4 {
		body = append(body, 0) // DW_CFA_nop
	}
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(body))), body...)
}

// debugFrame gives a .debug_frame section for trampolines in blocks of memory, with the rules of frameRules.
func debugFrame(rules []byte, blocks []patch.Range) []byte {
	le := binary.LittleEndian
	b := slices.Clone(rules)
	for _, r := range blocks {
		fde := le.AppendUint32(nil, 0) // its entry lies at 0
		fde = le.AppendUint64(fde, r.Lo)
		b = appendEntry(b, le.AppendUint64(fde, r.Hi-r.Lo))
	}
	return b
}
