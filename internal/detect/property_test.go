package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// Random programs of a few threads and locks are run by a simulator under random schedules; what the detectors say about the events is
// compared with what is so: in the simulator (deadlocks), and in all schedules that there are (inversions).

type opKind int

const (
	opLock opKind = iota
	opTry         // if it fails, the program goes on behind the matching unlock
	opUnlock
	opCreate
	opJoin
)

type simOp struct {
	kind   opKind
	lock   int  // lock, unlock
	shared bool // of a rwlock
	other  int  // thread to create or join
	skip   int  // try: where to go on if it fails
}

// simProgram: thread 0 is there at the start. Locks from rwFrom on are rwlocks that prefer readers.
type simProgram struct {
	threads [][]simOp
	locks   int
	rwFrom  int
}

func (p *simProgram) kind(lock int) wire.Object {
	if lock >= p.rwFrom {
		return wire.ObjectRwlock
	}
	return wire.ObjectMutex
}

// simState is what a program's threads have come to.
type simState struct {
	p       *simProgram
	pc      []int
	started []bool
	writer  []int     // of each lock: thread that holds it exclusively, −1
	readers [][]int   // of each lock: how often each thread holds it shared
	held    [][]held1 // of each thread, oldest first
}

type held1 struct {
	lock   int
	shared bool
	stack  uint32
}

func newSimState(p *simProgram) *simState {
	s := &simState{p: p}
	for range p.threads {
		s.pc, s.started, s.held = append(s.pc, 0), append(s.started, len(s.started) == 0), append(s.held, nil)
	}
	for range p.locks {
		s.writer, s.readers = append(s.writer, -1), append(s.readers, make([]int, len(p.threads)))
	}
	return s
}

func (s *simState) clone() *simState {
	c := *s
	c.pc, c.started, c.writer = slices.Clone(s.pc), slices.Clone(s.started), slices.Clone(s.writer)
	c.readers, c.held = make([][]int, len(s.readers)), make([][]held1, len(s.held))
	for i := range s.readers {
		c.readers[i] = slices.Clone(s.readers[i])
	}
	for i := range s.held {
		c.held[i] = slices.Clone(s.held[i])
	}
	return &c
}

func (s *simState) done(t int) bool { return s.pc[t] == len(s.p.threads[t]) }

func (s *simState) free(op simOp) bool {
	if s.writer[op.lock] >= 0 {
		return false
	}
	if op.shared {
		return true
	}
	return slices.Max(s.readers[op.lock]) == 0
}

// canMove reports whether t's next step would not block.
func (s *simState) canMove(t int) bool {
	if !s.started[t] || s.done(t) {
		return false
	}
	switch op := s.p.threads[t][s.pc[t]]; op.kind {
	case opLock:
		return s.free(op)
	case opJoin:
		return s.done(op.other)
	}
	return true
}

// move does t's next step; got is false for a try that failed.
func (s *simState) move(t int) (op simOp, got bool) {
	op = s.p.threads[t][s.pc[t]]
	stack := simStack(t, s.pc[t])
	s.pc[t]++
	switch op.kind {
	case opTry, opLock:
		if !s.free(op) {
			s.pc[t] = op.skip
			return op, false
		}
		if op.shared {
			s.readers[op.lock][t]++
		} else {
			s.writer[op.lock] = t
		}
		s.held[t] = append(s.held[t], held1{op.lock, op.shared, stack})
	case opUnlock:
		i := len(s.held[t]) - 1
		for s.held[t][i].lock != op.lock {
			i--
		}
		if s.held[t][i].shared {
			s.readers[op.lock][t]--
		} else {
			s.writer[op.lock] = -1
		}
		s.held[t] = slices.Delete(s.held[t], i, i+1)
	case opCreate:
		s.started[op.other] = true
	}
	return op, true
}

func simStack(t, pc int) uint32 { return uint32(100*(t+1) + pc + 1) }

