package engine

import (
	"bytes"
	"cmp"
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
		if err := p.fails(op(wire.PatchDoWrite, at, uint64(len(b)))); err != nil {
			_, _ = p.mem.WriteAt(b[:len(b)/2], int64(at)) // the worst that can be
			return err
		}
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
	lowest      = 1 << 20 // below, accesses by null pointers to big things must fault
	highest     = 1 << 47
	heapRoom    = 1 << 30   // what brk may still want
	heapRoomLow = 256 << 20 // likewise, where all space is above: malloc can do without brk
	heapLow     = 3 << 29   // where a heap is moved that begins below (moveHeap)
	heapRandom  = 16 << 20
	stackRoom   = 1 << 32   // the most that is kept free below a stack; below highest, if no stack is seen
	leastGap    = 256 << 20 // the least, whatever its limit: the kernel keeps half of that free, between the stack and the first mapping
)

// foreign gives what is not ours to use: what others have mapped, and what they may want.
func (p *Process) foreign() ([]patch.Range, []tracee.Mapping, error) {
	maps, err := tracee.Maps(p.PID)
	if err != nil {
		return nil, nil, err
	}
	list := []patch.Range{{Lo: 0, Hi: lowest}}
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
		if m.Path == "[stack]" && p.top == 0 {
			p.top = r.Lo - min(r.Lo, stackGap(p.PID))
		}
		list = append(list, r)
	}
	if p.top == 0 {
		p.top = highest - stackRoom
	}
	if p.of != nil {
		list = append(list, p.avoid...)
	}
	list = append(list, patch.Range{Lo: p.top, Hi: highest})
	return subtract(union(list), p.blocks), maps, nil
}

// moveHeap has the heap of a program that is not PIE begin at heapLow (and what the kernel drew of heapRandom), if nobody has used it yet. The kernel begins it anywhere in the first GiB behind the program, and heapRoomLow from
// there is brk's; the highest byte of a jump's distance is the first of the next instruction where that is not moved, so that many sites find no place if these addresses are those behind
// a frequent byte (0x31, xor; 0x48, REX.W). From 0x5d to 0x6f few instructions begin. Below 2 GiB it stays, as such programs may believe that it is there. Where the
// process refuses, all stays as it is.
func (p *Process) moveHeap() error {
	if p.brk == 0 || p.brk >= heapLow {
		return nil
	}
	var refused *opError
	to := heapLow + p.brk%heapRandom
	switch err := p.do(op(wire.PatchDoHeap, p.brk, to)); {
	case errors.As(err, &refused):
		return nil
	case err != nil:
		return err
	}
	p.brk = to
	_, err := p.survey()
	return err
}

// stackGap is what is left free below the stack of a process's first thread.
func stackGap(pid int) uint64 {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_STACK, nil, &limit); err != nil {
		return stackRoom
	}
	return min(max(limit.Cur, leastGap), stackRoom)
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

// reserved notes what the process has mapped for tables of ours, wherever it liked: not where trampolines of the next plan may lie, which would fail, and be made anew. What is planned already is mapped by then, or fails as ever.
func (p *Process) reserved(at, bytes uint64) {
	if r := (patch.Range{Lo: at, Hi: at + bytes}); p.space.Mapped(r) == nil {
		p.others = with(p.others, r)
	}
}

// A mapping is what is to be mapped for trampolines: operations that the process does in one go with what makes them known.
type mapping struct {
	ops    []wire.PatchOp
	blocks int           // how many of ops, the first, map blocks; the others show frames there
	frames []patch.Range // what these show
}

// mapping says what is to be mapped for what is planned.
func (p *Process) mapping() (m mapping, err error) {
	list := p.space.Frames()
	if len(list) == 0 {
		return m, nil
	}
	ranges := make([]patch.Range, len(list))
	for i, x := range list {
		ranges[i] = mapped(x)
	}
	for _, r := range subtract(union(ranges), p.blocks) {
		m.ops = append(m.ops, op(wire.PatchDoMap, r.Lo, r.Hi-r.Lo))
	}
	m.blocks = len(m.ops)
	for _, x := range list {
		if p.ownPages || x.Frame+x.Pages > int(p.page.Frames) {
			if r := mapped(x); len(subtract([]patch.Range{r}, p.framed)) == 0 {
				return m, fmt.Errorf("the file of trampolines has %d pages, which are not enough", p.page.Frames)
			}
			continue
		}
		o := op(wire.PatchDoFrame, x.Page, uint64(x.Frame))
		o.Arg = uint32(x.Pages)
		m.ops = append(m.ops, o)
		m.frames = append(m.frames, mapped(x))
	}
	m.frames = union(m.frames)
	return m, nil
}

