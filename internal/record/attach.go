package record

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/pmu"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/step"
	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/wire"
)

// Attach samples a process that runs already, until it ends or we are interrupted (SIGINT, SIGTERM, SIGHUP), and leaves it as it was. The trace has no events: the agent is not in the
// process. o.Program is not used.
func Attach(o Options, pid int) (exit int, err error) {
	if o.Messages == nil {
		o.Messages = os.Stderr
	}
	switch o.Sampling.Mode {
	case sample.PMU, sample.Timer, sample.Auto:
	case sample.None:
		return agent.ExitOurs, errors.New("of a process that already runs (--pid) only samples can be recorded: give --sample=auto, pmu or timer")
	default:
		return agent.ExitOurs, fmt.Errorf("a process that already runs (--pid) cannot be sampled by --sample=%s: give auto, pmu or timer", o.Sampling.Mode)
	}
	if err := agent.RaiseFileLimits(); err != nil { // events of each thread on each processor
		return agent.ExitOurs, err
	}
	end, err := ends(pid)
	if err != nil {
		return agent.ExitOurs, err
	}
	if o.Program, err = commandOf(pid); err != nil {
		return agent.ExitOurs, err
	}
	code := func(names []string) ([]pmu.Range, error) { return pmu.CodeIn(pid, step.FilterMain, names) }
	if err := o.Sampling.choose(code); err != nil {
		return agent.ExitOurs, err
	}
	out, err := trace.Create(o.Dir, meta(&o, wire.Config{}), sample.Files()...)
	if err != nil {
		return agent.ExitOurs, err
	}
	defer out.Close()
	w := &warnings{}
	s, err := o.sampler(w.add)
	if err != nil {
		return agent.ExitOurs, err
	}
	attached := s.(sampled).attached.(interface {
		AttachRunning(pid int) error
		Close() error
	})
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupted)
	if err := attached.AttachRunning(pid); err != nil {
		return agent.ExitOurs, err
	}
	begin := time.Now()
	o.say("sampling process %d (%s) until it ends or you interrupt this (Ctrl-C)", pid, strings.Join(o.Program, " "))
	ended := false
	select {
	case <-interrupted:
	case ended = <-end:
	}
	if err := attached.Close(); err != nil {
		return agent.ExitOurs, err
	}
	for _, text := range w.list() {
		o.say("not seen: %s", text)
	}
	if text := o.Sampling.told(o.Dir); text != "" {
		o.say("%s", text)
	}
	i, err := sample.ReadInfo(o.Dir)
	if err != nil {
		return agent.ExitOurs, err
	}
	left := "it runs on"
	if ended {
		left = "it has ended"
	}
	o.say("%d samples in %s; %s; perf report -i %s shows them", i.Samples, time.Since(begin).Round(10*time.Millisecond), left, filepath.Join(o.Dir, sample.PerfFile))
	return 0, nil
}

// ends gives a channel that tells when a process has ended.
func ends(pid int) (<-chan bool, error) {
	if err := pmu.Running(pid); errors.Is(err, tracee.ErrGone) {
		return nil, fmt.Errorf("--pid: there is no process %d", pid)
	} else if err != nil {
		return nil, fmt.Errorf("--pid: %w", err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("--pid: process %d: pidfd_open: %w", pid, err)
	}
	end := make(chan bool, 1)
	go func() {
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, -1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				_ = unix.Close(fd)
				end <- true
				return
			}
		}
	}()
	return end, nil
}

// commandOf gives the command line of a process.
func commandOf(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}
