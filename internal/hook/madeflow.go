package hook

import (
	"maps"

	"github.com/ripstop/ripstop/internal/x86"
)

// A value is what is known of a register: a number, or something unknown plus a number.
type value struct {
	sym int32
	n   int64
}

// Symbols. Those above are some value each.
const (
	constant int32 = iota
	nowhere        // an address that is not followed
	argument       // of the function
	stack          // where the function's frame is
	found          // what an exchange gave
	others
)

// A tracker follows what registers hold along a line of code.
type tracker struct {
	r       *reader
	regs    [16]value
	spilled map[value]value
	fresh   int32
}

// frame gives a tracker of which nothing is known.
func (r *reader) frame() *tracker {
	t := &tracker{r: r, fresh: others, spilled: map[value]value{}}
	for i := range t.regs {
		t.regs[i] = t.new()
	}
	t.regs[x86.RSP.Num()] = value{sym: stack}
	return t
}

func (t *tracker) clone() *tracker {
	c := *t
	c.spilled = maps.Clone(t.spilled)
	return &c
}

func (t *tracker) new() value {
	t.fresh++
	return value{sym: t.fresh}
}

// track follows a function's code, as it lies there, up to an address; nil: no instruction begins there. Behind what does not go on, from what jumped there first; other jumps are not followed: what is so found out only says that two addresses are one.
func (r *reader) track(begin, at uint64, t *tracker) *tracker {
	const longest = 64 << 10
	if at-begin > longest {
		return nil
	}
	from, comes := map[uint64]*tracker{}, true
	for begin < at {
		in, ok := r.insn(begin)
		if !ok {
			return nil
		}
		if b := from[begin]; b != nil && !comes {
			b.fresh = max(b.fresh, t.fresh)
			t, comes = b, true
		}
		if to, ok := in.Target(begin); ok && (in.Flow == x86.FlowJump || in.Flow == x86.FlowCond) && to > begin && to <= at && from[to] == nil {
			from[to] = t.clone()
		}
		t.do(&in)
		switch in.Flow {
		case x86.FlowJump, x86.FlowIndirectJump, x86.FlowRet, x86.FlowTrap, x86.FlowHalt:
			comes = false
		}
		begin = in.next()
	}
	if b := from[begin]; b != nil && !comes {
		b.fresh = max(b.fresh, t.fresh)
		t = b
	}
	if begin != at {
		return nil
	}
	return t
}

func (t *tracker) reg(r x86.Reg) value { return t.regs[r.Num()] }

func (t *tracker) address(m x86.Mem, next uint64) value {
	switch {
	case m.Seg != x86.NoReg || m.Index != x86.NoReg:
		return value{sym: nowhere}
	case m.Base == x86.NoReg:
		return value{n: m.Disp}
	case m.Base == x86.RIP:
		return value{n: int64(next) + m.Disp}
	case !plain(m.Base):
		return value{sym: nowhere}
	}
	v := t.reg(m.Base)
	v.n += m.Disp
	return v
}

// storesOnStack says whether an instruction writes to no memory but the function's own stack.
func (t *tracker) storesOnStack(in *x86.Inst) bool {
	for _, m := range in.Mems() {
		if m.Access&x86.Write != 0 && m.Kind&x86.MemStack == 0 && (!onStack(m) || t.reg(m.Base).sym != t.reg(x86.RSP).sym) {
			return false
		}
	}
	return true
}

func is64(r x86.Reg) bool { return r >= x86.RAX && r < x86.RAX+16 }
func is32(r x86.Reg) bool { return r >= x86.EAX && r < x86.EAX+16 }

// result gives what an instruction writes to its first operand, a register.
func (t *tracker) result(in *insn) (value, bool) {
	a := in.Args()
	if len(a) != 2 || a[0].Kind != x86.ArgReg || !is64(a[0].Reg) && !is32(a[0].Reg) {
		return value{}, false
	}
	cut := func(v value) (value, bool) {
		if is64(a[0].Reg) {
			return v, true
		}
		v.n = int64(uint32(v.n))
		return v, v.sym == constant
	}
	old := t.reg(a[0].Reg)
	switch {
	case in.Op == "mov" && a[1].Kind == x86.ArgImm:
		return cut(value{n: a[1].Imm})
	case in.Op == "mov" && a[1].Kind == x86.ArgReg:
		return cut(t.reg(a[1].Reg))
	case in.Op == "mov" && a[1].Kind == x86.ArgMem && in.Mems()[0].Size == 8:
		at := t.address(in.Mems()[0], in.next())
		if v, ok := t.spilled[at]; ok && onStack(in.Mems()[0]) {
			return v, true
		}
		if at.sym == constant {
			w, ok := t.r.word(uint64(at.n))
			return value{n: int64(w)}, ok
		}
	case in.Op == "lea":
		v := t.address(in.Mems()[0], in.next())
		if v.sym == nowhere {
			return v, false
		}
		return cut(v)
	case in.Op == "xor" && a[1].Kind == x86.ArgReg && a[1].Reg == a[0].Reg:
		return value{}, true
	case in.Op == "add" && a[1].Kind == x86.ArgImm:
		return cut(value{old.sym, old.n + a[1].Imm})
	case in.Op == "sub" && a[1].Kind == x86.ArgImm:
		return cut(value{old.sym, old.n - a[1].Imm})
	}
	return value{}, false
}

