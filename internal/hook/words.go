package hook

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Words gives, of what lookWords found, the instructions by which a program or a library changes words that it waits for by futexes: of Rust's RwLock and Once, of C++20's semaphores, latches and atomic waits, of locks and conditions of its own making. But for those of locks that Made
// knows, which say by chance that somebody waits.
//
// Nothing but their order is recorded (internal/agent/c/guardfutex.c), and each does what it does. So what is taken for one need not be proved, as with Made; only few of those that are none are to be found, as each costs some nanoseconds: counters and pointers that threads share are changed by such instructions, too.
func Words(p *engine.Process, m *engine.Module, list []uint64) (sites []patch.Site) {
	hook, over := p.Func(wire.PatchFuncFutexHook), p.Func(wire.PatchFuncFutexOverHook)
	for _, at := range list {
		in, ok := m.Instruction(at)
		if !ok || !isChange(&in.Inst) {
			continue
		}
		sites = append(sites, patch.Site{At: at, Recipe: &changing{at: at, in: in.Inst, code: slices.Clone(in.Code[:in.Inst.Len]), hook: hook, over: over, alone: int64(p.Func(wire.PatchFuncWordsAlone))}})
	}
	return sites
}

// lookWords finds them, but for those that are known as locks.
func lookWords(p *engine.Process, m *engine.Module, locks []made) (list []uint64) {
	if m.Kind != engine.Program && m.Kind != engine.Library || p.Func(wire.PatchFuncFutexHook) == 0 {
		return nil
	}
	if b, ok := m.Hinted(wordsHint); ok {
		if places, err := parseList(b); err == nil {
			for _, at := range places {
				list = append(list, at+m.Bias)
			}
			return list
		}
	}
	f := moduleFinder(p, m)
	list = slices.DeleteFunc(f.find(), func(at uint64) bool {
		return slices.ContainsFunc(locks, func(l made) bool { return l.at == at })
	})
	var places []uint64
	for _, at := range list {
		places = append(places, at-m.Bias)
	}
	m.Hint(wordsHint, appendList(nil, places))
	return list
}

const wordsHint = "words"

// end gives where the function that begins at an address ends, at the latest.
func (s *starts) end(begin uint64) uint64 {
	const longest = 64 << 10
	i := sort.Search(len(s.table)/startSize, func(i int) bool { return s.at(i) > begin })
	if i == len(s.table)/startSize {
		return begin + longest
	}
	return min(s.at(i), begin+longest)
}

// A segment is code, and where it lies.
type segment struct {
	at   uint64
	code []byte
}

// A wordFinder looks at a module's code.
type wordFinder struct {
	*reader
	segments []segment
	function func(at uint64) (lo, hi uint64, ok bool) // that an address lies in
	waits    map[uint64][]wordOf                      // by function: words that it waits for, or wakes others at
	list     []uint64
}

// A wordOf is a word that lies somewhere behind an argument: the first (0) or the second.
type wordOf struct {
	argument int
	n        int64
}

// mostCalls is how many calls lie between an instruction that changes a word, where it has the word's address, and the system call: a function for who must wait, one that wraps the call, one that wraps that.
const mostCalls = 3

// find gives the addresses of such instructions, ascending.
func (f *wordFinder) find() []uint64 {
	f.waits = map[uint64][]wordOf{}
	news := f.look(f.numbers())
	for range mostCalls {
		if len(news) == 0 {
			break
		}
		news = f.look(f.calls(news))
	}
	slices.Sort(f.list)
	return slices.Compact(f.list)
}

// numbers gives the functions in which the number of the futex call is loaded, as an instruction's last four bytes.
func (f *wordFinder) numbers() map[uint64]uint64 {
	number := binary.LittleEndian.AppendUint32(nil, sysFutex)
	list := map[uint64]uint64{}
	for _, s := range f.segments {
		for i := 0; ; i++ {
			n := bytes.Index(s.code[i:], number)
			if n < 0 {
				break
			}
			i += n
			if i > 0 && (s.code[i-1] == 0xbf || s.code[i-1] == 0xb8 || s.code[i-1] == 0xc7 || s.code[i-1] == 0xc0) { // mov edi, eax, rdi, rax
				f.add(list, s.at+uint64(i))
			}
		}
	}
	return list
}

