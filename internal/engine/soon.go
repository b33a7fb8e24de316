package engine

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
)

// An accepted is an instruction that a thread asked to have patched, and did not wait for (PatchAskSoon). Only a thread of the process can map memory, tell of trampolines, and have processors see
// what was changed; so it is patched when one asks the next time: for the same instruction, which is worth it then, or when there are many. Then all of them are, in one transaction.
type accepted struct {
	m  *Module
	at uint64
	r  patch.Recipe // nil: the client was not asked yet
}

// carryAt is how many instructions are accepted until one who asks waits for them. It takes microseconds for each.
const carryAt = 16

// accept answers a thread that does not need its instruction to be patched before it goes on: nil, it is; EINPROGRESS, it will be; else it stays as it is.
func (p *Process) accept(at uint64) error {
	m := p.at(at)
	if m == nil || m.inherited || m.text(at) == nil {
		return unix.ENOENT
	}
	if i := p.isAccepted(at); i >= 0 {
		return p.carry(at)
	}
	a := accepted{m: m, at: at}
	if m.learnt { // or else that takes too long: consider
		if m.patch(at) != nil {
			return nil
		}
		if !p.allowed(&a) {
			return unix.ENOENT
		}
	}
	p.accepted = append(p.accepted, a)
	if len(p.accepted) >= carryAt {
		return p.carry(at)
	}
	return unix.EINPROGRESS
}

func (p *Process) isAccepted(at uint64) int {
	return slices.IndexFunc(p.accepted, func(a accepted) bool { return a.at == at })
}

// allowed asks the client for the recipe of an instruction that is known, and says whether it can be a site.
func (p *Process) allowed(a *accepted) bool {
	if a.m.why[a.at] != "" {
		return false
	}
	r, ok := p.e.opts.Client.Site(p, a.m, a.at)
	if !ok {
		return false
	}
	if why := check(a.m.text(a.at), &patch.Site{At: a.at, Recipe: r}); why != "" {
		a.m.sites++
		a.m.why[a.at] = why
		return false
	}
	a.r = r
	return true
}

// consider looks at what was accepted of modules whose instructions were not known, when the thread that asked has gone on.
func (p *Process) consider() {
	for i := 0; i < len(p.accepted); i++ {
		a := &p.accepted[i]
		if a.r != nil {
			continue
		}
		a.m.learn()
		if a.m.patch(a.at) != nil || !p.allowed(a) {
			p.accepted = slices.Delete(p.accepted, i, i+1)
			i--
		}
	}
}

// carry patches all that was accepted, while the thread waits that has asked for at, and gives its answer.
func (p *Process) carry(at uint64) error {
	if p.take() != nil { // it has gone on
		return unix.EINPROGRESS
	}
	all := p.accepted
	p.accepted = nil
	var list []*change
	for _, a := range all {
		t := a.m.text(a.at)
		if a.m.patch(a.at) != nil { // by a request that waited, or by the client
			continue
		}
		i := slices.IndexFunc(list, func(c *change) bool { return c.t == t })
		if i < 0 {
			i = len(list)
			list = append(list, &change{t: t, m: a.m, some: true})
		}
		list[i].add = append(list[i].add, patch.Site{At: a.at, Recipe: a.r})
	}
	if err := p.applySome(list); errors.Is(err, errGone) {
		return err
	} else if err != nil {
		p.warn("%d instructions stay as they are: %v", len(all), err)
		for _, a := range all {
			if a.m.patch(a.at) == nil {
				a.m.why[a.at] = WhyRefused
			}
		}
	}
	if m := p.at(at); m != nil && m.patch(at) != nil {
		return nil
	}
	return unix.ENOENT
}

// applySome applies changes as far as they can be planned. Of each that is left out it is noted why.
func (p *Process) applySome(list []*change) error {
	if len(list) == 0 {
		return nil
	}
	for _, c := range list {
		slices.SortFunc(c.add, func(a, b patch.Site) int { return int(int64(a.At - b.At)) })
		c.m.sites += uint64(len(c.add))
	}
	if err := p.applyRest(list); err != nil {
		return err
	}
	var again []*change
	for _, c := range list {
		var cramped []patch.Site
		for _, bad := range c.tx.Left {
			if c.m.why[bad.At] = whyLeft(bad); c.m.why[bad.At] != WhySpace {
				continue
			}
			i := slices.IndexFunc(c.add, func(s patch.Site) bool { return s.At == bad.At })
			cramped = append(cramped, c.add[i])
		}
		if len(cramped) > 0 {
			again = append(again, &change{t: c.t, m: c.m, some: true, add: cramped})
		}
	}
	if len(again) > 0 && p.buried > 0 && time.Since(p.reclaimed) > reclaimAgain && p.reclaim() == nil {
		if err := p.applyRest(again); err != nil {
			return err
		}
		for _, c := range again {
			for _, s := range c.add {
				if c.m.patch(s.At) != nil {
					delete(c.m.why, s.At)
				}
			}
		}
	}
	return nil
}
