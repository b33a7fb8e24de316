package patch

import (
	"encoding/binary"
	"errors"
	"slices"
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

// Again is a text of the same bytes, and of which the same is known, at another address; nothing is kept of it (Keep). What is known takes no memory again.
func (t *Text) Again(at uint64) *Text {
	if !t.common { // or several may be asked at once
		t.common = true
	}
	return &Text{at: at, orig: t.orig, now: NewOverlay(t.orig), lens: t.lens, targets: t.targets, loops: t.loops, complete: t.complete, common: true}
}

// own has what is about to change be this text's alone.
func (t *Text) own() {
	if t.common {
		t.lens, t.targets, t.loops, t.common = slices.Clone(t.lens), slices.Clone(t.targets), slices.Clone(t.loops), false
	}
}

// KnownSize is how many bytes what is known of so many bytes of code takes.
func KnownSize(code int) int {
	lens, bits := knownWords(code)
	return 8 * (lens + 2*bits)
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

// AppendPart is AppendKnown for a text of the bytes in [lo, hi) alone. What passes the end is not known there. The ends are multiples of 64 from the text's beginning, or its end.
func (t *Text) AppendPart(dst []byte, lo, hi uint64) []byte {
	lo, hi = lo-t.at, hi-t.at
	n := hi - lo
	lens, bits := knownWords(int(n))
	complete := uint64(0)
	if t.complete {
		complete = 1
	}
	dst = binary.LittleEndian.AppendUint64(dst, complete)
	word := func(words []uint64, i, each uint64) uint64 { // of which each tells of so many addresses
		if i*each >= n {
			return 0
		}
		return words[lo/each+i]
	}
	for i := range uint64(lens) {
		w := word(t.lens, i, 16)
		for k := range uint64(16) {
			if a := 16*i + k; a+(w>>(4*k)&15) > n {
				w &^= 15 << (4 * k)
			}
		}
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	for _, words := range [][]uint64{t.targets, t.loops} {
		for i := range uint64(bits) {
			w := word(words, i, 64)
			if 64*(i+1) > n {
				w &= 1<<(n-min(n, 64*i)) - 1
			}
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
	}
	return dst
}

// Part is a text of the bytes in [lo, hi) alone, of which the same is known. What passes the end is not known there.
func (t *Text) Part(lo, hi uint64) *Text {
	part := NewText(lo, t.orig[lo-t.at:hi-t.at:hi-t.at])
	part.complete, part.kept = t.complete, t.kept
	for a := t.Next(lo, hi); a < hi; a = t.Next(a+1, hi) {
		if n := t.Len(a); a+uint64(n) <= hi {
			part.Add(a, n)
		}
	}
	for a := lo; a < hi; a++ {
		i := a - lo
		if t.target(a) {
			part.targets[i/64] |= 1 << (i % 64)
		}
		if t.loop(a) {
			part.loops[i/64] |= 1 << (i % 64)
		}
	}
	return part
}
