package pt

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// spin is an image of a conditional branch to itself, at 0x1000, and a return behind it.
var spin = pages{0x1000: func() *[testPage]byte {
	p := new([testPage]byte)
	copy(p[:], "\x75\xfe\xc3")
	return p
}()}

// A stamp is the time at which a packet was made.
type stamp struct {
	offset uint64
	tsc    uint64
}

// spinning encodes branches at random times, some of them far apart, and gives when each TNT was made.
func spinning(t *testing.T, opt EncoderOptions, r *rand.Rand, n int) (trace []byte, stamps []stamp) {
	e, err := NewFlowEncoder(spin, opt)
	if err != nil {
		t.Fatal(err)
	}
	now := uint64(1) << 50
	for range n {
		if now += r.Uint64N(400); r.IntN(500) == 0 {
			now += r.Uint64N(1 << 20)
		}
		e.Tick(now)
		if err := e.Execute(0x1000); err != nil {
			t.Fatal(err)
		}
		e.Flush()
		stamps = append(stamps, stamp{uint64(len(e.Bytes())) - 1, now})
	}
	return e.Bytes(), stamps
}

// The estimate lies in the bounds that each set of packets allows, against the times at which the packets were really made.
func TestClock(t *testing.T) {
	const period = 8 * 42
	all := EncoderOptions{TSC: true, MTC: true, CYC: true, Timing: testTiming, CBR: 28, PSBPeriod: 4096}
	for _, c := range []struct {
		name      string
		change    func(*EncoderOptions)
		decode    Timing
		early     uint64 // the estimate may be so much before the truth,
		late      uint64 // and so much behind it
		untilKnow uint64 // packets without a bound at the beginning of each PSB
	}{
		{"tsc, mtc, cyc", func(*EncoderOptions) {}, testTiming, 4, 4, 0},
		{"tsc, mtc", func(o *EncoderOptions) { o.CYC = false }, testTiming, period, 0, 0},
		{"tsc, cyc", func(o *EncoderOptions) { o.MTC = false }, testTiming, 16, 4, 0},
		{"a slow core", func(o *EncoderOptions) { o.CBR = 8 }, testTiming, 6, 6, 0},
		{"mtc rarely", func(o *EncoderOptions) { o.Timing.MTCFreq = 12 }, Timing{CrystalMul: 84, CrystalDiv: 2, MTCFreq: 12, Nominal: 21}, 16, 4, 0},
		{"a crystal ratio with a remainder", func(o *EncoderOptions) { o.Timing = Timing{CrystalMul: 177, CrystalDiv: 2, MTCFreq: 3, Nominal: 21} },
			Timing{CrystalMul: 177, CrystalDiv: 2, MTCFreq: 3, Nominal: 21}, 4, 4, 0},
		{"no nominal ratio", func(*EncoderOptions) {}, Timing{CrystalMul: 84, CrystalDiv: 2, MTCFreq: 3}, 60, 60, 30},
		{"tsc only", func(o *EncoderOptions) { o.CYC, o.MTC = false, false }, testTiming, 1 << 40, 0, 0},
	} {
		r := rand.New(rand.NewPCG(21, 22))
		opt := all
		c.change(&opt)
		trace, stamps := spinning(t, opt, r, 20000)
		q := NewQuery(trace, 0, c.decode)
		at := map[uint64]uint64{}
		for _, s := range stamps {
			at[s.offset] = s.tsc
		}
		var e Event
		var early, late, last, seen, sincePSB uint64
		for q.Next(&e) == nil {
			sincePSB++
			if e.Kind == EventSync {
				sincePSB = 0
			}
			truth, ok := at[e.Offset]
			if e.Kind != EventTNT || !ok || sincePSB <= c.untilKnow {
				last = 0
				continue
			}
			if !e.HasTime || e.Time < last {
				t.Fatalf("%s: %v at %#x: time %d behind %d", c.name, e, e.Offset, e.Time, last)
			}
			last = e.Time
			seen++
			if e.Time < truth {
				early = max(early, truth-e.Time)
			} else {
				late = max(late, e.Time-truth)
			}
		}
		if seen < 8000 || early > c.early || late > c.late {
			t.Errorf("%s: %d estimates, up to %d early and %d late; may be %d and %d", c.name, seen, early, late, c.early, c.late)
		}
		t.Logf("%s: %d estimates, up to %d ticks early, %d late", c.name, seen, early, late)
	}
}

