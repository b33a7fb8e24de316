// Package wire is the one statement of what the agent and the Go side share: the event table and the layouts of shared memory,
// socket messages and unwind tables. From it come the C header of the agent, the Go encoder and decoder, the text twin and
// docs/formats.md. It is a leaf: nothing of ripstop may be imported here, and no policy may enter.
//
// Events are sequences of 64-bit little-endian words. Word 0 is `ts<<8 | id` (ts: TSC ticks, 56 bits; id: the Type). The fixed
// fields follow, packed in table order: a field lies in the current word if its whole width still fits there, else it opens the
// next word. An event with a tail has one more word, the count n, and then the entries of the tail.
package wire

//go:generate go run ./gen

// Version is the version of everything in this package. Raise it whenever an event, a field, an enum value or a layout changes its
// meaning or place; adding an event with a new id does not need it.
const Version = 1

// Magic opens every shared structure and trace file: "RIPSTOP1" in memory order.
const Magic uint64 = 0x31504f5453504952
