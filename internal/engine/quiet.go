package engine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/tracee"
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
		if pc, ok := standing(p.PID, tid); ok {
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

// alone says whether the thread that asks is the only one, so that nobody runs what changes. The agent does not know of threads that clone made, and takes leave of others before
// their last destructors; the kernel counts a thread as long as it can run.
func (p *Process) alone() bool {
	if p.page.Threads != 1 {
		return false
	}
	// Linux gives the directory a link for each thread (fs/proc/base.c, proc_task_getattr), which is told sooner than their names.
	var st unix.Stat_t
	if p.tasks == nil {
		p.tasks, _ = os.Open(fmt.Sprintf("/proc/%d/task", p.PID))
	}
	if p.tasks != nil && unix.Fstat(int(p.tasks.Fd()), &st) == nil {
		if st.Nlink > 2+1 {
			return false
		} else if st.Nlink == 2+1 {
			return true
		}
	}
	tids, err := tracee.Threads(p.PID)
	return err == nil && len(tids) == 1
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

// standing gives the place of a thread that waits in the kernel, to which it will come back.
func standing(pid, tid int) (pc uint64, ok bool) {
	_, pc, ok = waiting(pid, tid)
	return pc, ok
}

// waiting gives the number of the system call, too, -1 if it waits for something else; proc(5), syscall.
func waiting(pid, tid int) (call int, pc uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
	if err != nil {
		return 0, 0, false
	}
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return 0, 0, false // running
	}
	call, err = strconv.Atoi(f[0])
	if err != nil {
		return 0, 0, false
	}
	pc, err = strconv.ParseUint(strings.TrimPrefix(f[len(f)-1], "0x"), 16, 64)
	return call, pc, err == nil
}

// count counts a patch that came or went.
func (p *Process) count(x *patch.Patch, n int64) {
	p.code += n * int64(x.Trampoline.Len())
	if x.For != 0 {
		p.displaced += n
		return
	}
	p.patched[x.Tier] += n
}