// stuck reports whether no thread can move though some have not ended.
func (s *simState) stuck() bool {
	left := false
	for t := range s.pc {
		if s.canMove(t) {
			return false
		}
		left = left || s.started[t] && !s.done(t)
	}
	return left
}

// canDeadlock looks through all schedules for one in which threads wait for locks in a circle.
func (p *simProgram) canDeadlock() bool {
	seen := map[string]bool{}
	var visit func(*simState) bool
	visit = func(s *simState) bool {
		key := fmt.Sprint(s.pc, s.started, s.held)
		if seen[key] {
			return false
		}
		seen[key] = true
		if s.stuck() {
			return true
		}
		for t := range s.pc {
			if s.canMove(t) {
				c := s.clone()
				c.move(t)
				if visit(c) {
					return true
				}
			}
		}
		return false
	}
	return visit(newSimState(p))
}

// shape is what random programs may contain.
type shape struct {
	threads, locks, rwlocks, length int
	tries                           bool // trylocks; not with the others, because a try that fails skips up to its unlock
	anyOrder, joinHeld              bool // unlocks in any order; create and join while locks are held
}

func (sh shape) random(r *rand.Rand) *simProgram {
	p := &simProgram{threads: make([][]simOp, sh.threads), locks: sh.locks, rwFrom: sh.locks - sh.rwlocks}
	parent := make([]int, sh.threads)
	for t := 1; t < sh.threads; t++ {
		parent[t] = r.IntN(t)
	}
	for t := range p.threads {
		p.threads[t] = sh.thread(r, p, t, parent)
	}
	return p
}

func (sh shape) thread(r *rand.Rand, p *simProgram, t int, parent []int) (ops []simOp) {
	var create, join []int
	for c := t + 1; c < len(parent); c++ {
		if parent[c] == t {
			create = append(create, c)
		}
	}
	var held []int
	var try []int // of each of held: index of its opTry, −1 for others
	unlock := func(i int) {
		if try[i] >= 0 {
			ops[try[i]].skip = len(ops) + 1
		}
		ops = append(ops, simOp{kind: opUnlock, lock: held[i]})
		held, try = slices.Delete(held, i, i+1), slices.Delete(try, i, i+1)
	}
	for len(ops) < sh.length || len(held) > 0 || len(create) > 0 {
		rest := len(ops) >= sh.length
		free := len(held) == 0 || sh.joinHeld
		switch k := r.IntN(10); {
		case k < 2 && len(create) > 0 && free:
			ops = append(ops, simOp{kind: opCreate, other: create[0]})
			join = append(join, create[0])
			create = create[1:]
		case k == 2 && len(join) > 0 && free:
			ops = append(ops, simOp{kind: opJoin, other: join[0]})
			join = join[1:]
		case k < 6 && !rest && len(held) < 3:
			l := r.IntN(p.locks)
			if slices.Contains(held, l) {
				continue
			}
			op := simOp{kind: opLock, lock: l, shared: l >= p.rwFrom && r.IntN(2) == 0}
			try = append(try, -1)
			if sh.tries && r.IntN(4) == 0 {
				op.kind = opTry
				try[len(try)-1] = len(ops)
			}
			held = append(held, l)
			ops = append(ops, op)
		case k >= 6 && len(held) > 0:
			i := len(held) - 1
			if sh.anyOrder {
				i = r.IntN(len(held))
			}
			unlock(i)
		}
	}
	return ops
}

// simRun runs a program under a random schedule and gives its events to detectors: all of them to full, the filtered ones to filtered.
type simRun struct {
	s        *simState
	r        *rand.Rand
	ts       uint64
	full     *Detector
	filtered *Detector
	found    [2][]finding.Finding
	wanting  []bool
	sent     []map[string]bool // orders that each thread has sent
}

