package agent

import (
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/trace"
	"github.com/ripstop/ripstop/internal/tsc"
	"github.com/ripstop/ripstop/internal/wire"
)

// attach makes a region of a new process and hands it over.
func attach(t testing.TB, s *Session, slots int, laneBytes uint64) *fakeRegion {
	t.Helper()
	r := newFakeRegion(t, s.nextProcess(), slots, laneBytes)
	if !r.send(dialAgent(t, s)) {
		t.Fatal("the region was refused")
	}
	return r
}

// Events of several threads come in the order of their timestamps, with their thread's number, once each, none missing, though the
// rings are small and the threads must wait for room.
func TestDrainOrder(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	const threads, each = 4, 5000
	r := attach(t, s, threads, 4096)
	var wg sync.WaitGroup
	for i := 0; i < threads; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r.live(i, uint32(i+1))
			for n := 0; n < each; n++ {
				r.emit(i, 0, wire.EvAcquire{Obj: uint64(n), Stack: uint32(i)}.Append)
			}
			r.emit(i, 0, wire.EvThreadExit{}.Append)
			atomic.StoreUint32(&r.slots[i].State, slotDone)
		}()
	}
	wg.Wait()
	id := r.head.Process
	eventually(t, "all events", func() bool { return len(c.of(id)) >= threads*(each+2) })
	next := map[uint32]uint64{}
	var last uint64
	for _, e := range c.of(id) {
		if e.TS < last {
			t.Fatalf("an event at %d after one at %d", e.TS, last)
		}
		last = e.TS
		if e.Type != wire.TypeAcquire {
			continue
		}
		a := wire.DecodeAcquire(e.Words)
		if e.Thread != a.Stack+1 || a.Obj != next[e.Thread] {
			t.Fatalf("thread %d: event %d of thread %d, want %d", e.Thread, a.Obj, a.Stack+1, next[e.Thread])
		}
		next[e.Thread]++
	}
	if n := len(c.of(id)); n != threads*(each+2) {
		t.Errorf("%d events", n)
	}
	eventually(t, "slots free", func() bool {
		for i := range r.slots {
			if atomic.LoadUint32(&r.slots[i].State) != slotFree {
				return false
			}
		}
		return true
	})
	if atomic.LoadUint64(&r.head.RingWaits) == 0 {
		t.Error("no thread had to wait: the test does not show what it should")
	}
}

// An agent gives the slot of a thread that has ended to the next one at once, whether its rings were read meanwhile or not: a program that made and
// joined threads in a loop used to wait a millisecond for us every dozen of them. Whose event is whose, and the end of the last one, must
// not depend on when we look.
func TestSlotReusedUnseen(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	r := attach(t, s, 2, 65536)
	id := r.head.Process
	const threads = 20_000
	r.live(0, 1)
	done := make(chan struct{})
	defer close(done)
	go func() { // passes at all moments
		for {
			select {
			case <-done:
				return
			default:
				s.kick()
			}
		}
	}()
	for n := uint32(2); n < 2+threads; n++ {
		r.live(1, n)
		r.emit(1, 0, wire.EvAcquire{Obj: uint64(n)}.Append)
		r.emit(1, int(n%2), wire.EvWantEnd{Obj: uint64(n)}.Append)
		r.emit(1, 0, wire.EvThreadExit{Value: uint64(n)}.Append)
		if !atomic.CompareAndSwapUint32(&r.slots[1].State, slotLive, slotDone) {
			t.Fatalf("the slot of thread %d was freed while it lived", n)
		}
		for range n % 997 { // done for a while of any length
			if atomic.LoadUint32(&r.slots[1].State) == slotFree {
				break
			}
		}
		if n%1000 == 0 { // now and then we are let to see the end
			eventually(t, "slot free", func() bool { return atomic.LoadUint32(&r.slots[1].State) == slotFree })
		}
	}
	eventually(t, "slot free", func() bool { return atomic.LoadUint32(&r.slots[1].State) == slotFree })
	eventually(t, "all events", func() bool { return len(c.of(id)) >= 1+4*threads })
	for i, e := range c.of(id)[1:] {
		n, want := uint32(2+i/4), []wire.Type{wire.TypeThreadStart, wire.TypeAcquire, wire.TypeWantEnd, wire.TypeThreadExit}[i%4]
		if e.Thread != n || e.Type != want {
			t.Fatalf("event %d is %v of thread %d, want %v of %d", i, e.Type, e.Thread, want, n)
		}
	}
	var list []ThreadState
	s.Do(func() { list = s.Threads(id) })
	if len(list) != 1 || list[0].Number != 1 {
		t.Errorf("threads in the end: %+v", list)
	}
}

