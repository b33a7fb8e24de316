package ctl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Handler answers a question. It is called on several goroutines at once. Its answer is too late when ctx is over: the time is up, who asked is gone, or the run has ended.
type Handler func(ctx context.Context, q Question) Answer

// Server answers at a socket.
type Server struct {
	handler  Handler
	listener *net.UnixListener
	over     context.Context
	end      context.CancelFunc
	serving  sync.WaitGroup
	room     chan struct{} // holds a token for each connection

	mu    sync.Mutex
	conns map[net.Conn]bool
}

const (
	maxConns = 32
	// sayWithin is how long who connects may take to say what he wants, and takeWithin to take the answer, which may be long.
	sayWithin  = 5 * time.Second
	takeWithin = time.Minute
	// overWithin is how long a handler may take to see that its time is over.
	overWithin = 200 * time.Millisecond
	// endWithin is how long Close waits for answers to be taken.
	endWithin = time.Second
)

// Listen begins to answer.
func Listen(h Handler) (*Server, error) {
	var r [16]byte
	rand.Read(r[:]) // never fails
	name := fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), hex.EncodeToString(r[:]))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	s := &Server{handler: h, listener: l, room: make(chan struct{}, maxConns), conns: map[net.Conn]bool{}}
	s.over, s.end = context.WithCancel(context.Background())
	s.serving.Add(1)
	go s.accept()
	return s, nil
}

// Close ends the service. Questions that are under way are answered by that.
func (s *Server) Close() {
	s.listener.Close()
	s.end()
	late := time.AfterFunc(endWithin, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.Close()
		}
	})
	s.serving.Wait()
	late.Stop()
}

func (s *Server) accept() {
	defer s.serving.Done()
	for {
		select {
		case s.room <- struct{}{}:
		case <-s.over.Done():
			return
		}
		c, err := s.listener.AcceptUnix()
		if err != nil {
			<-s.room
			if s.over.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors or memory, most likely
			case <-time.After(100 * time.Millisecond):
			case <-s.over.Done():
			}
			continue
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.serving.Add(1)
		go func() {
			defer s.serving.Done()
			s.serve(c)
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
			c.Close()
			<-s.room
		}()
	}
}

// peer is the user at the other end.
func peer(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return nil, e
	}
	return cred, err
}

func (s *Server) serve(c *net.UnixConn) {
	cred, err := peer(c)
	if err != nil || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		c.SetWriteDeadline(time.Now().Add(sayWithin))
		a := No(Refused, "only its own user and root may ask")
		a.write(c) // an error: he is gone
		return
	}
	c.SetReadDeadline(time.Now().Add(sayWithin))
	q, err := ReadQuestion(c)
	var a Answer
	if err != nil {
		a = No(CouldNot, "what was asked is not understood: %v", err)
	} else {
		a = s.answer(c, q)
	}
	c.SetWriteDeadline(time.Now().Add(takeWithin)) // he reads no longer than he waits
	a.write(c)                                     // an error: he is gone
}

func (s *Server) answer(c *net.UnixConn, q Question) Answer {
	ctx, cancel := context.WithTimeout(s.over, time.Duration(q.WithinMS)*time.Millisecond)
	defer cancel()
	c.SetReadDeadline(time.Time{})
	go func() {
		var b [1]byte
		c.Read(b[:]) // he says nothing more: this is his end, or ours
		cancel()
	}()
	answered := make(chan Answer, 1)
	go func() { answered <- s.handler(ctx, q) }()
	select {
	case a := <-answered:
		return a
	case <-ctx.Done():
	}
	select { // it has heard of that, too, and may know why
	case a := <-answered:
		return a
	case <-time.After(overWithin):
	}
	if s.over.Err() != nil {
		return Ended(q)
	}
	return Late(q)
}

// Ended says that the run is over.
func Ended(q Question) Answer { return No(Absent, "process %d: the run has ended", q.PID) }

// Late says that no answer came in time.
func Late(q Question) Answer {
	return No(CouldNot, "process %d: no answer within %v", q.PID, time.Duration(q.WithinMS)*time.Millisecond)
}
