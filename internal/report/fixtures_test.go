package report

import "github.com/ripstop/ripstop/internal/finding"

const (
	bankExe = "/build/bank/bank" // does not exist: source lines are shown whatever their age
	bankSrc = "/build/bank/bank.c"
	bankID  = "5f3c9a1be2"
)

func at(pc uint64, fn, file string, line, column int) finding.Frame {
	return finding.Frame{PC: 0x55d0c0000000 + pc, Module: bankExe, Offset: pc, BuildID: bankID, Func: fn, File: file, Line: line, Column: column}
}

var (
	frameMain    = at(0x1490, "main", bankSrc, 60, 3)
	frameInlined = finding.Frame{PC: 0x55d0c0001120, Module: bankExe, Offset: 0x1120, BuildID: bankID, Func: "lock_pair", File: bankSrc, Line: 10, Column: 2, Inlined: true}

	frameStart = finding.Frame{PC: 0x7f1200089134, Module: "/usr/lib/x86_64-linux-gnu/libc.so.6", Offset: 0x89134, Func: "start_thread", File: "./nptl/pthread_create.c", Line: 442}
)

// inversion is a cycle between a global lock with source lines and a lock in a heap block.
func inversion() finding.Finding {
	created := finding.Stack{at(0x1400, "main", bankSrc, 50, 0)}
	return finding.Finding{
		Rule: finding.RuleInversion, PID: 4711, Exe: bankExe, Count: 1,
		Message: "Cycle in lock order graph: M1 => M2 => M1",
		Parts: []finding.Part{
			{
				Text: "Mutex M2 acquired here while holding mutex M1", Thread: 2,
				Stack: finding.Stack{at(0x1210, "audit", bankSrc, 20, 2), at(0x1310, "auditor", bankSrc, 30, 0), frameStart},
				Held:  []finding.Held{{Object: "M1", Stack: finding.Stack{at(0x1200, "audit", bankSrc, 19, 2), at(0x1310, "auditor", bankSrc, 30, 0), frameStart}}},
			},
			{
				Text: "Mutex M1 acquired here while holding mutex M2", Thread: 3,
				Stack: finding.Stack{at(0x1330, "close_account", bankSrc, 0, 0), at(0x1340, "closer", "", 0, 0)},
				Held:  []finding.Held{{Object: "M2", Stack: finding.Stack{at(0x1110, "transfer", bankSrc, 9, 2)}}},
			},
		},
		Objects: []finding.Object{
			{ID: "M1", Kind: "mutex", Addr: 0x55d0c0004040, Where: finding.Global, Module: bankExe, Symbol: "audit_lock", Size: 40},
			{ID: "M2", Kind: "mutex", Addr: 0x7f1204000b70, Where: finding.Heap, Block: 0x7f1204000b60, Size: 64,
				Allocated:   finding.Stack{at(0x1450, "open_account", bankSrc, 40, 13), frameMain},
				Initialised: finding.Stack{at(0x1460, "open_account", bankSrc, 41, 2), frameMain}},
		},
		Threads: []finding.Thread{
			{Number: 2, Tid: 4713, Name: "auditor", Creator: 1, Created: created},
			{Number: 3, Tid: 4714, Name: "clo\x1b[31mser", Creator: 2},
		},
		Notes: []string{"a note of the detector"},
	}
}

// deadlock has two threads, one the main thread, an inlined function, locks for reading, and a lock on a stack.
func deadlock() finding.Finding {
	return finding.Finding{
		Rule: finding.RuleDeadlock, PID: 4711, Exe: bankExe, Count: 1, Fatal: true,
		Message: "M1 is waited for by its holder's waiter M2",
		Parts: []finding.Part{
			{Text: "Waiting here for mutex M2", Thread: 1, Stack: finding.Stack{frameInlined, at(0x1120, "transfer", bankSrc, 9, 2), frameMain},
				Held: []finding.Held{{Object: "RW1", Shared: true, Stack: finding.Stack{frameMain}}}},
			{Text: "Waiting here for rwlock RW1", Thread: 2},
		},
		Objects: []finding.Object{
			{ID: "M2", Kind: "mutex", Addr: 0x7ffc1000, Where: finding.OnStack, OwnerThread: 1, Func: "main", Symbol: "bank", Path: ".lock"},
			{ID: "RW1", Kind: "rwlock", Addr: 0x55d0c0004060, Where: finding.Global, Module: bankExe, Symbol: "table", SymOffset: 32},
		},
		Threads: []finding.Thread{{Number: 1, Tid: 4711}, {Number: 2, Tid: 4713, Name: "auditor"}},
	}
}

