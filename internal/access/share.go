package access

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/syscalls"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// The agent's table of pages (internal/agent/c/share.h): a byte for each, of which bit 0 says that the page is judged, and accessed by its mirror.
const (
	tableBits  = 47
	tableShift = 12
	tableMask  = 1
)

// NewShared makes a Teller for processes that find by protection keys what their threads share: only atomic instructions and fences are told from the start, and other instructions from when one of them
// first touches what is shared. A process that cannot do so tells all accesses.
func NewShared() *Teller {
	t := New(true)
	t.shared = true
	return t
}

// table gives the address of a process's table, 0 if it has none.
func (t *Teller) table(p *engine.Process) uint64 {
	if !t.shared {
		return 0
	}
	return p.Func(wire.PatchFuncShareTable)
}

// sharedSites gives what is patched from the start: what orders threads, and the system calls, which must be made with all memory open.
func (t *Teller) sharedSites(p *engine.Process, m *engine.Module) (sites []patch.Site) {
	switch m.Kind {
	case engine.Libc, engine.Loader: // the loader's say what of memory is another's from then on
		return syscallSites(p, m)
	case engine.Program, engine.Library:
	default:
		return nil
	}
	var all []*sharedSite
	var last *sharedSite // the instruction before, if it may be a store to an atomic
	length, f, kept := 0, t.followed(m), map[uint64]uint64{}
	m.Instructions(func(i *engine.Insn) bool {
		if i.Inst.Op == "syscall" {
			sites = append(sites, patch.Site{At: i.At, Recipe: syscalls.Recipe{Next: i.At + uint64(i.Inst.Len), Hook: p.Func(wire.PatchFuncSyscallHook)}})
		}
		if ours[i.Inst.Op] {
			sites = append(sites, patch.Site{At: i.At, Recipe: &sharedSite{p: p, m: m, at: i.At, data: takesOurs, always: true}})
		}
		known := f.of(i)
		data := known.data
		if known.vptr != 0 {
			kept[i.At-m.Bias] = known.vptr
		}
		if data == fence && last != nil && last.at+uint64(length) == i.At && last.data == write {
			last.data |= fenced
		}
		last, length = nil, i.Inst.Len
		if data == write || known.atomic || orders(&i.Inst, data) {
			last = &sharedSite{p: p, m: m, at: i.At, data: data, always: true}
			if n := len(all); n > 0 && !all[n-1].ordering() && f.open.last != &all[n-1].data {
				all = all[:n-1]
			}
			all = append(all, last)
			f.site(i, known, &last.data)
		}
		return true
	})
	f.open.close()
	for _, s := range all {
		if s.ordering() {
			sites = append(sites, patch.Site{At: s.at, Recipe: s})
		}
	}
	slices.SortFunc(sites, func(a, b patch.Site) int { return cmp.Compare(a.At, b.At) })
	t.mu.Lock()
	t.vptrs[vptrsKey(m)] = kept
	t.mu.Unlock()
	return sites
}

// ours are instructions on what memory is watched by. takesOurs tells the agent that one is about to be made (RS_TAKES_OURS of internal/agent/c/access.h).
var ours = map[string]bool{"wrgsbase": true, "rdgsbase": true, "wrpkru": true, "rdpkru": true}

const takesOurs = 1 << 62

func vptrsKey(m *engine.Module) string { return m.BuildID + " " + m.Path }

// ordering says whether the instruction may order threads, as far as is known.
func (s *sharedSite) ordering() bool {
	return s.data&lanes != 0 || s.data&((atomic|fence|fenced)*(1+1<<16)) != 0
}

// window is how far before a `syscall` instruction its number is looked for.
const window = 24

