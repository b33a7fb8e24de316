package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
)

// Most of a program's code, and nearly all of its libraries', is never run; to plan what is to be patched there takes a program with many libraries a minute. So of a client that is a Coverer sites are *covered* at first: their
// first byte is int3, of which the agent knows nothing but that it lies in a covered text (cover.c). Where that is met the process asks (PatchAskCovered), and all is patched that lies in the same region: whole functions, of some
// KiB. Nothing of the program's that is to be patched is ever run before it is.
//
// A region is a text of its own to the planner, as if nothing else were there: no patch of it uses bytes of another one's, which may be covered yet. Which sites there are depends on the module's code alone, and is kept on disk
// (kept.go): so of what was met before nothing is decoded but what is run.
//
// What is not covered: modules whose text is not that of their files, from which the agent has what lies below an int3 when we are gone; and all of a program that somebody traces from its start, as a debugger would stop at each.

// A Coverer is a Client whose sites need not be patched before they are run. Of modules that it has covered no single instruction is asked (Client.Site, Process.Change).
type Coverer interface {
	Client
	// Covers gives what the sites of a module depend on beside its code, as part of a file's name, and false if all of it is to be patched when it comes. It may be called for several modules at once where Sites may.
	Covers(p *Process, m *Module) (name string, ok bool)
	// Covered is called in place of Patched when a module's sites are covered.
	Covered(p *Process, m *Module)
	// SitesIn gives the sites in [lo, hi), which begins and ends with functions: those that Sites gives. It is asked of all of a text if nobody knows yet where they are, then of what is about to be run.
	SitesIn(p *Process, m *Module, lo, hi uint64) []patch.Site
	// PatchedIn is Patched for these.
	PatchedIn(p *Process, m *Module, lo, hi uint64, at func(addr uint64) *patch.Patch)
}

// A cover is what is covered of a module.
type cover struct {
	heads []uint32 // where sites begin, from the module's bias on, in order
	cuts  []uint64 // where regions begin, in order; nil: nobody has come there yet
	parts []*text  // of those that were met, by the region's number
	ends  []uint64 // of the texts, in order
	left  int      // sites in regions that were not
}

const (
	regionBytes = 1 << 10 // a region is no shorter but at a text's end
	atOnce      = 32      // regions that are patched in one go where all are
)

// covers finds which of a module's instructions are sites, and says whether they are to be covered.
func (p *Process) covers(m *Module) bool {
	c, ok := p.e.opts.Client.(Coverer)
	if !ok || p.of != nil || p.traced || p.e.opts.AtOnce || len(m.texts) == 0 || m.Image == nil {
		return false
	}
	name, ok := c.Covers(p, m)
	if !ok || !m.asInFile() {
		return false
	}
	m.identify()
	if b, ok := m.cache.Load(m.hash + "." + name); ok && m.parseHeads(b) == nil {
		return len(m.cover.heads) > 0
	}
	m.learn()
	var sites []patch.Site
	for _, t := range m.texts {
		sites = append(sites, c.SitesIn(p, m, t.at, t.end())...)
	}
	sites = append(sites, p.guards(m, sites)...)
	list := make([]uint32, 0, len(sites))
	for _, s := range sites {
		if off := s.At - m.Bias; m.text(s.At) != nil && off <= math.MaxUint32 {
			list = append(list, uint32(off))
		}
	}
	slices.Sort(list)
	m.cover = newCover(slices.Compact(list))
	m.Keep(name, m.appendHeads(nil))
	return len(list) > 0 && !m.closed.Load()
}

// appendHeads appends what is covered for parseHeads: how many bytes were not understood, then where sites begin, each by its distance from the one before.
func (m *Module) appendHeads(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, m.undecoded)
	last := uint32(0)
	for _, h := range m.cover.heads {
		dst = binary.AppendUvarint(dst, uint64(h-last))
		last = h
	}
	return dst
}

var errHeads = errors.New("not the sites of this module")

// parseHeads takes any bytes.
func (m *Module) parseHeads(b []byte) error {
	undecoded, n := binary.Uvarint(b)
	if n <= 0 {
		return errHeads
	}
	list := make([]uint32, 0, len(b))
	at, t := uint64(0), (*text)(nil)
	for b = b[n:]; len(b) > 0; b = b[n:] {
		var d uint64
		if d, n = binary.Uvarint(b); n <= 0 || d > math.MaxUint32 || d == 0 && len(list) > 0 {
			return errHeads
		}
		if at += d; at > math.MaxUint32 {
			return errHeads
		}
		if addr := at + m.Bias; t == nil || addr < t.at || addr >= t.end() {
			if t = m.text(addr); t == nil {
				return errHeads
			}
		}
		list = append(list, uint32(at))
	}
	m.cover, m.undecoded = newCover(list), undecoded
	return nil
}

func newCover(heads []uint32) *cover { return &cover{heads: heads, left: len(heads)} }

