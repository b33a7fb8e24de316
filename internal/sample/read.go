package sample

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
)

// A Recording is a sampled recording that was opened. Its methods may be called at the same time.
type Recording struct {
	Info    Info
	Timing  pt.Timing     // what the time packets of the control flow traces mean
	Clock   perf.TimeConv // between perf's time and the TSC
	Events  []perf.Event
	Threads []*Thread // in the order of their beginning
	Damage  []error   // records that could not be understood; they are left out

	dir    string
	file   io.ReaderAt
	close  func() error
	spaces map[int32][]Epoch
	stacks tail // of samples
	mu     sync.Mutex
	maps   [][]byte // memory of samples and of Trace
}

// Open opens the recording in a trace's directory and reads all but the traces of control flow. Many samples are mapped from a temporary file.
func Open(dir string) (*Recording, error) {
	info, err := ReadInfo(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, PerfFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	fi, err := f.Stat()
	if err == nil {
		r := &Recording{Info: info, dir: dir, close: f.Close}
		if err = r.read(f, fi.Size()); err == nil {
			return r, nil
		}
		_ = r.Close()
	} else {
		_ = f.Close()
	}
	return nil, fmt.Errorf("%s: %w", path, err)
}

// Close releases the file and the traces.
func (r *Recording) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.maps {
		_ = syscall.Munmap(b)
	}
	r.maps = nil
	if r.stacks.file != nil {
		_ = r.stacks.file.Close()
	}
	return r.close()
}

// Trace gives a thread's control flow trace, Intel PT packets; nil if there is none. It is valid until Close, and not to be written to. A long one is mapped from a
// temporary file without a name, so that what is not used need not be in memory.
func (r *Recording) Trace(t *Thread) ([]byte, error) {
	if t.TraceBytes == 0 {
		return nil, nil
	}
	read := r.inMemory
	if t.TraceBytes >= mappedFrom {
		read = r.mapped
	}
	b, err := read(t)
	if err != nil {
		return nil, fmt.Errorf("%s: control flow of thread %d: %w", filepath.Join(r.dir, PerfFile), t.TID, err)
	}
	return b, nil
}

// mappedFrom is the length from which a trace is mapped. Tests change it.
var mappedFrom int64 = 4 << 20

func (r *Recording) inMemory(t *Thread) ([]byte, error) {
	b := make([]byte, t.TraceBytes)
	at := int64(0)
	for _, p := range t.parts {
		if _, err := r.file.ReadAt(b[at:at+p.size], p.offset); err != nil {
			return nil, err
		}
		at += p.size
	}
	return b, nil
}

func (r *Recording) mapped(t *Thread) ([]byte, error) {
	f, err := os.CreateTemp("", "ripstop-trace-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	for _, p := range t.parts {
		if n, err := io.Copy(f, io.NewSectionReader(r.file, p.offset, p.size)); err != nil {
			return nil, err
		} else if n != p.size {
			return nil, io.ErrUnexpectedEOF
		}
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(t.TraceBytes), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.maps = append(r.maps, b)
	r.mu.Unlock()
	return b, nil
}

// reading is what read keeps while it reads.
type reading struct {
	*Recording
	size    int64
	kinds   []EventKind
	writes  []bool             // of breakpoints
	living  map[int32]*Thread  // by thread id
	buffers map[uint32]*Thread // by number of the AUX buffer
	spool   spool

	// Records come from several buffers of the kernel; they are sorted by time as perf does: what is older than the newest before the last
	// FINISHED_ROUND is complete.
	pending       []*perf.Entry
	newest, limit uint64
}

func (r *Recording) read(file io.ReaderAt, size int64) error {
	r.file, r.spaces = file, map[int32][]Epoch{}
	in, err := perf.NewReader(file, size)
	if err != nil {
		return err
	}
	defer in.Close()
	d := &reading{Recording: r, size: size, living: map[int32]*Thread{}, buffers: map[uint32]*Thread{}}
	r.Damage = in.Damage
	err = d.all(in)
	mapping, spoolErr := d.spool.finish(r.Threads)
	if mapping != nil {
		r.maps = append(r.maps, mapping)
	}
	return cmp.Or(err, spoolErr)
}

// all takes all records.
func (d *reading) all(in *perf.Reader) error {
	r := d.Recording
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return d.flush(math.MaxUint64)
		}
		if len(d.kinds) != len(in.Events) {
			r.Events = in.Events
			d.events()
		}
		switch {
		case e == nil && in.Unfinished:
			r.Damage = append(r.Damage, err) // a killed recorder: it ends in the middle of a record
			return d.flush(math.MaxUint64)
		case e == nil:
			return err
		case err != nil:
			r.Damage = append(r.Damage, err)
		default:
			if err := d.take(e); err != nil {
				return err
			}
		}
	}
}

