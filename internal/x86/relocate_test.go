package x86

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// differs says in what two states differ, but for the instruction pointer; "" if in nothing.
func (s *sandbox) differs(a, b *state) string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for i := range 16 {
		if a.gpr[i] != b.gpr[i] {
			add("%v is %#x, not %#x", RAX+Reg(i), b.gpr[i], a.gpr[i])
		}
	}
	if f := Flags(a.flags^b.flags) & flagsSeen; f != 0 {
		add("flags %s", flagText(f))
	}
	if a.fs != b.fs || a.gs != b.gs {
		add("fs or gs")
	}
	if !bytes.Equal(x87(a), x87(b)) {
		add("x87")
	}
	if !bytes.Equal(a.x[24:28], b.x[24:28]) {
		add("mxcsr")
	}
	for i := range 32 {
		for j, piece := range a.vec(s, i) {
			if !bytes.Equal(piece, b.vec(s, i)[j]) {
				add("zmm%d", i)
				break
			}
		}
	}
	if !bytes.Equal(a.x[s.off.mask:s.off.mask+64], b.x[s.off.mask:s.off.mask+64]) {
		add("masks")
	}
	for i := range a.data {
		for j := range a.data[i] {
			if a.data[i][j] != b.data[i][j] {
				add("memory at %#x", dataAt[i]+uint64(j))
				break
			}
		}
	}
	return strings.Join(wrong, "; ")
}

// elsewhere runs the code at another place than the prepared instruction's.
func (s *sandbox) elsewhere(tb testing.TB, st *state, code []byte, at uint64) (*state, unix.Signal) {
	copy(s.far[at-farAt:], code)
	end := at + uint64(len(code))
	s.far[end-farAt] = 0x90 // as in once
	moved := *st
	moved.rip = at
	out, sig := s.run(tb, &moved, 32, func(rip uint64) bool { return rip < at || rip >= end })
	if bytes.HasSuffix(code, []byte{0x0f, 0xa2}) && out.rip == end+1 {
		out.rip = end
	}
	return out, sig
}

// branches are what the libraries may not have: the loops, and near and short forms with idle prefixes.
func branches(tb testing.TB) (list []subject) {
	for _, h := range strings.Fields("e0cd e1cd e2cd e3cd 67e0cd 67e1cd 67e2cd 67e3cd 48e2cd ebcd 3eebcd e910000000 e8cdabffff ffd0 ff11 41ff5308 ff1500010000 " +
		"7ecd 2e7e10 0f8e10000000 f20f84cdffffff 488d0510000000 8d0510000000 67488d0510000000 668d0510000000 488b0510000000 65488b0510000000 67488b0510000000") {
		code, err := hex.DecodeString(h)
		if err != nil {
			tb.Fatal(err)
		}
		in, err := Decode(code)
		if err != nil {
			tb.Fatalf("%s: %v", h, err)
		}
		list = append(list, subject{in: in, code: code})
	}
	return list
}

