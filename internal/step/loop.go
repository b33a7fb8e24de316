package step

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tracee"
	"github.com/ripstop/ripstop/internal/truth"
	"github.com/ripstop/ripstop/internal/tsc"
	"github.com/ripstop/ripstop/internal/x86"
)

const (
	// With more repetitions than this it is cheaper to let them run up to a breakpoint than to step each.
	fewRepetitions = 16

	longestTurn = 200       // instructions that a thread runs while others are ready
	flowChunk   = 256 << 10 // bytes of control flow after which they are written
)

// loop steps until no thread is left.
func (s *Stepper) loop() error {
	for len(s.threads) > 0 {
		if s.stopping() {
			s.interruptAll()
		}
		if s.running == nil {
			s.now = tsc.Now()
			if t := s.next(); t != nil {
				if err := s.step(t); err != nil {
					return err
				}
				continue
			}
			if len(s.threads) == 0 {
				break
			}
		}
		if err := s.await(); err != nil {
			return err
		}
	}
	return nil
}

// await takes one change of a thread.
func (s *Stepper) await() error {
	var ws unix.WaitStatus
	tid, err := wait4(&ws)
	if errors.Is(err, unix.ECHILD) && len(s.order) == 0 { // it could not be executed, and whoever started it has its status
		clear(s.threads)
		return nil
	}
	if errors.Is(err, unix.ECHILD) {
		return fmt.Errorf("BUG: stepping %d threads, the kernel knows none of them", len(s.threads))
	}
	if err != nil {
		return fmt.Errorf("waiting for stepped threads: %w", err)
	}
	s.now = tsc.Now()
	return s.stopped(tid, ws)
}

