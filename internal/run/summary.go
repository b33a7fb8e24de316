package run

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/wire"
)

// summary is what is said at the end, besides the findings.
func (w *watch) summary(status agent.Status, st agent.Stats, left []agent.Info, took time.Duration) report.Summary {
	s := report.Summary{Exited: status.Exited, ExitCode: status.Code, DurationMS: took.Milliseconds()}
	s.NotSeen = w.NotSeen(w.opts.Report.Verbose)
	if st.Processes == 0 {
		s.NotSeen = append(s.NotSeen, "the program did not load the agent (it clears LD_PRELOAD, or ended before the C library had started): nothing was watched")
	}
	if st.DetachedProcesses > 0 {
		s.NotSeen = append(s.NotSeen, fmt.Sprintf("the agent gave up in %d processes: what they did afterwards was not watched", st.DetachedProcesses))
	}
	if st.StackDrops > 0 {
		s.NotSeen = append(s.NotSeen, fmt.Sprintf("%d stacks were not kept", st.StackDrops))
	}
	if n := st.Guard.Lost[wire.GuardLostMemory]; n > 0 {
		s.NotSeen = append(s.NotSeen, fmt.Sprintf("%d epochs could not be executed again: what they began with was not kept, as there was no memory for it, or a limit (ulimit -v, -d) leaves it to the program", n))
	}
	if w.accesses != nil {
		s.NotSeen = append(s.NotSeen, "accesses inside libm, libgcc, libstdc++ (streams and the like) and libraries that define malloc are not seen, nor are those of the rarer functions of libc (most of those of wide strings)")
		s.NotSeen = append(s.NotSeen, w.accesses.NotSeen()...)
		s.NotSeen = append(s.NotSeen, racesNotSeen(st)...)
	}
	s.Unasked = unasked(w.opts, st)
	if text := LetGo(left); text != "" {
		s.NotSeen = append(s.NotSeen, text)
	}
	if w.opts.Stats {
		s.Stats = Stats(st)
		if w.opts.Epochs.On {
			s.Stats = append(s.Stats, epochStats(st.Guard)...)
		}
		if w.accesses != nil {
			s.Stats = append(s.Stats, report.Stat{Name: "races, taken for ordered", Value: fmt.Sprint(st.RaceAmnesties)},
				report.Stat{Name: "races, pages forgotten", Value: fmt.Sprint(st.RaceEvicted)})
			if p := w.patched(); !w.opts.Shared {
				s.Stats = append(s.Stats, report.Stat{Name: "instructions that access memory", Value: fmt.Sprint(p.Sites + p.Covered)},
					report.Stat{Name: "instructions that access memory, in code that was run", Value: fmt.Sprint(p.Sites)},
					report.Stat{Name: "instructions that access memory, patched", Value: fmt.Sprint(p.Held)})
			} else {
				s.Stats = append(s.Stats, report.Stat{Name: "shared memory, first accesses told to nobody", Value: fmt.Sprint(st.SharePardons)},
					report.Stat{Name: "shared memory, keys taken", Value: fmt.Sprint(st.ShareKeysTaken)},
					report.Stat{Name: "shared memory, pages of the heap shared", Value: fmt.Sprint(st.SharePages)},
					report.Stat{Name: "shared memory, pages lent", Value: fmt.Sprint(st.ShareLent)},
					report.Stat{Name: "shared memory, releases that withdrew", Value: fmt.Sprint(st.ShareRests)},
					report.Stat{Name: "shared memory, faults", Value: fmt.Sprint(st.ShareFaults)},
					report.Stat{Name: "shared memory, instructions stepped", Value: fmt.Sprint(st.ShareSteps)},
					report.Stat{Name: "shared memory, instructions asked for", Value: fmt.Sprint(p.Requests[wire.PatchAskSite])},
					report.Stat{Name: "shared memory, instructions patched", Value: fmt.Sprint(p.Held)})
			}
		}
	}
	return s
}

// NoRaces says that data races were not looked for, as no access to memory was told.
const NoRaces = "data races ('ripstop run --full' checks every access to memory)"

// unasked says what a run that found nothing says nothing of. A thread alone has no data races.
func unasked(o *Options, st agent.Stats) []string {
	switch {
	case o.Full || st.Threads <= st.Processes || o.Epochs.On && o.Epochs.Races:
		return nil
	case o.Epochs.On:
		return []string{"data races (--races=on finds those of what is executed again)"}
	}
	return []string{NoRaces}
}