// take puts a record in order; those without time are taken at once.
func (d *reading) take(e *perf.Entry) error {
	switch r := e.Record.(type) {
	case *perf.FinishedRound:
		limit := d.limit
		d.limit = d.newest
		return d.flush(limit)
	case *perf.Sample:
		e.Identity = r.Identity
	case *perf.Auxtrace:
		e.Identity.Time = d.Clock.Time(r.Reference)
	default:
		if e.Record.Type() >= perf.TypeHeaderAttr {
			return d.entry(e)
		}
	}
	d.newest = max(d.newest, e.Identity.Time)
	d.pending = append(d.pending, e)
	return nil
}

// flush takes what is not younger than a time.
func (d *reading) flush(limit uint64) error {
	slices.SortStableFunc(d.pending, func(a, b *perf.Entry) int { return cmp.Compare(a.Identity.Time, b.Identity.Time) })
	n, _ := slices.BinarySearchFunc(d.pending, limit, func(e *perf.Entry, limit uint64) int {
		if e.Identity.Time <= limit {
			return -1
		}
		return 1
	})
	for _, e := range d.pending[:n] {
		if err := d.entry(e); err != nil {
			return err
		}
	}
	d.pending = slices.Delete(d.pending, 0, n)
	return nil
}

// Attribute types of the kernel (perf_event.h).
const (
	typeSoftware   = 1
	typeRaw        = 4
	typeBreakpoint = 5
	breakpointW    = 2 // HW_BREAKPOINT_W
)

// events notes what each event counts. Loads and stores are told by their names, which is what they are chosen by.
func (d *reading) events() {
	d.kinds, d.writes = nil, nil
	for i := range d.Events {
		e := &d.Events[i]
		kind := OtherEvent
		switch {
		case e.Attr.SampleType&perf.SampleAddr != 0 && e.Attr.Type == typeBreakpoint:
			kind = WatchEvent
		case e.Attr.SampleType&perf.SampleAddr != 0:
			if kind = loadOrStore(e.Name, e.Attr.Config); kind == OtherEvent {
				d.Damage = append(d.Damage, fmt.Errorf("event %q has data addresses and is neither loads nor stores: its samples are left out", e.Name))
			}
		case e.Attr.Type == typeSoftware && e.Attr.SampleType&perf.SampleRegsUser != 0:
			kind = ClockEvent
		}
		d.kinds = append(d.kinds, kind)
		d.writes = append(d.writes, e.Attr.BPType == breakpointW)
	}
}

// registerOf gives the place in Registers of a register of perf's; -1: it is none.
var registerOf = [...]int{
	perf.RegAX: 0, perf.RegCX: 1, perf.RegDX: 2, perf.RegBX: 3, perf.RegSP: 4, perf.RegBP: 5, perf.RegSI: 6, perf.RegDI: 7,
	perf.RegR8: 8, perf.RegR9: 9, perf.RegR10: 10, perf.RegR11: 11, perf.RegR12: 12, perf.RegR13: 13, perf.RegR14: 14, perf.RegR15: 15,
	perf.RegIP: RIP, perf.RegFlags: RFLAGS, perf.RegCS: -1, perf.RegSS: -1, perf.RegDS: -1, perf.RegES: -1, perf.RegFS: -1, perf.RegGS: -1,
}

func (s *Sample) registers(r *perf.Regs) {
	for reg := range registerOf {
		if v, ok := r.Get(perf.Register(reg)); ok && registerOf[reg] >= 0 {
			s.Regs[registerOf[reg]] = v
			s.Has |= 1 << registerOf[reg]
		}
	}
}

// thread gives the living thread of an id; one that no record announced begins here.
func (d *reading) thread(pid, tid int32, time uint64) *Thread {
	t := d.living[tid]
	if t == nil || t.PID != pid {
		t = &Thread{PID: pid, TID: tid, Start: d.Clock.TSC(time)}
		d.living[tid] = t
		d.Threads = append(d.Threads, t)
	}
	return t
}