// An emission that has its timestamp and is not finished holds younger events of other threads back.
func TestOpenEmissionHoldsBack(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	r := attach(t, s, 2, 65536)
	id := r.head.Process
	r.live(0, 1)
	r.live(1, 2)
	ts := r.open(0, 0)
	r.emit(1, 0, wire.EvAcquire{Obj: 2}.Append)
	drained := func() uint64 { return s.Stats().Words }
	want := drained() + uint64(len(wire.EvAcquire{}.Append(nil, 0)))
	eventually(t, "the younger event is taken out of its ring", func() bool { return drained() >= want || passesSince(s, 5) })
	for _, e := range c.of(id) {
		if e.Type == wire.TypeAcquire {
			t.Fatal("the younger event was handed out before the older one was written")
		}
	}
	r.put(0, 0, wire.EvAcquire{Obj: 1}.Append(nil, ts))
	eventually(t, "both", func() bool { return countType(c.of(id), wire.TypeAcquire) == 2 })
	var objs []uint64
	for _, e := range c.of(id) {
		if e.Type == wire.TypeAcquire {
			objs = append(objs, wire.DecodeAcquire(e.Words).Obj)
		}
	}
	if fmt.Sprint(objs) != "[1 2]" {
		t.Errorf("order %v", objs)
	}
}

var passMarks sync.Map

// passesSince tells whether n passes have been made since it was first asked.
func passesSince(s *Session, n uint64) bool {
	now := s.Stats().Passes
	first, _ := passMarks.LoadOrStore(s, now)
	return now >= first.(uint64)+n
}

func countType(list []wire.Event, typ wire.Type) (n int) {
	for _, e := range list {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// An emission that never ends (its thread was thrown out of it) does not hold the others back for ever.
func TestAbandonedEmission(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	s.do(func() { s.openTime = 300 * time.Millisecond })
	r := attach(t, s, 2, 65536)
	r.live(0, 1)
	r.live(1, 2)
	r.open(0, 0)
	r.emit(1, 0, wire.EvAcquire{Obj: 2}.Append)
	eventually(t, "the event of the other thread", func() bool { return countType(c.of(r.head.Process), wire.TypeAcquire) == 1 })
}

// A process that dies has its events handed out to the last one, an open emission notwithstanding, and then its end.
func TestDeadProcess(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	r := newFakeRegion(t, s.nextProcess(), 2, 65536)
	// As if sleep had sent it.
	if err := s.addRegion(r.fd, cmd.Process.Pid, r.head.Process); err != nil {
		t.Fatal(err)
	}
	r.live(0, 1)
	r.emit(0, 0, wire.EvAcquire{Obj: 7}.Append)
	r.open(1, 0)
	if got := s.Processes(); len(got) != 1 || got[0].PID != cmd.Process.Pid {
		t.Errorf("processes: %v", got)
	}
	cmd.Process.Kill()
	eventually(t, "the end", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.ended) == 1 && c.ended[0] == r.head.Process
	})
	if countType(c.of(r.head.Process), wire.TypeAcquire) != 1 {
		t.Errorf("events: %v", c.of(r.head.Process))
	}
	eventually(t, "the process is forgotten", func() bool { return len(s.Processes()) == 0 && s.lookup(r.head.Process) == nil })
	if st := s.Stats(); st.Processes != 1 || st.Threads != 1 || st.Events != 2 {
		t.Errorf("stats: %+v", st)
	}
}

