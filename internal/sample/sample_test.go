package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
)

const hz = 2_700_000_000

var testTiming = pt.Timing{CrystalMul: 256, CrystalDiv: 1, MTCFreq: 15, Nominal: 20}

// testEvents are those of a recording with control flow, loads and a clock.
func testEvents() []perf.Event {
	id := perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime
	all := uint64(0xff0fff) // what PEBS gives, and cs and ss
	flags := perf.FlagSampleIDAll
	loads := perf.Attr{Type: 4, Config: allLoads, SampleType: id | perf.SampleAddr | perf.SampleRegsIntr, SampleRegsIntr: all, Flags: flags}
	stores := loads
	stores.Config = allStores
	clock := perf.Attr{Type: 1, SampleType: id | perf.SampleRegsUser | perf.SampleStackUser, SampleRegsUser: 1 << perf.RegIP, SampleStackUser: 16, Flags: flags}
	return []perf.Event{
		{Attr: perf.Attr{Type: 8, Config: PTTSC | 15<<PTMTCFreq, SampleType: id, Flags: flags}, IDs: []uint64{1}, Name: "intel_pt//u"},
		{Attr: loads, IDs: []uint64{2}, Name: "MEM_INST_RETIRED.ALL_LOADS"},
		{Attr: stores, IDs: []uint64{3}, Name: "mem_inst_retired.all_stores:uppp"},
		{Attr: clock, IDs: []uint64{4}, Name: "cpu-clock:u"},
	}
}

// recorded writes a recording of two processes.
func recorded(t testing.TB, dir string) {
	t.Helper()
	w, err := Create(dir, WriterOptions{
		Events: testEvents(), PMUs: []perf.PMU{{Type: 8, Name: "intel_pt"}}, Clock: ClockOf(hz), PT: 0, Timing: testTiming, Command: []string{"prog"},
	})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(n uint64) uint64 { return 1_000_000_000 + n*27_000 }
	must(w.Comm(10, 10, "prog", true, at(0)))
	must(w.Map(Mapping{10, at(1), 0x1000, 0x3000, 0x1000, "/bin/prog", "abcd"}, 10))
	must(w.Map(Mapping{10, at(2), 0x8000, 0x9000, 0, "[vdso]", ""}, 10))
	must(w.TraceStart(10, 10, at(3)))
	must(w.Fork(10, 11, 10, 10, at(4)))
	sm := Sample{TSC: at(6), IP: 0x1234, Addr: 0x5678}
	for i := range sm.Regs {
		sm.Regs[i] = uint64(100 + i)
	}
	must(w.Sample(2, 10, 11, &sm))
	sm.TSC = at(5) // an older one, from another buffer
	must(w.Sample(1, 10, 11, &sm))
	w.Round()
	must(w.Trace(0, 10, 10, []byte{1, 2, 3}, false, at(7)))
	must(w.Trace(1, 10, 11, bytes.Repeat([]byte{4}, 8), true, at(7)))
	must(w.Trace(0, 10, 10, bytes.Repeat([]byte{5}, 9), true, at(8)))
	must(w.Exit(10, 11, at(9)))
	must(w.Fork(20, 20, 10, 10, at(10)))
	must(w.Map(Mapping{20, at(11), 0x2000, 0x4000, 0, "/lib/other", ""}, 20)) // in the place of a part of the program
	must(w.Comm(20, 20, "next", true, at(12)))
	must(w.Map(Mapping{20, at(13), 0x1000, 0x2000, 0, "/bin/next", ""}, 20))
	must(w.Fork(10, 11, 10, 10, at(14))) // the thread id again
	body := binary.LittleEndian.AppendUint64(nil, 4)
	body = binary.LittleEndian.AppendUint64(body, 0x1500)
	body = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(body, 10), 11)
	body = binary.LittleEndian.AppendUint64(body, ptime(at(15)))
	for _, v := range []uint64{perf.Regs64, 0x1500, 16, 7, 8, 12} { // abi, ip; size, stack, how much of it is
		body = binary.LittleEndian.AppendUint64(body, v)
	}
	must(w.Raw(3, perf.MiscUser, perf.TypeSample, body, ptime(at(15))))
	must(w.Close())
	must(WriteInfo(dir, Info{Mode: Step, Hz: hz, Complete: true}))
}

