package analyze

import (
	"cmp"
	"slices"

	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// An owner is a thread as the events name it.
type owner struct {
	process uint64
	number  uint32
}

// owners say which thread of the recording is which of the events.
type owners struct {
	all   []owner
	lives [][]life      // of each thread of the recording, ascending: after exec it is another one
	index map[owner]int // the thread of the recording
	// Of a process whose events are not all there, because the trace is cut off or the process was let go: the time up to which they are.
	until map[uint64]uint64
}

// A life is the time from which a thread of the recording is an owner.
type life struct {
	ts    uint64
	owner int // in all
}

type kernelThread struct{ pid, tid int32 }

// readOwners matches the threads by their kernel ids and times.
func readOwners(tr *trace.Reader, threads []*sample.Thread) (*owners, error) {
	type begin struct {
		ts uint64
		owner
	}
	begins := map[kernelThread][]begin{}
	pids := map[uint64]int32{}
	until := map[uint64]uint64{}
	err := tr.Events(func(process uint64, e *wire.Event) error {
		until[process] = e.TS
		switch e.Type {
		case wire.TypeProcess:
			ev := wire.DecodeProcess(e.Words)
			pids[process] = int32(ev.PID)
			if ev.Start == wire.StartFork {
				k := kernelThread{int32(ev.PID), int32(ev.PID)}
				begins[k] = append(begins[k], begin{e.TS, owner{process, ev.ParentThread}})
			}
		case wire.TypeThreadStart:
			ev := wire.DecodeThreadStart(e.Words)
			k := kernelThread{pids[process], int32(ev.TID)}
			begins[k] = append(begins[k], begin{e.TS, owner{process, ev.Self}})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for process := range until {
		if tr.Truncated() == "" && tr.Gone(process) {
			delete(until, process)
		}
	}
	o := &owners{until: until, lives: make([][]life, len(threads)), index: map[owner]int{}}
	for i, t := range threads {
		for _, b := range begins[kernelThread{t.PID, t.TID}] {
			if b.ts < t.Start || t.End != 0 && b.ts > t.End {
				continue
			}
			if _, have := o.index[b.owner]; have {
				continue
			}
			o.index[b.owner] = i
			o.lives[i] = append(o.lives[i], life{b.ts, len(o.all)})
			o.all = append(o.all, b.owner)
		}
		slices.SortStableFunc(o.lives[i], func(a, b life) int { return cmp.Compare(a.ts, b.ts) })
	}
	return o, nil
}

// at gives the owner that a thread of the recording is at a time; −1: none that the events name.
func (o *owners) at(thread int, tsc uint64) int {
	lives := o.lives[thread]
	for i := len(lives) - 1; i >= 0; i-- {
		if lives[i].ts <= tsc {
			return lives[i].owner
		}
	}
	return -1
}
