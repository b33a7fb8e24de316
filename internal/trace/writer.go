package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/wire"
)

// Writer writes a trace directory. Its methods may be called from several goroutines. After the first error nothing more is written,
// and every call returns that error; what was written before stays readable.
type Writer struct {
	mu   sync.Mutex
	dir  string
	meta Meta
	file *os.File
	buf  []byte
	head [chunkHeaderSize]byte // scratch of chunk
	err  error
}

const writerBuffer = 1 << 20

// Create makes the trace directory dir, or begins it anew if it holds a trace or nothing. It refuses a directory with anything else
// in it rather than write there.
// Files of these names beside the trace are removed with an older one.
func Create(dir string, meta Meta, beside ...string) (*Writer, error) {
	if err := os.Mkdir(dir, 0o777); err == nil {
		// Ours, and empty.
	} else if !os.IsExist(err) {
		return nil, fmt.Errorf("trace directory: %w", err)
	} else if err := emptyTrace(dir, beside); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, eventsName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("trace directory: %w", err)
	}
	w := &Writer{dir: dir, meta: meta, file: f, buf: make([]byte, 0, writerBuffer)}
	w.append(fileHeader())
	if err := w.Flush(); err != nil {
		_ = f.Close()
		return nil, err
	}
	if err := writeMeta(dir, meta); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("trace directory: %w", err)
	}
	return w, nil
}

// emptyTrace takes the files of an earlier trace out of dir.
func emptyTrace(dir string, beside []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("trace directory: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case metaName, metaName + ".new", eventsName:
			if e.Type().IsRegular() {
				continue
			}
		default:
			if e.Type().IsRegular() && slices.Contains(beside, e.Name()) {
				continue
			}
		}
		return fmt.Errorf("%s exists and is not a trace directory (it holds %s): choose another, or remove it first", dir, e.Name())
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("trace directory: %w", err)
		}
	}
	return nil
}

// Chunk appends words, which are whole records, to lane k of process.
func (w *Writer) Chunk(process uint64, k LaneKey, words []uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(words) > 0 && w.err == nil {
		n := len(words)
		if n > chunkWords {
			var err error
			if n, err = cutRecords(words, chunkWords); err != nil {
				return fmt.Errorf("%v of process %d: %w", k, process, err)
			}
		}
		w.chunk(chunk{kind: chunkEvents, key: k, process: process}, words[:n])
		words = words[n:]
	}
	return w.err
}

// cutRecords is the number of words of the whole records at the head of words that fit into limit.
func cutRecords(words []uint64, limit int) (int, error) {
	at := 0
	for {
		n, err := wire.RecordWords(words[at:])
		if err == nil && at+n > len(words) {
			err = wire.ErrShort
		}
		if err != nil {
			return 0, fmt.Errorf("word %d: %w", at, err)
		}
		if at+n > limit {
			return at, nil
		}
		if at += n; at == len(words) {
			return at, nil
		}
	}
}

// Bound says that all events of process older than ts have been given to Chunk. If the trace is cut off, its reader goes as far as the
// last bound of each process: beyond it some threads' events would be there and others' missing. So call it after every round of
// draining.
func (w *Writer) Bound(process, ts uint64) error {
	return w.mark(chunk{kind: chunkBound, process: process, value: ts})
}

// Gone says that process has ended and that all its events have been given to Chunk.
func (w *Writer) Gone(process uint64) error {
	return w.mark(chunk{kind: chunkGone, process: process})
}

func (w *Writer) mark(c chunk) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.chunk(c, nil)
	return w.err
}

// Flush hands to the kernel what is buffered; what is flushed survives the death of this process.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
	return w.err
}

// SetResult puts into meta.json how the recording ended.
func (w *Writer) SetResult(r Result) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meta.Result = &r
	if err := writeMeta(w.dir, w.meta); err != nil {
		return fmt.Errorf("trace directory: %w", err)
	}
	return nil
}

// Close marks the trace complete and closes it. It returns the error that stopped the writing, if one did.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return w.err
	}
	w.chunk(chunk{kind: chunkEnd}, nil)
	w.flush()
	if err := w.file.Close(); err != nil && w.err == nil {
		w.err = w.writeError(err)
	}
	err := w.err
	w.file = nil
	if w.err == nil {
		w.err = errors.New("trace " + w.dir + " is closed")
	}
	return err
}

func (w *Writer) chunk(c chunk, words []uint64) {
	payload := wordBytes(words)
	c.encode(&w.head, payload)
	if len(w.buf)+len(w.head)+len(payload) > writerBuffer {
		w.flush()
	}
	w.append(w.head[:])
	w.append(payload)
}

func (w *Writer) append(b []byte) {
	if w.err == nil {
		w.buf = append(w.buf, b...)
	}
}

func (w *Writer) flush() {
	if w.err != nil || len(w.buf) == 0 {
		return
	}
	_, err := w.file.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		w.err = w.writeError(err)
	}
}

func (w *Writer) writeError(err error) error {
	return fmt.Errorf("trace %s ends here, what came later is not in it: %w", w.dir, err)
}
