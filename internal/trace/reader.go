package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/ripstop/ripstop/internal/wire"
)

// Reader reads a trace directory. It is for one goroutine.
type Reader struct {
	dir       string
	meta      Meta
	file      *os.File
	chunks    []chunkRef        // in the order of their first event
	lanes     map[laneID]uint32 // number of chunks
	limits    map[uint64]uint64 // of a truncated trace: events of a process are complete below this
	gone      map[uint64]bool   // processes that ended while they were recorded
	truncated string
	leftOut   atomic.Uint64
}

// chunkRef is what stays in memory of a chunk.
type chunkRef struct {
	ts     uint64 // of its first event
	offset int64
}

// Open opens the trace in dir and looks through it once, so that it is known how far it is whole.
func Open(dir string) (*Reader, error) {
	meta, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, eventsName)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", dir, err)
	}
	r := &Reader{dir: dir, meta: meta, file: f, lanes: map[laneID]uint32{}, limits: map[uint64]uint64{}, gone: map[uint64]bool{}}
	if err := r.scan(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Meta is what meta.json says.
func (r *Reader) Meta() Meta { return r.meta }

// Truncated says why the trace is not whole, in words for the user; empty if it is.
func (r *Reader) Truncated() string { return r.truncated }

// Gone tells whether the process ended while it was recorded. Of one that did not, the trace holds only the beginning.
func (r *Reader) Gone(process uint64) bool { return r.gone[process] }

// LeftOut is the number of events that the last call of Events left out because the trace is truncated: they lie beyond the point up to
// which the events of all threads of their process are there.
func (r *Reader) LeftOut() uint64 { return r.leftOut.Load() }

// Close releases the file.
func (r *Reader) Close() error { return r.file.Close() }

// scan reads the whole file, checks every chunk and notes where it is. A damaged file ends before its first bad chunk.
func (r *Reader) scan() error {
	in := bufio.NewReaderSize(r.file, 1<<18)
	head := make([]byte, fileHeaderSize)
	if _, err := io.ReadFull(in, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.truncated = "it ends within its header: there are no events"
		return nil
	} else if err != nil {
		return err
	}
	if err := checkFileHeader(head); err != nil {
		return err
	}
	var payload []uint64
	for at := int64(fileHeaderSize); ; {
		c, w, err := readChunk(in, payload[:0])
		payload = w
		switch {
		case errors.Is(err, errRead):
			return err
		case err != nil:
			r.cutOff(at, err)
			r.sortChunks()
			return nil
		case c.kind == chunkEnd:
			r.finish(in)
			r.sortChunks()
			return nil
		}
		r.note(c, at, w)
		at += chunkHeaderSize + int64(len(w))*8
	}
}

func (r *Reader) cutOff(at int64, err error) {
	why := err.Error()
	if errors.Is(err, io.EOF) {
		why = "the recorder was killed or still runs"
	}
	r.truncated = fmt.Sprintf("it ends after %d bytes (%s); shown is what was complete by then", at, why)
}

// finish is reached behind the last chunk of a complete trace.
func (r *Reader) finish(in *bufio.Reader) {
	if _, err := in.Peek(1); err == nil {
		r.truncated = "there is something behind its end, which is not read"
	}
	r.limits = nil
}

// errRead marks an error of reading, in contrast to one of what was read.
var errRead = errors.New("read failed")

// readChunk reads a chunk and checks it. io.EOF: the file ends before it.
func readChunk(in io.Reader, words []uint64) (chunk, []uint64, error) {
	var h [chunkHeaderSize]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return chunk{}, words, readError(err, io.EOF)
	}
	c, err := decodeChunk(h[:])
	if err != nil {
		return c, words, err
	}
	words = slices.Grow(words, int(c.words))[:c.words]
	payload := wordBytes(words)
	if _, err := io.ReadFull(in, payload); err != nil {
		return c, words, readError(err, nil)
	}
	if crc := chunkCRC(h[:], payload); crc != c.crc {
		return c, words, errors.New("the next chunk's checksum is wrong")
	}
	switch c.kind {
	case chunkEvents, chunkBound, chunkGone, chunkEnd:
	default:
		return c, words, fmt.Errorf("the next chunk is of the unknown kind %d", c.kind)
	}
	return c, words, nil
}

