package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
)

// A grave is an old trampoline: nothing in the text leads there, but a thread may yet be in it or come back to it.
type grave struct {
	at uint64
	n  int
	t  *text
}

// Old trampolines are looked for when they have more bytes than reclaimFrom and than those that are in use.
const reclaimFrom = uint64(256 << 10)

// Bounds of the look at a process, which stands still for it.
const (
	reclaimTries = 4
	reclaimMost  = 256 << 20 // bytes of memory
	reclaimTime  = 300 * time.Millisecond
	reclaimAgain = 100 * time.Millisecond // between two looks for want of memory
)

// Why old trampolines stay for now. Nobody is told: it is tried again when there are more of them.
var (
	errMoved  = errors.New("a thread went on meanwhile that was not to be disturbed")
	errShared = errors.New("another process may be in the trampolines")
	errLong   = errors.New("the process has too much memory to be looked through")
)

// reclaim gives the memory of old trampolines back to which no thread can come back: all that is left of a way there is a register of a thread, or lies in memory in which the program may write (a
// signal's frame wherever it is, what the agent keeps in its own, the table of int3, a return address), as eight aligned bytes. So at one moment all that is looked through, as
// collectors do that know no types (Boehm and Weiser, Software: Practice and Experience 18, 1988), and what no value leads to is free.
func (p *Process) reclaim() error {
	p.reclaimed = time.Now()
	if p.shares() {
		p.graves, p.buried = nil, 0
		return errShared
	}
	slices.SortFunc(p.graves, func(a, b grave) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	var found []bool
	err := p.still(func(threads []tracee.Stopped, places []uint64) error {
		f := newFinder(p.graves)
		for i := range threads {
			for _, v := range threads[i].Regs {
				f.value(v)
			}
		}
		for _, v := range places {
			f.value(v)
		}
		found = f.found
		return p.lookThrough(f)
	})
	if err == nil && p.shares() {
		err = errShared
	}
	if err != nil {
		p.reclaimAt = p.buried + reclaimFrom
		return err
	}
	kept := p.graves[:0]
	for i, g := range p.graves {
		if found[i] {
			kept = append(kept, g)
			continue
		}
		p.unbury(&g)
	}
	p.graves = kept
	p.reclaimAt = p.buried + reclaimFrom
	return nil
}

// unbury gives one back.
func (p *Process) unbury(g *grave) {
	p.space.Free(g.at, g.n)
	p.dead[g.at] = len(p.runs)
	p.buried -= uint64(g.n)
	p.old -= uint64(g.n)
	p.reused += uint64(g.n)
}

// --- a process that stands still -----------------------------------------------------------------------------------------------

// Linux numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl).
var (
	// resumed are those that go on as if nothing had been when the thread that waits in them is stopped: signal(7), restart_syscall(2).
	resumed = map[int]bool{unix.SYS_FUTEX: true, unix.SYS_NANOSLEEP: true, unix.SYS_CLOCK_NANOSLEEP: true, unix.SYS_POLL: true, unix.SYS_PPOLL: true, unix.SYS_SELECT: true,
		unix.SYS_PSELECT6: true, unix.SYS_WAIT4: true, unix.SYS_RESTART_SYSCALL: true}
	// lends are those whose child may use the memory of the thread that waits for it.
	lends = map[int]bool{unix.SYS_CLONE: true, unix.SYS_CLONE3: true, unix.SYS_FORK: true, unix.SYS_VFORK: true}
)

// A quietThread waits in the kernel and is left there.
type quietThread struct {
	tid      int
	place    uint64
	switches uint64
}

// still calls look while no thread of the process runs: those that run, or wait in a call that may be resumed, stand still meanwhile, with their registers; of others, which wait in the kernel, there is
// the place, and when look has returned they have not moved. If one has, look is called again.
func (p *Process) still(look func(threads []tracee.Stopped, places []uint64) error) (err error) {
	if p.mem == nil {
		return unix.EACCES
	}
	disturb := map[int]bool{}
	for range reclaimTries {
		if err = p.stillWith(disturb, look); !errors.Is(err, errMoved) {
			return err
		}
	}
	return err
}

func (p *Process) stillWith(disturb map[int]bool, look func([]tracee.Stopped, []uint64) error) error {
	tids, err := tracee.Threads(p.PID)
	if err != nil {
		return err
	}
	var stop []int
	var quiet []quietThread
	var places []uint64
	for _, tid := range tids {
		s, err := p.status(tid)
		if err != nil { // it has ended, most likely
			return errMoved
		}
		call, pc, ok := waiting(p.PID, tid)
		switch m := p.at(pc); {
		case !ok || call < 0:
			stop = append(stop, tid)
		case lends[call]:
			return errShared
		case !disturb[tid] && (m == nil || m.Kind != Agent): // the agent's own calls keep what they need afterwards in registers
			quiet = append(quiet, quietThread{tid, pc, s.switches})
			places = append(places, pc)
		case !resumed[call] || s.filtered:
			return fmt.Errorf("thread %d waits in system call %d", tid, call)
		default:
			stop = append(stop, tid)
		}
	}
	same := func() error {
		now, err := tracee.Threads(p.PID)
		if err == nil && slices.ContainsFunc(now, func(tid int) bool { return !slices.Contains(tids, tid) }) {
			err = errMoved
		}
		return err
	}
	return tracee.Hold(stop, func(threads []tracee.Stopped) error {
		if err := errors.Join(same(), p.unshared(tids)); err != nil {
			return err
		}
		if err := look(threads, places); err != nil {
			return err
		}
		err := same()
		for _, q := range quiet {
			_, pc, ok := waiting(p.PID, q.tid)
			if s, gone := p.status(q.tid); gone != nil || !ok || pc != q.place || s.switches != q.switches {
				disturb[q.tid] = true
				err = errMoved
			}
		}
		return err
	})
}

// unshared says whether the process's memory is its own: no child of it runs there, or has the trampolines' file from a fork that the agent has not seen.
func (p *Process) unshared(tids []int) error {
	var st unix.Stat_t
	if err := unix.Fstat(p.fds[0], &st); err != nil {
		return err
	}
	for _, tid := range tids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.PID, tid)) // proc(5): needs CONFIG_PROC_CHILDREN
		if err != nil {
			return err
		}
		for _, f := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return err
			}
			maps, err := tracee.Maps(child)
			if err != nil && !errors.Is(err, tracee.ErrGone) {
				return err
			}
			if slices.ContainsFunc(maps, func(m tracee.Mapping) bool { return m.Inode == st.Ino && m.Path == "/memfd:"+memoryName }) {
				return errShared
			}
		}
	}
	return nil
}

