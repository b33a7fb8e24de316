package perf

// An Identity is what a sample, and with FlagSampleIDAll the end of every record of the kernel, says of where and when. Which fields are
// there depends on the event's sample type; others are 0.
type Identity struct {
	Process
	Time       uint64 // ns
	ID         uint64
	StreamID   uint64
	CPU        uint32
	CPUPad     uint32
	Identifier uint64 // the same as ID, in a fixed place
}

// fields is struct sample_id, the trailer of records that are no samples.
func (i *Identity) fields(c *codec, t SampleType) {
	if t&SampleTID != 0 {
		i.process(c)
	}
	if t&SampleTime != 0 {
		c.u64(&i.Time)
	}
	if t&SampleID != 0 {
		c.u64(&i.ID)
	}
	if t&SampleStreamID != 0 {
		c.u64(&i.StreamID)
	}
	if t&SampleCPU != 0 {
		c.u32(&i.CPU)
		c.u32(&i.CPUPad)
	}
	if t&SampleIdentifier != 0 {
		c.u64(&i.Identifier)
	}
}

// trailer gives the bytes of the identity at the end of records of an event.
func (a *Attr) trailer() int {
	if a.Flags&FlagSampleIDAll == 0 {
		return 0
	}
	return 8 * weight(uint64(a.SampleType&(SampleTID|SampleTime|SampleID|SampleStreamID|SampleCPU|SampleIdentifier)))
}

// idAt gives the place of the id in a sample, in words from its beginning, and in a trailer, in words from its end; ok is false if it has none.
func (a *Attr) idAt() (begin, end int, ok bool) {
	t := a.SampleType
	switch {
	case t&SampleIdentifier != 0:
		return 0, 1, true
	case t&SampleID != 0:
		return weight(uint64(t & (SampleIP | SampleTID | SampleTime | SampleAddr))), 1 + weight(uint64(t&(SampleStreamID|SampleCPU))), true
	}
	return 0, 0, false
}

// A ReadValue is the value of one counter.
type ReadValue struct{ Value, ID, Lost uint64 }

// ReadValues are the values of a counter or, with FormatGroup, of its group. Times are in ns.
type ReadValues struct {
	TimeEnabled, TimeRunning uint64
	Values                   []ReadValue
}

func (r *ReadValues) fields(c *codec, f ReadFormat) {
	times := func() {
		if f&FormatTotalTimeEnabled != 0 {
			c.u64(&r.TimeEnabled)
		}
		if f&FormatTotalTimeRunning != 0 {
			c.u64(&r.TimeRunning)
		}
	}
	extra := func(v *ReadValue) {
		if f&FormatID != 0 {
			c.u64(&v.ID)
		}
		if f&FormatLost != 0 {
			c.u64(&v.Lost)
		}
	}
	if f&FormatGroup != 0 {
		n := c.count64(len(r.Values))
		times()
		list(c, &r.Values, n, 8*(1+weight(uint64(f&(FormatID|FormatLost)))), func(v *ReadValue) { c.u64(&v.Value); extra(v) })
		return
	}
	if !c.write {
		r.Values = make([]ReadValue, 1)
	} else if len(r.Values) != 1 {
		c.fail(ErrContents, "%d counters where there is no group", len(r.Values))
		return
	}
	c.u64(&r.Values[0].Value)
	times()
	extra(&r.Values[0])
}

// A Branch is a taken branch as the CPU noted it.
type Branch struct {
	From, To uint64
	Flags    BranchFlags
}

// BranchFlags is the third word of struct perf_branch_entry, first bit field lowest.
type BranchFlags uint64

// branchWidths are its bit fields: mispred, predicted, in_tx, abort, cycles, type, spec, new_type, priv, reserved.
var branchWidths = []int{1, 1, 1, 1, 16, 4, 2, 4, 3, 31}