// next chooses the thread to step; nil if none is ready. While the program is let go none is, for those that were go.
func (s *Stepper) next() *thread {
	if s.o.Limit > 0 && s.steps >= s.o.Limit {
		s.passing = true
	}
	if s.passing {
		for i := 0; i < len(s.order); {
			if t := s.order[i]; t.state == ready && !t.rep.on {
				s.letGo(t) // takes it out of the list
			} else if t.state == ready {
				return t
			} else {
				i++
			}
		}
		return nil
	}
	if t := s.last; t != nil && t.state == ready && (s.turn > 0 || t.rep.on) {
		s.turn--
		return t
	}
	n := 0
	for _, t := range s.order {
		if t.state == ready {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	n = s.random.IntN(n)
	for _, t := range s.order {
		if t.state == ready {
			if n == 0 {
				s.last, s.turn = t, s.random.IntN(longestTurn)
				return t
			}
			n--
		}
	}
	panic("BUG: step: no thread is ready after all")
}

// step lets a thread make a step. The next change that await takes is mostly its.
func (s *Stepper) step(t *thread) error {
	s.prepare(t)
	err := s.resume(t)
	if t.state = running; t.syscall {
		t.state = inKernel
	} else {
		s.running = t
	}
	return err
}

// resume lets a thread go on up to its next stop. One that was killed meanwhile is no error: its end will be told.
func (s *Stepper) resume(t *thread) error {
	how := unix.PTRACE_SINGLESTEP
	switch {
	case t.p == nil: // the program is not executed yet
		how = unix.PTRACE_CONT
	case t.syscall && t.sig == 0: // with a signal only a step stops at its handler
		how = unix.PTRACE_SYSCALL
	case t.rep.on && t.sig == 0 && t.regs.Rcx > fewRepetitions && t.padding.PutInt3(t.tid, t.ip+uint64(t.in.Len)):
		t.rep.runs = true
		how = unix.PTRACE_CONT
	}
	if how == unix.PTRACE_SINGLESTEP && t.in != nil && t.in.padded && t.sig == 0 {
		t.padding.PutNop(t.tid, t.ip+uint64(t.in.Len))
	}
	err := ptrace(how, t.tid, 0, uintptr(t.sig))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stepping thread %d: %w", t.tid, err)
	}
	return nil
}

// stopped takes note of what a thread did.
func (s *Stepper) stopped(tid int, ws unix.WaitStatus) error {
	t := s.threads[tid]
	if t != nil && t == s.running {
		s.running = nil
	}
	if t != nil && ws.Stopped() {
		if err := t.padding.Take(tid); err != nil {
			t.state = inKernel // it was killed
			return nil
		}
	}
	event := int(ws) >> 16
	switch {
	case t != nil && t.enters && ws.Stopped():
		return s.entering(t, ws)
	case ws.Exited() || ws.Signaled():
		delete(s.early, tid)
		if t != nil {
			return s.ended(t, ws)
		}
		return nil
	case t == nil:
		s.early[tid] = true
		return nil
	case event == unix.PTRACE_EVENT_CLONE || event == unix.PTRACE_EVENT_FORK || event == unix.PTRACE_EVENT_VFORK:
		if err := s.made(t, eventMessage(tid)); err != nil {
			return err
		}
		return s.goOn(t)
	case event == unix.PTRACE_EVENT_EXEC:
		return s.execed(t, eventMessage(tid))
	case event == eventStop:
		return s.heldOrFreed(t, ws.StopSignal())
	case t.p == nil:
		if t.sig = int(ws.StopSignal()); t.sig == int(unix.SIGSTOP) && s.owes(t) {
			t.sig = 0
		}
		return s.goOn(t)
	case int(ws.StopSignal()) == callStop && !t.inside:
		t.inside = true
		return s.goOn(t)
	}
	return s.trapped(t, int(ws.StopSignal()))
}

// goOn resumes a thread that stands in the middle of a system call, or before the program's exec.
func (s *Stepper) goOn(t *thread) error {
	t.state = inKernel
	err := s.resume(t)
	t.sig = 0
	return err
}

// trapped takes note of a step, or of a signal.
func (s *Stepper) trapped(t *thread, sig int) error {
	var now registers
	if err := getRegisters(t.tid, &now); err != nil {
		t.state = inKernel // it was killed
		return nil
	}
	if t.rep.runs {
		t.rep.runs = false
		if sig == int(unix.SIGTRAP) && now.Rip != t.ip && signalCode(t.tid) == trapInt3 {
			sig = callStop // it ran, whole
		}
	}
	ran := now.Rip != t.ip && !t.restart
	switch sig {
	case callStop:
		ran, sig = true, 0
	case int(unix.SIGTRAP):
		again := t.in != nil && t.in.repeats && t.sig == 0
		code := int32(trapTrace)
		if t.sig != 0 || !again && (now.Rip == t.ip || t.in == nil || t.in.Flow == x86.FlowTrap || t.restart) {
			code = signalCode(t.tid)
		}
		switch code {
		case trapTrace, trapBrkpt:
			ran, sig = true, 0
		case trapNotify:
			s.interruptRepetition(t)
			s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.Handler, IP: t.ip, Value: uint64(t.sig)})
			t.flow.left(t.ip)
			ran, sig, t.syscall = false, 0, false
			unblockTrap(t.tid)
		}
	}
	if ran && t.execed && s.o.Entry && !s.entered {
		return s.enter(t, 0)
	}
	t.sig, t.state = sig, ready
	if ran && !t.execed {
		if err := s.ran(t, &now); err != nil {
			return err
		}
	}
	t.regs, t.inside = now, false
	if t.syscall && ran {
		if err := s.returned(t); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	if t.sig == int(unix.SIGSTOP) && s.owes(t) {
		t.sig = 0
	}
	if t.flow.size() > flowChunk {
		return s.writeFlow(t, false)
	}
	return nil
}

// enter has a thread that execve has just returned to run up to where the program begins, with a signal first, or 0.
func (s *Stepper) enter(t *thread, sig int) error {
	at, err := tracee.Entry(t.p.pid)
	if err == nil && !t.padding.PutInt3(t.tid, at) {
		err = fmt.Errorf("nothing can be written at %#x", at)
	}
	if err != nil {
		return fmt.Errorf("process %d: running it up to where the program begins: %w", t.p.pid, err)
	}
	t.ip, t.enters, t.state = at, true, inKernel
	if err := ptrace(unix.PTRACE_CONT, t.tid, 0, uintptr(sig)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: running it up to where the program begins: %w", t.p.pid, err)
	}
	return nil
}

// entering takes note of a stop on that way.
func (s *Stepper) entering(t *thread, ws unix.WaitStatus) error {
	if err := getRegisters(t.tid, &t.regs); err != nil {
		return nil // it was killed
	}
	t.enters = false
	sig := int(ws.StopSignal())
	switch event := int(ws) >> 16; {
	case event == eventStop && s.passing:
		s.letGo(t)
		return nil
	case event != 0:
		return fmt.Errorf("process %d: before the program begins it stops for more than a signal (event %d), which is not provided for", t.p.pid, event)
	case sig == int(unix.SIGSTOP) && s.owes(t):
		return s.enter(t, 0)
	case sig != int(unix.SIGTRAP) || signalCode(t.tid) != trapInt3 || t.regs.Rip != t.ip:
		return s.enter(t, sig)
	}
	s.entered, t.inside, t.sig, t.state = true, false, 0, ready
	if err := s.returned(t); err != nil {
		return err
	}
	return s.remap(t)
}

