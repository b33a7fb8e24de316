// Package ctl is how a ripstop that watches a program is asked about it from outside: one question and one answer on a connection to a socket.
//
// The socket has a name in the abstract namespace, which goes with the process that made it, and which nobody can guess; who asks finds it in /proc/net/unix. Both ends look at the other's user
// (SO_PEERCRED): ripstop answers its own user and root, and who asks believes those that he may, or the process's owner. What the answers mean is the watching side's business.
package ctl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Version of questions and answers. Another one is not understood.
const Version = 1

// What can be asked.
const (
	DoStatus     = "status"
	DoCheckpoint = "checkpoint"
	DoRollback   = "rollback"
	DoReport     = "report"
)

// Questions are the values of Question.Do.
var Questions = []string{DoStatus, DoCheckpoint, DoRollback, DoReport}

// Question is what is asked of the process PID, or of the first one that the ripstop PID watches.
type Question struct {
	Version  int    `json:"version"`
	PID      int    `json:"pid"`
	Do       string `json:"do"`
	Format   string `json:"format,omitempty"` // of a report
	WithinMS int64  `json:"within_ms"`        // how long the answer is waited for
}

// Outcome is whether a question was answered.
type Outcome string

// Outcomes. Of those other than Done Answer.Why says why.
const (
	Done        Outcome = "done"
	Absent      Outcome = "absent"         // nobody watches the process
	Unsupported Outcome = "unsupported"    // it is watched in a way that has no answer to this
	CouldNot    Outcome = "could-not-tell" // an answer was not to be had
	Refused     Outcome = "refused"        // who asks may not
)

// Answer is the answer to a Question.
type Answer struct {
	Version int     `json:"version"`
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"`
	Exit    int     `json:"exit"` // status to exit with, of a report
	Status  *Status `json:"status,omitempty"`
	Epoch   *Epoch  `json:"epoch,omitempty"`
	Bytes   int     `json:"bytes"` // of Report, which follows
	Report  []byte  `json:"-"`
}

// Status is what is known of a process and of the run it belongs to.
type Status struct {
	Program    string    `json:"program"`
	PID        int       `json:"pid"`
	Ripstop    int       `json:"ripstop"` // pid
	Mode       string    `json:"mode"`    // ripstop's command and what it was told
	Since      time.Time `json:"since"`
	Threads    int       `json:"threads"`
	Processes  int       `json:"processes"` // of the run, that live
	Findings   int       `json:"findings"`  // of the run
	Suppressed int       `json:"suppressed"`
	Known      int       `json:"known"`
	Epochs     *Epochs   `json:"epochs,omitempty"` // absent: none are recorded
}

// Epochs is Status of epochs.
type Epochs struct {
	Recording bool              `json:"recording"` // false: not any more
	Begun     uint64            `json:"begun"`
	Ended     uint64            `json:"ended"`
	Lost      map[string]uint64 `json:"lost"`     // of those that ended, by why
	Verdicts  map[string]uint64 `json:"verdicts"` // of those that were executed again
	Busy      uint64            `json:"busy"`     // ends that were not to be had
	LastLost  string            `json:"last_lost,omitempty"`
	PresentMS float64           `json:"present_ms"`
	NowLost   string            `json:"now_lost,omitempty"` // why the present one is lost already
	LogBytes  *uint64           `json:"log_bytes,omitempty"`
	Events    *uint64           `json:"events,omitempty"`
	Unknown   string            `json:"unknown,omitempty"` // why these three are not known
}

// Epoch is what came of a checkpoint or a rollback.
type Epoch struct {
	Number   uint64      `json:"number"` // of the epoch that runs now, from 1
	TookMS   float64     `json:"took_ms"`
	Events   uint64      `json:"events"`            // of the one that ended
	Verdict  string      `json:"verdict,omitempty"` // of a rollback
	Words    string      `json:"words,omitempty"`   // the same for people
	Tries    int         `json:"tries,omitempty"`
	Differs  *Difference `json:"differs,omitempty"`
	LostAs   string      `json:"lost,omitempty"` // of a checkpoint: why what ended could not have been executed again
	LogBytes uint64      `json:"log_bytes"`
}

