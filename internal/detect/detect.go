// Package detect judges: it turns the ordered events of processes into findings about deadlocks, lock-order inversions and misuse. It is
// pure: it opens nothing, starts nothing, asks nothing of a process; what it must know beyond the events it asks through the small
// interfaces declared here. How a finding reads belongs to package finding (rules) and report (layout); what an address or a stack is
// called belongs to target.
//
// The principle: be right rather than eager. Where the events do not prove a claim, no claim is made. What is claimed, and what not,
// stands at the head of each file: stuck.go (deadlocks), order.go (lock order), misuse.go (misuse).
package detect

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// World knows what ids and addresses of the events mean. It must have been given every event before the detector gets it.
type World interface {
	Stack(process uint64, id uint32) finding.Stack
	Thread(process uint64, number uint32) finding.Thread
	Object(process uint64, addr uint64, kind wire.Object) finding.Object
	Process(process uint64) (pid uint32, exe string, argv []string)
	// Module is the file that is mapped at addr, or was the last that was: then it is gone. Empty: none.
	Module(process uint64, addr uint64) (path string, gone bool)
}

// Config is what the surroundings allow and offer. The zero value judges by the events alone, as for a recorded trace.
type Config struct {
	// Confirm is asked before a deadlock of a living process is reported: are these threads still blocked where their last `want`
	// said? Nil: the events are believed.
	Confirm func(process uint64, threads []uint32) bool
	// ConfirmAll is asked before it is claimed that nobody is left to wake a waiter: are these threads all that the process has, does
	// each sleep in the kernel at this moment, still in the wait of its last `want`, and has no signal that it handles pending? Without
	// it such a claim is made only when the process is gone, and about condition variables and semaphores that are no locks only from a
	// full trace, where every signal and post is seen.
	ConfirmAll func(process uint64, threads []uint32) bool
	// Epochs: processes record epochs (`guard`) and keep no list of the locks that are held; what waits long is told late, with who has it. Judged are such waits,
	// joins and initialisers, and those wrong uses that an object's own words prove; not those of forked children, which began in the middle. See late.go.
	Epochs bool
	// MaxNestings bounds how many different (lock taken, locks held) one process's order graph keeps. 0: 1<<17. What is not kept is
	// said in Notes.
	MaxNestings int
	// SearchSteps is how many steps each new nesting adds to what the search for cycles may spend. 0: 4096.
	SearchSteps int
}

const (
	defaultMaxNestings = 1 << 17
	defaultSearchSteps = 4096
)

// Detector takes the events of all processes of a session. It is for one goroutine.
type Detector struct {
	cfg            Config
	w              World
	sink           func(finding.Finding)
	procs          map[uint64]*process
	last           *process // of the last event: mostly the next one's too
	notes, details map[string]bool
}

// New returns a Detector that hands each finding to sink as soon as it is sure of it. The same finding comes to sink once with Count 1,
// and if it was seen again, once more when its process ends, with Count telling how many more times.
func New(cfg Config, w World, sink func(finding.Finding)) *Detector {
	if cfg.MaxNestings <= 0 {
		cfg.MaxNestings = defaultMaxNestings
	}
	if cfg.SearchSteps <= 0 {
		cfg.SearchSteps = defaultSearchSteps
	}
	return &Detector{cfg: cfg, w: w, sink: sink, procs: map[uint64]*process{}, notes: map[string]bool{}, details: map[string]bool{}}
}

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

// Event takes the next event of a process, in order. e.Words must be one whole record, as wire.RecordWords confirms.
func (d *Detector) Event(process uint64, e *wire.Event) {
	d.process(process).event(e)
}

// Tick says that all events up to now have been given: deadlocks are looked for. Call it after each batch.
func (d *Detector) Tick() {
	for _, p := range d.sorted() {
		p.findStuck()
	}
}

// End says that the process is gone and no event of it will come. Deadlocks that it died with are still reported.
func (d *Detector) End(process uint64) {
	if p := d.procs[process]; p != nil {
		p.end()
		delete(d.procs, process)
		if d.last == p {
			d.last = nil
		}
	}
}

// Finish ends all processes that are left, without looking for further deadlocks: threads of a process that lives on may be anywhere.
func (d *Detector) Finish() {
	for _, p := range d.sorted() {
		p.finish()
	}
	clear(d.procs)
	d.last = nil
}

// Stuck reports whether every live thread of the process is in a reported deadlock or blocked behind one.
func (d *Detector) Stuck(process uint64) bool {
	p := d.procs[process]
	if p == nil {
		return false
	}
	p.findStuck()
	return p.allStuck
}

// Joining gives the threads of a process that wait for another one's end, without a time limit and with no cancellation on its way.
func (d *Detector) Joining(process uint64) (list []uint32) {
	p := d.procs[process]
	if p == nil {
		return nil
	}
	for _, t := range p.threads {
		if w := t.want; w != nil && w.kind == wire.ObjectThread && !w.timed && !t.cancelled {
			list = append(list, t.number)
		}
	}
	return list
}

// Notes says what was not judged because a bound was hit, a sentence each.
func (d *Detector) Notes() []string { return slices.Sorted(maps.Keys(d.notes)) }

// Details says what was bounded in a way that is common and next to never costs a finding: to be said on demand.
func (d *Detector) Details() []string { return slices.Sorted(maps.Keys(d.details)) }

func (d *Detector) note(s string) { d.notes[s] = true }

func (d *Detector) detail(s string) { d.details[s] = true }

func (d *Detector) sorted() []*process {
	out := make([]*process, 0, len(d.procs))
	for _, p := range d.procs {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *process) int { return cmp.Compare(a.id, b.id) })
	return out
}
