package x86

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// programs are those whose every form of instruction the emulator is held against the processor with.
var programs = []string{libs + "libc.so.6", libs + "libstdc++.so.6", libs + "libsqlite3.so.0", "/usr/bin/sqlite3", "/usr/sbin/mariadbd", "/usr/bin/python3"}

// programForms gathers an instruction of each form that occurs in the programs.
func programForms(tb testing.TB) (list []subject) {
	tb.Helper()
	seen := map[formKey]bool{}
	for _, file := range programs {
		code, _ := text(tb, file)
		for at := 0; at < len(code); {
			in, err := Decode(code[at:])
			if err != nil {
				at++
				continue
			}
			if f := formOf(&in, code[at:]); !seen[f] {
				seen[f] = true
				list = append(list, subject{in: in, code: slices.Clone(code[at : at+in.Len])})
			}
			at += in.Len
		}
	}
	return list
}

// allKnown are a page's bytes.
var allKnown = func() (k [sparsePageSize / 64]uint64) {
	for i := range k {
		k[i] = ^uint64(0)
	}
	return k
}()

// emulated gives the state as the emulator has it, all known, with a memory of its own.
func (s *sandbox) emulated(st *state) *Emulator {
	m := NewSparseMemory()
	m.AddReadOnly(dataAt[2], st.data[2])
	for i := range st.data[:2] { // as 512 stores would, which take most of the time here
		p := m.page(dataAt[i]/sparsePageSize, true)
		copy(p.data[:], st.data[i])
		p.known = allKnown
	}
	e := &Emulator{Mem: m}
	for i, v := range st.gpr {
		e.GPR[i] = Exactly(v)
	}
	e.FS, e.GS = Exactly(st.fs), Exactly(st.gs)
	e.FlagsKnown = FlagsArith | DF
	e.Flags = Flags(st.flags) & e.FlagsKnown
	for i := range e.Vec {
		e.Vec[i] = Vector{s.words(st, i), ^uint64(0)}
	}
	return e
}

// words gives a vector register.
func (s *sandbox) words(st *state, i int) (q [8]uint64) {
	var b []byte
	for _, p := range st.vec(s, i) {
		b = append(b, p...)
	}
	for j := range q {
		q[j] = binary.LittleEndian.Uint64(b[8*j:])
	}
	return q
}

// hide makes some of what the emulator knows unknown.
func hide(e *Emulator, rnd *rand.Rand) {
	often := 2 + rnd.IntN(12) // one in so many
	value := func(v *Value) {
		if rnd.IntN(often) != 0 {
			return
		}
		k := uint64(0)
		switch rnd.IntN(6) {
		case 0:
			k = byteMasks[uint8(rnd.Uint32())]
		case 1:
			k = rnd.Uint64()
		case 2:
			k = 1<<rnd.IntN(64) - 1
		}
		v.Bits, v.Known = v.Bits&k, k
	}
	for i := range e.GPR {
		value(&e.GPR[i])
	}
	for _, v := range []*Value{&e.FS, &e.GS} {
		if rnd.IntN(often) == 0 {
			*v = Value{}
		}
	}
	if rnd.IntN(often) == 0 {
		e.FlagsKnown &= Flags(rnd.Uint32())
		e.Flags &= e.FlagsKnown
	}
	for i := range e.Vec {
		if v := &e.Vec[i]; rnd.IntN(often) == 0 {
			v.Known = rnd.Uint64()
			for j := range v.Q {
				v.Q[j] &= byteMasks[uint8(v.Known>>(8*j))]
			}
		}
	}
	for range rnd.IntN(3) {
		switch page := dataAt[rnd.IntN(2)]; rnd.IntN(3) {
		case 0:
			e.Mem.ForgetAll()
		case 1:
			e.Mem.Forget(page+rnd.Uint64N(pageSize/2), rnd.Uint64N(pageSize/2))
		default:
			for range 1024 {
				e.Mem.Forget(page+rnd.Uint64N(pageSize), 1)
			}
		}
	}
}

