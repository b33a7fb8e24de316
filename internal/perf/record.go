package perf

import "fmt"

// A Type is the type of a record. Below 64 they are the kernel's (PERF_RECORD_* of perf_event.h), from there on those of the perf tool.
type Type uint32

// Types of records.
const (
	TypeMmap          Type = 1
	TypeLost          Type = 2
	TypeComm          Type = 3
	TypeExit          Type = 4
	TypeThrottle      Type = 5
	TypeUnthrottle    Type = 6
	TypeFork          Type = 7
	TypeRead          Type = 8
	TypeSample        Type = 9
	TypeMmap2         Type = 10
	TypeAux           Type = 11
	TypeItraceStart   Type = 12
	TypeLostSamples   Type = 13
	TypeSwitch        Type = 14
	TypeSwitchCPUWide Type = 15
	TypeNamespaces    Type = 16
	TypeKsymbol       Type = 17
	TypeBPFEvent      Type = 18
	TypeCgroup        Type = 19
	TypeTextPoke      Type = 20
	TypeAuxOutputHWID Type = 21

	typeUser Type = 64 // from here on no identity follows

	TypeHeaderAttr      Type = 64
	TypeEventType       Type = 65
	TypeTracingData     Type = 66
	TypeBuildID         Type = 67
	TypeFinishedRound   Type = 68
	TypeIDIndex         Type = 69
	TypeAuxtraceInfo    Type = 70
	TypeAuxtrace        Type = 71
	TypeAuxtraceError   Type = 72
	TypeThreadMap       Type = 73
	TypeCPUMap          Type = 74
	TypeStatConfig      Type = 75
	TypeStat            Type = 76
	TypeStatRound       Type = 77
	TypeEventUpdate     Type = 78
	TypeTimeConv        Type = 79
	TypeFeature         Type = 80
	TypeCompressed      Type = 81
	TypeFinishedInit    Type = 82
	TypeCompressed2     Type = 83
	headerSize               = 8
	maxRecord                = 1<<16 - 1
	recordAlign              = 8
	buildIDSize              = 20
	maxAuxtraceErrorMsg      = 64
)