// do follows one instruction.
func (t *tracker) do(in *insn) {
	v, known := t.result(in)
	if a := in.Args(); in.Op == "mov" && len(a) == 2 && a[0].Kind == x86.ArgMem && onStack(in.Mems()[0]) {
		at := t.address(in.Mems()[0], in.next())
		delete(t.spilled, at)
		if a[1].Kind == x86.ArgReg && is64(a[1].Reg) {
			t.spilled[at] = t.reg(a[1].Reg)
		}
	}
	sp := t.reg(x86.RSP)
	for n := range t.regs {
		if in.Writes.Has(x86.RAX + x86.Reg(n)) {
			t.regs[n] = t.new()
		}
	}
	switch {
	case in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall:
		for n := range t.regs {
			if isScratch(x86.RAX + x86.Reg(n)) {
				t.regs[n] = t.new()
			}
		}
		t.regs[x86.RSP.Num()] = sp
	case in.Op == "push":
		t.regs[x86.RSP.Num()] = value{sp.sym, sp.n - 8}
	case in.Op == "pop":
		t.regs[x86.RSP.Num()] = value{sp.sym, sp.n + 8}
	case known:
		t.regs[in.Args()[0].Reg.Num()] = v
	}
}

// target gives where a jump or call goes to.
func (t *tracker) target(in *insn) (uint64, bool) {
	if to, ok := in.Target(in.at); ok {
		return to, true
	}
	if in.Flow != x86.FlowIndirectCall && in.Flow != x86.FlowIndirectJump {
		return 0, false
	}
	a := in.Args()
	if len(a) != 1 {
		return 0, false
	}
	if a[0].Kind == x86.ArgReg {
		v := t.reg(a[0].Reg)
		return uint64(v.n), v.sym == constant
	}
	if m := in.Mems(); len(m) > 0 && m[0].Size == 8 {
		if at := t.address(m[0], in.next()); at.sym == constant {
			return t.r.word(uint64(at.n))
		}
	}
	return 0, false
}

// Numbers of the kernel's.
const (
	sysFutex      = 202
	futexWait     = 0 | 128
	futexWake     = 1 | 128
	futexWaitBits = 9 | 128
)

func (t *tracker) has(r x86.Reg, n int64) bool { return t.reg(r) == value{n: n} }

const (
	rsi = x86.RSI
	rdi = x86.RDI
)

// callsWake says whether the arguments are those of syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1).
func (t *tracker) callsWake(word value) bool {
	return word.sym != nowhere && t.has(rdi, sysFutex) && t.reg(rsi) == word && t.has(x86.RDX, futexWake) && t.has(x86.RCX, 1)
}

// wakesBySyscall says the same of the instruction.
func (t *tracker) wakesBySyscall(word value) bool {
	return word.sym != nowhere && t.has(x86.RAX, sysFutex) && t.reg(rdi) == word && t.has(rsi, futexWake) && t.has(x86.RDX, 1)
}

// waitsForTwo says whether a call of syscall, or the instruction, waits while a word is 2.
func (t *tracker) waitsForTwo(word value, instruction bool) bool {
	waits := func(r x86.Reg) bool { return t.has(r, futexWait) || t.has(r, futexWaitBits) }
	if instruction {
		return t.has(x86.RAX, sysFutex) && t.reg(rdi) == word && waits(rsi) && t.has(x86.RDX, 2)
	}
	return t.has(rdi, sysFutex) && t.reg(rsi) == word && waits(x86.RDX) && t.has(x86.RCX, 2)
}

// wakesBy says whether a function does no more than wake one who waits for the word that it is given the address of.
func (r *reader) wakesBy(fn uint64) bool {
	return known(&r.waker, fn, r.looksWakes)
}

