package wire

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// fill makes a record of s with random fields by Places alone, and gives the value of each field.
func fill(r *rand.Rand, s *Spec) (w []uint64, values []uint64) {
	places, words := s.Places()
	w = make([]uint64, words)
	w[0] = r.Uint64()<<8 | uint64(s.ID)
	for i, f := range s.Fields {
		v := r.Uint64()
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		values = append(values, v)
		w[places[i].Word] |= v << places[i].Shift
	}
	if s.Tail == NoTail {
		return w, values
	}
	n := r.Uint64N(9)
	w[words-1] = n
	for i := uint64(0); i < TailWords(s.Tail, n); i++ {
		x := r.Uint64()
		switch {
		case s.Tail == Bytes && i == n/8: // the last, padded word
			x &= 1<<(8*(n%8)) - 1
		case s.Tail == Helds && i%2 == 1:
			x &= 1<<48 - 1
		}
		w = append(w, x)
	}
	return w, values
}

// Every generated decoder finds in a record what the table says is there, and every generated encoder puts it back to the same words.
func TestCodecs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range Events {
		s := &Events[i]
		if recode[s.ID] == nil {
			t.Fatalf("%s has no generated codec: run go generate ./internal/wire", s.Name)
		}
		for range 500 {
			w, values := fill(r, s)
			if n, err := RecordWords(w); err != nil || n != len(w) {
				t.Fatalf("%s: RecordWords says %d, %v of %d words", s.Name, n, err, len(w))
			}
			d := reflect.ValueOf(decoded[s.ID](w))
			for j, f := range s.Fields {
				got := uint64(0)
				if v := d.Field(j); v.CanInt() {
					got = uint64(v.Int())
				} else {
					got = v.Uint()
				}
				if f.Width < 64 {
					got &= 1<<f.Width - 1
				}
				if got != values[j] {
					t.Fatalf("%s.%s: decoded %#x, table says %#x", s.Name, f.Name, got, values[j])
				}
			}
			if back := recode[s.ID](w); !slices.Equal(back, w) {
				t.Fatalf("%s: %x\nback %x", s.Name, w, back)
			}
		}
	}
	if len(recode) != len(Events) {
		t.Errorf("%d generated codecs, %d events", len(recode), len(Events))
	}
}

// Signed fields come out signed.
func TestSignedFields(t *testing.T) {
	w := EvWantEnd{Obj: 1, Result: -110}.Append(nil, 5)
	if got := DecodeWantEnd(w).Result; got != -110 {
		t.Errorf("result %d", got)
	}
}

// The table is what a table must be: names and ids once, enums that exist, values that fit, a name for every value.
func TestTable(t *testing.T) {
	names, enums := map[string]bool{}, map[string]*EnumSpec{}
	for i := range Enums {
		e := &Enums[i]
		if enums[e.Name] != nil || len(e.Values) == 0 {
			t.Errorf("enum %s: twice, or empty", e.Name)
		}
		enums[e.Name] = e
		words, values := map[string]bool{}, map[uint32]bool{}
		for _, v := range e.Values {
			if words[v.Name] || values[v.V] {
				t.Errorf("enum %s: %d %s twice", e.Name, v.V, v.Name)
			}
			words[v.Name], values[v.V] = true, true
			if got, ok := EnumValueOf(e.Name, v.Name); !ok || got != v.V || enumName(e.Name, v.V) != v.Name {
				t.Errorf("enum %s: %s is not %d both ways", e.Name, v.Name, v.V)
			}
		}
	}
	for i := range Events {
		s := &Events[i]
		if names[s.Name] || SpecOf(s.ID) != s || s.ID.String() != s.Name || s.Doc == "" {
			t.Errorf("event %d %s: twice, not found, or undocumented", s.ID, s.Name)
		}
		names[s.Name] = true
		fields := map[string]bool{"tail": s.Tail == Bytes, "pcs": s.Tail == PCs, "held": s.Tail == Helds}
		for _, f := range s.Fields {
			if fields[f.Name] {
				t.Errorf("%s.%s: twice", s.Name, f.Name)
			}
			fields[f.Name] = true
			if f.Width != 8 && f.Width != 16 && f.Width != 32 && f.Width != 64 {
				t.Errorf("%s.%s: width %d", s.Name, f.Name, f.Width)
			}
			if f.Enum == "" {
				continue
			}
			if enums[f.Enum] == nil {
				t.Errorf("%s.%s: no enum %s", s.Name, f.Name, f.Enum)
				continue
			}
			for _, v := range enums[f.Enum].Values {
				if uint64(v.V) >= 1<<f.Width {
					t.Errorf("%s.%s: %s does not fit", s.Name, f.Name, v.Name)
				}
			}
		}
	}
}

// A record that is cut short, unknown or longer than any may be is told from a whole one.
func TestRecordWords(t *testing.T) {
	for _, c := range []struct {
		name  string
		words []uint64
		want  int
		short bool
		ok    bool
	}{
		{"nothing", nil, 1, true, false},
		{"unknown id", []uint64{0}, 0, false, false},
		{"whole, more behind", append(EvPad{Tail: make([]byte, 9)}.Append(nil, 1), 7, 7), 4, false, true},
		{"count missing", []uint64{uint64(TypeHolds)}, 2, true, false},
		{"tail missing", []uint64{uint64(TypeHolds), 3}, 8, false, true},
		{"tail of 2^63", []uint64{uint64(TypeHolds), 1 << 63}, 0, false, false},
		{"the longest", []uint64{uint64(TypePad), (MaxRecordWords - 2) * 8}, MaxRecordWords, false, true},
		{"one too long", []uint64{uint64(TypePad), (MaxRecordWords-2)*8 + 1}, 0, false, false},
	} {
		n, err := RecordWords(c.words)
		if n != c.want || (err == nil) != c.ok || errors.Is(err, ErrShort) != c.short {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
	}
}

// FuzzRecordWords: whatever the words, a length that is given holds, and a record of that length decodes.
func FuzzRecordWords(f *testing.F) {
	f.Add(uint64(TypeHolds), uint64(1), uint64(2))
	f.Add(uint64(TypePad), uint64(1<<63), uint64(2))
	f.Add(uint64(TypeStack), uint64(3), uint64(1))
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		w := make([]uint64, MaxRecordWords+8)
		w[0], w[1], w[2] = a, b, c
		for i := 3; i < len(w); i++ {
			w[i] = c
		}
		n, err := RecordWords(w)
		if err != nil {
			return
		}
		if n < 1 || n > MaxRecordWords {
			t.Fatalf("length %d", n)
		}
		if m, err := RecordWords(recode[Type(a)](w[:n])); err != nil || m != n {
			t.Fatalf("of %d words, recoded %d, %v", n, m, err)
		}
	})
}
