package hook

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// glibc's functions for who finds one of its own locks taken, and for who gives back one that somebody may wait for.
const waiter, waker = "__lll_lock_wait_private", "__lll_lock_wake_private"

// mostBefore is how many instructions may lie before the call of one of them, for its argument and what is kept over it, and between an exchange and the jump.
const mostBefore = 4

// Locks gives the instructions by which libc takes and gives back its own low-level locks (of streams, random numbers, time zones, the environment), whose word is 0, 1, or 2 if somebody may wait: a lock cmpxchg
// behind which who found it taken calls waiter, and an xchg behind which who finds that it was 2 calls waker. Tries, which have no such call, are not among them, nor are mutexes: their words may be shared
// between processes, and they wait elsewhere.
func Locks(p *engine.Process, m *engine.Module) (sites []patch.Site) {
	hook := p.Func(wire.PatchFuncLockHook)
	if m.Kind != engine.Libc || hook == 0 {
		return nil
	}
	found := m.Recalled("locks", func() any { return findLocks(m) }).([]lockInsn)
	sites = make([]patch.Site, len(found))
	for i, f := range found {
		l := f.lock
		l.at, l.next = l.at+m.Bias, l.next+m.Bias
		if l.mem.Base == x86.RIP {
			l.mem = x86.Abs(l.next+uint64(l.mem.Disp), 4)
		}
		if f.takes {
			sites[i] = patch.Site{At: l.at, Recipe: &taking{l, hook, p.SaveOffset()}}
		} else {
			sites[i] = patch.Site{At: l.at, Recipe: &giving{l, p.SaveOffset()}}
		}
	}
	return sites
}

// A lockInsn is one of them, by its link-time address.
type lockInsn struct {
	lock
	takes bool // or gives back
}

// findLocks finds them, or knows where they are from another session.
func findLocks(m *engine.Module) (list []lockInsn) {
	f := finder{m: m, names: map[uint64]string{}}
	// Of a place that is kept it is known who is called behind it: no names are read for it.
	look := func(at uint64, known bool) bool {
		in, ok := m.Instruction(at)
		if !ok || len(in.Inst.Args()) != 2 || len(in.Inst.Mems()) != 1 {
			return false
		}
		l := lock{at: at - m.Bias, next: at - m.Bias + uint64(in.Inst.Len), mem: in.Inst.Mems()[0]}
		for _, a := range in.Inst.Args() {
			if a.Kind == x86.ArgReg {
				l.reg = a.Reg
			}
		}
		if l.mem.Size != 4 || l.mem.Seg != x86.NoReg || l.reg < x86.EAX || l.reg >= x86.EAX+16 || l.reg.Num() == x86.RSP.Num() || !plain(l.mem.Base) && l.mem.Base != x86.RIP || !plain(l.mem.Index) {
			return false
		}
		next := l.next + m.Bias
		switch {
		case in.Inst.Op == "cmpxchg" && in.Inst.Lock && (known || f.takes(next)):
			list = append(list, lockInsn{l, true})
		case in.Inst.Op == "xchg" && (known || f.gives(next)):
			list = append(list, lockInsn{l, false})
		default:
			return false
		}
		return true
	}
	const name = "locks"
	if b, ok := kept(m, name); ok {
		if places, err := parseList(b); err == nil {
			for _, at := range places {
				look(at+m.Bias, true)
			}
			return list
		}
	}
	for _, s := range m.Image.Segments() {
		if s.Flags&elf.PF_X == 0 {
			continue
		}
		for i, b := range m.Image.Bytes(s.Addr, s.FileSize) {
			at := s.Addr + m.Bias + uint64(i)
			if b == lockPrefix || b == opXchg && !look(at-1, false) /* REX */ {
				look(at, false)
			}
		}
	}
	list = slices.CompactFunc(list, func(a, b lockInsn) bool { return a.at == b.at }) // xchg %eax, n(%rdi) has the byte twice
	places := make([]uint64, len(list))
	for i, l := range list {
		places[i] = l.at
	}
	m.Keep(name, appendList(nil, places))
	return list
}

