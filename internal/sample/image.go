package sample

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ripstop/ripstop/internal/image"
)

// A change of a process's address space.
type change struct {
	pid        int32
	from       int32 // of fork: the parent
	fork, exec bool
	mapping    Mapping
	tsc        uint64
}

func (d *reading) mapping(m Mapping) {
	if m.PID < 0 || m.End <= m.Start { // the kernel's, or nonsense
		return
	}
	d.change(change{pid: m.PID, mapping: m, tsc: m.TSC})
}

// An Epoch is a time in which no code of a process took the place of other code.
type Epoch struct {
	From     uint64    // TSC; it lasts until the next epoch's
	Mappings []Mapping // sorted by address, not overlapping
}

// Epochs gives the address spaces that a process had, in order.
func (r *Recording) Epochs(pid int32) []Epoch { return r.spaces[pid] }

// change applies a change to what is known so far.
func (d *reading) change(c change) {
	all := d.spaces[c.pid]
	add := func(maps []Mapping) { d.spaces[c.pid] = append(all, Epoch{c.tsc, slices.Clone(maps)}) }
	switch {
	case c.fork: // a process id that is given out again begins anew, too
		var have []Mapping
		if before := d.spaces[c.from]; len(before) > 0 {
			have = before[len(before)-1].Mappings
		}
		add(have)
		return
	case c.exec:
		add(nil)
		return
	case len(all) == 0:
		add([]Mapping{c.mapping})
		return
	}
	now, m := &all[len(all)-1], c.mapping
	over := func(o Mapping) bool { return o.Start < m.End && m.Start < o.End }
	first := slices.IndexFunc(now.Mappings, over)
	if first >= 0 && now.Mappings[first].key() == m.key() {
		return // told again
	}
	if first >= 0 {
		add(slices.DeleteFunc(slices.Clone(now.Mappings), over))
		all = d.spaces[c.pid]
		now = &all[len(all)-1]
	}
	at, _ := slices.BinarySearchFunc(now.Mappings, m.Start, func(o Mapping, a uint64) int { return cmp.Compare(o.Start, a) })
	now.Mappings = slices.Insert(now.Mappings, at, m)
}

// key is what makes a mapping the same when it is told again.
func (m Mapping) key() Mapping { m.PID, m.TSC = 0, 0; return m }

// An Image is the code of an epoch, from the files that were mapped. It is a pt.Image.
type Image struct {
	mappings []Mapping
	bytes    [][]byte
}

// Image reads the code of an epoch. What cannot be had (a file that has gone or is another one by now, code that is in no file) is left out, and why says so of each.
func (r *Recording) Image(e *Epoch) (x *Image, why []error) {
	x = &Image{}
	files := map[string][]byte{}
	for _, m := range e.Mappings {
		b, read := files[m.Path]
		if !read {
			var err error
			if b, err = r.contents(m); err != nil {
				why = append(why, fmt.Errorf("code of %s at %#x-%#x: %w", m.Path, m.Start, m.End, err))
			}
			files[m.Path] = b
		}
		if m.Offset >= uint64(len(b)) {
			continue
		}
		x.mappings = append(x.mappings, m)
		x.bytes = append(x.bytes, b[m.Offset:min(uint64(len(b)), m.Offset+m.End-m.Start)])
	}
	return x, why
}

func (r *Recording) contents(m Mapping) ([]byte, error) {
	path := m.Path
	switch {
	case path == "[vdso]":
		path = filepath.Join(r.dir, VDSOFile)
	case filepath.Base(path) == AgentFile: // the one that was mapped is gone with its session
		path = filepath.Join(r.dir, AgentFile)
	case path == "" || path[0] != '/' || path[:min(2, len(path))] == "//":
		return nil, fmt.Errorf("it is in no file")
	}
	b, err := os.ReadFile(path)
	if err != nil || m.BuildID == "" {
		return b, err
	}
	f, err := image.FromMemory(path, b)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if id := f.BuildID(); id != m.BuildID {
		return nil, fmt.Errorf("the file is another by now: its build-id is %s, it was %s", id, m.BuildID)
	}
	return b, nil
}

// Code gives the bytes from an address on up to the end of their mapping; none if nothing is known there.
func (x *Image) Code(addr uint64) []byte {
	i, found := slices.BinarySearchFunc(x.mappings, addr, func(m Mapping, a uint64) int { return cmp.Compare(m.Start, a) })
	if !found {
		i--
	}
	if i < 0 || addr-x.mappings[i].Start >= uint64(len(x.bytes[i])) {
		return nil
	}
	return x.bytes[i][addr-x.mappings[i].Start:]
}

// BuildID gives the build-id of a file, hexadecimal; "" if it has none or cannot be read.
func BuildID(path string) string {
	x, err := image.Open(path)
	if err != nil {
		return ""
	}
	defer x.Close()
	return x.BuildID()
}
