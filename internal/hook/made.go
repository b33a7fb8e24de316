package hook

import (
	"bytes"
	"debug/elf"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Made gives, of what lookMade found, the instructions by which a program or a library takes and gives back locks that it has made itself of a word and futexes, as Rust's standard library does and inlines: with the protocol of libc's own (see Locks), but no names to
// know them by. What is taken for one is proved to be, by what its code does:
//   - It is taken by a lock cmpxchg behind which who found it taken calls, with the word's address, a function that returns only when it has exchanged the word's 0 for 1 or 2, writes to no other memory than its stack, and waits by a futex for nothing but 2;
//     behind the call all goes on as without it.
//   - It is given back by an xchg behind which who finds 2 does no more than wake one that waits for the word, and goes on as who does not.
//
// So the hooks do what the code does, whatever the word is for, and what is not recognised goes on beside it by the same protocol. Tries have no such call and are not among them.
func Made(p *engine.Process, m *engine.Module, list []made) (sites []patch.Site) {
	hook := p.Func(wire.PatchFuncLockHook)
	for _, l := range list {
		in, ok := m.Instruction(l.at)
		if !ok || in.Inst.Len != int(l.next-l.at) {
			continue
		}
		if l.takes {
			sites = append(sites, patch.Site{At: l.at, Recipe: &taking{l.lock, hook, p.SaveOffset()}})
		} else {
			sites = append(sites, patch.Site{At: l.at, Recipe: &giving{l.lock, p.SaveOffset()}})
		}
	}
	return sites
}

// lookMade finds them, in the module's file.
func lookMade(p *engine.Process, m *engine.Module) []made {
	if m.Kind != engine.Program && m.Kind != engine.Library || p.Func(wire.PatchFuncLockHook) == 0 {
		return nil
	}
	return madeLocks(m, processReader(p, m))
}

// processReader reads the code of a module, and of those that it calls.
func processReader(p *engine.Process, m *engine.Module) *reader {
	return &reader{
		syscall: p.Func(wire.PatchFuncSyscall),
		word: func(at uint64) (uint64, bool) {
			relro := func(o *engine.Module) bool { return isRelro(o, at-o.Bias) }
			if !relro(m) && !slices.ContainsFunc(p.Modules(), relro) {
				return 0, false
			}
			return p.Word(at)
		},
		read: func(at, n uint64) []byte {
			if o := moduleAt(p, m, at); o != nil {
				return o.Image.Bytes(at-o.Bias, n)
			}
			return nil
		},
		name: func(at uint64) string {
			o := moduleAt(p, m, at)
			if o == nil {
				return ""
			}
			s, ok := o.Image.Symbol(at - o.Bias)
			if !ok || s.Addr != at-o.Bias {
				return ""
			}
			return s.Name
		},
	}
}

// moduleAt is the module that an address lies in, m itself if it is in none; nil: nothing is known of it.
func moduleAt(p *engine.Process, m *engine.Module, at uint64) *engine.Module {
	o := p.Module(at)
	switch {
	case o == nil:
		return m
	case o.Image == nil:
		return nil
	}
	return o
}

const madeHint = "made"

// hasNone says that it was found out of a module that it has none of what a hint lists.
func hasNone(m *engine.Module, hint string) bool {
	b, ok := m.Hinted(hint)
	if !ok {
		return false
	}
	list, err := parseList(b)
	return err == nil && len(list) == 0
}

// isRelro says whether eight bytes are written by the loader, and by nobody then.
func isRelro(m *engine.Module, at uint64) bool {
	if m.Image == nil {
		return false
	}
	lo, size, ok := m.Image.Program(elf.PT_GNU_RELRO)
	return ok && at >= lo && at-lo < size && size-(at-lo) >= 8
}

// A made is an instruction that takes such a lock, or gives one back.
type made struct {
	lock
	takes bool
}

// madeLocks gives those of a module. What is kept are the places that were any: they are looked at again.
func madeLocks(m *engine.Module, r *reader) (list []made) {
	var starts starts
	look := func(at uint64) {
		begin, ok := starts.of(m).function(at - m.Bias)
		if !ok {
			return
		}
		if l, ok := r.lock(begin+m.Bias, at); ok {
			list = append(list, l)
		}
	}
	if b, ok := m.Hinted(madeHint); ok {
		if places, err := parseList(b); err == nil {
			for _, at := range places {
				look(at + m.Bias)
			}
			return list
		}
	}
	each := func(f func(code []byte, at uint64)) {
		for _, s := range m.Image.Segments() {
			if s.Flags&elf.PF_X != 0 {
				f(m.Image.Bytes(s.Addr, s.FileSize), s.Addr+m.Bias)
			}
		}
	}
	each(func(code []byte, at uint64) {
		eachTaking(code, func(i int) { look(at + uint64(i)) })
	})
	if len(list) > 0 { // who gives such a lock back takes one, too
		each(func(code []byte, at uint64) {
			eachGiving(code, func(i int) { look(at + uint64(i)) })
		})
	}
	slices.SortFunc(list, func(a, b made) int { return int(int64(a.at - b.at)) })
	list = slices.CompactFunc(list, func(a, b made) bool { return a.at == b.at })
	var places []uint64
	for _, l := range list {
		places = append(places, l.at-m.Bias)
	}
	m.Hint(madeHint, appendList(nil, places))
	return list
}

func isREX32(b byte) bool { return b&0xf8 == 0x40 }

// eachTaking calls f with the offsets at which there are the bytes of a lock cmpxchg of 32 bits.
func eachTaking(code []byte, f func(int)) {
	for i := 0; ; i++ {
		n := bytes.IndexByte(code[i:], lockPrefix)
		if n < 0 {
			return
		}
		i += n
		rest := code[i+1:]
		if len(rest) > 0 && isREX32(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) > 2 && rest[0] == 0x0f && rest[1] == 0xb1 {
			f(i)
		}
	}
}

// eachGiving calls f with the offsets at which there are the bytes of an xchg of 32 bits with memory, where a comparison with 2 is near.
func eachGiving(code []byte, f func(int)) {
	const memory, near = 0xc0, 32
	for i := 0; ; i++ {
		n := bytes.IndexByte(code[i:], opXchg)
		if n < 0 || i+n+2 >= len(code) {
			return
		}
		i += n
		if code[i+1] >= memory || bytes.IndexByte(code[i+2:min(i+2+near, len(code))], 2) < 0 {
			continue
		}
		if i > 0 && isREX32(code[i-1]) {
			f(i - 1)
		}
		f(i)
	}
}

// A reader reads code, by addresses in the process.
type reader struct {
	word         func(at uint64) (uint64, bool) // eight bytes that do not change; false: they may
	read         func(at, n uint64) []byte      // code: up to so many bytes
	name         func(at uint64) string         // of the function that begins there
	taker, waker map[uint64]bool                // functions that were looked at
	syscall      uint64                         // the agent's; 0: there is none
	pages        map[uint64][]byte
}

// code gives the code from an address on: an instruction, at least.
func (r *reader) code(at uint64) []byte {
	const page, longest = 4096, 16
	b, ok := r.pages[at/page]
	if !ok {
		if b = r.read(at&^(page-1), page+longest); b == nil { // what is loaded begins in the middle
			return r.read(at, longest)
		}
		if r.pages == nil {
			r.pages = map[uint64][]byte{}
		}
		r.pages[at/page] = b
	}
	return b[min(at%page, uint64(len(b))):]
}

// known gives what look says of a function, asked once.
func known(list *map[uint64]bool, fn uint64, look func(uint64) bool) bool {
	is, ok := (*list)[fn]
	if !ok {
		if *list == nil {
			*list = map[uint64]bool{}
		}
		is = look(fn)
		(*list)[fn] = is
	}
	return is
}

// An insn is an instruction, and where it lies.
type insn struct {
	x86.Inst
	at uint64
}

func (i *insn) next() uint64 { return i.at + uint64(i.Len) }

func (r *reader) insn(at uint64) (i insn, ok bool) {
	in, err := x86.Decode(r.code(at))
	return insn{in, at}, err == nil
}

// lock says what the instruction at an address, in a function that begins at another, is; false: none of these.
func (r *reader) lock(begin, at uint64) (l made, ok bool) {
	in, ok := r.insn(at)
	if !ok || len(in.Args()) != 2 || len(in.Mems()) != 1 || in.Op != "xchg" && (in.Op != "cmpxchg" || !in.Lock) {
		return l, false
	}
	l = made{lock: lock{at: at, next: in.next(), mem: in.Mems()[0]}, takes: in.Op == "cmpxchg"}
	for _, a := range in.Args() {
		if a.Kind == x86.ArgReg {
			l.reg = a.Reg
		}
	}
	if l.mem.Size != 4 || l.mem.Seg != x86.NoReg || l.reg < x86.EAX || l.reg >= x86.EAX+16 || l.reg.Num() == x86.RSP.Num() || !plain(l.mem.Base) && l.mem.Base != x86.RIP || l.mem.Index != x86.NoReg {
		return l, false
	}
	if l.mem.Base == x86.RIP {
		l.mem = x86.Abs(l.next+uint64(l.mem.Disp), 4)
	}
	slow, fast, skipped, ok := r.branch(&l)
	if !ok {
		return l, false
	}
	t := r.track(begin, at, r.frame())
	if t == nil {
		return l, false
	}
	word := t.address(l.mem, l.next)
	t.do(&in)
	if l.takes {
		t.regs[x86.RAX.Num()] = value{sym: found}
	} else {
		t.regs[l.reg.Num()] = value{sym: found}
	}
	for i := range skipped {
		if !t.storesOnStack(&skipped[i].Inst) { // others would see it before the lock is taken
			return l, false
		}
		t.do(&skipped[i])
	}
	return l, r.sameBut(t, word, slow, fast, &l)
}

// branch gives where who must do more goes on, where all others do, and what lies between the exchange and the branch.
func (r *reader) branch(l *made) (slow, fast uint64, skipped []insn, ok bool) {
	compared := l.takes
	for at := l.next; len(skipped) <= mostBefore; {
		in, ok := r.insn(at)
		to, _ := in.Target(at)
		switch {
		case !ok:
			return 0, 0, nil, false
		case in.Flow == x86.FlowCond && compared && (in.Op == "je" || in.Op == "jne"):
			if (in.Op == "je") == l.takes {
				return in.next(), to, skipped, true
			}
			return to, in.next(), skipped, true
		case in.Flow != x86.FlowNone || in.FlagsRead != 0 || stores(&in.Inst) && (in.Op != "mov" || !onStack(in.Mems()[0])):
			return 0, 0, nil, false
		case !l.takes && in.Op == "cmp" && len(in.Args()) == 2 && in.Args()[0].Kind == x86.ArgReg && in.Args()[0].Reg == l.reg && in.Args()[1].Kind == x86.ArgImm && in.Args()[1].Imm == 2:
			compared = true
		case in.FlagsWritten != 0 || in.Reads.Has(l.reg) || in.Writes.Has(l.reg):
			return 0, 0, nil, false // what was found is for the comparison alone
		}
		skipped = append(skipped, in)
		at = in.next()
	}
	return 0, 0, nil, false
}

func stores(in *x86.Inst) bool {
	return slices.ContainsFunc(in.Mems(), func(m x86.Mem) bool { return m.Access&x86.Write != 0 })
}

// A detour is what is done by who finds a lock taken, or somebody waiting.
type detour struct {
	t, was  *tracker  // now, and when it began, as it is for all others
	changed []x86.Reg // registers that calls keep, and that it has written to
	spilled []value   // where it has stored registers, for itself
	leaves  []insn    // what takes a frame down, before a call by a jump
	frame   int64     // that is there for the call
	pushed  x86.Reg   // with it
}

// sameBut says whether who goes on at slow does what who goes on at fast does, and before that only calls a function that takes the word's lock, or wakes one who waits for it; and whether what an xchg has found is gone then.
func (r *reader) sameBut(t *tracker, word value, slow, fast uint64, l *made) bool {
	const most = 16
	d := detour{t: t, was: t.clone()}
	at := slow
	if !l.takes && !isScratch(l.reg) && !r.dead(l.reg, fast) {
		return false
	}
	for range most {
		in, ok := r.insn(at)
		if !ok {
			return false
		}
		to, known := t.target(&in)
		open, isFrame := moveStack(&in.Inst)
		switch {
		case in.Flow == x86.FlowCall, in.Flow == x86.FlowIndirectCall:
			if !known || len(d.leaves) > 0 || !r.does(t, to, word, l.takes) {
				return false
			}
			t.do(&in)
			return r.joins(&d, in.next(), fast)
		case (in.Flow == x86.FlowJump || in.Flow == x86.FlowIndirectJump) && known && r.does(t, to, word, l.takes):
			return d.frame == 0 && r.allDead(d.changed, fast) && r.leaves(d.leaves, fast)
		case in.Flow == x86.FlowJump:
			at = to
			continue
		case in.Flow != x86.FlowNone:
			return false
		case isFrame && open > 0 && len(d.leaves) == 0:
			d.frame += open
			if in.Op == "push" {
				d.pushed = in.Args()[0].Reg
			}
		case in.Op == "pop" || in.Op == "leave" || in.Writes.Has(x86.RSP) && in.Op != "push":
			d.leaves = append(d.leaves, in)
		case !d.moves(&in):
			return false
		}
		t.do(&in)
		at = in.next()
	}
	return false
}

// moves says whether an instruction only gives an argument, or keeps a register over a call, and notes it.
func (d *detour) moves(in *insn) bool {
	switch in.Op {
	case "mov", "lea", "xor", "add", "nop":
	default:
		return false
	}
	a := in.Args()
	if len(a) == 0 {
		return true
	}
	if a[0].Kind == x86.ArgReg {
		if !isScratch(a[0].Reg) {
			d.changed = append(d.changed, a[0].Reg)
		}
		return true
	}
	if in.Op != "mov" || !d.t.storesOnStack(&in.Inst) || a[1].Kind != x86.ArgReg || !is64(a[1].Reg) {
		return in.Op == "nop"
	}
	d.spilled = append(d.spilled, d.t.address(in.Mems()[0], in.next()))
	return true
}

// moveStack says by how much an instruction moves the stack pointer down, if that is all it does, but for a register that calls may change. A push of another one, and the pop that puts it back, are a frame, too.
func moveStack(in *x86.Inst) (n int64, ok bool) {
	a := in.Args()
	switch {
	case in.Op == "push" && a[0].Kind == x86.ArgReg && is64(a[0].Reg):
		return 8, true
	case in.Op == "pop" && a[0].Kind == x86.ArgReg && (isScratch(a[0].Reg) || a[0].Reg == x86.RBP):
		return -8, true
	case len(a) != 2 || a[0].Kind != x86.ArgReg || a[0].Reg != x86.RSP || a[1].Kind != x86.ArgImm:
	case in.Op == "sub":
		return a[1].Imm, true
	case in.Op == "add":
		return -a[1].Imm, true
	}
	return 0, false
}

func (r *reader) allDead(list []x86.Reg, at uint64) bool {
	return !slices.ContainsFunc(list, func(reg x86.Reg) bool { return !r.dead(reg, at) })
}

// dead says whether what a register has is gone before anybody asks for it, wherever who goes on at an address may come to.
func (r *reader) dead(reg x86.Reg, at uint64) bool {
	const most = 300
	seen := map[uint64]bool{}
	for todo := []uint64{at}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for !seen[at] {
			seen[at] = true
			in, ok := r.insn(at)
			to, relative := in.Target(at)
			if !ok || len(seen) > most || in.Reads.Has(reg) {
				return false
			}
			if in.Writes.Has(reg) && !in.Kept.Has(reg) {
				break
			}
			at = in.next()
			switch in.Flow {
			case x86.FlowNone:
			case x86.FlowCond:
				todo = append(todo, to)
			case x86.FlowCall, x86.FlowIndirectCall:
				if isScratch(reg) {
					return false
				}
			case x86.FlowJump:
				if !relative {
					return false
				}
				at = to
			case x86.FlowTrap:
				seen[at] = true // nobody comes there
			default:
				return false
			}
		}
	}
	return true
}

