package patch

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ripstop/ripstop/internal/x86"
)

// A mark is a recipe that the oracle knows again: a nop whose operand is the site's own address, relative to where it lies, then filler, which no program has, as often as it is told.
type mark struct {
	site  uint64
	extra int
}

const filler = 0xfa // cli

func (m mark) Size() int { return 7 + m.extra }

func (m mark) Replaces() bool { return false }

func (m mark) Append(dst []byte, at uint64) ([]byte, []State, error) {
	d := int64(m.site - at - 7)
	if d != int64(int32(d)) {
		return dst, nil, x86.ErrReach
	}
	dst = binary.LittleEndian.AppendUint32(append(dst, 0x0f, 0x1f, 0x05), uint32(d))
	for range m.extra {
		dst = append(dst, filler)
	}
	return dst, []State{{For: m.site, Resume: Restart}}, nil
}

// An image is what a processor would run: the text's bytes, the trampolines, and where int3 leads.
type image struct {
	at     uint64
	orig   []byte
	now    []byte
	tramps map[uint64][]byte // by page
	traps  map[uint64]uint64
}

// load puts a trampoline in place.
func (m *image) load(t *Trampoline) {
	for i, b := range t.Code {
		a := t.At + uint64(i)
		page := a &^ (PageSize - 1)
		if m.tramps[page] == nil {
			m.tramps[page] = make([]byte, PageSize)
		}
		m.tramps[page][a-page] = b
	}
}

// fetch gives the bytes that an instruction at an address may consist of.
func (m *image) fetch(a uint64) []byte {
	if i := a - m.at; i < uint64(len(m.now)) {
		return m.now[i:]
	}
	var b []byte
	for len(b) < x86.MaxLen {
		page := a &^ (PageSize - 1)
		if m.tramps[page] == nil {
			break
		}
		b = append(b, m.tramps[page][a-page:min(PageSize, a-page+x86.MaxLen)]...)
		a += uint64(len(b))
		if a&(PageSize-1) != 0 {
			break
		}
	}
	return b
}

func (m *image) inText(a uint64) bool { return a-m.at < uint64(len(m.now)) }

// walk enters the original instruction at an address, and follows it to an instruction in place, back to the text at another boundary, or to where control leaves as it did. Each instruction
// that has passed must be the original's next, with its recipe once in front of it if it is a site; sites says so, with 'maybe' for those under change.
func (m *image) walk(start uint64, site func(uint64) (is, maybe bool)) error {
	pc, next, seen := start, start, false
	for steps := 0; ; steps++ {
		if steps > 500 {
			return fmt.Errorf("entered at %#x it does not end", start)
		}
		bad := func(format string, args ...any) error {
			return fmt.Errorf("entered at %#x, at %#x, before %#x: %s", start, pc, next, fmt.Sprintf(format, args...))
		}
		if pc == next && pc != start && !seen { // from here on it is another walk
			return nil
		}
		var oc []byte
		var o x86.Inst
		err := x86.ErrTruncated
		if m.inText(next) {
			oc = m.orig[next-m.at:]
			o, err = x86.Decode(oc)
		}
		if err != nil { // the end of what is known: only back there
			in, _ := x86.Decode(m.fetch(pc))
			if to, ok := in.Target(pc); in.Op == "jmp" && ok && to == next && !seen {
				return nil
			}
			return bad("%v behind the last instruction", in)
		}
		oc = oc[:o.Len]
		is, maybe := site(next)
		if m.inText(pc) && pc == next && bytes.Equal(m.now[pc-m.at:][:o.Len], oc) {
			if to, trap := m.traps[pc]; trap && oc[0] == opTrap {
				pc = to
				continue
			}
			if is && !maybe && !seen {
				return bad("the recipe does not run")
			}
			if seen {
				return bad("an instruction in place after its recipe")
			}
			return nil
		}
		code := m.fetch(pc)
		in, err := x86.Decode(code)
		if err != nil {
			return bad("% x: %v", code[:min(len(code), x86.MaxLen)], err)
		}
		code = code[:in.Len]
		if m.inText(pc) {
			if pc != next && !bytes.HasPrefix(m.now[pc-m.at:], []byte{opJump}) {
				return bad("in the text at another instruction: %v", in)
			}
			if seen {
				return bad("back in the text after a recipe")
			}
			target, rel := in.Target(pc)
			switch to, trap := m.traps[pc]; {
			case in.Op == "int3" && trap:
				pc = to
			case in.Flow == x86.FlowJump && rel:
				pc = target
			default:
				return bad("%v in place of %v", in, o)
			}
			continue
		}
		if bytes.HasPrefix(code, []byte{0x0f, 0x1f, 0x05}) {
			of := pc + uint64(in.Len) + uint64(in.Mems()[0].Disp)
			if of != next || seen {
				return bad("the recipe of %#x, seen before: %v", of, seen)
			}
			if !is && !maybe {
				return bad("the recipe of what is no site")
			}
			seen = true
			pc += uint64(in.Len)
			for m.fetch(pc)[0] == filler {
				pc++
			}
			continue
		}
		target, rel := in.Target(pc)
		if in.Flow == x86.FlowJump && rel && target == next && !seen {
			// An original jump to itself looks like our jump back to it.
			if ot, ok := o.Target(next); !(o.Flow == x86.FlowJump && ok && ot == target && next == start && !is) {
				pc = target
				continue
			}
		}
		if is && !maybe && !seen {
			return bad("%v without its recipe", o)
		}
		n, err := m.same(&o, oc, next, &in, code, pc)
		if err != nil {
			return bad("%v", err)
		}
		if leaves(&o) {
			return nil
		}
		pc += uint64(n)
		next += uint64(o.Len)
		seen = false
	}
}