// heldOrFreed handles stops that are no signal's: the first of a new thread, those of job control and their end, and those that we asked for.
func (s *Stepper) heldOrFreed(t *thread, sig unix.Signal) error {
	t.sig = 0
	switch {
	case t.p != nil && !t.born:
		return s.begin(t)
	case s.passing:
		s.letGo(t)
		return nil
	case sig != unix.SIGTRAP:
		t.state = held
		if err := ptrace(unix.PTRACE_LISTEN, t.tid, 0, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("thread %d: staying stopped: %w", t.tid, err)
		}
		if t.tid == s.mainPID {
			s.main <- change{ws: unix.WaitStatus(uint32(sig)<<8 | 0x7f)}
		}
		return nil
	case t.p == nil || t.syscall:
		return s.goOn(t)
	}
	t.state = ready
	return nil
}

// made takes in the thread or process that a thread made.
func (s *Stepper) made(parent *thread, tid int) error {
	pid := group(tid)
	if pid == 0 || tid == 0 {
		return nil // killed already
	}
	p := s.processes[pid]
	if p == nil {
		p = parent.p.forked(pid)
		s.processes[pid] = p
	}
	t := &thread{tid: tid, p: p}
	s.add(t)
	if err := s.out.Fork(int32(pid), int32(tid), int32(parent.p.pid), int32(parent.tid), s.now); err != nil {
		return err
	}
	t.ip = uint64(parent.tid) // until it begins: who made it
	if s.early[tid] {
		delete(s.early, tid)
		return s.begin(t)
	}
	return nil
}

// begin takes in a thread that stands for the first time.
func (s *Stepper) begin(t *thread) error {
	maker := t.ip
	t.born = true
	if s.passing {
		s.letGo(t)
		return nil
	}
	if err := getRegisters(t.tid, &t.regs); err != nil {
		return nil // killed
	}
	t.state = ready
	s.introduce(t, maker)
	return s.out.TraceStart(int32(t.p.pid), int32(t.tid), s.now)
}

// introduce makes what a thread needs to be sampled.
func (s *Stepper) introduce(t *thread, maker uint64) {
	t.index = s.buffers
	s.buffers++
	t.flow.begin(t.p)
	for i := range t.left {
		t.left[i] = 1 + s.random.Uint64N(s.o.Period)
	}
	s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.Start, IP: t.regs.Rip, Value: maker})
}

// execed handles a program that was just executed; the thread stands inside execve and has its process's id, whichever thread it was.
func (s *Stepper) execed(t *thread, former int) error {
	first := t.p == nil
	if !first {
		caller := t
		if o := s.threads[former]; o != nil {
			caller = o
		}
		if caller.syscall {
			if err := s.ran(caller, &caller.regs); err != nil {
				return err
			}
			caller.flow.left(caller.ip)
		}
		for _, o := range append([]*thread(nil), s.order...) {
			if o.p == t.p && o != t {
				if err := s.gone(o); err != nil {
					return err
				}
			}
		}
		if err := s.writeFlow(t, false); err != nil {
			return err
		}
	}
	p := newProcess(t.tid)
	s.processes[t.tid] = p
	t.p, t.born, t.syscall, t.inside, t.execed, t.restart, t.rep.on = p, true, true, true, true, false, false
	if first {
		s.order = append(s.order, t)
	}
	if err := s.out.Comm(int32(t.tid), int32(t.tid), comm(t.tid), true, s.now); err != nil {
		return err
	}
	if first {
		s.introduce(t, 0)
		if err := s.out.TraceStart(int32(t.tid), int32(t.tid), s.now); err != nil {
			return err
		}
	} else {
		s.truth.Add(&truth.Step{PID: uint32(t.tid), TID: uint32(t.tid), Kind: truth.Exec, Value: uint64(former)})
		t.flow.begin(p)
	}
	t.nr = unix.SYS_EXECVE
	if err := s.remap(t); err != nil {
		return err
	}
	return s.goOn(t)
}

// add and gone keep the lists.
func (s *Stepper) add(t *thread) {
	s.threads[t.tid] = t
	s.order = append(s.order, t)
	s.setWake()
}

