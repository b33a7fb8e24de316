package detect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// judge makes findings of a set of stuck threads: one for each circle of threads that wait for each other and for each lock whose holder
// is gone; if there is none, one for all threads that wait with nobody left to wake them.
func (s *stuckSet) judge() {
	why := map[*thread][]blocker{}
	for _, t := range s.threads {
		why[t], _ = s.why(t)
	}
	type core struct {
		threads []*thread // each waits for the next, the last for the first or for nobody
		closed  bool
	}
	var cores []core
	used := map[*thread]bool{}
	for _, t := range s.threads {
		if used[t] {
			continue
		}
		if c := shortestCircle(t, why, used); c != nil {
			cores = append(cores, core{threads: c})
			for _, x := range c {
				used[x] = true
			}
		}
	}
	if len(cores) == 0 {
		cores = append(cores, core{threads: s.threads, closed: true})
	}
	told := true
	var fresh []core
	for _, c := range cores {
		if slices.ContainsFunc(c.threads, func(t *thread) bool { return t.want.reported }) {
			continue
		}
		if !s.confirmed(c.threads, c.closed || s.leansOnAll(c.threads)) {
			s.p.dirty = true // look again next time
			told = false
			continue
		}
		fresh = append(fresh, c)
	}
	s.p.allStuck = told && s.alone
	for _, c := range fresh {
		for _, t := range c.threads {
			t.want.reported = true
		}
		if c.closed {
			s.tellHang(c.threads)
		} else {
			s.tellCircle(c.threads, why)
		}
	}
}

// shortestCircle finds the shortest circle through t, or t alone if its lock's holder is gone; nil if t only waits behind others.
func shortestCircle(t *thread, why map[*thread][]blocker, used map[*thread]bool) []*thread {
	for _, b := range why[t] {
		if b.t == nil {
			return []*thread{t}
		}
	}
	from := map[*thread]*thread{}
	queue := []*thread{t}
	for i := 0; i < len(queue); i++ {
		for _, b := range why[queue[i]] {
			switch {
			case b.t == nil || used[b.t]:
			case b.t == t:
				var out []*thread
				for x := queue[i]; x != t; x = from[x] {
					out = append(out, x)
				}
				out = append(out, t)
				slices.Reverse(out)
				return out
			case from[b.t] == nil:
				from[b.t] = queue[i]
				queue = append(queue, b.t)
			}
		}
	}
	return nil
}

// leansOnAll reports whether the claim about these threads rests on all threads of the process being stuck.
func (s *stuckSet) leansOnAll(threads []*thread) bool {
	return slices.ContainsFunc(threads, func(t *thread) bool {
		if t.want.kind != wire.ObjectSem {
			blockers, _ := s.why(t)
			return t.want.late && slices.ContainsFunc(blockers, func(b blocker) bool { return b.gone != nil })
		}
		o := s.p.lookup(t.want.obj, t.want.kind)
		return len(threads) == 1 || o == nil || !s.provenLock(t, o)
	})
}

// confirmed asks the surroundings.
func (s *stuckSet) confirmed(threads []*thread, all bool) bool {
	cfg := &s.p.d.cfg
	if all {
		if cfg.ConfirmAll != nil {
			return cfg.ConfirmAll(s.p.id, numbers(s.threads))
		}
		if !s.p.atEnd {
			return false
		}
		for _, t := range threads {
			if blockers, closed := s.why(t); closed && len(blockers) == 0 && !s.certain(t) {
				return false
			}
		}
	}
	return cfg.Confirm == nil || cfg.Confirm(s.p.id, numbers(threads))
}

func numbers(threads []*thread) []uint32 {
	out := make([]uint32, len(threads))
	for i, t := range threads {
		out[i] = t.number
	}
	slices.Sort(out)
	return out
}

