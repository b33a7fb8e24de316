// Package doctor finds out what this machine, kernel, CPU, container and C library allow, and which features of ripstop follow.
//
// Everything is tried for real rather than concluded from version numbers: a kernel that has a feature may still refuse it to us.
// Each question has three answers: yes, no because …, could not tell because …. The tables are facts.go (what is asked) and
// features.go (what follows). Nothing outside the process is changed, but for files in temporary directories that are removed again.
package doctor

import (
	"errors"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Status is one of three answers.
type Status uint8

const (
	Unknown Status = iota // could not tell; Why says what was in the way
	Yes
	No // Why says because of what
)

func (s Status) String() string {
	switch s {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "could not tell"
}

// MarshalText makes a Status its word in JSON: yes, no, unknown.
func (s Status) MarshalText() ([]byte, error) {
	if s == Unknown {
		return []byte("unknown"), nil
	}
	return []byte(s.String()), nil
}

// Answer answers one question. Value is what was found (a version, a number); Why is given unless Status is Yes.
type Answer struct {
	Status Status `json:"status"`
	Value  string `json:"value,omitempty"`
	Why    string `json:"why,omitempty"`
}

func yes(value string) Answer             { return Answer{Status: Yes, Value: value} }
func no(why string) Answer                { return Answer{Status: No, Why: why} }
func unknown(why string) Answer           { return Answer{Status: Unknown, Why: why} }
func (a Answer) with(value string) Answer { a.Value = value; return a }

// Fact is an answered question.
type Fact struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Group string `json:"group"`
	Answer
}

// Options say what the probes cannot know by themselves.
type Options struct {
	Agent   func() ([]byte, error) // contents of libripstop.so, or why there is none; nil: the question is left out
	TempDir []string               // where the agent's file may be put, in order; nil: the usual places
}

// Report is all that was found.
type Report struct {
	Facts    []Fact    `json:"facts"`
	Features []Feature `json:"features"`
}

// Examine asks everything. It takes a tenth of a second or so and starts two or three short-lived processes.
func Examine(o Options) *Report { return examine(realSystem(), o) }

func examine(s *system, o Options) *Report {
	s.opts = o
	if s.opts.TempDir == nil {
		s.opts.TempDir = usualTempDirs(s)
	}
	// Debug registers, the GS base and ptrace belong to a thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &Report{}
	answers := map[string]Answer{}
	for _, q := range questions {
		if q.id == "agent" && o.Agent == nil {
			continue
		}
		a := q.ask(s)
		answers[q.id] = a
		r.Facts = append(r.Facts, Fact{q.id, q.title, q.group, a})
	}
	r.Features = follow(answers)
	return r
}

// CanRun is false when `ripstop run` itself cannot work here.
func (r *Report) CanRun() bool {
	for _, f := range r.Features {
		if f.ID == "run" {
			return f.Status != No
		}
	}
	return false
}

// system is the door to the machine; tests put refusals in its way.
type system struct {
	opts     Options
	raw      func(nr uintptr, a [6]uintptr) (uintptr, unix.Errno)
	cpuid    func(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
	rdtsc    func() uint64
	readFile func(string) ([]byte, error)
	lookPath func(string) (string, error)
}

func realSystem() *system {
	return &system{
		raw: func(nr uintptr, a [6]uintptr) (uintptr, unix.Errno) {
			r, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
			return r, e
		},
		cpuid: cpuid, rdtsc: rdtsc, readFile: os.ReadFile, lookPath: exec.LookPath,
	}
}

// call makes a system call. Objects whose addresses are among the arguments live until it returns.
//
//go:uintptrescapes
func (s *system) call(nr uintptr, args ...uintptr) (uintptr, unix.Errno) {
	var a [6]uintptr
	copy(a[:], args)
	return s.raw(nr, a)
}

func (s *system) close(fd uintptr) { s.call(unix.SYS_CLOSE, fd) }

// refused makes an answer of an error that a probe met: whether the kernel lacks it or somebody forbids it.
func (s *system) refused(what string, e unix.Errno) Answer {
	why := what + ": " + e.Error()
	switch e {
	case unix.ENOSYS:
		if s.filtered() {
			return no(why + " (the kernel lacks it, or the seccomp filter of this container hides it)")
		}
		return no(why + " (this kernel lacks it)")
	case unix.EPERM, unix.EACCES:
		if s.filtered() {
			return no(why + " (forbidden, probably by the seccomp filter of this container)")
		}
		return no(why + " (forbidden)")
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.EINTR:
		return unknown(why)
	}
	return no(why)
}

// notThere makes an answer of an error of a file operation.
func notThere(err error) Answer {
	if errors.Is(err, os.ErrNotExist) {
		return no(err.Error())
	}
	return unknown(err.Error())
}