func (s *Stepper) remove(t *thread) {
	delete(s.threads, t.tid)
	for i, o := range s.order {
		if o == t {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	if s.last == t {
		s.last = nil
	}
	s.setWake()
	for _, o := range s.threads {
		if o.p == nil || o.p.pid == s.mainPID {
			return
		}
	}
	if !s.freed {
		s.freed = true
		close(s.free)
	}
}

// setWake chooses a thread that Close can make stop.
func (s *Stepper) setWake() {
	s.stop.Lock()
	defer s.stop.Unlock()
	s.stop.wake = [2]int{}
	for tid, t := range s.threads {
		s.stop.wake = [2]int{tid, tid}
		if t.p != nil {
			s.stop.wake[0] = t.p.pid
		}
		return
	}
}

// gone takes out a thread that is no more.
func (s *Stepper) gone(t *thread) error {
	if t.p != nil && t.born {
		s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.End, IP: t.ip})
		t.flow.left(t.regs.Rip)
		if err := s.writeFlow(t, true); err != nil {
			return err
		}
		if err := s.out.Exit(int32(t.p.pid), int32(t.tid), s.now); err != nil {
			return err
		}
	}
	s.remove(t)
	if t.p != nil && t.tid == t.p.pid {
		delete(s.processes, t.tid)
	}
	return nil
}

// ended handles the end of a thread, which of a process's first thread is the end of the process.
func (s *Stepper) ended(t *thread, ws unix.WaitStatus) error {
	if t.p != nil && t.syscall && !t.execed && (t.nr == unix.SYS_EXIT || t.nr == unix.SYS_EXIT_GROUP) {
		if err := s.ran(t, &t.regs); err != nil {
			return err
		}
		t.flow.left(t.ip)
		t.regs.Rip = t.ip
	}
	if t.tid == s.mainPID {
		s.main <- change{ws: ws}
	}
	return s.gone(t)
}

// letGo lets a thread that stands run on without being stepped.
func (s *Stepper) letGo(t *thread) {
	if t.p != nil && t.born {
		s.truth.Add(&truth.Step{PID: uint32(t.p.pid), TID: uint32(t.tid), Kind: truth.LetGo, IP: t.regs.Rip})
		t.flow.left(t.regs.Rip)
		_ = s.writeFlow(t, true) // a failure comes again at the end
	}
	if ws, over := s.meet(t); !over {
		_ = ptrace(unix.PTRACE_DETACH, t.tid, 0, uintptr(t.sig)) // it was killed, else
	} else if t.tid == s.mainPID {
		s.main <- change{ws: ws}
	}
	s.passing = true
	s.remove(t)
}

// owes says, once, whether the thread is to meet the SIGSTOP that Close sent.
func (s *Stepper) owes(t *thread) bool {
	s.stop.Lock()
	defer s.stop.Unlock()
	if s.stop.owed != t.tid {
		return false
	}
	s.stop.owed = 0
	return true
}

// meet lets a thread that stands go on to the SIGSTOP that Close sent it, if it has not met it: the signal is there, so no instruction runs before it. Over: it ended instead.
func (s *Stepper) meet(t *thread) (ws unix.WaitStatus, over bool) {
	if !s.owes(t) {
		return ws, false
	}
	for {
		if err := ptrace(unix.PTRACE_CONT, t.tid, 0, uintptr(t.sig)); err != nil {
			return ws, false // it was killed
		}
		t.sig = 0
		for {
			_, err := unix.Wait4(t.tid, &ws, unix.WALL, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EINTR) {
				return ws, false
			}
		}
		switch {
		case !ws.Stopped():
			return ws, true
		case int(ws)>>16 != 0: // of job control, or for our asking
		case ws.StopSignal() == unix.SIGSTOP:
			return ws, false
		default:
			t.sig = int(ws.StopSignal())
		}
	}
}

// interruptAll makes all threads stop, so that they can be let go.
func (s *Stepper) interruptAll() {
	if s.interrupted {
		return
	}
	s.interrupted, s.passing = true, true
	for _, t := range s.threads {
		if t.state == inKernel || t.state == held {
			_ = ptrace(unix.PTRACE_INTERRUPT, t.tid, 0, 0)
		}
	}
}

// writeFlow writes what a thread's control flow trace has; last: it is all.
func (s *Stepper) writeFlow(t *thread, last bool) error {
	if last {
		t.flow.finish()
	}
	if last {
		s.flowLost += t.flow.lost
		if s.flowWhy == "" {
			s.flowWhy = t.flow.why
		}
	}
	return s.out.Trace(t.index, int32(t.p.pid), int32(t.tid), t.flow.take(), last, s.now)
}

// flushAll writes what threads that are still there have; there are none but after an error.
func (s *Stepper) flushAll() error {
	for _, t := range append([]*thread(nil), s.order...) {
		if err := s.gone(t); err != nil {
			return err
		}
	}
	return nil
}
