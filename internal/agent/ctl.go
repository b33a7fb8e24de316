package agent

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/block"
	"github.com/ripstop/ripstop/internal/wire"
)

// heartbeatEvery is how often Ctl.HeartbeatMs is refreshed; the contract allows 200 ms.
const heartbeatEvery = 100 * time.Millisecond

// ctl is the control page. Agents can write to it: nothing here may be believed beyond what it is for.
type ctl struct {
	fd    int // given to agents
	mem   []byte
	page  *wire.Ctl
	token uint64 // what the page says, as long as nobody overwrites it
	stop  chan struct{}
	done  chan struct{}

	timeout unix.Timespec // of wait
}

// ctlName is the name of the control page in the list of a process's mappings.
const ctlName = "ripstop-ctl"

func newCtl() (*ctl, error) {
	size := os.Getpagesize()
	fd, mem, err := newSharedMemory(ctlName, size)
	if err != nil {
		return nil, err
	}
	c := &ctl{fd: fd, mem: mem, page: (*wire.Ctl)(unsafe.Pointer(&mem[0])), stop: make(chan struct{}), done: make(chan struct{})}
	c.page.Version = wire.Version
	c.page.GoPid = int32(os.Getpid())
	var random [8]byte
	rand.Read(random[:]) // never fails
	c.token = binary.LittleEndian.Uint64(random[:])
	c.page.Token = c.token
	atomic.StoreUint64(&c.page.NextProcess, 1)
	c.beat()
	atomic.StoreUint64(&c.page.Magic, wire.Magic)
	go c.heart()
	return c, nil
}

// newSharedMemory makes a memfd of size bytes that can be neither shrunk nor grown, and maps it.
func newSharedMemory(name string, size int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, fmt.Errorf("cannot make shared memory (memfd_create): %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("cannot make shared memory of %d bytes: %w", size, err)
	}
	return fd, mem, nil
}

// monotonicMs is CLOCK_MONOTONIC in milliseconds.
func monotonicMs() uint32 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("BUG: clock_gettime(CLOCK_MONOTONIC): " + err.Error())
	}
	return uint32(uint64(ts.Sec)*1000 + uint64(ts.Nsec)/1e6)
}

func (c *ctl) beat() { atomic.StoreUint32(&c.page.HeartbeatMs, monotonicMs()) }

// heart is a goroutine of its own, so that it beats while the drain loop is busy with a large batch.
func (c *ctl) heart() {
	defer close(c.done)
	t := time.NewTicker(heartbeatEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.beat()
		case <-c.stop:
			return
		}
	}
}

// wait sleeps until the doorbell rings or d has passed. last is the doorbell's value up to which rings are known to be drained; the
// new value is returned.
func (c *ctl) wait(last uint32, d time.Duration) uint32 {
	atomic.StoreUint32(&c.page.Sleeping, 1)
	if atomic.LoadUint32(&c.page.Doorbell) == last {
		c.timeout = unix.NsecToTimespec(int64(d))
		// EAGAIN, EINTR and ETIMEDOUT all mean: look again.
		_, _ = block.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&c.page.Doorbell)), futexWait, uintptr(last),
			uintptr(unsafe.Pointer(&c.timeout)), 0, 0)
	}
	atomic.StoreUint32(&c.page.Sleeping, 0)
	return atomic.LoadUint32(&c.page.Doorbell)
}

// ring wakes the drain loop from our own side.
func (c *ctl) ring() {
	atomic.AddUint32(&c.page.Doorbell, 1)
	futexWakeAll(&c.page.Doorbell)
}

// Shared (not private) futex operations: the other side is another process.
const (
	futexWait = 0
	futexWake = 1
)

func futexWakeAll(word *uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, uintptr(1<<30), 0, 0, 0)
}

// tellLost says which forked processes could not join the session.
func (c *ctl) tellLost(warn func(string)) {
	n := atomic.LoadUint32(&c.page.Lost)
	for i := range min(n, wire.MaxLost) {
		said := atomic.LoadUint32(&c.page.LostWhy[i])
		if said == 0 {
			continue // it was killed in the middle
		}
		var reason string
		switch why := unix.Errno(said - 1); why {
		case unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ECONNREFUSED:
			reason = "from its chroot, namespaces or user it cannot reach ripstop"
		case unix.EPERM:
			reason = "it is in a sandbox (seccomp)"
		case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EFBIG:
			reason = fmt.Sprintf("the agent could not share memory with ripstop (%v)", why)
		default:
			reason = fmt.Sprintf("it could not join the session (%v)", why)
		}
		warn(fmt.Sprintf("process %d, a child made by fork, was not watched: %s", c.page.LostPid[i], reason))
	}
	if n > wire.MaxLost {
		warn(fmt.Sprintf("%d more processes made by fork were not watched", n-wire.MaxLost))
	}
}

// close tells the agents that we are done.
func (c *ctl) close() {
	atomic.StoreUint32(&c.page.Closing, 1)
	close(c.stop)
	<-c.done
	unix.Close(c.fd)
	unix.Munmap(c.mem)
}
