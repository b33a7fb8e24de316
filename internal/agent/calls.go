package agent

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/ripstop/ripstop/internal/wire"
)

// ProcessCalls are the system calls that a process made, where Config.Calls asks for them.
type ProcessCalls struct {
	Process uint64
	PID     int
	Exe     string // "" if it could not be told
	Threads []ThreadCalls
	// Rest are those of threads that had no counts of their own, and of those that ended and whose place another thread was given.
	Rest []CallCount
}

// ThreadCalls are the system calls of one thread.
type ThreadCalls struct {
	Number, Tid uint32
	Counts      []CallCount
}

// A CallCount is a row of wire.Calls that is not zero.
type CallCount struct {
	Row int
	wire.CallCount
}

// layoutCalls checks where the counts of a region are.
func (r *region) layoutCalls(h *wire.Region) error {
	n := uint64(h.Slots) + 1
	off := h.CallsOffset
	if off == 0 {
		return nil
	}
	if size := uint64(len(r.mem)); off%8 != 0 || off < wire.SizeRegion || off > size || n*wire.SizeCalls > size-off {
		return fmt.Errorf("%d counts of calls at %#x do not fit in %d bytes", n, off, size)
	}
	r.calls = unsafe.Slice((*wire.Calls)(unsafe.Pointer(&r.mem[off])), n)
	return nil
}

// counts copies the rows of a block that are not zero. They may be changing.
func counts(c *wire.Calls) (list []CallCount) {
	for i := range c.Row {
		from := &c.Row[i]
		n := wire.CallCount{Calls: atomic.LoadUint64(&from.Calls), Errors: atomic.LoadUint64(&from.Errors), Ticks: atomic.LoadUint64(&from.Ticks)}
		if n != (wire.CallCount{}) {
			list = append(list, CallCount{i, n})
		}
	}
	return list
}

// countCalls gives what the process has counted so far, nil if it counts nothing.
func (p *process) countCalls() *ProcessCalls {
	c := &ProcessCalls{Process: p.id, PID: p.pid, Exe: p.exe}
	any := false
	for _, r := range p.regions {
		for i := range r.calls {
			any = true
			list := counts(&r.calls[i])
			switch {
			case len(list) == 0:
			case i == len(r.slots):
				c.Rest = append(c.Rest, list...)
			default:
				s := r.slots[i].shared
				c.Threads = append(c.Threads, ThreadCalls{atomic.LoadUint32(&s.Number), atomic.LoadUint32(&s.Tid), list})
			}
		}
	}
	if !any {
		return nil
	}
	return c
}

// Calls gives the system calls of all processes of the session, those that have ended included, in the order in which they came.
func (s *Session) Calls() []ProcessCalls {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append([]ProcessCalls(nil), s.calls...)
	for _, p := range s.order {
		if c := p.countCalls(); c != nil {
			list = append(list, *c)
		}
	}
	return list
}

// keepCalls keeps the counts of a process that is about to be forgotten. Under s.mu.
func (s *Session) keepCalls(p *process) {
	if c := p.countCalls(); c != nil {
		s.calls = append(s.calls, *c)
	}
}
