package pmu

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/x86"
)

const (
	lookahead   = 1024 // instructions behind a sample: to the end of an inner loop and some way beyond
	mostDecoded = 1 << 14
	mostLines   = 32 // of the program's memory that one look reads
	mostFound   = 64 // accesses
	stackAbove  = 64 << 10
)

// A state is what a sample of the clock says of a thread.
type state struct {
	pid   int
	ip    uint64
	flags uint64
	regs  [16]uint64 // by number in instructions
	stack uint64     // how many bytes of the stack there are, from rsp on
	bytes [stackBytes]byte
}

// An access is one that a thread is about to make.
type access struct{ pc, addr uint64 }

// An ahead runs the code behind samples to find what it is about to access. What it finds are places for breakpoints and nothing else: one that is wrong
// is not hit. So it may guess.
type ahead struct {
	random *rand.Rand
	known  map[place]*instruction // that were met. One that is another by now gives an address that nobody accesses, no more
	memory liveMemory
	found  []access
}

type instruction struct {
	op       *x86.Op
	flow     x86.Flow
	target   uint64
	imported bool         // a jump or call by an entry of the module's table of imports (PLT)
	next     *instruction // that came next when it was last met
	nextPC   uint64
}

func newAhead(random *rand.Rand) ahead {
	return ahead{random: random, known: map[place]*instruction{}, memory: liveMemory{words: map[uint64]x86.Value{}}}
}

// look gives accesses that the thread makes behind the sample or made a moment ago, to memory that is not its stack: the code is run from the sample's registers on, with the
// sample's bytes of the stack and else the process's memory as it is now. Interrupts do not come everywhere with the same chance (some processors and hypervisors take them at
// few instructions of a loop), so that the sampled instruction alone would often tell nothing. Calls to other modules are passed over, as are
// system calls; of a branch that depends on what is not known either way is taken. What is given holds until the next look.
func (h *ahead) look(s *state) []access {
	if len(h.known) > mostDecoded {
		clear(h.known)
	}
	h.found = h.found[:0]
	h.memory.begin(s)
	e := x86.Emulator{Mem: &h.memory}
	for i, v := range s.regs {
		e.GPR[i] = x86.Exactly(v)
	}
	e.Flags, e.FlagsKnown = x86.Flags(s.flags)&(x86.FlagsArith|x86.DF), x86.FlagsArith|x86.DF
	var code window
	pc := s.ip
	var last *instruction
	for range lookahead {
		var in *instruction
		if last != nil && last.next != nil && last.nextPC == pc {
			in = last.next
		} else if in = h.instruction(s.pid, pc, &code); in == nil {
			break
		}
		if last != nil {
			last.next, last.nextPC = in, pc
		}
		last = in
		if in.imported {
			if in.flow == x86.FlowIndirectJump {
				back := e.Mem.Load(e.GPR[4].Bits, 8)
				if !e.GPR[4].Whole() || !back.Whole() {
					break
				}
				e.GPR[4].Bits += 8
				pc = back.Bits
			} else {
				pc += uint64(in.op.Len())
			}
			called(&e)
			continue
		}
		next, certain := e.Exec(in.op, pc)
		for _, a := range e.Accesses {
			const strange = x86.MemStack | x86.MemGather | x86.MemScatter | x86.MemMasked | x86.MemState | x86.MemBit
			if a.Known && a.Count != 0 && a.Kind&strange == 0 && a.Addr>>47 == 0 && a.Addr >= 1<<16 && a.Addr-s.regs[4]+128 > stackAbove+128 {
				h.find(access{pc, a.Addr})
			}
		}
		switch {
		case len(h.found) >= mostFound:
			return h.found
		case certain && in.flow != x86.FlowSyscall:
		case in.flow == x86.FlowSyscall:
			next = pc + uint64(in.op.Len())
		case in.flow == x86.FlowCond || in.flow == x86.FlowLoop:
			if next = pc + uint64(in.op.Len()); h.random.IntN(2) == 0 {
				next = in.target
			}
		default:
			return h.found
		}
		pc = next
	}
	return h.found
}

// find notes an access, of each instruction the first.
func (h *ahead) find(a access) {
	for i := range h.found {
		if h.found[i].pc == a.pc {
			return
		}
	}
	h.found = append(h.found, a)
}

// called makes unknown what a function may change (System V ABI for x86-64, 3.2.1).
func called(e *x86.Emulator) {
	for _, r := range [...]int{0, 1, 2, 6, 7, 8, 9, 10, 11} {
		e.GPR[r] = x86.Value{}
	}
	e.FlagsKnown = 0
}

