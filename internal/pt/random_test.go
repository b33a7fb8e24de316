package pt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// rounds gives how often a test tries: n times, or with -short, as under the race detector, a fifth of it.
func rounds(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// A machine is a random program of small pieces, one every 32 bytes in a page at 0x400000, and its random execution.
type machine struct {
	r     *rand.Rand
	code  pages
	insts map[uint64]machineInst
	slots []uint64
	pc    uint64
	calls []uint64
}

type machineInst struct {
	end, target uint64
	kind        string
}

const machineBase, slotBytes, slotCount = 0x400000, 32, 128

func newMachine(r *rand.Rand, returns bool) *machine {
	m := &machine{r: r, code: pages{}, insts: map[uint64]machineInst{}}
	page := new([testPage]byte)
	m.code[machineBase] = page
	for i := range slotCount {
		m.slots = append(m.slots, machineBase+uint64(i)*slotBytes)
	}
	kinds := []string{"jne", "jne", "jne", "jmp", "call", "call", "ret", "ret", "jmp *rax", "call *rax", "syscall", "ptwrite", "loop", "call next"}
	if !returns {
		kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "ret" })
	}
	for i, at := range m.slots {
		put := func(kind, code string, target uint64) {
			copy(page[at-machineBase:], code)
			end := at + uint64(len(code))
			m.insts[at] = machineInst{end, target, kind}
			at = end
		}
		for range r.IntN(4) {
			put("nop", []string{"\x90", "\x48\x89\xc3", "\xf3\xa4", "\x0f\x1f\x40\x00"}[r.IntN(4)], 0)
		}
		last := "jmp"
		if i == slotCount-1 {
			last = "jmp *rax"
		}
		for _, kind := range []string{kinds[r.IntN(len(kinds))], last} {
			to := m.any()
			if kind == "jmp" || kind == "call" { // forward only: a way round without a decision is the same for a trace however often it was gone
				if i == slotCount-1 {
					continue
				}
				to = m.slots[i+1+r.IntN(slotCount-1-i)]
			}
			rel := func(length int) string {
				return string(binary.LittleEndian.AppendUint32(nil, uint32(to-at-uint64(length))))
			}
			switch kind {
			case "jne":
				put(kind, "\x0f\x85"+rel(6), to)
			case "jmp":
				put(kind, "\xe9"+rel(5), to)
			case "call":
				put(kind, "\xe8"+rel(5), to)
			case "call next":
				put(kind, "\xe8\x00\x00\x00\x00", at+5)
			case "ret":
				put(kind, "\xc3", 0)
			case "jmp *rax":
				put(kind, "\xff\xe0", 0)
			case "call *rax":
				put(kind, "\xff\xd0", 0)
			case "syscall":
				put(kind, "\x0f\x05", 0)
			case "ptwrite":
				put(kind, "\xf3\x0f\xae\xe0", 0)
			case "loop":
				put(kind, "\xe2\xfe", at)
			}
		}
	}
	m.pc = m.slots[0]
	return m
}

func (m *machine) any() uint64 { return m.slots[m.r.IntN(slotCount)] }

// next runs the instruction at pc.
func (m *machine) next() machineInst {
	in := m.insts[m.pc]
	push := func() { m.calls = append(m.calls, in.end) }
	switch in.kind {
	case "jne", "loop":
		if m.pc = in.end; m.r.IntN(2) == 0 {
			m.pc = in.target
		}
	case "jmp":
		m.pc = in.target
	case "call", "call next":
		push()
		m.pc = in.target
	case "call *rax":
		push()
		m.pc = m.any()
	case "jmp *rax":
		m.pc = m.any()
	case "ret":
		m.pc = m.any()
		if n := len(m.calls); n > 0 && m.r.IntN(8) > 0 {
			m.pc, m.calls = m.calls[n-1], m.calls[:n-1]
		}
	case "syscall":
		if m.pc = in.end; m.r.IntN(4) == 0 {
			m.pc = m.any()
		}
	default:
		m.pc = in.end
	}
	return in
}

// A tale is a machine's execution, encoded, and the truth as steps without their times: runs as single instructions, from address to
// address, and the rest as Read gives it.
type tale struct {
	m     *machine
	opt   EncoderOptions
	trace []byte
	truth []Step // StepDisable: all before is proved
}

func (s *tale) config() Config { return Config{Timing: testTiming, Filter: s.opt.Filter} }

// A plan says what a tale may be.
type plan struct{ noReturns, skl014 bool }

