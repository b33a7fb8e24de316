package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// openMemory opens the process's memory for writing, which does not ask for the permissions of mappings, and stays possible until its next exec.
func (p *Process) openMemory() {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID), os.O_RDWR, 0)
	if err != nil {
		var errno unix.Errno
		errors.As(err, &errno)
		p.page.Refused = uint32(errno) + 1
		return
	}
	p.mem = f
}

// read reads the process's memory.
func (p *Process) read(at uint64, b []byte) error {
	if p.mem != nil {
		if _, err := p.mem.ReadAt(b, int64(at)); err != nil {
			return fmt.Errorf("reading %d bytes at %#x: %w", len(b), at, err)
		}
		return nil
	}
	_, err := tracee.Memory(p.PID).ReadAt(b, int64(at))
	return err
}

// write writes to the process's memory, whatever its permissions.
func (p *Process) write(at uint64, b []byte) error {
	if p.mem != nil {
		if _, err := p.mem.WriteAt(b, int64(at)); err != nil {
			return fmt.Errorf("writing %d bytes at %#x: %w", len(b), at, err)
		}
		return nil
	}
	for len(b) > 0 { // the thread that asks does it
		n := copy(p.page.Bytes[:], b)
		if err := p.do(op(wire.PatchDoWrite, at, uint64(n))); err != nil {
			return err
		}
		at, b = at+uint64(n), b[n:]
	}
	return nil
}

// --- where trampolines may lie -------------------------------------------------------------------------------------------

const (
	lowest      = 1 << 20       // below, accesses by null pointers to big things must fault
	highest     = 1<<47 - 1<<32 // above are the stack and what the kernel puts beside it
	heapRoom    = 1 << 30       // what brk may still want
	heapRoomLow = 256 << 20     // likewise, where all space is above: malloc can do without brk
	stackGap    = 256 << 20     // what lies between mappings and the stack; the kernel leaves about that
)

// foreign gives what is not ours to use: what others have mapped, and what they may want.
func (p *Process) foreign() ([]patch.Range, []tracee.Mapping, error) {
	maps, err := tracee.Maps(p.PID)
	if err != nil {
		return nil, nil, err
	}
	list := []patch.Range{{Lo: 0, Hi: lowest}, {Lo: highest, Hi: 1 << 47}}
	if p.brk == 0 {
		p.brk = startBrk(p.PID)
	}
	if p.brk != 0 {
		room := uint64(heapRoom)
		if p.brk < 1<<31 {
			room = heapRoomLow
		}
		list = append(list, patch.Range{Lo: p.brk, Hi: p.brk + room})
	}
	for i := range maps {
		m := &maps[i]
		r := patch.Range{Lo: uint64(m.Start), Hi: uint64(m.End)}
		if m.Path == "[stack]" {
			r.Lo -= min(r.Lo, stackGap)
		}
		list = append(list, r)
	}
	return subtract(union(list), p.blocks), maps, nil
}

// startBrk is where the heap begins, 0 if that cannot be told; proc(5), stat, field 47.
func startBrk(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 45 {
		return 0
	}
	v, _ := strconv.ParseUint(f[44], 10, 64)
	return v
}

// union sorts ranges and joins those that touch.
func union(list []patch.Range) []patch.Range {
	slices.SortFunc(list, func(a, b patch.Range) int {
		if a.Lo < b.Lo {
			return -1
		}
		return 1
	})
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else if r.Lo < r.Hi {
			out = append(out, r)
		}
	}
	return out
}

// subtract gives what of a is not in b; both are sorted, and their ranges do not touch.
func subtract(a, b []patch.Range) (out []patch.Range) {
	for _, r := range a {
		i, _ := slices.BinarySearchFunc(b, r.Lo, func(x patch.Range, lo uint64) int {
			if x.Hi > lo {
				return 1
			}
			return -1
		})
		for ; i < len(b) && b[i].Lo < r.Hi; i++ {
			if r.Lo < b[i].Lo {
				out = append(out, patch.Range{Lo: r.Lo, Hi: b[i].Lo})
			}
			r.Lo = max(r.Lo, b[i].Hi)
		}
		if r.Lo < r.Hi {
			out = append(out, r)
		}
	}
	return out
}

