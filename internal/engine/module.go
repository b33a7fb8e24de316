package engine

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/cache"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/present"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/x86"
)

// Kind says what a module is to the engine.
type Kind uint8

// Kinds of modules.
const (
	Program Kind = iota
	Library
	Libc   // libc.so.6, and what else of glibc runs with all signals blocked
	Loader // ld.so: never patched
	VDSO
	Agent // never patched
)

// A Module is an ELF object in a process.
type Module struct {
	Path    string // as the process has it mapped; "[vdso]"
	BuildID string // hexadecimal, "" if it has none
	Kind    Kind
	Base    uint64       // of its lowest executable mapping
	End     uint64       // of its highest
	Bias    uint64       // address in the process less link-time address
	Image   *image.Image // nil: of a library that is idle (Idler), of which nothing is known but this
	Client  any          // what the client keeps with it

	texts     []*text
	bounds    [][2]uint64 // functions; nil: nobody has asked for one
	undecoded uint64
	learnt    bool
	whole     *[][2]uint64 // WholeFunctions'; nil: nobody has asked
	parts     bool
	keeps     [][2]uint64 // identify's: what must not move, where the loader enters, and functions, if they had to be listed
	entered   []uint64
	list      [][2]uint64
	cache     *cache.Dir
	recalls   *recalls     // nil: nothing is remembered
	recalled  *recalled    // what the session knows of it; nil: nothing
	hash      string       // of its code and what is said of it; "" as long as nothing is known
	fromCache bool         // what is known of it
	closed    *atomic.Bool // the process's: what takes long ends
	fetch     func(*text) bool
	same      func(at uint64, code []byte) bool
	read      func(at uint64, b []byte) error // memory of the process; nil: Around knows nothing
	partly    bool                            // only what Around says is known
	guards    []guarded                       // then
	cover     *cover                          // nil: all of it was patched when it came
	foreign   bool                            // see Foreign
	space     *patch.Space
	calls     x86.Calls
	again     bool // it was there before, and had gone
	inherited bool // patched by the parent, before the fork that the process began with
	why       map[uint64]Why
	sites     uint64
}

// Foreign says that the module has code of the Go compiler's: goroutines have stacks of 2 KiB that grow only where a function begins, so nothing that takes more than a few words of stack may be called from a recipe.
func (m *Module) Foreign() bool { return m.foreign }

// goSections are sections that the Go linker makes: the table of functions, at one of two places, and what go version reads.
var goSections = []string{".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo"}

// A text is one executable segment.
type text struct {
	at, size uint64
	offset   uint64 // in the file
	code     []byte // as it was when the module came; nil: it was not read yet (Unasked)
	plan     *patch.Text
	planner  *patch.Planner
	live     *patch.Overlay // as it is now
	traps    bitmap         // where the agent was ever told of an int3, from at on
	broken   error          // a change of it failed in the middle: it stays as it is
	heads    []uint64       // sites that are covered, and are about to be patched
}

func (t *text) end() uint64 { return t.at + t.size }

// An Insn is an instruction that is known to begin at At.
type Insn struct {
	At   uint64
	Inst x86.Inst
	Code []byte // its bytes and what follows it in the segment: for x86.Block
}

// Instructions calls f for every known instruction, by address, until f returns false or the process is gone. The Insn is the callee's only until it returns.
func (m *Module) Instructions(f func(*Insn) bool) {
	m.InstructionsBut(nil, f)
}

// InstructionsBut is Instructions without those that skip says are of no interest, by their addresses: these are not decoded.
func (m *Module) InstructionsBut(skip func(at uint64) bool, f func(*Insn) bool) {
	m.learn()
	for _, t := range m.texts {
		if !m.instructions(t, t.at, t.end(), skip, f) {
			return
		}
	}
}

// InstructionsIn is Instructions for those that begin in [lo, hi), which lie in one text; skip may be nil.
func (m *Module) InstructionsIn(lo, hi uint64, skip func(at uint64) bool, f func(*Insn) bool) {
	m.learn()
	if t := m.text(lo); t != nil {
		m.instructions(t, lo, min(hi, t.end()), skip, f)
	}
}

