package pt

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// stream encodes packets; addresses are given whole.
func stream(t testing.TB, packets ...Packet) (data []byte) {
	t.Helper()
	for _, p := range packets {
		if p.Kind.HasIP() && p.Form == IPNone && p.Value != 0 {
			p.Form = IPFull
		}
		var err error
		if data, err = Append(data, &p); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// psbPlus is a PSB+ where tracing stands at an address, or is off.
func psbPlus(ip uint64) []Packet {
	if ip == 0 {
		return []Packet{{Kind: PSB}, {Kind: TSC, Value: 1000}, {Kind: CBR, Value: 21}, {Kind: PSBEND}}
	}
	return []Packet{{Kind: PSB}, {Kind: TSC, Value: 1000}, {Kind: CBR, Value: 21}, {Kind: ModeTSX}, {Kind: ModeExec, Value: ExecCSL}, {Kind: FUP, Value: ip}, {Kind: PSBEND}}
}

// Packets that belong together become one event, with their addresses, whatever packets of time come between.
func TestEvents(t *testing.T) {
	on := psbPlus(0x1000)
	for _, c := range []struct {
		name    string
		packets []Packet
		want    string // events, without the first, which is the PSB's
		err     error
	}{
		{"branches", []Packet{{Kind: TNT8, Form: 3, Value: 5}, {Kind: TIP, Value: 0x2000}, {Kind: TNT64, Form: 8, Value: 1}},
			"tnt TNT.64 TNT; tip to 0x2000; tnt TNT.64 NNNNNNNT", nil},
		{"off and on", []Packet{{Kind: TIPPGD}, {Kind: ModeExec, Value: ExecCSL}, {Kind: TIPPGE, Value: 0x2000}, {Kind: TIPPGD, Value: 0x3000}, {Kind: TraceStop}},
			"disable; enable to 0x2000; disable to 0x3000; stop", nil},
		{"an interrupt", []Packet{{Kind: FUP, Value: 0x1004}, {Kind: CYC, Value: 9}, {Kind: PIP, Value: 0x5000}, {Kind: VMCS, Value: 0x7000}, {Kind: ModeExec, Value: ExecCSD},
			{Kind: MTC, Value: 1}, {Kind: TIP, Value: 0x9000}}, "paging value 0x5000; vmcs value 0x7000; async from 0x1004 to 0x9000", nil},
		{"an interrupt out of what is traced", []Packet{{Kind: FUP, Value: 0x1004}, {Kind: TIPPGD}}, "disable from 0x1004", nil},
		{"a software interrupt with both addresses", []Packet{{Kind: FUP, Value: 0x1004}, {Kind: FUP, Value: 0x1006}, {Kind: TIP, Value: 0x9000}}, "async from 0x1004 to 0x9000", nil},
		{"a task switch by mov to cr3", []Packet{{Kind: PIP, Value: 0x5000}, {Kind: TIP, Value: 0x9000}}, "paging value 0x5000; tip to 0x9000", nil},
		{"a transaction that ends", []Packet{{Kind: ModeTSX, Value: TSXInTX}, {Kind: FUP, Value: 0x1004}, {Kind: TNT8, Form: 1}, {Kind: ModeTSX}, {Kind: CYC, Value: 2}, {Kind: FUP, Value: 0x1010}},
			"tsx from 0x1004 value 0x1; tnt TNT.64 N; tsx from 0x1010", nil},
		{"a transaction that aborts", []Packet{{Kind: ModeTSX, Value: TSXAbort}, {Kind: FUP, Value: 0x1004}, {Kind: TIP, Value: 0x2000}},
			"tsx from 0x1004 value 0x2; async from 0x1004 to 0x2000", nil},
		{"a transaction mode without an address", []Packet{{Kind: TIPPGD}, {Kind: ModeTSX, Value: TSXInTX}, {Kind: TIPPGE, Value: 0x1000}}, "disable; tsx value 0x1; enable to 0x1000", nil},
		{"ptwrite with and without", []Packet{{Kind: PTW, Value: 7}, {Kind: PTW, Form: 1, Value: 8, Flag: true}, {Kind: FUP, Value: 0x1004}, {Kind: TNT8, Form: 1}},
			"ptwrite value 0x7; ptwrite from 0x1004 value 0x8; tnt TNT.64 N", nil},
		{"power", []Packet{{Kind: MWAIT, Value: 0x20}, {Kind: EXSTOP, Flag: true}, {Kind: PWRE, Value: 0x10}, {Kind: FUP, Value: 0x1004}, {Kind: EXSTOP}, {Kind: PWRX, Value: 1},
			{Kind: TNT8, Form: 1}},
			"other PWRE 0x10; other from 0x1004 value 0x20 MWAIT 0x20; other from 0x1004 EXSTOP flag; other EXSTOP; other PWRX 0x1; tnt TNT.64 N", nil},
		{"a PEBS record", []Packet{{Kind: BBP, Form: 4}, {Kind: BIP, Form: 1, Value: 9}, {Kind: BEP, Flag: true}, {Kind: FUP, Value: 0x1004}, {Kind: TIP, Value: 0x2000}},
			"other BBP form=4; other BIP form=1 0x9; other from 0x1004 BEP flag; tip to 0x2000", nil},
		{"an event with its branch", []Packet{{Kind: EVD, Form: 1, Value: 0x77}, {Kind: CFE, Form: 1, Value: 14, Flag: true}, {Kind: FUP, Value: 0x1004}, {Kind: TIP, Value: 0x2000}},
			"other EVD form=1 0x77; other from 0x1004 value 0xe CFE form=1 0xe flag; async from 0x1004 to 0x2000", nil},
		{"an event without an address", []Packet{{Kind: CFE, Form: 2}, {Kind: TIP, Value: 0x2000}}, "other CFE form=2 0x0; tip to 0x2000", nil},
		{"interrupts allowed", []Packet{{Kind: ModeExec, Value: ExecCSL | ExecIF}, {Kind: FUP, Value: 0x1004}, {Kind: TNT8, Form: 1}}, "exec from 0x1004 value 0x5; tnt TNT.64 N", nil},
		{"a trigger", []Packet{{Kind: TRIG, Value: 1, Flag: true}, {Kind: FUP, Value: 0x1004}, {Kind: TRIG, Value: 2}}, "other from 0x1004 value 0x1 TRIG 0x1 flag; other TRIG 0x2", nil},
		{"an overflow", []Packet{{Kind: TIP, Value: 0x1_2345_0000}, {Kind: OVF}, {Kind: CYC, Value: 2}, {Kind: FUP, Form: IPUpdate32, Value: 0x2000}, {Kind: TNT8, Form: 1}},
			"tip to 0x123450000; overflow to 0x2000; tnt TNT.64 N", nil},
		{"an overflow that ends with tracing off", []Packet{{Kind: OVF}, {Kind: TIPPGE, Value: 0x2000}}, "overflow; enable to 0x2000", nil},
		{"an overflow in the middle of an interrupt", []Packet{{Kind: FUP, Value: 0x1004}, {Kind: OVF}, {Kind: FUP, Value: 0x2000}}, "overflow to 0x2000", nil},
		{"an overflow with PSB+ before its address", []Packet{{Kind: OVF}, {Kind: PSB}, {Kind: CBR, Value: 9}, {Kind: PSBEND}, {Kind: CYC, Value: 2}, {Kind: FUP, Value: 0x2000}},
			"overflow; sync to 0x2000", nil},
		{"an overflow in PSB+", append(append([]Packet{}, on[:3]...), Packet{Kind: OVF}, Packet{Kind: FUP, Value: 0x3000}), "sync; overflow to 0x3000", nil},
		{"an overflow whose address never came", []Packet{{Kind: OVF}, {Kind: TNT8, Form: 1}}, "overflow; tnt TNT.64 N", nil},
		{"an overflow at the end", []Packet{{Kind: OVF}, {Kind: CYC, Value: 2}}, "overflow", nil},
		{"the end behind a FUP", []Packet{{Kind: FUP, Value: 0x1004}}, "", nil},
		{"the end behind ptwrite", []Packet{{Kind: PTW, Value: 3, Flag: true}}, "ptwrite value 0x3", nil},
		{"maintenance", []Packet{{Kind: MNT, Value: 3}, {Kind: PAD}}, "other MNT 0x3", nil},
		{"a FUP alone", []Packet{{Kind: FUP, Value: 0x1004}, {Kind: TNT8, Form: 1}}, "", ErrContext},
		{"a FUP without an address", []Packet{{Kind: FUP}}, "", ErrContext},
		{"a PSBEND alone", []Packet{{Kind: PSBEND}}, "", ErrContext},
		{"a TIP in PSB+", []Packet{{Kind: PSB}, {Kind: TIP, Value: 0x2000}}, "", ErrContext},
	} {
		q := NewQuery(stream(t, append(append([]Packet{}, on...), c.packets...)...), 0, Timing{})
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		var got []string
		var e Event
		err := q.Next(&e)
		for first := true; err == nil; first = false {
			if !first {
				got = append(got, e.String())
			} else if e.String() != "sync to 0x1000" || e.Time != 1000 || e.Exec != ExecCSL {
				t.Errorf("%s: begins with %v", c.name, e)
			}
			err = q.Next(&e)
		}
		if err == io.EOF {
			err = nil
		}
		if s := strings.Join(got, "; "); s != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s:\n got %s, %v\nwant %s, %v", c.name, s, err, c.want, c.err)
		}
	}
}

// More packets than any processor lets wait for a FUP do not hurt.
func TestManyBound(t *testing.T) {
	var packets []Packet
	for i := range 100 {
		packets = append(packets, Packet{Kind: PTW, Value: uint64(i), Flag: true}, Packet{Kind: PIP, Value: 0x1000}, Packet{Kind: PTW, Value: 1})
	}
	q := NewQuery(stream(t, append(append(psbPlus(0x1000), packets...), Packet{Kind: FUP, Value: 0x1004}, Packet{Kind: TIP, Value: 0x2000})...), 0, Timing{})
	n := 0
	var e Event
	for q.Next(&e) == nil {
		n++
	}
	if n < 200 {
		t.Errorf("%d events", n)
	}
}

// Any bytes give events or errors and come to an end.
func FuzzQuery(f *testing.F) {
	r := rand.New(rand.NewPCG(51, 52))
	for range 20 {
		_, data := randomStream(f, r, 30)
		f.Add(append(stream(f, psbPlus(0x1000)...), data...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := NewQuery(data, 5, testTiming)
		events, errs := 0, 0
		var e Event
		for {
			err := q.Next(&e)
			if err == io.EOF {
				break
			}
			if err != nil {
				var where *Error
				if !errors.As(err, &where) || where.Offset < 5 || where.Offset > 5+uint64(len(data)) {
					t.Fatal(err)
				}
				if errs++; q.Sync() != nil {
					break
				}
				continue
			}
			if events++; e.Kind == EventNone || e.Offset < 5 || e.Offset > 5+uint64(len(data)) {
				t.Fatalf("%+v", e)
			}
			_ = e.String()
		}
		if events > 2*len(data)+2 || errs > len(data)+1 {
			t.Fatalf("%d events, %d errors of %d bytes", events, errs, len(data))
		}
	})
}
