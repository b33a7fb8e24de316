package verdict

import (
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/wire"
)

// Stuck tells whether there is a process in the trace, which may still be written, that has ended in this: every thread it has waits.
func Stuck(dir string) (bool, error) {
	r, err := trace.Open(dir)
	if err != nil {
		return false, err
	}
	defer r.Close()
	processes := map[uint64]map[uint32]bool{} // whether the thread waits
	err = r.Events(func(process uint64, e *wire.Event) error {
		threads := processes[process]
		if threads == nil {
			threads = map[uint32]bool{}
			processes[process] = threads
		}
		switch e.Type {
		case wire.TypeThreadCreate:
			threads[wire.DecodeThreadCreate(e.Words).Child] = false
		case wire.TypeThreadStart, wire.TypeWantEnd:
			threads[e.Thread] = false
		case wire.TypeWant:
			threads[e.Thread] = true
		case wire.TypeThreadExit:
			delete(threads, e.Thread)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for process, threads := range processes {
		all := len(threads) > 0 && !r.Gone(process)
		for _, waits := range threads {
			all = all && waits
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}
