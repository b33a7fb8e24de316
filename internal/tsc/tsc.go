// Package tsc reads the processor's time-stamp counter, the clock of all events.
package tsc

// Now returns the time-stamp counter in ticks, unordered with surrounding memory accesses (Intel SDM vol. 2, RDTSC).
func Now() uint64
