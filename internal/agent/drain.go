package agent

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tsc"
	"github.com/ripstop/ripstop/internal/wire"
)

const (
	// slackTime is how long a store may hide in a store buffer before we see it; see 'Order of events' in docs/architecture.md.
	slackTime = 100 * time.Microsecond
	// The loop looks at the rings again after minInterval when much was in them, after up to someInterval when little was, and maxInterval when nothing.
	minInterval  = 10 * time.Millisecond
	someInterval = 50 * time.Millisecond
	maxInterval  = 100 * time.Millisecond
	// openTime is for how long an emission that makes no progress is waited for. Its thread is stopped, or left it by longjmp out of a
	// signal handler.
	openTime = 5 * time.Second
	// fullBuffer is the number of words a merger may hold before openTime is not waited for.
	fullBuffer = 32 << 20
	// batchEvery bounds the time between two calls of Handler.Batch.
	batchEvery = 200 * time.Millisecond
)

// ticksPer is d in ticks of the TSC.
func ticksPer(d time.Duration) uint64 { return uint64(float64(tsc.Frequency()) * d.Seconds()) }

// loop drains the rings until Close.
func (s *Session) loop() {
	defer close(s.loopDone)
	interval := minInterval
	var buf []uint64
	for {
		bell := atomic.LoadUint32(&s.ctl.page.Doorbell)
		words := s.pass(&buf, false)
		s.runQueue()
		select {
		case <-s.loopStop:
			s.pass(&buf, true)
			s.runQueue()
			return
		default:
		}
		ring := int(s.opts.Config.LaneBytes) / 8
		switch {
		case words >= ring/64:
			interval = minInterval
		case words > 0:
			interval = min(2*interval, someInterval)
		default:
			interval = min(2*interval, maxInterval)
		}
		// A quarter of a ring in one pass: it would be full before the interval is over.
		if words >= ring/4 {
			runtime.Gosched()
			continue
		}
		s.ctl.wait(bell, interval)
	}
}

