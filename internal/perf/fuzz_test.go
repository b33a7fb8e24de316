package perf

import (
	"bytes"
	"os"
	"testing"
)

// Whatever the bytes, as a file and as a pipe: no panic, progress, errors with offsets; and a record that was read, if it can be written,
// is read again as the same.
func FuzzReader(f *testing.F) {
	if _, err := os.Stat(captures); err == nil {
		for _, name := range captured(f) {
			file, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(file) < 20<<10 {
				f.Add(file)
			}
		}
	}
	for _, bigEndian := range []bool{false, true} {
		for _, pipe := range []bool{false, true} {
			f.Add(small(f, pipe, bigEndian))
		}
	}
	for _, second := range []bool{false, true} {
		file, _ := compressed(f, 20, second)
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if r, err := NewReader(bytes.NewReader(file), int64(len(file))); err == nil {
			drain(t, r)
		}
		if r, err := NewPipeReader(bytes.NewReader(file)); err == nil {
			drain(t, r)
		}
	})
}

// small gives a file or pipe with a little of everything.
func small(t testing.TB, pipe, bigEndian bool) []byte {
	info := Info{Hostname: "h", CPUsAvail: 2, CPUsOnline: 1, Cmdline: []string{"perf", "record"}}
	for _, feat := range []Feature{FeatHostname, FeatNRCPUs, FeatCmdline} {
		info.Has.Add(feat)
	}
	events := []Event{{Attr: Attr{SampleType: SampleIP | SampleTID | SampleTime | SampleIdentifier | SampleRegsUser, SampleRegsUser: 3,
		Flags: FlagSampleIDAll}, IDs: []uint64{7}}, {Attr: Attr{SampleType: SampleIdentifier | SampleRead}, IDs: []uint64{8}}}
	m := &memory{}
	var w *Writer
	var err error
	if pipe {
		w, err = NewPipeWriter(m, events, &info, bigEndian)
	} else {
		w, err = NewWriter(m, events, bigEndian)
	}
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{Process: Process{1, 2}, Time: 3, Identifier: 7}
	for _, e := range []*Entry{
		{Record: &Mmap2{Filename: "/bin/true"}, Identity: id},
		{Record: &Sample{Identity: id, RegsUser: Regs{ABI: Regs64, Mask: 3, Values: []uint64{1, 2}}}},
		{Record: &Sample{Identity: Identity{Identifier: 8}, Read: ReadValues{Values: make([]ReadValue, 1)}}, Event: 1},
		{Record: &Auxtrace{Size: 8}, Payload: bytes.NewReader(make([]byte, 8))},
		{Record: &TextPoke{Old: []byte{1}, New: []byte{2}}, Identity: id},
		{Record: &AuxtraceInfo{Kind: AuxtraceIntelPT, Priv: make([]uint64, 3)}},
		{Record: &FinishedRound{}},
	} {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(&info); err != nil {
		t.Fatal(err)
	}
	return m.b
}
