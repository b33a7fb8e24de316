package pt

import "fmt"

// An EventKind says what an Event is.
type EventKind uint8

// The events, and what their fields mean. From is where execution stood, with HasFrom: the instruction there has not run yet. To is where it
// went on, with HasTo.
const (
	EventNone     EventKind = iota
	EventSync               // PSB+: execution stands at To; without To tracing is off
	EventTNT                // Count branches in Value, as of packet TNT8
	EventTIP                // an indirect or far branch went to To
	EventEnable             // tracing begins at To
	EventDisable            // tracing ends: at From, or without it by the next branch that can leave, which goes to To if that is known
	EventAsync              // an interrupt, a fault, an abort of a transaction: instead of the instruction at From, To ran
	EventOverflow           // packets were lost; execution stands at To; without To tracing is off
	EventTSX                // Value: TSXInTX, TSXAbort; from From on
	EventExec               // Value: ExecIF and so on, from From on
	EventPTWrite            // Value was written by the instruction at From, or without it by the next ptwrite, Count bytes of it
	EventPaging             // Value: CR3
	EventVMCS               // Value: address
	EventStop               // TraceStop
	EventOther              // a packet that says nothing of the flow, in Packet; at From if it has one
)

// An Event is what one packet or several that belong together say.
type Event struct {
	Kind           EventKind
	HasFrom, HasTo bool
	HasTime        bool
	Exec           uint8 // the mode after it: ExecCSL and so on
	Count          uint8
	From, To       uint64
	Value          uint64
	Time           uint64 // the estimated TSC at its first packet, with HasTime
	Offset         uint64 // of its first packet in the trace
	Packet         Packet // of EventOther
}

var eventNames = [...]string{
	EventNone: "none", EventSync: "sync", EventTNT: "tnt", EventTIP: "tip", EventEnable: "enable", EventDisable: "disable", EventAsync: "async",
	EventOverflow: "overflow", EventTSX: "tsx", EventExec: "exec", EventPTWrite: "ptwrite", EventPaging: "paging", EventVMCS: "vmcs",
	EventStop: "stop", EventOther: "other",
}

// String names the kind.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// String gives the event for a human reader.
func (e Event) String() string {
	s := e.Kind.String()
	if e.HasFrom {
		s += fmt.Sprintf(" from %#x", e.From)
	}
	if e.HasTo {
		s += fmt.Sprintf(" to %#x", e.To)
	}
	if e.Kind == EventTNT {
		return s + " " + Packet{Kind: TNT64, Form: e.Count, Value: e.Value}.String()
	}
	if e.Value != 0 {
		s += fmt.Sprintf(" value %#x", e.Value)
	}
	if e.Kind == EventOther {
		s += " " + e.Packet.String()
	}
	return s
}
