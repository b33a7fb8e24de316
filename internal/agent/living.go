package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Living lists the processes of the session that live: those that are being traced and, if children are followed, those that have not said anything
// yet: they have the control page from their parent, or the session's directory in the environment of the program that they are about to become. One
// that ripstop has no right to look at is missed.
func (s *Session) Living() []Info {
	list := s.Processes()
	if s.opts.Config.Follow == 0 || !s.hasChildren() {
		return list
	}
	known := map[int]bool{os.Getpid(): true}
	for _, p := range list {
		known[p.PID] = true
	}
	var st unix.Stat_t
	self, ok := startTime("self")
	dir, err := os.Open("/proc")
	if err != nil || !ok || unix.Fstat(s.ctl.fd, &st) != nil {
		return list
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // an error: what was read before it
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || known[pid] {
			continue
		}
		if began, ok := startTime(name); ok && began >= self && s.isOurs(name, st.Ino) {
			list = append(list, Info{PID: pid, Exe: exeOf(pid)})
		}
	}
	return list
}

// hasChildren tells whether any process of the session has made another.
func (s *Session) hasChildren() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forked || atomic.LoadUint32(&s.ctl.page.Forks) > 0 || s.stats.Processes+uint64(len(s.order)) > 1
}

// isOurs tells whether a process has the session's control page, or is about to open it. ino is the page's.
func (s *Session) isOurs(pid string, ino uint64) bool {
	b, _ := os.ReadFile(filepath.Join("/proc", pid, "maps"))
	for line := range bytes.Lines(b) {
		// address, permissions, offset, device, inode, name
		if bytes.Contains(line, []byte("/memfd:"+ctlName)) && string(bytes.Fields(line)[4]) == strconv.FormatUint(ino, 10) {
			return true
		}
	}
	b, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00RIPSTOP_SESSION="+s.dir+"\x00"))
}

// startTime is when a process began, in clock ticks since the machine did; false: it is gone, or a zombie.
func startTime(pid string) (ticks uint64, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	i := bytes.LastIndexByte(b, ')') // behind the name: state is field 0, starttime 19
	if err != nil || i < 0 {
		return 0, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return 0, false
	}
	ticks, err = strconv.ParseUint(string(f[19]), 10, 64)
	return ticks, err == nil
}

func exeOf(pid int) string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return exe
}

// lastMoments is how long Close lets processes end that end with the program: a pipeline's last command, a shell's process substitution. What lives
// longer is left behind on purpose.
const lastMoments = 100 * time.Millisecond

// awaitLast returns when no process of the session lives any more, or after lastMoments.
func (s *Session) awaitLast() {
	s.mu.Lock()
	closed := s.closed // then there is no control page to look at
	s.mu.Unlock()
	if closed {
		return
	}
	for end := time.Now().Add(lastMoments); len(s.Living()) > 0 && time.Now().Before(end); {
		time.Sleep(lastMoments / 10)
	}
}

// livingEvery is how often AwaitAll looks whether processes have ended.
const livingEvery = 50 * time.Millisecond

// AwaitAll returns when no process of the session lives any more, or a signal comes that asks ripstop to end; then it is returned. On SIGQUIT it
// calls quit.
func (s *Session) AwaitAll(signals *Signals, quit func()) (by unix.Signal) {
	t := time.NewTicker(livingEvery)
	defer t.Stop()
	for {
		select {
		case c := <-signals.ch:
			switch c.Signal {
			case unix.SIGQUIT:
				quit()
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP:
				return c.Signal
			case unix.SIGTSTP:
				stopLike(c.Signal)
			}
		case <-t.C:
			// The long look only when nothing else is left: it goes through all processes of the machine.
			if len(s.Processes()) == 0 && len(s.Living()) == 0 {
				return 0
			}
		}
	}
}