const lockPrefix, opXchg = 0xf0, 0x87

// A lock is an instruction that takes one, or gives one back.
type lock struct {
	at, next uint64
	mem      x86.Mem
	reg      x86.Reg // with what is stored
}

// A finder looks at a module.
type finder struct {
	m     *engine.Module
	names map[uint64]string // of functions
}

// takes says whether who finds another value than that in eax, behind the instruction, waits.
func (f *finder) takes(next uint64) bool {
	jump, ok := f.m.Instruction(next)
	to, _ := jump.Inst.Target(next)
	switch {
	case !ok:
		return false
	case jump.Inst.Op == "je":
		to = next + uint64(jump.Inst.Len)
	case jump.Inst.Op != "jne":
		return false
	}
	return f.calls(to, waiter)
}

// gives says whether who finds a value of more than 1, from an address on, wakes.
func (f *finder) gives(at uint64) bool {
	for range mostBefore {
		in, ok := f.m.Instruction(at)
		next := at + uint64(in.Inst.Len)
		to, _ := in.Inst.Target(at)
		switch {
		case !ok:
			return false
		case in.Inst.Op == "jg":
			return f.calls(to, waker)
		case in.Inst.Op == "jle":
			return f.calls(next, waker)
		case in.Inst.Flow != x86.FlowNone:
			return false
		}
		at = next
	}
	return false
}

func plain(r x86.Reg) bool { return r == x86.NoReg || r >= x86.RAX && r < x86.RAX+16 }

// calls says whether a function is called at an address, or behind what gives it its argument.
func (f *finder) calls(at uint64, name string) bool {
	for range mostBefore + 1 {
		in, ok := f.m.Instruction(at)
		if !ok {
			return false
		}
		switch in.Inst.Flow {
		case x86.FlowNone:
		case x86.FlowCall, x86.FlowJump:
			to, _ := in.Inst.Target(at)
			return f.name(to) == name
		default:
			return false
		}
		at += uint64(in.Inst.Len)
	}
	return false
}

// name gives the name of the function that begins at an address, "" if there is none.
func (f *finder) name(at uint64) string {
	name, known := f.names[at]
	if !known {
		if s, ok := f.m.Image.Symbol(at - f.m.Bias); ok && s.Addr == at-f.m.Bias {
			name = s.Name
		}
		f.names[at] = name
	}
	return name
}

// Replaces says that the site's own instruction is not copied.
func (*lock) Replaces() bool { return true }

// Spare says that the process is well without it.
func (*lock) Spare() {}

// taking calls the agent's hook (internal/agent/c/guardlock.c) with the word's address in rdi and, on the stack, rdi and what is to be stored. The hook leaves rax and the flags as the instruction does.
type taking struct {
	lock
	hook uint64
	save int32 // wire.PatchPage.SaveOffset
}

// redZone lies below the stack pointer and is the function's.
const redZone = 128