func newSimRun(p *simProgram, seed uint64) *simRun {
	run := &simRun{s: newSimState(p), r: rand.New(rand.NewPCG(seed, 7)), wanting: make([]bool, len(p.threads))}
	run.full = New(Config{}, plainWorld{}, func(f finding.Finding) { run.found[0] = append(run.found[0], f) })
	run.filtered = New(Config{}, plainWorld{}, func(f finding.Finding) { run.found[1] = append(run.found[1], f) })
	for range p.threads {
		run.sent = append(run.sent, map[string]bool{})
	}
	return run
}

type appender interface {
	Append(dst []uint64, ts uint64) []uint64
}

func emit(d *Detector, t int, ts uint64, ev appender) {
	w := ev.Append(nil, ts)
	d.Event(1, &wire.Event{TS: ts, Type: wire.Type(w[0]), Thread: uint32(t + 1), Words: w})
}

func (run *simRun) both(t int, ev appender) {
	run.ts++
	emit(run.full, t, run.ts, ev)
	emit(run.filtered, t, run.ts, ev)
}

func simAddr(lock int) uint64 { return 0x1000 + uint64(lock)*64 }

func mode(shared bool) wire.Mode {
	if shared {
		return wire.ModeShared
	}
	return wire.ModeExclusive
}

func (run *simRun) helds(t int) (out []wire.Held) {
	for _, h := range run.s.held[t] {
		out = append(out, wire.Held{Obj: simAddr(h.lock), Stack: h.stack, Mode: uint8(mode(h.shared)), Kind: uint8(run.s.p.kind(h.lock))})
	}
	return out
}

// step lets a random thread go one step, or come to block; false when nobody can.
func (run *simRun) step() bool {
	s := run.s
	var can []int
	for t := range s.pc {
		if s.started[t] && !s.done(t) && (s.canMove(t) || !run.wanting[t]) {
			can = append(can, t)
		}
	}
	if len(can) == 0 {
		return false
	}
	t := can[run.r.IntN(len(can))]
	op := s.p.threads[t][s.pc[t]]
	stack := simStack(t, s.pc[t])
	if !s.canMove(t) {
		w := wire.EvWant{Stack: stack, Held: run.helds(t)}
		if op.kind == opJoin {
			w.Kind, w.Target = wire.ObjectThread, uint32(op.other+1)
		} else {
			w.Obj, w.Kind, w.Mode = simAddr(op.lock), s.p.kind(op.lock), mode(op.shared)
		}
		run.wanting[t] = true
		run.both(t, w)
		return true
	}
	before := run.helds(t)
	_, got := s.move(t)
	if run.wanting[t] {
		run.wanting[t] = false
		run.both(t, wire.EvWantEnd{Obj: simAddr(op.lock)})
	}
	switch op.kind {
	case opLock, opTry:
		if !got {
			break
		}
		how := wire.HowBlock
		if op.kind == opTry {
			how = wire.HowTry
		}
		run.ts++
		emit(run.full, t, run.ts, wire.EvAcquire{Obj: simAddr(op.lock), Kind: s.p.kind(op.lock), Mode: mode(op.shared), How: how, Stack: stack})
		key := fmt.Sprint(op.lock, op.shared, how)
		for _, h := range before {
			key += fmt.Sprint(" ", h.Obj, h.Mode)
		}
		if len(before) > 0 && !run.sent[t][key] {
			run.sent[t][key] = true
			emit(run.filtered, t, run.ts, wire.EvOrder{Obj: simAddr(op.lock), Kind: s.p.kind(op.lock), Mode: mode(op.shared), How: how, Stack: stack, Held: before})
		}
	case opUnlock:
		run.ts++
		emit(run.full, t, run.ts, wire.EvRelease{Obj: simAddr(op.lock), Kind: s.p.kind(op.lock)})
	case opCreate:
		run.both(t, wire.EvThreadCreate{Child: uint32(op.other + 1)})
		run.sent[t] = map[string]bool{}
	case opJoin:
		run.both(t, wire.EvThreadJoin{Target: uint32(op.other + 1)})
		run.sent[t] = map[string]bool{}
	}
	if s.done(t) {
		run.both(t, wire.EvThreadExit{})
	}
	return true
}

