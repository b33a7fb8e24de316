package count

import (
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// A site is the recipe of one instruction. There may be millions: it holds next to nothing, and has its code made whenever it is asked for.
type site struct {
	c    *cells
	i    uint32 // of the instruction in c.insts
	size uint16
}

func (s *site) compile() (*recipe.Code, error) {
	in, ok := s.c.module.Instruction(s.c.insts[s.i].Addr + s.c.module.Bias)
	if !ok {
		panic("BUG: count: an instruction is not known any more")
	}
	return s.c.compile(int(s.i), &in)
}

// compile makes the code that counts instruction i.
func (c *cells) compile(i int, in *engine.Insn) (*recipe.Code, error) {
	ops := []recipe.Op{recipe.Count{Cell: c.addr + 8*uint64(i), Of: recipe.Shared}}
	return recipe.Compile(ops, recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}, c.lives[i], c.env)
}

// Size is described at patch.Recipe, as are the others.
func (s *site) Size() int { return int(s.size) }

// Replaces says no: the instruction runs as it is.
func (s *site) Replaces() bool { return false }

// Append makes the code anew.
func (s *site) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	code, err := s.compile()
	if err != nil {
		return dst, nil, err
	}
	return code.Append(dst, at)
}

// A liveness tells what is live before instructions that are asked for by address.
type liveness struct {
	assume x86.Assume
	sets   map[uint64]x86.Live // of the block that was looked at last
	ends   uint64              // what is before it is known as well as can be
}

// lookahead is how many instructions are looked at, at most: nearly all that is dead is overwritten sooner.
const lookahead = 32

// before gives what is live before an instruction. Of a block each instruction is looked at once, but near its end.
func (l *liveness) before(in *engine.Insn) x86.Live {
	if live, ok := l.sets[in.At]; ok && in.At < l.ends {
		return live
	}
	block := x86.Block(in.Code, lookahead)
	sets := x86.Liveness(block, l.assume)
	if l.sets == nil {
		l.sets = map[uint64]x86.Live{}
	}
	clear(l.sets)
	at := in.At
	l.ends = at + 1
	for i := range block {
		l.sets[at] = sets[i]
		// A block that was cut has nothing to say of its last instructions.
		if len(block) < lookahead || i < lookahead/2 {
			l.ends = at + 1
		}
		at += uint64(block[i].Len)
	}
	return sets[0]
}
