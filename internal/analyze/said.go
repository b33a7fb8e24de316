package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ripstop/ripstop/internal/recover"
	"github.com/ripstop/ripstop/internal/report"
	"github.com/ripstop/ripstop/internal/sample"
)

func percent(n, of uint64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }

// notSeen says what the recording does not show, or could not be judged: a sentence each.
func (a *analysis) notSeen() (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	i, c := &a.rec.Info, a.collection
	if i.Mode == sample.Timer {
		say("this is a sample: a clock and breakpoints (mode timer) saw %d accesses, of which %d could be used; races with all others are not seen", c.watched.hits, c.watched.used)
		if c.watched.hits == 0 {
			say("no access was seen, so this says nothing about the program: run it longer, or record it with a larger --budget")
		}
	} else {
		known := c.counts.Accesses - c.counts.By[recover.Unknown]
		say("this is a sample (mode %s, one of %d loads and of %d stores): %s of %d accesses are known; races with the others are not seen",
			i.Mode, i.Period, i.Period, percent(known, c.counts.Accesses), c.counts.Accesses)
	}
	if len(i.Filter) > 0 && i.Mode != sample.Timer {
		say("only code of these was traced: %s", strings.Join(i.Filter, ", "))
	}
	w := &c.watched
	if w.atomic > 0 {
		say("%d hits of breakpoints were left out: %s has atomic instructions, whose order such a recording does not show", w.atomic, strings.Join(w.atomics, ", "))
	}
	if w.lost > 0 {
		say("%d hits of breakpoints were left out: which instruction made the access, or to what, is not certain", w.lost)
	}
	for _, l := range []struct {
		n   uint64
		why string
	}{
		{a.placer.left.Order, "whether they were before or behind an event of their own thread is not known"},
		{a.placer.left.Atomic, "whether they were before or behind an atomic instruction, or a gap in the trace, is not known"},
		{a.placer.left.Stores, "they are plain stores to atomic locations"},
		{a.placer.left.Life, "whether they were to a block of memory or to the next one at its place is not known"},
		{a.placer.left.Unknown, "no event names their thread"},
		{a.placer.left.Cut, "the events of their process end before them"},
		{a.placer.left.Misfit, "their times contradict those of the events"},
	} {
		if l.n > 0 {
			say("%d accesses were left out: %s", l.n, l.why)
		}
	}
	if n := i.Lost; n > 0 {
		say("%d records of samples were lost while recording", n)
	}
	if n := i.Truncated; n > 0 {
		say("control flow was lost %d times while recording", n)
	}
	if n := i.Throttled; n > 0 {
		say("sampling was throttled %d times", n)
	}
	if i.LetGo {
		say("the program was let go before its end")
	}
	if i.MissedStart != "" {
		say("%s", i.MissedStart)
	}
	if !i.Complete {
		say("the samples are cut off: the recorder was killed or still runs")
	}
	if why := a.trace.Truncated(); why != "" {
		say("the trace is cut off: %s; %d events at its end were left out", why, a.trace.LeftOut())
	}
	if n := c.counts.Contradicted; n > 0 {
		say("%d stretches of control flow contradict what else is known; they were recovered without memory, or not at all", n)
	}
	if n := c.counts.Misfits; n > 0 && len(i.Filter) == 0 { // else they were taken where nothing was traced
		say("%d samples fit nowhere in the control flow", n)
	}
	if c.crowded {
		say("more than %d atomic locations: the later ones are taken for others", maxAtomics)
	}
	if a.unsettled {
		say("after %d rounds there was still memory that is raced on and believed", a.rounds)
	}
	for _, list := range [][]error{a.in.Why, a.rec.Damage} {
		var texts []string
		for _, err := range list {
			if text := err.Error(); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
		const most = 8
		for k, text := range texts {
			if k == most {
				say("… and %d more", len(texts)-most)
				break
			}
			say("%s", text)
		}
	}
	return append(out, a.found.Notes...)
}

// stats are the figures of --stats.
func (a *analysis) stats() (out []report.Stat) {
	add := func(name, format string, args ...any) {
		out = append(out, report.Stat{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	c := a.collection
	bytes := int64(0)
	for _, t := range a.rec.Threads {
		bytes += t.TraceBytes
	}
	add("threads", "%d", len(a.rec.Threads))
	add("control flow", "%d bytes in %d shards, %d instructions, %d gaps", bytes, len(a.in.Shards), c.counts.Instructions, c.counts.Gaps)
	add("samples", "%d, placed %d, used without a place %d", c.counts.Samples, c.counts.Placed, c.loose)
	if c.sampled {
		add("breakpoints", "%d hits, used %d, by libraries %d", c.watched.hits, c.watched.used, c.watched.outside)
	}
	add("accesses", "%d", c.counts.Accesses)
	for h := recover.Sampled; int(h) < len(c.counts.By); h++ {
		add("  "+h.String(), "%d (%s)", c.counts.By[h], percent(c.counts.By[h], c.counts.Accesses))
	}
	add("calls of memcpy and its kin", "%d, told %d", c.counts.Calls, c.counts.Told)
	add("judged", "%d; stack traffic apart", a.placer.given)
	add("recovered", "%d times, %d cells dropped, %d shards again", a.rounds, len(a.drop), a.again)
	return out
}
