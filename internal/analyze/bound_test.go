package analyze

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strconv"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

const (
	loopBase   = 0x401000
	loopThread = 10 // thread id of the first; of the process, too
	loopHz     = 2_000_000_000
	sampleEach = 500
)

// loop is mov 0xff9(%rip),%rax, of 0x402000; jmp *%rdx, to the mov.
var loop = []byte{0x48, 0x8b, 0x05, 0xf9, 0x0f, 0, 0, 0xff, 0xe2}

type loopCode struct{}

func (loopCode) Code(addr uint64) []byte {
	if addr < loopBase || addr >= loopBase+uint64(len(loop)) {
		return nil
	}
	return loop[addr-loopBase:]
}

// longRecording writes a recording of two threads that go round a loop so often, with a sample each sampleEach times, and no event but those of their beginning.
func longRecording(t *testing.T, dir string, rounds uint64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tr, err := trace.Create(dir, trace.Meta{Command: []string{"long"}})
	must(err)
	words := wire.EvProcess{PID: loopThread, ID: 1}.Append(nil, 1000)
	words = wire.EvThreadStart{Self: 1, TID: loopThread}.Append(words, 1001)
	words = wire.EvThreadStart{Self: 2, TID: loopThread + 1}.Append(words, 1002)
	must(tr.Chunk(1, trace.LaneKey{}, words))
	must(tr.Gone(1))
	must(tr.Close())

	code := filepath.Join(dir, "code")
	must(os.WriteFile(code, loop, 0o666))
	id := perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime
	loads := perf.Attr{Type: 4, SampleType: id | perf.SampleAddr | perf.SampleRegsIntr, SampleRegsIntr: 0xff0fff, Flags: perf.FlagSampleIDAll}
	w, err := sample.Create(dir, sample.WriterOptions{
		Events: []perf.Event{
			{Attr: perf.Attr{Type: 8, Config: sample.PTTSC, SampleType: id, Flags: perf.FlagSampleIDAll}, IDs: []uint64{1}, Name: "intel_pt//u"},
			{Attr: loads, IDs: []uint64{2}, Name: "mem_inst_retired.all_loads:uppp"},
		},
		PMUs: []perf.PMU{{Type: 8, Name: "intel_pt"}}, Clock: sample.ClockOf(loopHz), PT: 0, Command: []string{"long"},
	})
	must(err)
	must(w.Comm(loopThread, loopThread, "long", true, 1))
	must(w.Map(sample.Mapping{PID: loopThread, TSC: 2, Start: loopBase, End: loopBase + 0x1000, Path: code}, loopThread))
	must(w.Fork(loopThread, loopThread+1, loopThread, loopThread, 3))
	var flows [2]*pt.FlowEncoder
	for i := range flows {
		flows[i], err = pt.NewFlowEncoder(loopCode{}, pt.EncoderOptions{TSC: true, PSBPeriod: 512})
		must(err)
	}
	put := func(tsc uint64) {
		for i, f := range flows {
			must(w.Flow(uint32(i), loopThread, loopThread+int32(i), 0, tsc, f.Take()))
		}
	}
	for n := range rounds {
		tsc := 1_000_000 + 100*n
		for i, f := range flows {
			f.Tick(tsc)
			must(f.Execute(loopBase))
			must(f.Execute(loopBase + 7))
			if n%sampleEach == 0 {
				must(w.Sample(1, loopThread, loopThread+int32(i), &sample.Sample{TSC: tsc, IP: loopBase, Addr: loopBase + 0x1000}))
			}
		}
		if n%(1<<16) == 0 {
			put(tsc)
		}
	}
	for _, f := range flows {
		f.Flush()
	}
	put(1_000_000 + 100*rounds)
	must(w.Close())
	must(sample.WriteInfo(dir, sample.Info{Mode: sample.PMU, Hz: loopHz, Complete: true}))
}

