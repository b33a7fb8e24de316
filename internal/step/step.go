package step

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/sample"
	"github.com/ripstop/ripstop/internal/truth"
	"github.com/ripstop/ripstop/internal/tsc"
)

// FilterMain stands in a filter for the file that the process executes.
const FilterMain = "main"

// Options say what is stepped and written.
type Options struct {
	Dir     string   // of the trace
	Period  uint64   // accesses of a thread from one sample to the next, loads and stores each
	Seed    uint64   // of the first periods and of the turns of threads
	Filter  []string // base names of the files in which control flow is traced, FilterMain among them; none: everywhere
	Limit   uint64   // instructions after which the program is let go; 0: none
	Follow  bool     // step child processes, too
	Entry   bool     // begin where the program begins: the loader, and initialisers of libraries, run at once, and the recording has them as a part of execve
	Command []string
	Version string // of ripstop
	Warn    func(string)
}

// A Stepper steps the threads of a program.
type Stepper struct {
	o      Options
	attach chan int
	seized chan error
	main   chan change
	done   chan struct{} // the tracer is through
	free   chan struct{} // closed when no thread of the main process is traced
	stop   struct {
		sync.Mutex
		wanted   bool
		attached bool
		wake     [2]int // pid and tid of a thread that a signal makes stop, 0: none
		owed     int    // the thread that was sent it and has not met it yet
	}
	err error // of the tracer, when it is through

	// Of the tracer.
	mainPID   int
	threads   map[int]*thread
	early     map[int]bool // threads that stand and are not known yet
	processes map[int]*process
	order     []*thread // of those that live, for their turns
	running   *thread   // makes a step
	last      *thread   // whose turn it is
	turn      int       // instructions left of it
	now       uint64    // TSC
	random    *rand.Rand
	truthFile *os.File
	truthBuf  *bufio.Writer
	truth     *truth.Writer
	out       *sample.Writer
	buildID   func(string) string
	vdso      bool // it is written
	agent     bool // likewise
	entered   bool // the program has begun (Options.Entry)
	steps     uint64
	passing   bool // threads are let go where they stop
	buffers   uint32
	xstate    []byte
	flowLost  uint64
	flowWhy   string // the first loss

	interrupted, freed bool
}

// A change is news of the main process, as wait gives them.
type change struct {
	ws  unix.WaitStatus
	err error
}

// Numbers of the events in perf.data.
const (
	eventPT = iota
	eventLoads
	eventStores
)

// samplesRegisters are those that PEBS gives: the general ones, rip and rflags (arch/x86/events/perf_event.h, PEBS_GP_REGS).
const samplesRegisters = 1<<perf.RegAX | 1<<perf.RegBX | 1<<perf.RegCX | 1<<perf.RegDX | 1<<perf.RegSI | 1<<perf.RegDI | 1<<perf.RegBP | 1<<perf.RegSP |
	1<<perf.RegIP | 1<<perf.RegFlags | 0xff<<perf.RegR8

// events are those that a processor of today would be asked for (MEM_INST_RETIRED.ALL_LOADS and ALL_STORES of Sapphire Rapids).
func events(period uint64) ([]perf.Event, []perf.PMU) {
	const ptType, rawType = 8, 4
	identity := perf.SampleIP | perf.SampleTID | perf.SampleTime | perf.SampleIdentifier
	user := perf.FlagExcludeKernel | perf.FlagExcludeHV | perf.FlagSampleIDAll
	memory := perf.Attr{
		Type: rawType, SamplePeriod: period, SampleType: identity | perf.SampleAddr | perf.SampleRegsIntr, Flags: user.WithPreciseIP(3), SampleRegsIntr: samplesRegisters,
	}
	loads, stores := memory, memory
	loads.Config, stores.Config = 0x81d0, 0x82d0
	side := perf.FlagMmap | perf.FlagMmap2 | perf.FlagComm | perf.FlagCommExec | perf.FlagTask
	flow := perf.Attr{
		Type: ptType, Config: ptConfig | uint64(timing.MTCFreq)<<sample.PTMTCFreq, SamplePeriod: 1, SampleType: identity, Flags: user | side,
	}
	return []perf.Event{
		{Attr: flow, IDs: []uint64{1}, Name: "intel_pt//u"},
		{Attr: loads, IDs: []uint64{2}, Name: "mem_inst_retired.all_loads:uppp"},
		{Attr: stores, IDs: []uint64{3}, Name: "mem_inst_retired.all_stores:uppp"},
	}, []perf.PMU{{Type: rawType, Name: "cpu"}, {Type: ptType, Name: "intel_pt"}}
}

