package wire

// Layout is one structure shared byte for byte between Go and C. Offsets follow C's natural alignment; the generator states them
// in both languages and both sides assert them.
type Layout struct {
	Name   string // Go name; the C name is rs_ + snake case
	Doc    string
	Fields []Member
	Align  int // the size is rounded up to this many bytes (0: natural)
}

// Member is one field of a Layout: type u8, u16, u32, i32, u64, bytes; Count > 0 makes it an array.
type Member struct {
	Name, Type string
	Count      int
	Doc        string
}

// Capacities of shared memory. One region is one memfd; a process has one or more, each for ThreadsPerRegion threads.
const (
	ThreadsPerRegion = 64
	HeldInSlot       = 62 // held locks visible in a slot; more are kept, but only in the agent's private memory
	MomentWords      = 24 // words of the stack in a Moment
	MaxModules       = 512
	MaxLost          = 8   // lost processes that are told one by one
	CallRows         = 512 // numbers of system calls, and enum CallRow
	PatchOps         = 1024
	PatchBytes       = 64 << 10
	PatchRuns        = 128
	PatchPointers    = 49      // of a thread: cells, context, and from tell, judge and own on the entries for recipes that tell accesses; where its word for the last of these lies; what a recipe.Defer noted
	GuardLook        = 1 << 30 // value of GuardOutside.Request
	PatchSaves       = 16      // slots of 8 bytes in which a thread's trampolines save registers
)

// StackLater in place of a held lock's stack: the stack is made from the lock's Moment when somebody asks. Never in an event.
const StackLater = 0xffffffff

// FdPlace is where descriptors lie as far as accesses are concerned, 8 bytes for each number: addresses that no program has.
const (
	FdPlace  = 0xffff_9000_0000_0000
	FdPlaces = 1 << 12
)

// FdAt gives the descriptor that lies at addr.
func FdAt(addr uint64) (fd int32, ok bool) {
	n := (addr - FdPlace) / 8
	return int32(n), addr >= FdPlace && n < FdPlaces
}

// RowStart is a flag in UnwindRow.Rule.
const RowStart = 1 << 31