// add notes the function that an address lies in.
func (f *wordFinder) add(list map[uint64]uint64, at uint64) {
	if lo, hi, ok := f.function(at); ok {
		list[lo] = hi
	}
}

// calls gives the functions in which there are what look like calls of, or jumps to, some of the functions, directly or by way of a slot that does not change.
func (f *wordFinder) calls(of map[uint64]bool) map[uint64]uint64 {
	var low [1 << 12]bool // what few addresses end in
	for at := range of {
		low[at&0xfff] = true
	}
	slots := map[uint64]bool{}
	list := map[uint64]uint64{}
	for _, s := range f.segments {
		for i := 0; i+6 <= len(s.code); i++ {
			switch b := s.code[i]; {
			case b == 0xe8 || b == 0xe9:
				to := s.at + uint64(i) + 5 + uint64(int64(int32(binary.LittleEndian.Uint32(s.code[i+1:]))))
				if low[to&0xfff] && of[to] {
					f.add(list, s.at+uint64(i))
				}
			case b == 0xff && (s.code[i+1] == 0x15 || s.code[i+1] == 0x25):
				slot := s.at + uint64(i) + 6 + uint64(int64(int32(binary.LittleEndian.Uint32(s.code[i+2:]))))
				is, known := slots[slot]
				if !known {
					to, ok := f.word(slot)
					is = ok && of[to]
					slots[slot] = is
				}
				if is {
					f.add(list, s.at+uint64(i))
				}
			}
		}
	}
	return list
}

// look goes through functions, and gives those that are new to wait for what they are given.
func (f *wordFinder) look(list map[uint64]uint64) map[uint64]bool {
	news := map[uint64]bool{}
	for _, lo := range slices.Sorted(maps.Keys(list)) { // each by what those before it were found to wait for
		before := len(f.waits[lo])
		f.walk(lo, list[lo])
		if len(f.waits[lo]) > before {
			news[lo] = true
		}
	}
	return news
}