// mapNow has done what a mapping says. A page that could not show its frame has memory of its own.
func (p *Process) mapNow(m mapping) error {
	if len(m.ops) == 0 {
		return nil
	}
	return p.nowMapped(m, p.do(m.ops...))
}

// nowMapped takes note of a mapping whose operations were done, up to one that failed if err says so: which may be an operation behind all of them.
func (p *Process) nowMapped(m mapping, err error) error {
	var bad *opError
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	isBad := func(o *wire.PatchOp) bool { return bad != nil && o.Kind == bad.op.Kind && o.Address == bad.op.Address }
	blocks := slices.IndexFunc(m.ops[:m.blocks], func(o wire.PatchOp) bool { return isBad(&o) })
	if blocks < 0 {
		blocks = m.blocks
	}
	for _, o := range m.ops[:blocks] {
		p.blocks, p.described = with(p.blocks, patch.Range{Lo: o.Address, Hi: o.Address + o.Value}), false
	}
	if blocks < m.blocks {
		return err
	}
	if !slices.ContainsFunc(m.ops, func(o wire.PatchOp) bool { return isBad(&o) }) {
		bad = nil
	}
	if bad != nil && bad.errno == unix.ECANCELED { // who asked waits no more: that says nothing of what can be mapped, and what was not is told again
		shown := m.ops[m.blocks:]
		if err := p.framesMapped(shown[:slices.IndexFunc(shown, func(o wire.PatchOp) bool { return isBad(&o) })], nil); err != nil {
			return err
		}
		return bad
	}
	if err := p.framesMapped(m.ops[m.blocks:], bad); err != nil {
		return err
	}
	p.space.Shown()
	return nil
}

// with gives sorted ranges that do not touch, and one more, which may touch some of them or lie over them. The list is the caller's no more.
func with(list []patch.Range, r patch.Range) []patch.Range {
	i, _ := slices.BinarySearchFunc(list, r.Lo, func(x patch.Range, lo uint64) int { return cmp.Compare(x.Hi, lo) })
	k := i
	for ; k < len(list) && list[k].Lo <= r.Hi; k++ {
		r.Lo, r.Hi = min(r.Lo, list[k].Lo), max(r.Hi, list[k].Hi)
	}
	return slices.Replace(list, i, k, r)
}

func mapped(m patch.Mapping) patch.Range {
	return patch.Range{Lo: m.Page, Hi: m.Page + uint64(m.Pages)*patch.PageSize}
}

// frameBytes is the size of the file that trampolines lie in, of which they take what they need: not less than leastFrames. Not more where files may not be so large, or where the
// process has a limit of address space, in which it maps all of the file.
func frameBytes(o *Options, pid int) uint64 {
	if o.NoFrames {
		return 0
	}
	if o.MostCode != 0 {
		return o.MostCode
	}
	n := max(o.CodeBytes, leastFrames)
	var file, space unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &file) != nil || n+wire.SizePatchPage > file.Cur || unix.Prlimit(pid, unix.RLIMIT_AS, nil, &space) != nil || space.Cur != unix.RLIM_INFINITY {
		n = leastFrames
	}
	return max(n, 8*o.SharedBytes) &^ (patch.PageSize - 1)
}

const leastFrames = 64 << 20

// framesMapped notes which pages show frames after operations of which one may have failed. What shows none is memory of its own.
func (p *Process) framesMapped(ops []wire.PatchOp, bad *opError) error {
	if len(ops) == 0 {
		return nil
	}
	for _, o := range ops {
		if bad != nil && o.Address == bad.op.Address { // too many mappings, most likely
			p.ownPages = true
		}
		r := patch.Range{Lo: o.Address, Hi: o.Address + uint64(o.Arg)*patch.PageSize}
		if !p.ownPages {
			p.framed = with(p.framed, r)
		} else if len(subtract([]patch.Range{r}, p.framed)) == 0 {
			return bad // it shows another frame
		}
	}
	return nil
}

// frame gives the memory that a page of trampolines shows, or will when soon is mapped, nil if it has no frame.
func (p *Process) frame(page uint64, soon []patch.Range) []byte {
	if !within(p.framed, page) && !within(soon, page) {
		return nil
	}
	return p.pageMem[wire.SizePatchPage+p.space.Frame(page)*patch.PageSize:][:patch.PageSize]
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
