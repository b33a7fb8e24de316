package agent

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// timeout(1) sends SIGTERM to its child and then to its whole group. The first one ended the program of a recording; the second, which came once
// the program's end was known, ended the recorder before it had written the trace, and the report of it showed nothing.
func TestASecondRequestToEndIsIgnored(t *testing.T) {
	for _, sent := range []bool{true, false} {
		s, err := CatchSignals()
		if err != nil {
			t.Fatal(err)
		}
		before := s.saved[syscall.SIGTERM]
		if sent {
			if err := unix.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if c := <-s.ch; c.Signal != syscall.SIGTERM || c.PID != os.Getpid() {
				t.Fatalf("caught %+v", c)
			}
		}
		s.Stop()
		var after sigaction
		if err := rtSigaction(syscall.SIGTERM, &before, &after); err != 0 {
			t.Fatal(err)
		}
		if sent && after.handler != sigIgn {
			t.Error("after a SIGTERM the next one is not ignored")
		}
		if !sent && after.handler != before.handler {
			t.Error("without a SIGTERM the disposition is not what it was")
		}
	}
}
