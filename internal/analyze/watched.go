package analyze

import (
	"cmp"
	"debug/elf"
	"path/filepath"
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/x86"
)

// watched makes accesses of the hits of hardware breakpoints. A hit tells a time, the registers behind the access, and the address behind its instruction, which
// is found by decoding its function from the beginning; what it accesses must fit the breakpoint.
//
// Such a recording shows no path, so atomic instructions that order threads are not seen. A process whose own code has any is left out: mutexes that are made of
// them would make races of what is none.
type watched struct {
	hits    uint64
	used    uint64
	outside uint64   // hits by code that is not the program's own
	lost    uint64   // hits whose instruction is not known
	atomic  uint64   // hits in processes with atomics
	atomics []string // their modules
	modules map[string]*watchedModule
}

type watchedModule struct {
	img      *image.Image // nil: it is not to be had
	funcs    [][2]uint64
	atomic   bool
	segments []image.Segment
}

// watchTicks are the ticks that a hit's time may be wrong, per tick of a second: where perf does not tell the TSC, its clock is compared with it each second.
const watchTicks = 50_000

func (v *watched) collect(rec *sample.Recording, in *recover.Input, w *collector) error {
	v.modules = map[string]*watchedModule{}
	defer func() {
		for _, m := range v.modules {
			if m.img != nil {
				m.img.Close()
			}
		}
	}()
	slack := w.slack
	if rec.Info.Mode == sample.Timer {
		w.slack = max(slack, rec.Info.Hz/watchTicks)
	}
	defer func() { w.slack = slack }()
	banned := map[int32]bool{}
	looked := map[int32]bool{}
	for i, t := range rec.Threads {
		if !slices.ContainsFunc(t.Samples, func(s sample.Sample) bool { return s.Kind == sample.WatchEvent }) {
			continue
		}
		w.sampled = true
		epochs := rec.Epochs(t.PID)
		if !looked[t.PID] {
			looked[t.PID] = true
			for k := range epochs {
				if v.hasAtomics(&epochs[k]) {
					banned[t.PID] = true
				}
			}
		}
		for k := range t.Samples {
			s := &t.Samples[k]
			if s.Kind != sample.WatchEvent {
				continue
			}
			v.hits++
			if banned[t.PID] {
				v.atomic++
				continue
			}
			r, ok := v.access(epochs, s)
			if !ok {
				continue
			}
			v.used++
			if err := w.add(2*i+1, &r); err != nil {
				return err
			}
		}
		if err := w.out.done(2*i + 1); err != nil {
			return err
		}
	}
	return nil
}

// hasAtomics says whether the program's own code has instructions that order threads.
func (v *watched) hasAtomics(e *sample.Epoch) (has bool) {
	for i := range e.Mappings {
		m := &e.Mappings[i]
		if codeOf(m.Path) != race.Program || isLibstdcxx(m.Path) {
			continue
		}
		if x := v.module(m); x.atomic {
			has = true
			if name := filepath.Base(m.Path); !slices.Contains(v.atomics, name) {
				v.atomics = append(v.atomics, name)
			}
		}
	}
	return has
}

// isLibstdcxx: what the C++ library itself orders by atomics is nothing that a program rests on without a lock or a guard, which the events tell.
func isLibstdcxx(path string) bool {
	ok, _ := filepath.Match("libstdc++.so*", filepath.Base(path))
	return ok
}