// stripped is of a library without symbols.
func stripped() finding.Finding {
	frame := func(off uint64) finding.Frame {
		return finding.Frame{PC: 0x7f3000000000 + off, Module: "/opt/lib/libvendor.so.3", Offset: off, BuildID: "00ff"}
	}
	return finding.Finding{
		Rule: finding.RuleUnlockNotOwner, PID: 4712, Exe: "/opt/bin/server", Count: 3,
		Message: "M1 is held by another thread",
		Parts: []finding.Part{
			{Text: "Mutex M1 unlocked here", Thread: 4, Stack: finding.Stack{frame(0x4c1b), frame(0x5000), {PC: 0x7f3100000010}}},
			{Text: "Mutex M1 locked here", Thread: 1, Stack: finding.Stack{frame(0x4a00)}},
		},
		Objects: []finding.Object{{ID: "M1", Kind: "mutex", Addr: 0x7f30aa, Where: finding.Mapping}},
		Threads: []finding.Thread{{Number: 1, Tid: 4712}, {Number: 4, Tid: 4790}},
	}
}

func fixtures() []finding.Finding {
	return []finding.Finding{inversion(), deadlock(), stripped(), dataRace()}
}

func exampleSummary() Summary {
	return Summary{
		Exited: true, ExitCode: 3, DurationMS: 1234,
		NotSeen: []string{"child process 4720 (/usr/bin/ping) was not followed: setuid"},
		Unasked: []string{"data races ('ripstop run --full' checks every access to memory)"},
		Stats:   []Stat{{"events", "1204"}, {"agent memory", "2.1 MiB"}},
	}
}

// dataRace is one of an int in a global struct, one side under a lock.
func dataRace() finding.Finding {
	created := finding.Stack{frameMain}
	return finding.Finding{
		Rule: finding.RuleDataRace, PID: 4711, Exe: bankExe, Count: 1,
		Message: "L1 is written by T3 and read by the main thread, and nothing orders the two",
		Parts: []finding.Part{
			{Text: "Write of size 4 at 0x55d0c0004084", Thread: 3, Before: []byte{17, 0, 0, 0}, Stack: finding.Stack{at(0x1210, "audit", bankSrc, 20, 2), at(0x1310, "auditor", bankSrc, 30, 0)},
				Held: []finding.Held{{Object: "M1", Stack: finding.Stack{at(0x1200, "audit", bankSrc, 19, 2)}}, {Object: "RW1", Shared: true}}},
			{Text: "Previous read of size 4 at 0x55d0c0004084", Thread: 1, Stack: finding.Stack{at(0x1330, "close_account", bankSrc, 0, 0), frameMain}, Provenance: "forward"},
		},
		Objects: []finding.Object{
			{ID: "L1", Kind: "location", Addr: 0x55d0c0004084, Where: finding.Global, Module: bankExe, Symbol: "totals", SymOffset: 4, Path: ".open[2]", Type: "count_t"},
			{ID: "M1", Kind: "mutex", Addr: 0x55d0c0004040, Where: finding.Global, Module: bankExe, Symbol: "audit_lock", Size: 40},
			{ID: "RW1", Kind: "rwlock", Addr: 0x55d0c0004060, Where: finding.Global, Module: bankExe, Symbol: "table"},
		},
		Threads: []finding.Thread{{Number: 3, Tid: 4714, Creator: 1, Created: created}, {Number: 1, Tid: 4711}},
	}
}
