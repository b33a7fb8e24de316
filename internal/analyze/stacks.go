package analyze

import (
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/recover"
)

// stacks are the calls that lead to accesses, each by its innermost frame and the number of the rest. Number 0 is none.
type stacks struct {
	all   []recover.Call
	index map[recover.Call]uint32
	shard []uint32 // of a shard's calls, their numbers here
}

// maxStacks bounds the table (some 60 MB); accesses beyond it have no stack but their own frame.
const maxStacks = 1 << 20

// firstStack is where the numbers begin that race is given: below it are those of events.
const firstStack = 1 << 31

func newStacks() *stacks {
	return &stacks{all: make([]recover.Call, 1), index: map[recover.Call]uint32{}}
}

// begin takes the calls of the next shard.
func (s *stacks) begin(calls []recover.Call) {
	s.shard = s.shard[:0]
	for i, c := range calls {
		n := uint32(0)
		if i > 0 {
			n = s.number(c.Return, s.shard[c.Outer])
		}
		s.shard = append(s.shard, n)
	}
}

func (s *stacks) number(pc uint64, outer uint32) uint32 {
	k := recover.Call{Return: pc, Outer: outer}
	n, ok := s.index[k]
	if !ok {
		if len(s.all) >= maxStacks {
			return 0
		}
		n = uint32(len(s.all))
		s.all, s.index[k] = append(s.all, k), n
	}
	return n
}

// of gives the number of an access's stack in the shard that began last; 0 if there is no more than its own frame.
func (s *stacks) of(a *recover.Access) uint32 {
	if a.Calls == 0 || int(a.Calls) >= len(s.shard) || s.shard[a.Calls] == 0 {
		return 0
	}
	return s.number(a.IP, s.shard[a.Calls])
}

// frames gives the frames of a stack, the innermost first.
func (s *stacks) frames(number uint32, frame func(pc uint64, ret bool) finding.Frame) (out finding.Stack) {
	for n := number; n != 0; n = s.all[n].Outer {
		out = append(out, frame(s.all[n].Return, len(out) > 0))
	}
	return out
}
