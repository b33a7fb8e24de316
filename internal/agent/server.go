package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/block"
	"github.com/ripstop/ripstop/internal/wire"
)

const (
	// connIdle ends a connection on which nothing comes: agents say what they have to say at once.
	connIdle = 30 * time.Second
	// settleTime is how long Close waits for what agents are about to say.
	settleTime = time.Second
	// maxConns bounds connections at the same time. Further agents wait in the backlog.
	maxConns = 256
	// maxModules is the number of ModuleRequest in one message.
	maxModules = 64
	// maxMessage is the longest message that makes sense.
	maxMessage = wire.SizeHello + maxModules*wire.SizeModuleRequest
)

// Kinds of wire.Hello.
const (
	helloKind   = 1
	regionKind  = 2
	modulesKind = 3
	patchKind   = 4
)

// A door is a socket that agents connect to.
type door struct {
	fd     int
	twin   bool          // the abstract one: anybody on the machine can connect
	idle   atomic.Int32  // threads that wait for a connection, or are about to
	passed chan struct{} // closed when settle's own connection was accepted, and with it all older ones
}

// spareThreads is how many threads wait at a door once there were so many connections at a time.
const spareThreads = 4

// openDoors makes the session's sockets. One has a name in the session's directory. Its twin has the same name in the abstract namespace, where a
// process in a chroot or another mount namespace finds it too; a machine that refuses it (a security module) goes without.
func (s *Session) openDoors() error {
	name := filepath.Join(s.dir, "sock")
	for _, twin := range []bool{false, true} {
		fd, err := listen(name, twin)
		switch {
		case err == nil:
			s.doors = append(s.doors, &door{fd: fd, twin: twin, passed: make(chan struct{})})
		case !twin:
			return err
		}
	}
	for _, d := range s.doors {
		s.open(d)
	}
	return nil
}

func listen(name string, twin bool) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	at := name
	if twin {
		at = "@" + name
	}
	err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: at}))
	if err == nil && !twin {
		err = os.Chmod(name, 0o666)
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// open has one more thread wait at d. The caller sees to it that settle still waits for it.
func (s *Session) open(d *door) {
	s.serving.Add(1)
	d.idle.Add(1)
	go s.accept(d)
}

// accept takes a connection and serves it, one after the other, in system calls that wait: an agent waits for our answers, and by way of Go's poller each of them wakes two threads of ours, and a third
// for nothing when it was read. Who takes the last connection that somebody waited for has another thread wait.
func (s *Session) accept(d *door) {
	defer s.serving.Done()
	for {
		fd, err := acceptOne(d.fd)
		if err != nil {
			s.mu.Lock()
			over := s.settling
			s.mu.Unlock()
			if over || err == unix.EINVAL { // settle has shut it
				return
			}
			// Out of descriptors or memory, most likely: the agent waits.
			s.warn(fmt.Sprintf("cannot accept a connection from an agent: %v", err))
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		if len(s.conns) < maxConns && d.idle.Load() <= 1 {
			s.open(d)
		}
		d.idle.Add(-1)
		s.conns[fd] = true
		wait := connIdle
		if s.settling {
			wait = settleTime
		}
		s.mu.Unlock()
		s.attend(d, fd, wait)
		s.mu.Lock()
		delete(s.conns, fd)
		unix.Close(fd)
		enough := d.idle.Load() >= spareThreads
		if !enough {
			d.idle.Add(1)
		}
		s.mu.Unlock()
		if enough {
			return
		}
	}
}

func acceptOne(listener int) (int, error) {
	for {
		r, errno := block.Syscall(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
		switch errno {
		case 0:
			return int(r), nil
		case unix.EINTR, unix.ECONNABORTED:
		default:
			return -1, errno
		}
	}
}

// attend serves one connection, on which the next message must be there in that time.
func (s *Session) attend(d *door, fd int, wait time.Duration) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return
	}
	if cred.Pid == int32(os.Getpid()) { // settle's, or a test's
		if a, err := unix.Getpeername(fd); err == nil {
			if a, ok := a.(*unix.SockaddrUnix); ok && a.Name == s.settler() {
				close(d.passed)
				return
			}
		}
	}
	tv := unix.NsecToTimeval(int64(wait))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	if err := s.serve(&caller{fd: fd, door: d, pid: int(cred.Pid)}); err != nil {
		s.warn(fmt.Sprintf("a message from process %d was refused: %v", cred.Pid, err))
	}
}

// settle takes in what agents have sent or are about to, and ends the service. A process may live so shortly that its messages are
// still in the socket when it is gone.
func (s *Session) settle() {
	for _, d := range s.doors {
		s.passThrough(d)
		unix.Shutdown(d.fd, unix.SHUT_RDWR)
	}
	s.mu.Lock()
	s.settling = true
	s.mu.Unlock()
	// Who says nothing more is not waited for.
	late := time.AfterFunc(settleTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for fd := range s.conns {
			unix.Shutdown(fd, unix.SHUT_RD)
		}
	})
	s.serving.Wait()
	late.Stop()
	for _, d := range s.doors {
		unix.Close(d.fd)
	}
	s.doors = nil
}