func (m *Module) instructions(t *text, lo, hi uint64, skip func(at uint64) bool, f func(*Insn) bool) (more bool) {
	var insn Insn
	for a := t.plan.Next(lo, hi); a < hi; a = t.plan.Next(a+1, hi) {
		if skip != nil && skip(a) {
			continue
		}
		var err error
		insn.At, insn.Code = a, t.code[a-t.at:]
		if insn.Inst, err = x86.Decode(insn.Code); err == nil && !f(&insn) || m.closed.Load() {
			return false
		}
	}
	return true
}

// Assume says what liveness may take for granted of the module's code: see recipe.Assume.
func (m *Module) Assume() x86.Assume {
	m.learn()
	assume := x86.AssumeABI | x86.AssumeNoHandler
	for _, t := range m.texts {
		assume &= recipe.Assume(t.code, t.at, t.plan.Begins)
	}
	return assume
}

// Instruction gives the known instruction that begins at an address.
func (m *Module) Instruction(at uint64) (Insn, bool) {
	m.learn()
	t := m.text(at)
	if t == nil || !t.plan.Begins(at) {
		return Insn{}, false
	}
	in, err := x86.Decode(t.code[at-t.at:])
	return Insn{at, in, t.code[at-t.at:]}, err == nil
}

func (m *Module) text(at uint64) *text {
	for _, t := range m.texts {
		if at >= t.at && at < t.end() {
			return t
		}
	}
	return nil
}

// find gives the modules whose executable mappings are in maps and not among known ones, and says which of those are gone.
func (p *Process) find(maps []tracee.Mapping) (come []*Module, gone []*Module) {
	byKey := map[string]*Module{}
	seen := map[*Module]bool{}
	exe := p.exe()
	for i := range maps {
		m := &maps[i]
		if !m.Exec || m.Inode == 0 && m.Path != "[vdso]" || m.Path == "/memfd:"+memoryName {
			continue
		}
		if old := p.at(uint64(m.Start)); old != nil {
			seen[old] = true
			continue
		}
		kind := kindOf(m, exe)
		if kind == Library && p.e.idle.known(p) > 0 {
			key := fmt.Sprintf("%s %d", m.Dev, m.Inode)
			mod := byKey[key]
			if mod == nil && p.e.idle.is(p.identity(m)) {
				mod = &Module{Path: m.Path, Kind: kind, Base: uint64(m.Start), closed: &p.closed}
				byKey[key] = mod
				come = append(come, mod)
			}
			if mod != nil {
				mod.End = uint64(m.End)
				continue
			}
		}
		img, err := p.open(m)
		if errors.Is(err, image.ErrNotELF) {
			p.e.warnOfAlien(m.Path)
			continue
		}
		if err != nil {
			p.warn("%s is not patched: %v", m.Path, err)
			continue
		}
		bias, ok := biasOf(img, m)
		if !ok {
			img.Close()
			continue // not a program's segment: data that somebody mapped executable
		}
		key := fmt.Sprintf("%s %d %x", m.Dev, m.Inode, bias)
		mod := byKey[key]
		if mod == nil {
			mod = &Module{Path: m.Path, BuildID: img.BuildID(), Kind: kind, Base: uint64(m.Start), Bias: bias, Image: img, calls: p.e.opts.Calls, space: p.space, cache: p.e.cache, recalls: &p.e.recalls, closed: &p.closed, why: map[uint64]Why{}}
			mod.foreign = slices.ContainsFunc(goSections, img.HasSection)
			mod.fetch, mod.same = func(t *text) bool { return p.fetch(mod, t) }, p.same
			if _, later := p.e.opts.Client.(Unasked); later && p.of == nil {
				mod.read = p.read
			}
			byKey[key] = mod
			come = append(come, mod)
		} else {
			img.Close()
		}
		mod.End = uint64(m.End)
		if m.Write || !m.Read || m.Shared {
			continue // what can change by itself is not patched
		}
		t := &text{at: uint64(m.Start), size: uint64(m.End - m.Start), offset: m.Offset}
		if _, later := p.e.opts.Client.(Unasked); !later && !p.fetch(mod, t) {
			continue
		}
		mod.texts = append(mod.texts, t)
	}
	for _, m := range p.mods {
		if !seen[m] {
			gone = append(gone, m)
		}
	}
	return come, gone
}

