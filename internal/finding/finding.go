// Package finding is what a detector says: a rule that was broken, by which threads, on which objects, where. Detectors make
// findings with bare code addresses, the symboliser fills in names, reports render them. No detection and no rendering lives here.
package finding

// Rule is the stable identifier of a kind of finding: SARIF's ruleId, the word in the SUMMARY line, the key in docs/findings.md.
type Rule string

// Class is the word that suppressions match a rule by, in TSan's syntax.
type Class string

const (
	ClassDeadlock Class = "deadlock" // deadlocks and lock-order inversions
	ClassMutex    Class = "mutex"    // misuse of locks, conditions, barriers, semaphores
	ClassThread   Class = "thread"   // misuse of threads
	ClassHeap     Class = "heap"     // invalid and double free, accesses to freed memory
	ClassRace     Class = "race"     // data races
	ClassCrash    Class = "crash"    // signals that end the process
)

// RuleInfo is what is fixed about a rule. The table of rules is Rules.
type RuleInfo struct {
	Rule  Rule
	Class Class
	Title string // after "WARNING: ripstop: "
	Help  string // one paragraph: what it means and what to do; for SARIF and `ripstop help rules`
	Level string // SARIF level: error or warning
}

// Frame is one frame of a stack. PC is the address in the target: exact in the innermost frame, the return address elsewhere.
// Name fields are empty until symbolised, and where nothing is known.
type Frame struct {
	PC      uint64
	Module  string // path
	Offset  uint64 // PC as a link-time address of Module
	BuildID string // hexadecimal
	Func    string // demangled
	Start   uint64 // without a Func: where the function begins, as a link-time address; 0: it is not known
	Symbol  string // as in the symbol table, where it differs from Func
	File    string
	Line    int
	Column  int
	Inlined bool // this frame is inlined into the next one
}

// Stack is a call stack, innermost frame first. Nil or empty: none was taken.
type Stack []Frame

// Thread names a thread in a finding.
type Thread struct {
	Number  uint32 // the agent's number, 1 is the first thread of the process; printed T1 or "main thread"
	Tid     uint32
	Name    string
	Creator uint32 // number of the thread that created it, 0: none or unknown
	Created Stack
}

// Where says what an object's address is.
type Where uint8

const (
	Unknown    Where = iota
	Global           // in a module: Symbol + SymOffset
	Heap             // in a heap block: Block, Size, Allocated
	OnStack          // on the stack of OwnerThread, in the frame Func if known
	TLS              // in thread-local storage of OwnerThread
	Mapping          // in a mapping that is none of the others
	Descriptor       // no memory: Addr is its number, Initialised where it was opened
)

// Object is a synchronisation object (or a heap block) in a finding. ID is the short name used in the text (M1, RW2, …), unique in
// the finding.
type Object struct {
	ID          string
	Kind        string // mutex, rwlock, spin lock, condition variable, barrier, semaphore, thread, heap block…
	Addr        uint64
	Where       Where
	Module      string
	BuildID     string // of Module, hexadecimal
	Symbol      string // global: symbol name, demangled; empty until symbolised and where there is none
	SymOffset   uint64 // from Symbol; without one, the link-time address in Module
	Path, Type  string // global, TLS: the part of the variable that is there, as it is written behind its name (".count[3]"), and that part's type; empty where nothing says it
	Block       uint64 // heap
	Size        uint64
	Allocated   Stack
	Reused      bool   // Allocated is the stack of an earlier block from the same call at the same depth of stack: frames behind the first may be another caller's
	OwnerThread uint32 // whose stack or TLS; heap: who allocated the block, 0: not known
	Func        string // stack: function whose frame holds it; then Symbol, Path and Type are of its variable there, if that is known
	// Frame is, of an object on a stack, the frame that holds it, by an address in the function, and FrameOffset where it lies from the canonical frame address; without a module: not known.
	Frame       Frame
	FrameOffset int64
	// Below, if not 0, says that Addr lies so many bytes below the thread pointer of BelowThread, so that it may be a thread-local variable of the executable; who
	// knows its symbols decides that.
	Below       uint64
	BelowThread uint32
	Initialised Stack // where it was initialised, if seen
}

// Held is a lock that a thread holds in a finding.
type Held struct {
	Object string // Object.ID
	Shared bool
	Stack  Stack // where acquired
}

// Part is one step of a finding: what one thread did or does, with its stack.
type Part struct {
	Text   string // e.g. "Mutex M2 acquired here while holding mutex M1"; without thread
	Thread uint32 // number in Threads, 0: none
	Stack  Stack
	Held   []Held
	// Provenance is, of an access to memory, how it is known, such as "sampled"; empty where it was seen itself, or is none.
	Provenance string
	// Before is, of an access to memory, the first bytes that it is to, as they were just before it; empty where that is not known.
	Before []byte
	// Callee says that the innermost frame of Stack is the function of the C library, or the system call, that made the access for the program.
	Callee bool
	// Piece is where an instruction wrote a piece of what may be one write in the source; 0: it is not such a part.
	Piece uint64
}

// Memory is bytes at Addr as they should be and as they were found; both have the same length.
type Memory struct {
	Addr    uint64
	Was, Is []byte
}

// Crash is what is known of a signal that ends the process. All texts but Signal are the program's.
type Crash struct {
	Signal    string // SIGSEGV
	Said      string // what the C library said before it aborted
	Exception string // the type of the exception for which std::terminate was called: mangled until symbolised
	What      string // and its what(); empty where it has none, or that is not known
	Again     *Again // nil: its epoch is not recorded
}

// Again is what came of executing the last moments before a crash again.
type Again struct {
	Reproduced bool   // the same signal came, at the same instruction of the same thread, with all events the same
	Tries      int    // if so: in which re-execution first, from 1
	Made       int    // how many there were, with those that looked into it
	Verdict    string // wire.GuardVerdict of that one, or of the last; "": there was none
	Why        string // there was none: "busy", "ended", "young", "alone" (wire.Again), or wire.GuardLost
}

// Finding is one thing that is wrong.
type Finding struct {
	Rule    Rule
	PID     uint32
	Exe     string // path of the process's executable
	Message string // one line: the gist, with names of objects
	Parts   []Part // in the order they are told; Parts[0].Stack's first symbolised frame is the finding's location
	Objects []Object
	Threads []Thread
	Notes   []string // what was not seen or is uncertain
	Memory  *Memory  // bytes that are wrong; nil: none are
	Crash   *Crash   // nil: it is none
	Count   int      // how often it was seen, ≥ 1
	Fatal   bool     // the program cannot go on (deadlock of every thread)
	Ordered bool     // of data-race-mov: other movs order the two accesses if what those access is an atomic
}
