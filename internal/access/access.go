// Package access has a program tell its memory accesses: the engine puts a recipe in front of each instruction that makes some, which tells the agent (access.c, by way of tell.c), which
// sends events of kind access. An access that was told before costs the program some nanoseconds, another one up to a hundred.
package access

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// Bits of what access.c is told of each of two accesses.
const (
	read = 1 << iota
	write
	atomic
	fence
	repeated
	_
	fenced
)

// Bits of a recipe.Tell's shape: as above, and the logarithm of the size (access.h).
const (
	shapeFenced = 8
	shapeSize   = 4
	shapePasses = 128
)

// tables are the sizes, from 1 on by powers of 2, for whose plain reads the agent has an entry each, then for the writes; the entry behind them is for all else. Where the agent looks for
// races itself there are others, and more of them for what is read and written.
const tables = 5

// judged is the bit of a site's data that says that the agent looks for races.
const judged = 1 << 62

// apart is the bit of a site's data that says that what it reads and writes is told as read, and then as written: the instruction may be all that a compiler made of a load of an atomic and a store (image.FoldsAtomics), and
// what is both at once no atomic is without lock.
const apart = 1 << 61

// parts gives the data of each thing that is told of a site, one after the other.
func parts(data uint64) []uint64 {
	if data&(lanes|apart) == apart {
		return []uint64{read, write}
	}
	return []uint64{data}
}

// folds says whether compilers make such an instruction of a load and a store.
func folds(in *x86.Inst) bool {
	switch in.Op {
	case "add", "sub", "and", "or", "xor", "inc", "dec", "neg", "not":
		m := &in.Mems()[0]
		return m.Size <= 8 && bits.OnesCount16(m.Size) == 1
	}
	return false
}

// tellOf gives the Tell that says what data does of an instruction; false: it takes a Call.
func tellOf(in *x86.Inst, data uint64) (t recipe.Tell, ok bool) {
	if data&lanes != 0 {
		return t, false
	}
	if data&^(read|write|atomic|fenced) == 0 {
		return told(in, 0, data)
	}
	if data&(1<<16-1) == 0 && data>>16&^(read|write|atomic) == 0 {
		return told(in, 1, data>>16)
	}
	return t, false
}

// told gives the Tell of one access. Its Entry is an index.
func told(in *x86.Inst, mem int, kind uint64) (recipe.Tell, bool) {
	m := &in.Mems()[mem]
	log := bits.TrailingZeros16(m.Size)
	if bits.OnesCount16(m.Size) != 1 || log >= 8 || m.Kind&x86.MemString != 0 && (in.Rep || in.Repne) {
		return recipe.Tell{}, false
	}
	t := recipe.Tell{Mem: mem, Shape: uint8(kind&(read|write|atomic)) | uint8(log<<shapeSize), Entry: 2 * tables}
	switch {
	case kind&fenced != 0:
		t.Shape |= shapeFenced
	case kind&atomic != 0 || log >= tables:
	case kind&write != 0:
		t.Entry = tables + int32(log)
	default:
		t.Entry = int32(log)
	}
	return t, true
}

// orders says whether an access may order threads.
func orders(in *x86.Inst, data uint64) bool {
	if data&lanes != 0 {
		return in.Mems()[0].Kind&x86.MemLocked != 0
	}
	return data&((atomic|fence)*(1+1<<16)) != 0
}

// dataOf gives what access.c is told of an instruction, 16 bits for each access; 0: it has none to tell. unseen: it makes accesses that it cannot tell.
func dataOf(in *x86.Inst) (data uint64, unseen bool) {
	if in.Op == "mfence" {
		return fence, false
	}
	if special(in) {
		data, ok := lanesOf(in)
		return data, !ok
	}
	for i, m := range in.Mems() {
		switch {
		case m.Access == x86.None || m.Kind&(x86.MemAddress|x86.MemHint|x86.MemStack) != 0:
			continue
		case m.Seg == x86.GS || m.Size == 0:
			unseen = true
			continue
		}
		bits := uint64(0)
		if m.Access&x86.Read != 0 {
			bits |= read
		}
		if m.Access&x86.Write != 0 {
			bits |= write
		}
		if m.Kind&x86.MemLocked != 0 {
			bits |= atomic
			if fences(in, &m) {
				bits = fence
			}
		}
		if m.Kind&x86.MemString != 0 && (in.Rep || in.Repne) {
			bits |= repeated
		}
		data |= bits << (16 * i)
	}
	return data, unseen
}

