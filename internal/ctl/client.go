package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long the answer that there is none may take.
const grace = 2 * time.Second

// Ask asks those that can be reached, and gives the answer of the one that watches the process. Other answers are given if there is none.
func Ask(q Question) Answer {
	q.Version = Version
	if unix.Kill(q.PID, 0) == unix.ESRCH {
		return No(Absent, "there is no process %d", q.PID)
	}
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return No(CouldNot, "who watches process %d cannot be found: %v", q.PID, err)
	}
	list, err := names(f)
	f.Close()
	if err != nil {
		return No(CouldNot, "who watches process %d cannot be found: /proc/net/unix: %v", q.PID, err)
	}
	type said struct {
		a       Answer
		foreign bool
	}
	its, err := pages(q.PID)
	mayBe := func(ripstop int32) bool { // it may be the one that watches the process
		theirs, e := pages(int(ripstop))
		return int(ripstop) == q.PID || err != nil || e != nil || slices.ContainsFunc(its, func(p string) bool { return slices.Contains(theirs, p) })
	}
	answers := make(chan said, len(list))
	for _, name := range list {
		go func() {
			a, foreign := ask(name, q, mayBe)
			answers <- said{a, foreign}
		}()
	}
	none := No(Absent, "process %d is not watched by 'ripstop run' or 'ripstop guard' (or one in another network namespace)", q.PID)
	foreign := 0
	for range list {
		switch s := <-answers; {
		case s.foreign:
			foreign++
		case s.a.Outcome == CouldNot:
			none = s.a
		case s.a.Outcome != Absent:
			return s.a
		}
	}
	if none.Outcome == Absent && unix.Kill(q.PID, 0) == unix.ESRCH {
		return No(Absent, "process %d has ended", q.PID)
	}
	if foreign > 0 && none.Outcome == Absent {
		none.Why += fmt.Sprintf("; those of other users (%d) answer only them and root", foreign)
	}
	return none
}

// ask asks at one socket; foreign: it is not one whose answer would be believed, or that answers us.
func ask(name string, q Question, mayBe func(ripstop int32) bool) (a Answer, foreign bool) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return No(Absent, "%v", err), false // it has just ended
	}
	defer c.Close()
	cred, err := peer(c)
	if err != nil {
		return No(CouldNot, "process %d: %s: %v", q.PID, name, err), false
	}
	if !believed(cred.Uid, q.PID) {
		return a, true
	}
	if !mayBe(cred.Pid) {
		return No(Absent, "it watches others"), false
	}
	stopped := No(CouldNot, "process %d: ripstop (pid %d) is stopped, as it is while its program is, and answers when both go on (SIGCONT)", q.PID, cred.Pid)
	if isStopped(int(cred.Pid)) {
		return stopped, !answers(cred.Uid)
	}
	c.SetDeadline(time.Now().Add(time.Duration(q.WithinMS)*time.Millisecond + grace))
	if _, err := c.Write(message(&q)); err != nil && !errors.Is(err, unix.EPIPE) { // which who refuses gives, too
		return No(Absent, "%v", err), false
	}
	a, err = ReadAnswer(c)
	switch {
	case err == nil:
		return a, a.Outcome == Refused
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
		return No(Absent, "%v", err), false // it has ended, and watches nobody
	case os.IsTimeout(err) && isStopped(int(cred.Pid)):
		return stopped, !answers(cred.Uid)
	case os.IsTimeout(err):
		return No(CouldNot, "process %d: no answer within %v of ripstop (pid %d)", q.PID, time.Duration(q.WithinMS)*time.Millisecond, cred.Pid), false
	}
	return No(CouldNot, "process %d: the answer of ripstop (pid %d) is not understood: %v", q.PID, cred.Pid, err), false
}

// pageName is that of the page that a ripstop has in common with all that it watches (agent.Ctl), in their maps.
const pageName = "/memfd:ripstop-ctl "

// pages are the device and inode of each such page of a process.
func pages(pid int) (list []string, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(b)) {
		// address, permissions, offset, device, inode, name
		if f := strings.Fields(line); len(f) > 5 && strings.Contains(line, pageName) {
			list = append(list, f[3]+" "+f[4])
		}
	}
	return list, err
}

// isStopped tells whether a signal has stopped a process.
func isStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := bytes.LastIndexByte(b, ')') // behind the name comes the state
	return err == nil && i >= 0 && i+2 < len(b) && b[i+2] == 'T'
}

// answers tells whether a ripstop of that user answers us when it goes on: it does so to its own user and root.
func answers(uid uint32) bool { return os.Geteuid() == 0 || int(uid) == os.Geteuid() }

// believed tells whether we ask what a process of that user says of process pid: ours, root's, and its owner's if we are root.
func believed(uid uint32, pid int) bool {
	if uid == 0 || int(uid) == os.Geteuid() {
		return true
	}
	var st unix.Stat_t
	return os.Geteuid() == 0 && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && st.Uid == uid
}
