package perf

import "math"

// HeaderAttr is an event, in a pipe.
type HeaderAttr struct {
	Attr Attr
	IDs  []uint64
}

// EventType is the name of an event, as old versions of perf wrote it.
type EventType struct {
	ID   uint64
	Name string // at most 64 bytes
}

// TracingData is followed by Size bytes of ftrace's formats, padded to 8: see Entry.Payload.
type TracingData struct{ Size uint32 }

// BuildID is the build-id of a file, or of the kernel (PID -1), that records name.
type BuildID struct {
	Misc     Misc
	PID      int32
	BuildID  []byte // 20 bytes; with MiscBuildIDSized as many as it has
	Filename string
}

// FinishedRound says: no later record is older than the newest before the previous FinishedRound.
type FinishedRound struct{}

// IDIndexEntry says where an instance of an event counts; CPU or TID is all ones (-1) where it is not bound.
type IDIndexEntry struct {
	ID, Index, CPU, TID uint64
	MachinePID, VCPU    uint64 // of a guest, else 0
}

// IDIndex maps ids to CPUs and threads.
type IDIndex struct{ Entries []IDIndexEntry }

// Values of AuxtraceInfo.Kind.
const (
	AuxtraceIntelPT  = 1
	AuxtraceIntelBTS = 2
)

// Places in AuxtraceInfo.Priv for Intel PT (tools/perf/util/intel-pt.h).
const (
	IntelPTPMUType = iota
	IntelPTTimeShift
	IntelPTTimeMult
	IntelPTTimeZero
	IntelPTCapUserTimeZero
	IntelPTTSCBit
	IntelPTNoRETCompBit
	IntelPTHaveSchedSwitch
	IntelPTSnapshotMode
	IntelPTPerCPUMmaps
	IntelPTMTCBit
	IntelPTMTCFreqBits
	IntelPTTSCCTCN
	IntelPTTSCCTCD
	IntelPTCYCBit
	IntelPTMaxNonturboRatio
	IntelPTFilterStrLen // in bytes; the filter follows
)

// AuxtraceInfo is how the AUX areas were recorded; what Priv holds depends on Kind.
type AuxtraceInfo struct {
	Kind     uint32
	Reserved uint32
	Priv     []uint64
}

// Auxtrace is a part of an AUX area: Size bytes follow, see Entry.Payload.
type Auxtrace struct {
	Size      uint64 // bytes
	Offset    uint64 // of its first byte in the AUX area since its beginning
	Reference uint64
	Index     uint32 // of the buffer
	TID       int32  // -1: a CPU's
	CPU       int32  // -1: a thread's
	Reserved  uint32
}

// AuxtraceError is an error in the decoding of an AUX area.
type AuxtraceError struct {
	Kind, Code, CPU uint32
	Process
	Format           uint32
	IP, Time         uint64 // Time if Format > 0
	Message          string // at most 64 bytes
	MachinePID, VCPU uint32 // if Format > 1
}

// ThreadMapEntry is a thread that was asked for.
type ThreadMapEntry struct {
	PID  uint64
	Comm string // at most 16 bytes
}

// ThreadMap is the threads that were asked for.
type ThreadMap struct{ Entries []ThreadMapEntry }

// Values of CPUMap.Kind.
const (
	CPUMapCPUs  = 0
	CPUMapMask  = 1
	CPUMapRange = 2
)

// CPUMap is the CPUs that were asked for, by Kind a list, a bitmap or a range.
type CPUMap struct {
	Kind       uint16
	CPUs       []uint16
	LongSize   uint16   // of the words of Mask: 4 or 8 bytes
	Mask       []uint64 // each with LongSize bytes
	Any        bool
	Start, End uint16 // both inclusive
}

// StatConfigEntry is one setting of perf stat.
type StatConfigEntry struct{ Tag, Value uint64 }

// StatConfig is the settings of perf stat.
type StatConfig struct{ Entries []StatConfigEntry }

// Stat is a count of perf stat. Enabled and Running are in ns.
type Stat struct {
	ID                      uint64
	CPU, Thread             uint32
	Count, Enabled, Running uint64
}

// StatRound is an interval (0) or the end (1) of perf stat. Time is in ns.
type StatRound struct{ Kind, Time uint64 }

// Values of EventUpdate.Kind.
const (
	UpdateUnit  = 0
	UpdateScale = 1
	UpdateName  = 2
	UpdateCPUs  = 3
)

// EventUpdate is more about the event with this ID: by Kind its unit or name (Text), scale or CPUs.
type EventUpdate struct {
	Kind, ID uint64
	Text     string
	Scale    float64
	CPUs     CPUMap
	Data     []byte // of another kind
}