// types is what is known of each type: its name as perf prints it, and an empty record.
var types = map[Type]struct {
	name string
	make func() Record
}{
	TypeMmap:          {"MMAP", func() Record { return new(Mmap) }},
	TypeLost:          {"LOST", func() Record { return new(Lost) }},
	TypeComm:          {"COMM", func() Record { return new(Comm) }},
	TypeExit:          {"EXIT", func() Record { return new(Exit) }},
	TypeThrottle:      {"THROTTLE", func() Record { return new(Throttle) }},
	TypeUnthrottle:    {"UNTHROTTLE", func() Record { return new(Unthrottle) }},
	TypeFork:          {"FORK", func() Record { return new(Fork) }},
	TypeRead:          {"READ", func() Record { return new(Read) }},
	TypeSample:        {"SAMPLE", func() Record { return new(Sample) }},
	TypeMmap2:         {"MMAP2", func() Record { return new(Mmap2) }},
	TypeAux:           {"AUX", func() Record { return new(Aux) }},
	TypeItraceStart:   {"ITRACE_START", func() Record { return new(ItraceStart) }},
	TypeLostSamples:   {"LOST_SAMPLES", func() Record { return new(LostSamples) }},
	TypeSwitch:        {"SWITCH", func() Record { return new(Switch) }},
	TypeSwitchCPUWide: {"SWITCH_CPU_WIDE", func() Record { return new(SwitchCPUWide) }},
	TypeNamespaces:    {"NAMESPACES", func() Record { return new(Namespaces) }},
	TypeKsymbol:       {"KSYMBOL", func() Record { return new(Ksymbol) }},
	TypeBPFEvent:      {"BPF_EVENT", func() Record { return new(BPFEvent) }},
	TypeCgroup:        {"CGROUP", func() Record { return new(Cgroup) }},
	TypeTextPoke:      {"TEXT_POKE", func() Record { return new(TextPoke) }},
	TypeAuxOutputHWID: {"AUX_OUTPUT_HW_ID", func() Record { return new(AuxOutputHWID) }},
	TypeHeaderAttr:    {"ATTR", func() Record { return new(HeaderAttr) }},
	TypeEventType:     {"EVENT_TYPE", func() Record { return new(EventType) }},
	TypeTracingData:   {"TRACING_DATA", func() Record { return new(TracingData) }},
	TypeBuildID:       {"BUILD_ID", func() Record { return new(BuildID) }},
	TypeFinishedRound: {"FINISHED_ROUND", func() Record { return new(FinishedRound) }},
	TypeIDIndex:       {"ID_INDEX", func() Record { return new(IDIndex) }},
	TypeAuxtraceInfo:  {"AUXTRACE_INFO", func() Record { return new(AuxtraceInfo) }},
	TypeAuxtrace:      {"AUXTRACE", func() Record { return new(Auxtrace) }},
	TypeAuxtraceError: {"AUXTRACE_ERROR", func() Record { return new(AuxtraceError) }},
	TypeThreadMap:     {"THREAD_MAP", func() Record { return new(ThreadMap) }},
	TypeCPUMap:        {"CPU_MAP", func() Record { return new(CPUMap) }},
	TypeStatConfig:    {"STAT_CONFIG", func() Record { return new(StatConfig) }},
	TypeStat:          {"STAT", func() Record { return new(Stat) }},
	TypeStatRound:     {"STAT_ROUND", func() Record { return new(StatRound) }},
	TypeEventUpdate:   {"EVENT_UPDATE", func() Record { return new(EventUpdate) }},
	TypeTimeConv:      {"TIME_CONV", func() Record { return new(TimeConv) }},
	TypeFeature:       {"FEATURE", func() Record { return new(HeaderFeature) }},
	TypeCompressed:    {"COMPRESSED", func() Record { return new(Compressed) }},
	TypeFinishedInit:  {"FINISHED_INIT", func() Record { return new(FinishedInit) }},
	TypeCompressed2:   {"COMPRESSED2", func() Record { return new(Compressed2) }},
}

