package pmu

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/tsc"
)

// mostLooks bounds how often the threads of a process are listed while it is attached to; one that starts threads faster than that is not followed.
const mostLooks = 100

// everyThread calls attach for each thread of a running process that nothing inherits to. What attach opens must be inherited, and its side-band be in rings():
// a thread whose FORK record is there has what its maker has. (One that was being made in the few microseconds in which its maker was attached to, after it was given
// its events and before that was told, has none.)
func everyThread(pid int, rings func() []*ring, attach func(tid int) error) error {
	done := map[int]bool{}
	for range mostLooks {
		tids, err := tracee.Threads(pid)
		if err != nil {
			return err
		}
		for _, r := range rings() {
			if err := r.look(func(t perf.Type, _ perf.Misc, body []byte) error {
				if t == perf.TypeFork && len(body) >= 12 {
					done[int(binary.LittleEndian.Uint32(body[8:]))] = true // pid, ppid, tid
				}
				return nil
			}, false); err != nil {
				return err
			}
		}
		more := false
		for _, tid := range tids {
			if done[tid] {
				continue
			}
			done[tid], more = true, true
			if err := attach(tid); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
	return fmt.Errorf("process %d starts new threads faster than they can be attached to", pid)
}

// begin writes what a process that runs already is: its threads, their names, its executable memory.
func begin(out *sample.Writer, pid int) (tids []int, err error) {
	if tids, err = tracee.Threads(pid); err != nil {
		return nil, err
	}
	now := tsc.Now()
	for _, tid := range tids {
		if name := nameOf(pid, tid); name != "" { // else it has ended
			if err := out.Comm(int32(pid), int32(tid), name, false, now); err != nil {
				return nil, err
			}
		}
	}
	code, err := codeMapped(pid)
	if err != nil {
		return nil, err
	}
	return tids, writeCode(out, pid, code, now)
}

// nameOf gives the name of a thread; "" if it has ended.
func nameOf(pid, tid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(name), "\n")
}

// codeMapped gives the executable memory of a process.
func codeMapped(pid int) (code []tracee.Mapping, err error) {
	maps, err := tracee.Maps(pid)
	for _, m := range maps {
		if m.Exec && m.Path != "[vsyscall]" {
			code = append(code, m)
		}
	}
	return code, err
}

// writeCode tells of executable memory.
func writeCode(out *sample.Writer, pid int, code []tracee.Mapping, now uint64) error {
	for _, m := range code {
		s := sample.Mapping{PID: int32(pid), TSC: now, Start: uint64(m.Start), End: uint64(m.End), Offset: m.Offset, Path: m.Path}
		if s.Path == "" {
			s.Path = "//anon"
		}
		if m.Inode != 0 && !m.Deleted {
			s.BuildID = sample.BuildID(s.Path)
		}
		if err := out.Map(s, int32(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Running says why a process cannot be attached to; nil: it can.
func Running(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, tracee.ErrGone)
	}
	if _, rest, ok := strings.Cut(string(b), "\nTgid:"); ok {
		leader, _, _ := strings.Cut(rest, "\n")
		if n, err := strconv.Atoi(strings.TrimSpace(leader)); err == nil && n != pid {
			return fmt.Errorf("%d is a thread of process %d", pid, n)
		}
	}
	return nil
}