// fences says whether an instruction has its lock prefix for its own sake: it changes nothing at or below the stack's end, as compilers write a fence (lock or qword ptr [rsp], 0). Whatever else is found by
// rsp may be a variable that another thread knows, an atomic of a function's own.
func fences(in *x86.Inst, m *x86.Mem) bool {
	if m.Base != x86.RSP || m.Index != x86.NoReg || m.Disp > 0 || len(in.Args()) != 2 || in.Args()[1].Kind != x86.ArgImm {
		return false
	}
	switch in.Op {
	case "add", "or", "sub", "xor":
		return in.Args()[1].Imm == 0
	case "and":
		return in.Args()[1].Imm == -1
	}
	return false
}

// special says whether the registers or the memory decide which bytes an instruction accesses (lanes.go).
func special(in *x86.Inst) bool {
	for i := range in.Mems() {
		switch m := &in.Mems()[i]; {
		case m.Access == x86.None || m.Kind&(x86.MemAddress|x86.MemHint|x86.MemStack) != 0:
		case m.Kind&(x86.MemGather|x86.MemScatter|x86.MemMasked|x86.MemBit) != 0, m.Kind&x86.MemString != 0 && (in.Rep || in.Repne) && stops(in.Op),
			m.Kind&x86.MemState != 0, in.Op == "xlat", strings.HasPrefix(in.Op, "cmov"):
			return true
		}
	}
	return false
}

// LeftOut are libraries, by the beginnings of their names, of which only atomic instructions and fences are told, for what they order: the others are tens of
// thousands. Of glibc nothing is told.
var LeftOut = []string{"libstdc++.so", "libgcc_s.so", "libm.so", "libm-2."}

// Synchronisers are libraries, by the beginnings of their names, that order threads by movs and futexes of their own: what they access as atomics are accessed is told as atomic, and nothing else.
var Synchronisers = []string{"libgomp.so", "libomp.so", "libiomp5.so"}

// A scope says what is told of a module.
type scope struct{ left, sync bool }

func scopeOf(m *engine.Module) scope {
	base := filepath.Base(m.Path)
	return scope{leftOut(m) || instrumented(m), slices.ContainsFunc(Synchronisers, func(s string) bool { return strings.HasPrefix(base, s) })}
}

// of is dataOf for an instruction of the module.
func (s scope) of(in *x86.Inst) (data uint64, unseen bool) {
	data, unseen = dataOf(in)
	switch {
	case s.sync:
		return asAtomics(in, data), false
	case s.left && !orders(in, data):
		return 0, false
	}
	return data, unseen && !s.left
}

// asAtomics gives the data of an instruction of a synchroniser's.
func asAtomics(in *x86.Inst, data uint64) uint64 {
	switch {
	case data&lanes != 0 && strings.HasPrefix(in.Op, "cmov"):
		data = read
	case data&lanes != 0 && orders(in, data):
		return data
	case data&lanes != 0:
		return 0
	}
	for i, m := range in.Mems() {
		const all = 1<<16 - 1
		switch kind := data >> (16 * i) & all; {
		case kind == 0 || kind&(atomic|fence) != 0:
		case m.Size <= 8 && bits.OnesCount16(m.Size) == 1 && m.Base != x86.RSP && kind&repeated == 0:
			data |= atomic << (16 * i)
		default:
			data &^= all << (16 * i)
		}
	}
	return data
}

// leftOut says whether m is one of them, or an allocator of the program's (libjemalloc), which reads and writes blocks that are free.
func leftOut(m *engine.Module) bool {
	base := filepath.Base(m.Path)
	return slices.ContainsFunc(LeftOut, func(s string) bool { return strings.HasPrefix(base, s) }) || m.Kind == engine.Library && m.Image.Defines("malloc")
}

