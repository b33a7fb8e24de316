package wire

// Enums names the values of every enum that events, layouts and messages use. For Flags the values are bits.
var Enums = []EnumSpec{
	{"Object", "what kind of thing an address is", []EnumValue{
		{1, "mutex"}, {2, "rwlock"}, {3, "spin"}, {4, "cond"}, {5, "barrier"}, {6, "sem"}, {7, "once"}, {8, "guard"},
		{9, "thread"}, {10, "key"}, {11, "futex"}, {12, "fd"}, {13, "heap"}}},
	{"Mode", "how a lock is held or wanted", []EnumValue{{0, "exclusive"}, {1, "shared"}}},
	{"How", "by what means something was acquired or waited for", []EnumValue{
		{0, "block"}, {1, "try"}, {2, "timed"}, {3, "cond"}, {4, "recursive"}, {5, "late"}}},
	{"ObjFlag", "attributes of a synchronisation object (bits)", []EnumValue{
		{1, "recursive"}, {2, "errorcheck"}, {4, "adaptive"}, {8, "robust"}, {16, "pi"}, {32, "pp"}, {64, "pshared"},
		{128, "static"}, {256, "c11"}, {512, "named"}, {1024, "late"}}},
	{"Misuse", "a fact the agent saw that breaks a rule of the interface", []EnumValue{
		{1, "unlock-not-owner"}, {2, "unlock-not-locked"}, {3, "relock"}, {4, "destroy-locked"}, {5, "destroy-waited"},
		{6, "use-after-destroy"}, {7, "use-before-init"}, {8, "cond-two-mutexes"}, {9, "cond-wait-unlocked"},
		{10, "barrier-bad-count"}, {11, "barrier-destroy-in-use"}, {12, "exit-holding-lock"}, {13, "thread-leak"},
		{14, "sem-bad-count"}, {15, "double-join"}, {16, "join-detached"}, {17, "join-self"}, {18, "invalid-free"},
		{19, "double-free"}, {20, "free-locked"}, {21, "reinit-locked"}, {22, "double-detach"}, {23, "owner-died"},
		{24, "recursion-overflow"}, {25, "unlock-read-write"}}},
	{"Start", "how a process came to be", []EnumValue{{0, "exec"}, {1, "fork"}}},
	{"Unfollowed", "why a child process is not seen", []EnumValue{
		{1, "static"}, {2, "setuid"}, {3, "foreign"}, {4, "turned-off"}, {5, "no-session"}, {6, "raw-clone"}, {7, "sandbox"},
		{8, "sanitizer"}, {9, "inside-libc"}}},
	{"End", "how a process ended, as far as the agent saw", []EnumValue{
		{0, "exit"}, {1, "raw-exit"}, {2, "quick_exit"}, {3, "exec"}, {4, "abort"}}},
	{"Channel", "a kernel object that orders threads", []EnumValue{
		{1, "pipe"}, {2, "socket"}, {3, "eventfd"}, {4, "file"}, {5, "signalfd"}, {6, "timerfd"}, {7, "epoll"}, {8, "tty"}, {9, "other"},
		{10, "sysv-msg"}, {11, "sysv-sem"}}},
	{"MaskHow", "how a signal mask changed", []EnumValue{{0, "block"}, {1, "unblock"}, {2, "set"}, {3, "wait"}, {4, "wait-end"}}},
	{"Alloc", "which interface allocated or freed", []EnumValue{
		{1, "malloc"}, {2, "calloc"}, {3, "realloc"}, {4, "memalign"}, {5, "new"}, {6, "new-array"},
		{7, "free"}, {8, "delete"}, {9, "delete-array"}, {10, "mmap"}, {11, "reallocarray"}}},
	{"Notice", "what the agent could not do, said once each", []EnumValue{
		{1, "no-memory"}, {2, "thread-unseen"}, {3, "stack-table-full"}, {4, "no-unwind-table"}, {5, "fork-unseen"},
		{6, "exec-unfollowed"}, {7, "sandboxed"}, {8, "too-many-threads"}, {9, "agent-late"}, {10, "limit"}, {11, "own-malloc"}, {12, "namespace"},
		{13, "no-tsc"}, {14, "deepbind"}, {15, "foreign-heap"}, {16, "heap-unchecked"}, {17, "kernel-requests"}, {18, "stacks-short"}, {19, "no-watch"}, {20, "locks-short"}, {21, "stack-short"}, {22, "no-epochs"}, {23, "stacks-crowded"}, {24, "other-allocations"}, {25, "no-patches"}, {26, "libc-heap"}}},
	{"Evidence", "what is wrong with the bytes at or behind a heap block", []EnumValue{
		{1, "overflow"}, {2, "underflow"}, {3, "freed-write"}}},
	{"Noticed", "when bytes that are wrong were noticed", []EnumValue{
		{1, "free"}, {2, "realloc"}, {3, "quarantine"}, {4, "exit"}, {5, "exec"}, {6, "signal"}, {7, "epoch"}}},
	{"CrashFlag", "what else is known of a crash (bits)", []EnumValue{{1, "addressed"}, {2, "freed"}, {4, "behind"}, {8, "stack"}, {16, "read"}, {32, "write"}, {64, "execute"}, {128, "reserved"}}},
	{"CrashText", "what a text says of a crash", []EnumValue{{1, "said"}, {2, "exception"}, {3, "what"}}},
	{"Used", "what of a crash was written", []EnumValue{{0, "pointer"}, {1, "part"}, {2, "return"}, {3, "divisor"}, {4, "divisor-part"}, {5, "copied"}, {6, "copied-part"}, {7, "register"}, {8, "condition"}, {9, "condition-part"}}},
	{"BlockState", "of the heap block that a value was read from or behind", []EnumValue{{1, "out"}, {2, "freed"}, {3, "filled"}, {4, "stale"}, {5, "none"}}},
	{"Again", "what came of executing the last epoch again for a crash", []EnumValue{{1, "reproduced"}, {2, "other"}, {3, "busy"}, {4, "lost"}, {5, "ended"}, {6, "young"}, {7, "alone"}}},
	{"Writer", "how it is known who wrote", []EnumValue{{1, "watchpoint"}, {2, "kernel"}}},
	{"RaceRule", "what the agent's race detector found", []EnumValue{
		{1, "data-race"}, {2, "data-race-mov"}, {3, "free"}, {4, "free-mov"}, {5, "use-after-free"}, {6, "pending-race"}, {7, "pending-free"}, {8, "data-race-ordered"}}},
}

