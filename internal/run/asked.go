package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/ctl"
	"github.com/ripstop/ripstop/internal/detect"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/wire"
)

// asked answers what `ripstop ctl` asks of a run.
type asked struct {
	w     *watch
	sess  *agent.Session
	begin time.Time
}

// listen has `ripstop ctl` answered until the function that it returns is called.
func (w *watch) listen(sess *agent.Session, begin time.Time) (end func()) {
	s, err := ctl.Listen((&asked{w, sess, begin}).answer)
	if err != nil {
		w.notSeen.add(false, 0, "", fmt.Sprintf("what 'ripstop ctl' could have asked: no socket for it could be made (%v)", err))
		return func() {}
	}
	return s.Close
}

// answer is the ctl.Handler.
func (k *asked) answer(ctx context.Context, q ctl.Question) ctl.Answer {
	p, ok := k.process(q.PID)
	if !ok {
		return ctl.No(ctl.Absent, "process %d is not watched here", q.PID)
	}
	switch q.Do {
	case ctl.DoStatus:
		return k.status(ctx, p)
	case ctl.DoReport:
		return k.report(q)
	case ctl.DoCheckpoint:
		return k.epoch(ctx, q, p, wire.GuardWantCheckpoint)
	case ctl.DoRollback:
		return k.epoch(ctx, q, p, wire.GuardWantRollback)
	}
	return ctl.No(ctl.Unsupported, "%q is not answered by a run", q.Do)
}

// process finds the process that is meant: that one, or for ourselves our child, else the oldest that lives.
func (k *asked) process(pid int) (found agent.Info, ok bool) {
	for _, p := range k.sess.Processes() {
		switch {
		case p.PID == pid, pid == os.Getpid() && parent(p.PID) == pid:
			return p, true
		case pid == os.Getpid() && !ok:
			found, ok = p, true
		}
	}
	return found, ok
}

// parent is the parent of a process; 0: it cannot be told.
func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // state is field 0
	if err != nil || len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(string(f[1]))
	return n
}

// mode is what ripstop was told to do.
func (o *Options) mode() string {
	switch {
	case o.Epochs.On:
		return fmt.Sprintf("guard --epochs %v", o.Epochs.Most)
	case o.Guard != nil:
		return "guard"
	case o.Shared:
		return "run --races=shared"
	case o.Full:
		return "run --full"
	}
	return "run"
}

// statusWithin is how long a status waits for what only the process itself can say.
const statusWithin = 300 * time.Millisecond

func (k *asked) status(ctx context.Context, p agent.Info) ctl.Answer {
	k.settle()
	res := k.w.rep.Result()
	s := &ctl.Status{
		Program: p.Exe, PID: p.PID, Ripstop: os.Getpid(), Mode: k.w.opts.mode(), Since: k.begin, Processes: len(k.sess.Processes()),
		Findings: res.New, Suppressed: res.Suppressed, Known: res.Known,
	}
	s.Threads, _, _ = agent.Tasks(p.PID) // an error: it is ending
	if e, ok := k.sess.Epochs(p.Process); ok && e.State != agent.NoEpochs {
		s.Epochs = k.epochs(ctx, p, &e)
		if s.Epochs.Recording && s.Threads > 1 {
			s.Threads-- // the coordinator
		}
	}
	return ctl.Answer{Outcome: ctl.Done, Status: s}
}