func (r *reader) looksWakes(fn uint64) bool {
	const most = 24
	t := r.frame()
	word := value{sym: argument}
	t.regs[rdi.Num()] = word
	called := false
	for at := r.skip(fn); ; {
		in, ok := r.insn(at)
		if !ok || at-fn > most*8 {
			return false
		}
		to, known := t.target(&in)
		switch {
		case in.Flow == x86.FlowRet:
			return called
		case called && in.Flow != x86.FlowNone:
			return false
		case in.Flow == x86.FlowSyscall:
			if !t.wakesBySyscall(word) {
				return false
			}
			called = true
		case in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall:
			if !known || !t.callsWake(word) || !r.isSyscall(to) {
				return false
			}
			called = true
		case in.Flow == x86.FlowJump || in.Flow == x86.FlowIndirectJump:
			return known && t.callsWake(word) && r.isSyscall(to)
		case in.Flow != x86.FlowNone || in.Op != "push" && stores(&in.Inst):
			return false
		}
		t.do(&in)
		at = in.next()
	}
}

// takesBy says whether a function returns only when it has taken the lock whose word it is given the address of, and does nothing else that anybody could see.
func (r *reader) takesBy(fn uint64) bool {
	return known(&r.taker, fn, r.looksTakes)
}

// looksTakes goes along all of the function's code.
func (r *reader) looksTakes(fn uint64) bool {
	code, ok := r.reach(fn)
	if !ok {
		return false
	}
	always, ok := r.always(fn, code)
	if !ok {
		return false
	}
	word := value{sym: argument}
	block := func() *tracker { // where others may come from: what holds everywhere
		t := r.frame()
		for n, v := range always {
			if v.sym != nowhere {
				t.regs[n] = v
			}
		}
		return t
	}
	exchanges, waits := 0, 0
	type from struct {
		at uint64
		t  *tracker
	}
	entry := block()
	entry.regs[rdi.Num()] = word
	zero := x86.NoReg // what the last comparison was of, with 0
	todo, seen := []from{{fn, entry}}, map[uint64]bool{}
	ways := waysTo(fn, code)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for at, t := p.at, p.t; !seen[at]; {
			if ways[at] != 1 {
				if t = block(); at == fn {
					return false // a loop to its beginning
				}
			}
			seen[at] = true
			in := code[at]
			if in == nil {
				return false
			}
			to, known := t.target(in)
			next := in.next()
			switch in.Flow {
			case x86.FlowRet:
				return false // without the lock
			case x86.FlowJump:
				if !known {
					return false
				}
				next = to
			case x86.FlowCond:
				there := t.clone()
				if zero != x86.NoReg && in.Op == "je" {
					there.regs[zero.Num()] = value{}
				} else if zero != x86.NoReg && in.Op == "jne" {
					t.regs[zero.Num()] = value{}
				}
				todo = append(todo, from{to, there})
			case x86.FlowCall, x86.FlowIndirectCall:
				switch {
				case known && r.isSyscall(to) && t.waitsForTwo(word, false):
					waits++
				case known && r.name(to) == "__errno_location":
				default:
					return false
				}
			case x86.FlowSyscall:
				if !t.waitsForTwo(word, true) {
					return false
				}
				waits++
			case x86.FlowNone:
				if stores(&in.Inst) && in.Op != "push" {
					m := in.Mems()[0]
					switch {
					case t.storesOnStack(&in.Inst) && !in.Lock && in.Op != "xchg":
					case t.address(m, next) == word && m.Size == 4 && (in.Op == "xchg" || in.Op == "cmpxchg" && in.Lock):
						on, ok := r.taken(in, t)
						if !ok {
							return false
						}
						if in.Op == "xchg" {
							exchanges++
						}
						// Who has it returns, whatever is on the way; all others go on.
						t.do(in)
						// With what a cmpxchg, or an xchg by that register, has found in rax: 0, as who found it free.
						if in.Op == "xchg" && !in.Writes.Has(x86.RAX) || !r.returns(code, on.has) {
							return false
						}
						todo = append(todo, from{on.not, t.clone()})
						next = 0
					default:
						return false
					}
				}
			default:
				return false
			}
			if next == 0 {
				break
			}
			t.do(in)
			if in.FlagsWritten != 0 {
				zero = comparedWithZero(in)
			}
			at = next
		}
	}
	return exchanges > 0 && waits > 0
}

// waysTo says in how many ways each instruction is come to.
func waysTo(fn uint64, code map[uint64]*insn) map[uint64]int {
	ways := map[uint64]int{fn: 1}
	for _, in := range code {
		to, relative := in.Target(in.at)
		if relative && in.Flow != x86.FlowCall {
			ways[to]++
		}
		switch in.Flow {
		case x86.FlowRet, x86.FlowJump, x86.FlowIndirectJump, x86.FlowTrap, x86.FlowHalt:
		default:
			ways[in.next()]++
		}
	}
	return ways
}