// walk follows a function's code as it lies there; behind a jump, from what jumped there first.
func (f *wordFinder) walk(lo, hi uint64) {
	t := f.frame()
	arguments := [...]int32{t.reg(rdi).sym, t.reg(rsi).sym}
	from, loads, comes := map[uint64]*tracker{}, map[value]value{}, true
	words := map[value]bool{}
	type change struct {
		at   uint64
		word value
	}
	var changes []change
	for at := lo; at < hi; {
		in, ok := f.insn(at)
		if !ok {
			break
		}
		if b := from[at]; b != nil && !comes {
			b.fresh = max(b.fresh, t.fresh)
			t, comes = b, true
		}
		if isChange(&in.Inst) {
			if v := t.address(in.Mems()[0], in.next()); v.sym != nowhere && v.sym != stack {
				changes = append(changes, change{at, v})
			}
		}
		to, known := t.target(&in)
		switch in.Flow {
		case x86.FlowSyscall:
			if t.has(x86.RAX, sysFutex) {
				words[t.reg(rdi)] = true
			}
		case x86.FlowCall, x86.FlowIndirectCall, x86.FlowJump, x86.FlowIndirectJump:
			if t.has(rdi, sysFutex) && in.Flow != x86.FlowJump || t.has(rdi, sysFutex) && (to < lo || to >= hi) {
				words[t.reg(rsi)] = true
			} else if known {
				for _, w := range f.waits[to] {
					v := t.reg([...]x86.Reg{rdi, rsi}[w.argument])
					v.n += w.n
					words[v] = true
				}
			}
		}
		if in.Flow == x86.FlowJump || in.Flow == x86.FlowCond {
			if to > at && to < hi && from[to] == nil {
				from[to] = t.clone()
			}
		}
		t.do(&in)
		switch in.Flow {
		case x86.FlowJump, x86.FlowIndirectJump, x86.FlowRet, x86.FlowTrap, x86.FlowHalt:
			comes = false
		}
		// What is loaded from one place twice is taken to be the same.
		if a := in.Args(); in.Op == "mov" && len(a) == 2 && a[0].Kind == x86.ArgReg && is64(a[0].Reg) && a[1].Kind == x86.ArgMem && len(in.Mems()) == 1 {
			before := t.fresh
			if v := t.reg(a[0].Reg); v.sym == before && v.n == 0 { // nothing is known of it
				from := f.loadedFrom(t, &in)
				if old, ok := loads[from]; ok && from.sym != nowhere {
					t.regs[a[0].Reg.Num()] = old
				} else {
					loads[from] = v
				}
			}
		}
		at = in.next()
	}
	given := func(v value) bool { return v.sym == arguments[0] || v.sym == arguments[1] }
	waitsForGiven := false
	for w := range words {
		waitsForGiven = waitsForGiven || given(w)
	}
	// Or it lies beside one, as the state of an rwlock does beside what its writers wait for; or it is what a function is given beside the word, for the question whether to wait any longer.
	isWord := func(v value) bool {
		beside := func(n int64) bool { return words[value{v.sym, v.n + n}] }
		return beside(0) || beside(4) || beside(-4) || waitsForGiven && given(v) && v.n == 0
	}
	f.waits[lo] = nil
	if f.takesBy(lo) { // a lock of Made's
		return
	}
	// Who parks counts a word down and, when it was woken, takes it: whether it parks at all depends on what it has loaded elsewhere, in no order, so these changes say nothing that a re-execution could follow.
	counts, takes := map[value]bool{}, map[value]bool{}
	for _, c := range changes {
		in, _ := f.insn(c.at)
		counts[c.word] = counts[c.word] || in.Op == "dec" || in.Op == "sub"
		takes[c.word] = takes[c.word] || in.Op == "cmpxchg"
	}
	for _, c := range changes {
		if isWord(c.word) && !(counts[c.word] && takes[c.word]) && !f.isLock(c.at) {
			f.list = append(f.list, c.at)
		}
	}
	for w := range words {
		for n, sym := range arguments {
			if w.sym == sym {
				f.waits[lo] = append(f.waits[lo], wordOf{n, w.n})
			}
		}
	}
}

// loadedFrom gives the address that a mov has loaded from, unless that was made of the register that it has changed.
func (f *wordFinder) loadedFrom(t *tracker, in *insn) value {
	m := in.Mems()[0]
	if m.Base == in.Args()[0].Reg {
		return value{sym: nowhere}
	}
	return t.address(m, in.next())
}

// isLock says whether an xchg gives back a lock of the kind that Made knows, proved or not: what it finds there says by chance that somebody waits. Or it lets a thread go on that is parked (-1).
func (f *wordFinder) isLock(at uint64) bool {
	in, ok := f.insn(at)
	if !ok || in.Op != "xchg" {
		return false
	}
	next, ok := f.insn(in.next())
	a := next.Args()
	return ok && next.Op == "cmp" && len(a) == 2 && a[1].Kind == x86.ArgImm && (a[1].Imm == 2 || a[1].Imm == -1 || a[1].Imm == 0xffffffff)
}

// isChange says whether an instruction changes a futex's worth of memory at once: a locked one, or an xchg.
func isChange(in *x86.Inst) bool {
	if len(in.Mems()) != 1 {
		return false
	}
	m := in.Mems()[0]
	return m.Access == x86.Read|x86.Write && m.Kind == x86.MemLocked && m.Seg == x86.NoReg && m.Index == x86.NoReg && (plain(m.Base) && m.Base != x86.NoReg || m.Base == x86.RIP) && m.Size == 4
}

