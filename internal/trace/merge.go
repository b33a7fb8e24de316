package trace

import (
	"errors"
	"fmt"
	"math"

	"github.com/ripstop/ripstop/internal/wire"
)

// LaneKey names a lane in its process.
type LaneKey struct {
	Region, Slot uint32
	Lane         uint8 // 0: the thread's events, 1: those of signal handlers that interrupted an emission
}

func (k LaneKey) String() string {
	return fmt.Sprintf("lane %d of slot %d in region %d", k.Lane, k.Slot, k.Region)
}

func (k LaneKey) less(o LaneKey) bool {
	if k.Region != o.Region {
		return k.Region < o.Region
	}
	if k.Slot != o.Slot {
		return k.Slot < o.Slot
	}
	return k.Lane < o.Lane
}

// Merger puts the events of the lanes of one process into one order: by timestamp; of equal ones those that release come first, so
// that an acquire never precedes the release it depends on; then by lane. Within a lane the order is the lane's own.
// It is for one goroutine.
type Merger struct {
	sink    func(*wire.Event)
	lanes   map[laneID]*Lane
	list    []*Lane          // all lanes, in the order of their first use
	slots   map[slotID]*slot // thread numbers by slot
	heap    []*Lane          // scratch of flushTo
	event   wire.Event       // handed to the sink
	current *Lane            // lane of event
	emitted uint64           // highest timestamp handed to the sink
	late    uint64
}

// The trace reader merges all processes in one Merger; elsewhere process is 0.
type laneID struct {
	process uint64
	key     LaneKey
}

type slotID struct {
	process      uint64
	region, slot uint32
}

// slot is what the two lanes of a slot share: the thread that has it. It changes in the order of events.
type slot struct{ thread uint32 }

// Lane is one source of events of a Merger.
type Lane struct {
	id     laneID
	slot   *slot
	words  []uint64 // whole records; those before off are emitted
	off    int
	last   uint64 // timestamp of the newest record appended
	bound  uint64 // what comes is not older
	key    uint64 // sort key of the record at off; valid in flushTo
	closed bool
}

// NewMerger returns a Merger that hands every event to sink. The event and its Words are the sink's only until it returns.
func NewMerger(sink func(*wire.Event)) *Merger {
	return &Merger{sink: sink, lanes: map[laneID]*Lane{}, slots: map[slotID]*slot{}}
}

// Lane returns the lane with key k, which exists from its first use on: until its first Bound it holds everything back.
func (m *Merger) Lane(k LaneKey) *Lane { return m.lane(laneID{key: k}) }

func (m *Merger) lane(id laneID) *Lane {
	if l := m.lanes[id]; l != nil {
		return l
	}
	sid := slotID{id.process, id.key.Region, id.key.Slot}
	s := m.slots[sid]
	if s == nil {
		s = &slot{}
		m.slots[sid] = s
	}
	l := &Lane{id: id, slot: s}
	m.lanes[id] = l
	m.list = append(m.list, l)
	return l
}

// Append copies words, which are whole records, to the end of the lane. A record that is not as the event table says, or older than
// the one before it, is an error, and then nothing of words is taken. Appending to a closed lane opens it again: slots are reused.
func (l *Lane) Append(words []uint64) error {
	last := l.last
	for at := 0; at < len(words); {
		n, err := wire.RecordWords(words[at:])
		if err == nil && at+n > len(words) {
			err = wire.ErrShort
		}
		if err != nil {
			return fmt.Errorf("%v, word %d of %d: %w", l.id.key, at, len(words), err)
		}
		w0 := words[at]
		if wire.Type(w0) != wire.TypePad {
			ts := w0 >> 8
			if ts < last {
				return fmt.Errorf("%v, word %d of %d: %v at %d is older than the event before it at %d",
					l.id.key, at, len(words), wire.Type(w0), ts, last)
			}
			last = ts
		}
		at += n
	}
	if l.off == len(l.words) {
		l.words, l.off = l.words[:0], 0
	} else if l.off >= 4096 && l.off >= len(l.words)/2 {
		l.words = l.words[:copy(l.words, l.words[l.off:])]
		l.off = 0
	}
	l.words = append(l.words, words...)
	l.last, l.closed = last, false
	return nil
}

// Bound promises that whatever is appended to the lane later has a timestamp of at least ts. Appending promises the same of the last
// record's. A smaller ts than before changes nothing.
func (l *Lane) Bound(ts uint64) {
	l.bound = max(l.bound, ts)
	l.closed = false
}

// Close says that the lane is at its end, as far as is known: it holds the others back no longer.
func (l *Lane) Close() { l.closed = true }

