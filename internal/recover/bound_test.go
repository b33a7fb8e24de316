package recover

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// A longTrace is a trace that repeats a piece between two PSBs, each time later. Most of its bytes are MNT packets, which say nothing: a real one has so many
// instructions in 10 GiB that they take hours, and what memory depends on are bytes, PSBs and shards.
type longTrace struct {
	begin []byte // up to the first PSB that is repeated
	piece []byte
	times []int  // of TSC packets in the piece
	span  uint64 // ticks of the piece
	first uint64
	insts uint64 // of the piece
}

const (
	loopBase   = 0x401000
	loopMNTs   = 20
	loopLength = 1 << 16
)

var loopCode = []byte{0x48, 0x8b, 0x07, 0xff, 0xe2} // mov (%rdi),%rax; jmp *%rdx, to the mov

func newLongTrace(t *testing.T) *longTrace {
	t.Helper()
	enc, err := pt.NewFlowEncoder(bytesAt{loopBase, loopCode}, pt.EncoderOptions{TSC: true, PSBPeriod: 48})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20_000) {
		enc.Tick(1_000_000 + 100*i)
		for _, off := range []uint64{0, 3} {
			if err := enc.Execute(loopBase + off); err != nil {
				t.Fatal(err)
			}
		}
	}
	enc.Flush()
	whole := enc.Bytes()
	segments := pt.Segments(whole, 1)
	if len(segments) < 4 {
		t.Fatalf("%d segments", len(segments))
	}
	// The piece: from the second PSB up to one that it is as long as a segment of a shard, with MNT packets behind each TIP.
	l := &longTrace{begin: whole[:segments[1].Start]}
	var last uint64
	d := pt.NewDecoder(whole, 0)
	for {
		at := d.Offset()
		var p pt.Packet
		if err := d.Next(&p); errors.Is(err, io.EOF) {
			t.Fatal("the run was too short")
		} else if err != nil {
			t.Fatal(err)
		}
		if at < segments[1].Start {
			continue
		}
		if p.Kind == pt.PSB && len(l.piece) >= loopLength {
			break
		}
		if p.Kind == pt.TSC {
			if l.first == 0 {
				l.first = p.Value
			}
			last = p.Value
			l.times = append(l.times, len(l.piece)+1)
		}
		l.piece = append(l.piece, whole[at:d.Offset()]...)
		if p.Kind == pt.TIP {
			l.insts += 2
			for range loopMNTs {
				if l.piece, err = pt.Append(l.piece, &pt.Packet{Kind: pt.MNT, Value: 7}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	l.span = last - l.first + 1000
	return l
}

// at gives the piece of a repetition; it is valid until the next call.
func (l *longTrace) at(n uint64) []byte {
	for _, place := range l.times {
		v := uint64(0)
		for i := range 7 {
			v |= uint64(l.piece[place+i]) << (8 * i)
		}
		base := (v - l.first) % l.span // of the piece as it was made
		v = l.first + base + n*l.span
		for i := range 7 {
			l.piece[place+i] = byte(v >> (8 * i))
		}
	}
	return l.piece
}

// Memory does not grow with the length of a trace but by what is stated: 24 bytes for each 16 KiB, and a shard's own record for 128 KiB. With RIPSTOP_SOAK=1 the trace has 10 GiB, or
// RIPSTOP_TRACE_GIB; it lies in TMPDIR twice, as the recording and as what is mapped of it.
func TestMemoryBound(t *testing.T) {
	sizes := []int64{8 << 20, 64 << 20}
	if os.Getenv("RIPSTOP_SOAK") == "1" {
		gib := 10.0
		if v, err := strconv.ParseFloat(os.Getenv("RIPSTOP_TRACE_GIB"), 64); err == nil {
			gib = v
		}
		sizes = []int64{64 << 20, int64(gib * (1 << 30))}
	}
	l := newLongTrace(t)
	var peaks []uint64
	var psbs []uint64
	for _, size := range sizes {
		dir := t.TempDir()
		pieces := longRecording(t, dir, l, size)
		rec, err := sample.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		peak := uint64(0)
		look := func() {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
		in, err := Prepare(rec)
		if err != nil {
			t.Fatal(err)
		}
		look()
		emitted := 0
		n, err := Run(context.Background(), in.Images, in.Shards, Options{}, 2, func(*Result) error {
			if emitted++; emitted%64 == 0 {
				look()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		look()
		if want := pieces * l.insts; n.Instructions < want || n.Instructions > want+20_000 || n.Gaps > 1 {
			t.Errorf("%d instructions, want %d; %d gaps", n.Instructions, want, n.Gaps)
		}
		peaks, psbs = append(peaks, peak), append(psbs, pieces*uint64(bytes.Count(l.piece, []byte("\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82"))))
		t.Logf("%.2f GiB, %d instructions, %d shards, %d PSBs: at most %.1f MiB of heap; resident: %s", float64(size)/(1<<30), n.Instructions, len(in.Shards), psbs[len(psbs)-1], float64(peak)/(1<<20), resident(t))
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, sample.PerfFile)); err != nil {
			t.Fatal(err)
		}
	}
	const perSegment, perShard, slack = 2*24 + 16, 1 << 10, 48 << 20 // lists grow by doubling; garbage is collected late
	bound := peaks[0] + uint64(sizes[1])/segmentBytes*perSegment + uint64(sizes[1])/(128<<10)*perShard + slack
	if peaks[1] > bound {
		t.Errorf("%d bytes of memory for a trace of %d bytes, %d for one of %d; at most %d were promised", peaks[1], sizes[1], peaks[0], sizes[0], bound)
	}
}

// resident says what the kernel says of our memory: the largest of all, and now what is our own and what is mapped files'.
func resident(t *testing.T) string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, line := range bytes.Split(b, []byte("\n")) {
		for _, name := range []string{"VmHWM", "RssAnon", "RssFile"} {
			if bytes.HasPrefix(line, []byte(name+":")) {
				text += " " + string(bytes.Join(bytes.Fields(line), []byte(" ")))
			}
		}
	}
	return text
}

// longRecording writes a recording with one thread and a trace of so many bytes; it gives the repetitions.
func longRecording(t *testing.T, dir string, l *longTrace, size int64) (pieces uint64) {
	t.Helper()
	code := filepath.Join(dir, "code")
	if err := os.WriteFile(code, loopCode, 0o666); err != nil {
		t.Fatal(err)
	}
	id := perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime
	w, err := sample.Create(dir, sample.WriterOptions{
		Events: []perf.Event{{Attr: perf.Attr{Type: 8, Config: sample.PTTSC, SampleType: id, Flags: perf.FlagSampleIDAll}, IDs: []uint64{1}, Name: "intel_pt//u"}},
		PMUs:   []perf.PMU{{Type: 8, Name: "intel_pt"}}, Clock: sample.ClockOf(2_000_000_000), PT: 0, Command: []string{"long"},
	})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	const tid = 10
	must(w.Comm(tid, tid, "long", true, 1))
	must(w.Map(sample.Mapping{PID: tid, TSC: 2, Start: loopBase, End: loopBase + 0x1000, Path: code}, tid))
	must(w.Flow(0, tid, tid, 0, 1_000_000, l.begin))
	for at := int64(0); at < size; at += int64(len(l.piece)) {
		must(w.Flow(0, tid, tid, 0, l.first+pieces*l.span, l.at(pieces)))
		pieces++
	}
	must(w.Close())
	must(sample.WriteInfo(dir, sample.Info{Mode: sample.PMU, Hz: 2_000_000_000, Complete: true}))
	return pieces
}

// A PSB that comes right behind a branch is no gap. Once it was one wherever a shard's or segment's first PSB was such a one: execution was taken to stand behind the branch in memory, not where it went,
// and all that was known was forgotten there.
func TestGapAtPSB(t *testing.T) {
	l := newLongTrace(t)
	trace := append(append([]byte(nil), l.begin...), l.piece...)
	s := &Shard{Trace: trace, Segments: pt.Segments(trace, 1), End: forever, OwnEnd: forever}
	s.Behind = len(s.Segments)
	r := NewRecoverer([]Image{{Image: bytesAt{loopBase, loopCode}}}, Options{}).Recover(s)
	if len(r.Gaps) != 1 || r.Gaps[0] != 0 || r.Counts.Instructions < l.insts || len(s.Segments) < 10 {
		t.Errorf("gaps before %v in %d instructions of %d segments", r.Gaps, r.Counts.Instructions, len(s.Segments))
	}
}
