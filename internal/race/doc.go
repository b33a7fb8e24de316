// Package race finds data races and accesses to freed memory: ordered events of the spine and memory accesses → findings. It is FastTrack
// (Flanagan and Freund, PLDI'09) made byte-precise, and the specification of the detector in the agent. It is pure: what it must know
// beyond events and accesses it asks through World; how a finding reads belongs to packages finding and report. Where accesses come from (a stepped
// program, recovery from samples) is not its business.
//
// # What is ordered
//
// An access comes before another if they are of one thread, or a chain of these leads from one to the other; a release comes before every later acquire
// of the same thing:
//
//	lock             release → acquire; readers are ordered with writers only; a recursive acquire or release is neither
//	condition        signal, broadcast → a wait that was woken
//	barrier          all arrivals of a phase → all departures of it
//	semaphore        all posts → a wait that succeeded
//	once, guard      the initialiser's end → whoever sees it done
//	thread           create → start; exit → join; cancel → all that the target does from there on
//	signal           send, sigaction → handler or sigwait; a handler that a kernel timer or a child's end called follows all that came before
//	channel          write, send, close, … → read, receive, poll, … of the same kernel object, over processes too, by stdio as well; changes of files → inotify's events
//	futex            wake → a wait that was woken
//	process          fork → child; all of a process, and the signals sent to it → the wait that finds it ended, a pidfd that is ready
//	key, atexit      key-create → destructor; registration → handler
//	module           its constructors and whoever loaded it → all that anybody does afterwards
//	descriptor       (nothing: its history is dropped when its number is opened again)
//	memory           (nothing: the history of bytes is dropped when they are freed and handed out)
//	atomic location  an instruction that writes it → one that reads it
//
// Objects that processes share (pshared, named, in shared mappings) count as one: orders through other processes cannot be seen, and too much order is no
// false report. For the same reason a thread of which no creator is known follows all that came before. Shared memory itself is checked per process.
//
// # Atomics
//
// An instruction with a lock prefix, and xchg, is an acquire and a release of the bytes it accesses. Bytes that are ever accessed so in the life of their
// block are atomic, and every plain read or write of 1, 2, 4 or 8 aligned bytes among them is a load or store of an atomic: acquire and release, as x86
// orders them (SDM volume 3, 9.2.3.2). So is a store that a fence follows at once, which is how compilers write a sequentially consistent store. Between two
// such accesses there is no race; between one and a plain access to the same bytes (memset, an add without lock) there is.
//
// A location that is only ever accessed by mov could still be a C11 atomic. A race of two such accesses, to the same bytes, is a class of its own, and so is a
// race that would be none if each mov that was seen to race in the order write, read were a release and an acquire.
//
// Instructions of the C library order nothing here: what orders threads by it are the spine's events. They count as accesses only to memory
// that is surely the program's (see World.Code).
//
// # What is bounded
//
// The history of accesses: beyond Config.MaxCells the pages that were not accessed for longest lose theirs, which loses races and makes none. It is said in Notes.
package race
