package patch

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// load gives a file's text as a module at a base, with the instructions that reading it from its start on gives.
func load(tb testing.TB, file string, base uint64) *Text {
	tb.Helper()
	f, err := elf.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	code, err := s.Data()
	if err != nil {
		tb.Fatal(err)
	}
	t := NewText(base+s.Addr, code)
	for at := t.at; at < t.end(); at++ {
		at = t.AddFunction(at, t.end())
	}
	return t
}

const libcFile, pythonFile = "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3"

// slice gives a text of a piece of another one.
func (t *Text) slice(lo, hi uint64) *Text {
	lo, hi = t.Next(lo, t.end()), t.Next(hi, t.end())
	s := NewText(lo, t.orig[lo-t.at:hi-t.at])
	for a := t.Next(lo, hi); a < hi; a = t.Next(a+1, hi) {
		s.Add(a, t.Len(a))
	}
	return s
}

// touches says whether an instruction accesses memory other than the stack implicitly.
func touches(in *x86.Inst) bool {
	for _, m := range in.Mems() {
		if m.Kind&(x86.MemStack|x86.MemAddress|x86.MemHint) == 0 && m.Access != x86.None {
			return true
		}
	}
	return false
}

// around gives ±2 GiB around a text without it and what its module may take.
func around(t *Text) []Range {
	lo, hi := t.at&^(PageSize-1)-4<<20, t.end()+4<<20
	return []Range{{lo - 1<<31, lo}, {hi, hi + 1<<31}}
}

// A bench is a planner with the image that its transactions make.
type bench struct {
	*Planner
	img   *image
	sites map[uint64]bool
	via   map[uint64]uint64 // whose jumps inside neighbours lie where
}

func newBench(t *Text, free []Range) *bench {
	return &bench{NewPlanner(t, NewSpace(free)), &image{t.at, t.orig, bytes.Clone(t.orig), map[uint64][]byte{}, map[uint64]uint64{}}, map[uint64]bool{}, map[uint64]uint64{}}
}

// checked gives the instructions of the text that can be patched.
func (b *bench) checked(text *Text) (all []uint64) {
	for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
		if b.Check(a) == nil {
			all = append(all, a)
		}
	}
	return all
}

// check walks from every boundary.
func (b *bench) check(changing map[uint64]bool) error {
	t := b.text
	for a := t.Next(t.at, t.end()); a < t.end(); a = t.Next(a+1, t.end()) {
		if err := b.img.walk(a, func(a uint64) (bool, bool) { return b.sites[a], changing[a] }); err != nil {
			return err
		}
	}
	return nil
}

// apply writes a transaction as the applier does, and checks the text after each step.
func (b *bench) apply(tb testing.TB, tx *Transaction, add []Site, remove []uint64) {
	tb.Helper()
	changing := map[uint64]bool{}
	for _, a := range remove {
		changing[a] = true
		delete(b.sites, a)
	}
	for _, s := range add {
		changing[s.At] = true
		b.sites[s.At] = true
	}
	for _, x := range tx.New {
		// A thread that a signal interrupted at a jump inside a neighbour is sent to the site. Jumps of two sites once lay at one place, one after the other or in one
		// transaction, and threads went on at the wrong site.
		if x.Via != 0 {
			if site, ok := b.via[x.Via]; ok && site != x.At {
				tb.Fatalf("the jump at %#x was for the site %#x, and is for %#x now", x.Via, site, x.At)
			}
			b.via[x.Via] = x.At
		}
		b.img.load(&x.Trampoline)
		if err := b.parts(x); err != nil {
			tb.Fatal(err)
		}
	}
	for _, e := range tx.Edits {
		if !bytes.Equal(b.img.now[e.At-b.img.at:][:len(e.Old)], e.Old) {
			tb.Fatalf("edit at %#x: the text has % x, not % x", e.At, b.img.now[e.At-b.img.at:][:len(e.Old)], e.Old)
		}
		b.img.traps[e.At] = e.To
	}
	for i, step := range tx.Steps() {
		for _, w := range step {
			copy(b.img.now[w.At-b.img.at:], w.Bytes)
			// Within a step the order is not defined: what is made of it half must do, too.
			if len(step) < 8 || w.At == step[len(step)-1].At {
				if err := b.check(changing); err != nil {
					tb.Fatalf("after step %d: %v", i, err)
				}
			}
		}
	}
	for _, e := range tx.Edits {
		if x := b.At(e.At); x == nil || x.Tier != TierTrap {
			delete(b.img.traps, e.At)
		}
	}
	if !bytes.Equal(b.img.now, b.text.planned()) {
		tb.Fatal("the steps do not make what was planned")
	}
	if err := b.check(nil); err != nil {
		tb.Fatal(err)
	}
}