// exec ends the process that was: a region with a new process id from the same pid supersedes the old one.
func TestExecSupersedes(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	old := attach(t, s, 1, 65536)
	old.live(0, 1)
	attach(t, s, 1, 65536)
	eventually(t, "the end of the old one", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.ended) == 1 && c.ended[0] == old.head.Process
	})
	if len(c.of(old.head.Process)) != 1 {
		t.Error("its event is lost")
	}
}

// A forked child's events are not handed out before its parent's older ones.
func TestForkOrder(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	parent := attach(t, s, 1, 65536)
	parent.live(0, 1)
	ts := parent.open(0, 0) // an older event, not yet written
	child := newFakeRegion(t, s.nextProcess(), 1, 65536)
	atomic.StoreUint32(&child.slots[0].State, slotLive)
	child.emit(0, 0, wire.EvProcess{PID: uint32(cmd.Process.Pid), Start: wire.StartFork, ParentThread: 1, ID: child.head.Process, ParentID: parent.head.Process}.Append)
	if err := s.addRegion(child.fd, cmd.Process.Pid, child.head.Process); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill() // even its end waits
	eventually(t, "some passes", func() bool { return passesSince(s, 5) })
	if n := len(c.of(child.head.Process)); n != 0 {
		t.Fatalf("%d events of the child came before the parent's", n)
	}
	parent.put(0, 0, wire.EvFork{ChildPID: 5}.Append(nil, ts))
	eventually(t, "the child's event", func() bool { return len(c.of(child.head.Process)) == 1 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if fmt.Sprint(c.order) != fmt.Sprint([]uint64{parent.head.Process, parent.head.Process, child.head.Process}) {
		t.Errorf("order %v", c.order)
	}
}

// A thread in the wait that its last event announced is blocked; one that has sent something since, or cleared its wait, is not.
func TestBlocked(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	r := attach(t, s, 2, 65536)
	id := r.head.Process
	want := func(i int, obj uint64) {
		r.slots[i].WaitObj = obj
		atomic.AddUint64(&r.slots[i].WaitSeq, 1)
		atomic.StoreUint32(&r.slots[i].WaitKind, uint32(wire.ObjectMutex))
		r.emit(i, 0, wire.EvWant{Obj: obj, Kind: wire.ObjectMutex}.Append)
	}
	ask := func(threads ...uint32) (ok bool) {
		if !s.do(func() { ok = s.Blocked(id, threads) }) {
			t.Fatal("the loop is gone")
		}
		return ok
	}
	r.live(0, 1)
	r.live(1, 2)
	want(0, 0x10)
	want(1, 0x20)
	eventually(t, "both wants", func() bool { return countType(c.of(id), wire.TypeWant) == 2 })
	if !ask(1, 2) {
		t.Error("both threads wait")
	}
	if ask(1, 3) {
		t.Error("there is no thread 3")
	}
	atomic.StoreUint32(&r.slots[1].WaitKind, 0)
	if ask(1, 2) {
		t.Error("thread 2 does not wait any more")
	}
	if !ask(1) {
		t.Error("thread 1 still waits")
	}
	r.emit(0, 0, wire.EvWantEnd{Obj: 0x10}.Append)
	if ask(1) {
		// Whether or not the event has been taken in already, its wait is not the announced one.
		atomic.LoadUint32(&r.slots[0].WaitKind)
		eventually(t, "want-end", func() bool { return countType(c.of(id), wire.TypeWantEnd) == 1 })
	}
}

// Rings whose counters or words make no sense end the watching of their process, and of no other.
func TestDamagedRings(t *testing.T) {
	for name, damage := range map[string]func(r *fakeRegion){
		"head far ahead": func(r *fakeRegion) { atomic.StoreUint64(&r.slots[0].Lane[0].Head, 1<<60) },
		"head behind":    func(r *fakeRegion) { atomic.StoreUint64(&r.slots[0].Lane[0].Head, 1) },
		"unknown event": func(r *fakeRegion) {
			r.put(0, 0, []uint64{tsc.Now()<<8 | 0xfe, 0})
		},
		"cut record": func(r *fakeRegion) {
			r.put(0, 0, wire.EvAcquire{}.Append(nil, tsc.Now())[:2])
		},
		"time runs backwards": func(r *fakeRegion) {
			r.put(0, 0, wire.EvAcquire{}.Append(nil, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector()
			var warned atomic.Int32
			s := newSession(t, Options{Handler: c, Warn: func(string) { warned.Add(1) }})
			bad := newFakeRegion(t, s.nextProcess(), 1, 65536)
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			if err := s.addRegion(bad.fd, cmd.Process.Pid, bad.head.Process); err != nil {
				t.Fatal(err)
			}
			good := attach(t, s, 1, 65536)
			bad.live(0, 1)
			eventually(t, "its first event", func() bool { return len(c.of(bad.head.Process)) == 1 })
			damage(bad)
			eventually(t, "a warning", func() bool { return warned.Load() == 1 })
			good.live(0, 1)
			good.emit(0, 0, wire.EvAcquire{Obj: 1}.Append)
			eventually(t, "events of the other", func() bool { return countType(c.of(good.head.Process), wire.TypeAcquire) == 1 })
		})
	}
}

// Regions whose layout does not fit are refused.
func TestHostileRegions(t *testing.T) {
	s := newSession(t, Options{Handler: newCollector()})
	for name, damage := range map[string]func(r *fakeRegion){
		"magic":           func(r *fakeRegion) { r.head.Magic = 0 },
		"version":         func(r *fakeRegion) { r.head.Version++ },
		"bytes":           func(r *fakeRegion) { r.head.Bytes++ },
		"no slots":        func(r *fakeRegion) { r.head.Slots = 0 },
		"many slots":      func(r *fakeRegion) { r.head.Slots = 1 << 31 },
		"slots beyond":    func(r *fakeRegion) { r.head.SlotsOffset = r.head.Bytes - 8 },
		"slots far":       func(r *fakeRegion) { r.head.SlotsOffset = ^uint64(7) },
		"slots unaligned": func(r *fakeRegion) { r.head.SlotsOffset++ },
		"ring beyond":     func(r *fakeRegion) { r.slots[0].Lane[1].Offset = r.head.Bytes - 64 },
		"ring far":        func(r *fakeRegion) { r.slots[0].Lane[0].Offset = ^uint64(7) },
		"ring size":       func(r *fakeRegion) { r.slots[0].Lane[0].Bytes = 4097 },
		"ring huge":       func(r *fakeRegion) { r.slots[0].Lane[0].Bytes = 1 << 63 },
		"ring none":       func(r *fakeRegion) { r.slots[0].Lane[0].Bytes = 0 },
		"ring in head":    func(r *fakeRegion) { r.slots[0].Lane[0].Offset = 0 },
		"other process":   func(r *fakeRegion) { r.head.Process++ },
	} {
		r := newFakeRegion(t, s.nextProcess(), 1, 4096)
		id := r.head.Process
		damage(r)
		if err := s.addRegion(r.fd, 1, id); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	r := newFakeRegion(t, 1<<40, 1, 4096)
	if err := s.addRegion(r.fd, 1, 1<<40); err == nil {
		t.Error("a process id that was not handed out was taken")
	}
	// Not sealed: its owner could make our reads fault.
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	good := newFakeRegion(t, s.nextProcess(), 1, 4096)
	if _, err := unix.Write(fd, good.mem); err != nil {
		t.Fatal(err)
	}
	if err := s.addRegion(fd, 1, good.head.Process); err == nil {
		t.Error("an unsealed region was taken")
	}
	if err := s.addRegion(good.fd, 1, good.head.Process); err != nil {
		t.Errorf("the region as it should be: %v", err)
	}
	if err := s.addRegion(good.fd, 2, good.head.Process); err == nil {
		t.Error("another process spoke for this one")
	}
}

// wordsRecorder is a Recorder.
type wordsRecorder struct {
	mu            sync.Mutex
	words, bounds int
	gone, flushes int
	newest        uint64 // timestamp of an event
	bound         uint64
	flushed       uint64 // bound at the last flush
	err           error
}

func (r *wordsRecorder) Chunk(_ uint64, _ trace.LaneKey, w []uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.words += len(w)
	for at := 0; at < len(w); {
		n, err := wire.RecordWords(w[at:])
		if err != nil {
			return err
		}
		r.newest = max(r.newest, w[at]>>8)
		at += n
	}
	return r.err
}
func (r *wordsRecorder) Bound(_, ts uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bounds++
	r.bound = ts
	return nil
}
func (r *wordsRecorder) Gone(uint64) error { r.mu.Lock(); defer r.mu.Unlock(); r.gone++; return nil }
func (r *wordsRecorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushes++
	r.flushed = r.bound
	return nil
}

// A recorder gets all words, bounds until the last event is behind one and then no more while nothing happens, and a flush when the
// rings have run empty, with that bound: who reads the trace of a program that hangs sees all of it. Its error is Close's.
func TestRecorder(t *testing.T) {
	rec := &wordsRecorder{}
	acquire := len(wire.EvAcquire{}.Append(nil, 0))
	all := 100*acquire + len(wire.EvThreadStart{}.Append(nil, 0))
	s := newSession(t, Options{Recorder: rec})
	r := attach(t, s, 1, 65536)
	r.live(0, 1)
	for i := 0; i < 100; i++ {
		r.emit(0, 0, wire.EvAcquire{Obj: 1}.Append)
	}
	eventually(t, "words and a flush", func() bool {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		return rec.words >= all && rec.flushed > rec.newest
	})
	rec.mu.Lock()
	bounds := rec.bounds
	rec.mu.Unlock()
	eventually(t, "idle passes", func() bool { return passesSince(s, 5) })
	rec.mu.Lock()
	if rec.bounds > bounds {
		t.Errorf("%d bounds while nothing happened", rec.bounds-bounds)
	}
	rec.err = fmt.Errorf("the disk is full")
	rec.mu.Unlock()
	r.emit(0, 0, wire.EvAcquire{Obj: 1}.Append)
	want := uint64(all + acquire)
	eventually(t, "drained all the same", func() bool { return s.Stats().Words >= want })
	if left, err := s.Close(); err == nil || len(left) != 1 {
		t.Errorf("Close: %v left, %v", left, err)
	}
}

// Urgent events are looked at at once, not at the loop's leisure.
func TestDoorbell(t *testing.T) {
	c := newCollector()
	s := newSession(t, Options{Handler: c})
	r := attach(t, s, 1, 65536)
	r.live(0, 1)
	var worst time.Duration
	for i := 0; i < 20; i++ {
		eventually(t, "the loop sleeps", func() bool { return atomic.LoadUint32(&s.ctl.page.Sleeping) == 1 })
		before := s.Stats().Passes
		begin := time.Now()
		s.ctl.ring() // as the agent does
		eventually(t, "a pass", func() bool { return s.Stats().Passes > before })
		worst = max(worst, time.Since(begin))
	}
	if worst > 5*time.Second {
		t.Errorf("woken after %v", worst)
	}
}

func FuzzRegion(f *testing.F) {
	r := newFakeRegion(f, 1, 1, 4096)
	r.live(0, 1)
	f.Add(r.mem[:wire.SizeRegion+wire.SizeSlot], uint64(5))
	f.Fuzz(func(t *testing.T, head []byte, n uint64) {
		r := newFakeRegion(t, 1, 1, 4096)
		copy(r.mem, head)
		m, err := mapRegion(r.fd, 0)
		if err != nil {
			return
		}
		defer m.unmap()
		s := &Session{opts: Options{Handler: newCollector()}, warned: map[string]bool{}, openTime: openTime}
		p := &process{pidfd: -1, regions: []*region{m}, seen: []*region{m}, threads: map[uint32]*slot{}}
		p.merger = trace.NewMerger(func(e *wire.Event) { s.hand(p, e) })
		p.clock = p.merger.Lane(clockKey)
		var buf []uint64
		s.drain(p, &buf, tsc.Now())
		for i := range m.slots {
			m.slots[i].shared.Lane[0].Head += n % 600
		}
		s.drain(p, &buf, tsc.Now())
		s.closeLanes(p)
		s.flush(p)
	})
}
