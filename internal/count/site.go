package count

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// A site is the recipe of one instruction. There may be millions: it holds next to nothing.
type site struct {
	c    *cells
	i    uint32 // of the instruction in c.insts
	form uint32 // of its code in c.forms
}

// A form is the code that counts, but for the cell: it depends on what is live alone, so that a few dozen do for millions of sites.
type form struct {
	code   []byte
	cell   int // where in it the cell's address lies, in four bytes
	states []patch.State
}

// A need is what of an instruction and what is live before it makes a difference to its code.
type need struct {
	flags x86.Flags // live arithmetic flags
	rax   bool      // rax is live
}

func needOf(in *x86.Inst, live x86.Live) need {
	regs := live.Regs | in.Reads
	for _, m := range in.Mems() {
		regs |= m.Base.Set() | m.Index.Set()
	}
	return need{(live.Flags | in.FlagsRead) & x86.FlagsArith, regs.Has(x86.RAX)}
}

// anyCell stands for the cell in code that is made to be a form: an address below 2 GiB, as all cells have, whose bytes are in no other place of the code.
const anyCell = 0x7a6b5c48

// far is an address from which no cell is near: relative to the place code would be a byte shorter, and good for one place.
const far = 1 << 46

// makeForm makes the code of an instruction, and so of all that need the same.
func makeForm(in *engine.Insn, live x86.Live, env recipe.Env) (f form, err error) {
	ops := []recipe.Op{recipe.Count{Cell: anyCell, Of: recipe.Shared}}
	code, err := recipe.Compile(ops, recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}, live, env)
	if err != nil {
		return f, cmp.Or(errors.Unwrap(err), err) // without the one instruction
	}
	if f.code, f.states, err = code.Append(nil, far); err != nil {
		return f, err
	}
	cell := binary.LittleEndian.AppendUint32(nil, anyCell)
	f.cell = bytes.Index(f.code, cell)
	if f.cell < 0 || bytes.Count(f.code, cell) != 1 {
		panic(fmt.Sprintf("BUG: count: no cell in % x", f.code))
	}
	return f, nil
}

// Size is described at patch.Recipe, as are the others.
func (s *site) Size() int { return len(s.c.forms[s.form].code) }

// Replaces says no: the instruction runs as it is.
func (s *site) Replaces() bool { return false }

// Append copies the code. The states are valid until it is called for another instruction of the module.
func (s *site) Append(dst []byte, _ uint64) ([]byte, []patch.State, error) {
	f := &s.c.forms[s.form]
	from := len(dst)
	dst = append(dst, f.code...)
	binary.LittleEndian.PutUint32(dst[from+f.cell:], uint32(s.c.addr+8*uint64(s.i)))
	s.c.states = append(s.c.states[:0], f.states...)
	for i := range s.c.states {
		s.c.states[i].For = s.c.insts[s.i].Addr + s.c.bias
	}
	return dst, s.c.states, nil
}

// A window holds the instructions of a block that follow each other, so that what is live before them is found with one look at each.
type window struct {
	assume x86.Assume
	insns  []engine.Insn
	block  []x86.Inst
	ready  func(*engine.Insn, x86.Live)
}

// lookahead is how many instructions are looked at, at least: nearly all that is dead is overwritten sooner.
const lookahead = 32

// add takes the next instruction.
func (w *window) add(in *engine.Insn) {
	if n := len(w.insns); n > 0 && w.insns[n-1].At+uint64(w.block[n-1].Len) != in.At {
		w.flush(n)
	}
	w.insns = append(w.insns, engine.Insn{At: in.At, Code: in.Code})
	w.block = append(w.block, in.Inst)
	if n := len(w.insns); in.Inst.Flow != x86.FlowNone {
		w.flush(n)
	} else if n == 2*lookahead {
		w.flush(lookahead)
	}
}

// flush tells what is live before the first n instructions, behind which nothing is known.
func (w *window) flush(n int) {
	if n == 0 {
		return
	}
	sets := x86.Liveness(w.block, w.assume)
	for i := range n {
		w.insns[i].Inst = w.block[i]
		w.ready(&w.insns[i], sets[i])
	}
	w.insns = append(w.insns[:0], w.insns[n:]...)
	w.block = append(w.block[:0], w.block[n:]...)
}
