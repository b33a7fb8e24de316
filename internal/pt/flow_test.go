package pt

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
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
			steps, errs := flowSteps(t, trace, Segment{0, uint64(len(trace))}, Config{Timing: testTiming}, NewCache(r.code))
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
			if opt.TSC {
				inTime(t, name+" "+how, r, steps)
			}
			t.Logf("%s %s: %d instructions in %d steps from %d bytes", name, how, len(got), len(steps), len(trace))
		}
	}
}

// inTime checks that no run ended later than its time says, within the rounding of a cycle, and that times do not run ahead for long.
func inTime(t *testing.T, name string, r *run, steps []Step) {
	var times []uint64 // of the instructions; of one with a rep prefix the first
	for n, d := range r.deeds {
		if !d.left && (len(times) == 0 || len(times) < len(r.ips) && (r.ips[len(times)] == d.ip) && !(n > 0 && r.deeds[n-1] == d && repeats(r.code.Code(d.ip)))) {
			times = append(times, tsc(n))
		}
	}
	if len(times) != len(r.ips) {
		t.Fatalf("%s: %d times for %d instructions", name, len(times), len(r.ips))
	}
	at, last, late := 0, uint64(0), 0
	for _, s := range steps {
		if s.Kind != StepRun {
			continue
		}
		at += int(s.Count)
		if at > len(times) {
			return
		}
		if !s.HasTime || s.Time+2 < times[at-1] || s.Time < last {
			t.Fatalf("%s: %v ends with instruction %d, which ran at %d; the step before at %d", name, s, at-1, times[at-1], last)
		}
		if last = s.Time; s.Time > times[at-1]+3*500 {
			late++
		}
	}
	if late*10 > len(steps) {
		t.Errorf("%s: %d of %d steps have a time far behind", name, late, len(steps))
	}
}

// Taking the trace away in pieces changes nothing, and keeps nothing.
func TestEncoderTake(t *testing.T) {
	r := truths(t)["gzip"]
	for how, opt := range encodings {
		e, err := NewFlowEncoder(r.code, opt)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for n, d := range r.deeds[:rounds(50_000)] {
			e.Tick(tsc(n))
			if err := e.Execute(d.ip); err != nil {
				t.Fatal(err)
			}
			if n%777 == 0 {
				got = append(got, e.Take()...)
				if len(e.Bytes()) != 0 {
					t.Fatal("Take left something")
				}
			}
		}
		e.Flush()
		got = append(got, e.Take()...)
		cut := &run{code: r.code, deeds: r.deeds[:rounds(50_000)]}
		if want := encode(t, cut, opt, tsc); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes in pieces, %d as a whole", how, len(got), len(want))
		}
	}
}

// perf 6.1 looks ahead to a PSB's FUP before it forgets the last address: a program that is linked low and stood there at a PSB, just back from a library,
// was at 0x7f2d0060bcd9 instead of 0x60bcd9 (one in two traces of python3 had an error). The address is put in full.
func TestPSBAddressInFull(t *testing.T) {
	trace, _ := spinning(t, EncoderOptions{PSBPeriod: 64}, rand.New(rand.NewPCG(1, 1)), 1000)
	d := NewDecoder(trace, 0)
	var p Packet
	fups, inPSB := 0, false
	for d.Next(&p) == nil {
		switch {
		case p.Kind == PSB:
			inPSB = true
		case p.Kind == PSBEND:
			inPSB = false
		case p.Kind == FUP && inPSB:
			if fups++; p.Form != IPSext48 && p.Form != IPFull {
				t.Fatalf("the address in a PSB+ has form %d", p.Form)
			}
		}
	}
	if fups < 3 {
		t.Fatalf("%d addresses", fups)
	}
}

