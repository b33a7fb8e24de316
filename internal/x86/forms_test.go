package x86

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A formKey is what instructions have in common that differ only in which registers and numbers they name.
type formKey struct {
	op     string
	opcode byte
	args   [maxArgs]formArg
	mems   [maxMems]formMem
	flags  uint8
	mask   bool
	same   bool // two operands are one register
}

type formArg struct {
	kind  ArgKind
	class RegClass
	size  uint8
	high  bool
}

type formMem struct {
	seg         Reg
	base, index RegClass
	size        uint16
	narrow      bool
	same        bool // base and index, or base and the stack pointer
}

func formOf(in *Inst, code []byte) formKey {
	f := formKey{op: in.Op, opcode: code[in.OpcodeOff], mask: in.Mask != NoReg}
	for i, a := range in.Args() {
		f.args[i] = formArg{a.Kind, a.Reg.Class(), uint8(a.Reg.Size()), a.Reg >= AH && a.Reg < AX}
	}
	for i := range max(1, in.nargs) - 1 {
		f.same = f.same || in.args[i].Kind == ArgReg && in.args[i].Reg == in.args[i+1].Reg
	}
	for i, m := range in.Mems() {
		f.mems[i] = formMem{m.Seg, m.Base.Class(), m.Index.Class(), m.Size, m.Base.Size() == 4 || m.Index.Size() == 4, m.Base == m.Index || m.Base == RSP}
	}
	for i, b := range []bool{in.Lock, in.Rep, in.Repne, in.Zeroing, in.SAE} {
		if b {
			f.flags |= 1 << i
		}
	}
	return f
}

// gathered are the lists that subjects has made.
var gathered = map[int][]subject{}

// subjects gathers up to n instructions of each form from testdata/facts.txt, the libraries and the generated ones; if time is short, as under the race
// detector, of one in four of the libraries' and generated ones.
func subjects(tb testing.TB, n int) (list []subject) {
	tb.Helper()
	if list = gathered[n]; list != nil {
		return slices.Clone(list)
	}
	defer func() { gathered[n] = slices.Clone(list) }()
	seen := map[formKey]int{}
	few := false
	take := func(code []byte) int {
		in, err := Decode(code)
		if err != nil {
			return 1
		}
		f := formOf(&in, code)
		if seen[f] < n {
			seen[f]++
			if few && len(seen)%4 != 0 {
				return in.Len
			}
			list = append(list, subject{in: in, code: append([]byte(nil), code[:in.Len]...)})
		}
		return in.Len
	}
	data, err := os.ReadFile("testdata/facts.txt")
	if err != nil {
		tb.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		field, _, _ := strings.Cut(s.Text(), " | ")
		if code, err := hex.DecodeString(strings.ReplaceAll(field, " ", "")); err == nil && len(code) > 0 {
			take(code)
		}
	}
	few = testing.Short()
	for _, file := range []string{libs + "libc.so.6", libs + "libstdc++.so.6", libs + "libcrypto.so.3", "/usr/bin/python3"} {
		code, _ := text(tb, file)
		for at := 0; at < len(code); {
			at += take(code[at:])
		}
	}
	k := 0
	some := func(code []byte) {
		if k++; soak || k%61 == 0 {
			take(code)
		}
	}
	legacy(some)
	vectors(some)
	return list
}

// A verdicts counts what the oracle says, with an example of each kind.
type verdicts struct {
	trials, instructions int
	missing, skipped     map[string]int // operations that the processor does not have, and reasons not to run one
	wrong                map[string]int
	example              map[string]string
	unproved             map[string]int
}

func (v *verdicts) say(sub *subject, kind, what string) {
	k := sub.in.Op + ": " + kind
	v.wrong[k]++
	if v.example[k] == "" {
		v.example[k] = fmt.Sprintf("% x  %s: %s [%s]", sub.code, sub.in, what, factsText(&sub.in))
	}
}