// do runs f on the loop's goroutine, between two passes, and returns when it has run; false: the loop has ended, f is not run.
func (s *Session) do(f func()) bool {
	done := make(chan struct{})
	s.mu.Lock()
	s.queue = append(s.queue, func() { f(); close(done) })
	s.mu.Unlock()
	s.kick()
	select {
	case <-done:
		return true
	case <-s.loopDone:
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

func (s *Session) runQueue() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

// kick makes the loop look at the rings now. The control page is there as long as the loop.
func (s *Session) kick() {
	select {
	case <-s.loopDone:
	default:
		s.ctl.ring()
	}
}

// pass takes what is in all rings and hands out what is in order; it returns the number of words taken. In the last pass of a
// session, final, whatever is there is handed out.
func (s *Session) pass(buf *[]uint64, final bool) int {
	now := tsc.Now() // before any word of shared memory is read
	s.mu.Lock()
	s.stats.Passes++
	list := append(s.scratch[:0], s.order...)
	s.scratch = list
	for _, p := range list {
		p.seen, p.over = p.regions[:len(p.regions):len(p.regions)], p.ended
	}
	s.mu.Unlock()
	// Asked before the rings are read: what a dead process wrote is all there then.
	s.lookForDead(list)

	total := 0
	for _, p := range list {
		over := p.over
		s.setDebug(p)
		n, bound := s.drain(p, buf, now)
		total += n
		if p.merger == nil {
			s.recordBound(p, n, bound, over)
			if over {
				s.finish(p)
			}
			continue
		}
		if q := s.lookup(p.parent); q != nil && q.bound < p.began && !final {
			continue // the child begins with its parent's state
		}
		if over {
			s.finish(p)
			continue
		}
		p.clock.Bound(now - min(s.slack, now))
		s.flush(p)
		p.bound = bound
	}
	if final {
		for _, p := range list {
			if p.merger != nil && s.lookup(p.id) == p {
				s.closeLanes(p)
				s.flush(p)
			}
		}
	}
	if total > 0 {
		s.flushed = false
	}
	if r := s.opts.Recorder; r != nil && s.sinkErr == nil && !s.flushed && (total == 0 || final) {
		s.flushed = true
		s.sinkErr = r.Flush()
	}
	s.count()
	if s.opts.Handler != nil && (total > 0 || final || time.Since(s.batched) >= batchEvery) {
		s.opts.Handler.Batch()
		s.batched = time.Now()
	}
	return total
}

// lookForDead marks the processes that have ended, with one system call for all that have a pidfd.
func (s *Session) lookForDead(list []*process) {
	s.polls, s.polled = s.polls[:0], s.polled[:0]
	for _, p := range list {
		switch {
		case p.over:
		case p.pidfd >= 0:
			s.polls, s.polled = append(s.polls, unix.PollFd{Fd: int32(p.pidfd), Events: unix.POLLIN}), append(s.polled, p)
		default:
			p.over = !p.alive()
		}
	}
	if len(s.polls) == 0 {
		return
	}
	if n, err := unix.Poll(s.polls, 0); err != nil || n == 0 {
		return
	}
	for i, f := range s.polls {
		s.polled[i].over = f.Revents != 0
	}
}

// count makes visible to others what the loop has counted.
func (s *Session) count() {
	s.mu.Lock()
	s.stats.Events += s.events
	s.stats.Words += s.words
	s.stats.Threads += s.threads
	s.forked = s.forked || s.children
	s.mu.Unlock()
	s.events, s.words, s.threads = 0, 0, 0
}

// recordBound records up to where the events of p are all there. The last events of a process that then rests become complete only
// in a later pass, one that takes nothing.
func (s *Session) recordBound(p *process, words int, bound uint64, over bool) {
	if s.sinkErr != nil {
		return
	}
	switch {
	case over:
		s.flushed = false
		s.sinkErr = s.opts.Recorder.Gone(p.id)
	case bound > p.bound && (words > 0 || p.newest >= p.bound):
		p.bound = bound
		s.flushed = false
		s.sinkErr = s.opts.Recorder.Bound(p.id, bound)
	}
}

func (s *Session) lookup(id uint64) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[id]
}

// drain takes what is in the rings of p. It returns the number of words, and the timestamp before which nothing more will come.
func (s *Session) drain(p *process, buf *[]uint64, now uint64) (words int, bound uint64) {
	settled := now - min(s.slack, now)
	bound = settled
	if p.broken {
		return 0, bound
	}
	for _, r := range p.seen {
		for i := range r.slots {
			sl := &r.slots[i]
			state := atomic.LoadUint32(&sl.shared.State)
			if state == slotFree && !sl.inUse {
				continue
			}
			sl.inUse = true
			for j := range sl.lanes {
				n, laneBound, err := s.drainLane(p, sl, &sl.lanes[j], buf, settled)
				if err != nil {
					s.breakProcess(p, err)
					return words, settled
				}
				words += n
				bound = min(bound, laneBound)
			}
			if state != slotLive {
				s.freeSlot(p, sl)
			}
		}
	}
	return words, bound
}

// freeSlot marks a slot free whose thread has ended, once its rings are drained. The agent may give it to a new thread at any time, free or
// not: then this says no more than that nothing of the thread before is left to be read.
func (s *Session) freeSlot(p *process, sl *slot) {
	atomic.CompareAndSwapUint32(&sl.shared.State, slotDone, slotFree)
	if atomic.LoadUint32(&sl.shared.State) != slotFree || !sl.lanes[0].drained() || !sl.lanes[1].drained() {
		return // it has a new thread, which may have ended, too
	}
	for j := range sl.lanes {
		if l := &sl.lanes[j]; l.merge != nil {
			l.merge.Close()
		}
		sl.lanes[j].openSince = time.Time{}
	}
	if p.threads[sl.thread] == sl {
		delete(p.threads, sl.thread)
	}
	sl.inUse, sl.thread, sl.waitDrained, sl.waitHanded = false, 0, 0, 0
}

// drainLane takes what is in one lane. The order of the reads is the contract's: TSC (at the start of the pass), Pending, Head.
func (s *Session) drainLane(p *process, sl *slot, l *lane, buf *[]uint64, settled uint64) (words int, bound uint64, err error) {
	pending := atomic.LoadUint32(&l.shared.Pending) != 0
	if *buf, err = l.drain(*buf); err != nil {
		return 0, 0, err
	}
	w := *buf
	if len(w) > 0 {
		if err := s.scan(p, sl, l, w); err != nil {
			return 0, 0, err
		}
		if s.opts.Recorder != nil && s.sinkErr == nil {
			s.sinkErr = s.opts.Recorder.Chunk(p.id, l.key, w)
		}
	}
	bound = settled
	switch {
	case !pending:
		l.openSince = time.Time{}
	case !s.abandoned(p, l):
		bound = min(settled, l.last)
	}
	if p.merger == nil {
		return len(w), bound, nil
	}
	if l.merge == nil {
		if len(w) == 0 && !pending {
			return 0, bound, nil // a lane that was never used
		}
		l.merge = p.merger.Lane(l.key)
	}
	if len(w) > 0 {
		if err := l.merge.Append(w); err != nil {
			return 0, 0, err
		}
	}
	l.merge.Bound(bound)
	return len(w), bound, nil
}

// abandoned tells whether the open emission of l is no longer waited for.
func (s *Session) abandoned(p *process, l *lane) bool {
	if l.openSince.IsZero() || l.openHead != l.tail {
		l.openHead, l.openSince = l.tail, time.Now()
		return false
	}
	waited := time.Since(l.openSince)
	return waited > s.openTime || waited > s.openTime/10 && p.merger != nil && p.merger.Buffered() > fullBuffer
}

// scan walks the records just drained and keeps what we need to know of them: the last timestamp, the thread's number, its last wait,
// and whose child the process is.
func (s *Session) scan(p *process, sl *slot, l *lane, w []uint64) error {
	for at := 0; at < len(w); {
		n, err := wire.RecordWords(w[at:])
		if err == nil && at+n > len(w) {
			err = wire.ErrShort
		}
		if err != nil {
			return fmt.Errorf("%v: %w", l.key, err)
		}
		rec := w[at : at+n]
		at += n
		typ, ts := wire.Type(rec[0]), rec[0]>>8
		switch typ {
		case wire.TypePad:
			continue
		case wire.TypeProcess:
			e := wire.DecodeProcess(rec)
			if p.began == 0 {
				p.began, p.parent = ts, e.ParentID
			}
			if e.ParentThread != 0 {
				p.setThread(sl, e.ParentThread)
			}
		case wire.TypeThreadStart:
			p.setThread(sl, wire.DecodeThreadStart(rec).Self)
			s.threads++
		case wire.TypeFork:
			s.children = true
		case wire.TypeWant, wire.TypeWantEnd:
			if l.key.Lane == 0 {
				sl.waitDrained = ts
			}
		}
		l.last = max(l.last, ts)
		p.newest = max(p.newest, ts)
		s.events++
	}
	s.words += uint64(len(w))
	return nil
}

func (p *process) setThread(sl *slot, number uint32) {
	if p.threads[sl.thread] == sl {
		delete(p.threads, sl.thread)
	}
	sl.thread, sl.waitDrained, sl.waitHanded = number, 0, 0
	p.threads[number] = sl
}

// hand passes one ordered event on.
func (s *Session) hand(p *process, e *wire.Event) {
	if e.Type == wire.TypeWant || e.Type == wire.TypeWantEnd {
		if sl := p.threads[e.Thread]; sl != nil {
			sl.waitHanded = e.TS
		}
	}
	s.opts.Handler.Event(p.id, e)
}

func (s *Session) flush(p *process) {
	if err := p.merger.Flush(); err != nil {
		panic("BUG: " + err.Error())
	}
}

func (s *Session) closeLanes(p *process) {
	for _, r := range p.seen {
		for i := range r.slots {
			for j := range r.slots[i].lanes {
				if l := &r.slots[i].lanes[j]; l.merge != nil {
					l.merge.Close()
				}
			}
		}
	}
	if p.clock != nil {
		p.clock.Close()
	}
}

// breakProcess stops reading a process whose shared memory is not as the contract says: overwritten by a bug of the program's, or
// hostile. What came before counts.
func (s *Session) breakProcess(p *process, err error) {
	p.broken = true
	s.closeLanes(p)
	s.warn(fmt.Sprintf("process %d is no longer watched: its event rings are damaged (%v)", p.pid, err))
}

// finish hands out what p has left and forgets it.
func (s *Session) finish(p *process) {
	if p.merger != nil {
		s.closeLanes(p)
		s.flush(p)
		s.count() // before anybody hears of the end
		s.opts.Handler.End(p.id)
	}
	if s.opts.Patcher != nil {
		s.opts.Patcher.Gone(p.id)
	}
	s.mu.Lock()
	s.stats.add(p)
	delete(s.processes, p.id)
	for i, q := range s.order {
		if q == p {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	s.keepCalls(p)
	p.free()
	s.mu.Unlock()
}

// release forgets all processes. The loop has ended.
func (s *Session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.order {
		s.stats.add(p)
		if s.opts.Patcher != nil {
			s.opts.Patcher.Gone(p.id)
		}
		s.keepCalls(p)
		p.free()
	}
	clear(s.processes)
	s.order = nil
}

// Blocked tells whether each of the threads is, at one same moment, in the very wait that its last handed-out event announced. It is
// to be called from the Handler's methods.
func (s *Session) Blocked(process uint64, threads []uint32) bool {
	p := s.lookup(process)
	if p == nil || p.broken {
		return false
	}
	busy := s.busy(p)
	seqs := make([]uint64, len(threads))
	// Each thread is looked at twice. What is unchanged in between was so for all of them when the first round ended.
	for round := 0; round < 2; round++ {
		for i, t := range threads {
			sl := p.threads[t]
			if sl == nil || sl.waitHanded == 0 || sl.waitHanded != sl.waitDrained || !sl.lanes[0].empty() ||
				atomic.LoadUint32(&sl.shared.State) != slotLive || atomic.LoadUint32(&sl.shared.WaitKind) == 0 {
				return false
			}
			seq := atomic.LoadUint64(&sl.shared.WaitSeq)
			if round == 1 && seqs[i] != seq {
				return false
			}
			seqs[i] = seq
		}
		if round == 0 && !p.sleep(threads) {
			return false
		}
	}
	return busy&1 == 0 && s.busy(p) == busy
}
