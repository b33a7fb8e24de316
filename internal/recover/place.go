package recover

import (
	"slices"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/x86"
)

// A candidate is a position at which a sample may have been taken.
type candidate struct {
	pos    int
	sample int
	out    bool // what is known there contradicts the sample
}

// maxWindow bounds the positions among which a sample's is sought; one with more is not used.
const maxWindow = 1 << 16

// candidates finds for each sample the positions that time and address allow.
func (r *replay) candidates() {
	p := r.path
	r.cands, r.placed = r.cands[:0], r.placed[:0]
	r.left = resize(r.left, len(r.shard.Samples))
	m := 0 // the first mark that may still allow the sample; samples are in the order of time
	for i := range r.shard.Samples {
		s := &r.shard.Samples[i]
		if !isMemory(s) || !r.shard.within(s.TSC, r.opt.Slack) || p.isLost(s.TSC, r.opt.Slack) {
			continue
		}
		for m < len(p.marks) && p.marks[m].to != forever && p.marks[m].to+r.opt.Slack < s.TSC {
			m++
		}
		first := len(r.cands)
		for k := m; k < len(p.marks) && (p.marks[k].from <= s.TSC || p.marks[k].from-s.TSC <= r.opt.Slack); k++ {
			end := len(p.list)
			if k+1 < len(p.marks) {
				end = p.marks[k+1].pos
			}
			if end-p.marks[m].pos > maxWindow {
				r.cands = r.cands[:first]
				break
			}
			for j := p.marks[k].pos; j < end; j++ {
				if in := &r.code.insts[p.list[j]]; in.pc == s.IP && in.nslots > 0 {
					r.cands = append(r.cands, candidate{pos: j, sample: i})
				}
			}
		}
		r.left[i] = int32(len(r.cands) - first)
		if first == len(r.cands) {
			r.counts.Misfits++
		}
	}
	slices.SortStableFunc(r.cands, func(a, b candidate) int { return a.pos - b.pos })
}

// isMemory says whether it is a sample of an access with all general registers.
func isMemory(s *sample.Sample) bool {
	return (s.Kind == sample.LoadEvent || s.Kind == sample.StoreEvent) && s.Has&0xffff == 0xffff
}

// within says whether a sample of that time can only belong to the shard's segments.
func (s *Shard) within(tsc, slack uint64) bool {
	return tsc >= s.Start && tsc-s.Start >= slack && tsc < s.End && (s.End == forever || s.End-tsc > slack)
}

// exclude notes that the sample was not taken at the candidate.
func (r *replay) exclude(c *candidate) {
	if !c.out {
		c.out = true
		if r.left[c.sample]--; r.left[c.sample] == 0 {
			r.counts.Misfits++
		}
	}
}

// settle places the samples that have one candidate left, if it is between the positions, and says whether there were any.
func (r *replay) settle(from, to int) (some bool) {
	for i := r.firstCand(from); i < len(r.cands) && r.cands[i].pos < to; i++ {
		c := &r.cands[i]
		if c.out || r.left[c.sample] != 1 {
			continue
		}
		c.out, some = true, true
		at := r.firstPlaced(c.pos + 1)
		r.placed = slices.Insert(r.placed, at, placed{c.pos, &r.shard.Samples[c.sample]})
	}
	return some
}

// A placed sample's registers are those after the instruction at the position.
type placed struct {
	pos int
	*sample.Sample
}

// telling gives the general registers that a sample at an instruction tells; a repeated one may have been sampled on its way.
func telling(in *inst, s *sample.Sample) uint16 {
	const rcx, rsi, rdi = 1 << 1, 1 << 6, 1 << 7
	if in.traits&isRepeated != 0 && (in.traits&isCounted == 0 || s.Regs[1] != 0) {
		return ^uint16(rcx | rsi | rdi)
	}
	return 0xffff
}

// fits says whether a sample can have been taken behind an instruction after which the state holds.
func fits(in *inst, s *sample.Sample, e *x86.Emulator) bool {
	tell := telling(in, s)
	for i := range e.GPR {
		if v := &e.GPR[i]; tell>>i&1 != 0 && (v.Bits^s.Regs[i])&v.Known != 0 {
			return false
		}
	}
	return tell != 0xffff || s.Has>>sample.RFLAGS&1 == 0 || uint64(e.Flags^x86.Flags(s.Regs[sample.RFLAGS]))&uint64(e.FlagsKnown) == 0
}