func (t Type) String() string {
	if k, ok := types[t]; ok {
		return k.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Misc is perf_event_header.misc.
type Misc uint16

// Bits of Misc; which of those above the mode counts depends on the type of the record.
const (
	MiscModeMask     Misc = 7
	MiscKernel       Misc = 1
	MiscUser         Misc = 2
	MiscHypervisor   Misc = 3
	MiscGuestKernel  Misc = 4
	MiscGuestUser    Misc = 5
	MiscTimeout      Misc = 1 << 12 // MMAP2 made up from /proc: the reading of maps took too long
	MiscMmapData     Misc = 1 << 13
	MiscCommExec     Misc = 1 << 13
	MiscForkExec     Misc = 1 << 13
	MiscSwitchOut    Misc = 1 << 13
	MiscExactIP      Misc = 1 << 14
	MiscPreempt      Misc = 1 << 14
	MiscMmapBuildID  Misc = 1 << 14
	MiscBuildIDSized Misc = 1 << 15 // of BUILD_ID: its size is given
)

// A Record is the contents of one record: one of the types of this package.
type Record interface {
	Type() Type
	fields(c *codec)
}

// Unknown is a record of a type that this package does not know. Its bytes include the identity at its end, if it has one.
type Unknown struct {
	RecordType Type
	Data       []byte
}

// Process is the process and thread that a record is about; -1 is the kernel.
type Process struct{ PID, TID int32 }

func (p *Process) process(c *codec) {
	c.i32(&p.PID)
	c.i32(&p.TID)
}

// Mmap is a mapping with PROT_EXEC (or, with MiscMmapData, without).
type Mmap struct {
	Process
	Addr, Len, PgOff uint64 // bytes
	Filename         string
}

// Mmap2 is Mmap with the file's identity: device, inode and generation, or with MiscMmapBuildID its build-id.
type Mmap2 struct {
	Process
	Addr, Len, PgOff uint64
	Maj, Min         uint32
	Ino, InoGen      uint64
	BuildID          []byte // at most 20 bytes
	Prot, Flags      uint32 // as for mmap(2)
	Filename         string
}

// Lost counts records that the kernel had no room for.
type Lost struct{ ID, Lost uint64 }

// Comm is the name of a thread.
type Comm struct {
	Process
	Comm string
}

// Task is what Fork and Exit have: process and thread, and their parents. Time is in ns.
type Task struct {
	PID, PPID, TID, PTID int32
	Time                 uint64
}

type (
	// Fork is a new process or thread.
	Fork struct{ Task }
	// Exit is the end of a thread.
	Exit struct{ Task }
)

// Throttling is what Throttle and Unthrottle have. Time is in ns.
type Throttling struct{ Time, ID, StreamID uint64 }

type (
	// Throttle says that an event was stopped since it came too often.
	Throttle struct{ Throttling }
	// Unthrottle says that it goes on.
	Unthrottle struct{ Throttling }
)

// Read is a counter's value, read when its task ended.
type Read struct {
	Process
	Values ReadValues
}

// Aux says that data came into the AUX area. Flags are PERF_AUX_FLAG_*: see AuxTruncated and following.
type Aux struct{ Offset, Size, Flags uint64 }

// Bits of Aux.Flags.
const (
	AuxTruncated = 1 << iota
	AuxOverwrite
	AuxPartial
	AuxCollision
)

// ItraceStart says which thread an instruction trace begins in.
type ItraceStart struct{ Process }

// LostSamples counts samples that the hardware dropped.
type LostSamples struct{ Lost uint64 }

// Switch is a context switch of the thread in the record's identity: in, or with MiscSwitchOut out.
type Switch struct{}

// SwitchCPUWide is Switch with the next (out) or previous (in) thread.
type SwitchCPUWide struct{ NextPrev Process }

// Namespace is where a namespace of a process is, in nsfs.
type Namespace struct{ Dev, Ino uint64 }

// Namespaces are those of a process in the order net, uts, ipc, pid, user, mnt, cgroup.
type Namespaces struct {
	Process
	Links []Namespace
}

// Ksymbol is a symbol that the kernel got or, if Flags&1, lost.
type Ksymbol struct {
	Addr       uint64
	Len        uint32
	KsymType   uint16 // 1 BPF, 2 out of line
	KsymFlags  uint16
	KsymSymbol string
}

// BPFEvent is a BPF program loaded (1) or unloaded (2).
type BPFEvent struct {
	Event, Flags uint16
	ID           uint32
	Tag          [8]byte
}

// Cgroup is the path of a cgroup.
type Cgroup struct {
	ID   uint64
	Path string
}

// TextPoke is a change of the kernel's code.
type TextPoke struct {
	Addr     uint64
	Old, New []byte
}

// AuxOutputHWID is the number by which the AUX area names the event of the record's identity.
type AuxOutputHWID struct{ HWID uint64 }

func (r *Unknown) Type() Type      { return r.RecordType } // Type gives the type.
func (*Mmap) Type() Type           { return TypeMmap }
func (*Mmap2) Type() Type          { return TypeMmap2 }
func (*Lost) Type() Type           { return TypeLost }
func (*Comm) Type() Type           { return TypeComm }
func (*Fork) Type() Type           { return TypeFork }
func (*Exit) Type() Type           { return TypeExit }
func (*Throttle) Type() Type       { return TypeThrottle }
func (*Unthrottle) Type() Type     { return TypeUnthrottle }
func (*Read) Type() Type           { return TypeRead }
func (*Aux) Type() Type            { return TypeAux }
func (*ItraceStart) Type() Type    { return TypeItraceStart }
func (*LostSamples) Type() Type    { return TypeLostSamples }
func (*Switch) Type() Type         { return TypeSwitch }
func (*SwitchCPUWide) Type() Type  { return TypeSwitchCPUWide }
func (*Namespaces) Type() Type     { return TypeNamespaces }
func (*Ksymbol) Type() Type        { return TypeKsymbol }
func (*BPFEvent) Type() Type       { return TypeBPFEvent }
func (*Cgroup) Type() Type         { return TypeCgroup }
func (*TextPoke) Type() Type       { return TypeTextPoke }
func (*AuxOutputHWID) Type() Type  { return TypeAuxOutputHWID }
func (r *Unknown) fields(c *codec) { c.restBytes(&r.Data) }
func (*Switch) fields(*codec)      {}
func (r *Task) fields(c *codec) {
	c.i32(&r.PID)
	c.i32(&r.PPID)
	c.i32(&r.TID)
	c.i32(&r.PTID)
	c.u64(&r.Time)
}
func (r *Throttling) fields(c *codec)    { c.u64(&r.Time); c.u64(&r.ID); c.u64(&r.StreamID) }
func (r *Lost) fields(c *codec)          { c.u64(&r.ID); c.u64(&r.Lost) }
func (r *Aux) fields(c *codec)           { c.u64(&r.Offset); c.u64(&r.Size); c.u64(&r.Flags) }
func (r *ItraceStart) fields(c *codec)   { r.process(c) }
func (r *LostSamples) fields(c *codec)   { c.u64(&r.Lost) }
func (r *SwitchCPUWide) fields(c *codec) { r.NextPrev.process(c) }
func (r *Cgroup) fields(c *codec)        { c.u64(&r.ID); c.tail(&r.Path) }
func (r *AuxOutputHWID) fields(c *codec) { c.u64(&r.HWID) }

func (r *Mmap) fields(c *codec) {
	r.process(c)
	c.u64(&r.Addr)
	c.u64(&r.Len)
	c.u64(&r.PgOff)
	c.tail(&r.Filename)
}

func (r *Mmap2) fields(c *codec) {
	r.process(c)
	c.u64(&r.Addr)
	c.u64(&r.Len)
	c.u64(&r.PgOff)
	if c.misc&MiscMmapBuildID != 0 {
		n := uint8(len(r.BuildID))
		c.u8(&n)
		c.pad(3)
		c.buildID(&r.BuildID, int(n))
	} else {
		c.u32(&r.Maj)
		c.u32(&r.Min)
		c.u64(&r.Ino)
		c.u64(&r.InoGen)
	}
	c.u32(&r.Prot)
	c.u32(&r.Flags)
	c.tail(&r.Filename)
}

// buildID is n bytes in a place for 20.
func (c *codec) buildID(p *[]byte, n int) {
	if n > buildIDSize || c.write && len(*p) > buildIDSize {
		c.fail(ErrContents, "a build-id of %d bytes", max(n, len(*p)))
		return
	}
	c.bytes(p, n)
	if c.write {
		n = len(*p)
	}
	c.pad(buildIDSize - n)
}

func (r *Comm) fields(c *codec) {
	r.process(c)
	c.tail(&r.Comm)
}

func (r *Read) fields(c *codec) {
	r.process(c)
	if c.attr == nil {
		c.fail(ErrID, "a counter of an unknown event")
		return
	}
	r.Values.fields(c, c.attr.ReadFormat)
}

func (r *Namespaces) fields(c *codec) {
	r.process(c)
	list(c, &r.Links, c.count64(len(r.Links)), 16, func(n *Namespace) { c.u64(&n.Dev); c.u64(&n.Ino) })
}

func (r *Ksymbol) fields(c *codec) {
	c.u64(&r.Addr)
	c.u32(&r.Len)
	c.u16(&r.KsymType)
	c.u16(&r.KsymFlags)
	c.tail(&r.KsymSymbol)
}

func (r *BPFEvent) fields(c *codec) {
	c.u16(&r.Event)
	c.u16(&r.Flags)
	c.u32(&r.ID)
	c.fixed(r.Tag[:])
}

func (r *TextPoke) fields(c *codec) {
	was, is := uint16(len(r.Old)), uint16(len(r.New))
	c.u64(&r.Addr)
	c.u16(&was)
	c.u16(&is)
	c.bytes(&r.Old, int(was))
	c.bytes(&r.New, int(is))
	c.align(recordAlign)
}