// wrong says what the emulator says it knows and is not so, "" if all is right.
func (s *sandbox) wrong(e *Emulator, st *state) string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	value := func(name string, v Value, is uint64) {
		if v.Bits&^v.Known != 0 || v.Bits != is&v.Known {
			add("%s: %#x of %#x known, is %#x", name, v.Bits, v.Known, is)
		}
	}
	for i, v := range e.GPR {
		value((RAX + Reg(i)).String(), v, st.gpr[i])
	}
	value("fs", e.FS, st.fs)
	value("gs", e.GS, st.gs)
	if f := (e.Flags ^ Flags(st.flags)) & e.FlagsKnown; f != 0 || e.FlagsKnown&^(FlagsArith|DF) != 0 || e.Flags&^e.FlagsKnown != 0 {
		add("flags %s: are %s, known %s", flagText(f), flagText(Flags(st.flags)), flagText(e.FlagsKnown))
	}
	for i := range e.Vec {
		is := s.words(st, i)
		for j, q := range e.Vec[i].Q {
			value(fmt.Sprintf("zmm%d[%d]", i, j), Value{q, byteMasks[uint8(e.Vec[i].Known>>(8*j))]}, is[j])
		}
	}
	for i, data := range st.data {
		p := e.Mem.(*SparseMemory).page(dataAt[i]/sparsePageSize, false)
		if p.known == allKnown && bytes.Equal(p.data[:pageSize], data) {
			continue
		}
		for j := 0; j < pageSize; j += 8 {
			value(fmt.Sprintf("memory at %#x", dataAt[i]+uint64(j)), e.Mem.Load(dataAt[i]+uint64(j), 8), binary.LittleEndian.Uint64(data[j:]))
		}
	}
	return strings.Join(list, "; ")
}

// unclear says what an emulator that knew all does not know afterwards though the manual defines it, "" if nothing.
func unclear(e *Emulator, in *Inst) string {
	var list []string
	for i, v := range e.GPR {
		if !v.Whole() && !loose[in.Op] {
			list = append(list, (RAX + Reg(i)).String())
		}
	}
	if f := (FlagsArith | DF) &^ e.FlagsKnown &^ in.FlagsUndefined; f != 0 && !loose[in.Op] {
		list = append(list, "flags "+flagText(f))
	}
	for i, v := range e.Vec {
		if v.Known != ^uint64(0) {
			list = append(list, fmt.Sprintf("zmm%d", i))
		}
	}
	if !e.FS.Whole() || !e.GS.Whole() {
		list = append(list, "fs or gs")
	}
	for i := range dataAt {
		if e.Mem.(*SparseMemory).page(dataAt[i]/sparsePageSize, false).known != allKnown && !loose[in.Op] {
			list = append(list, fmt.Sprintf("memory of page %#x", dataAt[i]))
		}
	}
	return strings.Join(list, "; ")
}

// loose are the operations whose result the manual leaves undefined from some states.
var loose = map[string]bool{"bsf": true, "bsr": true, "shld": true, "shrd": true, "cmpxchg": true, "cmpxchg8b": true, "bswap": true, "pushf": true, "pushfq": true}

// misplaced says how the accesses that the emulator reports differ from those of the facts, "" if they do not.
func (p *prepared) misplaced(e *Emulator, all bool) string {
	in := &p.in
	var want []MemAccess
	for _, first := range []bool{true, false} {
		for _, m := range in.Mems() {
			if m.Access == None || m.Kind&MemHint != 0 || (m.Access == Read) != first {
				continue
			}
			a := MemAccess{Addr: p.st.address(in, m), Known: true, Access: m.Access, Kind: m.Kind, Size: m.Size, Count: 1}
			if m.Kind&MemBit != 0 {
				size := in.Args()[1].Reg.Size()
				nr := int64(p.st.value(in.Args()[1].Reg)) << (64 - 8*size) >> (64 - 8*size)
				a.Addr += uint64(floorDiv(nr, int64(8*size)) * int64(size))
			}
			want = append(want, a)
		}
	}
	if in.Rep || in.Repne {
		if all && p.st.gpr[1] == 0 {
			want = nil
		}
		for i, a := range e.Accesses {
			if i >= len(want) || a.Count > p.st.gpr[1] {
				return fmt.Sprintf("accesses %+v, want %+v", e.Accesses, want)
			}
			want[i].Count, want[i].Down = a.Count, a.Down
		}
	}
	for i, a := range e.Accesses {
		if i >= len(want) {
			break
		}
		if !a.Known && (!all || a.Kind&(MemGather|MemScatter) != 0) {
			want[i].Known, want[i].Addr, want[i].Count = false, 0, a.Count
		}
	}
	if !slices.Equal(want, e.Accesses) && (all || len(want) == len(e.Accesses) || !in.Rep && !in.Repne) {
		return fmt.Sprintf("accesses %+v, want %+v", e.Accesses, want)
	}
	return ""
}

