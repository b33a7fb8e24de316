package pt

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomPacket gives a packet with contents that its kind can have. Block items are left to the caller, who must be inside a block.
func randomPacket(r *rand.Rand, k Kind) Packet {
	p := Packet{Kind: k}
	number := func(n uint8) uint64 { // of all magnitudes up to n bits
		if n == 0 {
			return 0
		}
		return r.Uint64() >> (64 - n) >> r.IntN(int(n))
	}
	switch k {
	case TNT8:
		p.Form = uint8(1 + r.IntN(MaxTNT8))
		p.Value = number(p.Form)
	case TNT64:
		p.Form = uint8(1 + r.IntN(MaxTNT64))
		p.Value = number(p.Form)
	case TIP, TIPPGE, TIPPGD, FUP:
		p.Form = []IPForm{IPNone, IPUpdate16, IPUpdate32, IPSext48, IPUpdate48, IPFull}[r.IntN(6)]
		p.Value = number(uint8(8 * ipBytes[p.Form]))
	case CYC:
		p.Value = number(61)
	case PTW:
		p.Form, p.Flag = uint8(r.IntN(2)), r.IntN(2) == 0
		p.Value = number(32 << p.Form)
	case TRIG:
		p.Form, p.Flag, p.Value = uint8(r.IntN(4)), r.IntN(2) == 0, number(8)
		if p.Form&TrigCount != 0 {
			p.Extra = uint32(number(16))
		}
	case BIP:
		p.Form, p.Flag = uint8(r.IntN(32)), r.IntN(2) == 0
		if p.Value = number(64); p.Flag {
			p.Value = number(32)
		}
	default:
		for _, f := range layouts[k].fields {
			switch v := number(f.n) << f.shift; f.to {
			case inValue:
				p.Value = v
			case inExtra:
				p.Extra = uint32(v)
			case inForm:
				p.Form = uint8(v)
			case inFlag:
				p.Flag = v != 0
			}
		}
	}
	return p
}

// randomStream gives n packets and their bytes, with Len filled in. Items come in blocks only.
func randomStream(t testing.TB, r *rand.Rand, n int, without ...Kind) (packets []Packet, data []byte) {
	put := func(p Packet) {
		before := len(data)
		var err error
		if data, err = Append(data, &p); err != nil {
			t.Fatal(err)
		}
		p.Len = uint8(len(data) - before)
		packets = append(packets, p)
	}
	for len(packets) < n {
		k := Kind(1 + r.IntN(int(numKinds)-1))
		if k == BIP || slices.Contains(without, k) {
			continue
		}
		p := randomPacket(r, k)
		put(p)
		if k == BBP {
			for range r.IntN(8) {
				item := randomPacket(r, BIP)
				if item.Flag = p.Flag; item.Flag {
					item.Value &= 0xffffffff
				}
				put(item)
				if r.IntN(4) == 0 {
					put(randomPacket(r, []Kind{CYC, MTC, TSC, PAD, FUP, EXSTOP}[r.IntN(6)]))
				}
			}
			put(randomPacket(r, BEP))
		}
	}
	return packets, data
}

// decodeAll gives all packets, going to the next PSB after an error.
func decodeAll(data []byte) (packets []Packet, failed []*Error) {
	d := NewDecoder(data, 0)
	for {
		var p Packet
		err := d.Next(&p)
		if err == io.EOF {
			return packets, failed
		}
		if err == nil {
			packets = append(packets, p)
			continue
		}
		var e *Error
		if !errors.As(err, &e) {
			panic(err)
		}
		failed = append(failed, e)
		if d.Sync() != nil {
			return packets, failed
		}
	}
}

// What is encoded comes back, for every kind, with contents of all magnitudes.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[Kind]int{}
	for range 200 {
		want, data := randomStream(t, r, 200)
		got, failed := decodeAll(data)
		if len(failed) != 0 {
			t.Fatal(failed[0])
		}
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("packet %d: got %+v, want %+v", i, got[min(i, len(got)-1)], want[i])
			}
			seen[want[i].Kind]++
		}
		if len(got) != len(want) {
			t.Fatalf("%d packets, want %d", len(got), len(want))
		}
	}
	for k := PAD; k < numKinds; k++ {
		if seen[k] < 20 {
			t.Errorf("%v: only %d", k, seen[k])
		}
	}
}

