package patch

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/ripstop/ripstop/internal/present"
	"github.com/ripstop/ripstop/internal/x86"
)

// A Text is executable memory of one module: its bytes and where instructions are known to begin. Bytes that are in no known instruction are never changed. It is not for
// several goroutines at once.
type Text struct {
	at       uint64
	orig     []byte
	now      *Overlay // as planned so far
	lens     []uint64 // four bits for each address: the length of the instruction that is known to begin there, 0 if none is
	targets  []uint64 // a bit for each address that a known branch leads to, or that Enter or Complete has marked
	complete bool     // no instruction is entered inside but at targets
	loops    []uint64 // likewise, for each that lies in a loop: between a known branch back and its target
	kept     []Range
	recent   *[recent]decoded // nil: they are not kept
	common   bool             // other texts have lens, targets and loops in common
}

// decoded is an instruction that was looked at lately. Planning goes from behind to the front, and comes to each several times.
type decoded struct {
	at uint64 // 0: none
	in x86.Inst
}

// recent is how many of them are kept, by address.
const recent = 128

// NewText makes a text of code that lies at an address, in the lower half of the address space. The code is not copied and must not change.
func NewText(at uint64, code []byte) *Text {
	lens, bits := knownWords(len(code))
	return &Text{at: at, orig: code, now: NewOverlay(code), lens: present.Words(lens), targets: present.Words(bits), loops: present.Words(bits)}
}

// Keep says that nothing in [lo, hi) may be changed, nor run elsewhere, though instructions are known there: a restartable sequence, which the kernel aborts only if
// it finds the thread between the sequence's ends (rseq(2)). It must be called before the instructions become known.
func (t *Text) Keep(lo, hi uint64) { t.kept = append(t.kept, Range{lo, hi}) }

func (t *Text) keeps(addr uint64) bool {
	return len(t.kept) > 0 && slices.ContainsFunc(t.kept, func(r Range) bool { return addr >= r.Lo && addr < r.Hi })
}

// AddFunction makes known that instructions follow each other in [lo, hi). It gives the address up to which they could be decoded. What is no instruction is data, and so are two bytes of
// zero, which would add al to the byte that rax points to: no code that makes sense does, and most data has them. Data may begin with what looks like instructions, so all behind the
// last one that control does not pass is taken for it. (What describes a return point lies in front of its code, within a function, where the Glasgow Haskell Compiler makes them.) What a
// function begins with is code, up to an instruction that is not known.
func (t *Text) AddFunction(lo, hi uint64) uint64 {
	t.own()
	hi = min(hi, t.end())
	begin, passed := lo, lo // passed: behind that last instruction
	for lo >= t.at && lo < hi {
		n, to := 0, uint64(0)
		code := t.orig[lo-t.at : hi-t.at]
		short, distance, call, ok := x86.DirectBranch(code)
		stops := false
		switch {
		case ok:
			n, to = short, lo+uint64(short)+uint64(distance)
			stops = !call && code[0]|2 == 0xeb
		default:
			in, err := x86.Decode(code)
			switch {
			case err != nil && passed == begin: // one that the decoder does not know, if there is code at all
				return lo
			case err != nil || code[0] == 0 && code[1] == 0:
				for a := passed; a < lo; a++ {
					t.unlearn(a)
				}
				return passed
			}
			n = in.Len
			to, ok = in.Target(lo)
			stops = in.Flow == x86.FlowRet || in.Flow == x86.FlowJump || in.Flow == x86.FlowIndirectJump || in.Flow == x86.FlowHalt
		}
		t.Add(lo, n)
		if ok && to-t.at < uint64(len(t.orig)) {
			t.Enter(to)
			for a := to; a <= lo && lo-to < maxLoop; a++ {
				t.loops[(a-t.at)/64] |= 1 << ((a - t.at) % 64)
			}
		}
		if lo += uint64(n); stops {
			passed = lo
		}
	}
	return lo
}

