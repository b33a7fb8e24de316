package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

func create(t testing.TB) (*Writer, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "trace")
	w, err := Create(dir, Meta{Ripstop: "test", Command: []string{"prog", "arg"}, Clock: Clock{Hz: 2e9, TSC: 100, UnixNano: 5e9}})
	if err != nil {
		t.Fatal(err)
	}
	return w, dir
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// events reads the trace in dir; each event as "P<process> T<thread>@<ts> <type>".
func events(t testing.TB, dir string) ([]string, *Reader) {
	t.Helper()
	r, err := Open(dir)
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	var got []string
	must(t, r.Events(func(p uint64, e *wire.Event) error {
		got = append(got, fmt.Sprintf("P%d T%d@%d %v", p, e.Thread, e.TS, e.Type))
		return nil
	}))
	return got, r
}

// A trace says again what was written, in order over lanes and processes although they were written one after the other, with the
// threads' numbers, as often as asked.
func TestTraceRoundTrip(t *testing.T) {
	w, dir := create(t)
	a, b := LaneKey{0, 0, 0}, LaneKey{0, 1, 0}
	must(t,
		w.Chunk(1, a, slices.Concat(start(10, 1), acquire(30, 1))),
		w.Chunk(1, b, slices.Concat(start(20, 2), wire.EvPad{Tail: make([]byte, 9)}.Append(nil, 0), acquire(30, 1))),
		w.Bound(1, 31),
		w.Chunk(2, a, slices.Concat(start(15, 1), acquire(25, 1), release(30, 1))),
		w.Chunk(1, a, acquire(40, 2)),
		w.Chunk(1, b, nil),
		w.Gone(2),
		w.SetResult(Result{Exit: 3}),
		w.Close())
	got, r := events(t, dir)
	want := []string{"P1 T1@10 thread-start", "P2 T1@15 thread-start", "P1 T2@20 thread-start", "P2 T1@25 acquire", "P2 T1@30 release",
		"P1 T1@30 acquire", "P1 T2@30 acquire", "P1 T1@40 acquire"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.Truncated() != "" || r.LeftOut() != 0 {
		t.Errorf("Truncated %q, LeftOut %d in a whole trace", r.Truncated(), r.LeftOut())
	}
	m := r.Meta()
	if m.Ripstop != "test" || !slices.Equal(m.Command, []string{"prog", "arg"}) || m.Result == nil || m.Result.Exit != 3 {
		t.Errorf("meta %+v", m)
	}
	if at, ok := m.Clock.Time(100 + 2e9); !ok || at.UnixNano() != 6e9 {
		t.Errorf("a second after calibration is %v, %v", at, ok)
	}
	n := 0
	stop := errors.New("stop")
	if err := r.Events(func(uint64, *wire.Event) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("an error of the callback: %d calls, error %v", n, err)
	}
}

// Long runs of words are cut between records, and every kind of record passes.
func TestTraceLongChunks(t *testing.T) {
	w, dir := create(t)
	r := rand.New(rand.NewPCG(3, 4))
	var words, want []uint64
	for i := range 20000 {
		spec := &wire.Events[r.IntN(len(wire.Events))]
		rec := randomRecord(r, spec)
		rec[0] = uint64(i)<<8 | uint64(spec.ID)
		words = append(words, rec...)
		if spec.ID != wire.TypePad {
			want = append(want, rec...)
		}
	}
	must(t, w.Chunk(7, LaneKey{1, 2, 1}, words), w.Close())
	rd, err := Open(dir)
	must(t, err)
	defer rd.Close()
	if len(rd.chunks) < len(words)/chunkWords {
		t.Errorf("%d words in %d chunks", len(words), len(rd.chunks))
	}
	var got []uint64
	must(t, rd.Events(func(p uint64, e *wire.Event) error {
		got = append(got, e.Words...)
		return nil
	}))
	if !slices.Equal(got, want) {
		t.Errorf("%d words back of %d", len(got), len(want))
	}
	w2, _ := create(t)
	if err := w2.Chunk(1, LaneKey{}, make([]uint64, chunkWords+1)); err == nil || !strings.Contains(err.Error(), "unknown event id 0") {
		t.Errorf("words that are no records, and to be cut: error %v", err)
	}
	must(t, w2.Close())
}

// A trace cut off at any byte opens, says so, and gives exactly what was complete up to the last bound before the cut: never an event
// beyond the point where another thread's could be missing.
func TestTraceCutAnywhere(t *testing.T) {
	w, dir := create(t)
	k := func(i int) LaneKey { return LaneKey{Slot: uint32(i)} }
	for round := range uint64(4) {
		base := 100 * round
		for lane := range 2 {
			must(t, w.Chunk(1, k(lane), acquire(base+uint64(lane)+1, 1)))
		}
		must(t, w.Chunk(2, k(0), acquire(base+3, 1)), w.Bound(1, base+50), w.Bound(2, base+50))
		if round == 2 {
			must(t, w.Gone(2))
			must(t, w.Flush())
		}
	}
	must(t, w.Close())
	path := filepath.Join(dir, eventsName)
	whole, err := os.ReadFile(path)
	must(t, err)
	all, _ := events(t, dir)
	if len(all) != 12 {
		t.Fatalf("%d events in the whole trace", len(all))
	}
	for n := range len(whole) {
		must(t, os.WriteFile(path, whole[:n], 0o600))
		got, r := events(t, dir)
		if r.Truncated() == "" {
			t.Fatalf("cut at %d of %d: not said", n, len(whole))
		}
		byProcess := map[byte]int{}
		for _, e := range got {
			byProcess[e[1]]++
		}
		if byProcess['1']%2 != 0 {
			t.Fatalf("cut at %d: %d events of the two threads of process 1: %v", n, byProcess['1'], got)
		}
		for _, e := range got {
			if !slices.Contains(all, e) {
				t.Fatalf("cut at %d: event %s is not of this trace", n, e)
			}
		}
		if n == len(whole)-1 && (byProcess['1'] != 8 || byProcess['2'] != 4) {
			t.Fatalf("cut in the end mark: %v", got)
		}
	}
}

// One damaged byte is found wherever it is, and costs only what comes after it.
func TestTraceDamaged(t *testing.T) {
	w, dir := create(t)
	must(t, w.Chunk(1, LaneKey{}, acquire(1, 1)), w.Bound(1, 2), w.Chunk(1, LaneKey{}, acquire(3, 1)), w.Bound(1, 4), w.Close())
	path := filepath.Join(dir, eventsName)
	whole, err := os.ReadFile(path)
	must(t, err)
	for n := fileHeaderSize; n < len(whole); n++ {
		bad := bytes.Clone(whole)
		bad[n] ^= 0x10
		must(t, os.WriteFile(path, bad, 0o600))
		got, r := events(t, dir)
		if r.Truncated() == "" {
			t.Errorf("byte %d changed: not said", n)
		}
		if second := fileHeaderSize + 2*chunkHeaderSize + 3*8; n >= second && len(got) < 1 {
			t.Errorf("byte %d changed: events before it are gone", n)
		}
	}
	must(t, os.WriteFile(path, append(whole, 0), 0o600))
	if got, r := events(t, dir); len(got) != 2 || r.Truncated() == "" {
		t.Errorf("a byte behind the end: %v, truncated %q", got, r.Truncated())
	}
	copy(whole, "somebody")
	must(t, os.WriteFile(path, whole, 0o600))
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not an event file") {
		t.Errorf("another file: error %v", err)
	}
}