func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	} else {
		return q - 1
	}
}

// A list of mistakes counts what is wrong, by operation, with an example of each.
type mistakes struct {
	wrong   map[string]int
	example map[string]string
}

func (y *mistakes) say(p *prepared, kind, what string) {
	k := p.in.Op + ": " + kind
	if y.wrong == nil {
		y.wrong, y.example = map[string]int{}, map[string]string{}
	}
	if y.wrong[k]++; y.example[k] == "" {
		y.example[k] = fmt.Sprintf("% x  %s: %s", p.code, p.in, what)
	}
}

func (y *mistakes) report(t *testing.T) {
	t.Helper()
	var kinds []string
	for k := range y.wrong {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	for i, k := range kinds {
		if i == 100 {
			t.Fatalf("and %d more kinds", len(kinds)-i)
		}
		t.Errorf("%d × %s: %.400s", y.wrong[k], k, y.example[k])
	}
}

// differential runs instructions natively and emulated.
type differential struct {
	s       *sandbox
	rnd     *rand.Rand
	y       mistakes
	ran     int // forms
	missing map[string]int
	unrun   map[string]int
}

// examine runs one from so many states; forwards and backwards, all known and, from each state, so often with some of it hidden.
func (d *differential) examine(t *testing.T, sub subject, trials, hidings int) {
	if why := refuses(&sub.in); why != "" {
		d.unrun[why]++
		return
	}
	sub.rip = codeAt + codeSize/2 + d.rnd.Uint64N(64)
	completed := false
	for range trials {
		p := d.s.prepare(sub, d.rnd, nil, false)
		out, sig := d.s.once(t, p)
		if sig == unix.SIGILL {
			d.missing[sub.in.Op]++
			return
		}
		if sig != unix.SIGTRAP {
			continue
		}
		completed = true
		op := Bind(&p.in)
		for hidden := range 1 + hidings {
			d.forwards(p, op, out, hidden > 0)
			d.backwards(p, op, out, hidden > 0)
		}
	}
	if completed {
		d.ran++
	}
}

func (d *differential) forwards(p *prepared, op *Op, out *state, hidden bool) {
	e := d.s.emulated(p.st)
	if hidden {
		hide(e, d.rnd)
	}
	next, known := e.Exec(op, p.rip)
	if known && next != out.rip {
		d.y.say(p, "next", fmt.Sprintf("%#x, is %#x", next, out.rip))
	}
	if w := d.s.wrong(e, out); w != "" && !varies[p.in.Op] {
		d.y.say(p, "state", w)
	}
	if w := p.misplaced(e, !hidden); w != "" {
		d.y.say(p, "accesses", w)
	}
	if !hidden && op.Exact() {
		if w := unclear(e, &p.in); w != "" || !known {
			d.y.say(p, "unknown", fmt.Sprintf("%s (next %v)", w, known))
		}
	}
	if e.Follow(op, out.rip); !varies[p.in.Op] {
		if w := d.s.wrong(e, out); w != "" {
			d.y.say(p, "state by control flow", w)
		}
	}
}

func (d *differential) backwards(p *prepared, op *Op, out *state, hidden bool) {
	e := d.s.emulated(out)
	if hidden {
		hide(e, d.rnd)
	}
	e.Reverse(op, p.rip, out.rip)
	if w := d.s.wrong(e, p.st); w != "" {
		d.y.say(p, "state before", w)
	}
	if w := p.misplaced(e, false); w != "" {
		d.y.say(p, "accesses, backwards", w)
	}
}

// The semantics are the processor's: every form of instruction in libc, libstdc++, sqlite3, mariadbd and python3, and those of testdata/facts.txt and the
// generated ones, run natively from random states and emulated, give the same registers, flags, memory, next address and accesses. What has
// semantics gives all that the manual defines if all is known before. And of which only some is known, what is known afterwards is right; so is what Reverse
// says of the state before from that after.
func TestEmulateAgainstProcessor(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: nothing here runs at once with anything")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	d := &differential{s: newSandbox(t), rnd: rand.New(rand.NewPCG(3, 4)), missing: map[string]int{}, unrun: map[string]int{}}
	trials, hidings, others := 4, 4, 1
	if soak {
		trials, hidings, others = 100, 8, 20
	}
	inexact := map[string]int{}
	list := programForms(t)
	for _, sub := range list {
		d.examine(t, sub, trials, hidings)
		if !Bind(&sub.in).Exact() {
			inexact[sub.in.Op]++
		}
	}
	inPrograms := d.ran
	more := subjects(t, 1)
	for _, sub := range more {
		d.examine(t, sub, others, 1)
	}
	d.y.report(t)
	var names []string
	for op := range inexact {
		names = append(names, op)
	}
	sort.Strings(names)
	t.Logf("%d forms in the programs, %d of them ran; %d others, %d of them ran; not run: %v; not on this processor: %v; in the programs and without semantics: %v",
		len(list), inPrograms, len(more), d.ran-inPrograms, d.unrun, d.missing, names)
	if inPrograms < 1400 || d.ran < 2000 {
		t.Errorf("only %d forms of the programs ran, %d in all", inPrograms, d.ran)
	}
}

// The comparison can fail: of semantics made wrong, each in one way, none passes.
func TestEmulateFindsWrongSemantics(t *testing.T) {
	s := newSandbox(t)
	for _, x := range []struct {
		code  string
		wrong func(op *Op)
		want  string
	}{
		{"4801c8", func(op *Op) { op.run = addCarry }, "state"},               // add rax, rcx
		{"4801c8", func(op *Op) { op.run = nothing }, "state"},                //
		{"4801c8", func(op *Op) { op.run = (*Emulator).clobber }, "unknown"},  //
		{"4801c8", func(op *Op) { op.undo = undoSubtract }, "state before"},   //
		{"29c8", func(op *Op) { op.run = compare }, "state"},                  // sub eax, ecx
		{"88c4", func(op *Op) { op.args[0].shift = 0 }, "state"},              // mov ah, al
		{"48c1e003", func(op *Op) { op.imm = 4 }, "state"},                    // shl rax, 3
		{"48d3e0", func(op *Op) { op.run = rotateLeft }, "state"},             // shl rax, cl
		{"7405", func(op *Op) { op.cond ^= 1 }, "next"},                       // je
		{"0f94c0", func(op *Op) { op.cond ^= 1 }, "state"},                    // sete al
		{"488b4308", func(op *Op) { op.mems[0].disp = 16 }, "accesses"},       // mov rax, [rbx+8]
		{"488b4308", func(op *Op) { op.mems[0].access = Write }, "accesses"},  //
		{"50", func(op *Op) { op.run = pop }, "state"},                        // push rax
		{"50", func(op *Op) { op.undo = undoPop }, "state before"},            //
		{"f348a5", func(op *Op) { op.rep = noRep }, "state"},                  // rep movsq
		{"0f28c1", func(op *Op) { op.vex = true }, "state"},                   // movaps xmm0, xmm1
		{"c5f828c1", func(op *Op) { op.vex = false }, "state"},                // vmovaps xmm0, xmm1
		{"660fd7c1", func(op *Op) { op.run = signs(8) }, "state"},             // pmovmskb eax, xmm1
		{"488d4408f8", func(op *Op) { op.mems[0].disp += 8 }, "state before"}, // lea rax, [rax+rcx-8]
		{"9c", func(op *Op) { op.run = popFlags }, "state"},                   // pushfq
		{"0f58c1", func(op *Op) { op.writes = 0 }, "state"},                   // addps xmm0, xmm1
		{"f7f1", func(op *Op) { op.run = multiply }, "state"},                 // div ecx
		{"0fb111", func(op *Op) { op.run = exchangeAdd }, "state"},            // cmpxchg [rcx], edx
	} {
		code, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Decode(code)
		if err != nil {
			t.Fatalf("%s: %v", x.code, err)
		}
		for _, right := range []bool{true, false} {
			d := &differential{s: s, rnd: rand.New(rand.NewPCG(5, 6))}
			for range 10 {
				p := s.prepare(subject{in: in, code: code, rip: codeAt}, d.rnd, nil, false)
				out, sig := s.once(t, p)
				if sig != unix.SIGTRAP {
					continue
				}
				op := Bind(&p.in)
				if !right {
					x.wrong(op)
				}
				for hidden := range 2 {
					d.forwards(p, op, out, hidden > 0)
					d.backwards(p, op, out, hidden > 0)
				}
			}
			found := ""
			for k := range d.y.wrong {
				found += k + "; "
			}
			if right && found != "" || !right && !strings.Contains(found, ": "+x.want+";") {
				t.Errorf("%s %v: with semantics that are right %v the comparison says %q, want %q", x.code, &in, right, found, x.want)
			}
		}
	}
}