// circles counts the circles of blocked threads by following each one's only blocker: for programs without rwlocks.
func (run *simRun) circles() int {
	next := map[int]int{}
	for t, wants := range run.wanting {
		if !wants || run.s.canMove(t) {
			continue
		}
		op := run.s.p.threads[t][run.s.pc[t]]
		if op.kind == opJoin {
			next[t] = op.other
		} else {
			next[t] = run.s.writer[op.lock]
		}
	}
	n := 0
	for t := range next {
		lowest := true
		x, ok := next[t]
		for i := 0; ok && x != t && i < len(next); i++ {
			lowest = lowest && x > t
			x, ok = next[x]
		}
		if ok && x == t && lowest {
			n++
		}
	}
	return n
}

func ofRule(fs []finding.Finding, rules ...finding.Rule) (out []finding.Finding) {
	for _, f := range fs {
		if slices.Contains(rules, f.Rule) {
			out = append(out, f)
		}
	}
	return out
}

func deadlocks(fs []finding.Finding) []finding.Finding {
	return ofRule(fs, finding.RuleDeadlock, finding.RuleSelfDeadlock)
}

// A deadlock is told at the very step that closes its circle, as often as there are circles, and no thread of it ever moves again. When
// nobody can move, Stuck says so.
func TestDeadlockIffStuck(t *testing.T) {
	stuck := 0
	for seed := uint64(0); seed < 3000; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		sh := shape{threads: 2 + r.IntN(4), locks: 2 + r.IntN(4), length: 6 + r.IntN(8)}
		if sh.tries = r.IntN(2) == 0; !sh.tries {
			sh.anyOrder, sh.joinHeld = r.IntN(2) == 0, r.IntN(2) == 0
		}
		rw := r.IntN(2) == 0
		if rw {
			sh.rwlocks = 1 + r.IntN(sh.locks)
		}
		run := newSimRun(sh.random(r), seed)
		dead := map[uint32]bool{}
		for {
			pcs := slices.Clone(run.s.pc)
			if !run.step() {
				break
			}
			for i := range pcs {
				if dead[uint32(i+1)] && run.s.pc[i] != pcs[i] {
					t.Fatalf("seed %d: T%d was reported as deadlocked and went on", seed, i+1)
				}
			}
			run.full.Tick()
			run.filtered.Tick()
			for _, f := range deadlocks(run.found[0]) {
				for _, p := range f.Parts {
					dead[p.Thread] = true
				}
			}
			if n := len(deadlocks(run.found[0])); !rw && n != run.circles() {
				t.Fatalf("seed %d: %d deadlocks told, %d circles", seed, n, run.circles())
			}
		}
		if got, want := run.full.Stuck(1), run.s.stuck(); got != want || run.filtered.Stuck(1) != want {
			t.Fatalf("seed %d: Stuck is %v, the simulator's threads are stuck: %v", seed, got, want)
		}
		if got := len(deadlocks(run.found[0])) > 0; got != run.s.stuck() {
			t.Fatalf("seed %d: deadlock told: %v, stuck: %v", seed, got, run.s.stuck())
		}
		sameInBothModes(t, seed, run)
		if run.s.stuck() {
			stuck++
		}
	}
	if stuck < 300 {
		t.Errorf("only %d of the programs got stuck: the test shows little", stuck)
	}
}

// sameInBothModes compares the findings from all events with those from the filtered ones.
func sameInBothModes(t *testing.T, seed uint64, run *simRun) {
	t.Helper()
	run.full.Finish()
	run.filtered.Finish()
	full, filtered := describe(run.found[0]), describe(run.found[1])
	if !slices.Equal(full, filtered) {
		t.Fatalf("seed %d: the modes differ:\nfull     %v\nfiltered %v", seed, full, filtered)
	}
}