// Chunks with a right checksum that hold no events are an error that names the place, not a panic.
func TestTraceBadRecords(t *testing.T) {
	w, dir := create(t)
	must(t, w.Chunk(9, LaneKey{1, 2, 0}, []uint64{5<<8 | 255}), w.Close())
	r, err := Open(dir)
	must(t, err)
	defer r.Close()
	err = r.Events(func(uint64, *wire.Event) error { return nil })
	for _, want := range []string{dir, "byte 32", "process 9", "lane 0 of slot 2 in region 1", "unknown event id 255"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// A directory of somebody else's is not touched; one with a trace is begun anew.
func TestCreateRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.tex")
	must(t, os.WriteFile(file, []byte("x"), 0o600))
	if _, err := Create(dir, Meta{}); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("directory with a file: error %v", err)
	}
	if _, err := Create(file, Meta{}); err == nil {
		t.Error("a file: no error")
	}
	if _, err := Create(filepath.Join(dir, "no", "such"), Meta{}); err == nil {
		t.Error("a parent that is not there: no error")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	w, dir := create(t)
	must(t, w.Chunk(1, LaneKey{}, acquire(1, 1)), w.Close())
	w, err := Create(dir, Meta{})
	must(t, err)
	must(t, w.Close())
	if got, _ := events(t, dir); len(got) != 0 {
		t.Errorf("begun anew, it holds %v", got)
	}
}

// What is no trace, or one of another version, is refused with a word on what to do.
func TestOpenRefuses(t *testing.T) {
	for content, want := range map[string]string{
		"":                  "has no meta.json",
		"{":                 "meta.json: ",
		`{"format":"else"}`: `does not say "ripstop trace"`,
		`{"format":"ripstop trace","format_version":99,"wire_version":1,"ripstop":"v9"}`: "use ripstop v9",
	} {
		dir := t.TempDir()
		if content != "" {
			must(t, os.WriteFile(filepath.Join(dir, metaName), []byte(content), 0o600))
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("meta %q: error %v, want %q", content, err, want)
		}
	}
}

// When the disk is full the error is told by every later call, and what was written can be read.
func TestWriterErrorSticks(t *testing.T) {
	w, dir := create(t)
	must(t, w.Chunk(1, LaneKey{}, acquire(1, 1)), w.Bound(1, 2), w.Flush())
	good := w.file
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	w.file = full
	must(t, w.Chunk(1, LaneKey{}, acquire(3, 1)))
	if err := w.Flush(); err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), dir) {
		t.Fatalf("full disk: error %v", err)
	}
	_ = full.Close()
	w.file = good // room again, too late: a hole in the middle would be a lie
	for _, err := range []error{w.Chunk(1, LaneKey{}, acquire(5, 1)), w.Bound(1, 6), w.Flush(), w.Close(), w.Chunk(1, LaneKey{}, nil)} {
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("afterwards: error %v", err)
		}
	}
	if got, r := events(t, dir); len(got) != 1 || r.Truncated() == "" {
		t.Errorf("read back %v, truncated %q", got, r.Truncated())
	}
}