// warnOfAlien says once what is the same for all such files, of which Wine's programs have dozens.
func (e *Engine) warnOfAlien(path string) {
	e.alien.Do(func() {
		if e.opts.Warn != nil {
			e.opts.Warn(fmt.Sprintf("code in files that are no ELF files (made at run time, or Windows'), as %s, is not patched: what its instructions do is not seen", path))
		}
	})
}

// fetch reads the code of a text; false: that cannot be.
func (p *Process) fetch(m *Module, t *text) bool {
	t.code = present.Bytes(int(t.size))
	if err := p.read(t.at, t.code); err != nil {
		p.warn("%s is not patched: %v", m.Path, err)
		return false
	}
	return true
}

// at gives the known module that an address lies in.
func (p *Process) at(addr uint64) *Module {
	for _, m := range p.mods {
		if addr >= m.Base && addr < m.End {
			return m
		}
	}
	return nil
}

// open opens the very file that is mapped.
func (p *Process) open(m *tracee.Mapping) (*image.Image, error) {
	if m.Path == "[vdso]" {
		b := make([]byte, m.End-m.Start)
		if err := p.read(uint64(m.Start), b); err != nil {
			return nil, err
		}
		return image.FromMemory(m.Path, b)
	}
	var first error
	// The first is identity's.
	for _, path := range []string{fmt.Sprintf("/proc/%d/root%s", p.PID, m.Path), fmt.Sprintf("/proc/%d/map_files/%x-%x", p.PID, uint64(m.Start), uint64(m.End))} {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil && st.Ino != m.Inode && !m.Leads(path) {
			err = fmt.Errorf("%s is not the file that is mapped", path)
		}
		if err == nil {
			img, err := image.Open(path)
			if err == nil {
				return img, nil
			}
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// identity is what image.Identity says of the file that is mapped, "" if it cannot be had by its path.
func (p *Process) identity(m *tracee.Mapping) string {
	id, ino := image.IdentityOf(fmt.Sprintf("/proc/%d/root%s", p.PID, m.Path))
	if ino != m.Inode { // on an overlay it may be the file all the same (open): then it is opened
		return ""
	}
	return id
}

// biasOf gives by how much the image lies elsewhere than it says, if the mapping is one of its executable segments.
func biasOf(img *image.Image, m *tracee.Mapping) (uint64, bool) {
	for _, s := range img.Segments() {
		if s.Flags&elf.PF_X == 0 {
			continue
		}
		off, addr := s.Offset&^(patch.PageSize-1), s.Addr&^(patch.PageSize-1)
		// A mapping may have been cut by mprotect.
		if m.Offset >= off && m.Offset < s.Offset+s.FileSize {
			return uint64(m.Start) - (addr + m.Offset - off), true
		}
	}
	return 0, false
}

// exe is the program's file as the process's map names it, "" if it cannot be told.
func (p *Process) exe() string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	return strings.TrimSuffix(exe, " (deleted)")
}

func kindOf(m *tracee.Mapping, exe string) Kind {
	base := filepath.Base(m.Path)
	switch {
	case m.Path == "[vdso]":
		return VDSO
	case exe == m.Path:
		return Program
	case base == "libripstop.so":
		return Agent
	case strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld-2."):
		return Loader
	case strings.HasPrefix(base, "libc.so.") || strings.HasPrefix(base, "libc-2.") || strings.HasPrefix(base, "libpthread"):
		return Libc
	}
	return Library
}

// learn makes known where instructions begin: in functions that symbols or frames describe. One that cannot be decoded to its end may hold data: what follows it is not known.
func (m *Module) learn() {
	if m.learnt {
		return
	}
	m.learnt = true
	m.identify()
	keep, entered, list := m.keeps, m.entered, m.list
	m.keeps, m.entered, m.list = nil, nil, nil
	again := m.knownAgain()
	m.fromCache = again || m.known()
	for _, t := range m.texts {
		if !m.fromCache {
			t.plan = patch.NewText(t.at, t.code)
		}
		for _, r := range keep {
			t.plan.Keep(r[0]+m.Bias, r[1]+m.Bias)
		}
		m.plans(t)
	}
	if m.fromCache {
		if !again {
			m.rememberKnown()
		}
		return
	}
	if list == nil {
		list = m.functions()
	}
	for _, t := range m.texts {
		m.decode(t, list, entered)
	}
	if !m.closed.Load() { // it may have ended early
		m.keep()
		m.rememberKnown()
	}
}

// identify has the module's hash known.
func (m *Module) identify() {
	if m.hash != "" {
		return
	}
	if m.recall(m.recallKey()) {
		return
	}
	m.unread()
	key := m.recallKey() // of what could be read
	m.keeps, m.entered = restartable(m.Image), roots(m.Image)
	code := m.hashCode(m.keeps, m.entered)
	if tables := m.hashTables(code); !m.hashed(tables) {
		m.list = m.functions()
		m.hash = hashFunctions(code, m.list)
		m.keepHash(tables)
	}
	m.remember(key)
}

// plans makes a text, whose code and plan are there, ready to be patched.
func (m *Module) plans(t *text) {
	t.planner = patch.NewPlanner(t.plan, m.space)
	t.planner.Calls = m.calls
	t.planner.NoTraps = m.Kind == Libc || m.Kind == Loader
	t.live = patch.NewOverlay(t.code)
}

// functions gives where symbols and frames say that functions lie, by address, of those that begin at one the longer first: link-time addresses.
func (m *Module) functions() [][2]uint64 {
	list := m.Image.Functions()
	more, _ := unwind.Ranges(m.Image)
	list = append(list, more...)
	slices.SortFunc(list, func(a, b [2]uint64) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(b[1], a[1]))
	})
	return list
}