// Bytes from the manual's figures.
func TestPacketBytes(t *testing.T) {
	for _, c := range []struct {
		p    Packet
		want string
	}{
		{Packet{Kind: PSB}, "02 82 02 82 02 82 02 82 02 82 02 82 02 82 02 82"},
		{Packet{Kind: PSBEND}, "02 23"},
		{Packet{Kind: TNT8, Form: 1, Value: 1}, "06"},
		{Packet{Kind: TNT8, Form: 6, Value: 0b101101}, "da"},
		{Packet{Kind: TNT64, Form: 47, Value: 1}, "02 a3 01 00 00 00 00 80"},
		{Packet{Kind: TIP, Form: IPUpdate16, Value: 0x1234}, "2d 34 12"},
		{Packet{Kind: TIPPGE, Form: IPSext48, Value: 0x7f0012345678}, "71 78 56 34 12 00 7f"},
		{Packet{Kind: TIPPGD}, "01"},
		{Packet{Kind: FUP, Form: IPFull, Value: 0xffffffff81000000}, "dd 00 00 00 81 ff ff ff ff"},
		{Packet{Kind: ModeExec, Value: ExecCSL}, "99 01"},
		{Packet{Kind: ModeTSX, Value: TSXAbort}, "99 22"},
		{Packet{Kind: PIP, Value: 0x1000, Flag: true}, "02 43 01 01 00 00 00 00"},
		{Packet{Kind: VMCS, Value: 0x1000}, "02 c8 01 00 00 00 00"},
		{Packet{Kind: TSC, Value: 0x11223344556677}, "19 77 66 55 44 33 22 11"},
		{Packet{Kind: TMA, Value: 0x1234, Extra: 0x1ff}, "02 73 34 12 00 ff 01"},
		{Packet{Kind: MTC, Value: 7}, "59 07"},
		{Packet{Kind: CYC, Value: 31}, "fb"},
		{Packet{Kind: CYC, Value: 32}, "07 02"},
		{Packet{Kind: CBR, Value: 21}, "02 03 15 00"},
		{Packet{Kind: OVF}, "02 f3"},
		{Packet{Kind: PTW, Value: 5, Flag: true}, "02 92 05 00 00 00"},
		{Packet{Kind: PTW, Form: 1, Value: 5}, "02 32 05 00 00 00 00 00 00 00"},
		{Packet{Kind: EXSTOP, Flag: true}, "02 e2"},
		{Packet{Kind: MWAIT, Value: 0x20, Extra: 1}, "02 c2 20 00 00 00 01 00 00 00"},
		{Packet{Kind: PWRE, Value: 0x21, Flag: true}, "02 22 80 21"},
		{Packet{Kind: PWRX, Value: 0x123}, "02 a2 23 01 00 00 00"},
		{Packet{Kind: BBP, Form: 4, Flag: true}, "02 63 84"},
		{Packet{Kind: BIP, Form: 3, Value: 1, Flag: true}, "1c 01 00 00 00"},
		{Packet{Kind: BEP, Flag: true}, "02 b3"},
		{Packet{Kind: CFE, Form: 1, Value: 14, Flag: true}, "02 13 81 0e"},
		{Packet{Kind: EVD, Form: 1, Value: 0x10}, "02 53 01 10 00 00 00 00 00 00 00"},
		{Packet{Kind: TraceStop}, "02 83"},
		{Packet{Kind: MNT, Value: 1}, "02 c3 88 01 00 00 00 00 00 00 00"},
		{Packet{Kind: TRIG, Form: TrigCount, Value: 2, Extra: 3}, "d9 40 02 03 00"},
	} {
		b, err := Append(nil, &c.p)
		if got := fmt.Sprintf("% x", b); err != nil || got != c.want {
			t.Errorf("%v: %s, %v, want %s", c.p, got, err, c.want)
		}
	}
}

