package perf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	magic          = "PERFILE2"
	magicSwapped   = "2ELIFREP"
	magicOld       = "PERFFILE"
	fileHeaderSize = 104
	pipeHeaderSize = 16
	sectionSize    = 16
	maxFeature     = 64 << 20 // bytes of one feature that are read: BPF programs have the most, some MB
	maxAttrs       = 64 << 20 // bytes of all attributes and ids
)

// A section is a part of the file, in bytes from its beginning.
type section struct{ Offset, Size uint64 }

func (s *section) fields(c *codec) {
	c.u64(&s.Offset)
	c.u64(&s.Size)
}

// header is struct perf_file_header.
type header struct {
	magic                   [8]byte
	size, attrSize          uint64
	attrs, data, eventTypes section
	features                FeatureSet
}

func (h *header) fields(c *codec) {
	c.fixed(h.magic[:])
	c.u64(&h.size)
	c.u64(&h.attrSize)
	h.attrs.fields(c)
	h.data.fields(c)
	h.eventTypes.fields(c)
	for i := range h.features {
		c.u64(&h.features[i])
	}
}

// An Entry is one record with what surrounds it.
type Entry struct {
	Offset   int64 // in the file, of the record; of one that was compressed, of the COMPRESSED record that it ends in
	Misc     Misc
	Size     int // of the record in bytes, with header and identity
	Record   Record
	Event    int // number in Reader.Events of the event it is of; -1: of none
	Identity Identity
	Inflated bool // it was compressed

	// Payload is what follows an AUXTRACE or TRACING_DATA record, else nil. It can be read until the next call of Next; it lies in the file
	// at Offset+Size.
	Payload io.Reader
}

// A Reader gives the records of a file or a pipe. Its memory does not grow with the number of records: beside the features it keeps one
// record at a time, and the window if records are compressed (at most 128 MiB).
type Reader struct {
	Events     []Event // in a pipe, those of the ATTR records so far
	Info       Info    // in a pipe, of the FEATURE records so far
	Pipe       bool    // the short header: events and features come as records
	BigEndian  bool
	Unfinished bool    // perf did not come to write the end: no features
	Damage     []error // features that could not be read; records can

	order   byteOrder
	src     *bufio.Reader
	off     int64 // of the next byte of src
	end     int64 // of the records; MaxInt64 if it is not known
	payload *io.LimitedReader
	byID    map[uint64]int
	inner   *stream
	innerAt int64
	err     error // that ended the records
}

// NewPipeReader gives a reader of a pipe as perf record -o - writes it. A file made of a pipe can also be read by NewReader.
func NewPipeReader(src io.Reader) (*Reader, error) {
	r := &Reader{Pipe: true, src: bufio.NewReaderSize(src, 256<<10), end: math.MaxInt64, byID: map[uint64]int{}}
	head := make([]byte, pipeHeaderSize)
	if n, err := io.ReadFull(r.src, head); err != nil {
		return nil, &Error{int64(n), "header", readError(err)}
	}
	size, err := r.magic(head)
	if err != nil {
		return nil, err
	}
	if size != pipeHeaderSize {
		return nil, &Error{8, "header", fmt.Errorf("%w: a pipe's header has %d bytes, this %d: a file must be read as a file", ErrFormat, pipeHeaderSize, size)}
	}
	r.off = pipeHeaderSize
	return r, nil
}

// NewReader gives a reader of a perf.data file of size bytes.
func NewReader(src io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{byID: map[uint64]int{}}
	head, err := part(src, size, section{0, pipeHeaderSize}, pipeHeaderSize)
	if err != nil {
		return nil, &Error{0, "header", err}
	}
	n, err := r.magic(head)
	if err != nil {
		return nil, err
	}
	if n == pipeHeaderSize {
		r.Pipe = true
		r.records(src, pipeHeaderSize, size)
		return r, nil
	}
	if n < fileHeaderSize {
		return nil, &Error{8, "header", fmt.Errorf("%w: %d bytes, a file's has %d", ErrSize, n, fileHeaderSize)}
	}
	if head, err = part(src, size, section{0, fileHeaderSize}, fileHeaderSize); err != nil {
		return nil, &Error{0, "header", err}
	}
	var h header
	c := codec{order: r.order, b: head}
	h.fields(&c)
	if err := r.attrs(src, size, &h); err != nil {
		return nil, err
	}
	begin, length := h.data.Offset, h.data.Size
	if begin > uint64(size) {
		return nil, &Error{40, "data section", fmt.Errorf("%w: it begins at %#x, the file has %#x bytes", ErrTruncated, begin, size)}
	}
	r.Unfinished = length == 0
	if r.Unfinished {
		length = uint64(size) - begin
	}
	if length > math.MaxInt64-begin {
		return nil, &Error{48, "data section", fmt.Errorf("%w: %#x bytes", ErrSize, length)}
	}
	r.records(src, int64(begin), int64(begin+length))
	if !r.Unfinished {
		r.features(src, size, &h)
		r.names()
	}
	return r, nil
}

