package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Sleeper is a thread in a wait without an end of its own, which only a thread of its process can end.
type Sleeper struct {
	TID  int    // as we see it
	Own  int    // as the process sees it
	Word uint64 // that it waits at; 0: it joins
}

// Standstill is what is known of a process that does not move. The zero value has not looked at it yet.
type Standstill struct {
	awake string // the task that was not asleep at the last look: most likely it is not at the next
	busy  uint32
	tasks []task // in order of their ids; nil: one was awake
}

// task is what two looks compare: a thread that is in the same wait, and was switched out as often, has not run in between.
type task struct {
	Sleeper
	switches uint64
	caught   uint64
}

// Look looks at each thread of a process. asleep: all are in waits at futexes that have no timeout. still: and so they were at the last look, and none of them has run in between,
// so that there was a moment at which all slept. Nothing is asked of the process itself; of one that is not asleep this mostly reads two small files. joins are the threads that join others without a time limit, as far as
// their events say: while epochs are recorded these look by themselves, again and again, and are as good as asleep.
func (st *Standstill) Look(s *Session, process uint64, joins []uint32) (asleep, still bool) {
	last := *st
	st.tasks = nil
	p := s.lookup(process)
	if p == nil || p.broken || p.pid <= 0 {
		return false, false
	}
	dir := fmt.Sprintf("/proc/%d/task", p.pid)
	joining := map[int]uint64{}
	for _, number := range joins {
		if sl := p.threads[number]; sl != nil && s.Blocked(process, []uint32{number}) {
			joining[int(atomic.LoadUint32(&sl.shared.Tid))] = atomic.LoadUint64(&sl.shared.WaitSeq)
		}
	}
	coordinator := s.coordinator(p)
	if st.awake != "" && len(joining) == 0 && isAwake(filepath.Join(dir, st.awake), coordinator) {
		return false, false
	}
	st.busy = s.busy(p)
	if st.busy&1 != 0 {
		return false, false
	}
	tasks, awake := sleepers(dir, coordinator, joining)
	if st.awake = awake; awake != "" || len(tasks) == 0 || s.busy(p) != st.busy {
		return false, false
	}
	st.tasks = tasks
	return true, st.busy == last.busy && slices.Equal(tasks, last.tasks)
}

// Sleepers are the threads, as of the last Look, if nothing could let them go on: nil else. Only a thread of the process's could wake one, and none runs; what comes from outside is asked for here, once Look
// has said that they stand still: a signal that the program handles, of those that are not brought about by the thread that gets them; another process in the same memory, or with the same words in its own; io_uring,
// which wakes by itself. What the agent waits for is none of the program's waits.
func (st *Standstill) Sleepers(s *Session, process uint64) (list []Sleeper) {
	p := s.lookup(process)
	if p == nil || p.pid <= 0 || len(st.tasks) == 0 {
		return nil
	}
	living := st.tasks[0].TID // the first thread may have ended, and has no memory then
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", living))
	if err != nil {
		return nil
	}
	own := s.Dir()
	for i := range st.tasks {
		t := &st.tasks[i]
		if t.caught&^ofThreads != 0 || t.Word != 0 && !ownMemory(maps, t.Word, own) {
			return nil
		}
		list = append(list, t.Sleeper)
	}
	if usesRing(living) || memoryIsShared(p.pid, living) {
		return nil
	}
	return list
}

// OwnTID is a thread's id as the process itself sees it, which in a pid namespace of its own is another one than ours.
func OwnTID(pid, tid int) int {
	st, err := taskStatus(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
	if err != nil {
		return tid
	}
	return st.tid
}

// ofThreads are the signals whose handlers do not count: those that a thread brings about by what it does, as it runs, and libc's own, SIGCANCEL and SIGSETXID (nptl/descr.h), which threads of the process send.
const ofThreads = 1<<(32-1) | 1<<(33-1) | 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) | 1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGSYS-1) | 1<<(unix.SIGABRT-1)

// counts says of a task whether it is one of the program's that may go on: not the first thread, which stays as a zombie when it has ended before the others, and not the coordinator, if that is not 0.
func (st *status) counts(coordinator int) bool {
	return st.state != 'Z' && (coordinator == 0 || st.tid != coordinator)
}