// examine runs one instruction from many states.
func (s *sandbox) examine(tb testing.TB, v *verdicts, sub subject, rnd *rand.Rand, trials int) {
	sub.rip = codeAt + codeSize/2 + rnd.Uint64N(64)
	if why := refuses(&sub.in); why != "" {
		v.skipped[why]++
		return
	}
	ran := 0
	for range trials {
		p := s.prepare(sub, rnd, nil, false)
		out, sig := s.once(tb, p)
		v.trials++
		if sig == unix.SIGILL {
			v.missing[sub.in.Op]++
			return
		}
		if sig != unix.SIGTRAP {
			continue
		}
		ran++
		if w := p.flow(out); w != "" {
			v.say(&sub, "flow", w)
		}
		if w := s.unchanged(p, out); w != "" {
			v.say(&sub, "writes", w)
		}
		q := s.shuffle(p, rnd)
		out2, sig2 := s.once(tb, q)
		v.trials++
		if sig2 != sig {
			v.say(&sub, "reads", fmt.Sprintf("%v or %v", sig, sig2))
			continue
		}
		if w := s.unchanged(q, out2); w != "" {
			v.say(&sub, "writes", w)
		}
		if w := s.depends(p, out, out2); w != "" && !varies[sub.in.Op] {
			v.say(&sub, "reads", w)
		}
	}
	if ran == 0 {
		v.say(&sub, "never ran", "")
	} else {
		v.instructions++
	}
	for i := range sub.in.Mems() {
		s.borders(tb, v, sub, rnd, i)
	}
}

// borders puts access i of the instruction to the ends of pages, and across them: it faults exactly if the facts say that it touches what is not there.
func (s *sandbox) borders(tb testing.TB, v *verdicts, sub subject, rnd *rand.Rand, i int) {
	m := sub.in.Mems()[i]
	flush := strings.HasPrefix(sub.in.Op, "clf") || sub.in.Op == "clwb" // which fault, and prefetches do not
	if m.Kind&(MemGather|MemScatter|MemState|MemAddress) != 0 || flush || m.Size == 0 && m.Kind&MemHint == 0 {
		return
	}
	if sub.in.Op == "movsxd" && m.Size == 2 { // an AMD EPYC reads four bytes, a Xeon two; no compiler writes it
		return
	}
	size := uint64(m.Size)
	type trial struct {
		name string
		at   uint64
	}
	page := dataAt[i]
	list := []trial{{"at the end", page + pageSize - size}, {"at the beginning", page}, {"read only", dataAt[2] + 1024}, {"nowhere", page - 2*pageSize}}
	if m.Kind&MemLocked == 0 { // a locked access across a line is dear, and may be refused
		list = append(list, trial{"over the end", page + pageSize - size + 1}, trial{"before the beginning", page - 1})
	}
	for _, t := range list {
		p := s.prepare(sub, rnd, map[int]uint64{i: t.at}, true)
		if m.Kind&MemLocked != 0 && p.st.address(&p.in, p.in.Mems()[i])%size != 0 {
			continue
		}
		ranges, _ := p.ranges()
		want := faults(ranges)
		_, sig := s.once(tb, p)
		v.trials++
		got := sig == unix.SIGSEGV || sig == unix.SIGBUS
		if sig != unix.SIGTRAP && !got {
			continue
		}
		if got && !want && size >= 16 && p.st.address(&p.in, p.in.Mems()[i])%16 != 0 { // such may have to be aligned
			v.unproved["alignment"]++
			continue
		}
		if got != want {
			v.say(&sub, "memory "+t.name, fmt.Sprintf("fault %v, touches %+v", got, ranges))
		}
	}
}

