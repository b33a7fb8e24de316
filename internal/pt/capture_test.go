package pt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// captures are real perf.data files; they are not part of the repository.
const captures = "../../../shared/data/perf"

// auxData takes the AUX areas out of a perf.data file or pipe (kernel: tools/perf/Documentation/perf.data-file-format.txt): only what the
// captures here need.
func auxData(t *testing.T, file []byte) (areas [][]byte) {
	le := binary.LittleEndian
	if len(file) < 16 || string(file[:8]) != "PERFILE2" {
		t.Fatal("not a perf.data file")
	}
	records := file[16:] // a pipe
	if le.Uint64(file[8:]) > 16 {
		begin, size := le.Uint64(file[40:]), le.Uint64(file[48:])
		records = file[begin : begin+size]
	}
	const tracingData, auxTrace = 66, 71
	for len(records) >= 8 {
		kind, size := le.Uint32(records), int(le.Uint16(records[6:]))
		if size < 8 || size > len(records) {
			t.Fatalf("a record of type %d with %d bytes", kind, size)
		}
		body := records[8:size]
		records = records[size:]
		switch kind {
		case auxTrace:
			n := int(le.Uint64(body))
			areas = append(areas, records[:n])
			records = records[n:]
		case tracingData:
			records = records[(le.Uint32(body)+7)&^7:]
		}
	}
	return areas
}

// realTraces gives the Intel PT areas of the captures.
func realTraces(t *testing.T) (areas [][]byte) {
	t.Helper()
	if _, err := os.Stat(captures); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no captures: %s is not there", captures)
	}
	files, err := filepath.Glob(filepath.Join(captures, "*intel_pt-4.14"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures with Intel PT in %s: %v", captures, err)
	}
	for _, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := auxData(t, file)
		if len(found) == 0 {
			t.Fatalf("no AUX area in %s", name)
		}
		areas = append(areas, found...)
	}
	return areas
}

// Traces of a Skylake machine decode as by libipt, whole and damaged, without an error where they are whole.
func TestCapturesAgainstLibipt(t *testing.T) {
	o := newOracle(t)
	r := rand.New(rand.NewPCG(13, 14))
	bytesSeen, packets := 0, 0
	for i, area := range realTraces(t) {
		_, failed := decodeAll(area)
		if len(failed) != 0 && bytes.Contains(area, []byte(psbPattern)) {
			t.Errorf("area %d: %v", i, failed[0])
		}
		packets += comparePackets(t, o, "a capture", area)
		bytesSeen += len(area)
		for range 50 {
			at := r.IntN(len(area))
			part := area[at:min(len(area), at+2000)]
			comparePackets(t, o, "a damaged capture", mutate(r, part))
		}
	}
	t.Logf("%d packets in %d bytes agree", packets, bytesSeen)
}

// Each packet of a whole capture encodes to the bytes that it had.
func TestCapturesEncode(t *testing.T) {
	for _, area := range realTraces(t) {
		d := NewDecoder(area, 0)
		for {
			at := d.Offset()
			var p Packet
			if err := d.Next(&p); err != nil {
				break
			}
			b, err := Append(nil, &p)
			if want := area[at:d.Offset()]; err != nil || !bytes.Equal(b, want) {
				t.Fatalf("at %#x: %v: % x, %v, want % x", at, p, b, err, want)
			}
		}
	}
}

// The compound packets of a real machine are understood: every event, with no error, at times that go forward.
func TestCapturesEvents(t *testing.T) {
	seen := map[EventKind]int{}
	for i, area := range realTraces(t) {
		q := NewQuery(area, 0, Timing{CrystalMul: 84, CrystalDiv: 1, MTCFreq: 3, Nominal: 20})
		if q.Sync() != nil {
			continue
		}
		var e Event
		for {
			err := q.Next(&e)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("area %d: %v", i, err)
			}
			seen[e.Kind]++
			if e.HasTo && e.To>>47 != 0 && e.To>>47 != 1<<17-1 {
				t.Fatalf("area %d: %v at %#x: no such address", i, e, e.Offset)
			}
		}
	}
	t.Log(seen)
	for _, k := range []EventKind{EventSync, EventTNT, EventTIP, EventEnable, EventDisable} {
		if seen[k] == 0 {
			t.Errorf("no %v", k)
		}
	}
}