// tellCircle makes the finding of a circle, or of a thread whose lock's holder is gone.
func (s *stuckSet) tellCircle(circle []*thread, why map[*thread][]blocker) {
	first := why[circle[0]]
	rule := finding.RuleDeadlock
	switch {
	case len(circle) > 1:
	case slices.ContainsFunc(first, func(b blocker) bool { return b.ghost }):
		rule = finding.RuleForkDeadlock
	case slices.ContainsFunc(first, func(b blocker) bool { return b.t == circle[0] }):
		rule = finding.RuleSelfDeadlock
	}
	b := s.p.newTeller(rule)
	b.f.Fatal = s.p.allStuck
	var gist []string
	for _, t := range circle { // the locks of the circle get the first numbers
		if t.want.kind != wire.ObjectThread {
			b.object(t.want.obj, t.want.kind)
		}
	}
	for i, t := range circle {
		next := circle[(i+1)%len(circle)]
		blockers := why[t]
		if j := slices.IndexFunc(blockers, func(x blocker) bool { return x.t == next }); j > 0 {
			blockers = append([]blocker{blockers[j]}, slices.Delete(slices.Clone(blockers), j, j+1)...)
		}
		gist = append(gist, fmt.Sprintf("%s waits for %s", b.thread(t.number), b.waitsFor(t, blockers[0])))
		b.part(s.waiter(b, t, blockers, "Blocked here on "))
		if g := blockers[0].gone; g != nil && g.stack != 0 {
			b.part(finding.Part{Text: fmt.Sprintf("%s acquired here and never released", upper(b.named(t.want.obj, t.want.kind))), Thread: g.thread, Stack: b.stack(g.stack)})
		}
		if r := t.relock; r != nil && len(circle) == 1 {
			t.relock = nil
			id := b.object(r.ev.Obj, t.want.kind)
			for j, h := range b.f.Parts[0].Held {
				if h.Object == id && len(h.Stack) == 0 {
					b.f.Parts[0].Held[j].Stack = b.stack(r.ev.Stack2)
				}
			}
		}
	}
	switch rule {
	case finding.RuleSelfDeadlock:
		w := circle[0].want
		does := "that it holds itself"
		if w.kind == wire.ObjectOnce || w.kind == wire.ObjectGuard {
			does = "whose initialiser it runs itself"
		}
		b.f.Message = fmt.Sprintf("%s waits for %s %s", upper(b.thread(circle[0].number)), b.named(w.obj, w.kind), does)
	case finding.RuleForkDeadlock:
		b.f.Message = upper(gist[0])
		b.f.Notes = append(b.f.Notes, "the lock was held by another thread of the parent at the time of fork; the child has no such thread")
	default:
		if len(circle) > 1 {
			b.f.Message = "Cycle of waiting threads: " + strings.Join(gist, ", ")
		} else {
			b.f.Message = upper(gist[0])
		}
	}
	s.tellBehind(b, circle, why)
	s.lateNote(b, circle)
	s.p.say(s.uniqueKey(circle), b.f)
}

// tellBehind adds who is stuck because of the circle without being in it.
func (s *stuckSet) tellBehind(b *teller, circle []*thread, why map[*thread][]blocker) {
	behind := map[*thread]bool{}
	for _, t := range circle {
		behind[t] = true
	}
	for again := true; again; {
		again = false
		for _, t := range s.threads {
			if !behind[t] && slices.ContainsFunc(why[t], func(x blocker) bool { return x.t != nil && behind[x.t] }) {
				behind[t], again = true, true
			}
		}
	}
	left := 0
	for _, t := range s.threads {
		if !behind[t] || slices.Contains(circle, t) || t.want.reported {
			continue
		}
		if left++; left <= maxBehind {
			b.part(s.waiter(b, t, why[t], "Blocked behind them on "))
		}
	}
	if left > maxBehind {
		b.f.Notes = append(b.f.Notes, fmt.Sprintf("%d more threads are blocked behind them", left-maxBehind))
	}
}

// maxBehind and maxHeld bound what a finding lists.
const (
	maxBehind = 16
	maxHeld   = 16
)

// waiter is the part of a blocked thread.
func (s *stuckSet) waiter(b *teller, t *thread, blockers []blocker, text string) finding.Part {
	part := finding.Part{Text: text + b.wanted(t), Thread: t.number, Stack: b.stack(t.want.stack)}
	var by []string
	for _, x := range blockers {
		verb := "held by "
		if t.want.kind == wire.ObjectOnce || t.want.kind == wire.ObjectGuard {
			verb = "initialised by "
		}
		switch {
		case t.want.kind == wire.ObjectThread:
		case x.gone != nil:
			by = append(by, verb+b.thread(x.gone.thread)+", which has ended")
		case x.ghost:
			by = append(by, verb+"a thread that exists only in the parent process")
		case x.queue:
			by = append(by, "behind the waiting writer "+b.thread(x.t.number))
		case x.t == t:
			by = append(by, verb+"itself")
		default:
			by = append(by, verb+b.thread(x.t.number))
		}
	}
	if len(by) > 3 {
		by = append(by[:3], fmt.Sprintf("and %d more", len(by)-3))
	}
	if len(by) > 0 {
		part.Text += " (" + strings.Join(by, ", ") + ")"
	}
	held := t.want.held
	if t.want.kind == wire.ObjectSem || len(held) == 0 {
		held = s.heldBy(t)
	}
	for i, h := range held {
		if i == maxHeld {
			b.f.Notes = append(b.f.Notes, fmt.Sprintf("%s holds %d more locks", threadWord(t.number), len(held)-i))
			break
		}
		part.Held = append(part.Held, finding.Held{Object: b.object(h.Obj, wire.Object(h.Kind)), Shared: wire.Mode(h.Mode) == wire.ModeShared, Stack: b.stack(h.Stack)})
	}
	return part
}

