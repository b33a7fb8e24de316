package pt

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/ripstop/ripstop/internal/x86"
)

// EncoderOptions say which packets a FlowEncoder makes. The zero value gives the least.
type EncoderOptions struct {
	CompressReturns bool // DisRETC clear: a return to where its call came from is a TNT bit
	DeferTIPs       bool // TIPs wait until the TNT is full
	LongTNT         bool
	PSBPeriod       int // bytes between PSBs; 0: one, at the beginning

	Timing Timing // of the packets below
	TSC    bool   // TSC packets, in PSB+ and where time jumps
	MTC    bool   // with TSC: MTC packets, and TMA
	CYC    bool   // CYC packets
	CBR    uint8  // core-to-bus ratio, 0: Timing.Nominal

	Filter Filter
	SKL014 bool // as the erratum: direct branches out of the filter do not tell where they went
}

// A FlowEncoder makes the trace that a processor would make of instructions that are told to it one by one, user mode alone being traced.
//
// A software interrupt (int3) does not come back when its trace is decoded: the processor says that it was interrupted before.
type FlowEncoder struct {
	opt   EncoderOptions
	image Image
	insts map[uint64]encInst
	cache Cache // for its inst alone

	out    []byte
	lastIP LastIP
	tnt    uint64
	nTNT   uint8
	tips   []uint64 // deferred
	stack  retStack
	begun  bool // the first PSB+ is there
	psbAt  int  // length of out behind the last PSB+
	moded  bool // MODE.Exec was sent since

	on      bool
	lost    bool // an overflow that the next instruction ends
	prev    encInst
	prevIP  uint64
	started bool // prev holds

	now     uint64
	timed   bool
	crystal uint64 // the crystal clock at the last MTC, TMA
	cycled  uint64 // core cycles at the last CYC
}

// An encInst is what the encoder must know of an instruction.
type encInst struct {
	end, target uint64
	flow        x86.Flow
	rep         bool
	ptwrite     bool
}

// ErrSuccessor says that an instruction cannot come after the one before.
var ErrSuccessor = errors.New("this instruction cannot follow the one before")

// NewFlowEncoder gives an encoder of what runs in an image.
func NewFlowEncoder(image Image, opt EncoderOptions) (*FlowEncoder, error) {
	t := opt.Timing
	if opt.CBR == 0 {
		opt.CBR = t.Nominal
	}
	if opt.MTC && (!opt.TSC || t.CrystalMul == 0 || t.CrystalDiv == 0 || t.CrystalMul/t.CrystalDiv > 1<<9-1 || t.MTCFreq > maxMTCFreq) {
		return nil, errors.New("pt: MTC packets need TSC packets, a crystal ratio below 512 and an MTC frequency below 16")
	}
	if opt.CYC && (t.Nominal == 0 || opt.CBR == 0) {
		return nil, errors.New("pt: CYC packets need a nominal ratio")
	}
	return &FlowEncoder{opt: opt, image: image, insts: map[uint64]encInst{}, cache: Cache{image: image}}, nil
}

// Bytes gives the trace so far, without branches that wait to share a packet: call Flush before. It is valid until the next call.
func (e *FlowEncoder) Bytes() []byte { return e.out }

// Take gives the trace so far as Bytes does, and forgets it, so that memory stays bounded.
func (e *FlowEncoder) Take() []byte {
	out := e.out
	e.psbAt -= len(out)
	e.out = nil
	return out
}

// Tick tells the time, in TSC ticks, at which what follows happens.
func (e *FlowEncoder) Tick(tsc uint64) {
	tsc &= 1<<56 - 1
	if !e.timed || tsc < e.now {
		e.now, e.timed = tsc, true
		e.cycled = e.cycles(tsc)
		if e.begun {
			e.absolute()
		}
		return
	}
	if e.opt.MTC && e.begun {
		period := uint64(1) << e.opt.Timing.MTCFreq
		next := (e.crystal/period + 1) * period
		last := e.crystalAt(tsc) / period * period
		if last >= next+period<<(mtcBits-1) { // so long that MTCs would say less
			e.now = tsc
			e.absolute()
			return
		}
		for ; next <= last; next += period {
			e.now = max(e.now, e.tscAt(next))
			e.cyc()
			e.put(&Packet{Kind: MTC, Value: next >> e.opt.Timing.MTCFreq & 0xff})
			e.crystal = next
		}
	}
	e.now = tsc
}

// crystalAt and tscAt convert: the TSC counts Mul/Div for each tick of the crystal, from zero on; a tick's TSC is the first at it.
func (e *FlowEncoder) crystalAt(tsc uint64) uint64 {
	hi, lo := bits.Mul64(tsc, uint64(e.opt.Timing.CrystalDiv))
	q, _ := bits.Div64(hi, lo, uint64(e.opt.Timing.CrystalMul))
	return q
}

func (e *FlowEncoder) tscAt(crystal uint64) uint64 {
	mul, div := uint64(e.opt.Timing.CrystalMul), uint64(e.opt.Timing.CrystalDiv)
	return crystal/div*mul + (crystal%div*mul+div-1)/div
}

