package agent

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hooks are what Supervise leaves to others.
type Hooks struct {
	// Quit is called on SIGQUIT, on a goroutine of its own; not again before it has returned.
	Quit func()
	// OurStop tells whether a stop of the target is our own doing (ptrace), and no news.
	OurStop func(pid int, ws unix.WaitStatus) bool
	// Wait, if not nil, gives the target's changes instead of wait4: for a tracer, which takes them all.
	Wait func() (unix.WaitStatus, error)
}

// Supervise waits for the target to end. Meanwhile it passes on the signals that are sent to us, stops when the target stops, lets
// it go on when we go on and goes on when it does, so that job control works on both as on one.
func (t *Target) Supervise(s *Signals, h Hooks) Status {
	beside := newSentinel()
	defer beside.close()
	wait := h.Wait
	if wait == nil {
		wait = func() (unix.WaitStatus, error) { return t.wait(h.OurStop) }
	}
	type change struct {
		ws  unix.WaitStatus
		err error
	}
	changes := make(chan change)
	resume := make(chan struct{})
	quit := make(chan struct{}, 1) // holds a token while Quit runs
	defer func() { quit <- struct{}{} }()
	go func() {
		for {
			ws, err := wait()
			changes <- change{ws, err}
			if err != nil || ws.Exited() || ws.Signaled() {
				return
			}
			<-resume
		}
	}()
	for {
		select {
		case c := <-s.ch:
			switch {
			case c.byKernel() || c.PID == t.PID || beside.gotToo(c):
				// The target got it itself, or sent it.
			case c.Signal == syscall.SIGQUIT:
				select {
				case quit <- struct{}{}:
					go func() {
						h.Quit()
						<-quit
					}()
				default:
				}
			default:
				t.Signal(c.Signal)
			}
		case c := <-changes:
			switch {
			case c.err != nil:
				// Somebody ignores SIGCHLD on our behalf, or reaped our child: its status is lost.
				return Status{Exited: true, Code: ExitOurs}
			case c.ws.Exited():
				return Status{Exited: true, Code: c.ws.ExitStatus()}
			case c.ws.Signaled():
				return Status{Signal: c.ws.Signal(), Core: c.ws.CoreDump()}
			case c.ws.Stopped():
				w := newWaker(t.PID, t.pidfd)
				stopLike(c.ws.StopSignal())
				w.end()
				// Whoever let us go on meant the target too. If he said so to the whole process group, it goes on by itself now.
				for i := 0; i < 20 && !t.news(); i++ {
					time.Sleep(time.Millisecond)
				}
				if !t.news() {
					t.Signal(syscall.SIGCONT)
				}
			}
			resume <- struct{}{}
		}
	}
}

// news tells whether the target has gone on (and perhaps stopped again), or ended, since wait returned.
func (t *Target) news() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, t.PID, &info, unix.WNOHANG|unix.WNOWAIT|unix.WSTOPPED|unix.WCONTINUED|unix.WEXITED, nil)
	return err != nil || info.Signo != 0
}

// wait returns the target's next change of state. As process 1 of a container we are given the orphans, too.
func (t *Target) wait(ourStop func(int, unix.WaitStatus) bool) (ws unix.WaitStatus, err error) {
	who := t.PID
	if os.Getpid() == 1 {
		who = -1
	}
	for {
		pid, err := unix.Wait4(who, &ws, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR || err == nil && (pid != t.PID || ourStop(pid, ws)):
			continue
		default:
			return ws, err
		}
	}
}

// Release gives up what is held of the target.
func (t *Target) Release() {
	if t.pidfd >= 0 {
		unix.Close(t.pidfd)
		t.pidfd = -1
	}
}

// withDefault runs f on a locked thread while sig has its default action and is not blocked on this thread.
func withDefault(sig syscall.Signal, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var dfl, old sigaction
	rtSigaction(sig, &dfl, &old)
	one := uint64(1) << (sig - 1)
	var mask uint64
	const sigUnblock, sigSetmask = 1, 2
	sigprocmask(sigUnblock, &one, &mask)
	f()
	sigprocmask(sigSetmask, &mask, nil)
	rtSigaction(sig, &old, nil)
}

func sigprocmask(how int, set, old *uint64) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, uintptr(how), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// stopLike stops this process by the signal that stopped the target, and returns when it goes on.
func stopLike(sig syscall.Signal) {
	// To this very thread: it stops before tgkill returns, whereas a signal to the process may be another thread's.
	withDefault(sig, func() { unix.Tgkill(os.Getpid(), unix.Gettid(), sig) })
}

// DieLike ends this process by sig, so that whoever waits for us sees what he would have seen of the target. It leaves no core dump of
// ours. It returns only if sig does not kill.
func DieLike(sig syscall.Signal) {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	withDefault(sig, func() { unix.Tgkill(os.Getpid(), unix.Gettid(), sig) })
}