// A window is some of a process's code, read at once.
type window struct {
	begin uint64
	bytes []byte
	room  [256]byte
}

// instruction gives the one at an address; nil if there is none.
func (h *ahead) instruction(pid int, pc uint64, w *window) *instruction {
	if in := h.known[place{pid, pc}]; in != nil {
		return in
	}
	if off := pc - w.begin; off+x86.MaxLen > uint64(len(w.bytes)) || off > uint64(len(w.bytes)) {
		n, _ := tracee.Memory(pid).ReadAt(w.room[:], int64(pc))
		w.begin, w.bytes = pc, w.room[:n]
	}
	d, err := x86.Decode(w.bytes[pc-w.begin:])
	if err != nil {
		return nil
	}
	in := &instruction{op: x86.Bind(&d), flow: d.Flow}
	in.target, _ = d.Target(pc)
	if d.Flow == x86.FlowIndirectJump || d.Flow == x86.FlowIndirectCall {
		for _, m := range d.Mems() {
			in.imported = in.imported || m.RIPRelative()
		}
	}
	h.known[place{pid, pc}] = in
	return in
}

// A liveMemory is a process's memory as a look sees it: what the look itself stored, the sample's bytes of the stack, and what lies in the process now, which other
// threads and the thread itself may have changed since. What is forgotten is so where it was seen alone: it is x86.Memory for guesses only.
type liveMemory struct {
	pid   int
	words map[uint64]x86.Value // by address / 8
	lines int                  // that may still be read
}

const lineSize = 64

func (m *liveMemory) begin(s *state) {
	clear(m.words)
	m.pid, m.lines = s.pid, mostLines
	for i := uint64(0); s.regs[4]%8 == 0 && i+8 <= s.stack; i += 8 { // rsp is a multiple of 8 but in the strangest of code
		m.words[(s.regs[4]+i)/8] = x86.Exactly(binary.LittleEndian.Uint64(s.bytes[i:]))
	}
}

// word gives the aligned word that has an address, from the process if it is not known yet.
func (m *liveMemory) word(addr uint64) x86.Value {
	n := addr / 8
	v, ok := m.words[n]
	if ok || m.lines == 0 {
		return v
	}
	m.lines--
	var line [lineSize]byte
	from := addr &^ (lineSize - 1)
	size, _ := tracee.Memory(m.pid).ReadAt(line[:], int64(from))
	for i := range uint64(lineSize / 8) {
		if _, ok := m.words[from/8+i]; ok {
			continue
		}
		m.words[from/8+i] = x86.Value{}
		if 8*i+8 <= uint64(size) {
			m.words[from/8+i] = x86.Exactly(binary.LittleEndian.Uint64(line[8*i:]))
		}
	}
	return m.words[n]
}

// Load is x86.Memory's.
func (m *liveMemory) Load(addr uint64, size int) x86.Value {
	shift := addr % 8 * 8
	v := m.word(addr)
	v.Bits, v.Known = v.Bits>>shift, v.Known>>shift
	if shift != 0 && addr%8+uint64(size) > 8 {
		over := m.word(addr + 7)
		v.Bits, v.Known = v.Bits|over.Bits<<(64-shift), v.Known|over.Known<<(64-shift)
	}
	mask := ^uint64(0) >> (64 - 8*uint(size))
	known := v.Known & mask
	return x86.Value{Bits: v.Bits & known, Known: known}
}

// Store is x86.Memory's.
func (m *liveMemory) Store(addr uint64, size int, v x86.Value) {
	mask := ^uint64(0) >> (64 - 8*uint(size))
	put := func(n, mask, bits, known uint64) {
		w, ok := m.words[n]
		if !ok && mask != ^uint64(0) {
			w = m.word(n * 8)
		}
		m.words[n] = x86.Value{Bits: w.Bits&^mask | bits&known&mask, Known: w.Known&^mask | known&mask}
	}
	shift := addr % 8 * 8
	put(addr/8, mask<<shift, v.Bits<<shift, v.Known<<shift)
	if shift != 0 && addr%8+uint64(size) > 8 {
		put(addr/8+1, mask>>(64-shift), v.Bits>>(64-shift), v.Known>>(64-shift))
	}
}

// Forget is x86.Memory's.
func (m *liveMemory) Forget(addr, size uint64) {
	for ; size > 0 && size <= lineSize; addr, size = addr+1, size-1 {
		m.Store(addr, 1, x86.Value{})
	}
}

// ForgetAll is x86.Memory's, after a store to where is not known, a system call: what was stored is right oftener than not.
func (m *liveMemory) ForgetAll() {}
