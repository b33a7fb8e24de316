package count

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/unwind"
)

// A Profile is how often memory instructions ran, over all processes of a run.
type Profile struct {
	Command   []string
	Version   string // of ripstop
	Ended     string // how the program ended
	Processes []Process
	Modules   []*Module // by path
	// NotCounted says what else was not counted, a sentence each.
	NotCounted []string
}

// A Process is one that was counted.
type Process struct {
	PID        int
	Executable string
}

// A Module is a program or library that was loaded.
type Module struct {
	Path    string
	BuildID string
	// Why says why nothing of it was counted; "" if it was.
	Why string
	// Insts are the memory instructions that were counted, by address, those that never ran included.
	Insts []Inst
	// Missed are those that could not be counted, by address.
	Missed []Missed
	// Undecoded is how many bytes of its functions are not known to be instructions (engine.Module.Undecoded): what of it touches memory is not known.
	Undecoded uint64

	start uint64 // link-time address of the executable segment; for pprof
	end   uint64
	off   uint64 // of the segment in the file
}

// An Inst is a memory instruction.
type Inst struct {
	Addr   uint64 // link-time
	Op     string
	Access Access
	Tier   patch.Tier
	Count  uint64
}

// Missed is a memory instruction that was not counted.
type Missed struct {
	Addr   uint64
	Op     string
	Access Access
	Why    string
}

// Counts are executions by kind.
type Counts [Kinds]uint64

// Total is the sum over all kinds.
func (c *Counts) Total() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

func (c *Counts) add(o *Counts) {
	for i := range c {
		c[i] += o[i]
	}
}

// module finds or makes the module.
func (p *Profile) module(path, buildID string) *Module {
	for _, m := range p.Modules {
		if m.Path == path && m.BuildID == buildID {
			return m
		}
	}
	m := &Module{Path: path, BuildID: buildID}
	p.Modules = append(p.Modules, m)
	return m
}

// add adds executions of instructions, which are in order.
func (m *Module) add(list []Inst) {
	if !slices.EqualFunc(m.Insts, list, func(a, b Inst) bool { return a.Addr == b.Addr }) {
		m.Insts = merged(m.Insts, list)
		return
	}
	for i := range list {
		m.Insts[i].Count += list[i].Count
	}
}

// merged gives the instructions of both lists, in order.
func merged(a, b []Inst) []Inst {
	out := make([]Inst, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].Addr < b[0].Addr:
			out, a = append(out, a[0]), a[1:]
		case a[0].Addr > b[0].Addr:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a = append(out, a[0]), a[1:]
			out[len(out)-1].Count += b[0].Count
			b = b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// sort brings everything into its order. Missed are those that no process could count, or not all; each is there once.
func (p *Profile) sort() {
	slices.SortFunc(p.Modules, func(a, b *Module) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.BuildID, b.BuildID)) })
	for _, m := range p.Modules {
		slices.SortFunc(m.Missed, func(a, b Missed) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Why, b.Why)) })
		m.Missed = slices.CompactFunc(m.Missed, func(a, b Missed) bool { return a.Addr == b.Addr })
	}
}

// Counts gives the executions of a module by kind.
func (m *Module) Counts() (c Counts) {
	for i := range m.Insts {
		c[m.Insts[i].Access.Kind] += m.Insts[i].Count
	}
	return c
}

// Counts gives the executions by kind.
func (p *Profile) Counts() (c Counts) {
	for _, m := range p.Modules {
		n := m.Counts()
		c.add(&n)
	}
	return c
}

// Tiers gives how many instructions were patched, and how often they ran, by tier.
func (p *Profile) Tiers() (sites, executed [patch.Tiers]uint64) {
	for _, m := range p.Modules {
		for i := range m.Insts {
			sites[m.Insts[i].Tier]++
			executed[m.Insts[i].Tier] += m.Insts[i].Count
		}
	}
	return sites, executed
}

// A Namer gives the names of a link-time address, innermost inlined call first: image.Symbolizer.
type Namer interface {
	Frames(module, buildID string, addr uint64) []finding.Frame
}

// A Place is a source line, or a function, with what ran there. Functions that were inlined count for themselves.
type Place struct {
	Module *Module
	Func   string // "" is not known
	Start  uint64 // of a function without a name: where it begins (link-time); 0: not known
	File   string // of lines
	Line   int    //
	Counts Counts
}

// Functions gives what ran by function, Lines by source line; what ran most comes first. Lines has no places without a known line.
func (p *Profile) Functions(n Namer) []Place { return p.places(n, false) }

// Lines is described at Functions.
func (p *Profile) Lines(n Namer) []Place { return p.places(n, true) }

func (p *Profile) places(n Namer, lines bool) []Place {
	type key struct {
		m     *Module
		fn    string
		start uint64
		file  string
		line  int
	}
	sum := map[key]*Counts{}
	for _, m := range p.Modules {
		start := sync.OnceValue(m.starts)
		for i := range m.Insts {
			in := &m.Insts[i]
			if in.Count == 0 {
				continue
			}
			f := n.Frames(m.Path, m.BuildID, in.Addr)[0]
			k := key{m: m, fn: f.Func}
			if lines {
				if f.File == "" {
					continue
				}
				k.file, k.line = f.File, f.Line
			}
			if k.fn == "" && !lines {
				k.start = begins(start(), in.Addr)
			}
			c := sum[k]
			if c == nil {
				c = &Counts{}
				sum[k] = c
			}
			c[in.Access.Kind] += in.Count
		}
	}
	out := make([]Place, 0, len(sum))
	for k := range maps.Keys(sum) {
		out = append(out, Place{k.m, k.fn, k.start, k.file, k.line, *sum[k]})
	}
	slices.SortFunc(out, func(a, b Place) int {
		return cmp.Or(cmp.Compare(b.Counts.Total(), a.Counts.Total()), cmp.Compare(a.Module.Path, b.Module.Path), cmp.Compare(a.Module.BuildID, b.Module.BuildID),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Func, b.Func), cmp.Compare(a.Start, b.Start))
	})
	return out
}

// starts gives the functions of the module's file by its .eh_frame, in order, and where each ends; none if there is no such file any more.
func (m *Module) starts() [][2]uint64 {
	img, err := image.Open(m.Path)
	if err != nil {
		return nil
	}
	defer img.Close()
	if img.BuildID() != m.BuildID {
		return nil
	}
	list, _ := unwind.Ranges(img) // what cannot be read has no names
	slices.SortFunc(list, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	return list
}

// begins gives where the function begins that has an address, 0 if none is known.
func begins(list [][2]uint64, addr uint64) uint64 {
	i, found := slices.BinarySearchFunc(list, addr, func(r [2]uint64, a uint64) int { return cmp.Compare(r[0], a) })
	if !found {
		i--
	}
	if i < 0 || addr >= list[i][1] {
		return 0
	}
	return list[i][0]
}

func (m *Module) name() string { return filepath.Base(m.Path) }