// does says whether a function, called with these arguments, is what is looked for.
func (r *reader) does(t *tracker, to uint64, word value, takes bool) bool {
	if takes {
		return t.reg(x86.RDI) == word && word.sym != nowhere && r.takesBy(to)
	}
	return t.reg(x86.RDI) == word && word.sym != nowhere && r.wakesBy(to) || t.callsWake(word) && r.isSyscall(to)
}

func onStack(m x86.Mem) bool {
	return m.Seg == x86.NoReg && m.Index == x86.NoReg && (m.Base == x86.RSP || m.Base == x86.RBP)
}

// isScratch says whether calls may change a register.
func isScratch(r x86.Reg) bool {
	if r.Class() != x86.ClassGPR {
		return false
	}
	switch n := r.Num(); {
	case n == x86.RBX.Num(), n == x86.RBP.Num(), n == x86.RSP.Num(), n >= 12:
		return false
	}
	return true
}

// joins says whether who comes from a call goes on as who did not need it, but that registers are put back as they were, and a frame is taken down.
func (r *reader) joins(d *detour, slow, fast uint64) bool {
	const most = 64
	over := func(at uint64) bool { // nothing is left of it
		left := slices.DeleteFunc(d.changed, func(reg x86.Reg) bool { return d.t.reg(reg) == d.was.reg(reg) && d.was.reg(reg).sym != found })
		return d.frame == 0 && len(d.spilled) == 0 && r.allDead(left, at)
	}
	for range most {
		slow, fast = r.skip(slow), r.skip(fast)
		if slow == fast {
			return over(fast)
		}
		s, ok := r.insn(slow)
		f, known := r.insn(fast)
		if !ok || !known {
			return false
		}
		closes, isFrame := moveStack(&s.Inst)
		switch {
		case isFrame && d.frame != 0 && closes == -d.frame:
			d.frame = 0
			if s.Op == "pop" && !isScratch(s.Args()[0].Reg) {
				if s.Args()[0].Reg != d.pushed {
					return false
				}
				d.changed = slices.DeleteFunc(d.changed, func(reg x86.Reg) bool { return reg == d.pushed })
			}
			d.t.do(&s)
			slow = s.next()
		case r.turned(&s, &f):
			return over(fast)
		case r.same(&s, &f) && (d.frame == 0 || s.Flow == x86.FlowNone && !s.Reads.Has(x86.RSP) && !s.Reads.Has(x86.RBP)):
			if s.Flow == x86.FlowRet || s.Flow == x86.FlowTrap {
				return d.frame == 0 && len(d.spilled) == 0 && len(d.changed) == 0
			}
			if slices.ContainsFunc(d.changed, func(reg x86.Reg) bool { return s.Reads.Has(reg) }) {
				return false
			}
			d.changed = slices.DeleteFunc(d.changed, func(reg x86.Reg) bool { return s.Writes.Has(reg) && !s.Kept.Has(reg) })
			d.t.do(&s)
			d.was.do(&f)
			slow, fast = s.next(), f.next()
		case s.Op == "mov" && isRestore(&s.Inst):
			if s.Args()[1].Kind == x86.ArgMem {
				at := d.t.address(s.Mems()[0], s.next())
				d.spilled = slices.DeleteFunc(d.spilled, func(v value) bool { return v == at })
			}
			d.t.do(&s)
			if reg := s.Args()[0].Reg; d.t.reg(reg) != d.was.reg(reg) || d.was.reg(reg).sym == found {
				return false
			}
			slow = s.next()
		default:
			return false
		}
	}
	return false
}

