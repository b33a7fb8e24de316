package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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
	listener *net.UnixListener
	addr     *net.UnixAddr
	twin     bool          // the abstract one: anybody on the machine can connect
	accepted chan struct{} // closed when nobody is accepted any more
}

// openDoors makes the session's sockets. One has a name in the session's directory. Its twin has the same name in the abstract namespace, where a
// process in a chroot or another mount namespace finds it too; a machine that refuses it (a security module) goes without.
func (s *Session) openDoors() error {
	name := filepath.Join(s.dir, "sock")
	for _, d := range []*door{{addr: &net.UnixAddr{Name: name, Net: "unixpacket"}}, {addr: &net.UnixAddr{Name: "@" + name, Net: "unixpacket"}, twin: true}} {
		var err error
		if d.listener, err = net.ListenUnix("unixpacket", d.addr); err == nil && !d.twin {
			// Unlinked by us with the directory; this would do so by a path that may be somebody else's by then.
			d.listener.SetUnlinkOnClose(false)
			err = os.Chmod(name, 0o666)
		}
		switch {
		case err == nil:
			d.accepted = make(chan struct{})
			s.doors = append(s.doors, d)
		case !d.twin:
			return err
		}
	}
	for _, d := range s.doors {
		go s.accept(d)
	}
	return nil
}

// accept serves connections until settle.
func (s *Session) accept(d *door) {
	defer close(d.accepted)
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or memory, most likely: the agent waits.
			s.warn(fmt.Sprintf("cannot accept a connection from an agent: %v", err))
			time.Sleep(10 * time.Millisecond)
			continue
		}
		cred, err := peer(c)
		if err != nil {
			c.Close()
			continue
		}
		if c.RemoteAddr().String() == s.settler() {
			c.Close()
			return // all that were in the backlog before it have been accepted
		}
		s.free <- struct{}{}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.serving.Add(1)
		go func() {
			defer s.serving.Done()
			defer func() { <-s.free }()
			if err := s.serve(c, d, cred); err != nil {
				s.warn(fmt.Sprintf("a message from process %d was refused: %v", cred.Pid, err))
			}
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			c.Close()
		}()
	}
}

// settle takes in what agents have sent or are about to, and ends the service. A process may live so shortly that its messages are
// still in the socket when it is gone.
func (s *Session) settle() {
	own := &net.UnixAddr{Name: s.settler(), Net: "unixpacket"}
	for _, d := range s.doors {
		if c, err := net.DialUnix("unixpacket", own, d.addr); err == nil {
			select {
			case <-d.accepted:
			case <-time.After(settleTime):
			}
			c.Close()
		}
		d.listener.Close()
		<-d.accepted
	}
	s.mu.Lock()
	s.settling = true
	for c := range s.conns {
		c.SetReadDeadline(time.Now().Add(settleTime))
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// awaitMessage sets the time by which the next message must be there. Once settle has set it, it stays.
func (s *Session) awaitMessage(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.settling {
		c.SetReadDeadline(time.Now().Add(connIdle))
	}
}

// settler is the (abstract) address from which settle connects.
func (s *Session) settler() string { return "@" + s.dir + "/settle" }

func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var got error
	if err := raw.Control(func(fd uintptr) { cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, got
}

// serve answers one agent until it closes the connection. The peer may be anybody: nothing it sends may harm us.
func (s *Session) serve(c *net.UnixConn, d *door, cred *unix.Ucred) error {
	p := &caller{c: c, door: d, pid: int(cred.Pid)}
	room := messages.Get().(*[]byte)
	defer messages.Put(room)
	buf := *room
	oob := make([]byte, unix.CmsgSpace(16*4))
	for {
		s.awaitMessage(c)
		n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		if n == 0 && oobn == 0 {
			return nil // end of a SOCK_SEQPACKET stream
		}
		fds, fdErr := descriptors(oob[:oobn])
		err = fdErr
		switch {
		case err != nil:
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			err = errors.New("it is too long")
		default:
			err = s.answer(p, buf[:n], fds)
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
var messages = sync.Pool{New: func() any { b := make([]byte, maxMessage+1); return &b }}

// A caller is who is at the other end of a connection.
type caller struct {
	c       *net.UnixConn
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
	c := p.c
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

func send(c *net.UnixConn, b []byte, fds ...int) error {
	c.SetWriteDeadline(time.Now().Add(connIdle))
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(b, oob, nil)
	if err != nil && gone(err) {
		return nil
	}
	return err
}

// gone tells whether err says that the peer is no longer there, which is no fault of its.
func gone(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
}
