package step

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Registers are read to where they are asked for, also where the call makes the stack grow. Once in some runs a thread's instruction pointer was 0 for one step, under the race detector: the kernel had written
// to where the stack had been.
func TestRegistersAreRead(t *testing.T) {
	const depths = 150 // a new goroutine's stack ends within them, more than once
	for depth := range depths {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the tracer's thread ends with it
			cmd := exec.Command("/bin/true")
			cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			small := make(chan uint64)
			pid := cmd.Process.Pid
			var ws unix.WaitStatus
			if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || !ws.Stopped() {
				t.Errorf("%v, %v", err, ws)
				return
			}
			go func() { small <- 0 }()
			<-small
			if ip := deep(depth, pid); ip == 0 {
				t.Errorf("depth %d: no instruction pointer", depth)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		<-done
	}
}

//go:noinline
func deep(n, pid int) uint64 {
	if n > 0 {
		return deep(n-1, pid)
	}
	var now registers
	if getRegisters(pid, &now) != nil {
		return 0
	}
	return now.Rip
}
