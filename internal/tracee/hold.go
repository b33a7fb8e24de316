package tracee

import (
	"errors"
	"time"
)

// holdTimeout bounds the wait for all threads of a Hold to stop: those that do already stand still for no good meanwhile.
const holdTimeout = 200 * time.Millisecond

// Hold stops several threads, calls look while all of them stand still, and lets them go on. Those that have ended are left out. What Stop says of a thread holds for each.
func Hold(tids []int, look func([]Stopped) error) error {
	return onThread(func() (bool, error) { return hold(tids, look) })
}

// hold says whether nothing of the tracing is left.
func hold(tids []int, look func([]Stopped) error) (clean bool, err error) {
	var seized []int
	clean = true
	defer func() { // also when look panics
		for _, tid := range seized {
			if e := detach(tid); e != nil {
				clean = false
				if err == nil && !errors.Is(e, ErrGone) {
					err = e
				}
			}
		}
	}()
	deadline := time.Now().Add(holdTimeout)
	for _, tid := range tids {
		err := seize(tid)
		if err == nil {
			seized = append(seized, tid)
			err = interrupt(tid)
		}
		if err != nil && !errors.Is(err, ErrGone) {
			return clean, err
		}
	}
	list := make([]Stopped, 0, len(seized))
	for _, tid := range seized {
		regs, err := registers(tid, deadline)
		switch {
		case err == nil:
			list = append(list, Stopped{tid, regs})
		case !errors.Is(err, ErrGone):
			return clean, err
		}
	}
	return clean, look(list)
}