// instrumented says whether a compiler has the module tell its accesses itself (-fsanitize=thread, internal/agent/c/tsan.c). What is left of atomic instructions there are the program's own, in assembler.
func instrumented(m *engine.Module) bool {
	return m.Kind != engine.Libc && m.Image.Wants("__tsan_func_entry")
}

// stops says of a string instruction whether what it reads decides how often it is repeated.
func stops(op string) bool { return len(op) >= 4 && (op[:4] == "cmps" || op[:4] == "scas") }

// asStore gives the data of an instruction of a store to an atomic: what it writes beside its own frame. So the bytes are known as an atomic's, and the loads of it need not be.
func asStore(in *x86.Inst, data uint64) uint64 {
	return storeBy(in, data, func(base x86.Reg) bool { return base != x86.RSP && base != x86.RBP })
}

// asFrameStore is asStore of what it writes to the frame.
func asFrameStore(in *x86.Inst, data uint64) uint64 {
	return storeBy(in, data, func(base x86.Reg) bool { return base == x86.RSP || base == x86.RBP })
}

func storeBy(in *x86.Inst, data uint64, by func(base x86.Reg) bool) uint64 {
	if data&(lanes|fence) != 0 {
		return data
	}
	for i, m := range in.Mems() {
		kind := data >> (16 * i) & (1<<16 - 1)
		if (kind == write || kind == read|write && folds(in)) && m.Size <= 8 && bits.OnesCount16(m.Size) == 1 && by(m.Base) {
			data |= atomic << (16 * i)
		}
	}
	return data
}

// inlined is the code of a store that is inlined into a function, whose own variable the atomic may be: the last store to the frame is it, if nothing else there is. (Without optimization others are, of arguments, and the atomic is
// found by a register.) What is taken for it wrongly is a place of the frame where no races are found.
type inlined struct {
	end  uint64
	last *uint64 // data of the site that writes to the frame
	data uint64
	done bool // the store is another one
}

// add takes an instruction's data and its site's.
func (c *inlined) add(in *x86.Inst, data uint64, site *uint64) {
	switch as := asFrameStore(in, data); {
	case data&(atomic*(1+1<<16)) != 0:
		c.done = true
	case as != data:
		c.last, c.data = site, as&^data
	}
}

// close tells what it was.
func (c *inlined) close() {
	if c.last != nil && !c.done && *c.last&fenced == 0 {
		*c.last |= c.data
	}
	*c = inlined{}
}

// storeAt gives the one of the stores, which are sorted and apart, that has an address.
func storeAt(list []image.AtomicStore, addr uint64) (image.AtomicStore, bool) {
	n := sort.Search(len(list), func(i int) bool { return list[i].Hi > addr })
	if n < len(list) && list[n].Lo <= addr {
		return list[n], true
	}
	return image.AtomicStore{}, false
}

// A Teller is the engine's client.
type Teller struct {
	// Together: what an instruction reads and writes is never told apart. Set before the first process.
	Together bool

	races  bool
	shared bool // of those to what threads share (share.go)
	mu     sync.Mutex
	unseen map[string]int // by module: instructions whose accesses are not told
	loose  map[string]int // by module: of these, those that may order threads
	opaque map[string]int // by module: bytes of functions that are not known to be instructions
	itself []string       // modules that tell their accesses themselves
	gos    []string       // modules of Go's, which are left alone
	// by build ID: Image.AtomicStores, which takes long where there is much debug information
	stores map[string][]image.AtomicStore
	scopes map[string]scope             // likewise, by build ID and path: a fault waits for it
	vptrs  map[string]map[uint64]uint64 // of what is shared: by build ID and path, by link-time address, the data of stores of vptrs
}

// New makes one. races: the agent of the processes looks for races itself, and sends no accesses.
func New(races bool) *Teller {
	return &Teller{races: races, unseen: map[string]int{}, loose: map[string]int{}, opaque: map[string]int{}, stores: map[string][]image.AtomicStore{}, vptrs: map[string]map[uint64]uint64{}, scopes: map[string]scope{}}
}

// SitesAtOnce says that Sites may be called for several modules at once.
func (t *Teller) SitesAtOnce() {}

// Start is the engine.Client's.
func (t *Teller) Start(*engine.Process) error { return nil }

