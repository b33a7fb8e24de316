package recover

import (
	"sort"

	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// An Input is a recording made ready.
type Input struct {
	Images []Image
	Shards []*Shard // of one thread after the other, in the order of their instructions
	Why    []error  // what could not be had: code, traces

	codes    []*code // of Images
	bytes    uint64  // as segmentBytes
	segments int     // as shardSegments
}

// Sizes of what is recovered at once. They are part of the result, since nothing is known at a shard's outer ends.
const (
	segmentBytes  = 16 << 10 // of a trace; a shard looks one segment beyond its own
	shardSegments = 8
)

// Prepare reads traces and code of a recording and makes shards of it.
func Prepare(rec *sample.Recording) (*Input, error) { return prepare(rec, segmentBytes, shardSegments) }

func prepare(rec *sample.Recording, bytes uint64, segments int) (*Input, error) {
	in := &Input{bytes: bytes, segments: segments}
	images := map[int32][]int{} // by process, of its epochs
	epochs := map[int32][]sample.Epoch{}
	for n, t := range rec.Threads {
		if _, have := images[t.PID]; !have {
			epochs[t.PID] = rec.Epochs(t.PID)
			images[t.PID] = []int{}
			for i := range epochs[t.PID] {
				images[t.PID] = append(images[t.PID], len(in.Images))
				x := in.image(rec, &epochs[t.PID][i])
				in.Images = append(in.Images, x)
				in.codes = append(in.codes, newCode(&x))
			}
		}
		trace, err := rec.Trace(t)
		if err != nil {
			return nil, err
		}
		in.thread(rec, n, trace, epochs[t.PID], images[t.PID])
	}
	in.codes = nil
	return in, nil
}

func (in *Input) image(rec *sample.Recording, e *sample.Epoch) Image {
	x, why := rec.Image(e)
	in.Why = append(in.Why, why...)
	v := Image{Image: x, Mappings: e.Mappings}
	for _, c := range rec.Constants(e) {
		v.Constants = append(v.Constants, Constant(c))
	}
	const kernelData = 64 << 10 // vvar and its kin lie below vdso
	v.Functions = functionsOf(rec.Symbols(e, isCLibrary), x)
	for _, m := range e.Mappings {
		if m.Path == "[vdso]" {
			v.Volatile = append(v.Volatile, Range{m.Start - kernelData, m.Start})
		}
	}
	return v
}

// thread makes the shards of one thread.
func (in *Input) thread(rec *sample.Recording, n int, trace []byte, epochs []sample.Epoch, images []int) {
	t := rec.Threads[n]
	samples := t.Samples
	between := func(from, to uint64) []sample.Sample {
		i := sort.Search(len(samples), func(i int) bool { return samples[i].TSC >= from })
		k := sort.Search(len(samples), func(i int) bool { return samples[i].TSC >= to })
		return samples[i:max(i, k)]
	}
	var segs []pt.Segment // of some size, and of one epoch each as far as that is known
	var starts []uint64   // TSC
	for s := range pt.EachSegment(trace, 1) {
		start, last := startOf(trace, s, rec.Timing), len(segs)-1
		if last >= 0 && (start == 0 || segs[last].End-segs[last].Start < in.bytes && epochAt(epochs, start) == epochAt(epochs, starts[last])) {
			segs[last].End = s.End
			continue
		}
		segs, starts = append(segs, s), append(starts, start)
	}
	alone := aloneTimes(rec.Threads, t)
	type base struct {
		addr  uint64
		known bool
	}
	bases := make([]base, len(epochs))
	for i, e := range epochs { // which ends where another program may have been executed
		from, to := e.From, uint64(forever)
		if i == 0 {
			from = 0
		}
		if i+1 < len(epochs) {
			to = epochs[i+1].From
		}
		c := in.codes[images[i]]
		bases[i].addr, bases[i].known = threadFS(c, between(from, to))
	}
	for i := 0; i < len(segs); {
		epoch := epochAt(epochs, starts[i])
		k := i + 1
		for k < len(segs) && k-i < in.segments && epochAt(epochs, starts[k]) == epoch {
			k++
		}
		first, behind := i, k
		i = k
		if epoch < 0 {
			continue
		}
		from, to := first, behind
		if from > 0 && epochAt(epochs, starts[from-1]) == epoch {
			from--
		}
		if to < len(segs) && epochAt(epochs, starts[to]) == epoch {
			to++
		}
		s := &Shard{
			Thread: n, Trace: trace, Config: pt.Config{Timing: rec.Timing}, Segments: segs[from:to], First: first - from, Behind: behind - from,
			Image: images[epoch], End: forever, Alone: alone, Filtered: len(rec.Info.Filter) > 0,
		}
		s.Start = starts[from]
		if to < len(segs) {
			s.End = starts[to]
		}
		if s.OwnStart, s.OwnEnd = starts[first], forever; first == 0 {
			s.OwnStart = 0
		}
		if behind < len(segs) {
			s.OwnEnd = starts[behind]
		}
		if epoch+1 < len(epochs) {
			s.Until = epochs[epoch+1].From
		}
		s.Samples = between(s.Start, s.End)
		s.FS, s.HasFS = bases[epoch].addr, bases[epoch].known
		in.Shards = append(in.Shards, s)
	}
}

// startOf gives the first time of a segment; 0 if there is none.
func startOf(trace []byte, s pt.Segment, timing pt.Timing) uint64 {
	q := pt.NewQuery(trace[s.Start:s.End], s.Start, timing)
	var e pt.Event
	for q.Next(&e) == nil {
		if e.HasTime {
			return e.Time
		}
	}
	return 0
}

// epochAt gives the epoch of a time; -1: before the first.
func epochAt(epochs []sample.Epoch, tsc uint64) int {
	n := len(epochs) - 1
	for n > 0 && epochs[n].From > tsc {
		n--
	}
	return n
}

// aloneTimes gives the times of a thread's life in which the recording has no other thread.
func aloneTimes(threads []*sample.Thread, t *sample.Thread) (alone []Range) {
	alone = []Range{{0, forever}}
	for _, o := range threads {
		if o == t {
			continue
		}
		from, to := o.Start, o.End
		if to == 0 {
			to = forever
		}
		var rest []Range
		for _, a := range alone {
			if a.Start < from {
				rest = append(rest, Range{a.Start, min(a.End, from)})
			}
			if to < a.End {
				rest = append(rest, Range{max(a.Start, to), a.End})
			}
		}
		alone = rest
	}
	return alone
}