// take sets the registers that a sample tells.
func take(in *inst, s *sample.Sample, e *x86.Emulator) {
	tell := telling(in, s)
	for i := range e.GPR {
		if tell>>i&1 != 0 {
			e.GPR[i] = x86.Exactly(s.Regs[i])
		}
	}
	if tell == 0xffff && s.Has>>sample.RFLAGS&1 != 0 {
		e.FlagsKnown = x86.FlagsArith | x86.DF
		e.Flags = x86.Flags(s.Regs[sample.RFLAGS]) & e.FlagsKnown
	}
}

// sampledSlot gives the slot of an instruction whose address a sample tells; -1: it is not certain which.
func sampledSlot(in *inst, s *sample.Sample) int {
	if in.traits&isRepeated != 0 {
		return -1
	}
	want, found := Read, -1
	if s.Kind == sample.StoreEvent {
		want = Write
	}
	for i := range in.slots[:in.nslots] {
		switch k := &in.slots[i]; {
		case k.flags&want == 0:
		case k.vague || found >= 0:
			return -1
		default:
			found = i
		}
	}
	return found
}

// threadFS gives the base of fs as samples of accesses relative to it tell; false if they do not agree or there are none.
func threadFS(c *code, samples []sample.Sample) (base uint64, ok bool) {
	for i := range samples {
		s := &samples[i]
		if !isMemory(s) {
			continue
		}
		at, found := c.at(s.IP)
		if !found {
			continue
		}
		in := &c.insts[at]
		k := sampledSlot(in, s)
		if k < 0 {
			continue
		}
		m := &in.mems[k]
		if m.Seg != x86.FS || m.Kind&x86.MemBit != 0 || m.Base == x86.EIP {
			continue
		}
		offset := uint64(m.Disp) + uint64(int64(m.Bias))
		whole := true
		for _, r := range []struct {
			reg   x86.Reg
			scale uint64
		}{{m.Base, 1}, {m.Index, uint64(m.Scale)}} {
			switch {
			case r.reg == x86.NoReg:
			case r.reg == x86.RIP:
				offset += in.next()
			case r.reg.Class() != x86.ClassGPR || r.reg.Size() != 8 || in.writes>>r.reg.Num()&1 != 0:
				whole = false // it is another one by now
			default:
				offset += s.Regs[r.reg.Num()] * r.scale
			}
		}
		if !whole {
			continue
		}
		if b := s.Addr - offset; ok && b != base {
			return 0, false
		} else {
			base, ok = b, true
		}
	}
	return base, ok
}

// known gives what needs no replay: what samples tell, and addresses that are part of the instruction. With Block only those in the blocks of samples count.
func (r *replay) known() {
	for _, s := range r.placed {
		in := &r.code.insts[r.path.list[s.pos]]
		if k := sampledSlot(in, s.Sample); k >= 0 {
			j := r.first[s.pos] + int32(k)
			r.addrs[j], r.sizes[j], r.how[j] = s.Addr, uint64(in.slots[k].size), Sampled
		}
	}
	if r.opt.Reach == Block {
		r.confine()
		return
	}
	for i, x := range r.path.list {
		in := &r.code.insts[x]
		for k := range in.slots[:in.nslots] {
			if j := r.first[i] + int32(k); r.how[j] == Unknown && in.slots[k].path && !in.slots[k].vague && in.traits&isRepeated == 0 {
				r.e.State = x86.State{}
				r.mem.consts = &noConstants
				r.e.Exec(in.op, in.pc)
				if a := r.e.Accesses[k]; a.Known {
					r.addrs[j], r.sizes[j], r.how[j] = a.Addr, uint64(a.Size), Path
				}
			}
		}
	}
}

// confine takes back what is not in the basic block of a sample.
func (r *replay) confine() {
	n, s := len(r.path.list), 0
	for from := 0; from < n; {
		to := from + 1
		for to < n && r.code.insts[r.path.list[to-1]].traits&isBranch == 0 {
			to++
		}
		for s < len(r.placed) && r.placed[s].pos < from {
			s++
		}
		if s == len(r.placed) || r.placed[s].pos >= to {
			clear(r.how[r.first[from]:r.first[to]])
		}
		from = to
	}
}
