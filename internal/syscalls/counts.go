package syscalls

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ripstop/ripstop/internal/wire"
)

// Counts are what was counted of calls, by row of wire.Calls.
type Counts map[int]wire.CallCount

// Add adds to a row.
func (c Counts) Add(row int, n wire.CallCount) {
	was := c[row]
	c[row] = wire.CallCount{Calls: was.Calls + n.Calls, Errors: was.Errors + n.Errors, Ticks: was.Ticks + n.Ticks}
}

// AddAll adds all of others.
func (c Counts) AddAll(others Counts) {
	for row, n := range others {
		c.Add(row, n)
	}
}

// firstSpecial is the first row that is not a call's number.
const firstSpecial = wire.CallRows - 8

// VDSO names the functions of the vdso that are counted, and their rows.
var VDSO = map[string]int{
	"clock_gettime": firstSpecial + int(wire.CallRowVdsoClockGettime),
	"gettimeofday":  firstSpecial + int(wire.CallRowVdsoGettimeofday),
	"time":          firstSpecial + int(wire.CallRowVdsoTime),
	"getcpu":        firstSpecial + int(wire.CallRowVdsoGetcpu),
	"clock_getres":  firstSpecial + int(wire.CallRowVdsoClockGetres),
	"getrandom":     firstSpecial + int(wire.CallRowVdsoGetrandom),
}

// A Row is a line of a table.
type Row struct {
	Name   string        `json:"name"`
	Number *int          `json:"number,omitempty"` // none for the vdso's, and for numbers that are too high
	VDSO   bool          `json:"vdso,omitempty"`   // calls of the vdso's function, which seldom enters the kernel; without errors and time
	Calls  uint64        `json:"calls"`
	Errors uint64        `json:"errors"`
	Time   time.Duration `json:"nanoseconds"`
}

func rowOf(row int, n wire.CallCount, hz uint64) Row {
	r := Row{Calls: n.Calls, Errors: n.Errors, Time: time.Duration(float64(n.Ticks) / float64(hz) * 1e9)}
	if row < firstSpecial {
		r.Name, r.Number = Name(row), &row
		return r
	}
	for name, at := range VDSO {
		if at == row {
			r.Name, r.VDSO = name, true
			return r
		}
	}
	r.Name = "(other numbers)"
	return r
}

// Order is what a table is sorted by.
type Order string

// Orders of tables: the greatest first, names by alphabet.
const (
	ByTime   Order = "time"
	ByCalls  Order = "calls"
	ByErrors Order = "errors"
	ByName   Order = "name"
)

// Orders are all of them.
var Orders = []string{string(ByTime), string(ByCalls), string(ByErrors), string(ByName)}

// Rows gives the table of counts. hz is the TSC's frequency.
func (c Counts) Rows(hz uint64, by Order) []Row {
	rows := []Row{}
	for row, n := range c {
		if n.Calls > 0 || n.Errors > 0 {
			rows = append(rows, rowOf(row, n, hz))
		}
	}
	key := func(r *Row) uint64 {
		switch by {
		case ByTime:
			return uint64(r.Time)
		case ByCalls:
			return r.Calls
		case ByErrors:
			return r.Errors
		}
		return 0
	}
	slices.SortFunc(rows, func(a, b Row) int {
		for _, k := range []func(*Row) uint64{key, func(r *Row) uint64 { return r.Calls }} {
			if x, y := k(&a), k(&b); by != ByName && x != y {
				if x > y {
					return -1
				}
				return 1
			}
		}
		return strings.Compare(a.label(), b.label())
	})
	return rows
}

func (r *Row) label() string {
	if r.VDSO {
		return r.Name + " (vdso)"
	}
	return r.Name
}

// WriteTable writes a table as strace -c does.
func WriteTable(w io.Writer, rows []Row) error {
	var sum Row
	for _, r := range rows {
		sum.Calls += r.Calls
		sum.Errors += r.Errors
		sum.Time += r.Time
	}
	var b strings.Builder
	const form = "%6s %11s %11s %9s %9s %s\n"
	rule := func() {
		fmt.Fprintf(&b, form, dashes(6), dashes(11), dashes(11), dashes(9), dashes(9), dashes(16))
	}
	line := func(name string, r Row, each bool) {
		share, seconds, usecs, errors := "", "", "", ""
		if !r.VDSO {
			seconds = fmt.Sprintf("%.6f", r.Time.Seconds())
			if sum.Time > 0 {
				share = fmt.Sprintf("%.2f", 100*float64(r.Time)/float64(sum.Time))
			}
			if each && r.Calls > 0 {
				usecs = fmt.Sprintf("%.1f", float64(r.Time)/1e3/float64(r.Calls))
			}
		}
		if r.Errors > 0 {
			errors = fmt.Sprint(r.Errors)
		}
		fmt.Fprintf(&b, form, share, seconds, usecs, fmt.Sprint(r.Calls), errors, name)
	}
	fmt.Fprintf(&b, form, "% time", "seconds", "usecs/call", "calls", "errors", "syscall")
	rule()
	for i := range rows {
		line(rows[i].label(), rows[i], true)
	}
	rule()
	line("total", sum, false)
	_, err := io.WriteString(w, b.String())
	return err
}