// An instruction that was relocated does what it does in place: same registers, flags and memory, same successor, same fault. Of each form, from random
// states, most accesses within the pages and some outside.
func TestRelocate(t *testing.T) {
	s := newSandbox(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	n, trials := 1, 1
	if soak {
		n, trials = 3, 8
	}
	ran, changed := 0, 0
	list := subjects(t, n)
	for range 8 {
		list = append(list, branches(t)...)
	}
	for _, sub := range list {
		if refuses(&sub.in) != "" || varies[sub.in.Op] {
			continue
		}
		sub.rip = codeAt + codeSize/2 + rnd.Uint64N(64)
		for range trials {
			var addrs map[int]uint64
			if rnd.IntN(8) == 0 {
				addrs = map[int]uint64{0: dataAt[0] + pageSize + 512}
			}
			p := s.prepare(sub, rnd, addrs, false)
			to := farAt + codeSize/2 + rnd.Uint64N(64)
			got, err := Relocate(nil, &p.in, p.code, p.rip, to, RefuseCalls)
			call := p.in.Flow == FlowCall || p.in.Flow == FlowIndirectCall
			if call {
				if err != ErrCall {
					t.Errorf("% x: %v: error %v, want ErrCall", p.code, p.in, err)
				}
				if got, err = Relocate(nil, &p.in, p.code, p.rip, to, PushReturn); err == ErrCall && p.in.usesRSP() {
					continue
				}
			}
			if err != nil {
				t.Errorf("% x: %v: %v", p.code, p.in, err)
				continue
			}
			here, sig := s.once(t, p)
			if sig == unix.SIGILL {
				continue
			}
			there, sig2 := s.elsewhere(t, p.st, got, to)
			where := there.rip
			switch {
			case sig != unix.SIGTRAP && where == to:
				where = p.rip
			case sig == unix.SIGTRAP && where == to+uint64(len(got)):
				where = p.rip + uint64(p.in.Len)
			}
			if sig != unix.SIGTRAP && call {
				continue
			}
			if sig != sig2 || where != here.rip {
				t.Errorf("% x: %v: in place it ends at %#x (%v), as % x at %#x (%v)", p.code, p.in, here.rip, sig, got, there.rip, sig2)
			}
			if d := s.differs(here, there); d != "" {
				t.Errorf("% x: %v: relocated as % x: %s", p.code, p.in, got, d)
			}
			ran++
			if !bytes.Equal(got, p.code) {
				changed++
			}
		}
	}
	t.Logf("%d instructions relocated and run, %d of them changed", ran, changed)
	if ran < s.least(2000) || changed < 100 {
		t.Errorf("only %d ran, %d of them changed", ran, changed)
	}
}

// What the places decide: reach, a lea that becomes a mov, the return address of a call.
func TestRelocateReach(t *testing.T) {
	const from = 0x7f0000001000
	for _, x := range []struct {
		code  string
		to    uint64
		calls Calls
		want  string
		err   error
	}{
		{"488b0510000000", from + 0x1000, RefuseCalls, "mov rax, qword ptr [rip-0xff0]", nil},
		{"488b0510000000", from + 1<<31 + 0x10, RefuseCalls, "mov rax, qword ptr [rip-0x80000000]", nil},
		{"488b0510000000", from + 1<<31 + 0x11, RefuseCalls, "", ErrReach},
		{"48833d1000000005", from - 1<<30, RefuseCalls, "cmp qword ptr [rip+0x40000010], 0x5", nil},
		{"488d0510000000", from - 1<<40, RefuseCalls, "mov rax, 0x7f0000001017", nil},
		{"8d0510000000", from - 1<<40, RefuseCalls, "mov eax, 0x1016", nil},
		{"678b0510000000", from - 1<<40, RefuseCalls, "mov eax, dword ptr [eip+0x10]", nil},
		{"678b0510000000", from - 1<<40 - 0x5000, RefuseCalls, "mov eax, dword ptr [eip+0x5010]", nil},
		{"ebfe", from + 0x100, RefuseCalls, "jmp .-0x105", nil},
		{"ebfe", from + 1<<33, RefuseCalls, "", ErrReach},
		{"7405", from + 0x100, RefuseCalls, "je .-0xff", nil},
		{"e2fe", from + 0x100, RefuseCalls, "loop .+0x2; jmp .+0x5; jmp .-0x109", nil},
		{"67e3fe", from + 0x100, RefuseCalls, "jecxz .+0x2; jmp .+0x5; jmp .-0x109", nil},
		{"c7f810000000", from + 0x100, RefuseCalls, "xbegin .-0xf0", nil},
		{"e800000000", from + 0x100, RefuseCalls, "", ErrCall},
		{"e800000000", from + 0x100, PushReturn, "push 0x1005; mov dword ptr [rsp+0x4], 0x7f00; jmp .-0x10d", nil},
		{"ffd0", from, PushReturn, "push 0x1002; mov dword ptr [rsp+0x4], 0x7f00; jmp rax", nil},
		{"41ff9310000000", from, PushReturn, "push 0x1007; mov dword ptr [rsp+0x4], 0x7f00; jmp qword ptr [r11+0x10]", nil},
		{"ff542408", from, PushReturn, "", ErrCall},
		{"ffd4", from, PushReturn, "", ErrCall},
		{"ff1d00000000", from, PushReturn, "", ErrCall}, // far
		{"90", from, RefuseCalls, "nop", nil},
	} {
		code, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Decode(code)
		if err != nil {
			t.Fatalf("%s: %v", x.code, err)
		}
		before := []byte{1, 2, 3}
		got, err := Relocate(before, &in, code, from, x.to, x.calls)
		if !errors.Is(err, x.err) || !bytes.Equal(got[:3], before) || err != nil && len(got) != 3 {
			t.Errorf("%v: % x, error %v, want %v", in, got, err, x.err)
			continue
		}
		var texts []string
		for b := got[3:]; len(b) > 0; {
			i, err := Decode(b)
			if err != nil {
				t.Fatalf("%v: % x: %v", in, got, err)
			}
			texts = append(texts, i.String())
			b = b[i.Len:]
		}
		if s := strings.Join(texts, "; "); s != x.want {
			t.Errorf("%v: %s, want %s", in, s, x.want)
		}
	}
}

// Relocating anything gives code or an error: the code is whole instructions, no more than MaxRelocated bytes, with the memory and the targets of the
// original.
func FuzzRelocate(f *testing.F) {
	for _, sub := range branches(f) {
		f.Add(sub.code, uint64(0x401000), uint64(0x10401000))
		f.Add(sub.code, uint64(0x7f0000401000), uint64(0x10401000))
	}
	f.Fuzz(func(t *testing.T, code []byte, from, to uint64) {
		in, err := Decode(code)
		if err != nil {
			return
		}
		if got, err := WithGS(nil, &in, code, from, to); err == nil {
			g, err := Decode(got)
			if err != nil || g.Len != len(got) || g.Op != in.Op || len(g.Mems()) != len(in.Mems()) {
				t.Fatalf("% x: %v: with gs % x: %v, %v", code, in, got, g, err)
			}
			for i := range in.Mems() {
				if (g.Mems()[i].Seg == GS) != in.TakesGS(i) && in.Mems()[i].Seg != GS {
					t.Fatalf("% x: %v: with gs % x: %v", code, in, got, g)
				}
			}
		}
		got, err := Relocate(nil, &in, code, from, to, PushReturn)
		if err != nil {
			if err != ErrReach && err != ErrCall {
				t.Fatalf("% x: %v", code, err)
			}
			return
		}
		if len(got) > MaxRelocated {
			t.Fatalf("% x: %d bytes", code, len(got))
		}
		target, relative := in.Target(from)
		at, found := 0, false
		for at < len(got) {
			i, err := Decode(got[at:])
			if err != nil {
				t.Fatalf("% x: % x: %v", code, got, err)
			}
			if x, ok := i.Target(to + uint64(at)); ok && x == target {
				found = true
			}
			at += i.Len
			if at == len(got) && in.Flow != FlowLoop && len(in.Mems()) > 0 && in.Mems()[0].RIPRelative() && (in.Op != "lea" || i.Op == "lea") {
				x, y := from+uint64(in.Len)+uint64(in.Mems()[0].Disp), to+uint64(at)+uint64(i.Mems()[0].Disp)
				if x != y && (in.Mems()[0].Base != EIP || uint32(x) != uint32(y)) {
					t.Fatalf("% x at %#x: memory at %#x, relocated %#x", code, from, x, y)
				}
			}
		}
		if relative != found {
			t.Fatalf("% x at %#x leads to %#x, relocated % x at %#x does not", code, from, target, got, to)
		}
	})
}
