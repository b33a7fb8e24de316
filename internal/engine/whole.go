package engine

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// A process whose threads all stand (ripstop guard, in the middle of a re-execution) may have all that Options.Whole wants patched, for a while. Nothing of it is taken back one by one: the agent has the kernel give the program's text
// as it is in its file, and puts back all private memory and the map as they were, its own tables of trampolines among it. So what is known of it here is thrown away as well, and the process's own patches must not be touched: modules
// whose text is not that of their files are refused.

// Ordering is what a recipe is without which the order of threads is not seen.
type Ordering interface{ Orders() bool }

// Bounds of a whole patch: all threads of the program wait for it.
const (
	wholeText = 48 << 20 // bytes of text
	wholeTime = 20 * time.Second
)

// mostPlaces is how many the agent notes (PLACES of guardrace.c): 255 pairs of words behind their number.
const mostPlaces = 255

// lookAhead notes what is mapped where the re-execution will come to, and what it maps on the way, which may be gone by then (a list of the agent's at `places`; 0: none): trampolines must not lie there.
func (p *Process) lookAhead(places uint64) error {
	maps, err := tracee.Maps(p.PID)
	if err != nil {
		return err
	}
	p.avoid = p.avoid[:0]
	if places != 0 {
		list := make([]byte, 8+16*mostPlaces)
		if err := p.read(places, list); err != nil {
			return err
		}
		n := min(binary.LittleEndian.Uint64(list), mostPlaces)
		for b := list[8 : 8+16*n]; len(b) > 0; b = b[16:] {
			if lo, hi := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]); lo < hi && hi <= 1<<47 {
				p.avoid = append(p.avoid, patch.Range{Lo: lo, Hi: hi})
			}
		}
	}
	for i := range maps {
		p.avoid = append(p.avoid, patch.Range{Lo: uint64(maps[i].Start), Hi: uint64(maps[i].End)})
	}
	return nil
}

// whole patches what Options.Whole wants of the program and its libraries. What was done when it fails is thrown away like all of it.
func (p *Process) whole() error {
	client := p.e.opts.Whole
	switch {
	case client == nil || p.mem == nil:
		return unix.ENOSYS
	case len(p.runs) > wire.PatchRuns-2:
		return unix.ENOSPC
	}
	q := &Process{ID: p.ID, PID: p.PID, e: p.e, of: p, page: p.page, asked: p.asked, mem: p.mem, dead: map[uint64]int{}, left: map[string]bool{}, gone: Stats{Unpatched: map[Why]uint64{}},
		ownPages: true, avoid: p.avoid, firstRun: len(p.runs)}
	timer := time.AfterFunc(wholeTime, func() { q.late.Store(true) })
	err := q.wholeOf(client)
	timer.Stop()
	client.End(q)
	for _, m := range q.mods {
		m.close()
	}
	p.asked, p.last, p.stored = q.asked, q.last, q.stored
	if err != nil && !errors.Is(err, errGone) {
		p.last, p.stored = nil, 0 // of what is not to be
	}
	return err
}

func (p *Process) wholeOf(client Client) error {
	mapped, err := p.survey()
	if err != nil {
		return err
	}
	if err := client.Start(p); err != nil {
		return err
	}
	p.mods, _ = p.find(mapped)
	text := 0
	for _, m := range p.mods {
		m.closed = &p.late
		for _, t := range m.texts {
			text += len(t.code)
		}
	}
	if text > wholeText {
		return fmt.Errorf("%w: %d MiB of code are too many to look at all of it", unix.E2BIG, text>>20)
	}
	for _, m := range p.mods {
		if m.Kind != Program && m.Kind != Library {
			continue
		}
		sites := client.Sites(p, m)
		if len(sites) == 0 {
			continue
		}
		if !m.asInFile() {
			return fmt.Errorf("%w: the code of %s is not what its file has", unix.ETXTBSY, m.Path)
		}
		for _, t := range m.texts {
			if err := p.do(op(wire.PatchDoPristine, t.at, uint64(len(t.code)))); err != nil {
				return err
			}
		}
		if err := p.install(m, sites); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		for _, s := range sites {
			if o, ok := s.Recipe.(Ordering); ok && o.Orders() && m.patch(s.At) == nil {
				return fmt.Errorf("%w: an atomic instruction of %s at %#x cannot be looked at: %s", unix.ENOTSUP, m.Path, s.At, m.why[s.At])
			}
		}
	}
	if p.late.Load() {
		return errLate
	}
	return p.do(op(wire.PatchDoSync, 0, 0)) // threads that stand have not serialized
}

var errLate = fmt.Errorf("%w: to look at all of the code takes too long", unix.ETIME)

// asInFile says whether the module's text is what its file has: no relocations, no breakpoints, no patches.
func (m *Module) asInFile() bool {
	for _, s := range m.Image.Segments() {
		if s.Flags&elf.PF_X == 0 {
			continue
		}
		file := m.Image.Bytes(s.Addr, s.FileSize)
		lo := s.Addr + m.Bias
		for _, t := range m.texts {
			a, b := max(lo, t.at), min(lo+uint64(len(file)), t.end())
			if a < b && !bytes.Equal(file[a-lo:b-lo], t.code[a-t.at:b-t.at]) {
				return false
			}
		}
	}
	return true
}

// ends says whether the process is gone, or nobody waits for it.
func (p *Process) ends() bool { return p.closed.Load() || p.of != nil && p.of.closed.Load() }
