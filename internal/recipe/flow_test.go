package recipe

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// A hook is entered with the places to go on in rcx and r11 and everything else as it was; behind it rcx is what a system call leaves. At every boundary the
// program is before the system call or behind it.
func TestHook(t *testing.T) {
	for _, base := range []uint64{0, 0x550000000000} {
		w := newWorld(t, base)
		rnd := rand.New(rand.NewPCG(8, base))
		for _, a := range []*area{w.agent, w.farAgent} {
			c := x86.Code{At: a.at + 1024}
			c.Mov(x86.RAX, x86.R11) // what it was told, for the test to see
			c.Mov(x86.RDX, x86.RCX)
			c.MovImm(x86.R11, 0x1246)
			c.JmpReg(x86.RCX)
			copy(a.mem[1024:], c.Bytes)
			for range 20 {
				x := &trial{w: w, site: Site{At: w.text.at + 100 + rnd.Uint64N(50), Code: []byte{0x0f, 0x05}}, ops: []Op{Hook{a.at + 1024}}, live: x86.AllLive}
				next := x.site.At + 2
				var err error
				if x.site.Inst, err = x86.Decode(x.site.Code); err != nil {
					t.Fatal(err)
				}
				if x.code, err = Compile(x.ops, x.site, x.live, w.env); err != nil || !x.code.Replaces() {
					t.Fatal(err)
				}
				w.randomMemory(rnd)
				x.regs, x.x = w.randomRegs(rnd), w.randomVectors(rnd)
				if err := x.make(w.tramp.at + rnd.Uint64N(1000)); err != nil {
					t.Fatal(err)
				}
				got := w.runAt(t, x.at, x.regs, x.x)
				want := x.regs
				want.Rcx, want.R11, want.Rax = next, 0x1246, next
				want.Rdx = got.regs.Rdx
				if d := differ(&want, &got.regs, x86.SetGPR, x86.FlagsArith|x86.DF); d != "" || got.sig != unix.SIGTRAP || got.regs.Rip != x.at+uint64(len(x.tramp)) {
					t.Fatalf("%v: %v at %#x: %s", x, got.sig, got.regs.Rip, d)
				}
				if back := got.regs.Rdx; back <= x.at || back >= x.at+uint64(len(x.tramp)) {
					t.Fatalf("%v: the hook was to come back to %#x", x, back)
				}
				was := x.regs
				was.Rip = x.at
				for r := was; r.Rip != x.at+uint64(len(x.tramp))-1; {
					if r.Rip >= x.at && r.Rip < x.at+uint64(len(x.tramp)) {
						v, s := x.view(r)
						set, to := x86.SetGPR&^(x86.RCX.Set()|x86.R11.Set()), &was // which are the system call's to overwrite
						if r.Rip >= got.regs.Rdx {
							set, to = x86.SetGPR, &want
						}
						if d := differ(to, &v, set, x86.FlagsArith|x86.DF); d != "" || s.Resume != patch.Restart || (to == &want) != (s.For == next) {
							t.Fatalf("%v: at +%#x: %+v: %s", x, r.Rip-x.at, s, d)
						}
					}
					if sig := w.step(t, &r); sig != unix.SIGTRAP {
						t.Fatalf("%v: %v at %#x", x, sig, r.Rip)
					}
				}
			}
		}
	}
}

