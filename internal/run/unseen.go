package run

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/wire"
)

// unseen collects what could not be watched: a sentence each, in the order of their first occurrence, with the process that it first was true of and how many more.
type unseen struct {
	mu    sync.Mutex
	said  map[string]*occurrence
	order []string
}

type occurrence struct {
	loss  bool            // something that should have been seen was not; else there was a good reason, and it is said on demand
	where string          // the first process; "" if it is of none
	in    map[uint64]bool // the processes
	times int
}

func newUnseen() *unseen { return &unseen{said: map[string]*occurrence{}} }

func (u *unseen) add(loss bool, process uint64, where, text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	o := u.said[text]
	if o == nil {
		o = &occurrence{where: where, in: map[uint64]bool{}}
		u.said[text] = o
		u.order = append(u.order, text)
	}
	o.loss = o.loss || loss
	o.in[process] = true
	o.times++
}

func (u *unseen) warn(text string) { u.add(true, 0, "", text) }

// event takes note of the events by which agents say what they do not see.
func (u *unseen) event(set *target.Set, process uint64, e *wire.Event) {
	switch e.Type {
	case wire.TypeNotice:
		n := wire.DecodeNotice(e.Words)
		text, loss := noticeText(n)
		u.add(loss, process, processName(set, process), text)
	case wire.TypeUnfollowed:
		n := wire.DecodeUnfollowed(e.Words)
		loss := n.Why == wire.UnfollowedNoSession || n.Why == wire.UnfollowedRawClone || n.Why == wire.UnfollowedInsideLibc
		u.add(loss, process, processName(set, process), fmt.Sprintf("its child %s was not watched: %s", childName(n), unfollowedText(n.Why)))
	}
}

func childName(n wire.EvUnfollowed) string {
	path := string(n.Tail)
	switch {
	case n.PID != 0 && path != "":
		return fmt.Sprintf("%d (%s)", n.PID, path)
	case n.PID != 0:
		return fmt.Sprint(n.PID)
	}
	return path
}

func unfollowedText(why wire.Unfollowed) string {
	switch why {
	case wire.UnfollowedStatic:
		return "it is statically linked"
	case wire.UnfollowedSetuid:
		return "it is setuid or setgid, or has capabilities"
	case wire.UnfollowedForeign:
		return "it is not a 64-bit x86-64 program of glibc"
	case wire.UnfollowedTurnedOff:
		return "children are not followed (--follow=no)"
	case wire.UnfollowedNoSession:
		return "from its chroot, namespaces or user it cannot load the agent, or its arguments leave no room for it"
	case wire.UnfollowedRawClone:
		return "it was made by clone() itself"
	case wire.UnfollowedSandbox:
		return "its parent is in a sandbox (seccomp)"
	case wire.UnfollowedSanitizer:
		return "it carries a sanitizer (AddressSanitizer as a shared library, or ThreadSanitizer), beside which the agent cannot be loaded"
	case wire.UnfollowedInsideLibc:
		return "libc starts it in a way that the agent cannot take part in (wordexp)"
	}
	return why.String()
}

