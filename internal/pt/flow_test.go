package pt

import (
	"fmt"
	"testing"
)

// testTiming is what testdata/oracle.c has, too.
var testTiming = Timing{CrystalMul: 84, CrystalDiv: 2, MTCFreq: 3, Nominal: 21}

// encodings are ways to encode a run.
var encodings = map[string]EncoderOptions{
	"plain":      {},
	"compressed": {CompressReturns: true},
	"deferred":   {CompressReturns: true, DeferTIPs: true, PSBPeriod: 2048},
	"long":       {CompressReturns: true, LongTNT: true, PSBPeriod: 700},
	"timed":      {CompressReturns: true, PSBPeriod: 2048, TSC: true, MTC: true, CYC: true, Timing: testTiming, CBR: 28},
	"all":        {CompressReturns: true, DeferTIPs: true, LongTNT: true, PSBPeriod: 1024, TSC: true, MTC: true, CYC: true, Timing: testTiming, CBR: 28},
}

// tsc is the time of the n-th deed: mostly a few ticks on, sometimes far.
func tsc(n int) uint64 {
	at := uint64(1<<40) + uint64(n)*3
	return at + uint64(n/5000)*1_000_000
}

func firstDifference(got, want []uint64) (int, string) {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return i, fmt.Sprintf("at instruction %d of %d and %d: got %#x, want %#x", i, len(got), len(want), got[i:min(len(got), i+4)], want[i:min(len(want), i+4)])
		}
	}
	return -1, ""
}

// What is decoded is what ran, instruction by instruction, whatever way it was encoded. Where a run was cut off, the last instructions, that
// no packet tells of, are not there.
func TestFlowIsTheTruth(t *testing.T) {
	for name, r := range truths(t) {
		for how, opt := range encodings {
			trace := encode(t, r, opt, tsc)
			steps, errs := flowSteps(t, trace, Segment{0, uint64(len(trace))}, testTiming, NewCache(r.code))
			if len(errs) > 0 {
				t.Errorf("%s %s: %v", name, how, errs[0])
			}
			got := instructions(t, NewCache(r.code), steps)
			want := r.ips
			if !r.ended {
				if len(got) > len(want) || len(got)+400 < len(want) {
					t.Errorf("%s %s: %d of %d instructions", name, how, len(got), len(want))
				}
				want = want[:min(len(got), len(want))]
			}
			if i, what := firstDifference(got, want); i >= 0 {
				t.Errorf("%s %s: %s", name, how, what)
			}
			t.Logf("%s %s: %d instructions in %d steps from %d bytes", name, how, len(got), len(steps), len(trace))
		}
	}
}

// libiptInstructions gives what libipt makes of a trace: the instructions up to the first error or the end that the trace proves, and how
// many it added by guess at the end.
func libiptInstructions(t testing.TB, o *oracle, trace []byte) (ips []uint64, guessed int, errs []record) {
	for _, r := range o.ask(t, 'i', trace) {
		switch {
		case r.Status < 0:
			errs = append(errs, r)
		case r.Kind != 0:
		default:
			if len(errs) == 0 {
				ips = append(ips, r.Value)
				if r.Extra != 0 {
					guessed++
				}
			}
		}
	}
	return ips, guessed, errs
}

// libipt decodes our traces to the same instructions. Behind the last packet it goes on to the next branch, where we stop.
func TestFlowAgainstLibipt(t *testing.T) {
	o := newOracle(t)
	for name, r := range truths(t) {
		o.ask(t, 'm', r.code.oracleImage())
		for how, opt := range encodings {
			trace := encode(t, r, opt, tsc)
			theirs, guessed, errs := libiptInstructions(t, o, trace)
			if len(errs) > 0 {
				t.Errorf("%s %s: libipt: error %d at %#x behind %d instructions", name, how, errs[0].Status, errs[0].Offset, len(theirs))
				continue
			}
			steps, _ := flowSteps(t, trace, Segment{0, uint64(len(trace))}, testTiming, NewCache(r.code))
			ours := instructions(t, NewCache(r.code), steps)
			if len(ours) > len(theirs) || len(theirs)-len(ours) > guessed {
				t.Errorf("%s %s: %d instructions, libipt has %d, %d of them guessed", name, how, len(ours), len(theirs), guessed)
			}
			if i, what := firstDifference(ours, theirs[:min(len(ours), len(theirs))]); i >= 0 {
				t.Errorf("%s %s: libipt is right: %s", name, how, what)
			}
		}
	}
}

// A walk through known code allocates nothing, however long it is.
func TestFlowAllocatesNothing(t *testing.T) {
	r := truths(t)["gzip"]
	trace := encode(t, r, encodings["timed"], tsc)
	cache := NewCache(r.code)
	buf := make([]Step, 256)
	allocs := testing.AllocsPerRun(3, func() {
		f := NewFlow(trace, Segment{0, uint64(len(trace))}, testTiming, cache)
		for {
			if _, err := f.Read(buf); err != nil {
				break
			}
		}
	})
	if allocs > 3 { // Flow, Query and Decoder
		t.Errorf("%v allocations", allocs)
	}
}

// benchmarkTrace is the trace of a run with all packets of time, and the number of its instructions.
func benchmarkTrace(b *testing.B, name string) (r *run, trace []byte) {
	r = truths(b)[name]
	return r, encode(b, r, encodings["timed"], tsc)
}

// BenchmarkFlow decodes a trace to steps, with the code already in the cache as it is but for the beginning of a long trace. It gives the time
// as a ratio to that of libipt's instruction decoder on the same trace in the same run.
func BenchmarkFlow(b *testing.B) {
	for _, name := range []string{"gzip", "sort"} {
		b.Run(name, func(b *testing.B) {
			r, trace := benchmarkTrace(b, name)
			o := newOracle(b)
			o.ask(b, 'm', r.code.oracleImage())
			cache := NewCache(r.code)
			var buf [256]Step
			instructions := 0
			for b.Loop() {
				theirs := o.ask(b, 'n', trace)[0].Value
				ours := bestTime(func() {
					instructions = 0
					f := NewFlow(trace, Segment{0, uint64(len(trace))}, testTiming, cache)
					for {
						n, err := f.Read(buf[:])
						for i := range buf[:n] {
							instructions += int(buf[i].Count)
						}
						if err != nil {
							break
						}
					}
				})
				b.ReportMetric(float64(ours)/float64(theirs), "ours/libipt")
				b.ReportMetric(float64(instructions)/float64(ours)*1e3, "Minsn/s")
			}
		})
	}
}

// BenchmarkFlowEncoder encodes a run.
func BenchmarkFlowEncoder(b *testing.B) {
	r := truths(b)["gzip"]
	for b.Loop() {
		encode(b, r, encodings["timed"], tsc)
	}
	b.ReportMetric(float64(len(r.deeds))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Minsn/s")
}