// describe is all that a finding says but its count.
func describe(fs []finding.Finding) []string {
	var out []string
	for _, f := range fs {
		s := string(f.Rule) + " " + f.Message
		for _, p := range f.Parts {
			s += fmt.Sprintf("; %s T%d @%s", p.Text, p.Thread, pcs(p.Stack))
			for _, h := range p.Held {
				s += fmt.Sprintf(" %s@%s", h.Object, pcs(h.Stack))
			}
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// finish runs to the end under random schedules until one does not deadlock; nil if none was found.
func finish(p *simProgram, seed uint64) *simRun {
	for i := range uint64(20) {
		run := newSimRun(p, seed*100+i)
		for run.step() {
		}
		if !run.s.stuck() {
			return run
		}
	}
	return nil
}

// An inversion is told of a run that went well if and only if another schedule of the same program deadlocks. That is so for programs whose
// locks nest and that create and join threads while they hold none; tries and other orders of unlocking are below.
func TestInversionIffAnotherScheduleDeadlocks(t *testing.T) {
	yes, no := 0, 0
	for seed := uint64(0); seed < 3000; seed++ {
		r := rand.New(rand.NewPCG(seed, 2))
		sh := shape{threads: 2 + r.IntN(3), locks: 2 + r.IntN(3), length: 4 + r.IntN(5)}
		if r.IntN(2) == 0 {
			sh.rwlocks = 1 + r.IntN(sh.locks)
		}
		p := sh.random(r)
		run := finish(p, seed)
		if run == nil {
			continue
		}
		can := p.canDeadlock()
		if got := len(ofRule(run.found[0], finding.RuleInversion)) > 0; got != can {
			t.Fatalf("seed %d: inversion told: %v, another schedule deadlocks: %v\n%+v\n%v", seed, got, can, p.threads, gist(run.found[0]))
		}
		sameInBothModes(t, seed, run)
		if can {
			yes++
		} else {
			no++
		}
	}
	if yes < 300 || no < 300 {
		t.Errorf("%d programs that can deadlock, %d that cannot: the test shows little", yes, no)
	}
}

// With tries, what is told is so: a run shows only the tries that succeeded, so not all is told.
func TestInversionsWithTriesAreReal(t *testing.T) {
	told := 0
	for seed := uint64(0); seed < 2000; seed++ {
		r := rand.New(rand.NewPCG(seed, 3))
		sh := shape{threads: 2 + r.IntN(3), locks: 2 + r.IntN(2), length: 4 + r.IntN(4), tries: true}
		p := sh.random(r)
		run := finish(p, seed)
		if run == nil {
			continue
		}
		if len(ofRule(run.found[0], finding.RuleInversion)) > 0 {
			told++
			if !p.canDeadlock() {
				t.Fatalf("seed %d: an inversion that cannot deadlock\n%+v\n%v", seed, p.threads, gist(run.found[0]))
			}
		}
		sameInBothModes(t, seed, run)
	}
	if told < 100 {
		t.Errorf("only %d inversions", told)
	}
}

// Whatever the order of unlocking, no program that can deadlock goes unmentioned.
func TestNoInversionIsMissedInAnyOrderOfUnlocking(t *testing.T) {
	yes := 0
	for seed := uint64(0); seed < 2000; seed++ {
		r := rand.New(rand.NewPCG(seed, 4))
		sh := shape{threads: 2 + r.IntN(3), locks: 2 + r.IntN(3), length: 4 + r.IntN(5), anyOrder: true}
		p := sh.random(r)
		run := finish(p, seed)
		if run == nil || !p.canDeadlock() {
			continue
		}
		yes++
		if len(ofRule(run.found[0], finding.RuleInversion)) == 0 {
			t.Fatalf("seed %d: no inversion told\n%+v", seed, p.threads)
		}
		sameInBothModes(t, seed, run)
	}
	if yes < 200 {
		t.Errorf("only %d programs that can deadlock", yes)
	}
}
