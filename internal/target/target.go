// Package target is the model of the traced processes, built from their ordered events: which modules are mapped where, what the
// stack ids mean, which threads there are and who made them, what lies at an address. It turns ids and addresses into the words of
// package finding. It judges nothing and touches no process: what it was not told it calls unknown.
package target

import (
	"bytes"
	"encoding/hex"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Symbolizer knows names; package image has one.
type Symbolizer interface {
	// Frames gives the frames at a link-time address of a module: more than one where functions are inlined, the innermost first. None:
	// nothing is known.
	Frames(module, buildID string, linkAddr uint64) []finding.Frame
	// Symbol gives the function or data symbol that holds the address, and the offset in it.
	Symbol(module, buildID string, linkAddr uint64) (name string, offset uint64, ok bool)
	// ThreadLocal gives the variable of an executable that lies so many bytes below a thread pointer, the offset in it, and that in the TLS block.
	ThreadLocal(module, buildID string, below uint64) (name string, offset, at uint64, ok bool)
	// Variable gives the part of a global variable that lies at a link-time address, or of a thread-local one at an offset of the module's TLS block, as it is written behind the
	// variable's name, and its type.
	Variable(module, buildID string, at uint64, local bool) (path, typ string, ok bool)
	// Local gives the variable that lies so many bytes from the canonical frame address of the function at a link-time address, as Variable does, with its name and the function whose it is.
	Local(module, buildID string, linkAddr uint64, offset int64) (fn, name, path, typ string, ok bool)
}

// Set holds the models of all processes of a run. It is for one goroutine. Asked about a process or a thread it does not know, it
// answers with what the question said and nothing more.
type Set struct {
	sym   Symbolizer
	procs map[uint64]*process
}

// New returns an empty Set. Without a Symbolizer (nil) findings keep bare addresses.
func New(sym Symbolizer) *Set { return &Set{sym: sym, procs: map[uint64]*process{}} }

// process is the model of one process.
type process struct {
	pid, ppid uint32
	exe       string
	argv      []string
	ended     bool

	parent *process // the process that forked it, for the stacks defined before
	born   uint64   // tick of its first event

	modules  []module
	stacks   map[uint32]stackDef
	threads  map[uint32]*thread
	dead     []uint32 // of them, the longest first
	ranges   []span   // stacks of threads by address
	objects  map[uint64]*object
	pages    map[uint64][]uint64 // objects by page
	gone     int                 // objects whose memory was freed
	blocks   map[uint64]block    // heap blocks by address; only when all events are recorded
	large    map[uint64]struct{} // those of blocks that are at least largeBlock long
	mappings intervals           // only when all events are recorded
	opened   map[int32]uint32    // stack by descriptor
	racing   map[uint64]frame    // by the address of a race or a lock on a stack: where that is
}

func newProcess() *process {
	return &process{stacks: map[uint32]stackDef{}, threads: map[uint32]*thread{}, objects: map[uint64]*object{},
		pages: map[uint64][]uint64{}, blocks: map[uint64]block{}, opened: map[int32]uint32{}, large: map[uint64]struct{}{}}
}

// stackDef is a stack as its event defines it: frames, or (base not 0) those of another with locks that are held.
type stackDef struct {
	ts   uint64
	pcs  []uint64
	base uint32
	held []wire.Held
}

// stack finds the definition of id. A forked child goes on with the ids its parent had given until then.
func (p *process) stack(id uint32) (stackDef, bool) {
	before := ^uint64(0)
	for q := p; q != nil; q = q.parent {
		if d, ok := q.stacks[id]; ok && d.ts <= before {
			return d, true
		}
		before = min(before, q.born)
	}
	return stackDef{}, false
}

func (s *Set) process(id uint64) *process {
	p := s.procs[id]
	if p == nil {
		p = newProcess()
		s.procs[id] = p
	}
	return p
}

// Forget drops a process of which no finding will be made any more. What its children inherited stays.
func (s *Set) Forget(id uint64) { delete(s.procs, id) }

// Event brings the model of the process up to date with e.
func (s *Set) Event(id uint64, e *wire.Event) {
	p := s.process(id)
	w := e.Words
	switch e.Type {
	case wire.TypeProcess:
		s.begin(id, p, e)
	case wire.TypeProcessEnd:
		p.ended = true
	case wire.TypeModule:
		p.addModule(e.TS, wire.DecodeModule(w))
	case wire.TypeModuleGone:
		p.dropModule(e.TS, wire.DecodeModuleGone(w).ID)
	case wire.TypeStack:
		d := wire.DecodeStack(w)
		p.stacks[d.ID] = stackDef{ts: e.TS, pcs: slices.Clone(d.PCs)}
	case wire.TypeStackHolding:
		d := wire.DecodeStackHolding(w)
		p.stacks[d.ID] = stackDef{ts: e.TS, base: d.Base, held: slices.Clone(d.Held)}
	case wire.TypeThreadCreate, wire.TypeThreadCreateFailed, wire.TypeThreadStart, wire.TypeThreadExit, wire.TypeThreadName:
		p.threadEvent(e)
	case wire.TypeInit, wire.TypeDestroy, wire.TypeInBlock, wire.TypeBlockGone:
		p.objectEvent(e)
	case wire.TypeFrame:
		p.frameEvent(wire.DecodeFrame(w))
	case wire.TypeFdOpen:
		d := wire.DecodeFdOpen(w)
		if d.Fd >= 0 && d.Fd < wire.FdPlaces {
			p.opened[d.Fd] = d.Stack
		}
	case wire.TypeAlloc, wire.TypeFree, wire.TypeMmap, wire.TypeMunmap, wire.TypeMremap:
		p.memoryEvent(e)
	}
}

// begin handles a process's first event.
func (s *Set) begin(id uint64, p *process, e *wire.Event) {
	d := wire.DecodeProcess(e.Words)
	if d.Start == wire.StartFork && d.ParentID != id {
		if parent := s.procs[d.ParentID]; parent != nil && !parent.descends(p) {
			p.inherit(parent, d.ParentThread)
		}
	}
	p.pid, p.ppid, p.born = d.PID, d.Ppid, e.TS
	if len(d.Tail) == 0 {
		return
	}
	for i, arg := range bytes.Split(bytes.TrimSuffix(d.Tail, []byte{0}), []byte{0}) {
		if i == 0 {
			p.exe, p.argv = string(arg), nil
		} else {
			p.argv = append(p.argv, string(arg))
		}
	}
}

// descends tells whether q is p or one of its ancestors: a damaged trace must not make a ring of them.
func (p *process) descends(q *process) bool {
	for ; p != nil; p = p.parent {
		if p == q {
			return true
		}
	}
	return false
}

// Process gives the pid, the path of the executable and the arguments.
func (s *Set) Process(id uint64) (pid uint32, exe string, argv []string) {
	p := s.procs[id]
	if p == nil {
		return 0, "", nil
	}
	return p.pid, p.exe, p.argv
}

// Ended tells whether the process has said that it ends.
func (s *Set) Ended(id uint64) bool {
	p := s.procs[id]
	return p != nil && p.ended
}

// Stack gives the frames of stack id: bare addresses, placed in the modules that were mapped when the stack was taken.
func (s *Set) Stack(process uint64, id uint32) finding.Stack {
	p := s.procs[process]
	if p == nil || id == 0 {
		return nil
	}
	return p.frames(id)
}

// Held gives the locks that a thread held at stack id, as far as its event says so; the oldest first.
func (s *Set) Held(process uint64, id uint32) []wire.Held {
	p := s.procs[process]
	if p == nil {
		return nil
	}
	d, _ := p.stack(id)
	return d.held
}

func (p *process) frames(id uint32) finding.Stack {
	d, ok := p.stack(id)
	if d.base != 0 {
		d, ok = p.stack(d.base)
	}
	if !ok || len(d.pcs) == 0 {
		return nil
	}
	out := make(finding.Stack, len(d.pcs))
	for i, pc := range d.pcs {
		out[i] = p.frame(pc, i > 0, d.ts)
	}
	return out
}

// Frame places a code address of the process as it is now; ret: it is a return address.
func (s *Set) Frame(process, pc uint64, ret bool) finding.Frame {
	p := s.procs[process]
	if p == nil {
		return finding.Frame{PC: pc}
	}
	return p.frame(pc, ret, ^uint64(0))
}

// frame places pc. A return address belongs to the call before it, which may be the last instruction of its module.
func (p *process) frame(pc uint64, ret bool, ts uint64) finding.Frame {
	at := pc
	if ret {
		at--
	}
	f := finding.Frame{PC: pc}
	if m := p.moduleAt(at, ts); m != nil {
		f.Module, f.BuildID, f.Offset = m.Path, m.BuildID, pc-m.Bias
	}
	return f
}

// Module is a mapped ELF object.
type Module struct {
	ID        uint32
	Base, End uint64 // where it is mapped
	Bias      uint64 // address − link-time address
	BuildID   string // hexadecimal, empty if it has none
	Path      string
}

// module is a Module and its time. Those that are gone are kept for the stacks that were taken in them.
type module struct {
	Module
	from, to uint64 // ticks; to is the highest one while it is mapped
}

const mapped = ^uint64(0)

func (p *process) addModule(ts uint64, d wire.EvModule) {
	n := min(int(d.BuildIDLen), len(d.Tail))
	m := Module{ID: d.ID, Base: d.Base, End: d.End, Bias: d.Bias, BuildID: hex.EncodeToString(d.Tail[:n]),
		Path: string(bytes.TrimRight(d.Tail[n:], "\x00"))}
	for i := range p.modules {
		o := &p.modules[i]
		if o.to != mapped || o.End <= m.Base || m.End <= o.Base {
			continue
		}
		if o.Module == m { // said twice
			return
		}
		o.to = ts
	}
	for i := range p.modules {
		o := &p.modules[i]
		if was := o.Module; o.to < ts {
			if was.ID = m.ID; was == m && !p.overlaid(m, o.to) { // loaded again where it was: as if it had stayed
				o.ID, o.to = m.ID, mapped
				return
			}
		}
	}
	p.modules = append(p.modules, module{m, ts, mapped})
}

// overlaid tells whether another module lay where m does after tick ts.
func (p *process) overlaid(m Module, ts uint64) bool {
	for i := range p.modules {
		o := &p.modules[i]
		if o.from >= ts && o.Base < m.End && m.Base < o.End {
			return true
		}
	}
	return false
}

func (p *process) dropModule(ts uint64, id uint32) {
	for i := range p.modules {
		if m := &p.modules[i]; m.ID == id && m.to == mapped {
			m.to = ts
		}
	}
}

// moduleAt is the module that held addr at tick ts. A module is announced only after its constructors ran, so failing that it is the
// one announced next, and then the last there was.
func (p *process) moduleAt(addr, ts uint64) *Module {
	var next, last *module
	for i := range p.modules {
		m := &p.modules[i]
		switch {
		case addr < m.Base || addr >= m.End:
		case m.from <= ts && ts <= m.to:
			return &m.Module
		case m.from > ts:
			if next == nil || m.from < next.from {
				next = m
			}
		case last == nil || m.to > last.to:
			last = m
		}
	}
	switch {
	case next != nil:
		return &next.Module
	case last != nil:
		return &last.Module
	}
	return nil
}

// Module is the path of the module that lies at addr, or of the last that did: then it is gone. Empty: none.
func (s *Set) Module(process, addr uint64) (path string, gone bool) {
	p := s.procs[process]
	if p == nil {
		return "", false
	}
	m := p.moduleAt(addr, mapped)
	if m == nil {
		return "", false
	}
	return m.Path, !slices.ContainsFunc(p.modules, func(o module) bool { return o.to == mapped && o.Base <= addr && addr < o.End })
}

// Modules lists the modules that are mapped in the process now.
func (s *Set) Modules(process uint64) []Module {
	p := s.procs[process]
	if p == nil {
		return nil
	}
	var out []Module
	for i := range p.modules {
		if p.modules[i].to == mapped {
			out = append(out, p.modules[i].Module)
		}
	}
	return out
}