func (r *Reader) records(src io.ReaderAt, begin, end int64) {
	r.off, r.end = begin, end
	r.src = bufio.NewReaderSize(io.NewSectionReader(src, begin, end-begin), 256<<10)
}

// magic takes the byte order from the first bytes and gives the header's size.
func (r *Reader) magic(head []byte) (size uint64, err error) {
	r.order = binary.LittleEndian
	switch string(head[:8]) {
	case magic:
	case magicSwapped:
		r.order, r.BigEndian = binary.BigEndian, true
	case magicOld:
		return 0, &Error{0, "header", fmt.Errorf("%w: version 1, written before 2010, cannot be read", ErrFormat)}
	default:
		return 0, &Error{0, "header", fmt.Errorf("%w: it begins with %q, not with %q", ErrFormat, head[:8], magic)}
	}
	return r.order.Uint64(head[8:]), nil
}

// part reads a section that may have at most limit bytes.
func part(src io.ReaderAt, size int64, s section, limit uint64) ([]byte, error) {
	if s.Size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrSize, s.Size, limit)
	}
	if s.Offset > uint64(size) || s.Size > uint64(size)-s.Offset {
		return nil, fmt.Errorf("%w: %#x bytes at %#x of a file of %#x", ErrTruncated, s.Size, s.Offset, size)
	}
	b := make([]byte, s.Size)
	if n, err := src.ReadAt(b, int64(s.Offset)); n < len(b) {
		return nil, readError(err)
	}
	return b, nil
}

func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

func (r *Reader) attrs(src io.ReaderAt, size int64, h *header) error {
	at := int64(h.attrs.Offset)
	b, err := part(src, size, h.attrs, maxAttrs)
	if err != nil {
		return &Error{24, "attributes", err}
	}
	if h.attrSize < attrSizeMin+sectionSize || h.attrSize > 1<<16 || uint64(len(b))%h.attrSize != 0 {
		return &Error{16, "attributes", fmt.Errorf("%w: %d bytes each, %d together", ErrSize, h.attrSize, len(b))}
	}
	all := uint64(0)
	for ; len(b) > 0; b, at = b[h.attrSize:], at+int64(h.attrSize) {
		c := codec{order: r.order, b: b[:h.attrSize]}
		var e Event
		var ids section
		e.Attr.fields(&c, int(h.attrSize-sectionSize))
		ids.fields(&c)
		if all += ids.Size; ids.Size > maxAttrs || all > maxAttrs || ids.Size%8 != 0 {
			return &Error{at, "ids of an event", fmt.Errorf("%w: %d bytes", ErrSize, ids.Size)}
		}
		raw, err := part(src, size, ids, maxAttrs)
		if err != nil {
			return &Error{at, "ids of an event", err}
		}
		c = codec{order: r.order, b: raw}
		c.restU64s(&e.IDs)
		r.addEvent(e)
	}
	return nil
}

func (r *Reader) addEvent(e Event) {
	for _, id := range e.IDs {
		r.byID[id] = len(r.Events)
	}
	r.Events = append(r.Events, e)
}

// features reads the sections that lie behind the records.
func (r *Reader) features(src io.ReaderAt, size int64, h *header) {
	at := h.data.Offset + h.data.Size
	all := h.features.All()
	table, err := part(src, size, section{at, uint64(len(all)) * sectionSize}, featureCount*sectionSize)
	if err != nil {
		r.Damage = append(r.Damage, &Error{int64(at), "features", err})
		return
	}
	c := codec{order: r.order, b: table}
	for _, f := range all {
		var s section
		s.fields(&c)
		b, err := part(src, size, s, maxFeature)
		if err == nil {
			err = r.feature(f, b)
		}
		if err != nil {
			r.Damage = append(r.Damage, &Error{int64(s.Offset), "feature " + f.String(), err})
		}
	}
}

func (r *Reader) feature(f Feature, b []byte) error {
	c := codec{order: r.order, b: b}
	r.Info.feature(f, &c)
	if c.err == nil {
		r.Info.Has.Add(f)
	}
	return c.err
}

