package trace

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// randomRecord makes a record of spec as an encoder writes it: nothing outside the fields, zeros behind a tail of bytes.
func randomRecord(r *rand.Rand, spec *wire.Spec) []uint64 {
	places, words := spec.Places()
	w := make([]uint64, words)
	w[0] = r.Uint64()<<8 | uint64(spec.ID)
	for i, f := range spec.Fields {
		v := r.Uint64()
		switch s := enumOf(f.Enum); {
		case r.IntN(4) == 0:
			v = 0
		case s != nil && r.IntN(2) == 0:
			v = uint64(s.Values[r.IntN(len(s.Values))].V)
		}
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		w[places[i].Word] |= v << places[i].Shift
	}
	if spec.Tail == wire.NoTail {
		return w
	}
	n := r.Uint64N(20)
	w[words-1] = n
	tail := make([]uint64, wire.TailWords(spec.Tail, n))
	switch spec.Tail {
	case wire.Bytes:
		b := wordBytes(tail)[:min(n, uint64(len(tail)*8))]
		for i := range b {
			b[i] = byte(r.IntN(256))
			if r.IntN(2) == 0 {
				b[i] = ` "=\[],$a/`[r.IntN(10)]
			}
		}
	case wire.PCs:
		for i := range tail {
			tail[i] = r.Uint64()
		}
	case wire.Helds:
		for i := 0; i < len(tail); i += wire.HeldWords {
			h := wire.PackHeld(wire.Held{Obj: r.Uint64(), Stack: r.Uint32(), Mode: uint8(r.IntN(3)), Kind: uint8(r.IntN(20))})
			copy(tail[i:], h[:])
		}
	}
	return append(w, tail...)
}

// Every event of the table survives the way to text and back, word for word, whatever its fields hold, and its text is the same again.
func TestTextRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range wire.Events {
		spec := &wire.Events[i]
		for range 200 {
			w := randomRecord(r, spec)
			e := wire.Event{TS: w[0] >> 8, Type: spec.ID, Thread: r.Uint32(), Words: w}
			process := r.Uint64()
			line, err := AppendText(nil, process, &e)
			if err != nil {
				t.Fatalf("%s: %v", spec.Name, err)
			}
			p, back, err := Parse(string(line))
			if err != nil {
				t.Fatalf("Parse(%s): %v", line, err)
			}
			if p != process || back.TS != e.TS || back.Type != e.Type || back.Thread != e.Thread || !slices.Equal(back.Words, w) {
				t.Fatalf("%s\nwords %x\nback  %x", line, w, back.Words)
			}
			again, err := AppendText(nil, p, &back)
			if err != nil || !bytes.Equal(again, line) {
				t.Fatalf("%s\nprints again as\n%s (%v)", line, again, err)
			}
		}
	}
}