// turned says whether two branches part to the same two places, by conditions that are each other's opposite.
func (r *reader) turned(a, b *insn) bool {
	at, _ := a.Target(a.at)
	bt, _ := b.Target(b.at)
	opposite := a.Op == "je" && b.Op == "jne" || a.Op == "jne" && b.Op == "je"
	return a.Flow == x86.FlowCond && opposite && r.skip(at) == r.skip(b.next()) && r.skip(a.next()) == r.skip(bt)
}

func isRestore(in *x86.Inst) bool {
	a := in.Args()
	return len(a) == 2 && a[0].Kind == x86.ArgReg && (a[1].Kind == x86.ArgReg || a[1].Kind == x86.ArgMem && onStack(in.Mems()[0]))
}

// leaves says whether who needs no call returns as who calls by a jump.
func (r *reader) leaves(list []insn, fast uint64) bool {
	returning := func() (f insn, ok bool) { // past what gives registers back that calls keep
		for range mostBefore {
			if f, ok = r.insn(r.skip(fast)); !ok || f.Op != "mov" || !isRestore(&f.Inst) || isScratch(f.Args()[0].Reg) {
				return f, ok
			}
			fast = f.next()
		}
		return f, false
	}
	for _, s := range list {
		f, ok := returning()
		if !ok {
			return false
		}
		sn, sok := moveStack(&s.Inst)
		fn, fok := moveStack(&f.Inst)
		if !r.same(&s, &f) && !(sok && fok && sn == fn && !s.Writes.Has(x86.RBP) && !f.Writes.Has(x86.RBP)) {
			return false
		}
		fast = f.next()
	}
	f, ok := returning()
	return ok && f.Flow == x86.FlowRet
}