func (v *watched) module(m *sample.Mapping) *watchedModule {
	key := m.Path + "\x00" + m.BuildID
	x := v.modules[key]
	if x != nil {
		return x
	}
	x = &watchedModule{}
	v.modules[key] = x
	if m.Path == "" || m.Path[0] != '/' {
		return x
	}
	img, err := image.Open(m.Path)
	if err != nil {
		return x
	}
	if m.BuildID != "" && img.BuildID() != m.BuildID {
		img.Close()
		return x
	}
	x.img, x.funcs, x.segments = img, img.Functions(), img.Segments()
	if more, err := unwind.Ranges(img); err == nil { // a stripped program has no others
		x.funcs = append(x.funcs, more...)
	}
	slices.SortFunc(x.funcs, func(a, b [2]uint64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	x.funcs = slices.Compact(x.funcs)
	for _, s := range x.segments {
		if s.Flags&elf.PF_X != 0 {
			x.atomic = x.atomic || hasLocked(img.Bytes(s.Addr, s.FileSize))
		}
	}
	return x
}

// hasLocked looks through code; data in it may be taken for instructions.
func hasLocked(code []byte) bool {
	for len(code) > 0 {
		in, err := x86.Decode(code)
		if err != nil {
			code = code[1:]
			continue
		}
		for _, m := range in.Mems() {
			if m.Kind&x86.MemLocked != 0 {
				return true
			}
		}
		if in.Op == "mfence" {
			return true
		}
		code = code[in.Len:]
	}
	return false
}

// access gives the access that a hit tells.
func (v *watched) access(epochs []sample.Epoch, s *sample.Sample) (r record, ok bool) {
	n := len(epochs) - 1
	for n > 0 && epochs[n].From > s.TSC {
		n--
	}
	if n < 0 {
		v.lost++
		return r, false
	}
	maps := epochs[n].Mappings
	i := sort.Search(len(maps), func(i int) bool { return maps[i].End > s.IP })
	if i == len(maps) || s.IP < maps[i].Start {
		v.lost++
		return r, false
	}
	if codeOf(maps[i].Path) != race.Program {
		v.outside++
		return r, false
	}
	x := v.module(&maps[i])
	in, found := x.before(s.IP - maps[i].Start + maps[i].Offset)
	if found {
		r, ok = hit(&in, s)
	}
	if !ok {
		v.lost++
	}
	return r, ok
}

// before gives the instruction that ends at an offset in the file.
func (x *watchedModule) before(off uint64) (in x86.Inst, ok bool) {
	if x.img == nil {
		return in, false
	}
	var addr uint64
	for _, s := range x.segments {
		if off > s.Offset && off-s.Offset <= s.FileSize {
			addr, ok = s.Addr+(off-s.Offset), true
		}
	}
	k := sort.Search(len(x.funcs), func(i int) bool { return x.funcs[i][0] >= addr }) - 1
	if !ok || k < 0 || addr > x.funcs[k][1] {
		return in, false
	}
	code := x.img.Bytes(x.funcs[k][0], addr-x.funcs[k][0])
	for len(code) > 0 {
		got, err := x86.Decode(code)
		if err != nil {
			return in, false
		}
		in, code = got, code[got.Len:]
	}
	return in, uint64(in.Len) > 0
}

// hit says what an instruction accessed that set off a breakpoint; false if that is not certain.
func hit(in *x86.Inst, s *sample.Sample) (r record, ok bool) {
	if in.Rep || in.Repne {
		return r, false
	}
	for _, m := range in.Mems() {
		if m.Kind&(x86.MemAddress|x86.MemHint|x86.MemStack) != 0 {
			continue
		}
		if ok || m.Size == 0 || m.Kind&(x86.MemString|x86.MemBit|x86.MemGather|x86.MemScatter|x86.MemMasked|x86.MemLocked) != 0 || m.Seg == x86.FS || m.Seg == x86.GS {
			return r, false
		}
		addr := uint64(m.Disp) + uint64(int64(m.Bias))
		for _, p := range []struct {
			reg   x86.Reg
			scale uint64
		}{{m.Base, 1}, {m.Index, uint64(m.Scale)}} {
			switch {
			case p.reg == x86.NoReg:
			case p.reg == x86.RIP:
				addr += s.IP
			case p.reg.Class() != x86.ClassGPR || p.reg.Size() != 8 || s.Has>>p.reg.Num()&1 == 0 || in.Writes&p.reg.Set() != 0:
				return r, false
			default:
				addr += s.Regs[p.reg.Num()] * p.scale
			}
		}
		const watchedBytes = 8
		if addr >= s.Addr+watchedBytes || s.Addr >= addr+uint64(m.Size) || s.Write && m.Access&x86.Write == 0 {
			return r, false
		}
		r = record{From: s.TSC, To: s.TSC, Addr: addr, Size: uint64(m.Size), PC: s.IP - uint64(in.Len), How: recover.Sampled}
		if m.Access&x86.Read != 0 {
			r.Kind |= race.Read
		}
		if m.Access&x86.Write != 0 {
			r.Kind |= race.Write
		}
		ok = true
	}
	return r, ok
}