// Layouts is the table of shared structures.
var Layouts = []Layout{
	{Name: "Ctl", Doc: "One page per session, made by Go, handed out in the Welcome, mapped by every agent, inherited over fork.", Fields: []Member{
		{"Magic", "u64", 0, "wire.Magic"},
		{"Version", "u32", 0, "wire.Version"},
		{"GoPid", "i32", 0, "pid of the Go side in its own pid namespace"},
		{"Closing", "u32", 0, "1: the Go side is done; agents detach (emit nothing any more, do not follow execs)"},
		{"Doorbell", "u32", 0, "futex: the agent adds 1 and wakes when something urgent is in a ring"},
		{"Sleeping", "u32", 0, "1 while the Go side waits on Doorbell; without it no wake-up is needed"},
		{"HeartbeatMs", "u32", 0, "CLOCK_MONOTONIC milliseconds, truncated, refreshed by Go at least every 200 ms"},
		{"NextProcess", "u64", 0, "atomic counter: next process id of the session"},
		{"HoldsRequest", "u32", 0, "counter; reserved for requests to agents"},
		{"Token", "u64", 0, "random; who can send it in a Hello has this page"},
		{"Forks", "u32", 0, "counter: calls of fork, before they are made"},
		{"Lost", "u32", 0, "counter: forked processes that could not join the session"},
		{"LostPid", "u32", MaxLost, "of those, the first: pid as the process itself sees it"},
		{"LostWhy", "u32", MaxLost, "errno + 1; written last"},
		{"ErrorDev", "u64", 0, "st_dev of what was standard error of the session's first process when it began"},
		{"ErrorIno", "u64", 0, "its st_ino; 0: no process has begun, or that one had none. Agents say what they have to say on no other file"},
	}, Align: 64},
	{Name: "Config", Doc: "What the agent is to do; part of the Welcome, the same for every process of a session.", Fields: []Member{
		{"All", "u8", 0, "0: filtered events (run), 1: all (record)"},
		{"Follow", "u8", 0, "1: follow children"},
		{"Heap", "u8", 0, "0: no allocation stacks, 1: allocation stacks for blocks that may hold locks"},
		{"Misuse", "u8", 0, "1: check misuse"},
		{"StackDepth", "u32", 0, "frames per stack, 0: take no stacks"},
		{"LaneBytes", "u32", 0, "size of lane 0, a power of two"},
		{"NestBytes", "u32", 0, "size of lane 1, a power of two"},
		{"AllocDepth", "u32", 0, "frames of an allocation stack"},
		{"TableWaitMs", "u32", 0, "how long the agent waits for unwind tables"},
		{"Patch", "u32", 0, "1: a process asks for patches of its code when it starts (Hello kind 4); 2: before it has a second thread, or shuts itself in; with Guard: before pthread_create or thrd_create makes its second thread"},
		{"Calls", "u32", 0, "1: system calls are counted: regions have Calls"},
		{"Races", "u32", 0, "1: the agent looks for races among the accesses that recipes tell, and sends `race` where it would send `access`; 2: among those to memory that threads share, which it finds by protection keys"},
		{"RacePages", "u32", 0, "with Races: pages of the program whose history is kept at most; 0: as many as is usual"},
		{"Allocator", "u32", 0, "low byte: enum Allocator; bits 8 to 15: guard bytes behind each block, in units of 8; from 16: bytes that each heap keeps in quarantine, in units of 64 KiB"},
		{"Guard", "u32", 0, "bit 0: epochs are recorded, so that the last one can be executed again (needs Patch and Calls, the hook at libc's system calls, and Allocator freer); bit 1: every epoch is executed again (tests); bit 2: what is executed again is so once more with all accesses judged; bit 3: order in queues of atomics is recorded whatever it costs (tests); from bit 8: ms after which an epoch ends at the latest, 0: as many as is usual"},
		{"Lines", "u32", 0, "1: what recipes tell of accesses is counted by cache lines, and sent as `line`"},
	}, Align: 8},
	{Name: "Lane", Doc: "Head of one single-producer single-consumer ring of 64-bit words. Head and Tail count words ever written and read; index = count & (size-1). A record never wraps: a pad record fills the end.", Fields: []Member{
		{"Head", "u64", 0, "written by the agent with release order after the record is complete"},
		{"Pending", "u32", 0, "1 from before the timestamp is taken until Head is advanced"},
		{"Waiting", "u32", 0, "1 while the producer waits for room"},
		{"Offset", "u64", 0, "where the ring's words begin, in bytes from the region's start"},
		{"Bytes", "u64", 0, "size of the ring in bytes"},
		{"Spare", "u64", 4, "keeps the consumer's word on its own cache line"},
		{"Tail", "u64", 0, "written by Go; a (shared) futex on its low half is woken when Waiting"},
		{"Spare2", "u64", 7, ""},
	}, Align: 64},
	{Name: "HeldSlot", Doc: "One held lock, as in a Helds tail.", Fields: []Member{
		{"Obj", "u64", 0, ""}, {"Info", "u64", 0, "stack | mode<<32 | kind<<40"},
	}},
	{Name: "Moment", Doc: "In the agent's private memory: how a thread that holds a lock took it, from which its stack can be walked. Word is the stack from Rsp on, as it was.", Fields: []Member{
		{"Pc", "u64", 0, "return address of the call"}, {"Rsp", "u64", 0, "of the caller, after the call"}, {"Rbp", "u64", 0, "of the caller"},
		{"N", "u64", 0, "the agent's own"}, {"Word", "u64", MomentWords, ""},
	}},
	{Name: "Slot", Doc: "One thread of a region. State moves free or done → live (agent) → done (agent, after its last event) → free (Go, if drained by then).", Fields: []Member{
		{"State", "u32", 0, "0 free, 1 live, 2 done"},
		{"Number", "u32", 0, "thread number in the process"},
		{"Tid", "u32", 0, ""},
		{"WaitKind", "u32", 0, "enum Object of what the thread is blocked on, 0: not blocked"},
		{"WaitObj", "u64", 0, ""},
		{"WaitSeq", "u64", 0, "raised whenever WaitKind is set or cleared"},
		{"HeldCount", "u32", 0, "locks held; the first HeldInSlot are in Held"},
		{"WaitStack", "u32", 0, "stack id of the wait"},
		{"Moments", "u64", 0, "address in the process of HeldInSlot Moments: of the entries of Held whose stack is StackLater"},
		{"Lane", "Lane", 2, "0: events; 1: events of signal handlers that interrupted an emission"},
		{"Held", "HeldSlot", HeldInSlot, ""},
		{"LocksTaken", "u64", 0, "lock acquisitions of the thread, as of its last wait; Region.LocksTaken has those of threads that have ended"},
		{"WaitWord", "u64", 0, "address in the process of the futex on which a wait of how=late sleeps; 0: the wait is none"},
	}, Align: 64},
	{Name: "GuardDebug", Doc: "How the coordinator has Go set the debug registers of all threads but its own, which stand, where the kernel refuses it breakpoints. It writes what is to be in them, then Word, and rings the doorbell; Go takes the question up, does it, writes Result, then Word, and wakes it. A question that was not taken up is withdrawn by 0.", Fields: []Member{
		{"Word", "u32", 0, "futex: number of the question << 2 | 1: asked, 2: taken up, 3: answered; 0: none"},
		{"Result", "i32", 0, "of the last answer: 0, or a negative errno; then registers of some threads may have been set"},
		{"Except", "u32", 0, "the coordinator's thread id, as the process itself sees it"},
		{"Padding", "u32", 0, ""},
		{"Address", "u64", 4, "of registers 0 to 3"},
		{"Control", "u64", 0, "of register 7; 0: none is on"},
	}, Align: 8},
	{Name: "GuardOutside", Doc: "How Go asks the coordinator of a process's epochs. Go writes Ask, then sets Request if that is 0, and wakes it; the coordinator writes what came of it, then Answered, and wakes that. One question at a time.", Fields: []Member{
		{"Request", "u32", 0, "futex: what the coordinator is to look at next; 0: nothing; GuardLook: Ask. Other values are the process's own"},
		{"Ask", "u32", 0, "number of the question << 8 | enum GuardWant; 0: none, or it was withdrawn"},
		{"Answered", "u32", 0, "futex: the last Ask that was answered"},
		{"State", "u32", 0, "0: no epochs are recorded, or not yet; 1: they are; 2: not any more, or they could not be"},
		{"Result", "i32", 0, "of the last answer: enum GuardVerdict of a rollback, else 0; or a negative errno: EBUSY: not all threads came to an end in time, ENOTSUP: the epoch was lost, ENOSYS: State is not 1"},
		{"Lost", "u32", 0, "likewise: enum GuardLost of the epoch that it was about, 0: it could be executed again"},
		{"Tries", "u32", 0, "likewise: how often it was executed again"},
		{"LastLost", "u32", 0, "enum GuardLost of the last epoch that ended and was lost, 0: none was"},
		{"Busy", "u32", 0, "raised before the coordinator stops threads or has an epoch executed again, and behind that: while it is odd what threads do, and their memory, may be of before"},
		{"Coordinator", "u32", 0, "its thread id, as the process itself sees it"},
		{"TookNs", "u64", 0, "of the last answer: from the beginning of the end to that of the next epoch"},
		{"Events", "u64", 0, "likewise: of the epoch"},
		{"LogBytes", "u64", 0, "likewise: of the logs of all threads"},
		{"Differs", "u64", 5, "likewise, of a rollback that was not identical: event, address, what was there or was done, what is, thread"},
		{"BegunNs", "u64", 0, "CLOCK_MONOTONIC when the present epoch began"},
		{"Debug", "GuardDebug", 1, ""},
	}, Align: 8},
	{Name: "Region", Doc: "Head of a region. Slots follow at SlotsOffset, rings where their lanes say. The memfd is sealed with F_SEAL_SHRINK (Go refuses it otherwise: a shrunk file would kill the reader), and the head and Offset and Bytes of every lane are final before it is sent.", Fields: []Member{
		{"Magic", "u64", 0, ""},
		{"Version", "u32", 0, ""},
		{"Pid", "u32", 0, "as the process itself sees it"},
		{"Process", "u64", 0, "id of the process in the session"},
		{"Bytes", "u64", 0, "size of the memfd"},
		{"SlotsOffset", "u64", 0, ""},
		{"Slots", "u32", 0, "number of slots, ≤ ThreadsPerRegion"},
		{"Detached", "u32", 0, "1: the agent gave up on this session"},
		{"AgentBytes", "u64", 0, "private memory the agent has mapped in this process"},
		{"Stacks", "u64", 0, "stacks interned"},
		{"StackDrops", "u64", 0, "stacks not kept because the table was full"},
		{"RingWaits", "u64", 0, "how often a thread waited for room"},
		{"Events", "u64", 0, "spare counter"},
		{"LocksTaken", "u64", 0, "lock acquisitions of threads that have ended"},
		{"CallsOffset", "u64", 0, "Slots + 1 Calls, one for each slot's thread, the last for threads without a slot and those whose slot was given away; 0: none"},
		{"RaceAmnesties", "u64", 0, "with Config.Races: how often all that came before was taken for ordered, which loses races"},
		{"RaceEvicted", "u64", 0, "likewise: pages of the program whose history of accesses was dropped"},
		{"RaceUnsaid", "u64", 0, "likewise: races that were found and are not told"},
		{"SharePardons", "u64", 0, "where only shared memory is judged: how often first accesses of memory that became shared had been told to nobody"},
		{"ShareKeysTaken", "u64", 0, "likewise: how often a thread's protection key was given to another"},
		{"SharePages", "u64", 0, "likewise: pages of the heap that became shared, as often as they did"},
		{"ShareLent", "u64", 0, "likewise: how often a shared page of the heap was lent to a thread that alone had used it for long"},
		{"ShareRests", "u64", 0, "likewise: how often what a thread has for its own was withdrawn from it at a release"},
		{"ShareFaults", "u64", 0, "likewise: faults on watched memory"},
		{"ShareSteps", "u64", 0, "likewise: how often an instruction that is not patched was stepped"},
		{"GuardEpochs", "u64", 0, "with Config.Guard: epochs that have ended"},
		{"GuardEvents", "u64", 0, "likewise: events in those that were executed again"},
		{"GuardBusy", "u64", 0, "likewise: ends that could not be had, as not all threads came to one"},
		{"GuardStopNs", "u64", 0, "likewise: how long all threads stood, in ns"},
		{"GuardLost", "u64", 16, "likewise: epochs that cannot be executed again, by enum GuardLost"},
		{"GuardVerdicts", "u64", 16, "likewise: epochs that were executed again, by enum GuardVerdict"},
		{"GuardDiffers", "u64", 9, "of the last one that was not identical: verdict, event, address, what was there or was done, what is, thread; of a word of a stack: whose it is, how far above its stack pointer, before which event that thread stands"},
		{"GuardTries", "u64", 16, "likewise: crashes by the re-execution that was the first to come to it; 0: none was"},
		{"GuardSame", "u64", 16, "likewise: epochs that came out the same but for words of stacks, by the re-execution that was the first to; 0: none was"},
		{"GuardJudged", "u64", 4, "likewise: re-executions with all accesses judged, by enum GuardJudged"},
		{"GuardIdle", "u64", 0, "likewise: how often a thread waited for another in a re-execution until nobody moved any more"},
		{"GuardQueues", "u64", 0, "likewise: epochs in which the order in queues of atomics was not recorded, as that cost too much"},
		{"Guard", "GuardOutside", 1, "of the process's first region"},
	}, Align: 4096},
	{Name: "CallCount", Doc: "What one thread did of one system call.", Fields: []Member{
		{"Calls", "u64", 0, "calls that came back; execve, clone and the like count when they are made"},
		{"Errors", "u64", 0, "of them, those that gave -4095 to -1"},
		{"Ticks", "u64", 0, "of the TSC that passed in them"},
	}},
	{Name: "Calls", Doc: "System calls of one thread, by number; see enum CallRow.", Fields: []Member{
		{"Row", "CallCount", CallRows, ""},
	}},
	{Name: "Hello", Doc: "Every message from an agent on the session's SOCK_SEQPACKET socket begins with it.", Fields: []Member{
		{"Magic", "u64", 0, ""},
		{"Version", "u32", 0, ""},
		{"Kind", "u32", 0, "1 hello (answered by a Welcome with the Ctl fd), 2 region (one fd; answered by a Tables, Has=1: Go reads the region from now on, 0: refused. A process waits for the answer before the first event of any further region, so that no event is older than the watermark, and before its first one: what it then executes or forks must not be known before it), 3 modules (N ModuleRequest follow; answered by a Tables with a fd for each that has a table), 4 patches (answered by a Tables with two fds if Has=3: the PatchPage, and memory to share that is mapped below 2 GiB; with none if Has=0)"},
		{"Pid", "u32", 0, ""},
		{"Count", "u32", 0, "kind 3: number of ModuleRequest"},
		{"Process", "u64", 0, ""},
		{"Token", "u64", 0, "kinds 2, 3 and 4: Ctl.Token; 3 may come behind a hello without"},
	}},
	{Name: "Welcome", Doc: "Answer to hello; carries the Ctl memfd.", Fields: []Member{
		{"Magic", "u64", 0, ""},
		{"Version", "u32", 0, ""},
		{"Spare", "u32", 0, ""},
		{"Config", "Config", 1, ""},
	}, Align: 8},
	{Name: "ModuleRequest", Doc: "A module whose unwind table the agent wants. The path is opened by Go; Dev, Ino guard against a changed file.", Fields: []Member{
		{"ID", "u32", 0, "module id as in the module event"},
		{"BuildIDLen", "u32", 0, ""},
		{"BuildID", "u8", 32, ""},
		{"Base", "u64", 0, "lowest mapped address"},
		{"Bias", "u64", 0, ""},
		{"EhFrameHdr", "u64", 0, "address of PT_GNU_EH_FRAME in the target, 0 if none"},
		{"Path", "u8", 416, "NUL-terminated; empty: not a file (vdso): Go reads it from the process's memory"},
	}},
	{Name: "Tables", Doc: "Answer to modules and to region. To modules: one fd follows (SCM_RIGHTS) for each module whose bit is set, in order. At most 64 modules a message.", Fields: []Member{
		{"Magic", "u64", 0, ""},
		{"Has", "u64", 0, "bit i: module i of the request has a table"},
	}},
	{Name: "PatchOp", Doc: "What the thread that asked is to do, in order.", Fields: []Member{
		{"Kind", "u32", 0, "enum PatchDo"},
		{"Arg", "u32", 0, "of unmap: 0: when nobody reads the index, 1: at once; of write, store and cover: where in Bytes"},
		{"Address", "u64", 0, ""},
		{"Value", "u64", 0, ""},
	}},
	{Name: "PatchPage", Doc: "Shared by Go and one process whose code is patched. One thread at a time asks: it fills in Request and what goes with it, adds 1 to Asked, wakes, and waits until Answered equals it. It then does the Ops; if More is set it reports Done and Error with request `more`, and waits again. If Turn says that Go has begun to change the text, they are done too when Go is gone.", Fields: []Member{
		{"Magic", "u64", 0, ""},
		{"Version", "u32", 0, ""},
		{"Asked", "u32", 0, "futex: what was asked, counted"},
		{"Spare", "u32", 12, "keeps Answered on a cache line of its own"},
		{"Answered", "u32", 0, "futex: the value of Asked that was answered last"},
		{"Waiting", "u32", 0, "1 while the agent waits on Answered in the kernel, 2 while it does operations"},
		{"Sleeping", "u32", 0, "1 while Go waits on Asked in the kernel, 2 while it works on what was asked"},
		{"More", "u32", 0, "1: the asking thread says what came of the Ops, and gets more"},
		{"Count", "u32", 0, "number of Ops"},
		{"Request", "u32", 0, "enum PatchAsk"},
		{"Done", "u32", 0, "ops that were done"},
		{"Error", "i32", 0, "errno of the op that failed, 0: none"},
		{"Result", "i32", 0, "for who asked: 0, or a negative errno; of soon: 0, it is patched, EINPROGRESS, it will be, another one, it stays as it is"},
		{"Threads", "u32", 0, "threads that the agent knows of: with 1 nobody runs the code that changes"},
		{"Address", "u64", 0, "of the request"},
		{"Tid", "u32", 0, "of the asking thread, as the process sees it"},
		{"Refused", "u32", 0, "errno + 1 if Go cannot write to the process's memory: the agent then writes Bytes"},
		{"SharedAt", "u64", 0, "where the memory to share is mapped; 0: it could not be"},
		{"SharedBytes", "u64", 0, "its size"},
		{"SaveOffset", "i32", 0, "of PatchSaves slots of 8 bytes in each thread, from fs"},
		{"ThreadOffset", "i32", 0, "of a thread's pointers, one for each enum PatchThread, from fs"},
		{"Frames", "u64", 0, "pages of the fd behind this structure that the process has mapped, for op frame; 0: it could not"},
		{"Forks", "u32", 0, "counter: forks of the process, before they are made; a child goes on in the same frames"},
		{"Turn", "u32", 0, "of the request: 1: the asker waits no longer; 2: Go changes the text without another word, so that the asker waits to the end. Whoever is first"},
		{"Unpatched", "u32", 0, "sites that the engine's client asked for, and that are not patched, but those without which it can do; by Go"},
		{"Spare2", "u32", 0, ""},
		{"XsaveMask", "u64", 0, "components of the processor's state that a call of a function may change; 0: not known"},
		{"XsaveSize", "u32", 0, "bytes of an area for them"},
		{"XsaveCompact", "u32", 0, "1: by xsavec"},
		{"Function", "u64", 32, "addresses in the agent, by enum PatchFunc"},
		{"Bytes", "u8", PatchBytes, "of ops write and store"},
		{"Op", "PatchOp", PatchOps, ""},
	}, Align: 4096},
	{Name: "PatchCover", Doc: "In Bytes, of op cover: the file of a text of which nothing was run yet. Its path follows, NUL-terminated. Value 0 of the op: nothing there is covered any more.", Fields: []Member{
		{"Offset", "u64", 0, "of the text's first byte in the file"},
		{"Dev", "u64", 0, "st_dev and st_ino of the file, as stat(2) gives them"},
		{"Ino", "u64", 0, ""},
	}},
	{Name: "TrampolineRun", Doc: "Head of a run of trampolines in the process's private memory. Count Trampolines follow in order of At, then their states. A run does not change.", Fields: []Member{
		{"Count", "u64", 0, ""},
		{"Lo", "u64", 0, "no trampoline of the run lies below"},
		{"Hi", "u64", 0, "nor at or above"},
	}},
	{Name: "Trampoline", Doc: "Any address in [At, At+Bytes) is of this trampoline, or of the jump to it inside another instruction.", Fields: []Member{
		{"At", "u64", 0, ""},
		{"States", "u32", 0, "where its first TrampolineState is, from the start of the run"},
		{"Bytes", "u16", 0, ""},
		{"Count", "u16", 0, "states"},
	}},
	{Name: "TrampolineState", Doc: "patch.State: from Off on, up to the next, a thread is for the program at At + Pc. Moves follow it.", Fields: []Member{
		{"Pc", "i32", 0, "less At"},
		{"Off", "u16", 0, ""},
		{"Resume", "u16", 0, "offset at which a thread goes on that the program lets go on there; 0xffff: there"},
		{"Moves", "u32", 0, "number of TrampolineMove that follow"},
	}},
	{Name: "TrampolineMove", Doc: "patch.Move.", Fields: []Member{
		{"N", "i32", 0, ""}, {"Reg", "u8", 0, ""}, {"From", "u8", 0, ""}, {"Spare", "u16", 0, ""},
	}},
	{Name: "UnwindHeader", Doc: "Head of an unwind table file: header, Rules × UnwindRule, Rows × UnwindRow sorted by PC, Pages × u32. All addresses are link-time.", Fields: []Member{
		{"Magic", "u64", 0, ""},
		{"Version", "u32", 0, ""},
		{"Rules", "u32", 0, ""},
		{"Rows", "u32", 0, ""},
		{"Pages", "u32", 0, "numbers behind the rows: the i-th is how many rows have a PC below i × 4096; so the row of an address is among few"},
		{"Base", "u64", 0, "link-time address that the rows' PC is relative to"},
		{"RowsOffset", "u64", 0, "bytes from the start of the file; rules begin right after the header"},
	}, Align: 64},
	{Name: "UnwindRow", Doc: "From PC on (up to the next row) the rule holds; a PC below the first row or Base has rule 0. Rule 0 is always 'nothing known here: stop'. Look up pc-1 for a return address, pc itself for an innermost or interrupted frame.", Fields: []Member{
		{"PC", "u32", 0, ""}, {"Rule", "u32", 0, "number of the rule; with RowStart if an entry of .eh_frame (a function, or a part of one) begins here"},
	}},
	{Name: "UnwindRule", Doc: "How to find the caller's frame. The return address is always at CFA-8, and the caller's rsp is the CFA, unless CFA is undef (no caller), none (unknown) or sigframe (the ucontext of the signal lies at rsp: interrupted rip, rsp, rbp, rbx from its gregs; the interrupted pc is reported as pc+1, so that pc-1 of every frame but the innermost lies in its call or instruction).", Fields: []Member{
		{"CFA", "u8", 0, "enum CFA"},
		{"RBP", "u8", 0, "enum RBPRule: where the caller's rbp is"},
		{"Reg", "u8", 0, "CFA=reg: DWARF register number; CFA=deref-*: bytes added after the load; CFA=plt: the threshold"},
		{"RBX", "u8", 0, "1: the caller's rbx is saved at CFA+RBXOff (kept for frames whose CFA is computed from it); 0: the caller's rbx is this frame's; 2: lost"},
		{"CFAOff", "i32", 0, "rsp, rbp, reg: CFA = register + CFAOff; deref-*: CFA = *(register + CFAOff) + Reg; plt: CFA = rsp + CFAOff + ((pc & 15) >= Reg ? 8 : 0)"},
		{"RBPOff", "i32", 0, "RBP=cfa: at CFA + RBPOff; RBP=at-rbp: at (this frame's rbp) + RBPOff"},
		{"RBXOff", "i32", 0, "RBX=1: at CFA + RBXOff"},
	}},
}

