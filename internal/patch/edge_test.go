package patch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

const edgeAt = 0x7f1234500000

// code makes a text of one function.
func code(tb testing.TB, s string) *Text {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	t := NewText(edgeAt, b)
	if end := t.AddFunction(t.at, t.end()); end != t.end() {
		tb.Fatalf("decoded up to %#x", end)
	}
	return t
}

// What may be entered behind a prefix stays: glibc's atomics once jumped over their lock prefix in a program with one thread. Nothing known, or known so,
// the bytes behind the lock stay; known otherwise, they may be overwritten. A branch in bytes that are in no known instruction counts as well, of each form.
func TestLockPrefix(t *testing.T) {
	const cmpxchg, nops = "f0480fb117", "9090909090909090"
	for _, x := range []struct {
		name     string
		behind   string // it and some nops
		unknown  bool   // that those are instructions
		complete bool
		keeps    bool
	}{
		{"nothing known", "", false, false, true},
		{"no branch", "", false, true, false},
		{"a branch", "74ef" + nops, false, true, true}, // je edgeAt+1
		{"a branch elsewhere", "7402" + nops, false, true, false},
		{"a branch to the lock", "74ee" + nops, false, true, false},
		{"unknown jcc", "74ef" + nops, true, true, true},
		{"unknown loop", "e2ef" + nops, true, true, true},
		{"unknown jmp", "ebef" + nops, true, true, true},
		{"unknown long jmp", "06e9ebffffff" + nops, true, true, true},
		{"unknown call", "06e8ebffffff" + nops, true, true, true},
		{"unknown long jcc", "060f84eaffffff" + nops, true, true, true},
		{"unknown xbegin", "06c7f8eaffffff" + nops, true, true, true},
		{"unknown, elsewhere", "06c7f8effeffff" + nops, true, true, false},
		{"unknown, cut off", "06e9ebffff", true, true, false},
	} {
		all, err := hex.DecodeString(cmpxchg + nops + "0f1f00" + x.behind)
		if err != nil {
			t.Fatal(err)
		}
		text := NewText(edgeAt, all)
		end := text.end()
		if x.unknown {
			end = edgeAt + uint64(len(cmpxchg+nops)/2)
		}
		if got := text.AddFunction(edgeAt, end); got != end {
			t.Fatalf("%s: decoded up to %#x", x.name, got)
		}
		if x.complete {
			text.Complete()
		}
		b := newBench(text, around(text))
		add := []Site{{edgeAt, mark{edgeAt, 1}}}
		tx, err := b.Plan(add, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.apply(t, tx, add, nil)
		if keeps := bytes.Equal(text.planned()[1:5], text.orig[1:5]); keeps != x.keeps {
			t.Errorf("%s: % x of % x", x.name, text.planned(), text.orig)
		}
	}
}

// Instructions that overlap, as hand-written code has them: the outer one's bytes behind the inner's beginning stay, the inner one is refused.
func TestShared(t *testing.T) {
	text := code(t, "b8050f1f00"+"9090909090909090") // mov eax, 0x1f0f05; from its third byte on: nop [rax]
	text.AddFunction(edgeAt+2, edgeAt+5)
	b := newBench(text, around(text))
	if err := b.Check(edgeAt + 2); !errors.Is(err, ErrShared) {
		t.Errorf("inner: %v", err)
	}
	add := []Site{{edgeAt, mark{edgeAt, 0}}}
	tx, err := b.Plan(add, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.apply(t, tx, add, nil)
	if !bytes.Equal(text.planned()[2:], text.orig[2:]) {
		t.Errorf("% x", text.planned())
	}
}

// Wrong wishes get an error that says what is wrong, and change nothing.
func TestPlanErrors(t *testing.T) {
	const at = edgeAt
	text := code(t, "488b07"+"e800000000"+"ffd0"+"488b17"+"c3")
	b := newBench(text, around(text))
	tx, err := b.Plan([]Site{{at, mark{at, 0}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Plan(nil, []uint64{at}); err != ErrPending {
		t.Errorf("while a transaction is under way: %v", err)
	}
	b.Commit(tx)
	for _, x := range []struct {
		add, remove uint64
		want        error
	}{
		{at, 0, ErrSite}, {0, at + 10, ErrNoSite}, {at + 1, 0, ErrNoInstruction}, {at + 1<<20, 0, ErrNoInstruction}, {at - 1, 0, ErrNoInstruction},
		{at + 3, 0, x86.ErrCall}, {at + 8, 0, x86.ErrCall}, {0, at + 1<<40, ErrNoSite},
	} {
		before := bytes.Clone(text.planned())
		add := []Site{{at + 10, mark{at + 10, 0}}} // a good one with the bad one
		var remove []uint64
		if x.add != 0 {
			add = append(add, Site{x.add, mark{x.add, 0}})
		} else {
			remove = []uint64{x.remove}
		}
		if _, err := b.Plan(add, remove); !errors.Is(err, x.want) {
			t.Errorf("%#x, %#x: %v, want %v", x.add, x.remove, err, x.want)
		}
		if b.recipe(at) == nil || b.recipe(at+10) != nil || !bytes.Equal(before, text.planned()) || b.pending != nil {
			t.Fatalf("%#x, %#x: something has changed", x.add, x.remove)
		}
	}
	b.Planner.Calls = x86.PushReturn
	if err := b.Check(at + 8); err != nil {
		t.Errorf("a call that may be moved: %v", err)
	}
	full := NewPlanner(text, NewSpace(nil))
	if _, err := full.Plan([]Site{{at, mark{at, 0}}}, nil); !errors.Is(err, ErrSpace) {
		t.Errorf("without memory: %v", err)
	}
}

func (p *Planner) recipe(at uint64) Recipe {
	if r := p.records.at(at - p.text.at); r != nil {
		return r.recipe
	}
	return nil
}

// A call beside a site stays where it is, and so do system calls and traps: the trampoline ends before them.
func TestStaysInPlace(t *testing.T) {
	for _, next := range []string{"e800000000", "ffd0", "0f05", "cc", "f4", "c7f800000000"} {
		text := code(t, "488b07"+next+"9090909090909090")
		b := newBench(text, around(text))
		add := []Site{{edgeAt, mark{edgeAt, 0}}}
		tx, err := b.Plan(add, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.apply(t, tx, add, nil)
		x := tx.New[0]
		if x.Tier != TierPun && x.Tier != TierPadded || !bytes.Equal(text.planned()[3:], text.orig[3:]) || x.Trampoline.Parts[len(x.Trampoline.Parts)-1].For != edgeAt+3 {
			t.Errorf("%s: %v, % x, %v", next, x.Tier, text.planned(), x.Trampoline.Parts)
		}
	}
}

// A call that may be moved is with its return address kept; nothing follows it in the trampoline.
func TestMovedCall(t *testing.T) {
	text := code(t, "ff10"+"488b17"+"c3"+"9090909090") // call [rax]
	p := NewPlanner(text, NewSpace(around(text)))
	p.Calls = x86.PushReturn
	tx, err := p.Plan([]Site{{edgeAt, mark{edgeAt, 0}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ops []string
	for c := tx.New[0].Trampoline.Code; len(c) > 0; {
		in, err := x86.Decode(c)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, in.String())
		c = c[in.Len:]
	}
	if got := strings.Join(ops[1:], "; "); got != "push 0x34500002; mov dword ptr [rsp+0x4], 0x7f12; jmp qword ptr [rax]" {
		t.Error(got)
	}
}

// When the module is unmapped its trampolines are freed, those of a transaction under way too.
func TestClose(t *testing.T) {
	text := code(t, "488b07488b07488b07488b07488b07488b07c3")
	space := NewSpace(around(text))
	whole := space.total()
	p := NewPlanner(text, space)
	tx, err := p.Plan([]Site{{edgeAt, mark{edgeAt, 9}}, {edgeAt + 3, mark{edgeAt + 3, 9}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Commit(tx)
	if _, err = p.Plan([]Site{{edgeAt + 6, mark{edgeAt + 6, 9}}}, []uint64{edgeAt}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if n := space.total(); n != whole || space.InUse() > 0 {
		t.Errorf("%d of %d bytes are free", n, whole)
	}
}

// Any bytes, known as code from one place or from two, in which instructions then may overlap: whatever is planned passes the oracle, and is gone after removal.
func FuzzPlan(f *testing.F) {
	libc := load(f, libcFile, edgeAt)
	for i := range 8 {
		f.Add(libc.orig[i*4096:][:64], uint64(i))
	}
	f.Fuzz(fuzzPlan)
}

func fuzzPlan(t *testing.T, b []byte, seed uint64) {
	if len(b) > 256 || bytes.Contains(b, []byte{0x0f, 0x1f, 0x05}) || bytes.IndexByte(b, filler) >= 0 {
		return
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	text := NewText(edgeAt, b)
	for range 1 + rnd.IntN(2) {
		lo := edgeAt + rnd.Uint64N(20)
		text.AddFunction(lo, lo+rnd.Uint64N(300))
	}
	if rnd.IntN(2) == 0 {
		for a := text.at; a < text.end(); a++ {
			if (a^seed)%11 == 0 {
				text.Enter(a)
			}
		}
		text.Complete()
	}
	free := around(text)
	if rnd.IntN(2) == 0 {
		free = []Range{{edgeAt - 1<<30, edgeAt - 1<<30 + 1<<16}, {edgeAt + rnd.Uint64N(1<<30), edgeAt + 1<<30}}
	}
	for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
		in, _, _ := text.inst(a)
		if to, ok := in.Target(a); ok && slices.ContainsFunc(free, func(r Range) bool { return to >= r.Lo && to < r.Hi }) {
			return // a jump to where nothing is could become one to its own trampoline, unchanged
		}
	}
	p := newBench(text, free)
	for n := range 5 {
		var add []Site
		var remove []uint64
		for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
			switch {
			case p.sites[a] && (n == 4 || rnd.IntN(2) == 0):
				remove = append(remove, a)
			case !p.sites[a] && n < 4 && rnd.IntN(3) > 0 && p.Check(a) == nil:
				add = append(add, Site{a, mark{a, rnd.IntN(9)}})
			}
		}
		some := len(remove) == 0 && rnd.IntN(2) == 0
		var tx *Transaction
		var err error
		if some {
			tx, err = p.PlanSome(add)
		} else {
			tx, err = p.Plan(add, remove)
		}
		if err == nil {
			for _, bad := range tx.Left {
				add = slices.DeleteFunc(add, func(s Site) bool { return s.At == bad.At })
			}
		}
		if err != nil {
			if n == 4 || !bytes.Equal(text.planned(), p.img.now) {
				t.Fatalf("%v; the text has changed: %v", err, !bytes.Equal(text.planned(), p.img.now))
			}
			continue
		}
		p.apply(t, tx, add, remove)
		p.Commit(tx)
		p.Free(tx)
	}
	if !bytes.Equal(text.planned(), text.orig) || p.space.InUse() > 0 {
		t.Fatal("something is left")
	}
}

// Where there is no memory within reach, or too little, sites are left out one by one, and the others are patched. Each used to have all that were to be planned with it
// planned anew: with setarch -R, where the engine took nothing to be free near the libraries, cc1 did not begin for minutes.
func TestPlanSome(t *testing.T) {
	libc := load(t, libcFile, 0x7f1234500000)
	from := libc.at + 0x30000
	text := libc.slice(from, from+2500)
	var all []Site
	for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
		all = append(all, Site{a, mark{a, 3}})
	}
	for _, pages := range []uint64{0, 1, 4, 10000} {
		lo := (text.end() + 1<<20) &^ (PageSize - 1)
		b := newBench(text.slice(text.at, text.end()), []Range{{lo, lo + pages*PageSize}})
		done, made := 0, 0
		add := slices.Clone(all)
		for i := range add {
			add[i].Recipe = counted{add[i].Recipe, &made}
		}
		for len(add) > 0 {
			from := max(0, len(add)-200)
			piece := slices.Clone(add[from:])
			tx, err := b.PlanSome(piece)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range tx.Left {
				if b.Check(bad.At) == nil && !errors.Is(bad, ErrSpace) && !errors.Is(bad, x86.ErrReach) {
					t.Error(bad)
				}
				piece = slices.DeleteFunc(piece, func(s Site) bool { return s.At == bad.At })
			}
			b.apply(t, tx, piece, nil)
			b.Commit(tx)
			done += len(piece)
			add = add[:from]
		}
		t.Logf("%d pages: %d of %d sites, code made %d times", pages, done, len(all), made)
		if (done == 0) != (pages == 0) || done == len(all) && pages < 2 || done < len(all)*9/10 && pages > 4 || made > 2*len(all) {
			t.Error("too few, too many, or in vain")
		}
	}
}

// A counted is a recipe whose uses are counted.
type counted struct {
	Recipe
	made *int
}

func (c counted) Append(dst []byte, at uint64) ([]byte, []State, error) {
	*c.made++
	return c.Recipe.Append(dst, at)
}

// What is kept is never changed and never runs elsewhere, whatever is patched beside it: the kernel aborts a restartable sequence by the thread's address, and the abort would be missed in a trampoline.
func TestKeep(t *testing.T) {
	libc := load(t, libcFile, 0x7f1234500000)
	at := libc.at + 0x30000
	text := NewText(at, libc.orig[at-libc.at:][:1200])
	var kept []Range
	for lo := at + 40; lo+20 < text.end(); lo += 60 {
		kept = append(kept, Range{lo, lo + 20})
		text.Keep(lo, lo+20)
	}
	for a := text.at; a < text.end(); a++ {
		a = text.AddFunction(a, text.end())
	}
	b := newBench(text, around(text))
	var add []Site
	for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
		if b.Check(a) == nil {
			add = append(add, Site{a, mark{a, 5}})
		}
	}
	tx, err := b.Plan(add, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(add) < 50 {
		t.Errorf("only %d sites", len(add))
	}
	for _, r := range kept {
		first := r.Lo // an instruction that begins before may reach in
		if !bytes.Equal(text.Bytes(first+x86.MaxLen-1, r.Hi), text.orig[first+x86.MaxLen-1-text.at:r.Hi-text.at]) {
			t.Errorf("%#x has changed", r)
		}
	}
	for _, x := range tx.New {
		for _, p := range x.Trampoline.Parts[:len(x.Trampoline.Parts)-1] {
			if slices.ContainsFunc(kept, func(r Range) bool { return p.For >= r.Lo && p.For < r.Hi }) {
				t.Errorf("the trampoline of %#x runs %#x", x.At, p.For)
			}
		}
		if slices.ContainsFunc(kept, func(r Range) bool { return x.At >= r.Lo && x.At < r.Hi }) {
			t.Errorf("%#x is patched", x.At)
		}
	}
}

// A program of the Glasgow Haskell Compiler printed nothing under run --full: what describes a return point lies within the function that symbols tell, in front of the code that is returned
// to, and what of it looks like instructions was patched. The bytes are of such a function.
func TestDataWithin(t *testing.T) {
	for _, x := range []struct {
		name, code string
		known      int // bytes that are code
	}{
		{"behind a jump", "4989de" + "e9b8faffff" + "0f1f8000000000" + "1e000000b05b0b00" + "4983c418", 8},
		{"no instruction, behind what looks like one", "4989de" + "eb08" + "b05b" + "06" + "4983c418" + "c3", 5},
		{"that begins like an instruction", "4989de" + "eb08" + "0300" + "00000100" + "4983c418" + "c3", 5},
		{"behind a return", "4989de" + "c3" + "03000000", 4},
		{"behind a jump by a register", "4989de" + "ffe0" + "03000000", 5},
		{"behind a call, which it does not end", "4989de" + "c3" + "4989de" + "e800000000" + "0000", 4},
		{"no instruction, in the code that the function begins with", "4989de" + "b05b" + "06" + "4983c418" + "c3", 5},
		{"all of it", "03000000", 0},
		{"zeros that are no instruction", "4989de" + "48c7450000000000" + "0f1f840000000000" + "c3", 20},
	} {
		b, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		text := NewText(edgeAt, b)
		if end := text.AddFunction(edgeAt, text.end()); end != edgeAt+uint64(x.known) {
			t.Errorf("%s: up to %#x", x.name, end)
		}
		for a := text.Next(edgeAt, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
			if a >= edgeAt+uint64(x.known) {
				t.Errorf("%s: %#x is taken for an instruction", x.name, a)
			}
		}
	}
}
