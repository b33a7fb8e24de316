package recover

import (
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/x86"
)

// A Constant is memory that never changes while the code that reads it is mapped: a read-only section of the same module.
type Constant struct {
	CodeStart, CodeEnd uint64 // of the module's code
	Addr               uint64
	Bytes              []byte
}

// An inst is an instruction as replay needs it: what each pass looks at lies in one line of the cache.
type inst struct {
	op     *x86.Op
	pc     uint64
	consts *[]Constant        // that its module reads
	mems   *[maxSlots]x86.Mem // of the slots
	behind int32              // index of the one behind it in memory; 0: not looked for
	taken  int32              // index of one that was gone to from here last; 0: none
	slots  [maxSlots]slot
	writes uint16 // general registers, a bit each
	traits traits
	nslots uint8
	length uint8
}

// next is the address of the one behind it in memory.
func (in *inst) next() uint64 { return in.pc + uint64(in.length) }

// The most accesses of an instruction.
const maxSlots = 2

// A slot is one access that an instruction makes, in the order of Emulator.Accesses.
type slot struct {
	size  uint16
	flags Flags
	path  bool // the address does not depend on registers
	vague bool // what is touched depends on a mask or on the processor
}

type traits uint16

const (
	isBranch   traits = 1 << iota // control may go elsewhere
	isCall                        //
	isSyscall                     //
	isRepeated                    // a string instruction with a rep prefix
	isCounted                     // and it ends only when rcx is 0
	takesSP                       // it makes a pointer of rsp
	takesBP                       // likewise of rbp
	lowersSP                      // it may make rsp lower as frames grow
	unwinds                       // it moves rsp by an amount that is part of it
	isLocked                      // atomic, or a fence
	setsFS                        // it may change fs
	isOutside                     // it is not the program's own; see Image
	isEntry                       // it begins one of Image.Functions that is outside
	isMarker                      // endbr64
)

// code is the instructions of one image, as they were met.
type code struct {
	image     pt.Image
	consts    []Constant
	outside   []Range
	functions map[uint64]*Function
	index     map[uint64]int32
	insts     []inst
	flow      *pt.Cache
	sets      []*[]Constant // that instructions share
	found     []Constant    // memory of constants
}

func newCode(image *Image) *code {
	return &code{image: image.Image, consts: image.Constants, outside: image.Outside, functions: image.Functions, index: map[uint64]int32{}, flow: pt.NewCache(image.Image)}
}

var noMems [maxSlots]x86.Mem

// maxInsts bounds the memory of a code to some 200 MB; a full one begins anew.
const maxInsts = 1 << 19

// trim begins anew if there is too much. Indexes from before are void.
func (c *code) trim() {
	if len(c.insts) > maxInsts {
		clear(c.index)
		c.insts = c.insts[:0]
	}
}

// at gives the index of the instruction at an address; false if there is none that can be decoded.
func (c *code) at(pc uint64) (int32, bool) {
	if i, ok := c.index[pc]; ok {
		return i, true
	}
	b := c.image.Code(pc)
	in, err := x86.Decode(b)
	if err == x86.ErrTruncated { // it may lie in two mappings
		b = append(make([]byte, 0, 2*x86.MaxLen), b...)
		for len(b) < x86.MaxLen {
			more := c.image.Code(pc + uint64(len(b)))
			if len(more) == 0 {
				break
			}
			b = append(b, more[:min(len(more), x86.MaxLen)]...)
		}
		in, err = x86.Decode(b)
	}
	if err != nil {
		return 0, false
	}
	i := int32(len(c.insts))
	c.insts = append(c.insts, c.bind(&in, pc))
	c.index[pc] = i
	return i, true
}

// behind is at for an address behind the instruction with index i, which then remembers it; -1: none.
func (c *code) behind(i int32, pc uint64) (int32, bool) {
	if i < 0 {
		return c.at(pc)
	}
	if k := c.insts[i].behind; k != 0 {
		return k, true
	}
	k, ok := c.at(pc)
	if ok {
		c.insts[i].behind = k // never 0 where it matters: that is the first one met
	}
	return k, ok
}

// jump is at for an address that was gone to from the instruction with index i, which then remembers it; -1: none.
func (c *code) jump(i int32, pc uint64) (int32, bool) {
	if i < 0 {
		return c.at(pc)
	}
	if k := c.insts[i].taken; k != 0 && c.insts[k].pc == pc {
		return k, true
	}
	k, ok := c.at(pc)
	if ok {
		c.insts[i].taken = k
	}
	return k, ok
}

