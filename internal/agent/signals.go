package agent

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// caughtSignals are those that may be passed on to the target when they are sent to us, and SIGQUIT, which is ours: a dump of the
// threads. SIGURG is the Go runtime's own. SIGTTIN, SIGTTOU and the signals of faults and limits mean the process that gets them.
var caughtSignals = func() []syscall.Signal {
	list := []syscall.Signal{syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGTSTP, syscall.SIGWINCH, syscall.SIGPWR, syscall.SIGIO}
	for sig := syscall.Signal(34); sig <= 64; sig++ {
		list = append(list, sig)
	}
	return list
}()

// Caught is a signal that was sent to us.
type Caught struct {
	Signal syscall.Signal
	Code   int32 // si_code: who sent it
	PID    int   // of the sender, if it was a process
}

// byKernel tells that a terminal sent the signal, to all of its foreground process group. Package os/signal does not say that, and to
// ask afterwards whether we are in the foreground is too late: a shell may have taken the terminal back.
func (c Caught) byKernel() bool { return c.Code > 0 }

// Signals is our side of the target's signals: it catches them with a handler of its own. There is one in a process at a time.
type Signals struct {
	ch    chan Caught
	pipe  *os.File // reading end
	write int
	saved map[syscall.Signal]sigaction
	pipes chan os.Signal
	asked map[syscall.Signal]bool // SIGTERM, SIGHUP: whether a process has sent it; read's until ch is closed
}

//lint:ignore U1000 the handler in signals_amd64.s reads it
var caughtPipe int32

func handlerPCs() (handler, restorer uintptr)

// CatchSignals begins to catch what is to be passed on. Call it before the target is started, so that none is lost. What was ignored
// when we were started is caught, too: so it is in the target, unless the target has a handler by now.
func CatchSignals() (*Signals, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("cannot catch signals: pipe: %w", err)
	}
	s := &Signals{ch: make(chan Caught), pipe: os.NewFile(uintptr(p[0]), "signals"), write: p[1],
		saved: map[syscall.Signal]sigaction{}, pipes: make(chan os.Signal, 1), asked: map[syscall.Signal]bool{syscall.SIGTERM: false, syscall.SIGHUP: false}}
	caughtPipe = int32(p[1])
	const saSiginfo, saRestorer, saOnstack, saRestart = 0x4, 0x04000000, 0x08000000, 0x10000000
	act := sigaction{flags: saSiginfo | saRestorer | saOnstack | saRestart}
	act.handler, act.restorer = handlerPCs()
	for _, sig := range caughtSignals {
		var old sigaction
		if rtSigaction(sig, &act, &old) == 0 {
			s.saved[sig] = old
		}
	}
	// A report to a pipe that nobody reads any more is an error of writing, not our end.
	signal.Notify(s.pipes, syscall.SIGPIPE)
	go s.read()
	return s, nil
}

func (s *Signals) read() {
	defer close(s.ch)
	var b [12]byte
	for {
		if _, err := io.ReadFull(s.pipe, b[:]); err != nil {
			return
		}
		c := Caught{
			Signal: syscall.Signal(binary.LittleEndian.Uint32(b[:])),
			Code:   int32(binary.LittleEndian.Uint32(b[4:])),
			PID:    int(binary.LittleEndian.Uint32(b[8:])),
		}
		if _, ends := s.asked[c.Signal]; ends && !c.byKernel() {
			s.asked[c.Signal] = true
		}
		s.ch <- c
	}
}

// Stop ends the catching. Signals that came and were not asked for are forgotten. If we were asked to end, by SIGTERM or SIGHUP, we are about to, and
// the same once more does not take the trace or the report away: timeout(1) sends SIGTERM to its child and then to the whole group.
func (s *Signals) Stop() {
	for sig, old := range s.saved {
		if _, ends := s.asked[sig]; ends {
			rtSigaction(sig, &sigaction{handler: sigIgn}, nil)
		} else {
			rtSigaction(sig, &old, nil)
		}
	}
	signal.Stop(s.pipes)
	unix.Close(s.write)
	for range s.ch {
	}
	s.pipe.Close()
	for sig, sent := range s.asked {
		if old, ok := s.saved[sig]; ok && !sent {
			rtSigaction(sig, &old, nil)
		}
	}
}