// invent runs a machine for n instructions.
func invent(t testing.TB, r *rand.Rand, n int, p plan) *tale {
	t.Helper()
	opt := EncoderOptions{
		CompressReturns: r.IntN(2) == 0, DeferTIPs: r.IntN(2) == 0, LongTNT: r.IntN(2) == 0, PSBPeriod: []int{0, 64, 300}[r.IntN(3)],
		TSC: r.IntN(2) == 0, CYC: r.IntN(2) == 0, Timing: testTiming, CBR: 28,
	}
	opt.MTC = opt.TSC && r.IntN(2) == 0
	if r.IntN(3) == 0 {
		opt.SKL014 = p.skl014 && r.IntN(2) == 0
		opt.Filter = Filter{{machineBase, machineBase + 32*slotBytes}, {machineBase + 64*slotBytes, machineBase + 100*slotBytes}}
	}
	m := newMachine(r, !p.noReturns)
	e, err := NewFlowEncoder(m.code, opt)
	if err != nil {
		t.Fatal(err)
	}
	s := &tale{m: m, opt: opt}
	note := func(kind StepKind, from, to uint64) { s.truth = append(s.truth, Step{Kind: kind, From: from, To: to}) }
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	now := uint64(1 << 30)
	inside := opt.Filter.Has
	// A From means the first time that the straight way since the last decision comes by: since has where it has been.
	since := map[uint64]bool{}
	writes := r.IntN(2) == 0 // all ptwrites send packets, or none
	for range n {
		now += r.Uint64N(50)
		e.Tick(now)
		if inside(m.pc) && !since[m.pc] {
			switch r.IntN(60) {
			case 0:
				must(e.Leave(m.pc))
				note(StepDisable, 0, 0)
				if r.IntN(2) == 0 {
					m.pc = m.any()
				}
				clear(since)
			case 1:
				to := m.any()
				if inside(to) && e.started {
					from := m.pc
					must(e.Async(from, to))
					if e.on {
						note(StepAsync, from, to)
					}
					m.pc = to
					clear(since)
				}
			case 2:
				if r.IntN(3) == 0 {
					e.Flush()
					if e.begun {
						e.Overflow()
						s.truth = append(s.truth, Step{Kind: StepOverflow})
						m.pc = m.any()
						clear(since)
					}
				}
			}
		}
		pc := m.pc
		since[pc] = true
		psb := e.psbAt
		must(e.Execute(pc))
		if e.psbAt != psb { // it says where execution stands
			note(StepDisable, 0, 0)
		}
		if !inside(pc) {
			note(StepDisable, 0, 0)
		} else {
			note(StepRun, pc, 0)
		}
		in := m.next()
		switch in.kind {
		case "jne", "loop", "ret", "jmp *rax", "call *rax", "syscall":
			clear(since)
		case "ptwrite":
			if inside(pc) && writes {
				v := r.Uint64()
				e.PTWrite(v, 8)
				note(StepPTWrite, pc, v)
				clear(since)
			}
		}
	}
	must(e.Leave(m.pc))
	e.Flush()
	s.trace = e.Bytes()
	return s
}

// proved gives the truth without what ran after the last packet before an overflow: the branch that was to be told of next, and the straight
// way to it.
func proved(s *tale) (out []Step) {
	for _, step := range s.truth {
		if step.Kind == StepOverflow {
			for n := 0; len(out) > 0 && out[len(out)-1].Kind == StepRun; n++ {
				switch s.m.insts[out[len(out)-1].From].kind {
				case "jne", "loop", "ret", "jmp *rax", "call *rax", "syscall":
					if n > 0 {
						goto done
					}
				}
				out = out[:len(out)-1]
			}
		}
	done:
		out = append(out, step)
	}
	out = slices.DeleteFunc(out, func(s Step) bool { return s.Kind == StepDisable })
	return mergeOverflows(out)
}

// mergeOverflows joins overflows with nothing known between them.
func mergeOverflows(steps []Step) []Step {
	return slices.CompactFunc(steps, func(a, b Step) bool { return a.Kind == StepOverflow && b.Kind == StepOverflow })
}

// plain reduces steps to what a tale's truth has.
func plain(t testing.TB, code Image, steps []Step) (out []Step) {
	c := NewCache(code)
	for _, s := range steps {
		switch s.Kind {
		case StepRun:
			for _, ip := range instructions(t, c, []Step{s}) {
				out = append(out, Step{Kind: StepRun, From: ip})
			}
		case StepAsync, StepPTWrite:
			out = append(out, Step{Kind: s.Kind, From: s.From, To: s.To})
		case StepOverflow:
			out = append(out, Step{Kind: StepOverflow})
		}
	}
	return mergeOverflows(out)
}

