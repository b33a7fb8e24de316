package analyze

import (
	"slices"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/target"
)

// A world is the model of the recorded processes, as package race asks it.
type world struct {
	*target.Set
	stacks *stacks
}

// Stack is race.World's.
func (w world) Stack(process uint64, id uint32) finding.Stack {
	if id < firstStack {
		return w.Set.Stack(process, id)
	}
	return w.stacks.frames(id-firstStack, func(pc uint64, ret bool) finding.Frame { return w.Frame(process, pc, ret) })
}

// Code is race.World's.
func (w world) Code(process, pc uint64) race.Code {
	if m := w.Frame(process, pc, false).Module; m != "" {
		return codeOf(m)
	}
	return race.Program // made at run time: only samples tell of it
}

// Counts is race.World's: which function of the runtime the program called is not known here.
func (w world) Counts(*race.Access) bool { return false }

// source reads placed records as accesses. Each call of what Input.Accesses gives reads them anew.
func (a *analysis) source() func() func() ([]race.Access, error) {
	return func() func() ([]race.Access, error) {
		m, err := a.placed.merge()
		var batch []race.Access
		return func() ([]race.Access, error) {
			batch = batch[:0]
			for err == nil && len(batch) < 1024 {
				r, _ := m.peek()
				if r == nil {
					break
				}
				o := a.owners.all[r.Owner]
				x := race.Access{Process: o.process, Thread: o.number, Time: r.From, Addr: r.Addr, Size: r.Size, PC: r.PC, Kind: r.Kind}
				if r.Stack != 0 {
					x.Stack = firstStack + r.Stack
				}
				if r.What == isAccess {
					x.Provenance = r.How.String()
				}
				batch = append(batch, x)
				err = m.next()
			}
			return batch, err
		}
	}
}

// report names findings and gives them to the reporter.
func (a *analysis) report(set *target.Set, all []finding.Finding) {
	for i := range all {
		f := &all[i]
		f.Notes = slices.Clone(f.Notes)
		set.Symbolize(f)
		a.rep.Add(*f)
	}
}