// changing stands for such an instruction: a call of the agent's hook with the word's address in rdi and, on the stack, what the instruction is, and rdi; the instruction; a call of the second hook. Both keep all registers and flags. While the process has one thread there is but the instruction, where it writes all flags, so that the question may.
type changing struct {
	at         uint64
	in         x86.Inst
	code       []byte
	hook, over uint64
	alone      int64
	queue      bool // of a queue (Queues)
	flags      bool // its quick way keeps the flags, which the instruction does not write
}

// setsFlags says that an instruction writes all flags that arithmetic does, whatever they were.
func setsFlags(op string) bool {
	switch op {
	case "cmpxchg", "xadd", "add", "sub", "and", "or", "xor":
		return true
	}
	return false
}

// Replaces says that the site's own instruction is not copied in front of what is behind the recipe.
func (*changing) Replaces() bool { return true }

// Spare says that the process is well without it.
func (*changing) Spare() {}

// Size is the most bytes that Append appends: a look whether there is one thread, a jump, the instruction, a jump; two addresses behind a jump, the way down the stack, a look at the word, its address, a number, the call, the way up, the instruction, the way down, the call, the way up.
func (*changing) Size() int {
	return 5 + 1 + 8 + 2 + 2*(1+8) + 9 + 6 + x86.MaxRelocated + 5 + 2 + 16 + 5 + 2 + 1 + 9 + 9 + 5 + 7 + 8 + 1 + 8 + x86.MaxRelocated + 5 + 7 + 8
}

