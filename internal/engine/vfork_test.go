package engine_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// lending takes the patch of vfork.c's one site away, while the child is held at the jump inside the neighbour; or, if it cannot be seen, runs.
type lending struct {
	evicting
	site   uint64
	hold   bool
	ends   bool // the child is killed and not let go
	refuse bool // the change is given up before the child goes on
	early  bool // the change went on while the child was there
	err    error
	same   bool // afterwards the text was as before
}

func (c *lending) Sites(p *engine.Process, m *engine.Module) []patch.Site {
	list := c.evicting.Sites(p, m)
	if len(list) > 0 {
		c.site = list[0].At
	}
	return list
}

// child waits for the child.
func (c *lending) child(pid int) int {
	tids, err := tracee.Threads(pid)
	if err != nil {
		c.t.Error(err)
	}
	for _, tid := range tids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, tid))
		if err != nil {
			c.t.Error(err)
		}
		if child, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return child
		}
	}
	c.t.Error("no child")
	return 0
}

// holdAt steps the child to an address, and holds it there until there is something in the channel that it gives. (Where a thread is interrupted that just runs may never be behind a jump.)
func (c *lending) holdAt(child int, at uint64) chan<- bool {
	held, release := make(chan error), make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // a tracer is a thread; it ends with the goroutine
		stopped := func() error {
			_, err := unix.Wait4(child, nil, unix.WALL, nil)
			return err
		}
		err := unix.PtraceAttach(child)
		if err == nil {
			err = stopped()
		}
		for range 10_000 {
			var r unix.PtraceRegs
			if err == nil {
				err = unix.PtraceGetRegs(child, &r)
			}
			if err == nil && r.Rip == at {
				held <- nil
				<-release
				unix.PtraceDetach(child)
				return
			}
			if err == nil {
				err = unix.PtraceSingleStep(child)
			}
			if err == nil {
				err = stopped()
			}
		}
		held <- fmt.Errorf("the child does not come by: %w", err)
	}()
	if err := <-held; err != nil {
		c.t.Error(err)
	}
	return release
}

func (c *lending) Test(p *engine.Process, _ uint64) error {
	m := p.Module(c.site)
	if m.Patch(c.site).Via == 0 {
		c.t.Error("no jump inside a neighbour")
		return nil
	}
	child := c.child(p.PID)
	release := make(chan<- bool, 1)
	if c.hold {
		release = c.holdAt(child, m.Patch(c.site).Via)
	}
	code := func() []byte {
		b := make([]byte, m.End-m.Base)
		if _, err := tracee.Memory(p.PID).ReadAt(b, int64(m.Base)); err != nil {
			c.t.Error(err)
		}
		return b
	}
	before, steps, gone := code(), 0, make(chan bool)
	over := func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}
	p.Hook(func(o wire.PatchOp) unix.Errno {
		switch {
		case o.Kind == uint32(wire.PatchDoSync):
			if steps++; steps == 1 && !c.refuse { // the thread is waited for from now on
				go func() {
					time.Sleep(200 * time.Millisecond)
					if c.ends {
						unix.Kill(child, unix.SIGKILL)
						return
					}
					close(gone)
					release <- true
				}()
			}
		case o.Kind == uint32(wire.PatchDoWrite) && steps > 0 && !c.refuse && !over() && !exiting(child):
			c.early = true
		}
		return 0
	})
	c.err = p.Change(m, nil, []uint64{c.site})
	p.Hook(nil)
	c.same = bytes.Equal(code(), before)
	if c.refuse {
		release <- true
	}
	return nil
}

// exiting says whether a process has ended, or is about to and runs nothing any more; proc(5), stat, field 9.
func exiting(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	const ends = 4 // PF_EXITING in include/linux/sched.h
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return err == nil && flags&ends != 0
}

// A child of vfork runs its parent's code, and may stand at a jump inside a displaced neighbour; the code was changed under it, and it went on in the middle of an instruction. It is waited for. Where it cannot be seen
// nothing is changed until it is gone; and if it does not go on the change is taken back, and it goes on as before.
func TestLent(t *testing.T) {
	prog := compile(t, "vfork.c", "-O1", "-no-pie")
	for name, c := range map[string]*lending{"held": {hold: true}, "unseen": {ends: true}, "stays": {hold: true, refuse: true}} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			argv := []string{prog}
			if c.ends {
				defer engine.Blind()()
				argv = append(argv, "killed")
			}
			if c.refuse {
				defer engine.VacateFor(engine.VacateFor(300 * time.Millisecond))
			}
			want := native(t, "", argv...)
			got, st := patched(t, engine.Options{Client: c}, "", argv...)
			if got != want || !strings.HasPrefix(got.stdout, "0, bad 0, 1,") {
				t.Errorf("natively %+v, patched %+v", want, got)
			}
			if c.early {
				t.Error("the code was changed while the child was there")
			}
			if (c.err != nil) != c.refuse || c.same != c.refuse {
				t.Errorf("the change: %v; the text is as before: %v", c.err, c.same)
			}
			if n := st.Patched[patch.TierNeighbour]; (n == 1) != c.refuse {
				t.Errorf("patched: %v", st.Patched)
			}
		})
	}
}