// The memory of the whole analysis does not grow with the length of a recording but by what is stated, even where no event tells that what waits has its place. (Once all accesses
// waited for the next event. Each length has a process of its own: what the tests before had left was counted once, and once it went while the shorter one was analysed, which then
// had needed nothing; CI failed both times.) With RIPSTOP_SOAK=1 the threads go round 4 million times, or RIPSTOP_ROUNDS; each round takes some 230 bytes of TMPDIR.
func TestMemoryBound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute under the race detector, which would find nothing here that it does not find in the others")
	}
	if rounds, err := strconv.ParseUint(os.Getenv(boundOf), 10, 64); err == nil {
		fmt.Printf("peak %d\n", peakOf(t, rounds))
		return
	}
	sizes := []uint64{100_000, 400_000}
	if os.Getenv("RIPSTOP_SOAK") == "1" {
		sizes[1] = 4_000_000
		if v, err := strconv.ParseUint(os.Getenv("RIPSTOP_ROUNDS"), 10, 64); err == nil {
			sizes[1] = v
		}
	}
	var peaks [2]uint64
	for i, rounds := range sizes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryBound$", "-test.v")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", boundOf, rounds))
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		m := regexp.MustCompile(`(?m)^peak (\d+)$`).FindSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("%d rounds: %v", rounds, err)
		}
		if peaks[i], err = strconv.ParseUint(string(m[1]), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	const perRound, slack = 4, 24 << 20 // an access has 56 bytes in the files
	if bound := peaks[0] + (sizes[1]-sizes[0])*perRound + slack; peaks[1] > bound {
		t.Errorf("%d bytes of memory for %d rounds, %d for %d", peaks[1], sizes[1], peaks[0], sizes[0])
	}
}

// boundOf is a variable of the environment: of how many rounds TestMemoryBound gives the peak, and nothing else.
const boundOf = "RIPSTOP_BOUND_OF"

// peakOf is the most memory that the analysis of a recording of so many rounds needs.
func peakOf(t *testing.T, rounds uint64) uint64 {
	dir := filepath.Join(t.TempDir(), "trace")
	longRecording(t, dir, rounds)
	r := &recording{sym: image.NewSymbolizer()}
	defer r.sym.Close()
	var err error
	if r.trace, err = trace.Open(dir); err != nil {
		t.Fatal(err)
	}
	stop, peak := make(chan struct{}), make(chan uint64)
	go watchHeap(stop, peak)
	begin := time.Now()
	if r.rec, err = sample.Open(dir); err != nil {
		t.Fatal(err)
	}
	a := &analysis{o: Options{Jobs: 2, MovAtomics: race.Report}, trace: r.trace, rec: r.rec, sym: r.sym}
	if err := a.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	close(stop)
	most := <-peak
	if want := 2 * rounds; a.placer.given < want*99/100 || len(a.found.Findings) > 0 {
		t.Errorf("of %d accesses %d are judged, left %+v; %d races", want, a.placer.given, a.placer.left, len(a.found.Findings))
	}
	t.Logf("%d rounds, %d bytes of control flow and %d samples a thread, %d shards, %v: at most %.1f MiB of heap",
		rounds, r.rec.Threads[0].TraceBytes, len(r.rec.Threads[0].Samples), len(a.in.Shards), time.Since(begin).Round(time.Millisecond), float64(most)/(1<<20))
	a.close()
	if err := r.trace.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.rec.Close(); err != nil {
		t.Fatal(err)
	}
	return most
}

// watchHeap gives the most that was in use on the heap until it is stopped, beyond what was in use before. It collects for itself all the time: what is garbage is not counted, whatever
// the tests before have left.
func watchHeap(stop <-chan struct{}, peak chan<- uint64) {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	before, most := s[0].Value.Uint64(), uint64(0)
	for {
		runtime.GC()
		metrics.Read(s)
		most = max(most, s[0].Value.Uint64())
		select {
		case <-stop:
			peak <- most - min(most, before)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
