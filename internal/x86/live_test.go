package x86

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// roam makes a state in which most code runs for a while: registers and memory hold addresses of memory.
func (s *sandbox) roam(rnd *rand.Rand) *state {
	st := s.random(rnd)
	address := func() uint64 { return dataAt[rnd.IntN(2)] + 1024 + 64*uint64(rnd.IntN(32)) }
	for i := range st.gpr {
		if i == 4 || rnd.IntN(4) > 0 {
			st.gpr[i] = address()
		}
	}
	for i := range st.data {
		for j := 0; j < pageSize; j += 8 {
			if rnd.IntN(4) > 0 {
				binary.LittleEndian.PutUint64(st.data[i][j:], address())
			}
		}
	}
	st.fs, st.gs = dataAt[0], dataAt[1]
	return st
}

// A piece is a block of code at a place in the sandbox.
type piece struct {
	block []Inst
	code  []byte
}

// land gives the block RIP-relative operands that lie in the pages of data.
func land(code []byte, block []Inst, at uint64, rnd *rand.Rand) (p piece, ok bool) {
	n := 0
	for i := range block {
		n += block[i].Len
	}
	p.code = append([]byte(nil), code[:n]...)
	n = 0
	for i := range block {
		in := block[i]
		here := p.code[n : n+in.Len]
		if m := in.Mems(); len(m) > 0 && m[0].Base == RIP {
			d := dataAt[rnd.IntN(2)] + 1024 + 64*rnd.Uint64N(32) - (at + uint64(n+in.Len))
			binary.LittleEndian.PutUint32(here[in.DispOff:], uint32(d))
			again, err := Decode(here)
			if err != nil {
				return p, false
			}
			in = again
		}
		if refuses(&in) != "" || varies[in.Op] {
			break
		}
		p.block = append(p.block, in)
		n += in.Len
	}
	p.code = p.code[:n]
	return p, len(p.block) > 1
}

// follow runs the block's instructions from number i on, to before n; it gives the state before each and after the last, fewer if one raises a signal.
func (s *sandbox) follow(tb testing.TB, p piece, st *state, i, n int) (states []*state) {
	states = append(states, st)
	for ; i < n; i++ {
		at := st.rip
		next, sig := s.run(tb, st, 600, func(rip uint64) bool { return rip != at || !p.block[i].Rep && !p.block[i].Repne })
		if sig != unix.SIGTRAP || next.rip == at {
			break
		}
		st = next
		states = append(states, st)
	}
	return states
}

// scramble gives the state with everything else in what is dead.
func (s *sandbox) scramble(st *state, live Live, rnd *rand.Rand) (*state, int) {
	other := s.random(rnd)
	out := st.clone()
	dead := 0
	for i := range 16 {
		if !live.Regs.Has(RAX + Reg(i)) {
			out.gpr[i] = other.gpr[i]
			dead++
		}
	}
	free := uint64((FlagsArith | DF) &^ live.Flags)
	out.flags = st.flags&^free | ^st.flags&free
	if free != 0 {
		dead++
	}
	for i := range 32 {
		if !live.Regs.Has(XMM0 + Reg(i)) {
			for j, b := range out.vec(s, i) {
				copy(b, other.vec(s, i)[j])
			}
			dead++
		}
	}
	for i := range 8 {
		if o := s.off.mask + 8*i; !live.Regs.Has(K0 + Reg(i)) {
			copy(out.x[o:o+8], other.x[o:o+8])
			dead++
		}
	}
	return out, dead
}