// A processor with a cycle threshold sends no CYC before most MTCs; the next CYC then counts from long before the MTC.
func TestClockCyclesAcrossMTC(t *testing.T) {
	opt := EncoderOptions{TSC: true, MTC: true, CYC: true, Timing: testTiming, CBR: 28, PSBPeriod: 4096}
	trace, stamps := spinning(t, opt, rand.New(rand.NewPCG(23, 24)), 20000)
	truth := map[uint64]uint64{}
	for _, s := range stamps {
		truth[s.offset] = s.tsc
	}
	packets, _ := decodeAll(trace)
	var out []byte
	var owed, at, old uint64
	now := map[uint64]uint64{}
	put := func(p Packet) {
		var err error
		if out, err = Append(out, &p); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range packets {
		at, old = uint64(len(out)), old+uint64(p.Len)
		switch {
		case p.Kind == CYC && i+1 < len(packets) && packets[i+1].Kind == MTC:
			owed += p.Value
			continue
		case p.Kind == CYC:
			p.Value, owed = p.Value+owed, 0
		case p.Kind == TSC:
			owed = 0
		}
		put(p)
		if tsc, ok := truth[old-uint64(p.Len)]; ok && p.Kind == TNT8 {
			now[at] = tsc
		}
	}
	q := NewQuery(out, 0, testTiming)
	var e Event
	seen := 0
	for q.Next(&e) == nil {
		if tsc, ok := now[e.Offset]; ok {
			if seen++; e.Time > tsc+2 || e.Time+2 < tsc {
				t.Fatalf("at %#x: %d, truth %d", e.Offset, e.Time, tsc)
			}
		}
	}
	if seen < 15000 {
		t.Errorf("only %d", seen)
	}
}

// What a clock cannot know it does not say.
func TestClockKnowsNothing(t *testing.T) {
	c := NewClock(testTiming)
	for _, p := range []Packet{{Kind: MTC, Value: 5}, {Kind: CYC, Value: 1000}, {Kind: TMA, Value: 1}, {Kind: CBR, Value: 10}} {
		c.Update(&p)
		if tsc, ok := c.TSC(); ok || tsc != 0 {
			t.Errorf("%v: %d", p, tsc)
		}
	}
	c.Update(&Packet{Kind: TSC, Value: 77})
	if tsc, ok := c.TSC(); !ok || tsc != 77 {
		t.Error(tsc)
	}
	for _, bad := range []EncoderOptions{{MTC: true, Timing: testTiming}, {MTC: true, TSC: true}, {CYC: true},
		{MTC: true, TSC: true, Timing: Timing{CrystalMul: 512, CrystalDiv: 1}}} {
		if _, err := NewFlowEncoder(spin, bad); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// A clock takes any packets, and time does not run backward but at a TSC packet.
func FuzzClock(f *testing.F) {
	f.Add([]byte("\x19\x01\x02\x03\x04\x05\x06\x00\x02\x73\x01\x00\x00\x05\x00\x59\x09\x03\x59\x0a\xff\xff\xff\xff\x00"), uint32(84), uint32(2), uint8(3), uint8(21))
	f.Fuzz(func(t *testing.T, data []byte, mul, div uint32, freq, nominal uint8) {
		c := NewClock(Timing{mul, div, freq, nominal})
		d := NewDecoder(data, 0)
		var p Packet
		var last uint64
		for d.Next(&p) == nil {
			c.Update(&p)
			now, _ := c.TSC()
			if now < last && p.Kind != TSC {
				t.Fatalf("%v: from %d to %d", p, last, now)
			}
			last = now
		}
		_ = fmt.Sprint(c)
	})
}
