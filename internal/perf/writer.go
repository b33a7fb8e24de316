package perf

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// appendRecord appends a record of an event; attr and identity may be nil where the record needs none.
func appendRecord(b []byte, order byteOrder, attr *Attr, misc Misc, rec Record, id *Identity) ([]byte, error) {
	start := len(b)
	t := rec.Type()
	c := codec{order: order, write: true, b: append(b, make([]byte, headerSize)...), start: start, misc: misc, attr: attr}
	if id, ok := rec.(*BuildID); ok {
		c.misc |= id.Misc
	}
	rec.fields(&c)
	if _, opaque := rec.(*Unknown); !opaque && t < typeUser && t != TypeSample && attr != nil && attr.trailer() > 0 {
		id.fields(&c, attr.SampleType)
	}
	size := len(c.b) - start
	switch {
	case c.err != nil:
	case size > maxRecord:
		c.fail(ErrSize, "%d bytes, a record has at most %d", size, maxRecord)
	case t < typeUser && size%recordAlign != 0:
		c.fail(ErrSize, "%d bytes, a record of the kernel has whole words", size)
	}
	if c.err != nil {
		return b, &Error{0, "record " + t.String() + " to be written", c.err}
	}
	order.PutUint32(c.b[start:], uint32(t))
	order.PutUint16(c.b[start+4:], uint16(c.misc))
	order.PutUint16(c.b[start+6:], uint16(size))
	return c.b, nil
}

// A Writer writes a perf.data file, or a pipe. Errors of the output are given as they are.
type Writer struct {
	Omitted []Feature // of a pipe: those that do not fit a record

	out    io.Writer
	seek   io.WriteSeeker // nil: a pipe
	order  byteOrder
	events []Event
	off    uint64
	head   header
	aux    []AuxIndexEntry
	buf    []byte
}

