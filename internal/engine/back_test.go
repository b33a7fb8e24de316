package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// A marking recipe leaves a word behind, and is of any length.
type marking struct {
	at, cell uint64 // below 2 GiB
	padding  int
}

func (r marking) Size() int    { return 11 + r.padding }
func (marking) Replaces() bool { return false }
func (r marking) Append(dst []byte, pc uint64) ([]byte, []patch.State, error) {
	// movl $1, cell; Intel SDM vol. 2: c7 /0, with an absolute address.
	dst = binary.LittleEndian.AppendUint32(append(dst, 0xc7, 0x04, 0x25), uint32(r.cell))
	dst = binary.LittleEndian.AppendUint32(dst, 1)
	states := []patch.State{{For: r.at, Resume: patch.Restart}}
	for i := range r.padding {
		dst = append(dst, 0x90)
		states = append(states, patch.State{Off: 11 + i, For: r.at, Resume: patch.Restart})
	}
	return dst, states, nil
}

// breaking makes changes of the program at random: each is asked for again and again, and fails one operation later each time, until none fails.
type breaking struct {
	flips
	most int  // sites of a change
	live bool // other threads run, and may be in trampolines of what has failed

	at    uint64 // of marks: what they say of a change that failed
	marks []byte
	next  int
	own   map[int]bool // marks of those that succeeded

	// the change that is asked for, how many operations succeed the next time, and what was there before
	add, remove []uint64
	k           int
	before      state

	tried   map[wire.PatchDo]int // which operations failed
	through int                  // changes that succeeded in the end
	synced  bool                 // some changes were made under threads
	failed  bool
}

func (c *breaking) Start(p *engine.Process) (err error) {
	c.at, c.marks, err = p.Share(1 << 20)
	return err
}

func (c *breaking) End(*engine.Process) {
	for i := range c.next {
		if c.marks[4*i] != 0 && !c.own[i] && !c.live {
			c.t.Errorf("a recipe of change %d ran, which failed", i)
		}
	}
}

func (c *breaking) program(p *engine.Process) *engine.Module {
	i := slices.IndexFunc(p.Modules(), func(m *engine.Module) bool { return m.Kind == engine.Program })
	return p.Modules()[i]
}

// draw gives a change at random. Sites that are in may get other recipes.
func (c *breaking) draw(m *engine.Module) (add, remove []uint64) {
	seen := map[uint64]bool{}
	first := c.r.IntN(len(c.all))
	for range 1 + c.r.IntN(c.most) {
		a := c.all[min(first+c.r.IntN(2*c.most), len(c.all)-1)] // near each other
		switch {
		case seen[a]:
		case c.in[a]:
			if remove = append(remove, a); c.r.IntN(2) == 0 {
				add = append(add, a)
			}
		case m.Patchable(a):
			add = append(add, a)
		}
		seen[a] = true
	}
	return add, remove
}

func (c *breaking) done() {
	c.through++
	c.own[c.next-1] = true
	for _, a := range c.remove {
		delete(c.in, a)
	}
	for _, a := range c.add {
		c.in[a] = true
	}
	c.k = 0
}

// state is all that a change may change of a text.
type state struct {
	code    []byte
	patches map[uint64]patch.Patch
}

func (c *breaking) state(p *engine.Process, m *engine.Module) state {
	s := state{make([]byte, m.End-m.Base), map[uint64]patch.Patch{}}
	if _, err := tracee.Memory(p.PID).ReadAt(s.code, int64(m.Base)); err != nil {
		c.t.Error(err)
	}
	for _, a := range c.all {
		if x := m.Patch(a); x != nil {
			s.patches[a] = *x
		}
	}
	return s
}

func (s *state) equal(o *state) bool {
	same := bytes.Equal(s.code, o.code) && len(s.patches) == len(o.patches)
	for a, x := range s.patches {
		y, ok := o.patches[a]
		same = same && ok && x.Tier == y.Tier && x.Trampoline.At == y.Trampoline.At && x.For == y.For && x.Via == y.Via && bytes.Equal(x.Bytes, y.Bytes)
	}
	return same
}