// parts checks what a trampoline says of its parts: at each there is what it says, and nothing is between them.
func (b *bench) parts(x *Patch) error {
	end := 0
	for i, part := range x.Trampoline.Parts {
		at, code := x.Trampoline.At+uint64(part.Off), x.Trampoline.Code[part.Off:]
		bad := fmt.Errorf("patch at %#x: part %d of %+v is wrong: % x", x.At, i, x.Trampoline.Parts, x.Trampoline.Code)
		in, err := x86.Decode(code)
		if err != nil || part.Off != end || i == 0 && part.For != x.At {
			return bad
		}
		end = part.Off + in.Len
		if part.Recipe {
			if !bytes.HasPrefix(code, []byte{0x0f, 0x1f, 0x05}) || at+7+uint64(in.Mems()[0].Disp) != part.For {
				return bad
			}
			for x.Trampoline.Code[end] == filler {
				end++
			}
			continue
		}
		if to, ok := in.Target(at); i == len(x.Trampoline.Parts)-1 && in.Op == "jmp" && ok && to == part.For {
			continue
		}
		o, oc, ok := b.text.inst(part.For)
		n, err := b.img.same(o, oc, part.For, &in, code[:in.Len], at)
		if !ok || err != nil {
			return bad
		}
		end = part.Off + n
	}
	if end != len(x.Trampoline.Code) {
		return fmt.Errorf("patch at %#x: bytes behind the last part of %+v", x.At, x.Trampoline.Parts)
	}
	return nil
}

// Random sites come and go in real functions, in random transactions, some aborted. After each step of each, whatever boundary is entered runs the original's
// instructions with each site's recipe exactly once before it; when all sites are gone the text is as it was, and all memory is free.
func TestTransactions(t *testing.T) {
	libc := load(t, libcFile, 0x7f1234500000)
	rnd := rand.New(rand.NewPCG(1, 2))
	var tiers [Tiers]int
	for round := range 6 {
		at := libc.at + rnd.Uint64N(uint64(len(libc.orig))-8192)
		text := libc.slice(at, at+1500)
		free := around(text)
		if round%3 == 1 { // little is free: dear tiers
			free = nil
			for range 40 {
				a := text.at - 1<<30 - 1<<29 + rnd.Uint64N(3<<30)
				free = append(free, Range{a, a + 1<<20})
			}
		}
		if round%3 == 2 {
			free = free[1:]
		}
		b := newBench(text, free)
		whole := b.space.total()
		all := b.checked(text)
		for n := range 14 {
			var add []Site
			var remove []uint64
			density := rnd.IntN(40)
			for _, a := range all {
				switch {
				case n == 13 && b.sites[a], b.sites[a] && rnd.IntN(3) == 0:
					remove = append(remove, a)
				case n < 13 && !b.sites[a] && rnd.IntN(40) < density:
					add = append(add, Site{a, mark{a, rnd.IntN(3) * rnd.IntN(60)}})
				}
			}
			before := bytes.Clone(text.planned())
			tx, err := b.Plan(add, remove)
			if err != nil {
				if round%3 == 1 { // and no half of it
					if !bytes.Equal(before, text.planned()) {
						t.Fatal("a plan that failed has changed the text")
					}
					continue
				}
				t.Fatal(err)
			}
			if n < 13 && rnd.IntN(4) == 0 {
				b.Abort(tx)
				if !bytes.Equal(before, text.planned()) {
					t.Fatal("an aborted plan has changed the text")
				}
				continue
			}
			b.apply(t, tx, add, remove)
			b.Commit(tx)
			b.Free(tx)
			for _, x := range tx.New {
				if x.For == 0 {
					tiers[x.Tier]++
				}
			}
		}
		if !bytes.Equal(text.planned(), text.orig) || b.records.count() > 0 {
			t.Fatalf("round %d: after all sites are gone %d records are left; text unchanged: %v", round, b.records.count(), bytes.Equal(text.planned(), text.orig))
		}
		if now := b.space.total(); now != whole || b.space.InUse() > 0 {
			t.Fatalf("round %d: of %d free bytes %d are left", round, whole, now)
		}
	}
	t.Logf("patches by tier: %v", tiers)
	for tier, n := range tiers {
		if n == 0 {
			t.Errorf("no patch of tier %v was tried", Tier(tier))
		}
	}
}

