package pmu

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/ripstop/ripstop/internal/x86"
)

// stateAt is a thread of this process at some code.
func stateAt(code []byte) *state {
	s := &state{pid: os.Getpid(), ip: uint64(uintptr(unsafe.Pointer(&code[0])))}
	s.regs[3], s.regs[1], s.regs[4] = 0x7000_0000_0000, 16, 0x7fff_0000_0000
	return s
}

// The addresses that a thread is about to access are found in its code, registers, stack and memory, where they tell them. Once, while only the
// next instructions were looked at and not run, no breakpoint was ever hit on a machine whose interrupts, it seems, all came right behind a loop's access; and once, while what lies on the
// stack was unknown, a function that ended at its ret, nothing behind which was looked at, kept a program of hot functions from being watched at all.
func TestAhead(t *testing.T) {
	const before = 14 // bytes: mov (%rbx),%rax; ret
	const rbx = 0x7000_0000_0000
	var pointer uint64 = 0x7000_0000_1000
	behind := []byte{0x48, 0x8b, 0x43, 0x20, 0xf4} // mov 32(%rbx),%rax; hlt
	at := func(p *byte) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }
	for _, c := range []struct {
		name  string
		code  []byte
		stack []uint64
		rdi   uint64
		want  []uint64
	}{
		{"mov (%rbx),%rax", []byte{0x48, 0x8b, 0x03}, nil, 0, []uint64{rbx}},
		{"add %eax,8(%rbx,%rcx,4)", []byte{0x01, 0x44, 0x8b, 0x08}, nil, 0, []uint64{rbx + 0x48}},
		{"inc %rdx; mov (%rbx),%rax", []byte{0x48, 0xff, 0xc2, 0x48, 0x8b, 0x03}, nil, 0, []uint64{rbx}},
		{"inc %rbx; mov (%rbx),%rax", []byte{0x48, 0xff, 0xc3, 0x48, 0x8b, 0x03, 0xf4}, nil, 0, []uint64{rbx + 1}},
		{"two", []byte{0x48, 0x8b, 0x03, 0x48, 0x8b, 0x43, 0x08}, nil, 0, []uint64{rbx, rbx + 8}},
		{"inc %edx; jmp back", []byte{0xff, 0xc2, 0xeb, 0xfc}, nil, 0, nil}, // once, BUG: a slice out of bounds
		{"jmp to the code before", []byte{0xeb, 0xf0}, nil, 0, []uint64{rbx}},
		{"jmp over nop; mov (%rbx),%rax", []byte{0xeb, 0x01, 0x90, 0x48, 0x8b, 0x03}, nil, 0, []uint64{rbx}},
		{"mov (%rsp),%rcx; mov (%rcx),%rax", []byte{0x48, 0x8b, 0x0c, 0x24, 0x48, 0x8b, 0x01}, nil, 0, nil},
		{"the same with a stack", []byte{0x48, 0x8b, 0x0c, 0x24, 0x48, 0x8b, 0x01}, []uint64{0x7000_0000_2000}, 0, []uint64{0x7000_0000_2000}},
		{"push %rax; ret", []byte{0x50, 0xc3}, nil, 0, nil},
		{"mov 8(%rsp),%rax; ret", []byte{0x48, 0x8b, 0x44, 0x24, 0x08, 0xc3}, nil, 0, nil},
		{"ret", []byte{0xc3}, []uint64{at(&behind[0])}, 0, []uint64{rbx + 32}},
		{"jmp .; mov (%rbx),%rax", []byte{0xeb, 0xfe, 0x48, 0x8b, 0x03}, nil, 0, nil},
		{"lea (%rbx),%rax; hlt", []byte{0x48, 0x8d, 0x03, 0xf4}, nil, 0, nil},
		{"mov %fs:(%rbx),%rax; hlt", []byte{0x64, 0x48, 0x8b, 0x03, 0xf4}, nil, 0, nil},
		{"mov (%rdi),%rax; mov (%rax),%rax", []byte{0x48, 0x8b, 0x07, 0x48, 0x8b, 0x00}, nil, at((*byte)(unsafe.Pointer(&pointer))),
			[]uint64{at((*byte)(unsafe.Pointer(&pointer))), 0x7000_0000_1000}},
		{"call *0(%rip); mov (%rbx),%rax", []byte{0xff, 0x15, 0, 0, 0, 0, 0x48, 0x8b, 0x03, 0xf4}, nil, 0, []uint64{rbx}},
		{"call *0(%rip); mov (%rdi),%rax", []byte{0xff, 0x15, 0, 0, 0, 0, 0x48, 0x8b, 0x07, 0xf4}, nil, rbx, nil},
		{"jmp *0(%rip)", []byte{0xff, 0x25, 0, 0, 0, 0}, []uint64{at(&behind[0])}, 0, []uint64{rbx + 32}},
		{"syscall; mov (%rbx),%rax", []byte{0x0f, 0x05, 0x48, 0x8b, 0x03, 0xf4}, nil, 0, []uint64{rbx}},
		{"syscall; mov (%rcx),%rax", []byte{0x0f, 0x05, 0x48, 0x8b, 0x01, 0xf4}, nil, 0, nil},
	} {
		code := make([]byte, 64)
		copy(code, []byte{0x48, 0x8b, 0x03, 0xf4})
		copy(code[before:], append(c.code, 0xf4))
		s := stateAt(code[before:])
		s.regs[7], s.stack = c.rdi, uint64(8*len(c.stack))
		for i, v := range c.stack {
			binary.LittleEndian.PutUint64(s.bytes[8*i:], v)
		}
		h := newAhead(rand.New(rand.NewPCG(1, 2)))
		var got []uint64
		for _, a := range h.look(s) {
			got = append(got, a.addr)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// Of the accesses of a loop the one that was watched least is watched next: all have their turn, and an instruction outside has it before them.
func TestChoose(t *testing.T) {
	w := newWatchpoints(&timerEvents(1, false)[eventWatchAll].Attr, rand.New(rand.NewPCG(1, 2)))
	loop := []access{{1, 100}, {2, 200}, {3, 300}}
	turns := map[uint64]int{}
	for range 300 {
		a, ok := w.choose(loop, 7)
		if !ok {
			t.Fatal("none of three")
		}
		turns[a.pc]++
		w.taken[place{7, a.pc}]++
	}
	if turns[1] != 100 || turns[2] != 100 || turns[3] != 100 {
		t.Errorf("of 300 turns: %v", turns)
	}
	if a, _ := w.choose(append(loop, access{4, 400}), 7); a.pc != 4 {
		t.Errorf("%v before one that never was", a)
	}
	if _, ok := w.choose(nil, 7); ok {
		t.Error("one of none")
	}
}

// What a look keeps of memory is what was stored to it, whatever the size and place, and else what the process has.
func TestLiveMemory(t *testing.T) {
	data := make([]byte, 4096)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	base := uint64(uintptr(unsafe.Pointer(&data[0])))
	model := slices.Clone(data)
	unknown := make([]bool, len(data))
	m := liveMemory{words: map[uint64]x86.Value{}}
	m.begin(&state{pid: os.Getpid()})
	m.lines = 1 << 20
	for range 20_000 {
		size := 1 + random.IntN(8)
		at := random.IntN(len(data) - 8)
		if random.IntN(2) == 0 {
			v := x86.Exactly(random.Uint64())
			if random.IntN(8) == 0 {
				v = x86.Value{}
			}
			m.Store(base+uint64(at), size, v)
			for i := range size {
				model[at+i], unknown[at+i] = byte(v.Bits>>(8*i)), v.Known == 0
			}
			continue
		}
		got := m.Load(base+uint64(at), size)
		for i := range size {
			known := byte(got.Known >> (8 * i))
			if known != 0 != !unknown[at+i] || known != 0 && (known != 0xff || byte(got.Bits>>(8*i)) != model[at+i]) {
				t.Fatalf("%d bytes at %d: %+v, byte %d is %#x, unknown: %t", size, at, got, i, model[at+i], unknown[at+i])
			}
		}
		if size < 8 && (got.Bits|got.Known)>>(8*size) != 0 {
			t.Fatalf("%d bytes: %+v", size, got)
		}
	}
	if v := m.Load(1<<20, 8); v.Known != 0 {
		t.Errorf("memory that is not there: %+v", v)
	}
}

// What one look ahead costs.
func BenchmarkAhead(b *testing.B) {
	code := []byte{0x48, 0xff, 0xc2, 0x48, 0x81, 0xfa, 0xff, 0xff, 0xff, 0x7f, 0x75, 0xf4} // inc %rdx; cmp; jne back: to the end of what is looked at
	s, h := stateAt(code), newAhead(rand.New(rand.NewPCG(1, 2)))
	for b.Loop() {
		h.look(s)
	}
}