// unlearn says that no instruction is known to begin at an address. Where one was thought to lead stays entered.
func (t *Text) unlearn(at uint64) {
	t.own()
	i := at - t.at
	t.lens[i/16] &^= 15 << (i % 16 * 4)
}

// Add makes known that an instruction of so many bytes begins at an address. It must be one: whoever has decoded it says so.
func (t *Text) Add(at uint64, n int) {
	t.own()
	if i := at - t.at; !t.keeps(at) {
		t.lens[i/16] |= uint64(n) << (i % 16 * 4)
	}
}

// Enter says that code may jump to an address, which may lie inside an instruction, as behind its lock prefix.
func (t *Text) Enter(addr uint64) {
	t.own()
	if i := addr - t.at; i < uint64(len(t.orig)) {
		t.targets[i/64] |= 1 << (i % 64)
	}
}

// Complete says that the text is all of its module's code, and that the instructions are known that could be found. From now on code jumps into an instruction only where a known branch
// leads, or what would be one in bytes that belong to no known instruction, or where Enter says so. Before, it may jump behind any lock prefix. (Pointers lead to functions, labels
// and landing pads, none of which lies behind a prefix of an instruction; who jumps there, as glibc does to lock only where there are several threads, does so by a branch of its own.)
// Where known instructions overlap both are taken to be run in either case. It must be called before the text is planned for.
func (t *Text) Complete() {
	t.own()
	t.complete = true
	for a := t.at; a < t.end(); {
		if n := t.Len(a); n > 0 {
			a += uint64(n)
			continue
		}
		if to, ok := mayBranchTo(t.orig[a-t.at:], a); ok && !t.Begins(to) {
			t.Enter(to)
		}
		a++
	}
}

// mayBranchTo gives the target of the relative branch that bytes at an address are, prefixes aside, if they are one.
func mayBranchTo(b []byte, at uint64) (uint64, bool) {
	long := 0 // where a distance of four bytes begins
	switch op := b[0]; {
	case len(b) < 2:
		return 0, false
	case op&0xf0 == 0x70, op >= 0xe0 && op <= 0xe3, op == 0xeb:
		return at + 2 + uint64(int64(int8(b[1]))), true
	case op == 0xe8 || op == 0xe9:
		long = 1
	case op == 0x0f && b[1]&0xf0 == 0x80, op == 0xc7 && b[1] == 0xf8:
		long = 2
	}
	if long == 0 || len(b) < long+4 {
		return 0, false
	}
	return at + uint64(long) + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(b[long:])))), true
}

func (t *Text) end() uint64 { return t.at + uint64(len(t.orig)) }

// Len gives the length of the instruction that is known to begin at an address, 0 if none is.
func (t *Text) Len(addr uint64) int {
	i := addr - t.at
	if i >= uint64(len(t.orig)) {
		return 0
	}
	return int(t.lens[i/16] >> (i % 16 * 4) & 15)
}

// Begins says whether an instruction is known to begin at an address.
func (t *Text) Begins(addr uint64) bool { return t.Len(addr) != 0 }

// Next gives the first known beginning at or behind an address, or hi.
func (t *Text) Next(addr, hi uint64) uint64 {
	for addr < min(hi, t.end()) {
		i := addr - t.at
		if w := t.lens[i/16] >> (i % 16 * 4); w != 0 {
			return min(addr+uint64(bits.TrailingZeros64(w)/4), hi)
		}
		addr += 16 - i%16
	}
	return hi
}

