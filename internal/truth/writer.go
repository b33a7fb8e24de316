package truth

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type threadID struct{ pid, tid uint32 }

// last is what deltas of a thread refer to; each frame begins with zeros.
type last struct{ ip, addr uint64 }

// A Writer writes a truth file. After an error of the output it writes no more, and Close returns that error.
type Writer struct {
	out     io.Writer
	buf     []byte // a frame's header and contents
	order   uint64 // of the next step
	first   uint64 // order of the frame's first step
	current threadID
	lasts   map[threadID]*last
	last    *last
	err     error
}

// NewWriter begins a file. What it returns must be closed with Close.
func NewWriter(out io.Writer) *Writer {
	w := &Writer{out: out, lasts: map[threadID]*last{}}
	head := append([]byte(Magic), make([]byte, headerSize-len(Magic))...)
	binary.LittleEndian.PutUint32(head[len(Magic):], Version)
	_, w.err = out.Write(head)
	w.begin()
	return w
}

func (w *Writer) begin() {
	w.buf = append(w.buf[:0], make([]byte, frameHeader)...)
	w.first, w.current, w.last = w.order, threadID{}, nil
	clear(w.lasts)
}

// Add appends a step. Its Order is not looked at: the writer counts. It returns that number.
func (w *Writer) Add(s *Step) uint64 {
	n := w.order
	w.order++
	if w.err != nil {
		return n
	}
	if id := (threadID{s.PID, s.TID}); w.last == nil || id != w.current {
		w.current = id
		if w.last = w.lasts[id]; w.last == nil {
			w.last = new(last)
			w.lasts[id] = w.last
		}
		w.buf = append(w.buf, recordThread)
		w.buf = binary.AppendUvarint(w.buf, uint64(s.PID))
		w.buf = binary.AppendUvarint(w.buf, uint64(s.TID))
	}
	if s.Kind != Ran {
		w.buf = append(w.buf, recordOther, byte(s.Kind))
		w.delta(&w.last.ip, s.IP)
		w.buf = binary.AppendUvarint(w.buf, s.Value)
	} else {
		if len(s.Accesses) > maxAccesses {
			panic(fmt.Sprintf("BUG: truth: an instruction with %d accesses", len(s.Accesses)))
		}
		w.buf = append(w.buf, byte(len(s.Accesses)))
		w.delta(&w.last.ip, s.IP)
		for i := range s.Accesses {
			w.access(&s.Accesses[i])
		}
	}
	if len(w.buf) >= maxFrame/2 {
		w.flush()
	}
	return n
}

func (w *Writer) delta(from *uint64, to uint64) {
	w.buf = binary.AppendVarint(w.buf, int64(to-*from))
	*from = to
}

// sizeCode is the size of an access as its first byte has it: n+1 for 1<<n up to 32 bytes; 0: a number follows.
func sizeCode(size uint64) byte {
	if bits.OnesCount64(size) == 1 && size <= 32 {
		return byte(bits.TrailingZeros64(size)) + 1
	}
	return 0
}

func (w *Writer) access(a *Access) {
	code := sizeCode(a.Size)
	w.buf = append(w.buf, byte(a.Flags)|code<<5)
	if code == 0 {
		w.buf = binary.AppendUvarint(w.buf, a.Size)
	}
	w.delta(&w.last.addr, a.Addr)
}

// flush writes the frame and begins the next.
func (w *Writer) flush() {
	if w.err == nil {
		frame(w.buf, w.first)
		_, w.err = w.out.Write(w.buf)
	}
	w.begin()
}

// frame completes a frame's header.
func frame(b []byte, first uint64) {
	le := binary.LittleEndian
	copy(b, "RSTF")
	le.PutUint32(b[4:], uint32(len(b)-frameHeader))
	le.PutUint64(b[8:], first)
	le.PutUint32(b[16:], crc32.Checksum(b[frameHeader:], castagnoli))
	le.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
}

// Flush hands what is buffered to the output.
func (w *Writer) Flush() error {
	if len(w.buf) > frameHeader {
		w.flush()
	}
	return w.err
}

// Close writes what is left and the end mark, an empty frame; the output stays open.
func (w *Writer) Close() error {
	if err := w.Flush(); err != nil {
		return err
	}
	w.flush()
	return w.err
}
