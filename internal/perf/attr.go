package perf

// SampleType says what a sample has (perf_event_attr.sample_type). Its bits are PERF_SAMPLE_*.
type SampleType uint64

// Bits of a SampleType.
const (
	SampleIP SampleType = 1 << iota
	SampleTID
	SampleTime
	SampleAddr
	SampleRead
	SampleCallchain
	SampleID
	SampleCPU
	SamplePeriod
	SampleStreamID
	SampleRaw
	SampleBranchStack
	SampleRegsUser
	SampleStackUser
	SampleWeight
	SampleDataSrc
	SampleIdentifier
	SampleTransaction
	SampleRegsIntr
	SamplePhysAddr
	SampleAux
	SampleCgroup
	SampleDataPageSize
	SampleCodePageSize
	SampleWeightStruct

	sampleKnown = SampleWeightStruct<<1 - 1
)

// ReadFormat says what a counter's value comes with (perf_event_attr.read_format). Its bits are PERF_FORMAT_*.
type ReadFormat uint64

// Bits of a ReadFormat.
const (
	FormatTotalTimeEnabled ReadFormat = 1 << iota
	FormatTotalTimeRunning
	FormatID
	FormatGroup
	FormatLost
)

// AttrFlags are the bit fields of perf_event_attr, the first in bit 0.
type AttrFlags uint64

// Bits of AttrFlags. PreciseIP has two.
const (
	FlagDisabled      AttrFlags = 1 << 0
	FlagInherit       AttrFlags = 1 << 1
	FlagPinned        AttrFlags = 1 << 2
	FlagExclusive     AttrFlags = 1 << 3
	FlagExcludeUser   AttrFlags = 1 << 4
	FlagExcludeKernel AttrFlags = 1 << 5
	FlagExcludeHV     AttrFlags = 1 << 6
	FlagExcludeIdle   AttrFlags = 1 << 7
	FlagMmap          AttrFlags = 1 << 8
	FlagComm          AttrFlags = 1 << 9
	FlagFreq          AttrFlags = 1 << 10
	FlagInheritStat   AttrFlags = 1 << 11
	FlagEnableOnExec  AttrFlags = 1 << 12
	FlagTask          AttrFlags = 1 << 13
	FlagWatermark     AttrFlags = 1 << 14
	FlagMmapData      AttrFlags = 1 << 17
	FlagSampleIDAll   AttrFlags = 1 << 18
	FlagExcludeHost   AttrFlags = 1 << 19
	FlagExcludeGuest  AttrFlags = 1 << 20
	FlagNoKernelChain AttrFlags = 1 << 21 // exclude_callchain_kernel
	FlagNoUserChain   AttrFlags = 1 << 22 // exclude_callchain_user
	FlagMmap2         AttrFlags = 1 << 23
	FlagCommExec      AttrFlags = 1 << 24
	FlagUseClockID    AttrFlags = 1 << 25
	FlagContextSwitch AttrFlags = 1 << 26
	FlagWriteBackward AttrFlags = 1 << 27
	FlagNamespaces    AttrFlags = 1 << 28
	FlagKsymbol       AttrFlags = 1 << 29
	FlagBPFEvent      AttrFlags = 1 << 30
	FlagAuxOutput     AttrFlags = 1 << 31
	FlagCgroup        AttrFlags = 1 << 32
	FlagTextPoke      AttrFlags = 1 << 33
	FlagBuildID       AttrFlags = 1 << 34
	FlagInheritThread AttrFlags = 1 << 35
	FlagRemoveOnExec  AttrFlags = 1 << 36
	FlagSigtrap       AttrFlags = 1 << 37

	preciseShift = 15
)

// PreciseIP gives perf_event_attr.precise_ip, 0 to 3.
func (f AttrFlags) PreciseIP() int { return int(f >> preciseShift & 3) }

// WithPreciseIP gives f with another precise_ip.
func (f AttrFlags) WithPreciseIP(n int) AttrFlags {
	return f&^(3<<preciseShift) | AttrFlags(n&3)<<preciseShift
}

// attrWidths are the widths of the bit fields of perf_event_attr: all 1 but precise_ip.
var attrWidths = func() (w []int) {
	for bit := 0; bit < 64; bit++ {
		if bit == preciseShift {
			w, bit = append(w, 2), bit+1
			continue
		}
		w = append(w, 1)
	}
	return w
}()

