package step

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/x86"
)

const pageSize = 4096

// A process is an address space and what of its code has been seen.
type process struct {
	pid     int
	mem     io.ReaderAt
	maps    []sample.Mapping // of executable memory, sorted
	changes bool             // some of it is writable too: what is decoded may not be kept
	pages   map[uint64][]byte
	insts   map[uint64]*instruction
	filter  pt.Filter // empty: everywhere; nowhere is a range that holds no code
}

func newProcess(pid int) *process {
	return &process{pid: pid, mem: tracee.Memory(pid), pages: map[uint64][]byte{}, insts: map[uint64]*instruction{}}
}

// forked gives what a child that was just made has.
func (p *process) forked(pid int) *process {
	c := newProcess(pid)
	c.maps, c.changes, c.filter = slices.Clone(p.maps), p.changes, p.filter
	return c
}

// Code gives the bytes from an address to the end of its page: process is the pt.Image that its control flow is encoded with.
func (p *process) Code(addr uint64) []byte {
	at := addr &^ (pageSize - 1)
	page, ok := p.pages[at]
	if !ok || p.changes {
		page = make([]byte, pageSize)
		if n, _ := p.mem.ReadAt(page, int64(at)); n < pageSize {
			page = nil
		}
		p.pages[at] = page
	}
	if page == nil {
		return nil
	}
	return page[addr-at:]
}

// at gives the instruction at an address; nil if there is none, which then faults.
func (p *process) at(ip uint64) *instruction {
	if in := p.insts[ip]; in != nil && !p.changes {
		return in
	}
	if ip>>47 != 0 {
		return nil // vsyscall, or no address
	}
	code := p.Code(ip)
	in, err := x86.Decode(code)
	if err == x86.ErrTruncated {
		var both [x86.MaxLen]byte
		n := copy(both[:], code)
		n += copy(both[n:], p.Code(ip+uint64(len(code))))
		in, err = x86.Decode(both[:n])
	}
	if err != nil {
		return nil
	}
	c := newInstruction(in)
	p.insts[ip] = c
	return c
}

// remap reads the mappings anew and gives those that are new, with their times; changed says whether code that was known is gone or another.
func (p *process) remap(tsc uint64, buildID func(path string) string) (added []sample.Mapping, changed bool, err error) {
	now, err := tracee.Maps(p.pid)
	if err != nil {
		return nil, false, err
	}
	var maps []sample.Mapping
	p.changes = false
	for _, m := range now {
		if !m.Exec || m.Path == "[vsyscall]" {
			continue
		}
		p.changes = p.changes || m.Write
		s := sample.Mapping{PID: int32(p.pid), TSC: tsc, Start: uint64(m.Start), End: uint64(m.End), Offset: m.Offset, Path: m.Path}
		if s.Path == "" {
			s.Path = "//anon"
		}
		known := slices.IndexFunc(p.maps, func(o sample.Mapping) bool {
			return o.Start == s.Start && o.End == s.End && o.Offset == s.Offset && o.Path == s.Path
		})
		if known >= 0 {
			s = p.maps[known]
		} else {
			if m.Inode != 0 && !m.Deleted {
				s.BuildID = buildID(s.Path)
			}
			added = append(added, s)
			changed = changed || slices.ContainsFunc(p.maps, func(o sample.Mapping) bool { return o.Start < s.End && s.Start < o.End })
		}
		maps = append(maps, s)
	}
	for _, o := range p.maps {
		changed = changed || !slices.ContainsFunc(maps, func(s sample.Mapping) bool { return s.Start == o.Start && s.End == o.End && s.Path == o.Path })
	}
	p.maps = maps
	if changed {
		clear(p.pages)
		clear(p.insts)
	}
	return added, changed, nil
}

// setFilter finds the ranges of the files that control flow is traced in; it tells whether they are others than before.
func (p *process) setFilter(names []string) (changed bool) {
	if len(names) == 0 {
		return false
	}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
	var f pt.Filter
	for _, m := range p.maps {
		if slices.Contains(names, filepath.Base(m.Path)) || m.Path == exe && slices.Contains(names, FilterMain) {
			f = append(f, [2]uint64{m.Start, m.End})
		}
	}
	if len(f) == 0 {
		f = pt.Filter{{0, 1}}
	}
	if slices.Equal(f, p.filter) {
		return false
	}
	p.filter = f
	return true
}

// buildIDs gives the build-ids of files, each read once.
func buildIDs() func(path string) string {
	known := map[string]string{}
	return func(path string) string {
		id, ok := known[path]
		if !ok {
			id = sample.BuildID(path)
			known[path] = id
		}
		return id
	}
}

// dumpVDSO writes the image of the vdso, which is in no file, to the directory.
func (p *process) dumpVDSO(m *sample.Mapping, dir string) error {
	b := make([]byte, m.End-m.Start)
	if _, err := p.mem.ReadAt(b, int64(m.Start)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sample.VDSOFile), b, 0o666)
}