// HeaderFeature is a feature, in a pipe. Reader.Info has what it means.
type HeaderFeature struct {
	Feature Feature
	Data    []byte
}

// Compressed is other records, compressed by Zstandard: a Reader gives them instead of it.
type Compressed struct{ Data []byte }

// Compressed2 is Compressed, padded to 8 bytes.
type Compressed2 struct{ Data []byte }

// FinishedInit says that all that follows was recorded, not made up from /proc.
type FinishedInit struct{}

func (*HeaderAttr) Type() Type    { return TypeHeaderAttr }
func (*EventType) Type() Type     { return TypeEventType }
func (*TracingData) Type() Type   { return TypeTracingData }
func (*BuildID) Type() Type       { return TypeBuildID }
func (*FinishedRound) Type() Type { return TypeFinishedRound }
func (*IDIndex) Type() Type       { return TypeIDIndex }
func (*AuxtraceInfo) Type() Type  { return TypeAuxtraceInfo }
func (*Auxtrace) Type() Type      { return TypeAuxtrace }
func (*AuxtraceError) Type() Type { return TypeAuxtraceError }
func (*ThreadMap) Type() Type     { return TypeThreadMap }
func (*CPUMap) Type() Type        { return TypeCPUMap }
func (*StatConfig) Type() Type    { return TypeStatConfig }
func (*Stat) Type() Type          { return TypeStat }
func (*StatRound) Type() Type     { return TypeStatRound }
func (*EventUpdate) Type() Type   { return TypeEventUpdate }
func (*TimeConv) Type() Type      { return TypeTimeConv }
func (*HeaderFeature) Type() Type { return TypeFeature }
func (*Compressed) Type() Type    { return TypeCompressed }
func (*Compressed2) Type() Type   { return TypeCompressed2 }
func (*FinishedInit) Type() Type  { return TypeFinishedInit }

func (*FinishedRound) fields(*codec)   {}
func (*FinishedInit) fields(*codec)    {}
func (r *Compressed) fields(c *codec)  { c.restBytes(&r.Data) }
func (r *StatRound) fields(c *codec)   { c.u64(&r.Kind); c.u64(&r.Time) }
func (r *EventType) fields(c *codec)   { c.u64(&r.ID); c.text(&r.Name, 64) }
func (r *TracingData) fields(c *codec) { c.u32(&r.Size) }

func (r *HeaderAttr) fields(c *codec) {
	r.Attr.fields(c, 0)
	c.restU64s(&r.IDs)
}

func (r *BuildID) fields(c *codec) {
	if !c.write {
		r.Misc = c.misc
	}
	c.i32(&r.PID)
	n := uint8(buildIDSize)
	if c.write {
		if r.Misc&MiscBuildIDSized != 0 {
			n = uint8(len(r.BuildID))
		}
		c.buildID(&r.BuildID, int(n))
		c.u8(&n)
		c.pad(3)
	} else {
		place := c.take(buildIDSize)
		c.u8(&n)
		c.pad(3)
		if r.Misc&MiscBuildIDSized == 0 {
			n = buildIDSize
		}
		if n > buildIDSize {
			c.fail(ErrContents, "a build-id of %d bytes", n)
		}
		if c.err != nil {
			return
		}
		r.BuildID = place[:n:n]
	}
	c.tail(&r.Filename)
}

func (r *IDIndex) fields(c *codec) {
	list(c, &r.Entries, c.count64(len(r.Entries)), 32, func(e *IDIndexEntry) {
		c.u64(&e.ID)
		c.u64(&e.Index)
		c.u64(&e.CPU)
		c.u64(&e.TID)
	})
	guests := c.more(16*len(r.Entries)) && !c.write
	for i := range r.Entries {
		guests = guests || r.Entries[i].MachinePID != 0 || r.Entries[i].VCPU != 0
	}
	if !guests {
		return
	}
	for i := range r.Entries {
		c.u64(&r.Entries[i].MachinePID)
		c.u64(&r.Entries[i].VCPU)
	}
}

func (r *AuxtraceInfo) fields(c *codec) {
	c.u32(&r.Kind)
	c.u32(&r.Reserved)
	c.restU64s(&r.Priv)
}

func (r *Auxtrace) fields(c *codec) {
	c.u64(&r.Size)
	c.u64(&r.Offset)
	c.u64(&r.Reference)
	c.u32(&r.Index)
	c.i32(&r.TID)
	c.i32(&r.CPU)
	c.u32(&r.Reserved)
}

