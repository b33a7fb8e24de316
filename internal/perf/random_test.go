package perf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// fill gives every field of v random contents that a file can hold.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Slice:
		n := r.IntN(5)
		if n == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i))
		}
	case reflect.String:
		b := make([]byte, r.IntN(16))
		for i := range b {
			b[i] = byte(1 + r.IntN(255))
		}
		v.SetString(string(b))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.NormFloat64())
	case reflect.Int32:
		v.SetInt(int64(int32(r.Uint32())))
	default:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	}
}

// randomAttr gives an attribute whose samples have any of what samples can have.
func randomAttr(r *rand.Rand) (a Attr) {
	fill(r, reflect.ValueOf(&a).Elem())
	a.Size = attrSizeKnown
	a.SampleType = SampleType(r.Uint64()) & sampleKnown
	if r.IntN(2) == 0 {
		a.SampleType &^= SampleWeightStruct
	} else {
		a.SampleType &^= SampleWeight
	}
	a.ReadFormat = ReadFormat(r.Uint64() & 31)
	return a
}

// tame makes random contents consistent: what a record does not hold is zero.
func tame(r *rand.Rand, rec Record, a *Attr, misc Misc) {
	switch v := rec.(type) {
	case *Mmap2:
		if misc&MiscMmapBuildID != 0 {
			v.Maj, v.Min, v.Ino, v.InoGen = 0, 0, 0, 0
			if v.BuildID == nil {
				v.BuildID = []byte{}
			}
		} else {
			v.BuildID = nil
		}
	case *BuildID:
		v.Misc = misc | MiscBuildIDSized
		if v.BuildID == nil {
			v.BuildID = []byte{}
		}
	case *Auxtrace:
		v.Size >>= 8
	case *TextPoke:
		v.Old, v.New = append([]byte{}, v.Old...), append([]byte{}, v.New...)
	case *HeaderAttr:
		v.Attr = randomAttr(r)
	case *AuxtraceError:
		v.Format %= 3
		if v.Format < 1 {
			v.Time = 0
		}
		if v.Format < 2 {
			v.MachinePID, v.VCPU = 0, 0
		}
	case *CPUMap:
		*v = CPUMap{Kind: v.Kind % 3, CPUs: v.CPUs, LongSize: v.LongSize%2*4 + 4, Mask: v.Mask, Any: v.Any, Start: v.Start, End: v.End}
		switch v.Kind {
		case CPUMapCPUs:
			*v = CPUMap{CPUs: v.CPUs}
		case CPUMapMask:
			for i := range v.Mask {
				v.Mask[i] >>= 64 - 8*v.LongSize
			}
			*v = CPUMap{Kind: v.Kind, LongSize: v.LongSize, Mask: v.Mask}
		default:
			*v = CPUMap{Kind: v.Kind, Any: v.Any, Start: v.Start, End: v.End}
		}
	case *EventUpdate:
		tame(r, &v.CPUs, a, misc)
		u := EventUpdate{Kind: v.Kind % 4, ID: v.ID}
		switch u.Kind {
		case UpdateScale:
			u.Scale = v.Scale
		case UpdateCPUs:
			u.CPUs = v.CPUs
		default:
			u.Text = v.Text
		}
		*v = u
	case *Read:
		tameValues(&v.Values, a.ReadFormat)
	case *HeaderFeature:
		v.Feature, v.Data = FeatClockID, make([]byte, 8)
	case *Compressed2:
		v.Data = append([]byte{}, v.Data...)
	}
}

func tameValues(v *ReadValues, f ReadFormat) {
	if f&FormatGroup == 0 {
		v.Values = append(v.Values, ReadValue{Value: 1, ID: 2, Lost: 3})[:1]
	}
	for i := range v.Values {
		if f&FormatID == 0 {
			v.Values[i].ID = 0
		}
		if f&FormatLost == 0 {
			v.Values[i].Lost = 0
		}
	}
	if f&FormatTotalTimeEnabled == 0 {
		v.TimeEnabled = 0
	}
	if f&FormatTotalTimeRunning == 0 {
		v.TimeRunning = 0
	}
}