// Random programs and executions, with signals, interrupts, system calls, ptwrite, overflows and address filters, in all encodings, come
// back as they were.
func TestRandomExecutions(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for i := range rounds(400) {
		s := invent(t, r, 500, plan{skl014: true})
		steps, errs := flowSteps(t, s.trace, Segment{0, uint64(len(s.trace))}, s.config(), NewCache(s.m.code))
		if len(errs) > 0 {
			t.Fatalf("%d: %+v: %v", i, s.opt, errs[0])
		}
		got := plain(t, s.m.code, steps)
		s.truth = proved(s)
		for j := range max(len(got), len(s.truth)) {
			if j >= len(got) || j >= len(s.truth) || got[j] != s.truth[j] {
				t.Fatalf("%d: %+v: step %d of %d and %d: got %v, want %v, behind %v", i, s.opt, j, len(got), len(s.truth),
					got[min(j, len(got)):min(j+3, len(got))], s.truth[min(j, len(s.truth)):min(j+3, len(s.truth))], s.truth[max(0, j-6):j])
			}
		}
	}
}

// A cache that is full begins anew, and nobody notices.
func TestSmallCache(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	for range rounds(50) {
		s := invent(t, r, 2000, plan{skl014: true})
		all := Segment{0, uint64(len(s.trace))}
		want, _ := flowSteps(t, s.trace, all, s.config(), NewCache(s.m.code))
		for _, limit := range []int{1, 2, 7, 30} {
			small := NewCache(s.m.code)
			small.limit = limit
			got, errs := flowSteps(t, s.trace, all, s.config(), small)
			if !slices.Equal(got, want) || len(errs) > 0 || len(small.blocks) > limit {
				t.Fatalf("limit %d: %d steps, want %d; %v; %d blocks", limit, len(got), len(want), errs, len(small.blocks))
			}
		}
	}
}

// libipt finds the same instructions in them.
func TestRandomExecutionsAgainstLibipt(t *testing.T) {
	o := newOracle(t)
	r := rand.New(rand.NewPCG(33, 34))
	for i := range rounds(300) {
		s := invent(t, r, 500, plan{})
		o.ask(t, 'm', s.m.code.oracleImage())
		theirs, _, errs := libiptInstructions(t, o, s.trace)
		var want []uint64
		for _, step := range proved(s) {
			if step.Kind == StepRun {
				want = append(want, step.From)
			}
		}
		if len(errs) > 0 {
			t.Fatalf("%d: %+v: libipt: error %d at %#x behind %d of %d", i, s.opt, errs[0].Status, errs[0].Offset, len(theirs), len(want))
		}
		if j, what := firstDifference(theirs, want); j >= 0 {
			t.Fatalf("%d: %+v: libipt: %s", i, s.opt, what)
		}
	}
}

// twoFUPs says whether a FUP follows another. We take that for the two of a software interrupt, of which the manual tells and libipt not.
func twoFUPs(data []byte) bool {
	packets, _ := decodeAll(data)
	packets = slices.DeleteFunc(packets, func(p Packet) bool {
		return p.Kind == CYC || p.Kind == MTC || p.Kind == PAD || p.Kind == TSC || p.Kind == CBR
	})
	for i := range packets {
		if i > 0 && packets[i].Kind == FUP && packets[i-1].Kind == FUP {
			return true
		}
	}
	return false
}

// filterKnown gives how many instructions there are before tracing goes off, without a word where, at a direct branch: that it left what is traced only the filter tells, and
// libipt does not know it. (Whole traces have such a place only by the erratum SKL014.)
func filterKnown(c *Cache, steps []Step) (n int) {
	last := uint64(0)
	for _, s := range steps {
		switch s.Kind {
		case StepRun:
			n += int(s.Count)
			last = s.From
		case StepDisable:
			if b := c.at(last); s.To == 0 && s.From == b.end && (b.flow == x86.FlowJump || b.flow == x86.FlowCall) {
				return n
			}
		}
	}
	return n
}

