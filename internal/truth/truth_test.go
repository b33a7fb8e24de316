package truth

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// randomSteps makes steps of several threads, enough for several frames.
func randomSteps(r *rand.Rand, n int) (steps []Step) {
	id := threadID{7, 7}
	for i := range n {
		if r.IntN(50) == 0 {
			id = threadID{7 + uint32(r.IntN(3)), r.Uint32() >> r.IntN(32)}
		}
		s := Step{Order: uint64(i), PID: id.pid, TID: id.tid, IP: r.Uint64() >> r.IntN(64)}
		if r.IntN(20) == 0 {
			s.Kind, s.Value = Kind(1+r.IntN(len(kindNames)-1)), r.Uint64()>>r.IntN(64)
		} else {
			for range r.IntN(4) * r.IntN(2) * (1 + r.IntN(2)*r.IntN(20)) {
				size := uint64(1) << r.IntN(7)
				if r.IntN(5) == 0 {
					size = 1 + r.Uint64()>>(1+r.IntN(63))
				}
				s.Accesses = append(s.Accesses, Access{r.Uint64() >> r.IntN(64), size, Flags(r.IntN(int(flagsKnown) + 1))})
			}
		}
		steps = append(steps, s)
	}
	return steps
}

func encode(t testing.TB, steps []Step, flushAt int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for i := range steps {
		if n := w.Add(&steps[i]); n != steps[i].Order {
			t.Fatalf("step %d got the number %d", i, n)
		}
		if flushAt > 0 && i%flushAt == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decode(file []byte) (steps []Step, err error) {
	r, err := NewReader(bytes.NewReader(file))
	for err == nil {
		var s Step
		if err = r.Next(&s); err == nil {
			s.Accesses = append([]Access(nil), s.Accesses...)
			steps = append(steps, s)
		}
	}
	return steps, err
}

// What is written is read again, over frames and flushes.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, flushAt := range []int{0, 7, 1000} {
		want := randomSteps(r, 60_000)
		file := encode(t, want, flushAt)
		got, err := decode(file)
		if err != io.EOF || !reflect.DeepEqual(got, want) {
			t.Fatalf("flushed every %d: %d steps of %d, %v", flushAt, len(got), len(want), err)
		}
		t.Logf("%.1f bytes a step", float64(len(file))/float64(len(want)))
	}
	if got, err := decode(encode(t, nil, 0)); err != io.EOF || len(got) != 0 {
		t.Errorf("an empty file: %v, %v", got, err)
	}
}

// Text says all that the file does.
func TestTextTwin(t *testing.T) {
	want := randomSteps(rand.New(rand.NewPCG(3, 4)), 2000)
	var text []byte
	for i := range want {
		text = append(AppendText(text, &want[i]), '\n')
	}
	got, err := ParseText(bytes.NewReader(append([]byte("# a comment\n\n"), text...)))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d steps of %d, %v", len(got), len(want), err)
	}
	line := "#5 1/2 ran 0x10 rwl4@0x20 rs8@0x30"
	if got := string(AppendText(nil, &Step{5, 1, 2, Ran, 0x10, 0, []Access{{0x20, 4, Read | Write | Locked}, {0x30, 8, Read | Stack}}})); got != line {
		t.Errorf("%q, want %q", got, line)
	}
	for _, bad := range []string{"x", "#1 1/2 ran", "#1 1/2 walked 0x1", "#1 1 ran 0x1", "#1 1/2 end 0x1", "#1 1/2 ran 0x1 r4", "#1 1/2 ran 0x1 r0@0x4", "#1 1/2 end 0x1 2 3"} {
		if _, err := ParseText(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A file cut off anywhere gives the steps of its whole frames and says that it is cut off; a changed byte is found.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	want := randomSteps(r, 300)
	file := encode(t, want, 50)
	for n := range len(file) {
		got, err := decode(file[:n])
		ok := errors.Is(err, ErrTruncated) || n < headerSize && errors.Is(err, ErrFormat)
		if !ok || len(got) > len(want) || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
			t.Fatalf("the first %d bytes: %d steps, %v", n, len(got), err)
		}
	}
	for n := range len(file) {
		bad := bytes.Clone(file)
		bad[n] ^= byte(1 + r.IntN(255))
		if _, err := decode(bad); n >= 12 && n < headerSize {
			continue // not used
		} else if err == nil || err == io.EOF {
			t.Fatalf("byte %d changed: %v", n, err)
		}
	}
	if _, err := decode(append(bytes.Clone(file), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte behind the end: %v", err)
	}
}

type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

// An output that fails is told at the end, however much is added.
func TestOutputFails(t *testing.T) {
	for _, left := range []int{0, 20, 1000} {
		w := NewWriter(&full{left})
		for i := range randomSteps(rand.New(rand.NewPCG(7, 8)), 100) {
			w.Add(&Step{IP: uint64(i)})
		}
		w.Flush()
		w.Flush()
		if err := w.Close(); left < 1000 && !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%d bytes of room: %v", left, err)
		}
	}
}

// FuzzReader: no bytes make the reader panic or grow; steps that it gives can be written and read again.
func FuzzReader(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	f.Add(encode(f, randomSteps(r, 20), 5))
	f.Add(encode(f, nil, 0))
	contents := encode(f, randomSteps(r, 40), 0)
	f.Add(contents[headerSize+frameHeader:]) // taken for the contents of a frame
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(file []byte) {
			got, err := decode(file)
			if err == nil {
				t.Fatal("no end")
			}
			if len(got) == 0 {
				return
			}
			again, err := decode(encode(t, got, 0))
			if err != io.EOF || !reflect.DeepEqual(again, got) {
				t.Fatalf("%v: %v\n%v", err, again, got)
			}
		}
		check(b)
		if len(b) > 0 && len(b) <= maxFrame { // with right checksums
			file := encode(t, nil, 0)[:headerSize]
			one := append(make([]byte, frameHeader), b...)
			frame(one, 0)
			check(append(file, one...))
		}
	})
}