// skip goes along jumps, and over what does nothing.
func (r *reader) skip(at uint64) uint64 {
	for range mostBefore {
		in, ok := r.insn(at)
		switch to, relative := in.Target(at); {
		case !ok:
			return at
		case in.Flow == x86.FlowJump && relative:
			at = to
		case in.Op == "nop" || in.Op == "endbr64":
			at = in.next()
		default:
			return at
		}
	}
	return at
}

// same says whether two instructions do the same, wherever they lie.
func (r *reader) same(a, b *insn) bool {
	if a.Op != b.Op || len(a.Args()) != len(b.Args()) || len(a.Mems()) != len(b.Mems()) || a.Lock != b.Lock || a.Flow != b.Flow {
		return false
	}
	at, relative := a.Target(a.at)
	bt, too := b.Target(b.at)
	if relative || too {
		return relative && too && at == bt
	}
	for n, m := range a.Mems() {
		o := b.Mems()[n]
		if m.Base == x86.RIP && o.Base == x86.RIP {
			m.Disp += int64(a.next())
			o.Disp += int64(b.next())
		}
		if m != o {
			return false
		}
	}
	for n, v := range a.Args() {
		if v != b.Args()[n] {
			return false
		}
	}
	return true
}

// isSyscall says whether a function is libc's syscall, or the agent's in its place, or who calls it.
func (r *reader) isSyscall(at uint64) bool {
	if at == r.syscall && at != 0 {
		return true
	}
	name, _, _ := strings.Cut(r.name(at), "@")
	return name == "syscall"
}