func (e *FlowEncoder) cycles(tsc uint64) uint64 {
	if !e.opt.CYC {
		return 0
	}
	hi, lo := bits.Mul64(tsc, uint64(e.opt.CBR))
	q, _ := bits.Div64(hi, lo, uint64(e.opt.Timing.Nominal))
	return q
}

// absolute puts the time as TSC and, with MTC, TMA.
func (e *FlowEncoder) absolute() {
	if !e.opt.TSC || !e.timed {
		return
	}
	e.cycled = e.cycles(e.now)
	e.put(&Packet{Kind: TSC, Value: e.now})
	if e.opt.MTC {
		e.crystal = e.crystalAt(e.now)
		e.put(&Packet{Kind: TMA, Value: e.crystal & 0xffff, Extra: uint32(e.now - e.tscAt(e.crystal))})
	}
}

// cyc puts the cycles since the last one.
func (e *FlowEncoder) cyc() {
	if !e.opt.CYC || !e.timed {
		return
	}
	if n := e.cycles(e.now); n > e.cycled {
		e.put(&Packet{Kind: CYC, Value: n - e.cycled})
		e.cycled = n
	}
}

// put appends a packet that the encoder made, which is always one that can be encoded.
func (e *FlowEncoder) put(p *Packet) {
	var err error
	if e.out, err = Append(e.out, p); err != nil {
		panic("BUG: pt: " + err.Error())
	}
}

// putIP appends a packet with an address.
func (e *FlowEncoder) putIP(k Kind, ip uint64) {
	p := Packet{Kind: k}
	e.lastIP.Compress(&p, ip)
	e.put(&p)
}

// Flush puts the branches and targets that wait.
func (e *FlowEncoder) Flush() {
	if e.nTNT > 0 || len(e.tips) > 0 {
		e.cyc()
	}
	if e.nTNT > 0 {
		k := TNT8
		if e.nTNT > MaxTNT8 {
			k = TNT64
		}
		e.put(&Packet{Kind: k, Form: e.nTNT, Value: e.tnt})
		e.nTNT, e.tnt = 0, 0
	}
	for _, to := range e.tips {
		e.putIP(TIP, to)
	}
	e.tips = e.tips[:0]
}

func (e *FlowEncoder) branch(taken bool) {
	e.tnt <<= 1
	if taken {
		e.tnt |= 1
	}
	most := uint8(MaxTNT8)
	if e.opt.LongTNT {
		most = MaxTNT64
	}
	if e.nTNT++; e.nTNT == most {
		e.Flush()
	}
}

func (e *FlowEncoder) tip(to uint64) {
	if e.opt.DeferTIPs && e.nTNT > 0 {
		e.tips = append(e.tips, to)
		return
	}
	e.Flush()
	e.cyc()
	e.putIP(TIP, to)
}

// psb puts PSB+; tracing stands at ip if it is on.
func (e *FlowEncoder) psb(ip uint64) {
	e.Flush()
	e.cyc()
	e.put(&Packet{Kind: PSB})
	e.lastIP = 0
	e.absolute()
	if e.opt.CBR != 0 {
		e.put(&Packet{Kind: CBR, Value: uint64(e.opt.CBR)})
	}
	if e.moded = e.on; e.on {
		e.put(&Packet{Kind: ModeExec, Value: ExecCSL})
		// The address in full: perf (intel_pt_psb_with_fup, Linux 6.1) looks ahead to this FUP before it has met the PSB, and would take what is
		// left out from the last address in front of it.
		e.lastIP = LastIP(^ip)
		e.putIP(FUP, ip)
	}
	e.put(&Packet{Kind: PSBEND})
	e.psbAt, e.stack.n = len(e.out), 0
}

// inst gives what must be known of the instruction at an address.
func (e *FlowEncoder) inst(ip uint64) (encInst, error) {
	if in, ok := e.insts[ip]; ok {
		return in, nil
	}
	var code []byte
	x, err := e.cache.inst(&code, ip)
	if err != nil {
		return encInst{}, fmt.Errorf("pt: cannot encode the instruction at %#x: %w", ip, err)
	}
	in := encInst{end: ip + uint64(x.Len), flow: flowOf(&x), rep: x.Rep || x.Repne, ptwrite: x.Op == "ptwrite"}
	in.target, _ = x.Target(ip)
	if len(e.insts) >= maxBlocks {
		clear(e.insts)
	}
	e.insts[ip] = in
	return in, nil
}

// Execute tells that the instruction at ip ran. One with a rep prefix that is told several times in a row, once for each repetition, is one.
// The error is ErrSuccessor, wrapped, if it can come after the one before only by an interrupt, which Leave and Async tell.
func (e *FlowEncoder) Execute(ip uint64) error {
	in, err := e.inst(ip)
	if err != nil {
		return err
	}
	if e.started && ip == e.prevIP && in.rep && in.flow == x86.FlowNone {
		return nil
	}
	if !e.begun {
		e.begun = true
		e.psb(0)
	}
	if e.started {
		if err := e.transition(ip); err != nil {
			return err
		}
	}
	inside := e.opt.Filter.Has(ip)
	switch {
	case e.lost:
		e.lost, e.on = false, inside
		if e.on {
			e.putIP(FUP, ip)
		}
	case !e.on && inside:
		if !e.moded {
			e.moded = true
			e.put(&Packet{Kind: ModeExec, Value: ExecCSL})
		}
		e.cyc()
		e.putIP(TIPPGE, ip)
		e.on = true
	}
	if e.opt.PSBPeriod > 0 && len(e.out)-e.psbAt >= e.opt.PSBPeriod {
		e.psb(ip)
	}
	e.prev, e.prevIP, e.started = in, ip, true
	return nil
}

