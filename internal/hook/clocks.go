package hook

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"sort"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// places are where a module reads the processor's clock, and makes system calls itself, past libc: link-time addresses, ascending.
type places struct{ clocks, calls []uint64 }

// placesOf finds them. To make known all instructions of all libraries takes long, and few have one: so of each place that has the bytes it is asked whether the function that frames describe there comes to it.
// What is found is kept.
func placesOf(m *engine.Module) (list places) {
	if m.Kind != engine.Program && m.Kind != engine.Library && m.Kind != engine.Libc {
		return list
	}
	const name = "places"
	if b, ok := m.Hinted(name); ok {
		if list, err := parsePlaces(b); err == nil {
			return list
		}
	}
	list.clocks = find(m, eachClock, len(opRdtscp))
	if m.Kind != engine.Libc { // all of whose calls are sites
		list.calls = find(m, eachCall, len(opSyscall))
	}
	m.Hint(name, appendPlaces(nil, list))
	return list
}

// Clocks gives the instructions at places by which a program, its libraries and libc read the processor's clock: rdtsc and rdtscp.
func Clocks(p *engine.Process, m *engine.Module, places []uint64) (sites []patch.Site) {
	hook, processor := p.Func(wire.PatchFuncClockHook), p.Func(wire.PatchFuncClockProcessorHook)
	if hook == 0 || processor == 0 {
		return nil
	}
	for _, link := range places {
		in, ok := m.Instruction(link + m.Bias)
		r := &clock{at: link + m.Bias, next: link + m.Bias + uint64(in.Inst.Len)}
		switch {
		case !ok:
			continue
		case in.Inst.Op == "rdtsc":
			r.hook = hook
		case in.Inst.Op == "rdtscp":
			r.hook = processor
		default:
			continue
		}
		sites = append(sites, patch.Site{At: r.at, Recipe: r})
	}
	return sites
}

// find gives the places, link-time addresses, ascending. each calls f with the offsets at which there are such bytes, of which the longest has as many as it says.
func find(m *engine.Module, each func(code []byte, f func(int)), longest int) (places []uint64) {
	var starts starts
	for _, s := range m.Image.Segments() {
		if s.Flags&elf.PF_X == 0 {
			continue
		}
		const piece = 256 << 10
		for lo := uint64(0); lo < s.FileSize; lo += piece {
			each(m.Image.Bytes(s.Addr+lo, min(piece+uint64(longest)-1, s.FileSize-lo)), func(i int) {
				if at := s.Addr + lo + uint64(i); i < piece && starts.of(m).begins(m, at) {
					places = append(places, at)
				}
			})
		}
	}
	return places
}

var opRdtsc, opRdtscp = []byte{0x0f, 0x31}, []byte{0x0f, 0x01, 0xf9}

// eachClock calls f with each offset, ascending, at which there are the bytes of one of the two.
func eachClock(code []byte, f func(int)) {
	find := func(op []byte, from int) int {
		if i := bytes.Index(code[from:], op); i >= 0 {
			return from + i
		}
		return len(code)
	}
	for a, b := find(opRdtsc, 0), find(opRdtscp, 0); ; {
		switch {
		case a < b:
			f(a)
			a = find(opRdtsc, a+1)
		case b < len(code):
			f(b)
			b = find(opRdtscp, b+1)
		default:
			return
		}
	}
}

// starts is the table by which unwinders find the frames of an address (.eh_frame_hdr): 32-bit distances from the table's header, of functions and of their frames, sorted.
type starts struct {
	read  bool
	base  uint64
	table []byte
}

const startSize = 8

// of gives it, read once; an empty one if the table is of another kind.
func (s *starts) of(m *engine.Module) *starts {
	if s.read {
		return s
	}
	addr, size, _ := m.Image.Program(elf.PT_GNU_EH_FRAME)
	*s = parseStarts(addr, m.Image.Bytes(addr, size))
	return s
}

// parseStarts takes any bytes, which lie at a link-time address.
func parseStarts(addr uint64, b []byte) starts {
	s := starts{read: true}
	const version, sdata4, udata4, datarel, pcrel = 1, 0x0b, 0x03, 0x30, 0x10
	if len(b) < 12 || b[0] != version || b[1] != pcrel|sdata4 || b[2] != udata4 || b[3] != datarel|sdata4 {
		return s
	}
	n := uint64(binary.LittleEndian.Uint32(b[8:]))
	if b = b[12:]; n <= uint64(len(b))/startSize {
		s.base, s.table = addr, b[:n*startSize]
	}
	return s
}

func (s *starts) at(i int) uint64 {
	return s.base + uint64(int64(int32(binary.LittleEndian.Uint32(s.table[i*startSize:]))))
}

// function gives the beginning of the function that an address lies in; false: none is known, or it is far away.
func (s *starts) function(at uint64) (uint64, bool) {
	const longest = 64 << 10 // what is longer are tables, or many functions of an assembler's
	i := sort.Search(len(s.table)/startSize, func(i int) bool { return s.at(i) > at }) - 1
	if i < 0 || at-s.at(i) > longest {
		return 0, false
	}
	return s.at(i), true
}

// begins says whether an instruction of the function that a link-time address lies in begins there, read from the function's beginning.
func (s *starts) begins(m *engine.Module, at uint64) bool {
	begin, ok := s.function(at)
	if !ok {
		return false
	}
	code := m.Image.Bytes(begin, at-begin)
	for len(code) > 0 {
		in, err := x86.Decode(code)
		if err != nil {
			return false
		}
		code = code[in.Len:]
	}
	return true
}

// clock calls the agent's hook (internal/agent/c/guardclock.c), below the red zone. The hook leaves rax, rdx and, of rdtscp, rcx as the instruction does, and keeps all else.
type clock struct {
	at, next uint64
	hook     uint64
}

// Replaces says that the site's own instruction is not copied.
func (*clock) Replaces() bool { return true }

// Spare says that the process is well without it.
func (*clock) Spare() {}

// Size is the most bytes that Append appends: two lea of rsp, an address, a call.
func (*clock) Size() int { return 5 + 10 + 2 + 8 }

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (r *clock) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	c := x86.Code{At: at}
	var states []patch.State
	state := func(for_ uint64, down int) {
		s := patch.State{Off: len(c.Bytes), For: for_, Resume: patch.Restart}
		if down > 0 {
			s.Moves = []patch.Move{{Reg: uint8(x86.RSP.Num()), From: patch.FromSum, N: int32(down)}}
		}
		states = append(states, s)
	}
	rsp := func(n int64) x86.Mem { return x86.Mem{Base: x86.RSP, Scale: 1, Disp: n, Size: 8} }
	state(r.at, 0)
	c.Lea(x86.RSP, rsp(-redZone))
	state(r.at, redZone)
	c.MovImm(x86.RAX, r.hook) // which the instruction writes
	state(r.at, redZone)
	c.CallReg(x86.RAX)
	state(r.next, redZone)
	c.Lea(x86.RSP, rsp(redZone))
	return append(dst, c.Bytes...), states, c.Err()
}
