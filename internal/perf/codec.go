package perf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// A codec reads a structure out of bytes or appends it to bytes: each layout is stated once, by the calls that both need. After an error
// reading gives zeros and writing goes on; the first error counts. Writing leaves what it writes as it is.
type codec struct {
	order byteOrder
	write bool
	b     []byte // reading: what is read; writing: what was written
	pos   int    // reading: bytes of b that are done
	start int    // writing: where in b the structure begins, for alignment
	misc  Misc
	attr  *Attr // of the event that a sample or a READ record is of; may be nil
	err   error
}

func (c *codec) fail(err error, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
	}
}

func (c *codec) rest() int { return len(c.b) - c.pos }

// more says whether an optional part follows: older writers end here.
func (c *codec) more(n int) bool { return c.write || c.rest() >= n }

// take gives the next n bytes of what is read, nil if they are not there.
func (c *codec) take(n int) []byte {
	if c.err == nil && (n < 0 || n > c.rest()) {
		c.fail(ErrShort, "needs %d bytes at %d, has %d", n, c.pos, c.rest())
	}
	if c.err != nil {
		return nil
	}
	s := c.b[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return s
}

func (c *codec) u8(p *uint8) {
	if c.write {
		c.b = append(c.b, *p)
	} else if s := c.take(1); s != nil {
		*p = s[0]
	}
}

func (c *codec) u16(p *uint16) {
	if c.write {
		c.b = c.order.AppendUint16(c.b, *p)
	} else if s := c.take(2); s != nil {
		*p = c.order.Uint16(s)
	}
}

func (c *codec) u32(p *uint32) {
	if c.write {
		c.b = c.order.AppendUint32(c.b, *p)
	} else if s := c.take(4); s != nil {
		*p = c.order.Uint32(s)
	}
}

func (c *codec) i32(p *int32) {
	v := uint32(*p)
	c.u32(&v)
	if !c.write {
		*p = int32(v)
	}
}

func (c *codec) u64(p *uint64) {
	if c.write {
		c.b = c.order.AppendUint64(c.b, *p)
	} else if s := c.take(8); s != nil {
		*p = c.order.Uint64(s)
	}
}

func (c *codec) bool8(p *bool) {
	var v uint8
	if *p {
		v = 1
	}
	c.u8(&v)
	if !c.write {
		*p = v != 0
	}
}

// bits64 is a word of bit fields of the given widths, first field in the lowest bits of *p. A big-endian machine lays them from the highest
// bit down.
func (c *codec) bits64(p *uint64, widths []int) {
	v := *p
	if c.write {
		if c.order == binary.BigEndian {
			v = mirror(v, widths, true)
		}
		c.u64(&v)
		return
	}
	c.u64(&v)
	if c.order == binary.BigEndian {
		v = mirror(v, widths, false)
	}
	*p = v
}

func mirror(v uint64, widths []int, toBig bool) (r uint64) {
	low := 0
	for _, w := range widths {
		from, to := 64-low-w, low
		if toBig {
			from, to = to, from
		}
		r |= v >> from & (1<<w - 1) << to
		low += w
	}
	return r
}

// pad is n bytes without meaning.
func (c *codec) pad(n int) {
	if c.write {
		c.b = append(c.b, make([]byte, n)...)
	} else {
		c.take(n)
	}
}

// align pads what is written to a multiple of n bytes.
func (c *codec) align(n int) {
	if c.write {
		c.pad(-(len(c.b) - c.start) & (n - 1))
	}
}

// fixed is exactly len(p) bytes.
func (c *codec) fixed(p []byte) {
	if c.write {
		c.b = append(c.b, p...)
	} else {
		copy(p, c.take(len(p)))
	}
}

// bytes is n bytes, or when writing all of p; what is read is not copied.
func (c *codec) bytes(p *[]byte, n int) {
	if c.write {
		c.b = append(c.b, *p...)
	} else {
		*p = c.take(n)
	}
}

func (c *codec) restBytes(p *[]byte) { c.bytes(p, c.rest()) }

// text is a string in exactly n bytes, with a NUL if it is shorter.
func (c *codec) text(p *string, n int) {
	if c.write {
		if len(*p) > n || strings.IndexByte(*p, 0) >= 0 {
			c.fail(ErrContents, "%q does not fit %d bytes", *p, n)
			return
		}
		c.b = append(c.b, *p...)
		c.pad(n - len(*p))
		return
	}
	s := c.take(n)
	if i := bytes.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	*p = string(s)
}

// tail is a string that goes, with at least one NUL, to the end; written, it is padded to 8 bytes.
func (c *codec) tail(p *string) {
	if c.write {
		c.text(p, len(*p)+1)
		c.align(8)
		return
	}
	c.text(p, c.rest())
}

// headerString is struct perf_header_string: a length and so many bytes, of which the string is what precedes the first NUL. perf pads it to
// 64 bytes.
func (c *codec) headerString(p *string) {
	n := uint32(len(*p)+1+63) &^ 63
	c.u32(&n)
	c.text(p, int(n))
}

// count32 is the number of entries that follow.
func (c *codec) count32(n int) int {
	v := uint32(n)
	c.u32(&v)
	return int(v)
}

func (c *codec) count64(n int) int {
	v := uint64(n)
	c.u64(&v)
	if v > 1<<62 {
		c.fail(ErrShort, "%d entries", v)
		return 0
	}
	return int(v)
}

// list is n entries (writing: all of *p) of at least size bytes each. No more is allocated than the bytes at hand can hold.
func list[T any](c *codec, p *[]T, n, size int, f func(*T)) {
	if !c.write {
		if c.err == nil && (n < 0 || n > c.rest()/size) {
			c.fail(ErrShort, "needs %d entries of %d bytes at %d, has %d bytes", n, size, c.pos, c.rest())
		}
		if c.err != nil || n == 0 {
			*p = nil
			return
		}
		*p = make([]T, n)
	}
	for i := range *p {
		f(&(*p)[i])
	}
}

func (c *codec) u64s(p *[]uint64, n int) { list(c, p, n, 8, c.u64) }

// restU64s is as many words as there are.
func (c *codec) restU64s(p *[]uint64) { c.u64s(p, c.rest()/8) }

// strings is a number and so many headerStrings.
func (c *codec) strings(p *[]string) { list(c, p, c.count32(len(*p)), 4, c.headerString) }

// weight is the number of registers in a mask.
func weight(mask uint64) int { return bits.OnesCount64(mask) }