// Cut off anywhere, a trace gives what libipt gives but for its guess at the end. Damaged, up to the first error of either, the same. Returns
// are left out there: libipt keeps on its stack what a return with a TIP leaves, while perf and we take it off.
func TestDamagedAgainstLibipt(t *testing.T) {
	o := newOracle(t)
	r := rand.New(rand.NewPCG(41, 42))
	agreed := 0
	for i := range rounds(150) {
		s := invent(t, r, 500, plan{noReturns: i%2 == 0})
		o.ask(t, 'm', s.m.code.oracleImage())
		for range 20 {
			cut := i%2 == 1
			data := s.trace[:r.IntN(len(s.trace)+1)]
			if !cut {
				data = mutate(r, s.trace)
			}
			if twoFUPs(data) {
				continue
			}
			theirs, guessed, errs := libiptInstructions(t, o, data)
			var steps []Step
			var err error
			for f := NewFlow(data, Segment{0, uint64(len(data))}, s.config(), NewCache(s.m.code)); err == nil; {
				var buf [100]Step
				var n int
				n, err = f.Read(buf[:])
				steps = append(steps, buf[:n]...)
			}
			ours := instructions(t, NewCache(s.m.code), steps)
			n := min(len(ours), len(theirs), filterKnown(NewCache(s.m.code), steps))
			if j, what := firstDifference(ours[:n], theirs[:n]); j >= 0 {
				t.Fatalf("%d: %+v: %s; our error %v, libipt's %v", i, s.opt, what, err, errs)
			}
			if errors.Is(err, ErrTruncated) {
				guessed = len(theirs) // libipt does not say that it guesses where the trace ends inside a packet
			}
			if cut && (len(ours) > len(theirs) || len(ours)+guessed < len(theirs)) {
				t.Fatalf("%d: %+v: cut at %#x: %d instructions and %v, libipt has %d, %d guessed, and %v", i, s.opt, len(data), len(ours), err, len(theirs), guessed, errs)
			}
			agreed += n
		}
	}
	t.Logf("%d instructions agree", agreed)
}

// Parts between PSBs, decoded at the same time and each with a cache of its own, give together what the whole gives: steps, times and
// errors, also where the trace is damaged.
func TestSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	parts := 0
	for i := range rounds(300) {
		s := invent(t, r, 2000, plan{skl014: true})
		trace := s.trace
		if i%2 == 1 {
			trace = mutate(r, trace)
		}
		want, wantErrs := flowSteps(t, trace, Segment{0, uint64(len(trace))}, s.config(), NewCache(s.m.code))
		segments := Segments(trace, []int{1, 100, 700}[i%3])
		parts += len(segments)
		steps, errs := make([][]Step, len(segments)), make([][]error, len(segments))
		var wait sync.WaitGroup
		for j, seg := range segments {
			wait.Go(func() { steps[j], errs[j] = flowSteps(t, trace, seg, s.config(), NewCache(s.m.code)) })
		}
		wait.Wait()
		if got := slices.Concat(steps...); !slices.Equal(got, want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			t.Fatalf("%d: %d steps in %d segments, %d in one, from %d on %v and %v", i, len(got), len(segments), len(want), at,
				got[at:min(len(got), at+3)], want[at:min(len(want), at+3)])
		}
		if got := slices.Concat(errs...); fmt.Sprint(got) != fmt.Sprint(wantErrs) {
			t.Fatalf("%d: errors %v, in one %v", i, got, wantErrs)
		}
	}
	if parts < rounds(2000) {
		t.Errorf("only %d parts", parts)
	}
}

// Damaged traces and code that is not there give errors, not panics and not endless walks; behind an error it goes on at the next PSB.
func FuzzFlow(f *testing.F) {
	r := rand.New(rand.NewPCG(37, 38))
	for range 10 {
		s := invent(f, r, 300, plan{})
		f.Add(s.trace, s.m.code[machineBase][:])
	}
	f.Fuzz(func(t *testing.T, trace, code []byte) {
		image := pages{}
		for at := 0; at < len(code) && at < 4*testPage; at += testPage {
			page := new([testPage]byte)
			copy(page[:], code[at:])
			image[machineBase+uint64(at)] = page
		}
		flow := NewFlow(trace, Segment{0, uint64(len(trace))}, Config{Timing: testTiming}, NewCache(image))
		var buf [64]Step
		errs := 0
		for range 20000 {
			n, err := flow.Read(buf[:])
			if err == io.EOF {
				if n != 0 {
					t.Fatal("steps with the end")
				}
				return
			}
			if err != nil {
				errs++
				_ = err.Error()
			}
			if errs > len(trace) {
				t.Fatal("more errors than bytes")
			}
			for _, s := range buf[:n] {
				if s.Kind == StepRun && (s.Count == 0 || s.To <= s.From || s.To-s.From > uint64(s.Count)*15) {
					t.Fatalf("%v", s)
				}
			}
		}
	})
}
