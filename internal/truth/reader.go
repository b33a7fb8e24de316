package truth

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A Reader gives the steps of a truth file one after another. Its memory does not grow with the file.
type Reader struct {
	in      *bufio.Reader
	at      int64 // in the file, of the frame that rest is of
	next    int64 // of the next frame
	frame   []byte
	rest    []byte
	order   uint64
	current threadID
	lasts   map[threadID]*last
	last    *last
	done    error
	scratch [maxAccesses]Access
}

// NewReader gives a reader of a file, from its first byte on. The error is ErrFormat, wrapped, or the input's.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 1<<16), lasts: map[threadID]*last{}, next: headerSize}
	var head [headerSize]byte
	if _, err := io.ReadFull(r.in, head[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("truth: shorter than its header: %w", ErrFormat)
	} else if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	if string(head[:len(Magic)]) != Magic {
		return nil, fmt.Errorf("truth: it begins with %q: %w", head[:len(Magic)], ErrFormat)
	}
	if v := binary.LittleEndian.Uint32(head[len(Magic):]); v != Version {
		return nil, fmt.Errorf("truth: version %d, this ripstop reads %d: %w", v, Version, ErrFormat)
	}
	return r, nil
}

// Next gives the next step; its Accesses are the callee's until the next call. The error is io.EOF behind the last step, or ErrTruncated or ErrDamaged,
// wrapped, with the place; then there is nothing more.
func (r *Reader) Next(s *Step) error {
	if r.done != nil {
		return r.done
	}
	if r.done = r.step(s); r.done != nil && r.done != io.EOF {
		r.done = fmt.Errorf("truth: frame at byte %d: %w", r.at, r.done)
	}
	return r.done
}

func (r *Reader) step(s *Step) error {
	if len(r.rest) == 0 {
		if err := r.readFrame(); err != nil {
			return err
		}
	}
	if r.rest[0] == recordThread {
		r.rest = r.rest[1:]
		pid, err := r.uvarint(1<<32 - 1)
		if err != nil {
			return err
		}
		tid, err := r.uvarint(1<<32 - 1)
		if err != nil {
			return err
		}
		r.current = threadID{uint32(pid), uint32(tid)}
		if r.last = r.lasts[r.current]; r.last == nil {
			r.last = new(last)
			r.lasts[r.current] = r.last
		}
	}
	if r.last == nil || len(r.rest) == 0 {
		return fmt.Errorf("%w: a step of no thread", ErrDamaged)
	}
	first := r.rest[0]
	r.rest = r.rest[1:]
	*s = Step{Order: r.order, PID: r.current.pid, TID: r.current.tid}
	r.order++
	switch {
	case first == recordOther:
		return r.other(s)
	case first > maxAccesses:
		return fmt.Errorf("%w: a record that begins with %#x", ErrDamaged, first)
	}
	if err := r.delta(&r.last.ip); err != nil {
		return err
	}
	s.IP = r.last.ip
	s.Accesses = r.scratch[:first]
	for i := range s.Accesses {
		if err := r.access(&s.Accesses[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) other(s *Step) (err error) {
	if len(r.rest) == 0 || r.rest[0] == 0 || int(r.rest[0]) >= len(kindNames) {
		return fmt.Errorf("%w: a step of an unknown kind", ErrDamaged)
	}
	s.Kind = Kind(r.rest[0])
	r.rest = r.rest[1:]
	if err := r.delta(&r.last.ip); err != nil {
		return err
	}
	s.IP = r.last.ip
	s.Value, err = r.uvarint(^uint64(0))
	return err
}

func (r *Reader) access(a *Access) (err error) {
	if len(r.rest) == 0 {
		return errShort
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	a.Flags = Flags(b & byte(flagsKnown))
	if code := b >> 5; code > 6 {
		return fmt.Errorf("%w: an access with size code %d", ErrDamaged, code)
	} else if code > 0 {
		a.Size = 1 << (code - 1)
	} else {
		a.Size, err = r.uvarint(^uint64(0))
		if err == nil && sizeCode(a.Size) != 0 || a.Size == 0 {
			err = fmt.Errorf("%w: an access of %d bytes written in full", ErrDamaged, a.Size)
		}
		if err != nil {
			return err
		}
	}
	if err := r.delta(&r.last.addr); err != nil {
		return err
	}
	a.Addr = r.last.addr
	return nil
}

var errShort = fmt.Errorf("%w: a record is cut off by the end of its frame", ErrDamaged)

func (r *Reader) uvarint(most uint64) (uint64, error) {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return 0, errShort
	}
	if v > most {
		return 0, fmt.Errorf("%w: the number %d where at most %d can be", ErrDamaged, v, most)
	}
	r.rest = r.rest[n:]
	return v, nil
}

func (r *Reader) delta(v *uint64) error {
	d, n := binary.Varint(r.rest)
	if n <= 0 {
		return errShort
	}
	r.rest = r.rest[n:]
	*v += uint64(d)
	return nil
}

// readFrame reads the next frame; io.EOF: it is the end mark.
func (r *Reader) readFrame() error {
	r.at = r.next
	var h [frameHeader]byte
	if _, err := io.ReadFull(r.in, h[:]); err != nil {
		return endOf(err)
	}
	le := binary.LittleEndian
	size := le.Uint32(h[4:])
	switch {
	case string(h[:4]) != "RSTF" || size > maxFrame || le.Uint32(h[20:]) != crc32.Checksum(h[:20], castagnoli):
		return fmt.Errorf("%w: here begins no frame", ErrDamaged)
	case le.Uint64(h[8:]) != r.order:
		return fmt.Errorf("%w: the frame begins with step %d, step %d should follow", ErrDamaged, le.Uint64(h[8:]), r.order)
	}
	if cap(r.frame) < int(size) {
		r.frame = make([]byte, size)
	}
	r.frame = r.frame[:size]
	if _, err := io.ReadFull(r.in, r.frame); err != nil {
		return endOf(err)
	}
	if le.Uint32(h[16:]) != crc32.Checksum(r.frame, castagnoli) {
		return fmt.Errorf("%w: the checksum is wrong", ErrDamaged)
	}
	r.next += frameHeader + int64(size)
	if size == 0 {
		if _, err := r.in.Peek(1); err == nil {
			return fmt.Errorf("%w: something follows the end mark", ErrDamaged)
		}
		return io.EOF
	}
	r.rest = r.frame
	r.last = nil
	clear(r.lasts)
	return nil
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}