func orderOf(bigEndian bool) byteOrder {
	if bigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// magicOf is the magic number as that byte order has it.
func magicOf(order byteOrder) (m [8]byte) {
	copy(m[:], magic)
	if order == binary.BigEndian {
		copy(m[:], magicSwapped)
	}
	return m
}

// attrSize is the size that all attributes of a file have.
func attrSize(events []Event) (size uint32) {
	for i := range events {
		size = max(size, events[i].Attr.Size)
	}
	if size == 0 {
		size = attrSizeDefault
	}
	return size
}

// NewWriter begins a file, at the beginning of out, with records of these events.
func NewWriter(out io.WriteSeeker, events []Event, bigEndian bool) (*Writer, error) {
	w := &Writer{out: out, seek: out, order: orderOf(bigEndian), events: events}
	w.head = header{magic: magicOf(w.order), size: fileHeaderSize}
	size := attrSize(events)
	if size > attrSizeDefault { // perf 6.1 reads no larger ones in a file
		long := func(e Event) bool { return e.Attr.Config3 != 0 || e.Attr.Config4 != 0 }
		if !slices.ContainsFunc(events, long) {
			size = attrSizeDefault
		}
	}
	w.head.attrSize = uint64(size) + sectionSize
	c := codec{order: w.order, write: true, b: make([]byte, fileHeaderSize)}
	ids := make([]section, len(events))
	for i := range events {
		ids[i] = section{uint64(len(c.b)), 8 * uint64(len(events[i].IDs))}
		c.u64s(&events[i].IDs, 0)
	}
	w.head.attrs = section{uint64(len(c.b)), uint64(len(events)) * w.head.attrSize}
	for i := range events {
		a := events[i].Attr
		a.Size = size // perf takes the size in the attribute for the one in the file
		a.fields(&c, int(size))
		ids[i].fields(&c)
	}
	w.head.data.Offset = uint64(len(c.b))
	if c.err != nil {
		return nil, &Error{0, "attributes to be written", c.err}
	}
	return w, w.emit(c.b)
}

// NewPipeWriter begins a pipe: the events and what info has come as records. BUILD_ID comes where it is
// written as a record. A feature of more than 64 KiB has no place in a pipe:
// Omitted has it, as perf leaves it out.
func NewPipeWriter(out io.Writer, events []Event, info *Info, bigEndian bool) (*Writer, error) {
	w := &Writer{out: out, order: orderOf(bigEndian), events: events}
	m := magicOf(w.order)
	if err := w.emit(w.order.AppendUint64(m[:], pipeHeaderSize)); err != nil {
		return nil, err
	}
	for i := range events {
		if err := w.Write(&Entry{Event: -1, Record: &HeaderAttr{events[i].Attr, events[i].IDs}}); err != nil {
			return nil, err
		}
	}
	for _, f := range info.Has.All() {
		if f == FeatBuildID || f == FeatAuxtrace || f == FeatTracingData {
			continue
		}
		c := codec{order: w.order, write: true}
		info.feature(f, &c)
		if c.err != nil {
			return nil, &Error{0, "feature " + f.String() + " to be written", c.err}
		}
		// Not padded: perf takes bytes behind a CPU_TOPOLOGY without dies for a list of dies.
		if len(c.b)+2*headerSize > maxRecord {
			w.Omitted = append(w.Omitted, f)
			continue
		}
		if err := w.Write(&Entry{Event: -1, Record: &HeaderFeature{f, c.b}}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *Writer) emit(b []byte) error {
	n, err := w.out.Write(b)
	w.off += uint64(n)
	return err
}

// Write writes a record: of e, Misc, Record, Identity (of a sample, its own), Event and Payload count. Event must name the event of each
// record of the kernel, whose attributes say how it looks.
func (w *Writer) Write(e *Entry) error {
	var attr *Attr
	t := e.Record.Type()
	if t < typeUser {
		if e.Event < 0 || e.Event >= len(w.events) {
			if len(w.events) > 0 {
				return &Error{int64(w.off), "record " + t.String() + " to be written", fmt.Errorf("%w: event %d of %d", ErrID, e.Event, len(w.events))}
			}
		} else {
			attr = &w.events[e.Event].Attr
		}
	}
	b, err := appendRecord(w.buf[:0], w.order, attr, e.Misc, e.Record, &e.Identity)
	if err != nil {
		return err
	}
	w.buf = b
	at := w.off
	if err := w.emit(b); err != nil {
		return err
	}
	follows := uint64(0)
	switch r := e.Record.(type) {
	case *Auxtrace:
		follows = r.Size
		w.aux = append(w.aux, AuxIndexEntry{at, uint64(len(b))})
	case *TracingData:
		follows = (uint64(r.Size) + 7) &^ 7
	}
	if follows == 0 {
		return nil
	}
	if e.Payload == nil {
		return &Error{int64(at), "record " + t.String() + " to be written", fmt.Errorf("%w: %d bytes should follow", ErrShort, follows)}
	}
	n, err := io.CopyN(w.out, e.Payload, int64(follows))
	w.off += uint64(n)
	return err
}

// WriteAuxtrace writes a part of an AUX area from where it lies: each of data is handed to the output as it is. r.Size is set to their length; AUX areas are whole
// words (perf's auxtrace.c), so it must be a multiple of 8.
func (w *Writer) WriteAuxtrace(r *Auxtrace, data ...[]byte) error {
	r.Size = 0
	for _, d := range data {
		r.Size += uint64(len(d))
	}
	if r.Size%recordAlign != 0 {
		return &Error{int64(w.off), "record " + r.Type().String() + " to be written", fmt.Errorf("%w: %d bytes are not whole words", ErrSize, r.Size)}
	}
	b, err := appendRecord(w.buf[:0], w.order, nil, 0, r, nil)
	if err != nil {
		return err
	}
	w.buf = b
	w.aux = append(w.aux, AuxIndexEntry{w.off, uint64(len(b))})
	for _, d := range append([][]byte{b}, data...) {
		if err := w.emit(d); err != nil {
			return err
		}
	}
	return nil
}

// Finish ends a file with the features that info has, and completes its header; it closes nothing. AUXTRACE is the writer's own: an index of
// the AUXTRACE records written. Of a pipe there is nothing to finish.
func (w *Writer) Finish(info *Info) error {
	if w.seek == nil {
		return nil
	}
	if w.off == w.head.data.Offset { // a file without records is taken for an unfinished one, here and by perf
		if err := w.Write(&Entry{Record: &FinishedRound{}}); err != nil {
			return err
		}
	}
	w.head.data.Size = w.off - w.head.data.Offset
	mine := *info
	mine.AuxIndex = w.aux
	mine.Has[FeatAuxtrace/64] &^= 1 << FeatAuxtrace
	if len(w.aux) > 0 {
		mine.Has.Add(FeatAuxtrace)
	}
	w.head.features = mine.Has
	all := mine.Has.All()
	table := codec{order: w.order, write: true}
	body := codec{order: w.order, write: true}
	base := w.off + uint64(len(all))*sectionSize
	for _, f := range all {
		at := len(body.b)
		body.start = at
		mine.feature(f, &body)
		if body.err != nil {
			return &Error{0, "feature " + f.String() + " to be written", body.err}
		}
		s := section{base + uint64(at), uint64(len(body.b) - at)}
		s.fields(&table)
	}
	if err := w.emit(append(table.b, body.b...)); err != nil {
		return err
	}
	if _, err := w.seek.Seek(0, io.SeekStart); err != nil {
		return err
	}
	head := codec{order: w.order, write: true}
	w.head.fields(&head)
	_, err := w.out.Write(head.b)
	return err
}