// Size is the most bytes that Append appends: two lea of rsp, two pushes, the hook's address by way of a slot, the word's, the call, a pop.
func (*taking) Size() int { return 5 + 2 + 1 + 10 + 9 + 4 + 9 + 9 + 1 + 8 }

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (r *taking) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	c, start := appending(dst, at)
	states, moves := make([]patch.State, 0, 12), make([]patch.Move, 0, 16)
	stack := func(n int64) x86.Mem { return x86.Mem{Base: x86.RSP, Scale: 1, Disp: n, Size: 8} }
	state := func(down int, more ...patch.Move) {
		n := len(moves)
		moves = append(moves, more...)
		if down > 0 {
			moves = append(moves, patch.Move{Reg: uint8(x86.RSP.Num()), From: patch.FromSum, N: int32(down)})
		}
		states = append(states, patch.State{Off: len(c.Bytes) - start, For: r.at, Resume: patch.Restart, Moves: moves[n:len(moves):len(moves)]})
	}
	kept := patch.Move{Reg: uint8(x86.RDI.Num()), From: patch.FromStack}
	state(0)
	c.Lea(x86.RSP, stack(-redZone))
	state(redZone)
	c.Push(x86.RAX + (r.reg - x86.EAX))
	state(redZone + 8)
	c.Push(x86.RDI)
	state(redZone + 16)
	mem := r.mem
	if mem.Base == x86.RSP {
		mem.Disp += redZone + 16
	}
	near := reaches(c.PC()+5+8, r.hook)
	slot := x86.Mem{Seg: x86.FS, Scale: 1, Disp: int64(r.save), Size: 8}
	if !near { // as from a program, which lies elsewhere
		c.MovImm(x86.RDI, r.hook)
		state(redZone+16, kept)
		c.Store(slot, x86.RDI)
		state(redZone+16, kept)
		c.Load(x86.RDI, stack(0))
		state(redZone + 16)
	}
	c.Lea(x86.RDI, mem)
	state(redZone+16, kept)
	if near {
		c.Call(r.hook)
	} else {
		c.CallMem(slot)
	}
	state(redZone+16, kept)
	states[len(states)-1].For = r.next
	c.Pop(x86.RDI)
	state(redZone + 8)
	states[len(states)-1].For = r.next
	c.Lea(x86.RSP, stack(redZone+8))
	return c.Bytes, states, c.Err()
}

// appending gives code that goes on behind dst, whose next byte is to lie at an address, and how long it is already.
func appending(dst []byte, at uint64) (c x86.Code, start int) {
	return x86.Code{At: at - uint64(len(dst)), Bytes: dst}, len(dst)
}

// giving wakes by itself who waits, and leaves 1 where 2 was: what libc's own call of waker leaves below the stack pointer would say whether somebody waited, which is not the same in a re-execution. Flags are dead.
type giving struct {
	lock
	save int32 // wire.PatchPage.SaveOffset
}

// Size is the most bytes that Append appends: the exchange, a comparison, a jump, six registers to slots and back, the address, three numbers, a call, a number.
func (*giving) Size() int { return 9 + 4 + 6 + 2*6*9 + 9 + 3*5 + 2 + 6 }

// A given is the code of a giving but for the two instructions with its word's address, which is the same for all of one register: what lies before and behind the second.
type given struct {
	before, behind []byte
	jump           int           // where in before the distance of the jump over the rest lies
	states         []patch.State // of the first two, and of behind, from there on: For is 0 for the site, 1 for its successor
}

// givens are those that were made, by givenKey: at most 16 for each agent.
var givens sync.Map

type givenKey struct {
	reg  x86.Reg
	save int32
}

// given gives it.
func (r *giving) given() (*given, error) {
	key := givenKey{r.reg, r.save}
	if g, ok := givens.Load(key); ok {
		return g.(*given), nil
	}
	one := giving{lock{at: 0, next: 1, mem: x86.Mem{Base: x86.RDI, Scale: 1, Size: 4}, reg: r.reg}, r.save}
	code, states, err := one.make(nil, 0)
	if err != nil {
		return nil, err
	}
	var first, compare, load x86.Code
	first.Xchg(one.mem, one.reg)
	compare.ArithImm(x86.Cmp, one.reg, 2)
	load.Lea(x86.RDI, one.mem)
	behind := states[2].Off
	g := &given{before: code[len(first.Bytes) : behind-len(load.Bytes)], behind: code[behind:], jump: len(compare.Bytes) + 2, states: states}
	for i := range states[2:] {
		states[2+i].Off -= behind
	}
	if err := errors.Join(first.Err(), compare.Err(), load.Err()); err != nil {
		return nil, err
	}
	givens.Store(key, g)
	return g, nil
}

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (r *giving) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	g, err := r.given()
	if err != nil {
		return dst, nil, err
	}
	c, start := appending(dst, at)
	c.Xchg(r.mem, r.reg)
	states := slices.Clone(g.states)
	states[1].Off = len(c.Bytes) - start
	jump := len(c.Bytes) + g.jump
	c.Bytes = append(c.Bytes, g.before...)
	c.Lea(x86.RDI, r.mem)
	behind := len(c.Bytes) - start
	c.Bytes = append(c.Bytes, g.behind...)
	binary.LittleEndian.PutUint32(c.Bytes[jump:], uint32(len(c.Bytes)-jump-4))
	for i := range states {
		if i >= 2 {
			states[i].Off += behind
		}
		if states[i].For == 0 {
			states[i].For = r.at
		} else {
			states[i].For = r.next
		}
	}
	return c.Bytes, states, c.Err()
}