// heldBy is all that t holds, with what only a full trace tells.
func (s *stuckSet) heldBy(t *thread) []wire.Held {
	out := slices.Clone(t.want.held)
	for i := range t.held {
		h := &t.held[i]
		if !slices.ContainsFunc(out, func(x wire.Held) bool { return x.Obj == h.obj }) {
			out = append(out, wire.Held{Obj: h.obj, Stack: h.stack, Mode: uint8(h.mode), Kind: uint8(h.kind)})
		}
	}
	return out
}

// wanted names what t is blocked on.
func (b *teller) wanted(t *thread) string {
	w := t.want
	switch w.kind {
	case wire.ObjectThread:
		return "the end of " + b.thread(w.target)
	case wire.ObjectRwlock:
		if w.mode == wire.ModeShared {
			return b.named(w.obj, w.kind) + " for reading"
		}
		return b.named(w.obj, w.kind) + " for writing"
	}
	return b.named(w.obj, w.kind)
}

// waitsFor is the gist: "M1 held by T3".
func (b *teller) waitsFor(t *thread, x blocker) string {
	w := t.want
	switch {
	case w.kind == wire.ObjectThread:
		return "the end of " + b.thread(w.target)
	case x.gone != nil:
		return fmt.Sprintf("%s, which %s held when it ended", b.named(w.obj, w.kind), b.thread(x.gone.thread))
	case x.ghost:
		return fmt.Sprintf("%s, which a thread of the parent process held at the time of fork", b.named(w.obj, w.kind))
	case x.queue:
		return fmt.Sprintf("%s behind the writer %s", b.object(w.obj, w.kind), b.thread(x.t.number))
	case w.kind == wire.ObjectOnce || w.kind == wire.ObjectGuard:
		return fmt.Sprintf("%s initialised by %s", b.object(w.obj, w.kind), b.thread(x.t.number))
	}
	return fmt.Sprintf("%s held by %s", b.object(w.obj, w.kind), b.thread(x.t.number))
}

// tellHang makes the finding of a process whose threads all wait, with no circle among them.
func (s *stuckSet) tellHang(threads []*thread) {
	rule := finding.RuleDeadlock
	var barrier *thread
	var waits []string
	for _, t := range threads {
		switch t.want.kind {
		case wire.ObjectCond, wire.ObjectSem:
			rule = finding.RuleHang
		case wire.ObjectBarrier:
			barrier = t
		}
	}
	b := s.p.newTeller(rule)
	b.f.Fatal = s.p.allStuck
	if s.p.d.cfg.ConfirmAll == nil {
		b.f.Notes = append(b.f.Notes, "judged from a recording, which has no events of threads that the C library makes for itself (for timers, message queues, asynchronous I/O): "+
			"one of these could still have woken a thread")
	}
	if rule == finding.RuleDeadlock && barrier != nil {
		w := barrier.want
		o := s.p.lookup(w.obj, w.kind)
		count := w.value
		if count == 0 {
			count = o.value
		}
		arrived := uint32(0)
		if o.phase != nil {
			arrived = o.phase.arrived
		}
		for _, t := range threads { // told late, without its arrival
			if t.want.late && t.want.obj == w.obj {
				arrived++
			}
		}
		b.f.Message = fmt.Sprintf("%s can never fill: it is for %d threads, %d arrived, and no thread is left that could", upper(b.named(w.obj, w.kind)), count, arrived)
	}
	// Those who wait for something that nobody is left to give come first: they are the reason.
	ordered := slices.Clone(threads)
	slices.SortStableFunc(ordered, func(x, y *thread) int { return rank(x) - rank(y) })
	for i, t := range ordered {
		if i == maxBehind {
			b.f.Notes = append(b.f.Notes, fmt.Sprintf("%d more threads wait", len(ordered)-i))
			break
		}
		blockers, _ := s.why(t)
		b.part(s.waiter(b, t, blockers, "Blocked here on "))
		waits = append(waits, fmt.Sprintf("%s for %s", threadWord(t.number), b.gist(t)))
	}
	if b.f.Message == "" {
		b.f.Message = "Every thread of the process waits, and none is left to wake another: " + strings.Join(waits[:min(len(waits), 4)], ", ")
		if len(waits) > 4 {
			b.f.Message += ", …"
		}
	}
	s.lateNote(b, threads)
	s.p.say(s.uniqueKey(threads), b.f)
}

func (b *teller) gist(t *thread) string {
	if t.want.kind == wire.ObjectThread {
		return "the end of " + threadWord(t.want.target)
	}
	return b.object(t.want.obj, t.want.kind)
}

func rank(t *thread) int {
	switch t.want.kind {
	case wire.ObjectCond, wire.ObjectSem, wire.ObjectBarrier:
		return 0
	}
	return 1
}

// uniqueKey keeps each deadlock a finding of its own: the report merges what reads the same.
func (s *stuckSet) uniqueKey(threads []*thread) string {
	key := "stuck"
	for _, t := range threads {
		key += fmt.Sprintf(" %d", t.serial)
	}
	return key
}