// EnumSpec is one enum: its Go and C name, what it is, its values.
type EnumSpec struct {
	Name, Doc string
	Values    []EnumValue
}

// EnumValue is a value of an enum and its word in the text twin.
type EnumValue struct {
	V    uint32
	Name string
}

func u8(name, enum string) Field { return Field{name, 8, Enum, enum} }
func u32f(name string) Field     { return Field{name, 32, Uint, ""} }
func u64f(name string) Field     { return Field{name, 64, Uint, ""} }
func i32f(name string) Field     { return Field{name, 32, Int, ""} }
func addr(name string) Field     { return Field{name, 64, Addr, ""} }
func thread(name string) Field   { return Field{name, 32, Thread, ""} }
func stack() Field               { return Field{"stack", 32, Stack, ""} }
func stackN(name string) Field   { return Field{name, 32, Stack, ""} }
func signals(name string) Field  { return Field{name, 64, Signals, ""} }
func flags(name string) Field    { return Field{name, 16, Flags, "ObjFlag"} }

// Events is the event table. In *filtered* mode (`run`) the agent leaves out what its row marks [all]; in *all* mode (`record`)
// it sends everything. `thread` of every event is the lane's thread. Release/acquire say how an event orders memory:
// a release of x happens before every later acquire of the same x.
var Events = []Spec{
	{1, "pad", nil, Bytes, "Fills the end of a ring; readers skip it."},

	// Processes and modules.
	{2, "process", []Field{u32f("pid"), u32f("ppid"), u8("start", "Start"), thread("parent_thread"), u64f("id"), u64f("parent_id")}, Bytes,
		"First event of a process. id is unique in the session; parent_id is the id of the process that forked it (0 for the first or when not known). After start=fork the child begins with the state its parent had at `fork`, its one thread having the number parent_thread. Tail: NUL-separated executable path, then arguments."},
	{3, "process-end", []Field{u8("end", "End"), i32f("status")}, NoTail, "The process asked to end (exit family, exec that succeeded is seen as a new `process`). Absent when it was killed."},
	{4, "fork", []Field{u32f("child_pid"), stack()}, NoTail, "fork or _Fork returned in the parent. Release towards the child."},
	{5, "exec", nil, Bytes, "About to exec the path in the tail; followed by nothing if it succeeds."},
	{6, "exec-failed", []Field{i32f("errno")}, NoTail, "The exec announced before failed."},
	{7, "unfollowed", []Field{u8("why", "Unfollowed"), u32f("pid")}, Bytes, "A child process (pid, 0 if not known) will not be seen. Tail: its path."},
	{8, "wait", []Field{u32f("pid"), i32f("status")}, NoTail, "[all] wait family reaped pid, or its pidfd was found ready (pid 0: not known whose). Acquire of that process's end."},
	{9, "module", []Field{addr("base"), addr("end"), addr("bias"), u32f("id"), u32f("build_id_len")}, Bytes,
		"An ELF object is mapped in [base,end); bias = address − link-time address. id is unique in the process. Tail: build-id bytes, then the path."},
	{10, "module-gone", []Field{u32f("id")}, NoTail, "The module was unmapped by dlclose."},
	{11, "stack", []Field{stackN("id")}, PCs, "Defines stack id; sent before id is used, perhaps more than once. pcs[0] is the exact address of an instruction (of a call, or its last byte), or 0 for any of a call of a function: that of the access which names the stack; the others are return addresses."},
	{12, "notice", []Field{u8("what", "Notice"), i32f("errno"), u64f("aux")}, NoTail, "The agent could not do something."},
	{13, "stack-holding", []Field{stackN("id"), stackN("base")}, Helds, "Defines stack id, as `stack` does: it is that of base, with locks that the thread held there, the oldest 16. Sent for accesses in races."},

	// Threads.
	{16, "thread-create", []Field{thread("child"), u8("detached", ""), stack(), addr("start")}, NoTail, "About to create thread child. Release towards its `thread-start`."},
	{17, "thread-create-failed", []Field{thread("child"), i32f("error")}, NoTail, "pthread_create returned error; child never was."},
	{18, "thread-start", []Field{thread("self"), u32f("tid"), addr("pthread"), addr("stack_lo"), addr("stack_hi")}, NoTail, "First event of a thread. Acquire of its `thread-create`."},
	{19, "thread-exit", []Field{addr("value")}, NoTail, "The thread has run its cleanup handlers and key destructors and ends. Release towards its join. Last event of a thread."},
	{20, "thread-join", []Field{thread("target"), i32f("result"), u8("how", "How"), stack()}, NoTail, "A join of target returned; acquire if result is 0. Preceded by `want` when it had to wait."},
	{21, "thread-detach", []Field{thread("target"), i32f("result"), stack()}, NoTail, "target was detached."},
	{22, "thread-cancel", []Field{thread("target"), i32f("result"), stack()}, NoTail, "pthread_cancel is about to be called on target (result 0). Release towards its cleanup. Sent again with the error if the call failed."},
	{23, "thread-name", []Field{thread("target")}, Bytes, "target got the name in the tail."},

	// Locks and other objects.
	{32, "init", []Field{addr("obj"), u8("kind", "Object"), flags("flags"), stack(), u32f("value")}, NoTail, "obj was initialised; value: barrier or semaphore count; rwlock: 0 prefers readers, 1 and 2 writers (2: readers may not recurse). It begins a new object even if the address was in use. With flag static: a statically initialised object was used for the first time (stack 0); two threads may race, so it may follow other events about obj, and it begins a new object only after destroy, block-gone or another kind. With flag late [filtered]: it was initialised at stack some time ago, and other events are about to speak of it; what was at the address before is known to be gone, it may come twice, and of an object that no event speaks of there is none."},
	{33, "destroy", []Field{addr("obj"), u8("kind", "Object"), stack(), i32f("result")}, NoTail, "obj was destroyed. Filtered: only if its init was sent."},
	{34, "acquire", []Field{addr("obj"), u8("kind", "Object"), u8("mode", "Mode"), u8("how", "How"), stack()}, NoTail, "[all] obj is now held by the thread (recursion included, how=recursive). Acquire."},
	{35, "release", []Field{addr("obj"), u8("kind", "Object"), u8("mode", "Mode"), u8("how", "How")}, NoTail, "[all] The thread is about to give obj up. Release."},
	{36, "order", []Field{addr("obj"), u8("kind", "Object"), u8("mode", "Mode"), u8("how", "How"), stack()}, Helds,
		"[filtered only] obj was acquired while the locks in the tail were held, and this thread had not done so with this set of held locks since its last thread-create, thread-join or barrier-leave (and in a forked child not since the fork). how=try or timed: it would give up (no order follows from them as the last lock, but they count as held). how=cond: the mutex of a condition wait was taken again. A tail longer than a record may be keeps the newest locks. A semaphore is in tails, and acquired by order, while it looks like a lock: see sem-wait. A once or guard is held while its initialiser runs."},
	{37, "want", []Field{addr("obj"), u8("kind", "Object"), u8("mode", "Mode"), u8("how", "How"), stack(), thread("target"), u32f("value")}, Helds,
		"The thread is about to block. kind=thread: joins target. kind=cond: waits on condition obj (mutex not in the tail any more). barrier: value = count. once, guard: another thread runs the initialiser. sem: value = how often a thread that waited for it posted it itself (0: nothing speaks for its use as a lock). how=timed: it will give up by itself. The tail holds what it keeps holding. mutex, and rwlock held for writing: value = the owner's kernel tid as it stood in the object when the wait began, 0 if none could be read: in a forked child it tells a lock whose owner does not exist there. A second want without want-end (a signal handler waits inside a wait) replaces the first until its want-end, after which the first is sent again. how=late: epochs are recorded (Config.Guard), and the wait, which does not end by itself, has lasted for about a second already; what the thread holds is not known; mutex, rwlock: value = who has it as of this event, 0: not known (a rwlock held for reading). It comes again, without want-end, when that is another thread, or that thread has begun another wait that is told."},
	{38, "want-end", []Field{addr("obj"), i32f("result")}, NoTail, "The wait announced by the last `want` of this thread ended; result 0: it got what it wanted, else an error number (125, ECANCELED: the thread is being cancelled in the wait)."},
	{39, "cond-signal", []Field{addr("cond"), u8("broadcast", ""), stack()}, NoTail, "[all] pthread_cond_signal or broadcast. Release."},
	{40, "cond-wait", []Field{addr("cond"), addr("mutex"), u8("how", "How"), stack()}, NoTail, "[all] A condition wait begins (the mutex's `release` follows)."},
	{41, "cond-woken", []Field{addr("cond"), addr("mutex"), i32f("result")}, NoTail, "[all] The wait ended, the mutex is held again (its `acquire` precedes, how=cond). Acquire if result is 0."},
	{42, "barrier-arrive", []Field{addr("obj"), u32f("count"), stack()}, NoTail, "The thread arrives. Release of the phase."},
	{43, "barrier-leave", []Field{addr("obj"), u8("serial", "")}, NoTail, "The thread leaves. Acquire of the phase: of all arrivals of it."},
	{44, "sem-post", []Field{addr("obj"), stack(), i32f("value")}, NoTail, "The semaphore is about to be posted. Release. value: the count after it as far as it could be read. Filtered: sent once for a semaphore, when a thread that does not hold it posts it: it is not a lock, and all holdings of it are void (see sem-wait)."},
	{45, "sem-wait", []Field{addr("obj"), u8("how", "How"), stack()}, NoTail, "[all] A wait on the semaphore succeeded. Acquire. Filtered: a private unnamed semaphore initialised with 1 is taken for a lock until somebody posts it without holding it: who waited holds it (order, tails) until it posts it."},
	{46, "once-begin", []Field{addr("obj"), u8("kind", "Object")}, NoTail, "This thread runs the initialiser of a once or static guard."},
	{47, "once-end", []Field{addr("obj"), u8("kind", "Object"), u8("done", "")}, NoTail, "The initialiser ended (done=0: by exception, abort or cancellation). Release."},
	{48, "once-seen", []Field{addr("obj"), u8("kind", "Object")}, NoTail, "[all] once returned without running: acquire of its `once-end`."},
	{49, "misuse", []Field{addr("obj"), u8("kind", "Object"), u8("what", "Misuse"), i32f("result"), stack(), stackN("stack2"), u64f("aux"), thread("other")}, NoTail,
		"A rule was broken. stack: now; stack2: the earlier event (where locked, destroyed, freed), 0 if not known; aux and other by kind, see docs/formats.md. double-free: result=1 says that stack2 is of an earlier free from the same call site at the same stack depth. invalid-free: result is freed or behind of CrashFlag where obj is made of such bytes."},
	{50, "in-block", []Field{addr("obj"), addr("block"), u64f("size"), stack(), u8("site", "")}, NoTail, "obj lies in the heap block [block,block+size) allocated at stack. Sent when obj is first seen. site=1: stack is that of an earlier block from the same call site at the same stack depth (hot sites are not walked every time)."},
	{51, "block-gone", []Field{addr("block"), u64f("size"), stack()}, NoTail, "The heap block or mapping, which held sync objects, was freed: they are gone, without destroy. In filtered mode sent only for such blocks."},
	{52, "holds", nil, Helds, "All that the thread holds, sent on request, and at the end of a thread that still holds something."},

	// Memory. [all] throughout.
	{64, "alloc", []Field{addr("addr"), u64f("size"), stack(), u8("kind", "Alloc")}, NoTail, "[all] A heap block was handed out."},
	{65, "free", []Field{addr("addr"), stack(), u8("kind", "Alloc")}, NoTail, "[all] The block is about to be given back."},
	{66, "mmap", []Field{addr("addr"), u64f("len"), u32f("prot"), u32f("mflags"), i32f("fd"), stack()}, NoTail, "[all] mmap returned addr."},
	{67, "munmap", []Field{addr("addr"), u64f("len")}, NoTail, "[all] About to unmap."},
	{68, "mremap", []Field{addr("old"), u64f("old_len"), addr("addr"), u64f("len")}, NoTail, "[all] mremap moved or resized a mapping."},
	{69, "brk", []Field{addr("end")}, NoTail, "[all] The program moved its break."},
	{70, "access", []Field{addr("addr"), u64f("size"), addr("pc"), stack(), u8("kind", "")}, NoTail, "[accesses] An instruction at pc accesses [addr,addr+size). kind, bits: 1 reads, 2 writes, 4 atomic (a lock prefix, or xchg), 8 a fence (no access), 32 an atomic one that was told before is done by now: what others did to these bytes up to here may have come before it, 16 an instruction that takes several elements of a string or vector, and is no mov whatever its size, 128 a function of the C library or a system call, called at pc, made it for its caller: its function is the innermost frame of the stack, and it is no mov whatever its size. Writes, atomic ones and fences are told before they are made, reads when they have been; those of 16 and 128 before or after that. A thread tells an access once between two of its other events, unless the bytes are atomic."},
	{71, "race", []Field{u8("rule", "RaceRule"), u8("kind", ""), u8("kind2", ""), thread("by"), addr("addr"), u64f("size"), addr("pc"), stack(), thread("by2"), addr("addr2"), u64f("size2"), addr("pc2"), stackN("stack2"),
		u32f("count")}, NoTail,
		"[races] The agent's detector found a race: thread `by` accessed [addr,addr+size) at pc, and nothing orders that after what by2 did at pc2. kind as in access; and 64: a use (1) of the object of synchronisation at addr, or its initialisation or destruction (2), which has no pc. data-race-mov: it rests on mov instructions that could be atomics. data-race-ordered: the like, and it is others, before it, that would order the two. free, free-mov: the second is the free at stack of the block [addr,addr+size) (pc 0). use-after-free: by2 freed the block [addr2,addr2+size2) at stack2. pc2 0 with stack2 0: where the earlier access was is not remembered. count: how often it was seen so far. A race is sent when it is certain that no later atomic instruction can make it none, so perhaps when the process ends, and by any thread. Before that it is sent as pending-race or pending-free, soon after it was found, while what lies at its addresses is still there; all but rule and count will be the same."},
	{72, "evidence", []Field{u8("kind", "Evidence"), u8("noticed", "Noticed"), u8("known", ""), u32f("number"), thread("alloc_thread"), thread("free_thread"), addr("block"), u64f("size"), addr("bad"), u32f("wrong"), stack(), stackN("alloc_stack"), stackN("free_stack"),
		addr("next"), u64f("next_size"), stackN("next_stack")}, Bytes,
		"[guard] Bytes were written that are nobody's: wrong of them, the first at bad. overflow: behind the heap block [block,block+size), allocated by alloc_thread at alloc_stack. underflow: in front of the block [next,next+next_size), allocated at next_stack; behind block the guard bytes are as they were. freed-write: in the block or behind it after free_thread freed it at free_stack. next 0: it is not known which block follows. known, bits: 1 size is what was asked for, 2 wrong is the least. Without bit 1 what said how long the block is was overwritten, and size is what it can be at most. stack: the call that noticed, 0: none did. number counts in the process, from 1. Tail: the bytes at bad as they should be, then, as many, as they are; empty where that is not known."},
	{73, "guard-writer", []Field{u32f("evidence"), u8("how", "Writer"), u8("used", "Used"), u8("step", ""), thread("writer"), addr("addr"), addr("pc"), u64f("before"), u64f("after"), stack()}, NoTail,
		"[guard] In the re-execution, thread `writer` wrote to addr, of the bytes that the evidence of that number is about: the instruction at pc, or the kernel for the call at stack. before and after: the aligned word that addr lies in. Comes before its evidence, the last write last. Evidence 0: addr is where the pointer was read from that the instruction of the `crash` used that comes next; used says whether it is that, or what else it was. step 1 and more: where the value was read from that was written last in the step before. before and after are then what lies at addr, of the size that was read."},

	{74, "frame", []Field{u8("known", ""), addr("addr"), addr("pc"), u64f("lo"), u64f("hi"), addr("object"), addr("function"), addr("cfa")}, NoTail,
		"In whose frame something on a stack lies. Sent before a `race` by the thread of its later access, at pc to addr: the first known bytes at addr are lo and hi just before it is made. Sent, with known 0, before events that speak of a lock at object. function not 0: object lies on a stack, in the frame that ends at cfa (its canonical frame address) of the function in which function is an address; 0: it is not known."},
	{75, "line", []Field{addr("line"), addr("pc"), u64f("read"), u64f("written"), u64f("reads"), u64f("writes"), u64f("moved"), u64f("first"), u64f("last"), thread("by")}, NoTail,
		"[lines] What the instruction at pc did to the 64 bytes at line in thread by since it was last told: which bytes it read and wrote (bit 0: the first), how often, and how often the line was not the thread's then: others had written since it last had it, or it wrote and others had it too. first and last: ticks. Told when its place is needed, when the thread ends, and when the process does, then by the thread that ends it."},

	// Signals.
	{80, "sigaction", []Field{u32f("sig"), u32f("saflags"), addr("handler")}, NoTail, "A handler (or default 0, ignore 1) was set. Release towards its `signal-enter`."},
	{81, "signal-send", []Field{u32f("sig"), thread("target"), u32f("pid")}, NoTail, "[all] kill family, sigqueue, raise, pthread_kill, abort. Release. target 0: the process pid."},
	{82, "signal-enter", []Field{u32f("sig"), i32f("code"), u32f("pid")}, NoTail, "[all] A handler begins on this thread. Acquire of the sends of sig to it."},
	{83, "signal-leave", []Field{u32f("sig")}, NoTail, "[all] The handler returned."},
	{84, "signal-taken", []Field{u32f("sig"), i32f("code")}, NoTail, "[all] sigwait family or a signalfd read took sig. Acquire."},
	{85, "sigmask", []Field{u8("how", "MaskHow"), signals("set"), signals("mask")}, NoTail, "[all] The thread's signal mask was changed. block, unblock, set: what sigprocmask and its kin asked for; sent after the call, so the handlers that it let run come before. wait: set is in force while the wait that follows lasts (sigsuspend, ppoll, pselect, epoll_pwait); wait-end: the old mask is back (absent if the wait was left by cancellation or a jump). mask: the whole mask from now on. A thread begins with its creator's mask. Not sent for the mask of a handler, nor for what siglongjmp and setcontext restore."},
	{86, "crash", []Field{u32f("sig"), i32f("code"), {"flags", 16, Flags, "CrashFlag"}, addr("addr"), addr("pc"), stack()}, NoTail,
		"[guard] The process is about to die of sig, whose action is the default: of the instruction at pc, or (code 0 or less, SIGABRT) by its own call at stack. code: si_code. addressed: it accessed addr. freed, behind: a register that the address is made of holds the bytes that freed blocks are filled with, or that lie behind blocks. stack: addr is beside the stack pointer. read, write, execute: how it was accessed, where the processor says so. reserved: addr is where our heap has its blocks, of which none lies there: natively nothing is mapped there."},

	{87, "crash-text", []Field{u8("kind", "CrashText")}, Bytes,
		"[guard] Known of the SIGABRT of the `crash` that comes next. said: what glibc had to say before it called abort (a failed assertion, a damaged heap or stack). exception: std::terminate was called while an exception of the type of this mangled name was the last one caught, or was not caught. what: its std::exception::what(). At most 1024 bytes, of any value."},
	{88, "crash-source", []Field{u8("state", "BlockState"), u8("used", "Used"), u8("step", ""), u8("unwritten", ""), thread("alloc_thread"), thread("free_thread"), addr("addr"), u64f("value"), addr("block"), u64f("size"), stackN("alloc_stack"), stackN("free_stack")}, NoTail,
		"[guard] The re-execution for the `crash` that comes next saw it use value (used and step as in guard-writer), which it had read from addr, in the heap block [block,block+size) or behind it. out: the block is there. freed: free_thread has freed it at free_stack by the time of the crash. filled: and value is what freed blocks are filled with, so it was read after that. stale: the block is there, and value is that all the same, as are still the bytes: they were not written since the block was handed out again. unwritten 1: nothing was seen to write there in the epoch. none: it was in no heap block, and is told where it is unwritten. Used `register`, without a re-execution: a register points to addr."},
	{89, "crash-again", []Field{u8("again", "Again"), u8("verdict", "GuardVerdict"), u8("lost", "GuardLost"), u8("tries", ""), u32f("made")}, NoTail,
		"[guard] What came of executing the last epoch again for the `crash` that comes next. reproduced: re-execution number `tries` was the first to come to the same signal at the same instruction of the same thread, with all events the same; verdict says whether memory was the same, too. other: none of `made` was; verdict is the last one's. busy: not all threads came to the epoch's end in time, so there was none. lost: nor could there be, for that reason. ended: another end of the epoch came between the crash and its report. young, alone: nothing was recorded yet, of a forked child, or of a process that had no second thread (Config.Patch 2). made counts re-executions that looked into it, too."},

	// What orders threads through the kernel. [all] throughout.
	{96, "channel-release", []Field{u64f("channel"), u8("kind", "Channel"), i32f("fd")}, NoTail, "[all] About to write, send, close or shut down, by stdio as well if accesses are told. channel: identity of the kernel object (device and inode folded, direction in bit 63). fd: -1 for System V queues and semaphores, and for what inotify may tell of."},
	{97, "channel-acquire", []Field{u64f("channel"), u8("kind", "Channel"), i32f("fd")}, NoTail, "[all] A read, receive, accept, poll that found it ready, returned with something."},
	{98, "futex-wake", []Field{addr("obj"), u32f("op"), i32f("result")}, NoTail, "[all] syscall(SYS_futex, wake kinds) by the program itself. Release."},
	{99, "futex-wait", []Field{addr("obj"), u32f("op"), i32f("result")}, NoTail, "[all] syscall(SYS_futex, wait kinds) returned. Acquire if result is 0."},
	{100, "fd-open", []Field{i32f("fd"), stack()}, NoTail, "[accesses] The descriptor's number means something new from here on: it was opened at stack (0: by a call that was not seen). Uses of the descriptor are told as `access` that read the byte at FdPlace + 8 × fd, its close as one that writes it; their functions made them for their callers."},

	// Keys.
	{104, "key-create", []Field{u32f("key"), addr("destructor")}, NoTail, "[all] pthread_key_create or tss_create."},
	{105, "key-delete", []Field{u32f("key")}, NoTail, "[all] The key was deleted."},
	{106, "key-destructor", []Field{u32f("key"), addr("value")}, NoTail, "[all] The destructor of key is about to run on this thread."},
	{107, "atexit-run", []Field{addr("fn")}, NoTail, "[all] A handler of atexit, on_exit or __cxa_atexit runs. Acquire of its registration."},
	{108, "atexit-add", []Field{addr("fn")}, NoTail, "[all] A handler was registered. Release."},
}