// Difference is the first one of a re-execution.
type Difference struct {
	Event   uint64 `json:"event"`
	Thread  uint64 `json:"thread"`
	Address string `json:"address"`
	Was     string `json:"was"`
	Is      string `json:"is"`
}

// No is an Answer that is none.
func No(o Outcome, format string, args ...any) Answer {
	return Answer{Version: Version, Outcome: o, Why: fmt.Sprintf(format, args...)}
}

// Bounds of messages.
const (
	maxQuestion = 4 << 10
	maxAnswer   = 64 << 10
	maxReport   = 256 << 20
	maxPID      = 1 << 22
	maxWithin   = time.Hour
)

// line reads one of at most most bytes, without its end.
func line(r *bufio.Reader) ([]byte, error) {
	b, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errors.New("a line of it is too long")
	case err == io.EOF && len(b) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return b[:len(b)-1], nil
}

// ReadQuestion reads what anybody may have written.
func ReadQuestion(r io.Reader) (q Question, err error) {
	b, err := line(bufio.NewReaderSize(r, maxQuestion))
	if err != nil {
		return q, err
	}
	if err := json.Unmarshal(b, &q); err != nil {
		return Question{}, err
	}
	switch {
	case q.Version != Version:
		err = fmt.Errorf("it is of version %d, this ripstop has %d", q.Version, Version)
	case q.PID <= 0 || q.PID > maxPID:
		err = fmt.Errorf("%d is no process", q.PID)
	case !slices.Contains(Questions, q.Do):
		err = fmt.Errorf("%q is no question", q.Do)
	case q.WithinMS <= 0 || q.WithinMS > maxWithin.Milliseconds():
		err = fmt.Errorf("an answer within %d ms is wanted", q.WithinMS)
	}
	if err != nil {
		return Question{}, err
	}
	return q, nil
}

// ReadAnswer reads an answer and the report behind it.
func ReadAnswer(r io.Reader) (a Answer, err error) {
	br := bufio.NewReaderSize(r, maxAnswer)
	b, err := line(br)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return Answer{}, err
	}
	switch {
	case a.Version != Version:
		err = fmt.Errorf("it is of version %d, this ripstop has %d", a.Version, Version)
	case !slices.Contains([]Outcome{Done, Absent, Unsupported, CouldNot, Refused}, a.Outcome):
		err = fmt.Errorf("%q is no outcome", a.Outcome)
	case a.Exit < 0 || a.Exit > 255:
		err = fmt.Errorf("%d is no exit status", a.Exit)
	case a.Bytes < 0 || a.Bytes > maxReport:
		err = fmt.Errorf("a report of %d bytes", a.Bytes)
	}
	if err != nil {
		return Answer{}, err
	}
	// As much as comes, not as much as was promised.
	var report bytes.Buffer
	if _, err := io.CopyN(&report, br, int64(a.Bytes)); err != nil {
		return Answer{}, io.ErrUnexpectedEOF
	}
	if a.Bytes > 0 {
		a.Report = report.Bytes()
	}
	return a, nil
}

// message is the line of a question or an answer.
func message(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return append(b, '\n')
}

// write writes an answer.
func (a *Answer) write(w io.Writer) error {
	if len(a.Report) > maxReport {
		*a = No(CouldNot, "the report has %d MiB, which is too much to be sent", len(a.Report)>>20)
	}
	a.Version, a.Bytes = Version, len(a.Report)
	b := message(a)
	if len(b) > maxAnswer {
		*a = No(CouldNot, "the answer is too long")
		a.Version = Version
		b = message(a)
	}
	_, err := w.Write(append(b, a.Report...))
	return err
}

// prefix begins the name of every socket; the pid of its ripstop and a random number follow.
const prefix = "@ripstop-ctl-"

// names reads /proc/net/unix: the sockets of ours that take connections.
func names(r io.Reader) (list []string, err error) {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path
		f := strings.Fields(sc.Text())
		const accepts = "00010000" // SO_ACCEPTCON
		if len(f) == 8 && f[3] == accepts && strings.HasPrefix(f[7], prefix) {
			list = append(list, f[7])
		}
	}
	return list, sc.Err()
}
