package recover

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/ripstop/ripstop/internal/x86"
)

// A Memory says what is believed of memory that the replay has written or read.
type Memory uint8

// The beliefs.
const (
	// Proved: the memory of a process while it has no other thread (nor the recording another process), and frames of the stack that no pointer has been made to
	// since they were entered. It is taken for granted that programs do not write to the stack of others by pointers that are stray or dangling, and that neither
	// the kernel, unasked, nor processes outside the recording write to the memory of a single-threaded process (io_uring, MAP_SHARED).
	Proved Memory = iota
	// Assumed: all memory, until an atomic instruction, a fence, a system call or an unknown store, as in ProRace. It is wrong where threads race or are
	// synchronised by plain loads and stores. What turns out to be raced on goes into Options.Drop, and the recovery is done again.
	Assumed
	// None: read-only sections alone.
	None
)

// A Range is addresses from Start up to End.
type Range struct{ Start, End uint64 }

// memory is an x86.Memory that keeps only what may be believed.
type memory struct {
	sparse *x86.SparseMemory
	belief Memory
	drop   []Range             // never believed; as sortRanges leaves them
	raced  []Range             // not believed while other threads live, likewise
	used   map[uint64]struct{} // as Result.Believed
	consts *[]Constant         // of the instruction that runs
	alone  bool                // all but the thread's own block may be believed here
	fs     uint64              // where that block is, with hasFS
	hasFS  bool
	frames frames
	listed bool   // the slots' marks say what may be believed, not frames
	slot   bool   // the mark
	stored bool   // something may be known of memory besides constants
	low    uint64 // lowest address stored to since the frames above were left; only with listed
}

// What of a thread's own block may be rseq's: thread-local variables lie below the base of fs, glibc's struct pthread above it.
const (
	tlsBelow = 32 << 10
	tlsAbove = 4 << 10
)

func newMemory(o *Options) *memory {
	return &memory{consts: new([]Constant), sparse: x86.NewSparseMemory(), belief: o.Memory, raced: sortRanges(slices.Clone(o.Drop)), used: map[uint64]struct{}{}}
}

// maxBelieved bounds Result.Believed.
const maxBelieved = 1 << 16

// believes gives Result.Believed and Result.Many.
func (m *memory) believes() (cells []uint64, many bool) {
	return slices.Sorted(maps.Keys(m.used)), len(m.used) >= maxBelieved
}

// sortRanges puts ranges in order and joins those that touch; it keeps none without bytes.
func sortRanges(all []Range) []Range {
	all = slices.DeleteFunc(all, func(r Range) bool { return r.Start >= r.End })
	slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	n := 0
	for _, r := range all {
		if n > 0 && r.Start <= all[n-1].End {
			all[n-1].End = max(all[n-1].End, r.End)
			continue
		}
		all[n] = r
		n++
	}
	return all[:n]
}

// within says whether an address is in one of a few ranges.
func within(ranges []Range, addr uint64) bool {
	for _, r := range ranges {
		if addr >= r.Start && addr < r.End {
			return true
		}
	}
	return false
}

// overlap says whether bytes are in one of many ranges, as sortRanges leaves them.
func overlap(ranges []Range, addr uint64, size int) bool {
	n := len(ranges)
	if n == 0 || addr+uint64(size) <= ranges[0].Start || addr >= ranges[n-1].End {
		return false // as mostly
	}
	i, _ := slices.BinarySearchFunc(ranges, addr, func(r Range, a uint64) int { // the first that ends behind the address
		if r.End <= a {
			return -1
		}
		return 1
	})
	return i < n && ranges[i].Start < addr+uint64(size)
}

// dropped says whether bytes are not believed whatever else is known of them.
func (m *memory) dropped(addr uint64, size int) bool {
	return overlap(m.drop, addr, size) || !m.alone && overlap(m.raced, addr, size)
}

func (m *memory) believed(addr uint64, size int) bool {
	return !m.dropped(addr, size) && m.mayBelieve(addr, size)
}

// mayBelieve is believed for what is not dropped.
func (m *memory) mayBelieve(addr uint64, size int) bool {
	switch {
	case m.belief == None:
		return false
	case m.belief == Assumed:
		return true
	case m.alone && !(m.hasFS && addr-(m.fs-tlsBelow) < tlsBelow+tlsAbove): // the kernel writes the number of the processor somewhere there (rseq(2))
		return true
	case m.listed:
		return m.slot
	}
	return m.frames.private(addr, uint64(size))
}