// What Liveness calls dead may hold anything: a block of libc's, libstdc++'s, libcrypto's or python3's code that runs with other values in its dead registers
// and flags, from any of its instructions on, ends as it does without.
func TestLivenessAgainstProcessor(t *testing.T) {
	s := newSandbox(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	blocks := 250
	if soak {
		blocks = 20000
	}
	ran, points, dead := 0, 0, 0
	for _, file := range []string{libs + "libc.so.6", libs + "libstdc++.so.6", libs + "libcrypto.so.3", "/usr/bin/python3"} {
		code, _ := text(t, file)
		for range blocks {
			at := rnd.IntN(len(code) - 200)
			const place = codeAt + codeSize/2
			p, ok := land(code[at:], Block(code[at:], 12), place, rnd)
			if !ok {
				continue
			}
			copy(s.code[place-codeAt:], p.code)
			st := s.roam(rnd)
			st.rip = place
			plain := s.follow(t, p, st, 0, len(p.block))
			n := len(plain) - 1
			if n < 2 {
				continue
			}
			ran++
			live := Liveness(p.block[:n], AssumeNoHandler)
			for i := range n {
				other, k := s.scramble(plain[i], live[i], rnd)
				if k == 0 {
					continue
				}
				points++
				dead += k
				got := s.follow(t, p, other, i, n)
				last := got[len(got)-1]
				if len(got) != n-i+1 || last.rip != plain[n].rip {
					t.Errorf("%s+%#x: % x: with other values in what is dead before instruction %d (%v) it ends at %#x, not %#x",
						file, at, p.code, i, &p.block[i], last.rip, plain[n].rip)
				} else if d := s.differs(plain[n], last); d != "" {
					t.Errorf("%s+%#x: % x: with other values in what is dead before instruction %d (%v): %s", file, at, p.code, i, &p.block[i], d)
				}
			}
		}
	}
	t.Logf("%d blocks ran; %d places in them had something dead, %.1f registers each", ran, points, float64(dead)/float64(max(points, 1)))
	if ran < 300 || points < 300 {
		t.Errorf("only %d blocks ran, only %d places had something dead", ran, points)
	}
}

// What is dead in small blocks, under each assumption.
func TestLiveness(t *testing.T) {
	const flags, abi, all = FlagsArith, AssumeABI | AssumeNoHandler, ^Flags(0)
	for _, x := range []struct {
		code   string
		assume Assume
		dead   RegSet // before the first instruction
		flags  Flags  // likewise
	}{
		{"48b80100000000000000 4801c8", 0, RAX.Set(), flags},  // mov rax, imm; add rax, rcx
		{"b801000000 4801c8", 0, RAX.Set(), flags},            // mov eax, imm
		{"66b80100 4801c8", 0, 0, flags},                      // mov ax, imm keeps the rest
		{"b001 31c0", 0, RAX.Set(), flags},                    // mov al, imm; xor eax, eax
		{"488b01 4801c8", 0, 0, 0},                            // mov rax, [rcx] may fault
		{"488b01 4801c8", AssumeNoHandler, RAX.Set(), flags},  //
		{"31c0 0f94c0", 0, RAX.Set(), flags},                  // xor eax, eax; sete al
		{"0f94c0 31c9", 0, RCX.Set(), flags &^ ZF},            // sete al; xor ecx, ecx
		{"d3e0 c3", abi, 0, flags},                            // shl eax, cl; ret
		{"d3e0 c3", AssumeNoHandler, 0, 0},                    // the count may be 0
		{"d3e0 31c0", 0, 0, flags},                            //
		{"ffc0 7401", abi, 0, flags &^ CF},                    // inc eax leaves CF alone; jz
		{"85c0 7401", abi, 0, flags},                          // test; jz
		{"90 e800000000", abi, 0, flags},                      // nop; call
		{"90 e800000000", 0, 0, 0},                            //
		{"90 eb00", abi, 0, 0},                                // a tail call, perhaps
		{"0f44c1 31c0", 0, 0, flags &^ ZF},                    // cmove eax, ecx reads both
		{"fc f3aa", AssumeNoHandler, 0, DF},                   // cld; rep stosb
		{"c5f9efc0 c5f958c1", AssumeNoHandler, XMM0.Set(), 0}, // vpxor; vaddpd
		{"0f28c1 c3", AssumeNoHandler, 0, 0},                  // movaps keeps the upper halves
		{"0fa2 c3", abi, RBX.Set() | RDX.Set(), flags},        // cpuid reads eax and ecx
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(x.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := Liveness(Block(b, 10), x.assume)[0]
		if dead, f := ^got.Regs, ^got.Flags&all; dead != x.dead || f != x.flags {
			t.Errorf("%s: dead are %s and flags %s, want %s and %s", x.code, setText(dead), flagText(f), setText(x.dead), flagText(x.flags))
		}
	}
}

// A block ends with what may lead elsewhere, before what is no instruction, and at the limit.
func TestBlock(t *testing.T) {
	for code, want := range map[string]int{"909090c390": 4, "900f0b90": 2, "90060690": 1, "9090909090": 5, "": 0, "90e8": 1, "900f0590": 2} {
		b, err := hex.DecodeString(code)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(Block(b, 5)); got != want {
			t.Errorf("%s: %d instructions, want %d", code, got, want)
		}
	}
}