func dashes(n int) string { return strings.Repeat("-", n) }

// A Thread is a thread and its calls.
type Thread struct {
	Number int    `json:"number"`
	TID    int    `json:"tid"`
	Counts Counts `json:"-"`
	Calls  []Row  `json:"calls"`
}

// A Process is a process and its calls.
type Process struct {
	PID int    `json:"pid"`
	Exe string `json:"executable,omitempty"`
	// Threads are those whose own counts are known. What others called is in Calls alone.
	Threads []Thread `json:"threads"`
	Counts  Counts   `json:"-"`
	Calls   []Row    `json:"calls"`
}

// Sites says what became of the sites of a module.
type Sites struct {
	Module  string         `json:"module"`
	Found   int            `json:"found"`
	Patched map[string]int `json:"patched"` // by tier
	Left    map[string]int `json:"left"`    // by reason
}

// A Profile is all that was counted in a run.
type Profile struct {
	Type       string    `json:"type"`    // syscalls
	Version    int       `json:"version"` // of this form: 1
	Ripstop    string    `json:"ripstop"`
	Command    []string  `json:"command"`
	Ended      string    `json:"ended"`
	Calls      []Row     `json:"calls"` // of all processes
	Processes  []Process `json:"processes"`
	Sites      []Sites   `json:"sites"`
	NotCounted []string  `json:"not_counted"`
}

// Finish makes the tables of the counts.
func (p *Profile) Finish(hz uint64, by Order) {
	p.Type, p.Version = "syscalls", 1
	all := Counts{}
	for i := range p.Processes {
		q := &p.Processes[i]
		for j := range q.Threads {
			q.Threads[j].Calls = q.Threads[j].Counts.Rows(hz, by)
		}
		q.Calls = q.Counts.Rows(hz, by)
		all.AddAll(q.Counts)
	}
	p.Calls = all.Rows(hz, by)
}

// Detail is how finely a profile is shown.
type Detail string

// Details.
const (
	Total     Detail = "total"
	PerProc   Detail = "process"
	PerThread Detail = "thread"
)

// Details are all of them.
var Details = []string{string(Total), string(PerProc), string(PerThread)}

// WriteText writes a finished profile for people to read.
func (p *Profile) WriteText(w io.Writer, d Detail) error {
	var b strings.Builder
	if d != Total {
		for i := range p.Processes {
			q := &p.Processes[i]
			if d == PerThread {
				for _, t := range q.Threads {
					fmt.Fprintf(&b, "process %d %s, thread T%d (tid=%d)\n", q.PID, q.Exe, t.Number, t.TID)
					WriteTable(&b, t.Calls)
					b.WriteByte('\n')
				}
			}
			fmt.Fprintf(&b, "process %d %s\n", q.PID, q.Exe)
			WriteTable(&b, q.Calls)
			b.WriteByte('\n')
		}
	}
	if d == Total || len(p.Processes) > 1 {
		if d != Total {
			fmt.Fprintf(&b, "all processes\n")
		}
		WriteTable(&b, p.Calls)
	}
	for _, n := range p.NotCounted {
		fmt.Fprintf(&b, "not counted: %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes a finished profile as docs/formats.md has it.
func (p *Profile) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}

// LeftText says that calls of some sites were not counted.
func LeftText(module string, n int, why string) string {
	return fmt.Sprintf("%s: the calls of %d sites (%s)", module, n, why)
}

// String gives one line.
func (s *Sites) String() string {
	var parts []string
	for _, m := range []map[string]int{s.Patched, s.Left} {
		var names []string
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		for i, name := range names {
			text := fmt.Sprintf("%d %s", m[name], name)
			if i == 0 && len(parts) > 0 {
				text = "left: " + text
			}
			parts = append(parts, text)
		}
	}
	return fmt.Sprintf("%s: %d found; patched: %s", s.Module, s.Found, strings.Join(parts, ", "))
}