// What cannot have run as told is refused, by name.
func TestEncoderRefuses(t *testing.T) {
	e, err := NewFlowEncoder(spin, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Execute(0x1000); err != nil {
		t.Fatal(err)
	}
	if err := e.Execute(0x1001); !errors.Is(err, ErrSuccessor) || !strings.Contains(err.Error(), "0x1001") || !strings.Contains(err.Error(), "0x1000") {
		t.Error(err)
	}
	if err := e.Execute(0x5000); !errors.Is(err, ErrNoCode) || !strings.Contains(err.Error(), "0x5000") {
		t.Error(err)
	}
}

// steady gives the errors of a trace over an image, and what ran.
func steady(t *testing.T, code Image, packets ...[]Packet) (ips []uint64, errs []error) {
	t.Helper()
	trace := stream(t, slices.Concat(packets...)...)
	steps, errs := flowSteps(t, trace, Segment{0, uint64(len(trace))}, Config{}, NewCache(code))
	return instructions(t, NewCache(code), steps), errs
}

// Errors name what is wrong, where, and cost no more than what lies up to the next PSB.
func TestFlowErrors(t *testing.T) {
	good := slices.Concat(psbPlus(0x1000), []Packet{{Kind: TNT8, Form: 2, Value: 2}, {Kind: FUP, Value: 0x1002}, {Kind: TIPPGD}})
	jump := pages{0x1000: spin[0x1000], 0x2000: func() *[testPage]byte {
		p := new([testPage]byte)
		copy(p[:], "\xeb\xfe")                 // 0x2000: jmp to itself
		copy(p[0x10:], "\xe9\x00\x10\x00\x00") // 0x2010: jmp 0x3015
		copy(p[0x20:], "\x06")                 // 0x2020: no instruction
		copy(p[0x30:], "\xff\xe0")             // 0x2030: jmp *%rax
		return p
	}()}
	for _, c := range []struct {
		name    string
		packets []Packet
		want    error
		ip      uint64
	}{
		{"no code", append(psbPlus(0x7000), Packet{Kind: TNT8, Form: 1}), ErrNoCode, 0x7000},
		{"no code behind a jump", append(psbPlus(0x2010), Packet{Kind: TNT8, Form: 1}), ErrNoCode, 0x3015},
		{"no instruction", append(psbPlus(0x2020), Packet{Kind: TNT8, Form: 1}), x86.ErrInvalid, 0x2020},
		{"round and round", append(psbPlus(0x2000), Packet{Kind: TNT8, Form: 1}), ErrNoBranch, 0x2000},
		{"a TIP where a branch needs TNT", append(psbPlus(0x1000), Packet{Kind: TIP, Value: 0x1000}), ErrFlow, 0x1002},
		{"TNT where a jump needs a TIP", append(psbPlus(0x2030), Packet{Kind: TNT8, Form: 1}, Packet{Kind: TNT8, Form: 1}), ErrFlow, 0x2032},
		{"a return without its call", append(psbPlus(0x1002), Packet{Kind: TNT8, Form: 1, Value: 1}), ErrFlow, 0x1002},
		{"32-bit code", append(psbPlus(0x2030), Packet{Kind: ModeExec, Value: ExecCSD}, Packet{Kind: TIP, Value: 0x1000}, Packet{Kind: TNT8, Form: 1}), ErrMode, 0x1000},
		{"a branch with tracing off", append(psbPlus(0), Packet{Kind: TNT8, Form: 1}), ErrContext, 0},
		{"on twice", append(psbPlus(0x1000), Packet{Kind: TIPPGE, Value: 0x1000}), ErrContext, 0x1000},
		{"on nowhere", append(psbPlus(0), Packet{Kind: TIPPGE}), ErrContext, 0},
		{"to nowhere", append(psbPlus(0x2030), Packet{Kind: TIP}), ErrContext, 0x2030},
		{"off without a word", append(psbPlus(0x1000), psbPlus(0)...), ErrContext, 0x1000},
		{"a PSB elsewhere", append(psbPlus(0x1002), psbPlus(0x1000)...), ErrFlow, 0x1003},
	} {
		ips, errs := steady(t, jump, good, c.packets, good)
		if len(errs) != 1 || !errors.Is(errs[0], c.want) {
			t.Errorf("%s: %v, want %v", c.name, errs, c.want)
			continue
		}
		var e *Error
		if errors.As(errs[0], &e); e.IP != c.ip || e.Offset == 0 {
			t.Errorf("%s: %v, want it at %#x", c.name, e, c.ip)
		}
		if n := len(ips); n < 4 || !slices.Equal(ips[:2], []uint64{0x1000, 0x1000}) || !slices.Equal(ips[n-2:], []uint64{0x1000, 0x1000}) {
			t.Errorf("%s: %x", c.name, ips[max(0, len(ips)-10):])
		}
	}
}

// Each instruction that can go anywhere waits for its TIP; those that look like it do not.
func TestFarBranches(t *testing.T) {
	for code, waits := range map[string]bool{
		"\xff\xe0": true, "\xff\xd0": true, "\xf2\xff\xe0": true, "\xc3": true, "\xf3\xc3": true, "\xc2\x08\x00": true, "\x0f\x05": true, "\x0f\x34": true,
		"\x48\x0f\x07": true, "\x48\x0f\x35": true, "\x48\xcf": true, "\xcb": true, "\x48\xff\x28": true, "\x48\xff\x18": true, "\xcc": true, "\xcd\x80": true,
		"\xf1": true, "\xf3\x0f\x01\xec": true, "\x0f\x01\xc2": true, "\x0f\x01\xc3": true, "\x0f\xaa": true,
		"\x90": false, "\xf4": false, "\xc7\xf8\x00\x00\x00\x00": false, "\x0f\x01\xd5": false, "\xc6\xf8\x00": false, "\x0f\xa2": false, "\xf3\xa4": false,
		"\xe8\x00\x00\x00\x00": false, "\xeb\x00": false, "\xf3\x0f\xae\xe0": false,
	} {
		p := new([testPage]byte)
		copy(p[:], code+"\x90\xff\xe0") // then a nop and jmp *%rax
		n := uint64(len(code))
		ips, errs := steady(t, pages{0x1000: p, 0x2000: new([testPage]byte)}, psbPlus(0x1000),
			[]Packet{{Kind: TIP, Value: 0x2000}, {Kind: FUP, Value: 0x2000}, {Kind: TIPPGD}})
		want := []uint64{0x1000}
		if !waits {
			want = append(want, 0x1000+n, 0x1001+n)
		}
		if len(errs) > 0 || !slices.Equal(ips, want) {
			t.Errorf("% x: %x, %v, want %x", code, ips, errs, want)
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
			steps, _ := flowSteps(t, trace, Segment{0, uint64(len(trace))}, Config{Timing: testTiming}, NewCache(r.code))
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
		f := NewFlow(trace, Segment{0, uint64(len(trace))}, Config{Timing: testTiming}, cache)
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
					f := NewFlow(trace, Segment{0, uint64(len(trace))}, Config{Timing: testTiming}, cache)
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
