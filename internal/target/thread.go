package target

import (
	"maps"
	"slices"
	"sort"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// thread is what is known of a thread. Dead ones are kept (mostDead): findings tell about them.
type thread struct {
	tid     uint32
	creator uint32
	created uint32 // stack id
	pointer uint64 // pthread_self(), which with glibc is the thread pointer, above the thread-local variables; 0: not known
	name    string
	dead    bool
}

func (p *process) thread(number uint32) *thread {
	t := p.threads[number]
	if t == nil {
		t = &thread{}
		p.threads[number] = t
	}
	return t
}

func (p *process) threadEvent(e *wire.Event) {
	switch e.Type {
	case wire.TypeThreadCreate:
		d := wire.DecodeThreadCreate(e.Words)
		t := p.thread(d.Child)
		t.creator, t.created = e.Thread, d.Stack
	case wire.TypeThreadCreateFailed:
		delete(p.threads, wire.DecodeThreadCreateFailed(e.Words).Child)
	case wire.TypeThreadStart:
		d := wire.DecodeThreadStart(e.Words)
		t := p.thread(d.Self)
		t.tid, t.dead, t.pointer = d.TID, false, d.Pthread
		p.addStack(span{d.StackLo, d.StackHi, d.Self})
	case wire.TypeThreadExit:
		if t := p.threads[e.Thread]; t != nil && !t.dead {
			p.dies(e.Thread, t)
		}
	case wire.TypeThreadName:
		d := wire.DecodeThreadName(e.Words)
		p.thread(d.Target).name = cString(d.Tail)
	}
}

// mostDead is of how many dead threads it is known who they were, the last ones: a server may make one for each connection, for weeks.
const mostDead = 1 << 16

func (p *process) dies(number uint32, t *thread) {
	t.dead = true
	p.dead = append(p.dead, number)
	if len(p.dead) <= mostDead {
		return
	}
	oldest := p.dead[0]
	p.dead = p.dead[1:]
	if t := p.threads[oldest]; t != nil && t.dead {
		delete(p.threads, oldest)
	}
}

func cString(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// span is the stack of a thread.
type span struct {
	lo, hi uint64
	thread uint32
}

// addStack puts s in place of those it overlaps: their threads are dead and their memory is reused.
func (p *process) addStack(s span) {
	if s.lo >= s.hi {
		return
	}
	i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].hi > s.lo })
	j := i
	for j < len(p.ranges) && p.ranges[j].lo < s.hi {
		j++
	}
	p.ranges = slices.Replace(p.ranges, i, j, s)
}

// stackOwner is the thread on whose stack addr lies.
func (p *process) stackOwner(addr uint64) (uint32, bool) {
	i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].hi > addr })
	if i < len(p.ranges) && p.ranges[i].lo <= addr {
		return p.ranges[i].thread, true
	}
	return 0, false
}

// belowPointer is the thread whose pointer is the next above addr, and how far; 0: none is near. Of dead threads of that place it is the last.
func (p *process) belowPointer(addr uint64) (number uint32, below uint64) {
	const far = 64 << 10
	for n, t := range p.threads {
		d := t.pointer - addr
		if t.pointer <= addr || d > far || number != 0 && (d > below || d == below && n < number) {
			continue
		}
		number, below = n, d
	}
	return number, below
}

// Thread describes thread number of the process.
func (s *Set) Thread(process uint64, number uint32) finding.Thread {
	out := finding.Thread{Number: number}
	p := s.procs[process]
	if p == nil {
		return out
	}
	if t := p.threads[number]; t != nil {
		out.Tid, out.Name, out.Creator = t.tid, t.name, t.creator
		if t.created != 0 {
			out.Created = p.frames(t.created)
		}
	}
	return out
}

// Alive tells whether the thread has been created and has not ended.
func (s *Set) Alive(process uint64, number uint32) bool {
	p := s.procs[process]
	if p == nil || p.ended {
		return false
	}
	t := p.threads[number]
	return t != nil && !t.dead
}

// Threads lists the numbers of the threads that are alive, ascending.
func (s *Set) Threads(process uint64) []uint32 {
	p := s.procs[process]
	if p == nil || p.ended {
		return nil
	}
	return p.living()
}

func (p *process) living() (out []uint32) {
	for n, t := range p.threads {
		if !t.dead {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// inherit gives the forked child p what its parent had: everything but the threads, of which only the one that forked lives on.
func (p *process) inherit(parent *process, forker uint32) {
	p.parent = parent
	p.exe, p.argv = parent.exe, parent.argv
	p.modules = append(slices.Clone(parent.modules), p.modules...)
	for n, t := range parent.threads {
		if p.threads[n] != nil {
			continue
		}
		c := *t
		if n == forker {
			c.tid = 0 // a new one, which its thread-start will tell
		}
		p.threads[n] = &c
	}
	p.dead = slices.Concat(parent.dead, p.dead)
	for _, n := range parent.living() {
		if t := p.threads[n]; n != forker && t != nil {
			p.dies(n, t)
		}
	}
	if len(p.ranges) == 0 {
		p.ranges = slices.Clone(parent.ranges)
	}
	for addr, o := range parent.objects {
		if p.objects[addr] == nil {
			c := *o
			p.putObject(addr, &c)
		}
	}
	if len(p.blocks) == 0 {
		p.blocks, p.large = maps.Clone(parent.blocks), maps.Clone(parent.large)
	}
	if len(p.mappings) == 0 {
		p.mappings = slices.Clone(parent.mappings)
	}
}