// noticeText is the sentence for a notice, and whether something is missing for the user because of it.
func noticeText(n wire.EvNotice) (text string, important bool) {
	errno := ""
	if n.Errno != 0 {
		errno = fmt.Sprintf(" (%v)", syscall.Errno(n.Errno))
	}
	switch n.What {
	case wire.NoticeNoMemory:
		return "the agent did not get memory" + errno + ": some events are missing", true
	case wire.NoticeThreadUnseen:
		return "a thread was not seen" + errno, true
	case wire.NoticeStackTableFull:
		return "there were more different stacks than the agent keeps: later ones are missing", true
	case wire.NoticeStacksShort:
		return fmt.Sprintf("the heap is called in very many ways, first from %#x: stacks of such places have fewer frames from then on", n.Aux), true
	case wire.NoticeStacksCrowded:
		return "code is called in very many ways: stacks have fewer frames from then on", true
	case wire.NoticeLocksShort:
		return "locks are held in very many different sets: which ones is not told of all accesses", true
	case wire.NoticeStackShort:
		return fmt.Sprintf("its first thread's stack was nearly used up: %d accesses that were made there were not looked at", n.Aux), true
	case wire.NoticeNoUnwindTable:
		return fmt.Sprintf("there is no unwind table for module %d: stacks end there", n.Aux), false
	case wire.NoticeForkUnseen:
		return "a child was made in a way that the agent does not see", true
	case wire.NoticeExecUnfollowed:
		return "it executed a program that was not followed", false
	case wire.NoticeSandboxed:
		return "it entered a sandbox (seccomp): new threads may not be seen", false
	case wire.NoticeTooManyThreads:
		return "it has more threads than the agent can watch", true
	case wire.NoticeAgentLate:
		return "the agent came late: what happened before is not known", true
	case wire.NoticeLimit:
		return fmt.Sprintf("a limit of the agent was reached (%d)", n.Aux), true
	case wire.NoticeNoTsc:
		return "it forbade itself to read the time stamp counter (prctl PR_SET_TSC): it is not watched from then on", true
	case wire.NoticeOwnMalloc:
		return "it has an allocator of its own: where its heap blocks come from is not known", false
	case wire.NoticeForeignHeap:
		return "its heap is another allocator's than the C library's: overflows of its blocks and writes to freed ones are not seen", true
	case wire.NoticeOtherAllocations:
		return "blocks of its heap are had and given back by other functions than malloc and free too: accesses to freed memory are not looked for", true
	case wire.NoticeNoPatches:
		switch {
		case n.Aux != 0:
			return "it has threads that were not seen being made (by timers, aio, io_uring, clone): its code was not patched, and races were not looked for; --full-from=start finds them", true
		case n.Errno != 0:
			return "its code could not be patched before it had a second thread" + errno + ": it runs as it is", true
		}
		return "its limit on address space (ulimit -v) leaves no room to patch its code: it runs as it is", true
	case wire.NoticeLibcHeap:
		return "its heap is libc's" + errno + ": overflows of its blocks and writes to freed ones are not seen", true
	case wire.NoticeNoWatch:
		switch syscall.Errno(n.Errno) {
		case syscall.ETIME:
			return "who wrote where was not always found: hardware breakpoints are never hit on this machine, and watching pages in their place took too long, as there was written beside it very often", true
		case syscall.EADDRINUSE:
			return "who wrote where was not always found: hardware breakpoints are never hit on this machine, and the page to be watched in their place is one that the kernel writes to by itself", true
		}
		return "who wrote where could not be watched" + errno + ": the kernel refuses breakpoints (kernel.perf_event_paranoid, a container's filter, a limit on descriptors, a debugger that has them all) or process_vm_readv; debug registers set by ripstop are refused, too, or not enough, as for crashes", true
	case wire.NoticeNoEpochs:
		why := "they could not begin" + errno
		switch syscall.Errno(n.Errno) {
		case syscall.EDQUOT:
			why = "that would take memory from what its limit (ulimit -v, -d) leaves it"
		case syscall.ENOTSUP:
			why = "its heap is libc's, or not all of its system calls can be seen"
		case syscall.EBUSY:
			why = "it has threads that were not seen being made (by timers, aio, io_uring, clone); --epochs-from=start records them"
		case syscall.EXDEV:
			why = "its /proc is that of another pid namespace"
		case syscall.ENOSYS:
			why = "its system calls are given to itself (PR_SET_SYSCALL_USER_DISPATCH)"
		}
		return "no epochs are recorded: " + why, true
	case wire.NoticeHeapUnchecked:
		return "not all blocks of its heap were looked at when it ended", true
	case wire.NoticeNamespace:
		return "it loaded a library into a namespace of its own (dlmopen): locks, threads and children of that library are not watched", true
	case wire.NoticeDeepbind:
		return "it loaded a library with RTLD_DEEPBIND, whose calls of the C library cannot be seen: its locks and threads are not watched, and no invalid or double frees are told", true
	case wire.NoticeKernelRequests:
		text := "it hands requests to the kernel (io_uring, io_submit): what the kernel reads and writes for those is not looked at for races"
		if n.Aux != 0 {
			text += ", and a thread of the kernel's takes them (IORING_SETUP_SQPOLL), which orders threads unseen: a race of what is done before a request with what is done after its completion may be none"
		}
		return text, true
	}
	return n.What.String() + errno, true
}

// lines are the sentences; all: also those that say nothing is missing that should be there.
func (u *unseen) lines(all bool) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []string
	for _, text := range u.order {
		o := u.said[text]
		if !o.loss && !all {
			continue
		}
		switch more := len(o.in) - 1; {
		case o.where == "":
		case more == 1:
			text = o.where + " and one more: " + text
		case more > 1:
			text = fmt.Sprintf("%s and %d more: %s", o.where, more, text)
		default:
			text = o.where + ": " + text
		}
		if o.times > len(o.in) {
			text = fmt.Sprintf("%s (%d times)", text, o.times)
		}
		out = append(out, text)
	}
	return out
}