// constants gives those that the module of an instruction reads.
func (c *code) constants(pc uint64) *[]Constant {
	all := c.found[:0]
	for _, k := range c.consts {
		if pc >= k.CodeStart && pc < k.CodeEnd {
			all = append(all, k)
		}
	}
	c.found = all
	for _, s := range c.sets {
		if slices.EqualFunc(*s, all, func(a, b Constant) bool {
			return a.Addr == b.Addr && a.CodeStart == b.CodeStart && len(a.Bytes) == len(b.Bytes)
		}) {
			return s
		}
	}
	set := slices.Clone(all)
	c.sets = append(c.sets, &set)
	return &set
}

func (c *code) bind(in *x86.Inst, pc uint64) inst {
	x := inst{op: x86.Bind(in), pc: pc, length: uint8(in.Len), consts: c.constants(pc), mems: &noMems, writes: uint16(in.Writes & x86.SetGPR), traits: traitsOf(in)}
	if within(c.outside, pc) {
		if x.traits |= isOutside; c.functions[pc] != nil {
			x.traits |= isEntry
		}
	}
	for _, first := range []bool{true, false} { // the Emulator's order
		for _, m := range in.Mems() {
			if m.Kind&(x86.MemAddress|x86.MemHint) != 0 || (m.Access == x86.Read) != first {
				continue
			}
			x.slots[x.nslots] = slot{
				size: m.Size, flags: flagsOf(&m),
				path:  m.Index == x86.NoReg && (m.Base == x86.NoReg || m.RIPRelative()) && m.Seg != x86.FS && m.Seg != x86.GS && m.Kind&x86.MemBit == 0,
				vague: m.Kind&(x86.MemGather|x86.MemScatter|x86.MemMasked) != 0 || m.Size == 0,
			}
			if x.nslots == 0 {
				x.mems = new([maxSlots]x86.Mem)
			}
			x.mems[x.nslots] = m
			x.nslots++
			if m.Kind&x86.MemString != 0 && (in.Rep || in.Repne) {
				x.traits |= isRepeated
			}
			if m.Kind&x86.MemLocked != 0 {
				x.traits |= isLocked
			}
		}
	}
	if x.traits&isRepeated != 0 && !strings.HasPrefix(in.Op, "cmps") && !strings.HasPrefix(in.Op, "scas") {
		x.traits |= isCounted
	}
	return x
}

// branches are the kinds of flow that end a basic block.
var branches = map[x86.Flow]traits{
	x86.FlowJump: isBranch, x86.FlowCond: isBranch, x86.FlowLoop: isBranch, x86.FlowCall: isBranch | isCall, x86.FlowRet: isBranch, x86.FlowIndirectJump: isBranch,
	x86.FlowIndirectCall: isBranch | isCall, x86.FlowFar: isBranch | setsFS, x86.FlowSyscall: isBranch | isSyscall, x86.FlowTrap: isBranch, x86.FlowHalt: isBranch,
	x86.FlowTransaction: isBranch,
}

func traitsOf(in *x86.Inst) traits {
	t := branches[in.Flow]
	const sp, bp = 4, 5
	isReg := func(a x86.Arg, n int) bool {
		return a.Kind == x86.ArgReg && a.Reg.Class() == x86.ClassGPR && a.Reg.Num() == n
	}
	args := in.Args()
	toSP := len(args) > 0 && isReg(args[0], sp) && args[0].Access&x86.Write != 0
	toBP := len(args) > 0 && isReg(args[0], bp) && args[0].Access&x86.Write != 0
	switch in.Op {
	case "push", "pushf", "pushfq", "call":
		t |= lowersSP | unwinds
	case "pop", "popf", "popfq", "ret":
		t |= unwinds
	case "enter":
		t |= lowersSP
	case "sub", "and", "add":
		if toSP {
			t |= lowersSP
			if len(args) > 1 && args[1].Kind == x86.ArgImm && in.Op != "and" {
				t |= unwinds
			}
		}
	case "endbr64":
		t |= isMarker
	case "lfence", "mfence", "sfence":
		t |= isLocked
	case "wrfsbase":
		t |= setsFS
	}
	switch in.Op {
	case "cmp", "test":
		return t
	case "lea":
		m := &in.Mems()[0]
		if m.Base.Class() == x86.ClassGPR && m.Base.Num() == sp {
			if toSP {
				t |= lowersSP
			} else {
				t |= takesSP
			}
		}
		for _, r := range []x86.Reg{m.Base, m.Index} {
			if r.Class() == x86.ClassGPR && r.Num() == bp && !toSP {
				t |= takesBP
			}
		}
		return t
	}
	for _, a := range args {
		if a.Access&x86.Read == 0 {
			continue
		}
		if isReg(a, sp) && !toSP && !(in.Op == "mov" && toBP) {
			t |= takesSP
		}
		if isReg(a, bp) && !toSP && in.Op != "push" {
			t |= takesBP
		}
	}
	return t
}
