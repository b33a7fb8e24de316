package perf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// compressed gives a file whose records COMM, numbered by their times, came through one stream of Zstandard, cut anywhere, with other records
// between the pieces; and how many are whole at the end of each piece.
func compressed(t testing.TB, records int, second bool) (file []byte, whole []int) {
	events := []Event{{Attr: Attr{SampleType: SampleTime, Flags: FlagSampleIDAll}}}
	var plain []byte
	for i := range records {
		b, err := appendRecord(nil, binary.LittleEndian, &events[0].Attr, 0, &Comm{Comm: "name"}, &Identity{Time: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		plain = append(plain, b...)
	}
	var squeezed bytes.Buffer
	z, err := zstd.NewWriter(&squeezed, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	w, err := NewWriter(m, events, false)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 8))
	size, all := len(plain)/records, len(plain)
	for len(plain) > 0 {
		n := min(len(plain), 1+r.IntN(3000))
		if _, err := z.Write(plain[:n]); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
		plain = plain[n:]
		whole = append(whole, (all-len(plain))/size)
		piece := Record(&Compressed{Data: bytes.Clone(squeezed.Bytes())})
		if second {
			piece = &Compressed2{Data: bytes.Clone(squeezed.Bytes())}
		}
		squeezed.Reset()
		for _, rec := range []Record{piece, &FinishedRound{}} {
			if err := w.Write(&Entry{Record: rec}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Finish(&Info{}); err != nil {
		t.Fatal(err)
	}
	return m.b, whole
}

// Compressed records come in their order, each as soon as its last piece is there, and none is lost.
func TestCompressed(t *testing.T) {
	for _, second := range []bool{false, true} {
		next, rounds := uint64(0), 0
		file, whole := compressed(t, 5000, second)
		for _, e := range all(t, open(t, file)) {
			switch rec := e.Record.(type) {
			case *Comm:
				if e.Identity.Time != next || rec.Comm != "name" || !e.Inflated {
					t.Fatalf("%+v %+v, want number %d", e, rec, next)
				}
				next++
			case *FinishedRound:
				if next != uint64(whole[rounds]) {
					t.Fatalf("%d records after %d pieces, want %d", next, rounds+1, whole[rounds])
				}
				rounds++
			default:
				t.Fatalf("%v", e.Record.Type())
			}
		}
		if next != 5000 || rounds < 50 {
			t.Errorf("%d records in %d pieces", next, rounds)
		}
	}
}

// A stream that breaks off or is damaged ends with an error that says where the piece is.
func TestCompressedDamaged(t *testing.T) {
	file, _ := compressed(t, 500, false)
	at := bytes.Index(file, []byte{0x28, 0xb5, 0x2f, 0xfd}) // the frame's magic number
	for _, place := range []int{at, at + 6, at + 200} {
		bad := bytes.Clone(file)
		for i := range 8 {
			bad[place+i] ^= 0xff
		}
		var err error
		for r := open(t, bad); err == nil; {
			_, err = r.Next()
		}
		var where *Error
		if !errors.As(err, &where) || where.Offset < 100 || !strings.Contains(err.Error(), "COMPRESSED") {
			t.Errorf("damaged at %d: %v", place, err)
		}
	}
	if r := open(t, file); r != nil { // given up in the middle: Close ends the coroutine
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if e, err := r.Next(); e != nil || err == nil {
			t.Errorf("after Close: %v, %v", e, err)
		}
	}
}

// What cannot be read is refused with a word on why.
func TestRefused(t *testing.T) {
	good, pipe := small(t, false, false), small(t, true, false)
	change := func(b []byte, at int, with string) []byte {
		b = bytes.Clone(b)
		copy(b[at:], with)
		return b
	}
	for _, c := range []struct {
		file []byte
		want string
		err  error
	}{
		{nil, "header: the file ends too early", ErrTruncated},
		{good[:50], "header: the file ends too early", ErrTruncated},
		{[]byte("\x7fELF and a lot more"), `it begins with "\x7fELF and", not with "PERFILE2"`, ErrFormat},
		{change(good, 0, "PERFFILE"), "version 1", ErrFormat},
		{change(good, 8, "\x20"), "32 bytes, a file's has 104", ErrSize},
		{change(good, 16, "\x03"), "offset 0x10: attributes", ErrSize},
		{change(good, 31, "\x7f"), "offset 0x18: attributes", ErrTruncated},
		{change(good, 47, "\x01"), "offset 0x28: data section", ErrTruncated},
		{change(good, 55, "\xff"), "offset 0x30: data section", ErrSize},
	} {
		_, err := NewReader(bytes.NewReader(c.file), int64(len(c.file)))
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := NewPipeReader(bytes.NewReader(good)); !errors.Is(err, ErrFormat) {
		t.Errorf("a file as a pipe: %v", err)
	}
	r, err := NewPipeReader(bytes.NewReader(pipe[:len(pipe)-3]))
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, ErrTruncated) {
		t.Errorf("a pipe that breaks off: %v", err)
	}
}

// A file that perf did not finish (it was killed) has no data size and no features: its records are read as far as they go.
func TestUnfinished(t *testing.T) {
	file := small(t, false, false)
	whole := all(t, open(t, file))
	end := binary.LittleEndian.Uint64(file[40:]) + binary.LittleEndian.Uint64(file[48:])
	cut := bytes.Clone(file[:end])
	binary.LittleEndian.PutUint64(cut[48:], 0)
	r := open(t, cut)
	if !r.Unfinished {
		t.Error("not unfinished")
	}
	sameEntries(t, "unfinished", all(t, r), whole)
}

// A record of an unknown event, or of an unknown type, does not stop the reading.
func TestGoesOn(t *testing.T) {
	file := small(t, false, false)
	entries := all(t, open(t, file))
	binary.LittleEndian.PutUint64(file[entries[1].Offset+8:], 99) // the identifier of the first sample
	binary.LittleEndian.PutUint32(file[entries[6].Offset:], 200)  // FINISHED_ROUND
	r := open(t, file)
	for i := range entries {
		e, err := r.Next()
		if e == nil {
			t.Fatal(err)
		}
		_, unknown := e.Record.(*Unknown)
		if unknown != (i == 1 || i == 6) || (err != nil) != (i == 1) || i == 1 && !errors.Is(err, ErrID) {
			t.Errorf("record %d: %v, %v", i, e.Record.Type(), err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

// The payload that was not read is skipped.
func TestPayloadSkipped(t *testing.T) {
	for _, pipe := range []bool{false, true} {
		file := small(t, pipe, true)
		want := all(t, open(t, file))
		r := open(t, file)
		for i := range want {
			e, err := r.Next()
			if err != nil || e.Record.Type() != want[i].Record.Type() {
				t.Fatalf("record %d: %v", i, err)
			}
			if e.Payload != nil {
				if n, err := io.ReadFull(e.Payload, make([]byte, 3)); n != 3 {
					t.Fatal(err)
				}
			}
		}
	}
}