// racesNotSeen says which races were lost.
func racesNotSeen(st agent.Stats) (out []string) {
	if st.RaceEvicted > 0 {
		out = append(out, fmt.Sprintf("races with accesses long ago: the history of %d pages of 4 KiB was dropped to bound memory", st.RaceEvicted))
	}
	if n := st.RaceAmnesties; n > 0 {
		out = append(out, fmt.Sprintf("races across %d moments at which all that came before had to be taken for ordered (no memory, a lock that was not to be had, a signal handler in the middle of a check)", n))
	}
	if st.RaceUnsaid > 0 {
		out = append(out, fmt.Sprintf("%d races more than are kept at once", st.RaceUnsaid))
	}
	return out
}

// epochStats says what came of epochs.
func epochStats(g agent.GuardStats) (list []report.Stat) {
	add := func(name string, value any) {
		list = append(list, report.Stat{Name: "guard, " + name, Value: fmt.Sprint(value)})
	}
	add("epochs", g.Epochs)
	add("time at their ends", time.Duration(g.StopNs))
	if g.Busy > 0 {
		add("ends that were not to be had", g.Busy)
	}
	for i, n := range g.Lost {
		if n > 0 {
			add("lost: "+wire.GuardLost(i).String(), n)
		}
	}
	for i, n := range g.Verdicts {
		if n > 0 {
			add("executed again: "+wire.GuardVerdict(i).String(), n)
		}
	}
	for i, n := range g.Tries {
		switch {
		case n > 0 && i == 0:
			add("crashes that could not be reproduced", n)
		case n > 0:
			add(fmt.Sprintf("crashes reproduced in try %d", i), n)
		}
	}
	for i, n := range g.Same {
		if n > 0 && i > 1 {
			add(fmt.Sprintf("the same in try %d", i), n)
		}
	}
	if g.Idle > 0 {
		add("waits in vain", g.Idle)
	}
	if g.Queues > 0 {
		add("epochs without the order in queues of atomics", g.Queues)
	}
	for i, n := range g.Judged {
		if n > 0 {
			add("looked at for races: "+wire.GuardJudged(i).String(), n)
		}
	}
	if g.Events > 0 {
		add("events executed again", g.Events)
	}
	if d := g.Differs; d != [9]uint64{} {
		text := fmt.Sprintf("%v at event %d of thread %d, address %#x: %#x, then %#x", wire.GuardVerdict(d[0]), d[1], d[5], d[2], d[3], d[4])
		if d[6] != 0 {
			// The first byte that differs; the event as guardlog.h's RS_GUARD_WHAT.
			text += fmt.Sprintf(", %#x above the stack pointer of thread %d, before event %#x", d[7], d[6], d[8])
		}
		add("last difference", text)
	}
	return list
}

// maxLetGo is how many processes that live on are named.
const maxLetGo = 8

// LetGo is the sentence about the processes that live on when the program has ended; "" if there are none.
func LetGo(left []agent.Info) string {
	if len(left) == 0 {
		return ""
	}
	var names []string
	for _, p := range left[:min(len(left), maxLetGo)] {
		name := fmt.Sprint(p.PID)
		if p.Exe != "" {
			name += fmt.Sprintf(" (%s)", strings.TrimSuffix(filepath.Base(p.Exe), " (deleted)"))
		}
		names = append(names, name)
	}
	if n := len(left) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	text := "what %s does after the program's end: it lives on, and is no longer watched (--wait-for=all waits for its end)"
	if len(left) > 1 {
		text = "what %s do after the program's end: they live on, and are no longer watched (--wait-for=all waits for their end)"
	}
	return fmt.Sprintf(text, strings.Join(names, ", "))
}

// Stats is st for --stats.
func Stats(st agent.Stats) []report.Stat {
	n := func(v uint64) string { return fmt.Sprint(v) }
	kib := func(v uint64) string { return fmt.Sprintf("%d KiB", (v+1023)/1024) }
	return []report.Stat{
		{Name: "processes", Value: n(st.Processes)},
		{Name: "threads", Value: n(st.Threads)},
		{Name: "agent memory, largest process", Value: fmt.Sprintf("%s private, %s shared (touched as needed)", kib(st.AgentBytes), kib(st.RegionBytes))},
		{Name: "events", Value: fmt.Sprintf("%d (%s)", st.Events, kib(st.Words*8))},
		{Name: "locks taken", Value: n(st.LocksTaken)},
		{Name: "stacks kept", Value: n(st.Stacks)},
		{Name: "stacks dropped", Value: n(st.StackDrops)},
		{Name: "waits for room in a ring", Value: n(st.RingWaits)},
		{Name: "events out of order", Value: n(st.Late)},
		{Name: "unwind tables", Value: fmt.Sprintf("%d made, %d from the cache, %d modules without", st.Tables, st.TablesCached, st.NoTables)},
		{Name: "looks at the rings", Value: n(st.Passes)},
	}
}
