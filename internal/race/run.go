package race

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Input is a recording, which is read several times.
type Input struct {
	// Events calls fn for every event in order; an error of fn ends it and is returned. trace.Reader has one.
	Events func(fn func(process uint64, e *wire.Event) error) error
	// Accesses begins to read the accesses, in the order of their times: each call of what it returns gives the next ones, none at the end.
	Accesses func() func() ([]Access, error)
	// Both, if it is there, stands for the two: it gives events and accesses in one order.
	Both func(event func(process uint64, e *wire.Event) error, access func(*Access)) error
}

// Accesses is Input.Accesses of a slice.
func Accesses(all []Access) func() func() ([]Access, error) {
	return func() func() ([]Access, error) {
		rest := all
		return func() ([]Access, error) {
			out := rest
			rest = nil
			return out, nil
		}
	}
}

// each gives events and accesses in one order; of one time, the accesses first.
func (in *Input) each(event func(process uint64, e *wire.Event), access func(*Access)) error {
	if in.Both != nil {
		return in.Both(func(process uint64, e *wire.Event) error {
			event(process, e)
			return nil
		}, access)
	}
	next := in.Accesses()
	var batch []Access
	ended := false
	upTo := func(ts uint64) error {
		for !ended {
			for i := range batch {
				if batch[i].Time > ts {
					batch = batch[i:]
					return nil
				}
				access(&batch[i])
			}
			var err error
			if batch, err = next(); err != nil {
				return err
			}
			ended = len(batch) == 0
		}
		return nil
	}
	err := in.Events(func(process uint64, e *wire.Event) error {
		if err := upTo(e.TS); err != nil {
			return err
		}
		event(process, e)
		return nil
	})
	if err != nil {
		return err
	}
	return upTo(^uint64(0))
}

// Result is what Run found.
type Result struct {
	Findings []finding.Finding
	Races    []Race   // the same, with their keys
	Racy     []Cell   // as Detector.Racy, of the pass that takes nothing for an atomic that only movs access; in order
	Notes    []string // what was not judged
}

// Learn finds the atomic locations of a recording; suspects are taken for such too. w may be nil: all code is the program's.
func Learn(in Input, w World, suspects []Suspect) (*Atomics, error) {
	l := &learner{w: w, procs: map[uint64]*memory{}, stores: map[[2]uint64]*lastStore{}, suspects: slices.Clone(suspects)}
	slices.SortFunc(l.suspects, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Size, b.Size))
	})
	err := in.each(func(process uint64, e *wire.Event) {
		if w != nil {
			w.Event(process, e)
		}
		l.event(process, e)
	}, l.access)
	return &Atomics{l.procs}, err
}

// NewWith returns a Detector that knows the atomic locations from the start. It is given the very events and accesses that they were learned from. w may
// be nil: all code is the program's and Races have keys, no findings.
func NewWith(cfg Config, w World, atomics *Atomics) *Detector {
	d := New(cfg, w)
	d.atomics = atomics
	return d
}

// Detect is one pass over a recording.
func (d *Detector) Detect(in Input) error {
	return in.each(func(process uint64, e *wire.Event) {
		if d.w != nil {
			d.w.Event(process, e)
		}
		d.Event(process, e)
	}, d.Access)
}

// Run finds the races of a recording. newWorld is called for each pass that asks the world; each world is fed from the first event on. cfg.Shards says on how many
// goroutines it is done, each for a part of the memory.
//
// Three passes: which locations are atomic; the races; and, if some rest on movs, which are left if those locations were atomics too.
func Run(in Input, newWorld func() World, cfg Config) (Result, error) {
	cfg = cfg.withDefaults()
	atomics, err := Learn(in, newWorld(), nil)
	if err != nil {
		return Result{}, err
	}
	detectors, err := detectAll(in, newWorld, cfg, atomics)
	if err != nil {
		return Result{}, err
	}
	var suspects []Suspect
	for _, d := range detectors {
		suspects = append(suspects, d.Suspects()...)
	}
	sure := detectors
	if len(suspects) > 0 {
		if atomics, err = Learn(in, newWorld(), suspects); err != nil {
			return Result{}, err
		}
		if sure, err = detectAll(in, newWorld, cfg, atomics); err != nil {
			return Result{}, err
		}
	}
	races := together(sure)
	if cfg.Partial {
		races = slices.DeleteFunc(races, func(r Race) bool { return r.Finding.Rule == finding.RuleDataRace && cfg.MovAtomics == Hide })
		for i := range races {
			races[i].partial = !races[i].Mov
			races[i].Mov = true
		}
	}
	if len(suspects) > 0 && cfg.MovAtomics != Hide {
		have := map[string]bool{}
		for _, r := range races {
			have[r.Key] = true
		}
		for _, r := range together(detectors) {
			if !have[r.Key] {
				r.Ordered = !r.Mov
				r.Mov = true
				races = append(races, r)
			}
		}
		sortRaces(races)
	}
	res := Result{}
	for i := range races {
		races[i].classify()
		res.Findings = append(res.Findings, races[i].Finding)
	}
	res.Races = races
	for _, d := range slices.Concat(detectors, sure) {
		res.Notes = append(res.Notes, d.Notes()...)
	}
	for _, d := range detectors {
		res.Racy = append(res.Racy, d.Racy()...)
	}
	slices.SortFunc(res.Racy, func(a, b Cell) int { return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Number, b.Number)) })
	res.Racy = slices.Compact(res.Racy)
	slices.Sort(res.Notes)
	res.Notes = slices.Compact(res.Notes)
	return res, nil
}