// New makes the files in o.Dir, which must be there.
func New(o Options) (*Stepper, error) {
	if o.Period == 0 {
		return nil, errors.New("a period of 0 accesses")
	}
	s := &Stepper{
		o: o, attach: make(chan int), seized: make(chan error), main: make(chan change, 16), done: make(chan struct{}), free: make(chan struct{}),
		threads: map[int]*thread{}, early: map[int]bool{}, processes: map[int]*process{}, random: rand.New(rand.NewPCG(o.Seed, 0x5eed)),
		buildID: buildIDs(), xstate: make([]byte, xsave().size),
	}
	evs, pmus := events(o.Period)
	var err error
	if s.out, err = sample.Create(o.Dir, sample.WriterOptions{
		Events: evs, PMUs: pmus, Clock: sample.ClockOf(tsc.Frequency()), PT: eventPT, Timing: timing, Command: o.Command, Version: o.Version,
	}); err != nil {
		return nil, err
	}
	if s.truthFile, err = os.Create(filepath.Join(o.Dir, sample.TruthFile)); err == nil {
		s.truthBuf = bufio.NewWriterSize(s.truthFile, 1<<18)
		s.truth = truth.NewWriter(s.truthBuf)
		err = sample.WriteInfo(o.Dir, s.info(false))
	}
	if err != nil {
		_ = s.out.Close()
		return nil, fmt.Errorf("samples: %w", err)
	}
	go s.trace()
	return s, nil
}

func (s *Stepper) info(complete bool) sample.Info {
	return sample.Info{
		Mode: sample.Step, Period: s.o.Period, Seed: s.o.Seed, Hz: tsc.Frequency(), Filter: s.o.Filter, Samples: s.out.Samples, Steps: s.steps,
		LetGo: s.passing, Truncated: s.flowLost, Complete: complete,
	}
}

// Attach makes a process, which must be about to execute the program, one that is stepped from its first instruction on.
func (s *Stepper) Attach(pid int) error {
	s.stop.Lock()
	s.stop.attached = true
	s.stop.Unlock()
	s.attach <- pid
	return <-s.seized
}

// Wait gives the next change of the main process as wait4 would: its end, or a stop by job control.
func (s *Stepper) Wait() (unix.WaitStatus, error) {
	select {
	case c := <-s.main:
		return c.ws, c.err
	case <-s.free:
	case <-s.done:
	}
	select { // its end comes before
	case c := <-s.main:
		return c.ws, c.err
	default:
		return s.plainWait()
	}
}

// plainWait waits for a program that is not stepped any more.
func (s *Stepper) plainWait() (ws unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(s.mainPID, &ws, unix.WUNTRACED, nil); err != unix.EINTR {
			return ws, err
		}
	}
}

// Close lets go of what is still stepped, completes the files and returns the first error of the recording.
func (s *Stepper) Close() error {
	s.stop.Lock()
	s.stop.wanted = true
	attached, wake := s.stop.attached, s.stop.wake
	// It stands for the signal, which it must never get: it would stay stopped for good. Whoever sees what is wanted knows of the signal.
	if attached && wake[1] != 0 && unix.Tgkill(wake[0], wake[1], unix.SIGSTOP) == nil {
		s.stop.owed = wake[1]
	}
	s.stop.Unlock()
	if !attached {
		s.attach <- 0
	}
	<-s.done
	err := s.err
	for _, e := range []error{s.truth.Close(), s.truthBuf.Flush(), s.truthFile.Close(), s.out.Close(), sample.WriteInfo(s.o.Dir, s.info(true))} {
		if err == nil && e != nil {
			err = fmt.Errorf("samples: %w", e)
		}
	}
	if s.flowLost > 0 && s.o.Warn != nil {
		s.o.Warn(fmt.Sprintf("%d instructions could not follow the one before in the control flow, which says so (overflow); the first: %s", s.flowLost, s.flowWhy))
	}
	return err
}

// stopping says whether Close was called.
func (s *Stepper) stopping() bool {
	s.stop.Lock()
	defer s.stop.Unlock()
	return s.stop.wanted
}

// trace is the tracer: all requests must come from one thread, which ends with it, so that the kernel lets go of whatever may be left.
func (s *Stepper) trace() {
	runtime.LockOSThread()
	defer close(s.done)
	if unix.Gettid() == unix.Getpid() { // the first thread never ends
		over := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			s.traceHere()
			close(over)
		}()
		<-over
		return
	}
	s.traceHere()
}

func (s *Stepper) traceHere() {
	pid := <-s.attach
	if pid == 0 {
		return
	}
	s.mainPID = pid
	opts := options
	if s.o.Follow {
		opts |= following
	}
	if err := ptrace(unix.PTRACE_SEIZE, pid, 0, uintptr(opts)); err != nil {
		s.seized <- fmt.Errorf("stepping needs ptrace, which is refused (%w): see /proc/sys/kernel/yama/ptrace_scope, or the container's seccomp profile", err)
		return
	}
	s.seized <- nil
	defer quietly()()
	s.threads[pid] = &thread{tid: pid, state: inKernel}
	s.stop.Lock()
	s.stop.wake = [2]int{pid, pid}
	s.stop.Unlock()
	s.err = s.loop()
	if s.err == nil {
		s.err = s.flushAll()
	}
}