func init() {
	Enums = append(Enums,
		EnumSpec{"PatchAsk", "what a thread asks of the engine", []EnumValue{
			{1, "start"}, {2, "modules"}, {3, "site"}, {4, "test"}, {5, "more"}, {6, "soon"}, {7, "survey"}, {8, "whole"}, {9, "covered"}, {10, "loading"}}},
		EnumSpec{"PatchDo", "what it is told to do", []EnumValue{
			{1, "map"}, {2, "unmap"}, {3, "sync"}, {4, "trap"}, {5, "handler"}, {6, "write"}, {7, "run"}, {8, "reserve"}, {9, "freed"}, {10, "frame"}, {11, "debugger"}, {12, "store"}, {13, "heap"}, {14, "pristine"}, {15, "cover"}}},
		EnumSpec{"PatchFunc", "functions and data of the agent that trampolines use; words-alone, queues-alone: how far behind the thread pointer it lies; loader-state: where ld.so calls when objects come and go, which Go has jump to loader-hook, or it puts 0 there; 0: it is not wanted", []EnumValue{
			{0, "none"}, {1, "syscall-hook"}, {2, "vdso-hook"}, {3, "runs"}, {4, "access"}, {5, "share-table"}, {6, "share-string"}, {7, "lock-hook"}, {8, "clock-hook"}, {9, "clock-processor-hook"}, {10, "syscall"}, {11, "futex-hook"}, {12, "futex-over-hook"}, {13, "words-alone"}, {14, "queues-alone"}, {15, "loader-state"}, {16, "loader-hook"}}},
		EnumSpec{"Allocator", "whose malloc a process has", []EnumValue{
			{0, "libc"}, {1, "owner"}, {2, "freer"}}},
		EnumSpec{"GuardLost", "why an epoch cannot be executed again", []EnumValue{
			{1, "log"}, {2, "objects"}, {3, "threads"}, {4, "kind"}, {5, "call"}, {6, "thread"}, {7, "module"}, {8, "process"}, {9, "once"}, {10, "signal"}, {11, "memory"}, {12, "shared"}, {13, "file"}}},
		EnumSpec{"GuardVerdict", "what came of executing an epoch again: the first difference; crash: the same, up to a crash, behind which memory was not compared", []EnumValue{
			{0, "identical"}, {1, "event"}, {2, "result"}, {3, "more"}, {4, "stalled"}, {5, "memory"}, {6, "map"}, {7, "call-number"}, {8, "call-argument"}, {9, "call-result"}, {10, "call-bytes"}, {11, "stack"}, {12, "fault"}, {13, "crash"}, {15, "failed"}}},
		EnumSpec{"GuardJudged", "what came of a re-execution with all accesses judged: refused: the code could not be looked at; whole: it came to its end; astray: it went another way, and what was found is of before", []EnumValue{
			{0, "refused"}, {1, "whole"}, {2, "astray"}}},
		EnumSpec{"GuardWant", "what the coordinator of epochs is asked from outside: checkpoint: the epoch ends; rollback: and is executed again", []EnumValue{
			{1, "status"}, {2, "checkpoint"}, {3, "rollback"}}},
		EnumSpec{"CallRow", "the last 8 rows of Calls: CallRows - 8 + this", []EnumValue{
			{0, "vdso-clock-gettime"}, {1, "vdso-gettimeofday"}, {2, "vdso-time"}, {3, "vdso-getcpu"}, {4, "vdso-clock-getres"}, {5, "vdso-getrandom"}, {7, "other"}}},
		EnumSpec{"PatchThread", "pointers of each thread that trampolines use, at ThreadOffset + 8 × this from fs", []EnumValue{{0, "cells"}, {1, "context"}, {2, "tell"}, {13, "judge"}, {28, "own"}, {44, "own-word"}, {45, "deferred"}}},
		EnumSpec{"CFA", "how an unwind rule computes the canonical frame address", []EnumValue{
			{0, "none"}, {1, "rsp"}, {2, "rbp"}, {3, "reg"}, {4, "deref-rbp"}, {5, "deref-rsp"}, {6, "plt"}, {7, "sigframe"}, {8, "undef"}}},
		EnumSpec{"RBPRule", "where the caller's rbp is", []EnumValue{{0, "same"}, {1, "cfa"}, {2, "at-rbp"}, {3, "undef"}}})
}
