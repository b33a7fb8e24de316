// Package pmu asks the kernel for samples (perf_event_open(2)) and writes what it gives to a sampled recording: by the processor's own means where there
// is a PMU with PEBS and Intel PT (mode pmu), else by a clock and hardware breakpoints (mode timer). What a machine has is found in
// /sys/bus/event_source/devices (Devices), what is asked of it follows from that alone (Plan).
//
// Mode timer. A clock of CPU time interrupts each thread and notes registers and a little stack. The events are inherited, one for each processor, so that no
// thread is missed, not even at its start. From samples whose next instructions access memory, addresses are taken that all known threads of the process are
// then watched at, by up to four breakpoints each, which move on after a while. A thread is known to be watched only some ten milliseconds after its
// start. What all of it costs is estimated as it goes, and sampling pauses when it has spent its budget.
//
// Mode pmu. Intel PT and side-band are inherited, one event of each for each processor; loads and stores are each thread's own, with a first period by
// chance (Recorder; docs/decisions.md says why). Both modes can be attached to a process that runs already.
package pmu
