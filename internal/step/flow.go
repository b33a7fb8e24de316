package step

import (
	"fmt"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// The clock of the packets. A stepped instruction takes tens of thousands of TSC ticks, so the crystal's tick and the period of the MTC packets are
// chosen long: one for some hundred instructions, as a processor has it.
var timing = pt.Timing{CrystalMul: 256, CrystalDiv: 1, MTCFreq: 15, Nominal: 20}

var encoding = pt.EncoderOptions{PSBPeriod: 2 << 10, Timing: timing, TSC: true, MTC: true, CYC: true, CompressReturns: true}

const ptConfig = sample.PTOn | sample.PTCycles | sample.PTMTC | sample.PTTSC | sample.PTBranch

// A flow makes the control flow trace of a thread.
type flow struct {
	p    *process
	enc  *pt.FlowEncoder
	out  []byte // of encoders before enc
	last uint64 // the instruction that ran last
	lost uint64 // instructions that could not follow the one before, and were told as an overflow
	why  string // of the first of them
}

// begin starts a new encoder; the trace goes on with a PSB.
func (f *flow) begin(p *process) {
	f.finish()
	f.p = p
	o := encoding
	o.Filter = p.filter
	var err error
	if f.enc, err = pt.NewFlowEncoder(p, o); err != nil {
		panic("BUG: step: " + err.Error())
	}
}

// finish ends the encoder; its bytes stay.
func (f *flow) finish() {
	if f.enc != nil {
		f.enc.Flush()
		f.out = append(f.out, f.enc.Take()...)
		f.enc = nil
	}
}

// ran tells that the instruction at ip ran, at a time.
func (f *flow) ran(ip, tsc uint64) {
	f.enc.Tick(tsc)
	if err := f.enc.Execute(ip); err != nil {
		f.lose(err)
		_ = f.enc.Execute(ip) // what cannot be decoded is not told
	}
	f.last = ip
}

// left tells that user mode was left before the instruction at ip.
func (f *flow) left(ip uint64) {
	if f.enc == nil {
		return
	}
	if err := f.enc.Leave(ip); err != nil {
		f.lose(err)
	}
}

// lose tells of an overflow.
func (f *flow) lose(err error) {
	if f.lost++; f.lost == 1 {
		f.why = fmt.Sprintf("%v; behind %#x", err, f.last)
		for _, m := range f.p.maps {
			f.why += fmt.Sprintf("; %#x-%#x is %s from %#x", m.Start, m.End, m.Path, m.Offset)
		}
	}
	f.enc.Overflow()
}

// take gives the bytes so far and forgets them.
func (f *flow) take() []byte {
	b := f.out
	f.out = nil
	if f.enc != nil {
		b = append(b, f.enc.Take()...)
	}
	return b
}

// size is how many bytes wait to be taken.
func (f *flow) size() int { return len(f.out) + len(f.enc.Bytes()) }
