package x86

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// decoded gives the instruction of the bytes.
func decoded(tb testing.TB, code string) Inst {
	tb.Helper()
	b, err := hex.DecodeString(code)
	if err != nil {
		tb.Fatal(err)
	}
	in, err := Decode(b)
	if err != nil {
		tb.Fatalf("%s: %v", code, err)
	}
	return in
}

// What is known of the state before from all of the registers, and no memory, after it. That it is right TestEmulateAgainstProcessor proves.
func TestReverseKnows(t *testing.T) {
	all := ^uint64(0)
	for _, x := range []struct {
		code  string // and what it is
		reg   Reg
		known uint64
	}{
		{"4801c8", RAX, all},                // add rax, rcx
		{"01c8", RAX, all >> 32},            // add eax, ecx
		{"00c8", RAX, all},                  // add al, cl
		{"4801c0", RAX, all >> 1},           // add rax, rax
		{"480301", RAX, 0},                  // add rax, [rcx]
		{"4883c008", RAX, all},              // add rax, 8
		{"4829c8", RAX, all},                // sub rax, rcx
		{"4829c0", RAX, 0},                  // sub rax, rax
		{"4831c8", RAX, all},                // xor rax, rcx
		{"31c0", RAX, 0},                    // xor eax, eax
		{"48ffc0", RAX, all},                // inc rax
		{"ffc8", RAX, all >> 32},            // dec eax
		{"48f7d8", RAX, all},                // neg rax
		{"48f7d0", RAX, all},                // not rax
		{"480fc8", RAX, all},                // bswap rax
		{"4889c8", RAX, 0},                  // mov rax, rcx
		{"0fb6c0", RAX, 0xff},               // movzx eax, al
		{"4898", RAX, all >> 32},            // cdqe
		{"4891", RCX, all},                  // xchg rcx, rax
		{"488d400a", RAX, all},              // lea rax, [rax+10]
		{"488d0408", RAX, all},              // lea rax, [rax+rcx]
		{"488d0480", RAX, all},              // lea rax, [rax+rax*4]
		{"488d04c500000000", RAX, all >> 3}, // lea rax, [rax*8]
		{"488d04c8", RAX, all},              // lea rax, [rax+rcx*8]
		{"48c1e004", RAX, all >> 4},         // shl rax, 4
		{"48c1e804", RAX, all << 4},         // shr rax, 4
		{"48c1c804", RAX, all},              // ror rax, 4
		{"48d3c0", RAX, all},                // rol rax, cl
		{"48d3c1", RCX, 0},                  // rol rcx, cl
		{"486bc007", RAX, all},              // imul rax, rax, 7
		{"480fafc1", RAX, all},              // imul rax, rcx (odd)
		{"480fc1c8", RCX, all},              // xadd rax, rcx
		{"50", RSP, all},                    // push rax
		{"58", RSP, all},                    // pop rax
		{"58", RAX, 0},                      //
		{"5c", RSP, 0},                      // pop rsp
		{"c9", RBP, all},                    // leave
		{"c9", RSP, 0},                      //
		{"c3", RSP, all},                    // ret
		{"c21000", RSP, all},                // ret 16
		{"e800000000", RSP, all},            // call
		{"e2fe", RCX, all},                  // loop
		{"a4", RSI, all},                    // movsb
		{"f3a4", RSI, 0},                    // rep movsb
		{"0f05", RCX, 0},                    // syscall
		{"0f05", RBX, all},                  //
		{"f20f2cc1", RAX, 0},                // cvttsd2si eax, xmm1
	} {
		in := decoded(t, x.code)
		e := &Emulator{Mem: NewSparseMemory()}
		e.sampled()
		e.GPR[1] = Exactly(0x7ffe00010041)
		e.Reverse(Bind(&in), 0x1000, 0x1000+uint64(in.Len))
		if got := e.GPR[x.reg.Num()].Known; got != x.known {
			t.Errorf("%s %v: of %v before, %#x is known, want %#x", x.code, &in, x.reg, got, x.known)
		}
	}
}