func (f BranchFlags) Mispredicted() bool { return f&1 != 0 }                  // Mispredicted says that the CPU had guessed another target.
func (f BranchFlags) Predicted() bool    { return f&2 != 0 }                  // Predicted says that the CPU had guessed it.
func (f BranchFlags) InTX() bool         { return f&4 != 0 }                  // InTX says that it was in a transaction.
func (f BranchFlags) Abort() bool        { return f&8 != 0 }                  // Abort says that it was the abort of a transaction.
func (f BranchFlags) Cycles() int        { return int(f >> 4 & (1<<16 - 1)) } // Cycles is how many passed since the branch before, 0 unknown.
func (f BranchFlags) Type() int          { return int(f >> 20 & 15) }         // Type is one of PERF_BR_*.
func (f BranchFlags) Spec() int          { return int(f >> 24 & 3) }          // Spec is one of PERF_BR_SPEC_*.

// A Register is a bit of the masks of registers on x86 (arch/x86/include/uapi/asm/perf_regs.h).
type Register uint8

// Registers of x86-64. DS, ES, FS and GS cannot be sampled there.
const (
	RegAX Register = iota
	RegBX
	RegCX
	RegDX
	RegSI
	RegDI
	RegBP
	RegSP
	RegIP
	RegFlags
	RegCS
	RegSS
	RegDS
	RegES
	RegFS
	RegGS
	RegR8
	RegR9
	RegR10
	RegR11
	RegR12
	RegR13
	RegR14
	RegR15
)

// Values of Regs.ABI.
const (
	RegsNone = 0
	Regs32   = 1
	Regs64   = 2
)

// Regs are registers of a sample: those of Mask, lowest bit first. With ABI 0 there are none: the thread was in the kernel and has no user
// registers.
type Regs struct {
	ABI    uint64
	Mask   uint64
	Values []uint64
}

// Get gives a register; ok is false if the sample does not have it.
func (r *Regs) Get(reg Register) (v uint64, ok bool) {
	if r.ABI == RegsNone || r.Mask>>reg&1 == 0 {
		return 0, false
	}
	return r.Values[weight(r.Mask&(1<<reg-1))], true
}

func (r *Regs) fields(c *codec, mask uint64) {
	c.u64(&r.ABI)
	if r.ABI == RegsNone {
		return
	}
	if c.write && len(r.Values) != weight(mask) {
		c.fail(ErrContents, "%d registers where the event has %d", len(r.Values), weight(mask))
		return
	}
	if !c.write {
		r.Mask = mask
	}
	c.u64s(&r.Values, weight(mask))
}

// A Sample is PERF_RECORD_SAMPLE. Which fields are there depends on the event's sample type; others are 0.
type Sample struct {
	Identity
	IP           uint64
	Addr         uint64 // of the data
	Period       uint64
	Read         ReadValues
	Callchain    []uint64 // with marks PERF_CONTEXT_*, -32 … -4095
	Raw          []byte
	HWIndex      uint64 // of the newest branch; with BranchHWIndex
	Branches     []Branch
	Counters     []uint64 // a word for each branch; with BranchCounters
	RegsUser     Regs
	StackUser    []byte // from the user's stack pointer on: as many bytes as were asked for
	StackSize    uint64 // how many of them are of the stack
	Weight       Weight
	DataSrc      DataSrc
	Transaction  uint64
	RegsIntr     Regs
	PhysAddr     uint64
	Cgroup       uint64
	DataPageSize uint64
	CodePageSize uint64
	Aux          []byte
}

// Weight is the cost of an access: with SampleWeight one number, else the parts of union perf_sample_weight.
type Weight uint64

func (w Weight) Var1() uint32 { return uint32(w) }       // Var1 is the lowest 32 bits: on x86 the latency in cycles.
func (w Weight) Var2() uint16 { return uint16(w >> 32) } // Var2 is the next 16: on x86 the latency of the instruction.
func (w Weight) Var3() uint16 { return uint16(w >> 48) } // Var3 is the highest 16.

// DataSrc is union perf_mem_data_src: where the data of an access came from.
type DataSrc uint64