// comparedWithZero gives the 32-bit register that an instruction compares with 0; NoReg: it does not.
func comparedWithZero(in *insn) x86.Reg {
	a := in.Args()
	if len(a) == 2 && a[0].Kind == x86.ArgReg && is32(a[0].Reg) && (in.Op == "test" && a[1].Kind == x86.ArgReg && a[1].Reg == a[0].Reg || in.Op == "cmp" && a[1].Kind == x86.ArgImm && a[1].Imm == 0) {
		return a[0].Reg
	}
	return x86.NoReg
}

// A taken says where who has taken the lock goes on, and who has not.
type taken struct{ has, not uint64 }

// taken looks at what is behind an exchange that may take the lock: of 2 by xchg, or of 0 for 1 or 2.
func (r *reader) taken(in *insn, t *tracker) (taken, bool) {
	reg := in.Args()[1].Reg
	if in.Args()[0].Kind == x86.ArgReg {
		reg = in.Args()[0].Reg
	}
	at := in.next()
	if in.Op == "xchg" {
		if !t.has(reg, 2) {
			return taken{}, false
		}
		test, ok := r.insn(at)
		if !ok || comparedWithZero(&test) != reg {
			return taken{}, false
		}
		at = test.next()
	} else if !t.has(x86.RAX, 0) || !t.has(reg, 1) && !t.has(reg, 2) {
		return taken{}, false
	}
	jump, ok := r.insn(at)
	to, relative := jump.Target(at)
	switch {
	case !ok || !relative:
		return taken{}, false
	case jump.Op == "je":
		return taken{to, jump.next()}, true
	case jump.Op == "jne":
		return taken{jump.next(), to}, true
	}
	return taken{}, false
}

// returns says whether who goes on at an address with 0 in rax does nothing more than return, with that or with what is nobody's (a word that a frame is taken down by).
func (r *reader) returns(code map[uint64]*insn, at uint64) bool {
	const most = 24
	for range most {
		in := code[at]
		if in == nil {
			return false
		}
		to, relative := in.Target(at)
		switch {
		case in.Flow == x86.FlowRet:
			return true
		case in.Flow == x86.FlowJump && relative:
			at = to
			continue
		case in.Flow != x86.FlowNone || in.Op != "pop" && (stores(&in.Inst) || in.Writes.Has(x86.RAX)):
			return false
		}
		at = in.next()
	}
	return false
}

// reach gives all instructions that a function comes to; false: there are many, or it is not known.
func (r *reader) reach(fn uint64) (map[uint64]*insn, bool) {
	const most = 160
	code := map[uint64]*insn{}
	for todo := []uint64{fn}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for code[at] == nil {
			in, ok := r.insn(at)
			if !ok || len(code) == most {
				return nil, false
			}
			code[at] = &in
			to, relative := in.Target(at)
			at = in.next()
			if in.Flow == x86.FlowRet || in.Flow == x86.FlowIndirectJump || in.Flow == x86.FlowTrap || in.Flow == x86.FlowHalt {
				break
			}
			if relative && in.Flow == x86.FlowJump {
				at = to
			} else if relative && in.Flow != x86.FlowCall {
				todo = append(todo, to)
			}
		}
	}
	return code, true
}

// always gives what registers that calls keep hold wherever the function has set them, which it does once: its argument, or what a slot of the module's has. Others: nowhere. False: it changes what its argument lies in.
func (r *reader) always(fn uint64, code map[uint64]*insn) (list [16]value, ok bool) {
	for n := range list {
		list[n] = value{sym: nowhere}
	}
	sets := [16]int{}
	for _, in := range code {
		for n := range sets {
			if in.Writes.Has(x86.RAX+x86.Reg(n)) && in.Op != "pop" && in.Op != "leave" {
				sets[n]++
			}
		}
	}
	t := r.frame()
	t.regs[rdi.Num()] = value{sym: argument}
	first := true // nothing was called
	for at := fn; code[at] != nil; {
		in := code[at]
		t.do(in)
		for n := range sets {
			reg := x86.RAX + x86.Reg(n)
			v := t.regs[n]
			if !in.Writes.Has(reg) || in.Op == "pop" || in.Op == "leave" || isScratch(reg) || reg == x86.RSP || sets[n] != 1 {
				continue
			}
			if v.sym == argument && first || v.sym == constant || v.sym == stack {
				list[n] = v
			}
		}
		if in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall || in.Flow == x86.FlowSyscall {
			first = false
		}
		at = in.next()
	}
	if sets[rdi.Num()] == 0 {
		list[rdi.Num()] = value{sym: argument}
		for _, in := range code {
			if in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall {
				list[rdi.Num()] = value{sym: nowhere}
			}
		}
	}
	return list, true
}