// same says whether the code at pc does what the original does, written anew, not by Relocate's rules. It gives the length of what does.
func (m *image) same(o *x86.Inst, oc []byte, at uint64, in *x86.Inst, code []byte, pc uint64) (int, error) {
	differs := fmt.Errorf("%v (% x) instead of %v (% x)", in, code, o, oc)
	if ot, ok := o.Target(at); ok {
		t, ok := in.Target(pc)
		if o.Flow == x86.FlowLoop { // loop +2; jmp +5; jmp target
			rest := m.fetch(pc + uint64(in.Len))
			long, err := x86.Decode(rest[2:])
			if err != nil || in.Op != o.Op || !ok || t != pc+uint64(in.Len)+2 || rest[0] != 0xeb || rest[1] != 5 || long.Len != 5 || long.Op != "jmp" {
				return 0, differs
			}
			if t, _ := long.Target(pc + uint64(in.Len) + 2); t != ot {
				return 0, differs
			}
			return in.Len + 7, nil
		}
		if !ok || t != ot || in.Op != o.Op || in.Flow != o.Flow {
			return 0, differs
		}
		return in.Len, nil
	}
	if ms := o.Mems(); len(ms) > 0 && ms[0].RIPRelative() {
		to := at + uint64(o.Len) + uint64(ms[0].Disp)
		if in.Op == "mov" && o.Op == "lea" && in.Args()[1].Kind == x86.ArgImm && in.Args()[0].Reg.Num() == o.Args()[0].Reg.Num() &&
			(uint64(in.Args()[1].Imm) == to || o.Args()[0].Reg.Size() == 4 && uint32(in.Args()[1].Imm) == uint32(to)) {
			return in.Len, nil
		}
		is := in.Mems()
		if in.Len != o.Len || len(is) == 0 {
			return 0, differs
		}
		if there := pc + uint64(in.Len) + uint64(is[0].Disp); there != to && (ms[0].Base != x86.EIP || uint32(there) != uint32(to)) {
			return 0, differs
		}
		a, b := bytes.Clone(oc), bytes.Clone(code)
		clear(a[o.DispOff : o.DispOff+o.DispLen])
		clear(b[o.DispOff : o.DispOff+o.DispLen])
		if !bytes.Equal(a, b) {
			return 0, differs
		}
		return in.Len, nil
	}
	if !bytes.Equal(oc, code) {
		return 0, differs
	}
	return in.Len, nil
}
