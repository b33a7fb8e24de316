package drive

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// server is a running server under test.
type server struct {
	job    *Job
	ctx    context.Context
	cancel context.CancelFunc
	cmd    *exec.Cmd
	out    lockedBuffer
	err    lockedBuffer
	done   chan struct{}
	waited error
}

// lockedBuffer may be read while the program still writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// serve starts a server and waits until ready says so. The caller must stop or kill it.
func (j *Job) serve(ctx context.Context, ready func() error, name string, args ...string) (*server, error) {
	s := &server{job: j, done: make(chan struct{})}
	s.ctx, s.cancel = j.context(ctx)
	cmd, err := j.command(s.ctx, name, args...)
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.cmd = cmd
	cmd.Stdout, cmd.Stderr = &s.out, &s.err
	if err := cmd.Start(); err != nil {
		s.cancel()
		return nil, err
	}
	go func() {
		s.waited = cmd.Wait()
		close(s.done)
	}()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ready()
		if err == nil {
			return s, nil
		}
		select {
		case <-s.done:
			s.cancel()
			return nil, fmt.Errorf("%s ended before it served: %v (%v)\n%s%s", name, s.waited, err, tail(s.out.bytes()), tail(s.err.bytes()))
		case <-s.ctx.Done():
			s.kill()
			return nil, fmt.Errorf("%s does not serve: %v\n%s%s", name, err, tail(s.out.bytes()), tail(s.err.bytes()))
		case <-poll.C:
		}
	}
}

// kill ends the server and its process group at once; for the paths of failure.
func (s *server) kill() {
	s.cancel()
	<-s.done
}

// stop asks the server to end, as its operator would, and gives what came of it.
func (s *server) stop(sig syscall.Signal) (Outcome, error) {
	defer s.cancel()
	var out Outcome
	if err := s.cmd.Process.Signal(sig); err != nil {
		<-s.done
		return out, fmt.Errorf("%s had ended before it was to: %v\n%s%s", s.cmd.Path, s.waited, tail(s.out.bytes()), tail(s.err.bytes()))
	}
	return s.wait()
}

// wait waits for the end of a server that was told to end by other means.
func (s *server) wait() (Outcome, error) {
	defer s.cancel()
	<-s.done
	out := Outcome{Stdout: s.out.bytes(), Stderr: s.err.bytes()}
	return out, s.job.ended(s.ctx, s.cmd, s.waited, &out)
}

// freePort is a port of the loopback that nobody listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// reachable says whether a connection to addr can be made.
func reachable(addr string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}
