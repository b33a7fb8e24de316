package x86

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// What a breakpoint says is behind the instruction: the one that ends there did it, unless its operand lies elsewhere and a repeated string instruction is on its way; a call's target has none before it.
func TestWriter(t *testing.T) {
	const start, rax, rcx, rdi, rsp = 0x401000, 0, 1, 7, 4
	regs := func(list ...uint64) (r [16]uint64) {
		for i := 0; i < len(list); i += 2 {
			r[list[i]] = list[i+1]
		}
		return r
	}
	for _, c := range []struct {
		name, before, behind string // code up to PC, and from there on; blanks are between instructions
		regs                 [16]uint64
		addr, size           uint64
		want                 string // the instruction; empty: ErrNoWriter
		at                   uint64
	}{
		{"store", "4889e5 8807", "90", regs(rdi, 0x5000), 0x5000, 1, "mov byte ptr [rdi], al", 3},
		{"locked", "f0480137", "90", regs(rdi, 0x5000), 0x5004, 1, "lock add qword ptr [rdi], rsi", 0},
		{"the second half of a vector", "0f110447", "90", regs(rdi, 0x4000, rax, 0x800), 0x5008, 8, "movups ", 0},
		{"beyond the vector", "0f110447", "90", regs(rdi, 0x4000, rax, 0x800), 0x5010, 8, "", 0},
		{"two stores, the first did not trap", "8807 884701", "90", regs(rdi, 0x5000), 0x5001, 1, "mov byte ptr [rdi+0x1], al", 2},
		{"by rip", "c60510000000 07", "90", regs(), start + 7 + 0x10, 1, "mov byte ptr [rip+0x10], 0x7", 0},
		{"a register that it changed", "4887 3f", "90", regs(rdi, 1), 0x5000, 8, "xchg ", 0},
		{"push", "50", "90", regs(rsp, 0x5000), 0x5000, 8, "push rax", 0},
		{"fs", "64890425 28000000", "90", regs(), 0x5000, 4, "mov dword ptr fs:", 0},
		{"one string element", "aa", "90", regs(rdi, 0x5001), 0x5000, 1, "stosb", 0},
		{"a string's end", "f3aa", "90", regs(rdi, 0x5020), 0x5000, 1, "rep stosb", 0},
		{"a string on its way", "4889c1", "f3aa 90", regs(rdi, 0x5001, rcx, 9), 0x5000, 1, "rep stosb", 3},
		{"a string on its way, behind a store elsewhere", "8802", "f348ab 90", regs(rdi, 0x5010, rcx, 9), 0x5008, 8, "rep stosq", 2},
		{"a string on its way down", "fd", "f348a5 90", regs(rdi, 0x4ff8, rcx, 9), 0x5000, 8, "rep movsq", 1},
		{"a store before a string that has not begun", "8807", "f3aa 90", regs(rdi, 0x5000, rcx, 9), 0x5000, 1, "mov byte ptr [rdi], al", 0},
		{"no store", "4889e5", "90", regs(), 0x5000, 8, "", 0},
		{"a load", "8a07", "90", regs(rdi, 0x5000), 0x5000, 1, "", 0},
		{"an address", "488d07", "90", regs(rdi, 0x5000), 0x5000, 1, "", 0},
		{"a call's target", "", "f30f1efa 55", regs(rsp, 0x5000), 0x5000, 8, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, behind := unhex(t, c.before), unhex(t, c.behind)
			trap := Trap{PC: start + uint64(len(before)), Regs: c.regs, Addr: c.addr, Size: c.size}
			at, in, err := trap.Writer(append(before, behind...), start)
			switch {
			case c.want == "":
				if !errors.Is(err, ErrNoWriter) {
					t.Errorf("%#x %v, %v", at, in, err)
				}
			case err != nil:
				t.Error(err)
			case at != start+c.at || !strings.HasPrefix(in.String(), c.want):
				t.Errorf("%s at +%d, want %s at +%d", in, at-start, c.want, c.at)
			}
		})
	}
	// PC is in the middle of an instruction, or not in the code.
	for _, pc := range []uint64{start + 1, start - 1, start + 9} {
		trap := Trap{PC: pc, Addr: 0x5000, Size: 1}
		if _, in, err := trap.Writer(unhex(t, "8847 01"), start); err == nil || errors.Is(err, ErrNoWriter) {
			t.Errorf("%#x: %s, %v", pc, in, err)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whatever the bytes, what is found ends at the trap or lies there, and writes.
func FuzzWriter(f *testing.F) {
	f.Add([]byte{0x88, 0x07, 0xf3, 0xaa}, uint8(2), uint64(0x5000))
	f.Add([]byte{0xc5, 0xf8, 0x11, 0x07}, uint8(4), uint64(0))
	f.Fuzz(func(t *testing.T, code []byte, pc uint8, addr uint64) {
		trap := Trap{PC: 0x1000 + uint64(pc), Addr: addr, Size: 8}
		for i := range trap.Regs {
			trap.Regs[i] = addr
		}
		at, in, err := trap.Writer(code, 0x1000)
		if err != nil {
			return
		}
		writes := false
		for _, m := range in.Mems() {
			writes = writes || m.Access&Write != 0
		}
		if at != trap.PC && at+uint64(in.Len) != trap.PC || !writes {
			t.Errorf("%s at %#x, trap at %#x", in, at, trap.PC)
		}
	})
}
