package analyze

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
)

// A record is one thing that a thread did, as it waits on disk.
type record struct {
	From, To       uint64 // TSC: it was within; of a record that has its place, From is that
	Addr, Size, PC uint64
	Owner          uint32 // of a record that has its place: index in owners.all
	What           what
	Kind           race.Kind
	How            recover.How
	Stack          uint32 // in stacks; 0: PC is all that is known
}

type what uint8

const (
	isAccess what = iota
	isOrder       // an atomic instruction or a gap; see race.Order
	isOut         // the thread was outside of the program's code: its own events are here

	// Of a shard's list of cells: Addr is the cell.
	isBelieved   // as recover.Result.Believed
	isAtomicCell // an atomic instruction accessed it
)

const recordSize = 56

func (r *record) append(b []byte) []byte {
	for _, v := range []uint64{r.From, r.To, r.Addr, r.Size, r.PC} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Owner)|uint64(r.What)<<32|uint64(r.Kind)<<40|uint64(r.How)<<56)
	return binary.LittleEndian.AppendUint64(b, uint64(r.Stack))
}

func (r *record) decode(b []byte) {
	for i, p := range []*uint64{&r.From, &r.To, &r.Addr, &r.Size, &r.PC} {
		*p = binary.LittleEndian.Uint64(b[8*i:])
	}
	v := binary.LittleEndian.Uint64(b[40:])
	r.Owner, r.What, r.Kind, r.How = uint32(v), what(v>>32), race.Kind(v>>40), recover.How(v>>56)
	r.Stack = uint32(binary.LittleEndian.Uint64(b[48:]))
}

// runs are lists of records in one temporary file, which has no name: nothing of it is left whatever ends ripstop. Each is read in the order in which it was written.
type runs struct {
	f     *os.File
	size  int64
	lists []run
	parts int    // lists from here on are not merged: they are what join takes; 0: there are none
	spare []byte // an empty write buffer
	// rising says that From may be less than before in a list, and then means the latest before: what comes later on a path was not earlier.
	rising bool
}

type run struct {
	chunks []chunk
	buf    []byte
}

type chunk struct{ off, size int64 }

const (
	writeBuffer = 340 * recordSize
	readBuffer  = 340 * recordSize
)

func newRuns(n int) (*runs, error) {
	f, err := os.CreateTemp("", "ripstop-analyze-*")
	if err != nil {
		return nil, fmt.Errorf("accesses are kept in a temporary file: %w; TMPDIR chooses another directory", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &runs{f: f, lists: make([]run, n)}, nil
}

// Close gives the file's room back.
func (r *runs) Close() error { return r.f.Close() }

func (r *runs) add(list int, rec *record) error {
	l := &r.lists[list]
	if l.buf == nil {
		if l.buf, r.spare = r.spare, nil; l.buf == nil {
			l.buf = make([]byte, 0, writeBuffer)
		}
	}
	if l.buf = rec.append(l.buf); len(l.buf) < writeBuffer {
		return nil
	}
	return r.flush(l)
}

func (r *runs) flush(l *run) error {
	if len(l.buf) == 0 {
		return nil
	}
	if _, err := r.f.WriteAt(l.buf, r.size); err != nil {
		return fmt.Errorf("accesses are kept in a temporary file: %w; TMPDIR chooses another directory", err)
	}
	n := int64(len(l.buf))
	if k := len(l.chunks) - 1; k >= 0 && l.chunks[k].off+l.chunks[k].size == r.size {
		l.chunks[k].size += n
	} else {
		l.chunks = append(l.chunks, chunk{r.size, n})
	}
	r.size += n
	l.buf = l.buf[:0]
	return nil
}

// done ends a list: its memory is given back.
func (r *runs) done(list int) error {
	l := &r.lists[list]
	err := r.flush(l)
	if l.buf != nil {
		l.buf, r.spare = nil, l.buf
	}
	return err
}

// join makes a list of what others have, which are done.
func (r *runs) join(list int, others ...int) {
	l := &r.lists[list]
	l.chunks = l.chunks[:0]
	for _, o := range others {
		l.chunks = append(l.chunks, r.lists[o].chunks...)
	}
}

// each reads one list, which is done.
func (r *runs) each(list int, do func(*record)) error {
	m := &merge{runs: r}
	c := &cursor{list: list}
	for {
		switch err := m.advance(c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		do(&c.record)
	}
}

func (r *runs) finish() error {
	for i := range r.lists {
		if err := r.done(i); err != nil {
			return err
		}
	}
	return nil
}

// A merge reads all lists of runs, each of which must be ascending by From, as one; of one time accesses come first, then lists in their order.
type merge struct {
	runs *runs
	h    mergeHeap
}

type cursor struct {
	record
	list  int
	chunk int
	at    int64 // in the chunk
	last  uint64
	buf   []byte
	rest  []byte
}

type mergeHeap []*cursor

func (h mergeHeap) Len() int      { return len(h) }
func (h mergeHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h mergeHeap) Less(i, k int) bool {
	a, b := h[i], h[k]
	if a.From != b.From {
		return a.From < b.From
	}
	if x, y := a.What == isOrder, b.What == isOrder; x != y {
		return y
	}
	return a.list < b.list
}
func (h *mergeHeap) Push(x any) { *h = append(*h, x.(*cursor)) }
func (h *mergeHeap) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

func (r *runs) merge() (*merge, error) {
	m := &merge{runs: r}
	n := len(r.lists)
	if r.parts > 0 {
		n = r.parts
	}
	for i := range n {
		c := &cursor{list: i}
		switch err := m.advance(c); {
		case err == nil:
			m.h = append(m.h, c)
		case !errors.Is(err, io.EOF):
			return nil, err
		}
	}
	heap.Init(&m.h)
	return m, nil
}

// advance reads the next record of a list; io.EOF: there is none.
func (m *merge) advance(c *cursor) error {
	if len(c.rest) == 0 {
		chunks := m.runs.lists[c.list].chunks
		for c.chunk < len(chunks) && c.at == chunks[c.chunk].size {
			c.chunk, c.at = c.chunk+1, 0
		}
		if c.chunk == len(chunks) {
			c.buf = nil
			return io.EOF
		}
		k := chunks[c.chunk]
		n := min(readBuffer, k.size-c.at)
		if c.buf == nil {
			c.buf = make([]byte, readBuffer)
		}
		if _, err := m.runs.f.ReadAt(c.buf[:n], k.off+c.at); err != nil {
			return fmt.Errorf("accesses in a temporary file: %w", err)
		}
		c.at += n
		c.rest = c.buf[:n]
	}
	c.decode(c.rest)
	c.rest = c.rest[recordSize:]
	if m.runs.rising {
		c.last = max(c.last, c.From)
		c.From, c.To = c.last, max(c.To, c.last)
	}
	return nil
}

// peek gives the next record and its list; nil: there is none. It is valid until next.
func (m *merge) peek() (*record, int) {
	if len(m.h) == 0 {
		return nil, 0
	}
	return &m.h[0].record, m.h[0].list
}

func (m *merge) next() error {
	switch err := m.advance(m.h[0]); {
	case err == nil:
		heap.Fix(&m.h, 0)
	case errors.Is(err, io.EOF):
		heap.Pop(&m.h)
	default:
		return err
	}
	return nil
}