func ptime(tsc uint64) uint64 { c := ClockOf(hz); return c.Time(tsc) }

// What is written is read, threads and address spaces with their lives; times are TSC again, up to the nanosecond that perf has.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	recorded(t, dir)
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Damage) > 0 || r.Timing != testTiming {
		t.Fatalf("%v, %+v", r.Damage, r.Timing)
	}
	var got []string
	for _, th := range r.Threads {
		trace, err := r.Trace(th)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d/%d by %d %q ended %t, %d samples, trace %x", th.PID, th.TID, th.Parent, th.Comm, th.End != 0, len(th.Samples), trace))
	}
	want := []string{
		`10/10 by 0 "prog" ended false, 0 samples, trace 010203000000000005050505050505050500000000000000`,
		`10/11 by 10 "prog" ended true, 2 samples, trace 0404040404040404`,
		`20/20 by 10 "next" ended false, 0 samples, trace `,
		`10/11 by 10 "prog" ended false, 1 samples, trace `,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("threads:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	load, store, clock := r.Threads[1].Samples[0], r.Threads[1].Samples[1], r.Threads[3].Samples[0]
	if load.Kind != LoadEvent || store.Kind != StoreEvent || load.TSC >= store.TSC || load.Addr != 0x5678 || load.Regs[3] != 103 || load.Regs[RIP] != 116 || load.Has != 1<<18-1 {
		t.Errorf("%+v\n%+v", load, store)
	}
	if d := int64(load.TSC - (1_000_000_000 + 5*27_000)); d < -3 || d > 3 {
		t.Errorf("the TSC is %d off", d)
	}
	stack, err := r.Stack(&clock)
	if clock.Kind != ClockEvent || clock.IP != 0x1500 || clock.Has != 1<<RIP || err != nil || len(stack) != 12 || stack[0] != 7 {
		t.Errorf("%+v", clock)
	}
	text := func(pid int32) (s string) {
		for _, e := range r.Epochs(pid) {
			s += "|"
			for _, m := range e.Mappings {
				s += fmt.Sprintf(" %#x-%#x %s+%#x %s", m.Start, m.End, m.Path, m.Offset, m.BuildID)
			}
		}
		return s
	}
	if got, want := text(10), "| 0x1000-0x3000 /bin/prog+0x1000 abcd 0x8000-0x9000 [vdso]+0x0 "; got != want {
		t.Errorf("10: %q", got)
	}
	if got, want := text(20), "| 0x1000-0x3000 /bin/prog+0x1000 abcd 0x8000-0x9000 [vdso]+0x0 | 0x2000-0x4000 /lib/other+0x0  0x8000-0x9000 [vdso]+0x0 "+
		"| 0x1000-0x2000 /bin/next+0x0 "; got != want {
		t.Errorf("20: %q", got)
	}
}

// A file whose recorder was killed gives what it has: samples with their kinds, though the names of the events are not there yet.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	recorded(t, dir)
	path := filepath.Join(dir, PerfFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const dataAt, dataSizeAt, featuresAt = 40, 48, 72
	end := binary.LittleEndian.Uint64(b[dataAt:]) + binary.LittleEndian.Uint64(b[dataSizeAt:])
	clear(b[dataSizeAt:][:8])
	clear(b[featuresAt:][:32])
	if err := os.WriteFile(path, b[:end-20], 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Threads) < 2 || len(r.Threads[1].Samples) != 2 || r.Threads[1].Samples[0].Kind != LoadEvent || r.Threads[1].Samples[1].Kind != StoreEvent {
		t.Fatalf("%+v, %v", r.Threads, r.Damage)
	}
}

// Code comes from the files that were mapped, or not at all if they are others by now.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "code")
	if err := os.WriteFile(file, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, VDSOFile), []byte("vdso"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Recording{dir: dir}
	x, why := r.Image(&Epoch{Mappings: []Mapping{
		{Start: 0x1000, End: 0x1004, Offset: 4, Path: file}, {Start: 0x2000, End: 0x9000, Offset: 8, Path: file}, {Start: 0xa000, End: 0xb000, Offset: 99, Path: file},
		{Start: 0xc000, End: 0xd000, Path: "[vdso]"}, {Start: 0xd000, End: 0xe000, Path: "//anon"}, {Start: 0xe000, End: 0xf000, Path: file, BuildID: "12"},
		{Start: 0xf000, End: 0xf001, Path: filepath.Join(dir, "gone")},
	}})
	if len(why) != 2 || !errors.Is(why[1], os.ErrNotExist) {
		t.Errorf("%q", why)
	}
	for addr, want := range map[uint64]string{
		0xfff: "", 0x1000: "4567", 0x1003: "7", 0x1004: "", 0x2000: "89abcdef", 0x2008: "", 0xa000: "", 0xc001: "dso", 0xd000: "", 1 << 63: "",
	} {
		if got := string(x.Code(addr)); got != want {
			t.Errorf("%#x: %q, want %q", addr, got, want)
		}
	}
}

// What is no sampled recording, or one of another version, is said.
func TestReadInfo(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNoSamples) || !strings.Contains(err.Error(), "--sample") {
		t.Error(err)
	}
	for text, want := range map[string]string{"{": "JSON", `{"format":"x"}`: `"x"`, `{"format":"ripstop samples","format_version":9}`: "version 9"} {
		if err := os.WriteFile(filepath.Join(dir, InfoFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadInfo(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), InfoFile) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzRead: no bytes make the reader panic, or give a trace that is not in the file.
func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	recorded(f, dir)
	b, err := os.ReadFile(filepath.Join(dir, PerfFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	held, stacks := maxHeld, maxStacks
	defer func() { maxHeld, maxStacks = held, stacks }()
	maxHeld, maxStacks = 2, 8
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Recording{}
		r.close = func() error { return nil }
		defer r.Close()
		if r.read(bytes.NewReader(b), int64(len(b))) != nil {
			return
		}
		for _, th := range r.Threads {
			for i := range th.Samples {
				if stack, err := r.Stack(&th.Samples[i]); err != nil || len(stack) > len(b) {
					t.Errorf("%d bytes of stack, %v", len(stack), err)
				}
				if i > 0 && th.Samples[i-1].TSC > th.Samples[i].TSC {
					t.Error("samples are not in the order of time")
				}
			}
			if trace, err := r.Trace(th); err != nil || int64(len(trace)) != th.TraceBytes || len(trace) > len(b) {
				t.Errorf("%d bytes of trace, %v", len(trace), err)
			}
			for _, e := range r.Epochs(th.PID) {
				for i := 1; i < len(e.Mappings); i++ {
					if e.Mappings[i-1].End > e.Mappings[i].Start {
						t.Errorf("%+v", e.Mappings)
					}
				}
			}
		}
	})
}

// A trace that is mapped is the one that is read.
func TestMappedTrace(t *testing.T) {
	dir := t.TempDir()
	recorded(t, dir)
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := mappedFrom
	defer func() { mappedFrom = old }()
	some := false
	for _, th := range r.Threads {
		mappedFrom = old
		want, err := r.Trace(th)
		if err != nil {
			t.Fatal(err)
		}
		mappedFrom = 1
		got, err := r.Trace(th)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("thread %d: %x, %v; want %x", th.TID, got, err, want)
		}
		some = some || len(got) > 0
	}
	if !some || len(r.maps) == 0 {
		t.Error("nothing was mapped")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