// Bits of Attr.BranchSampleType that change how a sample looks.
const (
	BranchHWIndex  = 1 << 17 // PERF_SAMPLE_BRANCH_HW_INDEX
	BranchCounters = 1 << 19 // PERF_SAMPLE_BRANCH_COUNTERS
)

// Sizes of struct perf_event_attr.
const (
	attrSizeMin     = 64  // PERF_ATTR_SIZE_VER0
	attrSizeDefault = 128 // PERF_ATTR_SIZE_VER7: read by every perf of today
	attrSizeKnown   = 144 // with config3 and config4
)

// An Attr is struct perf_event_attr. Fields that a shorter one lacks are 0.
type Attr struct {
	Type             uint32
	Size             uint32 // of the structure, in bytes; in a file all have the largest one's, and 0 is written as 128 and read as 64
	Config           uint64
	SamplePeriod     uint64 // with FlagFreq: the frequency in Hz
	SampleType       SampleType
	ReadFormat       ReadFormat
	Flags            AttrFlags
	WakeupEvents     uint32 // with FlagWatermark: bytes
	BPType           uint32
	Config1          uint64 // bp_addr
	Config2          uint64 // bp_len
	BranchSampleType uint64
	SampleRegsUser   uint64 // mask of registers
	SampleStackUser  uint32 // bytes
	ClockID          int32
	SampleRegsIntr   uint64
	AuxWatermark     uint32
	SampleMaxStack   uint16
	AuxSampleSize    uint32
	AuxAction        uint32
	SigData          uint64
	Config3          uint64
	Config4          uint64
}

// An Event is an Attr with the ids of its instances (one for each CPU or thread) and, if the file tells it, its name.
type Event struct {
	Attr Attr
	IDs  []uint64
	Name string
}

// fields reads or writes an attr in exactly size bytes; size 0 means as many as it says itself.
func (a *Attr) fields(c *codec, size int) {
	if c.write && a.Size == 0 {
		sized := *a
		sized.Size = attrSizeDefault
		a = &sized
	}
	if !c.write && size == 0 {
		if c.rest() < 8 {
			c.fail(ErrShort, "needs an attribute at %d, has %d bytes", c.pos, c.rest())
			return
		}
		size = int(c.order.Uint32(c.b[c.pos+4:]))
		if size == 0 {
			size = attrSizeMin
		}
	}
	if c.write && size == 0 {
		size = int(a.Size)
	}
	if size < attrSizeMin || size > 1<<16 {
		c.fail(ErrSize, "an attribute of %d bytes", size)
		return
	}
	sub := codec{order: c.order, write: c.write}
	if !c.write {
		sub.b = make([]byte, max(size, attrSizeKnown))
		copy(sub.b, c.take(size))
		if c.err != nil {
			return
		}
	}
	a.all(&sub)
	if a.Size == 0 { // ABI 0
		a.Size = attrSizeMin
	}
	if c.write {
		c.b = append(c.b, sub.b[:min(size, len(sub.b))]...)
		c.pad(max(0, size-len(sub.b)))
	}
}

func (a *Attr) all(c *codec) {
	c.u32(&a.Type)
	c.u32(&a.Size)
	c.u64(&a.Config)
	c.u64(&a.SamplePeriod)
	c.u64((*uint64)(&a.SampleType))
	c.u64((*uint64)(&a.ReadFormat))
	c.bits64((*uint64)(&a.Flags), attrWidths)
	c.u32(&a.WakeupEvents)
	c.u32(&a.BPType)
	c.u64(&a.Config1)
	c.u64(&a.Config2)
	c.u64(&a.BranchSampleType)
	c.u64(&a.SampleRegsUser)
	c.u32(&a.SampleStackUser)
	c.i32(&a.ClockID)
	c.u64(&a.SampleRegsIntr)
	c.u32(&a.AuxWatermark)
	c.u16(&a.SampleMaxStack)
	c.pad(2)
	c.u32(&a.AuxSampleSize)
	c.u32(&a.AuxAction)
	c.u64(&a.SigData)
	c.u64(&a.Config3)
	c.u64(&a.Config4)
}
