// Package sample is a sampled recording as files, beside the spine's trace in one directory: samples of memory accesses with registers, and traces of
// control flow, in a perf.data file that perf itself reads. It names the files, writes them for those who record, and gives what they hold to those who
// recover accesses from them. How samples come to be belongs to packages step and pmu, what they mean to package recover.
//
// The files are described in docs/formats.md, 'Sampled recordings'.
package sample

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Names in the directory of a trace.
const (
	PerfFile  = "perf.data"     // samples, control flow, mappings; package perf
	TruthFile = "truth.rst"     // of a stepped program: everything it did; package truth
	InfoFile  = "sample.json"   // Info
	VDSOFile  = "vdso.so"       // the image of [vdso], which is no file
	AgentFile = "libripstop.so" // the agent's, whose own is gone with its session
)

// A Mode says where samples come from.
type Mode string

// The modes.
const (
	None  Mode = ""      // nowhere: the spine's trace alone
	Auto  Mode = "auto"  // the best of pmu and timer that the machine has
	PMU   Mode = "pmu"   // the processor: PEBS and Intel PT
	Timer Mode = "timer" // a clock and hardware breakpoints: what code ran, and some of its accesses, by chance
	Full  Mode = "full"  // every instruction that accesses memory tells it, as an event of the trace: no samples
	Step  Mode = "step"  // every instruction is stepped, and told as a PMU would tell it
)

// Info is what sample.json says: how the samples were made, and what is known to be missing.
type Info struct {
	Format      string   `json:"format"` // "ripstop samples"
	Version     int      `json:"format_version"`
	Mode        Mode     `json:"mode"` // never auto
	Why         string   `json:"why,omitempty"`
	Period      uint64   `json:"period,omitempty"`    // accesses from one sample to the next; of timer: 0
	Seed        uint64   `json:"seed,omitempty"`      // of what was random
	Frequency   uint64   `json:"frequency,omitempty"` // of timer: samples a second of CPU time, at the end
	Hz          uint64   `json:"hz"`                  // TSC ticks a second
	Filter      []string `json:"filter,omitempty"`    // what control flow was traced in: base names of files; none: everywhere
	Samples     uint64   `json:"samples"`
	Hits        uint64   `json:"watchpoint_hits,omitempty"`
	Steps       uint64   `json:"steps,omitempty"`      // instructions stepped
	LetGo       bool     `json:"let_go,omitempty"`     // stepping ended before the program did
	Lost        uint64   `json:"lost"`                 // records that the kernel had no room for
	Truncated   uint64   `json:"truncated"`            // times that a part of a control flow trace was lost
	Throttled   uint64   `json:"throttled"`            // times that the kernel paused an event
	Budget      float64  `json:"budget,omitempty"`     // share of the program's CPU time that sampling may cost
	Cost        float64  `json:"cost,omitempty"`       // the share that it did, estimated
	Unattached  float64  `json:"unattached,omitempty"` // of timer: the share of the program's CPU time in which it was let go, since sampling it costs more than the budget
	MissedStart string   `json:"missed_start,omitempty"`
	Attached    bool     `json:"attached,omitempty"` // to a process that ran already: nothing is known of what orders its threads
	Complete    bool     `json:"complete"`           // false: the recorder was killed or still runs
}

const (
	infoFormat  = "ripstop samples"
	infoVersion = 1
)

// ErrNoSamples says that a directory holds no sampled recording.
var ErrNoSamples = errors.New("no samples were recorded; record with --sample")

// Files lists what a sampled recording may put into a trace's directory.
func Files() []string {
	return []string{PerfFile, TruthFile, InfoFile, InfoFile + ".new", VDSOFile, AgentFile}
}

// ReadInfo reads sample.json of a trace directory. The error is ErrNoSamples, wrapped, if there is none.
func ReadInfo(dir string) (Info, error) {
	var i Info
	path := filepath.Join(dir, InfoFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return i, fmt.Errorf("%s: %w", dir, ErrNoSamples)
	}
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(b, &i); err != nil {
		return i, fmt.Errorf("%s: %w", path, err)
	}
	if i.Format != infoFormat || i.Version != infoVersion {
		return i, fmt.Errorf("%s: it is %q, version %d; this ripstop reads %q, version %d", path, i.Format, i.Version, infoFormat, infoVersion)
	}
	return i, nil
}

// WriteInfo replaces sample.json in one step.
func WriteInfo(dir string, i Info) error {
	i.Format, i.Version = infoFormat, infoVersion
	b, err := json.MarshalIndent(i, "", "\t")
	if err != nil {
		panic("BUG: sample.json: " + err.Error())
	}
	path := filepath.Join(dir, InfoFile)
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Registers are the general registers by their number in instructions (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 … r15), then rip and rflags.
type Registers [18]uint64

// Places in Registers behind the general ones.
const (
	RIP    = 16
	RFLAGS = 17
)

// An EventKind says what a sample's event counts.
type EventKind uint8

// The kinds of events.
const (
	OtherEvent EventKind = iota // says nothing that is known here: control flow, side-band
	LoadEvent                   // every n-th instruction that reads memory
	StoreEvent                  // every n-th instruction that writes memory
	ClockEvent                  // a time: the registers are those before the instruction at IP
	WatchEvent                  // a hardware breakpoint: an access, with the registers behind it
)

// A Sample is one sample of a thread. It has no pointers: see spool.
type Sample struct {
	TSC   uint64
	Kind  EventKind
	IP    uint64 // of the instruction that was counted; of a ClockEvent, of the next to run; of a WatchEvent, of the one behind it
	Addr  uint64 // of LoadEvent, StoreEvent and WatchEvent: of the data
	Write bool   // of a WatchEvent: a write is what it waited for; else a read or a write
	// Regs are the registers after the instruction has run, but rip, which is IP. With a mask as some may be missing.
	Regs Registers
	Has  uint32 // bit n: Regs[n] is known

	stackLen uint32 // see Recording.Stack
	stackAt  int64
}

// A Thread is one thread of the recording. A thread id that the kernel gave out again is another Thread.
type Thread struct {
	PID, TID   int32
	Parent     int32    // thread id of who made it; 0: it was there from the start
	Comm       string   // its last name
	Start, End uint64   // TSC; End 0: it lived at the end of the recording
	Samples    []Sample // in the order of time; valid until Close
	TraceBytes int64    // length of its control flow trace
	parts      []part
}

// A part is a piece of a control flow trace in the file.
type part struct{ offset, size int64 }

// A Mapping is executable memory of a process.
type Mapping struct {
	PID        int32
	TSC        uint64 // when it was made
	Start, End uint64
	Offset     uint64 // in the file
	Path       string // as the kernel names it: a file, "[vdso]", "//anon", …
	BuildID    string // hexadecimal; "" if not known
}
