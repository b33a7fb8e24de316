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

// threads gives the place of each thread that runs the process's code but of the one that asks. A thread in the kernel is not disturbed; one that runs is stopped for a moment.
func (p *Process) threads(f func(pc uint64)) error { return p.threadsOf(p.PID, p.asking(), f) }

// threadsOf gives those of a process, and of the children that have its memory in common: those of vfork, and of others that make it with CLONE_VM.
func (p *Process) threadsOf(pid, asks int, f func(pc uint64)) error {
	tids, err := tracee.Threads(pid)
	if err != nil {
		return err
	}
	for _, tid := range tids {
		call, pc, waits := waiting(pid, tid)
		switch {
		case tid == asks:
		case waits:
			f(pc)
		default:
			err := tracee.Stop(tid, func(s *tracee.Stopped) error {
				f(s.Regs[16])
				return nil
			})
			if err != nil && !errors.Is(err, tracee.ErrGone) {
				return err
			}
		}
		list, err := children(pid, tid)
		common := 0
		for _, child := range list {
			if !sharesMemory(pid, child) {
				continue
			}
			common++
			if err := p.threadsOf(child, 0, f); err != nil && !errors.Is(err, tracee.ErrGone) {
				return err
			}
		}
		if waits && lends[call] && common == 0 { // whoever it waits for is not seen, or is just coming or going
			return errors.Join(errLent, err)
		}
	}
	return nil
}

// errLent says that a child may run the process's code that cannot be seen.
var errLent = errors.New("a thread waits for a child that may run its code")

// children gives the processes that a thread has made; proc(5): needs CONFIG_PROC_CHILDREN. Where others end meanwhile some may be left out.
func children(pid, tid int) (list []int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, tid))
	for f := range strings.FieldsSeq(string(b)) {
		child, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		list = append(list, child)
	}
	return list, err
}

// sharesMemory says whether two processes are known to have their memory in common; kcmp(2): needs CONFIG_KCMP, and leave to trace both.
var sharesMemory = func(a, b int) bool {
	const memory = 1 // KCMP_VM
	differ, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), memory, 0, 0, 0)
	return e == 0 && differ == 0
}

// alone says whether the thread that asks is the only one, so that nobody runs what changes. The agent does not know of threads that clone made, and takes leave of others before
// their last destructors; the kernel counts a thread as long as it can run.
func (p *Process) alone() bool {
	if p.of != nil {
		return true // all others stand
	}
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

// waiting gives the place of a thread that waits in the kernel, to which it will come back, and the number of the system call, -1 if it waits for something else; proc(5), syscall.
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
	p.held += n
}