// Unknown gives the addresses to which known branches lead, or that Enter has marked, where no instruction is known to begin, in order.
func (t *Text) Unknown() (list []uint64) {
	for i, w := range t.targets {
		for ; w != 0; w &= w - 1 {
			if a := t.at + uint64(i)*64 + uint64(bits.TrailingZeros64(w)); !t.Begins(a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// maxLoop is the most bytes of a loop; others are taken for none.
const maxLoop = 2048

// loop says whether an address lies in a loop.
func (t *Text) loop(addr uint64) bool {
	i := addr - t.at
	return i < uint64(len(t.orig)) && t.loops[i/64]>>(i%64)&1 != 0
}

// target says whether a known branch leads to an address.
func (t *Text) target(addr uint64) bool {
	i := addr - t.at
	return i < uint64(len(t.orig)) && t.targets[i/64]>>(i%64)&1 != 0
}

// before gives the known instruction that ends where one begins, 0 if there is none.
func (t *Text) before(addr uint64) uint64 {
	for k := uint64(1); k <= x86.MaxLen; k++ {
		if t.Len(addr-k) == int(k) {
			return addr - k
		}
	}
	return 0
}

// inst gives the original instruction that begins at an address, until another one is asked for.
func (t *Text) inst(addr uint64) (in *x86.Inst, code []byte, ok bool) {
	n := t.Len(addr)
	if n == 0 {
		return nil, nil, false
	}
	var d *decoded
	if t.recent != nil {
		d = &t.recent[addr%recent]
	} else {
		d = &decoded{}
	}
	code = t.orig[addr-t.at:]
	if d.at != addr {
		var err error
		if d.in, err = x86.Decode(code); err != nil || d.in.Len != n { // n is what somebody said
			d.at = 0
			return nil, nil, false
		}
		d.at = addr
	}
	return &d.in, code[:n], true
}

// remember has instructions that were looked at kept until forget.
func (t *Text) remember() {
	if t.recent == nil {
		t.recent = new([recent]decoded)
	}
}
func (t *Text) forget() { t.recent = nil }

// mayCall says whether the instruction may be a call, by its bytes: e8, ff/2 and ff/3 are, and 9a is none in 64-bit mode.
func (t *Text) mayCall(addr uint64) bool {
	for _, b := range t.orig[addr-t.at:][:t.Len(addr)] {
		if b == 0xe8 || b == 0xff {
			return true
		}
	}
	return false
}

// room gives how many of an instruction's first bytes may be overwritten: up to the first that is jumped to.
func (t *Text) room(addr uint64) int {
	n := t.Len(addr)
	if next := t.Next(addr+1, addr+uint64(n)); next < addr+uint64(n) {
		n = int(next - addr)
	}
	if t.complete {
		i := addr - t.at
		return int(nextSet(t.targets, i+1, i+uint64(n)) - i)
	}
	for k := 1; k < n; k++ {
		if t.orig[addr+uint64(k)-1-t.at] == 0xf0 {
			if in, _, ok := t.inst(addr); ok && in.Lock && k <= int(in.PrefixLen) {
				return k
			}
		}
	}
	return n
}

// fixed says whether all bytes of a jump's distance are the instruction's own, which may not change: its trampoline has one place, and so comes before those that have some to
// choose from.
func (t *Text) fixed(addr uint64) bool {
	return t.orig[addr-t.at] == 0xf0 && t.Len(addr) >= jumpLen && !t.shared(addr) && t.room(addr) == 1
}

// shared says whether the instruction at an address lies inside another known one.
func (t *Text) shared(addr uint64) bool {
	for k := 1; k < x86.MaxLen; k++ {
		if t.Len(addr-uint64(k)) > k {
			return true
		}
	}
	return false
}

// Inside says whether an address lies inside a known instruction, behind its first byte.
func (t *Text) Inside(addr uint64) bool { return t.shared(addr) }

// Bytes gives a copy of the bytes at [lo, hi) as planned so far.
func (t *Text) Bytes(lo, hi uint64) []byte { return t.now.Copy(lo-t.at, hi-t.at) }

// set plans bytes from an address on.
func (t *Text) set(at uint64, b []byte) { t.now.Set(at-t.at, b) }

// restore makes the bytes at [lo, hi) the original ones.
func (t *Text) restore(lo, hi uint64) { t.set(lo, t.orig[lo-t.at:hi-t.at]) }
