package hook

import (
	"debug/elf"
	"maps"
	"slices"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Queues gives, of what lookQueues found, the instructions by which a program or a library reads, writes and changes what threads hand to each other without a lock, beside waits by futexes: Rust's channels, parking, queues of its own making. But for words and locks that Words and Made know.
//
// As with Words nothing need be proved: each does what it does, and its order is recorded (internal/agent/c/guardfutex.c). Here loads are ordered, too: what a thread finds in a queue says where it goes on. That costs some nanoseconds each, and is left out where it is too much (rs_guard_queues_new).
func Queues(p *engine.Process, m *engine.Module, list []uint64) (sites []patch.Site) {
	hook, over := p.Func(wire.PatchFuncFutexHook), p.Func(wire.PatchFuncFutexOverHook)
	r := processReader(p, m)
	for _, at := range list {
		in, ok := m.Instruction(at)
		if !ok || accessOf(&in.Inst) == none {
			continue
		}
		sites = append(sites, patch.Site{At: at, Recipe: &changing{at: at, in: in.Inst, code: slices.Clone(in.Code[:in.Inst.Len]), hook: hook, over: over, alone: int64(p.Func(wire.PatchFuncQueuesAlone)), queue: true, flags: !setsFlags(in.Inst.Op) && !r.flagsAreDead(at+uint64(in.Inst.Len))}})
	}
	return sites
}

// lookQueues finds them, but for those that are known as something else.
func lookQueues(p *engine.Process, m *engine.Module, locks []made, words []uint64) (list []uint64) {
	if m.Kind != engine.Program && m.Kind != engine.Library || p.Func(wire.PatchFuncFutexHook) == 0 {
		return nil
	}
	if b, ok := m.Hinted(queuesHint); ok {
		if places, err := parseList(b); err == nil {
			for _, at := range places {
				list = append(list, at+m.Bias)
			}
			return list
		}
	}
	owned := map[uint64]bool{}
	for _, l := range locks {
		owned[l.at] = true
	}
	for _, at := range words {
		owned[at] = true
	}
	f := queueFinder{wordFinder: moduleFinder(p, m), owned: owned}
	if list = f.find(); len(list) > mostQueues {
		list = nil
	}
	var places []uint64
	for _, at := range list {
		places = append(places, at-m.Bias)
	}
	m.Hint(queuesHint, appendList(nil, places))
	return list
}

const queuesHint = "queues"

// mostQueues is how many instructions of a module may be of queues. Where more seem to be, most of them are of something else, and hot (mariadbd 17,700, a compiler of half a gigabyte 509,000): to pass over them alone takes a quarter of its time.
const mostQueues = 4096

// moduleFinder looks at a module's code in a process.
func moduleFinder(p *engine.Process, m *engine.Module) *wordFinder {
	var s starts
	f := &wordFinder{reader: processReader(p, m), function: func(at uint64) (lo, hi uint64, ok bool) {
		if lo, ok = s.of(m).function(at - m.Bias); !ok {
			return 0, 0, false
		}
		return lo + m.Bias, s.end(lo) + m.Bias, true
	}}
	for _, g := range m.Image.Segments() {
		if g.Flags&elf.PF_X != 0 {
			f.segments = append(f.segments, segment{g.Addr + m.Bias, m.Image.Bytes(g.Addr, g.FileSize)})
		}
	}
	return f
}

// A kind says what an instruction does to memory, once.
type kind uint8

const (
	none kind = iota
	loads
	writes
	changes // at once: locked, or an xchg
	counts  // likewise, by a number, as references are counted
)

// accessOf says what an instruction does to eight bytes or less that do not lie on the stack; none: not one of these.
func accessOf(in *x86.Inst) kind {
	if len(in.Mems()) != 1 {
		return none
	}
	m := in.Mems()[0]
	if m.Seg != x86.NoReg || m.Size > 8 || m.Size&(m.Size-1) != 0 || m.Size == 0 || m.Bias != 0 || m.Base == x86.RSP || m.Base != x86.RIP && (m.Base == x86.NoReg || !plain(m.Base)) || m.Index != x86.NoReg && (m.Base == x86.RIP || !is64(m.Index)) {
		return none
	}
	switch {
	case m.Access == x86.Read|x86.Write && m.Kind == x86.MemLocked:
		switch in.Op {
		case "inc", "dec", "add", "sub", "xadd":
			return counts
		case "cmpxchg", "xchg", "or", "and", "xor", "bts", "btr", "btc", "not", "neg":
			return changes
		}
	case in.Lock || in.Rep || in.Repne || m.Kind&x86.MemStack != 0:
	case m.Access == x86.Read:
		switch in.Op {
		case "mov", "movzx", "movsx", "movsxd", "cmp", "test":
			return loads
		}
	case m.Access == x86.Write && in.Op == "mov":
		return writes
	}
	return none
}

// flagsAreDead says that nobody reads the flags as they are before an instruction.
func (r *reader) flagsAreDead(at uint64) bool {
	const most = 12
	all := x86.Flags(0)
	for range most {
		in, ok := r.insn(at)
		switch {
		case !ok || in.FlagsRead&^all != 0:
			return false
		case in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall || in.Flow == x86.FlowRet:
			return true
		case in.Flow == x86.FlowJump:
			to, ok := in.Target(at)
			if !ok {
				return false
			}
			at = to
			continue
		case in.Flow != x86.FlowNone:
			return false
		}
		all |= in.FlagsWritten &^ in.FlagsKept
		if setsFlags(in.Op) {
			return true
		}
		at = in.next()
	}
	return false
}

// A queueFinder looks at a module's code.
type queueFinder struct {
	*wordFinder
	owned  map[uint64]bool // instructions that are known as something else
	sleeps map[uint64]bool // functions that wait by a futex, or wake who does, but for those that take a lock
	fields map[field]bool  // of all functions: what was found to be in order
	// written: what is written to or changed anywhere near. What is not stays as it was made.
	written map[field]bool
	list    []uint64
}

// A field is where in an object something lies, or (static) where.
type field struct {
	at     int64
	size   uint16
	static bool
}

// A function is near if it comes to one that waits or wakes in so many calls; or if one that waits or wakes, or calls such a one, comes to it in so many.
const (
	nearCalls = 3
	farCalls  = 2
)

// find gives the addresses of such instructions, ascending.
func (f *queueFinder) find() []uint64 {
	first := f.numbers()
	if len(first) == 0 {
		return nil
	}
	f.sleeps, f.fields, f.written = map[uint64]bool{}, map[field]bool{}, map[field]bool{}
	for lo := range first {
		if !f.takesBy(lo) && !f.wakesBy(lo) {
			f.sleeps[lo] = true
		}
	}
	all, down := maps.Clone(first), maps.Clone(first)
	news := first
	for n := range nearCalls {
		of := map[uint64]bool{}
		for lo := range news {
			of[lo] = true
		}
		news = map[uint64]uint64{}
		for lo, hi := range f.calls(of) {
			if _, known := all[lo]; !known {
				all[lo], news[lo] = hi, hi
				if n == 0 {
					down[lo] = hi
				}
			}
		}
	}
	parts := map[uint64]*part{}
	for _, lo := range slices.Sorted(maps.Keys(all)) {
		f.part(parts, lo, all[lo])
	}
	news = down
	for range farCalls {
		next := map[uint64]uint64{}
		for _, lo := range slices.Sorted(maps.Keys(news)) {
			if p := parts[lo]; p != nil {
				for _, to := range p.calls {
					if lo, hi, ok := f.function(to); ok && lo == to && parts[lo] == nil {
						f.part(parts, lo, hi)
						next[lo] = hi
					}
				}
			}
		}
		news = next
	}
	for _, p := range parts {
		for _, a := range p.accesses {
			// What is static and only counted, as panics are by Rust, is for nobody's turn.
			if a.kind != loads && !(a.field.static && a.kind == counts && !a.owned && !p.keyed(a.key)) {
				f.written[a.field] = true
			}
		}
	}
	for _, p := range parts {
		p.sure(f)
	}
	for _, p := range parts {
		p.rest(f)
	}
	slices.Sort(f.list)
	return slices.Compact(f.list)
}

// An access of a function's to what may be a queue.
type access struct {
	at     uint64
	kind   kind
	key    value
	root   int32 // what the address begins with
	field  field
	spins  bool // in a loop that tries, or waits, until it is otherwise
	ticket bool // a count whose result says whose turn it is
	owned  bool // known as something else
}

// A part is a function near a wait.
type part struct {
	accesses []access
	calls    []uint64
	keys     map[value]bool
	roots    map[int32]bool
	made     map[int32][2]int32 // what is the sum of which
}

// mostCode is how many instructions a function has that is looked at, and a loop that tries.
const (
	mostCode = 6000
	mostLoop = 400
	mostWait = 48 // likewise, until another function need not be called again that waits
)

// part looks at a function.
func (f *queueFinder) part(parts map[uint64]*part, lo, hi uint64) {
	p := &part{keys: map[value]bool{}, roots: map[int32]bool{}, made: map[int32][2]int32{}}
	parts[lo] = p
	if f.takesBy(lo) || f.wakesBy(lo) {
		return
	}
	code, index := f.code(lo, hi)
	if len(code) == 0 {
		return
	}
	marks, waits := f.follow(p, lo, hi, code)
	byAt := map[uint64]int{}
	for i, a := range p.accesses {
		byAt[a.at] = i
	}
	for _, l := range loopsOf(code, index) {
		if !l.tries(code, marks, byAt) && !l.waits(code, waits, byAt) {
			continue
		}
		for _, n := range l.code {
			if i, ok := byAt[code[n].at]; ok && p.accesses[i].kind == loads {
				p.accesses[i].spins = true
			}
		}
	}
}

// code gives a function's instructions, as they lie there, and where each is in that list.
func (f *queueFinder) code(lo, hi uint64) (list []insn, index map[uint64]int) {
	index = map[uint64]int{}
	for at := lo; at < hi; {
		in, ok := f.insn(at)
		if !ok || len(list) == mostCode {
			break
		}
		index[at] = len(list)
		list = append(list, in)
		at = in.next()
	}
	return list, index
}

// follow notes what a function does to memory, and what it calls. marks: the instructions that try, pause or wait.
func (f *queueFinder) follow(p *part, lo, hi uint64, code []insn) (marks, waits map[uint64]bool) {
	marks, waits = map[uint64]bool{}, map[uint64]bool{}
	t := f.frame()
	sums := map[[2]value]int32{}
	sum := func(a, b value) value {
		if a.sym == constant || b.sym == constant {
			return value{a.sym + b.sym, a.n + b.n}
		}
		n := a.n + b.n
		a.n, b.n = 0, 0
		if a.sym > b.sym {
			a, b = b, a
		}
		sym, ok := sums[[2]value{a, b}]
		if !ok {
			sym = t.new().sym
			sums[[2]value{a, b}] = sym
			p.made[sym] = [2]int32{a.sym, b.sym}
		}
		return value{sym, n}
	}
	scaled := map[[2]int32]int32{}
	results := map[int32]bool{} // what functions gave: errno, new memory
	address := func(m x86.Mem, next uint64) (v value, root int32) {
		index := m.Index
		m.Index = x86.NoReg
		v = t.address(m, next)
		root = v.sym
		if index == x86.NoReg || v.sym == nowhere {
			return v, root
		}
		i := t.reg(index)
		if m.Scale > 1 {
			k := [2]int32{i.sym, int32(m.Scale)}
			if scaled[k] == 0 {
				scaled[k] = t.new().sym
			}
			i = value{scaled[k], i.n * int64(m.Scale)}
		}
		return sum(v, i), root
	}
	from, loaded, comes := map[uint64]*tracker{}, map[value]value{}, true
	for n := range code {
		in := &code[n]
		if b := from[in.at]; b != nil && !comes {
			b.fresh = max(b.fresh, t.fresh)
			t, comes = b, true
		}
		k := accessOf(&in.Inst)
		if k != none && !f.isMutex(in) {
			m := in.Mems()[0]
			v, root := address(m, in.next())
			_, fixed := f.word(uint64(v.n))
			if v.sym != nowhere && v.sym != stack && root != stack && !results[root] && !(v.sym == constant && fixed) {
				a := access{at: in.at, owned: f.owned[in.at], kind: k, key: v, root: root, field: field{m.Disp, m.Size, false}}
				if v.sym == constant {
					a.field = field{v.n, m.Size, true}
				}
				a.ticket = in.Op == "xadd" && !t.hasAddend(in, -1)
				p.accesses = append(p.accesses, a)
			}
		}
		if k == changes && in.Op == "cmpxchg" || in.Op == "pause" {
			marks[in.at] = true
		}
		to, known := t.target(in)
		switch in.Flow {
		case x86.FlowSyscall:
			marks[in.at] = t.has(x86.RAX, sysFutex)
		case x86.FlowCall, x86.FlowIndirectCall:
			marks[in.at] = t.has(rdi, sysFutex)
			waits[in.at] = known && f.sleeps[to]
			if known && (to < lo || to >= hi) {
				p.calls = append(p.calls, to)
			}
		case x86.FlowJump:
			if known && (to < lo || to >= hi) {
				p.calls = append(p.calls, to)
			}
		}
		if (in.Flow == x86.FlowJump || in.Flow == x86.FlowCond) && to > in.at && to < hi && from[to] == nil {
			from[to] = t.clone()
		}
		var is value
		a := in.Args()
		add := in.Op == "add" && len(a) == 2 && a[0].Kind == x86.ArgReg && a[1].Kind == x86.ArgReg && is64(a[0].Reg) && is64(a[1].Reg)
		lea := in.Op == "lea" && len(a) == 2 && is64(a[0].Reg) && in.Mems()[0].Index != x86.NoReg
		switch {
		case add:
			is = sum(t.reg(a[0].Reg), t.reg(a[1].Reg))
		case lea:
			is, _ = address(in.Mems()[0], in.next())
		}
		t.do(in)
		if in.Flow == x86.FlowCall || in.Flow == x86.FlowIndirectCall {
			results[t.reg(x86.RAX).sym] = true
		}
		if (add || lea) && is.sym != nowhere {
			t.regs[a[0].Reg.Num()] = is
		}
		switch in.Flow {
		case x86.FlowJump, x86.FlowIndirectJump, x86.FlowRet, x86.FlowTrap, x86.FlowHalt:
			comes = false
		}
		// What is loaded from one place twice is taken to be the same.
		if in.Op == "mov" && len(a) == 2 && a[0].Kind == x86.ArgReg && is64(a[0].Reg) && a[1].Kind == x86.ArgMem && in.Mems()[0].Index == x86.NoReg {
			before := t.fresh
			if v := t.reg(a[0].Reg); v.sym == before && v.n == 0 {
				place := f.loadedFrom(t, in)
				if old, ok := loaded[place]; ok && place.sym != nowhere {
					t.regs[a[0].Reg.Num()] = old
				} else {
					loaded[place] = v
				}
			}
		}
	}
	return marks, waits
}

// hasAddend says whether an xadd adds that number.
func (t *tracker) hasAddend(in *insn, n int64) bool {
	for _, a := range in.Args() {
		if a.Kind == x86.ArgReg {
			v := t.regs[a.Reg.Num()]
			return v.sym == constant && (v.n == n || v.n == int64(uint32(n)))
		}
	}
	return false
}

// isMutex says whether an instruction takes or gives back a lock of the kind that Made knows, proved or not.
func (f *queueFinder) isMutex(in *insn) bool {
	if in.Op != "xchg" || in.Mems()[0].Size != 4 {
		return false
	}
	next, ok := f.insn(in.next())
	a := next.Args()
	return ok && next.Op == "cmp" && len(a) == 2 && a[1].Kind == x86.ArgImm && a[1].Imm == 2
}

// keyed says whether something besides counts it, or loads it in a loop that tries.
func (p *part) keyed(key value) bool {
	return slices.ContainsFunc(p.accesses, func(a access) bool { return a.key == key && (a.spins || a.kind == changes) })
}

// sure notes what is in order for certain: what a loop tries until it is otherwise, and what is changed at once and read or written besides.
func (p *part) sure(f *queueFinder) {
	tries := slices.ContainsFunc(p.accesses, func(a access) bool { return a.spins })
	for _, a := range p.accesses {
		if a.owned {
			continue
		}
		if a.spins && f.written[a.field] || a.kind == changes || a.kind == counts && a.ticket && tries {
			p.keys[a.key] = true
			p.roots[a.root] = true
			f.fields[a.field] = f.fields[a.field] || !a.ticket
		}
	}
}

// rest lists the function's accesses to that: by what its address is made of, by where it lies, or, in an object of which something else is, by how far from its beginning.
func (p *part) rest(f *queueFinder) {
	const distinct = 64 // so far from its beginning few objects have anything; what is so far apart on purpose has
	for _, a := range p.accesses {
		if !a.field.static && a.field.at >= distinct && f.fields[a.field] {
			p.roots[a.root] = true
		}
	}
	for _, a := range p.accesses {
		if !a.owned && (p.keys[a.key] || f.fields[a.field] && (a.field.static || p.roots[a.root])) {
			f.list = append(f.list, a.at)
		}
	}
}