// make is Append, instruction by instruction.
func (r *giving) make(dst []byte, at uint64) ([]byte, []patch.State, error) {
	const futex, wakePrivate = 202, 1 | 128
	saved := [...]x86.Reg{x86.RDI, x86.RSI, x86.RDX, x86.RAX, x86.RCX, x86.R11}
	c, start := appending(dst, at)
	slot := func(n int) x86.Mem {
		return x86.Mem{Seg: x86.FS, Scale: 1, Disp: int64(r.save) + 8*int64(n), Size: 8}
	}
	states := append(make([]patch.State, 0, 16), patch.State{For: r.at, Resume: patch.Restart})
	var moves [len(saved)]patch.Move
	for n, reg := range saved {
		moves[n] = patch.Move{Reg: uint8(reg.Num()), From: patch.FromSlot, N: int32(n)}
	}
	// Of the saved registers those from lo up to hi are not in place.
	state := func(lo, hi int) {
		states = append(states, patch.State{Off: len(c.Bytes) - start, For: r.next, Resume: patch.Restart, Moves: moves[lo:hi:hi]})
	}
	var over x86.Label
	c.Xchg(r.mem, r.reg)
	state(0, 0)
	c.ArithImm(x86.Cmp, r.reg, 2)
	c.JccTo(x86.CondNE, &over)
	for n, reg := range saved {
		c.Store(slot(n), reg)
	}
	c.Lea(x86.RDI, r.mem)
	state(0, 1)
	c.MovImm(x86.EAX+6, wakePrivate)
	state(0, 2)
	c.MovImm(x86.EAX+2, 1)
	state(0, 3)
	c.MovImm(x86.EAX, futex)
	state(0, 4)
	c.Bytes = append(c.Bytes, 0x0f, 0x05)
	state(0, len(saved))
	for n, reg := range saved {
		c.Load(reg, slot(n))
		state(n+1, len(saved))
	}
	c.MovImm(r.reg, 1)
	state(0, 0)
	c.Bind(&over)
	return c.Bytes, states, c.Err()
}

func reaches(from, to uint64) bool { d := int64(to - from); return d == int64(int32(d)) }

// A Locking has libc's locks patched besides, and clocks and the program's own system calls, and tells of those that are not. It is an engine's client.
type Locking struct {
	Client
	Code  bool              // false: neither clocks nor the program's own system calls are patched
	Queue bool              // with Code: queues of atomics are patched, too
	Left  func(text string) // may be called by several goroutines

	mu    sync.Mutex
	taken map[*engine.Module]wanted
}

// wanted is where a module takes locks, changes words that it waits for, reads the clock, and makes system calls itself.
type wanted struct{ locks, words, queues, clocks, calls []uint64 }