// What follows from after an instruction for what it only read.
func TestReverseLearns(t *testing.T) {
	const at = 0x20000
	for _, x := range []struct {
		code string
		set  func(e *Emulator)
		get  func(e *Emulator) Value
		want Value
	}{
		{"4889c8", func(e *Emulator) { e.GPR[0] = Exactly(7) }, func(e *Emulator) Value { return e.GPR[1] }, Exactly(7)},                              // mov rax, rcx
		{"0fb6c1", func(e *Emulator) { e.GPR[0] = Exactly(7) }, func(e *Emulator) Value { return e.GPR[1] }, Value{7, 0xff}},                          // movzx eax, cl
		{"488b03", func(e *Emulator) { e.GPR[0] = Exactly(7) }, func(e *Emulator) Value { return e.Mem.Load(at, 8) }, Exactly(7)},                     // mov rax, [rbx]
		{"488903", func(e *Emulator) { e.Mem.Store(at, 8, Exactly(7)) }, func(e *Emulator) Value { return e.GPR[0] }, Exactly(7)},                     // mov [rbx], rax
		{"488903", func(e *Emulator) { e.Mem.Store(at, 8, Exactly(7)) }, func(e *Emulator) Value { return e.Mem.Load(at, 8) }, Value{}},               //
		{"58", func(e *Emulator) { e.GPR[0] = Exactly(7) }, func(e *Emulator) Value { return e.Mem.Load(at-8, 8) }, Exactly(7)},                       // pop rax
		{"50", func(e *Emulator) { e.Mem.Store(at, 8, Exactly(7)) }, func(e *Emulator) Value { return e.GPR[0] }, Exactly(7)},                         // push rax
		{"c3", func(e *Emulator) {}, func(e *Emulator) Value { return e.Mem.Load(at-8, 8) }, Exactly(0x2000)},                                         // ret
		{"ffe0", func(e *Emulator) {}, func(e *Emulator) Value { return e.GPR[0] }, Exactly(0x2000)},                                                  // jmp rax
		{"ff10", func(e *Emulator) { e.GPR[0] = Exactly(at) }, func(e *Emulator) Value { return e.Mem.Load(at, 8) }, Exactly(0x2000)},                 // call [rax], whose operand the return address overwrote
		{"4883f805", func(e *Emulator) { e.setFlag(ZF, bit{true, true}) }, func(e *Emulator) Value { return e.GPR[0] }, Exactly(5)},                   // cmp rax, 5
		{"85c0", func(e *Emulator) { e.setFlag(ZF, bit{true, true}) }, func(e *Emulator) Value { return e.GPR[0] }, Value{0, 0xffffffff}},             // test eax, eax
		{"488d4108", func(e *Emulator) { e.GPR[0] = Exactly(9) }, func(e *Emulator) Value { return e.GPR[1] }, Exactly(1)},                            // lea rax, [rcx+8]
		{"6bc107", func(e *Emulator) { e.GPR[0] = Exactly(21) }, func(e *Emulator) Value { return e.GPR[1] }, Value{3, 0xffffffff}},                   // imul eax, ecx, 7
		{"66480f6ec0", func(e *Emulator) { e.Vec[0] = Vector{[8]uint64{7}, 0xff} }, func(e *Emulator) Value { return e.GPR[0] }, Exactly(7)},          // movq xmm0, rax
		{"f30f6f03", func(e *Emulator) { e.Vec[0] = Vector{[8]uint64{7}, 0xffff} }, func(e *Emulator) Value { return e.Mem.Load(at, 8) }, Exactly(7)}, // movdqu xmm0, [rbx]
	} {
		in := decoded(t, x.code)
		e := &Emulator{Mem: NewSparseMemory()}
		e.GPR[3], e.GPR[rsp] = Exactly(at), Exactly(at)
		x.set(e)
		e.Reverse(Bind(&in), 0x1000, 0x2000)
		if got := x.get(e); got != x.want {
			t.Errorf("%s %v: learned %+v, want %+v", x.code, &in, got, x.want)
		}
	}
}

// A conditional jump's way tells the flag, before and after it.
func TestFollow(t *testing.T) {
	for _, x := range []struct {
		code       string
		taken      bool
		set, known Flags
	}{
		{"7405", true, ZF, ZF}, {"7405", false, 0, ZF}, {"7505", true, 0, ZF}, {"7505", false, ZF, ZF},
		{"7205", true, CF, CF}, {"7805", false, 0, SF}, {"7a05", true, PF, PF}, {"7005", true, OF, OF},
		{"7605", false, 0, CF | ZF}, {"7605", true, 0, 0}, {"7705", true, 0, CF | ZF}, {"7c05", true, 0, 0}, {"7e05", false, 0, ZF}, {"7400", true, 0, 0},
	} {
		in := decoded(t, x.code)
		op, pc := Bind(&in), uint64(0x1000)
		next := pc + 2
		if x.taken {
			next, _ = in.Target(pc)
		}
		e := &Emulator{Mem: NewSparseMemory()}
		if at, known := e.Exec(op, pc); known {
			t.Errorf("%s: goes to %#x by unknown flags", x.code, at)
		}
		e.Follow(op, next)
		f := &Emulator{Mem: NewSparseMemory()}
		f.Reverse(op, pc, next)
		for _, e := range []*Emulator{e, f} {
			if e.Flags != x.set || e.FlagsKnown != x.known {
				t.Errorf("%s taken %v: flags %s of %s", x.code, x.taken, flagText(e.Flags), flagText(e.FlagsKnown))
			}
		}
	}
}

// What two states say of one moment comes together, and contradictions are noticed.
func TestLearn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		var whole State
		for i := range whole.GPR {
			whole.GPR[i] = Exactly(rnd.Uint64())
		}
		for i := range whole.Vec {
			whole.Vec[i].Known = ^uint64(0)
			for j := range whole.Vec[i].Q {
				whole.Vec[i].Q[j] = rnd.Uint64()
			}
		}
		whole.FS, whole.GS = Exactly(rnd.Uint64()), Exactly(rnd.Uint64())
		whole.FlagsKnown = FlagsArith | DF
		whole.Flags = Flags(rnd.Uint32()) & whole.FlagsKnown
		parts := [2]*Emulator{}
		for i := range parts {
			parts[i] = &Emulator{State: whole, Mem: NewSparseMemory()}
			hide(parts[i], rnd)
		}
		a, b := parts[0].State, parts[1].State
		c := a
		if !c.Learn(&b) || !c.Learn(&whole) || c != whole {
			t.Fatal("two parts of one state contradict each other, or do not come together")
		}
		b.GPR[3] = Value{^whole.GPR[3].Bits & 0xff00, 0xff00}
		if a.GPR[3].Known&0xff00 != 0 && a.Learn(&b) {
			t.Fatal("a contradiction is not noticed")
		}
	}
}