// passThrough returns when all connections that were in the backlog of d have been accepted.
func (s *Session) passThrough(d *door) {
	at, err := unix.Getsockname(d.fd)
	if err != nil {
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if unix.Bind(fd, &unix.SockaddrUnix{Name: s.settler()}) != nil || unix.Connect(fd, at) != nil {
		return
	}
	select {
	case <-d.passed:
	case <-time.After(settleTime):
	}
}

// settler is the (abstract) address from which settle connects.
func (s *Session) settler() string { return "@" + s.dir + "/settle" }

// A message is room for one, in memory that stays where it is while the kernel writes to it.
type message struct {
	head unix.Msghdr
	iov  unix.Iovec
	oob  [80]byte // of sixteen descriptors
	buf  [maxMessage + 1]byte
}

// receive waits for the next message on fd.
func (m *message) receive(fd int) (body, oob []byte, flags int, err error) {
	m.iov = unix.Iovec{Base: &m.buf[0], Len: uint64(len(m.buf))}
	for {
		m.head = unix.Msghdr{Iov: &m.iov, Iovlen: 1, Control: &m.oob[0], Controllen: uint64(len(m.oob))}
		n, errno := block.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.head)), unix.MSG_CMSG_CLOEXEC, 0, 0, 0)
		switch errno {
		case 0:
			return m.buf[:n], m.oob[:m.head.Controllen], int(m.head.Flags), nil
		case unix.EINTR:
		default:
			return nil, nil, 0, errno
		}
	}
}

// serve answers one agent until it closes the connection. The peer may be anybody: nothing it sends may harm us.
func (s *Session) serve(p *caller) error {
	m := messages.Get().(*message)
	defer messages.Put(m)
	for {
		body, oob, flags, err := m.receive(p.fd)
		if err != nil {
			if err == unix.EAGAIN || gone(err) { // it has said nothing for long; it is gone
				return nil
			}
			return err
		}
		if len(body) == 0 && len(oob) == 0 {
			return nil // end of a SOCK_SEQPACKET stream
		}
		fds, err := descriptors(oob)
		switch {
		case err != nil:
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			err = errors.New("it is too long")
		default:
			err = s.answer(p, body, fds)
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
}

// messages has room for one each.
var messages = sync.Pool{New: func() any { return new(message) }}

// A caller is who is at the other end of a connection.
type caller struct {
	fd      int
	door    *door
	pid     int
	greeted bool // it has said hello
}

// descriptors are the file descriptors in the control data of a message. They are all returned, whatever else is wrong.
func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, e := unix.ParseUnixRights(&msgs[i])
		if e != nil {
			err = e
			continue
		}
		fds = append(fds, got...)
	}
	return fds, err
}

// read copies a structure of package wire out of b; its layout is that of memory.
func read[T any](b []byte) (v T) {
	if len(b) < int(unsafe.Sizeof(v)) {
		panic("BUG: structure read from too few bytes")
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), b)
	return v
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func (s *Session) answer(p *caller, msg []byte, fds []int) error {
	c := p.fd
	if len(msg) < wire.SizeHello {
		return fmt.Errorf("%d bytes are no message", len(msg))
	}
	h := read[wire.Hello](msg)
	if h.Magic != wire.Magic {
		return errors.New("it is not from an agent")
	}
	if h.Version != wire.Version {
		return fmt.Errorf("its version is %d, ours %d", h.Version, wire.Version)
	}
	if h.Kind == helloKind && p.door.twin || h.Kind != helloKind && h.Token != s.ctl.token && !(h.Kind == modulesKind && p.greeted) {
		return errors.New("it is not from a process of this session")
	}
	rest := msg[wire.SizeHello:]
	switch h.Kind {
	case helloKind:
		p.greeted = true
		w := wire.Welcome{Magic: wire.Magic, Version: wire.Version, Config: [1]wire.Config{s.opts.Config}}
		return send(c, bytesOf(&w), s.ctl.fd)
	case regionKind:
		if len(fds) != 1 {
			return fmt.Errorf("a region with %d descriptors", len(fds))
		}
		t := wire.Tables{Magic: wire.Magic}
		err := s.addRegion(fds[0], p.pid, h.Process)
		if err == nil {
			t.Has = 1
			s.kick()
		} else {
			err = fmt.Errorf("its region: %w", err)
		}
		// The agent need not wait for the answer.
		if e := send(c, bytesOf(&t)); e != nil && !gone(e) && err == nil {
			err = e
		}
		return err
	case modulesKind:
		if h.Count == 0 || h.Count > maxModules || int(h.Count)*wire.SizeModuleRequest != len(rest) {
			return fmt.Errorf("%d modules in %d bytes", h.Count, len(rest))
		}
		reqs := make([]wire.ModuleRequest, h.Count)
		for i := range reqs {
			reqs[i] = read[wire.ModuleRequest](rest[i*wire.SizeModuleRequest:])
		}
		t := wire.Tables{Magic: wire.Magic}
		var out []int
		if s.opts.Config.StackDepth == 0 && s.opts.Config.AllocDepth == 0 {
			return send(c, bytesOf(&t)) // for no stack
		}
		for i, fd := range s.tables.get(reqs, p.pid) {
			if fd >= 0 {
				t.Has |= 1 << i
				out = append(out, fd)
			}
		}
		return send(c, bytesOf(&t), out...)
	case patchKind:
		t := wire.Tables{Magic: wire.Magic}
		var out []int
		if patcher := s.opts.Patcher; patcher != nil {
			fds, err := patcher.Attach(h.Process, p.pid)
			if err == nil {
				t.Has, out = 3, fds[:]
			} else {
				s.warn(fmt.Sprintf("process %d is not patched: %v", p.pid, err))
			}
		}
		return send(c, bytesOf(&t), out...)
	}
	return fmt.Errorf("its kind is %d", h.Kind)
}

func send(fd int, b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL).(unix.Errno)
	}
	if err == 0 || gone(err) {
		return nil
	}
	return err
}

// gone tells whether err says that the peer is no longer there, which is no fault of its.
func gone(err error) bool { return err == unix.EPIPE || err == unix.ECONNRESET }