// Sites gives the sites of a module.
func (c *Locking) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	if m.Foreign() {
		p.Lack()
		c.Left(fmt.Sprintf("process %d: %s has code of Go's, which makes system calls that are not recorded: no epoch of this process is recorded", p.PID, m.Path))
		return nil
	}
	at, found := placesOf(m), lookMade(p, m)
	changed := lookWords(p, m, found)
	places := slices.Concat(at.clocks, at.calls)
	var free []uint64
	if c.Code {
		if c.Queue {
			free = lookQueues(p, m, found, changed)
		}
		free = append(free, lookShares(p, m, found, changed, free)...)
	}
	for _, a := range slices.Concat(changed, free) {
		places = append(places, a-m.Bias)
	}
	for _, l := range found {
		places = append(places, l.at-m.Bias)
	}
	sites, locks := c.Client.Sites(p, m), Locks(p, m)
	m.Around(places)
	var w wanted
	if made := Made(p, m, found); c.Code {
		locks = append(locks, made...)
	} else if len(made) > 0 {
		c.Left(fmt.Sprintf("process %d: %s has locks of its own in %d places, whose order is not recorded where accesses are to be judged (--races=on)", p.PID, m.Path, len(made)))
	}
	for _, s := range locks {
		if _, takes := s.Recipe.(*taking); takes {
			w.locks = append(w.locks, s.At)
		}
	}
	sites = append(sites, locks...)
	if words := Words(p, m, changed); c.Code {
		for _, s := range words {
			w.words = append(w.words, s.At)
		}
		sites = append(sites, words...)
	} else if len(words) > 0 && m.Kind == engine.Program { // of libstdc++, which nearly all programs in C++ have, it would say nothing of them
		c.Left(fmt.Sprintf("process %d: %s changes words that it waits for in %d places, whose order is not recorded where accesses are to be judged (--races=on)", p.PID, m.Path, len(words)))
	}
	calls := Own(p, m, at.calls)
	if c.Code {
		queues := Queues(p, m, free)
		for _, s := range queues {
			w.queues = append(w.queues, s.At)
		}
		sites = append(sites, queues...)
		clocks := Clocks(p, m, at.clocks)
		for _, s := range clocks {
			w.clocks = append(w.clocks, s.At)
		}
		for _, s := range calls {
			w.calls = append(w.calls, s.At)
		}
		sites = append(append(sites, clocks...), calls...)
	} else if len(calls) > 0 {
		c.Left(fmt.Sprintf("process %d: %s makes system calls itself in %d places, which are not recorded where accesses are to be judged (--races=on): they are made once more where an epoch is executed again", p.PID, m.Path, len(calls)))
	}
	if len(w.locks)+len(w.words)+len(w.queues)+len(w.clocks)+len(w.calls) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.taken == nil {
			c.taken = map[*engine.Module]wanted{}
		}
		c.taken[m] = w
	}
	slices.SortFunc(sites, func(a, b patch.Site) int { return cmp.Compare(a.At, b.At) })
	return sites
}

// Idle says that a library makes no system call itself, reads no clock and has no lock of its own, and has nothing to be told of.
func (c *Locking) Idle(m *engine.Module) bool {
	at := placesOf(m)
	return m.Kind == engine.Library && !m.Foreign() && len(at.clocks)+len(at.calls) == 0 && hasNone(m, madeHint) && hasNone(m, wordsHint) && hasNone(m, sharesHint) && (!c.Queue || hasNone(m, queuesHint))
}

// Patched tells of what is left.
func (c *Locking) Patched(p *engine.Process, m *engine.Module, at func(uint64) *patch.Patch) {
	c.mu.Lock()
	w := c.taken[m]
	delete(c.taken, m)
	c.mu.Unlock()
	tell := func(places []uint64, does, so string) {
		left := 0
		for _, a := range places {
			if at(a) == nil {
				left++
			}
		}
		if left > 0 {
			c.Left(fmt.Sprintf("process %d: %s %s in %d places, of which %d could not be patched: %s", p.PID, m.Path, does, len(places), left, so))
		}
	}
	tell(w.locks, "takes its own locks", "their order is not recorded")
	tell(w.words, "changes words that it waits for", "their order is not recorded")
	tell(w.queues, "shares work out, or has queues, by atomics", "their order is not recorded")
	tell(w.clocks, "reads the processor's clock", "what it gives there is not recorded")
	tell(w.calls, "makes system calls itself", "they are not recorded, and made once more where an epoch is executed again")
}