// syscallSites gives the system calls of a module of glibc's.
func syscallSites(p *engine.Process, m *engine.Module) (sites []patch.Site) {
	found := syscalls.Find(func(yield func(uint64, *x86.Inst) bool) {
		for _, seg := range m.Image.Segments() {
			if seg.Flags&elf.PF_X == 0 {
				continue
			}
			code, base := m.Image.Bytes(seg.Addr, seg.FileSize), seg.Addr+m.Bias
			next := uint64(0) // the first offset that was not looked at
			for i := 0; ; i++ {
				n := bytes.Index(code[i:], opSyscall)
				if n < 0 {
					break
				}
				i += n
				for off := max(next, uint64(max(i-window, 0))); off <= uint64(i); next = off {
					in, ok := m.Instruction(base + off)
					if !ok {
						off++
						continue
					}
					if !yield(in.At, &in.Inst) {
						return
					}
					off += uint64(in.Inst.Len)
				}
			}
		}
	})
	for _, s := range found {
		if s.Left == "" {
			sites = append(sites, patch.Site{At: s.At, Recipe: syscalls.Recipe{Next: s.At + uint64(s.Len), Hook: p.Func(wire.PatchFuncSyscallHook)}})
		}
	}
	return sites
}

var opSyscall = []byte{0x0f, 0x05}

// sharedOne gives the recipe for an instruction that touched what is shared.
func (t *Teller) sharedOne(p *engine.Process, m *engine.Module, at uint64) (patch.Recipe, bool) {
	switch m.Kind {
	case engine.Program, engine.Library:
	default:
		return nil, false
	}
	in, ok := m.Instruction(at)
	if !ok {
		return nil, false
	}
	s := &sharedSite{p: p, m: m, at: at}
	if s.data, _ = t.scopeOf(m).of(&in.Inst); (s.data&lanes != 0 || linked(m, &in)) && !orders(&in.Inst, s.data) {
		s.data = 0
	}
	t.mu.Lock()
	if vptr := t.vptrs[vptrsKey(m)][at-m.Bias]; vptr != 0 {
		s.data = vptr
	}
	t.mu.Unlock()
	_, err := s.compile()
	return s, err == nil
}

func (t *Teller) scopeOf(m *engine.Module) scope {
	key := vptrsKey(m)
	t.mu.Lock()
	s, known := t.scopes[key]
	t.mu.Unlock()
	if !known {
		s = scopeOf(m)
		t.mu.Lock()
		t.scopes[key] = s
		t.mu.Unlock()
	}
	return s
}

// linked says that all an instruction accesses is the loader's table of addresses, which it fills in at the first call of each function, told to nobody.
func linked(m *engine.Module, in *engine.Insn) bool {
	for _, mem := range in.Inst.Mems() {
		if mem.Kind&x86.MemStack != 0 {
			continue
		}
		if mem.Base != x86.RIP || mem.Index != x86.NoReg || mem.Access != x86.Read {
			return false
		}
		at := in.At + uint64(in.Inst.Len) + uint64(mem.Disp) - m.Bias
		for _, name := range []string{".got.plt", ".got"} {
			if b, addr, ok := m.Image.Section(name); ok && at-addr < uint64(len(b)) {
				return true
			}
		}
		return false
	}
	return false
}

// A sharedSite is the recipe of an instruction whose accesses are looked up in the table of pages: those to pages that are judged are told, and made by the mirror.
type sharedSite struct {
	p      *engine.Process
	m      *engine.Module
	at     uint64
	data   uint64 // as a site's; 0: nothing is told
	always bool   // they are told whatever the page is
	size   int

	replaces bool
}

// shareable are the instruction's accesses by index that the table has to be asked for. mirror: all of them can be redirected by GS. ok: all of them can be asked for.
func shareable(in *x86.Inst) (list []int, mirror, ok bool) {
	mirror = in.Flow == x86.FlowNone || in.Flow == x86.FlowIndirectJump
	const strange = x86.MemGather | x86.MemScatter | x86.MemBit | x86.MemState
	for i, m := range in.Mems() {
		switch {
		case m.Access == x86.None || m.Kind&(x86.MemAddress|x86.MemHint|x86.MemStack) != 0:
			continue
		case m.Kind&strange != 0 || m.Seg == x86.GS:
			return nil, false, false
		case m.Seg == x86.FS: // the thread's own
			mirror = false
			continue
		}
		mirror = mirror && in.TakesGS(i) && m.Kind&x86.MemString == 0
		list = append(list, i)
	}
	return list, mirror, len(list) > 0
}