func together(detectors []*Detector) []Race {
	var parts [][]Race
	for _, d := range detectors {
		parts = append(parts, d.all())
	}
	return Merge(parts...)
}

// detectAll runs the detectors of all shards.
func detectAll(in Input, newWorld func() World, cfg Config, atomics *Atomics) ([]*Detector, error) {
	n := max(cfg.Shards, 1)
	jobs := cfg.Jobs
	if jobs <= 0 {
		jobs = n
	}
	out, errs := make([]*Detector, n), make([]error, n)
	var wg sync.WaitGroup
	room := make(chan struct{}, jobs)
	for i := range n {
		out[i] = NewWith(cfg.Part(i, n), newWorld(), atomics)
		wg.Add(1)
		go func() {
			defer wg.Done()
			room <- struct{}{}
			defer func() { <-room }()
			errs[i] = out[i].Detect(in)
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Part is the configuration of the detector that checks part i of n.
func (c Config) Part(i, n int) Config {
	c.Shard, c.Shards = i, n
	return c
}

// Merge puts together what the detectors of parts found: the same race once, as it was seen first.
func Merge(parts ...[]Race) []Race {
	byKey := map[string]Race{}
	for _, part := range parts {
		for _, r := range part {
			have, ok := byKey[r.Key]
			switch {
			case !ok:
				have = r
			case r.Seq < have.Seq || r.Seq == have.Seq && r.Addr < have.Addr:
				r.Finding.Count += have.Finding.Count
				r.Mov, r.Ordered = r.Mov && have.Mov, r.Ordered && have.Ordered
				have = r
			default:
				have.Finding.Count += r.Finding.Count
				have.Mov, have.Ordered = r.Mov && have.Mov, r.Ordered && have.Ordered
			}
			byKey[r.Key] = have
		}
	}
	out := make([]Race, 0, len(byKey))
	for _, r := range byKey {
		out = append(out, r)
	}
	sortRaces(out)
	return out
}

// classify makes a race that rests on mov alone one of that class.
func (r *Race) classify() {
	if !r.Mov || r.Finding.Rule != finding.RuleDataRace {
		return
	}
	r.Finding.Rule = finding.RuleDataRaceMov
	if r.partial {
		r.Finding.Notes = append(slices.Clone(r.Finding.Notes), "not every access is known: if atomics order the two that were not seen (loads and stores of C11 atomics are mov instructions, "+
			"which look like others, and code that was not traced is not seen at all), this is no race; --mov-atomics=hide leaves such races out")
		return
	}
	r.Finding.Ordered = r.Ordered
	which := "if the location, or one that orders the two accesses, is an atomic in the source"
	if r.Ordered {
		which = "others order the two accesses if what those access is an atomic in the source, and then"
	}
	r.Finding.Notes = append(slices.Clone(r.Finding.Notes), "it rests on mov instructions that could be loads and stores of C11 atomics: "+which+", this is no race; --mov-atomics=hide leaves such races out")
}

// Suspects are the locations that only movs raced for.
func (d *Detector) Suspects() []Suspect {
	out := make([]Suspect, 0, len(d.suspects))
	for _, s := range d.suspects {
		out = append(out, s)
	}
	return out
}

// maxSuspects bounds them; beyond it races that rest on mov may be told as sure.
const maxSuspects = 1 << 20

type suspectKey struct{ process, addr, size, born uint64 }

func (d *Detector) suspect(x *access) {
	k := suspectKey{x.p.id, x.Addr, x.Size, x.p.replaced}
	if b := x.p.mem.at(x.Addr); b != nil {
		k.born = b.born
	}
	if _, ok := d.suspects[k]; ok {
		return
	}
	if len(d.suspects) >= maxSuspects {
		d.note("more than 1048576 locations that movs race for: what rests on the later ones is told as if it did not")
		return
	}
	d.suspects[k] = Suspect{x.p.id, x.Addr, x.Size, d.seq}
}