// names gives the events the names of EVENT_DESC: by id, or, where there are none, by their order.
func (r *Reader) names() {
	for i, d := range r.Info.EventDescs {
		if len(d.IDs) > 0 {
			if k, ok := r.byID[d.IDs[0]]; ok {
				r.Events[k].Name = d.Name
			}
		} else if i < len(r.Events) && len(r.Events) == len(r.Info.EventDescs) {
			r.Events[i].Name = d.Name
		}
	}
}

// Close ends the decompression. It closes no file. The reader gives nothing afterwards.
func (r *Reader) Close() {
	if r.inner != nil {
		r.inner.stop()
	}
	r.err = errStopped
}

// Offset is where in the file the next record begins.
func (r *Reader) Offset() int64 {
	if r.payload != nil {
		return r.off + r.payload.N
	}
	return r.off
}

// Next gives the next record in the order of the file, which is not that of time. Records and bytes belong to the caller. At the end the
// error is io.EOF. With an *Error and an Entry, whose Record is then an *Unknown, that one record could not be understood and Next goes
// on behind it; with an error and no Entry there is nothing more.
func (r *Reader) Next() (*Entry, error) {
	if r.err != nil {
		return nil, r.err
	}
	e, err := r.next()
	if e == nil {
		r.err = err
		if r.inner != nil {
			r.inner.stop()
		}
	}
	return e, err
}

func (r *Reader) next() (*Entry, error) {
	for {
		if r.inner != nil {
			raw, err := r.inner.next(r.order)
			if err != nil {
				return nil, &Error{r.innerAt, "record COMPRESSED", err}
			}
			if raw != nil {
				return r.entry(r.innerAt, raw, true)
			}
		}
		if err := r.skipPayload(); err != nil {
			return nil, err
		}
		at := r.off
		raw, err := r.raw()
		if err != nil {
			return nil, err
		}
		e, err := r.entry(at, raw, false)
		if err != nil {
			return e, err
		}
		var piece []byte
		switch c := e.Record.(type) {
		case *Compressed:
			piece = c.Data
		case *Compressed2:
			piece = c.Data
		default:
			return e, nil
		}
		if r.inner == nil {
			r.inner = newStream()
		}
		r.innerAt = at
		r.inner.push(piece)
	}
}

func (r *Reader) skipPayload() error {
	if r.payload == nil {
		return nil
	}
	at := r.off
	left := r.payload.N
	r.off += left
	r.payload = nil
	if n, err := io.CopyN(io.Discard, r.src, left); err != nil {
		return &Error{at, "data of a record", fmt.Errorf("%w: %d bytes of %d", readError(err), n, left)}
	}
	return nil
}

// raw reads the bytes of a record.
func (r *Reader) raw() ([]byte, error) {
	if r.off == r.end {
		if r.inner != nil && len(r.inner.buf) > 0 {
			return nil, &Error{r.innerAt, "record COMPRESSED", ErrTruncated}
		}
		return nil, io.EOF
	}
	head, err := r.src.Peek(headerSize)
	if len(head) == 0 && err == io.EOF && r.end == math.MaxInt64 {
		r.end = r.off
		return r.raw()
	}
	if err != nil {
		return nil, &Error{r.off, "record", readError(err)}
	}
	t, size := Type(r.order.Uint32(head)), int(r.order.Uint16(head[6:]))
	if size < headerSize {
		return nil, &Error{r.off, "record " + t.String(), fmt.Errorf("%w: %d bytes, less than its header", ErrSize, size)}
	}
	raw := make([]byte, size)
	n, err := io.ReadFull(r.src, raw)
	if err != nil {
		return nil, &Error{r.off, "record " + t.String(), fmt.Errorf("%w: %d bytes of %d", readError(err), n, size)}
	}
	r.off += int64(size)
	return raw, nil
}

