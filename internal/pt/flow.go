package pt

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/ripstop/ripstop/internal/x86"
)

// What can be wrong between a trace and the code.
var (
	ErrFlow     = errors.New("the trace does not fit the code: they are not of the same run, or the trace is damaged")
	ErrMode     = errors.New("the code is not 64-bit code, which is not followed")
	ErrNoBranch = errors.New("the code goes round without a branch that the trace could tell of")
)

// A StepKind says what a Step is.
type StepKind uint8

// The steps.
const (
	StepRun      StepKind = 1 + iota // Count instructions ran, from From up to To, one after another in memory
	StepEnable                       // tracing begins at To
	StepDisable                      // tracing ended before the instruction at From ran, or behind the branch that ends at From
	StepAsync                        // instead of the instruction at From, that at To ran: an interrupt, a fault
	StepOverflow                     // what ran is not known, until at To (0: until a StepEnable)
	StepTSX                          // a transaction began, ended or aborted: To is TSXInTX, TSXAbort
	StepPTWrite                      // the ptwrite at From wrote To; it is the next instruction, or the last of the run before
	StepStop                         // TraceStop
	StepSync                         // a PSB; execution stands at To
)

var stepNames = [...]string{"", "run", "enable", "disable", "async", "overflow", "tsx", "ptwrite", "stop", "sync"}

// A Step is something that happened, in order.
type Step struct {
	Kind     StepKind
	HasTime  bool
	Count    uint32
	From, To uint64
	Time     uint64 // it happened not later than this TSC, with HasTime
}

// String gives the step for a human reader.
func (s Step) String() string {
	name := "?"
	if int(s.Kind) < len(stepNames) {
		name = stepNames[s.Kind]
	}
	return fmt.Sprintf("%s %#x-%#x (%d) @%d", name, s.From, s.To, s.Count, s.Time)
}

// A Segment is a part of a trace from one PSB up to another.
type Segment struct {
	Start, End uint64 // offsets in the trace; what a PSB+ at End says is read, too
}

// Segments splits a trace at its PSBs into parts of at least atLeast bytes. Decoding them one by one, in whatever order, gives together
// what decoding all at once gives.
func Segments(data []byte, atLeast int) []Segment {
	return slices.Collect(EachSegment(data, atLeast))
}

// EachSegment is Segments one after the other, for traces that have many.
func EachSegment(data []byte, atLeast int) iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		pos := findPSB(data)
		for pos >= 0 && pos < len(data) {
			end := min(len(data), pos+max(atLeast, psbLen))
			// The search may begin inside a PSB, which then does not count.
			if i := findPSB(data[end:]); i >= 0 {
				end += i
			} else {
				end = len(data)
			}
			if !yield(Segment{uint64(pos), uint64(end)}) {
				return
			}
			pos = end
		}
	}
}

// A Flow gives what ran: it walks through the code as the events of the trace tell.
//
// What the trace does not prove is not given: the walk stops at the last event, where libipt goes on to the next branch. A way round without
// a branch that the trace tells of (jmp to itself) is given once, since nobody knows how often it was gone when an interrupt ends it.
type Flow struct {
	query  *Query
	filter Filter
	cache  *Cache
	limit  uint64 // a PSB here or behind is somebody else's

	event    Event // the next event, if have
	have     bool
	nTNT     uint8  // branches told and not walked yet,
	tnt      uint64 // the next one in bit nTNT-1
	tntTime  uint64
	tntTimed bool
	reached  bool // the walk came to the place of the event that only the code tells

	on    bool
	ip    uint64
	here  *block // at ip, if not nil
	exec  uint8
	stack retStack
	idle  int // blocks since anything was decided
	begun bool
	ended bool
}

// maxIdle bounds a walk without a decision. Real code does not come near.
const maxIdle = 1 << 16

// A Filter is the address ranges in which tracing is on, as begin and end; an empty one is everywhere.
type Filter [][2]uint64

// Has says whether tracing is on at an address.
func (f Filter) Has(addr uint64) bool {
	return len(f) == 0 || slices.ContainsFunc(f, func(r [2]uint64) bool { return addr >= r[0] && addr < r[1] })
}

