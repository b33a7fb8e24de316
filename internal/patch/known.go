package patch

import (
	"encoding/binary"
	"errors"
	"unsafe"
)

// ErrKnown says that bytes do not tell where a text's instructions begin.
var ErrKnown = errors.New("not the instructions of this text")

// What is known of a text in bytes: a word that is 1 if it is complete, then the words of lens, targets and loops, little-endian.

// AppendKnown appends what AddFunction, Add, Enter and Complete have made known, for KnownText of the same bytes, wherever they lie, of which the same ranges are kept.
func (t *Text) AppendKnown(dst []byte) []byte {
	complete := uint64(0)
	if t.complete {
		complete = 1
	}
	dst = binary.LittleEndian.AppendUint64(dst, complete)
	for _, words := range [][]uint64{t.lens, t.targets, t.loops} {
		for _, w := range words {
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
	}
	return dst
}

// KnownText is NewText of what AppendKnown appended, which is the text's from then on: it is three quarters of the code's size, so it is copied only where it does not lie as words do.
// It must be the same text: what is checked is that no instruction passes its end.
func KnownText(at uint64, code, b []byte) (*Text, error) {
	n := uint64(len(code))
	lens, bits := knownWords(len(code))
	if len(b) != 8*(1+lens+2*bits) || binary.LittleEndian.Uint64(b) > 1 {
		return nil, ErrKnown
	}
	t := &Text{at: at, orig: code, now: NewOverlay(code), complete: b[0] == 1}
	w := wordsOf(b[8:])
	t.lens, t.targets, t.loops = w[:lens:lens], w[lens:lens+bits:lens+bits], w[lens+bits:]
	// Four bits for each address.
	for i := n - min(n, 16); i < uint64(16*lens); i++ {
		if k := t.lens[i/16] >> (i % 16 * 4) & 15; k > 0 && i+k > n {
			return nil, ErrKnown
		}
	}
	for i := n; i < uint64(64*bits); i++ {
		if t.targets[i/64]>>(i%64)&1 != 0 {
			return nil, ErrKnown
		}
	}
	return t, nil
}

// knownWords gives how many words lens of so much code has, and how many targets and loops each.
func knownWords(n int) (lens, bits int) { return n/16 + 1, n/64 + 1 }

// wordsOf gives bytes as words, little-endian as this machine is, in place if that can be.
func wordsOf(b []byte) []uint64 {
	if p := unsafe.Pointer(unsafe.SliceData(b)); uintptr(p)%8 == 0 {
		return unsafe.Slice((*uint64)(p), len(b)/8)
	}
	w := make([]uint64, len(b)/8)
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w
}

// Of a text of which only some places matter, what is known around these may be had alone: the words of lens, targets and loops of a part, of which no instruction passes the end.

// PartBytes is what the ends of parts are multiples of, from the text's beginning, but for the text's own end.
const PartBytes = 64

// AppendPart appends what is known of the addresses in [lo, hi), for AddPart. The ends are multiples of PartBytes from the text's beginning, or its end.
func (t *Text) AppendPart(dst []byte, lo, hi uint64) []byte {
	lo, hi = lo-t.at, hi-t.at
	lens, bits := partWords(lo, hi)
	for i := lens.Lo; i < lens.Hi; i++ {
		w := t.lens[i]
		for k := range min(16, hi-16*i) {
			if a := 16*i + k; a+(w>>(4*k)&15) > hi {
				w &^= 15 << (4 * k)
			}
		}
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	for _, words := range [][]uint64{t.targets, t.loops} {
		for _, w := range words[bits.Lo:bits.Hi] {
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
	}
	return dst
}

// AddPart makes known in [lo, hi) what AppendPart appended of the same addresses of a text of the same bytes there. The text may know nothing yet, and its bytes elsewhere need not be there; they are then
// in no known instruction.
func (t *Text) AddPart(lo, hi uint64, b []byte) error {
	if lo < t.at || hi <= lo || hi > t.end() {
		return ErrKnown
	}
	lo, hi = lo-t.at, hi-t.at
	if lo%PartBytes != 0 || hi%PartBytes != 0 && hi != uint64(len(t.orig)) {
		return ErrKnown
	}
	lens, bits := partWords(lo, hi)
	if uint64(len(b)) != 8*(lens.Hi-lens.Lo+2*(bits.Hi-bits.Lo)) {
		return ErrKnown
	}
	w := wordsOf(b)
	n := lens.Hi - lens.Lo
	for i := hi - min(hi-lo, 16); i < 16*lens.Hi; i++ {
		if k := w[i/16-lens.Lo] >> (i % 16 * 4) & 15; k > 0 && i+k > hi {
			return ErrKnown
		}
	}
	targets, loops := w[n:n+bits.Hi-bits.Lo], w[n+bits.Hi-bits.Lo:]
	for i := hi; i < 64*bits.Hi; i++ {
		if targets[i/64-bits.Lo]>>(i%64)&1 != 0 {
			return ErrKnown
		}
	}
	copy(t.lens[lens.Lo:], w[:n])
	copy(t.targets[bits.Lo:], targets)
	copy(t.loops[bits.Lo:], loops)
	return nil
}

// partWords gives which words of lens, and of targets and loops, tell of the offsets in [lo, hi).
func partWords(lo, hi uint64) (lens, bits Range) {
	return Range{lo / 16, (hi + 15) / 16}, Range{lo / 64, (hi + 63) / 64}
}

// IsComplete says whether Complete was called.
func (t *Text) IsComplete() bool { return t.complete }

// PartText is NewText of a text of which only parts are to be known. complete says whether the text that these come from was.
func PartText(at uint64, code []byte, complete bool) *Text {
	lens, bits := knownWords(len(code))
	return &Text{at: at, orig: code, now: NewOverlay(code), complete: complete, lens: make([]uint64, lens), targets: make([]uint64, bits), loops: make([]uint64, bits)}
}
