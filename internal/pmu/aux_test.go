package pmu

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ripstop/ripstop/internal/perf"
	"github.com/ripstop/ripstop/internal/pt"
	"github.com/ripstop/ripstop/internal/sample"
)

// A fakeKernel writes to the buffers of two processors as perf_event_open's would: packets of whatever thread runs there, and an AUX record when it goes off.
type fakeKernel struct {
	t      *testing.T
	r      *Recorder
	random *rand.Rand
	said   map[int][]uint64 // by thread, the numbers of its packets
	cut    map[int]int      // and how often something of it was lost
	number uint64
	halves [2]struct{ head, auxHead uint64 }
}

const fakeAux, fakeRing = 1 << 13, 1 << 13

func newFakeKernel(t *testing.T, seed uint64) *fakeKernel {
	r := &Recorder{
		o: RecorderOptions{Plan: standIn(t, 1000), Follow: true, Dir: t.TempDir()}, cpus: map[int]*processor{}, threads: map[int]*sampledThread{}, ids: map[uint64]int{100: recFlow, 101: recSide},
		random: rand.New(rand.NewPCG(seed, 2)), clock: sample.ClockOf(2_000_000_000),
	}
	plan, err := MakePlan(server, devices(t, nil), 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.attrs = append([]perf.Event{{Attr: perf.Attr{Type: typeSoftware, Config: dummy, SampleType: identity, Flags: plan.Events[0].Attr.Flags}, Name: "dummy:u"}}, plan.Events[0])
	for i := range r.attrs {
		r.attrs[i].IDs = []uint64{uint64(i + 1)}
	}
	r.out, err = sample.Create(r.o.Dir, sample.WriterOptions{Events: r.attrs, PMUs: plan.PMUs, Clock: r.clock, PT: recFlow, Timing: plan.Timing})
	if err != nil {
		t.Fatal(err)
	}
	r.flow = newFlow(r.out, func(time uint64) uint64 { return r.clock.TSC(time) })
	fake := func() *ring {
		mem := make([]byte, 4096+fakeRing)
		return &ring{mem: mem, data: mem[4096:]}
	}
	for cpu := range 2 {
		p := &processor{side: fake(), trace: fake()}
		p.aux = &auxRing{page: p.trace, data: make([]byte, fakeAux)}
		r.cpus[cpu] = p
	}
	return &fakeKernel{t: t, r: r, random: rand.New(rand.NewPCG(seed, 1)), said: map[int][]uint64{}, cut: map[int]int{}}
}

// put writes a record to a ring; false: there is no room.
func (k *fakeKernel) put(to *ring, kind perf.Type, id uint64, body []byte, pid, tid int, time uint64) bool {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(kind))
	b = le.AppendUint16(b, 0)
	b = le.AppendUint16(b, uint16(8+len(body)+24))
	b = append(b, body...)
	b = le.AppendUint32(le.AppendUint32(b, uint32(pid)), uint32(tid))
	b = le.AppendUint64(le.AppendUint64(b, time), id)
	head := *to.word(pageHead)
	if head+uint64(len(b))-*to.word(pageTail) > uint64(len(to.data)) {
		return false
	}
	for i, c := range b {
		to.data[(head+uint64(i))%uint64(len(to.data))] = c
	}
	*to.word(pageHead) = head + uint64(len(b))
	return true
}

// runs lets a thread run on a processor and go off; what it gives publishes the AUX record.
func (k *fakeKernel) runs(cpu, tid, packets int) (publish func()) {
	a := k.r.cpus[cpu].aux
	half := &k.halves[cpu]
	begin, flags := half.auxHead, uint64(0)
	var out []byte
	for range packets {
		k.number++
		p := pt.Packet{Kind: pt.TSC, Value: k.number}
		switch k.random.IntN(12) {
		case 0:
			out, _ = pt.Append(out, &pt.Packet{Kind: pt.PSB})
		case 1, 2, 3:
			p = pt.Packet{Kind: pt.PTW, Form: 1, Value: k.number}
		}
		var err error
		if out, err = pt.Append(out, &p); err != nil {
			k.t.Fatal(err)
		}
		k.said[tid] = append(k.said[tid], k.number)
	}
	if room := uint64(len(a.data)) - (begin - *a.page.word(pageAuxTail)); uint64(len(out)) > room {
		out, flags = out[:room], perf.AuxTruncated
		k.cut[tid]++
	}
	for i, c := range out {
		a.data[(begin+uint64(i))%uint64(len(a.data))] = c
	}
	half.auxHead += uint64(len(out))
	*a.page.word(pageAuxHead) = half.auxHead
	time := k.r.now()
	le := binary.LittleEndian
	body := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, begin), uint64(len(out))), flags)
	return func() {
		for !k.put(k.r.cpus[cpu].trace, perf.TypeAux, 100, body, 1, tid, time) {
			k.pass(false)
		}
	}
}

