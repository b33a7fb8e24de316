package perf

import (
	"errors"
	"io"
	"iter"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of decompression, in bytes: the window of Zstandard's highest level, 22.
const maxWindow = 128 << 20

var errStopped = errors.New("stopped")

// A stream is the decompressed contents of the COMPRESSED records of a file: one stream of Zstandard cut in pieces, each flushed. The
// decoder runs as a coroutine, since it pulls its input and the input is pushed.
type stream struct {
	in   []byte // compressed, not yet taken
	buf  []byte // decompressed, not yet given
	err  error
	pull func() ([]byte, bool)
	stop func()
}

func newStream() *stream {
	s := &stream{}
	s.pull, s.stop = iter.Pull(s.run)
	return s
}

// run yields what comes out, and nil when it needs input.
func (s *stream) run(yield func([]byte) bool) {
	feed := feeder(func(p []byte) (int, error) {
		for len(s.in) == 0 {
			if !yield(nil) {
				return 0, errStopped
			}
		}
		n := copy(p, s.in)
		s.in = s.in[n:]
		return n, nil
	})
	// Concurrency 1: the input is read on this coroutine.
	d, err := zstd.NewReader(feed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		s.err = err
		return
	}
	defer d.Close()
	out := make([]byte, 64<<10)
	for {
		n, err := d.Read(out)
		if n > 0 && !yield(out[:n]) {
			return
		}
		if err != nil {
			s.err = err
			return
		}
	}
}

type feeder func([]byte) (int, error)

func (f feeder) Read(p []byte) (int, error) { return f(p) }

// push adds a piece.
func (s *stream) push(piece []byte) { s.in = append(s.in[:len(s.in):len(s.in)], piece...) }

// next gives the next whole record, nil if it needs another piece. Only as much is decompressed as that takes.
func (s *stream) next(order byteOrder) ([]byte, error) {
	for {
		if len(s.buf) >= headerSize {
			size := int(order.Uint16(s.buf[6:]))
			if size < headerSize {
				return nil, ErrSize
			}
			if len(s.buf) >= size {
				record := append([]byte(nil), s.buf[:size]...)
				s.buf = s.buf[size:]
				return record, nil
			}
		}
		if s.err != nil {
			return nil, s.err
		}
		piece, ok := s.pull()
		if !ok {
			if s.err == nil {
				s.err = io.ErrUnexpectedEOF
			}
			return nil, s.err
		}
		if piece == nil {
			return nil, nil
		}
		s.buf = append(s.buf, piece...)
	}
}
