package recover

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/x86"
)

// A Function is what a function of the C library does to its caller's memory, by the registers that it is called with.
type Function [2]effect

// An effect is bytes that a function accesses for its caller, all of them, if it returns.
type effect struct {
	flags  Flags
	at     uint8 // register that points to the first byte
	length length
	other  uint8 // register that must point elsewhere, or nothing may happen; the same as at: none
}

// A length says how many bytes an effect has.
type length uint8

const (
	nothing length = iota
	byRDX          // so many
	byRSI          //
	byRDX4         // so many elements of four
	toZero         // what the function returns, and the zero behind them
	toEnd          // from rdi up to where what it returns points, and the zero there
	ifEqual        // rdx, if it returns 0
)

const (
	rax = 0
	rdx = 2
	rsi = 6
	rdi = 7
)

var (
	copies   = Function{{Read, rsi, byRDX, rdi}, {Write, rdi, byRDX, rsi}} // memmove leaves alone what is there already
	wide     = Function{{Read, rsi, byRDX4, rdi}, {Write, rdi, byRDX4, rsi}}
	text     = Function{{Read, rsi, toEnd, rdi}, {Write, rdi, toEnd, rsi}}
	fills    = Function{{Write, rdi, byRDX, rdi}}
	zeroes   = Function{{Write, rdi, byRSI, rdi}}
	compares = Function{{Read, rdi, ifEqual, rsi}, {Read, rsi, ifEqual, rdi}}
)

// libraryFunctions are those whose accesses follow from their arguments and what they return (ISO C17 7.24 and 7.29.4, POSIX bcopy and stpcpy). Those with
// _chk (LSB core, 'Interfaces for libc') do the same or end the program.
var libraryFunctions = map[string]*Function{
	"memcpy": &copies, "memmove": &copies, "mempcpy": &copies, "__mempcpy": &copies, "__memcpy_chk": &copies, "__memmove_chk": &copies, "__mempcpy_chk": &copies,
	"wmemcpy": &wide, "wmemmove": &wide, "wmempcpy": &wide, "wmemset": {{Write, rdi, byRDX4, rdi}},
	"stpcpy": &text, "__stpcpy": &text, "__stpcpy_chk": &text, "strlen": {{Read, rdi, toZero, rdi}},
	"memset": &fills, "__memset_chk": &fills, "bzero": &zeroes, "__bzero": &zeroes, "explicit_bzero": &zeroes,
	"bcopy":  {{Read, rdi, byRDX, rsi}, {Write, rsi, byRDX, rdi}},
	"memcmp": &compares, "bcmp": &compares,
}

// isCLibrary says whether a file is glibc's C library, by its name; before 2.34 files were named by their version.
func isCLibrary(path string) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "libc-2.")
}

// functionsOf gives the functions of libraryFunctions by their entries. A function that the processor's abilities choose is all those that its resolver can
// return: it makes their addresses relative to itself, and no other code's (glibc, sysdeps/x86_64/multiarch/ifunc-*.h).
func functionsOf(symbols []sample.Symbol, code pt.Image) map[uint64]*Function {
	all := map[uint64]*Function{}
	clash := map[uint64]bool{}
	add := func(addr uint64, f *Function) {
		if old := all[addr]; old != nil && *old != *f {
			clash[addr] = true
		}
		all[addr] = f
	}
	for _, s := range symbols {
		f := libraryFunctions[s.Name]
		switch {
		case f == nil:
		case !s.Resolver:
			add(s.Addr, f)
		default:
			for _, addr := range pointersIn(code, s.Addr, s.Size) {
				add(addr, f)
			}
		}
	}
	for addr := range clash {
		delete(all, addr)
	}
	for _, s := range symbols { // what a resolver points to that is known as something else is not what it returns
		if f := all[s.Addr]; f != nil && libraryFunctions[s.Name] != f && (libraryFunctions[s.Name] == nil || *libraryFunctions[s.Name] != *f) {
			delete(all, s.Addr)
		}
	}
	return all
}