// Load is x86.Memory's.
func (m *memory) Load(addr uint64, size int) x86.Value {
	for i := range *m.consts {
		if k := &(*m.consts)[i]; addr-k.Addr < uint64(len(k.Bytes)) {
			if b := k.Bytes[addr-k.Addr:]; len(b) >= size {
				var word [8]byte
				copy(word[:], b[:size])
				return x86.Value{Bits: binary.LittleEndian.Uint64(word[:]), Known: ^uint64(0) >> (64 - 8*size)}
			}
		}
	}
	if !m.believed(addr, size) {
		return x86.Value{}
	}
	v := m.sparse.Load(addr, size)
	if v.Known != 0 && !m.alone && len(m.used) < maxBelieved {
		m.used[addr/8] = struct{}{}
		m.used[(addr+uint64(size)-1)/8] = struct{}{}
	}
	return v
}

// Store is x86.Memory's.
func (m *memory) Store(addr uint64, size int, v x86.Value) {
	if size > 1 && m.dropped(addr, size) { // what is beside it must not depend on what is dropped: Options.Drop
		for i := range size {
			m.Store(addr+uint64(i), 1, x86.Value{Bits: v.Bits >> (8 * i) & 0xff, Known: v.Known >> (8 * i) & 0xff})
		}
		return
	}
	if !m.believed(addr, size) {
		v = x86.Value{}
	} else if addr < m.low {
		m.low = addr
	}
	m.stored = m.stored || v.Known != 0
	m.sparse.Store(addr, size, v)
}

// Forget is x86.Memory's.
func (m *memory) Forget(addr, size uint64) { m.sparse.Forget(addr, size) }

// ForgetAll is x86.Memory's.
func (m *memory) ForgetAll() {
	m.sparse.ForgetAll()
	m.low, m.stored = ^uint64(0), false
}

// left forgets, on the way backwards, what was known of frames that were not there yet when rsp was this.
func (m *memory) left(rsp x86.Value) {
	if !rsp.Whole() {
		m.ForgetAll()
	} else if m.low < rsp.Bits {
		m.sparse.Forget(m.low, rsp.Bits-m.low)
		m.low = ^uint64(0)
	}
}

// frames are those of a stack that were entered by calls that the replay saw, the outermost first.
type frames struct {
	list []frame
	rsp  uint64
}

// A frame is the stack from below the next one's return address up to its own return address, with that.
type frame struct {
	top     uint64 // where its return address lies
	pointed bool   // a pointer to it may exist
}

const (
	redZone   = 128 // bytes below rsp that a function may use (System V ABI, 'The Stack Frame')
	maxFrames = 1 << 12
)

func (f *frames) reset() { f.list = f.list[:0] }

// find gives the index of the frame that an address lies in; -1: none.
func (f *frames) find(addr uint64) int {
	n := len(f.list)
	if n == 0 || addr < f.rsp-redZone || addr >= f.list[0].top+8 {
		return -1
	}
	for n--; addr >= f.list[n].top+8; n-- {
	}
	return n
}

// private says whether nobody can have a pointer to the bytes.
func (f *frames) private(addr, size uint64) bool {
	i := f.find(addr)
	return i >= 0 && !f.list[i].pointed && addr+size <= f.list[i].top+8
}

// entered notes a call, which left its return address at rsp. It returns false if there are too many frames: then it knows of this one alone.
func (f *frames) entered(rsp uint64) bool {
	room := len(f.list) < maxFrames
	if !room {
		f.reset()
	}
	f.list = append(f.list, frame{top: rsp})
	return room
}

// moved drops the frames that rsp has left.
func (f *frames) moved(rsp uint64) {
	f.rsp = rsp
	for n := len(f.list); n > 0 && f.list[n-1].top < rsp; n-- {
		f.list = f.list[:n-1]
	}
}

// point notes that there is a pointer to an address in frame i, and makes the memory, if not nil, forget the frame.
func (f *frames) point(i int, m *x86.SparseMemory) {
	if i < 0 || f.list[i].pointed {
		return
	}
	f.list[i].pointed = true
	low := f.rsp - redZone
	if i+1 < len(f.list) {
		low = f.list[i+1].top + 8
	}
	if top := f.list[i].top + 8; low < top && m != nil {
		m.Forget(low, top-low)
	}
}

// pointAll notes that there may be pointers to anywhere.
func (f *frames) pointAll(m *x86.SparseMemory) {
	for i := range f.list {
		f.point(i, m)
	}
}