// headsIn gives the heads in [lo, hi), addresses of the process.
func (m *Module) headsIn(lo, hi uint64) []uint32 {
	list := m.cover.heads
	i := sort.Search(len(list), func(i int) bool { return uint64(list[i])+m.Bias >= lo })
	k := i + sort.Search(len(list)-i, func(k int) bool { return uint64(list[i+k])+m.Bias >= hi })
	return list[i:k]
}

// coverNow covers a module that nobody has run. False: it is not, as it cannot be; *gone is an error if nothing can be done in the process any more.
func (p *Process) coverNow(m *Module, gone *error) bool {
	told := 0
	err := p.coverTexts(m, &told)
	if err == nil {
		p.e.opts.Client.(Coverer).Covered(p, m)
		return true
	}
	for _, t := range m.texts[:told] {
		err = errors.Join(err, p.write(t.at, t.code), p.do(op(wire.PatchDoCover, t.at, 0)))
	}
	if errors.Is(err, errGone) {
		*gone = errGone
	}
	return false
}

// coverTexts covers a module's texts; *told is of how many the agent was told.
func (p *Process) coverTexts(m *Module, told *int) error {
	for _, t := range m.texts {
		// From now on an int3 there has a meaning.
		if err := p.tellCover(m, t); err != nil {
			return err
		}
		*told++
		if err := p.writeHeads(m, t); err != nil {
			return err
		}
	}
	if p.alone() {
		return nil
	}
	return p.do(op(wire.PatchDoSync, 0, 0))
}

// tellCover has the agent map the file of a text, and know that it is covered.
func (p *Process) tellCover(m *Module, t *text) error {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/root%s", p.PID, m.Path), &st); err != nil {
		return err
	}
	if err := p.do(); err != nil { // what is yet to be stored
		return err
	}
	b := binary.LittleEndian.AppendUint64(nil, t.offset)
	b = binary.LittleEndian.AppendUint64(b, st.Dev)
	b = binary.LittleEndian.AppendUint64(b, st.Ino)
	b = append(append(b, m.Path...), 0)
	if len(b) > len(p.page.Bytes) {
		return unix.ENAMETOOLONG
	}
	copy(p.page.Bytes[:], b)
	return p.do(op(wire.PatchDoCover, t.at, t.size))
}

// writeHeads writes int3 where sites begin, page by page.
func (p *Process) writeHeads(m *Module, t *text) error {
	const most = 64 << 10
	heads := m.headsIn(t.at, t.end())
	for len(heads) > 0 {
		lo := (uint64(heads[0]) + m.Bias) &^ (patch.PageSize - 1)
		lo = max(lo, t.at)
		hi := lo
		n := 0
		for ; n < len(heads); n++ {
			page := (uint64(heads[n])+m.Bias)&^(patch.PageSize-1) + patch.PageSize
			if page > hi+patch.PageSize && n > 0 || page-lo > most {
				break
			}
			hi = min(page, t.end())
		}
		b := bytes.Clone(t.code[lo-t.at : hi-t.at])
		for _, h := range heads[:n] {
			b[uint64(h)+m.Bias-lo] = opTrap
		}
		if err := p.write(lo, b); err != nil {
			return err
		}
		heads = heads[n:]
	}
	return nil
}

// cut finds the module's regions.
func (m *Module) cut() {
	m.learn()
	c := m.cover
	functions, _ := m.WholeFunctions()
	texts := slices.SortedFunc(slices.Values(m.texts), func(a, b *text) int { return cmp.Compare(a.at, b.at) })
	for _, t := range texts {
		c.cuts, c.ends = append(c.cuts, t.at), append(c.ends, t.end())
		for len(functions) > 0 && functions[0][0] < t.end() {
			if at := functions[0][0]; at >= c.cuts[len(c.cuts)-1]+regionBytes && t.plan.Begins(at) && !t.plan.Inside(at) {
				c.cuts = append(c.cuts, at)
			}
			functions = functions[1:]
		}
	}
	c.parts = make([]*text, len(c.cuts))
}

// region gives the number of the region that an address lies in.
func (m *Module) region(at uint64) int {
	return sort.Search(len(m.cover.cuts), func(i int) bool { return m.cover.cuts[i] > at }) - 1
}

func (m *Module) regionEnd(i int) uint64 {
	c := m.cover
	end := c.ends[sort.Search(len(c.ends), func(k int) bool { return c.ends[k] > c.cuts[i] })]
	if i+1 < len(c.cuts) {
		end = min(end, c.cuts[i+1])
	}
	return end
}

// part gives the text of the region that an address lies in, nil if that is covered.
func (m *Module) part(at uint64) *text {
	if len(m.cover.cuts) == 0 || m.text(at) == nil {
		return nil
	}
	return m.cover.parts[m.region(at)]
}

// held gives the text whose planner an instruction's patch is.
func (m *Module) held(at uint64) *text {
	if m.cover != nil {
		return m.part(at)
	}
	return m.text(at)
}

// planned gives all texts that may have patches.
func (m *Module) planned() (list []*text) {
	for _, t := range m.texts {
		if t.planner != nil {
			list = append(list, t)
		}
	}
	if m.cover != nil {
		for _, t := range m.cover.parts {
			if t != nil {
				list = append(list, t)
			}
		}
	}
	return list
}