func (s *sharedSite) compile() (*recipe.Code, error) {
	in, ok := s.m.Instruction(s.at)
	if !ok {
		return nil, fmt.Errorf("no instruction at %#x", s.at)
	}
	at := recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}
	env, table := s.p.Env(), s.p.Func(wire.PatchFuncShareTable)
	list, mirror, ok := shareable(&in.Inst)
	if !ok && !s.always {
		return nil, recipe.ErrAddress
	}
	if s.data&^(fence|fence<<16) == 0 && s.always {
		list = nil
	}
	tell := s.tell(&in)
	ask := func(then ...recipe.Op) (ops []recipe.Op) {
		for _, i := range list {
			ops = append(ops, recipe.Check{Mem: i, Table: table, Bits: tableBits, Shift: tableShift, Mask: tableMask, Then: then})
		}
		return ops
	}
	var ops []recipe.Op
	switch mirror = mirror && len(list) == 1; {
	case s.always && mirror:
		ops = append(tell, ask(recipe.GS{})...)
	case s.always:
		ops = tell
	case mirror:
		ops = ask(append(tell, recipe.GS{})...)
	case stringData(&in.Inst) != 0:
		ops = ask(append(tell, recipe.Emulate{Func: s.p.Func(wire.PatchFuncShareString), General: true, Data: stringData(&in.Inst) - 1})...)
	default: // what is told is made in place, and the agent sees to it that it can be
		ops = ask(tell...)
	}
	return recipe.Compile(ops, at, x86.AllLive, env)
}

// Bits of what rs_share_string is told (internal/agent/c/share.h).
const (
	stringMoves    = 1
	stringRepeated = 2
)

// stringData gives 1 + what rs_share_string is told of an instruction; 0: it is none of its.
func stringData(in *x86.Inst) (data uint64) {
	for _, m := range in.Mems() {
		if m.Kind&x86.MemString == 0 || m.Seg != x86.NoReg || m.Base.Size() != 8 {
			return 0
		}
		if m.Kind&x86.MemES == 0 {
			data |= stringMoves
		}
	}
	if in.Rep || in.Repne {
		data |= stringRepeated
	}
	if !strings.HasPrefix(in.Op, "movs") && !strings.HasPrefix(in.Op, "stos") || len(in.Mems()) == 0 {
		return 0
	}
	return data + 1
}

// tell gives what tells the instruction's accesses.
func (s *sharedSite) tell(in *engine.Insn) []recipe.Op {
	if s.data == 0 {
		return nil
	}
	at := recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}
	if t, ok := tellOf(&in.Inst, s.data); ok && s.data != takesOurs && recipe.TellSize(&at, t.Mem) > 0 {
		return []recipe.Op{judge(s.p, t, false)}
	}
	return []recipe.Op{recipe.Call{Func: s.p.Func(wire.PatchFuncAccess), General: true, Data: s.data}}
}

// Size is described at patch.Recipe, as are the others.
func (s *sharedSite) Size() int {
	if s.size == 0 {
		if c, err := s.compile(); err == nil {
			s.size, s.replaces = c.Size(), c.Replaces()
		}
	}
	return s.size
}

// Replaces says whether the code has the instruction in it.
func (s *sharedSite) Replaces() bool {
	s.Size()
	return s.replaces
}

// Append makes the code.
func (s *sharedSite) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	c, err := s.compile()
	if err != nil {
		return dst, nil, err
	}
	return c.Append(dst, at)
}