// A Config is what one must know of how a trace was made.
type Config struct {
	Timing Timing
	// Filter is needed only where a direct branch out of it does not tell where it went (erratum SKL014).
	Filter Filter
}

// NewFlow gives the flow of a segment of a trace. The cache may be used for another Flow when this one is done.
func NewFlow(trace []byte, s Segment, c Config, cache *Cache) *Flow {
	end := uint64(len(trace))
	start, limit := min(s.Start, end), min(s.End, end)
	return &Flow{query: NewQuery(trace[start:], start, c.Timing), filter: c.Filter, cache: cache, limit: limit}
}

// A retStack holds where calls will return to, as the processor does: the 64 youngest.
type retStack struct {
	top, n uint8
	addr   [64]uint64
}

func (s *retStack) push(addr uint64) {
	s.top = (s.top + 1) % uint8(len(s.addr))
	s.addr[s.top] = addr
	s.n = min(s.n+1, uint8(len(s.addr)))
}

func (s *retStack) pop() (addr uint64, ok bool) {
	if s.n == 0 {
		return 0, false
	}
	addr = s.addr[s.top]
	s.top = (s.top - 1) % uint8(len(s.addr))
	s.n--
	return addr, true
}

// Read fills buf with the next steps and says how many. At the end of the segment the error is io.EOF, with no steps. Another error is an
// *Error, behind the steps before it; the next Read goes on behind it, at the next PSB. Damage shows late: what is given between a StepSync and
// an error behind it is doubtful.
func (f *Flow) Read(buf []Step) (int, error) {
	n := 0
	for n < len(buf) {
		more, err := f.step(&buf[n])
		if more {
			n++
		}
		if err != nil {
			if err == io.EOF && n > 0 {
				return n, nil
			}
			return n, err
		}
	}
	return n, nil
}

// Stands gives where execution stands at the end of the segment, once Read has given io.EOF: the address of what runs next. It is not known where tracing is off
// or the end could not be decoded.
func (f *Flow) Stands() (ip uint64, ok bool) { return f.ip, f.ended && f.on && f.nTNT == 0 }

// fail ends what is being decoded: the next event is a PSB+.
func (f *Flow) fail(offset uint64, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Offset: offset, IP: f.ip, Err: err}
	}
	f.on, f.nTNT, f.here, f.idle, f.reached = false, 0, nil, 0, false
	if f.have && f.event.Kind == EventSync {
		return e // it is there already
	}
	f.have, f.begun = false, false
	return e
}

// fetch gets the next event; TNTs are taken into tnt at once where none is left.
func (f *Flow) fetch() error {
	if !f.begun {
		if err := f.query.Sync(); err != nil {
			f.ended = true
			return err
		}
		if f.query.Offset() >= f.limit {
			f.ended = true
			return io.EOF
		}
		f.begun = true
	}
	if err := f.query.Next(&f.event); err != nil {
		if err == io.EOF {
			f.ended = true
			return err
		}
		if f.query.inPSB && f.query.psbAt >= f.limit {
			f.ended = true // in the PSB+ of the next segment, which will tell it
			return io.EOF
		}
		return f.fail(f.query.at, err)
	}
	if f.event.Kind == EventTNT && f.on && f.nTNT == 0 {
		f.nTNT, f.tnt, f.tntTime, f.tntTimed = f.event.Count, f.event.Value, f.event.Time, f.event.HasTime
		return nil
	}
	f.have = true
	return nil
}

// step does the next thing and says whether it filled in s.
func (f *Flow) step(s *Step) (bool, error) {
	if f.ended {
		return false, io.EOF
	}
	if !f.have && f.nTNT == 0 {
		if err := f.fetch(); err != nil {
			return false, err
		}
	}
	if !f.on {
		return f.off(s)
	}
	if f.nTNT == 0 {
		if done, more, err := f.arrive(s); done || err != nil {
			return more, err
		}
	}
	return f.walk(s)
}

// note fills in a step of the event.
func (f *Flow) note(s *Step, kind StepKind, from, to uint64) bool {
	*s = Step{Kind: kind, From: from, To: to, Time: f.event.Time, HasTime: f.event.HasTime}
	f.have, f.reached, f.idle = false, false, 0
	return true
}

