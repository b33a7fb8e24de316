package tracee

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// DebugRegisters are what a thread's debug registers are to hold: addresses, and control, which is register 7; 0: none is on.
type DebugRegisters struct {
	Address [4]uint64
	Control uint64
}

// Of struct user (linux/user.h).
const (
	debugRegister0 = 848
	debugRegister7 = debugRegister0 + 7*8
)

// SetDebug sets the debug registers of threads, each of which stands meanwhile as by Hold. They stay as they are when we have let go: a thread that meets one has a SIGTRAP of its own (TRAP_HWBKPT), which kills if it is blocked. Threads that
// have ended are left out. An error: some may have been set.
func SetDebug(tids []int, d DebugRegisters) error {
	return Hold(tids, func(list []Stopped) error {
		for _, t := range list {
			if err := setDebug(t.Tid, d); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("thread %d: its debug registers: %w", t.Tid, err)
			}
		}
		return nil
	})
}

// setDebug sets those of a thread that stands. None is on while addresses change.
func setDebug(tid int, d DebugRegisters) error {
	if err := pokeUser(tid, debugRegister7, 0); err != nil || d.Control == 0 {
		return err
	}
	for i, a := range d.Address {
		if d.Control>>(2*i)&3 == 0 {
			continue
		}
		if err := pokeUser(tid, debugRegister0+8*uintptr(i), a); err != nil {
			return err
		}
	}
	return pokeUser(tid, debugRegister7, d.Control)
}

func pokeUser(tid int, at uintptr, v uint64) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_POKEUSR, uintptr(tid), at, uintptr(v), 0, 0); e != 0 {
		return e
	}
	return nil
}
