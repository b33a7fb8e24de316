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
// The packets, the places of errors and the instructions are held equal to those of Intel's libipt 2.0.5 by tests, and to those of Linux's perf
// 6.1. Where the two, or the manual, differ:
//
//   - libipt goes on behind the last packet to the next branch, by guess; Flow does not.
//   - A return with a TIP takes its entry off the return stack, as in perf; in libipt it stays.
//   - PWRE's HW bit is where the manual and perf have it, not where libipt looks.
//   - Reserved bits of TMA must be zero, as in libipt: this finds damage early. perf does not look.
//   - Two FUPs before one TIP are a software interrupt's, as in the manual; libipt does not know that.
//   - BBP, BIP, BEP, CFE and EVD, which libipt 2.0.5 does not know, are as in perf; TRIG, which neither knows, as in later libipts.
//
// Not here: 16- and 32-bit code, and processors' errata but SKD010, SKL014 and APL11.
package pt