func (r *AuxtraceError) fields(c *codec) {
	c.u32(&r.Kind)
	c.u32(&r.Code)
	c.u32(&r.CPU)
	r.process(c)
	c.u32(&r.Format)
	c.u64(&r.IP)
	if r.Format > 0 {
		c.u64(&r.Time)
	}
	c.text(&r.Message, maxAuxtraceErrorMsg)
	if r.Format > 1 {
		c.u32(&r.MachinePID)
		c.u32(&r.VCPU)
	}
}

func (r *ThreadMap) fields(c *codec) {
	list(c, &r.Entries, c.count64(len(r.Entries)), 24, func(e *ThreadMapEntry) {
		c.u64(&e.PID)
		c.text(&e.Comm, 16)
	})
}

func (r *CPUMap) fields(c *codec) {
	c.u16(&r.Kind)
	switch r.Kind {
	case CPUMapCPUs:
		n := uint16(len(r.CPUs))
		c.u16(&n)
		list(c, &r.CPUs, int(n), 2, c.u16)
	case CPUMapMask:
		n := uint16(len(r.Mask))
		c.u16(&n)
		c.u16(&r.LongSize)
		switch r.LongSize {
		case 4:
			list(c, &r.Mask, int(n), 4, func(p *uint64) {
				v := uint32(*p)
				c.u32(&v)
				if !c.write {
					*p = uint64(v)
				}
			})
		case 8:
			c.pad(4)
			c.u64s(&r.Mask, int(n))
		default:
			c.fail(ErrContents, "a mask of words of %d bytes", r.LongSize)
		}
	case CPUMapRange:
		c.bool8(&r.Any)
		c.pad(1)
		c.u16(&r.Start)
		c.u16(&r.End)
	default:
		c.fail(ErrContents, "CPUs of kind %d", r.Kind)
	}
	c.align(recordAlign)
}

func (r *StatConfig) fields(c *codec) {
	list(c, &r.Entries, c.count64(len(r.Entries)), 16, func(e *StatConfigEntry) { c.u64(&e.Tag); c.u64(&e.Value) })
}

func (r *Stat) fields(c *codec) {
	c.u64(&r.ID)
	c.u32(&r.CPU)
	c.u32(&r.Thread)
	c.u64(&r.Count)
	c.u64(&r.Enabled)
	c.u64(&r.Running)
}

func (r *EventUpdate) fields(c *codec) {
	c.u64(&r.Kind)
	c.u64(&r.ID)
	switch r.Kind {
	case UpdateUnit, UpdateName:
		c.tail(&r.Text)
	case UpdateScale:
		v := math.Float64bits(r.Scale)
		c.u64(&v)
		if !c.write {
			r.Scale = math.Float64frombits(v)
		}
	case UpdateCPUs:
		r.CPUs.fields(c)
	default:
		c.restBytes(&r.Data)
	}
}

func (r *HeaderFeature) fields(c *codec) {
	v := uint64(r.Feature)
	c.u64(&v)
	if !c.write {
		r.Feature = Feature(v)
	}
	c.restBytes(&r.Data)
}

func (r *Compressed2) fields(c *codec) {
	n := c.count64(len(r.Data))
	c.bytes(&r.Data, n)
	c.align(recordAlign)
}

// TimeConv converts between the TSC and perf's time (perf_event.h, struct perf_event_mmap_page, cap_user_time_zero).
type TimeConv struct {
	Shift, Mult, Zero uint64
	Cycles, Mask      uint64 // 0 in records of old versions
	CapTimeZero       bool   // Zero is valid
	CapTimeShort      bool   // the counter has only the bits of Mask, and was Cycles at a known time
}

func (r *TimeConv) fields(c *codec) {
	c.u64(&r.Shift)
	c.u64(&r.Mult)
	c.u64(&r.Zero)
	if !c.more(24) {
		r.CapTimeZero = true // the record was written only where it holds
		return
	}
	c.u64(&r.Cycles)
	c.u64(&r.Mask)
	c.bool8(&r.CapTimeZero)
	c.bool8(&r.CapTimeShort)
	c.pad(6)
}

// Time gives perf's time, in ns, of a value of the TSC.
func (r *TimeConv) Time(tsc uint64) uint64 {
	if r.CapTimeShort {
		tsc = r.Cycles + (tsc-r.Cycles)&r.Mask
	}
	return r.Zero + (tsc>>r.Shift)*r.Mult + (tsc&(1<<r.Shift-1))*r.Mult>>r.Shift
}

// TSC gives the value of the TSC at a time of perf, in ns, up to rounding; 0 if Mult is.
func (r *TimeConv) TSC(time uint64) uint64 {
	if r.Mult == 0 {
		return 0
	}
	t := time - r.Zero
	return t/r.Mult<<r.Shift + t%r.Mult<<r.Shift/r.Mult
}