// jump sets where execution stands.
func (f *Flow) jump(to uint64) { f.ip, f.here = to, nil }

// off handles an event while tracing is off.
func (f *Flow) off(s *Step) (bool, error) {
	e := &f.event
	switch e.Kind {
	case EventSync:
		return f.sync(s)
	case EventEnable:
		if !e.HasTo {
			return false, f.fail(e.Offset, ErrContext)
		}
		f.on, f.exec = true, e.Exec
		f.jump(e.To)
		return f.note(s, StepEnable, 0, e.To), nil
	case EventTNT, EventTIP, EventAsync, EventDisable:
		if e.Kind == EventDisable && !e.HasFrom { // again, behind an overflow (erratum APL11)
			f.have = false
			return false, nil
		}
		return false, f.fail(e.Offset, ErrContext)
	}
	return f.apply(s)
}

// sync begins at a PSB+, or ends there if it is the limit.
func (f *Flow) sync(s *Step) (bool, error) {
	e := &f.event
	if e.Offset >= f.limit {
		f.ended = true
		return false, io.EOF
	}
	f.on, f.exec, f.stack.n, f.have, f.idle = e.HasTo, e.Exec, 0, false, 0
	f.jump(e.To)
	if !f.on {
		return false, nil
	}
	return f.note(s, StepSync, 0, e.To), nil
}

// apply handles an event whose place has been reached, or that has none.
func (f *Flow) apply(s *Step) (bool, error) {
	e := &f.event
	switch e.Kind {
	case EventSync:
		return f.sync(s)
	case EventDisable:
		f.on, f.exec = false, e.Exec
		return f.note(s, StepDisable, f.ip, e.To), nil
	case EventAsync:
		if !e.HasTo {
			return false, f.fail(e.Offset, ErrContext)
		}
		from := f.ip
		f.exec = e.Exec
		f.jump(e.To)
		return f.note(s, StepAsync, from, e.To), nil
	case EventOverflow:
		f.on, f.exec, f.stack.n = e.HasTo, e.Exec, 0
		f.jump(e.To)
		return f.note(s, StepOverflow, 0, e.To), nil
	case EventTSX:
		return f.note(s, StepTSX, e.From, e.Value), nil
	case EventPTWrite:
		return f.note(s, StepPTWrite, e.From, e.Value), nil
	case EventStop:
		return f.note(s, StepStop, 0, 0), nil
	}
	f.have = false // EventExec, EventPaging, EventVMCS, EventOther: nothing of the flow
	return false, nil
}

// place gives the address that the walk must reach before the event, and whether there is one.
func (e *Event) place() (uint64, bool) {
	if e.Kind == EventSync {
		return e.To, e.HasTo
	}
	return e.From, e.HasFrom
}

// arrive handles the event if its place is here, or it has none. If not, the walk goes on towards it.
func (f *Flow) arrive(s *Step) (done, more bool, err error) {
	e := &f.event
	if f.reached {
		more, err = f.apply(s)
		return true, more, err
	}
	if at, ok := e.place(); ok {
		if at != f.ip {
			return false, false, nil
		}
		more, err = f.apply(s)
		return true, more, err
	}
	switch e.Kind {
	case EventTIP, EventPTWrite: // at an instruction that the walk will find
		return false, false, nil
	case EventDisable:
		return false, false, nil
	case EventSync, EventEnable: // tracing went off, or on twice, without a word
		err = f.fail(e.Offset, ErrContext)
		return true, false, err
	}
	more, err = f.apply(s)
	return true, more, err
}

