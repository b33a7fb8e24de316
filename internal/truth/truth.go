// Package truth is the file of what a stepped program really did: every instruction of its threads with every access to memory, in the one order in
// which they happened. Tests hold against it what is recovered from samples. Pure: bytes to values and back.
//
// The bytes are described in docs/formats.md, 'Truth'.
package truth

import (
	"errors"
	"fmt"
)

// A Kind says what a Step is.
type Kind uint8

// The kinds.
const (
	Ran     Kind = 0 // the instruction at IP ran; one with a rep prefix is one step, for as long as no signal came between two repetitions
	Start   Kind = 1 // the thread begins, at IP; Value is the thread that made it, 0: unknown
	End     Kind = 2 // it has ended
	Handler Kind = 3 // instead of the instruction at IP, the handler of signal Value runs
	Resumed Kind = 4 // the kernel came back from the system call that ran last, with result Value, to IP; what it did to memory is not told
	Exec    Kind = 5 // the process is another program's: Value is the thread that called for it; all others are gone
	LetGo   Kind = 6 // the thread runs on from IP without being stepped: what it does from here on is not known
)

var kindNames = [...]string{Ran: "ran", Start: "start", End: "end", Handler: "handler", Resumed: "resumed", Exec: "exec", LetGo: "let-go"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Flags say what an access is.
type Flags uint8

// The flags.
const (
	Read   Flags = 1 << iota
	Write        // with Read: a read-modify-write
	Locked       // it is atomic
	Stack        // implicit, at the stack pointer
	AtMost       // it touched no more than these bytes; how many, only the processor knows (xsave)

	flagsKnown = AtMost<<1 - 1
)

// An Access is bytes of memory that an instruction read or wrote.
type Access struct {
	Addr  uint64 // of the lowest byte
	Size  uint64 // bytes, never 0; of one with a rep prefix, of all repetitions together
	Flags Flags
}

// A Step is something that a thread did.
type Step struct {
	Order    uint64 // its number among all steps of the recording, from 0 on
	PID, TID uint32
	Kind     Kind
	IP       uint64
	Value    uint64
	Accesses []Access // of Ran, in the order in which the instruction states them
}

// Limits of the format.
const (
	Magic       = "RSTRUTH\n"
	Version     = 1
	headerSize  = 16
	frameHeader = 24
	maxFrame    = 1 << 20 // bytes of a frame's contents
	maxAccesses = 64      // of an instruction: a scatter of bytes would have as many
)

// What can be wrong with a file; they come wrapped, with the place.
var (
	ErrFormat    = errors.New("not a truth file, or one of another version")
	ErrTruncated = errors.New("the file ends before its end mark: the recorder was killed or still runs")
	ErrDamaged   = errors.New("the file is damaged")
)

// What may stand for a record: a byte below recordThread is an instruction with so many accesses.
const (
	recordThread = 0xf0
	recordOther  = 0xf1
)