func (d *reading) entry(e *perf.Entry) error {
	at := e.Identity.Time
	switch r := e.Record.(type) {
	case *perf.AuxtraceInfo:
		return d.auxInfo(r)
	case *perf.TimeConv:
		d.Clock = *r
	case *perf.Fork:
		if r.PID < 0 || r.TID <= 0 {
			break
		}
		delete(d.living, r.TID)
		t := d.thread(r.PID, r.TID, r.Time)
		t.Parent = r.PTID
		if p := d.living[r.PTID]; p != nil {
			t.Comm = p.Comm
		}
		if r.PID != r.PPID {
			d.change(change{pid: r.PID, from: r.PPID, fork: true, tsc: d.Clock.TSC(r.Time)})
		}
	case *perf.Exit:
		if t := d.living[r.TID]; t != nil {
			t.End = d.Clock.TSC(r.Time)
			delete(d.living, r.TID)
		}
	case *perf.Comm:
		d.thread(r.PID, r.TID, at).Comm = r.Comm
		if e.Misc&perf.MiscCommExec != 0 {
			d.change(change{pid: r.PID, exec: true, tsc: d.Clock.TSC(at)})
		}
	case *perf.ItraceStart:
		d.thread(r.PID, r.TID, at)
	case *perf.Mmap:
		d.mapping(Mapping{r.PID, d.Clock.TSC(at), r.Addr, r.Addr + r.Len, r.PgOff, r.Filename, ""})
	case *perf.Mmap2:
		m := Mapping{r.PID, d.Clock.TSC(at), r.Addr, r.Addr + r.Len, r.PgOff, r.Filename, ""}
		if e.Misc&perf.MiscMmapBuildID != 0 {
			m.BuildID = fmt.Sprintf("%x", r.BuildID)
		}
		const protExec = 4
		if r.Prot&protExec != 0 {
			d.mapping(m)
		}
	case *perf.Auxtrace:
		t := d.buffers[r.Index]
		if t == nil {
			if t = d.living[r.TID]; t == nil {
				return fmt.Errorf("byte %d: control flow of thread %d, which does not live", e.Offset, r.TID)
			}
			d.buffers[r.Index] = t
		}
		p := part{e.Offset + int64(e.Size), int64(r.Size)}
		if p.size < 0 || p.size > d.size-p.offset {
			d.Damage = append(d.Damage, fmt.Errorf("byte %d: the control flow of thread %d is cut off", e.Offset, r.TID))
			p.size = max(0, d.size-p.offset)
		}
		t.parts = append(t.parts, p)
		t.TraceBytes += p.size
	case *perf.Sample:
		if e.Event >= 0 && d.kinds[e.Event] != OtherEvent {
			return d.sample(r, d.kinds[e.Event], d.writes[e.Event])
		}
	}
	return nil
}

func (d *reading) sample(r *perf.Sample, kind EventKind, write bool) (err error) {
	s := Sample{TSC: d.Clock.TSC(r.Time), Kind: kind, IP: r.IP, Addr: r.Addr, Write: write}
	s.registers(&r.RegsIntr)
	s.registers(&r.RegsUser)
	if n := min(r.StackSize, uint64(len(r.StackUser))); n > 0 {
		s.stackLen = uint32(n)
		if s.stackAt, err = d.stacks.add(r.StackUser[:n]); err != nil {
			return err
		}
	}
	return d.spool.add(d.Threads, d.thread(r.PID, r.TID, r.Time), &s)
}

// auxInfo reads how the control flow traces were made.
func (d *reading) auxInfo(r *perf.AuxtraceInfo) error {
	if r.Kind != perf.AuxtraceIntelPT {
		return nil
	}
	if len(r.Priv) <= perf.IntelPTMaxNonturboRatio {
		return fmt.Errorf("AUXTRACE_INFO has %d words, Intel PT needs %d", len(r.Priv), perf.IntelPTMaxNonturboRatio+1)
	}
	p := r.Priv
	d.Timing = pt.Timing{CrystalMul: uint32(p[perf.IntelPTTSCCTCN]), CrystalDiv: uint32(p[perf.IntelPTTSCCTCD]), Nominal: uint8(p[perf.IntelPTMaxNonturboRatio])}
	d.Clock = perf.TimeConv{Shift: p[perf.IntelPTTimeShift], Mult: p[perf.IntelPTTimeMult], Zero: p[perf.IntelPTTimeZero], CapTimeZero: p[perf.IntelPTCapUserTimeZero] != 0}
	if mask := p[perf.IntelPTMTCFreqBits]; mask != 0 {
		low := mask & -mask
		for i := range d.Events {
			if uint64(d.Events[i].Attr.Type) == p[perf.IntelPTPMUType] {
				d.Timing.MTCFreq = uint8(d.Events[i].Attr.Config & mask / low)
			}
		}
	}
	return nil
}