// reached patches the region that an address lies in, 0: all that is covered.
func (p *Process) reached(at uint64) error {
	if at == 0 {
		for _, m := range p.mods {
			if err := p.uncoverAll(m); err != nil {
				return err
			}
		}
		return nil
	}
	m := p.at(at)
	if m == nil || m.cover == nil || m.text(at) == nil {
		return unix.ENOENT
	}
	if m.cover.cuts == nil {
		m.cut()
	}
	i := m.region(at)
	if m.cover.parts[i] != nil {
		return nil
	}
	return p.uncover(m, i)
}

func (p *Process) uncoverAll(m *Module) error {
	if m.cover == nil || m.cover.left == 0 {
		return nil
	}
	if m.cover.cuts == nil {
		m.cut()
	}
	var list []int
	for i, t := range m.cover.parts {
		if t != nil || len(m.headsIn(m.cover.cuts[i], m.regionEnd(i))) == 0 {
			continue
		}
		if list = append(list, i); len(list) == atOnce {
			if err := p.uncover(m, list...); err != nil {
				return err
			}
			list = list[:0]
		}
	}
	if len(list) == 0 {
		return nil
	}
	return p.uncover(m, list...)
}

// uncover patches regions of a module, as many of their sites as can be. Whatever comes of it, they are not covered any more.
func (p *Process) uncover(m *Module, regions ...int) error {
	if p.ends() {
		return errGone
	}
	client := p.e.opts.Client.(Coverer)
	var list []*change
	var all []patch.Site
	for _, i := range regions {
		lo, hi := m.cover.cuts[i], m.regionEnd(i)
		t := m.newPart(lo, hi)
		m.cover.parts[i] = t
		m.cover.left -= len(t.heads)
		sites := client.SitesIn(p, m, lo, hi)
		m.sites += uint64(len(sites))
		all = append(all, sites...)
		sites = slices.Concat(sites, p.guardsIn(m, sites, lo, hi))
		slices.SortFunc(sites, func(a, b patch.Site) int { return cmp.Compare(a.At, b.At) })
		c := &change{t: t, m: m, some: true}
		for _, s := range sites {
			if why := check(t, &s); why != "" {
				m.why[s.At] = why
				continue
			}
			c.add = append(c.add, s)
		}
		list = append(list, c)
	}
	err := p.applyRest(list)
	for _, c := range list {
		if err == nil {
			for _, bad := range c.tx.Left {
				m.why[bad.At] = whyLeft(bad)
			}
		}
		if more := p.bare(c.t, func(at uint64) bool { return m.patch(at) != nil }); more != nil && err == nil {
			err = more
		}
		c.t.heads = nil
		client.PatchedIn(p, m, c.t.at, c.t.end(), m.patch)
	}
	for _, s := range all {
		if _, spare := s.Recipe.(Spare); !spare && !m.patched(s.At) {
			p.page.Unpatched++
		}
	}
	return p.partly(err)
}

// headBytes is about how many bytes of trampolines a site takes.
const headBytes = 56

// newPart makes a text of a region, with the int3 that lie there.
func (m *Module) newPart(lo, hi uint64) *text {
	of := m.text(lo)
	t := &text{at: lo, size: hi - lo, code: of.code[lo-of.at : hi-of.at : hi-of.at], plan: of.plan.Part(lo, hi)}
	m.plans(t)
	for _, h := range m.headsIn(lo, hi) {
		t.heads = append(t.heads, uint64(h)+m.Bias)
		t.live.Set(uint64(h)+m.Bias-lo, []byte{opTrap})
	}
	return t
}

// bare gives those heads of a text that are covered, and that keep does not name, the byte back that lies there.
func (p *Process) bare(t *text, keep func(at uint64) bool) error {
	for _, at := range t.heads {
		i := at - t.at
		if t.live.At(i) != opTrap || keep(at) {
			continue
		}
		was := t.code[i : i+1]
		if err := p.write(at, was); err != nil {
			return err
		}
		t.live.Set(i, was)
	}
	return nil
}

// bareBut is bare for what a transaction does not change, before it is carried out: jumps may be made of bytes that are as they were.
func (p *Process) bareBut(t *text, tx *patch.Transaction) error {
	if len(t.heads) == 0 {
		return nil
	}
	return p.bare(t, func(at uint64) bool {
		_, found := slices.BinarySearchFunc(tx.Edits, at, func(e patch.Edit, at uint64) int { return cmp.Compare(e.At, at) })
		return found
	})
}

// guardsIn is guards for a region.
func (p *Process) guardsIn(m *Module, sites []patch.Site, lo, hi uint64) []patch.Site {
	return slices.DeleteFunc(p.guards(m, sites), func(s patch.Site) bool { return s.At < lo || s.At >= hi })
}

// countCovered adds a module to the figures.
func (m *Module) countCovered(s *Stats) {
	if m.cover != nil {
		s.Covered += uint64(m.cover.left)
	}
}

// isTraced says whether somebody traces the process, as a debugger does.
func isTraced(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !bytes.Contains(b, []byte("\nTracerPid:\t0\n"))
}