// What the facts say of an instruction is what the processor does: it changes nothing but what they say is written, its outcome depends on nothing but
// what they say is read, and it touches exactly the memory that they name, so and in that size. Each form of instruction that is in libc, libstdc++,
// libcrypto or python3, in testdata/facts.txt or among the generated ones runs in a process of its own from random states. Not proved is
// that all that the facts name matters: too much is on the safe side.
func TestFactsAgainstProcessor(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: nothing here runs at once with anything")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // states come and go by the thousand
	s := newSandbox(t)
	v := &verdicts{missing: map[string]int{}, skipped: map[string]int{}, wrong: map[string]int{}, example: map[string]string{}, unproved: map[string]int{}}
	n, trials := 1, 2
	if soak {
		n, trials = 3, 24
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	list := subjects(t, n)
	for _, sub := range list {
		s.examine(t, v, sub, rnd, trials)
	}
	var kinds []string
	for k := range v.wrong {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	for i, k := range kinds {
		if i == 200 {
			t.Errorf("and %d more kinds", len(kinds)-i)
			break
		}
		t.Errorf("%d × %s: %s", v.wrong[k], k, v.example[k])
	}
	t.Logf("%d forms, %d run in %d trials; alignment hid %d borders; not run: %v; not on this processor: %v", len(list), v.instructions, v.trials,
		v.unproved["alignment"], v.skipped, v.missing)
	if v.instructions < s.least(2000) {
		t.Errorf("only %d forms of instructions run", v.instructions)
	}
}

// The oracle can fail: of facts made wrong, each in one way, none passes.
func TestOracleFindsWrongFacts(t *testing.T) {
	s := newSandbox(t)
	rnd := rand.New(rand.NewPCG(11, 12))
	for _, x := range []struct {
		code  string
		wrong func(in *Inst)
		want  string // the kind of the complaint
	}{
		{"4801c8", func(in *Inst) { in.Writes = 0 }, "writes"},                                            // add rax, rcx
		{"4801c8", func(in *Inst) { in.Reads = RAX.Set() }, "reads"},                                      //
		{"4801c8", func(in *Inst) { in.FlagsWritten &^= AF }, "writes"},                                   //
		{"4811c8", func(in *Inst) { in.FlagsRead = 0 }, "reads"},                                          // adc rax, rcx
		{"88c8", func(in *Inst) { in.Kept = 0 }, "reads"},                                                 // mov al, cl
		{"d3e0", func(in *Inst) { in.FlagsKept = 0 }, "reads"},                                            // shl eax, cl
		{"48ffc0", func(in *Inst) { in.FlagsWritten |= CF }, "reads"},                                     // inc rax leaves CF alone
		{"488b03", func(in *Inst) { in.mems[0].Size = 4 }, "memory"},                                      // mov rax, [rbx]
		{"488b03", func(in *Inst) { in.mems[0].Size = 16 }, "memory"},                                     //
		{"488b03", func(in *Inst) { in.mems[0].Access = ReadWrite }, "memory"},                            //
		{"488903", func(in *Inst) { in.mems[0].Access = Read }, "memory"},                                 // mov [rbx], rax
		{"480103", func(in *Inst) { in.mems[0].Access = Write }, "reads"},                                 // add [rbx], rax
		{"ff33", func(in *Inst) { in.nmems = 1 }, "memory"},                                               // push [rbx]
		{"ff33", func(in *Inst) { in.mems[1].Disp = -16 }, "writes"},                                      //
		{"0f58c1", func(in *Inst) { in.Reads = XMM0.Set() }, "reads"},                                     // addps xmm0, xmm1
		{"0f28c1", func(in *Inst) { in.Kept = 0 }, "reads"},                                               // movaps xmm0, xmm1
		{"c5f858c1", func(in *Inst) { in.Writes = (XMM0 + 5).Set() }, "writes"},                           // vaddps xmm0, xmm0, xmm1
		{"dec1", func(in *Inst) { in.Writes = 0 }, "writes"},                                              // faddp
		{"62f17c4958c1", func(in *Inst) { in.Reads &^= (K0 + 1).Set() }, "reads"},                         // vaddps zmm0{k1}, zmm0, zmm1
		{"7405", func(in *Inst) { in.Flow = FlowNone }, "flow"},                                           // je
		{"a4", func(in *Inst) { in.FlagsRead = 0 }, "reads"},                                              // movsb
		{"f3a4", func(in *Inst) { in.Writes &^= RCX.Set() }, "writes"},                                    // rep movsb
		{"0fb003", func(in *Inst) { in.mems[0].Access = Read }, "memory"},                                 // cmpxchg [rbx], al
		{"f30f10c1", func(in *Inst) { in.Writes |= XMM0.Set() | (XMM0 + 1).Set(); in.Kept = 0 }, "reads"}, // movss xmm0, xmm1
	} {
		code, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Decode(code)
		if err != nil {
			t.Fatalf("%s: %v", x.code, err)
		}
		if code[0] == 0x62 && !s.evex() {
			t.Logf("%s not tried: this processor has no AVX-512", x.code)
			continue
		}
		for _, right := range []bool{true, false} {
			v := &verdicts{missing: map[string]int{}, skipped: map[string]int{}, wrong: map[string]int{}, example: map[string]string{}, unproved: map[string]int{}}
			sub := subject{in: in, code: code}
			if !right {
				x.wrong(&sub.in)
			}
			s.examine(t, v, sub, rnd, 30)
			found := ""
			for k := range v.wrong {
				found += k + "; "
			}
			if right && found != "" || !right && !strings.Contains(found, ": "+x.want) {
				t.Errorf("%s %v: with facts that are right %v the oracle says %q, want %q", x.code, &in, right, found, x.want)
			}
		}
	}
}
