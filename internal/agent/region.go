package agent

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// maxRegionBytes bounds what a process can make us map: 64 threads with rings of 16 MiB.
const maxRegionBytes = 1 << 30

// region is one memfd of a process, mapped. Its layout is read and checked once, here; afterwards only counters, states and ring words
// are read from it, each of which may be anything.
type region struct {
	id    uint32 // number in its process
	mem   []byte
	head  *wire.Region
	slots []slot
	calls []wire.Calls // one for each slot, and one for the process's others; none where calls are not counted
}

// slot is our view of one wire.Slot.
type slot struct {
	shared *wire.Slot
	lanes  [2]lane
	inUse  bool   // the slot was seen live or done, and not freed since
	thread uint32 // number of the thread, from its own events
	// Timestamps of the last want or want-end that was drained and that was handed out; see Session.Blocked.
	waitDrained, waitHanded uint64
}

// lane is our view of one wire.Lane.
type lane struct {
	key    trace.LaneKey
	shared *wire.Lane
	words  []uint64 // the ring
	tail   uint64   // our own count: the shared one is only for the agent's eyes
	last   uint64   // timestamp of the last record drained
	merge  *trace.Lane
	// An emission that has been open for long without anything coming of it does not hold the others back for ever.
	openHead  uint64 // head when Pending was first seen
	openSince time.Time
}

// mapRegion maps and checks the region that fd is. The descriptor stays the caller's.
func mapRegion(fd int, id uint32) (*region, error) {
	// Without this seal its owner could shrink it under our mapping, and reading it would kill us with SIGBUS.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("not a memfd: %w", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("not sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Size < wire.SizeRegion || st.Size > maxRegionBytes {
		return nil, fmt.Errorf("%d bytes, which is not between %d and %d", st.Size, wire.SizeRegion, maxRegionBytes)
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	r := &region{id: id, mem: mem, head: (*wire.Region)(unsafe.Pointer(&mem[0]))}
	if err := r.layout(); err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	return r, nil
}

// layout reads where slots and rings are.
func (r *region) layout() error {
	size := uint64(len(r.mem))
	h := *r.head // one reading: what is checked is what is used
	if h.Magic != wire.Magic || h.Version != wire.Version {
		return fmt.Errorf("magic %#x version %d, not those of this ripstop", h.Magic, h.Version)
	}
	if h.Bytes > size {
		return fmt.Errorf("says it has %d bytes and has %d", h.Bytes, size)
	}
	if h.Slots == 0 || h.Slots > wire.ThreadsPerRegion {
		return fmt.Errorf("%d slots", h.Slots)
	}
	if h.SlotsOffset%8 != 0 || h.SlotsOffset < wire.SizeRegion || h.SlotsOffset > size ||
		uint64(h.Slots)*wire.SizeSlot > size-h.SlotsOffset {
		return fmt.Errorf("%d slots at %#x do not fit in %d bytes", h.Slots, h.SlotsOffset, size)
	}
	r.slots = make([]slot, h.Slots)
	for i := range r.slots {
		sl := &r.slots[i]
		sl.shared = (*wire.Slot)(unsafe.Pointer(&r.mem[h.SlotsOffset+uint64(i)*wire.SizeSlot]))
		for j := range sl.lanes {
			ln := &sl.lanes[j]
			ln.key = trace.LaneKey{Region: r.id, Slot: uint32(i), Lane: uint8(j)}
			ln.shared = &sl.shared.Lane[j]
			off, bytes := ln.shared.Offset, ln.shared.Bytes
			if bytes < 64 || bytes&(bytes-1) != 0 || off%8 != 0 || off < wire.SizeRegion || off > size || bytes > size-off {
				return fmt.Errorf("%v: a ring of %d bytes at %#x in %d bytes", ln.key, bytes, off, size)
			}
			ln.words = unsafe.Slice((*uint64)(unsafe.Pointer(&r.mem[off])), bytes/8)
			ln.tail = atomic.LoadUint64(&ln.shared.Tail)
		}
	}
	return r.layoutCalls(&h)
}

func (r *region) unmap() {
	unix.Munmap(r.mem)
	r.mem, r.head, r.slots, r.calls = nil, nil, nil, nil
}

// drain copies what is in the ring to buf (reusing its memory) and gives the room back. An error says that the counters are
// impossible; then the lane is not to be read again.
func (l *lane) drain(buf []uint64) ([]uint64, error) {
	head := atomic.LoadUint64(&l.shared.Head)
	n, size := head-l.tail, uint64(len(l.words))
	if n == 0 {
		return buf[:0], nil
	}
	if n > size {
		return buf[:0], fmt.Errorf("%v: %d words written, %d read, in a ring of %d", l.key, head, l.tail, size)
	}
	at := l.tail & (size - 1)
	first := min(n, size-at)
	buf = append(buf[:0], l.words[at:at+first]...)
	buf = append(buf, l.words[:n-first]...)
	l.tail = head
	atomic.StoreUint64(&l.shared.Tail, head)
	if atomic.LoadUint32(&l.shared.Waiting) != 0 {
		futexWakeAll((*uint32)(unsafe.Pointer(&l.shared.Tail)))
	}
	return buf, nil
}

// drained tells whether everything written has been drained.
func (l *lane) drained() bool { return atomic.LoadUint64(&l.shared.Head) == l.tail }

// empty tells whether everything written has been drained and nothing is being written.
func (l *lane) empty() bool { return atomic.LoadUint32(&l.shared.Pending) == 0 && l.drained() }

// States of a slot.
const (
	slotFree = 0
	slotLive = 1
	slotDone = 2
)