// The lines are what docs/formats.md and people's tests show: this is the form, with numbers, words, flags, lists.
func TestPrintForm(t *testing.T) {
	var b bytes.Buffer
	for _, w := range [][]uint64{
		wire.EvWant{Obj: 0x4090, Kind: wire.ObjectRwlock, Mode: wire.ModeShared, How: wire.HowTimed, Stack: 4, Value: 7,
			Held: []wire.Held{{Obj: 0x10, Stack: 3, Kind: 1}, {Obj: 0x20, Mode: 1, Kind: 2}}}.Append(nil, 9),
		wire.EvInit{Obj: 1, Kind: 99, Flags: wire.ObjFlagRecursive | wire.ObjFlagPshared | 1<<15}.Append(nil, 10),
		wire.EvStack{ID: 5, PCs: []uint64{0x401136, 0x401200}}.Append(nil, 11),
		wire.EvExec{Tail: []byte("/bin/a b\x00\"x\"\xff")}.Append(nil, 12),
		wire.EvExecFailed{Errno: -2}.Append(nil, 13),
	} {
		if err := Print(&b, 1, &wire.Event{Thread: 2, Words: w}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `P1 T2 @9 want obj=0x4090 kind=rwlock mode=shared how=timed stack=S4 target=T0 value=7 held=[mutex:0x10:exclusive:S3,rwlock:0x20:shared:S0]
P1 T2 @10 init obj=0x1 kind=99 flags=recursive|pshared|0x8000 stack=S0 value=0
P1 T2 @11 stack id=S5 pcs=[0x401136,0x401200]
P1 T2 @12 exec tail="/bin/a b\x00\"x\"\xff"
P1 T2 @13 exec-failed errno=-2
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// What a test writes by hand: comments, no timestamps, names for addresses, defaults for what is left out.
func TestParseTextByHand(t *testing.T) {
	lines, err := ParseText(strings.NewReader(`
		# two threads
		thread-start
		T2 thread-start tid=7
		@100 acquire obj=$a
		P2 order obj=$b held=[$a:S3,rwlock:$c:shared,mutex:0x30:exclusive:S1]
		stack id=S1 pcs=[$f,0x20]
		holds held=[]
	`))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, l := range lines {
		if err := Print(&got, l.Process, &l.Event); err != nil {
			t.Fatal(err)
		}
	}
	const want = `P1 T1 @1 thread-start self=T1 tid=0 pthread=0x0 stack_lo=0x0 stack_hi=0x0
P1 T2 @2 thread-start self=T2 tid=7 pthread=0x0 stack_lo=0x0 stack_hi=0x0
P1 T1 @100 acquire obj=0x10000 kind=mutex mode=exclusive how=block stack=S0
P2 T1 @101 order obj=0x10100 kind=mutex mode=exclusive how=block stack=S0 held=[mutex:0x10000:exclusive:S3,rwlock:0x10200:shared:S0,mutex:0x30:exclusive:S1]
P1 T1 @102 stack id=S1 pcs=[0x10300,0x20]
P1 T1 @103 holds held=[]
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// A mistake in the text is named with its line and word.
func TestParseErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "no event",
		"P1 T1 @3":                        "no event",
		"grab obj=1":                      `unknown event "grab"`,
		"Px acquire":                      "Px: want a number of 64 bits",
		"@72057594037927936 acquire":      "want a number of 56 bits",
		"acquire obj":                     `"obj" is not field=value`,
		"acquire lock=1":                  `no field "lock"`,
		"acquire obj=1 obj=2":             "field obj twice",
		"acquire obj=x":                   "obj=x: want a number",
		"acquire kind=mutexes":            "kind=mutexes: want a word of Object",
		"acquire kind=256":                "kind=256",
		"acquire stack=3":                 "stack=3: want S and a number",
		"exec-failed errno=2147483648":    "want a whole number of 32 bits",
		`exec tail="x`:                    "a quoted string does not end",
		"exec tail=x":                     "want a quoted string",
		"holds held=0x10":                 "want […,…]",
		"holds held=[a:b:c:d:S1]":         "want",
		"stack id=S1 pcs=[0x1,,0x2]":      "pcs",
		"release held=[]":                 `no field "held"`,
		"init flags=recursive|fast obj=1": "want a word of ObjFlag",
	} {
		_, _, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): error %v, want one with %q", in, err, want)
		}
	}
	_, err := ParseText(strings.NewReader("thread-start\n\nbad"))
	if err == nil || !strings.HasPrefix(err.Error(), "line 3: ") {
		t.Errorf("error %v, want one that names line 3", err)
	}
}

// A record that is none is refused, not printed wrongly.
func TestPrintRefuses(t *testing.T) {
	for _, w := range [][]uint64{nil, {255}, {uint64(wire.TypeAcquire)}, append(acquire(1, 2), 0), {uint64(wire.TypeExec), 1 << 62}} {
		if err := Print(&bytes.Buffer{}, 1, &wire.Event{Words: w}); err == nil {
			t.Errorf("Print of words %x: no error", w)
		}
	}
}

// FuzzParse: arbitrary text never panics, and what parses prints to a text that parses to the same again.
func FuzzParse(f *testing.F) {
	f.Add(`P1 T2 @9 want obj=0x4090 kind=rwlock how=timed stack=S4 value=7 held=[mutex:0x10:exclusive:S3,$x]`)
	f.Add(`init obj=$a flags=recursive|pshared|0x8000`)
	f.Add(`process pid=3 tail="/bin/a\x00b"`)
	f.Add(`stack id=S1 pcs=[1,2]`)
	f.Fuzz(func(t *testing.T, s string) {
		lines, err := ParseText(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, l := range lines {
			text, err := AppendText(nil, l.Process, &l.Event)
			if err != nil {
				t.Fatalf("parsed, does not print: %v", err)
			}
			p, e, err := Parse(string(text))
			if err != nil {
				t.Fatalf("printed, does not parse: %s: %v", text, err)
			}
			again, err := AppendText(nil, p, &e)
			if err != nil || !bytes.Equal(text, again) {
				t.Fatalf("%s\nprints again as\n%s (%v)", text, again, err)
			}
		}
	})
}