// WholeFunctions is unwind.Whole of the module, in the process. The list must not change.
func (m *Module) WholeFunctions() (list [][2]uint64, parts bool) {
	if m.whole == nil {
		list, m.parts = unwind.Whole(m.Image)
		for i := range list {
			list[i][0] += m.Bias
			list[i][1] += m.Bias
		}
		m.whole = &list
	}
	return *m.whole, m.parts
}

// decode makes known the instructions of a text.
func (m *Module) decode(t *text, functions [][2]uint64, entered []uint64) {
	var done uint64 // up to here all is known
	for _, f := range functions {
		lo, hi := f[0]+m.Bias, f[1]+m.Bias
		if lo < t.at || hi > t.end() || hi <= done && t.plan.Begins(lo) || m.closed.Load() {
			continue
		}
		reached := t.plan.AddFunction(lo, hi)
		if reached < hi {
			m.undecoded += hi - reached
		}
		done = max(done, reached)
	}
	entered = slices.Clone(entered)
	for i := range entered {
		entered[i] += m.Bias
	}
	t.follow(entered)
	if t.at == m.Base && t.end() == m.End {
		t.plan.Complete()
	}
}

// Undecoded is how many bytes of the functions that symbols and frames tell are not known to be instructions.
func (m *Module) Undecoded() uint64 {
	if m.cover == nil {
		m.learn()
	}
	return m.undecoded
}

// Patchable says whether an instruction may be a site, by itself and with a recipe that does not replace it.
func (m *Module) Patchable(at uint64) bool {
	m.learn()
	t := m.text(at)
	return t != nil && t.planner.Check(at) == nil
}