// isAwake says that a task of the program's is in no such wait.
func isAwake(path string, coordinator int) bool {
	if _, ok := waitOf(path); ok {
		return false
	}
	st, err := taskStatus(path)
	return err == nil && st.counts(coordinator)
}

// sleepers looks at the tasks in a directory; awake: the first that is not in such a wait. As the process itself sees their ids: coordinator, if not 0, is the task that is none of the program's; joining are
// those that join, with a number that is another one for each wait.
func sleepers(dir string, coordinator int, joining map[int]uint64) (list []task, awake string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, ""
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		t, ok := waitOf(path)
		// What the kernel says of the call is of one moment, and so is the status; each look has the call between two of these.
		st, err := taskStatus(path)
		if err == nil && !st.counts(coordinator) {
			continue
		}
		if wait := joining[st.tid]; err == nil && wait != 0 {
			t.Word, st.switches, st.state, ok = 0, wait, 'S', true
		}
		if err != nil || !ok || st.state != 'S' {
			return nil, e.Name()
		}
		t.TID, _ = strconv.Atoi(e.Name())
		t.Own, t.switches, t.caught = st.tid, st.switches, st.caught
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b task) int { return a.TID - b.TID })
	return list, ""
}

// waitOf says whether a task is off its processor in a wait at a futex without a timeout.
func waitOf(dir string) (t task, ok bool) {
	const futexWaitTwo = 455 // SYS_futex_wait
	b, err := os.ReadFile(filepath.Join(dir, "syscall"))
	if err != nil {
		return t, false
	}
	var number int
	var arg [6]uint64
	if n, _ := fmt.Sscanf(string(b), "%d 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x", &number, &arg[0], &arg[1], &arg[2], &arg[3], &arg[4], &arg[5]); n != 7 {
		return t, false // running, or in no call
	}
	t.Word = arg[0]
	switch number {
	case unix.SYS_FUTEX:
		const wait, lockPI, waitBitset, waitRequeuePI, lockPI2, flags = 0, 6, 9, 11, 13, 128 | 256
		return t, arg[3] == 0 && slices.Contains([]uint64{wait, lockPI, waitBitset, waitRequeuePI, lockPI2}, arg[1]&^flags)
	case futexWaitTwo:
		return t, arg[4] == 0
	}
	return t, false
}

// ownMemory says whether the word lies in memory that the process has for itself, so that the kernel knows it by the process's memory alone, whatever the call says; and not in the agent's.
func ownMemory(maps []byte, word uint64, own string) bool {
	before := ""
	for line := range bytes.Lines(maps) {
		f := strings.Fields(string(line))
		if len(f) < 5 {
			continue
		}
		path := strings.Join(f[5:], " ")
		var lo, hi uint64
		if n, _ := fmt.Sscanf(f[0], "%x-%x", &lo, &hi); n != 2 {
			return false
		}
		if word >= lo && word < hi {
			// The end of .bss has no name, and lies behind the rest of its module.
			agents := strings.HasPrefix(path, own) || path == "" && strings.HasPrefix(before, own)
			return len(f[1]) == 4 && f[1][1] == 'w' && f[1][3] == 'p' && !agents
		}
		before = path
	}
	return false
}

// usesRing says whether the process has io_uring, by which the kernel does for it what a thread would.
func usesRing(tid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd", tid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.Contains(to, "[io_uring]") {
			return true
		}
	}
	return false
}

// memoryIsShared says whether there may be another process in the memory of this one, of which tid is a thread (clone with CLONE_VM). Those have the same sizes, which everybody may read; of who has them the kernel is asked.
func memoryIsShared(pid, tid int) bool {
	const memory = 1 // KCMP_VM
	sizes, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", tid))
	if err != nil {
		return true
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		other, err := strconv.Atoi(e.Name())
		if err != nil || other == pid {
			continue
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", other)); err != nil || !bytes.Equal(b, sizes) {
			continue
		}
		if differ, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(tid), uintptr(other), memory, 0, 0, 0); e != 0 || differ == 0 {
			return true
		}
	}
	return false
}