// A status is what of a thread's status is needed; proc(5).
type status struct {
	switches uint64 // how often it went off a processor
	filtered bool   // by seccomp
}

func (p *Process) status(tid int) (s status, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", p.PID, tid))
	if err != nil {
		return s, err
	}
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch string(name) {
		case "Seccomp":
			s.filtered = string(bytes.TrimSpace(value)) != "0"
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return s, err
			}
			s.switches += n
		}
	}
	return s, nil
}

// --- what leads to trampolines ----------------------------------------------------------------------------------------------------

// A finder notes which old trampolines values lead to.
type finder struct {
	graves []grave // by address
	found  []bool
	lo, hi uint64
	pages  [1 << 10]uint64 // a bit for each page that has some, by its hash
}

func newFinder(graves []grave) *finder {
	f := &finder{graves: graves, found: make([]bool, len(graves))}
	if n := len(graves); n > 0 {
		f.lo, f.hi = graves[0].at, graves[n-1].at+uint64(graves[n-1].n)
	}
	for _, g := range graves {
		for a := g.at / patch.PageSize; a <= (g.at+uint64(g.n)-1)/patch.PageSize; a++ {
			h := pageHash(a)
			f.pages[h/64] |= 1 << (h % 64)
		}
	}
	return f
}

func pageHash(page uint64) uint64 { return page * 0x9e3779b97f4a7c15 >> 48 }