// randomSample gives a sample that can be written; what its event does not ask for is dropped by writing.
func randomSample(r *rand.Rand, a *Attr) *Sample {
	s := &Sample{}
	fill(r, reflect.ValueOf(s).Elem())
	tameValues(&s.Read, a.ReadFormat)
	s.Raw = make([]byte, 4+8*r.IntN(3))
	s.Aux = append(s.Aux, make([]byte, -len(s.Aux)&7)...)
	s.StackUser = append(s.StackUser, make([]byte, -len(s.StackUser)&7)...)
	s.Counters = make([]uint64, len(s.Branches))
	for _, g := range []struct {
		regs *Regs
		mask uint64
	}{{&s.RegsUser, a.SampleRegsUser}, {&s.RegsIntr, a.SampleRegsIntr}} {
		*g.regs = Regs{ABI: r.Uint64N(3), Mask: g.mask, Values: make([]uint64, weight(g.mask))}
		for i := range g.regs.Values {
			g.regs.Values[i] = r.Uint64()
		}
	}
	return s
}

// Every type of record, with any contents, is read as it was written, in both byte orders; and what is read of it, however short it is cut, is
// an error or is shorter.
func TestRecordsRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for typ, known := range types {
		if typ == TypeSample {
			continue
		}
		for i := range 200 {
			a := randomAttr(r)
			misc := Misc(r.Uint32()) &^ MiscMmapBuildID
			if i%2 == 0 {
				misc |= MiscMmapBuildID | MiscBuildIDSized
			}
			rec := known.make()
			fill(r, reflect.ValueOf(rec).Elem())
			tame(r, rec, &a, misc)
			var id Identity
			fill(r, reflect.ValueOf(&id).Elem())
			for _, order := range []byteOrder{binary.LittleEndian, binary.BigEndian} {
				b, err := appendRecord(nil, order, &a, misc, rec, &id)
				if err != nil {
					t.Fatalf("%v: %v", typ, err)
				}
				rd := &Reader{order: order, Events: []Event{{Attr: a}}, byID: map[uint64]int{}, end: 1 << 62}
				e, err := rd.entry(0, b, false)
				if err != nil {
					t.Fatalf("%v: %v\n%+v", typ, err, rec)
				}
				if typ == TypeBuildID {
					misc |= MiscBuildIDSized
				}
				if e.Misc != misc || !same(e.Record, rec) {
					t.Fatalf("%v:\n%+v\nwant\n%+v", typ, e.Record, rec)
				}
				if a.trailer() > 0 && typ < typeUser {
					want, got := codec{order: order, write: true}, codec{order: order, write: true}
					id.fields(&want, a.SampleType)
					e.Identity.fields(&got, a.SampleType)
					if !bytes.Equal(got.b, want.b) {
						t.Fatalf("%v: identity %+v, want %+v", typ, e.Identity, id)
					}
				}
				for n := headerSize; n < len(b); n++ { // no panic
					_, _ = (&Reader{order: order, Events: rd.Events[:1], byID: rd.byID, end: 1 << 62}).entry(0, b[:n], false)
				}
			}
		}
	}
}

// same is DeepEqual for which a slice with nothing is no slice.
func same(a, b Record) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

// Any sample of any event is read as it was written, in both byte orders.
func TestSamplesRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		a := randomAttr(r)
		s := randomSample(r, &a)
		var read [2]*Sample
		for k, order := range []byteOrder{binary.LittleEndian, binary.BigEndian} {
			b, err := appendRecord(nil, order, &a, 0, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			rd := &Reader{order: order, Events: []Event{{Attr: a}}, byID: map[uint64]int{}}
			e, err := rd.entry(0, b, false)
			if err != nil {
				t.Fatal(err)
			}
			read[k] = e.Record.(*Sample)
			again, err := appendRecord(nil, order, &a, 0, read[k], nil)
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%v: % x\nwant\n% x", err, again, b)
			}
			for n := headerSize; n < len(b); n++ {
				if e, err := rd.entry(0, b[:n], false); err == nil && len(b)-n >= 8 {
					t.Fatalf("%d bytes of %d are read as %+v", n, len(b), e.Record)
				}
			}
		}
		if !reflect.DeepEqual(read[0], read[1]) {
			t.Fatalf("little-endian %+v\nbig-endian %+v", read[0], read[1])
		}
		want := *s
		drop := reflect.ValueOf(&want).Elem()
		got := reflect.ValueOf(read[0]).Elem()
		for i := range got.NumField() {
			g, w, name := got.Field(i), drop.Field(i), got.Type().Field(i).Name
			switch {
			case name == "Identity" || name == "Read" || strings.HasPrefix(name, "Regs"): // have parts that the event did not ask for
			case g.IsZero() && a.SampleType != sampleKnown:
			case fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w):
				t.Fatalf("%s: %+v, want %+v", name, g, w)
			}
		}
	}
}