// Sites gives the instructions of a module that access memory; those of glibc and the agent are left out.
func (t *Teller) Sites(p *engine.Process, m *engine.Module) (sites []patch.Site) {
	if t.table(p) != 0 {
		return t.sharedSites(p, m)
	}
	switch m.Kind {
	case engine.Program, engine.Library:
	default:
		return nil
	}
	if t.foreign(m) {
		return nil
	}
	t.notePlain(m)
	sites, unseen := t.plain(p, m, 0, m.Instructions)
	t.miss(m.Path, unseen, 0)
	t.noteOpaque(m)
	return sites
}

// notePlain notes what is told of the module as such.
func (t *Teller) notePlain(m *engine.Module) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if instrumented(m) && !slices.Contains(t.itself, m.Path) {
		t.itself = append(t.itself, m.Path)
	}
}

func (t *Teller) noteOpaque(m *engine.Module) {
	if n := m.Undecoded(); n > 0 {
		t.mu.Lock()
		t.opaque[m.Path] = int(n)
		t.mu.Unlock()
	}
}

// moduleTables are what is known of a module without its code (engine.Module.Client).
type moduleTables struct {
	scope  scope
	stores []image.AtomicStore
	folds  bool         // image.FoldsAtomics, where it matters
	frames *frameTables // nil: none, where races are not looked for
}

func (t *Teller) tablesOf(m *engine.Module) *moduleTables {
	known, ok := m.Client.(*moduleTables)
	if !ok {
		known = &moduleTables{scope: scopeOf(m), stores: t.storesOf(m), folds: !t.Together && m.Image.FoldsAtomics()}
		if t.races {
			known.frames = frameTablesOf(m)
		}
		m.Client = known
	}
	return known
}

// plain gives the sites of instructions, which come in order and begin where a function does, at an address, and how many of them cannot be told.
func (t *Teller) plain(p *engine.Process, m *engine.Module, from uint64, each func(func(*engine.Insn) bool)) (sites []patch.Site, unseen int) {
	var last *site // the instruction before, if it is one
	length := 0    // its
	f := t.followed(m)
	own := f.frames.from(from)
	var behind pairs
	each(func(i *engine.Insn) bool {
		known := f.of(i)
		if known.missed {
			unseen++
		}
		data := known.data
		if known.vptr != 0 {
			data = known.vptr
		}
		if data == fence && last != nil && last.at+uint64(length) == i.At && last.data&^judged == write {
			last.data |= fenced // a sequentially consistent store, as compilers write it: that it is atomic must be known before it is made
		}
		last, length = nil, i.Inst.Len
		own.take(i)
		if data != 0 {
			last = &site{p: p, m: m, at: i.At, data: data}
			if data == read|write && f.apart(i) {
				last.data |= apart
			}
			if t.races {
				last.data |= judged
				if !known.atomic {
					own.site(i, last) // a store to an atomic orders, whoever knows of it
				}
			}
			last.sized(i)
			sites = append(sites, patch.Site{At: i.At, Recipe: last})
			f.site(i, known, &last.data)
		}
		if t.races && !t.Together {
			behind.take(i, last)
		}
		return true
	})
	f.open.close()
	own.close()
	return sites, unseen
}

// A followed module is gone through instruction by instruction: what one stores may be known by those before it, and by debug information.
type followed struct {
	*moduleTables
	m     *engine.Module
	vptrs *vptrs
	open  inlined
}

func (t *Teller) followed(m *engine.Module) *followed {
	return &followed{moduleTables: t.tablesOf(m), m: m, vptrs: newVptrs(m.Image, m.Bias)}
}

// apart says of an instruction that reads and writes, and is not known as a store to an atomic, whether it may be one all the same.
func (f *followed) apart(i *engine.Insn) bool {
	return f.folds && folds(&i.Inst) && !f.m.Image.NamesAtomics(i.At-f.m.Bias)
}

// An insn says what is told of an instruction.
type insn struct {
	data   uint64
	vptr   uint64 // data, if it stores a vptr and no atomic; 0: it does not
	atomic bool   // debug information has it store to an atomic
	store  image.AtomicStore
	missed bool // it accesses memory that cannot be told
}

