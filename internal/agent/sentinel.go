package agent

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A sentinel is a process beside us in our process group, with all signals blocked, that does nothing but tell which signals it was sent. What both
// of us were sent was sent to the group: the target has it already. Neither siginfo nor /proc says that of a signal.
//
// It is a clone that shares our memory and touches none of it but its buffer (sentinel in signals_amd64.s), and it ends when we do.
type sentinel struct {
	pid     int
	ask     *os.File // a byte: tell what came
	answers *os.File // siginfos; one of signal 0 ends an answer
	came    []Caught // told, and not yet seen by us
}

//lint:ignore U1000 signals_amd64.s reads it
var sentinelPipes [2]int32

// cloneSentinel makes the process; all signals must be blocked. A negative errno if it cannot.
func cloneSentinel() (pid int)

// SentinelName is what ps calls the sentinel.
const SentinelName = "ripstop-signals"

const (
	siginfoBytes = 128
	// sentinelPatience is for how long an answer is waited for: somebody may have stopped or killed the sentinel.
	sentinelPatience = 2 * time.Second
	// maxCame bounds what the sentinel was sent and we were not: several of one signal become one while they wait.
	maxCame = 64
)

// newSentinel returns nil where there can be none; then all that is sent to us by a process is taken for sent to us alone.
func newSentinel() *sentinel {
	var ask, answers [2]int
	if unix.Pipe2(ask[:], unix.O_CLOEXEC) != nil {
		return nil
	}
	if unix.Pipe2(answers[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		unix.Close(ask[0])
		unix.Close(ask[1])
		return nil
	}
	sentinelPipes = [2]int32{int32(ask[0]), int32(answers[1])}
	runtime.LockOSThread()
	all, old := ^uint64(0), uint64(0)
	const sigSetmask = 2
	syscall.ForkLock.Lock() // no descriptor that is not yet close-on-exec
	sigprocmask(sigSetmask, &all, &old)
	pid := cloneSentinel()
	sigprocmask(sigSetmask, &old, nil)
	syscall.ForkLock.Unlock()
	runtime.UnlockOSThread()
	unix.Close(ask[0])
	unix.Close(answers[1])
	s := &sentinel{pid: pid, ask: os.NewFile(uintptr(ask[1]), "sentinel"), answers: os.NewFile(uintptr(answers[0]), "sentinel")}
	if pid < 0 {
		s.close()
		return nil
	}
	return s
}

// gotToo tells whether the sentinel was sent c too. Each of its signals counts once.
func (s *sentinel) gotToo(c Caught) bool {
	if s == nil || s.pid < 0 {
		return false
	}
	// The kernel sends to a group under its lock on the list of processes. This call takes that lock for writing and changes nothing: when it has
	// returned, what we have got of a group's signal the sentinel has got too.
	unix.Setpgid(0, unix.Getpgrp())
	if !s.listen() {
		s.close()
		return false
	}
	for i, other := range s.came {
		if other == c {
			s.came = append(s.came[:i], s.came[i+1:]...)
			return true
		}
	}
	return false
}

// listen asks the sentinel what came; false: it does not answer.
func (s *sentinel) listen() bool {
	s.answers.SetReadDeadline(time.Now().Add(sentinelPatience))
	if _, err := s.ask.Write([]byte{1}); err != nil {
		return false
	}
	var b [siginfoBytes]byte
	for {
		if n, err := s.answers.Read(b[:]); err != nil || n != len(b) {
			return false
		}
		c := Caught{
			Signal: syscall.Signal(binary.LittleEndian.Uint32(b[:])),
			Code:   int32(binary.LittleEndian.Uint32(b[8:])),
			PID:    int(binary.LittleEndian.Uint32(b[16:])),
		}
		if c.Signal == 0 {
			return true
		}
		if s.came = append(s.came, c); len(s.came) > maxCame {
			s.came = s.came[1:]
		}
	}
}

// close ends the sentinel.
func (s *sentinel) close() {
	if s == nil || s.ask == nil {
		return
	}
	s.ask.Close()
	s.answers.Close()
	s.ask = nil
	if s.pid > 0 {
		unix.Kill(s.pid, unix.SIGKILL) // stopped, it would not see the pipe's end
		for {
			if _, err := unix.Wait4(s.pid, nil, unix.WALL, nil); err != unix.EINTR {
				break
			}
		}
		s.pid = -1
	}
}
