package pt

import (
	"errors"

	"github.com/ripstop/ripstop/internal/x86"
)

// An Image is the code that ran, as it was mapped.
type Image interface {
	// Code gives bytes from an address on: at least one, at best all up to the end of the mapping; none if nothing is mapped there. They are
	// not changed and must not change. Caches that share an Image call it at the same time.
	Code(addr uint64) []byte
}

// ErrNoCode says that the code that ran is not in the Image.
var ErrNoCode = errors.New("the code that ran is not known")

// maxRun is the most instructions in a block that no branch ends.
const maxRun = 64

// A block is instructions that run one after another, up to and with the first that may go elsewhere.
type block struct {
	start, end uint64
	target     uint64 // of a relative branch at its end
	flow       x86.Flow
	ptwrite    bool     // the last instruction is ptwrite
	err        error    // what comes at end cannot be decoded
	lens       []uint8  // of the instructions
	taken      *block   // at target, when it is known
	next       *block   // at end, likewise
	site       indirect // where it went last time, if the end is indirect
}

type indirect struct {
	to    uint64
	block *block
}

// A Cache keeps decoded code for one Flow after another, but not for several at the same time.
type Cache struct {
	image  Image
	limit  int // of blocks
	blocks map[uint64]*block
	pool   []block
	lens   []uint8
}

// maxBlocks bounds the memory of a Cache to some 200 MB; a full one begins anew.
const maxBlocks = 1 << 20

// NewCache gives an empty cache of an image.
func NewCache(image Image) *Cache {
	return &Cache{image: image, limit: maxBlocks, blocks: map[uint64]*block{}}
}

// at gives the block that begins at an address.
func (c *Cache) at(addr uint64) *block {
	if b := c.blocks[addr]; b != nil {
		return b
	}
	if len(c.blocks) >= c.limit {
		for _, b := range c.blocks { // what is still in use must not keep the others alive
			b.taken, b.next, b.site = nil, nil, indirect{}
		}
		clear(c.blocks)
	}
	if len(c.pool) == 0 {
		c.pool = make([]block, 256)
	}
	b := &c.pool[0]
	c.pool = c.pool[1:]
	c.decode(b, addr)
	c.blocks[addr] = b
	return b
}

// decode fills in a block from the image.
func (c *Cache) decode(b *block, addr uint64) {
	b.start, b.end = addr, addr
	if cap(c.lens)-len(c.lens) < maxRun {
		c.lens = make([]uint8, 0, 64*maxRun)
	}
	first := len(c.lens)
	code := c.image.Code(addr)
	for len(c.lens)-first < maxRun && b.err == nil {
		in, err := c.inst(&code, b.end)
		if err != nil {
			b.err = err
			break
		}
		c.lens = append(c.lens, uint8(in.Len))
		pc := b.end
		b.end += uint64(in.Len)
		if b.ptwrite = in.Op == "ptwrite"; b.ptwrite {
			break
		}
		if b.flow = flowOf(&in); b.flow != x86.FlowNone {
			b.target, _ = in.Target(pc)
			break
		}
	}
	b.lens = c.lens[first:len(c.lens):len(c.lens)]
}

// flowOf gives what the trace tells of an instruction. The processor tells of an aborted transaction as of an interrupt, and of the end of a
// halt not at all; x86 does not count as branches those that only a hypervisor, firmware or a handler of user interrupts has.
func flowOf(in *x86.Inst) x86.Flow {
	switch in.Flow {
	case x86.FlowTransaction, x86.FlowHalt:
		return x86.FlowNone
	case x86.FlowNone:
		switch in.Op {
		case "uiret", "vmlaunch", "vmresume", "rsm":
			return x86.FlowFar
		}
	}
	return in.Flow
}

// inst decodes the instruction at pc, where code begins, and moves code behind it.
func (c *Cache) inst(code *[]byte, pc uint64) (in x86.Inst, err error) {
	if len(*code) == 0 {
		if *code = c.image.Code(pc); len(*code) == 0 {
			return in, ErrNoCode
		}
	}
	in, err = x86.Decode(*code)
	if err == nil {
		*code = (*code)[in.Len:]
		return in, nil
	}
	if err != x86.ErrTruncated {
		return in, err
	}
	// It may lie in two mappings.
	var both [x86.MaxLen]byte
	n := copy(both[:], *code)
	for n < len(both) {
		more := c.image.Code(pc + uint64(n))
		if len(more) == 0 {
			break
		}
		n += copy(both[n:], more)
	}
	if in, err = x86.Decode(both[:n]); err == nil {
		*code = c.image.Code(pc + uint64(in.Len))
	}
	return in, err
}

// split says how many instructions of a block come before an address, and whether one begins there.
func (b *block) split(addr uint64) (n int, ok bool) {
	at := b.start
	for n, l := range b.lens {
		if at == addr {
			return n, true
		}
		at += uint64(l)
	}
	return 0, false
}