func (k *fakeKernel) pass(last bool) {
	k.t.Helper()
	if _, err := k.r.pass(last); err != nil {
		k.t.Fatal(err)
	}
}

// numbers gives the packets of a trace, in pieces between losses.
func numbers(t *testing.T, trace []byte) (pieces [][]uint64) {
	pieces = [][]uint64{nil}
	d := pt.NewDecoder(trace, 0)
	for {
		var p pt.Packet
		err := d.Next(&p)
		if errors.Is(err, io.EOF) {
			return pieces
		}
		if err != nil {
			t.Fatal(err)
		}
		switch p.Kind {
		case pt.OVF:
			pieces = append(pieces, nil)
		case pt.TSC, pt.PTW:
			pieces[len(pieces)-1] = append(pieces[len(pieces)-1], p.Value)
		case pt.PSB, pt.PAD:
		default:
			t.Fatalf("a packet %v", p.Kind)
		}
	}
}

// Threads wander between two processors, whose buffers wrap and are drained at any moment, and whose records come a moment late now and then. Each thread's packets come out in its
// order and as its own; where a buffer was full there is an overflow and then what follows the next PSB, and nothing else is missing.
func TestFlow(t *testing.T) {
	losses := 0
	for seed := range uint64(60) {
		k := newFakeKernel(t, seed)
		threads := 1 + k.random.IntN(5)
		le := binary.LittleEndian
		for i := range threads {
			body := le.AppendUint64(le.AppendUint32(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 1), 1), uint32(10+i)), 10), k.r.now())
			k.put(k.r.cpus[0].side, perf.TypeFork, 101, body, 1, 10, k.r.now())
		}
		sparse := seed%2 == 0 // drained often enough that nothing is lost
		for range 400 {
			cpu, tid := k.random.IntN(2), 10+k.random.IntN(threads)
			publish := k.runs(cpu, tid, k.random.IntN(150))
			if k.random.IntN(6) == 0 { // the thread has been on the other one, and its record there been drained, before this one is to be seen
				k.runs(1-cpu, tid, k.random.IntN(50))()
				k.pass(false)
			}
			publish()
			if !sparse && k.random.IntN(12) == 0 || sparse && k.halves[cpu].auxHead-*k.r.cpus[cpu].trace.word(pageAuxTail) > fakeAux/4 {
				k.pass(false)
				if sparse {
					k.pass(false)
				}
			}
		}
		k.pass(true)
		if err := k.r.out.Close(); err != nil {
			t.Fatal(err)
		}
		if err := sample.WriteInfo(k.r.o.Dir, sample.Info{Mode: sample.PMU, Hz: 2_000_000_000, Complete: true}); err != nil {
			t.Fatal(err)
		}
		s := opened(t, k.r.o.Dir)
		cuts := 0
		for _, th := range s.Threads {
			trace, err := s.Trace(th)
			if err != nil {
				t.Fatal(err)
			}
			want := k.said[int(th.TID)]
			pieces := numbers(t, trace)
			cuts += k.cut[int(th.TID)]
			if k.cut[int(th.TID)] == 0 && len(pieces) != 1 || len(pieces) > 1+k.cut[int(th.TID)] {
				t.Errorf("seed %d: thread %d: %d pieces, %d losses", seed, th.TID, len(pieces), k.cut[int(th.TID)])
			}
			for i, got := range pieces {
				at := 0
				if i > 0 && len(got) > 0 {
					for at < len(want) && want[at] != got[0] {
						at++
					}
				}
				if len(got) > len(want)-at {
					t.Fatalf("seed %d: thread %d: too much", seed, th.TID)
				}
				for j := range got {
					if got[j] != want[at+j] {
						t.Fatalf("seed %d: thread %d: packet %d is %d, want %d", seed, th.TID, j, got[j], want[at+j])
					}
				}
				if want = want[at+len(got):]; i == len(pieces)-1 && k.cut[int(th.TID)] == 0 && len(want) > 0 {
					t.Errorf("seed %d: thread %d: %d packets are missing at the end", seed, th.TID, len(want))
				}
			}
		}
		losses += cuts
		if uint64(cuts) != k.r.flow.cut || sparse && cuts > 0 {
			t.Errorf("seed %d: %d losses, the recorder counted %d", seed, cuts, k.r.flow.cut)
		}
		if len(s.Threads) < threads {
			t.Errorf("seed %d: %d threads of %d", seed, len(s.Threads), threads)
		}
	}
	if losses < 20 {
		t.Errorf("no buffer was ever full: %d losses", losses)
	}
}