// A file cut anywhere, or with any byte changed, gives an error that says where, or fewer or other records; never a panic, and never more
// memory than the file has.
func TestDamagedFiles(t *testing.T) {
	name := captured(t)[1]
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(file); n += 1 + n/40 {
		r, err := NewReader(bytes.NewReader(file[:n]), int64(n))
		var at *Error
		if err != nil {
			if !errors.As(err, &at) {
				t.Fatalf("cut at %d: %v says no offset", n, err)
			}
			continue
		}
		drain(t, r)
		if n < len(file) && len(r.Damage) == 0 && r.Offset() >= int64(n) {
			t.Errorf("cut at %d: nothing is said", n)
		}
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		bad := bytes.Clone(file)
		for range 1 + rnd.IntN(3) {
			bad[rnd.IntN(len(bad))] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(rnd.Uint32())}[rnd.IntN(6)]
		}
		if r, err := NewReader(bytes.NewReader(bad), int64(len(bad))); err == nil {
			drain(t, r)
		}
	}
}

// again writes a record and reads it back.
func again(t testing.TB, r *Reader, e *Entry) {
	t.Helper()
	var attr *Attr
	one := &Reader{order: r.order, byID: map[uint64]int{}, end: 1 << 62}
	if e.Event >= 0 {
		attr = &r.Events[e.Event].Attr
		one.Events = r.Events[e.Event : e.Event+1]
	}
	b, err := appendRecord(nil, r.order, attr, e.Misc, e.Record, &e.Identity)
	if err != nil {
		return
	}
	back, err := one.entry(0, b, false)
	if _, isFeature := e.Record.(*HeaderFeature); isFeature && err != nil {
		return // it may rest on others
	}
	if err != nil || !same(back.Record, e.Record) {
		t.Fatalf("%v: %+v\nread again: %+v", err, e.Record, back.Record)
	}
}

// drain reads a file to its end, over records that cannot be understood.
func drain(t testing.TB, r *Reader) {
	t.Helper()
	defer r.Close()
	for range 1 << 20 {
		before := r.Offset()
		e, err := r.Next()
		if err != nil && err != io.EOF {
			var at *Error
			if !errors.As(err, &at) {
				t.Fatalf("%v says no offset", err)
			}
		}
		if e == nil {
			return
		}
		if err == nil {
			again(t, r, e)
		}
		if r.Offset() <= before && !e.Inflated && r.inner == nil {
			t.Fatalf("no progress at %#x", before)
		}
		if e.Payload != nil && e.Size%16 == 0 {
			_, _ = io.Copy(io.Discard, e.Payload)
		}
	}
}

// Sizes that a hostile file claims are not allocated.
func TestHostileSizes(t *testing.T) {
	m := &memory{}
	w, err := NewWriter(m, []Event{{Attr: Attr{SampleType: SampleCallchain | SampleBranchStack | SampleAux}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	begin := len(m.b)
	for range 100 {
		if err := w.Write(&Entry{Record: &Sample{}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(&Info{}); err != nil {
		t.Fatal(err)
	}
	for at := begin; at < len(m.b); at += 32 {
		for _, n := range []uint64{1 << 20, 1 << 61, 1<<64 - 1} {
			bad := bytes.Clone(m.b)
			binary.LittleEndian.PutUint64(bad[at+8*(1+at/32%3):], n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := open(t, bad)
			_, err := r.Next()
			for err == nil {
				_, err = r.Next()
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
				t.Fatalf("%d bytes allocated for %d entries", got, n)
			}
			if !errors.Is(err, ErrShort) {
				t.Fatalf("%d entries: %v", n, err)
			}
		}
	}
}

// Each time of the TSC converts to perf's and back to the same (kernel: Documentation of struct perf_event_mmap_page).
func TestTimeConv(t *testing.T) {
	c := TimeConv{Shift: 31, Mult: 715827882, Zero: 5_000_000_000, CapTimeZero: true} // 3 GHz
	for _, tsc := range []uint64{0, 3, 3_000_000_000, 1 << 50} {
		time := c.Time(tsc)
		if want := 5_000_000_000 + tsc/3; time > want || want-time > tsc>>28+1 {
			t.Errorf("TSC %d is %d ns, want %d", tsc, time, want)
		}
		if back := c.TSC(time); back > tsc || tsc-back > 4 {
			t.Errorf("TSC %d is %d ns is TSC %d", tsc, time, back)
		}
	}
	short := c
	short.CapTimeShort, short.Cycles, short.Mask = true, 1<<40, 1<<32-1
	if got, want := short.Time(1<<40+77&(1<<32-1)), c.Time(1<<40+77); got != want {
		t.Errorf("a counter of 32 bits gives %d ns, want %d", got, want)
	}
	if got := (&TimeConv{}).TSC(1); got != 0 {
		t.Errorf("without a factor: %d", got)
	}
}
