package pmu

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// Places in the first page of an event's buffer (perf_event.h, struct perf_event_mmap_page).
const (
	pageAuxHead   = 1056
	pageAuxTail   = 1064
	pageAuxOffset = 1072
	pageAuxSize   = 1080
	leastAux      = 8 // pages
)

// An auxRing is the buffer that the processor writes packets to. What of it is whose, AUX records say.
type auxRing struct {
	page  *ring
	data  []byte
	freed bool // since the owner of this last looked
}

// mapAux maps the AUX buffer of an event whose ring is mapped: size is a power of two of pages, in bytes, and made smaller where it is not granted.
func mapAux(e event, r *ring, size int) (*auxRing, error) {
	page := unix.Getpagesize()
	for {
		*r.word(pageAuxOffset), *r.word(pageAuxSize) = uint64(len(r.mem)), uint64(size)
		mem, err := unix.Mmap(int(e), int64(len(r.mem)), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			return &auxRing{page: r, data: mem}, nil
		}
		if size /= 2; size < leastAux*page || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			return nil, fmt.Errorf("mapping %d KiB for control flow: %w; raise ulimit -l or /proc/sys/kernel/perf_event_mlock_kb", size*2>>10, err)
		}
	}
}

func (a *auxRing) close() {
	if a != nil && a.data != nil {
		_ = unix.Munmap(a.data)
		a.data = nil
	}
}

// parts gives bytes of the ring where they lie: one part, or two if they wrap.
func (a *auxRing) parts(at, n uint64) [][]byte {
	size := uint64(len(a.data))
	at %= size
	if at+n <= size {
		return [][]byte{a.data[at : at+n : at+n]}
	}
	return [][]byte{a.data[at:size:size], a.data[: n-(size-at) : n-(size-at)]}
}

// free gives all up to a place back to the kernel.
func (a *auxRing) free(upTo uint64) {
	atomic.StoreUint64(a.page.word(pageAuxTail), upTo)
	a.freed = true
}

// A flow sorts records of several processors by time and puts what their AUX buffers hold together thread by thread: an event of a thread is told by an AUX record
// each time the thread goes off a processor, so that each part is one thread's, and ends between two packets unless it is cut off (arch/x86/events/intel/pt.c,
// pt_event_stop). The file is then that of a recording by thread, which needs no records of context switches.
//
// A record may come to its buffer a moment later than one with a later time to another's. What is given to put is therefore kept until step is called with a time
// that is past for all.
type flow struct {
	out     *sample.Writer
	clock   func(time uint64) (tsc uint64)
	waiting []pending
	streams map[int]*stream // by thread id
	next    uint32          // index
	cut     uint64          // parts of which something is lost
}

// A pending is a record that waits for its turn.
type pending struct {
	time     uint64
	kind     perf.Type
	misc     perf.Misc
	event    int
	body     []byte
	pid, tid int
	aux      *auxRing // of an AUX record: where its bytes are
}

// A stream is the control flow of a thread so far.
type stream struct {
	index uint32
	seek  bool // something is lost: nothing can be read up to the next PSB
}

// overflow is an OVF packet: packets are lost here.
var overflow = []byte{0x02, 0xf3}

func newFlow(out *sample.Writer, clock func(uint64) uint64) *flow {
	return &flow{out: out, clock: clock, streams: map[int]*stream{}}
}

// step writes what waits and has no time later than until.
func (f *flow) step(until uint64) error {
	slices.SortStableFunc(f.waiting, func(a, b pending) int { return cmp.Compare(a.time, b.time) })
	n := 0
	for ; n < len(f.waiting) && f.waiting[n].time <= until; n++ {
		if err := f.write(&f.waiting[n]); err != nil {
			return err
		}
	}
	f.waiting = slices.Delete(f.waiting, 0, n)
	return nil
}

func (f *flow) write(p *pending) error {
	switch p.kind {
	case perf.TypeAux:
		return f.part(p)
	case perf.TypeFork, perf.TypeExit: // a thread id may be given out again
		delete(f.streams, p.tid)
	}
	return f.out.Raw(p.event, p.misc, p.kind, p.body, p.time)
}

// part writes a part of a buffer as its thread's.
func (f *flow) part(p *pending) error {
	a, err := auxRecord(p.body)
	if err != nil {
		return err
	}
	if a.Size > uint64(len(p.aux.data)) {
		return fmt.Errorf("BUG: an AUX record of %d bytes in a buffer of %d", a.Size, len(p.aux.data))
	}
	s := f.streams[p.tid]
	if s == nil {
		s = &stream{index: f.next}
		f.next++
		f.streams[p.tid] = s
	}
	parts := p.aux.parts(a.Offset, a.Size)
	const lost = perf.AuxTruncated | perf.AuxPartial
	parts = s.resume(parts)
	if a.Flags&lost != 0 {
		f.cut++
		if !s.seek {
			parts = append(whole(parts), overflow)
		}
		s.seek = true
	}
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	if n > 0 || a.Flags&lost != 0 {
		err = f.out.Flow(s.index, int32(p.pid), int32(p.tid), a.Flags, f.clock(p.time), parts...)
	}
	p.aux.free(a.Offset + a.Size)
	return err
}

// resume leaves out what cannot be read behind a loss: all up to the next PSB.
func (s *stream) resume(parts [][]byte) [][]byte {
	if !s.seek {
		return parts
	}
	b := bytes.Join(parts, nil) // rare
	d := pt.NewDecoder(b, 0)
	if d.Sync() != nil {
		return nil // no packet is in two parts
	}
	s.seek = false
	return [][]byte{b[d.Offset():]}
}

// whole gives what is before a packet that was cut off at the end, as far as a PSB before it lets that be read.
func whole(parts [][]byte) [][]byte {
	b := bytes.Join(parts, nil)
	d := pt.NewDecoder(b, 0)
	if d.Sync() != nil {
		return nil
	}
	var p pt.Packet
	for d.Next(&p) == nil {
		_ = p // up to the end, or what cannot be read
	}
	return [][]byte{b[:d.Offset()]}
}

// auxRecord reads an AUX record.
func auxRecord(body []byte) (a perf.Aux, err error) {
	le := binary.LittleEndian
	if len(body) < 24 {
		return a, fmt.Errorf("BUG: an AUX record of %d bytes", len(body))
	}
	return perf.Aux{Offset: le.Uint64(body), Size: le.Uint64(body[8:]), Flags: le.Uint64(body[16:])}, nil
}