// pointersIn gives the code that a function makes pointers to.
func pointersIn(code pt.Image, addr, size uint64) (all []uint64) {
	const most = 4096
	for end := addr + min(size, most); addr < end; {
		in, err := x86.Decode(code.Code(addr))
		if err != nil {
			return nil
		}
		addr += uint64(in.Len)
		if m := in.Mems(); in.Op == "lea" && m[0].RIPRelative() {
			if to := addr + uint64(m[0].Disp); len(code.Code(to)) > 0 && !slices.Contains(all, to) {
				all = append(all, to)
			}
		}
	}
	return all
}

// A libCall is a call of a Function by the program's own code that came back.
type libCall struct {
	entry  int  // position of the function's first instruction, or if it is not traced of the one that went there
	back   int  // of the caller's first behind the call
	caller int  // of the instruction that called, or jumped there to return for its own function
	tail   bool // it jumped
	stub   bool // and came by a stub of the procedure linkage table
	f      *Function
	regs   [4]uint64 // rax when it came back, rdx, rsi and rdi when it was called, as far as known by how
	how    [4]How
}

// argRegs are the registers of libCall.regs.
var argRegs = [4]uint8{rax, rdx, rsi, rdi}

// A look is a position before which registers of a libCall are looked at.
type look struct {
	pos  int32
	call int32
	back bool // rax is; else the others
}

// maxLibrary bounds the instructions between entry and return; what takes longer is not told.
const maxLibrary = 1 << 20

// library finds the calls among the entries of functions.
func (r *replay) library() {
	r.calls = r.calls[:0]
	if r.opt.Reach == Block {
		return
	}
	list, insts := r.path.list, r.code.insts
	from, to, cut := 0, 0, 0 // between two cuts
	for _, e := range r.entries {
		i := int(e)
		for to <= i {
			if from, to = to, len(list); cut < len(r.path.cuts) {
				to, cut = r.path.cuts[cut], cut+1
			}
		}
		if i == from || insts[list[i-1]].traits&isOutside != 0 {
			continue
		}
		back := i + 1
		for back < to && back-i < maxLibrary && insts[list[back]].traits&isOutside != 0 {
			back++
		}
		if back == to || insts[list[back]].traits&isOutside != 0 {
			continue
		}
		r.called(libCall{entry: i, back: back, f: r.code.functions[insts[list[i]].pc]}, from, i)
	}
	r.untraced()
	r.looks = r.looks[:0]
	for i := range r.calls {
		r.looks = append(r.looks, look{int32(r.calls[i].entry), int32(i), false}, look{int32(r.calls[i].back), int32(i), true})
	}
	slices.SortStableFunc(r.looks, func(a, b look) int { return int(a.pos - b.pos) })
}

// untraced finds the calls of functions that tracing leaves out.
func (r *replay) untraced() {
	p, from, cut, n := r.path, 0, 0, len(r.calls)
	for i := range p.outs {
		o := &p.outs[i]
		f := r.code.functions[o.entry]
		if f == nil || o.pos == 0 || o.pos >= len(p.list) || !within(r.code.outside, o.entry) {
			continue
		}
		for cut < len(p.cuts) && p.cuts[cut] < o.pos {
			from, cut = p.cuts[cut], cut+1
		}
		if _, lost := slices.BinarySearch(p.gaps, o.pos); !lost && o.pos > from {
			r.called(libCall{entry: o.pos - 1, back: o.pos, f: f}, from, o.pos)
		}
	}
	if n > 0 {
		slices.SortStableFunc(r.calls, func(a, b libCall) int { return a.entry - b.entry })
	}
}

// called takes a call that the instruction before a position went to its function for, if its caller is the program.
func (r *replay) called(c libCall, from, behind int) {
	list, insts := r.path.list, r.code.insts
	c.caller = behind - 1
	if at := r.stub(from, behind); at >= from {
		c.caller = at
	}
	c.stub = c.caller < behind-1
	by := &insts[list[c.caller]]
	if c.tail = by.traits&isCall == 0; by.traits&isOutside != 0 || !c.tail && by.next() != insts[list[c.back]].pc {
		return // libc's own call by a stub of the program's, a jump out of it, or a handler
	}
	r.calls = append(r.calls, c)
}

