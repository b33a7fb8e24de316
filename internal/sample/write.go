package sample

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
)

// WriterOptions say what a Writer's file begins with.
type WriterOptions struct {
	Events  []perf.Event // the first is the one that side-band records are of; all must have the same identity, with IDENTIFIER
	PMUs    []perf.PMU   // numbers and names of the events' types
	Clock   perf.TimeConv
	PT      int       // number of the Intel PT event; -1: none
	Timing  pt.Timing // of Intel PT
	Filter  string    // the address filter that the kernel was given for it; "": none
	Command []string
	Version string // of ripstop
}

// A Writer writes the perf.data of a recording. Times are TSC. Records must come in the order of time. After an error it writes no more; every call
// returns that error.
type Writer struct {
	Samples uint64 // written so far

	o       WriterOptions
	file    *os.File
	buf     *buffered
	w       *perf.Writer
	aux     map[uint32]*auxBuffer
	err     error
	first   uint64 // perf's times of samples
	last    uint64
	records int // since the last FINISHED_ROUND
}

// An auxBuffer is a thread's control flow trace as far as it is written.
type auxBuffer struct {
	offset uint64
	rest   []byte // less than a word: an AUX area is whole words
}

// ClockOf gives the conversion of a TSC of hz ticks a second to perf's time, as a kernel would make it.
func ClockOf(hz uint64) perf.TimeConv {
	const shift = 31
	hi, lo := bits.Mul64(1_000_000_000, 1<<shift)
	mult, _ := bits.Div64(hi, lo, max(hz, 1))
	return perf.TimeConv{Shift: shift, Mult: mult, CapTimeZero: true}
}

// Intel PT's bits in an attribute's config (arch/x86/events/intel/pt.c, format attributes).
const (
	PTOn      = 1 << 0
	PTCycles  = 1 << 1
	PTMTC     = 1 << 9
	PTTSC     = 1 << 10
	PTNoRET   = 1 << 11 // returns are not compressed
	PTBranch  = 1 << 13
	PTMTCFreq = 14 // shift of four bits
)