// Test asks for the change once more, and the program runs on.
func (c *breaking) Test(p *engine.Process, _ uint64) error {
	if c.failed || 4*c.next == len(c.marks) {
		return nil
	}
	m := c.program(p)
	if c.k == 0 {
		c.add, c.remove = c.draw(m)
		c.before = c.state(p, m)
	}
	n, failing := 0, wire.PatchOp{}
	p.Hook(func(o wire.PatchOp) unix.Errno {
		c.synced = c.synced || o.Kind == uint32(wire.PatchDoSync)
		switch wire.PatchDo(o.Kind) {
		case wire.PatchDoFrame, wire.PatchDoUnmap: // a page has memory of its own then; memory stays
			return 0
		}
		if n++; n <= c.k {
			return 0
		}
		n, failing = -1<<30, o
		return unix.EIO
	})
	var sites []patch.Site
	for _, a := range c.add {
		sites = append(sites, patch.Site{At: a, Recipe: marking{a, c.at + uint64(4*c.next), c.r.IntN(12)}})
	}
	c.next++
	buried := p.Buried()
	err := p.Change(m, sites, c.remove)
	p.Hook(nil)
	after := c.state(p, m)
	kind := wire.PatchDo(failing.Kind)
	c.k++
	switch {
	case err == nil && kind == 0:
		c.done()
		return nil
	case err == nil:
		c.t.Errorf("%v failed, and the change did not", kind)
	case errors.Is(err, patch.ErrSpace): // the trampolines of those that failed are in the way
		c.full++
		c.k = 0
	case !errors.Is(err, unix.EIO):
		c.t.Errorf("operation %d, %v, failed: then %v", c.k, kind, err)
	}
	if c.tried[kind]++; !after.equal(&c.before) {
		c.t.Errorf("operation %d, %v %#x, failed: %v; the text is not as before", c.k, kind, failing.Address, err)
	}
	if kind == wire.PatchDoSync && len(c.add) > 0 && p.Buried() == buried {
		c.t.Errorf("operation %d, %v, failed: new trampolines' memory is free, where threads may be", c.k, kind)
	}
	c.failed = c.t.Failed()
	return nil
}

// If the process's memory could not be written in the middle of a change half of it stayed, and the text was left as it was from then on. Each operation of random changes fails once, alone and under running threads:
// the text is as it was before, results are right, and in the end the same change succeeds.
func TestBack(t *testing.T) {
	prog := compile(t, "hot.c", "-O2")
	for _, threads := range []string{"0", "3"} {
		t.Run(threads, func(t *testing.T) {
			live := threads != "0"
			want := native(t, "", prog, "1", threads)
			c := &breaking{flips: flips{everywhere: everywhere{t: t}, r: rand.New(rand.NewPCG(11, 12)), in: map[uint64]bool{}, patchAll: true}, live: live, most: 20,
				tried: map[wire.PatchDo]int{}, own: map[int]bool{}}
			got, st := patched(t, engine.Options{Client: c, SharedBytes: 1 << 20}, "", prog, "5", threads)
			if got != want {
				t.Errorf("natively %+v, patched %+v", want, got)
			}
			t.Logf("%d changes went through in the end, %d found no memory; failed: %v; patched: %v", c.through, c.full, c.tried, st.Patched)
			if live != c.synced {
				t.Errorf("changes were made live: %v", c.synced)
			}
			if c.through == 0 || c.tried[wire.PatchDoWrite] == 0 || c.tried[wire.PatchDoTrap] == 0 || c.synced && c.tried[wire.PatchDoSync] == 0 {
				t.Error("not enough was tried")
			}
		})
	}
}

// stuck makes one change under threads in which more than one operation fails, and asks for it again when none does.
type stuck struct {
	breaking
	whole bool // membarrier fails, and nothing else; or else everything from the third step on
	asked int
}

func (c *stuck) Test(p *engine.Process, _ uint64) error {
	m := c.program(p)
	if c.asked++; c.asked > 2 {
		return nil
	}
	if c.asked == 1 {
		for range 40 { // one of several ranks
			c.add = append(c.add, c.all[len(c.all)/2+len(c.add)])
		}
		c.add = slices.DeleteFunc(c.add, func(a uint64) bool { return !m.Patchable(a) })
		before, syncs := c.state(p, m), 0
		p.Hook(func(o wire.PatchOp) unix.Errno {
			if o.Kind == uint32(wire.PatchDoSync) {
				syncs++
			}
			if c.whole && o.Kind == uint32(wire.PatchDoSync) || syncs > 2 {
				return unix.EPERM
			}
			return 0
		})
		err := p.Change(m, c.sites(), nil)
		p.Hook(nil)
		after := c.state(p, m)
		if !errors.Is(err, unix.EPERM) || after.equal(&before) != c.whole || strings.Contains(err.Error(), "in the middle") == c.whole {
			c.t.Errorf("%v; the text is as before: %v", err, after.equal(&before))
		}
		return nil
	}
	if err := p.Change(m, c.sites(), nil); (err == nil) != c.whole {
		c.t.Errorf("the same change again: %v", err)
	}
	return nil
}

func (c *stuck) sites() (list []patch.Site) {
	for _, a := range c.add {
		list = append(list, patch.Site{At: a, Recipe: at{padding(3), a}})
	}
	return list
}

// Where membarrier is refused code stays as it is, and can be changed when it is not any more. Where nothing can be written any more in the middle of a change it stays as it is by then, results are right, and it is said.
func TestNoWayBack(t *testing.T) {
	prog := compile(t, "hot.c", "-O2")
	for _, whole := range []bool{true, false} {
		c := &stuck{breaking: breaking{flips: flips{everywhere: everywhere{t: t}, r: rand.New(rand.NewPCG(13, 14)), in: map[uint64]bool{}, patchAll: true}, live: true}, whole: whole}
		want := native(t, "", prog, "1", "3")
		got, _ := patched(t, engine.Options{Client: c, SharedBytes: 1 << 20}, "", prog, "1", "3")
		if got != want || c.asked < 2 {
			t.Errorf("natively %+v, patched %+v; asked %d times", want, got, c.asked)
		}
	}
}