// survey reads the process's map, and brings the space up to date with it.
func (p *Process) survey() ([]tracee.Mapping, error) {
	now, maps, err := p.foreign()
	if err != nil {
		return nil, err
	}
	if p.space == nil {
		p.space = patch.NewSpace(subtract([]patch.Range{{Lo: 0, Hi: 1 << 47}}, now))
	} else {
		for _, r := range subtract(p.others, now) {
			p.space.Unmapped(r)
		}
		for _, r := range subtract(now, p.others) {
			if err := p.space.Mapped(r); err != nil {
				return nil, err
			}
		}
	}
	p.others = now
	return maps, nil
}

// Sizes of mappings for trampolines. Many pages with holes between them are mapped in one piece, since the kernel limits the number of mappings (vm.max_map_count).
const (
	fewPages   = 64
	smallBlock = 64 << 10
	largeBlock = 2 << 20
)

// mapPages has the pages mapped that are not yet.
func (p *Process) mapPages(pages []uint64) error {
	size := uint64(smallBlock)
	if len(pages) > fewPages {
		size = largeBlock
	}
	var ops []wire.PatchOp
	var blocks []patch.Range
	have := p.blocks
	for _, a := range pages {
		if within(have, a) || within(blocks, a) {
			continue
		}
		r := patch.Range{Lo: a &^ (size - 1), Hi: a&^(size-1) + size}
		// What is free of it around the page.
		for _, part := range subtract([]patch.Range{r}, union(slices.Concat(p.others, have, blocks))) {
			if a >= part.Lo && a < part.Hi {
				blocks = union(append(blocks, part))
				ops = append(ops, op(wire.PatchDoMap, part.Lo, part.Hi-part.Lo))
			}
		}
	}
	for i, o := range ops {
		// One at a time: what was mapped must be known when the next fails. They are few.
		if err := p.do(ops[i]); err != nil {
			return err
		}
		p.blocks = union(append(slices.Clone(p.blocks), patch.Range{Lo: o.Address, Hi: o.Address + o.Value}))
		p.described = false
	}
	return p.mapFrames()
}

// Bounds of frames: how many there are, and for how many pages they are used. Each page of one may be a mapping of its own, which fork copies and who reads the process's map
// reads; the kernel allows 65,530.
const (
	maxFrames = 1 << 14
	maxAreas  = 1 << 15
)

// mapFrames gives pages that have come into use their frames. A page without one has memory of its own; one that had a frame gets another.
func (p *Process) mapFrames() error {
	if p.page.Frames == 0 {
		return nil
	}
	var ops []wire.PatchOp
	for _, m := range p.space.Frames() {
		_, had := p.frames[m.Page]
		if m.Frame >= min(maxFrames, int(p.page.Frames)) || !had && (len(p.frames) >= maxAreas || p.ownPages) {
			if had {
				return fmt.Errorf("trampolines take more than %d pages", maxFrames)
			}
			continue
		}
		p.frames[m.Page] = m.Frame
		if n := len(ops); !had && n > 0 && ops[n-1].Address+uint64(ops[n-1].Arg)*patch.PageSize == m.Page && ops[n-1].Value+uint64(ops[n-1].Arg) == uint64(m.Frame) {
			ops[n-1].Arg++
			continue
		}
		o := op(wire.PatchDoFrame, m.Page, uint64(m.Frame))
		o.Arg = 1
		ops = append(ops, o)
	}
	err := p.do(ops...)
	var bad *opError
	if !errors.As(err, &bad) {
		return err
	}
	// Too many mappings, most likely. What was not mapped is memory of its own yet, unless it shows another frame.
	p.ownPages = true
	failed := false
	for _, o := range ops {
		if failed = failed || o.Address == bad.op.Address; !failed {
			continue
		}
		for i := range uint64(o.Arg) {
			delete(p.frames, o.Address+i*patch.PageSize)
		}
	}
	return nil
}

// frame gives the memory that a page of trampolines shows, nil if it has no frame.
func (p *Process) frame(page uint64) []byte {
	n, ok := p.frames[page]
	if !ok {
		return nil
	}
	return p.pageMem[wire.SizePatchPage+n*patch.PageSize:][:patch.PageSize]
}

func within(list []patch.Range, a uint64) bool {
	i, _ := slices.BinarySearchFunc(list, a, func(x patch.Range, a uint64) int {
		if x.Hi > a {
			return 1
		}
		return -1
	})
	return i < len(list) && list[i].Lo <= a
}