// What a packet cannot hold is refused and leaves the bytes alone.
func TestAppendRefuses(t *testing.T) {
	for _, p := range []Packet{
		{}, {Kind: numKinds}, {Kind: TNT8}, {Kind: TNT8, Form: 7}, {Kind: TNT8, Form: 1, Value: 2}, {Kind: TNT64, Form: 48}, {Kind: TIP, Form: 5},
		{Kind: TIP, Form: 200}, {Kind: TIP, Form: IPUpdate16, Value: 0x10000}, {Kind: FUP, Value: 1}, {Kind: CYC, Value: 1 << 61}, {Kind: PIP, Value: 0x1001},
		{Kind: PIP, Value: 1 << 52}, {Kind: TMA, Extra: 0x200}, {Kind: TMA, Value: 0x10000}, {Kind: TSC, Value: 1 << 56}, {Kind: MTC, Value: 256},
		{Kind: PTW, Form: 2}, {Kind: PTW, Value: 1 << 32}, {Kind: BIP, Flag: true, Value: 1 << 32}, {Kind: BIP, Form: 32}, {Kind: OVF, Value: 1},
		{Kind: TRIG, Extra: 1}, {Kind: PSBEND, Flag: true}, {Kind: MTC, Form: 1}, {Kind: CBR, Extra: 1}, {Kind: VMCS, Value: 0x800}, {Kind: ModeTSX, Value: 4},
	} {
		if b, err := Append([]byte{1}, &p); err == nil || len(b) != 1 || !strings.HasPrefix(err.Error(), "pt: ") {
			t.Errorf("%+v: % x, %v", p, b, err)
		}
	}
}

// Errors name the offset of the packet, and the decoder stays there.
func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		data string
		want error
	}{
		{"\x05", ErrOpcode}, {"\x02\x04", ErrOpcode}, {"\x02", ErrTruncated}, {"\x02\xc3", ErrTruncated}, {"\x02\xc3\x00", ErrOpcode}, {"\xad", ErrPayload},
		{"\x2d\x01", ErrTruncated}, {"\x02\x82\x02", ErrTruncated}, {psbPattern[:14] + "\x02\x83", ErrPayload}, {"\x99", ErrTruncated}, {"\x99\x40", ErrPayload},
		{"\x02\xa3\x00\x00\x00\x00\x00\x00", ErrPayload}, {"\x02\x52\x00", ErrPayload}, {"\x07\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01", ErrPayload},
		{"\x07\x01", ErrTruncated}, {"\x02\x73\x00\x00\x01\x00\x00", ErrPayload}, {"\x02\x73\x00\x00\x00\x00\x02", ErrPayload}, {"\xd9\x40\x00\x00", ErrTruncated},
		{"\xd9", ErrTruncated}, {"\x59", ErrTruncated},
	} {
		d := NewDecoder([]byte("\x00"+c.data), 100)
		var p Packet
		if err := d.Next(&p); err != nil || p.Kind != PAD {
			t.Fatal(err)
		}
		err := d.Next(&p)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, c.want) || e.Offset != 101 || d.Offset() != 101 {
			t.Errorf("% x: %v, want %v at 101", c.data, err, c.want)
		}
		d.Skip()
		if d.Offset() != 102 {
			t.Errorf("% x: Skip went to %d", c.data, d.Offset())
		}
	}
}

