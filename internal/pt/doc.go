// Package pt reads and writes Intel Processor Trace: packets, the events that compound packets make, time, and the instructions that ran.
// It is pure: bytes become values and values bytes; it knows no process, no file and no clock.
//
// The layers, each on the one before:
//
//   - Decoder and Append: bytes to packets and back (Intel SDM volume 3, "Intel Processor Trace", packet definitions).
//   - Query: packets to events, with IP compression, PSB+, FUPs bound to what they belong to, overflow, and time by Clock.
//   - Flow: events and the code bytes of an Image to executed blocks of instructions; Segments splits a trace at its PSBs, so that the parts
//     are decoded independently, with the same result.
//   - FlowEncoder: the reverse, from a list of executed instructions to a trace, for machines without Intel PT and for tests.
//
// Differences from Intel's libipt are stated where they are; the packets, the positions of errors and the instructions are held equal by
// tests.
package pt
