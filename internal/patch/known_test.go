package patch

import (
	"bytes"
	"slices"
	"testing"
)

// A text that is told what another one of the same bytes knows knows the same, elsewhere too, and is planned for alike.
func TestKnown(t *testing.T) {
	from := load(t, libcFile, 0x7f1234500000)
	from.Complete()
	b := from.AppendKnown(nil)
	odd := append([]byte{0}, b...)[1:] // words that do not lie where words lie are copied
	for _, b := range [][]byte{b, odd} {
		to, err := KnownText(0x7f0000400000, from.orig, b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(from.lens, to.lens) || !slices.Equal(from.targets, to.targets) || !slices.Equal(from.loops, to.loops) || !to.complete {
			t.Error("it knows something else")
		}
		if !bytes.Equal(to.AppendKnown(nil), b) {
			t.Error("it tells something else")
		}
	}
	if _, err := KnownText(0x7f0000400000, from.orig[:len(from.orig)-16], b); err == nil {
		t.Error("a shorter text takes it")
	}
}

// Any bytes are refused, or leave a text that can be planned for: nothing in them leads out of it.
func FuzzKnown(f *testing.F) {
	code := []byte{0x48, 0x8b, 0x07, 0x48, 0x89, 0x46, 0x08, 0xeb, 0xf7, 0xf0, 0x48, 0x0f, 0xc1, 0x07, 0x8b, 0x05, 1, 2, 3, 4, 0xc3, 0x90, 0x66, 0x90}
	text := NewText(0x400000, code)
	text.AddFunction(0x400000, 0x400000+uint64(len(code)))
	f.Add(text.AppendKnown(nil))
	text.Complete()
	f.Add(text.AppendKnown(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := KnownText(0x400000, code, b)
		if err != nil {
			return
		}
		p := NewPlanner(text, NewSpace([]Range{{0x10000000, 0x20000000}}))
		var add []Site
		for a := text.Next(text.at, text.end()); a < text.end(); a = text.Next(a+1, text.end()) {
			text.loop(a)
			text.target(a)
			if p.Check(a) == nil {
				add = append(add, Site{a, nops(8)})
			}
		}
		tx, err := p.PlanSome(add)
		if err != nil {
			t.Fatal(err)
		}
		p.Commit(tx)
		p.Close()
	})
}

// A text of a part of another one that is told what that knows there knows the same, but for an instruction that passes the end.
func TestPart(t *testing.T) {
	from := load(t, libcFile, 0x7f1234500000)
	from.Complete()
	n := uint64(len(from.orig))
	for _, r := range []Range{{0, n}, {0, 64}, {4096, 8192}, {64, 64000}, {n &^ 63, n}, {n/2&^63 - 4096, n}} {
		const at = 0x7f0000400000
		to, err := KnownText(at+r.Lo, from.orig[r.Lo:r.Hi:r.Hi], from.AppendPart(nil, from.at+r.Lo, from.at+r.Hi))
		if err != nil || !to.complete {
			t.Fatalf("%#x: %v", r, err)
		}
		samePart(t, from, to, r, at)
	}
	for _, r := range []Range{{0, n}, {1, 64}, {4099, 8191}, {n/2 - 77, n}, {n - 1, n}} {
		samePart(t, from, from.Part(from.at+r.Lo, from.at+r.Hi), r, from.at)
	}
}

// samePart says where to, which lies at `at` less what comes before r, knows other than from does of r.
func samePart(t *testing.T, from, to *Text, r Range, at uint64) {
	t.Helper()
	for i := r.Lo; i < r.Hi; i++ {
		want := from.Len(from.at + i)
		if i+uint64(want) > r.Hi {
			want = 0
		}
		if got := to.Len(at + i); got != want {
			t.Fatalf("%#x: the instruction at %#x has %d bytes, not %d", r, i, got, want)
		}
		if to.target(at+i) != from.target(from.at+i) || to.loop(at+i) != from.loop(from.at+i) {
			t.Fatalf("%#x: another target or loop at %#x", r, i)
		}
	}
}