// Branches, calls and returns as sites, moved into trampolines, lead where they lead in place, with the same return address and registers, counted once; and at
// every boundary of the trampoline the program is before them or behind them, and goes on from there to the same end.
func TestFlow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	w := newWorld(t, wholeBase)
	page := patch.Range{Lo: w.tramp.at, Hi: w.tramp.end()}
	points := 0
	for _, h := range strings.Fields("eb30 7430 0f8430000000 e210 e110 e310 67e310 67e210 ff5308 ffd0 ff6308 ffe0 c3 c20800 e830000000 41ff142c ff24eb " +
		"ff7308 8f4308 5b") {
		code, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		in, err := x86.Decode(code)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			p := &program{w: w}
			p.code = append(append([]byte{}, code...), make([]byte, 200)...)
			for i := len(code); i < len(p.code); i++ {
				p.code[i] = int3
			}
			p.prepare(rnd)
			target := w.text.at + 20 + rnd.Uint64N(100)
			p.regs.Rax, p.regs.Rbx, p.regs.R12, p.regs.Rbp = target, w.data.at+1000, w.data.at+1000, 1
			p.regs.Rcx = []uint64{0, 1, 2, rnd.Uint64()}[rnd.IntN(4)]
			p.regs.Rsp &^= 7
			binary.LittleEndian.PutUint64(w.was[w.data][1008:], target)
			binary.LittleEndian.PutUint64(w.was[w.data][1000+16:], target)
			binary.LittleEndian.PutUint64(w.was[w.stack][p.regs.Rsp-w.stack.at:], target)
			if rnd.IntN(4) == 0 { // what cannot be read
				p.regs.Rbx, p.regs.R12 = 0x1000, 0x1000
			}
			p.native(t, 1) // puts text and memory in place, and the extended state
			w.restore()
			r := p.regs
			r.Rip = w.text.at
			sig := w.step(t, &r)
			want := p.ended(t, r, sig)
			site := Site{At: w.text.at, Inst: in, Code: code}
			c, err := Compile([]Op{Count{Cell: w.many.at, Of: Shared}}, site, x86.AllLive, w.env)
			if err != nil {
				t.Fatal(err)
			}
			p.text = patch.NewText(w.text.at, p.code)
			p.text.AddFunction(w.text.at, w.text.at+uint64(in.Len))
			p.plan = patch.NewPlanner(p.text, patch.NewSpace([]patch.Range{page}))
			p.plan.Calls = x86.PushReturn
			tx, err := p.plan.Plan([]patch.Site{{At: site.At, Recipe: c}}, nil)
			if err != nil {
				t.Fatalf("%v: %v", in, err)
			}
			tramp := &tx.New[0].Trampoline
			copy(w.bytes(tramp.At, len(tramp.Code)), tramp.Code)
			for k := 0; ; k++ { // interrupted at the k-th boundary
				w.restore()
				copy(w.text.mem, p.code)
				x := &trial{w: w, site: site, at: tramp.At, plan: *tramp}
				r := p.regs
				r.Rip = tramp.At
				inside := func() bool { return r.Rip >= tramp.At && r.Rip < tramp.End() }
				for n := 0; n < k && inside(); n++ {
					if w.step(t, &r) != unix.SIGTRAP {
						break
					}
				}
				if !inside() {
					break
				}
				points++
				v, s := x.view(r)
				to := &p.regs
				if s.For != site.At {
					to = &want.regs
				}
				if d := differ(to, &v, x86.SetGPR, x86.FlagsArith); d != "" || to == &want.regs && s.For != want.regs.Rip {
					t.Fatalf("%v: at +%#x of % x: %+v: %s", in, r.Rip-tramp.At, tramp.Code, s, d)
				}
				r = v
				switch {
				case s.Resume != patch.Restart:
					r.Rip = tramp.At + uint64(s.Resume)
				case s.For == site.At:
					r.Rip = tramp.At
				}
				again := unix.SIGTRAP
				for n := 0; inside() && again == unix.SIGTRAP && n < 100; n++ {
					again = w.step(t, &r)
				}
				if inside() {
					r, _ = x.view(r)
				}
				if d := differ(&want.regs, &r, x86.SetGPR, x86.FlagsArith); d != "" || r.Rip != want.regs.Rip || again != want.sig {
					t.Fatalf("%v, interrupted at boundary %d: ends at %#x (%v), not at %#x (%v): %s", in, k, r.Rip, again, want.regs.Rip, want.sig, d)
				}
				if n := binary.LittleEndian.Uint64(w.many.mem) - binary.LittleEndian.Uint64(w.was[w.many]); n != 1 {
					t.Fatalf("%v, interrupted at boundary %d: counted %d times", in, k, n)
				}
				sp := r.Rsp - w.stack.at
				if got, native := w.stack.mem[sp:][:16], want.mem[w.stack][sp:][:16]; string(got) != string(native) {
					t.Fatalf("%v: on the stack is % x, not % x", in, got, native)
				}
				if again != unix.SIGTRAP && k > 40 {
					break
				}
			}
		}
	}
	if points < 500 {
		t.Errorf("only %d boundaries", points)
	}
}
