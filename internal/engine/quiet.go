package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// threads gives each thread's place but that of the one that asks. A thread in the kernel is not disturbed; one that runs is stopped for a moment.
func (p *Process) threads(f func(pc uint64)) error {
	tids, err := tracee.Threads(p.PID)
	if err != nil {
		return err
	}
	asks := p.asking()
	for _, tid := range tids {
		if tid == asks {
			continue
		}
		if pc, ok := inKernel(p.PID, tid); ok {
			f(pc)
			continue
		}
		err := tracee.Stop(tid, func(s *tracee.Stopped) error {
			f(s.Regs[16])
			return nil
		})
		if err != nil && !errors.Is(err, tracee.ErrGone) {
			return err
		}
	}
	return nil
}

// asking is the thread that asks, in our pid namespace; 0 if that cannot be told, as in another pid namespace.
func (p *Process) asking() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "NSpid:" {
			return int(p.page.Tid)
		}
	}
	return 0
}

// inKernel gives the place of a thread that waits in the kernel, to which it will come back; proc(5), syscall.
func inKernel(pid, tid int) (pc uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return 0, false // running
	}
	pc, err = strconv.ParseUint(strings.TrimPrefix(f[len(f)-1], "0x"), 16, 64)
	return pc, err == nil
}

// tolerated is how much memory old trampolines may take before we look who is in them.
const tolerated = 1 << 20

// sigreturn is mov $15,%rax; syscall: a thread in it goes on wherever its signal frame says.
var sigreturn = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}

// collect frees old trampolines in which no thread can be. No text leads to them any more; so each thread need be seen outside of them only once. One in the agent or on its way back
// from a handler may have an address in them yet.
func (p *Process) collect() error {
	if p.garbageBytes < p.tolerate+tolerated {
		return nil
	}
	if p.shares() {
		p.tolerate = p.garbageBytes
		return nil
	}
	busy := false
	err := p.threads(func(pc uint64) {
		if busy {
			return
		}
		if m := p.at(pc); m != nil && m.Kind == Agent {
			busy = true
			return
		}
		b := make([]byte, 2*len(sigreturn))
		if p.read(pc-uint64(len(sigreturn)), b) == nil && bytes.Contains(b, sigreturn) {
			busy = true
			return
		}
		for _, c := range p.garbage {
			for _, x := range c.tx.Old {
				busy = busy || pc >= x.Trampoline.At && pc < x.Trampoline.End()
			}
		}
	})
	if err != nil || busy {
		p.tolerate = p.garbageBytes // until there is as much again
		return nil
	}
	// What the agent remembers of trampolines, to send threads back there after a handler, is void.
	if err := p.do(op(wire.PatchDoFreed, 0, 0)); err != nil {
		return err
	}
	for _, c := range p.garbage {
		for _, x := range c.tx.Old {
			p.dead[x] = true
		}
		c.t.planner.Free(c.tx)
	}
	p.garbage, p.garbageBytes, p.tolerate = nil, 0, 0
	return nil
}

// count counts a patch that came or went.
func (p *Process) count(x *patch.Patch, n int64) {
	p.code += n * int64(len(x.Trampoline.Code))
	if x.For != 0 {
		p.displaced += n
		return
	}
	p.patched[x.Tier] += n
}