// count is how many records there are.
func (s *records) count() (n int) {
	for _, b := range s.blocks {
		n += len(b)
	}
	return n
}

// total is how many bytes are free.
func (s *Space) total() uint64 {
	n := s.avail.total()
	for _, c := range s.chunks.within(0, 1<<48/chunkSize) {
		n -= uint64(c.taken)
	}
	return n
}

func (s *rangeSet) total() (n uint64) {
	for _, b := range s.blocks {
		for _, r := range b {
			n += r.Hi - r.Lo
		}
	}
	return n
}

// The oracle sees each kind of wrong plan: otherwise the tests above say nothing.
func TestOracleSeesMutations(t *testing.T) {
	libc := load(t, libcFile, 0x7f1234500000)
	text := libc.slice(libc.at+0x20000, libc.at+0x20000+3000)
	fresh := func() (*bench, []*Patch) {
		b := newBench(NewText(text.at, text.orig), around(text))
		copy(b.text.lens, text.lens)
		var add []Site
		for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
			if in, _, _ := text.inst(a); touches(in) && b.Check(a) == nil {
				add = append(add, Site{a, mark{a, 3}})
			}
		}
		tx, err := b.Plan(add, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.apply(t, tx, add, nil)
		return b, tx.New
	}
	first := func(list []*Patch, ok func(*Patch) bool) *Patch {
		i := slices.IndexFunc(list, ok)
		if i < 0 {
			t.Fatal("no patch to mutate")
		}
		return list[i]
	}
	pun := func(x *Patch) bool { return x.Tier == TierPun }
	for name, mutate := range map[string]func(*bench, []*Patch){
		"a byte of a jump": func(b *bench, list []*Patch) {
			x := first(list, func(x *Patch) bool { return len(x.Bytes) > 1 })
			b.img.now[x.At-b.img.at+1] ^= 0x40
		},
		"a byte of a punned successor": func(b *bench, list []*Patch) {
			x := first(list, pun)
			b.img.now[x.At+uint64(len(x.Bytes))-b.img.at] ^= 1
		},
		"a site without its recipe": func(b *bench, _ []*Patch) {
			for a := range b.sites {
				m := b.At(a).Trampoline
				b.img.load(&Trampoline{At: m.At, Code: bytes.Repeat([]byte{0x90}, 10)})
				return
			}
		},
		"a recipe twice": func(b *bench, list []*Patch) {
			x := first(list, pun)
			code, _, _ := mark{x.At, 3}.Append(nil, x.Trampoline.At)
			again, _, _ := mark{x.At, 0}.Append(code[:len(code):len(code)], x.Trampoline.At+uint64(len(code)))
			b.img.load(&Trampoline{At: x.Trampoline.At, Code: append(again, x.Trampoline.Code[len(code):]...)})
		},
		"a recipe of a site that is none": func(b *bench, list []*Patch) { delete(b.sites, first(list, pun).At) },
		"a successor's site left out": func(b *bench, list []*Patch) {
			for _, x := range list {
				for _, part := range x.Trampoline.Parts[:len(x.Trampoline.Parts)-1] {
					if !b.sites[part.For] && b.At(part.For) == nil {
						b.sites[part.For] = true
						return
					}
				}
			}
		},
		"a jump back to the wrong place": func(b *bench, list []*Patch) {
			x := first(list, func(x *Patch) bool { c := x.Trampoline.Code; return c[len(c)-5] == opJump })
			m := Trampoline{At: x.Trampoline.At, Code: bytes.Clone(x.Trampoline.Code)}
			m.Code[len(m.Code)-4]++
			b.img.load(&m)
		},
		"an instruction overwritten": func(b *bench, list []*Patch) {
			for a := range maps.Keys(b.sites) {
				copy(b.img.now[a-b.img.at:], b.img.orig[a-b.img.at:][:1])
				return
			}
		},
	} {
		b, list := fresh()
		mutate(b, list)
		if err := b.check(nil); err == nil {
			t.Errorf("the oracle does not see %s", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// The order of the steps matters, and the oracle sees a wrong one: a jump before the bytes that it is made of, and int3 in those bytes before it is gone.
func TestOracleSeesWrongOrder(t *testing.T) {
	b := newBench(code(t, "488b07488b0f488b17488b1fc39090909090909090"), []Range{{edgeAt - 1<<31, edgeAt}, {edgeAt + PageSize, edgeAt + 1<<31}})
	site := func(i uint64) Site { return Site{edgeAt + 3*i, mark{edgeAt + 3*i, 1}} }
	first := []Site{site(0), site(1)}
	tx, err := b.Plan(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.apply(t, tx, first, nil)
	b.Commit(tx)
	then := []Site{site(2)}
	if tx, err = b.Plan(then, nil); err != nil {
		t.Fatal(err)
	}
	steps := tx.Steps()
	ranks := len(steps) / 2
	if len(tx.Edits) != 3 || ranks != 3 || len(steps) != 7 {
		t.Fatalf("%d edits, %d steps", len(tx.Edits), len(steps))
	}
	for _, x := range tx.New {
		b.img.load(&x.Trampoline)
	}
	for _, e := range tx.Edits {
		b.img.traps[e.At] = e.To
	}
	changing := map[uint64]bool{then[0].At: true}
	was := bytes.Clone(b.img.now)
	for from, order := range map[int][]int{0: {2}, 1: {0, 2}, 4: {0, 1, 2, 3, 6}, 5: {0, 1, 2, 3, 4, 6}} {
		copy(b.img.now, was)
		for i, k := range order {
			for _, w := range steps[k] {
				copy(b.img.now[w.At-b.img.at:], w.Bytes)
			}
			if err := b.check(changing); (err != nil) != (i == len(order)-1) {
				t.Errorf("step %d instead of step %d: after it: %v", k, from, err)
			}
		}
	}
}

// All memory instructions of a library are sites, at once: each tier's share, and what the trampolines take.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name, file string
		base       uint64
		sides      int
	}{
		{"libc", libcFile, 0x7f1234500000, 2},
		{"libc, only above it free", libcFile, 0x7f1234500000, 1},
		{"python3, not PIE", pythonFile, 0, 1},
	} {
		if testing.Short() && c.base == 0 {
			t.Logf("%s: not with -short", c.name)
			continue
		}
		text := load(t, c.file, c.base)
		free := around(text)[2-c.sides:]
		if c.base == 0 {
			free = []Range{{text.end() + 16<<20, 1 << 31}}
		}
		b := newBench(text, free)
		var add []Site
		shared := 0
		for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
			if in, _, _ := text.inst(a); touches(in) {
				switch err := b.Check(a); err {
				case nil:
					add = append(add, Site{a, mark{a, 20}})
					b.sites[a] = true
				case ErrShared:
					shared++
				case x86.ErrCall:
				default:
					t.Fatalf("%#x: %v", a, err)
				}
			}
		}
		tx, err := b.Plan(add, nil)
		if err != nil {
			t.Fatal(err)
		}
		var tiers [Tiers]int
		size := 0
		for _, x := range tx.New {
			if x.For == 0 {
				tiers[x.Tier]++
			}
			size += len(x.Trampoline.Code)
			b.img.load(&x.Trampoline)
			if x.Tier == TierTrap {
				b.img.traps[x.At] = x.Trampoline.At
			}
		}
		b.img.now = text.planned()
		if err := b.check(nil); err != nil {
			t.Error(err)
		}
		b.space.Frames()
		b.space.Shown()
		t.Logf("%s: %d sites, %d refused as shared; %d bytes of trampolines in %d pages, %d frames, %d areas", c.name, len(add), shared, size, b.space.InUse(), b.space.FrameCount(), b.space.Areas())
		for tier, n := range tiers {
			t.Logf("  %-18v %7d  %.3f%%", Tier(tier), n, 100*float64(n)/float64(len(add)))
		}
		if traps := tiers[TierTrap]; traps*1000 > 3*len(add) {
			t.Errorf("%s: %d of %d sites trap, more than 0.3%%", c.name, traps, len(add))
		}
	}
}
