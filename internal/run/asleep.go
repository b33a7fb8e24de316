package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Hangs that no events tell of: threads that wait at futexes of the program's own making, or of a library's (std::latch, std::atomic::wait, std::future, Rust's Mutex). The kernel is asked instead, now and
// then, where each thread of a process is (agent.Standstill). If all are asleep where only one of them could wake another, that is a hang, whatever the words mean to the program; decisions.md, 58.

// rest is what is known of a process that may have gone to sleep.
type rest struct {
	st    agent.Standstill
	next  time.Time // of the next look
	since time.Time // since when each look has found all its threads asleep; zero: the last has not
	told  bool
}

const (
	lookEvery     = 500 * time.Millisecond // at a process that was awake
	lookAgain     = 100 * time.Millisecond // at one that was asleep
	sleepsLong    = time.Second            // how long a process must have been asleep
	sleepsInEpoch = 4 * time.Second
	sleepsInLocks = 4 * time.Second
)

// patience is how long the process must have been asleep. What waits for locks, conditions and so on is judged by events, which say more. While epochs are recorded such a wait is told when it has lasted (guardwant.c); and whether
// all threads wait is known only when those that have ended are gone, which is when their epoch ends.
func (w *watch) patience(process uint64) time.Duration {
	long := sleepsLong
	if w.opts.Epochs.On {
		long = sleepsInEpoch
	}
	if slices.ContainsFunc(w.sess.Threads(process), func(t agent.ThreadState) bool { return t.WaitKind == 0 }) {
		return long
	}
	if w.opts.Epochs.On {
		long += max(w.opts.Epochs.Most, DefaultEpoch)
	}
	return long + sleepsInLocks
}

// hangs says that it was reported that no thread of the process will ever go on.
func (r *rest) hangs() bool { return r != nil && r.told }

func (w *watch) lookForSleep() {
	if w.sess == nil {
		return
	}
	now := time.Now()
	for p := range w.live {
		r := w.rest[p]
		if r == nil {
			r = &rest{next: now.Add(lookEvery)}
			w.rest[p] = r
		}
		if r.told || now.Before(r.next) || w.live[p] {
			continue
		}
		var joins []uint32
		if w.opts.Epochs.On {
			joins = w.det.Joining(p)
		}
		asleep, still := r.st.Look(w.sess, p, joins)
		if !asleep {
			r.next, r.since = now.Add(lookEvery), time.Time{}
			continue
		}
		r.next = now.Add(lookAgain)
		if r.since.IsZero() {
			r.since = now
		}
		if !still || now.Sub(r.since) < sleepsLong || w.det.Stuck(p) || now.Sub(r.since) < w.patience(p) {
			continue
		}
		if list := r.st.Sleepers(w.sess, p); list != nil {
			r.told = true
			w.tellSleep(p, list)
		} else {
			r.next = now.Add(10 * lookEvery) // what lets it go on comes from outside, and takes more to find out
		}
	}
}

// tellSleep reports a process whose threads are these, all of them asleep. Those that wait for something that nobody is left to give come first: they are the reason.
func (w *watch) tellSleep(process uint64, list []agent.Sleeper) {
	joins := map[int]bool{}
	for _, t := range w.sess.Threads(process) {
		joins[int(t.TID)] = t.WaitKind == wire.ObjectThread
	}
	slices.SortStableFunc(list, func(a, b agent.Sleeper) int {
		switch {
		case joins[a.Own] == joins[b.Own]:
			return 0
		case joins[a.Own]:
			return 1
		}
		return -1
	})
	words := map[int]uint64{}
	for _, t := range list[:min(len(list), maxAsleep)] {
		words[t.TID] = t.Word
	}
	for _, p := range w.sess.Processes() {
		if p.Process != process {
			continue
		}
		f := w.threadsOf(p, words)
		f.Rule, f.Fatal = finding.RuleHang, true
		slices.SortStableFunc(f.Parts, func(a, b finding.Part) int { return rank(&a) - rank(&b) })
		if n := len(list) - maxAsleep; n > 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("%d more threads sleep", n))
		}
		f.Message = "Every thread of the process sleeps without a time limit, and none is left to wake another: " + gist(&f)
		w.found(f)
	}
}

// gist says of the first few threads where they sleep.
func gist(f *finding.Finding) string {
	var list []string
	for i := range f.Parts {
		if len(list) == 4 {
			return strings.Join(list, ", ") + ", …"
		}
		p := &f.Parts[i]
		who := fmt.Sprintf("T%d", p.Thread)
		switch p.Thread {
		case 0:
			continue
		case 1:
			who = "the main thread"
		}
		if what, ok := strings.CutPrefix(p.Text, sleepText); ok {
			list = append(list, who+" at "+what)
		} else if what, ok := strings.CutPrefix(p.Text, waitText); ok {
			list = append(list, who+" for "+what)
		}
	}
	return strings.Join(list, ", ")
}

// maxAsleep bounds the threads that are shown.
const maxAsleep = 16

// rank orders what threads do.
func rank(p *finding.Part) int {
	if p.Text == waitText+joinText {
		return 1
	}
	return 0
}
