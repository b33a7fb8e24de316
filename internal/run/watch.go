package run

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/access"
	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/detect"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/target"
	"github.com/ripstop/ripstop/internal/wire"
)

// watch is the session's handler: a Judge, and what is done to a living program. Its methods run on the session's loop.
type watch struct {
	*Judge
	opts *Options
	sess *agent.Session

	accesses *access.Teller      // nil: they are not looked at
	patched  func() engine.Stats // with accesses
	live     map[uint64]bool     // processes; true: it has been put down
	halted   bool                // by HaltOnFirst
	hang     hang
	rest     map[uint64]*rest // of living processes
	events   uint64
	crashes  int  // that agents have told of
	put      bool // a process was put down
}

func newWatch(o *Options, rep *report.Reporter, sym target.Symbolizer) *watch {
	if o.OnDeadlock == "" {
		o.OnDeadlock = Exit
	}
	w := &watch{opts: o, live: map[uint64]bool{}, rest: map[uint64]*rest{}}
	w.Judge = NewJudge(detect.Config{
		Confirm:    func(p uint64, threads []uint32) bool { return w.sess.Blocked(p, threads) },
		ConfirmAll: func(p uint64, threads []uint32) bool { return w.sess.AllBlocked(p, threads) },
		Epochs:     o.Epochs.On,
	}, sym, rep)
	w.hideMov = o.MovAtomics == race.Hide
	w.epochs, w.again = o.Epochs.On, o.Epochs.Races
	return w
}

// Event is the Handler's.
func (w *watch) Event(process uint64, e *wire.Event) {
	w.events++
	if e.Type == wire.TypeCrash {
		w.crashes++
	}
	if _, ok := w.live[process]; !ok {
		w.live[process] = false
	}
	w.Judge.Event(process, e)
}

// Batch is the Handler's.
func (w *watch) Batch() {
	w.det.Tick()
	w.lookForSleep()
	if w.opts.OnDeadlock != Continue {
		for p, done := range w.live {
			if !done && (w.det.Stuck(p) || w.rest[p].hangs()) && w.reported() {
				w.live[p] = true
				w.putDown(p)
			}
		}
	}
	if w.opts.HaltOnFirst && !w.halted && w.reported() {
		w.halted = true
		w.say("something was found: the program is ended (--halt-on-first)")
		for p := range w.live {
			w.live[p] = true
			w.end(p, syscall.SIGTERM, termTime)
		}
	}
	if w.opts.HangTimeout > 0 && w.sess != nil {
		w.checkHang()
	}
}

// End is the Handler's.
func (w *watch) End(process uint64) {
	w.Judge.End(process)
	delete(w.live, process)
	delete(w.rest, process)
}

// Patience with a process that is to end.
const (
	termTime  = 2 * time.Second
	abortTime = time.Minute // a core dump may be large
)

// putDown ends a stuck process.
func (w *watch) putDown(process uint64) {
	sig, patience := syscall.SIGTERM, termTime
	if w.opts.OnDeadlock == Abort {
		sig, patience = syscall.SIGABRT, abortTime
	}
	w.say("all threads of %s are stuck: it is ended (--on-deadlock=%s)", processName(w.set, process), w.opts.OnDeadlock)
	w.put = true
	w.end(process, sig, patience)
}

// end sends a signal, and SIGKILL if that does not help.
func (w *watch) end(process uint64, sig syscall.Signal, patience time.Duration) {
	sess := w.sess
	if err := sess.Kill(process, sig); err != nil {
		w.say("%s: %v", processName(w.set, process), err)
	}
	time.AfterFunc(patience, func() { _ = sess.Kill(process, syscall.SIGKILL) }) // an error: it is gone
}

// crashSignals are those that a guarded program is expected to tell of before it dies by them.
var crashSignals = map[syscall.Signal]bool{syscall.SIGSEGV: true, syscall.SIGBUS: true, syscall.SIGFPE: true, syscall.SIGILL: true, syscall.SIGABRT: true}

// ended says so where the program was ended by a crash that no agent could tell of.
func (w *watch) ended(status agent.Status) {
	if w.opts.Guard != nil && !status.Exited && crashSignals[status.Signal] && w.crashes == 0 && !w.put {
		w.Warn(fmt.Sprintf("the program was ended by %s where nothing of it could be told: a stack that overflowed, the program's own handler, or the signal was sent to it", unix.SignalName(status.Signal)))
	}
}

func (w *watch) say(format string, args ...any) {
	fmt.Fprintf(w.opts.Messages, "ripstop: %s\n", fmt.Sprintf(format, args...))
}