// Flush hands to the sink, in order, all events strictly below the smallest bound of the open lanes, or all there are when no lane is
// open. A sink cannot fail; Flush fails only for a merger that was used again from inside its sink.
func (m *Merger) Flush() error {
	if m.current != nil {
		return errors.New("trace: Flush called from the merger's own sink")
	}
	limit := uint64(math.MaxUint64)
	for _, l := range m.list {
		if !l.closed {
			limit = min(limit, max(l.bound, l.last))
		}
	}
	m.flushTo(limit)
	return nil
}

// Buffered is the number of words that wait in all lanes.
func (m *Merger) Buffered() int {
	n := 0
	for _, l := range m.list {
		n += len(l.words) - l.off
	}
	return n
}

// Late is the number of events that were appended only after younger ones had been handed on, which a lane that appears after a Flush
// (or breaks its Bound) can do. They are handed on at the next Flush.
func (m *Merger) Late() uint64 { return m.late }

// releases tells the types that come first among equal timestamps: what happens before events of other threads, and what defines
// something that the others refer to.
var releases = func() (t [256]uint64) {
	for i := range t {
		t[i] = 1
	}
	for _, id := range []wire.Type{
		wire.TypeRelease, wire.TypeSemPost, wire.TypeCondSignal, wire.TypeThreadExit, wire.TypeThreadCreate, wire.TypeChannelRelease,
		wire.TypeFutexWake, wire.TypeFork, wire.TypeBarrierArrive, wire.TypeOnceEnd, wire.TypeStack, wire.TypeStackHolding, wire.TypeModule,
		wire.TypeSigaction, wire.TypeSignalSend, wire.TypeThreadCancel, wire.TypeAtexitAdd, wire.TypeProcessEnd,
	} {
		t[id] = 0
	}
	return t
}()

// sortKey orders records by timestamp, releases first. The timestamp has 56 bits, so the shift loses none.
func sortKey(w0 uint64) uint64 { return w0>>8<<1 | releases[uint8(w0)] }

// ready moves the lane to its next record that is not a pad and tells whether that one is older than limit.
func (l *Lane) ready(limit uint64) bool {
	for l.off < len(l.words) {
		w0 := l.words[l.off]
		if wire.Type(w0) != wire.TypePad {
			l.key = sortKey(w0)
			return w0>>8 < limit
		}
		n, _ := wire.RecordWords(l.words[l.off:])
		l.off += n
	}
	return false
}

func (l *Lane) before(o *Lane) bool {
	if l.key != o.key {
		return l.key < o.key
	}
	if l.id.process != o.id.process {
		return l.id.process < o.id.process
	}
	return l.id.key.less(o.id.key)
}

// flushTo hands on everything older than limit.
func (m *Merger) flushTo(limit uint64) {
	h := m.heap[:0]
	for _, l := range m.list {
		if l.ready(limit) {
			h = append(h, l)
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	for len(h) > 0 {
		l := h[0]
		if m.run(l, limit, rival(h)) {
			siftDown(h, 0)
		} else {
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
			siftDown(h, 0)
		}
	}
	m.heap = h
	m.current = nil
}

// rival is the lane that comes next after the top of the heap, nil if none.
func rival(h []*Lane) *Lane {
	switch {
	case len(h) < 2:
		return nil
	case len(h) == 2 || h[1].before(h[2]):
		return h[1]
	}
	return h[2]
}

func siftDown(h []*Lane, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// run hands on the records of l as long as they are older than limit and come before the rival's; it tells whether l has more below
// limit.
func (m *Merger) run(l *Lane, limit uint64, rival *Lane) bool {
	m.current = l
	e := &m.event
	for {
		w := l.words[l.off:]
		n, err := wire.RecordWords(w)
		if err != nil {
			panic("BUG: a lane holds a record that Append took and cannot be measured: " + err.Error())
		}
		l.off += n
		e.TS, e.Type, e.Words = w[0]>>8, wire.Type(w[0]), w[:n:n]
		switch e.Type {
		case wire.TypeThreadStart:
			l.slot.thread = wire.DecodeThreadStart(e.Words).Self
		case wire.TypeProcess:
			// The thread of a forked child goes on under the number it had, whether or not it starts anew.
			if t := wire.DecodeProcess(e.Words).ParentThread; t != 0 {
				l.slot.thread = t
			}
		}
		e.Thread = l.slot.thread
		if e.TS < m.emitted {
			m.late++
		} else {
			m.emitted = e.TS
		}
		m.sink(e)
		if !l.ready(limit) {
			return false
		}
		if rival != nil && rival.before(l) {
			return true
		}
	}
}