// stub gives the position of what led to the stub of the procedure linkage table that ends before a position: [endbr64] jmp *slot. -1: there is none.
func (r *replay) stub(from, entry int) int {
	list, insts := r.path.list, r.code.insts
	at := entry - 1
	if insts[list[at]].traits&isCall != 0 {
		return -1
	}
	if at > from && insts[list[at-1]].traits&isMarker != 0 && insts[list[at-1]].next() == insts[list[at]].pc {
		at--
	}
	if at--; at >= from && insts[list[at]].traits&isBranch != 0 && insts[list[at]].next() != insts[list[at+1]].pc {
		return at
	}
	return -1
}

// look notes what is known of the registers of a call.
func (r *replay) look(l look, how How) {
	c := &r.calls[l.call]
	if r.again {
		how = Combined
	}
	for i, reg := range argRegs {
		if v := &r.e.GPR[reg]; (i == 0) == l.back && c.how[i] == Unknown && v.Whole() {
			c.regs[i], c.how[i] = v.Bits, how
		}
	}
}

// firstLook gives the first of looks at or behind a position.
func (r *replay) firstLook(pos int) int {
	n, _ := slices.BinarySearchFunc(r.looks, pos, func(l look, pos int) int { return int(l.pos) - pos })
	return n
}

// forgetCalls forgets the registers of calls between two positions.
func (r *replay) forgetCalls(from, to int) {
	for i := range r.calls {
		c := &r.calls[i]
		if c.entry >= from && c.entry < to {
			c.how[1], c.how[2], c.how[3] = Unknown, Unknown, Unknown
		}
		if c.back >= from && c.back < to {
			c.how[0] = Unknown
		}
	}
}

// callAccesses gives the accesses of a call that the calling function made, as far as they are known; open is what is open at its entry.
func (r *replay) callAccesses(c *libCall, open *calling, out *Result) {
	list, insts, p := r.path.list, r.code.insts, r.path
	by, back := &insts[list[c.caller]], &insts[list[c.back]]
	calls := open.now
	switch top := &open.all[calls]; {
	case c.tail:
		if calls == 0 || top.Return != back.pc {
			return // whether it came back is not known
		}
	case c.stub && calls != 0 && top.Return == by.next(): // that of the stub
		calls = top.Outer
	}
	out.Counts.Calls++
	some := false
	c.accesses(func(flags Flags, addr, size uint64, how How) {
		some = true
		out.Accesses = append(out.Accesses, Access{
			Index: uint64(c.entry - p.own[0]), IP: by.pc, Addr: addr, Size: size, From: p.marks[p.at(c.entry)].from, To: p.marks[p.at(c.back)].to,
			Flags: flags | Called, How: how, Calls: calls,
		})
	})
	if some {
		out.Counts.Told++
	}
}

// accesses gives what a call accessed, as far as that is known.
func (c *libCall) accesses(emit func(flags Flags, addr, size uint64, how How)) {
	how := Unknown
	reg := func(n uint8) (v uint64, ok bool) {
		for i, r := range argRegs {
			if r == n && c.how[i] != Unknown {
				if how == Unknown || how == c.how[i] {
					how = c.how[i]
				} else {
					how = Combined
				}
				return c.regs[i], true
			}
		}
		return 0, false
	}
	for _, e := range c.f {
		if e.length == nothing {
			continue
		}
		how = Unknown
		addr, ok := reg(e.at)
		if !ok {
			continue
		}
		if e.other != e.at {
			if other, ok := reg(e.other); !ok || other == addr {
				continue
			}
		}
		size, ok := uint64(0), false
		switch e.length {
		case byRDX:
			size, ok = reg(rdx)
		case byRSI:
			size, ok = reg(rsi)
		case byRDX4:
			size, ok = reg(rdx)
			ok, size = ok && size < 1<<60, size*4
		case toZero:
			size, ok = reg(rax)
			size++
		case toEnd:
			var end, begin uint64
			if end, ok = reg(rax); ok {
				begin, ok = reg(rdi)
			}
			size = end - begin + 1
		case ifEqual:
			var differ uint64
			if differ, ok = reg(rax); ok {
				size, ok = reg(rdx)
			}
			ok = ok && uint32(differ) == 0
		}
		if ok && size > 0 && size < 1<<47 {
			emit(e.flags, addr, size, how)
		}
	}
}