// disable puts TIP.PGD, with an address if to is not 0.
func (e *FlowEncoder) disable(to uint64) {
	e.Flush()
	e.cyc()
	if to != 0 {
		e.putIP(TIPPGD, to)
	} else {
		e.put(&Packet{Kind: TIPPGD})
	}
	e.on, e.stack.n = false, 0
}

// transition encodes how the instruction before led to ip.
func (e *FlowEncoder) transition(ip uint64) error {
	p := &e.prev
	wrong := func() error {
		return fmt.Errorf("pt: cannot encode %#x behind %#x: %w", ip, e.prevIP, ErrSuccessor)
	}
	leaves := e.on && !e.opt.Filter.Has(ip)
	switch p.flow {
	case x86.FlowNone:
		if ip != p.end {
			return wrong()
		}
		if leaves {
			e.interrupt(ip)
		}
	case x86.FlowJump, x86.FlowCall:
		if ip != p.target {
			return wrong()
		}
		if leaves && e.opt.SKL014 {
			e.disable(0)
		} else if leaves {
			e.disable(ip)
		} else if p.flow == x86.FlowCall && p.target != p.end {
			e.push(p.end)
		}
	case x86.FlowCond, x86.FlowLoop:
		switch {
		case ip != p.target && ip != p.end:
			return wrong()
		case !e.on:
		case leaves && ip == p.target:
			e.disable(ip)
		default:
			e.branch(ip == p.target && ip != p.end)
			if leaves {
				e.interrupt(ip)
			}
		}
	case x86.FlowSyscall:
		if e.on {
			e.disable(0)
		}
	case x86.FlowTrap:
		if e.on {
			e.interrupt(e.prevIP)
		}
	default:
		switch {
		case !e.on:
		case leaves:
			e.disable(ip)
		case p.flow == x86.FlowRet && e.opt.CompressReturns:
			if to, ok := e.stack.pop(); ok && to == ip {
				e.branch(true)
				break
			}
			e.stack.n = 0 // decoders differ in what such a return leaves on the stack
			fallthrough
		case p.flow == x86.FlowRet: // what waits goes first: else a decoder would take the TNT for this return
			e.Flush()
			e.tip(ip)
		default:
			e.tip(ip)
			if p.flow == x86.FlowIndirectCall {
				e.push(p.end)
			}
		}
	}
	return nil
}

func (e *FlowEncoder) push(addr uint64) {
	if e.on {
		e.stack.push(addr)
	}
}

// interrupt puts the packets of an interrupt before the instruction at ip.
func (e *FlowEncoder) interrupt(ip uint64) {
	e.Flush()
	e.cyc()
	e.putIP(FUP, ip)
	e.disable(0)
}

// settle ends the instruction before, when the next would be at but does not run.
func (e *FlowEncoder) settle(at uint64) error {
	if !e.started {
		return nil
	}
	e.started = false
	if at == e.prevIP && e.prev.rep && e.prev.flow == x86.FlowNone {
		return nil // between two repetitions
	}
	return e.transition(at)
}

// Leave tells that the processor left user mode before the instruction at ip: an interrupt, a fault, the end of the program. What runs
// next, wherever, begins anew.
func (e *FlowEncoder) Leave(ip uint64) error {
	if err := e.settle(ip); err != nil {
		return err
	}
	if e.on {
		e.interrupt(ip)
	}
	return nil
}

// Async tells that instead of the instruction at from, that at to runs next, without user mode being left: as a processor whose supervisor
// is traced, too, would.
func (e *FlowEncoder) Async(from, to uint64) error {
	if err := e.settle(from); err != nil {
		return err
	}
	if e.on {
		e.Flush()
		e.cyc()
		e.putIP(FUP, from)
		e.putIP(TIP, to)
	}
	return nil
}

// Overflow tells that packets are lost: those that wait, and what is not told before the next Execute.
func (e *FlowEncoder) Overflow() {
	e.nTNT, e.tnt, e.tips, e.stack.n, e.lastIP = 0, 0, e.tips[:0], 0, 0
	e.put(&Packet{Kind: OVF})
	e.started, e.lost, e.on = false, true, false
}

// PTWrite tells what the ptwrite instruction that was executed last wrote, 4 or 8 bytes.
func (e *FlowEncoder) PTWrite(value uint64, size int) {
	if !e.on {
		return
	}
	e.Flush()
	e.cyc()
	p := Packet{Kind: PTW, Value: value & 0xffffffff}
	if size == 8 {
		p.Form, p.Value = 1, value
	}
	e.put(&p)
}