// of takes the next one.
func (f *followed) of(i *engine.Insn) (known insn) {
	known.data, known.missed = f.scope.of(&i.Inst)
	vptr := f.vptrs.stores(&i.Inst, known.data)
	f.vptrs.follow(&i.Inst, i.At)
	at := i.At - f.m.Bias
	if at >= f.open.end {
		f.open.close()
	}
	if known.data != 0 {
		if known.store, known.atomic = storeAt(f.stores, at); known.atomic {
			known.data = asStore(&i.Inst, known.data)
		}
	}
	if !known.atomic {
		known.vptr = vptr
	}
	return known
}

// site takes the data of the site that the instruction has become, which what follows may change.
func (f *followed) site(i *engine.Insn, known insn, data *uint64) {
	if known.atomic && known.store.Inlined {
		f.open.end = known.store.Hi
		f.open.add(&i.Inst, known.data, data)
	}
}

// storesOf is where a module's debug information says that atomics are stored to.
func (t *Teller) storesOf(m *engine.Module) []image.AtomicStore {
	t.mu.Lock()
	list, known := t.stores[m.BuildID]
	t.mu.Unlock()
	if known && m.BuildID != "" {
		return list
	}
	list = m.Image.AtomicStores()
	t.mu.Lock()
	t.stores[m.BuildID] = list
	t.mu.Unlock()
	return list
}

// foreign says that a module is left alone.
func (t *Teller) foreign(m *engine.Module) bool {
	if m.Foreign() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !slices.Contains(t.gos, m.Path) {
			t.gos = append(t.gos, m.Path)
		}
	}
	return m.Foreign()
}

func (t *Teller) miss(module string, n, loose int) {
	if n > 0 {
		t.mu.Lock()
		t.unseen[module] += n
		if loose > 0 {
			t.loose[module] += loose
		}
		t.mu.Unlock()
	}
}

// Patched counts what was not patched.
func (t *Teller) Patched(p *engine.Process, m *engine.Module, at func(addr uint64) *patch.Patch) {
	n, loose, scope := 0, 0, scopeOf(m)
	scope.left = scope.left || t.table(p) != 0
	if m.Kind == engine.Libc {
		return // its system calls alone
	}
	m.InstructionsBut(func(a uint64) bool { return at(a) != nil }, func(i *engine.Insn) bool {
		if data, _ := scope.of(&i.Inst); data != 0 {
			n++
			if orders(&i.Inst, data) {
				loose++
			}
		}
		return true
	})
	t.miss(m.Path, n, loose)
}

// Site gives the recipe of an instruction that touched what threads share; without protection keys nothing is patched on request.
func (t *Teller) Site(p *engine.Process, m *engine.Module, at uint64) (patch.Recipe, bool) {
	if t.table(p) == 0 {
		return nil, false
	}
	return t.sharedOne(p, m, at)
}

// End is the engine.Client's.
func (t *Teller) End(*engine.Process) {}

// NotSeen says what was not told: a sentence on all instructions, which names the modules that have most of them (a program may come with hundreds), and one for each module that is told of otherwise.
func (t *Teller) NotSeen() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.unseen) > 0 {
		out = append(out, "instructions that do not tell what memory they access (some that are masked, those relative to gs, those that could not be patched): "+most(t.unseen))
	}
	if t.races && len(t.loose) > 0 {
		out = append(out, "what atomic instructions order that could not be patched, so that races may be told that are none: "+most(t.loose))
	}
	if len(t.opaque) > 0 {
		out = append(out, "bytes of functions that are data, or no instructions that are known: "+most(t.opaque))
	}
	for _, module := range t.gos {
		out = append(out, module+": it has code of Go's, on whose small stacks nothing can be called: what it accesses, its C too, is not told")
	}
	for _, module := range t.itself {
		out = append(out, module+": built with -fsanitize=thread: what its compiler did not instrument (assembler, code that was built without it, some of what it makes of memset and strlen) is not seen")
	}
	slices.Sort(out)
	return out
}

