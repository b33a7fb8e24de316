package patch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The states of a trampoline in bytes, for the agent's signal handler, which has no other way to know them. The bytes do not say where the site and the
// trampoline lie: many trampolines have the same.
//
// A reader keeps For, which begins as the address of the instruction that the trampoline is for (Patch.At), Resume, which begins as "restart", and for each of
// 16 general registers, for the flags in two forms and for the extended state a source, which begins as "in place". It reads entries, each of which says what
// changes and how many bytes of code it covers from the end of the one before on, until the offset that it looks for lies in one. An entry:
//
//	n       1 byte: the bytes of code covered, 1 to 255; 0: the end, nothing follows
//	head    1 byte: bits 0 to 4 how many moves follow; bit 5: For changes; bits 6 and 7 Resume: 0 restart, 1 this entry's first byte of code,
//	        2 an offset in the trampoline that follows, 3 as in the entry before
//	For     if bit 5 is set: a signed number, to be added to For
//	Resume  if bits 6 and 7 are 2: unsigned LEB128
//	moves   each: 1 byte, bits 0 to 4 Move.Reg, bits 5 to 7 Move.From, or 7: in place; then, for all but FromFor and in place, Move.N, a signed number
//
// An unsigned number is LEB128; a signed one v is the unsigned one v<<1 ^ v>>63 (encoding/binary calls these varints).
// Of FlagsAH and FlagsAll at most one is not in place.

const (
	stateInPlace  = 7
	stateFor      = 1 << 5
	resumeRestart = 0 << 6
	resumeSelf    = 1 << 6
	resumeAt      = 2 << 6
	resumeSame    = 3 << 6
)

// AppendStates appends the states of the trampoline of an instruction at an address in bytes.
func (t *Trampoline) AppendStates(dst []byte, at uint64) []byte {
	was := decoder{at: at, resume: Restart}
	for i := range t.States {
		s := &t.States[i]
		end := len(t.Code)
		if i+1 < len(t.States) {
			end = t.States[i+1].Off
		}
		now := was
		now.set(s)
		for off := s.Off; off < end; {
			n := min(end-off, 255)
			dst = was.change(append(dst, byte(n)), &now, off)
			was = now
			off += n
		}
	}
	return append(dst, 0)
}

// A decoder is what a reader keeps.
type decoder struct {
	at     uint64 // For
	resume int
	moved  [moveRegs]bool
	moves  [moveRegs]Move
}

func (d *decoder) set(s *State) {
	*d = decoder{at: s.For, resume: s.Resume}
	for _, m := range s.Moves {
		if m.Reg >= moveRegs || m.From >= sources {
			panic("BUG: patch: a move of nothing")
		}
		d.moved[m.Reg], d.moves[m.Reg] = true, m
	}
}

// change appends what follows the length of an entry: what is different now.
func (d *decoder) change(dst []byte, now *decoder, off int) []byte {
	head := len(dst)
	dst = append(dst, 0)
	if now.at != d.at {
		dst[head] |= stateFor
		dst = binary.AppendVarint(dst, int64(now.at-d.at))
	}
	switch now.resume {
	case Restart:
		dst[head] |= resumeRestart
	case d.resume:
		dst[head] |= resumeSame
	case off:
		dst[head] |= resumeSelf
	default:
		dst[head] |= resumeAt
		dst = binary.AppendUvarint(dst, uint64(now.resume))
	}
	for r := range uint8(moveRegs) {
		m := now.moves[r]
		switch {
		case now.moved[r] == d.moved[r] && m == d.moves[r]:
			continue
		case !now.moved[r]:
			dst = append(dst, r|stateInPlace<<5)
		default:
			dst = append(dst, r|byte(m.From)<<5)
			if m.From != FromFor {
				dst = binary.AppendVarint(dst, int64(m.N))
			}
		}
		dst[head]++
	}
	return dst
}

// ErrStates says that bytes are not states.
var ErrStates = errors.New("not the states of a trampoline")

// ParseStates reads states from bytes as AppendStates writes them, for a trampoline of the instruction at an address. It also gives the length of the code that
// they cover.
func ParseStates(b []byte, at uint64) (states []State, code int, err error) {
	d := decoder{at: at, resume: Restart}
	bad := func(what string) ([]State, int, error) { return nil, 0, fmt.Errorf("%w: %s", ErrStates, what) }
	for {
		if len(b) == 0 {
			return bad("they end early")
		}
		n := int(b[0])
		if n == 0 {
			if len(b) > 1 {
				return bad("bytes behind their end")
			}
			return states, code, nil
		}
		if len(b) < 2 {
			return bad("they end early")
		}
		head := b[1]
		b = b[2:]
		signed := func() (int64, bool) {
			v, k := binary.Varint(b)
			if k <= 0 {
				return 0, false
			}
			b = b[k:]
			return v, true
		}
		if head&stateFor != 0 {
			v, ok := signed()
			if !ok {
				return bad("no number")
			}
			d.at += uint64(v)
		}
		switch head & resumeSame {
		case resumeRestart:
			d.resume = Restart
		case resumeSelf:
			d.resume = code
		case resumeAt:
			v, k := binary.Uvarint(b)
			if k <= 0 || v > 1<<30 {
				return bad("no offset")
			}
			b, d.resume = b[k:], int(v)
		}
		for range head & 31 {
			if len(b) == 0 {
				return bad("they end early")
			}
			m := Move{Reg: b[0] & 31, From: Source(b[0] >> 5)}
			b = b[1:]
			if m.Reg >= moveRegs || m.From >= sources && m.From != stateInPlace {
				return bad("a move of nothing")
			}
			if m.From < FromFor {
				v, ok := signed()
				if !ok || v != int64(int32(v)) {
					return bad("no number")
				}
				m.N = int32(v)
			}
			if (m.From == FromReg || m.From == FromSlot) && (m.N < 0 || m.N > 15) {
				return bad("a move from nowhere")
			}
			d.moved[m.Reg], d.moves[m.Reg] = m.From != stateInPlace, m
			if m.From == stateInPlace {
				d.moves[m.Reg] = Move{}
			}
		}
		s := State{Off: code, For: d.at, Resume: d.resume}
		for r, moved := range d.moved {
			if moved {
				s.Moves = append(s.Moves, d.moves[r])
			}
		}
		if d.moved[FlagsAH] && d.moved[FlagsAll] {
			return bad("flags in two places")
		}
		states = append(states, s)
		code += n
	}
}