// Sync finds PSBs behind rubbish, in the middle of a packet, and not the pattern's beginning where rubbish prolongs it.
func TestSync(t *testing.T) {
	for _, c := range []struct {
		data string
		want int
	}{
		{psbPattern, 0}, {"\x00" + psbPattern, 1}, {"\x02\x82" + psbPattern, 2}, {"\x82" + psbPattern + "\x02\x23", 1}, {psbPattern + psbPattern, 16},
		{psbPattern[:15], -1}, {"", -1}, {psbPattern[:14] + "\x02\x83" + psbPattern, 16}, {psbPattern + "\x02", 0},
	} {
		d := NewDecoder([]byte(c.data), 0)
		err := d.Sync()
		if c.want < 0 {
			if err != io.EOF {
				t.Errorf("% x: %v", c.data, err)
			}
			continue
		}
		var p Packet
		if err != nil || d.Offset() != uint64(c.want) || d.Next(&p) != nil || p.Kind != PSB {
			t.Errorf("% x: at %d, %v, want %d", c.data, d.Offset(), err, c.want)
		}
	}
	// A TSC packet that was cut after its first byte swallows the next PSB's beginning.
	data := []byte("\x19" + psbPattern + "\x02\x23\x99\xff" + psbPattern)
	packets, failed := decodeAll(data)
	var kinds []Kind
	for _, p := range packets {
		kinds = append(kinds, p.Kind)
	}
	if len(failed) != 2 || failed[0].Offset != 9 || failed[1].Offset != 19 || !slices.Equal(kinds, []Kind{TSC, TNT8, PSB, PSBEND, PSB}) {
		t.Errorf("%v %v", packets, failed)
	}
}

func TestLastIP(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var enc, dec LastIP
	for i := range 10000 {
		ip := uint64(enc) ^ r.Uint64()>>r.IntN(64)
		p := Packet{Kind: TIP}
		enc.Compress(&p, ip)
		b, err := Append(nil, &p)
		if err != nil {
			t.Fatal(err)
		}
		var q Packet
		if err := NewDecoder(b, 0).Next(&q); err != nil {
			t.Fatal(err)
		}
		if got, ok := dec.Update(&q); !ok || got != ip {
			t.Fatalf("%d: %#x, want %#x by %v", i, got, ip, q)
		}
		if got, ok := dec.Update(&Packet{Kind: TIP}); ok || got != 0 || uint64(dec) != ip {
			t.Fatal("a packet without an address changed the last one")
		}
	}
}

// Decoding is total: no panic, always forward; what is decoded encodes, and decodes to itself again.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		_, data := randomStream(f, r, 30)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := NewDecoder(data, 7)
		for {
			before := d.Offset()
			var p Packet
			err := d.Next(&p)
			if err == io.EOF {
				break
			}
			if err != nil {
				if d.Offset() != before {
					t.Fatal("an error moved the decoder")
				}
				d.Skip()
				continue
			}
			if d.Offset() != before+uint64(p.Len) || p.Len == 0 || p.Len > maxLen {
				t.Fatalf("%v has length %d and moved %d", p, p.Len, d.Offset()-before)
			}
			_ = p.String()
			b, err := Append(nil, &p)
			if err != nil {
				t.Fatalf("%+v: %v", p, err)
			}
			again := &Decoder{data: b}
			if p.Kind == BIP {
				if again.item = 8; p.Flag {
					again.item = 4
				}
			}
			var q Packet
			if err := again.Next(&q); err != nil || len(b) > int(p.Len) {
				t.Fatalf("%+v: % x: %v", p, b, err)
			}
			if q.Len = p.Len; q != p { // a CYC may have been longer than needed
				t.Fatalf("%+v became %+v", p, q)
			}
		}
	})
}

// mixedStream is shaped like a real trace: mostly TNT and TIP, with timing.
func mixedStream(b *testing.B) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	var data []byte
	put := func(k Kind) {
		p := randomPacket(r, k)
		if k.HasIP() {
			p.Form, p.Value = IPUpdate32, p.Value&0xffffffff
		}
		if k == CYC {
			p.Value &= 0x3ff
		}
		var err error
		if data, err = Append(data, &p); err != nil {
			b.Fatal(err)
		}
	}
	for len(data) < 1<<20 {
		if r.IntN(600) == 0 {
			for _, k := range []Kind{PSB, TSC, TMA, CBR, ModeExec, FUP, PSBEND} {
				put(k)
			}
		}
		put([]Kind{TNT8, TNT8, TNT8, TNT8, TIP, CYC, CYC, MTC}[r.IntN(8)])
	}
	return data
}

func BenchmarkDecode(b *testing.B) {
	data := mixedStream(b)
	b.SetBytes(int64(len(data)))
	n := 0
	for b.Loop() {
		d := NewDecoder(data, 0)
		var p Packet
		for d.Next(&p) == nil {
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
}