// Create makes perf.data in the directory of a trace.
func Create(dir string, o WriterOptions) (*Writer, error) {
	f, err := os.OpenFile(filepath.Join(dir, PerfFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	w := &Writer{o: o, file: f, buf: &buffered{file: f}, aux: map[uint32]*auxBuffer{}}
	if w.w, err = perf.NewWriter(w.buf, o.Events, false); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("samples: %w", err)
	}
	if o.PT >= 0 {
		t, capZero := o.Timing, uint64(0)
		if o.Clock.CapTimeZero {
			capZero = 1
		}
		info := &perf.AuxtraceInfo{Kind: perf.AuxtraceIntelPT, Priv: []uint64{
			perf.IntelPTPMUType: uint64(o.Events[o.PT].Attr.Type), perf.IntelPTTimeShift: o.Clock.Shift, perf.IntelPTTimeMult: o.Clock.Mult,
			perf.IntelPTTimeZero: o.Clock.Zero, perf.IntelPTCapUserTimeZero: capZero, perf.IntelPTTSCBit: PTTSC, perf.IntelPTNoRETCompBit: PTNoRET,
			perf.IntelPTMTCBit: PTMTC, perf.IntelPTMTCFreqBits: 0xf << PTMTCFreq, perf.IntelPTTSCCTCN: uint64(t.CrystalMul),
			perf.IntelPTTSCCTCD: uint64(t.CrystalDiv), perf.IntelPTCYCBit: PTCycles, perf.IntelPTMaxNonturboRatio: uint64(t.Nominal),
			perf.IntelPTFilterStrLen: uint64(len(o.Filter)),
		}}
		if o.Filter != "" { // it ends with a zero, in whole words (perf's intel-pt.c, intel_pt_process_auxtrace_info)
			text := append([]byte(o.Filter), make([]byte, 8-len(o.Filter)%8)...)
			for ; len(text) > 0; text = text[8:] {
				info.Priv = append(info.Priv, binary.LittleEndian.Uint64(text))
			}
		}
		w.user(info)
	}
	clock := o.Clock
	w.user(&clock)
	return w, w.err
}

func (w *Writer) write(e *perf.Entry) {
	if w.err != nil {
		return
	}
	if err := w.w.Write(e); err != nil {
		w.err = fmt.Errorf("%s: %w (what came later is not in it)", w.file.Name(), err)
	}
	w.records++
}

// user writes a record of perf's own.
func (w *Writer) user(r perf.Record) { w.write(&perf.Entry{Event: -1, Record: r}) }

// side writes a record of the kernel's, of the first event, about a thread.
func (w *Writer) side(misc perf.Misc, r perf.Record, pid, tid int32, tsc uint64) error {
	id := w.o.Events[0].IDs[0]
	w.write(&perf.Entry{Misc: misc, Event: 0, Record: r, Identity: perf.Identity{
		Process: perf.Process{PID: pid, TID: tid}, Time: w.time(tsc), ID: id, Identifier: id,
	}})
	return w.err
}

func (w *Writer) time(tsc uint64) uint64 { return w.o.Clock.Time(tsc) }

// Fork tells of a new thread, or with another pid than ppid of a new process.
func (w *Writer) Fork(pid, tid, ppid, ptid int32, tsc uint64) error {
	return w.side(0, &perf.Fork{Task: perf.Task{PID: pid, PPID: ppid, TID: tid, PTID: ptid, Time: w.time(tsc)}}, ppid, ptid, tsc)
}

// Exit tells of the end of a thread.
func (w *Writer) Exit(pid, tid int32, tsc uint64) error {
	return w.side(0, &perf.Exit{Task: perf.Task{PID: pid, PPID: pid, TID: tid, PTID: tid, Time: w.time(tsc)}}, pid, tid, tsc)
}

// Comm tells a thread's name; exec: it has it from a program that it executes now.
func (w *Writer) Comm(pid, tid int32, name string, exec bool, tsc uint64) error {
	var misc perf.Misc
	if exec {
		misc = perf.MiscCommExec
	}
	return w.side(misc, &perf.Comm{Process: perf.Process{PID: pid, TID: tid}, Comm: name}, pid, tid, tsc)
}

// Map tells of executable memory.
func (w *Writer) Map(m Mapping, tid int32) error {
	const readExec, private = 5, 2
	r := &perf.Mmap2{
		Process: perf.Process{PID: m.PID, TID: tid}, Addr: m.Start, Len: m.End - m.Start, PgOff: m.Offset, Prot: readExec, Flags: private, Filename: m.Path,
	}
	misc := perf.MiscUser
	if id, err := hex.DecodeString(m.BuildID); err == nil && len(id) > 0 && len(id) <= 20 {
		r.BuildID = id
		misc |= perf.MiscMmapBuildID
	}
	return w.side(misc, r, m.PID, tid, m.TSC)
}

// TraceStart tells that a thread's control flow is traced from here on.
func (w *Writer) TraceStart(pid, tid int32, tsc uint64) error {
	return w.side(0, &perf.ItraceStart{Process: perf.Process{PID: pid, TID: tid}}, pid, tid, tsc)
}

// Trace appends to the control flow trace of a thread; index is the thread's among all that were traced. The last part of a trace is cut to whole words
// by zeros, which are PAD packets, when last is set. It must come before the thread's Exit.
func (w *Writer) Trace(index uint32, pid, tid int32, b []byte, last bool, tsc uint64) error {
	a := w.aux[index]
	if a == nil {
		a = &auxBuffer{}
		w.aux[index] = a
	}
	a.rest = append(a.rest, b...)
	a.rest = append(a.rest, make([]byte, -len(a.rest)&7)...)
	n := len(a.rest) &^ 7
	if n == 0 {
		return w.err
	}
	_ = w.side(0, &perf.Aux{Offset: a.offset, Size: uint64(n)}, pid, tid, tsc)
	w.write(&perf.Entry{
		Event: -1, Record: &perf.Auxtrace{Size: uint64(n), Offset: a.offset, Reference: tsc, Index: index, TID: tid, CPU: -1}, Payload: bytes.NewReader(a.rest[:n]),
	})
	a.offset += uint64(n)
	a.rest = append(a.rest[:0], a.rest[n:]...)
	return w.err
}

// Flow appends to the control flow trace of a thread what the kernel put into an AUX buffer while the thread ran, straight from there; flags are those of its AUX
// record. index is the thread's among all that were traced. It must end between two packets: it is made whole words by PAD packets.
func (w *Writer) Flow(index uint32, pid, tid int32, flags, tsc uint64, data ...[]byte) error {
	a := w.aux[index]
	if a == nil {
		a = &auxBuffer{}
		w.aux[index] = a
	}
	n := 0
	for _, d := range data {
		n += len(d)
	}
	var pads [8]byte
	data = append(data, pads[:-n&7])
	n += -n & 7
	_ = w.side(0, &perf.Aux{Offset: a.offset, Size: uint64(n), Flags: flags}, pid, tid, tsc)
	if w.err == nil && n > 0 {
		if err := w.w.WriteAuxtrace(&perf.Auxtrace{Offset: a.offset, Reference: tsc, Index: index, TID: tid, CPU: -1}, data...); err != nil {
			w.err = fmt.Errorf("%s: %w (what came later is not in it)", w.file.Name(), err)
		}
	}
	a.offset += uint64(n)
	return w.err
}

// Sample writes a sample of an event: what its attribute asks for is taken from s, and the registers it asks for from s.Regs.
func (w *Writer) Sample(event int, pid, tid int32, s *Sample) error {
	attr := &w.o.Events[event].Attr
	id := w.o.Events[event].IDs[0]
	r := &perf.Sample{
		Identity: perf.Identity{Process: perf.Process{PID: pid, TID: tid}, Time: w.time(s.TSC), ID: id, Identifier: id},
		IP:       s.IP, Addr: s.Addr, Period: attr.SamplePeriod,
	}
	r.RegsIntr = regsOf(attr.SampleRegsIntr, &s.Regs)
	w.count(r.Time)
	w.write(&perf.Entry{Misc: perf.MiscUser | perf.MiscExactIP, Event: event, Record: r})
	if w.records >= 1<<12 {
		w.records = 0
		w.user(&perf.FinishedRound{})
	}
	return w.err
}

func (w *Writer) count(time uint64) {
	if w.Samples == 0 {
		w.first = time
	}
	w.last = max(w.last, time)
	w.Samples++
}

// Raw writes a record as the kernel gave it, behind its header, of an event; t must be one whose identity is in the bytes.
func (w *Writer) Raw(event int, misc perf.Misc, t perf.Type, body []byte, time uint64) error {
	if t == perf.TypeSample {
		w.count(time)
	}
	w.write(&perf.Entry{Misc: misc, Event: event, Record: &perf.Unknown{RecordType: t, Data: body}})
	return w.err
}

// Reclock tells how times convert from here on; the clocks drift against each other.
func (w *Writer) Reclock(c perf.TimeConv) {
	w.o.Clock = c
	w.user(&c)
}

// Round tells that nothing older than what was written follows.
func (w *Writer) Round() { w.user(&perf.FinishedRound{}) }

func regsOf(mask uint64, from *Registers) (r perf.Regs) {
	if mask == 0 {
		return r
	}
	r.ABI, r.Mask = perf.Regs64, mask
	for reg := range registerOf {
		if mask>>reg&1 == 0 {
			continue
		}
		v := uint64(0) // of segments
		if registerOf[reg] >= 0 {
			v = from[registerOf[reg]]
		}
		r.Values = append(r.Values, v)
	}
	return r
}

// Close completes the file.
func (w *Writer) Close() error {
	info := perf.Info{
		Version: "ripstop " + w.o.Version, Arch: "x86_64", CPUsOnline: uint32(runtime.NumCPU()), CPUsAvail: uint32(runtime.NumCPU()),
		Cmdline: append([]string{"ripstop", "record", "--"}, w.o.Command...), EventDescs: w.o.Events, PMUs: w.o.PMUs, FirstSample: w.first, LastSample: w.last,
	}
	for _, f := range []perf.Feature{perf.FeatVersion, perf.FeatArch, perf.FeatNRCPUs, perf.FeatCmdline, perf.FeatEventDesc, perf.FeatPMUMappings, perf.FeatSampleTime} {
		info.Has.Add(f)
	}
	if w.err == nil {
		if err := w.w.Finish(&info); err != nil {
			w.err = fmt.Errorf("%s: %w", w.file.Name(), err)
		}
	}
	if err := w.buf.flush(); w.err == nil && err != nil {
		w.err = fmt.Errorf("samples: %w", err)
	}
	if err := w.file.Close(); w.err == nil && err != nil {
		w.err = fmt.Errorf("samples: %w", err)
	}
	return w.err
}

// buffered makes large writes of small ones; seeking empties it.
type buffered struct {
	file *os.File
	b    []byte
}

const (
	bufferSize = 1 << 18
	directly   = 1 << 14 // what is longer is not worth a copy
)

func (b *buffered) Write(p []byte) (int, error) {
	if len(b.b)+len(p) > bufferSize {
		if err := b.flush(); err != nil {
			return 0, err
		}
	}
	if len(p) > directly {
		if err := b.flush(); err != nil {
			return 0, err
		}
		return b.file.Write(p)
	}
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *buffered) Seek(offset int64, whence int) (int64, error) {
	if err := b.flush(); err != nil {
		return 0, err
	}
	return b.file.Seek(offset, whence)
}

func (b *buffered) flush() error {
	_, err := b.file.Write(b.b)
	b.b = b.b[:0]
	return err
}