// The writer costs about a copy and allocates nothing.
func BenchmarkWriter(b *testing.B) {
	w, _ := create(b)
	full, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(b, err)
	w.file = full
	words := slices.Repeat(acquire(1, 2), 1024)
	b.SetBytes(int64(len(words) * 8))
	b.ReportAllocs()
	for b.Loop() {
		must(b, w.Chunk(1, LaneKey{}, words))
	}
}

func BenchmarkReader(b *testing.B) {
	w, dir := create(b)
	const lanes, chunks, events = 8, 50, 500
	for c := range uint64(chunks) {
		for l := range uint32(lanes) {
			var words []uint64
			for i := range uint64(events) {
				words = wire.EvAcquire{Obj: 1}.Append(words, c*events+i)
			}
			must(b, w.Chunk(1, LaneKey{Slot: l}, words))
		}
	}
	must(b, w.Close())
	for b.Loop() {
		r, err := Open(dir)
		must(b, err)
		must(b, r.Events(func(uint64, *wire.Event) error { return nil }))
		must(b, r.Close())
	}
	b.ReportMetric(float64(b.N)*lanes*chunks*events/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

// FuzzReader: arbitrary bytes as the event file never panic; what is read is in order. With sign, the checksums are put right first, so
// that what lies behind them is reached.
func FuzzReader(f *testing.F) {
	w, dir := create(f)
	must(f, w.Chunk(1, LaneKey{}, slices.Concat(start(1, 1), acquire(2, 5))), w.Bound(1, 3), w.Gone(1), w.Close())
	seed, err := os.ReadFile(filepath.Join(dir, eventsName))
	must(f, err)
	f.Add(seed, false)
	f.Add(seed, true)
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		if sign {
			data = resign(data)
		}
		must(t, os.WriteFile(filepath.Join(dir, eventsName), data, 0o600))
		r, err := Open(dir)
		if err != nil {
			return
		}
		defer r.Close()
		last := uint64(0)
		_ = r.Events(func(_ uint64, e *wire.Event) error {
			if e.TS < last {
				t.Fatalf("event at %d after %d", e.TS, last)
			}
			last = e.TS
			return Print(io.Discard, 1, e)
		})
	})
}

// resign sets the magic numbers and checksums of what lies where chunks would be.
func resign(data []byte) []byte {
	data = bytes.Clone(data)
	copy(data, fileHeader())
	for at := fileHeaderSize; at+chunkHeaderSize <= len(data); {
		h := (*[chunkHeaderSize]byte)(data[at:])
		copy(h[:], "RSCH")
		c, err := decodeChunk(h[:])
		end := at + chunkHeaderSize + int(c.words)*8
		if err != nil || end > len(data) {
			end = at + chunkHeaderSize
			c.words = 0
		}
		if c.kind%5 == 0 {
			c.kind = chunkEvents
		}
		c.kind %= 5
		c.encode(h, data[at+chunkHeaderSize:end])
		at = end
	}
	return data
}