// What the hook is told of the instruction (guardfutex.c): compares, nine bits of its address from bit 8 on, and from bit 24 on how far behind where the hook returns to it ends.
// Of a queue's: how many bytes, as a power of two, and whether it reads none.
const (
	onlyStores = 8
	compares   = 16
	ofQueue    = 32
)

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (r *changing) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	c, start := appending(dst, at)
	next := r.at + uint64(len(r.code))
	var states []patch.State
	stack := func(n int64) x86.Mem { return x86.Mem{Base: x86.RSP, Scale: 1, Disp: n, Size: 8} }
	off := func() int { return len(c.Bytes) - start }
	state := func(For uint64, resume, down int, more ...patch.Move) {
		if down > 0 {
			more = append(more, patch.Move{Reg: uint8(x86.RSP.Num()), From: patch.FromSum, N: int32(down)})
		}
		states = append(states, patch.State{Off: off(), For: For, Resume: resume, Moves: more})
	}
	kept := func(n int32) patch.Move {
		return patch.Move{Reg: uint8(x86.RDI.Num()), From: patch.FromStack, N: n}
	}
	state(r.at, patch.Restart, 0)
	var end, ordered x86.Label
	quick := (setsFlags(r.in.Op) || r.queue) && r.alone != 0
	if quick {
		alone := x86.Mem{Seg: x86.FS, Scale: 1, Disp: r.alone, Size: 4}
		short := 0
		if r.flags {
			c.Lea(x86.RSP, stack(-redZone))
			state(r.at, patch.Restart, redZone)
			c.Push(x86.RCX)
			state(r.at, patch.Restart, redZone+8)
			c.Load(x86.EAX+1, alone) // ecx
			rcx := patch.Move{Reg: uint8(x86.RCX.Num()), From: patch.FromStack, N: 0}
			state(r.at, patch.Restart, redZone+8, rcx)
			short = len(c.Bytes)
			c.Bytes = append(c.Bytes, 0xe3, 0) // jrcxz
			state(r.at, patch.Restart, redZone+8, rcx)
			c.Pop(x86.RCX)
			state(r.at, patch.Restart, redZone)
			c.Lea(x86.RSP, stack(redZone))
			state(r.at, patch.Restart, 0)
		} else {
			c.ArithStoreImm(x86.Cmp, alone, 0)
			c.JccTo(x86.CondE, &ordered)
		}
		moved, err := x86.Relocate(c.Bytes, &r.in, r.code, r.at, c.PC(), x86.RefuseCalls)
		if err != nil {
			return dst, nil, err
		}
		c.Bytes = moved
		state(next, patch.Restart, 0)
		c.JmpTo(&end)
		if r.flags {
			c.Bytes[short+1] = byte(len(c.Bytes) - short - 2)
			state(r.at, patch.Restart, redZone+8, patch.Move{Reg: uint8(x86.RCX.Num()), From: patch.FromStack, N: 0})
			c.Pop(x86.RCX)
			state(r.at, patch.Restart, redZone)
			c.Lea(x86.RSP, stack(redZone))
		} else {
			c.Bind(&ordered)
		}
		state(r.at, patch.Restart, 0)
	}
	c.Bytes = append(c.Bytes, 0xeb, 16)
	slots := c.PC()
	c.Bytes = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(c.Bytes, r.hook), r.over)
	c.Lea(x86.RSP, stack(-redZone))
	state(r.at, patch.Restart, redZone)
	stores := x86.RAX
	for _, a := range r.in.Args() {
		if a.Kind == x86.ArgReg && is32(a.Reg) {
			stores = x86.RAX + (a.Reg - x86.EAX)
		}
	}
	c.Push(stores)
	state(r.at, patch.Restart, redZone+8)
	c.Push(x86.RDI)
	state(r.at, patch.Restart, redZone+16)
	m := r.in.Mems()[0]
	switch {
	case m.Base == x86.RIP:
		m = x86.Abs(next+uint64(m.Disp), int(m.Size))
	case m.Base == x86.RSP:
		m.Disp += redZone + 16
	}
	// It faults here, if it does, where nothing is taken.
	switch m.Size {
	case 1, 2:
		c.LoadZX(x86.EAX+x86.Reg(x86.RDI.Num()), m)
	case 8:
		c.Load(x86.RDI, m)
	default:
		c.Load(x86.EAX+x86.Reg(x86.RDI.Num()), m)
	}
	state(r.at, patch.Restart, redZone+16, kept(0))
	if m.Base == x86.RDI || m.Index == x86.RDI {
		c.Load(x86.RDI, stack(0))
		state(r.at, patch.Restart, redZone+16)
	}
	c.Lea(x86.RDI, m)
	state(r.at, patch.Restart, redZone+16, kept(0))
	info := off() // of what is patched behind
	c.PushImm(0)
	state(r.at, patch.Restart, redZone+24, kept(8))
	c.CallMem(x86.Abs(slots, 8))
	copyAt, returns := 0, off()
	state(r.at, copyAt, redZone+24, kept(8))
	c.Lea(x86.RSP, stack(8))
	state(r.at, copyAt, redZone+16, kept(0))
	c.Pop(x86.RDI)
	state(r.at, copyAt, redZone+8)
	c.Lea(x86.RSP, stack(redZone+8))
	copyAt = off()
	for i := range states {
		if states[i].Resume != patch.Restart {
			states[i].Resume = copyAt
		}
	}
	state(r.at, copyAt, 0)
	moved, err := x86.Relocate(c.Bytes, &r.in, r.code, r.at, c.PC(), x86.RefuseCalls)
	if err != nil {
		return dst, nil, err
	}
	c.Bytes = moved
	behind := off()
	what := int32(r.at*0x9e3779b97f4a7c15>>55)<<8 | int32(behind-returns)<<24
	if r.in.Op == "cmpxchg" {
		what |= compares
	}
	if r.queue {
		what |= ofQueue | int32(bits.Len16(m.Size)-1)
		if r.in.Mems()[0].Access == x86.Write {
			what |= onlyStores
		}
	}
	binary.LittleEndian.PutUint32(c.Bytes[start+info+1:], uint32(what))
	state(next, behind, 0)
	c.Lea(x86.RSP, stack(-redZone))
	state(next, behind, redZone)
	c.CallMem(x86.Abs(slots+8, 8))
	state(next, behind, redZone)
	c.Lea(x86.RSP, stack(redZone))
	if quick {
		c.Bind(&end)
	}
	return c.Bytes, states, c.Err()
}
