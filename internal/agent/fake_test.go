package agent

import (
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tsc"
	"github.com/ripstop/ripstop/internal/wire"
)

// A fakeAgent speaks the contract of package wire as the agent in C does, from this process.
type fakeAgent struct {
	t    testing.TB
	s    *Session
	conn *net.UnixConn
}

func dialAgent(t testing.TB, s *Session) *fakeAgent {
	t.Helper()
	return dialAgentAt(t, s, filepath.Join(s.Dir(), "sock"))
}

func dialAgentAt(t testing.TB, s *Session, name string) *fakeAgent {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return &fakeAgent{t, s, c}
}

// ask sends a message and returns the answer, nil if the connection was closed instead.
func (a *fakeAgent) ask(msg []byte, fds ...int) (answer []byte, got []int) {
	a.t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := a.conn.WriteMsgUnix(msg, oob, nil); err != nil {
		return nil, nil
	}
	buf, ctl := make([]byte, 4096), make([]byte, unix.CmsgSpace(64*4))
	n, oobn, _, _, err := a.conn.ReadMsgUnix(buf, ctl)
	if err != nil || n == 0 {
		return nil, nil
	}
	got, err = descriptors(ctl[:oobn])
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		for _, fd := range got {
			unix.Close(fd)
		}
	})
	return buf[:n], got
}

func helloMsg(s *Session, kind uint32, process uint64) wire.Hello {
	return wire.Hello{Magic: wire.Magic, Version: wire.Version, Kind: kind, Process: process, Token: s.ctl.page.Token}
}

// nextProcess takes a process id from the control page, as an agent does.
func (s *Session) nextProcess() uint64 { return atomic.AddUint64(&s.ctl.page.NextProcess, 1) - 1 }

// fakeRegion is the agent's side of a region.
type fakeRegion struct {
	t     testing.TB
	fd    int
	mem   []byte
	head  *wire.Region
	slots []*wire.Slot
	mu    []sync.Mutex // one lane 0 each
}

func newFakeRegion(t testing.TB, process uint64, slots int, laneBytes uint64) *fakeRegion {
	t.Helper()
	ringsAt := uint64(wire.SizeRegion) + uint64(slots)*wire.SizeSlot
	ringsAt = (ringsAt + 4095) &^ 4095
	size := ringsAt + uint64(slots)*2*laneBytes
	fd, err := unix.MemfdCreate("fake", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem); unix.Close(fd) })
	r := &fakeRegion{t: t, fd: fd, mem: mem, head: (*wire.Region)(unsafe.Pointer(&mem[0])), mu: make([]sync.Mutex, slots)}
	*r.head = wire.Region{Magic: wire.Magic, Version: wire.Version, Process: process, Bytes: size, SlotsOffset: wire.SizeRegion, Slots: uint32(slots)}
	for i := 0; i < slots; i++ {
		sl := (*wire.Slot)(unsafe.Pointer(&mem[wire.SizeRegion+i*wire.SizeSlot]))
		for j := range sl.Lane {
			sl.Lane[j].Offset = ringsAt + uint64(2*i+j)*laneBytes
			sl.Lane[j].Bytes = laneBytes
		}
		r.slots = append(r.slots, sl)
	}
	return r
}

// send hands the region to the session and reports whether it was taken.
func (r *fakeRegion) send(a *fakeAgent) bool {
	h := helloMsg(a.s, regionKind, r.head.Process)
	answer, _ := a.ask(bytesOf(&h), r.fd)
	return len(answer) == wire.SizeTables && read[wire.Tables](answer).Has == 1
}

// live makes slot i that of a thread and sends its first event.
func (r *fakeRegion) live(i int, number uint32) {
	sl := r.slots[i]
	sl.Number = number
	atomic.StoreUint32(&sl.State, slotLive)
	r.emit(i, 0, wire.EvThreadStart{Self: number, TID: 1000 + number}.Append)
}

// open begins an emission and returns its timestamp.
func (r *fakeRegion) open(i, j int) uint64 {
	atomic.StoreUint32(&r.slots[i].Lane[j].Pending, 1)
	return tsc.Now()
}

// put finishes an emission: it waits for room, writes the record, and advances Head.
func (r *fakeRegion) put(i, j int, rec []uint64) {
	l := &r.slots[i].Lane[j]
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&r.mem[l.Offset])), l.Bytes/8)
	size, n := uint64(len(words)), uint64(len(rec))
	room := func(n uint64) {
		for {
			tail := atomic.LoadUint64(&l.Tail)
			if size-(l.Head-tail) >= n {
				return
			}
			atomic.StoreUint32(&l.Waiting, 1)
			if atomic.LoadUint64(&l.Tail) == tail {
				atomic.AddUint64(&r.head.RingWaits, 1)
				ts := unix.NsecToTimespec(int64(10 * time.Second))
				unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&l.Tail)), futexWait, uintptr(uint32(tail)), uintptr(unsafe.Pointer(&ts)), 0, 0)
			}
			atomic.StoreUint32(&l.Waiting, 0)
		}
	}
	if left := size - l.Head&(size-1); left < n || left == n+1 { // a pad record fills the end; one word could not hold it
		room(left)
		pad := wire.EvPad{Tail: make([]byte, (left-2)*8)}.Append(nil, 0)
		copy(words[l.Head&(size-1):], pad)
		atomic.StoreUint64(&l.Head, l.Head+left)
	}
	room(n)
	copy(words[l.Head&(size-1):], rec)
	atomic.StoreUint64(&l.Head, l.Head+n)
	atomic.StoreUint32(&l.Pending, 0)
}

func (r *fakeRegion) emit(i, j int, enc func([]uint64, uint64) []uint64) {
	ts := r.open(i, j)
	r.put(i, j, enc(nil, ts))
}

// collector is a Handler that keeps what it gets.
type collector struct {
	mu      sync.Mutex
	events  map[uint64][]wire.Event
	ended   []uint64
	order   []uint64 // processes in the order of their events
	onBatch func()
}

func newCollector() *collector { return &collector{events: map[uint64][]wire.Event{}} }

func (c *collector) Event(process uint64, e *wire.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev := *e
	ev.Words = append([]uint64(nil), e.Words...)
	c.events[process] = append(c.events[process], ev)
	c.order = append(c.order, process)
}

func (c *collector) Batch() {
	if c.onBatch != nil {
		c.onBatch()
	}
}

func (c *collector) End(process uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, process)
}

func (c *collector) of(process uint64) []wire.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]wire.Event(nil), c.events[process]...)
}

// eventually polls for a state that another goroutine is to bring about; it fails after a time that no working machine needs.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("did not come about in 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func newSession(t testing.TB, o Options) *Session {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if o.Library == nil {
		o.Library = []byte("no library, but of no consequence")
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
