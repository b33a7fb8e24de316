package perf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// memory is a file in memory.
type memory struct {
	b  []byte
	at int64
}

func (m *memory) Write(p []byte) (int, error) {
	m.b = append(m.b, make([]byte, max(0, int(m.at)+len(p)-len(m.b)))...)
	m.at += int64(copy(m.b[m.at:], p))
	return len(p), nil
}

func (m *memory) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, fmt.Errorf("seek from %d", whence)
	}
	m.at = offset
	return offset, nil
}

// rewind lets the payloads of entries be read again.
func rewind(t testing.TB, entries []*Entry) {
	for _, e := range entries {
		if s, ok := e.Payload.(io.Seeker); ok {
			if _, err := s.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// inPipe says whether a record belongs to the head of a pipe, which a writer makes of events and features.
func inPipe(e *Entry) bool {
	switch e.Record.(type) {
	case *HeaderAttr, *HeaderFeature:
		return true
	}
	return false
}

// rewrite writes entries anew, as a file or a pipe.
func rewrite(t testing.TB, r *Reader, entries []*Entry, pipe, bigEndian bool) []byte {
	t.Helper()
	rewind(t, entries)
	m := &memory{}
	var w *Writer
	var err error
	if pipe {
		w, err = NewPipeWriter(m, r.Events, &r.Info, bigEndian)
	} else {
		w, err = NewWriter(m, r.Events, bigEndian)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if inPipe(e) {
			continue
		}
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(&r.Info); err != nil {
		t.Fatal(err)
	}
	return m.b
}

// sameEntries compares what records say, not where they lie.
func sameEntries(t testing.TB, what string, got, want []*Entry) {
	t.Helper()
	keep := func(all []*Entry) (kept []*Entry) {
		for _, e := range all {
			if !inPipe(e) {
				kept = append(kept, e)
			}
		}
		return kept
	}
	got, want = keep(got), keep(want)
	if len(got) != len(want) {
		t.Fatalf("%s: %d records, want %d", what, len(got), len(want))
	}
	rewind(t, want)
	for i := range got {
		g, w := *got[i], *want[i]
		var gp, wp []byte
		if g.Payload != nil {
			gp, _ = io.ReadAll(g.Payload)
		}
		if w.Payload != nil {
			wp, _ = io.ReadAll(w.Payload)
		}
		if !bytes.Equal(gp, wp) {
			t.Fatalf("%s: record %d, %v: other data follow", what, i, g.Record.Type())
		}
		g.Offset, g.Size, g.Payload, g.Inflated = 0, 0, nil, false
		w.Offset, w.Size, w.Payload, w.Inflated = 0, 0, nil, false
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("%s: record %d:\n%+v %+v\nwant\n%+v %+v", what, i, g, g.Record, w, w.Record)
		}
	}
}

// Each record of the real files encodes to the bytes that it had, but for what followed the NUL of its string; and where perf can read them,
// files and pipes of both byte orders written from them say the same to us and to perf.
func TestCapturesWritten(t *testing.T) {
	for _, name := range captured(t) {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, file)
		entries := all(t, r)
		for _, e := range entries {
			var attr *Attr
			if e.Event >= 0 {
				attr = &r.Events[e.Event].Attr
			}
			b, err := appendRecord(nil, binary.LittleEndian, attr, e.Misc, e.Record, &e.Identity)
			if err != nil {
				t.Fatal(err)
			}
			want := file[e.Offset : e.Offset+int64(e.Size)]
			switch e.Record.(type) {
			case *Mmap, *Mmap2, *Comm, *Ksymbol, *ThreadMap, *EventUpdate, *BuildID: // with strings
				if len(b) > len(want) {
					t.Errorf("%s: at %#x: %v: %d bytes, had %d", name, e.Offset, e.Record.Type(), len(b), len(want))
				}
			case *TimeConv: // a longer form than old versions wrote
			default:
				if !bytes.Equal(b, want) {
					t.Fatalf("%s: at %#x: %v:\n% x\nwant\n% x", name, e.Offset, e.Record.Type(), b, want)
				}
			}
		}
		for _, form := range []struct {
			name            string
			pipe, bigEndian bool
		}{{"file", false, false}, {"pipe", true, false}, {"big-endian file", false, true}, {"big-endian pipe", true, true}} {
			what := form.name + " of " + filepath.Base(name)
			again := rewrite(t, r, entries, form.pipe, form.bigEndian)
			r2 := open(t, again)
			got := all(t, r2)
			sameEntries(t, what, got, entries)
			want := *r
			for f := range Feature(featureCount) {
				if features[f].layout != nil && r.Info.Has.Has(f) && !r2.Info.Has.Has(f) {
					if !form.pipe || (f != FeatBuildID || r.Pipe) && f != FeatCache && f != FeatBPFProgInfo && f != FeatBPFBTF && f != FeatAuxtrace {
						t.Errorf("%s has no %v", what, f)
					}
					want.Info.Has[0] &^= 1 << f
				}
			}
			if !reflect.DeepEqual(headerLines(r2), headerLines(&want)) {
				t.Errorf("%s says\n%s\nwant\n%s", what, strings.Join(headerLines(r2), "\n"), strings.Join(headerLines(&want), "\n"))
			}
			if form.pipe && form.bigEndian || form.pipe && strings.Contains(name, "intel_pt") {
				continue
			}
			out := filepath.Join(t.TempDir(), "perf.data")
			if err := os.WriteFile(out, again, 0o600); err != nil {
				t.Fatal(err)
			}
			comparePerf(t, out, false)
			compareHeader(t, out, r2)
		}
	}
}
