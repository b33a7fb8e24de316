package patch

import (
	"encoding/binary"
	"errors"
)

// ErrKnown says that bytes do not tell where a text's instructions begin.
var ErrKnown = errors.New("not the instructions of this text")

// What is known of a text in bytes: a byte that is 1 if it is complete, then the words of lens, targets and loops, little-endian.

// AppendKnown appends what AddFunction, Add, Enter and Complete have made known, for SetKnown of a text of the same bytes, wherever it lies, of which the same ranges are kept.
func (t *Text) AppendKnown(dst []byte) []byte {
	complete := byte(0)
	if t.complete {
		complete = 1
	}
	dst = append(dst, complete)
	for _, words := range [][]uint64{t.lens, t.targets, t.loops} {
		for _, w := range words {
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
	}
	return dst
}

// SetKnown makes known what AppendKnown appended, in place of what was known before. It must be the same text: what is checked is that no instruction passes its end.
func (t *Text) SetKnown(b []byte) error {
	if len(b) != 1+8*(len(t.lens)+len(t.targets)+len(t.loops)) || b[0] > 1 {
		return ErrKnown
	}
	n := uint64(len(t.orig))
	lens := b[1:][:8*len(t.lens)]
	// Four bits for each address: two in a byte.
	for i := n - min(n, 16); i < uint64(16*len(t.lens)); i++ {
		if k := uint64(lens[i/2] >> (i % 2 * 4) & 15); k > 0 && i+k > n {
			return ErrKnown
		}
	}
	targets := b[1+len(lens):][:8*len(t.targets)]
	for i := n; i < uint64(64*len(t.targets)); i++ {
		if targets[i/8]>>(i%8)&1 != 0 {
			return ErrKnown
		}
	}
	t.complete = b[0] == 1
	b = b[1:]
	for _, words := range [][]uint64{t.lens, t.targets, t.loops} {
		for i := range words {
			words[i], b = binary.LittleEndian.Uint64(b), b[8:]
		}
	}
	return nil
}
