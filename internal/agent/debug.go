package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tracee"
)

// States of a question in wire.GuardDebug.Word, below its number.
const (
	debugAsked    = 1
	debugTakenUp  = 2
	debugAnswered = 3
)

// setDebug answers coordinators that ask for debug registers; see wire.GuardDebug. On the loop's goroutine.
func (s *Session) setDebug(p *process) {
	if len(p.seen) == 0 || p.over || s.opts.Config.Guard == 0 {
		return
	}
	d := &p.seen[0].head.Guard[0].Debug[0]
	word := atomic.LoadUint32(&d.Word)
	if word&3 != debugAsked || !atomic.CompareAndSwapUint32(&d.Word, word, word&^3|debugTakenUp) {
		return
	}
	regs := tracee.DebugRegisters{Control: atomic.LoadUint64(&d.Control)}
	for i := range regs.Address {
		regs.Address[i] = atomic.LoadUint64(&d.Address[i])
	}
	result := int32(0)
	if err := setDebug(p.pid, atomic.LoadUint32(&d.Except), regs); err != nil {
		errno := unix.EPERM
		errors.As(err, &errno)
		result = -int32(errno)
	}
	atomic.StoreInt32(&d.Result, result)
	// It is another question's by now if nobody has waited for so long.
	if atomic.CompareAndSwapUint32(&d.Word, word&^3|debugTakenUp, word|debugAnswered) {
		futexWakeAll(&d.Word)
	}
}

// setDebug sets the debug registers of all threads but the one that its process knows by this number.
func setDebug(pid int, except uint32, regs tracee.DebugRegisters) error {
	tids, err := tracee.Threads(pid)
	if err != nil {
		return err
	}
	var list []int
	found := false
	for _, tid := range tids {
		number, err := ownNumber(pid, tid)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // it has ended
		case err != nil:
			return err
		case number == except:
			found = true
		default:
			list = append(list, tid)
		}
	}
	if !found {
		return unix.ESRCH // it would be among them, and be killed by its own writes
	}
	return tracee.SetDebug(list, regs)
}

// ownNumber is what a thread is called in its own pid namespace, the innermost.
func ownNumber(pid, tid int) (uint32, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(text), "\nNSpid:")
	line, _, _ = strings.Cut(line, "\n")
	numbers := strings.Fields(line)
	if len(numbers) == 0 {
		return uint32(tid), nil // a kernel without namespaces
	}
	n, err := strconv.ParseUint(numbers[len(numbers)-1], 10, 32)
	return uint32(n), err
}