// most names the modules that have most of something, and counts the rest.
func most(by map[string]int) string {
	const named = 4
	modules := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	var parts []string
	rest := 0
	for i, module := range modules {
		if i < named || len(modules) == named+1 {
			parts = append(parts, fmt.Sprintf("%d in %s", by[module], module))
		} else {
			rest += by[module]
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%d in %d other modules", rest, len(modules)-named))
	}
	return strings.Join(parts, ", ")
}

// A site is the recipe of one instruction. There may be millions: its code is made when it is asked for.
type site struct {
	p    *engine.Process
	m    *engine.Module
	at   uint64
	data uint64
	size int32
	own  bool // it accesses a frame that no other thread was told of (frame.go)
	gate bool // own, and the arithmetic flags are dead before it
	// pairs.go: a read that is put off; one that it need not be told before, or the write that it is put off to; this write.
	deferred, passes, clears bool
}

// judge has a Tell's Entry be what looks for races; own: of an access to a frame that is the thread's own.
func judge(p *engine.Process, t recipe.Tell, own bool) recipe.Tell {
	how, log := t.Entry/tables, t.Entry%tables
	rest := t.Entry >= 2*tables
	if t.Shape&(read|write) == read|write {
		how = 2
	}
	switch {
	case own && rest:
		t.Entry = p.ThreadOffset(wire.PatchThreadOwn) + 8*3*tables
	case own:
		t.Entry = p.ThreadOffset(wire.PatchThreadOwn) + 8*(how*tables+log)
	case rest:
		t.Entry = p.ThreadOffset(wire.PatchThreadTell) + 8*t.Entry
	default:
		t.Entry = p.ThreadOffset(wire.PatchThreadJudge) + 8*(how*tables+log)
	}
	return t
}

func (s *site) compile() (*recipe.Code, error) {
	in, ok := s.m.Instruction(s.at)
	if !ok {
		return nil, fmt.Errorf("no instruction at %#x", s.at)
	}
	site := recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}
	var ops []recipe.Op
	live := x86.AllLive
	for _, data := range parts(s.data &^ judged) {
		if t, ok := tellOf(&in.Inst, data); ok && recipe.TellSize(&site, t.Mem) > 0 {
			if s.data&judged != 0 {
				if s.deferred {
					ops = append(ops, recipe.Defer{Mem: t.Mem, At: s.p.ThreadOffset(wire.PatchThreadDeferred), Shape: t.Shape})
					continue
				}
				t = judge(s.p, t, s.own && t.Shape&(atomic|shapeFenced) == 0)
				if s.passes {
					t.Shape |= shapePasses
				}
				if s.clears {
					t.Clears = s.p.ThreadOffset(wire.PatchThreadDeferred)
				}
				if s.gate && t.Shape&(atomic|shapeFenced) == 0 {
					t.Gate = s.p.ThreadOffset(wire.PatchThreadOwnWord)
					live.Flags &^= x86.FlagsArith
				}
			} else {
				t.Entry = s.p.ThreadOffset(wire.PatchThreadTell) + 8*t.Entry
			}
			ops = append(ops, t)
		} else {
			ops = append(ops, recipe.Call{Func: s.p.Func(wire.PatchFuncAccess), General: true, Data: data})
		}
	}
	return recipe.Compile(ops, site, live, s.p.Env())
}

// sized notes the size, for which nothing need be compiled where it is a Tell.
func (s *site) sized(in *engine.Insn) {
	site := recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}
	s.size = 0
	for _, data := range parts(s.data &^ judged) {
		t, ok := tellOf(&in.Inst, data)
		if !ok {
			s.size = 0
			return
		}
		s.size += int32(recipe.TellSize(&site, t.Mem))
	}
}

// Size is described at patch.Recipe, as are the others.
func (s *site) Size() int {
	if s.size == 0 {
		if c, err := s.compile(); err == nil {
			s.size = int32(c.Size())
		}
	}
	return int(s.size)
}

// Orders says whether threads may be in an order by the instruction alone.
func (s *site) Orders() bool {
	data := s.data &^ judged
	if data&lanes != 0 {
		return data>>laneWhat&15 != laneStored
	}
	return data&((atomic|fence)*(1+1<<16)) != 0
}

// Replaces says no: the instruction runs as it is.
func (s *site) Replaces() bool { return false }

// Append makes the code.
func (s *site) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	c, err := s.compile()
	if err != nil {
		return dst, nil, err
	}
	return c.Append(dst, at)
}