func (d DataSrc) Op() int       { return int(d & 31) }               // Op is bits of PERF_MEM_OP_*: 2 load, 4 store.
func (d DataSrc) Level() int    { return int(d >> 5 & (1<<14 - 1)) } // Level is bits of PERF_MEM_LVL_*.
func (d DataSrc) Snoop() int    { return int(d >> 19 & 31) }         // Snoop is bits of PERF_MEM_SNOOP_*.
func (d DataSrc) Lock() int     { return int(d >> 24 & 3) }          // Lock is bits of PERF_MEM_LOCK_*.
func (d DataSrc) TLB() int      { return int(d >> 26 & 127) }        // TLB is bits of PERF_MEM_TLB_*.
func (d DataSrc) LevelNum() int { return int(d >> 33 & 15) }         // LevelNum is one of PERF_MEM_LVLNUM_*.

// Type gives TypeSample.
func (*Sample) Type() Type { return TypeSample }

// fields follows perf_output_sample in kernel/events/core.c.
func (s *Sample) fields(c *codec) {
	if c.attr == nil {
		c.fail(ErrID, "a sample of an unknown event")
		return
	}
	a := c.attr
	t := a.SampleType
	if t&^sampleKnown != 0 {
		c.fail(ErrContents, "sample type %#x has bits that are not known", uint64(t))
		return
	}
	word := func(bit SampleType, p *uint64) {
		if t&bit != 0 {
			c.u64(p)
		}
	}
	word(SampleIdentifier, &s.Identifier)
	word(SampleIP, &s.IP)
	if t&SampleTID != 0 {
		s.process(c)
	}
	word(SampleTime, &s.Time)
	word(SampleAddr, &s.Addr)
	word(SampleID, &s.ID)
	word(SampleStreamID, &s.StreamID)
	if t&SampleCPU != 0 {
		c.u32(&s.CPU)
		c.u32(&s.CPUPad)
	}
	word(SamplePeriod, &s.Period)
	if t&SampleRead != 0 {
		s.Read.fields(c, a.ReadFormat)
	}
	if t&SampleCallchain != 0 {
		c.u64s(&s.Callchain, c.count64(len(s.Callchain)))
	}
	if t&SampleRaw != 0 {
		if c.write && len(s.Raw)%8 != 4 {
			c.fail(ErrContents, "raw data of %d bytes: with their length they are not whole words", len(s.Raw))
		}
		c.bytes(&s.Raw, c.count32(len(s.Raw)))
	}
	if t&SampleBranchStack != 0 {
		s.branches(c)
	}
	if t&SampleRegsUser != 0 {
		s.RegsUser.fields(c, a.SampleRegsUser)
	}
	if t&SampleStackUser != 0 {
		n := c.count64(len(s.StackUser))
		c.bytes(&s.StackUser, n)
		if n != 0 {
			c.u64(&s.StackSize)
		}
	}
	word(SampleWeight|SampleWeightStruct, (*uint64)(&s.Weight))
	word(SampleDataSrc, (*uint64)(&s.DataSrc))
	word(SampleTransaction, &s.Transaction)
	if t&SampleRegsIntr != 0 {
		s.RegsIntr.fields(c, a.SampleRegsIntr)
	}
	word(SamplePhysAddr, &s.PhysAddr)
	word(SampleCgroup, &s.Cgroup)
	word(SampleDataPageSize, &s.DataPageSize)
	word(SampleCodePageSize, &s.CodePageSize)
	if t&SampleAux != 0 {
		c.bytes(&s.Aux, c.count64(len(s.Aux)))
		c.align(recordAlign)
	}
}

func (s *Sample) branches(c *codec) {
	n := c.count64(len(s.Branches))
	if c.attr.BranchSampleType&BranchHWIndex != 0 {
		c.u64(&s.HWIndex)
	}
	list(c, &s.Branches, n, 24, func(b *Branch) {
		c.u64(&b.From)
		c.u64(&b.To)
		c.bits64((*uint64)(&b.Flags), branchWidths)
	})
	if c.attr.BranchSampleType&BranchCounters != 0 {
		if c.write && len(s.Counters) != n {
			c.fail(ErrContents, "%d counters of %d branches", len(s.Counters), n)
			return
		}
		c.u64s(&s.Counters, n)
	}
}
