package pt

// A Timing says what the packets of time mean on the machine of the trace. Zero fields are unknown: without a crystal ratio MTC packets are
// not used; without a nominal ratio cycles are weighed by the MTC packets around them.
type Timing struct {
	CrystalMul uint32 // TSC ticks per crystal tick: CPUID 15H EBX / EAX; perf's auxtrace info: tsc_ctc_ratio_n, …_d
	CrystalDiv uint32
	MTCFreq    uint8 // an MTC packet every 2^MTCFreq crystal ticks: IA32_RTIT_CTL.MTCFreq
	Nominal    uint8 // core-to-bus ratio at which core cycles and TSC ticks are equally fast: MSR_PLATFORM_INFO[15:8]
}

// A Clock estimates the TSC from the packets of time. It knows nothing before a TSC packet. An MTC is exact to a crystal tick; between, core
// cycles are weighed with the ratio of CBR. Time does not run backward but at a TSC packet, and never past the next MTC that did not come.
// After an overflow, time is a lower bound until a TSC packet, since MTCs may have wrapped.
//
// Unlike libipt's, the estimate is anchored at TSC+TMA and does not add up the roundings of MTC periods.
type Clock struct {
	timing  Timing
	known   bool   // there was a TSC packet
	now     uint64 // the estimate
	anchor  uint64 // TSC at the last TSC or MTC packet
	aligned bool   // there was a TMA since the TSC packet, or an MTC: base and crystal hold
	base    uint64 // TSC at crystal tick 0 of ticks
	ticks   uint64 // crystal ticks since base, at the last MTC
	crystal uint32 // low bits of the crystal clock then; its upper bits are unknown until the first MTC if TMA has too few
	bits    uint8  // how many
	mtcs    bool   // MTC packets come

	rate   uint64 // TSC ticks per core cycle, in 1/65536
	cycles uint64 // TSC since anchor by cycles, in 1/65536; may be behind the anchor by debt
	debt   uint64 // TSC that cycles already counted before the anchor and that the next CYC counts again, in 1/65536
	fresh  bool   // the packet before was a CYC: it counts up to this one
	span   uint64 // core cycles since the last MTC that a CYC preceded, to weigh cycles without CBR
	spanAt uint64 // TSC at that MTC, 0: there was none
}

const (
	rateBits    = 16
	tmaBits     = 16
	maxCycles   = 1 << 40 // more between two packets is no time but rubbish
	mtcBits     = 8
	maxMTCFreq  = 15
	maxWeighted = 1 << 44
)

// NewClock gives a clock that knows no time yet.
func NewClock(t Timing) Clock {
	if t.MTCFreq > maxMTCFreq {
		t.CrystalMul = 0 // no such frequency: MTC packets cannot be understood
	}
	if t.CrystalMul == 0 || t.CrystalDiv == 0 {
		t.CrystalMul, t.CrystalDiv = 0, 0
	}
	return Clock{timing: t}
}

// TSC gives the estimate, and whether there is one.
func (c *Clock) TSC() (tsc uint64, ok bool) { return c.now, c.known }

// Update takes a packet into account; those that say nothing of time only tell that a CYC before them was not for an MTC.
func (c *Clock) Update(p *Packet) {
	switch p.Kind {
	case CYC:
		c.cyc(p.Value)
		c.fresh = true
		return
	case MTC:
		c.mtc(uint32(p.Value))
	case TSC:
		c.known, c.now, c.anchor = true, p.Value, p.Value
		c.aligned, c.cycles, c.debt, c.spanAt = false, 0, 0, 0
	case TMA:
		c.tma(uint32(p.Value), p.Extra)
	case CBR:
		if c.timing.Nominal != 0 && p.Value != 0 {
			c.rate = uint64(c.timing.Nominal) << rateBits / p.Value
		}
	case OVF:
		c.spanAt, c.debt = 0, 0
	}
	c.fresh = false
}

// tma binds the crystal clock to the TSC packet before.
func (c *Clock) tma(ctc, fast uint32) {
	if !c.known || c.aligned || c.timing.CrystalMul == 0 {
		return
	}
	c.aligned, c.crystal, c.bits = true, ctc, tmaBits
	c.base, c.ticks = c.anchor-uint64(fast), 0
}

// mtc takes eight bits of the crystal clock.
func (c *Clock) mtc(ctc uint32) {
	if !c.known || !c.aligned {
		return
	}
	c.mtcs = true
	freq := c.timing.MTCFreq
	known := freq + mtcBits
	at := ctc << freq
	compare := min(known, c.bits)
	delta := (at - c.crystal) & (1<<compare - 1)
	c.ticks += uint64(delta)
	c.crystal, c.bits = at, known
	before := c.anchor
	c.anchor = c.base + c.ticksToTSC(c.ticks)
	c.weigh()
	switch {
	case c.fresh: // the CYC before counted up to here
		c.cycles, c.debt = 0, 0
	default: // the next CYC counts from the last one, which was earlier
		moved := (c.anchor - before) << rateBits
		if c.cycles >= moved {
			c.cycles -= moved
		} else {
			c.debt += moved - c.cycles
			c.cycles = 0
		}
	}
	c.now = max(c.now, c.anchor)
}

// weigh sets the rate from the cycles between two MTCs when CBR cannot.
func (c *Clock) weigh() {
	if c.timing.Nominal != 0 || !c.fresh {
		return
	}
	if c.spanAt != 0 && c.span != 0 && c.anchor-c.spanAt < maxWeighted {
		c.rate = (c.anchor - c.spanAt) << rateBits / c.span
	}
	c.span, c.spanAt = 0, c.anchor
}

func (c *Clock) cyc(n uint64) {
	if n > maxCycles {
		return
	}
	c.span += n
	if !c.known || c.rate == 0 || c.rate > 1<<(2*rateBits-8) {
		return
	}
	c.cycles += min(n*c.rate, 1<<63)
	paid := min(c.debt, c.cycles)
	c.cycles, c.debt = c.cycles-paid, 0
	if c.mtcs {
		c.cycles = min(c.cycles, c.period()<<rateBits)
	}
	c.cycles = min(c.cycles, 1<<62)
	c.now = max(c.now, c.anchor+c.cycles>>rateBits)
}

// period gives the TSC ticks from one MTC to the next.
func (c *Clock) period() uint64 { return c.ticksToTSC(1 << c.timing.MTCFreq) }

func (c *Clock) ticksToTSC(ticks uint64) uint64 {
	mul, div := uint64(c.timing.CrystalMul), uint64(c.timing.CrystalDiv)
	return ticks/div*mul + ticks%div*mul/div
}