// readError gives eof for the end of the file where it may be.
func readError(err, eof error) error {
	switch {
	case errors.Is(err, io.EOF) && eof != nil:
		return eof
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the next chunk is not whole")
	}
	return fmt.Errorf("%w: %w", errRead, err)
}

func (r *Reader) note(c chunk, at int64, words []uint64) {
	if _, ok := r.limits[c.process]; !ok {
		r.limits[c.process] = 0
	}
	switch c.kind {
	case chunkEvents:
		if ts, ok := firstTS(words); ok {
			r.chunks = append(r.chunks, chunkRef{ts, at})
			r.lanes[laneID{c.process, c.key}]++
		}
	case chunkBound:
		r.limits[c.process] = max(r.limits[c.process], c.value)
	case chunkGone:
		r.limits[c.process] = math.MaxUint64
		r.gone[c.process] = true
	}
}

// firstTS is the timestamp of the first record that is not a pad; false: there is none. Words that are no records have one, so that
// Events comes to them and says so.
func firstTS(words []uint64) (uint64, bool) {
	for at := 0; at < len(words); {
		if wire.Type(words[at]) != wire.TypePad {
			return words[at] >> 8, true
		}
		n, err := wire.RecordWords(words[at:])
		if err != nil || at+n > len(words) {
			return 0, true
		}
		at += n
	}
	return 0, false
}

func (r *Reader) sortChunks() {
	slices.SortFunc(r.chunks, func(a, b chunkRef) int {
		return cmp.Or(cmp.Compare(a.ts, b.ts), cmp.Compare(a.offset, b.offset))
	})
}

// Events calls fn for every event, in order over all processes as a Merger orders. The event and its Words are fn's only until it
// returns. An error of fn ends it and is returned. Events may be called again, and then begins anew, by several goroutines at once, too. At any time it holds about one
// chunk of every lane that has events at that time.
func (r *Reader) Events(fn func(process uint64, e *wire.Event) error) error {
	var m *Merger
	var failed error // of fn
	var leftOut uint64
	defer func() { r.leftOut.Store(leftOut) }()
	m = NewMerger(func(e *wire.Event) {
		l := m.current
		if failed != nil {
			return
		}
		if limit, ok := r.limits[l.id.process]; ok && e.TS >= limit {
			leftOut++
			return
		}
		failed = fn(l.id.process, e)
	})
	left := make(map[laneID]uint32, len(r.lanes))
	var words []uint64
	done := 0 // lanes whose last chunk is in the merger
	for _, ref := range r.chunks {
		m.flushTo(ref.ts)
		if failed != nil {
			return failed
		}
		c, w, err := readChunk(io.NewSectionReader(r.file, ref.offset, math.MaxInt64-ref.offset), words[:0])
		words = w
		if err != nil {
			return fmt.Errorf("trace %s, byte %d: %w (it was whole when it was opened)", r.dir, ref.offset, err)
		}
		id := laneID{c.process, c.key}
		if err := m.lane(id).Append(w); err != nil {
			return fmt.Errorf("trace %s, byte %d: process %d, %w", r.dir, ref.offset, c.process, err)
		}
		if left[id]++; left[id] == r.lanes[id] {
			m.lane(id).closed = true
			done++
		}
		if done > 64 && done > len(m.list)/2 {
			m.dropEmpty()
			done = 0
		}
	}
	m.flushTo(math.MaxUint64)
	return failed
}

// dropEmpty forgets the closed lanes that have no events left. The threads of their slots stay known.
func (m *Merger) dropEmpty() {
	m.list = slices.DeleteFunc(m.list, func(l *Lane) bool {
		if !l.closed || l.off < len(l.words) {
			return false
		}
		delete(m.lanes, l.id)
		return true
	})
}