// entry understands a record. Its error comes with an entry if Next can go on behind it.
func (r *Reader) entry(at int64, raw []byte, inflated bool) (*Entry, error) {
	t := Type(r.order.Uint32(raw))
	e := &Entry{Offset: at, Misc: Misc(r.order.Uint16(raw[4:])), Size: len(raw), Event: -1, Inflated: inflated}
	body := raw[headerSize:]
	wrong := func(err error) (*Entry, error) {
		e.Record = &Unknown{t, body}
		return e, &Error{at, "record " + t.String(), err}
	}
	known, ok := types[t]
	if !ok {
		e.Record = &Unknown{t, body}
		return e, nil
	}
	if inflated && t >= typeUser { // perf compresses the kernel's records only; others could make the reader's memory grow without bound
		return wrong(fmt.Errorf("%w: among compressed records", ErrContents))
	}
	c := codec{order: r.order, b: body, misc: e.Misc}
	if t < typeUser && len(r.Events) > 0 {
		i, err := r.event(t, body)
		if err != nil {
			return wrong(err)
		}
		e.Event = i
		c.attr = &r.Events[i].Attr
		if n := c.attr.trailer(); t != TypeSample && n > 0 {
			if n > len(body) {
				return wrong(fmt.Errorf("%w: %d bytes, its identity alone has %d", ErrShort, len(body), n))
			}
			end := codec{order: r.order, b: body[len(body)-n:]}
			e.Identity.fields(&end, c.attr.SampleType)
			c.b = body[:len(body)-n]
		}
	}
	e.Record = known.make()
	e.Record.fields(&c)
	if c.err != nil {
		return wrong(c.err)
	}
	return r.apply(e)
}

// event finds the event of a kernel's record by its id, as perf does (tools/perf/util/evlist.c, evlist__event2evsel): records that perf made
// up have id 0 and count as the first one's.
func (r *Reader) event(t Type, body []byte) (int, error) {
	first := &r.Events[0].Attr
	if len(r.Events) == 1 || t != TypeSample && first.Flags&FlagSampleIDAll == 0 {
		return 0, nil
	}
	begin, end, ok := first.idAt()
	if !ok {
		for i := range r.Events {
			if a := &r.Events[i].Attr; a.SampleType != first.SampleType || a.ReadFormat != first.ReadFormat ||
				a.SampleRegsUser != first.SampleRegsUser || a.SampleRegsIntr != first.SampleRegsIntr || a.BranchSampleType != first.BranchSampleType {
				return 0, fmt.Errorf("%w: events have different samples and no ids", ErrID)
			}
		}
		return 0, nil
	}
	place := 8 * begin
	if t != TypeSample {
		place = len(body) - 8*end
	}
	if place < 0 || place+8 > len(body) {
		return 0, fmt.Errorf("%w: no room for the event's id", ErrShort)
	}
	id := r.order.Uint64(body[place:])
	if id == 0 {
		return 0, nil
	}
	i, ok := r.byID[id]
	if !ok {
		return 0, fmt.Errorf("%w: %d", ErrID, id)
	}
	return i, nil
}

// apply takes over what a record says about the reading of others.
func (r *Reader) apply(e *Entry) (*Entry, error) {
	switch rec := e.Record.(type) {
	case *Sample:
		e.Identity = rec.Identity
	case *Auxtrace:
		return r.follow(e, rec.Size)
	case *TracingData:
		return r.follow(e, (uint64(rec.Size)+7)&^7)
	case *HeaderAttr:
		r.addEvent(Event{Attr: rec.Attr, IDs: rec.IDs})
	case *BuildID:
		r.Info.BuildIDs = append(r.Info.BuildIDs, *rec)
		r.Info.Has.Add(FeatBuildID)
	case *HeaderFeature:
		if rec.Feature >= featureCount {
			return e, &Error{e.Offset, "record FEATURE", fmt.Errorf("%w: feature %d", ErrContents, uint64(rec.Feature))}
		}
		if err := r.feature(rec.Feature, rec.Data); err != nil {
			return e, &Error{e.Offset, "record FEATURE " + rec.Feature.String(), err}
		}
		if rec.Feature == FeatEventDesc {
			r.names()
		}
	}
	return e, nil
}

func (r *Reader) follow(e *Entry, n uint64) (*Entry, error) {
	if e.Inflated || n > uint64(r.end-r.off) {
		return nil, &Error{e.Offset, "record " + e.Record.Type().String(), fmt.Errorf("%w: %#x bytes should follow", ErrTruncated, n)}
	}
	r.payload = &io.LimitedReader{R: r.src, N: int64(n)}
	e.Payload = payload{r}
	return e, nil
}

// payload reads from the payload that is current.
type payload struct{ r *Reader }

func (p payload) Read(b []byte) (int, error) {
	if p.r.payload == nil {
		return 0, io.EOF
	}
	n, err := p.r.payload.Read(b)
	p.r.off += int64(n)
	if err == io.EOF && p.r.payload.N > 0 {
		err = &Error{p.r.off, "data of a record", ErrTruncated}
	}
	return n, err
}
