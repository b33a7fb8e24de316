package run

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/detect"
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/wire"
)

// Judge takes ordered events, of a run or of a trace, keeps the model of the processes, has the events judged, and reports the findings. Its
// methods are for one goroutine, but for Warn.
type Judge struct {
	set     *target.Set
	det     *detect.Detector
	rep     *report.Reporter
	notSeen *unseen
	races   *race.Live
	hideMov bool                      // races that rest on mov alone are not told
	partly  func(process uint64) bool // says where code is patched in part: races there are not told. nil: nowhere
	epochs  bool                      // epochs are recorded: races are told of re-executions alone
	again   bool                      // races are those of re-executions

	// Findings are named and written on a goroutine of their own: to read a large program's debug information takes longer than the
	// rings of a run may wait.
	mu    sync.Mutex
	cond  sync.Cond
	queue []finding.Finding
	busy  bool // one is being written
	over  bool
	told  sync.WaitGroup
}

// NewJudge returns a Judge that reports to rep. Finish must be called in the end.
func NewJudge(cfg detect.Config, sym target.Symbolizer, rep *report.Reporter) *Judge {
	j := &Judge{set: target.New(sym), rep: rep, notSeen: newUnseen()}
	j.races = race.NewLive(j.set)
	j.cond.L = &j.mu
	j.det = detect.New(cfg, j.set, j.found)
	j.told.Add(1)
	go j.tell()
	return j
}

// Event takes the next event of a process.
func (j *Judge) Event(process uint64, e *wire.Event) {
	j.set.Event(process, e)
	j.det.Event(process, e)
	j.notSeen.event(j.set, process, e)
	if e.Type == wire.TypeFrame {
		j.races.Frame(process, e.Thread, wire.DecodeFrame(e.Words))
	}
	if e.Type == wire.TypeRace {
		switch f, ok := j.races.Found(process, wire.DecodeRace(e.Words)); {
		case !ok:
		case j.partly != nil && j.partly(process):
			// What is not patched may be the instructions that order the two: a server, of which a part had found room, had false ones of records that its latches guard.
			j.notSeen.warn("races in " + processName(j.set, process) + " are not told: not all of its code could be patched, and what orders threads may be in the rest")
		case f.Rule != finding.RuleDataRaceMov || !j.hideMov:
			if j.again {
				reproduced(&f)
			}
			j.found(f)
		}
	}
}

// End says that a process is gone and that there are no more events of it.
func (j *Judge) End(process uint64) {
	j.det.End(process)
	j.races.End(process)
	j.set.Forget(process)
}

// Finish says that there are no more events at all, and returns when everything found is written.
func (j *Judge) Finish() {
	j.det.Finish()
	j.mu.Lock()
	j.over = true
	j.cond.Broadcast()
	j.mu.Unlock()
	j.told.Wait()
}

// Warn keeps what went wrong for the report's end.
func (j *Judge) Warn(text string) { j.notSeen.warn(text) }

// NotSeen is what could not be watched or judged, a sentence each; all: also what was left out for good reasons.
func (j *Judge) NotSeen(all bool) []string {
	list := slices.Concat(j.notSeen.lines(all), j.det.Notes())
	if all {
		list = append(list, j.det.Details()...)
	}
	return list
}

// found takes a finding of the detectors.
func (j *Judge) found(f finding.Finding) {
	if info, _ := finding.RuleOf(f.Rule); j.epochs && info.Class == finding.ClassRace && !j.again {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queue = append(j.queue, f)
	j.cond.Broadcast()
}

// reproduced says of a race that it is one of an epoch that was executed again.
func reproduced(f *finding.Finding) {
	for i := range f.Parts {
		if len(f.Parts[i].Stack) > 0 {
			f.Parts[i].Provenance = "reproduced"
		}
	}
	f.Notes = append(f.Notes, "Reproduced: seen when the last epoch was executed again, with all accesses of the program looked at.")
}

// tell names findings and reports them. Symbolize reads nothing of the model that events change: a finding carries its modules.
func (j *Judge) tell() {
	defer j.told.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		for len(j.queue) == 0 && !j.over {
			j.cond.Wait()
		}
		if len(j.queue) == 0 {
			return
		}
		f := j.queue[0]
		j.queue = j.queue[1:]
		j.busy = true
		j.mu.Unlock()
		j.set.Symbolize(&f)
		j.rep.Add(f)
		j.mu.Lock()
		j.busy = false
		j.cond.Broadcast()
	}
}

// reported waits until all findings made so far are written, and tells whether any counts: not all are suppressed or known.
func (j *Judge) reported() bool {
	j.mu.Lock()
	for len(j.queue) > 0 || j.busy {
		j.cond.Wait()
	}
	j.mu.Unlock()
	return j.rep.New() > 0
}

// processName is how a process is called in a sentence.
func processName(set *target.Set, process uint64) string {
	pid, exe, _ := set.Process(process)
	if exe == "" {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, filepath.Base(exe))
}