func (f *finder) value(v uint64) {
	if v < f.lo || v >= f.hi {
		return
	}
	if h := pageHash(v / patch.PageSize); f.pages[h/64]>>(h%64)&1 == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(f.graves, v, func(g grave, v uint64) int {
		if g.at+uint64(g.n) <= v {
			return -1
		}
		return 1
	})
	if i < len(f.graves) && f.graves[i].at <= v {
		f.found[i] = true
	}
}

func (f *finder) bytes(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		f.value(binary.LittleEndian.Uint64(b))
	}
}

// lookThrough looks through all memory that the process can have written to but what it shares with us alone, in which nobody comes back to anything, and our index.
func (p *Process) lookThrough(f *finder) error {
	maps, err := tracee.Maps(p.PID)
	if err != nil {
		return err
	}
	skip := slices.Clone(p.blocks)
	for _, a := range p.arenas {
		skip = append(skip, patch.Range{Lo: a.at, Hi: a.at + a.bytes})
	}
	for _, a := range p.descriptions {
		skip = append(skip, patch.Range{Lo: a.at, Hi: a.at + a.bytes})
	}
	skip = union(skip)
	end := time.Now().Add(reclaimTime)
	left, buf := reclaimMost, make([]byte, 1<<20)
	read := func(r patch.Range) error {
		for lo := r.Lo; lo < r.Hi; {
			b := buf[:min(uint64(len(buf)), r.Hi-lo)]
			if left -= len(b); left < 0 || time.Now().After(end) {
				return errLong
			}
			if err := p.read(lo, b); err != nil {
				return err
			}
			f.bytes(b)
			lo += uint64(len(b))
		}
		return nil
	}
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", p.PID))
	if err != nil {
		return err
	}
	defer pagemap.Close()
	for i := range maps {
		m := &maps[i]
		if strings.HasPrefix(m.Path, "/memfd:ripstop") || m.Path == "[vvar]" || m.Path == "[vvar_vclock]" || m.Path == "[vsyscall]" || m.Shared && !m.Write {
			continue
		}
		for _, r := range subtract([]patch.Range{{Lo: uint64(m.Start), Hi: uint64(m.End)}}, skip) {
			list := []patch.Range{r}
			if !m.Shared {
				if list, err = ownPages(pagemap, r); err != nil {
					return err
				}
			}
			for _, r := range list {
				if err := read(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ownPages gives what of private memory has contents other than its file's; Linux, Documentation/admin-guide/mm/pagemap.rst.
func ownPages(pagemap *os.File, r patch.Range) (list []patch.Range, err error) {
	const (
		present, swapped, file = 1 << 63, 1 << 62, 1 << 61
		entries                = 1 << 13
	)
	var b [8 * entries]byte
	for lo := r.Lo; lo < r.Hi; {
		n := min((r.Hi-lo)/patch.PageSize, entries)
		if _, err := pagemap.ReadAt(b[:8*n], int64(lo/patch.PageSize*8)); err != nil {
			return nil, fmt.Errorf("%s: %w", pagemap.Name(), err)
		}
		for i := range n {
			e := binary.LittleEndian.Uint64(b[8*i:])
			if e&swapped == 0 && (e&present == 0 || e&file != 0) {
				continue
			}
			page := lo + i*patch.PageSize
			if k := len(list); k > 0 && list[k-1].Hi == page {
				list[k-1].Hi += patch.PageSize
			} else {
				list = append(list, patch.Range{Lo: page, Hi: page + patch.PageSize})
			}
		}
		lo += n * patch.PageSize
	}
	return list, nil
}