// walk runs one block, or the part of it up to the event's place.
func (f *Flow) walk(s *Step) (bool, error) {
	b := f.here
	if b == nil {
		if !is64(f.exec) {
			return false, f.fail(f.event.Offset, ErrMode)
		}
		b = f.cache.at(f.ip)
	}
	*s = Step{Kind: StepRun, From: b.start, To: b.end, Count: uint32(len(b.lens)), Time: f.tntTime, HasTime: f.tntTimed}
	if f.nTNT == 0 {
		e := &f.event
		s.Time, s.HasTime = e.Time, e.HasTime
		if at, ok := e.place(); ok && at > b.start && at < b.end {
			if n, ok := b.split(at); ok {
				s.To, s.Count = at, uint32(n)
				f.jump(at)
				return true, nil
			}
		}
	}
	if len(b.lens) == 0 {
		return false, f.fail(f.event.Offset, b.err)
	}
	if f.idle++; f.idle > maxIdle {
		return false, f.fail(f.event.Offset, ErrNoBranch)
	}
	return true, f.leave(b)
}

// leave goes from the end of a block to where the trace says.
func (f *Flow) leave(b *block) error {
	switch b.flow {
	case x86.FlowNone:
		f.follow(&b.next, b.end)
		if b.ptwrite && f.nTNT == 0 && f.event.Kind == EventPTWrite && !f.event.HasFrom {
			f.reached, f.event.From = true, b.end-uint64(b.lens[len(b.lens)-1])
		}
		return nil
	case x86.FlowCond, x86.FlowLoop:
		if f.nTNT == 0 {
			return f.disabled(b, f.event.To == b.target || f.event.To == b.end)
		}
		f.nTNT--
		f.idle = 0
		if f.tnt>>f.nTNT&1 != 0 {
			f.follow(&b.taken, b.target)
		} else {
			f.follow(&b.next, b.end)
		}
		return nil
	case x86.FlowCall:
		if b.target != b.end { // a call of the next instruction reads an address; no return belongs to it
			f.stack.push(b.end)
		}
		fallthrough
	case x86.FlowJump:
		if e := &f.event; f.nTNT == 0 && e.Kind == EventDisable && !e.HasFrom && (e.HasTo && e.To == b.target || !e.HasTo && !f.filter.Has(b.target)) {
			return f.disabled(b, true)
		}
		f.follow(&b.taken, b.target)
		return nil
	case x86.FlowIndirectCall:
		f.stack.push(b.end)
	case x86.FlowRet:
		to, ok := f.stack.pop()
		if f.nTNT > 0 { // compressed: an uncompressed one has made the processor send its TNT first
			f.nTNT--
			if f.tnt>>f.nTNT&1 == 0 || !ok {
				return f.fail(f.event.Offset, ErrFlow)
			}
			f.arrived(b, to)
			return nil
		}
	}
	return f.indirect(b)
}

// indirect goes where a TIP says. It may lie behind TNTs that tell of later branches.
func (f *Flow) indirect(b *block) error {
	if f.nTNT > 0 {
		f.ip = b.end
		if err := f.fetch(); err != nil {
			return err
		}
	}
	e := &f.event
	if e.Kind != EventTIP {
		return f.disabled(b, true)
	}
	if !e.HasTo {
		return f.fail(e.Offset, ErrContext)
	}
	f.have, f.exec = false, e.Exec
	if f.nTNT == 0 {
		f.tntTime, f.tntTimed = e.Time, e.HasTime
	}
	f.arrived(b, e.To)
	return nil
}

// disabled ends a block whose branch left what is traced, if it can have left to where the event says; else the trace does not fit.
func (f *Flow) disabled(b *block, fits bool) error {
	e := &f.event
	if e.Kind != EventDisable || e.HasFrom || e.HasTo && !fits || f.nTNT > 0 {
		f.ip = b.end
		return f.fail(e.Offset, ErrFlow)
	}
	f.reached = true
	f.jump(b.end)
	return nil
}

// follow goes over a link between blocks, which is made when it is first used.
func (f *Flow) follow(link **block, to uint64) {
	if *link == nil {
		*link = f.cache.at(to)
	}
	f.ip, f.here = to, *link
}

// arrived goes to where an indirect branch went.
func (f *Flow) arrived(b *block, to uint64) {
	f.ip, f.here, f.idle = to, nil, 0
	if !is64(f.exec) {
		return
	}
	if b.site.block == nil || b.site.to != to {
		b.site = indirect{to, f.cache.at(to)}
	}
	f.here = b.site.block
}

func is64(exec uint8) bool { return exec&(ExecCSL|ExecCSD) == ExecCSL }