func (k *asked) epochs(ctx context.Context, p agent.Info, e *agent.Epochs) *ctl.Epochs {
	out := &ctl.Epochs{
		Recording: e.State == agent.EpochsOn, Begun: e.Stats.Epochs, Ended: e.Stats.Epochs, Busy: e.Stats.Busy, Lost: map[string]uint64{}, Verdicts: map[string]uint64{},
		PresentMS: milliseconds(e.Age),
	}
	for i, n := range e.Stats.Lost {
		if n > 0 {
			out.Lost[detect.LostWords(wire.GuardLost(i))] = n
		}
	}
	for i, n := range e.Stats.Verdicts {
		if n > 0 {
			out.Verdicts[wire.GuardVerdict(i).String()] = n
		}
	}
	if e.LastLost != 0 {
		out.LastLost = detect.LostWords(e.LastLost)
	}
	if !out.Recording {
		return out
	}
	out.Begun++
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	switch a, err := k.sess.AskEpochs(ctx, p.Process, wire.GuardWantStatus); {
	case err != nil || a.Error != 0:
		out.Unknown = "the process does not answer now: an epoch is being executed again, or it is stopped or about to end"
	default:
		out.LogBytes, out.Events = &a.LogBytes, &a.Events
		if a.Lost != 0 {
			out.NowLost = detect.LostWords(a.Lost)
		}
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// settle returns when what has been told so far has been judged and written.
func (k *asked) settle() bool {
	if !k.sess.Do(func() {}) {
		return false
	}
	k.w.reported()
	return true
}

func (k *asked) report(q ctl.Question) ctl.Answer {
	var summary *report.Summary
	if k.settle() {
		k.sess.Do(func() {
			s := k.w.summary(agent.Status{}, k.sess.Stats(), nil, time.Since(k.begin))
			summary = &s
		})
	}
	if summary == nil {
		return ctl.Ended(q)
	}
	var b bytes.Buffer
	res, err := k.w.rep.Snapshot(q.Format, &b, *summary)
	if err != nil {
		return ctl.No(ctl.CouldNot, "the report could not be made: %v", err)
	}
	a := ctl.Answer{Outcome: ctl.Done, Report: b.Bytes()}
	if res.New > 0 {
		a.Exit = k.w.opts.ExitCode
	}
	return a
}

// beginWithin is how long a process may take to record its first epoch.
const beginWithin = 2 * time.Second

// childAge is guardfork.c's AGE_MS.
const childAge = 200 * time.Millisecond

// epoch has an epoch of the process end, and perhaps be executed again.
func (k *asked) epoch(ctx context.Context, q ctl.Question, p agent.Info, want wire.GuardWant) ctl.Answer {
	no := func(o ctl.Outcome, format string, args ...any) ctl.Answer {
		return ctl.No(o, "process %d: "+format, append([]any{p.PID}, args...)...)
	}
	if !k.w.opts.Epochs.On {
		return no(ctl.Unsupported, "%s records no epochs: no %s", k.w.opts.mode(), q.Do)
	}
	for until := time.Now().Add(beginWithin); ; {
		e, ok := k.sess.Epochs(p.Process)
		if !ok {
			return no(ctl.Absent, "%v", agent.ErrGone)
		}
		if e.State == agent.EpochsOver {
			return no(ctl.Unsupported, "its epochs are not recorded, or not any more: not all of its code could be patched, or it makes what no epoch can follow (a sandbox, tasks of a raw clone)")
		}
		if e.State == agent.EpochsOn {
			break
		}
		if k.w.opts.Epochs.Late && time.Now().After(until) {
			return no(ctl.Unsupported, "its epochs are not recorded yet: they begin with its second thread (--epochs-from=thread)")
		}
		if time.Now().After(until) {
			return no(ctl.Unsupported, "its epochs are not recorded, or not yet: it was made by fork, and they begin when it makes a thread, or comes out of a wait or another call when it is %v old", childAge)
		}
		select {
		case <-ctx.Done():
			return k.late(q, p)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, stopped, err := agent.Tasks(p.PID); err == nil && stopped {
		return k.late(q, p)
	}
	a, err := k.sess.AskEpochs(ctx, p.Process, want)
	switch {
	case errors.Is(err, agent.ErrGone):
		return no(ctl.Absent, "%v", err)
	case err != nil:
		return k.late(q, p)
	case a.Error == unix.EBUSY && want == wire.GuardWantRollback:
		return no(ctl.CouldNot, "not all threads came to the end of the epoch in time (they compute without locks or calls, or the machine is busy): it was not executed again")
	case a.Error == unix.EBUSY:
		return no(ctl.CouldNot, "not all threads could be stopped in time: the epoch goes on")
	case a.Error == unix.ENOTSUP:
		return no(ctl.CouldNot, "the epoch could not be executed again: %s; another has begun", detect.LostWords(a.Lost))
	case a.Error == unix.ENOSYS:
		return no(ctl.Unsupported, "its epochs are not recorded any more")
	case a.Error != 0:
		return no(ctl.CouldNot, "%v", a.Error)
	}
	e := &ctl.Epoch{Number: a.Ended + 1, TookMS: milliseconds(a.Took), Events: a.Events, LogBytes: a.LogBytes}
	if a.Lost != 0 {
		e.LostAs = detect.LostWords(a.Lost)
	}
	if want == wire.GuardWantRollback {
		e.Verdict, e.Words, e.Tries = a.Verdict.String(), detect.VerdictWords(a.Verdict), a.Tries
		if d := a.Differs; a.Verdict != wire.GuardVerdictIdentical {
			hex := func(v uint64) string { return fmt.Sprintf("%#x", v) }
			e.Differs = &ctl.Difference{Event: d[0], Address: hex(d[1]), Was: hex(d[2]), Is: hex(d[3]), Thread: d[4]}
		}
	}
	return ctl.Answer{Outcome: ctl.Done, Epoch: e}
}

// late says that the process has not answered, and why if that can be seen.
func (k *asked) late(q ctl.Question, p agent.Info) ctl.Answer {
	if _, stopped, err := agent.Tasks(p.PID); err == nil && stopped {
		return ctl.No(ctl.CouldNot, "process %d is stopped by a signal, and answers when it goes on (SIGCONT)", p.PID)
	}
	return ctl.Late(q)
}
