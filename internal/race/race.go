package race

import (
	"maps"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Kind says what an access is: bits.
type Kind uint16

// The bits of a Kind. Read|Write is one instruction that does both.
const (
	Read   Kind = 1 << iota
	Write       //
	Locked      // with Read|Write: atomic, by a lock prefix or xchg
	Fence       // alone: mfence or a locked instruction that only serves as one; Addr and Size mean nothing
	// Order is for atomics that are not all known, or not when: with Locked or Fence, Time is the latest at which it can have been, and Size 0 says that the address
	// is not known. It comes after all that anybody did before that time, and the bytes are atomic; it is no access.
	Order
	// Done, with Locked, is no access: one that was given before has been made by now. What others wrote to these bytes up to this time may have come before it.
	Done
	// Object, with Called, is a use (Read) of an object of synchronisation, or its initialisation or destruction (Write), which an event tells.
	Object
	// Called is for what a function of the C library did for the program, which called it at PC: the function is the innermost frame of Stack. It is no mov, whatever its size.
	Called
	// Elements is for an instruction that takes several elements of a string or a vector. It is no mov, whatever its size.
	Elements
)

// Access is one access to memory by one instruction.
type Access struct {
	Process    uint64 // as the events name it
	Thread     uint32 // number of the thread in its process, as in wire.Event
	Time       uint64 // TSC; orders accesses among themselves and with events
	Addr, Size uint64 // bytes
	PC         uint64 // of the instruction
	Stack      uint32 // id of a stack that was defined by an event; 0: PC is all that is known
	Kind       Kind
	Provenance string // how it is known, for the report: "" for one that was seen itself, else like "recovered by backward replay"
}

// Code says whose code an instruction is.
type Code uint8

const (
	Program Code = iota
	Runtime      // of the C library: counts where World.Counts says so, and orders nothing. Not libstdc++, whose futures and guards are made of atomics
	Ignored      // of the agent, the loader
)

// Names says what ids and addresses mean, as of the last event it was given.
type Names interface {
	Stack(process uint64, id uint32) finding.Stack
	Frame(process uint64, pc uint64, ret bool) finding.Frame
	Thread(process uint64, number uint32) finding.Thread
	// Object describes what lies at an address. kind 0: whatever it is.
	Object(process uint64, addr uint64, kind wire.Object) finding.Object
	Process(process uint64) (pid uint32, exe string, argv []string)
}

// World is what a detector must know beyond events and accesses. It is given each event before the detector takes it.
type World interface {
	Names
	Event(process uint64, e *wire.Event)
	// Code says whose code lies at pc. It is asked once for each pc.
	Code(process uint64, pc uint64) Code
	// Counts reports whether an access by code of the runtime is one of the program's own: the program called the function itself, and what it accesses is
	// not the runtime's. Where that is not known it is false.
	Counts(a *Access) bool
}

// MovAtomics says what is done with races that rest on mov alone, which could be C11 atomics.
type MovAtomics string

// The choices of --mov-atomics.
const (
	Report MovAtomics = "report"
	Hide   MovAtomics = "hide"
)

// DefaultMovAtomics is reasoned in docs/decisions.md, 23.
const DefaultMovAtomics = Report

// Config bounds and chooses. The zero value is the default.
type Config struct {
	MovAtomics MovAtomics // "": DefaultMovAtomics
	// MaxCells bounds the history: cells of eight bytes (about 80 bytes of memory each). 0: 1<<23.
	MaxCells int
	// MaxFreed bounds how many freed blocks of a process are remembered. 0: 1<<20.
	MaxFreed int
	// Shard and Shards: of the memory, this detector checks the part that ShardOf gives to Shard. Shards 0 and 1: all. All events and all accesses must be
	// given, those of other parts too, since an access to an atomic orders threads; WantsAccess says which may be left out.
	Shard, Shards int
	// Jobs bounds the shards that Run works on at a time. 0: all.
	Jobs int
	// Partial says that not all accesses are given. Atomics may then be among those that are missing, so each race between accesses may rest on mov.
	Partial bool
}

const (
	defaultMaxCells = 1 << 23
	defaultMaxFreed = 1 << 20
	shardShift      = 16 // a part is made of pieces of 64 KiB
	maxAccess       = 1 << 28
)

// ShardOf gives the shard of n that checks the byte at addr.
func ShardOf(addr uint64, n int) int {
	if n <= 1 {
		return 0
	}
	h := (addr >> shardShift) * 0x9e3779b97f4a7c15
	return int((h >> 33) % uint64(n))
}

// Race is a finding, with what puts findings of several shards together.
type Race struct {
	Finding finding.Finding
	Key     string // the same for the same race
	Seq     uint64 // number of the event or access that showed it
	Addr    uint64
	Mov     bool // it rests on mov alone
	Ordered bool // with Mov: on other movs than its own
	partial bool // it may, since not all accesses are known
	inner   bool // of a library with a block of its own: not told
}

// Detector takes events and accesses in order. It is for one goroutine.
type Detector struct {
	cfg   Config
	w     World
	procs map[uint64]*process
	last  *process
	seq   uint64

	slots  []slotState
	idle   []slot // of ended threads
	shared stamp  // of all objects that processes share

	channels map[uint64]stamp
	signals  map[signalKey]stamp
	forks    map[uint32]stamp // by pid of a child whose first event has not come

	segments slab
	sites    []site
	siteIDs  map[site]uint32
	codes    knownCode
	held     [][]heldLock
	heldIDs  map[string]uint32

	atomics  *Atomics // known from the start; nil: none
	suspects map[suspectKey]Suspect
	races    map[string]*Race
	racy     map[Cell]struct{}
	notes    map[string]bool
}

type signalKey struct {
	process uint64 // of a send to a thread, and of sigaction
	pid     uint32 // of a send to a process
	thread  uint32
	sig     uint32
}

// New returns a Detector that knows no atomic locations yet; Run is one that knows them all from the start.
func New(cfg Config, w World) *Detector {
	cfg = cfg.withDefaults()
	return &Detector{
		cfg: cfg, w: w, procs: map[uint64]*process{}, channels: map[uint64]stamp{}, signals: map[signalKey]stamp{}, forks: map[uint32]stamp{},
		siteIDs: map[site]uint32{}, sites: make([]site, 1), held: make([][]heldLock, 1), heldIDs: map[string]uint32{"": 0},
		suspects: map[suspectKey]Suspect{}, races: map[string]*Race{}, racy: map[Cell]struct{}{}, notes: map[string]bool{},
	}
}

func (cfg Config) withDefaults() Config {
	if cfg.MovAtomics == "" {
		cfg.MovAtomics = DefaultMovAtomics
	}
	if cfg.MaxCells <= 0 {
		cfg.MaxCells = defaultMaxCells
	}
	if cfg.MaxFreed <= 0 {
		cfg.MaxFreed = defaultMaxFreed
	}
	return cfg
}

// Races gives the findings so far, in the order in which they were seen, each race of two movs as one that rests on mov.
func (d *Detector) Races() []Race {
	all := d.all()
	for i := range all {
		all[i].classify()
	}
	return slices.DeleteFunc(all, func(r Race) bool { return r.Mov && d.cfg.MovAtomics == Hide })
}

func (d *Detector) all() []Race {
	out := make([]Race, 0, len(d.races))
	for _, r := range d.races {
		if !r.inner {
			out = append(out, *r)
		}
	}
	sortRaces(out)
	return out
}

// A Cell is eight bytes of a process's memory, Number their address divided by 8.
type Cell struct{ Process, Number uint64 }

// maxRacy bounds Racy.
const maxRacy = 1 << 20

// Racy gives the cells of all accesses that raced, those of the same two places of code too, in no order; there are at most 1048576.
func (d *Detector) Racy() []Cell { return slices.Collect(maps.Keys(d.racy)) }

// Notes says what was not judged because a bound was hit, a sentence each.
func (d *Detector) Notes() []string { return slices.Sorted(maps.Keys(d.notes)) }

func (d *Detector) note(s string) { d.notes[s] = true }

func (d *Detector) process(id uint64) *process {
	if d.last != nil && d.last.id == id {
		return d.last
	}
	p := d.procs[id]
	if p == nil {
		p = newProcess(d, id)
		d.procs[id] = p
	}
	d.last = p
	return p
}

// mine reports whether this shard checks the byte at addr.
func (d *Detector) mine(addr uint64) bool {
	return d.cfg.Shards <= 1 || ShardOf(addr, d.cfg.Shards) == d.cfg.Shard
}
